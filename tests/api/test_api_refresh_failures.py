"""Kills, lost devices and failed rows where rows are measured again: the table keeps what it has."""

import pytest
from measured import fake_device
from refreshing import INT8, a_day_passes, profile, slower, table, two_spaces

from hwbench.errors import DeviceLost
from hwbench.latency import Role
from hwbench.latency.anchors import anchor_rows
from hwbench.spaces import load_space
from hwbench.specs import Outcome
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import work


@pytest.fixture
def workspace(tmp_path):
    return two_spaces(tmp_path / "bench")


@pytest.fixture
def fake(workspace, monkeypatch, tmp_path):
    return fake_device(monkeypatch, tmp_path / "files")


@pytest.mark.parametrize("options", [{"refresh": True}, {"space": "wider"}], ids=lambda options: next(iter(options)))
def test_a_kill_among_the_anchors_takes_none_out_of_the_table(workspace, fake, options):
    profile(workspace)
    networks = len(table(workspace).rows(Role.NETWORK))
    a_day_passes(workspace)
    slower(fake, 1.08)
    fake.interrupt_after = len(fake.visits) + 5
    with pytest.raises(KeyboardInterrupt):
        profile(workspace, **options)
    ears = Keeper()
    profile(workspace, ears, space="wider")
    after = table(workspace)
    assert len(after.rows(Role.NETWORK)) >= networks
    assert not any("left out" in line for line in ears.lines)
    assert after.scale.factor == pytest.approx(1.08, rel=0.01)
    for row in after.rows(Role.BLOCK):
        assert row.stats.median_s == pytest.approx(work(row.workload), rel=0.02)


def test_a_kill_among_failed_rows_that_are_tried_again_takes_none_out_of_the_table(workspace, fake):
    of_both = [{*load_space(workspace, name).parts(INT8, num_classes=8)} for name in ("micro", "wider")]
    block = min(of_both[0] - of_both[1], key=str)
    fake.failures = {block: (Outcome.CRASH, "killed by SIGSEGV")}
    profile(workspace)
    fake.failures, fake.interrupt_after = {}, len(fake.visits) + 1
    with pytest.raises(KeyboardInterrupt):
        profile(workspace, retry=True)
    profile(workspace, space="wider")
    assert [row.outcome for row in table(workspace) if row.workload == block] == [Outcome.CRASH]
    profile(workspace)
    assert block in table(workspace)


@pytest.mark.parametrize("options", [{"remeasure": True}, {"space": "wider"}], ids=lambda options: next(iter(options)))
def test_a_device_that_is_lost_takes_no_row_out_of_the_table(workspace, fake, options):
    profile(workspace)
    before = table(workspace)
    a_day_passes(workspace)
    measure, fake.measure, ears = fake.measure, lost, Keeper()
    with pytest.raises(DeviceLost):
        profile(workspace, ears, **options)
    assert any("got no latency when measured again; the table keeps what was measured before" in x for x in ears.lines)
    assert {row.workload: row.stats for row in table(workspace)} == {row.workload: row.stats for row in before}
    fake.measure = measure
    slower(fake, 1.08)
    ears = Keeper()
    profile(workspace, ears)
    profile(workspace, ears, space="wider")
    assert not any("got no latency" in line for line in ears.lines)
    after = table(workspace)
    assert after.scale.factor == pytest.approx(1.0 if "remeasure" in options else 1.08, rel=0.01)
    factor = 1.08 if "remeasure" in options else 1.0
    for row in after.rows(Role.BLOCK):
        assert row.stats.median_s == pytest.approx(factor * work(row.workload), rel=0.02)


def lost(*args, **options):
    raise DeviceLost("the cable was pulled")


def test_anchors_that_fail_keep_their_rows_and_the_next_refresh_measures_them_again(workspace, fake):
    profile(workspace)
    before = table(workspace)
    a_day_passes(workspace)
    slower(fake, 1.08)
    anchors = [row.workload for row in anchor_rows(before)]
    fake.failures = dict.fromkeys(anchors[:2], (Outcome.THROTTLED, "the device is hot"))
    ears = Keeper()
    device = profile(workspace, ears, refresh=True).devices[0]
    assert (device.ok, device.failed) == (2, 2)
    assert "2 failed:" in ears.lines
    kept = "2 rows got no latency when measured again; the table keeps what was measured before; the same command"
    assert any(kept in line for line in ears.lines)
    assert [row.workload for row in anchor_rows(table(workspace))] == anchors
    fake.failures, visits = {}, len(fake.visits)
    device = profile(workspace, refresh=True).devices[0]
    assert (device.ok, device.failed, set(fake.visits[visits:])) == (4, 0, set(anchors))
    assert table(workspace).scale.factor == pytest.approx(1.08, rel=0.005)
    for row in table(workspace).rows(Role.NETWORK):
        assert row.stats.median_s == pytest.approx(before[row.workload].median_s, rel=0.01)


def test_an_anchor_that_fails_hides_no_others_that_moved_apart(workspace, fake):
    profile(workspace)
    a_day_passes(workspace)
    anchors = [row.workload for row in anchor_rows(table(workspace))]
    fake.failures = {anchors[0]: (Outcome.CRASH, "out of memory")}
    fake.law = lambda w: work(w) * (1.25 if w == anchors[1] else 1.0)
    ears = Keeper()
    profile(workspace, ears, refresh=True)
    assert any("moved apart" in line for line in ears.lines)
    assert table(workspace).scale.high / table(workspace).scale.low > 1.2


def test_a_row_that_failed_when_measured_again_is_measured_by_retry(workspace, fake):
    profile(workspace)
    block = table(workspace).rows(Role.BLOCK)[0].workload
    fake.failures = {block: (Outcome.CRASH, "killed by SIGSEGV")}
    ears = Keeper()
    assert profile(workspace, ears, remeasure=True).devices[0].failed == 1
    assert any("1 row got no latency when measured again" in line for line in ears.lines)
    assert block in table(workspace)
    fake.failures = {}
    assert (profile(workspace).devices[0].ok, profile(workspace, retry=True).devices[0].ok) == (0, 1)


def test_a_command_tells_of_failed_rows_that_it_looks_after(workspace, fake):
    """Blocks are no anchors, and the table has rows of two spaces."""
    profile(workspace)
    profile(workspace, space="wider")
    others = {*load_space(workspace, "wider").parts(INT8, num_classes=8)}
    block = next(row.workload for row in table(workspace).rows(Role.BLOCK) if row.workload not in others)
    fake.failures = {block: (Outcome.CRASH, "killed by SIGSEGV")}
    profile(workspace, remeasure=True)

    def told(**options):
        ears = Keeper()
        profile(workspace, ears, **options)
        return [line for line in ears.lines if "got no latency when measured again" in line]

    assert (told(refresh=True), told(space="wider"), len(told())) == ([], [], 1)
