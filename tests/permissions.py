"""Root that obeys the permission bits of files, as others do."""

import contextlib
import ctypes
import os
from collections.abc import Iterator


@contextlib.contextmanager
def obeying_permissions() -> Iterator[None]:
    """While the block runs, this thread may not read, enter or write what the bits of files keep from it.

    Takes CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER out of the effective capabilities (capabilities(7)).
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    before = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    if libc.capget(header, before) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    fewer = (ctypes.c_uint32 * 6)(*before)
    fewer[0] &= ~0b1110
    if libc.capset(header, fewer) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        if libc.capset(header, before) != 0:
            raise OSError(ctypes.get_errno(), "capset")
