"""How stages of bottlenecks are laid out, of ResNets, X3D and E3D, with stem and head around those of the latter two.

The one source for cards, spaces and models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import GLOBAL, TEMPORAL_STRIDE, Kernel, Value
from hwbench.specs.kinds.resnet import BottleneckKind
from hwbench.specs.kinds.x3d import (
    FREE_SHORTCUT,
    HIDDEN_BIAS,
    SPATIAL_STEM_KERNEL,
    STEM_KERNEL,
    X3dHeadKind,
    X3dKind,
    X3dStemKind,
)
from hwbench.specs.tensor import CLIP_CHANNELS
from hwbench.specs.widths import inner_width, nearest_width, squeezed


def bottlenecks(
    kind: str, in_channels: int, *, width: int, expansion: float, first: Mapping[str, int], **fields: Value
) -> tuple[BlockSpec, BlockSpec]:
    """The block that opens a stage, which takes what reaches the stage and its strides, and the one that follows.

    Args:
        kind: Name of the kind of block.
        in_channels: Of what reaches the stage.
        width: Channels between blocks.
        expansion: Channels inside a block by those between.
        first: Fields of the opening block alone, such as its strides.
        **fields: Of both.
    """
    values: dict[str, Value] = {"mid_channels": inner_width(width, expansion), "out_channels": width, **fields}
    opening = BlockSpec.of(kind, in_channels=in_channels, **values, **first)
    return opening, BlockSpec.of(kind, in_channels=width, **values)


def resnet_stage(
    in_channels: int, *, depth: int, width: int, expansion: float, kernel: Kernel, group_width: int, act: str,
    stride: int, temporal_stride: int,
) -> tuple[BlockSpec, ...]:  # fmt: skip
    """A stage of bottlenecks of a ResNet.

    Args:
        in_channels: Of what reaches the stage.
        depth: Number of blocks.
        width: Channels between blocks.
        expansion: Channels inside a block by those between.
        kernel: Of the first and the second convolution; further pairs are for the blocks that follow, over and over.
        group_width: Channels of each group of the second convolution; 0: there is one group.
        act: Every activation.
        stride: Spatial, of the first block.
        temporal_stride: Step over frames of the first block.
    """
    strides = {"stride": stride, "temporal_stride": temporal_stride}
    groups = inner_width(width, expansion) // group_width if group_width else 1
    pairs = list(zip(kernel[::2], kernel[1::2]))
    blocks = [
        bottlenecks(
            BottleneckKind.name, in_channels, width=width, expansion=expansion, first=strides, kernel=pair,
            groups=groups, activation=act,
        )
        for pair in pairs
    ]  # fmt: skip
    return (blocks[0][0], *(blocks[index % len(pairs)][1] for index in range(1, depth)))


def x3d_stem(width: int, kernel: Kernel = STEM_KERNEL, activation: str = "relu") -> BlockSpec:
    """The stem of X3D, which halves height and width."""
    return BlockSpec(X3dStemKind.name, CLIP_CHANNELS, width, kernel=kernel, stride=2, activation=activation)


def x3d_stage(
    in_channels: int,
    *,
    depth: int,
    width: int,
    expansion: float,
    kernel: Kernel,
    se: float,
    act: str,
    stride: int,
    temporal_stride: int = 1,
) -> tuple[BlockSpec, ...]:
    """A stage of X3D: squeeze-excite of the ratio ``se`` in every other block, from the first on (0: in none). The
    first block has the strides.
    """
    reduced = squeezed(inner_width(width, expansion), se)
    opening, gated = bottlenecks(
        X3dKind.name, in_channels, width=width, expansion=expansion,
        first={"stride": stride, TEMPORAL_STRIDE.name: temporal_stride},
        kernel=kernel, se_channels=reduced, activation=act,
    )  # fmt: skip
    plain = replace(gated, se_channels=0)
    return (opening, *(plain if index % 2 else gated for index in range(1, depth)))


def x3d_head(in_channels: int, mid_channels: int, hidden: int, num_classes: int, activation: str = "relu") -> BlockSpec:
    """The head of X3D, as wide inside as the blocks of the last stage."""
    return BlockSpec(X3dHeadKind.name, in_channels, num_classes, mid_channels, hidden, GLOBAL, activation=activation)


def e3d_stem(width: int) -> BlockSpec:
    """The stem of E3D, which halves height and width and looks at each frame by itself."""
    return x3d_stem(width, SPATIAL_STEM_KERNEL)


def e3d_stage(
    in_channels: int, *, depth: int, width: int, expansion: float, kernel: Kernel, stride: int
) -> tuple[BlockSpec, ...]:
    """A stage of E3D: bottlenecks without squeeze-excite, whose shortcuts have no weights. The first has the stride.

    Channels inside are the multiple of 8 nearest to ``width * expansion``.
    """
    fields: dict[str, Value] = {
        "mid_channels": nearest_width(width, expansion), "out_channels": width, "kernel": kernel,
        FREE_SHORTCUT.name: 1, "activation": "relu",
    }  # fmt: skip
    opening = BlockSpec.of(X3dKind.name, in_channels=in_channels, stride=stride, **fields)
    return (opening, *[BlockSpec.of(X3dKind.name, in_channels=width, **fields)] * (depth - 1))


def e3d_head(in_channels: int, mid_channels: int, hidden: int, num_classes: int) -> BlockSpec:
    """The last convolution of E3D, pooling, a hidden layer with a bias and swish, the classifier."""
    return BlockSpec.of(
        X3dHeadKind.name, in_channels=in_channels, mid_channels=mid_channels, hidden_channels=hidden,
        out_channels=num_classes, kernel=GLOBAL, activation="swish", **{HIDDEN_BIAS.name: 1},
    )  # fmt: skip
