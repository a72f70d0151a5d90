"""MViT: tokens of a clip, stages of attention between pooled queries, keys and values, a linear head.

Sources: Fan et al. 2021 (arXiv 2104.11227), section 3 and table 2, as PyTorchVideo lays it out; Li et al. 2022
(arXiv 2112.01526), section 3 and table 1, for what its second version adds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.spaces.axes import Axis, activation, activations, count, counts, depths, factors, kernel, one
from hwbench.spaces.bottlenecks import stages_alike
from hwbench.spaces.families.resnet import single
from hwbench.spaces.family import Ends, Family, Member
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import GLOBAL, BlockSpec, Kernel, TensorSpec
from hwbench.specs.kinds.mvit import (
    ClassTokenHeadKind,
    ClassTokenStemKind,
    MultiscaleClassKind,
    MultiscaleKind,
    TokenHeadKind,
    TokenStemKind,
)
from hwbench.specs.tensor import CLIP_CHANNELS
from hwbench.toml_fields import Fields

_KERNEL: Kernel = ((3, 3, 3),)
ATTENTION, MLP = "attention", "mlp"


def query_strides(fields: Fields, name: str) -> tuple[int, ...]:
    """Steps over height and width between queries: 1, or even."""
    values = counts(fields, name)
    if any(value > 1 and value % 2 for value in values):
        raise fields.error(name, "expected 1 or even numbers", list(values))
    return values


def widenings(fields: Fields, name: str) -> tuple[str, ...]:
    """Where a stage takes its width: ``attention`` or ``mlp``."""
    values = fields.texts(name)
    if not {*values} <= {ATTENTION, MLP}:
        raise fields.error(name, f"expected {ATTENTION} or {MLP}", list(values))
    return values


def whole_numbers(fields: Fields, name: str) -> tuple[int, ...]:
    """0, or more."""
    return fields.integers(name)


def flags(fields: Fields, name: str) -> tuple[int, ...]:
    """0 for no, 1 for yes."""
    values = fields.integers(name)
    if not {*values} <= {0, 1}:
        raise fields.error(name, "expected 0 or 1", list(values))
    return values


@dataclass(frozen=True)
class TokenStemChoice:
    """A convolution that makes tokens; position terms of a grid of tokens, 0: none; a class token or none."""

    width: int
    kernel: Kernel
    stride: int
    temporal_stride: int
    position_frames: int
    position_side: int
    class_token: int

    @classmethod
    def read(cls, fields: Fields, prefix: str = "") -> TokenStemChoice:
        """From a table, or from the keys of a card, which begin with ``prefix``."""
        stem = cls(
            count(fields, f"{prefix}width"),
            one(single)(fields, f"{prefix}kernel"),
            count(fields, f"{prefix}stride"),
            count(fields, f"{prefix}temporal_stride"),
            fields.integer("position_frames", 0),
            fields.integer("position_side", 0),
            one(flags)(fields, "class_token") if "class_token" in fields else 0,
        )
        if bool(stem.position_frames) != bool(stem.position_side):
            raise fields.error(
                "position_side", "expected position_frames and position_side, or neither", stem.position_side
            )
        return stem

    def block(self) -> BlockSpec:
        """The block that it stands for."""
        return BlockSpec.of(
            (ClassTokenStemKind if self.class_token else TokenStemKind).name, in_channels=CLIP_CHANNELS,
            out_channels=self.width, kernel=self.kernel, stride=self.stride, temporal_stride=self.temporal_stride,
            position_frames=self.position_frames, position_side=self.position_side, activation="identity",
        )  # fmt: skip


@dataclass(frozen=True)
class MvitEnds(Ends):
    """Stem and head of an MViT; the head has nothing to choose."""

    first: TokenStemChoice

    def stem(self) -> BlockSpec:
        return self.first.block()

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        kind = ClassTokenHeadKind if len(x.pathways) > 1 else TokenHeadKind
        return BlockSpec(kind.name, x.c, num_classes, kernel=GLOBAL, activation="identity")

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.first}


class Mvit(Family):
    """MViT and its neighbourhood.

    ``depth``: number of blocks. ``width``: channels that leave the stage. ``head_width``: channels of a head of the
    attention. ``mlp_ratio``: channels between the two linear layers of a block by those of its attention.
    ``kv_stride``: step over height and width between keys and values. ``kernel``: of the pooling of queries, keys and
    values. ``act``: between the linear layers. ``residual_pool``: 1: pooled queries are added to what the attention
    gives, and all blocks pool them. ``stride``: over height and width, between the queries of the first block.
    ``widen``: the stage takes its width in the attention of its first block (as MViTv2), or in the linear layers of its
    last one (as MViT). ``relative_frames``, ``relative_side``: of the grid of tokens whose distances have
    learned terms, that of queries or of keys, whichever is larger; 0: none.
    """

    name = "mvit"
    axes: ClassVar[tuple[Axis, ...]] = (
        Axis("depth", depths),
        Axis("width", counts),
        Axis("head_width", counts),
        Axis("mlp_ratio", factors, 4.0),
        Axis("kv_stride", counts, 1),
        Axis("kernel", single, _KERNEL),
        Axis("act", activations, "gelu"),
        Axis("residual_pool", flags, 0),
    )
    constants: ClassVar[tuple[Axis, ...]] = (
        Axis("stride", query_strides, 2),
        Axis("widen", widenings, ATTENTION),
        Axis("relative_frames", whole_numbers, 0),
        Axis("relative_side", whole_numbers, 0),
    )

    def ends(self, fields: Fields) -> MvitEnds:
        stem = fields.table("stem")
        ends = MvitEnds(TokenStemChoice.read(stem))
        stem.done()
        return ends

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        return _stage(choice, x.c, len(x.pathways) > 1)

    def check(self, stage: Stage) -> tuple[str, str] | None:
        if any(choice["width"] * choice["mlp_ratio"] < 1 for choice in stage.choices):
            return "mlp_ratio", "expected at least one channel between the linear layers"
        of_grid = {name: stage.choices[0][name] for name in ("relative_frames", "relative_side")}
        if any(of_grid.values()) and not all(of_grid.values()):
            return min(of_grid, key=of_grid.__getitem__), "expected relative_frames and relative_side, or neither"
        widens = stage.choices[0]["widen"] == ATTENTION
        if widens and any(choice["width"] % choice["head_width"] for choice in stage.choices):
            return "head_width", "expected numbers that divide every width of the stage"
        return None

    def check_inputs(self, stage: Stage, channels: Collection[int]) -> tuple[str, str] | None:
        if stage.choices[0]["widen"] == ATTENTION:
            return None
        if any(number % head_width for number in channels for head_width in stage["head_width"]):
            reaching = " or ".join(map(str, sorted(channels)))
            return "head_width", f"expected numbers that divide the {reaching} channels that reach the stage"
        return None

    def card(self, fields: Fields) -> Member:
        """Depths, widths and strides by stage, everything else alike in all stages."""
        alike = {
            "head_width": count(fields, "head_width"),
            "mlp_ratio": fields.number("mlp_ratio"),
            "kernel": kernel(fields, "kernel"),
            "act": activation(fields, "act"),
            "residual_pool": one(flags)(fields, "residual_pool") if "residual_pool" in fields else 0,
            "widen": one(widenings)(fields, "widen"),
        }
        stem = TokenStemChoice.read(fields, "stem_")
        return Member(MvitEnds(stem), stages_alike(self, fields, alike, ("depth", "width", "stride", "kv_stride")))


@lru_cache(maxsize=1 << 14)
def _stage(choice: StageChoice, in_channels: int, with_class: bool) -> tuple[BlockSpec, ...]:
    depth, width, head_width = choice["depth"], choice["width"], choice["head_width"]
    in_attention = choice["widen"] == ATTENTION
    blocks = []
    for number in range(depth):
        is_last = number == depth - 1
        into = in_channels if number == 0 or not in_attention else width
        inner = width if in_attention else in_channels
        out = width if in_attention or is_last else inner
        if inner % head_width:
            raise InvalidValue(f"head_width: {head_width} does not divide the {inner} channels that reach the stage")
        blocks.append(
            BlockSpec.of(
                (MultiscaleClassKind if with_class else MultiscaleKind).name, in_channels=into, mid_channels=inner,
                hidden_channels=int(inner * choice["mlp_ratio"]), out_channels=out,
                relative_frames=choice["relative_frames"], relative_side=choice["relative_side"],
                kernel=choice["kernel"], stride=1 if number else choice["stride"], heads=inner // head_width,
                kv_stride=choice["kv_stride"], residual_pool=choice["residual_pool"], activation=choice["act"],
            )
        )  # fmt: skip
    return tuple(blocks)
