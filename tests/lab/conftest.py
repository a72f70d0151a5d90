from __future__ import annotations

from collections.abc import Iterator

import pytest

from hwbench.testing import lab


@pytest.fixture(scope="session")
def laboratory() -> None:
    lab.skip_if_missing()


@pytest.fixture(scope="session")
def board(laboratory: None) -> Iterator[lab.VirtualBoard]:
    """A board that tests share; each leaves it as it was."""
    with lab.ssh_board() as board:
        yield board


@pytest.fixture(scope="session")
def phone(laboratory: None) -> Iterator[lab.VirtualPhone]:
    """A phone that tests share; each leaves it as it was."""
    with lab.android_phone() as phone:
        yield phone
