"""Tables that another store published, as those that come with a clone or a pull, on a device whose speed is known."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from measured import CONDITIONS, TARGET, fake_device
from micro_workspace import SPACE
from refreshing import the_clock_was_ahead

import hwbench
from hwbench.latency import LatencyTable, Role, table_path
from hwbench.latency.anchors import anchor_rows
from hwbench.latency.occasions import Scale
from hwbench.measure.store_types import fingerprint
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import space_table, work
from hwbench.workspace import Workspace

INT8 = Precision.INT8


def workspace_at(folder):
    made = Workspace.create(folder)
    several = SPACE.replace("width = [8, 16]", "width = [8, 12, 16, 20]").replace("[1, 2]", "[1, 2, 3]")
    (made.root / "search_spaces" / "micro.toml").write_text(several)
    return made


@pytest.fixture
def workspace(tmp_path):
    return workspace_at(tmp_path / "bench")


@pytest.fixture
def other(tmp_path):
    """The workspace of somebody else with the same device."""
    return workspace_at(tmp_path / "other")


@pytest.fixture
def fake(monkeypatch, tmp_path):
    return fake_device(monkeypatch, tmp_path / "files")


def profile(workspace, **options):
    """What is said."""
    ears = Keeper()
    request = {"space": "micro", "precision": "int8", "classes": 8, "aa": "refresh" in options}
    hwbench.profile(hwbench.ProfileRequest(**request | options), ears, workspace=workspace)
    return ears.lines


def path_of(workspace):
    return table_path(workspace.root, TARGET, INT8)


def table(workspace):
    return LatencyTable.read(path_of(workspace))


def slower(fake, factor, blocks=()):
    fake.law = lambda workload: (1.4 if workload in blocks else factor) * work(workload)


def pull(workspace, other):
    path_of(workspace).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path_of(other), path_of(workspace))


def profile_before(workspace, by="-1 day"):
    """A profile whose table and sessions are so old, rows by days alone."""
    profile(workspace)
    age(workspace, by)
    path_of(workspace).unlink()
    profile(workspace)


def age(workspace, by):
    """All that was measured so far is so old, rows by days alone."""
    with closing(sqlite3.connect(workspace.store)) as db, db:
        for of, at, more in (("sessions", "taken_at", ", boot = ''"), ("measurements", "finished_at", "")):
            if of == "sessions" or "day" in by:
                before = f"replace(strftime('%Y-%m-%dT%H:%M:%f', {at}, '{by}'), ' ', 'T') || '+00:00'"
                db.execute(f"UPDATE {of} SET {at} = {before}{more}")


def test_a_table_of_another_store_is_refreshed_by_its_published_anchors(workspace, fake):
    made = space_table(
        load_space(workspace, "micro"), INT8, target=TARGET, calibration=4, conditions=fingerprint(CONDITIONS)
    )
    made.write(table_path(workspace.root, TARGET, INT8))
    slower(fake, 0.95)
    profile(workspace, refresh=True)
    first = table(workspace)
    assert first.scale.factor == pytest.approx(0.95, rel=0.005)
    assert len(first) == len(made)
    profile(workspace, refresh=True)
    assert table(workspace).scale.factor == pytest.approx(0.95, rel=0.005)


def test_a_refresh_moves_the_scale_of_a_table_whose_clock_was_ahead_to_now(workspace, fake):
    made = space_table(
        load_space(workspace, "micro"), INT8, target=TARGET, calibration=4, conditions=fingerprint(CONDITIONS)
    )
    ahead = datetime.now(UTC) + timedelta(days=2)
    day = Scale(1.1, 1.09, 1.11, Scale.now(ahead))
    LatencyTable(made.target, made.precision, made, scale=day).write(path_of(workspace))
    slower(fake, 1.2)
    profile(workspace, refresh=True)
    scale = table(workspace).scale
    assert scale.factor == pytest.approx(1.2, rel=0.005)
    assert abs(scale.age_s(datetime.now(UTC))) < 600


def apart(networks):
    """A law by which every other network of a table is 4 % slower on this device than on that of the table."""
    return lambda workload: (1.04 if workload in networks[::2] else 1.0) * work(workload)


def test_each_refresh_of_a_table_of_another_store_goes_by_the_anchors_as_that_store_measured_them(workspace, fake):
    made = space_table(
        load_space(workspace, "micro"), INT8, target=TARGET, calibration=4, conditions=fingerprint(CONDITIONS)
    )
    made.write(path_of(workspace))
    published = list(table(workspace))
    fake.law = apart([row.workload for row in made.rows(Role.NETWORK)])
    profile(workspace, refresh=True)
    first = table(workspace)
    assert list(first) == published
    profile(workspace, refresh=True)
    again = table(workspace)
    assert list(again) == list(first)
    assert (again.scale.low, again.scale.high) == pytest.approx((first.scale.low, first.scale.high), rel=2e-3)
    assert again.scale.high / again.scale.low > 1.03


def test_rows_of_another_store_beside_more_of_the_own_make_no_later_day_surer(workspace, fake):
    """The anchors that tied them have since been published by the own store."""
    made = space_table(
        load_space(workspace, "x3d-tiny"), INT8, target=TARGET, calibration=4, conditions=fingerprint(CONDITIONS)
    )
    few = LatencyTable(TARGET, INT8, [*made.rows(Role.BLOCK)[:3], *made.rows(Role.NETWORK)])
    few.write(path_of(workspace))
    profile(workspace)
    age(workspace, "-1 day")
    few.write(path_of(workspace))
    profile(workspace)
    before = table(workspace)
    assert {row.workload for row in few} < {row.workload for row in before}
    fake.law = apart([row.workload for row in anchor_rows(before)])
    profile(workspace, refresh=True)
    after = table(workspace)
    assert after.scale.occasions == 2
    assert after.scale.high / after.scale.low > 1.03
    for row in after.rows(Role.BLOCK):
        assert row.stats.median_s == pytest.approx(work(row.workload), rel=2e-3)


def test_rows_that_wait_to_be_measured_anew_stay_on_the_day_of_their_sessions(workspace, fake):
    profile_before(workspace)
    slower(fake, 1.08)
    for options, further in (({"remeasure": True}, 40), ({}, 20)):
        fake.interrupt_after = len(fake.visits) + further
        with pytest.raises(KeyboardInterrupt):
            profile(workspace, **options)
        profile(workspace, refresh=True)
        after = table(workspace)
        assert after.scale.occasions == 2
        for row in after:
            assert after.scale.factor * row.stats.median_s == pytest.approx(1.08 * work(row.workload), rel=0.01)


def test_rows_beside_a_table_of_another_store_are_tied_by_its_published_anchors(workspace, fake):
    made = space_table(
        load_space(workspace, "micro"), INT8, target=TARGET, calibration=4, conditions=fingerprint(CONDITIONS)
    )
    made.write(table_path(workspace.root, TARGET, INT8))
    slower(fake, 1.08)
    profile(workspace, space="x3d-tiny")
    after = table(workspace)
    assert {row.workload for row in made} < {row.workload for row in after}
    for row in after:
        assert after.scale.factor * row.stats.median_s == pytest.approx(1.08 * work(row.workload), rel=0.01)
    visits = len(fake.visits)
    profile(workspace, space="x3d-tiny")
    assert len(fake.visits) == visits


def test_anchors_of_another_store_that_fail_here_stay_in_the_table(workspace, fake):
    made = space_table(
        load_space(workspace, "micro"), INT8, target=TARGET, calibration=4, conditions=fingerprint(CONDITIONS)
    )
    made.write(path_of(workspace))
    before = table(workspace)
    fake.failures = dict.fromkeys((row.workload for row in anchor_rows(before)), (Outcome.CRASH, "out of memory"))
    profile(workspace, space="x3d-tiny")
    after = table(workspace)
    assert {row.workload: row.stats for row in before}.items() <= {row.workload: row.stats for row in after}.items()


def test_the_anchors_of_a_table_of_other_conditions_tie_nothing(workspace, fake):
    made = space_table(load_space(workspace, "micro"), INT8, target=TARGET, calibration=4, conditions="other")
    made.write(table_path(workspace.root, TARGET, INT8))
    profile(workspace, space="x3d-tiny")
    assert fake.visits
    assert not {row.workload for row in made.rows(Role.NETWORK)} & set(fake.visits)


def test_rows_that_another_store_measured_later_stay_in_the_table(workspace, other, fake):
    profile_before(workspace)
    pull(other, workspace)
    changed = [row.workload for row in table(workspace).rows(Role.BLOCK)][:4]
    slower(fake, 1.05, changed)
    profile(other, remeasure=True)
    pull(workspace, other)
    pulled, visits = table(workspace), len(fake.visits)
    assert not [line for line in profile(workspace) if "another store" in line]
    assert (list(table(workspace)), table(workspace).scale) == (list(pulled), pulled.scale)
    assert len(fake.visits) == visits
    for options in ({"refresh": True}, {"space": "x3d-tiny"}):
        profile(workspace, **options)
        after = table(workspace)
        for row in after.rows(Role.BLOCK):
            assert after.scale.factor * row.stats.median_s == pytest.approx(fake.law(row.workload), rel=0.01)
    profile(workspace, remeasure=True)
    assert {row.workload for row in pulled} <= {*fake.visits[visits:]}


def test_rows_that_the_own_store_measured_while_its_clock_was_ahead_are_not_those_of_another_store(workspace, fake):
    profile(workspace)
    the_clock_was_ahead(workspace)
    changed = [row.workload for row in table(workspace).rows(Role.BLOCK)][:4]
    ahead = table(workspace).scale.at
    slower(fake, 1.0, changed)
    profile(workspace, refresh=True)
    assert table(workspace).scale.at < ahead
    profile(workspace, remeasure=True)
    for row in table(workspace):
        assert row.stats.median_s == pytest.approx(fake.law(row.workload), rel=0.01)
    assert table(workspace).scale.factor == 1.0


def test_rows_that_another_store_measured_while_the_own_clock_was_ahead_stay_in_the_table(workspace, fake):
    """On the same day, and with other numbers of sessions."""
    profile(workspace)
    the_clock_was_ahead(workspace)
    ahead = table(workspace).rows(Role.BLOCK)[0]
    theirs = replace(ahead, stats=replace(ahead.stats, num_sessions=9)).times(1.4)
    profile(workspace, remeasure=True)
    held = [theirs if row.workload == ahead.workload else row for row in table(workspace)]
    LatencyTable(TARGET, INT8, held, scale=table(workspace).scale).write(path_of(workspace))
    profile(workspace)
    assert table(workspace)[ahead.workload].median_s == pytest.approx(1.4 * work(ahead.workload), rel=0.01)


def test_the_day_of_a_table_that_another_store_refreshed_stays(workspace, other, fake):
    profile_before(workspace)
    pull(other, workspace)
    slower(fake, 1.06)
    profile(other, refresh=True)
    pull(workspace, other)
    pulled = table(workspace)
    profile(workspace)
    after = table(workspace)
    assert after.scale.at == pulled.scale.at
    assert after.scale.factor == pytest.approx(1.06, rel=0.005)
    assert after.scale.low < 1.06 < after.scale.high
    for row in after:
        assert row.stats.median_s == pytest.approx(work(row.workload), rel=0.01)


def test_rows_of_another_store_that_are_replaced_on_the_same_day_are_told(workspace, other, fake):
    profile_before(workspace, "-1 hour")
    own = table(workspace)
    pull(other, workspace)
    slower(fake, 1.0, [row.workload for row in own.rows(Role.BLOCK)][:4])
    profile(other, remeasure=True)
    pull(workspace, other)
    (told,) = [line for line in profile(workspace) if "another store" in line]
    assert told == (
        f"{path_of(workspace).name}: 4 rows of another store differed from those that this one measured on the same "
        f"day, which replace them; {own.command()} --remeasure tells which hold"
    )
    assert list(table(workspace)) == list(own)
    assert not [line for line in profile(workspace) if "another store" in line]


def test_rows_of_other_conditions_are_not_told_as_those_of_another_store(workspace, fake):
    profile_before(workspace, "-1 hour")
    fake.conditions = CONDITIONS | {"governor": "performance"}
    slower(fake, 0.6)
    told = profile(workspace)
    assert not [line for line in told if "another store" in line]
    assert told[0] == (
        f"{path_of(workspace).name} was measured under other conditions (governor -, then performance): new rows take "
        "the place of its rows"
    )
    assert not [line for line in profile(workspace) if "other conditions" in line]
    for row in table(workspace):
        assert row.stats.median_s == pytest.approx(0.6 * work(row.workload), rel=0.01)
