"""The kinds of blocks that come with hwbench: one file and one line each."""

from hwbench.specs.kind import block_kinds
from hwbench.specs.kinds.conv import Conv
from hwbench.specs.kinds.pool import Pool
from hwbench.specs.kinds.r2plus1d import PoolHead, R2plus1dBlock, ResnetStem
from hwbench.specs.kinds.squeeze_excitation import SqueezeExcitation
from hwbench.specs.kinds.x3d import X3dBlock, X3dHead, X3dStem

for kind in (
    *(X3dStem(), X3dBlock(), X3dHead()),
    *(ResnetStem(), R2plus1dBlock(), PoolHead()),
    *(Conv(), SqueezeExcitation(), Pool()),
):
    block_kinds.register(kind.name)(kind)

__all__ = [
    "Conv",
    "Pool",
    "PoolHead",
    "R2plus1dBlock",
    "ResnetStem",
    "SqueezeExcitation",
    "X3dBlock",
    "X3dHead",
    "X3dStem",
]
