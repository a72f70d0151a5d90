"""Root that obeys the permission bits of files, as others do."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence

# CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER in the lower 32 bits of a set (capabilities(7)).
_OVERRIDING = 0b1110
# Numbers of the sets among those that the kernel tells: effective, permitted, inheritable; twice 32 bits of each.
_EFFECTIVE, _ALL = (0,), (0, 1, 2)


def obey_permissions() -> None:
    """For good: this thread, and what it starts, may not read, enter or write what the bits of files keep from it.

    Raises:
        OSError: The kernel does not let it be given up.
    """
    _without(_ALL)


@contextlib.contextmanager
def obeying_permissions() -> Iterator[None]:
    """As ``obey_permissions`` while the block runs.

    Raises:
        OSError: The kernel does not let it be given up, or taken again.
    """
    before = _without(_EFFECTIVE)
    try:
        yield
    finally:
        if before is not None:
            _call("capset", before)


def _without(sets: Sequence[int]) -> ctypes.Array[ctypes.c_uint32] | None:
    """Takes the capabilities out of some sets; what they were, or None where there are none."""
    if os.geteuid() != 0:
        return None
    before = (ctypes.c_uint32 * 6)()
    _call("capget", before)
    fewer = (ctypes.c_uint32 * 6)(*before)
    for at in sets:
        fewer[at] &= ~_OVERRIDING
    _call("capset", fewer)
    return before


def _call(name: str, sets: ctypes.Array[ctypes.c_uint32]) -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    if getattr(ctypes.CDLL(None, use_errno=True), name)(header, sets) != 0:
        raise OSError(ctypes.get_errno(), name)
