"""How unlike two workloads are, so that a missing row can name its nearest neighbours."""

from __future__ import annotations

import math

from hwbench.specs import BlockSpec, TensorSpec, Workload
from hwbench.specs.fields import COMMON, SE, FieldType, Value

# Sizes count by their logarithm: twice as wide is 1. What is not a size counts as that many doublings.
_KIND, _VARIANT, _GATE = 8.0, 1.0, 1.0
_WEIGHTS = {FieldType.KERNEL: 2.0, FieldType.COUNT: 2.0, FieldType.ACTIVATION: 0.5, FieldType.NAME: 4.0}


def distance(one: Workload, other: Workload) -> float:
    """In doublings of one size; infinite between workloads of different lengths or precisions."""
    if len(one.blocks) != len(other.blocks) or one.precision is not other.precision:
        return math.inf
    blocks = sum(_between_blocks(a, b) for a, b in zip(one.blocks, other.blocks))
    return blocks + _between_inputs(one.input, other.input) + _VARIANT * (one.variant != other.variant)


def _between_blocks(a: BlockSpec, b: BlockSpec) -> float:
    types = {field.name: field.type for field in (*COMMON, *a.descriptor.fields, *b.descriptor.fields)}
    fields = sum(_between_values(name, type, a.get(name), b.get(name)) for name, type in types.items())
    return fields + _KIND * (a.kind != b.kind)


def _between_values(name: str, type: FieldType, a: Value | None, b: Value | None) -> float:
    if name == SE.name:  # a gate is cheap, whatever its width
        return _GATE if (a == 0) != (b == 0) else _doublings(a, b) / 4
    return _doublings(a, b) if type is FieldType.SIZE else _WEIGHTS[type] * (a != b)


def _between_inputs(a: TensorSpec, b: TensorSpec) -> float:
    # channels are those of the first block
    return sum(_doublings(getattr(a, axis), getattr(b, axis)) for axis in "nthw")


def _doublings(a: Value | None, b: Value | None) -> float:
    return abs(math.log2(a / b)) if isinstance(a, int) and isinstance(b, int) and a and b else float(a != b)
