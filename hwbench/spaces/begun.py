"""A study that was begun and has no result: by what command it goes on. Reads its folder, and opens no storage."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hwbench.documents import read_json
from hwbench.printable import printable

# In the folder of a study: its trials; or the file that names the storage that keeps them, and a copy of the settings.
JOURNAL = "journal.log"
MARKER = "storage.txt"
SETTINGS_COPY = "settings.json"
# The attribute of the study that has what it searches for.
SETTINGS = "settings"
# Stands for a budget that cannot be read, without which no search begins.
_BUDGET = "BUDGET"
# Settings that are options of the same name.
_ALIKE = ("evaluator", "sampler", "objective", "data")


def is_begun(folder: Path) -> bool:
    """Whether a folder holds a study, finished or not."""
    return (folder / JOURNAL).is_file() or (folder / MARKER).is_file()


def journal_settings(path: Path) -> object:
    """The settings that a journal gave its study last; None: it gave none, or is damaged."""
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


def copied_settings(path: Path) -> object:
    """The settings of a study that is kept elsewhere, by a copy in its folder; None: none, or it is damaged."""
    try:
        return read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def going_on(folder: Path, spaces: Sequence[str]) -> str:
    """The beginning of the command that goes on with a study: what of its settings can be read, and its name.

    A budget that cannot be read is a placeholder, ``--budget BUDGET``.

    Args:
        folder: Of the study; its name is that of the study.
        spaces: Names of spaces that ``--space`` takes; any other one is left out.
    """
    storage = _line(folder / MARKER)
    stored = copied_settings(folder / SETTINGS_COPY) if storage else journal_settings(folder / JOURNAL)
    options = dict(_options(stored if isinstance(stored, dict) else {}, spaces))
    if storage:
        options["storage"] = storage
    options["study"] = folder.name
    words = [f"--{name} {shlex.quote(printable(value, 300))}" for name, value in options.items()]
    return " ".join(["hwbench search", *words])


def _options(stored: Mapping[str, object], spaces: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options that decide what is searched for, by stored settings; those that are damaged are left out."""
    space, budget = stored.get("space"), stored.get("budget_ms")
    further = stored.get("further_budgets_ms", {})
    limits = further if isinstance(further, dict) else {}
    if isinstance(space, str) and all(name in spaces for name in space.split(",")):
        yield "space", space
    if isinstance(target := stored.get("target"), str):
        yield "device", ",".join(key.partition("/")[0] for key in (target, *limits))
    if isinstance(precision := stored.get("precision"), str):
        yield "precision", precision
    smaller = stored.get("smaller_budgets_ms", [])
    budgets = [*(smaller if isinstance(smaller, list) else []), budget, *limits.values()]
    # A search for minutes keeps its budgets divided.
    if not stored.get("sustained") and all(isinstance(one, int | float) for one in budgets):
        yield "budget", ",".join(f"{one:.12g}ms" for one in budgets)
    else:
        yield "budget", _BUDGET
    for name in _ALIKE:
        if isinstance(value := stored.get(name), str) and value:
            yield name, value
    if isinstance(seed := stored.get("seed"), int):
        yield "seed", str(seed)


def _line(path: Path) -> str:
    """The one line of a file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
