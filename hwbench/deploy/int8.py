"""How one network becomes int8: all of it, all but some blocks, or as it was trained."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import nn

from hwbench.blocks.streaming import Replayed, StreamForm
from hwbench.deploy.blocks import Answers, Int8, block_names, choices, qualities
from hwbench.deploy.clips import Clips
from hwbench.deploy.manifest_records import BlockQuality, QuantizationRecord
from hwbench.deploy.parity import EXACT_DB, least_sqnr_db, sqnr_db
from hwbench.deploy.progress import ExportProgress, Watch
from hwbench.deploy.source import ExportSource
from hwbench.deploy.streams import StreamInputs
from hwbench.errors import ParityFailed
from hwbench.runtimes.base import Runtime, version_of
from hwbench.runtimes.capabilities import Quantiser
from hwbench.runtimes.executorch.scheme import HISTOGRAM, OBSERVERS

PTQ, QAT = "ptq", "qat"
# Clips that observers are compared on, of those that the file will be; each is a pass in fp32 and one with rounding.
JUDGED_CLIPS = 16
# The file differs by so much from the graph that it is made of: the engine rounds products otherwise.
_LOWERING_DB = 1.0
# Blocks that a refusal names.
_NAMED_BLOCKS = 3


@dataclass(frozen=True)
class DeployForm:
    """A deploy form, one input (T, 3, H, W) for it, and the calibration inputs of that shape; of a stream form they
    are tuples of a frame and the states.
    """

    deployed: nn.Module
    example: torch.Tensor | tuple[torch.Tensor, ...]
    inputs: Sequence[torch.Tensor] | Sequence[tuple[torch.Tensor, ...]]

    def logits(self, clip: torch.Tensor, module: nn.Module | None = None) -> torch.Tensor:
        """What the form, or ``module`` in its place, gives for a clip (T, 3, H, W): logits (1, classes)."""
        if isinstance(self.deployed, StreamForm):
            return Replayed(self.deployed, module)(clip)  # type: ignore[no-any-return]
        return (self.deployed if module is None else module)(clip)  # type: ignore[no-any-return]

    def clips(self, count: int) -> list[torch.Tensor]:
        """The first ``count`` calibration clips (T, 3, H, W), or all of fewer; also of a stream form."""
        if isinstance(self.inputs, StreamInputs):
            return self.inputs.first(count)
        return [*cast("Sequence[torch.Tensor]", self.inputs)[:count]]


@dataclass(frozen=True)
class Trial:
    """A network quantised by one observer: the observed graph, the module with rounding, and the SQNR of its logits."""

    graph: Any
    module: nn.Module
    sqnr_db: float


@dataclass
class Int8Plan:
    """The ways to quantise a network, the wanted one first, each as a record for the manifest and as an engine.

    Attributes:
        original: The network.
        form: Its deploy form; left as it is.
        int8: What is asked for.
        validation: Labelled clips, where a loss is limited.
        watch: Told about the stages ``blocks`` and ``observers``.
        runtime: Engine of the file; one without ``Quantiser.GRAPH`` quantises in its own way.
        judges: Clips (1, 3, T, H, W) that observers are compared on: of those that the file will be.
    """

    original: ExportSource
    form: DeployForm
    int8: Int8
    validation: Clips | None
    watch: Watch
    runtime: Runtime
    judges: Iterable[torch.Tensor] = ()

    def attempts(self) -> Iterator[QuantizationRecord]:
        """What to try, one after the other, while the file loses too much: more and more blocks in fp32.

        Raises:
            ParityFailed: No observer reaches the bound that the file will be held against, by more than it could gain.
        """
        tuned, int8 = self.original.fine_tuned, self.int8
        if not self._ours:
            yield QuantizationRecord(PTQ, None)
        elif tuned is not None:
            yield QuantizationRecord(QAT, None, tuned.fp32_blocks)
        elif int8.max_loss is not None:
            yield from self._keeping(int8.max_loss)
        else:
            found = self.blocks if int8.inspect else ()
            self._require_reachable()
            yield QuantizationRecord(PTQ, self.observer, int8.fp32_blocks, found, observers=self._compared)

    @contextmanager
    def naming_blocks(self) -> Iterator[None]:
        """A refusal names the blocks that int8 harms most, where blocks were looked at, and carries all of them."""
        try:
            yield
        except ParityFailed as error:
            if "blocks" not in vars(self):
                raise
            worst = sorted(self.blocks, key=lambda block: block.alone_db)[:_NAMED_BLOCKS]
            names = ", ".join(f"{block.name} {block.alone_db:.1f} dB" for block in worst)
            said = f"{error}. The SQNR of the logits is the lowest with one of these blocks alone in int8: {names}"
            raise ParityFailed(
                said, QuantizationRecord(PTQ, self.observer, self.int8.fp32_blocks, self.blocks)
            ) from error

    @cached_property
    def blocks(self) -> tuple[BlockQuality, ...]:
        """What int8 does to each block."""
        return qualities(
            self._rounding,
            cast("Sequence[torch.Tensor]", self.form.inputs),
            lambda done, all: self.watch(ExportProgress("blocks", done, all)),
        )

    def engine(self, quantization: QuantizationRecord) -> Runtime:
        """The runtime, quantising in this way."""
        if not self._ours:
            return self.runtime
        from hwbench.runtimes.executorch.quiet import quiet

        tuned = self.original.fine_tuned
        if tuned is not None:
            return self.runtime.quantising(lambda *_: tuned.converted())
        version_of(self.runtime)
        with quiet():
            from hwbench.runtimes.executorch.quantize import converted, quantized
            from hwbench.runtimes.executorch.scheme import Scheme
        trial = self._trials.get(self.observer)
        if trial is not None and quantization.fp32_blocks == self.int8.fp32_blocks:
            return self.runtime.quantising(lambda *_: trial.module)
        if not quantization.fp32_blocks and "_observed" in vars(self):
            return self.runtime.quantising(lambda *_: converted(copy.deepcopy(self._observed)))
        scheme = Scheme(self.observer, quantization.fp32_blocks)
        return self.runtime.quantising(partial(quantized, scheme=scheme))

    @cached_property
    def observer(self) -> str:
        """How ranges are found: as asked for, else by histograms, else by what reaches the best parity.

        Others than histograms are only tried where these are under the bound: each costs a calibration.
        """
        if self.int8.observer is not None:
            return self.int8.observer
        for count, name in enumerate(OBSERVERS):
            self.watch(ExportProgress("observers", count, None))
            self._trials[name] = self._trial(name)
            if name == HISTOGRAM and self._trials[name].sqnr_db >= self._least_db:
                break
        self.watch(ExportProgress("observers", len(self._trials), len(self._trials)))
        return max(self._trials, key=lambda name: self._trials[name].sqnr_db)

    @property
    def _compared(self) -> dict[str, float]:
        """Observer -> SQNR, where there was a choice."""
        return {name: trial.sqnr_db for name, trial in self._trials.items()} if len(self._trials) > 1 else {}

    @property
    def _least_db(self) -> float:
        return least_sqnr_db(trained=self.original.weights.trained)

    def _require_reachable(self) -> None:
        from hwbench.models import keeps_blocks

        best = self._trials.get(self.observer)
        if best is not None and best.sqnr_db < self._least_db - _LOWERING_DB:
            tried = ", ".join(f"{name} {trial.sqnr_db:.1f} dB" for name, trial in self._trials.items())
            names = "--blocks prints them" if keeps_blocks(self.original.module) else "a wrong name lists them"
            if isinstance(self.form.deployed, StreamForm):
                names = "--blocks without --streaming prints them"
            raise ParityFailed(
                f"int8 does not reach an SQNR of {self._least_db:g} dB against the fp32 original with any observer "
                f"({tried}); nothing was written. Calibrate with more clips (--calibration-clips) or with videos like "
                f"those the model will see (--calibrate DATA), leave blocks in fp32 (--fp32-block; {names}), or export "
                "--precision fp32"
            )

    @cached_property
    def _trials(self) -> dict[str, Trial]:
        """What was tried to choose an observer, by its name."""
        return {}

    def _trial(self, observer: str) -> Trial:
        """The network in int8 by one observer, before anything is lowered."""
        from hwbench.runtimes.executorch.quiet import quiet

        inputs, exact = self._judged
        with quiet(), torch.no_grad():
            from hwbench.runtimes.executorch.quantize import converted

            graph = self._graph(observer, self.int8.fp32_blocks)
            module = converted(copy.deepcopy(graph))
            rounded = torch.cat([self.form.logits(x, module) for x in inputs])
        found = sqnr_db(exact.double(), rounded.double()) if bool(rounded.isfinite().all()) else -EXACT_DB
        return Trial(graph, module, found)

    @cached_property
    def _judged(self) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Inputs (T, 3, H, W) to compare observers on, and the logits of the deploy form in fp32."""
        from hwbench.models import frames_to_batch

        inputs = [frames_to_batch(view).contiguous() for view in self.judges] or self.form.clips(JUDGED_CLIPS)
        with torch.no_grad():
            return inputs, torch.cat([self.form.logits(x) for x in inputs])

    def _graph(self, observer: str, fp32_blocks: tuple[str, ...] = ()) -> Any:
        from hwbench.runtimes.executorch.quiet import quiet

        with quiet():
            from hwbench.runtimes.executorch.quantize import observed
            from hwbench.runtimes.executorch.scheme import Scheme

            deployed = copy.deepcopy(self.form.deployed).eval()
            scheme = Scheme(observer, fp32_blocks)
            return observed(deployed, self.form.example, self.form.inputs, scheme)

    @property
    def _ours(self) -> bool:
        return self.runtime.capabilities.quantiser is Quantiser.GRAPH

    def _keeping(self, max_loss: float) -> Iterator[QuantizationRecord]:
        assert self.validation is not None
        from hwbench.models import frames_to_batch

        clips, rounding, found = self.validation, self._rounding, self.blocks
        exact = Answers.of(self.original.module, clips)
        least = exact.top1(clips) - max_loss
        scores: list[float] = []

        def score() -> float:
            """Top-1; below any where the file would be refused."""
            rounded = Answers.of(lambda view: rounding(frames_to_batch(view).contiguous()), clips)
            scores.append(rounded.top1(clips))
            self.watch(ExportProgress("blocks", len(scores), None))
            return scores[-1] if sqnr_db(exact.logits, rounded.logits) >= self._least_db else -math.inf

        for kept in choices(rounding, found, score, least):
            yield QuantizationRecord(PTQ, self.observer, kept, found, max_loss, scores[0], observers=self._compared)

    @cached_property
    def _observed(self) -> Any:
        """The calibrated graph, every block with observers."""
        trial = self._trials.get(self.observer)
        return self._graph(self.observer) if trial is None or self.int8.fp32_blocks else trial.graph

    @cached_property
    def _rounding(self) -> Any:
        from hwbench.runtimes.executorch.quiet import quiet

        with quiet():
            from hwbench.runtimes.executorch.rounding import Rounding

        return Rounding(self._observed, block_names(self.form.deployed))
