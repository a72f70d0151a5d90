"""X3D: a stem, stages of bottlenecks whose depthwise convolution carries the kernel, a head as wide as the last stage.

Source: X3D (Feichtenhofer 2020, arXiv 2004.04730), tables 1 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from hwbench.spaces.axes import (
    Axis,
    activation,
    activations,
    count,
    counts,
    depths,
    factors,
    kernel,
    kernels,
    one,
    ratios,
)
from hwbench.spaces.bottlenecks import check_inner, inner, stages_alike
from hwbench.spaces.family import Ends, Family, Member
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import BlockSpec, Kernel, TensorSpec, format_kernel
from hwbench.specs.bottlenecks import x3d_head, x3d_stage, x3d_stem
from hwbench.specs.kinds.x3d import STEM_KERNEL
from hwbench.specs.widths import squeezed
from hwbench.toml_fields import Fields

# Units of the hidden layer of the head; a choice of the last stage.
_HIDDEN = "hidden"


@dataclass(frozen=True)
class X3dStemChoice:
    """A spatial convolution with stride 2, then a depthwise one over time."""

    width: int
    kernel: Kernel
    act: str


@dataclass(frozen=True)
class Head:
    """A convolution to the inner width of the last stage, global pooling, a hidden layer, the classifier."""

    hidden: int
    act: str


@dataclass(frozen=True)
class X3dEnds(Ends):
    """Stem and head of X3D."""

    first: X3dStemChoice
    last: Head

    def stem(self) -> BlockSpec:
        return x3d_stem(self.first.width, self.first.kernel, self.first.act)

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        hidden = last.get(_HIDDEN, 0) or self.last.hidden
        return _head(x.c, inner(last), hidden, num_classes, self.last.act)

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.first, "head": self.last}


class X3d(Family):
    """X3D and its neighbourhood.

    ``depth``: number of blocks. ``width``: channels between blocks. ``expansion``: channels inside a block by those
    between. ``kernel``: depthwise. ``se``: ratio of squeeze-excite in every other block from the first on, 0 = none.
    ``act``: behind the depthwise convolution; the other activations are ReLU. ``stride``: spatial, of the first block.
    ``temporal_stride``: step over frames, of the first block. ``hidden``: of the last stage, the units of the hidden
    layer of the head, where ``[head]`` does not fix them.

    Where blocks choose ``se`` for themselves, each block has its own ratio, not every other one.
    """

    name = "x3d"
    axes: ClassVar[tuple[Axis, ...]] = (
        Axis("depth", depths),
        Axis("width", counts),
        Axis("expansion", factors),
        Axis("kernel", kernels),
        Axis("se", ratios),
        Axis("act", activations),
        Axis("temporal_stride", counts, 1),
        Axis(_HIDDEN, counts, 0),
    )
    constants: ClassVar[tuple[Axis, ...]] = (Axis("stride", counts),)
    block_axes: ClassVar[tuple[str, ...]] = ("expansion", "kernel", "se")

    def ends(self, fields: Fields) -> X3dEnds:
        stem, head = fields.table("stem"), fields.table("head")
        ends = X3dEnds(
            X3dStemChoice(count(stem, "width"), kernel(stem, "kernel"), activation(stem, "act")),
            Head(count(head, "hidden"), activation(head, "act")),
        )
        for name, expected in (("kernel", format_kernel(STEM_KERNEL)), ("act", "relu")):
            if stem.text(name) != expected:
                raise stem.error(name, f"expected {expected}: stems of X3D have no other", stem.text(name))
        stem.done()
        head.done()
        return ends

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        return _stage(choice, x.c)

    def block(self, choice: StageChoice, number: int, by_block: tuple[str, ...], x: TensorSpec) -> BlockSpec:
        block = _stage(choice, x.c)[number]
        if "se" in by_block and number % 2:  # those are without where squeeze-excite is the stage's to choose
            return replace(block, se_channels=squeezed(block.mid_channels, choice["se"]))
        return block

    def check(self, stage: Stage) -> tuple[str, str] | None:
        return check_inner(stage)

    def check_last(self, stage: Stage, *, last: bool) -> tuple[str, str] | None:
        if not last and _HIDDEN in stage.offered:
            return _HIDDEN, "expected in the last stage alone: it is a choice of the head"
        return None

    def card(self, fields: Fields) -> Member:
        """Depths and widths by stage, everything else alike in all stages (table 3)."""
        alike = {
            "expansion": fields.number("expansion"),
            "kernel": kernel(fields, "kernel"),
            "se": one(ratios)(fields, "se"),
            "act": activation(fields, "act"),
            "stride": 2,
        }
        ends = X3dEnds(
            X3dStemChoice(count(fields, "stem_width"), kernel(fields, "stem_kernel"), "relu"),
            Head(count(fields, "hidden"), "relu"),
        )
        return Member(ends, stages_alike(self, fields, alike, ("depth", "width")))


@lru_cache(maxsize=1 << 14)
def _stage(choice: StageChoice, in_channels: int) -> tuple[BlockSpec, ...]:
    names = ("depth", "width", "expansion", "kernel", "se", "act", "stride")
    values = {name: choice[name] for name in names}
    return x3d_stage(in_channels, **values, temporal_stride=choice.get("temporal_stride", 1))


_head = lru_cache(maxsize=1 << 12)(x3d_head)
