"""A convolution over time and space as its temporal taps: ``y[t] = sum over k of f_k(x[t + k - K//2])``.

f_k is the 2-D convolution with tap k of the kernel. Frames outside the clip are zero and drop out of the sum. A causal
convolution reads ``x[t + k - (K - 1)]`` instead: its frame and those before it.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from hwbench.blocks.norm import fold_norm
from hwbench.errors import UnsupportedModule
from hwbench.specs import TensorSpec

_Sizes = tuple[int, ...]


def convolved(conv: nn.Conv3d, x: TensorSpec) -> TensorSpec:
    """Shape after a convolution, by the formula of ``torch.nn.Conv3d``."""
    if isinstance(conv.padding, str):
        raise UnsupportedModule(f"a convolution with padding={conv.padding!r}: give the padding in numbers")
    frames = x.t + (conv.past if isinstance(conv, CausalConv3d) else 0)
    axes = zip((frames, x.h, x.w), conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    t, h, w = ((size + 2 * pad - dil * (k - 1) - 1) // stride + 1 for size, k, stride, pad, dil in axes)
    return TensorSpec(x.n, conv.out_channels, t, h, w)


class CausalConv3d(nn.Conv3d):
    """A convolution of stride 1 over time, padded with zeros before the first frame and not behind the last one.

    A frame that comes out depends on that frame and the ``past`` frames before it, and on none after it.
    """

    @classmethod
    def of(cls, conv: nn.Conv3d) -> CausalConv3d:
        """With the geometry, the weight and the bias of an ordinary one, which are shared.

        Raises:
            UnsupportedModule: It is strided or dilated over time, or padded there otherwise than by half its kernel.
        """
        Taps(conv, None)
        assert not isinstance(conv.padding, str)  # refused by ``Taps``
        made = cls(
            conv.in_channels, conv.out_channels, _three(conv.kernel_size), _three(conv.stride),
            _three((0, *conv.padding[1:])), _three(conv.dilation), conv.groups, conv.bias is not None, device="meta",
        )  # fmt: skip
        made.weight, made.bias = conv.weight, conv.bias
        return made.train(conv.training)

    @property
    def past(self) -> int:
        """Number of frames before its own that a frame depends on."""
        return self.kernel_size[0] - 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(functional.pad(x, (0, 0, 0, 0, self.past, 0)))


def _three(sizes: _Sizes) -> tuple[int, int, int]:
    return (sizes[0], sizes[1], sizes[2])


class Taps:
    """The temporal taps of a convolution with its normalisation folded in.

    Attributes:
        weight: (O, I/groups, K, kh, kw).
        bias: (O,), or None.
        count: K.
        centre: The tap that reads the frame it writes.
        offsets: Per tap, the frame it reads less the frame it writes.
        groups: Of the convolution.

    Raises:
        UnsupportedModule: The convolution is strided or dilated over time, or padded over time otherwise than by half
            its kernel with zeros; a ``CausalConv3d`` pads by itself.
    """

    def __init__(self, conv: nn.Conv3d, norm: nn.Module | None) -> None:
        time = (conv.stride[0], conv.dilation[0])
        half = conv.kernel_size[0] // 2
        causal = isinstance(conv, CausalConv3d)
        if isinstance(conv.padding, str) or conv.padding_mode != "zeros" or conv.kernel_size[0] % 2 == 0:
            raise UnsupportedModule(f"expected an odd kernel over time and zero padding in numbers, got {conv}")
        if time != (1, 1) or conv.padding[0] != (0 if causal else half):
            raise UnsupportedModule(f"expected stride 1, dilation 1 and half padding over time, got {conv}")
        self._conv = conv
        self.weight, self.bias = fold_norm(conv, norm)
        self.count = conv.kernel_size[0]
        self.centre = self.count - 1 if causal else half
        self.offsets = tuple(range(-self.centre, self.count - self.centre))
        self.groups = conv.groups

    @property
    def pointwise(self) -> bool:
        """Whether it is k x 1 x 1 and keeps every position."""
        c = self._conv
        return c.kernel_size[1:] == (1, 1) and c.stride[1:] == (1, 1) and c.padding[1:] == (0, 0)

    @property
    def depthwise(self) -> bool:
        """Whether every output channel reads one input channel, its own."""
        return self.groups == self._conv.in_channels == self._conv.out_channels

    def seen(self, frames: int) -> list[int]:
        """Offsets of the taps that see a frame of a clip of so many; the centre first, which carries the bias."""
        return sorted((o for o in self.offsets if abs(o) < frames), key=lambda o: (abs(o), o))

    def tap(self, offset: int) -> torch.Tensor:
        """(O, I/groups, kh, kw): the kernel of the tap with an offset."""
        return self.weight[:, :, offset + self.centre]

    def conv2d(self, offset: int) -> nn.Conv2d:
        """The 2-D convolution with one tap; that of the centre carries the bias."""
        return self.spatial(self.tap(offset), None if offset else self.bias, self.groups)

    def spatial(self, weight: torch.Tensor, bias: torch.Tensor | None, groups: int) -> nn.Conv2d:
        """A 2-D convolution (O', I'/groups, kh, kw) with the spatial geometry of this one."""
        c = self._conv
        assert not isinstance(c.padding, str)  # refused above
        return filled_conv(weight, bias, groups, c.stride[1:], c.padding[1:], c.dilation[1:])

    @property
    def is_causal(self) -> bool:
        """Whether no tap reads a frame behind the one it writes."""
        return self.offsets[-1] == 0

    def over_time(self) -> nn.Conv2d:
        """The k x 1 x 1 convolution as one with kernel (k, 1)."""
        return self.row_conv(self.weight[..., 0], self.bias, self.groups)

    def row_conv(self, weight: torch.Tensor, bias: torch.Tensor | None, groups: int) -> nn.Conv2d:
        """A convolution with kernel (k, 1) whose taps (O, I/groups, k, 1) read the frames that those of this one do.

        Padding is alike on both sides, so a causal one gets taps of zeros for the frames to come.
        """
        weight = functional.pad(weight, (0, 0, 0, 2 * self.centre + 1 - self.count))
        return filled_conv(weight, bias, groups, padding=(self.centre, 0))

    def output(self, input: TensorSpec) -> TensorSpec:
        """Shape after the convolution."""
        return convolved(self._conv, input)


def filled_conv(
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    groups: int,
    stride: _Sizes = (1, 1),
    padding: _Sizes = (0, 0),
    dilation: _Sizes = (1, 1),
) -> nn.Conv2d:
    """A 2-D convolution with these values (O, I/groups, kh, kw), frozen, of their dtype and on their device."""
    out, within, *kernel = weight.shape
    k, s, p, d = ((size[0], size[1]) for size in (kernel, stride, padding, dilation))
    conv = nn.Conv2d(within * groups, out, k, s, p, d, groups, bias=False, device="meta")
    conv.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format), requires_grad=False)
    conv.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
    return conv.eval()
