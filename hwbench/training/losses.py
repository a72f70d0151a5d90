"""Losses of a recipe: of class indices, of soft and of several classes, and of what a teacher says.

Targets are class indices (N), or a value from 0 to 1 for each class (N, C).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from hwbench.errors import InvalidValue
from hwbench.training.recipe import Recipe

# Shares of classes that are stored in fp16 sum to 1 within this.
_SUM_TOLERANCE = 1e-2


def classification_loss(logits: torch.Tensor, targets: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """Mean loss of logits (N, C); ``bce`` is a mean over classes, too."""
    if recipe.loss == "bce":
        dense = dense_targets(targets, logits.shape[1])
        if recipe.label_smoothing:
            dense = dense.lerp(torch.full_like(dense, 0.5), recipe.label_smoothing)
        return F.binary_cross_entropy_with_logits(logits, dense)
    return F.cross_entropy(logits, targets, label_smoothing=recipe.label_smoothing)


def distillation_loss(logits: torch.Tensor, taught: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """How far logits (N, C) are from those of a teacher.

    The Kullback-Leibler divergence of both at a temperature, times its square (Hinton et al. 2015, section 2.1); with
    ``bce`` the binary cross-entropy of each class.
    """
    temperature = recipe.distill_temperature
    student, teacher = logits / temperature, taught / temperature
    if recipe.loss == "bce":
        return F.binary_cross_entropy_with_logits(student, teacher.sigmoid()) * temperature**2
    shares, wanted = student.log_softmax(1), teacher.log_softmax(1)
    return F.kl_div(shares, wanted, reduction="batchmean", log_target=True) * temperature**2


def check_targets(targets: torch.Tensor, recipe: Recipe) -> None:
    """Refuses targets of several classes for a loss of one class; looks at the values, so give it those on the CPU.

    Raises:
        InvalidValue: Cross-entropy of rows that do not sum to 1.
    """
    if targets.is_floating_point() and recipe.loss != "bce" and len(targets):
        off = (targets.sum(1) - 1).abs().max().item()
        if off > _SUM_TOLERANCE:
            raise InvalidValue("loss: cross-entropy expects one class per video, these have several; use --loss bce")


def dense_targets(targets: torch.Tensor, classes: int) -> torch.Tensor:
    """Targets as float32 (N, C)."""
    if targets.is_floating_point():
        return targets.float()
    return F.one_hot(targets, classes).float()
