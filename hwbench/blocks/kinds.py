"""From a ``BlockSpec`` to its module: what the descriptors in ``hwbench.specs.kinds`` name as ``module``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.mobile_cpu import (
    AdaptiveAvgPool3dOutSize1,
    Conv3d3x1x1BnAct,
    Conv3d3x3x3DwBnAct,
    Conv3d5x1x1BnAct,
    Conv3dPwBnAct,
    Conv3dTemporalKernel1BnAct,
    SqueezeExcitation,
    X3dBottleneckBlock,
    X3dHead,
    X3dStem,
)
from hwbench.specs import BlockSpec, block_kinds
from hwbench.specs.fields import CAUSAL, TEMPORAL_STRIDE
from hwbench.specs.kinds.x3d import FREE_SHORTCUT, HIDDEN_BIAS, STEM_KERNEL


def build(spec: BlockSpec) -> nn.Module:
    """A new block in its original form, with the default initialisation of its layers.

    Raises:
        UnknownName: No such kind.
        UnsupportedModule: A combination of fields that the kind does not have.
    """
    descriptor = block_kinds.get(spec.kind)
    descriptor.check(spec)
    module, _, function = descriptor.module.partition(":")
    make = cast(Callable[[BlockSpec], nn.Module], getattr(importlib.import_module(module), function))
    return make(spec)


def x3d_stem(spec: BlockSpec) -> EfficientBlock:
    """The stem of X3D."""
    return _causal(spec, X3dStem(spec.in_channels, spec.out_channels, over_time=spec.kernel == STEM_KERNEL))


def x3d_bottleneck(spec: BlockSpec) -> EfficientBlock:
    """The bottleneck of X3D; ``activation`` is the one behind its depthwise convolution."""
    block = X3dBottleneckBlock(
        spec.in_channels,
        spec.mid_channels,
        spec.out_channels,
        spatial_stride=spec.stride,
        act_functions=("relu", spec.activation, "relu"),
        se_channels=spec.se_channels,
        kernel=spec.kernel,
        temporal_stride=spec.number(TEMPORAL_STRIDE.name),
        free_shortcut=bool(spec.number(FREE_SHORTCUT.name)),
    )
    return _causal(spec, block)


def x3d_head(spec: BlockSpec) -> EfficientBlock:
    """The head of X3D; ``out_channels`` is the number of classes."""
    return X3dHead(
        spec.in_channels, spec.mid_channels, spec.hidden_channels, spec.out_channels,
        hidden_activation=spec.activation, hidden_bias=bool(spec.number(HIDDEN_BIAS.name)),
    )  # fmt: skip


def conv(spec: BlockSpec) -> EfficientBlock:
    """The ``Conv3d...BnAct`` block of that kernel."""
    (t, h, w), act = spec.kernel[0], spec.activation
    depthwise = spec.groups == spec.in_channels == spec.out_channels
    if (t, h, w) == (1, 1, 1) and spec.groups == 1 and spec.stride == 1:
        return Conv3dPwBnAct(spec.in_channels, spec.out_channels, activation=act)
    if (t, h, w) == (3, 3, 3) and depthwise:
        return Conv3d3x3x3DwBnAct(spec.in_channels, spec.stride, activation=act)
    if t == 1:
        return Conv3dTemporalKernel1BnAct(
            spec.in_channels, spec.out_channels, groups=spec.groups, spatial_kernel=h, spatial_stride=spec.stride,
            spatial_padding=h // 2, activation=act,
        )  # fmt: skip
    over_time = {3: Conv3d3x1x1BnAct, 5: Conv3d5x1x1BnAct}[t]
    return over_time(spec.in_channels, spec.out_channels, groups=spec.groups, activation=act)


def squeeze_excitation(spec: BlockSpec) -> EfficientBlock:
    """Squeeze-excite on its own."""
    return SqueezeExcitation(spec.in_channels, spec.se_channels, is_3d=True)


def pool(spec: BlockSpec) -> EfficientBlock:
    """The mean over a whole clip."""
    del spec  # it has no weights, and takes any number of channels
    return AdaptiveAvgPool3dOutSize1()


def _causal(spec: BlockSpec, block: EfficientBlock) -> EfficientBlock:
    """The block, looking at no frame to come where its spec says so."""
    if spec.number(CAUSAL.name):
        block.causal()
    return block
