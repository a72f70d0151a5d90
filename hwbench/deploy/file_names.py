"""Names of the files of an export, in one folder: the model, its manifest, the page that says how to run it."""

from __future__ import annotations

from pathlib import Path

from hwbench.runtimes import get

MODEL = "model.pte"
# Of the model file whatever runs it; the ending is the runtime's.
STEM = "model"
MANIFEST = "manifest.json"
RUN = "RUN.md"
# The first line, by which a page of ours is told from one that somebody wrote.
_MARK = "<!-- written by hwbench export -->"


def model_name(runtime: str) -> str:
    """Name of the model file for a runtime, beside its manifest.

    Raises:
        UnknownName: No such runtime.
    """
    return STEM + get(runtime).capabilities.suffix


def is_our_page(path: Path) -> bool:
    """Whether a file may be replaced by a page: there is none, or it is one."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MARK)) == _MARK.encode()
    except FileNotFoundError:
        return True
    except OSError:  # a folder, say
        return False
