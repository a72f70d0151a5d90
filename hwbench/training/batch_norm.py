"""Statistics of batch normalisation: over the batches of all processes, and taken anew over many batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from hwbench.training.processes import World


class SyncedBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all processes, on CPUs; ``nn.SyncBatchNorm`` knows GPUs alone."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """(N, C, ...) -> the same shape."""
        if not self.training or not dist.is_initialized():
            unchanged: torch.Tensor = super().forward(input)
            return unchanged
        axes = [0, *range(2, input.dim())]
        shape, x = (1, -1, *[1] * (input.dim() - 2)), input.float()
        count = _SumOverProcesses.apply(torch.tensor([input.numel() / input.shape[1]]))
        mean = _SumOverProcesses.apply(x.sum(axes)) / count
        centred = x - mean.view(shape)
        variance = _SumOverProcesses.apply(centred.square().sum(axes)) / count
        self._follow(mean.detach(), (variance * count / (count - 1)).detach())
        normed = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            normed = normed * self.weight.view(shape) + self.bias.view(shape)
        synced: torch.Tensor = normed.to(input.dtype)
        return synced

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Any number of axes."""

    def _follow(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Moves the running statistics."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance, momentum)


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


def synchronise(module: nn.Module) -> None:
    """Exchanges the batch normalisations inside a module for those over all processes; weights and names stay."""
    for name, child in module.named_children():
        if isinstance(child, _BatchNorm) and not isinstance(child, nn.SyncBatchNorm | SyncedBatchNorm):
            setattr(module, name, _synced(child))
        else:
            synchronise(child)


def _synced(layer: _BatchNorm) -> _BatchNorm:
    on_gpu = any(tensor.is_cuda for tensor in layer.state_dict().values())
    kind = nn.SyncBatchNorm if on_gpu else SyncedBatchNorm
    synced: _BatchNorm = kind(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
    synced.weight, synced.bias = layer.weight, layer.bias
    synced.running_mean, synced.running_var = layer.running_mean, layer.running_var
    synced.num_batches_tracked = layer.num_batches_tracked
    return synced.train(layer.training)


def precise_statistics(
    module: nn.Module, batches: Iterable[torch.Tensor], frozen: Iterable[nn.Module], world: World
) -> Mapping[str, torch.Tensor]:
    """The statistics of batch normalisation as means over some batches, for weights that stay as they are.

    Args:
        module: In eval mode, and left so; its own statistics are taken anew.
        batches: Clips (N, 3, T, H, W) on the device of the module; other ones in each process. As many are taken as
            every process has: fewer where shares could not be read.
        frozen: Parts whose statistics stay.
        world: Whose batches are averaged over.

    Returns:
        The new statistics, by their names in the module; none where a process has no batch.
    """
    kept = {id(layer) for block in frozen for layer in block.modules()}
    layers = {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, _BatchNorm) and layer.track_running_stats and id(layer) not in kept
    }
    seen = 0
    with torch.no_grad(), _averaging(layers.values()):
        for clips in _in_step(batches, world):
            module(clips)
            seen += 1
        values = {
            f"{name}.{key}": world.sum(getattr(layer, key)).div_(world.size)
            for name, layer in layers.items()
            for key in ("running_mean", "running_var")
            if seen
        }
    return {name: tensor.clone() for name, tensor in values.items()}


def _in_step(batches: Iterable[torch.Tensor], world: World) -> Iterator[torch.Tensor]:
    """Batches until the first process has none left: a synchronised layer waits for those of all other processes."""
    remaining = iter(batches)
    while True:
        clips = next(remaining, None)
        ready = world.sum(torch.tensor([float(clips is not None)])).item()
        if clips is None or ready < world.size:
            return
        yield clips


@contextmanager
def _averaging(layers: Iterable[_BatchNorm]) -> Iterator[None]:
    """Inside, layers take the plain mean of their batches' statistics."""
    layers = list(layers)
    before = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
        layer.train()
    try:
        yield
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum
            layer.eval()
