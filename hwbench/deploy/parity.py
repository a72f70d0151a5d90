"""Whether a deployed file computes what the original computes, and what that does to the accuracy.

Both see the same clips in one pass. What is asked of them:

* The deploy form in double precision: no logit differs by more than 1e-9 of the largest.
* The deploy form in eager fp32 and an fp32 file: no logit differs by more than 0.1 % of the largest logit of all
  clips. Sums in another order make about 0.0001 %; a wrong tap, a lost frame or a badly folded batch norm makes
  percents. Within that bound the highest logit may only change places with one that equals it to 0.2 %, so agreement
  in top-1 is reported and not asked for again.
* A file in fp16 or bf16: an SQNR of at least 40 or 30 dB. Rounding to 11 and to 8 bits of mantissa gives
  50 to 70 and 40 to 50 dB; a value beyond the range of fp16 gives infinity, and no agreement at all.
* An int8 file: an SQNR of at least 10 dB, the noise a tenth of the signal. Per-channel int8 of healthy networks gives
  15 to 35 dB; near 10 top-1 begins to suffer, and near 0 the file says nothing about the original any more.
* With random weights int8 and 16-bit files have to reach 3 dB: what is asked of the arithmetic is that it computes this
  network and no other. Random layers behind batch norms amplify any difference, by about 1 dB each: of X3D-XS in fp16
  no block alone is below 61 dB, all 29 together are at 32. That says nothing about a trained network (experiment 026).
* The clips change the answers of a file as they change those of the original. Most of the power of logits is what they
  have in common for all clips, so a file that ignores its input may reach 25 dB. Without the means over the clips its
  SQNR is 0 dB or below, and there is nothing left of its logits: a file below fp32 whose logits vary by 10 dB less than
  those of the original is refused with any weights, as long as the original varies by more than -30 dB, some steps of
  int8. With trained weights a centred SQNR of 3 dB is asked for on clips of videos, as long as the original varies by
  more than -20 dB: honest int8 files of barely trained networks had 16 to 27 dB there. On noise, which ranges were not
  taken from, they had 6 to 10 dB, and X3D-XS with random weights had 3 dB on the very clips of its calibration: what
  such clips cannot prove is told and not refused.
* After quantisation-aware training the bounds are about the network with the rounding in it, of which the file is made.
  What is reported is how far the file is from the fp32 network that the training started from. Weights move on purpose,
  so an SQNR below 10 dB there is told and not refused.
* All logits are finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import nn

from hwbench.blocks.double_precision import doubled, fixed_dtype_refused
from hwbench.data import VideoList
from hwbench.data.video_scores import VideoScores, averaged
from hwbench.deploy.manifest_records import Accuracy, ParityRecord
from hwbench.errors import CheckFailed, ParityFailed
from hwbench.runtimes.runners import FloatArray
from hwbench.specs import Precision

MAX_FP64_ERROR = 1e-9
MAX_RELATIVE_ERROR = 1e-3
MIN_SQNR_DB = 10.0
# Of 16-bit floating numbers, with trained weights.
MIN_HALF_SQNR_DB = {Precision.FP16: 40.0, Precision.BF16: 30.0}
MIN_SQNR_RANDOM_DB = 3.0
MIN_CENTRED_SQNR_DB = 3.0
# Power of an original's logits about their means over the clips, as a share of all: below the first a centred SQNR says
# more about the clips than about a file, below the second a healthy int8 file may round all of it away.
MIN_VARIATION_DB = -20.0
MIN_ROUNDED_VARIATION_DB = -30.0
# Of what the clips change in the logits of the original, by power, a file has to keep.
MAX_VARIATION_LOSS_DB = 10.0
# float32 has 24 bits of mantissa, 144 dB; no difference at all is reported as this.
EXACT_DB = 150.0

# The source of clips that are no videos.
NOISE = "noise"

Run = Callable[[FloatArray], FloatArray]


class Views(Protocol):
    """Clips to compare on; ``hwbench.deploy.clips.Clips`` is one."""

    def __len__(self) -> int: ...

    def views(self) -> Iterator[tuple[int, torch.Tensor]]:
        """(index of the video, float32 (1, 3, T, H, W)) in order."""


@dataclass
class OutputComparison:
    """Logits of the original and of the file, clip by clip; both (views, classes), videos by index.

    ``start`` are those of the network that quantisation-aware training started from, where there was one.
    """

    before: list[torch.Tensor] = field(default_factory=list)
    after: list[torch.Tensor] = field(default_factory=list)
    videos: list[int] = field(default_factory=list)
    start: list[torch.Tensor] = field(default_factory=list)

    def add(self, video: int, before: torch.Tensor, after: torch.Tensor, start: torch.Tensor | None = None) -> None:
        """Takes the logits (1, classes) of one view.

        Raises:
            CheckFailed: One is not finite.
        """
        _check_finite("original module", before)
        _check_finite("exported file", after)
        self.before.append(before.double())
        self.after.append(after.double())
        self.videos.append(video)
        if start is not None:
            self.start.append(start.double())

    def parity(self, source: str, deploy_form: DeployFormError) -> ParityRecord:
        """How far the file is from the original; after quantisation-aware training from what that started from."""
        record = self.lowering(source, deploy_form)
        if not self.start:
            return record
        return replace(_record(self.start, self.after, source, deploy_form), rounding_sqnr_db=record.sqnr_db)

    def lowering(self, source: str, deploy_form: DeployFormError) -> ParityRecord:
        """How far the file is from the module that it was made of: what ``check_parity`` holds it against.

        After quantisation-aware training this module has the rounding in it. Its weights moved on purpose, and no bound
        says how far they may.
        """
        return _record(self.before, self.after, source, deploy_form)

    def accuracy(self, videos: VideoList, views: int, source: str) -> Accuracy:
        """What both are worth on the videos that were run."""
        before = judged(self.start or self.before, self.videos, videos)
        after = judged(self.after, self.videos, videos)
        found = Accuracy(before.top(1), after.top(1), len(before.videos), views, source)
        if not videos.multi_label:
            return found
        precisions = before.mean_average_precision(), after.mean_average_precision()
        return replace(found, mean_ap_before=precisions[0], mean_ap_after=precisions[1])


def _record(
    original: Sequence[torch.Tensor], file: Sequence[torch.Tensor], source: str, deploy_form: DeployFormError
) -> ParityRecord:
    """Of the logits (1, classes) of an original and of a file, view by view."""
    before, after = torch.cat([*original]), torch.cat([*file])
    difference = (before - after).abs()
    record = ParityRecord(
        source=source,
        inputs=len(before),
        deploy_form_error=deploy_form.fp32,
        fp64_error=deploy_form.fp64,
        max_abs_error=difference.max().item(),
        mean_abs_error=difference.mean().item(),
        max_relative_error=relative_error(before, after),
        sqnr_db=sqnr_db(before, after),
        same_top1=same_top1(before, after),
        top1_classes=len({*before.argmax(1).tolist()}),
    )
    if len(before) < 2:
        return record
    return replace(
        record,
        centred_sqnr_db=centred_sqnr_db(before, after),
        variation_db=variation_db(before),
        file_variation_db=variation_db(after, before),
    )


def _check_finite(name: str, logits: torch.Tensor) -> None:
    if not torch.isfinite(logits).all():
        raise CheckFailed(
            f"the logits of the {name} are not finite numbers; its weights are damaged, or a value is beyond "
            "65504, the largest of fp16: export --precision fp32"
        )


def judged(logits: Sequence[torch.Tensor], seen: Sequence[int], videos: VideoList) -> VideoScores:
    """Scores of videos from the logits (1, classes) of their views; view ``i`` is of video ``seen[i]``.

    Views of a video are averaged as probabilities: by a softmax, or by a sigmoid where it may show several classes.
    """
    rows, stacked = torch.tensor(seen), torch.cat([*logits]).double()
    probabilities = stacked.sigmoid() if videos.multi_label else stacked.softmax(1)
    sums = torch.zeros(len(videos), probabilities.shape[1], dtype=torch.float64)
    sums.index_add_(0, rows, probabilities)
    return averaged(videos, sums, torch.bincount(rows, minlength=len(videos)))


def compare(
    module: nn.Module,
    run: Run,
    clips: Views,
    progress: Callable[[int, int], None],
    start: nn.Module | None = None,
) -> OutputComparison:
    """Runs the original and the file on every view.

    Args:
        module: (1, 3, T, H, W) -> logits (1, classes), in eval mode.
        run: The file: (T, 3, H, W) -> logits (1, classes).
        clips: What to run on.
        progress: Told (views done, views in all).
        start: As ``module``: what quantisation-aware training started from.
    """
    from hwbench.models import frames_to_batch

    result = OutputComparison()
    with torch.inference_mode():
        for video, view in clips.views():
            after = torch.from_numpy(run(frames_to_batch(view).contiguous().numpy()).copy())
            # A module may change its input in place.
            result.add(video, module(view.clone()), after, None if start is None else start(view.clone()))
            progress(len(result.videos), len(clips))
    return result


@dataclass(frozen=True)
class DeployFormError:
    """Largest difference of the deploy form from the original, as a share of the largest logit, in both precisions."""

    fp32: float
    fp64: float


def check_deploy_form(
    module: nn.Module, deploy: Callable[[nn.Module], nn.Module], view: torch.Tensor
) -> tuple[nn.Module, DeployFormError]:
    """The deploy form of a module, and its error on a clip (1, 3, T, H, W) before anything is lowered.

    Raises:
        CheckFailed: A logit of the module is not finite: its weights are damaged.
        ParityFailed: The error is above a bound.
        UnsupportedModule: The module cannot be copied, or its forward fixes a dtype.
    """
    from hwbench.models import frames_to_batch

    with torch.inference_mode():
        original = module(view.clone())  # a module may change its input in place
    # Not finite numbers differ from anything, which is no defect of the deploy form.
    _check_finite("original module", original)
    deployed, precise = deploy(module), doubled(module)
    exact = deploy(precise)
    with torch.inference_mode():
        fp32 = relative_error(original.double(), deployed(frames_to_batch(view.clone())).double())
    with torch.inference_mode(), fixed_dtype_refused(module, (view,)):
        fp64 = relative_error(precise(view.double()), exact(frames_to_batch(view.double())))
    for name, error, bound in (("", fp32, MAX_RELATIVE_ERROR), (" in double precision", fp64, MAX_FP64_ERROR)):
        if not error <= bound:
            raise ParityFailed(
                f"the deploy form differs from the original{name} by {error:.2g} of its largest logit, allowed are "
                f"{bound:g}; nothing was written. Please report the architecture, this is a defect of hwbench"
            )
    return deployed, DeployFormError(fp32, fp64)


def check_parity(parity: ParityRecord, precision: Precision, *, trained: bool) -> None:
    """Holds a file against the bounds above.

    Raises:
        ParityFailed: It is outside.
    """
    _check_error(parity, precision, trained=trained)
    if precision is Precision.FP32 or parity.variation_db is None:
        return  # one clip shows no difference between clips
    assert parity.centred_sqnr_db is not None
    assert parity.file_variation_db is not None
    if ignores_input(parity.variation_db, parity.file_variation_db):
        raise ParityFailed(
            f"the {precision} file answers {parity.inputs} different clips alike: its logits vary by "
            f"{parity.file_variation_db:.1f} dB, those of the fp32 original by {parity.variation_db:.1f} dB; nothing "
            "was written. Calibrate with videos like those the model will see (--calibrate DATA), or export "
            "--precision fp32"
        )
    if _is_centred_judged(parity, precision, trained=trained) and not parity.centred_sqnr_db >= MIN_CENTRED_SQNR_DB:
        raise ParityFailed(
            f"the {precision} file has an SQNR of {parity.centred_sqnr_db:.1f} dB against the fp32 original in what "
            f"tells clips apart, expected at least {MIN_CENTRED_SQNR_DB:g} dB; nothing was written. Calibrate with "
            "more clips (--calibration-clips) or with videos like those the model will see (--calibrate DATA), or "
            "export --precision fp32"
        )


def doubts(parity: ParityRecord, *, trained: bool) -> tuple[str, ...]:
    """Why the clips prove little about a file, in words."""
    if parity.variation_db is None or parity.centred_sqnr_db is None:
        return ("one clip proves little: a file that ignores its input would give the same",)
    reasons = []
    vary = parity.source != NOISE and parity.variation_db >= MIN_VARIATION_DB
    apart = vary and parity.centred_sqnr_db < MIN_CENTRED_SQNR_DB
    if parity.rounding_sqnr_db is not None and (parity.sqnr_db < MIN_SQNR_DB or apart):
        reasons.append(
            f"training with the rounding of int8 moved the network far from what it started from (SQNR "
            f"{parity.sqnr_db:.1f} dB, {parity.centred_sqnr_db:.1f} dB in what tells clips apart); that it still does "
            "what it did is for top-1 to say"
        )
    elif parity.centred_sqnr_db < MIN_CENTRED_SQNR_DB:
        cause = "noise" if trained else "random weights"
        if parity.variation_db < MIN_VARIATION_DB:
            cause = f"the network itself hardly tells them apart, its logits vary by {parity.variation_db:.1f} dB"
        reasons.append(
            f"these clips prove little ({cause}): in what tells them apart the file has an SQNR of "
            f"{parity.centred_sqnr_db:.1f} dB against the original"
        )
    # Of random weights, and on noise, nobody asks for a top-1.
    if parity.top1_classes == 1 and trained and parity.source != NOISE:
        reasons.append(
            f"top-1 proves little: the highest logit of the original is that of one class for all {parity.inputs} clips"
        )
    return tuple(reasons)


def ignores_input(variation_db: float, file_variation_db: float) -> bool:
    """Whether what clips change in the logits is lost in a file, where rounding alone cannot lose it."""
    return variation_db >= MIN_ROUNDED_VARIATION_DB and file_variation_db < variation_db - MAX_VARIATION_LOSS_DB


def _is_centred_judged(parity: ParityRecord, precision: Precision, *, trained: bool) -> bool:
    """Whether a centred SQNR under the bound is the fault of the file, and not of the clips or of random weights."""
    assert parity.variation_db is not None
    of_videos = parity.source != NOISE
    return trained and of_videos and precision is not Precision.FP32 and parity.variation_db >= MIN_VARIATION_DB


def _check_error(parity: ParityRecord, precision: Precision, *, trained: bool) -> None:
    """Holds errors and SQNR of a file against the bounds of its precision."""
    if precision is Precision.FP32:
        if not parity.max_relative_error <= MAX_RELATIVE_ERROR:
            raise ParityFailed(
                f"the fp32 file differs from the original by {parity.max_relative_error:.2g} of its largest logit, "
                f"allowed are {MAX_RELATIVE_ERROR:g}; nothing was written. Try another --variant"
            )
        return
    if precision in MIN_HALF_SQNR_DB:
        least = least_half_sqnr_db(precision, trained=trained)
        if not parity.sqnr_db >= least:
            raise ParityFailed(
                f"the {precision} file has an SQNR of {parity.sqnr_db:.1f} dB against the fp32 original, expected at "
                f"least {least:g} dB; nothing was written. Its values need more bits: export --precision fp32"
            )
        return
    least = least_sqnr_db(trained=trained)
    if not parity.sqnr_db >= least:
        raise ParityFailed(
            f"the int8 file has an SQNR of {parity.sqnr_db:.1f} dB against the fp32 original, expected at least "
            f"{least:g} dB; nothing was written. Calibrate with more clips (--calibration-clips) or with videos like "
            "those the model will see (--calibrate DATA), or export --precision fp32"
        )


def least_sqnr_db(*, trained: bool) -> float:
    """SQNR in dB that an int8 file has to reach."""
    return MIN_SQNR_DB if trained else MIN_SQNR_RANDOM_DB


def least_half_sqnr_db(precision: Precision, *, trained: bool) -> float:
    """SQNR in dB that a file in fp16 or bf16 has to reach."""
    return MIN_HALF_SQNR_DB[precision] if trained else MIN_SQNR_RANDOM_DB


def same_top1(before: torch.Tensor, after: torch.Tensor) -> float:
    """Share of rows (views, classes) with the same highest logit."""
    return (before.argmax(1) == after.argmax(1)).double().mean().item()


def relative_error(before: torch.Tensor, after: torch.Tensor) -> float:
    """Largest absolute difference as a share of the largest absolute value; 0 where both are 0 everywhere."""
    difference, largest = (before - after).abs().max().item(), before.abs().max().item()
    if not difference:
        return 0.0
    return difference / largest if largest else math.inf


def sqnr_db(before: torch.Tensor, after: torch.Tensor) -> float:
    """Power of ``before`` over the power of the difference, in dB, at most ``EXACT_DB``."""
    return noise_db(before.square().sum().item(), (before - after).square().sum().item())


def centred_sqnr_db(before: torch.Tensor, after: torch.Tensor) -> float:
    """SQNR in dB of logits (clips, ...) without their means over the clips; 0 where ``before`` does not vary."""
    if variation_db(before) == -EXACT_DB:
        return 0.0
    return sqnr_db(_centred(before), _centred(after))


def variation_db(logits: torch.Tensor, whole: torch.Tensor | None = None) -> float:
    """Power in dB of logits (clips, ...) about their means over the clips, over the power of all of ``whole``.

    Args:
        logits: Whose variation is asked for.
        whole: What it is a share of; default: the logits.
    """
    power = (logits if whole is None else whole).square().sum().item()
    centred = _centred(logits).square().sum().item()
    if not centred:
        return -EXACT_DB
    return max(-EXACT_DB, noise_db(centred, power))


def _centred(logits: torch.Tensor) -> torch.Tensor:
    return logits - logits.mean(0, keepdim=True)


def noise_db(signal: float, noise: float) -> float:
    """Power of a signal over that of its noise in dB, at most ``EXACT_DB``."""
    if noise == 0:
        return EXACT_DB
    return min(EXACT_DB, 10 * math.log10(signal / noise)) if signal else -EXACT_DB
