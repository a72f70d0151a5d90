"""The fields that blocks are described by: letters in a printed key, how a value is read and written, the default."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

from hwbench.errors import InvalidValue

Kernel = tuple[tuple[int, int, int], ...]
"""Kernels (T, H, W) one after the other; the empty one reduces T, H and W to 1."""
Value = int | str | Kernel

ACTIVATIONS = ("relu", "swish", "hswish", "gelu", "identity")
# The kernel that reduces T, H and W to 1.
GLOBAL: Kernel = ()


class FieldType(enum.Enum):
    """What a field holds, and so what it tells a model of latency.

    ``SIZE`` is a number of channels or features, compared by its logarithm. ``COUNT`` is any other whole number, such
    as a stride. ``KERNEL`` is a sequence of kernels T x H x W. ``ACTIVATION`` is the name of an activation. ``NAME`` is
    text that tells one block from another and says nothing of its latency; it begins with a digit.
    """

    SIZE = "size"
    COUNT = "count"
    KERNEL = "kernel"
    ACTIVATION = "activation"
    NAME = "name"


@dataclass(frozen=True)
class Field:
    """One field of a kind of block.

    Args:
        name: As in ``BlockSpec``.
        letters: What the value follows in a printed key; empty for the activation, which ends the key.
        type: What it holds.
        default: A field at its default is left out of a key; None: always printed.
    """

    name: str
    letters: str
    type: FieldType
    default: Value | None = None

    def write(self, value: Value) -> str:
        """The token of a key, for example ``s2`` or ``k3x3x3``."""
        return f"{self.letters}{format_kernel(value) if isinstance(value, tuple) else value}"

    def read(self, text: str) -> Value:
        """Reads what follows the letters.

        Raises:
            InvalidValue: It is no value of this type.
        """
        if self.type is FieldType.KERNEL:
            return parse_kernel(text)
        if self.type is FieldType.NAME:
            return _parse_name(self.letters, text)
        if not re.fullmatch(r"[0-9]{1,18}", text):
            raise InvalidValue(f"expected a whole number instead of {self.letters + text!r}")
        return int(text)


IN = Field("in_channels", "i", FieldType.SIZE)
MID = Field("mid_channels", "m", FieldType.SIZE, 0)
HIDDEN = Field("hidden_channels", "d", FieldType.SIZE, 0)
OUT = Field("out_channels", "o", FieldType.SIZE)
KERNEL = Field("kernel", "k", FieldType.KERNEL)
STRIDE = Field("stride", "s", FieldType.COUNT, 1)
GROUPS = Field("groups", "g", FieldType.SIZE, 1)
SE = Field("se_channels", "se", FieldType.SIZE, 0)
ACTIVATION = Field("activation", "", FieldType.ACTIVATION)

# What a ``BlockSpec`` has attributes for, in the order of a key. A kind may have further fields (``BlockSpec.extras``).
COMMON = (IN, MID, HIDDEN, OUT, KERNEL, STRIDE, GROUPS, SE, ACTIVATION)

# A further field of kinds whose first kernel may step over frames.
TEMPORAL_STRIDE = Field("temporal_stride", "ts", FieldType.COUNT, 1)
# A further field of kinds that can look at the past alone: 1 where no frame depends on a later one, else 0.
CAUSAL = Field("causal", "ca", FieldType.COUNT, 0)


def format_kernel(kernel: Kernel) -> str:
    """``((1, 3, 3), (3, 1, 1))`` as ``1x3x3+3x1x1``; the empty kernel as ``global``."""
    return "+".join("x".join(str(v) for v in k) for k in kernel) or "global"


def parse_kernel(text: str) -> Kernel:
    """Reads what ``format_kernel`` writes."""
    if text == "global":
        return GLOBAL
    kernels = []
    for part in text.split("+"):
        match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})x([0-9]{1,9})", part)
        if match is None or any(int(g) % 2 == 0 for g in match.groups()):
            raise InvalidValue(f"kernel: expected odd TxHxW such as 3x3x3 or 1x3x3+3x1x1, got {text!r}")
        kernels.append((int(match[1]), int(match[2]), int(match[3])))
    return tuple(kernels)


def _parse_name(letters: str, text: str) -> str:
    if not re.fullmatch(r"[0-9][A-Za-z0-9.-]*", text):
        raise InvalidValue(f"expected a digit, then letters, digits, '.' and '-', instead of {letters + text!r}")
    return text


def by_letters(fields: Iterable[Field]) -> dict[str, Field]:
    """The fields by what their values follow in a key, without the activation."""
    return {field.letters: field for field in fields if field.letters}
