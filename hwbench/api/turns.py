"""Requests of which a process carries out one at a time: those that train, build, and score.

They set what is one for the whole process, as threads and random numbers of torch, warnings, log levels and
``sys.stdout``, and put it back at their end. Of two that overlap the second would work with the settings of the first,
and leave them behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hwbench.errors import UsageError

# Not ``bench`` and what else looks at one device: they set nothing, and the lease of the device is for one thread.
ALONE = frozenset({"export", "profile", "quickstart", "scoreboard", "search", "test", "train", "validate", "verify"})

_guard = threading.Lock()
# The thread that is at such a request, and the name of its function.
_under_way: tuple[threading.Thread, str] | None = None


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Keeps other threads of this process out of the functions in ``ALONE`` while the block runs.

    The thread that is in the block may enter it again, as where a listener makes a request.

    Raises:
        UsageError: Another thread is in such a block.
    """
    global _under_way
    thread = threading.current_thread()
    with _guard:
        before = _under_way
        if before is not None and before[0] is not thread:
            raise UsageError(
                f"hwbench.{before[1]} is under way in another thread of this process; give each request a process of "
                "its own"
            )
        _under_way = before or (thread, name)
    try:
        yield
    finally:
        _under_way = before


def _forget() -> None:
    """A forked process has none of the threads of its parent but the one that forked."""
    global _guard, _under_way
    _guard, _under_way = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)
