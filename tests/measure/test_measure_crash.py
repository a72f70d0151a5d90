"""What processes that are killed, that run side by side, or that find the disk full leave in the store."""

import json
import sqlite3
import subprocess
import sys
import textwrap
from collections import Counter

import pytest
from real_rows import latencies

from hwbench.measure.store import MeasurementStore
from hwbench.specs import Outcome
from hwbench.testing.crash import TIMING, WORKLOADS, profile, target

KILLS = 20


def python(code, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def crashes(kills, before=""):
    done = python(before + f"\nfrom hwbench.testing.crash import main\nraise SystemExit(main(['--kills', '{kills}']))")
    out, err = done.communicate(timeout=300)
    assert out, err
    return done.returncode, json.loads(out)


def test_a_process_killed_anywhere_loses_nothing_and_measures_nothing_twice():
    status, report = crashes(KILLS)
    assert report["problems"] == []
    assert status == 0
    assert report["kills"] == KILLS
    assert 0 < report["inside_a_statement"] < KILLS
    assert report["generations"] >= 1
    assert report["sessions"] == report["generations"] * len(WORKLOADS) * TIMING.min_rounds


@pytest.mark.parametrize(
    ("forgetful", "problem"),
    [
        ("if number % 5 == 0: return 1", "lost"),
        ("if number % 5 == 0: add(self, row, session, **more)", "never acknowledged"),
    ],
)
def test_a_store_that_forgets_or_repeats_is_found_out(forgetful, problem):
    before = f"""
import itertools
from hwbench.measure.store import MeasurementStore
add, numbers = MeasurementStore.add_session, itertools.count(1)
def worse(self, row, session, **more):
    number = next(numbers)
    {forgetful}
    return add(self, row, session, **more)
MeasurementStore.add_session = worse
"""
    status, report = crashes(10, before)
    assert status == 1
    assert any(problem in text for text in report["problems"])


PROFILER = """
import sys
from pathlib import Path
from hwbench.measure.store import MeasurementStore
from hwbench.testing.crash import profile
with MeasurementStore(Path(sys.argv[1], "measurements.sqlite")) as store:
    for generation in range(int(sys.argv[3])):
        print(len(profile(store, Path(sys.argv[1]), generation, phone=sys.argv[2]).ok))
"""


def intact(path):
    with sqlite3.connect(path) as connection:
        verdict = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return verdict == ("ok",)


def test_two_profilers_fill_a_store_while_a_table_is_read_from_it(tmp_path):
    path = tmp_path / "measurements.sqlite"
    writers = [python(PROFILER, tmp_path, phone, 3) for phone in ("one", "two")]
    seen = {"one": {}, "two": {}}
    grown = Counter()
    with MeasurementStore(path) as reader:
        while any(writer.poll() is None for writer in writers):
            for phone, rows in seen.items():
                found = [row.measurement for row in reader.rows(target(phone))]
                now = {(row.workload, row.conditions["generation"]): row for row in found}
                assert rows.items() <= now.items()  # what was finished once stays, to the last digit
                assert all(len(row.sessions) == TIMING.min_rounds for row in now.values())
                grown[phone] += len(now) > len(rows)
                rows.update(now)
        for phone in seen:
            rows = latencies(reader, target(phone), {"generation": "0"})
            assert [row.workload for row in rows] == sorted(WORKLOADS, key=lambda w: w.key)
    for writer in writers:
        out, err = writer.communicate(timeout=60)
        assert (writer.returncode, out) == (0, f"{len(WORKLOADS)}\n" * 3), err
    assert grown.total() >= 3  # rows came while they were read
    assert intact(path)


def test_two_profilers_of_one_device_leave_rows_that_are_whole(tmp_path):
    writers = [python(PROFILER, tmp_path, "one", 1) for _ in range(2)]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
    with MeasurementStore(tmp_path / "measurements.sqlite") as store:
        rows = latencies(store, target("one"), {"generation": "0"})
        assert len(rows) == len(WORKLOADS)
        assert all(TIMING.min_rounds <= len(row.sessions) <= 2 * TIMING.max_rounds for row in rows)
        assert store.counts() == {"ok": len(WORKLOADS)}
    assert intact(tmp_path / "measurements.sqlite")


@pytest.mark.parametrize("limit", [40_000, 60_000, 90_000])
def test_a_full_disk_ends_a_campaign_and_the_next_one_goes_on(tmp_path, limit):
    limited = f"""
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    """
    writer = python(textwrap.dedent(limited) + PROFILER, tmp_path, "one", 1)
    _, err = writer.communicate(timeout=60)
    assert writer.returncode == 1
    assert "WorkspaceError" in err
    assert "nothing already stored was lost" in err
    path = tmp_path / "measurements.sqlite"
    assert intact(path)
    with MeasurementStore(path) as store:
        kept = {row.workload: row for row in latencies(store, target("one"), {"generation": "0"})}
        assert len(kept) < len(WORKLOADS)
        result = profile(store, tmp_path, phone="one")
        assert [row.outcome for row in result.measurements] == [Outcome.OK] * len(WORKLOADS)
        assert {len(row.sessions) for row in result.measurements} == {TIMING.min_rounds}
        assert len(result.skipped) == len(kept)
        assert {row.workload: row for row in result.skipped} == kept
