"""The ssh transport into an aarch64 board of the laboratory."""

import pytest

from hwbench.devices.base import Address, transports
from hwbench.testing import lab
from hwbench.testing.transports import TransportConformance


@pytest.fixture(scope="module")
def board():
    lab.skip_if_missing()
    with lab.ssh_board() as board:
        yield board


class TestSshTransportIntoTheLab:
    """The parts of the suite that another processor, proot and busybox could break; each command is slow there."""

    test_arguments = TransportConformance.test_arguments_arrive_as_they_are
    test_streams = TransportConformance.test_status_and_streams_are_kept_apart
    test_signal = TransportConformance.test_death_by_a_signal
    test_time_limit = TransportConformance.test_a_time_limit_ends_the_command_and_its_children
    test_kill = TransportConformance.test_a_silent_process_is_waited_for_and_killed
    test_side_by_side = TransportConformance.test_files_that_must_lie_side_by_side

    @pytest.fixture
    def transport(self, board):
        with transports.get("ssh").connect(Address("board", board.options, board.work_dir)) as transport:
            yield transport
