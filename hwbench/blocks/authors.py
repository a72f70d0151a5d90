"""Whose code a module runs: what holds for networks of hwbench may not hold for those of a user."""

from __future__ import annotations

from torch import nn

_OURS, _OF_TORCH = "hwbench.", "torch.nn.modules."


def is_ours(module: nn.Module) -> bool:
    """Whether a module is of a class of hwbench, and all its parts are of hwbench or layers of torch."""
    return type(module).__module__.startswith(_OURS) and all(
        type(part).__module__.startswith((_OURS, _OF_TORCH)) for part in module.modules()
    )
