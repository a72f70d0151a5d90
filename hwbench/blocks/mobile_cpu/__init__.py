"""Blocks that run well on the CPUs of phones and boards, under the field's names."""

from hwbench.blocks.mobile_cpu.activations import HardSwish, Identity, ReLU, Swish, supported_act_functions
from hwbench.blocks.mobile_cpu.attention import SqueezeExcitation
from hwbench.blocks.mobile_cpu.convolutions import (
    Conv3d3x1x1BnAct,
    Conv3d3x3x3DwBnAct,
    Conv3d5x1x1BnAct,
    Conv3dPwBnAct,
    Conv3dSeparableDwBnAct,
    Conv3dTemporalKernel1BnAct,
)
from hwbench.blocks.mobile_cpu.fully_connected import FullyConnected
from hwbench.blocks.mobile_cpu.no_op import NoOpConvertBlock
from hwbench.blocks.mobile_cpu.pool import (
    AdaptiveAvgPool2d,
    AdaptiveAvgPool2dOutSize1,
    AdaptiveAvgPool3d,
    AdaptiveAvgPool3dOutSize1,
    Pool3d,
)
from hwbench.blocks.mobile_cpu.residual import ResidualBlock, X3dBottleneckBlock
from hwbench.blocks.mobile_cpu.x3d import Chain, X3dHead, X3dHeadPool, X3dStem

__all__ = [
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool2dOutSize1",
    "AdaptiveAvgPool3d",
    "AdaptiveAvgPool3dOutSize1",
    "Chain",
    "Conv3d3x1x1BnAct",
    "Conv3d3x3x3DwBnAct",
    "Conv3d5x1x1BnAct",
    "Conv3dPwBnAct",
    "Conv3dSeparableDwBnAct",
    "Conv3dTemporalKernel1BnAct",
    "FullyConnected",
    "HardSwish",
    "Identity",
    "NoOpConvertBlock",
    "Pool3d",
    "ReLU",
    "ResidualBlock",
    "SqueezeExcitation",
    "Swish",
    "X3dBottleneckBlock",
    "X3dHead",
    "X3dHeadPool",
    "X3dStem",
    "supported_act_functions",
]
