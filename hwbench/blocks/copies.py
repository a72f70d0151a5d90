"""Copies of modules, whoever wrote them."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

from hwbench.errors import UnsupportedModule

_Module = TypeVar("_Module", bound=nn.Module)


def copied(module: _Module) -> _Module:
    """A deep copy.

    Raises:
        UnsupportedModule: It holds something that cannot be copied, as a lock or an open file; the message names it.
    """
    try:
        return copy.deepcopy(module)
    except Exception as error:  # what an attribute raises
        cause = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise UnsupportedModule(
            f"{type(module).__name__}: {_culprit(module)} cannot be copied ({cause}); keep it outside of the module"
        ) from error


def _culprit(module: nn.Module) -> str:
    """The first attribute that cannot be copied alone."""
    for name, part in module.named_modules():
        for attribute in sorted(vars(part).keys() - {"_modules"}):
            try:
                copy.deepcopy(vars(part)[attribute])
            except Exception:
                return f"its attribute {name}.{attribute}" if name else f"its attribute {attribute}"
    return "it"
