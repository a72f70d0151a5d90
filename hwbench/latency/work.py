"""The arithmetic of a block: its convolutions, from which multiply-adds and parameters follow. Loads no torch.

The list mirrors the original form of the blocks (``hwbench.blocks``); a test holds the two together by their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hwbench.errors import InvalidValue
from hwbench.registry import suggest
from hwbench.specs import BlockSpec, TensorSpec, Workload

_Size = tuple[int, int, int]
_POINT: _Size = (1, 1, 1)


@dataclass(frozen=True)
class Convolution:
    """One convolution on one input. ``role`` is ``main`` on the path from input to output, ``side`` in a shortcut, and
    ``gate`` in squeeze-excite. Fully connected layers are convolutions of size 1x1x1."""

    input: TensorSpec
    out_channels: int
    kernel: _Size = _POINT
    stride: int = 1
    groups: int = 1
    role: str = "main"

    @property
    def output(self) -> TensorSpec:
        """Shape after it."""
        x, s = self.input, self.stride
        return x.with_(c=self.out_channels, h=-(-x.h // s), w=-(-x.w // s))

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


def convolutions(block: BlockSpec, x: TensorSpec) -> tuple[Convolution, ...]:
    """The convolutions that a block makes of an input, in order.

    Raises:
        InvalidValue: The kind of block is not described here.
    """
    if block.kind not in _KINDS:
        raise InvalidValue(f"no arithmetic is known for blocks of kind {block.kind!r}; {suggest(block.kind, _KINDS)}")
    return tuple(_KINDS[block.kind](block, x))


def macs(workload: Workload) -> int:
    """Multiply-adds of all convolutions of a workload for one input."""
    return sum(c.macs for part in workload.parts() for c in convolutions(part.blocks[0], part.input))


def _stem(block: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
    spatial, *depthwise = block.kernel
    first = Convolution(x, block.out_channels, spatial, block.stride)
    yield first
    yield from _depthwise(first.output, tuple(depthwise), 1)


def _x3d(block: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
    expand = Convolution(x, block.mid_channels)
    yield expand
    inner = expand.output
    for convolution in _depthwise(inner, block.kernel, block.stride):
        yield convolution
        inner = convolution.output
    if block.se_channels:
        pooled = inner.with_(t=1, h=1, w=1)
        yield Convolution(pooled, block.se_channels, role="gate")
        yield Convolution(pooled.with_(c=block.se_channels), block.mid_channels, role="gate")
    yield Convolution(inner, block.out_channels)
    if block.stride != 1 or block.in_channels != block.out_channels:
        yield Convolution(x, block.out_channels, stride=block.stride, role="side")


def _head(block: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
    yield Convolution(x, block.mid_channels)
    pooled = TensorSpec(x.n, block.mid_channels, 1, 1, 1)
    yield Convolution(pooled, block.hidden_channels)
    yield Convolution(pooled.with_(c=block.hidden_channels), block.out_channels)


def _conv(block: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
    for index, kernel in enumerate(block.kernel):
        convolution = Convolution(x, block.out_channels, kernel, 1 if index else block.stride, block.groups)
        yield convolution
        x = convolution.output


def _depthwise(x: TensorSpec, kernels: tuple[_Size, ...], stride: int) -> Iterator[Convolution]:
    for index, kernel in enumerate(kernels):
        convolution = Convolution(x, x.c, kernel, 1 if index else stride, groups=x.c)
        yield convolution
        x = convolution.output


_KINDS: dict[str, Callable[[BlockSpec, TensorSpec], Iterator[Convolution]]] = {
    "stem": _stem,
    "x3d": _x3d,
    "head": _head,
    "conv": _conv,
}
