"""The built-in set: eight actions in four pairs which differ only in the direction of time.

One object (a two-coloured pointer) stands before a soft random background. One property of the scene runs through a
cycle: its place, its size, its angle or the brightness of the picture. The two classes of a pair run the same cycle
forwards and backwards: video ``i`` of one class is, before encoding, the reversed video ``i`` of the other, its *twin*.
The phase at the first frame is uniform over the cycle, so at every position in time a frame of one class has the
distribution of a frame of its partner: who sees one frame (or many copies of it) can only guess within a pair.

The videos are real MPEG-4 files, encoded on first use; everything follows from the seed. Sets of before, in H.264, hold
the same scenes: one that is complete stays in use, so that what was begun with its frames goes on with them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwbench.data.encoding import write_video
from hwbench.errors import InvalidValue
from hwbench.registry import suggest
from hwbench.workspace import Workspace, write_text, writing

Frames = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating[Any]]

# forwards, backwards
PAIRS = (("move-right", "move-left"), ("grow", "shrink"), ("turn-right", "turn-left"), ("brighten", "darken"))
CLASSES = tuple(sorted(name for pair in PAIRS for name in pair))
SPLITS = ("train", "val")

_STAMP = "synthetic.json"
# Raised whenever the pixels change, so that files of two versions never lie in one set. 1: H.264; 2: MPEG-4 part 2.
_VERSION = 2
_KEPT_VERSION = 1
# Raised whenever the scenes change.
_SCENES = 1


@dataclass(frozen=True)
class SyntheticSpec:
    """What the set holds: videos per class in each split, of ``frames`` square frames of ``size`` pixels at ``fps``."""

    train_per_class: int = 48
    val_per_class: int = 16
    size: int = 80
    frames: int = 24
    fps: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.train_per_class, self.val_per_class, self.frames, self.fps) < 1 or self.seed < 0:
            raise InvalidValue(f"synthetic set: counts must be at least 1 and the seed not negative, got {self}")
        if self.size < 16 or self.size % 2:
            raise InvalidValue(f"synthetic set: the size must be even and at least 16 pixels, got {self.size}")

    @property
    def name(self) -> str:
        """Folder name of the set; holds every parameter."""
        return self._name(_VERSION)

    @property
    def kept_name(self) -> str:
        """Folder name of the same set as it was encoded before."""
        return self._name(_KEPT_VERSION)

    def _name(self, version: int) -> str:
        return (
            f"synthetic-v{version}-{self.train_per_class}+{self.val_per_class}-{self.size}px-{self.frames}f"
            f"-{self.fps}fps-seed{self.seed}"
        )

    def per_class(self, split: str) -> int:
        """Videos per class in ``train`` or ``val``."""
        return {"train": self.train_per_class, "val": self.val_per_class}[split]


@dataclass(frozen=True)
class _Scene:
    """What is drawn at random once per video. Lengths are shares of the frame, angles and phases shares of a turn."""

    phase: float
    speed: float
    x: float
    y: float
    angle: float
    scale: float
    gain: float
    head: Floats
    tail: Floats
    waves: Floats

    @classmethod
    def draw(cls, rng: np.random.Generator) -> _Scene:
        return cls(
            phase=rng.uniform(),
            # A clip over 16 frames runs through 0.5 to 0.8 of the cycle: enough to see, at most one jump to its start.
            speed=rng.uniform(0.03, 0.05),
            x=rng.uniform(),
            y=rng.uniform(0.35, 0.65),
            angle=rng.uniform(),
            scale=rng.uniform(0.22, 0.3),
            gain=rng.uniform(0.6, 1.0),
            head=rng.uniform(0.65, 1.0, 3).astype(np.float32),
            tail=rng.uniform(0.0, 0.2, 3).astype(np.float32),
            # three plane waves per colour: frequency x, frequency y, phase, height
            waves=rng.uniform((-1.5, -1.5, 0, 0.01), (1.5, 1.5, 1, 0.05), (3, 3, 4)).astype(np.float32),
        )


def render(class_name: str, split: str, index: int, spec: SyntheticSpec) -> Frames:
    """Video ``index`` of a class before encoding, uint8 (T, H, W, 3) in RGB; the partner class has its reverse."""
    pair, backwards = _place(class_name)
    rng = np.random.default_rng([_SCENES, spec.seed, SPLITS.index(split), pair, index])
    frames = _draw(PAIRS[pair][0], _Scene.draw(rng), spec)
    return np.ascontiguousarray(frames[::-1]) if backwards else frames


def partner(class_name: str) -> str:
    """The class which shows the same frames in the opposite order."""
    pair, backwards = _place(class_name)
    return PAIRS[pair][0 if backwards else 1]


def prepare(workspace: Workspace, spec: SyntheticSpec | None = None) -> Path:
    """Folder of the set (``train/CLASS/*.mp4``, ``val/CLASS/*.mp4``), made on first use.

    Encodes into a temporary folder which gets its name when it is complete, so an interruption leaves nothing half
    done; a set that lost files is made again. Two processes may do this at the same time. A complete set of an older
    hwbench is taken as it is.

    Raises:
        WorkspaceError: No rights or no room.
    """
    spec = spec or SyntheticSpec()
    root = workspace.data / spec.name
    for made in (root, workspace.data / spec.kept_name):
        if _complete(made, spec):
            return made
    with writing(root):
        root.parent.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        temporary = Path(tempfile.mkdtemp(prefix=f".{spec.name}.", suffix=".tmp", dir=root.parent))
        try:
            _encode(temporary, spec)
            _move(temporary, root, spec)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return root


def _encode(folder: Path, spec: SyntheticSpec) -> None:
    for split, name, index in _videos(spec):
        if _place(name)[1]:
            continue
        frames = render(name, split, index, spec)
        for one, film in ((name, frames), (partner(name), frames[::-1])):
            path = folder / split / one / f"{index:05d}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_video(path, np.ascontiguousarray(film), fps=spec.fps)
    write_text(folder / _STAMP, json.dumps({"version": _VERSION, **asdict(spec)}, indent=2) + "\n")


def _move(temporary: Path, root: Path, spec: SyntheticSpec) -> None:
    """Gives the finished folder its name; if another process was faster its set stays, a damaged one goes."""
    temporary.chmod(0o755)  # mkdtemp makes private folders
    if root.exists() and not _complete(root, spec):
        shutil.rmtree(root)
    try:
        temporary.rename(root)
    except OSError:
        if not _complete(root, spec):
            raise


def _sweep(root: Path) -> None:
    """Removes what encodings killed more than an hour ago left behind; a living one takes seconds."""
    for folder in root.parent.glob(f".{root.name}.*.tmp"):
        if time.time() - folder.stat().st_mtime > 3600:
            shutil.rmtree(folder, ignore_errors=True)


def _complete(root: Path, spec: SyntheticSpec) -> bool:
    if not (root / _STAMP).is_file():
        return False
    sizes = {(p.parent.parent.name, p.parent.name, p.name): p.stat().st_size for p in root.glob("*/*/*.mp4")}
    return all(sizes.get((split, name, f"{index:05d}.mp4"), 0) > 0 for split, name, index in _videos(spec))


def _videos(spec: SyntheticSpec) -> Iterator[tuple[str, str, int]]:
    for split in SPLITS:
        for name in CLASSES:
            for index in range(spec.per_class(split)):
                yield split, name, index


def _place(class_name: str) -> tuple[int, bool]:
    for index, pair in enumerate(PAIRS):
        if class_name in pair:
            return index, class_name == pair[1]
    raise InvalidValue(f"synthetic set: unknown class {class_name!r}; {suggest(class_name, CLASSES)}")


def _draw(action: str, scene: _Scene, spec: SyntheticSpec) -> Frames:
    """Frames of the forward class of a pair, (T, H, W, 3): one property follows the phase, the others stand still."""
    phase = (scene.phase + scene.speed * np.arange(spec.frames, dtype=np.float32)) % 1
    still = np.zeros_like(phase)
    x = phase if action == "move-right" else still + scene.x
    angle = phase if action == "turn-right" else still + scene.angle
    # the size grows fivefold in a cycle, by the same ratio from frame to frame
    scale = np.float32(0.08) * 5**phase if action == "grow" else still + scene.scale
    gain = 0.35 + 0.65 * phase if action == "brighten" else still + scene.gain
    axis = (np.arange(spec.size, dtype=np.float32) + 0.5) / spec.size
    # around the object, wrapping at the left and right edge
    dx = ((axis - x[:, None] + 0.5) % 1 - 0.5)[:, None, :]
    dy = (axis - scene.y)[None, :, None]
    cos, sin = (f(2 * np.pi * angle)[:, None, None] / scale[:, None, None] for f in (np.cos, np.sin))
    # Object coordinates in units of its size: u along the pointer, v across it.
    u, v = cos * dx + sin * dy, cos * dy - sin * dx
    soft = 1.5 / (spec.size * scale[:, None, None])  # edges are blurred over 1.5 pixels
    head = _inside(0.5 - np.hypot(u - 0.5, v), soft)
    tail = _inside(0.22 - np.hypot(u - np.clip(u, -1.0, 0.3), v), soft)
    picture = np.broadcast_to(_background(scene.waves, axis), (spec.frames, spec.size, spec.size, 3))
    picture = picture + tail[..., None] * (scene.tail - picture)
    picture = picture + head[..., None] * (scene.head - picture)
    return np.rint(np.clip(picture * gain[:, None, None, None], 0, 1) * 255).astype(np.uint8)


def _inside(distance: Floats, soft: Floats) -> Floats:
    """1 where the distance to the edge is positive, 0 where negative, a ramp of width ``soft`` between."""
    share: Floats = np.clip(distance / soft + 0.5, 0, 1)
    return share


def _background(waves: Floats, axis: Floats) -> Floats:
    """Soft coloured waves around middle grey, (H, W, 3)."""
    fx, fy, phase, height = (waves[..., i] for i in range(4))
    turns = fx * axis[None, :, None, None] + fy * axis[:, None, None, None] + phase
    picture: Floats = 0.4 + (height * np.sin(2 * np.pi * turns)).sum(-1)
    return picture.astype(np.float32)
