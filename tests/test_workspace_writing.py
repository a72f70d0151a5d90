"""What takes the place of a file, and what does not: links, pipes and devices where a file is to be written.

What a killed process left beside it goes with the next one that writes the file.
"""

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwbench.errors import WorkspaceError
from hwbench.reports.page import save
from hwbench.workspace import check_writable, explaining, remove_leftovers, temporary_beside, write_bytes, writing

STRANGER = 65533
# Writes a file, and waits for a line before the bytes are on the disk.
WRITE = """
import os, sys
from pathlib import Path
from hwbench.workspace import write_bytes
fsync = os.fsync
def wait(descriptor):
    os.fsync = fsync
    print("writing", flush=True)
    sys.stdin.readline()
    fsync(descriptor)
os.fsync = wait
write_bytes(Path(sys.argv[1]), b"of another process")
"""


@contextlib.contextmanager
def writing_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of writing a file; a line, or the end of the block, lets it go on."""
    command = [sys.executable, "-c", WRITE, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        yield process
        if process.returncode is None:
            process.communicate("\n")


def leave(path: Path) -> Path:
    """What a process that was killed in the middle of writing a file leaves."""
    before = {*path.parent.iterdir()}
    with writing_process(path) as process:
        process.kill()
        process.wait()
    (left,) = {*path.parent.iterdir()} - before
    return left


@pytest.mark.parametrize("leads_to", ["published/page.html", "second", "missing/page.html"])
def test_a_link_to_a_page_stays_and_what_it_leads_to_is_written(tmp_path, leads_to):
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "page.html").write_bytes(b"old")
    (tmp_path / "second").symlink_to(tmp_path / "published" / "page.html")
    link = tmp_path / "page.html"
    link.symlink_to(leads_to)
    save(link, "new")
    assert os.readlink(link) == leads_to
    assert (tmp_path / leads_to).read_bytes() == link.read_bytes() == b"new"
    assert not list(tmp_path.rglob(".*.tmp"))


@pytest.mark.parametrize("leads_to", ["other", "missing"])
def test_a_link_to_another_file_is_replaced_and_that_file_stays(tmp_path, leads_to):
    """As in a copy of a run that is links, or before a cache of write-protected files."""
    (tmp_path / "other").write_bytes(b"old")
    (tmp_path / "other").chmod(0o444)
    link = tmp_path / "resume.pt"
    link.symlink_to(leads_to)
    check_writable(link)
    assert os.readlink(link) == leads_to
    write_bytes(link, b"new")
    assert not link.is_symlink()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"other": b"old", "resume.pt": b"new"}
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o444


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_of_somebody_else_chooses_no_file_of_ours(tmp_path):
    """In a folder that all can write: the kernel, too, does not follow such a link."""
    (tmp_path / "ours").write_bytes(b"old")
    link = tmp_path / "page.html"
    link.symlink_to("ours")
    os.lchown(link, STRANGER, STRANGER)
    save(link, "new")
    assert (tmp_path / "ours").read_bytes() == b"old"
    assert not link.is_symlink()


def test_links_in_a_circle_are_written_over(tmp_path):
    for here, there in (("a", "b"), ("b", "a")):
        (tmp_path / here).symlink_to(there)
    save(tmp_path / "a", "new")
    assert (tmp_path / "a").read_bytes() == b"new"


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("write", [check_writable, lambda path: write_bytes(path, b"new")])
def test_a_pipe_is_refused_and_stays(tmp_path, write, linked):
    path = pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with pytest.raises(WorkspaceError, match=r"cannot write .*: it is a device, a pipe or an open file; name a file$"):
        write(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert path.is_symlink() == linked


@pytest.mark.parametrize("write", [check_writable, lambda path: write_bytes(path, b"new")])
def test_an_open_file_is_refused_and_keeps_what_it_holds(tmp_path, write):
    with (tmp_path / "log").open("w+b", buffering=0) as file:
        file.write(b"old")
        with pytest.raises(WorkspaceError, match="it is a device, a pipe or an open file; name a file"):
            write(Path(f"/dev/fd/{file.fileno()}"))
        assert os.path.samefile(tmp_path / "log", file.fileno())
    assert (tmp_path / "log").read_bytes() == b"old"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device node")
def test_a_device_is_refused_and_stays(tmp_path):
    node = tmp_path / "null"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no device nodes can be made here")
    with pytest.raises(WorkspaceError, match="it is a device, a pipe or an open file; name a file"):
        write_bytes(node, b"new")
    assert stat.S_ISCHR(node.stat().st_mode)


def test_what_nothing_nearer_explained_is_an_error_of_the_workspace():
    full = "cannot write .: no space is left on the disk; nothing already stored was lost. "
    with pytest.raises(WorkspaceError) as error, explaining():
        os.write(full_disk := os.open("/dev/full", os.O_WRONLY), b"a")
    os.close(full_disk)
    assert str(error.value).startswith(full)
    with pytest.raises(WorkspaceError, match=r"^database: no such table: rows$") as error, explaining():
        sqlite3.connect(":memory:").execute("SELECT * FROM rows")
    assert isinstance(error.value.__cause__, sqlite3.Error)


def meet_a_fault() -> None:
    """An I/O error of the operating system, as of a disk that fails: address 0 of a process is not mapped."""
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.write(b"a")


AGAIN = "mend that or choose another directory, then run the same command again"


def test_a_fault_of_the_disk_names_what_was_being_written(tmp_path):
    with pytest.raises(WorkspaceError) as error, writing(tmp_path / "out"):
        meet_a_fault()
    assert str(error.value) == f"cannot write {tmp_path}/out: the disk or its connection fails; {AGAIN}"
    with pytest.raises(WorkspaceError) as error, writing(tmp_path / "out"):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), "/nfs/file")
    assert str(error.value) == f"cannot write /nfs/file: its file server no longer has it; {AGAIN}"


def test_a_fault_of_the_disk_that_nothing_nearer_explained_is_an_error_of_the_workspace():
    with pytest.raises(WorkspaceError) as error, explaining():
        meet_a_fault()
    assert str(error.value) == f"cannot read or write a file: the disk or its connection fails; {AGAIN}"


@pytest.mark.parametrize("kind", [BrokenPipeError, FileNotFoundError, ValueError])
def test_what_is_about_something_else_stays_as_it_is(kind):
    with pytest.raises(kind), explaining():
        raise kind("mine")


@pytest.mark.parametrize("name", ["file", "ä" * 127])
def test_what_a_killed_process_left_goes_with_the_next_write_of_the_file(tmp_path, name):
    path = tmp_path / name
    of_another_file = leave(tmp_path / "other")
    with writing_process(path) as process:
        (under_way,) = {*tmp_path.iterdir()} - {of_another_file}
        left = leave(path)
        left_later = leave(path)
        assert left_later.read_bytes() == b"of another process"
        assert {*tmp_path.iterdir()} == {of_another_file, under_way, left_later}
        assert left != left_later
        write_bytes(path, b"of this process")
        assert path.read_bytes() == b"of this process"
        assert {*tmp_path.iterdir()} == {of_another_file, under_way, path}
        process.communicate("\n")
        assert process.returncode == 0
    assert path.read_bytes() == b"of another process"
    assert {*tmp_path.iterdir()} == {of_another_file, path}
    write_bytes(tmp_path / "other", b"new")
    assert {*tmp_path.iterdir()} == {tmp_path / "other", path}


def test_the_disk_has_the_room_of_what_is_left_before_a_file_is_written(tmp_path):
    left = leave(tmp_path / "file")
    code = """
import os, sys
from pathlib import Path
from hwbench.workspace import write_bytes
def full(_):
    raise OSError(28, "No space left on device")
os.fsync = full
write_bytes(Path(sys.argv[1]), b"new")
"""
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "WorkspaceError: cannot write" in ended.stderr
    assert "no space is left on the disk; nothing already stored was lost." in ended.stderr
    assert not left.exists()
    assert [*tmp_path.iterdir()] == []


def test_only_what_is_certainly_left_of_the_file_is_removed(tmp_path):
    others = [tmp_path / name for name in (".file.tmp", ".file.0123.tmp", "file.0123456789abcdef.tmp", ".file.1.tmp")]
    for other in others:
        other.write_bytes(b"mine")
    link, folder, pipe = (temporary_beside(tmp_path / "file") for _ in range(3))
    link.symlink_to(others[0])
    folder.mkdir()
    os.mkfifo(pipe)
    write_bytes(tmp_path / "file", b"new")
    assert {*tmp_path.iterdir()} == {*others, link, folder, pipe, tmp_path / "file"}
    remove_leftovers(tmp_path / "missing", ["file"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_what_somebody_else_left_stays(tmp_path):
    left = temporary_beside(tmp_path / "file")
    left.touch()
    os.chown(left, STRANGER, STRANGER)
    write_bytes(tmp_path / "file", b"new")
    assert left.exists()


def test_without_locks_what_is_left_goes_after_a_day(tmp_path, monkeypatch):
    """As on Lustre without ``-o flock`` and on NFS without lockd."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    left, of_now = (temporary_beside(tmp_path / "file") for _ in range(2))
    for temporary in (left, of_now):
        temporary.touch()
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(left, (two_days_ago, two_days_ago))
    monkeypatch.setattr(fcntl, "flock", fail)
    write_bytes(tmp_path / "file", b"new")
    assert {*tmp_path.iterdir()} == {of_now, tmp_path / "file"}
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_write_is_not_disturbed_by_a_process_that_removes_what_is_left(tmp_path, monkeypatch):
    """It may come between the making of a file and its lock, and have its own lock on it, or have removed it."""
    flock, came = fcntl.flock, []

    def come_before(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        (temporary,) = tmp_path.glob(".file.*.tmp")
        came.append(temporary)
        if len(came) == 1:
            remove_leftovers(tmp_path, ["file"])
            monkeypatch.setattr(fcntl, "flock", come_before)
            flock(file, how)
        else:
            with temporary.open("r+b") as other:
                flock(other, how)
                flock(file, how)

    monkeypatch.setattr(fcntl, "flock", come_before)
    write_bytes(tmp_path / "file", b"new")
    assert len(came) == 2
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
