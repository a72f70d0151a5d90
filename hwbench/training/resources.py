"""What a run may use of the machine. Nothing here changes what is computed, only how fast (and, by another order of the
sums, the last bits: a run that is to be repeated bit for bit needs the same number of threads)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hwbench.errors import InvalidValue
from hwbench.units import MOST_THREADS


@dataclass(frozen=True)
class Resources:
    """Device ``cpu``, ``cuda`` or ``auto`` (cuda where there is one), threads of torch, processes that read videos.

    ``cuda_graphs`` replays the passes of a network on a GPU (``hwbench.training.replayed``).
    """

    device: str = "auto"
    threads: int = 1
    workers: int = 0
    cuda_graphs: bool = False

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise InvalidValue(f"device: expected auto, cpu or cuda, got {self.device!r}")
        if not 1 <= self.threads <= MOST_THREADS or self.workers < 0:
            raise InvalidValue(f"expected 1 to {MOST_THREADS} threads and no negative number of workers, got {self}")

    def torch_device(self) -> torch.device:
        """The device to compute on.

        Raises:
            InvalidValue: cuda was asked for and is not there.
        """
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InvalidValue("device: cuda was asked for, but torch finds none; use --device cpu")
        cuda = self.device == "cuda" or (self.device == "auto" and torch.cuda.is_available())
        return torch.device("cuda" if cuda else "cpu")

    @contextmanager
    def applied(self) -> Iterator[torch.device]:
        """Sets torch's threads for a while and gives the device; from then on the process keeps memory it freed."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        _keep_freed_memory()
        try:
            yield self.torch_device()
        finally:
            torch.set_num_threads(before)


def clip_layout(device: torch.device) -> torch.memory_format:
    """Memory format of clips (N, C, T, H, W) that the convolutions of a device are fast with.

    On a CPU that is channels last. On a GPU it is the default one: torch's own depthwise kernels over three axes take
    no other, and those of cuDNN, which run then, are slow in the backward pass (pytorch/pytorch#37406).
    """
    return torch.channels_last_3d if device.type == "cpu" else torch.contiguous_format


# Of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def _keep_freed_memory() -> None:
    """Lets the allocator of glibc keep large blocks instead of giving them back to the system.

    Activations are larger than its limit of 32 MiB, so that otherwise each step asks the system for all of them again,
    page by page, which takes longer than computing them. No block is mapped for itself: the limit itself cannot be
    raised before glibc 2.35. Other allocators are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
