"""What is there of data in a workspace: synthetic sets, and folders that ``hwbench data prepare`` made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from hwbench.data.builtin import PREFIX, SYNTHETIC, builtin_sets, find_builtin
from hwbench.data.readers.frame_rates import PREPARED as PREPARED
from hwbench.workspace import Workspace, write_text

_KNOWN = "prepared-data.json"


def synthetic_sets(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Names of ``--data`` with one line each."""
    for name in (SYNTHETIC, *(f"{PREFIX}{other}" for other in builtin_sets.names())):
        found = find_builtin(name)
        assert found is not None
        there = any((workspace.data / folder).is_dir() for folder in found.spec.names)
        yield name, f"{found.summary}; {'encoded' if there else 'encoded on first use'}."


def prepared_sets(workspace: Workspace) -> Iterator[tuple[Path, str]]:
    """Prepared folders that are still there, with one line each."""
    for folder in _known(workspace):
        values = _read(folder / PREPARED)
        if isinstance(values, dict):
            yield folder, str(values.get("summary", ""))


def note_prepared(workspace: Workspace, folder: Path) -> None:
    """Remembers a prepared folder."""
    folder = folder.absolute()
    known = [one for one in _known(workspace) if one != folder and one.is_dir()]
    write_text(workspace.state / _KNOWN, json.dumps([str(one) for one in (*known, folder)], indent=2) + "\n")


def _known(workspace: Workspace) -> list[Path]:
    values = _read(workspace.root / ".hwbench" / _KNOWN)
    return [Path(text) for text in values if isinstance(text, str)] if isinstance(values, list) else []


def _read(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
