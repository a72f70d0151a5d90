"""ResNets over time and space: C2D, I3D, Slow and CSN. A stem, stages of bottlenecks, a linear head.

They differ in the kernels of their bottlenecks, and in the groups of the second convolution:

    C2D    1x1x1+1x3x3 throughout, frames pooled in pairs behind the first stage
    I3D    as C2D, with 3x1x1 as the first kernel of every block or of every other one, and frames in the stem
    Slow   as C2D without a pool over frames, with 3x1x1 as the first kernel of the last two stages
    CSN    1x1x1+3x3x3, the second depthwise (``group_width`` 1), fewer frames from stage to stage

Sources: Non-local networks (arXiv 1711.07971), section 4 and table 1; SlowFast (arXiv 1812.03982), table 1; CSN (arXiv
1904.02811), section 3; all as PyTorchVideo lays them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from hwbench.spaces.axes import Axis, activation, activations, count, counts, depths, factors, kernels, one
from hwbench.spaces.bottlenecks import check_inner, check_pairs, inner, stages_alike
from hwbench.spaces.family import Ends, Family, Member
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import GLOBAL, BlockSpec, Kernel, TensorSpec
from hwbench.specs.bottlenecks import resnet_stage
from hwbench.specs.kinds.r2plus1d import PoolHeadKind, ResnetStemKind
from hwbench.specs.kinds.resnet import FramePoolKind
from hwbench.specs.tensor import CLIP_CHANNELS
from hwbench.toml_fields import Fields

_KERNEL: Kernel = ((3, 1, 1), (1, 3, 3))


def single(fields: Fields, name: str) -> tuple[Kernel, ...]:
    """Kernels of one convolution each, such as ``1x7x7``."""
    values = kernels(fields, name)
    if any(len(value) != 1 for value in values):
        raise fields.error(name, "expected a kernel of one convolution, such as 1x7x7", list(fields.texts(name)))
    return values


def group_widths(fields: Fields, name: str) -> tuple[int, ...]:
    """Whole numbers of channels, 0 for one group."""
    return fields.integers(name)


@dataclass(frozen=True)
class PooledStemChoice:
    """One convolution with a spatial stride, and a maximum over 3 x 3 pixels with another; ``pool`` 1: no maximum."""

    width: int
    kernel: Kernel
    stride: int
    pool: int
    act: str

    @classmethod
    def read(cls, fields: Fields, prefix: str = "", act: str = "") -> PooledStemChoice:
        """From a table, or from the keys of a card, which begin with ``prefix`` and share an activation."""
        return cls(
            count(fields, f"{prefix}width"),
            one(single)(fields, f"{prefix}kernel"),
            count(fields, f"{prefix}stride"),
            count(fields, f"{prefix}pool") if f"{prefix}pool" in fields else 1,
            act or activation(fields, "act"),
        )

    def block(self) -> BlockSpec:
        """The block that it stands for."""
        return BlockSpec.of(
            ResnetStemKind.name, in_channels=CLIP_CHANNELS, out_channels=self.width, kernel=self.kernel,
            stride=self.stride, pool=self.pool, activation=self.act,
        )  # fmt: skip


@dataclass(frozen=True)
class ResnetEnds(Ends):
    """Stem and head of a ResNet; the head has nothing to choose."""

    first: PooledStemChoice

    def stem(self) -> BlockSpec:
        return self.first.block()

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        return BlockSpec(PoolHeadKind.name, x.c, num_classes, kernel=GLOBAL, activation="identity")

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.first}


class Resnet(Family):
    """C2D, I3D, Slow, CSN and their neighbourhoods.

    ``depth``: number of blocks. ``width``: channels between blocks. ``expansion``: channels inside a block by those
    between, 0.25 in ResNets. ``kernel``: of the first convolution, over time or pointwise, and of the second; further
    pairs are for the blocks that follow, over and over. ``group_width``: channels of each group of the second
    convolution, 1 = depthwise, 0 = one group. ``act``: every activation of the stage. ``temporal_stride``: step over
    frames in the first block. ``frame_pool``: so many frames become one behind the stage, the maximum of them.
    ``stride``: spatial, of the first block.
    """

    name = "resnet"
    axes: ClassVar[tuple[Axis, ...]] = (
        Axis("depth", depths),
        Axis("width", counts),
        Axis("expansion", factors, 0.25),
        Axis("kernel", kernels, _KERNEL),
        Axis("group_width", group_widths, 0),
        Axis("act", activations, "relu"),
        Axis("temporal_stride", counts, 1),
        Axis("frame_pool", counts, 1),
    )
    constants: ClassVar[tuple[Axis, ...]] = (Axis("stride", counts, 2),)

    def ends(self, fields: Fields) -> ResnetEnds:
        stem = fields.table("stem")
        ends = ResnetEnds(PooledStemChoice.read(stem))
        stem.done()
        return ends

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        return _stage(choice, x.c)

    def check(self, stage: Stage) -> tuple[str, str] | None:
        return check_pairs(stage) or check_inner(stage) or check_groups(stage)

    def card(self, fields: Fields) -> Member:
        """Depths, widths, kernels, strides and pools over frames by stage, everything else alike in all stages."""
        alike = {
            "expansion": fields.number("expansion"),
            "group_width": fields.integer("group_width", 0),
            "act": activation(fields, "act"),
        }
        ends = ResnetEnds(PooledStemChoice.read(fields, "stem_", alike["act"]))
        by_stage = ("depth", "width", "stride", "temporal_stride", "frame_pool")
        return Member(ends, stages_alike(self, fields, alike, by_stage, ("kernel",)))


def check_groups(stage: Stage) -> tuple[str, str] | None:
    """As ``Family.check``: groups that do not divide the channels inside a block."""
    if any(choice["group_width"] and inner(choice) % choice["group_width"] for choice in stage.choices):
        return "group_width", "expected numbers that divide the channels inside every block"
    return None


@lru_cache(maxsize=1 << 14)
def _stage(choice: StageChoice, in_channels: int) -> tuple[BlockSpec, ...]:
    names = ("depth", "width", "expansion", "kernel", "group_width", "act", "stride", "temporal_stride")
    blocks = resnet_stage(in_channels, **{name: choice[name] for name in names})
    width, step = choice["width"], choice["frame_pool"]
    if step == 1:
        return blocks
    values = {"in_channels": width, "out_channels": width, "temporal_stride": step, "activation": "identity"}
    return (*blocks, BlockSpec.of(FramePoolKind.name, **values))
