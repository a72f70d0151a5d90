"""Where the sockets lie by which processes hand over files and pictures."""

from __future__ import annotations

import multiprocessing.util
import os
import tempfile

from hwbench.errors import WorkspaceError

# The path of a socket has 107 bytes at most (unix(7)), of which multiprocessing adds /pymp-XXXXXXXX/listener-XXXXXXXX.
_LONGEST_BYTES = 107 - 32
_SHORT = "/tmp"


def shorten_socket_paths() -> None:
    """Lets sockets of this process and of those that it starts lie in /tmp where the path of TMPDIR is too long.

    Other temporary files stay in TMPDIR. Later versions of Python do the same by themselves (gh-132124).

    Raises:
        WorkspaceError: /tmp cannot be written.
    """
    path = tempfile.gettempdir()
    if len(os.fsencode(path)) <= _LONGEST_BYTES:
        return
    before, tempfile.tempdir = tempfile.tempdir, _SHORT
    try:
        multiprocessing.util.get_temp_dir()  # made once, and kept by the process
    except OSError as error:
        raise WorkspaceError(
            f"{path} is too long for the sockets of processes that read videos, and {_SHORT} cannot be written "
            f"({error.strerror}); name a folder of at most {_LONGEST_BYTES} bytes: export TMPDIR=DIR"
        ) from error
    finally:
        tempfile.tempdir = before
