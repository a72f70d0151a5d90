"""Spatio-temporal entropy: a closed form for how much a network can express, before any training. Loads no torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import ClassVar

from scipy.special import digamma

from hwbench.specs import BlockRole, BlockSpec, Convolution, Network, Path, Precision, TensorSpec
from hwbench.specs.operations import Operation
from hwbench.studies.evaluators.base import Context, evaluators

# A kernel with exactly the proportions of its feature map would count infinitely; this bounds its factor to log(100).
_MIN_ANGLE = 0.01
# Of a layer, in nats: half the log of fan-in x fit at which depth is worth nothing. 106 is the geometric mean over the
# layers of X3D-S. At the multiply-adds of X3D-S the best network of x3d-mobile then has 85 layers; E3D-S is searched
# for within 83.
LAYER_PRICE = 0.5 * math.log(106)

Layer = tuple[Convolution, ...]


@evaluators.register("entropy")
class Entropy:
    """Entropy of the last feature map of a random network, less a price for each layer.

    A layer adds ``log(fan-in x fit) / 2 - LAYER_PRICE``; the features that reach the head add the log of their number
    C·T·H·W. The fit of a kernel that extends over time or space is ``-log(1 - cos)`` of the angle between the extents
    (T, H, W) of kernel and feature map: STEntr-Score of Wang et al., "Maximizing Spatio-Temporal Entropy of Deep 3D
    CNNs for Efficient Video Recognition" (E3D, ICLR 2023). E3D has one input size and takes the log of C alone; the
    positions of the map count in DeepMAD (Shen et al., CVPR 2023), there as a factor, here as a summand, which keeps
    the sum over blocks.

    *Depth.* E3D maximises the sum within FLOPs and a number of layers, without which the deepest network wins: a layer
    twice as wide adds 0.35 nats, one more layer some 2. A bound on the number of layers is no sum over blocks, its
    Lagrange multiplier is: the network with the highest score has the highest entropy of all networks within the
    latency budget that have no more layers than it (Everett, Operations Research 1963). A layer has to be wider than
    the mean of X3D-S to be worth its depth. DeepMAD bounds depth / width, in the form
    ``sum log(width) >= L log(L / bound)``: at a given number of layers L that is a price for each layer, too.

    *Factorised kernels.* 1x3x3 and then depthwise 3x1x1, with nothing between, is one 3x3x3 kernel of rank one and
    counts as one layer of those extents. Its 27 weights are products of 12: by ``E log chi-squared`` of standard normal
    weights the expected log of its gain is 0.45 below that of 27 independent ones, so the score is 0.22 below.
    R(2+1)D has an activation between: two layers.

    *Edges.* The fan-in counts taps that meet the feature map, on average over its positions; those on padding see
    nothing. A kernel over 3 of 4 frames has 2.5, of one frame 1.

    Not seen: squeeze-excite, activations, shortcuts (as in the code of E3D and DeepMAD), and blocks of a user's own
    model. Of two networks that differ only in those the faster one wins. Compare within one latency budget.
    """

    name: ClassVar[str] = "entropy"
    unit: ClassVar[str] = "entropy (nats)"
    scoring: ClassVar[int] = 2
    basis: ClassVar[str] = "from shapes alone, without training or data"
    judged: ClassVar[str] = (
        "48 trained networks of one budget were ranked no better than by chance (tau -0.17, 95 % -0.38 to 0.03, "
        "experiment 031)"
    )

    def __init__(self, context: Context) -> None:
        del context  # a closed form: nothing is drawn, nothing is trained

    def score(self, network: Network) -> float:
        return sum(self.block_score(p.blocks[0], p.input) for p in network.workload(Precision.FP32).parts())

    def block_score(self, block: BlockSpec, x: TensorSpec) -> float:
        """What a block adds: the entropy of its layers above their price; of a head the features that reach it."""
        if block.role is BlockRole.HEAD:
            return math.log(x.numel // x.n)
        return sum(layer_entropy(layer) - LAYER_PRICE for layer in layers_of(block.operations(x)))


def layers_of(operations: Iterable[Operation]) -> list[Layer]:
    """The convolutions between input and output of a block; a depthwise one that completes a kernel joins its layer.

    A depthwise kernel completes one that extends over other axes and stands right before it: of such a pair blocks
    of hwbench have no normalisation and no activation between.
    """
    layers: list[Layer] = []
    for one in operations:
        if not isinstance(one, Convolution) or one.path is not Path.MAIN:
            continue
        if layers and one.is_depthwise and _complete(layers[-1][-1].kernel, one.kernel):
            layers[-1] = (*layers[-1], one)
        else:
            layers.append((one,))
    return layers


def layer_entropy(layer: Layer) -> float:
    """Half the log of the fan-in of a layer times the fit of its kernel, in nats."""
    kernel = tuple(max(extents) for extents in zip(*(one.kernel for one in layer)))
    fit = _fit(kernel, layer[-1].output.shape[2:]) if math.prod(kernel) > 1 else 1.0
    fan_in = math.prod(_fan_in(one) for one in layer)
    return 0.5 * (math.log(fan_in * fit) - _dependence(tuple(one.fan_in for one in layer)))


def _complete(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether both kernels extend, over different axes."""
    return max(first) > 1 and max(second) > 1 and all(min(a, b) == 1 for a, b in zip(first, second))


@functools.cache
def _fit(kernel: tuple[int, ...], extents: tuple[int, ...]) -> float:
    """-log(1 - cos) of the angle between the extents of a kernel and of its feature map over (T, H, W)."""
    dot = sum(a * b for a, b in zip(extents, kernel))
    cosine = dot / (math.hypot(*extents) * math.hypot(*kernel))
    return -math.log(max(1 - cosine, _MIN_ANGLE))


def _fan_in(one: Convolution) -> float:
    """Number of inputs to an output value, those on padding left out, on average over the positions."""
    strides = (one.temporal_stride, one.stride, one.stride)
    taps = math.prod(_taps(*axis) for axis in zip(one.input.shape[2:], one.kernel, strides))
    return one.input.c // one.groups * taps


@functools.cache
def _taps(extent: int, kernel: int, stride: int) -> float:
    """Taps of a kernel that meet an axis padded by half the kernel, on average over its steps."""
    starts = [step - kernel // 2 for step in range(0, extent, stride)]
    return sum(min(start + kernel, extent) - max(start, 0) for start in starts) / len(starts)


@functools.cache
def _dependence(factors: tuple[int, ...]) -> float:
    """By how much the expected log of the squared gain falls where weights are products of factors of these sizes."""
    return _bias(math.prod(factors)) - sum(map(_bias, factors))


def _bias(count: int) -> float:
    """E log of the mean square of ``count`` standard normal numbers: digamma(count / 2) + log(2 / count)."""
    return float(digamma(count / 2)) + math.log(2 / count)
