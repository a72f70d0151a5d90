"""Frames as batch: a clip (N, C, T, H, W) as (N·T, C, H, W), where frame t of clip n is row n·T + t.

The functions below work on folded activations. They use only operations that XNNPACK delegates: static reshapes,
permutations and means of 4-D tensors; a batch of one clip takes the shorter way wherever there is one.
"""

from __future__ import annotations

import torch

from hwbench.specs import TensorSpec


def frames_to_batch(x: torch.Tensor) -> torch.Tensor:
    """(N, C, T, H, W) -> (N·T, C, H, W); no copy where the input is channels last."""
    n, c, t, h, w = x.shape
    return x.permute(0, 2, 1, 3, 4).reshape(n * t, c, h, w)


def batch_to_frames(x: torch.Tensor, frames: int) -> torch.Tensor:
    """(N·T, C, H, W) -> (N, C, T, H, W), the inverse of ``frames_to_batch``."""
    _, c, h, w = x.shape
    return x.reshape(-1, frames, c, h, w).permute(0, 2, 1, 3, 4)


def frames(x: torch.Tensor, first: int, last: int, spec: TensorSpec) -> torch.Tensor:
    """Frames ``first`` to ``last`` (not included) of every clip of a folded activation of shape ``spec``, folded."""
    if first == 0 and last == spec.t:
        return x
    if spec.n == 1:
        return x[first:last]
    _, c, h, w = x.shape
    return x.reshape(spec.n, spec.t, c, h, w)[:, first:last].reshape(-1, c, h, w)


def to_planes(x: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Folded (N·T, C, H, W) -> (N, C, T, H·W): time becomes a row of a picture. In NHWC memory nothing moves."""
    return x.reshape(spec.n, spec.t, x.shape[1], -1).permute(0, 2, 1, 3)


def from_planes(x: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """(N, C, T, H·W) -> folded (N·T, C, H, W), the inverse of ``to_planes``; ``spec`` tells N, T, H and W."""
    return x.permute(0, 2, 1, 3).reshape(spec.n * spec.t, x.shape[1], spec.h, spec.w)


def clip_mean(x: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Mean over T, H and W of every clip: folded (N·T, C, H, W) -> (N, C, 1, 1), as two means of 4-D tensors."""
    x = x.mean((-2, -1), keepdim=True)
    if spec.t == 1:
        return x
    if spec.n == 1:
        return x.permute(2, 1, 0, 3).mean((-2, -1), keepdim=True)
    return x.reshape(spec.n, spec.t, x.shape[1], 1).permute(0, 2, 1, 3).mean((-2, -1), keepdim=True)
