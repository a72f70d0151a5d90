"""What modules keep from one call to the next, in buffers, parameters and attributes of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.utils import _pytree as pytree

from hwbench.errors import UnsupportedModule

# By attribute, as ``layers.0.cache``: its values, those of containers one by one; tensors with their versions, which
# changes in place count.
Kept = Mapping[str, list[object]]
_OF_TORCH = frozenset(vars(nn.Module()))


def kept_values(module: nn.Module) -> Kept:
    """What all parts of a module keep."""
    return {
        f"{name}.{attribute}" if name else attribute: values_of(value)
        for name, part in module.named_modules()
        for attribute, value in {**part._parameters, **part._buffers, **vars(part)}.items()
        if attribute not in _OF_TORCH
    }


def values_of(kept: object) -> list[object]:
    """A value, or those of a container, one by one."""
    return [*map(_versioned, pytree.tree_leaves(kept))]


def changed(before: Kept, after: Kept) -> list[str]:
    """The attributes that are new, hold other values, or a tensor that was changed in place."""
    return [name for name, values in after.items() if name not in before or not _same(before[name], values)]


def refusal(name: str, kept: Iterable[str]) -> UnsupportedModule:
    """The error that a forward changes attributes, and its answers to later clips are others for it."""
    return UnsupportedModule(
        f"{name}: its forward changes {', '.join(kept)}, on which its answers to later clips depend; compute that anew "
        "for each clip, or change what a module keeps in training alone, where self.training"
    )


def _versioned(value: object) -> object:
    if isinstance(value, torch.Tensor) and not isinstance(value, nn.UninitializedParameter | nn.UninitializedBuffer):
        return value, 0 if value.is_inference() else value._version
    return value


def _same(before: list[object], after: list[object]) -> bool:
    return len(before) == len(after) and all(map(_is_same, before, after))


def _is_same(before: object, after: object) -> bool:
    if isinstance(before, tuple) and isinstance(after, tuple):
        return before[0] is after[0] and before[1] == after[1]
    return before is after or (isinstance(before, int | float | str) and before == after)
