"""The arithmetic of a block, operation by operation: the one source of multiply-adds, weights and values moved."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Protocol

from hwbench.specs.tensor import TensorSpec

Size = tuple[int, int, int]
POINT: Size = (1, 1, 1)


class Path(enum.StrEnum):
    """Where an operation stands in its block.

    ``MAIN``: between input and output. ``SIDE``: beside that, as in a shortcut, or on the way to keys and values of an
    attention. ``GATE``: in what values are multiplied with, as in a squeeze-excite.
    """

    MAIN = "main"
    SIDE = "side"
    GATE = "gate"


class Operation(Protocol):
    """One operation with arithmetic of its own on one input; what is free beside it (sums, activations) is left out."""

    @property
    def input(self) -> TensorSpec:
        """Shape of what it reads."""
        ...

    @property
    def output(self) -> TensorSpec:
        """Shape of what it writes."""
        ...

    @property
    def path(self) -> Path:
        """Where it stands in its block."""
        ...

    @property
    def macs(self) -> int:
        """Multiply-adds for one input."""
        ...

    @property
    def num_weights(self) -> int:
        """Number of weights, biases and normalisation left out."""
        ...

    @property
    def is_depthwise(self) -> bool:
        """Whether its multiply-adds share no inputs between output channels: engines run these at another rate."""
        ...


@dataclass(frozen=True)
class Convolution:
    """One convolution on one input, padded by half its kernel. A fully connected layer is one of size 1x1x1.

    ``stride`` is spatial, ``temporal_stride`` the step over frames.
    """

    input: TensorSpec
    out_channels: int
    kernel: Size = POINT
    stride: int = 1
    groups: int = 1
    path: Path = Path.MAIN
    temporal_stride: int = 1

    @property
    def output(self) -> TensorSpec:
        """Shape after it."""
        return self.input.strided(self.out_channels, self.stride, self.temporal_stride)

    @property
    def fan_in(self) -> int:
        """Number of inputs to one output value."""
        return self.input.c // self.groups * math.prod(self.kernel)

    @property
    def num_weights(self) -> int:
        """Number of weights, biases and normalisation left out."""
        return self.out_channels * self.fan_in

    @property
    def macs(self) -> int:
        """Multiply-adds for one input."""
        return self.output.numel * self.fan_in

    @property
    def is_depthwise(self) -> bool:
        """Whether it has groups."""
        return self.groups != 1


@dataclass(frozen=True)
class HeadConvolution(Convolution):
    """A depthwise convolution on the channels of several heads that share its weights (MViT, arXiv 2104.11227, eq. 1).

    ``heads``: the weights of each channel serve so many channels.
    """

    heads: int = 1

    @property
    def num_weights(self) -> int:
        """Those of one head."""
        return self.out_channels // self.heads * self.fan_in


@dataclass(frozen=True)
class Product:
    """A product of two activations, as scores of an attention are one, and what they make of the values.

    ``fan_in``: number of products in the sum that makes one value of the output. ``num_weights``: of the factors, where
    one is picked from a learned table; else none.
    """

    input: TensorSpec
    out_channels: int
    fan_in: int
    path: Path = Path.MAIN
    num_weights: int = 0

    @property
    def output(self) -> TensorSpec:
        """Shape after it: a row of ``out_channels`` values for each position of the input."""
        return self.input.with_(c=self.out_channels)

    @property
    def macs(self) -> int:
        """Multiply-adds for one input."""
        return self.output.numel * self.fan_in

    @property
    def is_depthwise(self) -> bool:
        """No: it is a product of matrices."""
        return False


@dataclass(frozen=True)
class Addition:
    """A sum with learned numbers, such as position terms; no multiply-adds."""

    input: TensorSpec
    num_weights: int
    path: Path = Path.MAIN

    @property
    def output(self) -> TensorSpec:
        """As what it reads."""
        return self.input

    @property
    def macs(self) -> int:
        """None."""
        return 0

    @property
    def is_depthwise(self) -> bool:
        """No."""
        return False
