"""What an export does differently where the file takes one new frame and hands its states on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import torch

from hwbench.blocks.streaming import Replayed, StreamForm
from hwbench.deploy.blocks import Int8
from hwbench.deploy.manifest_records import StateRecord, StreamRecord
from hwbench.deploy.source import ExportSource
from hwbench.errors import InvalidValue, UnsupportedModule
from hwbench.runtimes import Runtime
from hwbench.specs import AUTO, Network, Precision, Workload


@dataclass(frozen=True)
class Streaming:
    """The file takes one new frame at a time.

    ``memory``: Frames that averages over time remember, at least those of the network's clip; None: all since the
    states were zeros.
    """

    memory: int | None = None

    def check(self, original: ExportSource, runtime: Runtime, variant: str, int8: Int8) -> None:
        """Whether there is such a file.

        Raises:
            UnsupportedModule: The network looks at frames to come, or the runtime builds no streams.
            InvalidValue: What is asked for does not go together.
        """
        runtime.require_form(self.workload(original, Precision.FP32))
        if self.memory is not None and self.memory < original.network.input.t:
            raise InvalidValue(
                f"--memory: expected at least {original.network.input.t}, the frames of the network's clip, got "
                f"{self.memory}: a stream that remembers fewer answers other than the network that was trained"
            )
        if original.fine_tuned is not None:
            raise InvalidValue(
                "--streaming: a checkpoint of train --qat has no stream form; export what it started from"
            )
        if variant != AUTO:
            raise InvalidValue("--streaming: a stream has one layout; leave out --variant and --device")
        if int8.max_loss is not None or int8.inspect:
            raise InvalidValue(
                "--streaming: leave out --keep-accuracy and --blocks; name blocks by --fp32-block, as --blocks prints "
                "them without --streaming"
            )

    def workload(self, original: ExportSource, precision: Precision) -> Workload:
        """One new frame of the network."""
        if not isinstance(original.network, Network):
            raise UnsupportedModule(
                f"--streaming: {original.network.name} is not made of blocks that have a stream form; choose a network "
                "such as zoo:x3d-xs"
            )
        return original.network.frame(precision)

    def form(self, original: ExportSource, module: torch.nn.Module) -> StreamForm:
        """The stream form of the network with the weights of ``module``."""
        from hwbench import models

        return models.streamed(module, original.network.input, self.memory)

    def record(self, original: ExportSource, types: Sequence[str]) -> StreamRecord:
        """What the manifest says of a file whose states have numbers of these types; without any they are float32."""
        form = self.form(original, original.module)
        states = tuple(
            StateRecord(state.name, state.shape, "NHWC" if state.is_channels_last else "NCHW", 0.0, type)
            for state, type in zip(form.states, types or ["float32"] * len(form.states), strict=True)
        )
        return StreamRecord(states, self.memory, original.network.input.t)


class StreamInputs(Sequence[tuple[torch.Tensor, ...]]):
    """The inputs of a stream while it sees clips: every frame with the states that those before it left.

    States are computed when they are asked for, in order: those of a large network take megabytes for each frame.

    Args:
        form: In fp32.
        clips: (T, 3, H, W) each, all of one length.

    Attributes:
        clips: Their number.
    """

    def __init__(self, form: StreamForm, clips: Sequence[torch.Tensor]) -> None:
        self._form, self._clips = form, clips
        self.clips = len(clips)
        self._frames = len(clips[0]) if clips else 0
        self._next, self._states = -1, form.start()

    def __len__(self) -> int:
        return len(self._clips) * self._frames

    @overload
    def __getitem__(self, at: int) -> tuple[torch.Tensor, ...]: ...

    @overload
    def __getitem__(self, at: slice) -> list[tuple[torch.Tensor, ...]]: ...

    def __getitem__(self, at: int | slice) -> tuple[torch.Tensor, ...] | list[tuple[torch.Tensor, ...]]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        clip, frame = divmod(at, self._frames)
        if frame == 0 or at != self._next:
            self._states = self._form.start()
            for earlier in range(frame):
                self._advance(clip, earlier)
        given = (self._frame(clip, frame), *self._states)
        self._advance(clip, frame)
        self._next = at + 1
        return given

    def first(self, count: int) -> list[torch.Tensor]:
        """The first ``count`` clips themselves, (T, 3, H, W) each, or all of fewer."""
        return [*self._clips[:count]]

    def _frame(self, clip: int, frame: int) -> torch.Tensor:
        return self._clips[clip][frame : frame + 1].contiguous(memory_format=torch.channels_last)

    def _advance(self, clip: int, frame: int) -> None:
        with torch.no_grad():
            _, *states = self._form(self._frame(clip, frame), *self._states)
        self._states = tuple(states)


__all__ = ["Replayed", "StreamInputs", "Streaming"]
