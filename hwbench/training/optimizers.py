"""Optimizers of a recipe: Muon, those of torch, and LAMB and LARS of timm."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import nn

from hwbench.errors import MissingDependency
from hwbench.training.muon import Muon
from hwbench.training.parts import rate_scales
from hwbench.training.recipe import Recipe

# Share of the recipe's rate that a group of parameters has.
SCALE = "rate_scale"


def make_optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimizer; biases and normalisation (tensors of one axis) are not decayed.

    Raises:
        MissingDependency: LAMB or LARS without timm.
    """
    groups = _groups(module, recipe)
    if recipe.optimizer == "muon":
        return Muon(groups, lr=recipe.learning_rate, momentum=recipe.momentum)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.learning_rate)
    if recipe.optimizer == "sgd":
        nesterov = recipe.momentum > 0
        return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=nesterov)
    return _of_timm(groups, recipe)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of each group: its share of ``rate``."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group[SCALE]


def _groups(module: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Parameters by rate and decay: of one rate first those that are decayed."""
    scales = rate_scales(module, recipe)
    members: dict[tuple[float, bool], list[nn.Parameter]] = defaultdict(list)
    for parameter in module.parameters():
        if parameter.requires_grad:
            members[scales.get(id(parameter), 1.0), parameter.dim() <= 1].append(parameter)
    return [
        {"params": members[key], "weight_decay": 0.0 if key[1] else recipe.weight_decay, SCALE: key[0]}
        for key in sorted(members)
    ]


def _of_timm(groups: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    try:
        from timm.optim import Lamb, Lars
    except ImportError:
        raise MissingDependency(
            f"optimizer {recipe.optimizer}: timm is not installed; install it with: pip install 'hwbench[timm]'"
        ) from None
    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "lamb":
        # the loop limits the gradient itself
        optimizer = Lamb(groups, lr=recipe.learning_rate, max_grad_norm=None)
    else:
        nesterov = recipe.momentum > 0
        optimizer = Lars(groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=nesterov)
    return optimizer
