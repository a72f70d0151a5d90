"""The kinds of blocks that come with hwbench: one file and one line each."""

from hwbench.specs.kind import block_kinds
from hwbench.specs.kinds.by_hand import HandHeadKind, HandKind, HandNetworkKind, HandStemKind
from hwbench.specs.kinds.conv import ConvKind
from hwbench.specs.kinds.mvit import (
    ClassTokenHeadKind,
    ClassTokenStemKind,
    MultiscaleClassKind,
    MultiscaleKind,
    TokenHeadKind,
    TokenStemKind,
)
from hwbench.specs.kinds.pathways import PathwayFuseKind, PathwayHeadKind, PathwaySplitKind
from hwbench.specs.kinds.pool import PoolKind
from hwbench.specs.kinds.r2plus1d import PoolHeadKind, R2plus1dKind, ResnetStemKind
from hwbench.specs.kinds.resnet import BottleneckKind, FramePoolKind
from hwbench.specs.kinds.squeeze_excitation import SqueezeExcitationKind
from hwbench.specs.kinds.squeezetime import ChannelTimeKind, SqueezeStemKind
from hwbench.specs.kinds.x3d import X3dHeadKind, X3dKind, X3dStemKind

for kind in (
    *(X3dStemKind(), X3dKind(), X3dHeadKind()),
    *(ResnetStemKind(), R2plus1dKind(), BottleneckKind(), FramePoolKind(), PoolHeadKind()),
    *(SqueezeStemKind(), ChannelTimeKind()),
    *(ConvKind(), SqueezeExcitationKind(), PoolKind()),
    *(PathwaySplitKind(), PathwayFuseKind(), PathwayHeadKind()),
    *(TokenStemKind(), MultiscaleKind(), TokenHeadKind()),
    *(ClassTokenStemKind(), MultiscaleClassKind(), ClassTokenHeadKind()),
    *(HandStemKind(), HandKind(), HandHeadKind(), HandNetworkKind()),
):
    block_kinds.register(kind.name)(kind)

__all__ = [
    "BottleneckKind",
    "ChannelTimeKind",
    "ClassTokenHeadKind",
    "ClassTokenStemKind",
    "ConvKind",
    "FramePoolKind",
    "HandHeadKind",
    "HandKind",
    "HandNetworkKind",
    "HandStemKind",
    "MultiscaleClassKind",
    "MultiscaleKind",
    "PathwayFuseKind",
    "PathwayHeadKind",
    "PathwaySplitKind",
    "PoolKind",
    "PoolHeadKind",
    "R2plus1dKind",
    "ResnetStemKind",
    "SqueezeExcitationKind",
    "SqueezeStemKind",
    "TokenHeadKind",
    "TokenStemKind",
    "X3dKind",
    "X3dHeadKind",
    "X3dStemKind",
]
