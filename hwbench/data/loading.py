"""Batches in a fixed order, read by worker processes; the order and the contents do not depend on their number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info

from hwbench.data.datasets import TestClips, TrainingClips
from hwbench.data.failures import FailurePolicy
from hwbench.data.samples import Batch, ClipShape, Draw, PictureBatch, collate
from hwbench.data.socket_folder import shorten_socket_paths
from hwbench.errors import HwbenchError, VideoError


def shuffled(count: int, batch_size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """The batches of a training epoch: a permutation that follows from (seed, epoch), cut into whole batches.

    What is left over at the end sits out this epoch, unless there is less than one batch in all.
    """
    order = np.random.default_rng([seed, epoch]).permutation(count).tolist()
    whole = max(1, count // batch_size)
    return [order[i * batch_size : (i + 1) * batch_size] for i in range(whole)]


def repeated(batches: Sequence[list[int]], repeats: int, shape: ClipShape | None = None) -> list[list[Draw]]:
    """Batches in which each video is drawn ``repeats`` times (Hoffer et al. 2019, arXiv:1901.09335), as ``shape``.

    All videos come once, then all for the second time: what is mixed with its neighbour is mixed with another video.
    """
    return [[Draw(video, repeat, shape) for repeat in range(repeats) for video in batch] for batch in batches]


def in_order(count: int, batch_size: int) -> list[list[int]]:
    """All items in order; the last batch may be smaller."""
    return [list(range(start, min(start + batch_size, count))) for start in range(0, count, batch_size)]


# What a data set takes for one batch.
Keys = list[int] | list[Draw]

# How PyTorch begins what a process raised, and what is said there where memory or /dev/shm is short.
_RAISED = re.compile(r"Caught \w+ in ")
_SHORT = re.compile("memory|MemoryError|No space left", re.IGNORECASE)
# A worker that cannot hand over a batch (no room in /dev/shm) says nothing; seconds after which it is given up.
_PATIENCE_S = 180


class Loader:
    """Reads batches of a data set. With workers these stay alive between passes, and so does what they have cached.

    Processes hand over pictures of 8 bits. They are normalised on ``device``, where ``clips`` of the batches then are.
    """

    def __init__(
        self, dataset: TrainingClips | TestClips, *, workers: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        self._dataset, self._device = dataset, torch.device(device)
        self._order: list[Keys] = []
        if workers:
            shorten_socket_paths()
        self._loader = DataLoader(
            dataset,
            batch_sampler=_Order(self._order),
            num_workers=workers,
            collate_fn=collate,
            persistent_workers=workers > 0,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=_start_worker,
            timeout=_PATIENCE_S if workers else 0,
            generator=torch.Generator(),  # the loader draws a seed for its workers; the global generator stays as it is
        )

    def batches(self, order: Sequence[Keys]) -> Iterator[Batch]:
        """One pass, a batch for each list of indices, or of draws from training clips.

        Raises:
            VideoError: A video cannot be read and the policy is ``raise``.
            HwbenchError: A worker process died or gives no answer.
        """
        self._order[:] = order
        for batch in self._guarded():
            if batch.failures and self._dataset.policy is FailurePolicy.RAISE:
                raise VideoError(
                    f"{batch.failures[0].cause}; train, test, export and search go on without such videos with "
                    "--on-error skip"
                )
            yield batch.normalised(self._device)

    def _guarded(self) -> Iterator[PictureBatch]:
        """The loader's batches; what goes wrong with its processes is told in one line."""
        batches = iter(self._loader)
        while True:
            try:
                batch = next(batches, None)
            except Exception as error:
                told = _of_process(error) if self._loader.num_workers else None
                if told is None:
                    raise
                raise told from error
            if batch is None:
                return
            yield batch


class _Order:
    """A batch sampler over a list that changes between passes."""

    def __init__(self, order: list[Keys]) -> None:
        self._order = order

    def __iter__(self) -> Iterator[Keys]:
        return iter(list(self._order))

    def __len__(self) -> int:
        return len(self._order)


def _of_process(error: Exception) -> HwbenchError | None:
    """What is said of an error that comes from the processes of a loader, in one line; None: it does not.

    PyTorch raises the type of what a process raised, with a traceback as its text. Errors of its own (a process died,
    or says nothing) are RuntimeErrors.
    """
    line = (str(error).strip().splitlines() or [""])[-1].strip()
    if not _RAISED.match(str(error)):
        return _short_of_memory(line) if isinstance(error, RuntimeError) else None
    if isinstance(error, HwbenchError):
        return type(error)(line.removeprefix(f"{type(error).__module__}.{type(error).__qualname__}: "))
    return (
        _short_of_memory(line) if _SHORT.search(line) else HwbenchError(f"a process that reads videos failed: {line}")
    )


def _short_of_memory(line: str) -> HwbenchError:
    return HwbenchError(
        f"a process that reads videos failed ({line}); often memory or /dev/shm is short: "
        "try fewer --workers or a smaller --batch-size, or --workers 0"
    )


def _start_worker(worker: int) -> None:
    info = get_worker_info()
    if info is not None and isinstance(info.dataset, TrainingClips | TestClips):
        info.dataset.divide_cache(info.num_workers)
