"""Generated sets of videos: what their specifications have in common, and how their files are made.

A set is a folder that is named after every parameter. It is encoded into a temporary folder, by several processes where
it is large, and gets its name when it is complete. Which process encodes a video changes nothing in its file.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hwbench.data.encoding import write_video
from hwbench.errors import HwbenchError, InvalidValue, WorkspaceError
from hwbench.interpreter import cores, python_command, python_environment
from hwbench.workspace import Workspace, write_text, writing

Frames = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating[Any]]

SPLITS = ("train", "val")

_STAMP = "synthetic.json"
# A process starts in three seconds and encodes some 30 videos a second: with fewer videos another one is no gain.
_VIDEOS_PER_PROCESS = 1000
_MOST_PROCESSES = 8
# An encoding that another process may still be at is not swept away; a living one takes minutes.
_ABANDONED_S = 3600
_WORKER = "hwbench.data.generation_worker"


@dataclass(frozen=True)
class SetSpec(ABC):
    """What a generated set holds: videos per class in each split, of ``frames`` square frames of ``size`` pixels.

    Attributes:
        kind: Name of the family of sets, which begins the name of the folder.
        version: Raised whenever the pixels of the family change.
        kept_version: An older version whose complete sets stay in use; 0 for none.
        classes: Class names, sorted.
    """

    train_per_class: int
    val_per_class: int
    size: int
    frames: int
    fps: int
    seed: int

    kind: ClassVar[str]
    version: ClassVar[int]
    kept_version: ClassVar[int] = 0
    classes: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        if min(self.train_per_class, self.val_per_class, self.frames, self.fps) < 1 or self.seed < 0:
            raise InvalidValue(f"{self.kind} set: counts must be at least 1 and the seed not negative, got {self}")
        if self.size < 16 or self.size % 2:
            raise InvalidValue(f"{self.kind} set: the size must be even and at least 16 pixels, got {self.size}")

    @abstractmethod
    def films(self, split: str, class_name: str, index: int) -> Iterator[tuple[str, Frames]]:
        """The videos that are drawn together with one of them, as (class, frames) with uint8 (T, H, W, 3).

        Over all videos of a set each one comes exactly once.
        """

    @property
    def name(self) -> str:
        """Folder name of the set; holds every parameter."""
        return self._name(self.version)

    @property
    def names(self) -> tuple[str, ...]:
        """Folder names under which a complete set is taken as it is, the present one first."""
        kept = (self._name(self.kept_version),) if self.kept_version else ()
        return (self.name, *kept)

    def _name(self, version: int) -> str:
        return (
            f"{self.kind}-v{version}-{self.train_per_class}+{self.val_per_class}-{self.size}px-{self.frames}f"
            f"-{self.fps}fps-seed{self.seed}"
        )

    def per_class(self, split: str) -> int:
        """Videos per class in ``train`` or ``val``."""
        return {"train": self.train_per_class, "val": self.val_per_class}[split]

    def videos(self) -> Iterator[tuple[str, str, int]]:
        """Split, class and index of every video."""
        for split in SPLITS:
            for name in self.classes:
                for index in range(self.per_class(split)):
                    yield split, name, index

    def decoded_bytes(self, split: str) -> int:
        """Memory that the decoded videos of a split take."""
        return len(self.classes) * self.per_class(split) * self.frames * self.size**2 * 3


def generate(workspace: Workspace, spec: SetSpec, *, processes: int | None = None) -> Path:
    """Folder of the set (``train/CLASS/*.mp4``, ``val/CLASS/*.mp4``), made on first use.

    Encodes into a temporary folder which gets its name when it is complete, so an interruption leaves nothing half
    done; a set that lost files is made again. Two callers may do this at the same time. A complete set of an older
    hwbench is taken as it is.

    Args:
        workspace: Holds the set.
        spec: What the set holds.
        processes: How many processes encode, this one included; None: by the number of videos and of cores. The
            files do not depend on it.

    Raises:
        WorkspaceError: No rights or no room.
    """
    for name in spec.names:
        if is_complete(workspace.data / name, spec):
            return workspace.data / name
    root = workspace.data / spec.name
    with writing(root):
        root.parent.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        temporary = Path(tempfile.mkdtemp(prefix=f".{spec.name}.", suffix=".tmp", dir=root.parent))
        try:
            _encode(temporary, spec, processes or _process_count(spec))
            _move(temporary, root, spec)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return root


def encode_share(folder: Path, spec: SetSpec, share: int, shares: int) -> None:
    """Encodes every ``shares``-th video of a set into ``folder``, from number ``share`` on."""
    for split, drawn, index in itertools.islice(spec.videos(), share, None, shares):
        for name, frames in spec.films(split, drawn, index):
            path = folder / split / name / f"{index:05d}.mp4"
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_video(path, np.ascontiguousarray(frames), fps=spec.fps)


def is_complete(root: Path, spec: SetSpec) -> bool:
    """Whether a folder holds every video of a set."""
    if not (root / _STAMP).is_file():
        return False
    sizes = {(p.parent.parent.name, p.parent.name, p.name): p.stat().st_size for p in root.glob("*/*/*.mp4")}
    return all(sizes.get((split, name, f"{index:05d}.mp4"), 0) > 0 for split, name, index in spec.videos())


def coverage(distance: Floats, soft: Floats | np.float32) -> Floats:
    """1 where the distance to the edge is positive, 0 where negative, a ramp of width ``soft`` between."""
    share: Floats = np.clip(distance / soft + 0.5, 0, 1)
    return share


def _process_count(spec: SetSpec) -> int:
    videos = len(spec.classes) * sum(spec.per_class(split) for split in SPLITS)
    return max(1, min(videos // _VIDEOS_PER_PROCESS, cores(), _MOST_PROCESSES))


def _encode(folder: Path, spec: SetSpec, processes: int) -> None:
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_Encoder(folder, spec, share, processes)) for share in range(1, processes)]
        encode_share(folder, spec, 0, processes)
        for worker in workers:
            worker.finish()
    write_text(folder / _STAMP, json.dumps(_facts(spec), indent=2) + "\n")


def _facts(spec: SetSpec) -> Mapping[str, int]:
    return {"version": spec.version, **asdict(spec)}


class _Encoder:
    """A process that encodes a share of a set; it ends when this process does, or leaves the context."""

    def __init__(self, folder: Path, spec: SetSpec, share: int, shares: int) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__
        # A session of its own: Ctrl-C at the terminal reaches only us, and we end it.
        self._process = subprocess.Popen(
            python_command(_WORKER, spec.kind, json.dumps(asdict(spec)), str(folder), str(share), str(shares)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,
            env=python_environment(),
        )

    def __enter__(self) -> _Encoder:
        return self

    def finish(self) -> None:
        """Waits for the end of the share.

        Raises:
            WorkspaceError: No rights or no room.
            HwbenchError: The process ended early.
        """
        status = self._process.wait()
        if status:
            self._log.seek(0)
            *_, last = self._log.read().decode(errors="replace").strip().splitlines() or [f"status {status}"]
            raise (WorkspaceError if status == WorkspaceError.exit_status else HwbenchError)(last)

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._log.close()


def _move(temporary: Path, root: Path, spec: SetSpec) -> None:
    """Gives the finished folder its name; if another process was faster its set stays, a damaged one goes."""
    temporary.chmod(0o755)  # mkdtemp makes private folders
    if root.exists() and not is_complete(root, spec):
        shutil.rmtree(root)
    try:
        temporary.rename(root)
    except OSError:
        if not is_complete(root, spec):
            raise


def _sweep(root: Path) -> None:
    """Removes what encodings killed more than an hour ago left behind."""
    for folder in root.parent.glob(f".{root.name}.*.tmp"):
        if time.time() - folder.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(folder, ignore_errors=True)
