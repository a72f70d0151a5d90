"""Whose code a module runs: what holds for networks of hwbench may not hold for those of a user."""

from __future__ import annotations

from torch import nn

_OURS, _OF_TORCH = "hwbench.", ("torch.nn.modules.", "torch.ao.nn.")


def is_ours(module: nn.Module) -> bool:
    """Whether all parts of a module are of hwbench or layers of torch, and not all are layers of torch."""
    origins = [type(part).__module__ for part in module.modules()]
    return all(one.startswith((_OURS, *_OF_TORCH)) for one in origins) and any(one.startswith(_OURS) for one in origins)
