"""What is measured and told where the clock of the host was wrong, or begins anew with each start of the host."""

import pytest
from measured import TARGET, fake_device
from refreshing import (
    INT8,
    expect_on_the_day_of_the_table,
    profile,
    slower,
    table,
    the_clock_was_ahead,
    the_host_was_started_anew,
    two_spaces,
)

from hwbench.api.prediction import table_predictor
from hwbench.testing.listeners import Keeper


@pytest.fixture
def workspace(tmp_path):
    return two_spaces(tmp_path / "bench")


@pytest.fixture
def fake(workspace, monkeypatch, tmp_path):
    return fake_device(monkeypatch, tmp_path / "files")


@pytest.mark.parametrize("clock", ["+8 hours", "-5 minutes"])
def test_rows_after_a_start_of_the_host_are_of_another_occasion_whatever_its_clock_said(workspace, fake, clock):
    profile(workspace)
    old = {row.workload for row in table(workspace)}
    the_host_was_started_anew(workspace, clock)
    assert (table(workspace).scale.factor, table(workspace).scale.occasions) == (1.0, 1)
    slower(fake, 1.2)
    visits = len(fake.visits)
    profile(workspace, space="wider")
    after = expect_on_the_day_of_the_table(workspace, fake, old, visits)
    assert after.scale.factor == pytest.approx(1.2, rel=0.005)
    assert after.scale.occasions == 2
    profile(workspace, refresh=True)
    assert table(workspace).scale.factor == pytest.approx(1.2, rel=0.005)


def test_a_table_of_a_clock_that_was_ahead_speaks_of_another_occasion_until_a_refresh(workspace, fake):
    profile(workspace)

    def predictor():
        ears = Keeper()
        found, _ = table_predictor(workspace, TARGET, INT8, "micro", 8, filling=(None, None), listener=ears)
        return found, [line for line in ears.lines if "another occasion" in line]

    fresh, told = predictor()
    assert not told
    the_clock_was_ahead(workspace)
    found, (told,) = predictor()
    assert found.spread > fresh.spread
    assert ", 1 day ahead of the clock; another occasion may differ" in told
    assert told.endswith("moves the scale to now: hwbench profile --refresh --device local --precision int8")
    profile(workspace, refresh=True)
    found, told = predictor()
    assert found.spread == pytest.approx(fresh.spread, rel=0.01)
    assert not told
