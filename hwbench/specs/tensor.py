"""What flows between blocks: a clip or a feature map."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace

from hwbench.errors import InvalidValue

_KEY = re.compile("x".join(5 * [r"([0-9]{1,18})"]))


class Precision(enum.StrEnum):
    """Number format of a deployed model: 32-bit floats, or per-channel static int8 (weights and activations)."""

    FP32 = "fp32"
    INT8 = "int8"

    @classmethod
    def parse(cls, text: str) -> Precision:
        """Reads ``fp32`` or ``int8``; anything else is an InvalidValue."""
        try:
            return cls(text)
        except ValueError:
            raise InvalidValue(f"precision: expected fp32 or int8, got {text!r}") from None


@dataclass(frozen=True, order=True)
class TensorSpec:
    """Shape of a 5-D activation, always in the order N, C, T, H, W; printed as ``1x24x4x56x56``."""

    n: int
    c: int
    t: int
    h: int
    w: int

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise InvalidValue(f"tensor: every axis must be at least 1, got {self.key}")

    @classmethod
    def parse(cls, key: str) -> TensorSpec:
        """Reads what ``key`` prints."""
        match = _KEY.fullmatch(key)
        if match is None:
            raise InvalidValue(f"tensor: expected NxCxTxHxW such as 1x3x4x160x160, got {key!r}")
        return cls(*(int(g) for g in match.groups()))

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """(N, C, T, H, W)."""
        return (self.n, self.c, self.t, self.h, self.w)

    @property
    def folded(self) -> tuple[int, int, int, int]:
        """The same values with frames as batch: (N·T, C, H, W)."""
        return (self.n * self.t, self.c, self.h, self.w)

    @property
    def numel(self) -> int:
        """Number of values."""
        return self.n * self.c * self.t * self.h * self.w

    @property
    def key(self) -> str:
        return "x".join(str(v) for v in self.shape)

    def with_(self, **axes: int) -> TensorSpec:
        """A copy with some axes replaced: ``x.with_(c=48)``."""
        return replace(self, **axes)

    def __str__(self) -> str:
        return self.key
