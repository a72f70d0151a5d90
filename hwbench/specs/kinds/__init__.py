"""The kinds of blocks that come with hwbench: one file and one line each."""

from hwbench.specs.kind import kinds
from hwbench.specs.kinds.conv import Conv
from hwbench.specs.kinds.pool import Pool
from hwbench.specs.kinds.squeeze_excitation import SqueezeExcitation
from hwbench.specs.kinds.x3d import X3dBlock, X3dHead, X3dStem

for kind in (X3dStem(), X3dBlock(), X3dHead(), Conv(), SqueezeExcitation(), Pool()):
    kinds.register(kind.name)(kind)

__all__ = ["Conv", "Pool", "SqueezeExcitation", "X3dBlock", "X3dHead", "X3dStem"]
