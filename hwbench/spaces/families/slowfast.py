"""SlowFast: two ResNets on one clip, a slow one on every few frames and a thin fast one on all, joined laterally.

Source: Feichtenhofer et al. 2019 (arXiv 1812.03982), section 3 and table 1, as PyTorchVideo lays it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from hwbench.spaces.axes import Axis, activation, activations, count, counts, depths, factors, kernels, one
from hwbench.spaces.bottlenecks import check_pairs, stages_alike
from hwbench.spaces.families.resnet import PooledStemChoice, single
from hwbench.spaces.family import Ends, Family, Member
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import GLOBAL, BlockSpec, Kernel, TensorSpec
from hwbench.specs.bottlenecks import resnet_stage
from hwbench.specs.kinds.pathways import PathwayFuseKind, PathwayHeadKind, PathwaySplitKind
from hwbench.specs.tensor import CLIP_CHANNELS
from hwbench.specs.widths import inner_width
from hwbench.toml_fields import Fields

SLOW, FAST = 1, 2
# Section 3.3 and table 1: lateral connections are 5 x 1 x 1 and twice as wide as the fast pathway, which has an eighth
# of the slow one's channels.
_LATERAL_KERNEL: Kernel = ((5, 1, 1),)
_LATERAL, _BETA = 2, 0.125


def laterals(fields: Fields, name: str) -> tuple[int, ...]:
    """Channels of a lateral connection by those of the fast pathway, whole numbers; 0: there is none."""
    return fields.integers(name)


def over_time(fields: Fields, name: str) -> tuple[Kernel, ...]:
    """Kernels over time alone, such as ``5x1x1``."""
    values = kernels(fields, name)
    if any(len(one) != 1 or one[0][1:] != (1, 1) for one in values):
        raise fields.error(name, "expected a kernel over time, such as 5x1x1", list(fields.texts(name)))
    return values


@dataclass(frozen=True)
class SlowFastStem:
    """The frames of each pathway, a convolution and a maximum on each, and a lateral connection.

    ``alpha``: frames of the fast pathway for each of the slow one. ``beta``: channels of the fast one by those of the
    slow one. ``lateral``: channels of the lateral connection by those of the fast pathway.
    """

    slow: PooledStemChoice
    fast_kernel: Kernel
    alpha: int
    beta: float
    lateral: int
    lateral_kernel: Kernel

    @classmethod
    def read(cls, fields: Fields, prefix: str = "", act: str = "") -> SlowFastStem:
        """From the table of a file, or from the keys of a card, which begin with ``prefix`` and share an activation."""
        stem = cls(
            PooledStemChoice.read(fields, prefix, act),
            one(single)(fields, f"{prefix}fast_kernel"),
            count(fields, "alpha"),
            fields.number("beta", _BETA),
            fields.integer("lateral", _LATERAL),
            one(over_time)(fields, "lateral_kernel") if "lateral_kernel" in fields else _LATERAL_KERNEL,
        )
        if inner_width(stem.slow.width, stem.beta) < 1:
            raise fields.error("beta", "expected at least one channel in the fast pathway", stem.beta)
        return stem

    def blocks(self) -> tuple[BlockSpec, ...]:
        """What takes a clip and gives both pathways."""
        split = BlockSpec.of(
            PathwaySplitKind.name, in_channels=CLIP_CHANNELS, out_channels=CLIP_CHANNELS, alpha=self.alpha,
            activation="identity",
        )  # fmt: skip
        slow, width = self.slow.block(), inner_width(self.slow.width, self.beta)
        fast = replace(slow, out_channels=width, kernel=self.fast_kernel)
        stems = (replace(slow, pathway=SLOW), replace(fast, pathway=FAST))
        fuse = _fuse(self.slow.width, width, self.alpha, self.lateral, self.lateral_kernel, self.slow.act)
        return (split, *stems, *fuse)


@dataclass(frozen=True)
class SlowFastEnds(Ends):
    """Both stems, and a head on both pathways, which has nothing to choose."""

    first: SlowFastStem

    def stem(self) -> BlockSpec:
        return self.before()[0]

    def before(self) -> tuple[BlockSpec, ...]:
        return self.first.blocks()

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        slow, fast = x.pathways
        return BlockSpec.of(
            PathwayHeadKind.name, in_channels=slow.c, out_channels=num_classes, kernel=GLOBAL, fast_channels=fast.c,
            activation="identity",
        )  # fmt: skip

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.first}


class SlowFast(Family):
    """SlowFast and its neighbourhood; both pathways have as many blocks, strides and activations.

    ``depth``: number of blocks. ``width``: channels between blocks of the slow pathway. ``beta``: those of the fast
    one by these. ``expansion``: channels inside a block by those between. ``kernel``, ``fast_kernel``: of the first
    convolution and of the second, in the slow and in the fast pathway; further pairs are for the blocks that follow.
    ``act``: every activation of the stage. ``stride``: spatial, of the first block. ``lateral``: channels of the
    connection behind the stage by those of the fast pathway; 0: none. ``lateral_kernel``: its kernel over time.
    """

    name = "slowfast"
    axes: ClassVar[tuple[Axis, ...]] = (
        Axis("depth", depths),
        Axis("width", counts),
        Axis("beta", factors, _BETA),
        Axis("expansion", factors, 0.25),
        Axis("kernel", kernels, ((1, 1, 1), (1, 3, 3))),
        Axis("fast_kernel", kernels, ((3, 1, 1), (1, 3, 3))),
        Axis("act", activations, "relu"),
    )
    constants: ClassVar[tuple[Axis, ...]] = (
        Axis("stride", counts, 2),
        Axis("lateral", laterals, _LATERAL),
        Axis("lateral_kernel", over_time, _LATERAL_KERNEL),
    )

    def ends(self, fields: Fields) -> SlowFastEnds:
        stem = fields.table("stem")
        ends = SlowFastEnds(SlowFastStem.read(stem))
        stem.done()
        return ends

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        slow, fast = x.pathways
        # The fewest frames of the fast pathway for each slow one that make as many; ``alpha`` where it divides them.
        return _stage(choice, slow.c, fast.c, -(-fast.t // slow.t))

    def check(self, stage: Stage) -> tuple[str, str] | None:
        if any(inner_width(_fast_width(choice), choice["expansion"]) < 1 for choice in stage.choices):
            return "beta", "expected at least one channel inside a block of the fast pathway"
        return check_pairs(stage) or check_pairs(stage, "fast_kernel")

    def card(self, fields: Fields) -> Member:
        """Depths, widths, strides and kernels by stage; behind the last stage there is no lateral connection."""
        alike = {"expansion": fields.number("expansion"), "act": activation(fields, "act")}
        stem = SlowFastStem.read(fields, "stem_", alike["act"])
        alike |= {"beta": stem.beta, "lateral": stem.lateral, "lateral_kernel": stem.lateral_kernel}
        *inner, last = stages_alike(
            self, fields, alike, ("depth", "width", "stride"), ("kernel", "fast_kernel")
        )  # fmt: skip
        return Member(SlowFastEnds(stem), (*inner, _without_lateral(last)))


def _without_lateral(choice: StageChoice) -> StageChoice:
    constants = {**dict(choice.constants), "lateral": 0}
    return replace(choice, constants=tuple(constants.items()))


def _fast_width(choice: StageChoice) -> int:
    return inner_width(choice["width"], choice["beta"])


@lru_cache(maxsize=1 << 14)
def _stage(choice: StageChoice, slow: int, fast: int, alpha: int) -> tuple[BlockSpec, ...]:
    width, fast_width = choice["width"], _fast_width(choice)
    alike = {name: choice[name] for name in ("depth", "expansion", "act", "stride")}
    alike |= {"group_width": 0, "temporal_stride": 1}
    on_slow = resnet_stage(slow, width=width, kernel=choice["kernel"], **alike)
    on_fast = resnet_stage(fast, width=fast_width, kernel=choice["fast_kernel"], **alike)
    blocks = [replace(block, pathway=SLOW) for block in on_slow]
    blocks += [replace(block, pathway=FAST) for block in on_fast]
    fuse = _fuse(width, fast_width, alpha, choice["lateral"], choice["lateral_kernel"], choice["act"])
    return (*blocks, *fuse)


def _fuse(slow: int, fast: int, alpha: int, lateral: int, over_time: Kernel, act: str) -> tuple[BlockSpec, ...]:
    """The lateral connection from so many fast channels to so many slow ones; none where it has no channels."""
    if not lateral:
        return ()
    values = {"in_channels": slow, "out_channels": slow + lateral * fast, "fast_channels": fast, "alpha": alpha}
    return (BlockSpec.of(PathwayFuseKind.name, kernel=over_time, activation=act, **values),)
