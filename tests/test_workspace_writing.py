"""What takes the place of a file, and what does not: links, pipes and devices where a file is to be written."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from hwbench.errors import WorkspaceError
from hwbench.reports.page import save
from hwbench.workspace import check_writable, explaining, write_bytes

STRANGER = 65533


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


@pytest.mark.parametrize("kind", [BrokenPipeError, FileNotFoundError, ValueError])
def test_what_is_about_something_else_stays_as_it_is(kind):
    with pytest.raises(kind), explaining():
        raise kind("mine")
