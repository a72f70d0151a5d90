"""What the journal of knobs keeps: lines that it cannot read, and every line through a power cut."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import phones
import pytest

from hwbench.devices import control, journal, probe_device
from hwbench.devices.control import Conditions, controlled, put_back_left_over
from hwbench.devices.journal import Change, Journal, journal_key, waiting
from hwbench.errors import WorkspaceError

CHANGE = Change("ssh:board:22", "A", "boost", {"a": "1"}, {"a": "0"}, boot="1", fingerprint="f")
PLAIN = {"identity": "ssh:board:22", "unit": "A", "knob": "boost", "before": {"a": "1"}, "ours": {"a": "0"}}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(control, "_told", set())
    return tmp_path / "state"


def line(**more):
    return json.dumps(PLAIN | more).encode()


# Lines that this version cannot act on: of a newer one, cut off, damaged, or hostile.
FOREIGN = [
    line(schema=2),
    line(at="2031-01-01T00:00:00+00:00", pid=1, after={"reboot": "1"}),
    line(before="all"),
    line(ours={"a": 7}),
    line(pid="7"),
    line(at=None),
    line(knob="\ud800"),
    line(identity="ssh:\x1b[2J:22"),
    b'{"identity": "ssh:board:22", "unit": "A", "kn',
    b"\xff\xfe\x00 not a text \x85\x0c\r",
    b"[" * 100_000,
    b'{"pid": ' + b"1" * 10_000 + b"}",
    b"null",
    b"[1]",
]


@pytest.mark.parametrize("foreign", FOREIGN, ids=range(len(FOREIGN)))
def test_19_21_a_line_that_cannot_be_read_stays_byte_for_byte(foreign):
    ours = Journal.of("unit:A")
    ours.path.parent.mkdir(parents=True)
    ours.path.write_bytes(line(at="first") + b"\n" + foreign + b"\n" + line(at="last"))  # a last line without an end
    first, last = ours.changes()
    assert ours.foreign() == 1
    noted = ours.add(CHANGE)
    assert ours.changes() == [first, last, noted]
    ours.drop(first)
    ours.drop(noted)
    assert ours.path.read_bytes() == foreign + b"\n" + line(at="last") + b"\n"
    ours.drop(last)
    assert ours.path.read_bytes() == foreign + b"\n"
    assert ours.changes() == []
    assert waiting() == []


def test_19_21_a_journal_with_a_foreign_line_serves_a_device_and_is_told_once(tmp_path):
    device, told = phones.make(tmp_path / "device", "pixel"), []
    before, unit = device.snapshot(), probe_device(device).unit
    path = Journal.of(journal_key(unit, device.identity)).path
    path.parent.mkdir(parents=True)
    path.write_bytes(line(schema=2) + b"\n{\n")
    for _ in range(2):
        put_back_left_over(device, told.append)
        with controlled(Conditions.CONTROLLED, probe_device(device), device):
            assert len(Journal(path).changes()) > 3
            assert path.read_bytes().startswith(line(schema=2) + b"\n{\n")
    assert path.read_bytes() == line(schema=2) + b"\n{\n"
    assert device.snapshot() == before | {"data/fixed-performance": "false"}
    (text,) = told
    assert text.startswith(f"{path}: 2 lines damaged or of a newer hwbench: kept as they are")
    assert text.endswith(f"rm {path}")


def test_19_21_a_journal_that_cannot_be_opened_hides_no_other(tmp_path):
    device, told = phones.make(tmp_path / "device", "pixel"), []
    broken, other = Journal.of("unit:B"), Journal.of("unit:A")
    broken.path.mkdir(parents=True)
    other.add(CHANGE)
    assert [one.path for one in waiting()] == [other.path]
    put_back_left_over(device, told.append)
    assert told[0].startswith(f"cannot read {broken.path}, which says what is to be put back")
    with pytest.raises(WorkspaceError, match="cannot read"):
        broken.add(CHANGE)


def test_19_21_lines_of_every_version_are_read():
    old = Journal.of("unit:A")
    old.path.parent.mkdir(parents=True)
    without_unit = {key: value for key, value in PLAIN.items() if key != "unit"}
    lines = [line(at="t", pid=3), json.dumps(without_unit).encode(), json.dumps(asdict(CHANGE)).encode()]
    old.path.write_bytes(b"\n".join(lines) + b"\n")
    assert old.changes() == [
        Change(**PLAIN, at="t", pid=3),
        Change(**PLAIN | {"unit": ""}),
        CHANGE,
    ]
    assert [change.key for change in old.changes()] == ["unit:A", "ssh:board:22", "unit:A"]


def test_19_21_what_is_told_as_noted_is_on_the_disk(state, monkeypatch):
    """Every name and every byte is synced in an order in which a power cut leaves the old file or the new one."""
    steps = []
    fsync, move, unlink = os.fsync, os.replace, os.unlink

    def synced(descriptor):
        steps.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def moved(source, target, **options):
        steps.append(("move", Path(source), Path(target)))
        move(source, target, **options)

    def gone(path, **options):
        there = os.path.lexists(path)
        unlink(path, **options) if there or options else unlink(path)
        steps.append(("gone", Path(path)))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", moved)
    monkeypatch.setattr(os, "unlink", gone)
    ours = Journal.of("unit:A")
    noted = ours.add(CHANGE)
    (place,) = [index for index, step in enumerate(steps) if step[0] == "move"]
    _, source, target = steps[place]
    assert target == ours.path
    assert ("sync", source) in steps[:place], "the bytes before the name"
    assert ("sync", ours.path.parent) in steps[place:], "the name"
    for folder in (state, state / "hwbench"):  # and the names of folders that were made for it
        assert ("sync", folder) in steps
    assert ("sync", state.parent) in steps
    steps.clear()
    ours.drop(noted)
    assert steps[-2:] == [("gone", ours.path), ("sync", ours.path.parent)]
    assert not ours.path.exists()


@pytest.mark.parametrize("moment", range(4))
def test_19_21_a_write_that_fails_leaves_the_lines_that_were_there(monkeypatch, moment):
    ours = Journal.of("unit:A")
    first = ours.add(CHANGE)
    before, steps = ours.path.read_bytes(), iter(range(100))

    def failing(function):
        def call(*arguments, **options):
            if next(steps) == moment:
                raise OSError(28, "No space left on device")
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(os, "fsync", failing(os.fsync))
    monkeypatch.setattr(os, "replace", failing(os.replace))
    monkeypatch.setattr(journal, "write_bytes", failing(journal.write_bytes))
    with pytest.raises(WorkspaceError):
        ours.add(CHANGE)
    assert ours.path.read_bytes().startswith(before)
    assert first in ours.changes()
    assert [path.name for path in ours.path.parent.iterdir()] == [ours.path.name]
