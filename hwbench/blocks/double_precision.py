"""Copies of modules in double precision, where an exchange that computes something else shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils import _pytree as pytree

from hwbench.blocks.copies import copied
from hwbench.errors import HwbenchError, UnsupportedModule

_Module = TypeVar("_Module", bound=nn.Module)

# How torch says that tensors differ in dtype; layers and operations say it in words of their own, too.
_DIFFERENT = re.compile(
    r"expected scalar type|same dtype|Input type .* should be the same|dtypes match|mixed dtype"
    r"|dtype to be equal to|expected dtype|dtypes must be the same|same scalar type|Type promoting not supported"
    r"|does not match weight dtype"
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
    return isinstance(error, RuntimeError | ValueError) and _DIFFERENT.search(str(error)) is not None


def takes(module: nn.Module, inputs: tuple[Any, ...]) -> bool:
    """Whether a copy of a module, in eval mode and on the CPU, takes copies of some inputs, in the dtypes they have."""
    try:
        own = pytree.tree_map_only(torch.Tensor, lambda x: x.detach().to("cpu", copy=True), inputs)
        with torch.no_grad():
            copied(module).to("cpu").eval()(*own)
    except Exception:  # the module's own code
        return False
    return True


@contextmanager
def fixed_dtype_refused(module: nn.Module, inputs: tuple[Any, ...]) -> Iterator[None]:
    """While a copy in double precision is run: says what to write where the forward makes tensors of another dtype.

    So it does where torch says so, or where the copy fails in double precision alone, whatever it says.

    Args:
        module: What the copy is of.
        inputs: What the module takes, in its own dtype.

    Raises:
        UnsupportedModule: In the place of the error of the copy.
    """
    try:
        yield
    except HwbenchError:
        raise
    except Exception as error:  # the module's own code
        memory = isinstance(error, MemoryError) or "memory" in str(error)  # double precision takes more of it
        if not is_of_dtypes(error) and (memory or not takes(module, inputs)):
            raise
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise UnsupportedModule(
            f"{type(module).__name__}: its forward fixes a dtype, and hwbench proves in double precision ({cause}); "
            "write x.to(self.fc.weight.dtype) in place of x.float(), and x.new_zeros(...) in place of torch.zeros(...)"
        ) from error
