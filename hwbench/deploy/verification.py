"""Whether an exported file computes on a device what it computes on this machine.

The same file gets the same seeded inputs on both. Engines differ in the order of sums and in the rounding of products:
an fp32 file may differ by 0.1 % of its largest logit, an int8 file by noise of 20 dB below the logits, which is a
third of what quantisation itself may cost. A file in fp16 or bf16 may differ by as much noise as from the original.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from hwbench.deploy.manifest import DeployedModel
from hwbench.deploy.model_process import served
from hwbench.deploy.parity import MAX_RELATIVE_ERROR, MIN_HALF_SQNR_DB, relative_error, same_top1, sqnr_db
from hwbench.errors import CheckFailed
from hwbench.measure.artifact_check import check_artifact
from hwbench.measure.bench import Bench
from hwbench.specs import Precision

MIN_DEVICE_SQNR_DB = 20.0


@dataclass(frozen=True)
class Verification:
    """Logits of a device against those of this machine, over ``inputs`` clips of noise; as ``ParityRecord``."""

    inputs: int
    max_abs_error: float
    mean_abs_error: float
    max_relative_error: float
    sqnr_db: float
    same_top1: float
    agrees: bool


def verify(
    model: DeployedModel, bench: Bench, *, inputs: int = 8, seed: int = 0, progress: Callable[[int, int], None]
) -> Verification:
    """Runs a file on a device and here.

    Args:
        model: The file, its digest checked (``DeployedModel.open``).
        bench: The device.
        inputs: Clips of normal noise.
        seed: Of the noise.
        progress: Told (clips done, clips in all).

    Raises:
        InvalidFile: The file does not load there.
        CheckFailed: It does not run, on the device or here, or gives numbers that are not finite.
        DeviceError: The device went away.
    """
    chance = np.random.default_rng(seed)
    here, there = [], []
    with served(model.path, window=1) as file:
        for done in range(inputs):
            values = chance.standard_normal(file.input_shape).astype(np.float32)
            here.append(torch.from_numpy(file(values).copy()).double())
            output = check_artifact(model.path, values, bench=bench).output
            there.append(torch.from_numpy(output.copy()).double())
            progress(done + 1, inputs)
    return _compared(torch.cat(here), torch.cat(there), model.manifest.precision)


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
