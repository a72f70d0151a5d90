"""A whole network as a value: a name, its blocks and its input."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwbench.specs.block import BlockSpec
from hwbench.specs.tensor import Precision, TensorSpec
from hwbench.specs.workload import AUTO, Workload

# Rows of a space are measured for the classes of the built-in synthetic set unless told otherwise.
DEFAULT_CLASSES = 8


@dataclass(frozen=True)
class Network:
    """Blocks from stem to head on a clip. ``name`` is what the user calls it: an architecture's key or ``zoo:NAME``.

    ``span_s`` is the time in seconds that its clips cover, where a space chooses it; None leaves that to the data. It
    costs nothing at inference and is no part of a workload.
    """

    name: str
    blocks: tuple[BlockSpec, ...]
    input: TensorSpec
    span_s: float | None = None

    @property
    def num_classes(self) -> int:
        """Width of the logits."""
        return self.blocks[-1].out_channels

    def with_classes(self, num_classes: int) -> Network:
        """The same network with another number of classes."""
        head = replace(self.blocks[-1], out_channels=num_classes)
        return replace(self, blocks=(*self.blocks[:-1], head))

    def workload(self, precision: Precision, variant: str = AUTO) -> Workload:
        """The network as something to build and time."""
        return Workload(self.blocks, self.input, precision, variant)
