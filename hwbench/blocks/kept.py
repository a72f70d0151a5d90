"""What modules keep from one call to the next in attributes that are no buffers."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from torch.utils import _pytree as pytree

# By attribute, as ``layers.0.cache``: its values, those of containers one by one.
Kept = Mapping[str, list[object]]
_OF_TORCH = frozenset(vars(nn.Module()))


def kept_values(module: nn.Module) -> Kept:
    """What all parts of a module keep in attributes of their own."""
    return {
        f"{name}.{attribute}" if name else attribute: pytree.tree_leaves(value)
        for name, part in module.named_modules()
        for attribute, value in vars(part).items()
        if attribute not in _OF_TORCH
    }


def changed(before: Kept, after: Kept) -> list[str]:
    """The attributes that are new or hold other values. A tensor that is changed in place is the same value."""
    return [name for name, values in after.items() if name not in before or not _same(before[name], values)]


def _same(before: list[object], after: list[object]) -> bool:
    return len(before) == len(after) and all(
        a is b or (isinstance(a, int | float | str) and a == b) for a, b in zip(before, after, strict=True)
    )
