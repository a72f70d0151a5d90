"""Whose index of a tar archive is believed."""

import json
import os
import tarfile
from pathlib import Path

import pytest

from hwbench.data.readers.tar_index import TarMember, tar_members
from hwbench.ownership import SAFE_DIRECTORY, who_else
from hwbench.testing.datasets import add_text

# Of nobody here; chown needs root.
OWNER, STRANGER = 54321, 54322
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="run as root: a file is given to another user")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(SAFE_DIRECTORY, raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    return tmp_path / "cache" / "hwbench" / "archives"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        add_text(tar, "0.cls", "run")
    return path


def changed_index(archive: Path) -> tuple[Path, tuple[TarMember, ...]]:
    """The index with another label, and the members of the archive itself."""
    members = tar_members(archive)
    index = archive.with_name("a.tar.index.json")
    written = json.loads(index.read_text())
    written["members"][0][3] = "jump"
    index.write_text(json.dumps(written))
    return index, members


@as_root
def test_19_02_an_index_of_a_stranger_is_passed_over(
    archive: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, members = changed_index(archive)
    os.chown(archive, OWNER, -1)
    os.chown(index, STRANGER, -1)
    for _ in range(2):
        assert tar_members(archive) == members
    assert index.stat().st_uid == STRANGER  # it is left to its owner
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setenv(SAFE_DIRECTORY, str(archive.parent))
    assert tar_members(archive)[0].text == "jump"


@as_root
def test_19_02_an_index_of_the_owner_of_the_archive_is_believed(archive: Path) -> None:
    index, members = changed_index(archive)
    for path in (archive, index):
        os.chown(path, OWNER, STRANGER)
    assert tar_members(archive)[0].text == "jump"
    for mode in (0o664, 0o646):
        index.chmod(mode)
        assert tar_members(archive) == members


def test_19_02_an_index_that_others_can_write_is_passed_over(archive: Path) -> None:
    index, members = changed_index(archive)
    assert tar_members(archive)[0].text == "jump"
    index.chmod(0o666)
    assert tar_members(archive) == members


def test_19_02_an_index_is_ours_whatever_the_umask_is(archive: Path, cache: Path) -> None:
    before = os.umask(0)
    try:
        members = tar_members(archive)
    finally:
        os.umask(before)
    index = archive.with_name("a.tar.index.json")
    assert who_else(index) == ""
    assert tar_members(archive) == members
    assert not cache.exists()
