"""What a kind of block is: its fields, its role, its shapes and its arithmetic, all without torch."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from hwbench.errors import InvalidValue, UnsupportedModule
from hwbench.registry import Registry, instance_of, suggest
from hwbench.specs.fields import COMMON, GLOBAL, Field
from hwbench.specs.operations import Operation
from hwbench.specs.tensor import TensorSpec

if TYPE_CHECKING:
    from hwbench.specs.block import BlockSpec


class BlockRole(enum.Enum):
    """Where a block stands in a network: it takes the clip, it lies inside, it gives the logits, or it is all of it."""

    STEM = "stem"
    BODY = "body"
    HEAD = "head"
    NETWORK = "network"

    @property
    def gives_logits(self) -> bool:
        """Whether logits come out, the width of which is the number of classes."""
        return self in (BlockRole.HEAD, BlockRole.NETWORK)


class BlockKind:
    """A kind of block. A subclass is one file in ``hwbench.specs.kinds`` and one line in its ``__init__``.

    Class attributes:
        name: The first word of a printed key: lower-case letters, digits and ``-``.
        fields: What the kind reads, in the order of its printed key; the activation comes last. Fields beyond those
            of ``hwbench.specs.fields.COMMON`` have a default and lie in ``BlockSpec.extras``.
        role: Where its blocks stand in a network.
        module: ``"package.module:function"``, which is imported on first use and makes the ``nn.Module`` of a
            ``BlockSpec``: (N, C, T, H, W) in and out, of a head (N, classes). A ``to_deploy`` of its own is optional.
        shortcut_first: Whether a shortcut that is a convolution, the last of its operations, is computed before the
            branch and waits for it, and not the other way round.
        takes, gives: Number of pathways in and out. A kind with more than one describes ``outputs`` and
            ``operations_on`` instead of ``output`` and ``operations``, and the forward pass of its module takes and
            gives one tensor for each.
    """

    name: ClassVar[str]
    fields: ClassVar[tuple[Field, ...]] = COMMON
    role: ClassVar[BlockRole] = BlockRole.BODY
    module: ClassVar[str]
    shortcut_first: ClassVar[bool] = False
    takes: ClassVar[int] = 1
    gives: ClassVar[int] = 1

    def check(self, spec: BlockSpec) -> None:
        """Makes sure that there is such a block, whatever its input.

        Raises:
            UnsupportedModule: A combination of values that the kind does not have.
        """

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        """Shape of the output for an input of shape ``x``; equal to what the module's forward pass gives.

        By default convolutions pad by half their kernel, the strides of the spec divide (rounding up), and the
        kernel ``global`` reduces T, H and W to 1.
        """
        if spec.kernel == GLOBAL:
            return TensorSpec(x.n, spec.out_channels, 1, 1, 1)
        return x.strided(spec.out_channels, spec.stride)

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterable[Operation]:
        """The arithmetic of a block on an input, in order; a test holds it against the weights of the module.

        Raises:
            InvalidValue: The arithmetic of this kind is not described.
        """
        raise InvalidValue(
            f"no arithmetic is known for blocks of kind {spec.kind!r}; {suggest(spec.kind, block_kinds.names())}"
        )

    def outputs(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        """Shapes of the output by pathway, for those of the input."""
        return (self.output(spec, pathways[0]),)

    def operations_on(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> Iterable[Operation]:
        """As ``operations``, for an input of one or several pathways."""
        return self.operations(spec, pathways[0])

    def keeps_input(self, spec: BlockSpec) -> bool:
        """Whether the input of a block waits beside its operations for a later one, as for the sum with a shortcut."""
        del spec
        return True

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the fields that are not among the common ones."""
        return {field.name: field.default for field in self.fields if field not in COMMON}


def expect(spec: BlockSpec, condition: bool, expected: str) -> None:
    """What a ``check`` is made of.

    Raises:
        UnsupportedModule: The condition does not hold.
    """
    if not condition:
        raise UnsupportedModule(f"{spec.key}: expected {expected}")


class UnknownKind(BlockKind):
    """Blocks whose kind is not installed: their keys are read and printed, with the fields of the kind's own as they
    are; their shapes follow the common rules.

    They take any number of pathways, and leave all but the first as they are.
    """

    name = "unknown"
    module = ""
    takes = 0

    def outputs(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return (self.output(spec, pathways[0]), *pathways[1:])


block_kinds: Registry[BlockKind] = Registry(
    "kind of block", entry_points="hwbench.kinds", expects=instance_of(BlockKind), named=True
)
_UNKNOWN = UnknownKind()


def kind_of(name: str) -> BlockKind:
    """The kind of that name; ``UnknownKind`` where it is not installed."""
    return block_kinds.find(name) or _UNKNOWN
