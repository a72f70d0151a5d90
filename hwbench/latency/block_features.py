"""What a model of rows knows of a block: the terms of a law of work, and the numbers and names that it is told by.

All of it comes from the operations and the fields of the kind of block, so that every kind that describes its
arithmetic is known.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwbench.specs import Workload
from hwbench.specs.fields import COMMON, SE, FieldType, format_kernel
from hwbench.specs.operations import Operation, Path

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Vector units take channels by eight: what is padded to a multiple of it is computed all the same.
_LANES = 8
# A doubling of a size is 1; padding by a quarter is as much.
_PADDING_WEIGHT = 4.0


@dataclass(frozen=True)
class Blocks:
    """Single blocks as arrays, by the columns of one ``BlockColumns``.

    Attributes:
        terms: Terms of the law of work, shape (blocks, terms), none below zero.
        numbers: Logarithms to base 2 of sizes and the like, shape (blocks, numbers).
        names: Kind, kernel, activation and so on, as numbers that only say whether two are the same; shape (blocks,
            names).
    """

    terms: Floats
    numbers: Floats
    names: Integers

    def __len__(self) -> int:
        return len(self.terms)

    def __getitem__(self, which: Integers | NDArray[np.bool_] | slice) -> Blocks:
        """Some of the blocks."""
        return Blocks(self.terms[which], self.numbers[which], self.names[which])


@dataclass(frozen=True)
class BlockColumns:
    """The columns that tell measured blocks apart: what is the same for all of them tells nothing and is left out.

    Attributes:
        terms: Names of the terms of the law: for each group of operations (depthwise ones by their kernel, all others)
            their number, multiply-adds, values read and written, and weights; for each activation the values that it
            works on; the values that a squeeze-excite pools, and those that a shortcut adds; 1.
        numbers: Names of the numbers.
        names: What is told by name, each with its values and their codes; a value that was never measured has the code
            -1, which is like no other.
        lows, highs: The least and the largest of each number, over all measured blocks; constant numbers included.
    """

    terms: tuple[str, ...]
    numbers: tuple[str, ...]
    names: tuple[tuple[str, dict[str, int]], ...]
    lows: dict[str, float]
    highs: dict[str, float]

    @classmethod
    def of(cls, parts: Sequence[Workload]) -> BlockColumns:
        """The columns of single blocks that were measured.

        Raises:
            InvalidValue: The arithmetic of a kind is not described.
        """
        terms = dict.fromkeys(name for part in parts for name in _terms(part))
        rows = [_numbers(part) for part in parts]
        columns = {name: [row.get(name, 0.0) for row in rows] for name in dict.fromkeys(n for row in rows for n in row)}
        texts = [_names(part) for part in parts]
        names = dict.fromkeys(name for text in texts for name in text)
        values = {name: dict.fromkeys(text.get(name, "") for text in texts) for name in names}
        return cls(
            tuple(terms),
            tuple(name for name, column in columns.items() if max(column) > min(column)),
            tuple((name, {value: code for code, value in enumerate(column)}) for name, column in values.items()),
            {name: min(column) for name, column in columns.items()},
            {name: max(column) for name, column in columns.items()},
        )

    def __call__(self, parts: Sequence[Workload]) -> Blocks:
        """Single blocks by these columns."""
        terms, numbers = np.zeros((len(parts), len(self.terms))), np.zeros((len(parts), len(self.numbers)))
        names = np.full((len(parts), len(self.names)), -1, dtype=np.int64)
        for at, part in enumerate(parts):
            own, sizes, texts = _terms(part), _numbers(part), _names(part)
            terms[at] = [own.get(name, 0.0) for name in self.terms]
            numbers[at] = [sizes.get(name, 0.0) for name in self.numbers]
            names[at] = [codes.get(texts.get(name, ""), -1) for name, codes in self.names]
        return Blocks(terms, numbers, names)

    def beyond(self, part: Workload) -> str | None:
        """Why a block is too unlike the measured ones to be told from them, in words; None where it is not.

        A size may lie beyond those that were measured by half of their range, at most by a doubling. An operation, a
        kind or an activation must have been measured.
        """
        texts = _names(part)
        for name, codes in self.names:
            value = texts.get(name, "")
            if value not in codes:
                return f"{name} {value or 'none'} was not measured"
        for term in _terms(part):
            if term not in self.terms:
                return f"{term} was not measured"
        for name, size in _sizes(part).items():
            low, high = self.lows.get(name, 0.0), self.highs.get(name, 0.0)
            slack = min(1.0, (high - low) / 2)
            if not low - slack - 1e-9 <= size <= high + slack + 1e-9:
                return f"{name} of {2**size:.4g} is beyond the measured {2**low:.4g} to {2**high:.4g}"
        return None


@functools.lru_cache(maxsize=8192)
def _terms(part: Workload) -> Mapping[str, float]:
    """What one block has of each term of the law."""
    (block,), x = part.blocks, part.input
    values = {"blocks": 1.0, "values out": float(part.output.numel)}
    before: Operation | None = None
    largest = 0
    for operation in block.operations(x):
        group = _group(operation)
        moved = operation.input.numel + operation.output.numel
        for name, value in (
            ("count", 1),
            ("MACs", operation.macs),
            ("values", moved),
            ("weights", operation.num_weights),
        ):
            values[f"{group} {name}"] = values.get(f"{group} {name}", 0.0) + value
        if operation.path is Path.GATE:
            if before is not None and before.path is not Path.GATE:
                values["values gated"] = values.get("values gated", 0.0) + before.output.numel
        else:
            largest = max(largest, operation.output.numel)
        before = operation
    values[f"{block.activation} values"] = float(largest)
    if x == part.output:
        values["values added"] = float(x.numel)
    return values


def _group(operation: Operation) -> str:
    kernel = getattr(operation, "kernel", ())
    return f"depthwise {'x'.join(map(str, kernel))}" if operation.is_depthwise else "dense"


@functools.lru_cache(maxsize=8192)
def _numbers(part: Workload) -> Mapping[str, float]:
    """Logarithms to base 2 of the sizes of one block, and of what follows from them."""
    (block,), x = part.blocks, part.input
    operations = block.operations(x)
    values = _sizes(part) | {
        "weights": math.log2(1 + sum(operation.num_weights for operation in operations)),
        "largest": math.log2(max((o.input.numel + o.output.numel for o in operations), default=x.numel)),
    }
    for name, count in (("in", block.in_channels), ("out", block.out_channels), ("mid", block.mid_channels)):
        values[f"padding {name}"] = _PADDING_WEIGHT * math.log2(-(-max(count, 1) // _LANES) * _LANES / max(count, 1))
    return values


def _sizes(part: Workload) -> dict[str, float]:
    """Logarithms to base 2 of the sizes that one block is made of."""
    (block,), x = part.blocks, part.input
    names = (f.name for f in (*COMMON, *block.descriptor.fields) if f.type is FieldType.SIZE and f is not SE)
    channels = {name: math.log2(1 + block.number(name)) for name in names}
    return {"frames": math.log2(x.t), "pixels": math.log2(x.h * x.w), "batch": math.log2(x.n)} | channels


@functools.lru_cache(maxsize=8192)
def _names(part: Workload) -> Mapping[str, str]:
    """What one block is told by, as text."""
    (block,) = part.blocks
    return {"kind": block.kind, "variant": part.variant} | dict(_named_fields(part))


def _named_fields(part: Workload) -> Iterator[tuple[str, str]]:
    (block,) = part.blocks
    yield "shortcut", str(part.input == part.output)
    yield "gate", str(bool(block.number(SE.name)))
    for field in (*COMMON, *block.descriptor.fields):
        value = block.get(field.name)
        if isinstance(value, tuple):
            yield field.name, format_kernel(value)
        elif field.type in (FieldType.COUNT, FieldType.ACTIVATION):
            yield field.name, str(value)
