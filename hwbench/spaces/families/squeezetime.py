"""SqueezeTime: all frames of a clip as channels of one picture, stages of Channel-Time Learning bottlenecks, a linear
head.

Source: Zhai et al. 2024 (arXiv 2405.08344), section 3; depths and widths of its ResNet-50 are those of the authors'
code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from hwbench.spaces.axes import Axis, activation, activations, count, counts, depths, factors, kernel, kernels
from hwbench.spaces.bottlenecks import check_inner, stages_alike
from hwbench.spaces.families.resnet import PooledStemChoice
from hwbench.spaces.family import Ends, Family, Member
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import GLOBAL, BlockSpec, Kernel, TensorSpec, format_kernel
from hwbench.specs.bottlenecks import bottlenecks
from hwbench.specs.kinds.r2plus1d import PoolHeadKind
from hwbench.specs.kinds.squeezetime import INTERACTION, POSITION, SQUEEZED_FRAMES, ChannelTimeKind, SqueezeStemKind
from hwbench.specs.tensor import CLIP_CHANNELS
from hwbench.toml_fields import Fields

_KERNEL: Kernel = ((1, 3, 3), (1, 7, 7))


@dataclass(frozen=True)
class SqueezeTimeEnds(Ends):
    """Stem and head of SqueezeTime; the head has nothing to choose. ``frames``: of the clip, all of which the stem
    squeezes into one picture; ``on`` sets it.
    """

    first: PooledStemChoice
    frames: int = 1

    def on(self, clip: TensorSpec) -> SqueezeTimeEnds:
        return replace(self, frames=clip.t)

    def stem(self) -> BlockSpec:
        first = self.first
        values = {SQUEEZED_FRAMES.name: self.frames, "stride": first.stride, "pool": first.pool}
        return BlockSpec.of(
            SqueezeStemKind.name, in_channels=CLIP_CHANNELS, out_channels=first.width, kernel=first.kernel,
            activation=first.act, **values,
        )  # fmt: skip

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        return BlockSpec(PoolHeadKind.name, x.c, num_classes, kernel=GLOBAL, activation="identity")

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.first}


class SqueezeTime(Family):
    """SqueezeTime and its neighbourhood.

    ``depth``: number of blocks. ``width``: channels between blocks. ``expansion``: channels inside a block by those
    between, 0.25 in SqueezeTime. ``kernel``: of the branch between objects, and the large one inside its gate.
    ``interaction``: channels inside that gate. ``act``: every activation of the stage outside of gates. ``stride``:
    spatial, of the first block. ``position``: side of the map of positions, best the size of the stage's pictures;
    other sizes are interpolated.

    More frames cost a wider first convolution and nothing behind it.
    """

    name = "squeezetime"
    axes: ClassVar[tuple[Axis, ...]] = (
        Axis("depth", depths),
        Axis("width", counts),
        Axis("expansion", factors, 0.25),
        Axis("kernel", kernels, _KERNEL),
        Axis("interaction", counts, INTERACTION.default),
        Axis("act", activations, "relu"),
    )
    constants: ClassVar[tuple[Axis, ...]] = (
        Axis("stride", counts, 2),
        Axis("position", counts, POSITION.default),
    )

    def ends(self, fields: Fields) -> SqueezeTimeEnds:
        stem = fields.table("stem")
        ends = SqueezeTimeEnds(_over_space(stem, PooledStemChoice.read(stem), "kernel"))
        stem.done()
        return ends

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        return _stage(choice, x.c)

    def check(self, stage: Stage) -> tuple[str, str] | None:
        if any(len(one) != 2 or {extents[0] for extents in one} != {1} for one in stage["kernel"]):
            return "kernel", "expected two kernels over space, as 1x3x3+1x7x7: frames are channels"
        return check_inner(stage)

    def card(self, fields: Fields) -> Member:
        """Depths, widths, strides and maps of positions by stage, everything else alike in all stages."""
        alike = {
            "expansion": fields.number("expansion"),
            "kernel": kernel(fields, "kernel"),
            "interaction": count(fields, "interaction"),
            "act": activation(fields, "act"),
        }
        first = _over_space(fields, PooledStemChoice.read(fields, "stem_", alike["act"]), "stem_kernel")
        by_stage = ("depth", "width", "stride", "position")
        return Member(SqueezeTimeEnds(first), stages_alike(self, fields, alike, by_stage))


def _over_space(fields: Fields, first: PooledStemChoice, name: str) -> PooledStemChoice:
    """The stem, whose kernel cannot extend over frames.

    Raises:
        InvalidFile: It does.
    """
    if first.kernel[0][0] != 1:
        given = format_kernel(first.kernel)
        raise fields.error(name, "expected a kernel over space, such as 1x5x5: frames are channels", given)
    return first


@lru_cache(maxsize=1 << 14)
def _stage(choice: StageChoice, in_channels: int) -> tuple[BlockSpec, ...]:
    opening, following = bottlenecks(
        ChannelTimeKind.name,
        in_channels,
        width=choice["width"],
        expansion=choice["expansion"],
        first={"stride": choice["stride"]},
        kernel=choice["kernel"],
        activation=choice["act"],
        **{INTERACTION.name: choice["interaction"], POSITION.name: choice["position"]},
    )
    return (opening, *[following] * (choice["depth"] - 1))
