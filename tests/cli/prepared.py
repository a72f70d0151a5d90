"""A workspace in which every command has what it needs: table, study, checkpoint, file, videos. Nothing is trained.

As a program it runs command lines one after the other in a workspace that takes nothing more, and prints what came of
each as JSON lines:

    prepared.py read-only ROOT COMMANDS            nothing below ROOT can be written
    prepared.py small-files ROOT COMMANDS BYTES    no file can grow beyond so many bytes
    prepared.py small-disk ROOT COMMANDS BYTES     ROOT lies on a disk of its own with so much room left; prints nothing
                                                   where the system does not let one be made
"""

import contextlib
import ctypes
import functools
import io
import json
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from hwbench.cli.main import main
from hwbench.data import ClipSpec, SyntheticSpec
from hwbench.data.sources import default_clip
from hwbench.data.synthetic import CLASSES, prepare
from hwbench.latency import (
    AdditivePredictor,
    LatencyTable,
    table_path,
)
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.models import network
from hwbench.spaces import load_space, resolve
from hwbench.specs import Precision, Timing
from hwbench.studies.latencies import choices_digest, feasible_set
from hwbench.studies.settings import Settings
from hwbench.studies.study import Search
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.permissions import obey_permissions
from hwbench.testing.tables import installed_target, space_table, work
from hwbench.training import Checkpoint, Recipe, save_checkpoint
from hwbench.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
TARGET = installed_target()
INT8 = Precision.INT8
STUDY = "done"
BUDGET_MS = 4.2
CHECKPOINT = "trained.pt"
PROGRAM = "model/model.pte"
VIDEOS = "videos"


def make(root: Path) -> Workspace:
    """All of it below ``root``."""
    workspace = Workspace.create(root)
    table().write(table_path(root, TARGET, INT8))
    _search(workspace)
    _checkpoint(workspace)
    (root / PROGRAM).parent.mkdir()
    shutil.copyfile(ROOT / "tests" / "golden" / "pte" / "small-1.5.1.pte", root / PROGRAM)
    videos = prepare(Workspace(root), SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=16))
    shutil.move(videos, root / VIDEOS)
    return workspace


@functools.cache
def table() -> LatencyTable:
    """A table of the tiny space after a law."""
    space = load_space(Workspace(ROOT), "x3d-tiny")
    return space_table(space, INT8, calibration=6)


def _search(workspace: Workspace) -> None:
    space = load_space(workspace, "x3d-tiny")
    predictor = AdditivePredictor.fit(table(), space=space.name)
    device = FakeDevice(workspace.state / "device", law=work)

    def measure(workloads):
        with MeasurementStore(workspace.store) as store:
            return Campaign(
                store, TARGET, {"device": "fake"}, device.build, device.measure, Timing(min_rounds=3, max_rounds=3)
            ).run(workloads).measurements  # fmt: skip

    settings = Settings(space.name, choices_digest(space), TARGET.key, INT8.value, BUDGET_MS, 8)
    Search(
        workspace=workspace,
        name=STUDY,
        settings=settings,
        feasible=feasible_set(space, predictor, settings),
        spread=predictor.calibration.spread,
        measure=measure,
    ).run(4, 1)


def _checkpoint(workspace: Workspace) -> None:
    torch.manual_seed(0)
    trained = resolve(workspace, f"{STUDY}:best", 8)
    clip: ClipSpec = default_clip("synthetic", trained.input.t)
    metrics = {"top1": 0.5, "top5": 0.9, "epochs": 1.0, "steps": 1.0, "seconds": 1.0}
    described = Checkpoint(trained, CLASSES, Recipe(epochs=1), clip, metrics, VIDEOS)
    save_checkpoint(workspace.root / CHECKPOINT, described, network(trained).state_dict())


def call(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command line, in this process."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return status, out.getvalue(), err.getvalue()


def read_only(root: Path) -> None:
    """Takes the right to write away from everything below ``root``."""
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    obey_permissions()


def small_files(num_bytes: int) -> None:
    """No file can grow beyond so many bytes: as on a full disk, a write in the middle fails."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


@contextlib.contextmanager
def small_disk(root: Path, num_bytes: int) -> Iterator[Path | None]:
    """A copy of ``root`` on a disk with so much room left, seen by this process alone; at the end ``root`` is what is
    on that disk. None where the system does not allow to make one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    new_user, new_mounts, private = 0x10000000, 0x00020000, (1 << 18) | 0x4000
    flags = new_mounts if os.geteuid() == 0 else new_mounts | new_user
    place = root.with_name("disk")
    place.mkdir()
    page = resource.getpagesize()
    used = sum(-(-path.stat().st_size // page) * page for path in root.rglob("*") if path.is_file())
    options = f"size={used + num_bytes}".encode()
    if (
        libc.unshare(flags) != 0
        or libc.mount(b"none", b"/", None, private, None) != 0
        or libc.mount(b"tmpfs", bytes(place), b"tmpfs", 0, options) != 0
    ):
        yield None
    else:
        shutil.copytree(root, place, dirs_exist_ok=True)
        yield place
        shutil.rmtree(root)
        shutil.copytree(place, root)


def answer(arguments: list[str]) -> None:
    """Runs one command line and prints what came of it as one JSON line."""
    status, out, err = call(*arguments)
    print(json.dumps({"arguments": arguments, "status": status, "out": out, "err": err}), flush=True)


@contextlib.contextmanager
def strained(mode: str, root: Path, num_bytes: int) -> Iterator[Path | None]:
    """The workspace as the mode wants it."""
    if mode == "read-only":
        read_only(root)
    elif mode == "small-files":
        small_files(num_bytes)
    if mode == "small-disk":
        with small_disk(root, num_bytes) as place:
            yield place
    else:
        yield root


if __name__ == "__main__":
    torch.set_num_threads(1)
    mode, folder, commands, *rest = sys.argv[1:]
    with strained(mode, Path(folder).resolve(), int(rest[0]) if rest else 0) as found:
        if found is not None:
            os.chdir(found)
            for command in json.loads(commands):
                answer(command)
