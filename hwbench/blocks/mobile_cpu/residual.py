"""The bottleneck of X3D."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock, Residual, efficient_part
from hwbench.blocks.functional import FloatFunctional
from hwbench.blocks.graph.frames import taken
from hwbench.blocks.mobile_cpu.activations import Activation, activation, efficient_act
from hwbench.blocks.mobile_cpu.attention import SqueezeExcitation
from hwbench.blocks.mobile_cpu.convolutions import (
    Conv3d3x3x3DwBnAct,
    Conv3dPwBnAct,
    Conv3dSeparableDwBnAct,
    Conv3dTemporalKernel1BnAct,
    ConvBnAct,
)
from hwbench.blocks.mobile_cpu.pool import PixelMean
from hwbench.blocks.mobile_cpu.x3d import Chain
from hwbench.blocks.streaming import StreamStep, named
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, Kernel, TensorSpec, format_kernel
from hwbench.specs.kinds.x3d import extends_over_time
from hwbench.specs.widths import squeezed

FULL: Kernel = ((3, 3, 3),)
SPATIAL: Kernel = ((1, 3, 3),)
WIDE: Kernel = ((1, 5, 5),)
SEPARABLE: Kernel = ((1, 3, 3), (3, 1, 1))


class X3dBottleneckBlock(EfficientBlock, Residual):
    """Pointwise, depthwise, squeeze-excite, activation, pointwise; added to the input (arXiv 2004.04730, table 1).

    Children of ``layers``: ``conv_0``, ``conv_1``, ``se`` (with ``se_ratio`` > 0), ``act_func_1``, ``conv_2``.

    Args:
        in_channels: Channels in.
        mid_channels: Channels inside.
        out_channels: Channels out.
        use_residual: Add the input, projected by a 1 x 1 x 1 convolution where its shape differs from the output's.
        spatial_stride: Of the depthwise convolution.
        se_ratio: Reduced channels of squeeze-excite by ``mid_channels``, rounded to a multiple of 8; 0 = none.
        act_functions: After ``conv_0``, after squeeze-excite, at the end.
        bias: Of ``conv_0``, ``conv_1``, ``conv_2``.
        use_bn: Normalisation of ``conv_0``, ``conv_1``, ``conv_2``.
        norm_eps: Epsilon of the normalisations.
        norm_momentum: Momentum of the normalisations.
        se_channels: Reduced channels of squeeze-excite, in place of ``se_ratio``.
        kernel: The depthwise convolution: 3x3x3, 1x3x3, 1x5x5, or 1x3x3 and then 3x1x1.
        temporal_stride: Of the frames behind the depthwise convolution every so-manyth goes on, from the first.
        free_shortcut: Add the input without a convolution, as E3D does: as it is; as the mean of each 2 x 2 pixels
            where ``spatial_stride`` is 2; not at all where the channels change.

    Raises:
        UnsupportedModule: A kernel that is not among them, or a free shortcut beside other strides.
    """

    def __init__(
        self,
        in_channels: int,
        mid_channels: int,
        out_channels: int,
        use_residual: bool = True,
        spatial_stride: int = 1,
        se_ratio: float = 0.0625,
        act_functions: tuple[str, str, str] = ("relu", "relu", "relu"),
        bias: tuple[bool, bool, bool] = (False, False, False),
        use_bn: tuple[bool, bool, bool] = (True, True, True),
        norm_eps: float = 1e-5,
        norm_momentum: float = 0.1,
        *,
        se_channels: int | None = None,
        kernel: Kernel = FULL,
        temporal_stride: int = 1,
        free_shortcut: bool = False,
    ) -> None:
        super().__init__()
        if free_shortcut and (spatial_stride not in (1, 2) or temporal_stride != 1):
            raise UnsupportedModule(
                "X3dBottleneckBlock: a free shortcut goes with a spatial stride of 1 or 2 and a temporal one of 1, "
                f"got {spatial_stride} and {temporal_stride}"
            )
        use_residual = use_residual and not (free_shortcut and in_channels != out_channels)
        self.temporal_stride = temporal_stride
        self._residual_add_func: nn.Module | None = FloatFunctional() if use_residual else None
        self._res_proj: EfficientBlock | None = None
        changes = spatial_stride != 1 or temporal_stride != 1 or in_channels != out_channels
        if use_residual and changes and free_shortcut:
            self._res_proj = PixelMean()
        elif use_residual and changes:
            self._res_proj = Conv3dTemporalKernel1BnAct(
                in_channels, out_channels, spatial_stride=spatial_stride, activation="identity",
                norm_eps=norm_eps, norm_momentum=norm_momentum,
            )  # fmt: skip
        self.final_act = activation(act_functions[2])
        reduced = squeezed(mid_channels, se_ratio) if se_channels is None else se_channels
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        over_time = extends_over_time(kernel)
        if temporal_stride != 1 and not over_time:
            layers["step"] = EveryFrame(temporal_stride)
        layers["conv_0"] = Conv3dPwBnAct(
            in_channels, mid_channels, bias=bias[0], activation=act_functions[0], use_bn=use_bn[0],
            norm_eps=norm_eps, norm_momentum=norm_momentum,
        )  # fmt: skip
        layers["conv_1"] = _depthwise(
            kernel, mid_channels, spatial_stride, bias[1], use_bn[1], norm_eps=norm_eps, norm_momentum=norm_momentum
        )
        if temporal_stride != 1 and over_time:
            layers["step"] = EveryFrame(temporal_stride)
        if reduced:
            layers["se"] = SqueezeExcitation(mid_channels, reduced, is_3d=True)
        layers["act_func_1"] = activation(act_functions[1])
        layers["conv_2"] = Conv3dPwBnAct(
            mid_channels, out_channels, bias=bias[2], activation="identity", use_bn=use_bn[2],
            norm_eps=norm_eps, norm_momentum=norm_momentum,
        )  # fmt: skip
        self.layers = nn.Sequential(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        if self._residual_add_func is not None:
            kept = x if self.temporal_stride == 1 else x[:, :, :: self.temporal_stride]
            y = self._residual_add_func.add(kept if self._res_proj is None else self._res_proj(kept), y)  # type: ignore[operator]
        return self.final_act(y)  # type: ignore[no-any-return]

    @property
    def final_norm(self) -> nn.Module | None:
        return None if self._residual_add_func is None else _norm_of(self.layers.get_submodule("conv_2"))

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        return FoldedBottleneck(self, input, variant).eval()

    def to_stream(self, input: TensorSpec) -> StreamStep:
        return StreamBottleneck(self, input)

    def output(self, x: TensorSpec) -> TensorSpec:
        return _through(self.layers, x)


class EveryFrame(EfficientBlock):
    """Every ``step``-th frame of a clip, from the first on."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, :: self.step]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        return taken(input, 0, self.step, self.output(input).t)

    def output(self, x: TensorSpec) -> TensorSpec:
        return x.strided(x.c, 1, self.step)

    def extra_repr(self) -> str:
        return f"step={self.step}"


class FoldedBottleneck(nn.Module):
    """The deploy form of ``X3dBottleneckBlock``."""

    def __init__(self, block: X3dBottleneckBlock, input: TensorSpec, variant: str) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        x = input
        for name, layer in block.layers.named_children():
            part = efficient_part(f"layers.{name}", layer)
            layers[name] = part.to_deploy(x, variant)
            x = part.output(x)
        self.layers = nn.Sequential(layers)
        self.add = None if block._residual_add_func is None else FloatFunctional()
        self.proj = _projection(block, input, variant)
        self.act = efficient_act("final_act", block.final_act).to_deploy()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        if self.add is not None:
            y = self.add.add(x if self.proj is None else self.proj(x), y)
        return self.act(y)  # type: ignore[no-any-return]


class StreamBottleneck(StreamStep):
    """The step of ``X3dBottleneckBlock``: what is kept is kept inside the branch.

    Raises (construction):
        UnsupportedModule: It steps over frames, or looks at frames to come.
    """

    def __init__(self, block: X3dBottleneckBlock, input: TensorSpec) -> None:
        super().__init__()
        if block.temporal_stride != 1:
            raise UnsupportedModule(
                f"a block that steps over frames (ts{block.temporal_stride}) has no stream form: some frames would "
                "give no output; stream a network without temporal strides"
            )
        layers = {name: efficient_part(f"layers.{name}", layer) for name, layer in block.layers.named_children()}
        self.layers = Chain(layers).to_stream(input)
        self.add = None if block._residual_add_func is None else FloatFunctional()
        self.proj = _projection(block, input.with_(t=1))
        self.act = efficient_act("final_act", block.final_act).to_deploy()
        self.states = tuple(named("layers", state) for state in self.layers.states)

    def forward(self, x: torch.Tensor, share: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, *renewed = self.layers(x, share, *states)
        if self.add is not None:
            y = self.add.add(x if self.proj is None else self.proj(x), y)
        return (self.act(y), *renewed)


class ResidualBlock(EfficientBlock, Residual):
    """``act(branch(x) + shortcut(x))``, of any blocks whose outputs have one shape.

    Args:
        branch: What is added.
        shortcut: What it is added to; default: the input.
        act: Behind the sum; default: nothing.
    """

    def __init__(
        self, branch: EfficientBlock, shortcut: EfficientBlock | None = None, act: Activation | None = None
    ) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut
        self.add = FloatFunctional()
        self.act = activation("identity") if act is None else act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.branch(x)
        return self.act(self.add.add(x if self.shortcut is None else self.shortcut(x), y))  # type: ignore[no-any-return]

    @property
    def final_norm(self) -> nn.Module | None:
        return _norm_of(self.branch)

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        shortcut = None if self.shortcut is None else self.shortcut.to_deploy(input, variant)
        return FoldedSum(
            self.branch.to_deploy(input, variant), shortcut, efficient_act("act", self.act).to_deploy()
        ).eval()

    def output(self, x: TensorSpec) -> TensorSpec:
        return self.branch.output(x)


class FoldedSum(nn.Module):
    """The deploy form of ``ResidualBlock``."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None, act: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut
        self.add = FloatFunctional()
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.branch(x)
        return self.act(self.add.add(x if self.shortcut is None else self.shortcut(x), y))  # type: ignore[no-any-return]


def _projection(block: X3dBottleneckBlock, input: TensorSpec, variant: str = AUTO) -> nn.Module | None:
    """The deploy form of what makes the input of a block fit its output; None: it fits, or it is not added."""
    shortcut = block._res_proj
    if shortcut is None:
        return None
    if block.temporal_stride != 1:
        shortcut = Chain({"step": EveryFrame(block.temporal_stride), "block": shortcut})
    return shortcut.to_deploy(input, variant).to(next(block.parameters()))


def _norm_of(branch: nn.Module) -> nn.Module | None:
    """The normalisation of a convolution, or of the last one of a chain."""
    while isinstance(branch, Chain):
        branch = list(branch.children())[-1]
    return dict(branch.kernel.named_children()).get("bn") if isinstance(branch, ConvBnAct) else None


def _depthwise(
    kernel: Kernel, channels: int, stride: int, bias: bool, use_bn: bool, *, norm_eps: float, norm_momentum: float
) -> EfficientBlock:
    if kernel == FULL:
        return Conv3d3x3x3DwBnAct(
            channels, stride, bias=bias, activation="identity", use_bn=use_bn,
            norm_eps=norm_eps, norm_momentum=norm_momentum,
        )  # fmt: skip
    if kernel in (SPATIAL, WIDE):
        side = kernel[0][1]
        return Conv3dTemporalKernel1BnAct(
            channels, channels, bias=bias, groups=channels, spatial_kernel=side, spatial_stride=stride,
            spatial_padding=side // 2, activation="identity", use_bn=use_bn,
            norm_eps=norm_eps, norm_momentum=norm_momentum,
        )  # fmt: skip
    if kernel == SEPARABLE and not bias:
        return Conv3dSeparableDwBnAct(
            channels, stride, activation="identity", use_bn=use_bn, norm_eps=norm_eps, norm_momentum=norm_momentum
        )
    known = ", ".join(format_kernel(k) for k in (FULL, SPATIAL, WIDE, SEPARABLE))
    raise UnsupportedModule(f"X3dBottleneckBlock: expected one of the kernels {known}, got {format_kernel(kernel)}")


def _through(layers: nn.Sequential, x: TensorSpec) -> TensorSpec:
    for name, layer in layers.named_children():
        x = efficient_part(f"layers.{name}", layer).output(x)
    return x
