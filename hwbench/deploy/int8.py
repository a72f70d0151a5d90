"""How one network becomes int8: all of it, all but some blocks, or as it was trained."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from hwbench.deploy.blocks import Int8, block_names, choices, qualities, video_top1
from hwbench.deploy.clips import Clips
from hwbench.deploy.manifest import BlockQuality, Quantization
from hwbench.deploy.original import Original
from hwbench.deploy.progress import Progress, Watch
from hwbench.runtimes.base import Runtime

PTQ, QAT = "ptq", "qat"


@dataclass(frozen=True)
class DeployForm:
    """A deploy form, one input (T, 3, H, W) for it, and the calibration inputs of that shape."""

    deployed: nn.Module
    example: torch.Tensor
    inputs: Sequence[torch.Tensor]


@dataclass
class Int8Plan:
    """The ways to quantise a network, the wanted one first, each as a record for the manifest and as an engine.

    Attributes:
        original: The network.
        form: Its deploy form; left as it is.
        int8: What is asked for.
        validation: Labelled clips, where a loss is limited.
        watch: Told about the stage ``blocks``.
        runtime: Engine of the file; any but ExecuTorch quantises in its own way.
    """

    original: Original
    form: DeployForm
    int8: Int8
    validation: Clips | None
    watch: Watch
    runtime: Runtime

    def attempts(self) -> Iterator[Quantization]:
        """What to try, one after the other, while the file loses too much: more and more blocks in fp32."""
        tuned, int8 = self.original.fine_tuned, self.int8
        if not self._ours:
            yield Quantization(PTQ, None)
        elif tuned is not None:
            yield Quantization(QAT, None, tuned.fp32_blocks)
        elif int8.max_loss is not None:
            yield from self._keeping(int8.max_loss)
        else:
            found = self._qualities() if int8.inspect else ()
            yield Quantization(PTQ, int8.observer, int8.fp32_blocks, found)

    def engine(self, quantization: Quantization) -> Runtime:
        """The runtime, quantising in this way."""
        if not self._ours:
            return self.runtime
        from hwbench.runtimes.executorch import ExecuTorch
        from hwbench.runtimes.executorch.quiet import quiet

        tuned = self.original.fine_tuned
        if tuned is not None:
            return ExecuTorch(lambda *_: tuned.converted())
        ExecuTorch().version()
        with quiet():
            from hwbench.runtimes.executorch.quantize import converted, quantized
            from hwbench.runtimes.executorch.scheme import Scheme
        if not quantization.fp32_blocks and "_observed" in vars(self):
            return ExecuTorch(lambda *_: converted(copy.deepcopy(self._observed)))
        scheme = Scheme(self.int8.observer, quantization.fp32_blocks)
        return ExecuTorch(partial(quantized, scheme=scheme))

    @property
    def _ours(self) -> bool:
        return self.runtime.name == "executorch"

    def _keeping(self, max_loss: float) -> Iterator[Quantization]:
        assert self.validation is not None
        from hwbench.models import fold

        clips, rounding, found = self.validation, self._rounding, self._qualities()
        least = video_top1(self.original.module, clips) - max_loss
        scores: list[float] = []

        def score() -> float:
            scores.append(video_top1(lambda view: rounding(fold(view).contiguous()), clips))
            self.watch(Progress("blocks", len(scores), None))
            return scores[-1]

        for kept in choices(rounding, found, score, least):
            yield Quantization(PTQ, self.int8.observer, kept, found, max_loss, scores[0])

    def _qualities(self) -> tuple[BlockQuality, ...]:
        return qualities(self._rounding, self.form.inputs, lambda done, all: self.watch(Progress("blocks", done, all)))

    @cached_property
    def _observed(self) -> Any:
        """The calibrated graph, every block with observers."""
        from hwbench.runtimes.executorch.quiet import quiet

        with quiet():
            from hwbench.runtimes.executorch.quantize import observed
            from hwbench.runtimes.executorch.scheme import Scheme

            deployed = copy.deepcopy(self.form.deployed).eval()
            return observed(deployed, self.form.example, self.form.inputs, Scheme(self.int8.observer))

    @cached_property
    def _rounding(self) -> Any:
        from hwbench.runtimes.executorch.rounding import Rounding

        return Rounding(self._observed, block_names(self.form.deployed))
