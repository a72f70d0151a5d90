"""A workspace of two small spaces whose device changes its speed from one day to another."""

import sqlite3
from contextlib import closing

import pytest
from measured import TARGET
from micro_workspace import SPACE

import hwbench
from hwbench.latency import LatencyTable, Role, table_path
from hwbench.specs import Precision
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import work
from hwbench.workspace import Workspace

INT8 = Precision.INT8
PROFILE = {"space": "micro", "precision": "int8", "classes": 8}


def two_spaces(root):
    """A workspace with the spaces ``micro`` and ``wider``, which share blocks."""
    made = Workspace.create(root)
    several = SPACE.replace("width = [8, 16]", "width = [8, 12, 16, 20]").replace("[1, 2]", "[1, 2, 3]")
    (made.root / "search_spaces" / "micro.toml").write_text(several)
    wider = SPACE.replace('"micro"', '"wider"').replace("[8, 16]", "[24]").replace("[1, 2]", "[1]")
    (made.root / "search_spaces" / "wider.toml").write_text(wider)
    return made


def profile(workspace, listener=None, **options):
    request = hwbench.ProfileRequest(**PROFILE | {"aa": "refresh" in options} | options)
    return hwbench.profile(request, listener or Keeper(), workspace=workspace)


def table(workspace):
    return LatencyTable.read(table_path(workspace.root, TARGET, INT8))


def a_day_passes(workspace):
    """All that was measured so far was so a day ago, before the host was started."""
    with closing(sqlite3.connect(workspace.store)) as db, db:
        db.execute(
            "UPDATE sessions SET boot = '', taken_at = replace(strftime('%Y-%m-%dT%H:%M:%f', taken_at, '-1 day'), "
            "' ', 'T') || '+00:00'"
        )


def the_clock_was_ahead(workspace):
    """All that was measured so far was so an hour ago, by a clock that was two days ahead, and was published then."""
    with closing(sqlite3.connect(workspace.store)) as db, db:
        sessions, rows = ("sessions", "taken_at", ", boot_s = boot_s - 3600"), ("measurements", "finished_at", "")
        for of, at, further in (sessions, rows):
            later = f"replace(strftime('%Y-%m-%dT%H:%M:%f', {at}, '+2 days'), ' ', 'T') || '+00:00'"
            db.execute(f"UPDATE {of} SET {at} = {later}{further}")
    table_path(workspace.root, TARGET, INT8).unlink()
    profile(workspace)


def the_host_was_started_anew(workspace, clock="+8 hours"):
    """All that was measured so far was so before the last start of the host, by a clock that was off, and published."""
    with closing(sqlite3.connect(workspace.store)) as db, db:
        for of, at, further in (("sessions", "taken_at", ", boot = 'another'"), ("measurements", "finished_at", "")):
            moved = f"replace(strftime('%Y-%m-%dT%H:%M:%f', {at}, '{clock}'), ' ', 'T') || '+00:00'"
            db.execute(f"UPDATE {of} SET {at} = {moved}{further}")
    table_path(workspace.root, TARGET, INT8).unlink()
    profile(workspace)


def slower(fake, factor):
    fake.law = lambda workload: factor * work(workload)


def expect_on_the_day_of_the_table(workspace, fake, old, visits):
    """Rows that are new beside those of the workloads ``old`` are as the law, not as the slower device of now.

    The anchors are among what was measured since so many visits. The table is returned.
    """
    after = table(workspace)
    assert set(fake.visits[visits:]) & old  # the anchors, before what is new
    fresh = [row for row in after if row.workload not in old and row.role is Role.BLOCK]
    assert fresh
    for row in fresh:
        assert row.stats.median_s == pytest.approx(work(row.workload), rel=0.01)
    return after
