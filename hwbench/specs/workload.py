"""What is built and timed: a block, a chain or a whole network, on one input, at one precision, in one layout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hwbench.errors import InvalidValue
from hwbench.specs.block import BlockSpec
from hwbench.specs.kind import BlockRole
from hwbench.specs.tensor import Precision, TensorSpec

AUTO = "auto"
# In place of a layout: one new frame of a stream, with states in and out (``hwbench.blocks.streaming``).
STREAM = "stream"


@dataclass(frozen=True, order=True)
class Workload:
    """Blocks in a row on an input. Its key is ``BLOCK>BLOCK@INPUT/PRECISION/VARIANT``.

    ``variant`` names how a convolution over time is laid out in the deploy form
    (``hwbench.blocks.mobile_cpu.layouts``); ``auto`` leaves the choice to the runtime and stays in the key, because
    the choice is part of what was measured. ``stream``: the blocks are causal, the input is one frame, and
    what is built takes that frame and the states of the blocks.
    """

    blocks: tuple[BlockSpec, ...]
    input: TensorSpec
    precision: Precision = Precision.FP32
    variant: str = AUTO

    def __post_init__(self) -> None:
        if not self.blocks:
            raise InvalidValue("workload: at least one block is needed")
        if self.variant == STREAM and self.input.t != 1:
            raise InvalidValue(f"workload: a stream takes one frame at a time, got the input {self.input.key}")
        self.output  # noqa: B018  # every block must accept what the one before it puts out

    @property
    def key(self) -> str:
        return f"{'>'.join(b.key for b in self.blocks)}@{self.input.key}/{self.precision}/{self.variant}"

    @property
    def sha256(self) -> str:
        """Digest of the key: names files."""
        return hashlib.sha256(self.key.encode()).hexdigest()

    @property
    def is_network(self) -> bool:
        """Whether it is more than one block and ends with a head: something that gives logits."""
        return len(self.blocks) > 1 and self.blocks[-1].role is BlockRole.HEAD

    @cached_property
    def output(self) -> TensorSpec:
        """Shape after the last block."""
        x = self.input
        for block in self.blocks:
            x = block.output(x)
        return x

    def parts(self) -> Iterator[Workload]:
        """Each block alone, on the input it gets in this chain: of one pathway, without the others."""
        x = self.input
        for block in self.blocks:
            alone, part = block.located(x)
            yield Workload((alone,), part, self.precision, self.variant)
            x = block.output(x)

    @classmethod
    def parse(cls, key: str) -> Workload:
        """Reads what ``key`` prints."""
        blocks, at, rest = key.partition("@")
        fields = rest.split("/")
        if not at or len(fields) != 3:
            raise InvalidValue(f"workload: expected BLOCK>BLOCK@INPUT/PRECISION/VARIANT, got {key!r}")
        return cls(
            tuple(BlockSpec.parse(b) for b in blocks.split(">")),
            TensorSpec.parse(fields[0]),
            Precision.parse(fields[1]),
            fields[2],
        )

    def __str__(self) -> str:
        return self.key
