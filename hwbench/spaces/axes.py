"""What may be chosen for a stage: how the values of an axis are read from a file and written into a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hwbench.errors import InvalidValue
from hwbench.specs import ACTIVATIONS, BlockSpec, Kernel, format_kernel, parse_kernel
from hwbench.specs.network import MAX_SIZE
from hwbench.toml_fields import Fields

# The deepest X3D (XL) has 55 blocks; what has thousands is a slip of the keyboard, and takes minutes to list.
MAX_BLOCKS = 1000
# Ten thousand frames are five minutes of video in one clip; a frame of 8K video has 7680 pixels a row.
MAX_FRAMES = 10_000
MAX_RESOLUTION = 10_000
# Frames or pixels of a kernel along one axis; the largest of a published network is 101 (PeLK, arXiv 2403.07589).
MAX_KERNEL = 255

Read = Callable[[Fields, str], tuple[Any, ...]]


@dataclass(frozen=True)
class Axis:
    """One thing that may be chosen for a stage.

    Args:
        name: The key in a file and, behind ``s1.``, in a printed architecture.
        read: The values that a table of a file offers under a name; a single value counts as a list of one.
        default: The value of every stage of a file that does not name the axis; its architectures do not name it
            either. So an axis that is added later leaves the keys and studies of older files as they are. None: every
            file must name the axis.
    """

    name: str
    read: Read
    default: Any = None


def write(value: float | str | Kernel) -> str:
    """One value as text: ``3``, ``2.25``, ``3x3x3``, ``swish``."""
    if isinstance(value, tuple):
        return format_kernel(value)
    return value if isinstance(value, str) else format(value, "g")


def counts(fields: Fields, name: str) -> tuple[int, ...]:
    """Whole numbers, at least 1."""
    return fields.integers(name, least=1)


def frame_counts(fields: Fields, name: str) -> tuple[int, ...]:
    """Frames of a clip, at least 1 and at most ``MAX_FRAMES``."""
    return _at_most(counts(fields, name), MAX_FRAMES, "frames", fields, name)


def resolutions(fields: Fields, name: str) -> tuple[int, ...]:
    """Sides of a frame in pixels, at least 1 and at most ``MAX_RESOLUTION``."""
    return _at_most(counts(fields, name), MAX_RESOLUTION, "pixels", fields, name)


def depths(fields: Fields, name: str) -> tuple[int, ...]:
    """Numbers of blocks, at least 1 and at most ``MAX_BLOCKS``."""
    return _at_most(counts(fields, name), MAX_BLOCKS, "blocks", fields, name)


def _at_most(values: tuple[int, ...], most: int, unit: str, fields: Fields, name: str) -> tuple[int, ...]:
    if max(values) > most:
        raise fields.error(name, f"expected at most {most} {unit}", list(values))
    return values


def depth_series(fields: Fields, name: str) -> tuple[int, ...]:
    """The number of blocks of each stage of one network."""
    values = fields.series(name)
    if sum(values) > MAX_BLOCKS or min(values) < 1:
        raise fields.error(name, f"expected at least 1 block in each, and at most {MAX_BLOCKS} in all", list(values))
    return values


def ratios(fields: Fields, name: str) -> tuple[float, ...]:
    """Numbers from 0 (none) to 1."""
    values = fields.numbers(name)
    if any(ratio > 1 for ratio in values):
        raise fields.error(name, "expected ratios from 0 (none) to 1", list(values))
    return values


def factors(fields: Fields, name: str) -> tuple[float, ...]:
    """Numbers, at least 0."""
    return fields.numbers(name)


def kernels(fields: Fields, name: str) -> tuple[Kernel, ...]:
    """Kernels such as ``3x3x3`` or ``1x3x3+3x1x1``."""
    return tuple(read_kernel(fields, name, text) for text in fields.texts(name))


def activations(fields: Fields, name: str) -> tuple[str, ...]:
    """Names of activations."""
    return tuple(_activation(fields, name, text) for text in fields.texts(name))


def one(read: Read) -> Callable[[Fields, str], Any]:
    """Reads a single value where ``read`` takes a list."""

    def read_one(fields: Fields, name: str) -> Any:
        values = read(fields, name)
        if len(values) != 1:
            raise fields.error(name, "expected a single value: this is no choice", list(values))
        return values[0]

    return read_one


count, kernel, activation = one(counts), one(kernels), one(activations)


def classes(fields: Fields, name: str) -> int:
    """Classes of a head, at least 1 and at most ``MAX_SIZE``."""
    return _at_most((count(fields, name),), MAX_SIZE, "classes", fields, name)[0]


def read_kernel(fields: Fields, name: str, text: str) -> Kernel:
    """One kernel from its text."""
    try:
        kernel = parse_kernel(text)
    except InvalidValue as error:
        raise fields.error(name, f"expected a kernel such as 3x3x3 or 1x3x3+3x1x1 ({error})", text) from None
    if any(max(extents) > MAX_KERNEL for extents in kernel):
        raise fields.error(name, f"expected a kernel of at most {MAX_KERNEL} along each axis", text)
    return kernel


def is_too_wide(block: BlockSpec) -> bool:
    """Whether channels of a block, as a product of what a file says, are more than ``MAX_SIZE``."""
    widths = (block.in_channels, block.mid_channels, block.hidden_channels, block.out_channels)
    return max(widths) > MAX_SIZE


def _activation(fields: Fields, name: str, text: str) -> str:
    if text not in ACTIVATIONS:
        raise fields.error(name, f"expected one of {', '.join(ACTIVATIONS)}", text)
    return text
