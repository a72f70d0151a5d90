"""Copies of modules in double precision, where an exchange that computes something else shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from hwbench.blocks.copies import copied
from hwbench.errors import UnsupportedModule

_Module = TypeVar("_Module", bound=nn.Module)

# How torch says that tensors differ in dtype.
_DIFFERENT = re.compile(
    r"expected scalar type|same dtype|Input type .* should be the same|dtypes match|mixed dtype"
    r"|dtype to be equal to|expected dtype"
)


def doubled(module: _Module) -> _Module:
    """A copy in double precision and eval mode, on the CPU.

    Raises:
        UnsupportedModule: It holds something that cannot be copied, or lies on the meta device.
    """
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_meta:
            raise UnsupportedModule(
                f"{type(module).__name__}: {name} lies on the meta device and has no values; make the model on the CPU "
                "or give it weights with load_state_dict(..., assign=True)"
            )
    return copied(module).to("cpu", torch.float64).eval()


def is_of_dtypes(error: BaseException) -> bool:
    """Whether torch raised it because two tensors differ in dtype."""
    return isinstance(error, RuntimeError) and _DIFFERENT.search(str(error)) is not None


@contextmanager
def fixed_dtype_refused(name: str) -> Iterator[None]:
    """While a copy in double precision is run: says what to write where the forward makes tensors of another dtype.

    Raises:
        UnsupportedModule: In the place of the error of torch.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_of_dtypes(error):
            raise
        raise UnsupportedModule(
            f"{name}: its forward fixes a dtype, and hwbench proves in double precision "
            f"({str(error).strip().splitlines()[0][:160]}); write x.to(self.fc.weight.dtype) in place of x.float(), "
            "and x.new_zeros(...) in place of torch.zeros(...)"
        ) from error
