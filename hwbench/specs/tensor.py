"""What flows between blocks: a clip or a feature map."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace

from hwbench.errors import InvalidValue

# Of a video: R, G, B.
CLIP_CHANNELS = 3
_KEY = re.compile("x".join(5 * [r"([0-9]{1,18})"]))


class Precision(enum.StrEnum):
    """Number format of the weights and activations of a deployed model; its input and output are fp32 always.

    ``FP32``: 32-bit floats. ``FP16``: IEEE half precision, 11 bits of mantissa, up to 65504. ``BF16``: 8 bits of
    mantissa with the range of fp32. ``INT8``: static int8, weights by output channel.
    """

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"

    @property
    def value_bytes(self) -> int:
        """Bytes of one value."""
        return _VALUE_BYTES[self]

    @classmethod
    def parse(cls, text: str) -> Precision:
        """Reads ``fp32``, ``fp16``, ``bf16`` or ``int8``; anything else is an InvalidValue."""
        try:
            return cls(text)
        except ValueError:
            raise InvalidValue(f"precision: expected fp32, fp16, bf16 or int8, got {text!r}") from None


_VALUE_BYTES = {Precision.FP32: 4, Precision.FP16: 2, Precision.BF16: 2, Precision.INT8: 1}


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
        """Reads what ``key`` prints, of several pathways as well."""
        first, plus, others = key.partition("+")
        if plus:
            return Pathways.of(tuple(TensorSpec.parse(one) for one in (first, *others.split("+"))))
        match = _KEY.fullmatch(key)
        if match is None:
            raise InvalidValue(f"tensor: expected NxCxTxHxW such as 1x3x4x160x160, got {key!r}")
        return cls(*(int(g) for g in match.groups()))

    @property
    def pathways(self) -> tuple[TensorSpec, ...]:
        """The activation of each pathway; a single one has one."""
        return (self,)

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

    def strided(self, channels: int, stride: int, temporal_stride: int = 1) -> TensorSpec:
        """What a convolution that pads by half its kernel leaves: its strides divide, rounding up."""
        t, h, w = -(-self.t // temporal_stride), -(-self.h // stride), -(-self.w // stride)
        return TensorSpec(self.n, channels, t, h, w)

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, order=True)
class Pathways(TensorSpec):
    """The activations of several pathways side by side, as slow and fast, or video and sound; ``1x8x4x9x9+1x2x32x9x9``.

    The axes are those of the first pathway; ``numel`` counts all of them.
    """

    others: tuple[TensorSpec, ...] = ()

    @classmethod
    def of(cls, pathways: tuple[TensorSpec, ...]) -> TensorSpec:
        """The activation of one pathway or of several."""
        first, *others = pathways
        return cls(*first.shape, others=tuple(others)) if others else first

    @property
    def pathways(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(*self.shape), *self.others)

    @property
    def numel(self) -> int:
        return sum(one.numel for one in self.pathways)

    @property
    def key(self) -> str:
        return "+".join("x".join(str(v) for v in one.shape) for one in self.pathways)

    def __str__(self) -> str:
        return self.key
