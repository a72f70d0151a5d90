"""Spatio-temporal entropy: a closed form for how much a network can express, before any training. Loads no torch."""

from __future__ import annotations

import math
from typing import ClassVar

from hwbench.specs import BlockRole, BlockSpec, Convolution, Network, Path, Precision, TensorSpec
from hwbench.studies.evaluators.base import Context, evaluators

# A kernel with exactly the proportions of its feature map would count infinitely; this bounds its factor to log(100).
_MIN_ANGLE = 0.01


@evaluators.register("entropy")
class Entropy:
    """Sum over the convolutions ahead of the pooling of half the log of their fan-in, where a kernel that extends over
    time or space counts by how well its proportions fit those of the feature map, plus the log of the last width.

    Squeeze-excite and activations do not enter, so of two networks that differ only in those the faster one wins.
    Bigger networks score higher: only compare within one latency budget.

    Source: Wang et al., "Maximizing Spatio-Temporal Entropy of Deep 3D CNNs for Efficient Video Recognition" (E3D, ICLR
    2023). Different here: the angle is taken at each convolution's own feature map, and is bounded.
    """

    name: ClassVar[str] = "entropy"
    unit: ClassVar[str] = "entropy (nats)"

    def __init__(self, context: Context) -> None:
        del context  # a closed form: nothing is drawn, nothing is trained

    def score(self, network: Network) -> float:
        return sum(self.block_score(p.blocks[0], p.input) for p in network.workload(Precision.FP32).parts())

    def block_score(self, block: BlockSpec, x: TensorSpec) -> float:
        """What a block adds: the entropy of its convolutions; of a head only the features that reach it."""
        if block.role is BlockRole.HEAD:
            return math.log(block.in_channels)
        convolutions = [one for one in block.operations(x) if isinstance(one, Convolution)]
        return sum(_entropy(convolution) for convolution in convolutions if convolution.path is Path.MAIN)


def _entropy(convolution: Convolution) -> float:
    factor = _fit(convolution) if math.prod(convolution.kernel) > 1 else 1.0
    return 0.5 * math.log(convolution.fan_in * factor)


def _fit(convolution: Convolution) -> float:
    """-log(1 - cos) of the angle between the kernel's and the feature map's extents over (T, H, W)."""
    extent = convolution.output.shape[2:]
    dot = sum(a * b for a, b in zip(extent, convolution.kernel))
    cosine = dot / (math.hypot(*extent) * math.hypot(*convolution.kernel))
    return -math.log(max(1 - cosine, _MIN_ANGLE))
