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

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hwbench.data.generation import SPLITS, Floats, Frames, SetSpec, coverage, generate
from hwbench.errors import InvalidValue
from hwbench.registry import suggest
from hwbench.workspace import Workspace

# forwards, backwards
PAIRS = (("move-right", "move-left"), ("grow", "shrink"), ("turn-right", "turn-left"), ("brighten", "darken"))
CLASSES = tuple(sorted(name for pair in PAIRS for name in pair))

# Raised whenever the pixels change, so that files of two versions never lie in one set. 1: H.264; 2: MPEG-4 part 2.
_VERSION = 2
_KEPT_VERSION = 1
# Raised whenever the scenes change.
_SCENES = 1


@dataclass(frozen=True)
class SyntheticSpec(SetSpec):
    """What the set holds: videos per class in each split, of ``frames`` square frames of ``size`` pixels at ``fps``."""

    train_per_class: int = 48
    val_per_class: int = 16
    size: int = 80
    frames: int = 24
    fps: int = 12
    seed: int = 0

    kind = "synthetic"
    version = _VERSION
    kept_version = _KEPT_VERSION
    classes = CLASSES

    def films(self, split: str, class_name: str, index: int) -> Iterator[tuple[str, Frames]]:
        # The two videos of a pair are one drawing, which comes with the class that runs forwards.
        if not _place(class_name)[1]:
            frames = render(class_name, split, index, self)
            yield class_name, frames
            yield partner(class_name), frames[::-1]


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
    """Folder of the set, made on first use as ``hwbench.data.generation.generate`` does."""
    return generate(workspace, spec or SyntheticSpec())


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
    head = coverage(0.5 - np.hypot(u - 0.5, v), soft)
    tail = coverage(0.22 - np.hypot(u - np.clip(u, -1.0, 0.3), v), soft)
    picture = np.broadcast_to(_background(scene.waves, axis), (spec.frames, spec.size, spec.size, 3))
    picture = picture + tail[..., None] * (scene.tail - picture)
    picture = picture + head[..., None] * (scene.head - picture)
    return np.rint(np.clip(picture * gain[:, None, None, None], 0, 1) * 255).astype(np.uint8)


def _background(waves: Floats, axis: Floats) -> Floats:
    """Soft coloured waves around middle grey, (H, W, 3)."""
    fx, fy, phase, height = (waves[..., i] for i in range(4))
    turns = fx * axis[None, :, None, None] + fy * axis[:, None, None, None] + phase
    picture: Floats = 0.4 + (height * np.sin(2 * np.pi * turns)).sum(-1)
    return picture.astype(np.float32)
