"""Sums, products and concatenations as modules.

``FloatFunctional`` is the class of PyTorch's eager-mode quantisation: under it every sum has an observer of its own,
everywhere else it adds. When torch carries it no more, a plain stand-in takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:

    class FloatFunctional(nn.Module):
        """What blocks use of it."""

        def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            """x + y."""
            ...

        def mul(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            """x · y."""
            ...

        def cat(self, x: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
            """Concatenation."""
            ...

else:
    try:
        from torch.ao.nn.quantized import FloatFunctional
    except ImportError:

        class FloatFunctional(nn.Module):
            """Sums, products and concatenations without observers."""

            def add(self, x, y):
                return torch.add(x, y)

            def mul(self, x, y):
                return torch.mul(x, y)

            def cat(self, x, dim=0):
                return torch.cat(list(x), dim)


__all__ = ["FloatFunctional"]
