"""E3D: a stem over space, stages of X3D's bottlenecks without squeeze-excite, a convolution and a head behind them.

Source: Wang et al. 2023 (ICLR, arXiv 2303.02693); what is built is the published code and its structures
(github.com/alibaba/lightweight-neural-architecture-search, ``configs/action_recognition``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from hwbench.spaces.axes import Axis, count, counts, depths, factors, kernels
from hwbench.spaces.bottlenecks import stages_alike
from hwbench.spaces.family import Ends, Family, Member
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import BlockSpec, TensorSpec
from hwbench.specs.bottlenecks import e3d_head, e3d_stage, e3d_stem
from hwbench.toml_fields import Fields

# Of the first block of a stage.
_STRIDES = frozenset((1, 2))
_STRIDE_EXPECTED = "expected 1 or 2: a shortcut of E3D has no weights to make up for more"


@dataclass(frozen=True)
class E3dStemChoice:
    """A spatial convolution with stride 2."""

    width: int


@dataclass(frozen=True)
class E3dHeadChoice:
    """A convolution to ``width`` channels, global pooling, a hidden layer, the classifier."""

    width: int
    hidden: int


@dataclass(frozen=True)
class E3dEnds(Ends):
    """Stem and head of E3D."""

    first: E3dStemChoice
    last: E3dHeadChoice

    def stem(self) -> BlockSpec:
        return e3d_stem(self.first.width)

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        return _head(x.c, self.last.width, self.last.hidden, num_classes)

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.first, "head": self.last}


class E3d(Family):
    """E3D and its neighbourhood.

    ``depth``: number of blocks. ``width``: channels between blocks. ``expansion``: channels inside a block by those
    between; their product is taken to the nearest multiple of 8. ``kernel``: depthwise; E3D was searched for among
    1x3x3, 1x5x5 and 3x3x3. ``stride``: spatial, of the first block, 1 or 2. All activations are ReLU but that of the
    hidden layer of the head, which is swish.
    """

    name = "e3d"
    axes: ClassVar[tuple[Axis, ...]] = (
        Axis("depth", depths),
        Axis("width", counts),
        Axis("expansion", factors),
        Axis("kernel", kernels),
    )
    constants: ClassVar[tuple[Axis, ...]] = (Axis("stride", counts),)

    def ends(self, fields: Fields) -> E3dEnds:
        stem, head = fields.table("stem"), fields.table("head")
        ends = E3dEnds(E3dStemChoice(count(stem, "width")), E3dHeadChoice(count(head, "width"), count(head, "hidden")))
        stem.done()
        head.done()
        return ends

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        return _stage(choice, x.c)

    def check(self, stage: Stage) -> tuple[str, str] | None:
        return None if stage.choices[0]["stride"] in _STRIDES else ("stride", _STRIDE_EXPECTED)

    def card(self, fields: Fields) -> Member:
        """Depths, widths, expansions, kernels and strides by stage."""
        ends = E3dEnds(
            E3dStemChoice(count(fields, "stem_width")),
            E3dHeadChoice(count(fields, "head_width"), count(fields, "hidden")),
        )
        by_stage = ("depth", "width", "stride")
        stages = stages_alike(self, fields, {}, by_stage, kernels=("kernel",), factors=("expansion",))
        strides = [stage["stride"] for stage in stages]
        if not _STRIDES.issuperset(strides):
            raise fields.error("strides", _STRIDE_EXPECTED, strides)
        return Member(ends, stages)


@lru_cache(maxsize=1 << 14)
def _stage(choice: StageChoice, in_channels: int) -> tuple[BlockSpec, ...]:
    return e3d_stage(
        in_channels, **{name: choice[name] for name in ("depth", "width", "expansion", "kernel", "stride")}
    )


_head = lru_cache(maxsize=1 << 12)(e3d_head)
