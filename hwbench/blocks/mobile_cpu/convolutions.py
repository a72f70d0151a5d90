"""Convolutions with batch normalisation and activation.

All of them keep the layers in ``kernel``, a Sequential with the children ``conv``, ``bn`` (with ``use_bn``) and
``act``, so that state dicts read ``kernel.conv.weight``, ``kernel.bn.running_mean``, ... Common arguments:

    bias            whether the convolution has a bias; not needed before a normalisation
    activation      relu, swish, hswish or identity
    use_bn          whether there is a batch normalisation
    norm_eps        its epsilon
    norm_momentum   its momentum
"""

from __future__ import annotations

from collections import OrderedDict
from typing import ClassVar

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.mobile_cpu.activations import Activation, activation, efficient_act
from hwbench.blocks.mobile_cpu.delayed import DelayedTaps
from hwbench.blocks.mobile_cpu.taps import CausalConv3d, Taps, convolved
from hwbench.blocks.mobile_cpu.temporal import folded_conv
from hwbench.blocks.streaming import StreamChain, StreamStep
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, TensorSpec


class ConvBnAct(EfficientBlock):
    """A 3-D convolution, its normalisation and its activation; the blocks below fix its geometry."""

    kernel: nn.Sequential

    def __init__(
        self, conv: nn.Conv3d, act: str, *, use_bn: bool = True, norm_eps: float = 1e-5, norm_momentum: float = 0.1
    ) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict(conv=conv)
        if use_bn:
            layers["bn"] = nn.BatchNorm3d(conv.out_channels, eps=norm_eps, momentum=norm_momentum)
        layers["act"] = activation(act)
        self.kernel = nn.Sequential(layers)

    @property
    def conv(self) -> nn.Conv3d:
        """The convolution.

        Raises:
            UnsupportedModule: It is of another type, or has something else beside its normalisation and activation.
        """
        others = [name for name, _ in self.kernel.named_children() if name not in ("conv", "bn", "act")]
        if others:
            raise UnsupportedModule(f"{type(self).__name__}: expected conv, bn and act in kernel, got {others[0]}, too")
        conv = self.kernel.get_submodule("conv")
        if type(conv) not in (nn.Conv3d, CausalConv3d):
            raise UnsupportedModule(f"{type(self).__name__}: expected Conv3d in kernel.conv, got {type(conv).__name__}")
        assert isinstance(conv, nn.Conv3d)
        return conv

    @property
    def is_framewise(self) -> bool:
        return self.conv.kernel_size[0] == 1

    def causal(self) -> None:
        if not self.is_framewise:
            self.kernel.conv = CausalConv3d.of(self.conv)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernel(x)  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        return folded_conv(self.conv, self._norm, self._act.to_deploy(), input, variant)

    def to_stream(self, input: TensorSpec) -> StreamStep:
        if self.is_framewise:
            return super().to_stream(input)
        return DelayedTaps(Taps(self.conv, self._norm), self._act.to_deploy(), input)

    @property
    def _norm(self) -> nn.Module | None:
        return dict(self.kernel.named_children()).get("bn")

    @property
    def _act(self) -> Activation:
        return efficient_act(type(self).__name__, self.kernel.get_submodule("act"))

    def output(self, x: TensorSpec) -> TensorSpec:
        return convolved(self.conv, x)


class Conv3dPwBnAct(ConvBnAct):
    """Pointwise (1 x 1 x 1) convolution: the cheapest way to mix channels on every device."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        bias: bool = False,
        activation: str = "relu",
        use_bn: bool = True,
        norm_eps: float = 1e-5,
        norm_momentum: float = 0.1,
    ) -> None:
        conv = nn.Conv3d(in_channels, out_channels, 1, bias=bias)
        super().__init__(conv, activation, use_bn=use_bn, norm_eps=norm_eps, norm_momentum=norm_momentum)


class Conv3d3x3x3DwBnAct(ConvBnAct):
    """Depthwise 3 x 3 x 3 convolution with an optional spatial stride (X3D's)."""

    def __init__(
        self,
        in_channels: int,
        spatial_stride: int = 1,
        bias: bool = False,
        activation: str = "relu",
        use_bn: bool = True,
        norm_eps: float = 1e-5,
        norm_momentum: float = 0.1,
    ) -> None:
        stride = (1, spatial_stride, spatial_stride)
        conv = nn.Conv3d(in_channels, in_channels, 3, stride=stride, padding=1, groups=in_channels, bias=bias)
        super().__init__(conv, activation, use_bn=use_bn, norm_eps=norm_eps, norm_momentum=norm_momentum)


class Conv3dTemporalKernel1BnAct(ConvBnAct):
    """1 x k x k convolution: every frame by itself."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        bias: bool = False,
        groups: int = 1,
        spatial_kernel: int = 1,
        spatial_stride: int = 1,
        spatial_padding: int = 0,
        spatial_dilation: int = 1,
        activation: str = "relu",
        use_bn: bool = True,
        norm_eps: float = 1e-5,
        norm_momentum: float = 0.1,
    ) -> None:
        conv = nn.Conv3d(
            in_channels,
            out_channels,
            (1, spatial_kernel, spatial_kernel),
            stride=(1, spatial_stride, spatial_stride),
            padding=(0, spatial_padding, spatial_padding),
            dilation=(1, spatial_dilation, spatial_dilation),
            groups=groups,
            bias=bias,
        )
        super().__init__(conv, activation, use_bn=use_bn, norm_eps=norm_eps, norm_momentum=norm_momentum)


class _OverTime(ConvBnAct):
    """k x 1 x 1 convolution: every position by itself."""

    taps: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        groups: int = 1,
        bias: bool = False,
        activation: str = "relu",
        use_bn: bool = True,
        norm_eps: float = 1e-5,
        norm_momentum: float = 0.1,
    ) -> None:
        kernel, padding = (self.taps, 1, 1), (self.taps // 2, 0, 0)
        conv = nn.Conv3d(in_channels, out_channels, kernel, padding=padding, groups=groups, bias=bias)
        super().__init__(conv, activation, use_bn=use_bn, norm_eps=norm_eps, norm_momentum=norm_momentum)


class Conv3d3x1x1BnAct(_OverTime):
    """3 x 1 x 1 convolution over time."""

    taps = 3


class Conv3d5x1x1BnAct(_OverTime):
    """5 x 1 x 1 convolution over time (the second half of X3D's stem, there depthwise)."""

    taps = 5


class Conv3dSeparableDwBnAct(EfficientBlock):
    """Depthwise 1 x 3 x 3, then depthwise 3 x 1 x 1, then normalisation and activation.

    Nothing stands between the two convolutions, as in X3D's stem: per channel the block is a 3 x 3 x 3 kernel of
    temporal rank 1. On a runtime where the step over time is free of data movement it costs little more than 1 x 3 x 3.
    """

    def __init__(
        self,
        in_channels: int,
        spatial_stride: int = 1,
        activation: str = "relu",
        use_bn: bool = True,
        norm_eps: float = 1e-5,
        norm_momentum: float = 0.1,
    ) -> None:
        super().__init__()
        self.conv_xy = Conv3dTemporalKernel1BnAct(
            in_channels, in_channels, groups=in_channels, spatial_kernel=3, spatial_stride=spatial_stride,
            spatial_padding=1, activation="identity", use_bn=False,
        )  # fmt: skip
        self.conv_t = Conv3d3x1x1BnAct(
            in_channels, in_channels, groups=in_channels, activation=activation, use_bn=use_bn,
            norm_eps=norm_eps, norm_momentum=norm_momentum,
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_t(self.conv_xy(x))  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        between = self.conv_xy.output(input)
        return nn.Sequential(
            OrderedDict(
                conv_xy=self.conv_xy.to_deploy(input, variant),
                conv_t=self.conv_t.to_deploy(between, variant),
            )
        ).eval()

    def to_stream(self, input: TensorSpec) -> StreamStep:
        between = self.conv_xy.output(input)
        return StreamChain({"conv_xy": self.conv_xy.to_stream(input), "conv_t": self.conv_t.to_stream(between)})

    def output(self, x: TensorSpec) -> TensorSpec:
        return self.conv_t.output(self.conv_xy.output(x))
