"""Modules that are the same in both forms."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, TensorSpec


class NoOpConvertBlock(EfficientBlock):
    """Wraps a module that needs no rewriting: its deploy form is a copy of it, with its own outside.

    Raises (construction):
        UnsupportedModule: An efficient block is inside, which would never be converted.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        inside = [name for name, module in model.named_modules() if isinstance(module, EfficientBlock)]
        if inside:
            raise UnsupportedModule(
                f"NoOpConvertBlock: the efficient block {inside[0] or 'at its root'!r} inside would not be converted; "
                "leave the wrapper away"
            )
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        raise UnsupportedModule(
            f"{type(self).__name__} has no form with frames as batch; use convert_to_deployable_form, or put "
            "blocks with a deploy form in its place"
        )

    def deployable(self, shape: Sequence[int], variant: str = AUTO) -> nn.Module:
        return copy.deepcopy(self.model).eval()

    def output(self, x: TensorSpec) -> TensorSpec:
        raise UnsupportedModule(f"{type(self).__name__}: the shape of its output is not known")
