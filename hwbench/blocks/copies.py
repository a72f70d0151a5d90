"""Copies of modules, whoever wrote them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils import _pytree as pytree

from hwbench.errors import UnsupportedModule

_Module = TypeVar("_Module", bound=nn.Module)


def copied(module: _Module, exchanged: Mapping[int, object] = MappingProxyType({})) -> _Module:
    """A deep copy.

    Tensors that autograd computed, such as the weights of a pruned or weight-normed layer, are copied without their
    history, which torch does not copy.

    Args:
        module: Left as it is.
        exchanged: By the id of a part, what the copy has in its place.

    Raises:
        UnsupportedModule: It holds something that cannot be copied, as a lock or an open file; the message names it.
    """
    try:
        return copy.deepcopy(module, {**_computed_tensors(module), **exchanged})
    except Exception as error:  # what an attribute raises
        cause = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise UnsupportedModule(
            f"{type(module).__name__}: {_culprit(module)} cannot be copied ({cause}); keep it outside of the module"
        ) from error


def _computed_tensors(module: nn.Module) -> dict[int, Any]:
    """Copies by id, as a memo of deepcopy, of the tensors in attributes and buffers that are no leaves of autograd."""
    tensors = (leaf for part in module.modules() for leaf in pytree.tree_leaves(vars(part)))
    return {id(x): x.detach().clone() for x in tensors if isinstance(x, torch.Tensor) and not x.is_leaf}


def _culprit(module: nn.Module) -> str:
    """The first attribute that cannot be copied alone."""
    computed = _computed_tensors(module)
    for name, part in module.named_modules():
        for attribute in sorted(vars(part).keys() - {"_modules"}):
            try:
                copy.deepcopy(vars(part)[attribute], {**computed})
            except Exception:
                return f"its attribute {name}.{attribute}" if name else f"its attribute {attribute}"
    return "it"
