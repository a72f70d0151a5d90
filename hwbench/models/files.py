"""Files of tensors, read without running anything that is in them."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import torch

from hwbench.errors import InvalidFile
from hwbench.printable import printable, shown

_FAILURES = (
    RuntimeError, ValueError, KeyError, EOFError, TypeError, AttributeError, OSError, MemoryError, IndexError,
    AssertionError, ArithmeticError, struct.error, pickle.UnpicklingError,
)  # fmt: skip
# What torch says where a pickle names a class or a function that is not on its list.
_NEEDS_CODE = ("unsupported global", "unsupported class", "can only build", "can only reduce", "can only create")
_SCRIPTED = "torchscript"

# Where files keep their state dict; PyTorchVideo and PySlowFast, Lightning, PyTorch's tutorials, this package, timm and
# torchvision.
INSIDE = ("model_state", "state_dict", "model_state_dict", "weights", "model")
# What trainers and torch.compile put before every name.
_WRAPPERS = ("module.", "model.", "_orig_mod.")
# How many weights an averaged model is the mean of.
_AVERAGED = "n_averaged"


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


def inside(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state dict in what a file holds: the file itself, or one of its values."""
    return next((values[key] for key in INSIDE if isinstance(values.get(key), Mapping)), values)


def named_as(names: Set[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The state dict in what a file holds, without what a trainer puts before the names of a module.

    Args:
        names: Of the module, which may begin like a wrapper. Where no state dict has exactly these, the only value of
            the file that has them counts, whatever its key, and whatever stands before all of them; else the first with
            some of them.
        values: What the file holds.
    """
    bare = inside(values)
    wrapped = [*unwrapped(bare)]
    alike = [one for one in wrapped if one.keys() & names] or wrapped
    if (exact := next((one for one in alike if one.keys() == names), None)) is not None:
        return exact
    places = {id(place): place for place in (bare, *values.values()) if isinstance(place, Mapping)}
    fitting = [weights for place in places.values() if (weights := _fitting(names, place)) is not None]
    return fitting[0] if len(fitting) == 1 else alike[0]


def listed(names: Iterable[object]) -> str:
    """The first three names, and how many more there are."""
    first = [*names]
    return ", ".join(shown(name) for name in first[:3]) + (f" and {len(first) - 3} more" if len(first) > 3 else "")


def keys_of(values: Mapping[str, Any]) -> str:
    """What a file holds, and where a state dict is looked for in it, as words of a refusal."""
    return f"the file has {listed(values)}, a state dict may be one of {', '.join(INSIDE)}"


def _fitting(names: Set[str], weights: Mapping[Any, Any]) -> dict[str, Any] | None:
    """The part of a state dict that has exactly these names, behind any one prefix; None: no part, or several."""
    if not names or not all(isinstance(name, str) for name in weights):
        return None
    exact = next((one for one in unwrapped(weights) if one.keys() == names), None)
    if exact is not None:
        return exact
    first = next(iter(names))
    prefixes = [name.removesuffix(first) for name in weights if name.endswith(f".{first}")]
    parts = [prefix for prefix in prefixes if all(f"{prefix}{name}" in weights for name in names)]
    return {name: weights[f"{parts[0]}{name}"] for name in names} if len(parts) == 1 else None


def unwrapped(weights: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A state dict as it is, without the count of an averaged model, then with one prefix of all names less each.

    Where only some names have such a prefix, the others are of what a trainer holds beside the network, such as the
    weights of a loss, and are left out with it.
    """
    yield dict(weights)
    weights = {name: value for name, value in weights.items() if name != _AVERAGED}
    yield weights
    while prefix := next((one for one in _WRAPPERS if any(name.startswith(one) for name in weights)), None):
        weights = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        yield weights


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
    if isinstance(error, KeyError):  # its text is a key
        return "damaged, or another kind of file"
    first = printable((str(error).strip().splitlines() or [type(error).__name__])[0].partition(". ")[0], 160)
    return f"damaged, or another kind of file ({first})"
