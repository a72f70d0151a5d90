"""Blocks of a network that a user wrote: what a key tells of them is enough to predict with, and nothing to build from.

The module of such a block is made by the user's function, which is imported only where the user has named it
(``hwbench.models.by_hand``). Shapes and arithmetic stand in the key itself, so that tables are read without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import ACTIVATION, IN, KERNEL, OUT, Field, FieldType
from hwbench.specs.kind import BlockKind, BlockRole
from hwbench.specs.operations import Path
from hwbench.specs.tensor import TensorSpec

_IN_AXES = ("t", "h", "w")
_OUT_AXES = ("ot", "oh", "ow")
DENSE = Field("dense_macs", "dm", FieldType.COUNT, 0)
DEPTHWISE = Field("depthwise_macs", "wm", FieldType.COUNT, 0)
WEIGHTS = Field("weights", "nw", FieldType.COUNT, 0)
# Place in the network, label of the model and name of the block, as ``1-package.module.function.middle``: for readers.
PART = Field("part", "p", FieldType.NAME, "0")
# What tells this version of the block from others, in decimal digits.
VERSION = Field("version", "v", FieldType.NAME, "0")


def _axes(names: tuple[str, ...]) -> tuple[Field, ...]:
    return tuple(Field(name, name, FieldType.COUNT, 0) for name in names)


@dataclass(frozen=True)
class CountedOperations:
    """Several operations of one sort, counted and not told one by one."""

    input: TensorSpec
    output: TensorSpec
    macs: int
    num_weights: int
    is_depthwise: bool
    path: Path = Path.MAIN


class HandKind(BlockKind):
    """A named block inside a network that a user wrote, on the one input that it has there.

    The kernel stands for nothing. Of a block that gives logits T, H and W behind it are 1.
    """

    name = "hand"
    fields = (
        *(IN, OUT, KERNEL, *_axes(_IN_AXES), *_axes(_OUT_AXES)),
        *(DENSE, DEPTHWISE, WEIGHTS, PART, VERSION, ACTIVATION),
    )
    module: ClassVar[str] = "hwbench.models.by_hand:block"

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        expected = TensorSpec(x.n, spec.in_channels, *(spec.number(axis) for axis in _IN_AXES))
        if x != expected:
            raise InvalidValue(f"{spec.key} takes {expected.key} and no other input, got {x.key}")
        return TensorSpec(x.n, spec.out_channels, *(spec.number(axis) for axis in _OUT_AXES))

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[CountedOperations]:
        """Multiply-adds as counted when the model was loaded; weights belong to the dense ones."""
        output = self.output(spec, x)
        dense, depthwise = x.n * spec.number(DENSE.name), x.n * spec.number(DEPTHWISE.name)
        yield CountedOperations(x, output, dense, spec.number(WEIGHTS.name), is_depthwise=False)
        if depthwise:
            yield CountedOperations(x, output, depthwise, 0, is_depthwise=True)

    def keeps_input(self, spec: BlockSpec) -> bool:
        """No: each count reads the input itself, and whether anything waits is not known."""
        return False


class HandStemKind(HandKind):
    """The first named block."""

    name = "hand-stem"
    role = BlockRole.STEM


class HandHeadKind(HandKind):
    """The last named block."""

    name = "hand-head"
    role = BlockRole.HEAD


class HandNetworkKind(HandKind):
    """A whole network that names no blocks."""

    name = "hand-network"
    role = BlockRole.NETWORK


def hand_spec(
    index: int,
    count: int,
    shapes: tuple[TensorSpec, TensorSpec],
    counted: tuple[int, int, int],
    part: str,
    version: str,
) -> BlockSpec:
    """The block at a place of a model.

    Args:
        index: Its place.
        count: Number of blocks of the model.
        shapes: Of what it takes and of what it gives.
        counted: Dense and depthwise multiply-adds, and weights.
        part: Label of the model and name of the block.
        version: What tells it from other versions, in digits.
    """
    x, y = shapes
    ends = (HandStemKind, HandHeadKind)
    kind = HandNetworkKind if count == 1 else ends[index > 0] if index in (0, count - 1) else HandKind
    values = dict(zip((*_IN_AXES, *_OUT_AXES), (x.t, x.h, x.w, y.t, y.h, y.w)))
    values |= dict(zip((DENSE.name, DEPTHWISE.name, WEIGHTS.name), counted))
    return BlockSpec.of(
        kind.name,
        in_channels=x.c,
        out_channels=y.c,
        kernel=((1, 1, 1),),
        activation="identity",
        part=f"{index}-{part}",
        version=version,
        **values,
    )


def is_by_hand(block: BlockSpec) -> bool:
    """Whether a block is one of a network that a user wrote."""
    return isinstance(block.descriptor, HandKind)


def model_of(block: BlockSpec) -> str:
    """Label of the model that a block is one of."""
    return part_of(block).rpartition(".")[0]


def part_of(block: BlockSpec) -> str:
    """Label of the model and name of the block, without its place."""
    return str(block[PART.name]).partition("-")[2]
