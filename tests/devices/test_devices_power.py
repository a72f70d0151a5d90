"""What a power cut leaves of the journal of knobs: a change that was made is put back, whatever happens."""

from pathlib import Path

import pytest

from hwbench.devices.journal import Journal
from hwbench.testing.power import cut_power, python, record

# Each line is told when the journal says that the change may be made (+), or is put back (-).
PROGRAM = """
import sys
from pathlib import Path
from hwbench.devices.journal import Change, Journal
journal = Journal(Path(sys.argv[1], "state", "hwbench", "knobs", "one.jsonl"))
noted = []
def add(number):
    change = Change("ssh:board", "unit", f"knob{number}", {"governor": "ondemand" * 90}, {"governor": "x"})
    noted.append(journal.add(change))
    print(f"+knob{number}", flush=True)
def drop():
    change = noted.pop()
    print(f"?{change.knob}", flush=True)
    journal.drop(change)
    print(f"-{change.knob}", flush=True)
for number in range(3): add(number)
for _ in range(3): drop()
add(3)
drop()
"""


def check(folder: Path, told: tuple[str, ...]) -> None:
    path = folder / "state" / "hwbench" / "knobs" / "one.jsonl"
    present = [change.knob for change in Journal(path).changes()]
    due = {line[1:] for line in told if line[0] == "+"} - {line[1:] for line in told if line[0] == "?"}
    gone = {line[1:] for line in told if line[0] == "-"}
    assert due <= {*present}, f"{due - {*present}} was noted and is lost"
    assert not gone & {*present}, f"{gone & {*present}} was put back and comes again"
    assert path.read_bytes().count(b"\n") == len(present) if path.exists() else True


@pytest.mark.parametrize("points", [20, pytest.param(None, marks=pytest.mark.long)])
def test_19_a_power_cut_takes_no_change_that_the_journal_told_as_noted(
    tmp_path: Path, power_shim: Path, points: int | None
) -> None:
    recording = record(python("-c", PROGRAM, str(tmp_path)), tmp_path, power_shim)
    report = cut_power(recording, check, points=points, mixed=3 if points else 30)
    assert report.problems == []
    assert report.disks > 10
