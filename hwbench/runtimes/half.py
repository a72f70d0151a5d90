"""Modules in 16-bit floating numbers behind an outside in fp32."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import nn

from hwbench.runtimes.base import hands_on
from hwbench.specs import Precision

DTYPES = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}


class Halved(nn.Module):
    """A copy of a module that computes in fp16 or bf16, from fp32 inputs to fp32 outputs, one or more.

    Weights are rounded once, here; the first operation rounds the inputs and the last one widens the output. The module
    that is given stays as it is. What says so stays in fp32 (``in_fp32``, normalisation of layers), and so
    does GELU, which XNNPACK has in fp32 alone.
    """

    def __init__(self, module: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.dtype = DTYPES[precision]
        self.inner = copy.deepcopy(module).to(self.dtype)
        originals = dict(module.named_modules())
        for path, one in [*self.inner.named_modules()]:
            if path and (is_gelu(one) or precision in getattr(one, "in_fp32", ())):
                parent, _, name = path.rpartition(".")
                setattr(self.inner.get_submodule(parent), name, Widened(copy.deepcopy(originals[path])))
        self.training = module.training

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        output: torch.Tensor | tuple[torch.Tensor, ...] = self.inner(*(one.to(self.dtype) for one in inputs))
        if isinstance(output, tuple):
            return tuple(one.to(torch.float32) for one in output)
        return output.to(torch.float32)


class Widened(nn.Module):
    """A module in fp32 between two conversions, from 16 bits and back."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.to(torch.float32)).to(x.dtype)  # type: ignore[no-any-return]


def is_gelu(module: nn.Module) -> bool:
    """Whether a module is a GELU, as torch has it or as a deploy form calls it."""
    return isinstance(module, nn.GELU) or getattr(module, "target", None) is torch.ops.aten.gelu.default


def states_in_precision(
    module: nn.Module, arguments: tuple[torch.Tensor, ...], precision: Precision
) -> tuple[torch.Tensor, ...]:
    """The arguments of a module, of a stream with the states in 16 bits that are computed in them."""
    if precision not in DTYPES or not hands_on(module):
        return arguments
    frame, *given = arguments
    dtype, states = DTYPES[precision], cast("Sequence[Any]", module.states)
    return (frame, *(x if state.in_fp32 else x.to(dtype) for x, state in zip(given, states, strict=True)))


def in_precision(module: nn.Module, precision: Precision) -> nn.Module:
    """The module itself, or ``Halved`` where the precision has 16 bits; a module with ``in_dtype`` does that itself."""
    if precision not in DTYPES:
        return module
    own = getattr(module, "in_dtype", None)
    return Halved(module, precision) if own is None else own(DTYPES[precision])
