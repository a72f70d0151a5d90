"""The first step of the quickstart on a machine that others use so much that whole networks fail as noisy."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from measured import fake_device

from hwbench.api import campaigns
from hwbench.api import quickstart as loop
from hwbench.errors import NotMeasured
from hwbench.latency import Role
from hwbench.specs import Outcome
from hwbench.testing.listeners import Keeper
from hwbench.workspace import Workspace


class Crowd(Keeper):
    """Networks fail until it was said so many times that they are measured again."""

    def __init__(self, workspace, device, rounds):
        super().__init__()
        self._device, self._left = device, rounds
        device.failures = NoisyNetworks()

    def say(self, message):
        super().say(message)
        self._left -= message.endswith("what failed is measured again")
        if not self._left:
            self._device.failures = {}


class NoisyNetworks:
    """As the failures of a device: all whole networks but two."""

    def __init__(self):
        self._fine = []

    def __contains__(self, workload):
        if not workload.is_network:
            return False
        if len(self._fine) < 2 and workload not in self._fine:
            self._fine.append(workload)
        return workload not in self._fine

    def __getitem__(self, workload):
        return (Outcome.NOISY, "95 % interval of 59 %")


@pytest.fixture
def workspace(tmp_path):
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def device(workspace, monkeypatch):
    """Stands in for ``local``; a campaign with ``retry`` measures its failed rows again."""
    fake, place = fake_device(monkeypatch, workspace.root / "files"), campaigns.place_campaign

    @contextmanager
    def with_retry(*args, retry=False, **options):
        with place(*args, **options) as campaign:
            yield replace(campaign, retry=[Outcome.NOISY] if retry else [])

    monkeypatch.setattr(campaigns, "place_campaign", with_retry)
    return fake


def first_step(workspace, device, rounds):
    crowd = Crowd(workspace, device, rounds)
    finding = loop._Finding(loop.QuickstartRequest(), crowd, workspace, None)
    finding.profile()
    return finding, [message for message in crowd.lines if "measured again" in message]


@pytest.mark.parametrize("rounds", [1, 2])
def test_networks_that_failed_are_measured_again(workspace, device, rounds):
    finding, said = first_step(workspace, device, rounds)
    assert len(said) == rounds
    assert "has 2 calibration networks, at least 3 are needed; measure them: hwbench profile" in said[0]
    assert "--retry; what failed is measured again" in said[0]
    predictor, classes = finding.predictor()
    assert classes == 8
    assert all(row.stats is not None for row in predictor.table.rows(Role.NETWORK))
    assert finding.budget() > 0


def test_at_last_it_says_what_to_type(workspace, device):
    finding, said = first_step(workspace, device, rounds=99)
    assert len(said) == loop.RETRIES
    with pytest.raises(NotMeasured, match=r"--precision int8.* --retry$"):
        finding.budget()


def test_a_machine_that_is_quiet_enough_is_measured_once(workspace, device):
    finding = loop._Finding(loop.QuickstartRequest(), ears := Keeper(), workspace, None)
    finding.profile()
    assert not [message for message in ears.lines if "measured again" in message]
    assert finding.budget() > 0
