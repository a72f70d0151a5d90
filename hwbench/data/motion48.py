"""The set ``motion48``: four shapes times twelve motions, 48 classes that a single frame cannot tell apart by motion.

A scene has a target (one of four shapes with a marked side), a companion (a plain disc), clutter, an occluding bar
and a textured background that the camera pans over. Six properties of a scene are cyclic: the angle of the target, its
size, its place on an orbit, its horizontal and its vertical swing, and the swing of the companion. A *motion* says how
fast each property runs through its cycle in the first part of a video, in a pause around the middle, and in the last
part.

=====================  ==========  ==================================================================================
pair of motions        tells       what differs
=====================  ==========  ==================================================================================
turn-left, -right      direction   the sense of rotation: two frames suffice
grow, shrink           direction   the sign of the change of size: two frames suffice
orbit-left, -right     direction   the sense of the path of the target: three frames suffice
sway-slow, -fast       speed       the frequency of the horizontal swing, a factor of two
sway-nod, nod-sway     order       which of two swings of the target comes first: needs both halves
lead, follow           order       whether target or companion moves first: needs both halves and both objects
=====================  ==========  ==================================================================================

All six phases at the first frame are uniform over the cycle in every class. A phase that has moved by any amount is
uniform again, so every frame of every motion has one and the same distribution: a single frame tells the shape, and
nothing of the motion. The best top-1 from one frame, or from copies of it, is 1/12.

The motions of a pair share their scenes. Of the five pairs of direction and order, video ``i`` of one motion is, before
encoding, the reversed video ``i`` of the other. A scene is described in shares of frame and video, so one scene can be
drawn at any size; flips left to right would swap labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from hwbench.data.generation import SPLITS, Floats, Frames, SetSpec, coverage
from hwbench.errors import InvalidValue
from hwbench.registry import suggest

SHAPES = ("cross", "disc", "ring", "square")
CHANNELS = ("turn", "size", "orbit", "sway", "nod", "companion")

# Raised whenever the pixels change, so that files of two versions never lie in one set.
_VERSION = 1
# Raised whenever the scenes change.
_SCENES = 1

# Relative speeds of a channel before, during and after the pause.
_STEADY, _FAST, _FIRST, _LAST = (1.0, 1.0, 1.0), (2.0, 2.0, 2.0), (2.0, 0.0, 0.0), (0.0, 0.0, 2.0)
# Cycles per video at relative speed 1: at 8 frames per clip a cycle has 8 to 11 frames, a fast swing 4 to 5. The two
# speeds of the swing keep apart: 0.85 * 2 > 1.2.
_CYCLES = 1.1
_SPEED = (0.85, 1.2)
# Lengths as shares of the frame: radius of the orbit, amplitude of the swings, radius of the companion. A cycle of the
# size ends this many times larger than it begins.
_ORBIT, _SWING, _COMPANION = np.float32(0.13), np.float32(0.12), np.float32(0.08)
_GROWTH = np.float32(2.2)


@dataclass(frozen=True)
class Motion:
    """A motion program.

    Attributes:
        partner: The motion that shares the scenes.
        rates: Relative speed of each moving channel before, during and after the pause.
        backwards: Whether the video of ``partner`` is shown in reverse; ``rates`` are then those of ``partner``.
    """

    partner: str
    rates: Mapping[str, tuple[float, float, float]]
    backwards: bool = False


def _reversal(forwards: str, backwards: str, **rates: tuple[float, float, float]) -> dict[str, Motion]:
    fixed = MappingProxyType(rates)
    return {forwards: Motion(backwards, fixed), backwards: Motion(forwards, fixed, backwards=True)}


MOTIONS: Mapping[str, Motion] = MappingProxyType(
    {
        **_reversal("turn-right", "turn-left", turn=_STEADY),
        **_reversal("grow", "shrink", size=_STEADY),
        **_reversal("orbit-right", "orbit-left", orbit=_STEADY),
        "sway-slow": Motion("sway-fast", MappingProxyType({"sway": _STEADY})),
        "sway-fast": Motion("sway-slow", MappingProxyType({"sway": _FAST})),
        **_reversal("sway-nod", "nod-sway", sway=_FIRST, nod=_LAST),
        **_reversal("lead", "follow", sway=_FIRST, companion=_LAST),
    }
)
CLASSES = tuple(sorted(f"{shape}-{motion}" for shape in SHAPES for motion in MOTIONS))
_PAIRS = tuple(sorted({tuple(sorted((name, motion.partner))) for name, motion in MOTIONS.items()}))


@dataclass(frozen=True)
class Motion48Spec(SetSpec):
    """What the set holds: videos per class in each split, of ``frames`` square frames of ``size`` pixels at ``fps``.

    The train split of a smaller count is the beginning of that of a larger one; the scenes do not depend on the size.
    """

    train_per_class: int = 100
    val_per_class: int = 30
    size: int = 96
    frames: int = 20
    fps: int = 10
    seed: int = 0

    kind = "motion48"
    version = _VERSION
    classes = CLASSES

    def films(self, split: str, class_name: str, index: int) -> Iterator[tuple[str, Frames]]:
        yield class_name, render(class_name, split, index, self)


def render(class_name: str, split: str, index: int, spec: Motion48Spec) -> Frames:
    """Video ``index`` of a class before encoding, uint8 (T, H, W, 3) in RGB."""
    shape, motion = _parse(class_name)
    pair = next(i for i, pair in enumerate(_PAIRS) if motion in pair)
    rng = np.random.default_rng([_SCENES, spec.seed, SPLITS.index(split), SHAPES.index(shape), pair, index])
    return _draw(shape, MOTIONS[motion], _MotionScene.draw(rng), spec)


def partner(class_name: str) -> str:
    """The class of the same shape whose motion shares the scenes."""
    shape, motion = _parse(class_name)
    return f"{shape}-{MOTIONS[motion].partner}"


def _parse(class_name: str) -> tuple[str, str]:
    shape, _, motion = class_name.partition("-")
    if class_name not in CLASSES:
        raise InvalidValue(f"motion48: unknown class {class_name!r}; {suggest(class_name, CLASSES)}")
    return shape, motion


@dataclass(frozen=True)
class _MotionScene:
    """What is drawn at random once per video. Lengths are shares of the frame, times of the video, angles of a turn."""

    phases: Floats
    speed: float
    pause: tuple[float, float]
    centre: Floats
    radius: float
    companion: Floats
    camera: Floats
    body: Floats
    mark: Floats
    disc: Floats
    waves: Floats
    level: Floats
    clutter: Floats
    bar: Floats
    gain: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> _MotionScene:
        middle, half = 0.5 + rng.uniform(-0.05, 0.05), rng.uniform(0.03, 0.09)
        away = 2 * np.pi * rng.uniform()
        return cls(
            phases=rng.uniform(0, 1, len(CHANNELS)).astype(np.float32),
            speed=_CYCLES * rng.uniform(*_SPEED),
            pause=(middle - half, middle + half),
            centre=0.5 + rng.uniform(-0.04, 0.04, 2).astype(np.float32),
            radius=rng.uniform(0.15, 0.18),
            companion=(0.5 + rng.uniform(0.3, 0.38) * np.array([np.cos(away), np.sin(away)])).astype(np.float32),
            camera=rng.uniform(-0.06, 0.06, 2).astype(np.float32),
            body=rng.uniform(0.7, 1.0, 3).astype(np.float32),
            mark=rng.uniform(0.0, 0.2, 3).astype(np.float32),
            disc=rng.uniform(0.7, 1.0, 3).astype(np.float32),
            # six plane waves: frequency x, frequency y, and for each colour a phase and a height
            waves=rng.uniform(
                (-3, -3, 0, 0, 0, 0.005, 0.005, 0.005), (3, 3, 1, 1, 1, 0.025, 0.025, 0.025), (6, 8)
            ).astype(np.float32),
            level=rng.uniform(0.25, 0.45, 3).astype(np.float32),
            # three soft discs that belong to the background: x, y, radius, and their colour
            clutter=rng.uniform((0, 0, 0.02, 0.1, 0.1, 0.1), (1, 1, 0.05, 0.6, 0.6, 0.6), (3, 6)).astype(np.float32),
            # a bar: angle, distance from the middle, distance it slides in a video, half its width, its colour; in half
            # of the videos it is not there
            bar=np.concatenate(
                [
                    rng.uniform((0, -0.3, -0.1, 0.02), (1, 0.3, 0.1, 0.04)) * [1, 1, 1, rng.uniform() < 0.5],
                    rng.uniform(0.1, 0.6, 3),
                ]
            ).astype(np.float32),
            gain=rng.uniform(0.65, 1.0),
        )

    def phase(self, channel: str, motion: Motion, time: Floats) -> Floats:
        """Phase of a channel at each frame, (T,)."""
        start, end = self.pause
        before, during, after = motion.rates.get(channel, (0.0, 0.0, 0.0))
        moved = (
            before * np.minimum(time, start)
            + during * (np.clip(time, start, end) - start)
            + after * np.maximum(time - end, 0)
        )
        phase: Floats = (self.phases[CHANNELS.index(channel)] + np.float32(self.speed) * moved) % 1
        return phase.astype(np.float32)


def _draw(shape: str, motion: Motion, scene: _MotionScene, spec: Motion48Spec) -> Frames:
    """Frames of a scene, (T, H, W, 3)."""
    time = (np.arange(spec.frames, dtype=np.float32) + np.float32(0.5)) / spec.frames
    if motion.backwards:
        time = time[::-1]
    axis = (np.arange(spec.size, dtype=np.float32) + np.float32(0.5)) / spec.size
    phases = {channel: scene.phase(channel, motion, time) for channel in CHANNELS}
    pan = scene.camera * (time - np.float32(0.5))[:, None]
    picture = _background(scene, pan, axis)
    _paint_companion(picture, scene, phases, pan, axis)
    _paint_target(picture, shape, scene, phases, pan, axis)
    if scene.bar[3] > 0:
        _paint_bar(picture, scene.bar, time, axis)
    picture *= np.float32(255 * scene.gain)
    return np.rint(picture, out=picture).clip(0, 255).astype(np.uint8)


def _paint_companion(
    picture: Floats, scene: _MotionScene, phases: Mapping[str, Floats], pan: Floats, axis: Floats
) -> None:
    dx = axis[None, None, :] - (scene.companion[0] + pan[:, 0])[:, None, None]
    dx = dx - (_SWING * np.sin(2 * np.pi * phases["companion"]))[:, None, None]
    dy = axis[None, :, None] - (scene.companion[1] + pan[:, 1])[:, None, None]
    _paint(picture, coverage(_COMPANION - np.hypot(dx, dy), _pixel(axis)), scene.disc)


def _paint_target(
    picture: Floats, shape: str, scene: _MotionScene, phases: Mapping[str, Floats], pan: Floats, axis: Floats
) -> None:
    turn, orbit, sway, nod = (2 * np.pi * phases[channel] for channel in ("turn", "orbit", "sway", "nod"))
    centre = scene.centre + pan
    x = centre[:, 0] + _ORBIT * np.cos(orbit) + _SWING * np.sin(sway)
    y = centre[:, 1] + _ORBIT * np.sin(orbit) + _SWING * np.sin(nod)
    # the same ratio from frame to frame
    radius = (np.float32(scene.radius) * _GROWTH ** (phases["size"] - np.float32(0.5)))[:, None, None]
    dx = (axis - x[:, None])[:, None, :] / radius
    dy = (axis - y[:, None])[:, :, None] / radius
    cos, sin = (f(turn).astype(np.float32)[:, None, None] for f in (np.cos, np.sin))
    # Coordinates of the target in units of its radius; the mark is at u = 0.9.
    u, v = cos * dx + sin * dy, cos * dy - sin * dx
    soft = _pixel(axis) / radius
    _paint(picture, coverage(_inside(shape, u, v), soft), scene.body)
    _paint(picture, coverage(np.float32(0.38) - np.hypot(u - np.float32(0.9), v), soft), scene.mark)


def _paint_bar(picture: Floats, bar: Floats, time: Floats, axis: Floats) -> None:
    angle, place, slide, width = bar[:4]
    cos, sin = (f(2 * np.pi * angle) for f in (np.cos, np.sin))
    across = cos * (axis[None, None, :] - 0.5) + sin * (axis[None, :, None] - 0.5)
    offset = (place + slide * (time - np.float32(0.5)))[:, None, None]
    _paint(picture, coverage((width - np.abs(across - offset)).astype(np.float32), _pixel(axis)), bar[4:])


def _pixel(axis: Floats) -> np.float32:
    """Width over which edges are blurred: 1.5 pixels."""
    return np.float32(1.5 / len(axis))


def _inside(shape: str, u: Floats, v: Floats) -> Floats:
    """Distance to the edge of a shape in units of its radius, positive inside."""
    if shape == "disc":
        return np.float32(0.85) - np.hypot(u, v)
    if shape == "ring":
        return np.float32(0.22) - np.abs(np.hypot(u, v) - np.float32(0.75))
    u, v = np.abs(u), np.abs(v)
    if shape == "square":
        return np.float32(0.78) - np.maximum(u, v)
    arm = np.float32(0.27)
    cross: Floats = np.maximum(np.minimum(arm - v, 1 - u), np.minimum(arm - u, 1 - v))
    return cross


def _paint(picture: Floats, share: Floats, colour: Floats) -> None:
    """Covers a picture (T, H, W, 3) in place by a colour to a share (T, H, W)."""
    picture += share[..., None] * (colour - picture)


# The background is drawn once, this much wider than the frame at each side, and shifted by the camera.
_MARGIN = 0.07


def _background(scene: _MotionScene, pan: Floats, axis: Floats) -> Floats:
    """The textured background under a pan (T, 2) of the camera, (T, H, W, 3)."""
    size = len(axis)
    margin = int(np.ceil(_MARGIN * size)) + 1
    wide = (np.arange(-margin, size + margin, dtype=np.float32) + np.float32(0.5)) / size
    texture = _texture(scene, wide)
    picture = np.empty((len(pan), size, size, 3), np.float32)
    for frame, (right, down) in zip(picture, pan):
        # what moves to the right is read from further left; between pixels by linear interpolation
        rows, down_share = _split(margin - down * size)
        columns, right_share = _split(margin - right * size)
        block = texture[rows : rows + size + 1, columns : columns + size + 1]
        block = block[:-1] + down_share * (block[1:] - block[:-1])
        frame[:] = block[:, :-1] + right_share * (block[:, 1:] - block[:, :-1])
    return picture


def _split(offset: float) -> tuple[int, np.float32]:
    whole = int(np.floor(offset))
    return whole, np.float32(offset - whole)


def _texture(scene: _MotionScene, axis: Floats) -> Floats:
    fx, fy = scene.waves[:, 0], scene.waves[:, 1]
    turns = fx[:, None, None] * axis[None, None, :] + fy[:, None, None] * axis[None, :, None]
    picture = np.empty((len(axis), len(axis), 3), np.float32)
    for colour in range(3):
        phase, height = scene.waves[:, 2 + colour, None, None], scene.waves[:, 5 + colour, None, None]
        waves = height * np.sin(np.float32(2 * np.pi) * (turns + phase))
        picture[..., colour] = scene.level[colour] + waves.sum(0)
    for x, y, radius, *colour in scene.clutter:
        distance = np.hypot(axis[None, :] - x, axis[:, None] - y)
        picture += coverage(radius - distance, np.float32(0.02))[..., None] * (np.array(colour, np.float32) - picture)
    return picture
