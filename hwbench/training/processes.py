"""The processes of one run under torchrun: who leads, what they tell each other, and how a lost one ends all.

A batch is one of all processes together: each takes its share. The process of rank 0 leads: it alone writes files, and
the others take over what it read. Processes talk by gloo on CPUs and by NCCL between GPUs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

# The default arguments of its functions hold the group that exists when it is imported, and torch imports it in the
# first step of an optimizer. A group that is held outlives its end; its threads, if at work when Python ends, abort the
# process.
import torch.distributed.nn.functional

from hwbench.errors import HwbenchError, InvalidValue
from hwbench.torchrun import SaidElsewhere, leads, local_rank, under_torchrun

T = TypeVar("T")

# What the slowest process may be behind the others in a training; a lost one is noticed at once. Longer than a reader
# process is waited for (hwbench.data.loading).
_TIMEOUT = timedelta(minutes=10)
_ENDED = "hwbench/ended"
# Turns of ``leader_first`` by process, and which process has done its part of a turn.
_TURNS, _DONE = "hwbench/turns/{rank}", "hwbench/turn/{turn}/{rank}"
# Tensors that go together from process to process: a message each takes longer, and their copy takes memory.
_BUCKET_BYTES = 32 * 2**20
# How often one looks whether the others have done their part.
_LOOK_S = 0.1


@dataclass(frozen=True)
class World:
    """Number ``rank`` of ``size`` processes that train one network; the default is a run in one process."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def part(self, items: Sequence[T]) -> list[T]:
        """This process's share of a batch: every ``size``-th item. The shares differ by one item at most."""
        return list(items[self.rank :: self.size])

    def share(self, value: T) -> T:
        """The value that the leading process gives."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    def gather(self, value: T) -> list[T]:
        """What every process gives, by rank."""
        if self.size == 1:
            return [value]
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_each(self, tensors: Sequence[torch.Tensor]) -> None:
        """The sums of tensors over processes, in place: the same bits for the same tensors."""
        for together in _buckets(tensors) if self.size > 1 else ():
            flat = _flat(together)
            dist.all_reduce(flat)
            _spread(flat, together)

    def copy_leader(self, tensors: Sequence[torch.Tensor]) -> None:
        """Takes over tensors of the leading process, in place."""
        for together in _buckets(tensors) if self.size > 1 else ():
            flat = _flat(together)
            dist.broadcast(flat, src=0)
            _spread(flat, together)

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """The leading process runs the block before the others do: it makes the files that they find.

        All go on when all have run it. However long that takes, they wait: downloads and lists of videos have no limit.

        Raises:
            HwbenchError: Another process has ended.
        """
        if self.size == 1:
            yield
            return
        store = _store()
        turn = store.add(_TURNS.format(rank=self.rank), 1)
        done = [_DONE.format(turn=turn, rank=rank) for rank in range(self.size)]
        if not self.leads:
            _wait_for(store, done[:1])
        yield
        store.set(done[self.rank], "")
        _wait_for(store, done)


def _buckets(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Tensors in their order, together with those before them of their type and device, up to ``_BUCKET_BYTES``."""
    buckets: list[list[torch.Tensor]] = []
    size, kind = 0, None
    for tensor in tensors:
        if (tensor.dtype, tensor.device) != kind or size + tensor.nbytes > _BUCKET_BYTES:
            size, kind = 0, (tensor.dtype, tensor.device)
            buckets.append([])
        buckets[-1].append(tensor)
        size += tensor.nbytes
    return buckets


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _spread(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    for tensor, values in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.detach().copy_(values.view(tensor.shape))


def _wait_for(store: dist.distributed_c10d.Store, keys: list[str]) -> None:
    while not store.check(keys):
        if store.check([_ENDED]):
            raise HwbenchError("another process of this run has ended")
        time.sleep(_LOOK_S)


ALONE = World()


@contextmanager
def joined(device: str = "auto", after: str = "the same command goes on from the last stored step") -> Iterator[World]:
    """Takes part in the run that torchrun started; without torchrun gives a world of one.

    Args:
        device: ``cpu``, ``cuda`` or ``auto``; a process takes the GPU of its number on its machine.
        after: What is said of the same command where a process has gone.

    Raises:
        InvalidValue: More processes than GPUs on this machine.
        HwbenchError: Another process has gone; one process says so.
        SaidElsewhere: The same, in the others.
    """
    if not under_torchrun():
        yield ALONE
        return
    cuda = device != "cpu" and torch.cuda.is_available()
    if cuda:
        _take_gpu(local_rank())
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=_TIMEOUT)
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    except BaseException as error:
        if not _first_to_end():
            raise SaidElsewhere("another process of this run ended and has said why") from None
        if _is_lost_peer(error):
            raise HwbenchError(f"another process of this run has gone; {after}") from error
        raise
    dist.destroy_process_group()


def _take_gpu(number: int) -> None:
    if number >= torch.cuda.device_count():
        raise InvalidValue(
            f"torchrun: process {number + 1} of this machine finds {torch.cuda.device_count()} GPUs; start as many "
            "processes as there are GPUs, or train with --device cpu"
        )
    torch.cuda.set_device(number)


def _store() -> dist.distributed_c10d.Store:
    """What all processes write to; it lives in the process of torchrun, so it outlives any of ours."""
    return dist.distributed_c10d._get_default_store()


def _first_to_end() -> bool:
    """Whether no process of the run has ended with an error before this one."""
    try:
        return bool(_store().add(_ENDED, 1) == 1)
    except (RuntimeError, ValueError):
        return leads()


def _is_lost_peer(error: BaseException) -> bool:
    """Whether an error is that of a connection between the processes; gloo's errors have no class of their own."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())
