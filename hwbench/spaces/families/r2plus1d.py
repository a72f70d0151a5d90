"""R(2+1)D: a stem, stages of bottlenecks whose convolution is one over time and then one over space, a linear head.

Source: Tran et al. 2018 (arXiv 1711.11248), table 1 and section 3.5; the bottlenecks are those of ResNet-50 (arXiv
1512.03385, table 1) as PyTorchVideo lays them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
)
from hwbench.spaces.bottlenecks import check_inner, stages_alike
from hwbench.spaces.family import Ends, Family, Member
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import GLOBAL, BlockSpec, Kernel, TensorSpec
from hwbench.specs.bottlenecks import bottlenecks
from hwbench.specs.tensor import CLIP_CHANNELS
from hwbench.toml_fields import Fields

_KERNEL: Kernel = ((3, 1, 1), (1, 3, 3))


@dataclass(frozen=True)
class ResnetStemChoice:
    """One convolution with a spatial stride."""

    width: int
    kernel: Kernel
    stride: int
    act: str


@dataclass(frozen=True)
class R2plus1dEnds(Ends):
    """Stem and head of R(2+1)D; the head has nothing to choose."""

    first: ResnetStemChoice

    def stem(self) -> BlockSpec:
        first = self.first
        return BlockSpec(
            kind="resnet-stem",
            in_channels=CLIP_CHANNELS,
            out_channels=first.width,
            kernel=first.kernel,
            stride=first.stride,
            activation=first.act,
        )

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        return BlockSpec("pool-head", x.c, num_classes, kernel=GLOBAL, activation="identity")

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.first}


class R2plus1d(Family):
    """R(2+1)D and its neighbourhood.

    ``depth``: number of blocks. ``width``: channels between blocks. ``expansion``: channels inside a block by those
    between, 0.25 in ResNets. ``kernel``: over time, then over space. ``act``: every activation of the stage.
    ``temporal_stride``: step over frames in the first block. ``stride``: spatial, of the first block.
    """

    name = "r2plus1d"
    axes: ClassVar[tuple[Axis, ...]] = (
        Axis("depth", depths),
        Axis("width", counts),
        Axis("expansion", factors, 0.25),
        Axis("kernel", kernels, _KERNEL),
        Axis("act", activations, "relu"),
        Axis("temporal_stride", counts, 1),
    )
    constants: ClassVar[tuple[Axis, ...]] = (Axis("stride", counts, 2),)

    def ends(self, fields: Fields) -> R2plus1dEnds:
        stem = fields.table("stem")
        ends = R2plus1dEnds(
            ResnetStemChoice(
                count(stem, "width"), kernel(stem, "kernel"), count(stem, "stride"), activation(stem, "act")
            )
        )
        stem.done()
        return ends

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        return _stage(choice, x.c)

    def check(self, stage: Stage) -> tuple[str, str] | None:
        if any(len(one) != 2 or one[0][1:] != (1, 1) or one[1][0] != 1 for one in stage["kernel"]):
            return "kernel", "expected a kernel over time and one over space, as 3x1x1+1x3x3"
        return check_inner(stage)

    def card(self, fields: Fields) -> Member:
        """Depths, widths and strides by stage, everything else alike in all stages."""
        alike = {
            "expansion": fields.number("expansion"),
            "kernel": kernel(fields, "kernel"),
            "act": activation(fields, "act"),
        }
        stem = ResnetStemChoice(
            count(fields, "stem_width"), kernel(fields, "stem_kernel"), count(fields, "stem_stride"), alike["act"]
        )
        by_stage = ("depth", "width", "stride", "temporal_stride")
        return Member(R2plus1dEnds(stem), stages_alike(self, fields, alike, by_stage))


@lru_cache(maxsize=1 << 14)
def _stage(choice: StageChoice, in_channels: int) -> tuple[BlockSpec, ...]:
    opening, following = bottlenecks(
        "r2plus1d",
        in_channels,
        width=choice["width"],
        expansion=choice["expansion"],
        first={"stride": choice["stride"], "temporal_stride": choice["temporal_stride"]},
        kernel=choice["kernel"],
        activation=choice["act"],
    )
    return (opening, *[following] * (choice["depth"] - 1))
