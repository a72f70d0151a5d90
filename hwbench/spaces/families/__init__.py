"""The families of networks that come with hwbench: one file and one line each."""

from hwbench.spaces.families.by_hand import ByHand
from hwbench.spaces.families.e3d import E3d
from hwbench.spaces.families.mvit import Mvit
from hwbench.spaces.families.r2plus1d import R2plus1d
from hwbench.spaces.families.resnet import Resnet
from hwbench.spaces.families.slowfast import SlowFast
from hwbench.spaces.families.squeezetime import SqueezeTime
from hwbench.spaces.families.x3d import X3d
from hwbench.spaces.family import families

for family in (X3d(), E3d(), R2plus1d(), Resnet(), SlowFast(), SqueezeTime(), Mvit(), ByHand()):
    families.register(family.name)(family)

# What files may say, too: a family by the name of a network that is a member of it, as its paper calls that. Cards of
# EfficientX3d differ from those of X3D in their published weights.
MEMBERS = {"efficient-x3d": "x3d", "c2d": "resnet", "i3d": "resnet", "slow": "resnet", "csn": "resnet"}
families.reserve(MEMBERS)

__all__ = ["MEMBERS", "ByHand", "E3d", "Mvit", "R2plus1d", "Resnet", "SlowFast", "SqueezeTime", "X3d", "families"]
