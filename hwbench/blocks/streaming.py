"""The stream form: a causal network that takes one new frame at a time and hands over what it keeps of the past.

A block whose output at a frame depends on that frame and on earlier ones can be computed frame by frame. What it needs
of the past is its **state**: tensors that go in with a frame and come out, renewed, for the next one. All states begin
as zeros. The stream form of a network gives for its t-th frame the logits that its clip form gives for the frames 1 to
t; nothing is computed twice, so that a new frame costs one frame (stream buffers, MoViNets, Kondratyuk et al. 2021,
arXiv 2103.11511, section 3.2).

Averages over time are means of all frames so far: ``m[t] = m[t-1] + (x[t] - m[t-1]) / t`` (its section 3.2, cumulative
global average pooling). With a **memory** of F frames the divisor stays at F from the F-th frame on, so that an endless
stream forgets: up to there nothing changes, from there on it is an exponential mean.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from hwbench.errors import InvalidValue
from hwbench.specs import Precision

# The first state of every stream form.
FRAMES = "frames"


@dataclass(frozen=True)
class StreamState:
    """One tensor that is kept between frames: zeros (N, C, H, W) before the first frame.

    Attributes:
        name: The module that it belongs to, with the number of the state behind it.
        shape: N, C, H, W.
        in_fp32: Of fp32 in files of every precision: what it holds never ends, and so would its rounding.
    """

    name: str
    shape: tuple[int, int, int, int]
    in_fp32: bool = False

    def zeros(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """What it is before the first frame, in the order of axes in memory in which convolutions read it."""
        made = torch.zeros(self.shape, dtype=dtype)
        return made.to(memory_format=torch.channels_last) if self.is_channels_last else made

    @property
    def is_channels_last(self) -> bool:
        """Whether it lies in memory as N, H, W, C: with one channel or one position both orders are the same bytes,
        and engines mistake one for the other.
        """
        _, c, h, w = self.shape
        return c > 1 and h * w > 1


class StreamStep(nn.Module, abc.ABC):
    """What one module does to one new frame.

    ``forward(x, share, *states)`` takes the frame (N, C, H, W), the share (1, 1, 1, 1) of this frame in averages over
    time, and the states in the order of ``states``; it returns what comes out, then the new states. In a file in fp16
    the share and averages are in fp32: the error of a recursion never ends.
    """

    states: tuple[StreamState, ...] = ()

    @abc.abstractmethod
    def forward(self, x: torch.Tensor, share: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]: ...


class Framewise(StreamStep):
    """A module that looks at one frame by itself, in deploy form for clips of one frame."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor, share: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.module(x),)


class StreamChain(StreamStep):
    """Steps one after the other."""

    def __init__(self, steps: Mapping[str, StreamStep]) -> None:
        super().__init__()
        for name, step in steps.items():
            self.add_module(name, step)
        self.states = tuple(named(name, state) for name, step in steps.items() for state in step.states)

    def forward(self, x: torch.Tensor, share: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        renewed: list[torch.Tensor] = []
        for step in self._steps():
            last = len(renewed) + len(step.states)
            x, *own = step(x, share, *states[len(renewed) : last])
            renewed += own
        return (x, *renewed)

    def _steps(self) -> Iterator[StreamStep]:
        for step in self.children():
            assert isinstance(step, StreamStep)
            yield step


def named(name: str, state: StreamState) -> StreamState:
    """A state of the child ``name`` as one of its parent."""
    return replace(state, name=f"{name}.{state.name}")


class RunningMean(nn.Module):
    """``mean + (x - mean) · share``: a mean over time with one value more; in fp32 in every file."""

    in_fp32: ClassVar[frozenset[Precision]] = frozenset({Precision.INT8})

    def forward(self, x: torch.Tensor, mean: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        return mean + (x - mean) * share


class MeanStep(StreamStep):
    """The mean over time, height and width: (N, C, H, W) -> (N, C, 1, 1)."""

    def __init__(self, batch: int, channels: int) -> None:
        super().__init__()
        self.average = RunningMean()
        self.states = (StreamState("0", (batch, channels, 1, 1), in_fp32=True),)

    def forward(self, x: torch.Tensor, share: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean = self.average(in_type_of(share, x.mean((-2, -1), keepdim=True)), states[0], share)
        return in_type_of(x, mean), mean


class FrameCount(nn.Module):
    """The number of frames (1, 1, 1, 1) with the new one, at most ``memory``; and one over it."""

    in_fp32: ClassVar[frozenset[Precision]] = frozenset({Precision.INT8})
    one: torch.Tensor

    def __init__(self, memory: int | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.memory = memory
        self.register_buffer("one", torch.ones(1, 1, 1, 1, dtype=dtype))

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        frames = frames + self.one
        if self.memory is not None:
            frames = torch.clamp(frames, 0.0, float(self.memory))
        return frames, self.one / frames


class StreamForm(nn.Module):
    """A whole network or block: ``forward(x, *states)`` -> what comes out, then the new states.

    The first state counts the frames; its name is ``frames``.

    Args:
        step: What is done to one frame.
        frame: Shape (N, C, H, W) of a frame.
        memory: Frames that averages over time remember; None: all.

    Attributes:
        states: What is kept between frames, in the order of inputs and outputs.
        blocks_in: Name of the module that has the blocks of the network.

    Raises (construction):
        InvalidValue: The memory is not at least one frame.
    """

    blocks_in: ClassVar[str] = "step"

    def __init__(
        self,
        step: StreamStep,
        frame: tuple[int, int, int, int],
        memory: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if memory is not None and memory < 1:
            raise InvalidValue(f"memory: expected at least one frame, got {memory}")
        self.count = FrameCount(memory, dtype)
        self.step = step
        self.frame = frame
        self.dtype: torch.dtype | None = None
        self.states = (StreamState(FRAMES, (1, 1, 1, 1), in_fp32=True), *step.states)

    def forward(self, x: torch.Tensor, frames: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        frames, share = self.count(frames)
        y, *renewed = self.step(x if self.dtype is None else x.to(self.dtype), share, *states)
        return (in_type_of(x, y), frames, *renewed)

    def in_dtype(self, dtype: torch.dtype) -> StreamForm:
        """A copy that computes in fp16 or bf16, but for its averages; what goes in and comes out stays in fp32."""
        made = copy.deepcopy(self)
        made.step.to(dtype)
        made.dtype = dtype
        return made

    def start(self, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
        """The states before the first frame."""
        return tuple(state.zeros(dtype) for state in self.states)

    def example(self) -> tuple[torch.Tensor, ...]:
        """A random frame, channels last in memory as a camera gives it, and the states before the first frame."""
        frame = torch.randn(self.frame, dtype=self.count.one.dtype)
        return (frame.to(memory_format=torch.channels_last), *self.start(frame.dtype))


def in_type_of(like: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """``x`` in the type of numbers of another tensor; ``x`` itself where it has that type."""
    return x if x.dtype == like.dtype else x.to(like.dtype)


class Replayed(nn.Module):
    """A stream form as a module on clips: (T, C, H, W) -> what comes out behind the last frame; states begin anew.

    ``step`` may be what an engine makes of the form: anything with the inputs and outputs of ``form``.
    """

    def __init__(self, form: StreamForm, step: nn.Module | None = None) -> None:
        super().__init__()
        self.form = form
        self.step = form if step is None else step

    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        states = [state.zeros(clip.dtype) for state in self.form.states]
        for at in range(len(clip)):
            frame = clip[at : at + 1]
            y, *states = self.step(frame.contiguous(memory_format=torch.channels_last), *states)
        made: torch.Tensor = y
        return made
