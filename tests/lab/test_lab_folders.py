"""Point 7: what the laboratory's sweep believes, ends and removes; none of it needs what the laboratory needs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hwbench.testing.lab.devices import sweep
from hwbench.testing.lab.processes import kill_tree, launch, started

NAME = "hwbench-lab-abcdefgh"
STRANGER = 12345  # a user that is not us
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="run it as root: it gives files to another user, and mounts")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this test: everyone may write to it, and nobody takes the files of others away."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody should end."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def leftover(folder: Path, recorded: subprocess.Popen[bytes]) -> Path:
    """A folder as a killed laboratory leaves it; it names the process as one that it has started."""
    server = folder / "ssh"
    server.mkdir(parents=True)
    folder.chmod(0o711)
    (folder / "kept").write_text("kept")
    ended = subprocess.Popen(["true"])
    ended.wait()
    (folder / "owner").write_text(str(ended.pid))
    (server / "processes").write_text(f"{recorded.pid} {started(recorded.pid)}\n")
    for record in (folder / "owner", server / "processes"):
        record.chmod(0o600)
    return folder


def test_19_07_what_we_left_is_swept(shared: Path, bystander: subprocess.Popen[bytes]) -> None:
    folder = leftover(shared / NAME, bystander)
    (folder / "closed").mkdir(mode=0o500)
    sweep()
    assert bystander.wait(20) == -9
    assert not folder.exists()


def given_away(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER)


def open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def open_to_the_group(folder: Path) -> None:
    folder.chmod(0o771)


def owner_open_to_all(folder: Path) -> None:
    (folder / "owner").chmod(0o666)


def of_another_name(folder: Path) -> None:
    folder.rename(folder.with_name("hwbench-lab-results"))


def behind_a_link(folder: Path) -> None:
    folder.rename(folder.parent.parent / "elsewhere")
    folder.symlink_to(folder.parent.parent / "elsewhere")


def among_files_that_others_replace(folder: Path) -> None:
    folder.parent.chmod(0o777)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(given_away, marks=root_only),
        open_to_all,
        open_to_the_group,
        owner_open_to_all,
        of_another_name,
        behind_a_link,
        among_files_that_others_replace,
    ],
)
def test_19_07_sweep_spares_what_others_may_have_put_there(
    shared: Path, bystander: subprocess.Popen[bytes], change: Callable[[Path], None]
) -> None:
    change(leftover(shared / NAME, bystander))
    sweep()
    assert bystander.poll() is None
    assert len(list(shared.parent.rglob("kept"))) == 1


def test_19_07_a_record_that_others_may_write_to_is_not_believed(
    shared: Path, bystander: subprocess.Popen[bytes]
) -> None:
    folder = leftover(shared / NAME, bystander)
    (folder / "ssh" / "processes").chmod(0o666)
    sweep()
    assert bystander.poll() is None


@pytest.mark.parametrize("record", ["{pid} 1", "{pid} {start} 00000000-0000-0000-0000-000000000000", "{pid}", "x y"])
def test_19_07_a_number_that_is_another_process_now_is_spared(
    shared: Path, bystander: subprocess.Popen[bytes], record: str
) -> None:
    folder = leftover(shared / NAME, bystander)
    line = record.format(pid=bystander.pid, start=started(bystander.pid))
    (folder / "ssh" / "processes").write_text(line + "\n")
    sweep()
    assert bystander.poll() is None
    assert not folder.exists()


def test_19_07_an_owner_that_lives_keeps_its_folder(shared: Path, bystander: subprocess.Popen[bytes]) -> None:
    folder = leftover(shared / NAME, bystander)
    for line in (str(bystander.pid), f"{bystander.pid} {started(bystander.pid)}"):
        (folder / "owner").write_text(line)
        sweep()
        assert (folder / "kept").exists()
    (folder / "owner").write_text(f"{bystander.pid} 1")
    sweep()
    assert not folder.exists()


@contextlib.contextmanager
def mounted(folder: Path, source: str) -> Iterator[None]:
    """A file system of its own, with a file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = ["mount", "-t", "tmpfs", "-o", "size=64k", source, str(folder)]
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let root mount")
    (folder / "precious").write_text("")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


@root_only
def test_19_07_only_our_own_disks_are_unmounted(
    shared: Path, tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    folder = leftover(shared / NAME, bystander)
    (folder / "root").mkdir()
    (folder / "root" / "tmp").symlink_to(tmp_path / "elsewhere")
    with mounted(tmp_path / "elsewhere", "hwbench-lab-disk"), mounted(folder / "root/data", "hwbench-lab-disk"):
        sweep()
        assert (tmp_path / "elsewhere" / "precious").exists()
        assert not folder.exists()


@root_only
def test_19_07_what_somebody_mounted_in_it_is_not_removed(
    shared: Path, tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    folder = leftover(shared / NAME, bystander)
    with mounted(folder / "root/work", "another"):
        sweep()
        assert (folder / "root/work" / "precious").exists()


def test_19_07_a_server_that_was_waited_for_is_not_killed_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda *told: pytest.fail(f"signalled by number: {told}"))
    process = launch(["true"], tmp_path)
    process.wait(20)
    kill_tree(process)
