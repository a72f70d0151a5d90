"""What a network takes besides time: bytes of its file and of its activations, from the operations of its blocks.

Both are closed forms of what ExecuTorch 1.5 with XNNPACK does; ``docs/guides/search.md`` says how near they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hwbench.specs import BlockSpec, Precision, TensorSpec
from hwbench.specs.kinds.mvit import DistanceProduct, TokenHeadKind
from hwbench.specs.kinds.squeezetime import PositionMap
from hwbench.specs.operations import Addition, Convolution, HeadConvolution, Operation, Path


@dataclass(frozen=True)
class FileLayout:
    """Bytes of a file by what is in it.

    ``per_channel`` is for each output channel of an operation that has weights, such as the scales of these. A
    depthwise convolution over frames and space is written as one over space for each of its frames, and their sum;
    ``per_frame`` is for each of these, ``per_tap`` for each output channel of each. ``per_file``: what is there once,
    counted with the block that gives the logits; ``per_tokens``: what tokens add to that, as in MViT. ``per_term``: of
    terms of places, such as those of positions; ``per_pooling``: what the pooling of an attention of one head adds,
    with the normalisation behind it; ``per_head_pooling``: that of several heads, which are taken apart and joined;
    ``per_distance``, ``per_mark``: of relative positions, of a term and of a mark (``DistanceProduct``).
    """

    per_weight: int
    per_channel: float
    per_tap: float
    per_frame: float
    per_operation: float
    per_file: float
    per_tokens: float
    per_term: int
    per_pooling: float
    per_head_pooling: float
    per_distance: int
    per_mark: int


# Least squares of relative errors over 16 networks of x3d-tiny, x3d-mobile and r2plus1d-mobile, 0.3 to 21 MB, and three
# of one or two blocks, 30 to 91 kB, in each precision; executorch 1.5.1; weights count as they are stored. The largest
# errors were 0.13 % and 0.9 %. What poolings and tokens add is from what these leave of files of one to three
# multiscale blocks with one head and with several, and of MViT: within 0.5 % in fp32, 0.9 % in int8. A term takes 5.0
# bytes in int8 files of two sizes of a token stem, and of a position map: it stands there in float32 and in int8.
_LAYOUTS: Mapping[Precision, FileLayout] = {
    Precision.FP32: FileLayout(4, 0.0, 0.0, 967.0, 728.0, 3010.0, 7600.0, 4, 3930.0, 8100.0, 4, 2),
    Precision.INT8: FileLayout(1, 6.2, 3.9, 1311.0, 1385.0, 2850.0, 10000.0, 5, 3300.0, 8300.0, 4, 3),
}
# Not fitted: weights and biases in half the bytes, all else as in fp32 (X3D-XS and X3D-S: within 1 %).
_HALF = FileLayout(2, 0.0, 0.0, 967.0, 728.0, 3010.0, 7600.0, 2, 3930.0, 8100.0, 2, 1)
# What a product with terms by distance adds to those of an operation. Nine exports of two multiscale blocks with 1 to 8
# heads, in fp32, int8 and fp16, grew by these terms as is computed, within 700 bytes.
_PER_DISTANCES = 1520.0


def file_bytes(block: BlockSpec, x: TensorSpec, precision: Precision) -> int:
    """What a block adds to the file of a network, in whole bytes.

    Raises:
        InvalidValue: The arithmetic of its kind is not described.
    """
    layout = _LAYOUTS.get(precision, _HALF)
    once = layout.per_file if block.role.gives_logits else 0.0
    once += layout.per_tokens if isinstance(block.descriptor, TokenHeadKind) else 0.0
    return math.ceil(once + sum(_operation_bytes(operation, layout) for operation in block.operations(x)))


def activation_bytes(block: BlockSpec, x: TensorSpec, precision: Precision) -> int:
    """The most that a block holds at a time: what an operation reads and writes, and what waits for a later
    operation: the input of the block, or of branch and shortcut what is computed first, where the shortcut is a
    convolution.

    An engine that plans memory needs no less for the block, and as much for a network as for its largest block.

    Raises:
        InvalidValue: The arithmetic of its kind is not described.
    """
    return precision.value_bytes * max(_live_values(block, x), default=x.numel)


def _live_values(block: BlockSpec, x: TensorSpec) -> Iterator[int]:
    operations = block.operations(x)
    shortcut = operations[-1] if len(operations) > 1 and operations[-1].path is Path.SIDE else None
    if shortcut is not None and block.descriptor.shortcut_first:
        yield x.numel + shortcut.output.numel
        for operation in operations[:-1]:
            yield operation.input.numel + operation.output.numel + shortcut.output.numel
        return
    keeps = block.descriptor.keeps_input(block)
    for index, operation in enumerate(operations):
        # A shape alone does not tell: a block may be as wide inside as at its input.
        reads_input = operation.input == x and (index == 0 or operation.path is Path.SIDE)
        waiting = x.numel if keeps and not reads_input else 0
        if operation is shortcut:  # the branch has an output of this shape, and nothing reads the input afterwards
            waiting = max(waiting, operation.output.numel)
        yield operation.input.numel + operation.output.numel + waiting


def _operation_bytes(operation: Operation, layout: FileLayout) -> float:
    channels = operation.output.c
    if isinstance(operation, DistanceProduct):
        terms = layout.per_distance * operation.num_terms + layout.per_mark * operation.num_marks
        return terms + _PER_DISTANCES + layout.per_operation
    terms = _terms(operation)
    values = layout.per_term * terms if terms else layout.per_weight * operation.num_weights
    frames = (layout.per_frame + layout.per_tap * channels) * _taps(operation)
    scales = layout.per_channel * channels if operation.num_weights else 0.0
    return values + scales + frames + _pooling_bytes(operation, layout) + layout.per_operation


def _pooling_bytes(operation: Operation, layout: FileLayout) -> float:
    if not isinstance(operation, HeadConvolution):
        return 0.0
    return layout.per_pooling if operation.heads == 1 else layout.per_head_pooling


def _terms(operation: Operation) -> int:
    """Terms of places as a file has them: interpolated when it is written, for each place of the clip or picture."""
    x = operation.output
    if isinstance(operation, Addition):
        return x.c * x.t * x.h * x.w
    return x.c * x.h * x.w if isinstance(operation, PositionMap) else 0


def _taps(operation: Operation) -> int:
    """Frames of a depthwise kernel over frames and space; 0 of any other operation."""
    if not isinstance(operation, Convolution) or not operation.is_depthwise:
        return 0
    frames, *space = operation.kernel
    return frames if frames > 1 and max(space) > 1 else 0
