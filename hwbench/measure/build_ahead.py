"""Builds what is measured next while a device elsewhere measures: neither waits for the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Protocol

from hwbench.errors import HwbenchError
from hwbench.measure.builder import Builder
from hwbench.specs import Workload

Following = Callable[[], Iterable[Workload]]
"""What is likely to be measured next, the surest first; is asked once, by another thread, and may take its time."""

# Between two portions of builds another process that wants the cache gets it.
_GAP_S = 0.05


class BuildAhead(Protocol):
    """Builds while a block of the caller runs; ``builds_ahead`` with its builder bound."""

    def __call__(self, following: Following, /) -> AbstractContextManager[None]: ...


def nothing_follows() -> Iterable[Workload]:
    """Nothing is known of what is measured next."""
    return ()


@contextmanager
def builds_ahead(builder: Builder, following: Following) -> Iterator[None]:
    """Builds into the cache of a builder, in a thread, while the block runs.

    At the end of the block nothing more is begun and what is under way is finished, for it is likely to be wanted.
    Where the block raises, builds under way are given up. What cannot be built is left to whoever asks for it.

    Args:
        builder: Builds; the block may use it as well, and then waits for its turn.
        following: What to build.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_build, args=(builder, following, stop), name="builds ahead", daemon=True)
    thread.start()
    try:
        yield
        stop.set()
        thread.join()
    except BaseException:
        stop.set()
        builder.interrupt()
        raise


def _build(builder: Builder, following: Following, stop: threading.Event) -> None:
    try:
        workloads = iter(following())
        while not stop.wait(_GAP_S) and (some := list(islice(workloads, builder.size))):
            for _ in builder.build(some, stop=stop):
                pass
    except HwbenchError:  # whoever builds these next meets it again, and says so
        return
