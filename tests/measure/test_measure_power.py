"""What a power cut leaves in the measurement store."""

import sqlite3
from contextlib import closing
from functools import partial

import pytest

from hwbench.measure.store import MeasurementStore
from hwbench.specs import Outcome
from hwbench.testing.crash import TIMING, WORKLOADS, target
from hwbench.testing.power import cut_power, python, record

# A store made anew in a new folder, rows of it measured, failed and begun again; each line is told when it is stored.
PROGRAM = """
import sys
from pathlib import Path
from hwbench.measure.store import MeasurementStore
from hwbench.specs import Outcome, Session
from hwbench.testing.crash import TIMING, WORKLOADS, target
for number in range(int(sys.argv[2])):  # commands, one after another
    with MeasurementStore(Path(sys.argv[1], "state", "measurements.sqlite")) as store:
        row = store.begin(WORKLOADS[number], target("phone"), TIMING, {})
        for session in range(int(sys.argv[3])):
            store.add_session(row, Session(samples_s=((number * 1000 + session) * 1e-6,) * 400))
            print("session", number, session, flush=True)
        if number % 2:
            store.fail(row, Outcome.NOISY, "noisy")
        else:
            store.finish(row)
        print("row", number, flush=True)
"""


def check(commands, folder, told):
    path = folder / "state" / "measurements.sqlite"
    if not told and not path.exists():
        return
    assert path.exists(), "the store is gone"
    with MeasurementStore(path) as store:
        for line in told:
            kind, number, *_ = line.split()
            if kind == "row":
                row = store.measurement(WORKLOADS[int(number)], target("phone"), TIMING, {})
                assert row is not None, f"{line} is lost"
                assert row.outcome is (Outcome.NOISY if int(number) % 2 else Outcome.OK)
        for number in range(commands):
            taken = [
                round(s.samples_s[0] * 1e6) for s in store.sessions(WORKLOADS[number], target("phone"), TIMING, {})
            ]
            assert taken == [number * 1000 + session for session in range(len(taken))]
            stored = sum(line.startswith(f"session {number} ") for line in told)
            assert len(taken) >= stored, f"{stored - len(taken)} of {stored} sessions of row {number} are lost"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    ("commands", "sessions", "points"), [(2, 2, 20), pytest.param(4, 5, None, marks=pytest.mark.long)]
)
def test_19_20_a_power_cut_takes_no_session_that_was_told_as_stored(tmp_path, power_shim, commands, sessions, points):
    recording = record(python("-c", PROGRAM, str(tmp_path), str(commands), str(sessions)), tmp_path, power_shim)
    report = cut_power(recording, partial(check, commands), points=points)
    print(f"{report.events} events, {report.cuts} cuts, {report.disks} disks")
    assert report.problems == []
