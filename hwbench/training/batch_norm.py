"""Statistics of batch normalisation: over the batches of all processes, and taken anew over many batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from hwbench.training.processes import World


class _Synced(_BatchNorm):
    """A layer over the batches of all processes, which can leave out that of its own.

    Attributes:
        counted: Whether batches enter the statistics. One that does not is normalised by the running ones.
    """

    counted = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """(N, C, ...) -> the same shape."""
        if self.counted or not self.training:
            normed: torch.Tensor = super().forward(input)
            return normed
        # An empty batch takes part in all exchanges of both passes; in float32, as the statistics of the others are.
        empty = super().forward(input[:0].float()).sum().to(input.dtype)
        return self._by_running(input) + empty

    def _by_running(self, input: torch.Tensor) -> torch.Tensor:
        if self.running_mean is None or self.running_var is None:
            return input
        # copies: the next batch changes the statistics before the backward pass is through
        return F.batch_norm(input, self.running_mean.clone(), self.running_var.clone(), eps=self.eps)


class _SyncedOnCpu(_BatchNorm):
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
        self._follow(mean.detach(), (variance * count / (count - 1).clamp_min(1)).detach())
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


class SyncedBatchNorm(_Synced, _SyncedOnCpu):
    """Over all processes on CPUs."""


class SyncedBatchNormOnGpu(_Synced, nn.SyncBatchNorm):
    """Over all processes on GPUs."""


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
        if isinstance(child, _BatchNorm) and not isinstance(child, _Synced):
            setattr(module, name, _synced(child))
        else:
            synchronise(child)


def is_synchronised(module: nn.Module) -> bool:
    """Whether a layer waits for those of the other processes in each pass."""
    return any(isinstance(layer, _Synced | nn.SyncBatchNorm) for layer in module.modules())


@contextmanager
def uncounted(module: nn.Module) -> Iterator[None]:
    """Inside, forward and backward passes leave no trace in what layers keep of their inputs.

    Synchronised layers take part in the exchanges with nothing of their own and follow the other processes; all other
    buffers are put back.
    """
    synced = [layer for layer in module.modules() if isinstance(layer, _Synced)]
    before = [
        (part, name, buffer, buffer.clone())
        for part in module.modules()
        if not isinstance(part, _Synced | nn.SyncBatchNorm)
        for name, buffer in part.named_buffers(recurse=False)
    ]
    for layer in synced:
        layer.counted = False
    try:
        yield
    finally:
        for layer in synced:
            layer.counted = True
        with torch.no_grad():
            for part, name, buffer, value in before:
                setattr(part, name, buffer.copy_(value))  # a network may have put another in its place


def _synced(layer: _BatchNorm) -> _BatchNorm:
    on_gpu = any(tensor.is_cuda for tensor in layer.state_dict().values())
    kind = SyncedBatchNormOnGpu if on_gpu else SyncedBatchNorm
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
