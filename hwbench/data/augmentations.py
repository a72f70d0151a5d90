"""Training transforms by name, as a recipe writes them: ``["scale-jitter:1.14-1.43", "flip:0.5", "rand-augment:2,9"]``.

A list has at most one step that crops (``scale-jitter``, ``random-resized-crop``); without one frames are cropped as
their ``PictureSpec`` says. The other steps work on the cropped pictures, uint8 (T, 3, h, w), in the order of the list;
normalisation comes last. ``temporal-jitter`` moves the frames of a clip before they are read, within the labelled part.

A step draws from the generator of its sample alone, and all frames of a clip get the same parameters. To add one: a
class here that is decorated with ``@steps.register(NAME)``; the parameters of its class are the numbers behind the
colon, each with a default.

=======================  ==================================================  =========================================
step                     numbers                                             source
=======================  ==================================================  =========================================
scale-jitter             smallest and largest short side over the crop       X3D (arXiv 2004.04730), log-uniform
random-resized-crop      range of area, range of aspect ratio                arXiv 1409.4842
flip                     probability; left to right                          off where directions are labels
rand-augment             operations, magnitude of 30, probability of each    arXiv 1909.13719
aug-mix                  severity of 10, chains, alpha                       arXiv 1912.02781
colour-jitter            brightness, contrast, saturation, hue, probability  arXiv 2002.05709
random-erasing           probability, range of area, range of aspect ratio   arXiv 1708.04896
temporal-jitter          most frames by which each frame moves forward       mmaction2 ``SampleFrames``
=======================  ==================================================  =========================================
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from hwbench.data.conventions import Indices
from hwbench.data.decoding import Frames
from hwbench.data.transforms import GREY, NORMALISATION, Normalisation, RandomResizedCrop, ScaleJitter, Size, random_box
from hwbench.errors import InvalidValue, UnknownName
from hwbench.registry import Registry, suggest

# Settings of RandAugment run from 0 to this; magnitudes above it are refused.
_MOST_MAGNITUDE = 30
_MOST_SEVERITY = 10
# Between two numbers, not of an exponent.
_TO = re.compile("(?<![eE])-")


class _NoTransform(InvalidValue):
    """Numbers that a transform does not take."""

    def __init__(self, expected: str, got: object) -> None:
        super().__init__(f"transforms: expected {expected}, got {got}")
        self.expected = expected


class Step(Protocol):
    """A random change of cropped pictures; a frozen dataclass of numbers."""

    def __call__(self, pictures: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """uint8 (T, 3, h, w) -> the same; the input is left unmodified."""
        ...


steps: Registry[type[Step]] = Registry("training transform")


@dataclass(frozen=True)
class TransformSpec:
    """One entry of a list of transforms: ``name:number,number``; a range ``a-b`` stands for two numbers."""

    name: str
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        return self.name + (":" + ",".join(f"{number:g}" for number in self.numbers) if self.numbers else "")

    @classmethod
    def parse(cls, text: str) -> TransformSpec:
        """The entry that a text writes.

        Raises:
            InvalidValue: What is behind the colon are no numbers.
        """
        name, _, rest = text.strip().partition(":")
        try:
            numbers = tuple(float(part) for word in rest.split(",") if rest for part in _TO.split(word))
        except ValueError:
            numbers = (math.nan,)
        if not all(map(math.isfinite, numbers)):
            raise InvalidValue(f"transforms: expected NAME or NAME:NUMBER,NUMBER or NAME:LOW-HIGH, got {text!r}")
        return cls(name, numbers)


@dataclass(frozen=True)
class TemporalJitter:
    """Each frame of a clip moves forward by 0 to ``frames`` frames, on its own, within the labelled part."""

    frames: int = 1

    def __post_init__(self) -> None:
        _need(self.frames >= 0, "temporal-jitter: frames of 0 or more", self)

    def __call__(self, indices: Indices, end: int, rng: np.random.Generator) -> Indices:
        """Indices of the moved frames, all before ``end``."""
        moves = rng.integers(0, self.frames + 1, size=len(indices))
        return tuple(min(index + int(move), end - 1) for index, move in zip(indices, moves))


@dataclass(frozen=True)
class Augmentation:
    """A training transform made of a crop and steps; see ``TrainTransform``. Draws in the order of its fields."""

    crop: ScaleJitter | RandomResizedCrop
    steps: tuple[Step, ...] = ()
    normalisation: Normalisation = NORMALISATION
    temporal: TemporalJitter | None = None

    @property
    def size(self) -> Size:
        """(h, w) of the result."""
        return self.crop.size

    def with_size(self, size: Size) -> Augmentation:
        """The same for another size of the result."""
        return replace(self, crop=self.crop.with_size(size))

    def retimed(self, indices: Indices, end: int, rng: np.random.Generator) -> Indices:
        """The frames that are read in the place of those that were chosen, all before ``end``."""
        return indices if self.temporal is None else self.temporal(indices, end, rng)

    def __call__(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """uint8 (T, H, W, 3) -> float32 (3, T, h, w)."""
        return self.normalisation(self.pictures(frames, rng))

    def pictures(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """Before they are normalised: uint8 (T, H, W, 3) -> uint8 (T, 3, h, w)."""
        pictures = self.crop.crop(frames, rng)
        for step in self.steps:
            pictures = step(pictures, rng)
        return pictures


def augmentation(texts: Sequence[str], crop: ScaleJitter, *, directional: bool = False) -> Augmentation:
    """The transform that a list of texts means.

    Args:
        texts: Entries such as ``flip:0.5``.
        crop: How frames are cropped where no entry does it; its size, filter and normalisation hold for all.
        directional: Directions are labels: ``flip`` is left out, so that one recipe serves all data.

    Raises:
        UnknownName: No such transform.
        InvalidValue: An entry that does not parse, numbers that it does not take, or two crops.
    """
    chosen: ScaleJitter | RandomResizedCrop | None = None
    temporal: TemporalJitter | None = None
    made: list[Step] = []
    for spec in map(TransformSpec.parse, texts):
        if spec.name in _CROPS:
            _need(chosen is None, "one crop at most", spec)
            chosen = _CROPS[spec.name](crop, spec)
        elif spec.name == "temporal-jitter":
            _need(temporal is None, "temporal-jitter once at most", spec)
            temporal = TemporalJitter(*_whole(spec, 1))
        else:
            step = _step(spec)
            made += [] if directional and isinstance(step, Flip) else [step]
    return Augmentation(chosen or crop, tuple(made), crop.normalisation, temporal)


def _step(spec: TransformSpec) -> Step:
    try:
        kind = steps.get(spec.name)
    except UnknownName:
        known = (*steps.names(), *_CROPS, "temporal-jitter")
        raise UnknownName(f"unknown training transform {spec.name!r}; {suggest(spec.name, known)}") from None
    names = tuple(inspect.signature(kind).parameters)
    if len(spec.numbers) > len(names):
        raise InvalidValue(f"transforms: {spec.name} takes {', '.join(names)}; got {spec}")
    try:
        return kind(*spec.numbers)
    except _NoTransform as error:
        raise _NoTransform(error.expected, spec) from None


def _whole(spec: TransformSpec, most: int) -> tuple[int, ...]:
    _need(len(spec.numbers) <= most and all(number.is_integer() for number in spec.numbers), "whole numbers", spec)
    return tuple(int(number) for number in spec.numbers)


def _scale_jitter(crop: ScaleJitter, spec: TransformSpec) -> ScaleJitter:
    _need(len(spec.numbers) in (0, 2), "scale-jitter:LOW-HIGH", spec)
    scale = (spec.numbers[0], spec.numbers[1]) if spec.numbers else crop.scale
    _need(1 <= scale[0] <= scale[1], "scale-jitter: scales of at least 1, the smaller one first", spec)
    return ScaleJitter(crop.size, scale, normalisation=crop.normalisation, resize=crop.resize)


def _random_resized_crop(crop: ScaleJitter, spec: TransformSpec) -> RandomResizedCrop:
    _need(len(spec.numbers) in (0, 2, 4), "random-resized-crop:LOW-HIGH,LOW-HIGH", spec)
    made = RandomResizedCrop(crop.size, normalisation=crop.normalisation)
    area, aspect = spec.numbers[:2] or made.area, spec.numbers[2:] or made.aspect
    _need(0 < area[0] <= area[1] <= 1, "random-resized-crop: areas from above 0 to 1, the smaller one first", spec)
    fine = 0 < aspect[0] <= aspect[1]
    _need(fine, "random-resized-crop: aspect ratios of more than 0, the smaller one first", spec)
    return replace(made, area=(area[0], area[1]), aspect=(aspect[0], aspect[1]))


_CROPS: dict[str, Callable[[ScaleJitter, TransformSpec], ScaleJitter | RandomResizedCrop]] = {
    "scale-jitter": _scale_jitter,
    "random-resized-crop": _random_resized_crop,
}


@steps.register("flip")
@dataclass(frozen=True)
class Flip:
    """Left to right."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        _need(0 <= self.probability <= 1, "flip: a probability of 0 to 1", self)

    def __call__(self, pictures: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        return pictures.flip(3) if rng.uniform() < self.probability else pictures


@steps.register("colour-jitter")
@dataclass(frozen=True)
class ColourJitter:
    """Factors of brightness, contrast and saturation from ``1 - x`` to ``1 + x``, and a turn of hue up to ``hue``."""

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    probability: float = 0.8

    def __post_init__(self) -> None:
        factors = (self.brightness, self.contrast, self.saturation)
        _need(all(0 <= factor <= 1 for factor in factors), "colour-jitter: factors of 0 to 1", self)
        _need(0 <= self.hue <= 0.5, "colour-jitter: a hue of 0 to 0.5", self)
        _need(0 <= self.probability <= 1, "colour-jitter: a probability of 0 to 1", self)

    def __call__(self, pictures: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        draws, order = rng.uniform(-1, 1, size=4), rng.permutation(4)
        if rng.uniform() >= self.probability:
            return pictures
        from hwbench.data import picture_changes as made

        changes: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
            lambda x: made.brightness(x, 1 + draws[0] * self.brightness),
            lambda x: made.contrast(x, 1 + draws[1] * self.contrast),
            lambda x: made.saturation(x, 1 + draws[2] * self.saturation),
            lambda x: made.hue(x, draws[3] * self.hue),
        )
        for place in order:
            pictures = changes[place](pictures)
        return pictures


@steps.register("random-erasing")
@dataclass(frozen=True)
class RandomErasing:
    """A box of the same place in all frames becomes the mean grey; ``area`` is its share of the picture."""

    probability: float = 0.25
    low_area: float = 0.02
    high_area: float = 0.33
    low_aspect: float = 0.3
    high_aspect: float = 3.3

    def __post_init__(self) -> None:
        _need(0 <= self.probability <= 1, "random-erasing: a probability of 0 to 1", self)
        fine = 0 < self.low_area <= self.high_area < 1
        _need(fine, "random-erasing: areas between 0 and 1, the smaller one first", self)
        fine = 0 < self.low_aspect <= self.high_aspect
        _need(fine, "random-erasing: aspect ratios of more than 0, the smaller one first", self)

    def __call__(self, pictures: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        if rng.uniform() >= self.probability:
            return pictures
        height, width = pictures.shape[2:]
        areas, aspects = (self.low_area, self.high_area), (self.low_aspect, self.high_aspect)
        box = random_box((height, width), areas, aspects, (height - 1, width - 1), rng)
        if box is None:
            return pictures
        erased = pictures.clone()
        erased[:, :, box.top : box.top + box.height, box.left : box.left + box.width] = GREY
        return erased


@steps.register("rand-augment")
@dataclass(frozen=True)
class RandAugment:
    """``operations`` changes out of fourteen, one after the other, each with a probability; magnitudes of 30."""

    operations: float = 2
    magnitude: float = 9
    probability: float = 1.0

    def __post_init__(self) -> None:
        _need(self.operations >= 0 and float(self.operations).is_integer(), "rand-augment: whole operations", self)
        _need(0 <= self.magnitude <= _MOST_MAGNITUDE, f"rand-augment: a magnitude of 0 to {_MOST_MAGNITUDE}", self)
        _need(0 <= self.probability <= 1, "rand-augment: a probability of 0 to 1", self)

    def __call__(self, pictures: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        from hwbench.data.picture_changes import OPERATIONS

        strength = self.magnitude / _MOST_MAGNITUDE
        for _ in range(int(self.operations)):
            operation, sign = OPERATIONS[int(rng.integers(len(OPERATIONS)))], 1 - 2 * int(rng.integers(2))
            if rng.uniform() < self.probability:
                pictures = operation(pictures, strength, sign)
        return pictures


@steps.register("aug-mix")
@dataclass(frozen=True)
class AugMix:
    """A mixture of ``chains`` chains of one to three changes, and of that with the pictures as they are."""

    severity: float = 3
    chains: float = 3
    alpha: float = 1.0

    def __post_init__(self) -> None:
        _need(0 <= self.severity <= _MOST_SEVERITY, f"aug-mix: a severity of 0 to {_MOST_SEVERITY}", self)
        _need(self.chains >= 1 and float(self.chains).is_integer(), "aug-mix: whole chains", self)
        _need(self.alpha > 0, "aug-mix: an alpha of more than 0", self)

    def __call__(self, pictures: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        from hwbench.data.picture_changes import OPERATIONS

        weights = rng.dirichlet([self.alpha] * int(self.chains))
        share = float(rng.beta(self.alpha, self.alpha))
        mixed = torch.zeros(pictures.shape)
        for weight in weights:
            chain = pictures
            for _ in range(int(rng.integers(1, 4))):
                operation, sign = OPERATIONS[int(rng.integers(len(OPERATIONS)))], 1 - 2 * int(rng.integers(2))
                chain = operation(chain, float(rng.uniform(0, self.severity / _MOST_SEVERITY)), sign)
            mixed += float(weight) * chain
        return torch.lerp(pictures.float(), mixed, share).round().clamp(0, 255).to(torch.uint8)


def _need(fine: bool, expected: str, got: object) -> None:
    if not fine:
        raise _NoTransform(expected, got)
