"""Optuna's own log, which is off while hwbench is at work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import optuna

_guard = threading.Lock()
_blocks = 0
_before = optuna.logging.WARNING


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Turns Optuna's log off, and back to what it was when the last block of any thread ends."""
    global _blocks, _before
    with _guard:
        if not _blocks:
            _before = optuna.logging.get_verbosity()
        _blocks += 1
        optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        with _guard:
            _blocks -= 1
            if not _blocks:
                optuna.logging.set_verbosity(_before)
