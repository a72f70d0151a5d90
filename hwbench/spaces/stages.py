"""The blocks of an X3D-like network: which blocks one choice per stage stands for. The only place that lays stages out.

Source: X3D (arXiv 2004.04730, tables 1-3): a stem, four stages of bottlenecks whose depthwise convolution carries the
kernel, squeeze-excite in every other block of a stage, and a head as wide inside as the last stage is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from hwbench.specs import GLOBAL, BlockSpec, Kernel, format_kernel

CLIP_CHANNELS = 3
# The order in which the choices of a stage are written and sampled.
# The deepest X3D (XL) has 55 blocks; what has thousands is a slip of the keyboard, and takes minutes to list.
MAX_BLOCKS = 1000
# Of one stage; the largest space here has 810.
MAX_CHOICES = 100_000

STAGE_FIELDS = ("depth", "width", "expansion", "kernel", "se", "act")


def round_width(width: float, multiplier: float, minimum: int = 8, divisor: int = 8) -> int:
    """``width * multiplier`` as a multiple of ``divisor``, never more than 10 % below it (PySlowFast's rule)."""
    scaled = width * multiplier
    rounded = max(minimum, int(scaled + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * scaled else rounded


def write(value: float | str | Kernel) -> str:
    """One choice as text: ``3``, ``2.25``, ``3x3x3``, ``swish``."""
    if isinstance(value, tuple):
        return format_kernel(value)
    return value if isinstance(value, str) else format(value, "g")


@dataclass(frozen=True, order=True)
class StageChoice:
    """What is chosen for one stage.

    ``se`` is the squeeze-excite ratio (0 = none), taken by every other block from the first on; ``act`` is the
    activation after the depthwise convolution. The other activations of a bottleneck are ReLU.
    """

    depth: int
    width: int
    expansion: float
    kernel: Kernel
    se: float
    act: str

    @property
    def mid_channels(self) -> int:
        """Channels inside a bottleneck; cut off, not rounded, as X3D does: 2.25 x 24 = 54."""
        return int(self.expansion * self.width)

    @property
    def texts(self) -> tuple[str, ...]:
        """The choices as text, in the order of ``STAGE_FIELDS``."""
        return tuple(write(getattr(self, name)) for name in STAGE_FIELDS)

    def block(self, index: int, in_channels: int, stride: int) -> BlockSpec:
        """Block number ``index`` (from 0) of the stage; the first one takes the stage's input and its stride."""
        first = index == 0
        return BlockSpec(
            kind="x3d",
            in_channels=in_channels if first else self.width,
            mid_channels=self.mid_channels,
            out_channels=self.width,
            kernel=self.kernel,
            stride=stride if first else 1,
            se_channels=round_width(self.mid_channels, self.se) if self.se and index % 2 == 0 else 0,
            activation=self.act,
        )

    def blocks(self, in_channels: int, stride: int) -> Iterator[BlockSpec]:
        """All blocks of the stage, in order."""
        return (self.block(index, in_channels, stride) for index in range(self.depth))


@dataclass(frozen=True)
class Stage:
    """What may be chosen for one stage; ``stride`` is spatial and taken by its first block."""

    depth: tuple[int, ...]
    width: tuple[int, ...]
    expansion: tuple[float, ...]
    kernel: tuple[Kernel, ...]
    se: tuple[float, ...]
    act: tuple[str, ...]
    stride: int

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of one field as text."""
        return tuple(write(value) for value in getattr(self, name))

    def choices(self) -> Iterator[StageChoice]:
        """All that may be chosen, in the order of the file."""
        lists = [getattr(self, name) for name in STAGE_FIELDS]
        return (StageChoice(*values) for values in itertools.product(*lists))

    def choose(self, texts: dict[str, str]) -> StageChoice:
        """The choice with these texts; a KeyError or ValueError where one is not offered."""
        values = [getattr(self, name)[self.texts(name).index(texts[name])] for name in STAGE_FIELDS]
        return StageChoice(*values)


@dataclass(frozen=True)
class Stem:
    """A spatial convolution with stride 2, then a depthwise one over time."""

    width: int
    kernel: Kernel
    act: str

    def block(self) -> BlockSpec:
        """The stem as a block on a clip."""
        return BlockSpec(
            kind="stem",
            in_channels=CLIP_CHANNELS,
            out_channels=self.width,
            kernel=self.kernel,
            stride=2,
            activation=self.act,
        )


@dataclass(frozen=True)
class Head:
    """A convolution to the inner width of the last stage, global pooling, a hidden layer, the classifier."""

    hidden: int
    act: str

    def block(self, last: StageChoice, num_classes: int) -> BlockSpec:
        """The head as a block behind a last stage."""
        return BlockSpec(
            kind="head",
            in_channels=last.width,
            mid_channels=last.mid_channels,
            hidden_channels=self.hidden,
            out_channels=num_classes,
            kernel=GLOBAL,
            activation=self.act,
        )
