"""Whether an exported file computes on a device what it computes on this machine.

The same file gets the same seeded inputs on both. Engines differ in the order of sums and in the rounding of products:
an fp32 file may differ by 0.1 % of its largest logit, an int8 file by noise of 20 dB below the logits, which is a
third of what quantisation itself may cost. A file in fp16 or bf16 may differ by as much noise as from the original:
with random weights, which amplify the rounding of any two engines, it only has to be this network.

Most of the power of logits is what they have in common for all clips. Without their means over the clips, files below
fp32 may differ by noise of 10 dB below what is left, where the clips change the answers here by more than -20 dB; and a
device whose answers vary by 10 dB less than those here ignores its input. Clips that the file itself hardly tells apart
prove little, which is told.

A stream gets clips frame by frame, its states handed on by each side for itself, and the answers behind every frame are
compared. A clip is twice as long as the windows that the export was checked over, so that half of the answers lie
beyond the window; every clip begins anew with zeros. The bound holds for the answers behind each frame by themselves:
over all frames of an int8 file that forgets its states once, the noise would be 20 dB below the logits again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from hwbench.deploy.manifest import DeployedModel, Manifest
from hwbench.deploy.manifest_records import StreamRecord
from hwbench.deploy.model_process import served
from hwbench.deploy.noise import as_pixels
from hwbench.deploy.parity import (
    MAX_RELATIVE_ERROR,
    MIN_HALF_SQNR_DB,
    MIN_VARIATION_DB,
    centred_sqnr_db,
    ignores_input,
    relative_error,
    same_top1,
    sqnr_db,
    variation_db,
)
from hwbench.errors import CheckFailed
from hwbench.measure.artifact_check import check_artifact
from hwbench.measure.bench import Bench
from hwbench.specs import Precision

MIN_DEVICE_SQNR_DB = 20.0
MIN_DEVICE_CENTRED_SQNR_DB = 10.0
# Windows of a stream in one clip: the second shows what a stream does that nobody lets begin anew.
STREAM_WINDOWS = 2
# A stream with a longer memory is not followed to its end: 128 frames of 224 x 224 are 77 MB on the device.
MAX_STREAM_FRAMES = 128
# For loading and as many frames as a clip has.
_CLIP_LIMIT_S = 120.0


@dataclass(frozen=True)
class Verification:
    """Logits of a device against those of this machine, over ``inputs`` clips of noise; as ``ParityRecord``.

    Attributes:
        frames: Answers to each clip: of a stream one behind each frame, of other files 1.
        differs_from: The first frame (1, 2, ...) behind which the answers differ by more than they may; None where the
            device agrees, and of files that are no stream.
        max_relative_error: Largest difference as a share of the largest logit here; infinite where these are all 0.
        reasons: Why the clips prove little, in words.
    """

    inputs: int
    frames: int
    differs_from: int | None
    max_abs_error: float
    mean_abs_error: float
    max_relative_error: float
    sqnr_db: float
    same_top1: float
    agrees: bool
    centred_sqnr_db: float | None
    variation_db: float | None
    reasons: tuple[str, ...]


def verify(
    model: DeployedModel, bench: Bench, *, inputs: int = 8, seed: int = 0, progress: Callable[[int, int], None]
) -> Verification:
    """Runs a file on a device and here.

    Args:
        model: The file, its digest checked (``DeployedModel.open``).
        bench: The device.
        inputs: Clips of normal noise, normalised as pixels are; those for a stream have ``stream_frames`` frames.
        seed: Of the noise.
        progress: Told (clips done, clips in all).

    Raises:
        InvalidFile: The file does not load there.
        CheckFailed: It does not run, on the device or here, or gives numbers that are not finite.
        DeviceError: The device went away.
    """
    stream, form = model.manifest.stream, model.manifest.input
    frames = stream_frames(stream) if stream else 1
    limit_s = _CLIP_LIMIT_S * (frames / stream.checked_frames if stream else 1)
    chance = np.random.default_rng(seed)
    here, there = [], []
    with served(model.path, window=frames) as file:
        shape = (frames, *file.input_shape[1:]) if stream else file.input_shape
        for done in range(inputs):
            noise = torch.from_numpy(chance.standard_normal(shape).astype(np.float32))
            values = as_pixels(noise, form.mean, form.std).numpy()
            here.append(torch.from_numpy(np.concatenate(file.answers(values) if stream else [file(values)])))
            output = check_artifact(model.path, values, bench=bench, timeout_s=limit_s).output
            there.append(torch.from_numpy(output.copy()))
            _check_answer(here[-1], there[-1])
            progress(done + 1, inputs)
    return _compared(torch.stack(here).double(), torch.stack(there).double(), _Bound.of(model.manifest), bool(stream))


def stream_frames(stream: StreamRecord) -> int:
    """Frames of a clip that a stream is verified on: two windows, or twice its memory where that is longer."""
    return min(STREAM_WINDOWS * max(stream.checked_frames, stream.remembers or 0), MAX_STREAM_FRAMES)


def _check_answer(here: torch.Tensor, there: torch.Tensor) -> None:
    if here.shape != there.shape or not bool(torch.isfinite(there).all()):
        raise CheckFailed(
            f"the device gives {tuple(there.shape)} logits, not all finite numbers, this machine {tuple(here.shape)}"
        )


def _compared(here: torch.Tensor, there: torch.Tensor, bound: _Bound, is_stream: bool) -> Verification:
    """Both (clips, answers to each, classes)."""
    apart = [at for at in range(here.shape[1]) if not bound.holds(here[:, at], there[:, at])]
    difference, rows = (here - there).abs(), (here.flatten(0, 1), there.flatten(0, 1))
    return Verification(
        inputs=here.shape[0],
        frames=here.shape[1],
        differs_from=apart[0] + 1 if is_stream and apart else None,
        max_abs_error=difference.max().item(),
        mean_abs_error=difference.mean().item(),
        max_relative_error=relative_error(here, there),
        sqnr_db=sqnr_db(here, there),
        same_top1=same_top1(*rows),
        agrees=not apart,
        centred_sqnr_db=centred_sqnr_db(here, there) if len(here) > 1 else None,
        variation_db=variation_db(here) if len(here) > 1 else None,
        reasons=_doubts(here, there),
    )


@dataclass(frozen=True)
class _Bound:
    """How far two engines may be apart: by an SQNR in dB; None: by the error that fp32 may have."""

    least_db: float | None

    @classmethod
    def of(cls, manifest: Manifest) -> _Bound:
        precision = manifest.precision
        if precision is Precision.FP32:
            return cls(None)
        if precision in MIN_HALF_SQNR_DB:
            return cls(MIN_HALF_SQNR_DB[precision] if manifest.weights.trained else MIN_DEVICE_SQNR_DB)
        return cls(MIN_DEVICE_SQNR_DB)

    def holds(self, here: torch.Tensor, there: torch.Tensor) -> bool:
        if self.least_db is None:
            return relative_error(here, there) <= MAX_RELATIVE_ERROR
        return sqnr_db(here, there) >= self.least_db and _tells_clips_apart(here, there)


def _doubts(here: torch.Tensor, there: torch.Tensor) -> tuple[str, ...]:
    """Why the clips prove little, in words; both (clips, answers to each, classes)."""
    if len(here) < 2:
        return ("one clip proves little: a device that ignores its input would give the same; --inputs 8",)
    varies, centred = variation_db(here), centred_sqnr_db(here, there)
    if varies >= MIN_VARIATION_DB or centred >= MIN_DEVICE_CENTRED_SQNR_DB:
        return ()
    return (
        f"these clips prove little (the file itself hardly tells them apart, its logits vary by {varies:.1f} dB): in "
        f"what tells them apart the SQNR is {centred:.1f} dB",
    )


def _tells_clips_apart(here: torch.Tensor, there: torch.Tensor) -> bool:
    """Whether the clips change the answers (clips, classes) of a device as they change those here."""
    if len(here) < 2:
        return True
    varies = variation_db(here)
    if ignores_input(varies, variation_db(there, here)):
        return False
    return varies < MIN_VARIATION_DB or centred_sqnr_db(here, there) >= MIN_DEVICE_CENTRED_SQNR_DB
