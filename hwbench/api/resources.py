"""What a request may use of this machine: torch's device and threads, and processes that read videos."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hwbench.interpreter import cores

if TYPE_CHECKING:
    from hwbench.training import Resources

# More reader processes than these wait for the disk and for each other.
_MOST_READERS = 8


def resources_for(
    data: str,
    *,
    device: str = "auto",
    threads: int | None = None,
    workers: int | None = None,
    cuda_graphs: bool = False,
) -> Resources:
    """Resources to train or test with on data by name.

    Args:
        data: ``synthetic``, ``synthetic:NAME``, a folder of class folders, a list file, or ``READER:PATH``.
        device: ``cpu``, ``cuda`` or ``auto``.
        threads: Threads of torch; None: all cores.
        workers: Processes that read videos; None: none for a synthetic set that stays in memory,
            else one less than there are cores.
        cuda_graphs: Whether passes on a GPU are replayed as CUDA graphs.
    """
    from hwbench.data import stays_in_memory
    from hwbench.training import Resources

    if workers is None:
        # What stays in memory after the first pass is decoded once; large sets keep other cores busy with decoding.
        workers = 0 if stays_in_memory(data) else min(_MOST_READERS, max(1, cores() - 1))
    return Resources(device, threads or cores(), workers, cuda_graphs)


@contextmanager
def torch_threads(threads: int | None) -> Iterator[int]:
    """Sets torch's threads for a while and gives their number; None: all cores."""
    from hwbench.training import Resources

    resources = Resources("cpu", threads or cores())
    with resources.applied():
        yield resources.threads
