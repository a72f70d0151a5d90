"""The simulated power cut finds what a program forgot, and finds nothing where a program did all it has to."""

import textwrap
from pathlib import Path

import pytest

from hwbench.errors import HwbenchError
from hwbench.testing.power import cut_power, python, record

START = """
import os, sys
from pathlib import Path
root = Path(sys.argv[1])
def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
"""
WRITE = "temporary = root / '.note'; temporary.write_text(text)\n"
NAME = "temporary.replace(root / 'note')\n"


def recorded(program: str, root: Path, shim: Path):
    body = textwrap.indent(program, "    ")
    told = "    print(text[0], flush=True)\n"
    return record(python("-c", f"{START}\nfor text in ('1' * 5000, '2' * 3000):\n{body}{told}", str(root)), root, shim)


def told_is_there(folder: Path, told: tuple[str, ...]) -> None:
    text = (folder / "note").read_text() if told or (folder / "note").exists() else "-"
    assert text in ("-", "1" * 5000, "2" * 3000), f"torn: {len(text)} bytes"
    assert text[0] >= (told[-1] if told else "-")


def test_19_power_finds_nothing_where_file_and_folder_are_synced(tmp_path: Path, power_shim: Path) -> None:
    (tmp_path / "note").write_text("1" * 5000)
    program = WRITE + "sync(temporary)\n" + NAME + "sync(root)\n"
    report = cut_power(recorded(program, tmp_path, power_shim), told_is_there)
    assert report.problems == []
    assert report.cuts == report.events + 1 >= 13
    assert report.disks >= 10  # alike ones are read once


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (WRITE + NAME + "sync(root)\n", "torn"),
        (WRITE + "sync(temporary)\n" + NAME, "FileNotFoundError"),
        ("(root / 'note').write_text(text); sync(root / 'note'); sync(root)\n", "torn"),
        (WRITE + "sync(temporary)\n(root / 'note').unlink(missing_ok=True)\nsync(root)\n" + NAME, "FileNotFoundError"),
    ],
    ids=["file not synced", "folder not synced", "written in place", "removed before"],
)
def test_19_power_finds_what_a_program_forgot(tmp_path: Path, power_shim: Path, program: str, words: str) -> None:
    report = cut_power(recorded(program, tmp_path, power_shim), told_is_there)
    assert any(words in problem for problem in report.problems), report


def test_19_power_follows_names_across_folders(tmp_path: Path, power_shim: Path) -> None:
    program = """
    import shutil
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "one").write_text("x")
    (root / "a" / "b" / "one").rename(root / "a" / "two")
    (root / "a").rename(root / "c")
    shutil.copyfile(root / "c" / "two", root / "three")
    with open(root / "three", "r+b") as file: file.truncate(3000)
    with open(root / "three", "ab") as file: file.write(b"end")
    shutil.rmtree(root / "c")
    """
    recording = record(python("-c", START + textwrap.dedent(program), str(tmp_path)), tmp_path, power_shim)
    everything = [state.tree for state in recording.states(len(recording.events)) if state.kind == "everything"]
    assert everything == [{"three": b"x" + bytes(2999) + b"end"}]
    nothing = [state.tree for state in recording.states(len(recording.events)) if state.kind.startswith("nothing")]
    assert nothing == [{}]


def test_19_power_says_where_it_did_not_see_everything(tmp_path: Path, power_shim: Path) -> None:
    program = START + "import mmap\n(root / 'note').write_text('1234')\n"
    program += "with open(root / 'note', 'r+b') as file: mmap.mmap(file.fileno(), 0)[:2] = b'99'\n"
    with pytest.raises(HwbenchError, match="did not see everything that was done to note"):
        record(python("-c", program, str(tmp_path)), tmp_path, power_shim)
