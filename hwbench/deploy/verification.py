"""Whether an exported file computes on a device what it computes on this machine.

The same file gets the same seeded inputs on both. A stream gets films twice as long as the clips of its network. It is
asked behind the first frame, behind a clip and behind the whole film, with the states that all frames before left.
Engines differ in the order of sums and in the rounding of products:
an fp32 file may differ by 0.1 % of its largest logit, an int8 file by noise of 20 dB below the logits, which is a
third of what quantisation itself may cost. A file in fp16 or bf16 may differ by as much noise as from the original.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from hwbench.deploy.manifest import DeployedModel
from hwbench.deploy.model_process import ServedModel, served
from hwbench.deploy.parity import MAX_RELATIVE_ERROR, MIN_HALF_SQNR_DB, relative_error, same_top1, sqnr_db
from hwbench.errors import CheckFailed
from hwbench.measure.artifact_check import check_artifact
from hwbench.measure.bench import Bench
from hwbench.runtimes.runners import FloatArray
from hwbench.specs import Precision

MIN_DEVICE_SQNR_DB = 20.0


@dataclass(frozen=True)
class Verification:
    """Logits of a device against those of this machine, over ``inputs`` clips of noise; as ``ParityRecord``.

    ``frames``: Of a stream, the frames behind which it was asked, each time from zeros on; empty of a file of clips.
    """

    inputs: int
    max_abs_error: float
    mean_abs_error: float
    max_relative_error: float
    sqnr_db: float
    same_top1: float
    agrees: bool
    frames: tuple[int, ...] = ()


def verify(
    model: DeployedModel, bench: Bench, *, inputs: int = 8, seed: int = 0, progress: Callable[[int, int], None]
) -> Verification:
    """Runs a file on a device and here.

    Args:
        model: The file, its digest checked (``DeployedModel.open``).
        bench: The device.
        inputs: Clips of normal noise, of a stream films.
        seed: Of the noise.
        progress: Told (clips done, clips in all).

    Raises:
        InvalidFile: The file does not load there.
        CheckFailed: It does not run, on the device or here, or gives numbers that are not finite.
        DeviceError: The device went away.
    """
    chance, frames = np.random.default_rng(seed), asked_behind(model)
    here, there = [], []
    with served(model.path, window=max(frames, default=0)) as file:
        for done in range(inputs):
            shape = (max(frames), *file.input_shape[1:]) if frames else file.input_shape
            values = chance.standard_normal(shape).astype(np.float32)
            here += _answers(file, values, frames)
            for count in frames or (len(values),):
                output = check_artifact(model.path, values[:count], bench=bench).output
                there.append(torch.from_numpy(output.copy()).double())
            progress(done + 1, inputs)
    compared = _compared(torch.cat(here), torch.cat(there), model.manifest.precision)
    return replace(compared, inputs=inputs, frames=frames)


def asked_behind(model: DeployedModel) -> tuple[int, ...]:
    """The frames of a film behind which a stream is asked: the first, those of a clip, and twice as many; of a file of
    clips none."""
    stream = model.manifest.stream
    return () if stream is None else tuple(sorted({1, stream.checked_frames, 2 * stream.checked_frames}))


def _answers(file: ServedModel, values: FloatArray, frames: tuple[int, ...]) -> list[torch.Tensor]:
    """What this machine gives for a clip, or behind some frames of a film, whose states are handed on."""
    if not frames:
        return [torch.from_numpy(file(values).copy()).double()]
    given = [torch.from_numpy(file(values[at : at + 1]).copy()).double() for at in range(len(values))]
    return [given[count - 1] for count in frames]


def _compared(here: torch.Tensor, there: torch.Tensor, precision: Precision) -> Verification:
    if here.shape != there.shape or not bool(torch.isfinite(there).all()):
        raise CheckFailed(
            f"the device gives {tuple(there.shape)} logits, not all finite numbers, this machine {tuple(here.shape)}"
        )
    difference, relative, noise = (here - there).abs(), relative_error(here, there), sqnr_db(here, there)
    least = MIN_HALF_SQNR_DB.get(precision, MIN_DEVICE_SQNR_DB)
    agrees = relative <= MAX_RELATIVE_ERROR if precision is Precision.FP32 else noise >= least
    return Verification(
        inputs=len(here),
        max_abs_error=difference.max().item(),
        mean_abs_error=difference.mean().item(),
        max_relative_error=relative,
        sqnr_db=noise,
        same_top1=same_top1(here, there),
        agrees=agrees,
    )
