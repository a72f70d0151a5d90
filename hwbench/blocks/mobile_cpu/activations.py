"""Activations with an original and a deploy form."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.functional import FloatFunctional
from hwbench.errors import UnknownName, UnsupportedModule
from hwbench.registry import suggest
from hwbench.specs import AUTO, TensorSpec


class Activation(EfficientBlock):
    """An elementwise function; its deploy form takes any shape."""

    act: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x)  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec | None = None, variant: str = AUTO) -> nn.Module:
        return copy.deepcopy(self.act).eval()

    def deployable(self, shape: Sequence[int], variant: str = AUTO) -> nn.Module:
        return self.to_deploy()

    @property
    def is_framewise(self) -> bool:
        return True

    def output(self, x: TensorSpec) -> TensorSpec:
        return x


class Swish(Activation):
    """x · sigmoid(x) (Ramachandran et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.SiLU()

    def to_deploy(self, input: TensorSpec | None = None, variant: str = AUTO) -> nn.Module:
        return SwishProduct().eval()


class SwishProduct(nn.Module):
    """Swish as a product and a sigmoid: the product is quantised, the sigmoid needs its own range."""

    def __init__(self) -> None:
        super().__init__()
        self.mul = FloatFunctional()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mul.mul(x, torch.sigmoid(x))


class HardSwish(Activation):
    """x · relu6(x + 3) / 6 (Howard et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Hardswish()


class ReLU(Activation):
    """max(x, 0); free behind a convolution in a mobile runtime."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU(inplace=True)

    def to_deploy(self, input: TensorSpec | None = None, variant: str = AUTO) -> nn.Module:
        return nn.ReLU().eval()


class Gelu(Activation):
    """x · Φ(x), with the distribution of the standard normal (Hendrycks and Gimpel 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.GELU()


class Identity(Activation):
    """x."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Identity()


def efficient_act(name: str, act: nn.Module) -> Activation:
    """A part of a block as the activation that its deploy form has.

    Raises:
        UnsupportedModule: It is none of hwbench's; the message has its name.
    """
    if not isinstance(act, Activation):
        raise UnsupportedModule(f"{name}: expected an activation of hwbench, got {act}")
    return act


supported_act_functions: dict[str, type[Activation]] = {
    "relu": ReLU,
    "swish": Swish,
    "hswish": HardSwish,
    "gelu": Gelu,
    "identity": Identity,
}


def activation(name: str) -> Activation:
    """A new activation by name.

    Raises:
        UnknownName: No such activation.
    """
    if name not in supported_act_functions:
        raise UnknownName(f"unknown activation {name!r}; {suggest(name, supported_act_functions)}")
    return supported_act_functions[name]()
