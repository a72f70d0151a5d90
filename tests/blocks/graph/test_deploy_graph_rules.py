"""Every rule by itself, in double precision, for one clip and for two, on odd and unequal sizes."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

from hwbench.blocks.graph import rules
from hwbench.blocks.graph.convolution import Convolution3d
from hwbench.blocks.graph.rewrite import Rewriter, _prove, exported
from hwbench.deploy import deploy_graph
from hwbench.errors import InvalidValue, ParityFailed, UnknownName, UnsupportedModule
from hwbench.models import batch_to_frames, create_x3d, frames_to_batch
from hwbench.specs import TensorSpec
from hwbench.testing.clip_functions import All, Does

CONV = nn.Conv3d


def gate(x: torch.Tensor, squeeze: nn.Module, excite: nn.Module) -> torch.Tensor:
    return x * excite(squeeze(x.mean((2, 3, 4), keepdim=True)).relu()).sigmoid()


def gate_of_features(x: torch.Tensor, squeeze: nn.Module, excite: nn.Module) -> torch.Tensor:
    return x * excite(squeeze(x.mean((2, 3, 4))).relu()).sigmoid().view(x.shape[0], -1, 1, 1, 1)


def read_twice(x: torch.Tensor, conv: nn.Module, norm: nn.Module) -> torch.Tensor:
    y = conv(x)
    return y + norm(y).relu_()


def by_picture(x: torch.Tensor, conv: nn.Module, norm: nn.Module, pool: nn.Module) -> torch.Tensor:
    y = pool(norm(conv(x.transpose(1, 2).flatten(0, 1))).relu())
    return y.mean((2, 3)).reshape(x.shape[0], x.shape[2], -1).mean(1)


def written_over(x: torch.Tensor) -> torch.Tensor:
    tokens = x.flatten(2).clone()
    tokens[:, :, 1:3] = tokens[:, :, 4:6] * 2
    tokens[:, 1] = 3 * tokens[:, 2]
    return tokens


def positions(x: torch.Tensor) -> torch.Tensor:
    n, c, t, h, w = x.shape
    wide = x.reshape(n, 1, c, t, h, w, 1, 1) + x.mean((3, 4)).reshape(n, 1, c, t, 1, 1, 1, 1)
    wide = wide * torch.arange(6.0).to(x).view(2, 3) + x.new_ones(2, 1)
    return wide.reshape(n, c, t, -1)


def windows(x: torch.Tensor) -> torch.Tensor:
    n, c, t, h, w = x.shape
    x = x[:, :, : t // 2 * 2, : h // 2 * 2, : w // 2 * 2].permute(0, 2, 3, 4, 1)
    x = x.reshape(n, t // 2, 2, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 5, 2, 4, 6, 7)
    x = x.reshape(-1, 8, c) * 2
    x = x.reshape(n, t // 2, h // 2, w // 2, 2, 2, 2, c).permute(0, 1, 4, 2, 5, 3, 6, 7) + 1
    return x.reshape(n, t // 2 * 2, h // 2 * 2, w // 2 * 2, c).permute(0, 4, 1, 2, 3)


def back_to_clips(x: torch.Tensor, conv: nn.Module) -> torch.Tensor:
    n, c, t, h, w = x.shape
    y = conv(x.permute(0, 2, 1, 3, 4).reshape(n * t, c, h, w))
    return y.view(n, t, *y.shape[1:]).transpose(1, 2)


def clips_of_pictures(x: torch.Tensor, before: nn.Module, *behind: nn.Module) -> torch.Tensor:
    n, c, t, h, w = x.shape
    y = before(x.transpose(1, 2).reshape(n * t, c, h, w))
    y = y.view(n, t, *y.shape[1:]).transpose(1, 2)
    return torch.cat([layer(y).flatten() for layer in behind])


def clips_of_tokens(x: torch.Tensor, linear: nn.Module, conv: nn.Module) -> torch.Tensor:
    n, _, t, h, w = x.shape
    return conv(linear(x.flatten(2).transpose(1, 2)).view(n, t, h, w, -1).permute(0, 4, 1, 2, 3))


def consensus(x: torch.Tensor, conv: nn.Module) -> torch.Tensor:
    y = conv(x.transpose(1, 2).flatten(0, 1))
    return y.view(x.shape[0], x.shape[2], *y.shape[1:]).mean(1)


def masked_attention(x: torch.Tensor, attention: nn.Module) -> torch.Tensor:
    tokens = x.mean((3, 4)).transpose(1, 2)
    mask = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1).bool()
    result: torch.Tensor = attention(tokens, tokens, tokens, attn_mask=mask)[0]
    return result


def attention_over_space(x: torch.Tensor, conv: nn.Module) -> torch.Tensor:
    return x * conv(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)).sigmoid()


ACTIVATIONS = (
    F.relu, F.relu6, F.silu, F.hardswish, F.hardtanh, F.hardsigmoid, F.gelu, F.leaky_relu, F.elu, torch.tanh,
    torch.sigmoid, torch.abs, torch.exp, torch.neg,
)  # fmt: skip

CONVOLUTIONS: dict[str, nn.Module] = {
    "dense": CONV(4, 6, 3, padding=1),
    "dense, stride 2": CONV(4, 6, 3, 2, 1),
    "dense, stride over time": CONV(4, 6, 3, (2, 1, 1), 1, bias=False),
    "grouped, stride 3": CONV(4, 4, 3, 3, groups=2),
    "depthwise, stride 2": CONV(4, 4, 3, 2, 1, groups=4),
    "dilated": CONV(4, 4, 3, 1, 2, dilation=2),
    "without padding": CONV(4, 5, 3),
    "even": CONV(4, 5, 2, 2),
    "1x7x7": CONV(4, 6, (1, 7, 7), (1, 2, 2), (0, 3, 3)),
    "3x1x1": CONV(4, 6, (3, 1, 1), padding=(1, 0, 0)),
    "3x1x1, stride 2": CONV(4, 6, (3, 1, 1), (2, 1, 1), (1, 0, 0), bias=False),
    "4x1x1, stride 2": CONV(4, 5, (4, 1, 1), (2, 1, 1), (1, 0, 0)),
    "7x1x1, stride 2": CONV(4, 6, (7, 1, 1), (2, 1, 1), (3, 0, 0)),
    "5x1x1, dilated": CONV(4, 4, (5, 1, 1), 1, (4, 0, 0), (2, 1, 1), groups=4),
    "5x1x1, stride 4": CONV(4, 4, (5, 1, 1), (4, 1, 1), (2, 0, 0)),
    "5x3x3, stride 3": CONV(4, 4, (5, 3, 3), (3, 1, 1), (2, 1, 1)),
    "1x1x1, stride 2": CONV(4, 6, 1, 2),
    "3x1x1, stride over space": CONV(4, 6, (3, 1, 1), (1, 2, 2), (1, 0, 0)),
    "more padding than half": CONV(4, 4, 3, 1, (3, 1, 1)),
    "padding of 1x1x1": CONV(4, 4, 1, 1, 1),
    "no tap sees all frames": CONV(4, 4, (7, 3, 3), (2, 1, 1), (2, 1, 1)),
    "same": CONV(4, 4, 3, padding="same"),
    "same, even": CONV(4, 4, (2, 3, 4), padding="same"),
    "causal": nn.Sequential(nn.ConstantPad3d((1, 1, 1, 1, 2, 0), 0.0), CONV(4, 4, 3)),
    "weight norm": nn.utils.parametrizations.weight_norm(CONV(4, 4, 1)),
    "norm and activation": nn.Sequential(CONV(4, 6, 3, (2, 1, 1), 1), nn.BatchNorm3d(6), nn.ReLU(inplace=True)),
    "norm and clamp": nn.Sequential(CONV(4, 6, (3, 1, 1), padding=(1, 0, 0)), nn.BatchNorm3d(6), nn.ReLU6()),
    "norm without weights": nn.Sequential(CONV(4, 6, 1, bias=False), nn.BatchNorm3d(6, affine=False)),
    "norm first": nn.Sequential(nn.BatchNorm3d(4), nn.ReLU(), CONV(4, 4, 1)),
    "read twice": Does(read_twice, CONV(4, 4, 3, padding=1), nn.BatchNorm3d(4)),
}
POOLINGS: dict[str, nn.Module] = {
    "max": nn.MaxPool3d(3, 2, 1),
    "max over space": nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)),
    "max over time": nn.MaxPool3d((3, 1, 1), (2, 1, 1), (1, 0, 0)),
    "max, stride 1": nn.MaxPool3d(3, 1, 1),
    "max, windows apart": nn.MaxPool3d(2, 3),
    "max of one": nn.MaxPool3d(1, 2),
    "max, dilated": nn.MaxPool3d(2, 1, dilation=2),
    "average": nn.AvgPool3d(2),
    "average, stride 1": nn.AvgPool3d((2, 3, 3), 1),
    "average with zeros": nn.AvgPool3d(3, 2, 1),
    "average without zeros": nn.AvgPool3d(3, 2, 1, count_include_pad=False),
    "average, windows apart": nn.AvgPool3d(2, 3),
    "adaptive": nn.AdaptiveAvgPool3d(1),
    "adaptive over space": nn.AdaptiveAvgPool3d((None, 1, 1)),
    "adaptive, divided": nn.AdaptiveAvgPool3d((1, 3, 2)),
    "adaptive max": nn.AdaptiveMaxPool3d((1, None, 5)),
    "mean": Does(lambda x: x.mean((2, 3, 4))),
    "mean, axes kept": Does(lambda x: x.mean((-1, -2, -3), keepdim=True)),
    "mean over time": Does(lambda x: x.mean(2)),
    "mean over space": Does(lambda x: x.mean((3, 4))),
    "mean over rows": Does(lambda x: x.mean(3)),
    "mean over time and rows": Does(lambda x: x.mean((2, 3))),
    "largest": Does(lambda x: x.amax((2, 3, 4))),
    "mean over channels and rows": Does(lambda x: x.mean((1, 3))),
    "mean over all but the batch": Does(lambda x: x.mean((1, 2, 3, 4))),
    "mean over the first axes in another order": Does(lambda x: x.permute(0, 4, 1, 3, 2).mean((1, 2))),
    "largest of channels": Does(lambda x: x.amax(1)),
    "largest of all but the batch": Does(lambda x: x.amax((1, 2, 3, 4), keepdim=True)),
    "attention over space": Does(attention_over_space, CONV(2, 1, 3, padding=1)),
    "consensus of frames": Does(consensus, nn.Conv2d(4, 3, 3, padding=1)),
    "mean over axes by reshape": Does(lambda x: x.reshape(x.shape[0], 9, 2, 20, 5).mean((1, 3))),
}
# In fp32 also where a model is in double precision, as an attribute that is no buffer.
WIDTHS = torch.tensor([0.229, 0.224, 0.225, 0.7]).view(4, 1, 1, 1)
POINTWISE: dict[str, nn.Module] = {
    **{function.__name__: Does(function) for function in ACTIVATIONS},
    "prelu": nn.PReLU(4),
    "numbers": Does(lambda x: (3 - x * 2 + 1) / 4 - x / 2),
    "alpha": Does(lambda x, conv: torch.sub(x, conv(x), alpha=0.5), CONV(4, 4, 1)),
    "from others": Does(lambda x, conv: torch.rsub(x, conv(x), alpha=3) + torch.rsub(x, 2.0, alpha=0.5), CONV(4, 4, 1)),
    "quotient": Does(lambda x, conv: x / (conv(x).abs() + 1), CONV(4, 4, 1)),
    "larger and smaller": Does(lambda x, conv: torch.maximum(x, torch.minimum(conv(x), x)), CONV(4, 4, 1)),
    "squeeze and excite": Does(gate, CONV(4, 2, 1), CONV(2, 4, 1)),
    "squeeze and excite features": Does(gate_of_features, nn.Linear(4, 2), nn.Linear(2, 4)),
    "gate of every frame": Does(lambda x, conv: x * conv(x.mean((3, 4), True)).sigmoid(), CONV(4, 4, 3, 1, 1)),
    "constants": Does(lambda x: x * torch.arange(4.0).view(4, 1, 1, 1) + torch.ones(1, 1, x.shape[2], 1, 1)),
    "divided by constants": Does(lambda x: (x - WIDTHS) / WIDTHS + x / torch.arange(3, 13)),
    "constants times alpha": Does(lambda x: torch.sub(x, WIDTHS, alpha=0.3) + torch.rsub(x, WIDTHS, alpha=0.7)),
    "broadcast": Does(lambda x: x.mean((2, 3, 4), True).expand_as(x)),
    "broadcast to six axes": Does(lambda x: (torch.stack([x, x.relu()], 1) * x[:, :, :1]).flatten(1)),
    "broadcast to seven axes": Does(lambda x: (x - x[:, None, None].relu()).flatten(1)),
}  # fmt: skip
SHAPING: dict[str, nn.Module] = {
    "cat of channels": Does(lambda x, a, b: torch.cat([a(x), b(x), x], 1), CONV(4, 3, 1), CONV(4, 5, 3, padding=1)),
    "cat of frames": Does(lambda x: torch.cat([x[:, :, 1:], x[:, :, :2]], 2)),
    "every second frame": Does(lambda x: x[:, :, ::2] + x.mean((2, 3, 4), True)),
    "every third frame": Does(lambda x: x[:, :, 1::3]),
    "part": Does(lambda x: x[:, 1:3, :, ::2, 1:-1]),
    "one frame": Does(lambda x: x[:, :, -1]),
    "frame by frame": Does(lambda x: torch.stack([f.relu() for f in x.unbind(2)], 2)),
    "halves": Does(lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1].sigmoid()),
    "flatten": nn.Flatten(),
    "flatten frames": nn.Sequential(nn.AdaptiveAvgPool3d((None, 1, 1)), nn.Flatten(), nn.Linear(20, 3)),
    "global pool": Does(lambda x, linear: linear(F.avg_pool3d(x, x.shape[2:]).flatten(1)), nn.Linear(4, 3)),
    "channels last": Does(lambda x, linear: linear(x.permute(0, 2, 3, 4, 1)).mean((1, 2, 3)), nn.Linear(4, 3)),
    "softmax": Does(lambda x: x.mean((2, 3, 4)).softmax(1)),
    "zeros": Does(lambda x: F.pad(x, (1, 0, 0, 2, 2, 0))),
    "no padding": Does(lambda x: F.pad(x, ()) + F.pad(x, (0, 0)).relu()),
    "padding with a number": Does(lambda x: F.pad(x, (1, 0, 0, 2, 1, 1), value=1.5)),
    "pictures": Does(by_picture, nn.Conv2d(4, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.MaxPool2d(3, 2, 1)),
    "pictures and back": Does(back_to_clips, nn.Conv2d(4, 4, 3, 2, 1)),
    "shuffle": Does(lambda x: x.view(x.shape[0], 2, 2, *x.shape[2:]).transpose(1, 2).reshape(x.shape)),
    "clips of pictures": Does(
        clips_of_pictures, nn.Conv2d(4, 5, 3, padding=1), CONV(5, 3, 3, padding=1), nn.BatchNorm3d(5), nn.AvgPool3d(2),
        nn.PReLU(5), nn.AdaptiveMaxPool3d((1, 3, 2)),
    ),
    "clips of tokens": Does(clips_of_tokens, nn.Linear(4, 5), CONV(5, 3, 3, padding=1)),
    "linear on tokens in five axes": Does(
        lambda x, linear: linear(x.flatten(2).transpose(1, 2).reshape(x.shape[0], *x.shape[2:], 4)), nn.Linear(4, 3)
    ),
    "linear over columns": Does(lambda x, linear: linear(x), nn.Linear(10, 3)),
    "linear over frames": Does(lambda x, linear: linear(x.transpose(2, 4)).transpose(2, 4), nn.Linear(5, 3)),
    "linear and norm": Does(
        lambda x, linear, norm: norm(linear(x.mean((2, 3, 4)))), nn.Linear(4, 3), nn.BatchNorm1d(3)
    ),
    "dropout": nn.Sequential(nn.Dropout3d(), CONV(4, 4, 1), nn.Dropout()),
}  # fmt: skip
ATTENTION: dict[str, nn.Module] = {
    "layer norm of channels": Does(
        lambda x, norm: norm(x.permute(0, 2, 3, 4, 1)).permute(0, 4, 1, 2, 3), nn.LayerNorm(4)
    ),
    "layer norm of columns": Does(lambda x: F.layer_norm(x, (x.shape[-1],))),
    "layer norm of tokens": Does(lambda x, norm: norm(x.flatten(2).transpose(1, 2)), nn.LayerNorm(4, bias=False)),
    "gram matrix": Does(lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2)),
    "product with a constant": Does(lambda x: x.flatten(2).transpose(1, 2) @ torch.arange(12.0).view(4, 3).to(x)),
    "constant times": Does(lambda x: torch.arange(12.0).view(3, 4).to(x) @ x.flatten(2)),
    "products of five axes": Does(lambda x: x.transpose(3, 4) @ x),
    "einsum": Does(lambda x: torch.einsum("ncthw,kc->nthwk", x, torch.arange(12.0).view(3, 4).to(x))),
    "einsum of heads": Does(lambda x: torch.einsum("ncthw,ntw->cnth", x, x[:, 0, :, 0])),
    "einsum with a sum": Does(lambda x: torch.einsum("ncthw,kc->nhwk", x, torch.arange(12.0).view(3, 4).to(x))),
    "attention": Does(lambda x: F.scaled_dot_product_attention(x[:, :, 0], x[:, :, 1], x[:, :, 2])),
    "causal attention": Does(lambda x: F.scaled_dot_product_attention(*[x[:, :, 0]] * 3, is_causal=True, scale=0.3)),
    "masked attention": Does(
        lambda x: F.scaled_dot_product_attention(*[x[:, :, 0]] * 3, attn_mask=torch.eye(x.shape[3]).bool())
    ),
    "rolled": Does(lambda x: torch.roll(x, (1, -2, 3), (2, 3, 4)) + torch.roll(x, 1, 1)),
    "rolled tokens": Does(lambda x: torch.roll(x.flatten(2), 3, 2)),
    "places": Does(lambda x: x[:, :, [2, 0, 2]]),
    "places of tokens": Does(lambda x: x.flatten(2).index_select(2, torch.tensor([5, 1]))),
    "places of channels": Does(lambda x: x[:, [3, 1, 2, 2, -4]] + x[:, [1] * 5][:, :, :1]),
    "repeated": Does(lambda x: x.repeat_interleave(2, 2)),
    "repeated channels and columns": Does(lambda x: x.repeat_interleave(3, 1).repeat_interleave(2, -1)),
    "repeated tokens": Does(lambda x: x.flatten(2).repeat_interleave(2, 1)),
    "softmax of columns": Does(lambda x: x.softmax(-1)),
    "softmax of channels": Does(lambda x: x.softmax(1)),
    "token of the class": Does(
        lambda x: torch.cat([torch.ones(x.shape[0], 1, 4).to(x), x.flatten(2).transpose(1, 2)], 1)
    ),
    "window": Does(lambda x: F.pad(x.permute(0, 2, 3, 4, 1), (0, 0, 0, 2, 1, 0))),
    "windows": Does(windows),
    "positions of eight axes": Does(positions),
    "two orders": Does(lambda x: x.permute(0, 2, 3, 4, 1) + x.reshape(x.shape[0], *x.shape[2:], 4)),
    "zeros of its shape": Does(lambda x: x + torch.zeros_like(x) + x.new_full((1, 4, 1, 1, 1), 2.0)),
    "a part written over": Does(written_over),
}
NAN = float("nan")
COMPOSITIONS: dict[str, nn.Module] = {
    "powers": Does(lambda x: x**2 - x**3 + (x.abs() + 1) ** 0.5 * (x.abs() + 1) ** -0.5 + (x.abs() + 1) ** -1),
    "square": Does(lambda x: x.square() + x.flatten(2).square().view_as(x)),
    "reciprocal": Does(lambda x: (x.abs() + 1).reciprocal() + 3 / (x.abs() + 2)),
    "sums": Does(lambda x: x.sum((2, 3, 4)) + x.sum((-1, 2), keepdim=True).sum((2, 3, 4))),
    "sums over channels and of pictures": Does(lambda x: x.sum(1).mean(1) + x[:, 0].sum((1, 3))[:, :, None]),
    "one bound": Does(lambda x: x.clamp_min(0.1) - x.permute(0, 2, 3, 4, 1).clamp_max(0.3).permute(0, 4, 1, 2, 3)),
    "larger and smaller": Does(lambda x: torch.max(x, torch.min(-x, x.mean(1, keepdim=True)))),
    "repeat": Does(lambda x: x.repeat(1, 2, 3, 1, 2)),
    "repeat of one place": Does(lambda x: x.mean((3, 4), keepdim=True).repeat(1, 2, 1, 9, 10)),
    "repeat of more axes": Does(lambda x: x.mean((2, 3, 4)).repeat(3, 1, 2)),
    "tile": Does(lambda x: x.tile(2, 1) + x.mean((1, 2)).tile(4, 5, 2, 1).view(-1, 4, 5, 18, 10)),
    "masked": Does(lambda x: x.masked_fill(torch.arange(10) > 6, 0.5)),
    "masked scores": Does(
        lambda x: (x.transpose(3, 4) @ x).masked_fill(torch.ones(10, 10).triu(1).bool(), -float("inf")).softmax(-1)
    ),
    "sum with a product": Does(
        lambda x: torch.baddbmm(x[:, 0, 0], x[:, 0, 1], x[:, 1, 2].mT @ x[:, 2, 3], beta=0.5, alpha=3)
    ),
    "product alone": Does(lambda x: torch.baddbmm(torch.full((1, 9, 9), NAN).to(x), x[:, 0, 0], x[:, 0, 1].mT, beta=0)),
    "linear by hand": Does(lambda x: torch.addmm(torch.ones(3).to(x), x.mean((2, 3, 4)), torch.eye(4, 3).to(x))),
    "masked attention of torch": Does(masked_attention, nn.MultiheadAttention(4, 2, batch_first=True)),
    "mean of one axis": Does(lambda x: torch.cat([x[:, :, 0].mean(d).flatten() for d in (0, 1, 2, 3)])),
    "means of few axes": Does(lambda x: x.mean((2, 3, 4)).mean(1) + x.mean(3).mean(-1).mean((1, 2))),
    "largest and where": Does(lambda x: x.max(1)[0] + x.max(1, keepdim=True).values[:, 0] + x[:, 0].max(-1, True)[0]),
    "largest of pictures": Does(lambda x: torch.cat([x[:, :, 0].amax(d).flatten() for d in ((0, 1), 1, (1, 3))])),
    "padding with the edge": Does(lambda x: F.pad(x, (2, 1, 0, 3, 2, 0), mode="replicate")),
    "padding with a reflection": Does(lambda x: F.pad(x, (2, 1, 0, 3, 4, 1), mode="reflect")),
    "circular padding": CONV(4, 4, 3, padding=1, padding_mode="circular"),
    "padding of pictures": Does(lambda x: F.pad(x.flatten(1, 2), (2, 1, 0, 3), mode="reflect")),
    "no padding": Does(lambda x: F.pad(x, ())),
    "shuffle of channels": Does(lambda x: F.channel_shuffle(x, 2) + F.channel_shuffle(x[:, :, 0], 4)[:, :, None]),
    "shuffle of pixels": Does(lambda x: F.pixel_shuffle(x.transpose(1, 2).flatten(0, 1), 2)),
    "shuffle of pixels of clips": Does(lambda x: F.pixel_shuffle(x.transpose(1, 2), 2)),
    "pixels back": Does(lambda x: F.pixel_unshuffle(x[:, :, :, :8].transpose(1, 2), 2)),
    "convolutions over time": nn.Sequential(
        Does(lambda x: x.mean((3, 4))), nn.Conv1d(4, 6, 3, 2, 1), nn.BatchNorm1d(6), nn.ReLU(),
        nn.BatchNorm1d(6), nn.Conv1d(6, 4, 2, padding="same", groups=2, dilation=1),
    ),
}  # fmt: skip
GROUPS = {
    "convolutions": CONVOLUTIONS,
    "poolings": POOLINGS,
    "pointwise": POINTWISE,
    "shaping": SHAPING,
    "attention": ATTENTION,
    "compositions": COMPOSITIONS,
}
CASES = {**CONVOLUTIONS, **POOLINGS, **POINTWISE, **SHAPING, **ATTENTION}


def settled(model: nn.Module) -> nn.Module:
    """The model in double precision with statistics of its own in every normalisation."""
    torch.manual_seed(0)
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            if layer.affine:
                nn.init.uniform_(layer.weight, 0.5, 2)
                nn.init.normal_(layer.bias)
    return model.double().eval()


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("group", GROUPS)
def test_every_rule_computes_what_its_operation_computes(group: str, batch: int) -> None:
    model = settled(All(list(GROUPS[group].values())))
    clip = torch.randn(batch, 4, 5, 9, 10, dtype=torch.float64)
    with torch.no_grad():
        expected = [part(clip).flatten() for part in model.models]
        got = Rewriter(exported(model, clip)).deployed()(frames_to_batch(clip)).split([len(part) for part in expected])
    pairs = zip(GROUPS[group], expected, got, strict=True)
    wrong = {name: float((x - y).abs().max()) for name, x, y in pairs if not torch.allclose(x, y, 1e-10, 1e-10)}
    assert wrong == {}


@pytest.mark.parametrize("group", GROUPS)
def test_the_result_of_every_rule_can_be_saved(group: str, tmp_path: Path) -> None:
    clip = torch.randn(1, 4, 5, 9, 10, dtype=torch.float64)
    deployed = Rewriter(exported(settled(All(list(GROUPS[group].values()))), clip)).deployed()
    torch.save(deployed, tmp_path / "deployed.pt")
    with torch.no_grad():
        expected = deployed(frames_to_batch(clip))
        for copied in (torch.load(tmp_path / "deployed.pt", weights_only=False), copy.deepcopy(deployed)):
            assert torch.equal(copied(frames_to_batch(clip)), expected)


@pytest.mark.parametrize("name", ["dense, stride 2", "max", "squeeze and excite features", "shuffle"])
def test_a_clip_comes_back_as_a_clip(name: str) -> None:
    model = settled(CASES[name])
    clip = torch.randn(2, 4, 5, 9, 10, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(deploy_graph(model, clip)(frames_to_batch(clip)), model(clip), 1e-10, 1e-10)


@pytest.mark.parametrize("frames", [1, 2, 6, 7, 8])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 4, 5])
@pytest.mark.parametrize("dilation", [1, 2])
def test_frames_that_a_strided_convolution_needs(frames: int, stride: int, kernel: int, dilation: int) -> None:
    for space, groups, batch in ((1, 1, 1), (3, 2, 2)):
        clip = torch.randn(batch, 2, frames, 3, 4, dtype=torch.float64)
        weight, bias = torch.randn(4, 2 // groups, kernel, space, space).double(), torch.randn(4).double()
        padding = (dilation * (kernel // 2), space // 2, space // 2)
        geometry = ((stride, 1, 1), padding, (dilation, 1, 1))
        expected = F.conv3d(clip, weight, bias, *geometry, groups)
        conv = Convolution3d(weight, bias, geometry[0], tuple((p, p) for p in padding), geometry[2], groups)
        module = conv.folded(nn.Identity(), TensorSpec(*clip.shape), TensorSpec(*expected.shape))
        assert torch.allclose(batch_to_frames(module(frames_to_batch(clip)), expected.shape[2]), expected, 1e-10, 1e-10)


@pytest.mark.parametrize(
    "model", [lambda x: x + gate_of(x).expand_as(x), lambda x: x * gate_of(x).repeat(1, 1, 5, 9, 10)]
)
def test_an_axis_that_is_repeated_stores_as_much_as_is_repeated(model):
    deployed = deploy_graph(Does(model), torch.randn(1, 4, 5, 9, 10))
    assert sum(buffer.numel() for buffer in deployed.buffers()) < 4 * 5 * 9 * 10


def gate_of(x: torch.Tensor) -> torch.Tensor:
    return x.mean((2, 3, 4), keepdim=True)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(CONV(4, 4, 1), nn.Hardshrink()), r"le.Scalar in 1 \(Hardshrink\) on 1x4x5x9x10"),
        (nn.Sequential(nn.Identity(), nn.ConvTranspose3d(4, 4, 2, 2)), r"conv_transpose3d.* in 1 "),
        (nn.AdaptiveAvgPool3d((1, 2, 2)), "does not divide"),
        (nn.AvgPool3d(2, ceil_mode=True), "ceil_mode"),
        (nn.AvgPool3d(2, divisor_override=3), "divisor_override"),
        (nn.BatchNorm3d(4, track_running_stats=False), "batch_norm"),
        (Does(lambda x: x.reshape(2, 2, 5, 9, 10).mean((0, 2))), r"mean.* on 2x2x5x9x10: over the batch"),
        (Does(lambda x: x + torch.rand(1)), "random"),
        (Does(lambda x: x + x.permute(0, 1, 2, 4, 3)[..., :9, :9].prod()), "prod.default.* has no rule"),
        (Does(lambda x: (x, x)), "returns 2 values"),
        (Does(lambda x: x.float().softmax(1).type_as(x)), "a conversion to torch.float32 is not covered: leave it out"),
        (Does(lambda x: x.int().to(x)), "a conversion to torch.int32 is not covered"),
        *(
            (Does(one), rf"{name}.* in the model itself \(Does\) on .*: leave dtype=torch.{dtype} out")
            for name, dtype, one in (
                ("softmax.int", "float32", lambda x: x.softmax(1, dtype=torch.float32).to(x.dtype)),
                ("mean.dim", "float32", lambda x: x.mean((2, 3), dtype=torch.float32)),
                ("mean.default", "float16", lambda x: x.mean(dtype=torch.float16)),
                ("sum.dim_IntList", "float32", lambda x: x.sum((2, 3), dtype=torch.float32)),
                ("sum.default", "int64", lambda x: x.sum(dtype=torch.int64)),
            )
        ),
        (Does(lambda x: x if x.sum() > 0 else -x), "torch.export cannot follow"),
        (Does(lambda x: x[:, torch.tensor([True, False, True, True])]), r"index.Tensor.* on 1x4x5x9x10, 4: its size"),
        (Does(lambda x: F.scaled_dot_product_attention(*[x[:, :, 0]] * 3, dropout_p=0.1)), "attention.*random numbers"),
        (Does(lambda x: F.adaptive_max_pool3d(x, 1, True)[1]), "adaptive_max_pool3d.*result 1 is not covered"),
        (Does(lambda x: x.max(1)[1]), r"max.dim.* on 1x4x5x9x10.*result 1 is not covered"),
        (
            Does(lambda x: F.pixel_shuffle(x[0, :, 0], 2)),
            r"pixel_shuffle.* on 4x9x10: pictures \(N, C, H, W\) and clips",
        ),
        (Does(lambda x: F.avg_pool3d(x[0], 2)), r"avg_pool3d.* on 4x5x9x10: a tensor \(N, C, T, H, W\) is expected"),
        (Does(lambda x: F.adaptive_avg_pool3d(x[0], 1)), "4x5x9x10: a tensor"),
        (Does(lambda x: F.adaptive_max_pool2d(x[0, 0], 1)), r"5x9x10: a tensor \(N, C, H, W\) is expected"),
    ],
)
def test_what_has_no_rule_is_refused_with_its_name_and_place(model: nn.Module, said: str) -> None:
    with pytest.raises(UnsupportedModule, match=said):
        deploy_graph(model, torch.zeros(1, 4, 5, 9, 10))


@pytest.mark.parametrize(
    ("field", "function"),
    [
        ("min", lambda x: x + (1 - torch.eye(10).to(x)[0]) * torch.finfo(x.dtype).min),
        ("min", lambda x: x + torch.tensor([0, torch.finfo(x.dtype).min], dtype=x.dtype)[:1]),
        ("max", lambda x: x.clamp(max=torch.finfo(x.dtype).max)),
        ("tiny", lambda x: torch.log(x.relu() + torch.finfo(x.dtype).tiny)),
    ],
)
def test_a_limit_of_double_precision_is_refused(field: str, function: Callable[..., torch.Tensor]) -> None:
    clip = torch.randn(1, 4, 5, 9, 10)
    with pytest.raises(UnsupportedModule, match=rf"aten.* on .*write torch.finfo\(torch.float32\).{field} in"):
        deploy_graph(Does(function), clip)
    deploy_graph(Does(lambda x: (x + 1e-12).clamp(min=-1e9, max=float("inf"))), clip.half())


def test_a_forward_that_reads_a_buffer_it_changes_is_refused() -> None:
    class Smoothed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(1, 4, 1, 1, 1))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if self.decay < 1:
                self.mean.mul_(self.decay).add_(x.mean((2, 3, 4), keepdim=True))
            return x - self.mean

    model = Smoothed()
    model.decay = 1.0
    deploy_graph(model, torch.zeros(1, 4, 5, 9, 10))
    model.decay = 0.5
    with pytest.raises(UnsupportedModule, match="Smoothed: its forward changes mean, calls, on which its answers to"):
        deploy_graph(model, torch.zeros(1, 4, 5, 9, 10))


def test_what_is_no_clip_or_not_taken_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="expected a clip"):
        deploy_graph(CONV(4, 4, 1), torch.zeros(1, 4, 9, 10))
    with pytest.raises(InvalidValue, match=r"expected a clip of floats, as clip.float\(\), got torch.uint8"):
        deploy_graph(CONV(4, 4, 1), torch.zeros(1, 4, 5, 9, 10, dtype=torch.uint8))
    with pytest.raises(InvalidValue, match="LazyConv3d: weight has no values yet; run a clip through it first"):
        deploy_graph(nn.LazyConv3d(4, 1), torch.zeros(1, 3, 2, 8, 8))
    with pytest.raises(InvalidValue, match="does not take a clip of 1x3x5x9x10"):
        deploy_graph(CONV(4, 4, 1), torch.zeros(1, 3, 5, 9, 10))
    with pytest.raises(UnknownName, match="variant"):
        deploy_graph(CONV(4, 4, 3, padding=1), torch.zeros(1, 4, 5, 9, 10), variant="none")


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Any = rules.get("aten.relu.default")
    monkeypatch.setitem(rules._items, "aten.silu.default", right)
    assert torch.equal(_value(nn.ReLU()), _value(nn.ReLU()))
    monkeypatch.setitem(rules._items, "aten.relu.default", lambda call: call.tensor())
    with pytest.raises(ParityFailed, match="differs from the model"):
        deploy_graph(nn.Sequential(nn.AvgPool3d(1), nn.ReLU()), torch.zeros(1, 4, 5, 9, 10))
    with pytest.raises(ParityFailed, match="returns"):
        _prove(torch.zeros(1, 2), torch.zeros(2, 1))


def _value(model: nn.Module) -> torch.Tensor:
    torch.manual_seed(0)
    clip = torch.randn(1, 4, 5, 9, 10)
    return deploy_graph(model, clip)(frames_to_batch(clip))


def test_the_model_stays_and_the_result_has_the_dtype_of_the_example() -> None:
    model = nn.Sequential(CONV(3, 4, 3), nn.BatchNorm3d(4), nn.Dropout()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    deployed = deploy_graph(model, torch.zeros(1, 3, 5, 9, 10))
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert {value.dtype for value in deployed.state_dict().values()} == {torch.float32}
    assert not any(parameter.requires_grad for parameter in deployed.parameters())


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning", "ignore:The tensor attribute:UserWarning")
@pytest.mark.parametrize(
    "changed", [lambda conv: prune.l1_unstructured(conv, "weight", 0.5), nn.utils.weight_norm, nn.utils.spectral_norm]
)
def test_weights_that_a_hook_computes(changed: Callable[[nn.Module], object]) -> None:
    model = nn.Sequential(CONV(4, 5, 3, padding=1), nn.ReLU())
    changed(model[0])
    clip = torch.randn(1, 4, 5, 9, 10)
    model(clip).sum().backward()
    deployed = deploy_graph(model.eval(), clip)
    with torch.no_grad():
        torch.testing.assert_close(deployed(frames_to_batch(clip)), model(clip), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", ["shift-add", "one-hot"])
def test_a_vanilla_x3d_of_odd_size(variant: str) -> None:
    model = settled(create_x3d(num_classes=5, depth_factor=0.5, stage_temporal_strides=(1, 2, 1, 1), stem_width=4))
    clip = torch.randn(1, 3, 5, 33, 40, dtype=torch.float64)
    with torch.no_grad():
        expected, got = model(clip), deploy_graph(model, clip, variant=variant)(frames_to_batch(clip))
    assert (got - expected).abs().max() <= 1e-9 * expected.abs().max()
