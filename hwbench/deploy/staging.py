"""Puts the two files of an export in their place together.

They are made in a hidden folder inside the target folder (the target may be a mount point, or hold other files, which
stay), and moved when both are complete: the old manifest goes, the new model comes, the new manifest comes. Whoever
looks in between, or after a crash there, may find a model without a manifest, and never one with the manifest of
another. Up to that moment an export of before is untouched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hwbench.deploy.manifest import MANIFEST, MODEL, model_name
from hwbench.deploy.run_page import RUN, is_ours
from hwbench.errors import InvalidValue
from hwbench.runtimes import names
from hwbench.workspace import writing

_PREFIX, _SUFFIX = ".export.", ".tmp"
# No export takes so long; what is older was left behind by a killed one.
_STALE_S = 24 * 3600


@contextlib.contextmanager
def staging(out: Path) -> Iterator[Path]:
    """A folder to make the files in; it goes with the block, and ``out`` too if it was made for this and is empty.

    Raises:
        InvalidValue: ``out`` is a file.
        WorkspaceError: It cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise InvalidValue(f"--out: expected a folder, {out} is a file")
    existed = out.is_dir()
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        _sweep(out)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=out))
    try:
        with writing(out):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not existed and not any(out.iterdir()):
            out.rmdir()


def place(folder: Path, out: Path, model: str = MODEL) -> None:
    """Moves a complete export from its staging folder into ``out``, over one of before, also of another runtime.

    The page ``RUN.md`` goes with them, unless somebody wrote one of that name there.

    Args:
        folder: Holds the two files, and the page where there is one.
        out: Where they go.
        model: Name of the model file.

    Raises:
        WorkspaceError: ``out`` cannot be written.
    """
    with writing(out):
        for name in (model, MANIFEST):
            (folder / name).chmod(0o644)
            _sync(folder / name)
        directory = os.open(out, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)  # two exports into one folder do not mix
            (out / MANIFEST).unlink(missing_ok=True)
            for other in names():
                if model_name(other) != model:
                    (out / model_name(other)).unlink(missing_ok=True)
            (folder / model).replace(out / model)
            if (folder / RUN).is_file() and is_ours(out / RUN):
                (folder / RUN).replace(out / RUN)
            (folder / MANIFEST).replace(out / MANIFEST)
            os.fsync(directory)
        finally:
            os.close(directory)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sweep(out: Path) -> None:
    for folder in out.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # an export beside this one ended
            if time.time() - folder.stat().st_mtime > _STALE_S:
                shutil.rmtree(folder, ignore_errors=True)
