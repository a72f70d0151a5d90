"""Random small spaces of three families, arbitrary costs of their blocks, and what brute force says of them.

In some spaces blocks choose for themselves.
"""

import functools
import hashlib
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from hwbench.spaces.axes import Axis, counts
from hwbench.spaces.families import X3d, r2plus1d
from hwbench.spaces.families.r2plus1d import R2plus1dEnds
from hwbench.spaces.families.x3d import Head, X3dEnds, X3dStemChoice
from hwbench.spaces.family import Ends, Family
from hwbench.spaces.space import StagedSpace
from hwbench.spaces.stages import Stage
from hwbench.specs import Architecture, BlockSpec, TensorSpec

KERNELS = (((3, 3, 3),), ((1, 3, 3),), ((1, 3, 3), (3, 1, 1)))


def some(values, limit=2):
    return st.lists(st.sampled_from(values), min_size=1, max_size=limit, unique=True).map(tuple)


stages = st.builds(
    Stage.of,
    st.fixed_dictionaries(
        {
            "depth": some((1, 2, 3, 5)),
            "width": some((8, 16, 24)),
            "expansion": some((1.0, 2.25)),
            "kernel": some(KERNELS),
            "se": some((0.0, 0.25)),
            "act": some(("relu", "swish"), 1),
        }
    ),
    stride=st.sampled_from((1, 2)),
)


fine_stages = st.builds(
    Stage.of,
    st.fixed_dictionaries(
        {
            "depth": some((1, 2, 3)),
            "width": some((8, 16)),
            "expansion": some((1.0, 2.25)),
            "kernel": some(KERNELS),
            "se": some((0.0, 0.25)),
            "act": some(("relu", "swish"), 1),
            "temporal_stride": some((1, 2)),
        }
    ),
    by_block=some(("expansion", "kernel", "se"), 3).map(lambda names: tuple(sorted(names))),
    stride=st.sampled_from((1, 2)),
)


class Odd(Family):
    """What X3D never does: widths that depend on what comes in, blocks that differ from one to the next, fewer frames
    or a coarser picture behind a stage.
    """

    name = "odd"
    axes = (Axis("grow", counts), Axis("depth", counts), Axis("temporal_stride", counts), Axis("stride", counts))

    def ends(self, fields):
        raise NotImplementedError

    def card(self, fields):
        raise NotImplementedError

    def stage(self, choice, x):
        blocks = []
        for index in range(choice["depth"]):
            out = x.c * choice["grow"] if index == choice["depth"] - 1 else x.c
            blocks.append(
                BlockSpec.of(
                    "r2plus1d", in_channels=x.c, mid_channels=2 + index, out_channels=out,
                    kernel=((3 if index % 3 else 1, 1, 1), (1, 3, 3)),
                    stride=choice["stride"] if index == 0 else 1,
                    temporal_stride=choice["temporal_stride"] if index == choice["depth"] - 1 else 1,
                )
            )  # fmt: skip
            x = blocks[-1].output(x)
        return tuple(blocks)


odd_stages = st.builds(
    Stage.of,
    st.fixed_dictionaries(
        {
            "grow": some((1, 2, 3)),
            "depth": some((1, 2, 4)),
            "temporal_stride": some((1, 2, 3)),
            "stride": some((1, 2)),
        }
    ),
)


@dataclass(frozen=True)
class PairEnds(Ends):
    """Every second frame and all of them, a stem each; a head on both."""

    def stem(self):
        return BlockSpec.of("pathway-split", in_channels=3, out_channels=3, alpha=2, activation="identity")

    def before(self):
        stem = BlockSpec("resnet-stem", 3, 4, kernel=((1, 7, 7),), stride=2)
        return (self.stem(), replace(stem, pathway=1), replace(stem, pathway=2, out_channels=2))

    def head(self, last, x, num_classes):
        slow, fast = x.pathways
        return BlockSpec.of(
            "pathway-head", in_channels=slow.c, out_channels=num_classes, kernel=(), fast_channels=fast.c,
            activation="identity",
        )  # fmt: skip

    def parts(self):
        return {"stem": "pair"}


class Pair(Family):
    """Two pathways, each with widths of its own, that are fused behind a stage or not."""

    name = "pair"
    axes = tuple(Axis(name, counts) for name in ("slow", "fast", "depth", "stride", "fused"))

    def ends(self, fields):
        raise NotImplementedError

    def card(self, fields):
        raise NotImplementedError

    def stage(self, choice, x):
        blocks = []
        for pathway, width in ((1, choice["slow"]), (2, choice["fast"])):
            channels = x.pathways[pathway - 1].c
            for index in range(choice["depth"]):
                block = BlockSpec(
                    "r2plus1d", channels, width, 2 + index, kernel=((3, 1, 1), (1, 3, 3)),
                    stride=1 if index else choice["stride"], pathway=pathway,
                )  # fmt: skip
                blocks.append(block)
                channels = width
        if choice["fused"] > 1:
            slow, fast = choice["slow"], choice["fast"]
            values = {"in_channels": slow, "out_channels": slow + 2 * fast, "fast_channels": fast}
            blocks.append(BlockSpec.of("pathway-fuse", kernel=((5, 1, 1),), alpha=2, **values))
        return tuple(blocks)


pair_stages = st.builds(
    Stage.of,
    st.fixed_dictionaries(
        {
            "slow": some((4, 8)),
            "fast": some((2, 3)),
            "depth": some((1, 2)),
            "stride": some((1, 2)),
            "fused": some((1, 2)),
        }
    ),
)
X3D_ENDS = X3dEnds(X3dStemChoice(8, ((1, 3, 3), (5, 1, 1)), "relu"), Head(16, "relu"))
fine_spaces = st.builds(
    StagedSpace,
    name=st.just("fine"),
    frames=some((2, 5)),
    resolution=some((16, 32), 1),
    family=st.just(X3d()),
    ends=st.just(X3D_ENDS),
    stages=st.lists(st.one_of(fine_stages, fine_stages, stages), min_size=1, max_size=2).map(tuple),
).filter(lambda space: 4 <= space.size() <= 600 and any(stage.by_block for stage in space.stages))
spaces = st.one_of(
    fine_spaces,
    st.builds(
        StagedSpace,
        name=st.just("any"),
        frames=some((2, 4)),
        resolution=some((16, 32), 1),
        family=st.just(X3d()),
        ends=st.just(X3D_ENDS),
        stages=st.lists(stages, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        StagedSpace,
        name=st.just("any"),
        frames=some((1, 2, 5), 3),
        resolution=some((9, 32)),
        family=st.just(Odd()),
        ends=st.just(R2plus1dEnds(r2plus1d.ResnetStemChoice(4, ((1, 7, 7),), 2, "relu"))),
        stages=st.lists(odd_stages, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        StagedSpace,
        name=st.just("any"),
        frames=some((1, 2, 5), 3),
        resolution=some((9, 32)),
        family=st.just(Pair()),
        ends=st.just(PairEnds()),
        stages=st.lists(pair_stages, min_size=1, max_size=3).map(tuple),
    ),
).filter(lambda space: space.size() <= 600)


def number_of(block: BlockSpec, x: TensorSpec, salt: int, whole: bool) -> float:
    """An arbitrary but fixed number for a block: 1..400 (whole) or anything between."""
    digest = hashlib.sha256(f"{salt}{block.key}@{x.key}".encode()).digest()
    value = 1 + int.from_bytes(digest[:4]) % 400
    return float(value) if whole else value + digest[5] / 257


def brute(space: StagedSpace, number) -> dict[Architecture, float]:
    totals = {}
    for architecture, blocks in located_blocks(space).items():
        total = 0.0
        for block, x in blocks:
            total += number(block, x)
        totals[architecture] = total
    return totals


@functools.lru_cache(maxsize=1)
def located_blocks(space: StagedSpace) -> dict[Architecture, list[tuple[BlockSpec, TensorSpec]]]:
    """The blocks of every member, each alone and on its input."""
    found = {}
    for architecture in space.architectures():
        network, found[architecture] = space.network(architecture, 4), []
        x = network.input
        for block in network.blocks:
            found[architecture].append(block.located(x))
            x = block.output(x)
    return found


def budget_of(totals: dict[Architecture, float], share: float) -> float:
    ordered = sorted(totals.values())
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
