"""EfficientX3d: X3D made of efficient blocks, with the state-dict keys of the published checkpoints."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock, efficient_part
from hwbench.blocks.kinds import build
from hwbench.blocks.mobile_cpu import Chain, FullyConnected, X3dHead, X3dHeadPool
from hwbench.blocks.mobile_cpu.activations import activation
from hwbench.blocks.mobile_cpu.x3d import FoldedHead, last_linear, stream_head
from hwbench.blocks.streaming import StreamChain, StreamStep
from hwbench.errors import UnknownName, UnsupportedModule
from hwbench.models.stages import stages_of
from hwbench.registry import suggest
from hwbench.specs import AUTO, BlockSpec, TensorSpec
from hwbench.specs.bottlenecks import x3d_head, x3d_stage, x3d_stem
from hwbench.specs.kinds import x3d

# Blocks of each stage (X3D, arXiv 2004.04730, table 2: depth factor 2.2, for L 5.0, times 1, 2, 5, 3).
DEPTHS = {"XS": (3, 5, 11, 7), "S": (3, 5, 11, 7), "M": (3, 5, 11, 7), "L": (5, 10, 25, 15)}
_WIDTHS = (24, 48, 96, 192)
_EXPANSION, _SE_RATIO, _HIDDEN = 2.25, 0.0625, 2048


def x3d_blocks(expansion: str = "XS", num_classes: int = 400) -> tuple[BlockSpec, ...]:
    """The blocks of X3D-XS, S, M or L, from stem to head.

    Raises:
        UnknownName: No such size.
    """
    if expansion not in DEPTHS:
        raise UnknownName(f"unknown size of X3D {expansion!r}; {suggest(expansion, DEPTHS)}")
    blocks = [x3d_stem(_WIDTHS[0])]
    for depth, width in zip(DEPTHS[expansion], _WIDTHS):
        blocks += x3d_stage(
            blocks[-1].out_channels, depth=depth, width=width, expansion=_EXPANSION, kernel=((3, 3, 3),),
            se=_SE_RATIO, act="swish", stride=2,
        )  # fmt: skip
    last = blocks[-1]
    return (*blocks, x3d_head(last.out_channels, last.mid_channels, _HIDDEN, num_classes))


class EfficientX3d(EfficientBlock):
    """X3D of efficient blocks: (N, 3, T, H, W) of any size -> logits (N, classes).

    Stages are ``s1`` (stem), ``s2``, ``s3``, ... (a stage begins with every block of stride 2), ``head`` and
    ``projection``. XS, S and M are the same network (3,794,322 parameters) on clips of different sizes; L is deeper
    (6,153,432 parameters). Unlike vanilla X3D, the projection of the first block has a normalisation, and pooling comes
    before the last two layers for every size of input.

    Args:
        num_classes: Width of the logits.
        dropout: Before the last layer, in training.
        expansion: XS, S, M or L.
        head_act: Applied to the logits in eval mode: relu, swish, hswish or identity.
        enable_head: Without it the features (N, C, T, H/32, W/32) are returned.

    Raises:
        UnknownName: No such size or activation.
    """

    def __init__(
        self,
        num_classes: int = 400,
        dropout: float = 0.5,
        expansion: str = "XS",
        head_act: str = "identity",
        enable_head: bool = True,
    ) -> None:
        super().__init__()
        self._assemble(x3d_blocks(expansion, num_classes), dropout, head_act, enable_head)

    @classmethod
    def of(cls, blocks: Sequence[BlockSpec], dropout: float = 0.5) -> EfficientX3d:
        """A network of other blocks: a stem, bottlenecks, a head.

        Raises:
            UnsupportedModule: Blocks in another order.
        """
        network = cls.__new__(cls)
        EfficientBlock.__init__(network)
        network._assemble(blocks, dropout, "identity", enable_head=True)
        return network

    def _assemble(self, blocks: Sequence[BlockSpec], dropout: float, head_act: str, enable_head: bool) -> None:
        if not is_x3d(blocks):
            raise UnsupportedModule(
                f"expected a stem, x3d blocks and a head, got {'>'.join(block.kind for block in blocks)}"
            )
        stem, *inner, last = blocks
        self.s1 = build(stem)
        self._stages = ["s1"]
        for stage in stages_of(inner, lambda block: block.stride != 1):
            self._stages.append(f"s{len(self._stages) + 1}")
            named = OrderedDict((f"pathway0_res{i}", _efficient(block)) for i, block in enumerate(stage))
            self.add_module(self._stages[-1], Chain(named))
        self.head: X3dHeadPool | None = None
        if enable_head:
            head = build(last)
            assert isinstance(head, X3dHead)
            self.head = head.head
            if dropout > 0:
                self.dropout = nn.Dropout(dropout)
            self.projection: FullyConnected = head.projection
            self.act = activation(head_act)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self._stages:
            x = self.get_submodule(name)(x)
        if self.head is None:
            return x
        x = self.head(x).flatten(1)
        if hasattr(self, "dropout"):
            x = self.dropout(x)
        logits: torch.Tensor = self.projection(x)
        return logits if self.training else self.act(logits)

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for name, stage in self._named_stages():
            layers[name] = stage.to_deploy(input, variant)
            input = stage.output(input)
        if self.head is not None:
            layers["head"] = FoldedHead(self.head.to_deploy(input, variant), self.projection, self.act)
        return nn.Sequential(layers).eval()

    def to_stream(self, input: TensorSpec) -> StreamStep:
        steps: OrderedDict[str, StreamStep] = OrderedDict()
        for name, stage in self._named_stages():
            steps[name] = stage.to_stream(input)
            input = stage.output(input)
        if self.head is not None:
            steps["head"] = stream_head(self.head.to_stream(input), self.projection, self.act)
        return StreamChain(steps)

    def output(self, x: TensorSpec) -> TensorSpec:
        for _, stage in self._named_stages():
            x = stage.output(x)
        if self.head is None:
            return x
        return TensorSpec(x.n, last_linear(self.projection).out_features, 1, 1, 1)

    def _named_stages(self) -> list[tuple[str, EfficientBlock]]:
        return [(name, efficient_part(name, self.get_submodule(name))) for name in self._stages]


def _efficient(spec: BlockSpec) -> EfficientBlock:
    block = build(spec)
    assert isinstance(block, EfficientBlock)
    return block


def is_x3d(blocks: Sequence[BlockSpec]) -> bool:
    """Whether blocks are those of an X3D: its stem, its bottlenecks, its head."""
    kinds = [block.kind for block in blocks]
    expected = (x3d.X3dStemKind.name, {x3d.X3dKind.name}, x3d.X3dHeadKind.name)
    return len(blocks) >= 3 and (kinds[0], {*kinds[1:-1]}, kinds[-1]) == expected


def create_x3d(
    *,
    num_classes: int = 400,
    dropout: float = 0.5,
    expansion: str = "XS",
    head_act: str = "identity",
    enable_head: bool = True,
) -> EfficientX3d:
    """An ``EfficientX3d``; see there."""
    return EfficientX3d(num_classes, dropout, expansion, head_act, enable_head)
