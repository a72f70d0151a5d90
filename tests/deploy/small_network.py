"""A small network, its recipe and its videos: the checkpoint that the tests of deploy begin from."""

from hwbench.data import SyntheticSpec
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.training import Recipe

SPEC = SyntheticSpec(train_per_class=3, val_per_class=2, size=24, frames=8)
KEYS = ("stem_i3_o8_k1x3x3+5x1x1_s2_relu", "x3d_i8_m16_o8_k3x3x3_s2_swish", "head_i8_m16_d32_o8_kglobal_relu")
NETWORK = Network("x3d-tiny:test", tuple(BlockSpec.parse(key) for key in KEYS), TensorSpec(1, 3, 4, 16, 16))
# Bounds of the tests are about the network that this makes.
RECIPE = Recipe(epochs=4, batch_size=4, learning_rate=0.05, seed=3, dropout=0.2)
