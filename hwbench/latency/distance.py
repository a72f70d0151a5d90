"""How unlike two workloads are, so that a missing row can name its nearest neighbours."""

from __future__ import annotations

import math

from hwbench.specs import BlockSpec, TensorSpec, Workload

# Sizes count by their logarithm: twice as wide is 1. What is not a size counts as that many doublings.
_KIND, _KERNEL, _STRIDE, _VARIANT, _GATE, _ACTIVATION = 8.0, 2.0, 2.0, 1.0, 1.0, 0.5


def distance(one: Workload, other: Workload) -> float:
    """In doublings of one size; infinite between workloads of different lengths or precisions."""
    if len(one.blocks) != len(other.blocks) or one.precision is not other.precision:
        return math.inf
    blocks = sum(_between_blocks(a, b) for a, b in zip(one.blocks, other.blocks))
    return blocks + _between_inputs(one.input, other.input) + _VARIANT * (one.variant != other.variant)


def _between_blocks(a: BlockSpec, b: BlockSpec) -> float:
    channels = ("in_channels", "mid_channels", "hidden_channels", "out_channels", "groups")
    sizes = sum(_doublings(getattr(a, name), getattr(b, name)) for name in channels)
    if (a.se_channels > 0) != (b.se_channels > 0):
        sizes += _GATE
    else:
        sizes += _doublings(a.se_channels, b.se_channels) / 4  # a gate is cheap, whatever its width
    return (
        sizes
        + _KIND * (a.kind != b.kind)
        + _KERNEL * (a.kernel != b.kernel)
        + _STRIDE * (a.stride != b.stride)
        + _ACTIVATION * (a.activation != b.activation)
    )


def _between_inputs(a: TensorSpec, b: TensorSpec) -> float:
    # channels are those of the first block
    return sum(_doublings(getattr(a, axis), getattr(b, axis)) for axis in "nthw")


def _doublings(a: int, b: int) -> float:
    return abs(math.log2(a / b)) if a and b else float(a != b)
