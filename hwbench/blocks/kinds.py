"""From a ``BlockSpec`` to its block: one function for each kind.

======  ==================================================================  ============================
kind    fields read beside ``in_channels`` and ``out_channels``             block
======  ==================================================================  ============================
stem    kernel (1x3x3+5x1x1), stride (2), activation (relu)                 ``X3dStem``
x3d     mid_channels, kernel, stride, se_channels, activation (inner)       ``X3dBottleneckBlock``
head    mid_channels, hidden_channels, kernel (global), activation (relu)   ``X3dHead``
conv    kernel (1x1x1, 1xkxk, 3x1x1, 5x1x1, depthwise 3x3x3), stride,       the ``Conv3d...BnAct`` blocks
        groups, activation
se      se_channels                                                         ``SqueezeExcitation``
pool    kernel (global)                                                     ``AdaptiveAvgPool3dOutSize1``
======  ==================================================================  ============================
"""

from __future__ import annotations

from collections.abc import Callable

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
from hwbench.errors import UnsupportedModule
from hwbench.registry import Registry
from hwbench.specs import GLOBAL, BlockSpec

kinds: Registry[Callable[[BlockSpec], EfficientBlock]] = Registry("kind of block")


def build(spec: BlockSpec) -> EfficientBlock:
    """A new block in its original form, with the default initialisation of its layers.

    Raises:
        UnknownName: No such kind.
        UnsupportedModule: A combination of fields that the kind does not have.
    """
    return kinds.get(spec.kind)(spec)


def _expect(spec: BlockSpec, condition: bool, expected: str) -> None:
    if not condition:
        raise UnsupportedModule(f"{spec.key}: expected {expected}")


@kinds.register("stem")
def _stem(spec: BlockSpec) -> EfficientBlock:
    as_x3d = spec.kernel == ((1, 3, 3), (5, 1, 1)) and spec.stride == 2 and spec.activation == "relu"
    _expect(spec, as_x3d, "a stem of kernel 1x3x3+5x1x1, stride 2 and activation relu")
    return X3dStem(spec.in_channels, spec.out_channels)


@kinds.register("x3d")
def _x3d(spec: BlockSpec) -> EfficientBlock:
    _expect(spec, spec.mid_channels > 0, "the channels inside, as in x3d_i24_m54_o24_k3x3x3_swish")
    return X3dBottleneckBlock(
        spec.in_channels,
        spec.mid_channels,
        spec.out_channels,
        spatial_stride=spec.stride,
        act_functions=("relu", spec.activation, "relu"),
        se_channels=spec.se_channels,
        kernel=spec.kernel,
    )


@kinds.register("head")
def _head(spec: BlockSpec) -> EfficientBlock:
    as_x3d = spec.kernel == GLOBAL and spec.mid_channels > 0 and spec.hidden_channels > 0 and spec.activation == "relu"
    _expect(spec, as_x3d, "a head such as head_i192_m432_d2048_o400_kglobal_relu")
    return X3dHead(spec.in_channels, spec.mid_channels, spec.hidden_channels, spec.out_channels)


@kinds.register("conv")
def _conv(spec: BlockSpec) -> EfficientBlock:
    _expect(spec, len(spec.kernel) == 1, "one kernel")
    (t, h, w), act = spec.kernel[0], spec.activation
    depthwise = spec.groups == spec.in_channels == spec.out_channels
    plain = spec.stride == 1
    if (t, h, w) == (1, 1, 1) and spec.groups == 1 and plain:
        return Conv3dPwBnAct(spec.in_channels, spec.out_channels, activation=act)
    if (t, h, w) == (3, 3, 3) and depthwise:
        return Conv3d3x3x3DwBnAct(spec.in_channels, spec.stride, activation=act)
    if t == 1 and h == w:
        return Conv3dTemporalKernel1BnAct(
            spec.in_channels, spec.out_channels, groups=spec.groups, spatial_kernel=h, spatial_stride=spec.stride,
            spatial_padding=h // 2, activation=act,
        )  # fmt: skip
    over_time = {(3, 1, 1): Conv3d3x1x1BnAct, (5, 1, 1): Conv3d5x1x1BnAct}.get((t, h, w))
    _expect(spec, over_time is not None and plain, "1x1x1, 1xkxk, 3x1x1, 5x1x1 or depthwise 3x3x3")
    assert over_time is not None
    return over_time(spec.in_channels, spec.out_channels, groups=spec.groups, activation=act)


@kinds.register("se")
def _se(spec: BlockSpec) -> EfficientBlock:
    _expect(spec, spec.se_channels > 0 and spec.in_channels == spec.out_channels, "se_channels and as many out as in")
    return SqueezeExcitation(spec.in_channels, spec.se_channels, is_3d=True)


@kinds.register("pool")
def _pool(spec: BlockSpec) -> EfficientBlock:
    _expect(
        spec, spec.kernel == GLOBAL and spec.in_channels == spec.out_channels, "kernel global and as many out as in"
    )
    return AdaptiveAvgPool3dOutSize1()
