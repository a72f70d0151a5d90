"""Networks as calibration sees them: the blocks with their rows in context, and what is counted of each block."""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.errors import InvalidValue
from hwbench.specs import Workload, format_kernel
from hwbench.specs.operations import Operation

# What may be paid for beside the rows; and in which numbers it is told, in words.
TERMS = {
    "blocks": (1, "a block"),
    "operators": (1, "an operator"),
    "weights": (10**6, "a million weights"),
    "bytes": (2**20, "a MiB of working sets"),
}
_CACHE_BYTES = 4 << 20


@dataclass(frozen=True, order=True)
class Piece:
    """One block of a network: its family, its row in context in seconds, its numbers of operators and weights, and the
    bytes of its working set that a cache may hold."""

    family: str
    seconds: float
    operators: int = 1
    weights: int = 0
    working_set: int = 0

    @classmethod
    def of(cls, part: Workload, seconds: float) -> Piece:
        """A single block whose row in context is known."""
        return cls(family(part), seconds, operators(part), weights(part), working_set(part))

    @property
    def counts(self) -> tuple[int, ...]:
        """How many it has of each term, in the order of ``TERMS``."""
        return 1, self.operators, self.weights, self.working_set


@dataclass(frozen=True, order=True)
class Observation:
    """A whole network that was measured, and the rows of its blocks."""

    measured_s: float
    pieces: tuple[Piece, ...]


def family(part: Workload) -> str:
    """What blocks share that are wrong in the same way: the kind, and the kernel of its convolution over time."""
    (block,) = part.blocks
    return f"{block.kind} {format_kernel(block.kernel)}"


def operators(part: Workload) -> int:
    """Number of operations of a single block; 1 for a kind whose arithmetic is not known."""
    return len(_operations(part)) or 1


def weights(part: Workload) -> int:
    """Number of weights of a single block; 0 for a kind whose arithmetic is not known."""
    return sum(operation.num_weights for operation in _operations(part))


def working_set(part: Workload) -> int:
    """Bytes that a single block comes back to, at most as many as a cache may hold: all weights, and what its largest
    operation reads and writes; 0 for a kind whose arithmetic is not known."""
    largest = max((o.input.numel + o.output.numel for o in _operations(part)), default=0)
    return min(part.precision.value_bytes * (largest + weights(part)), _CACHE_BYTES)


def _operations(part: Workload) -> tuple[Operation, ...]:
    try:
        return part.blocks[0].operations(part.input)
    except InvalidValue:
        return ()
