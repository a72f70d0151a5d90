"""When a store is looked through as a whole, which costs by its size."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hwbench.errors import InvalidFile
from hwbench.measure import checked
from hwbench.measure.database import Database


@pytest.fixture
def path(tmp_path):
    Database(tmp_path / "measurements.sqlite").close()
    return tmp_path / "measurements.sqlite"


@pytest.fixture
def looks(monkeypatch):
    """How often stores were looked through."""
    seen = []
    passed = checked.StoreChecks.passed
    monkeypatch.setattr(checked.StoreChecks, "passed", lambda self: (seen.append(1), passed(self)))
    return seen


def opened(path):
    database = Database(path)
    database.close()


def write(database):
    with database.transaction() as db:
        db.execute("INSERT INTO conditions VALUES (random(), '{}')")


def record(path):
    return path.with_name(f".{path.name}.checked")


def test_19_24_a_store_is_looked_through_once_a_day(path, looks, monkeypatch):
    for _ in range(3):
        database = Database(path)
        write(database)
        database.close()
    assert looks == []
    monkeypatch.setattr(checked, "since_boot_s", lambda real=checked.since_boot_s: real() + 25 * 3600)
    opened(path)
    opened(path)
    assert len(looks) == 1
    record(path).unlink()
    opened(path)
    assert len(looks) == 2
    record(path).write_text('{"boot": ')
    opened(path)
    assert len(looks) == 3


def test_19_24_a_start_of_the_machine_is_a_reason_to_look(path, looks, monkeypatch):
    monkeypatch.setattr(checked, "boot_id", lambda: "another")
    opened(path)
    opened(path)
    assert len(looks) == 1
    monkeypatch.setattr(checked, "boot_id", lambda: "")  # a system that does not say
    opened(path)
    opened(path)
    assert len(looks) == 3


def test_19_24_a_store_that_is_open_elsewhere_is_not_looked_through_again(path, looks):
    first = Database(path)
    write(first)
    second = Database(path)
    write(second)
    first.close()
    write(second)
    third = Database(path)
    second.close()
    write(third)
    third.close()
    opened(path)
    assert looks == []


def test_19_24_what_a_kill_leaves_is_looked_through(path, looks):
    program = """
import os, signal, sys
from pathlib import Path
from hwbench.measure.database import Database
database = Database(Path(sys.argv[1]))
with database.transaction() as db:
    db.execute("INSERT INTO conditions VALUES ('a', '{}')")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    opened(path)
    opened(path)
    assert len(looks) == 1


def test_19_24_a_file_that_something_else_wrote_is_looked_through(path, tmp_path, looks):
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))
    with pytest.raises(InvalidFile, match="Move it away"):
        Database(path)
    path.write_bytes(data)
    opened(path)
    shutil.copyfile(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)
    opened(path)
    assert len(looks) == 2


def test_19_24_a_transaction_that_was_left_open_is_a_reason_to_look(path, looks):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO conditions VALUES (?, '{}')", [(f"{n:0900d}",) for n in range(300)])
    journal = path.with_name(f"{path.name}-journal")
    copy, copied_journal = path.read_bytes(), journal.read_bytes()
    connection.rollback()
    connection.close()
    path.write_bytes(copy)
    journal.write_bytes(copied_journal)
    opened(path)
    assert len(looks) == 1
    assert not journal.exists()


def test_19_24_a_folder_that_cannot_be_written_costs_a_look(path, looks, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(13, "refused")

    monkeypatch.setattr(checked.os, "open", refuse)
    opened(path)
    assert len(looks) == 1


def test_a_store_in_memory_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Database(Path(":memory:")).close()
    assert list(tmp_path.iterdir()) == []
