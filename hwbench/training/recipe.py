"""How a network is trained, as one value; two runs with the same recipe, data and network do the same steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from hwbench.errors import InvalidValue
from hwbench.registry import suggest
from hwbench.training import schedules
from hwbench.units import MOST_WHOLE

OPTIMIZERS = ("adamw", "lamb", "lars", "muon", "sgd")
PRECISIONS = ("bf16", "fp16", "fp32")
LOSSES = ("auto", "bce", "cross-entropy")
# What goes with an optimizer where nobody says it; of the others, the defaults of ``Recipe``.
USUAL: Mapping[str, Mapping[str, float]] = {
    "adamw": {"learning_rate": 1e-3, "momentum": 0.9},
    # Wightman et al. 2021 (arXiv:2110.00476), recipe A2
    "lamb": {"learning_rate": 5e-3, "momentum": 0.9, "weight_decay": 0.02},
    "lars": {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 5e-5},
    # Feichtenhofer 2020 (arXiv:2004.04730); the rate is that of small batches
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 5e-5},
}
# Names that ``freeze`` takes beside a number of blocks.
FREEZE = ("all-but-head", "stem")
MULTIGRIDS = ("long",)


@dataclass(frozen=True)
class Recipe:
    """Hyper-parameters of a training run; the defaults are for short runs of small networks on the synthetic set.

    A block is a part of the network as ``hwbench.training.parts.blocks_of`` lists them, from stem to head.

    Attributes:
        epochs: Passes over the training videos, one random clip of each per pass, or ``repeats``.
        batch_size: Clips per step, of all processes together.
        learning_rate: Peak rate. It rises linearly over ``warmup_share`` of all steps and falls along ``schedule``.
        optimizer: ``muon`` (``hwbench.training.muon``), ``sgd`` (Nesterov momentum) or ``adamw``; ``lamb`` or ``lars``
            of timm. Of short trainings Muon gives by far the best networks (experiments/031-recipes).
        momentum: Of Muon, SGD and LARS.
        weight_decay: On weights of two and more axes; biases and normalisation have none.
        warmup_share: Share of all steps, 0 to 1.
        label_smoothing: Share of the target spread over all classes; with ``bce`` share moved towards one half.
        ema_decay: Of the running average of weights that is tested and stored; 0 keeps the last weights. Early on the
            average is shorter: step ``n`` uses at most ``(1 + n) / (10 + n)``.
        clip_grad_norm: Largest norm of the gradient of a step; longer ones are scaled down.
        dropout: In the head; it costs short runs accuracy (experiments/030-dropout).
        precision: ``fp32``, or mixed precision by autocast: ``bf16``, or ``fp16`` with scaled gradients. Weights and
            optimizer stay in fp32.
        seed: Of the first weights, the order, the clips, the transforms and dropout.
        eval_every: Validate after every so many epochs, and always after the last.
        test_clips: Clips per video in validation.
        test_crops: Crops per clip in validation: 1 or 3.
        schedule: ``cosine``, ``linear``, ``step`` or ``constant``.
        warmup_start: Share of the peak rate that the warm-up begins with.
        final_share: Share of the peak rate that ``cosine`` and ``linear`` end with.
        decay_at: Of ``step``: shares of the run after which the rate is multiplied by ``decay_factor``. A cycle of
            ``multigrid`` ends there, too, whatever the schedule.
        decay_factor: Of ``step``.
        accumulate: Parts of a batch that are computed one after the other, for less memory. The step is that of the
            whole batch; batch normalisation sees one part at a time. A test computes no more clips at once.
        loss: ``cross-entropy`` of classes (or of shares of classes that sum to 1), or ``bce``: a binary cross-entropy
            for each class, for videos of several classes. ``auto`` takes the one that the data needs.
        mixup: Parameter of the Beta distribution of MixUp (Zhang et al. 2018); 0: no MixUp.
        cutmix: Parameter of the Beta distribution of CutMix (Yun et al. 2019); 0: no CutMix. With both, a coin
            decides at each step.
        mix_share: Share of the steps that are mixed.
        layer_decay: Each block has this share of the rate of the block behind it; the last has the whole rate.
        freeze: What keeps its weights and statistics: ``stem``, ``all-but-head``, or a number of blocks from the stem
            on; empty: nothing.
        precise_bn: Batches over which the statistics of batch normalisation are taken anew before each validation
            (Wu and Johnson 2021); 0: running averages.
        sync_bn: Batch normalisation over the batches of all processes.
        compile: Compile the network with ``torch.compile``.
        gradient_checkpointing: Compute the activations of blocks again in the backward pass instead of keeping them.
        distill_weight: Of the teacher's part of the loss (Hinton et al. 2015), where there is a teacher.
        distill_temperature: Divides the logits of teacher and student.
        transforms: Training transforms by name (``hwbench.data.augmentations``), such as ``flip:0.5``; none: the scale
            jitter of the card or of short runs.
        repeats: Random clips of each video in the same step (repeated augmentation, Hoffer et al. 2019);
            ``batch_size``, a multiple of it, stays the clips per step.
        multigrid: ``long``: clips of fewer frames and pixels in batches that are larger by as much, at rates that are,
            too (``hwbench.training.sampling``; the long cycle of Wu et al. 2020); empty: none. The last epoch and
            validation have the full shape.
        zero_init_final_bn: Gamma of the last batch normalisation of each residual branch begins at 0 (Goyal et al.
            2017); of blocks of hwbench, in a run from random weights. A run that begins with weights keeps theirs.
    """

    epochs: int = 16
    batch_size: int = 16
    learning_rate: float = 0.02
    optimizer: str = "muon"
    momentum: float = 0.95
    weight_decay: float = 0.05
    warmup_share: float = 0.15
    label_smoothing: float = 0.05
    ema_decay: float = 0.98
    clip_grad_norm: float = 5.0
    dropout: float = 0.0
    precision: str = "fp32"
    seed: int = 0
    eval_every: int = 1
    test_clips: int = 1
    test_crops: int = 1
    schedule: str = "cosine"
    warmup_start: float = 0.0
    final_share: float = 0.0
    decay_at: tuple[float, ...] = (0.5, 0.75)
    decay_factor: float = 0.1
    accumulate: int = 1
    loss: str = "auto"
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_share: float = 1.0
    layer_decay: float = 1.0
    freeze: str = ""
    precise_bn: int = 0
    sync_bn: bool = False
    compile: bool = False
    gradient_checkpointing: bool = False
    distill_weight: float = 0.5
    distill_temperature: float = 2.0
    transforms: tuple[str, ...] = ()
    repeats: int = 1
    multigrid: str = ""
    zero_init_final_bn: bool = False

    def __post_init__(self) -> None:
        for name in ("decay_at", "transforms"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a list in the JSON of a checkpoint
        for name, names in _CHOICES.items():
            _choose(name, getattr(self, name), names)
        for field in fields(self):
            _check_size(field.name, getattr(self, field.name))
        for name in ("epochs", "batch_size", "eval_every", "test_clips", "accumulate", "repeats"):
            _need(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("momentum", "warmup_share", "label_smoothing", "ema_decay", "dropout", "warmup_start"):
            _need(0 <= getattr(self, name) < 1, name, "from 0 to below 1", getattr(self, name))
        for name in ("final_share", "mix_share", "distill_weight"):
            _need(0 <= getattr(self, name) <= 1, name, "from 0 to 1", getattr(self, name))
        for name in ("learning_rate", "clip_grad_norm", "distill_temperature"):
            value = getattr(self, name)
            _need(math.isfinite(value) and value > 0, name, "more than 0", value)
        for name in ("weight_decay", "mixup", "cutmix", "precise_bn"):
            value = getattr(self, name)
            _need(math.isfinite(value) and value >= 0, name, "0 or more", value)
        for name in ("layer_decay", "decay_factor"):
            _need(0 < getattr(self, name) <= 1, name, "more than 0, at most 1", getattr(self, name))
        _need(all(0 < place < 1 for place in self.decay_at), "decay_at", "shares between 0 and 1", self.decay_at)
        _need(self.seed >= 0, "seed", "0 or more", self.seed)
        multiple = f"a multiple of repeats ({self.repeats})"
        _need(self.batch_size % self.repeats == 0, "batch_size", multiple, self.batch_size)
        _need(self.test_crops in (1, 3), "test_crops", "1 or 3", self.test_crops)
        if self.multigrid:
            _choose("multigrid", self.multigrid, MULTIGRIDS)
            _need(bool(self.decay_at), "decay_at", "one share at least with multigrid", self.decay_at)
        if self.freeze and not (self.freeze.isascii() and self.freeze.isdecimal()):
            _choose("freeze", self.freeze, FREEZE)

    def rate(self, step: int, total: int) -> float:
        """Learning rate of step ``step`` of ``total``, counted from 0."""
        return schedules.rate(self, step, total)

    def to_plain(self) -> dict[str, Any]:
        """The fields by name, as a JSON file gives them back."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def for_targets(self, *, several: bool) -> Recipe:
        """The recipe with the loss that data needs whose videos show ``several`` classes, or one each.

        Raises:
            InvalidValue: ``cross-entropy`` is asked for, and videos show several classes.
        """
        if several and self.loss == "cross-entropy":
            raise InvalidValue("loss: cross-entropy expects one class per video, these have several; use --loss bce")
        return replace(self, loss="bce") if several and self.loss == "auto" else self

    def test_batch(self, crops: int, processes: int) -> int:
        """Test views, each of so many crops, that a process computes at once: no more clips than in training."""
        return max(1, self.batch_size // (self.accumulate * processes * crops))

    def facts(self) -> dict[str, str]:
        """What tells this recipe from others, name -> text.

        A field that came later is left out at its default, so that runs of before go on.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: str(value) for name, value in values.items() if name in _FIRST or value != getattr(type(self), name)
        }


# The fields of the first recipes, which are in the fingerprint of every run.
_FIRST = frozenset(
    (
        *("epochs", "batch_size", "learning_rate", "optimizer", "momentum", "weight_decay", "warmup_share"),
        *("label_smoothing", "ema_decay", "clip_grad_norm", "dropout", "precision", "seed", "eval_every"),
        *("test_clips", "test_crops"),
    )
)
_CHOICES = {"optimizer": OPTIMIZERS, "precision": PRECISIONS, "schedule": schedules.SCHEDULES, "loss": LOSSES}


def _choose(name: str, value: str, names: tuple[str, ...]) -> None:
    if value not in names:
        raise InvalidValue(f"recipe: unknown {name} {value!r}; {suggest(value, names)}")


def _check_size(name: str, value: object) -> None:
    """Refuses a number that fits into no 64 bits, which a message would not show either."""
    if isinstance(value, int) and abs(value) > MOST_WHOLE:
        raise InvalidValue(f"recipe: {name} must be a number of at most {MOST_WHOLE}")


def _need(fine: bool, name: str, expected: str, value: object) -> None:
    if not fine:
        raise InvalidValue(f"recipe: {name} must be {expected}, got {value}")
