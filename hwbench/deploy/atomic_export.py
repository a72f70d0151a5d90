"""Puts the two files of an export in their place together.

They are made in a hidden folder inside the target folder (the target may be a mount point, or hold other files, which
stay), and moved when both are complete and on the disk: the old manifest goes, with the model that it describes, the
new model comes, the new manifest comes. Whoever looks in between may find a model without a manifest, and never one
with the manifest of another. Up to that moment an export of before is untouched. What Ctrl-C or an error stops in that
moment is finished at once (``staging``); what a kill or a power cut stops there, or cannot be finished at once, by the
next export into the folder, or by the next command that looks for its manifest (``settle``). What no export wrote is
not replaced (``check_place``).

An export holds a lock in its hidden folder while it lives, so a folder without one was left behind, however late it is.
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

from hwbench.deploy.file_names import MANIFEST, MODEL, RUN, is_our_page, model_name
from hwbench.documents import read_json
from hwbench.durable import make_folder, sync_folder
from hwbench.errors import InvalidValue, UnknownName
from hwbench.locks import try_flock
from hwbench.runtimes import names
from hwbench.workspace import writing

_PREFIX, _SUFFIX = ".export.", ".tmp"
# In the hidden folder: who has the first one locked makes an export in there; the second one says that it is complete.
_LOCK, _COMPLETE = ".lock", ".complete"
# Where nobody can lock (an older version made the folder, or the file system has no locks): no export takes so long.
_STALE_S = 24 * 3600


def check_place(out: Path, model: str) -> None:
    """Refuses a folder where an export would replace a file that no export wrote.

    Args:
        out: The folder; it need not be there.
        model: Name of the model file.

    Raises:
        InvalidValue: The message names the files.
        WorkspaceError: The folder cannot be looked into.
    """
    settle(out)
    try:
        former = _described(out)
    except ValueError:  # damaged; what reads it says to export the model again
        return
    with writing(out):
        foreign = [model] if former != model and (out / model).exists() else []
        if former is None and (out / MANIFEST).exists():
            foreign.append(MANIFEST)
    if foreign:
        raise InvalidValue(
            f"--out: {' and '.join(foreign)} in {out} came from no export, and would be replaced; move what is yours, "
            "or choose another folder"
        )


def _described(out: Path) -> str | None:
    """Name of the model that the manifest in a folder describes; empty where its engine is not known here.

    None where there is no manifest, or it is not of an export.

    Raises:
        ValueError: It cannot be read.
    """
    try:
        values = read_json((out / MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        return None
    if not isinstance(values, dict) or not {"schema", "sha256", "runtime"} & values.keys():
        return None
    try:
        return model_name(values["runtime"])
    except (UnknownName, KeyError, TypeError):
        return ""


def _former(out: Path, model: str) -> str:
    """Name of the model that goes when another comes."""
    with contextlib.suppress(ValueError):
        return _described(out) or model
    return model


@contextlib.contextmanager
def staging(out: Path) -> Iterator[Path]:
    """A folder to make the files in; it goes with the block, and ``out`` too if it was made for this and is empty.

    Where the block ends while ``place`` moves the files, they are moved here; the folder stays where they cannot be.

    Raises:
        InvalidValue: ``out`` is a file.
        WorkspaceError: It cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise InvalidValue(f"--out: expected a folder, {out} is a file")
    existed = out.is_dir()
    with writing(out):
        make_folder(out)
        with _turn(out):
            _sweep(out)
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=out))
            lock = (folder / _LOCK).open("w")
            try_flock(lock)
    try:
        with writing(out):
            yield folder
    finally:
        with lock, contextlib.suppress(OSError):
            if (folder / _COMPLETE).exists():
                with _turn(out):
                    _finish(folder, out)
            shutil.rmtree(folder, ignore_errors=True)
        if not existed and not any(out.iterdir()):
            out.rmdir()


def place(folder: Path, out: Path, model: str = MODEL) -> None:
    """Moves a complete export from its staging folder into ``out``, over one of before, also of another runtime.

    The page ``RUN.md`` goes with them, unless somebody wrote one of that name there. The export is on the disk when
    this returns.

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
        if (folder / RUN).is_file():
            _sync(folder / RUN)
        sync_folder(folder)  # who finds the next file finds these
        with _turn(out):  # two exports into one folder do not mix
            former = _former(out, model)
            (folder / _COMPLETE).write_text(f"{model}\n{former}")
            _sync(folder / _COMPLETE)
            sync_folder(folder)
            sync_folder(out)
            _move(folder, out, model, former)


def settle(out: Path) -> None:
    """Finishes an export that was stopped while its files were moved; does nothing where none was, or none can be."""
    with contextlib.suppress(OSError):
        for folder in out.glob(f"{_PREFIX}*{_SUFFIX}"):
            if (folder / _COMPLETE).exists():
                with _turn(out):
                    _clear(folder, out)


def _move(folder: Path, out: Path, model: str, former: str) -> None:
    """The order in which the files go; begun again, it goes on where it stopped.

    ``former`` is the model of the export before, which goes if it has another name.
    """
    if not (folder / model).exists() and (out / MANIFEST).exists():
        return  # all is done, or another export came since it stopped
    if (folder / model).exists():
        (out / MANIFEST).unlink(missing_ok=True)
        if former != model:
            (out / former).unlink(missing_ok=True)
        sync_folder(out)
        (folder / model).replace(out / model)
        sync_folder(out)
    if (folder / RUN).is_file() and is_our_page(out / RUN):
        (folder / RUN).replace(out / RUN)
    if (folder / MANIFEST).exists():
        (folder / MANIFEST).replace(out / MANIFEST)
        sync_folder(out)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _turn(out: Path) -> Iterator[None]:
    """Has a folder for itself while the block runs."""
    directory = os.open(out, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # no locks there
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _sweep(out: Path) -> None:
    for folder in out.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # an export beside this one ended
            _clear(folder, out)


def _clear(folder: Path, out: Path) -> None:
    """Removes a hidden folder whose export does not live; one that was complete is moved to its place before."""
    with contextlib.ExitStack() as stack:
        try:
            free = try_flock(stack.enter_context((folder / _LOCK).open("r+")))
        except FileNotFoundError:
            free = None
        if free is None:
            free = time.time() - folder.stat().st_mtime > _STALE_S
        if not free:
            return
        _finish(folder, out)
        shutil.rmtree(folder, ignore_errors=True)


def _finish(folder: Path, out: Path) -> None:
    """Moves an export whose move was stopped; does nothing where it was not complete."""
    with contextlib.suppress(FileNotFoundError):
        named = (folder / _COMPLETE).read_text().splitlines()
        if named and {*named} <= {*map(model_name, names())}:
            _move(folder, out, named[0], named[-1])
