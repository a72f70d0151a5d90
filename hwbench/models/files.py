"""Files of tensors, read without running anything that is in them."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
from pathlib import Path
from typing import Any

import torch

from hwbench.errors import InvalidFile
from hwbench.printable import printable

_FAILURES = (
    RuntimeError, ValueError, KeyError, EOFError, TypeError, AttributeError, OSError, MemoryError, IndexError,
    AssertionError, ArithmeticError, struct.error, pickle.UnpicklingError,
)  # fmt: skip
# What torch says where a pickle names a class or a function that is not on its list.
_NEEDS_CODE = ("unsupported global", "unsupported class", "can only build", "can only reduce", "can only create")
_SCRIPTED = "torchscript"


def read_tensors(path: Path, expected: str) -> tuple[bytes, dict[str, Any]]:
    """Bytes and values of a ``torch.save`` file that holds a dict of plain values and tensors.

    A pickle that needs more than these to be read is refused and not opened.

    Raises:
        InvalidFile: There is no such file or it is damaged; the message says that ``expected`` was expected.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror or error}; expected {expected}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damaged archives warn before they fail
            values = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except _FAILURES as error:
        raise InvalidFile(f"{path}: {_cause(error)}; expected {expected}") from None
    if not isinstance(values, dict):
        raise InvalidFile(f"{path}: holds a {type(values).__name__}; expected {expected}")
    return data, values


def _cause(error: BaseException) -> str:
    text = str(error).lower()
    if _SCRIPTED in text:
        return "a TorchScript program, not weights"
    if isinstance(error, pickle.UnpicklingError):  # torch's advice to load it unsafely is not for here
        if any(words in text for words in _NEEDS_CODE):
            return (
                "damaged, or another kind of file: not opened, it holds objects other than plain values and tensors, "
                "and reading those would run code from the file"
            )
        return "damaged, or another kind of file (not plain values and tensors)"
    first = printable((str(error).strip().splitlines() or [type(error).__name__])[0].partition(". ")[0], 160)
    return f"damaged, or another kind of file ({first})"
