"""stdout is for results: what anything but Python writes to it while a command runs is talk."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, TextIO

_STDOUT, _STDERR = 1, 2


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """While the block runs, only ``sys.stdout`` writes to stdout: file descriptor 1 is stderr.

    So what engines, evaluators and decoders print from C, and what processes print that they start, goes to stderr.
    Where ``sys.stdout`` is closed, or is no file on descriptor 1 as under a test, nothing changes. A character that the
    encoding lacks is written as an escape, so that no result of hours is lost for the ``µ`` of a unit.

    Raises:
        BrokenPipeError: Whoever read stdout is gone before all was written.
        OSError: stdout cannot be written, as to a full disk; ``filename`` is ``stdout``.
    """
    before = sys.stdout
    if not _is_stdout(before):
        yield
        return
    before.flush()
    kept = os.dup(_STDOUT)
    stdout = BufferedWriter(_Stdout(kept, "w"))
    with TextIOWrapper(stdout, before.encoding, _lossless(before), line_buffering=True) as results:
        _talk_on_stdout()
        sys.stdout = results
        try:
            yield
        finally:
            sys.stdout = before
            before.flush()
            ctypes.CDLL(None).fflush(None)  # C has buffers of its own, also of what it wrote for stdout
            os.dup2(kept, _STDOUT)


class _Stdout(FileIO):
    """Names itself in its errors: a file that is opened by its descriptor has no name."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "stdout"
            raise


def _lossless(stdout: TextIO) -> str:
    """How what its encoding has no character for is written; bytes of names that are no UTF-8 stay what they are."""
    as_bytes = "surrogateescape"
    is_utf8 = stdout.encoding.lower().replace("-", "") == "utf8"
    return as_bytes if is_utf8 and stdout.errors == as_bytes else "backslashreplace"


def _is_stdout(file: TextIO | None) -> bool:
    try:
        return file is not None and file.fileno() == _STDOUT
    except (OSError, ValueError):  # of no file, or of a closed one
        return False


def _talk_on_stdout() -> None:
    """Makes descriptor 1 one of stderr; of nothing where stderr is closed."""
    if sys.stderr is not None:
        os.dup2(_STDERR, _STDOUT)
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), _STDOUT)
