"""What a study that exists was made with, read before anything of it is opened. Loads no Optuna for a journal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwbench.studies.storage import StudyStorage

JOURNAL = "journal.log"
SETTINGS = "settings"
# The file in the folder of a study that names its storage.
MARKER = "storage.txt"


def stored_settings(folder: Path, storage: StudyStorage | None = None) -> Mapping[str, object]:
    """Settings of the study of a folder, as they are kept; empty where there is none.

    What is damaged counts as none: whoever opens the study says so.

    Args:
        folder: Of the study; its name is that of the study.
        storage: Keeps the trials; None: a journal in the folder.

    Raises:
        WorkspaceError: The storage cannot be reached.
    """
    stored = _in_journal(folder / JOURNAL) if storage is None else _in_storage(folder, storage)
    return stored if isinstance(stored, dict) else {}


def _in_journal(path: Path) -> object:
    """The settings that a journal gave its study last."""
    found: object = None
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        if b'"settings"' not in line:
            continue
        try:
            entry: Any = json.loads(line)
        except ValueError:
            continue
        values = entry.get("user_attr") if isinstance(entry, dict) and "trial_id" not in entry else None
        if isinstance(values, dict) and SETTINGS in values:
            found = values[SETTINGS]
    return found


def _in_storage(folder: Path, storage: StudyStorage) -> object:
    """The settings in the storage that the folder of a study names."""
    if not (folder / MARKER).is_file() or is_missing(storage):
        return None
    name = folder.name
    with storage.opened(name, alone=False) as opened:
        for study in opened.get_all_studies():
            if study.study_name == name:
                return study.user_attrs.get(SETTINGS)
    return None


def is_missing(storage: StudyStorage) -> bool:
    """Whether a storage is a file of SQLite that does not exist; whoever opens it makes an empty one."""
    return storage.url.drivername == "sqlite" and not Path(storage.url.database or "").exists()
