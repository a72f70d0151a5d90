"""How a network is trained, as one value; two runs with the same recipe, data and network do the same steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hwbench.errors import InvalidValue
from hwbench.registry import suggest

OPTIMIZERS = ("adamw", "sgd")
PRECISIONS = ("bf16", "fp32")


@dataclass(frozen=True)
class Recipe:
    """Hyper-parameters of a training run; the defaults are for short runs of small networks on the synthetic set.

    Attributes:
        epochs: Passes over the training videos, one random clip of each per pass.
        batch_size: Clips per step.
        learning_rate: Peak rate. It rises linearly over ``warmup_share`` of all steps and falls to 0 along a cosine.
        optimizer: ``sgd`` (Nesterov momentum) or ``adamw``.
        momentum: Of SGD.
        weight_decay: On weights of two and more axes; biases and normalisation have none.
        warmup_share: Share of all steps, 0 to 1.
        label_smoothing: Share of the target spread over all classes.
        ema_decay: Of the running average of weights that is tested and stored; 0 keeps the last weights. Early on the
            average is shorter: step ``n`` uses at most ``(1 + n) / (10 + n)``.
        clip_grad_norm: Largest norm of the gradient of a step; longer ones are scaled down.
        dropout: In the head.
        precision: ``fp32``, or ``bf16`` for mixed precision by autocast; weights and optimizer stay in fp32.
        seed: Of the first weights, the order, the clips, the transforms and dropout.
        eval_every: Validate after every so many epochs, and always after the last.
        test_clips: Clips per video in validation.
        test_crops: Crops per clip in validation: 1 or 3.
    """

    epochs: int = 16
    batch_size: int = 16
    learning_rate: float = 0.1
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-5
    warmup_share: float = 0.15
    label_smoothing: float = 0.05
    ema_decay: float = 0.98
    clip_grad_norm: float = 5.0
    dropout: float = 0.2
    precision: str = "fp32"
    seed: int = 0
    eval_every: int = 1
    test_clips: int = 1
    test_crops: int = 1

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise InvalidValue(f"recipe: unknown optimizer {self.optimizer!r}; {suggest(self.optimizer, OPTIMIZERS)}")
        if self.precision not in PRECISIONS:
            raise InvalidValue(f"recipe: unknown precision {self.precision!r}; {suggest(self.precision, PRECISIONS)}")
        for name in ("epochs", "batch_size", "eval_every", "test_clips"):
            _need(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("momentum", "warmup_share", "label_smoothing", "ema_decay", "dropout"):
            _need(0 <= getattr(self, name) < 1, name, "from 0 to below 1", getattr(self, name))
        for name in ("learning_rate", "clip_grad_norm"):
            value = getattr(self, name)
            _need(math.isfinite(value) and value > 0, name, "more than 0", value)
        _need(
            math.isfinite(self.weight_decay) and self.weight_decay >= 0, "weight_decay", "0 or more", self.weight_decay
        )
        _need(0 <= self.seed < 2**63, "seed", "0 or more", self.seed)
        _need(self.test_crops in (1, 3), "test_crops", "1 or 3", self.test_crops)

    def rate(self, step: int, total: int) -> float:
        """Learning rate of step ``step`` of ``total``, counted from 0."""
        warmup = max(1, round(self.warmup_share * total))
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def _need(fine: bool, name: str, expected: str, value: object) -> None:
    if not fine:
        raise InvalidValue(f"recipe: {name} must be {expected}, got {value}")
