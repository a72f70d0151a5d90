"""Whose code a module runs: what holds for networks of hwbench may not hold for those of a user."""

from __future__ import annotations

from torch import nn

_OURS, _OF_TORCH = "hwbench.", ("torch.nn.modules.", "torch.ao.nn.")


def is_ours(module: nn.Module) -> bool:
    """Whether all parts of a module are of hwbench or layers of torch, and not all are layers of torch."""
    others = [part for part in module.modules() if not _is_of_torch(part)]
    return bool(others) and all(map(is_of_our_class, others))


def is_of_our_class(module: nn.Module) -> bool:
    """Whether the class of a module is of hwbench, whosever its parts are."""
    return type(module).__module__.startswith(_OURS)


def _is_of_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith(_OF_TORCH)
