"""Scratch folders: removed with their block, and by the next process where their own was killed."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwbench.devices.local import LocalTransport

SMALL = Path(__file__).parent / "golden" / "pte" / "small-1.5.1.pte"
HOLD = """
import sys
from hwbench.devices.local import LocalTransport
with LocalTransport() as transport:
    print(transport.temporary("name"), flush=True)
    sys.stdin.readline()
"""

# The Python runner while it reads the times of the operations of a ``.pte`` file.
HOLD_TRACE = """
import sys
from types import SimpleNamespace
from executorch import devtools
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.pte_model import PteModel
def wait(etdump_path):
    print(etdump_path, flush=True)
    sys.stdin.readline()
    return SimpleNamespace(event_blocks=[])
devtools.Inspector = wait
model = PteModel("SMALL", Options(list="", profile=True))
model.make_inputs()
model.operations(1)
""".replace("SMALL", str(SMALL))


@contextlib.contextmanager
def holding(temporary: Path, script: str = HOLD) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process, and the folder that it holds."""
    env = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    with process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip()).parent
        process.communicate("\n")


def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path: Path) -> None:
    with holding(tmp_path) as (_, kept):
        with holding(tmp_path) as (killed, left):
            killed.kill()
            killed.wait()
            assert left.is_dir()
        with holding(tmp_path) as (_, new):
            assert not left.exists()
            assert kept.is_dir()
            assert new.is_dir()
    assert [*tmp_path.iterdir()] == []


def test_what_the_python_runner_left_that_was_killed_goes_with_the_next_process(tmp_path: Path) -> None:
    with holding(tmp_path, HOLD_TRACE) as (killed, left):
        killed.kill()
        killed.wait()
        assert (left / "trace.etdp").is_file()
    with holding(tmp_path):
        assert not left.exists()


def test_only_what_is_certainly_of_a_process_that_is_gone_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, without_lock, of_all, of_another_name = (
        tmp_path / f"hwbench-{name}" for name in ("abcdefgh", "of_older", "open_ed_", "lab-abcdefgh")
    )
    for folder in (left, without_lock, of_all, of_another_name):
        folder.mkdir(mode=0o700)
        if folder != without_lock:
            (folder / ".lock").touch()
    of_all.chmod(0o777)
    (tmp_path / "hwbench-its_link").symlink_to(of_another_name)
    (left / "model").write_bytes(b"weights")
    with LocalTransport() as transport:
        transport.temporary("name")
        assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == {
        *(folder.name for folder in (without_lock, of_all, of_another_name)),
        "hwbench-its_link",
    }
