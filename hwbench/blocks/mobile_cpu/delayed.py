"""A causal convolution over time, one new frame at a time.

With taps f_0 (the frame itself) to f_K-1 (K - 1 frames ago), ``y[t] = f_0(x[t]) + ... + f_K-1(x[t-K+1])``. Every tap
reads the new frame once, and what it contributes to frames to come is carried in K - 1 states:

    y     = f_0(x)   + s_1
    s_1'  = f_1(x)   + s_2
    ...
    s_K-1' = f_K-1(x)

This is the transposed form of a filter of finite length (Oppenheim and Schafer, Discrete-Time Signal Processing).
States have the size of the output: where the convolution strides over space, a quarter of that of what it reads.
"""

from __future__ import annotations

import torch
from torch import nn

from hwbench.blocks.functional import FloatFunctional
from hwbench.blocks.mobile_cpu.taps import Taps
from hwbench.blocks.streaming import StreamState, StreamStep, in_type_of
from hwbench.errors import UnsupportedModule
from hwbench.specs import TensorSpec


class DelayedTaps(StreamStep):
    """``act(norm(conv(x)))`` of a causal convolution; (N, C, H, W) of one frame in and out.

    Raises (construction):
        UnsupportedModule: A tap reads a frame to come.
    """

    def __init__(self, taps: Taps, act: nn.Module, input: TensorSpec) -> None:
        super().__init__()
        if not taps.is_causal:
            raise UnsupportedModule(
                "a convolution over time that looks at frames to come has no stream form; stream a causal network "
                "(blocks with ca1 in their keys)"
            )
        out = taps.output(input.with_(t=1))
        delays = range(taps.count)
        self.convs = nn.ModuleList(taps.conv2d(-delay) for delay in delays)
        self.adds = nn.ModuleList(FloatFunctional() for _ in delays[1:])
        self.act = act
        self.states = tuple(StreamState(str(delay - 1), (out.n, out.c, out.h, out.w)) for delay in delays[1:])

    def forward(self, x: torch.Tensor, share: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, *later = self.convs
        # From the last state to the first, and the output at the end: what is read next was written last.
        kept, carried = states[0], [in_type_of(x, state) for state in states]
        renewed = [later[-1](x)]
        for conv, add, state in reversed([*zip(later, self.adds[1:], carried[1:])]):
            renewed.insert(0, add.add(conv(x), state))  # type: ignore[operator]
        y = self.act(self.adds[0].add(first(x), carried[0]))  # type: ignore[operator]
        return (y, *(in_type_of(kept, state) for state in renewed))
