"""The arithmetic of workloads, added up from the operations that the kinds of their blocks describe. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.specs import Workload
from hwbench.specs.operations import Operation


@dataclass(frozen=True)
class Work:
    """What one block does with one input.

    ``moved`` counts the values of its input, its output, and of what each operation writes.
    """

    dense_macs: int
    depthwise_macs: int
    moved: int
    num_weights: int
    num_operations: int

    @classmethod
    def of(cls, part: Workload) -> Work:
        """The work of a single block.

        Raises:
            InvalidValue: The arithmetic of its kind is not described.
        """
        operations = part.blocks[0].operations(part.input)
        depthwise = sum(operation.macs for operation in operations if operation.is_depthwise)
        return cls(
            dense_macs=sum(operation.macs for operation in operations) - depthwise,
            depthwise_macs=depthwise,
            moved=part.input.numel + part.output.numel + sum(operation.output.numel for operation in operations),
            num_weights=sum(operation.num_weights for operation in operations),
            num_operations=len(operations),
        )


def operations(workload: Workload) -> tuple[Operation, ...]:
    """All operations of a workload, in order.

    Raises:
        InvalidValue: The arithmetic of a kind is not described.
    """
    return tuple(operation for part in workload.parts() for operation in part.blocks[0].operations(part.input))


def macs(workload: Workload) -> int:
    """Multiply-adds of a workload for one input.

    Raises:
        InvalidValue: The arithmetic of a kind is not described.
    """
    return sum(operation.macs for operation in operations(workload))
