"""The blocks that Multiscale Vision Transformers are made of.

Between blocks tokens keep their places: an activation (N, C, T, H, W) has one token for each place. A class token,
where there is one, is a second pathway (N, C, 1, 1, 1) beside them.

Sources: MViT, Fan et al. 2021 (arXiv 2104.11227), section 3 and table 2, as PyTorchVideo lays it out; MViTv2, Li et al.
2022 (arXiv 2112.01526), section 3, for the residual of pooled queries, relative positions, and wider attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import (
    ACTIVATION,
    GLOBAL,
    HIDDEN,
    IN,
    KERNEL,
    MID,
    OUT,
    STRIDE,
    TEMPORAL_STRIDE,
    Field,
    FieldType,
)
from hwbench.specs.kind import BlockKind, BlockRole, expect
from hwbench.specs.operations import POINT, Addition, Convolution, HeadConvolution, Operation, Path, Product
from hwbench.specs.tensor import TensorSpec

# Frames and side of the grid of tokens that learned position terms belong to; on others they are interpolated. 0: none.
POSITION_FRAMES = Field("position_frames", "pf", FieldType.COUNT, 0)
POSITION_SIDE = Field("position_side", "ps", FieldType.COUNT, 0)
HEADS = Field("heads", "nh", FieldType.COUNT, 1)
# Step between the keys and values over height and width.
KV_STRIDE = Field("kv_stride", "kv", FieldType.COUNT, 1)
# 1: pooled queries are added to what the attention gives (MViTv2, equation 5).
RESIDUAL_POOL = Field("residual_pool", "rq", FieldType.COUNT, 0)
# Frames and side of the grid of queries, or of keys where that is larger, whose distances have learned terms (MViTv2,
# equations 3 and 4); on others they are interpolated. 0: none.
RELATIVE_FRAMES = Field("relative_frames", "rf", FieldType.COUNT, 0)
RELATIVE_SIDE = Field("relative_side", "rs", FieldType.COUNT, 0)


@dataclass(frozen=True)
class DistanceProduct(Product):
    """What queries make of the learned terms of their distances to keys along one axis.

    A file holds terms for each place of a query and each of a key along the axis (``num_terms``), and for every head
    and key marks of its place there (``num_marks``), see ``RelativePositions``.
    """

    num_terms: int = 0
    num_marks: int = 0


class TokenStemKind(BlockKind):
    """A convolution that makes tokens of a clip, and position terms for time and space apart, which are added."""

    name = "token-stem"
    fields = (IN, OUT, KERNEL, STRIDE, TEMPORAL_STRIDE, POSITION_FRAMES, POSITION_SIDE, ACTIVATION)
    role = BlockRole.STEM
    module: ClassVar[str] = "hwbench.blocks.mvit:token_stem"

    def check(self, spec: BlockSpec) -> None:
        plain = len(spec.kernel) == 1 and spec.activation == "identity"
        expect(spec, plain, f"one kernel and no activation, as {self.name}_i3_o96_k3x7x7_s4_ts2_pf8_ps56_identity")
        expect(spec, bool(spec.number("position_frames")) == bool(spec.number("position_side")), "both pf and ps")

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        return x.strided(spec.out_channels, spec.stride, spec.number(TEMPORAL_STRIDE.name))

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Operation]:
        step = spec.number(TEMPORAL_STRIDE.name)
        patches = Convolution(x, spec.out_channels, spec.kernel[0], spec.stride, temporal_stride=step)
        yield patches
        frames, side = spec.number(POSITION_FRAMES.name), spec.number(POSITION_SIDE.name)
        if frames:
            yield Addition(patches.output, (frames + side**2) * spec.out_channels)


class ClassTokenStemKind(TokenStemKind):
    """As ``token-stem``, with a learned class token beside the tokens, which has a position term of its own."""

    name = "class-token-stem"
    gives = 2

    def outputs(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        (x,) = pathways
        return self.output(spec, x), _token(x, spec.out_channels)

    def operations_on(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> Iterator[Operation]:
        (x,) = pathways
        yield from self.operations(spec, x)
        yield Addition(_token(x, spec.out_channels), 2 * spec.out_channels)


class MultiscaleKind(BlockKind):
    """Attention whose queries, keys and values are pooled by depthwise convolutions, then two linear layers; each is
    normalised before, and added to its input.

    ``mid_channels``: of queries, keys and values, and of what the attention gives. ``hidden_channels``: between the two
    linear layers. ``stride``: over height and width, of the queries and so of the block; ``kv_stride``: of keys and
    values. ``kernel``: of all three. Queries are pooled where they have a stride, or are added to the attention
    (``residual_pool``); keys and values where they have a stride, or the kernel is larger than a point. With
    ``relative_frames`` and ``relative_side`` a score has learned terms for how far query and key are from each other.
    """

    name = "multiscale"
    fields = (
        *(IN, MID, HIDDEN, OUT, KERNEL, STRIDE, HEADS, KV_STRIDE, RESIDUAL_POOL, RELATIVE_FRAMES, RELATIVE_SIDE),
        ACTIVATION,
    )
    module: ClassVar[str] = "hwbench.blocks.mvit:multiscale"

    def check(self, spec: BlockSpec) -> None:
        example = f"{self.name}_i96_m96_d384_o96_k3x3x3_nh1_kv8_gelu"
        heads, inner = spec.number(HEADS.name), spec.mid_channels
        expect(spec, len(spec.kernel) == 1, f"one kernel, as {example}")
        divided = inner > 0 and heads > 0 and inner % heads == 0
        expect(spec, divided, f"channels inside that its heads divide, as {example}")
        expect(spec, spec.hidden_channels > 0, f"channels between its linear layers, as {example}")
        expect(spec, spec.stride == 1 or spec.stride % 2 == 0, "a stride of 1, or an even one")
        expect(spec, spec.number(KV_STRIDE.name) > 0, "a stride of keys and values, at least 1")
        expect(spec, spec.number(RESIDUAL_POOL.name) in (0, 1), "rq1, or none")
        relative = (spec.number(RELATIVE_FRAMES.name), spec.number(RELATIVE_SIDE.name))
        expect(spec, all(relative) or not any(relative), "both rf and rs, or neither")
        expect(spec, inner in (spec.in_channels, spec.out_channels), "its channels inside to be those in, or those out")

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Operation]:
        return _multiscale(spec, x, tokens=0)


class MultiscaleClassKind(MultiscaleKind):
    """As ``multiscale``, with a class token beside the tokens, which is attended to and attends, and is not pooled."""

    name = "class-multiscale"
    takes = gives = 2

    def outputs(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        x, token = pathways
        if token != _token(x, spec.in_channels):
            raise InvalidValue(
                f"{spec.key} takes tokens and a class token such as {_token(x, x.c).key}, got {token.key}"
            )
        return self.output(spec, x), _token(x, spec.out_channels)

    def operations_on(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> Iterator[Operation]:
        return _multiscale(spec, pathways[0], tokens=1)


class TokenHeadKind(BlockKind):
    """Normalisation, the mean over all tokens, the classifier."""

    name = "token-head"
    fields = (IN, OUT, KERNEL, ACTIVATION)
    role = BlockRole.HEAD
    module: ClassVar[str] = "hwbench.blocks.mvit:token_head"

    def check(self, spec: BlockSpec) -> None:
        plain = spec.kernel == GLOBAL and spec.activation == "identity"
        expect(spec, plain, f"a head such as {self.name}_i768_o400_kglobal_identity")

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Operation]:
        yield Convolution(_token(x, x.c), spec.out_channels)


class ClassTokenHeadKind(TokenHeadKind):
    """Normalisation and the classifier, on the class token alone."""

    name = "class-token-head"
    takes = 2

    def outputs(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return (_token(pathways[0], spec.out_channels),)

    def operations_on(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> Iterator[Operation]:
        return self.operations(spec, pathways[1])


def pools_queries(spec: BlockSpec) -> bool:
    """Whether queries go through a convolution."""
    return spec.stride > 1 or bool(spec.number(RESIDUAL_POOL.name))


def pools_keys(spec: BlockSpec) -> bool:
    """Whether keys and values go through a convolution each."""
    return spec.kernel != (POINT,) or spec.number(KV_STRIDE.name) > 1


def _token(x: TensorSpec, channels: int) -> TensorSpec:
    """One place for each clip."""
    return TensorSpec(x.n, channels, 1, 1, 1)


def _rows(x: TensorSpec, tokens: int) -> TensorSpec:
    """The places of an activation, with so many class tokens in a row with them."""
    return x.with_(t=1, h=1, w=x.t * x.h * x.w + tokens) if tokens else x


def _multiscale(spec: BlockSpec, x: TensorSpec, tokens: int) -> Iterator[Operation]:
    heads, inner, rows = spec.number(HEADS.name), spec.mid_channels, _rows(x, tokens)
    keys = x.strided(inner, spec.number(KV_STRIDE.name))
    queries = x.strided(inner, spec.stride)

    def pooled(stride: int, path: Path) -> HeadConvolution:
        return HeadConvolution(x.with_(c=inner), inner, spec.kernel[0], stride, inner, path, heads=heads)

    for _ in range(2):
        yield Convolution(rows, inner, path=Path.SIDE)
        if pools_keys(spec):
            yield pooled(spec.number(KV_STRIDE.name), Path.SIDE)
    yield Convolution(rows, inner)
    if pools_queries(spec):
        yield pooled(spec.stride, Path.MAIN)
    num_keys, fan_in = keys.t * keys.h * keys.w + tokens, inner // heads
    if frames := spec.number(RELATIVE_FRAMES.name):
        side = spec.number(RELATIVE_SIDE.name)
        for at, length, reference in (
            (queries.t, keys.t, frames),
            (queries.h, keys.h, side),
            (queries.w, keys.w, side),
        ):
            weights, terms, marks = (2 * reference - 1) * fan_in, at * length * fan_in, heads * length * num_keys
            yield DistanceProduct(queries, heads * length, fan_in, Path.SIDE, weights, terms, marks)
        # Each key has the terms of its place beside its channels, see ``RelativePositions``.
        fan_in += keys.t + keys.h + keys.w
    scores = Product(_rows(queries, tokens), heads * num_keys, fan_in)
    yield from (scores, attended := Product(scores.output, inner, num_keys))
    yield Convolution(attended.output, inner)
    if inner != spec.in_channels:
        yield Convolution(rows, inner, path=Path.SIDE)
    yield Convolution(attended.output, spec.hidden_channels)
    yield Convolution(attended.output.with_(c=spec.hidden_channels), spec.out_channels)
    if inner != spec.out_channels:
        yield Convolution(attended.output, spec.out_channels, path=Path.SIDE)
