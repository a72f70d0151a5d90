"""What a study that exists was made with, read before anything of it is opened. Loads no Optuna for a journal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.spaces.begun import JOURNAL as JOURNAL
from hwbench.spaces.begun import MARKER as MARKER
from hwbench.spaces.begun import SETTINGS as SETTINGS
from hwbench.spaces.begun import SETTINGS_COPY as SETTINGS_COPY
from hwbench.spaces.begun import journal_settings

if TYPE_CHECKING:
    from hwbench.studies.storage import StudyStorage


def stored_settings(folder: Path, storage: StudyStorage | None = None) -> Mapping[str, object]:
    """Settings of the study of a folder, as they are kept; empty where there is none.

    What is damaged counts as none: whoever opens the study says so.

    Args:
        folder: Of the study; its name is that of the study.
        storage: Keeps the trials; None: a journal in the folder.

    Raises:
        WorkspaceError: The storage cannot be reached.
    """
    stored = journal_settings(folder / JOURNAL) if storage is None else _in_storage(folder, storage)
    return stored if isinstance(stored, dict) else {}


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
