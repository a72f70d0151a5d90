"""How many frames a second each folder of images has: ``frame-rates.json``, beside ``train`` and ``val``.

``{"train/run/clip": 25, "val/run/other": "30000/1001"}``: folders relative to that of the file. ``hwbench data prepare
--frames`` writes it; one written by hand serves as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from hwbench.data.readers.annotations import frame_rate, read_object
from hwbench.documents import read_json
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.printable import shown
from hwbench.workspace import write_text

FRAME_RATES = "frame-rates.json"
SIDES = ("train", "val")
# In a prepared folder: what it holds, written when it is complete, and a line for each finished file. Sets that were
# prepared before there was the file of rates have them there.
PREPARED, JOURNAL = "prepared.json", ".prepared.jsonl"
PREPARED_MARKS = (PREPARED, JOURNAL)
# What the file can say: 4 decimals, and no more than the option fps of readers takes.
_LEAST, _MOST = 1e-4, 999999.0


def write_frame_rates(root: Path, rates: Mapping[str, float]) -> None:
    """Writes the rates of folders by their names below ``root``; without any, a file of before goes."""
    file = root / FRAME_RATES
    if rates:
        kept = {name: min(max(round(rate, 4), _LEAST), _MOST) for name, rate in rates.items()}
        write_text(file, json.dumps(kept, indent=0) + "\n")
    else:
        file.unlink(missing_ok=True)


def rated_root(path: Path) -> Path | None:
    """The folder with the rates of the folders below ``path``: itself, or that of which it is one side."""
    return next((root for root in roots_of(path) if (root / FRAME_RATES).is_file() or _was_prepared(root)), None)


def roots_of(path: Path) -> tuple[Path, ...]:
    """Folders that ``path`` may be the data of: itself, and that of which it is one side."""
    path = path.absolute()
    return (path, path.parent) if path.name in SIDES else (path,)


def check_ended(path: Path) -> None:
    """Raises InvalidFile where ``path``, one side of it or an archive in it is being prepared, or was until a kill."""
    for root in roots_of(path.parent if path.is_file() else path):
        if (root / JOURNAL).is_file() and not (root / PREPARED).is_file():
            raise InvalidFile(f"{root}: hwbench data prepare has not ended here; the same command goes on")


def is_prepared(folder: Path) -> bool:
    """Whether ``hwbench data prepare`` made the folder: what lies there are copies of videos of another data set."""
    return any(os.path.exists(folder / name) for name in PREPARED_MARKS)


def prepared_values(root: Path, name: str = PREPARED) -> dict[str, Any]:
    """What ``hwbench data prepare`` wrote of a folder; empty where it made none."""
    try:
        values = read_json((root / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def frame_rates(path: Path) -> dict[Path, Fraction]:
    """The rates of folders of images below ``path``, by their absolute paths; empty where nothing says them.

    Raises:
        InvalidFile: The file is damaged, or says something else than numbers above 0.
    """
    root = rated_root(path)
    if root is None:
        return {}
    file = root / FRAME_RATES
    values = read_object(file) if file.is_file() else dict(_journal(root / JOURNAL))
    return {root / name: _rate(file, name, value) for name, value in values.items()}


def _rate(file: Path, name: str, value: object) -> Fraction:
    try:
        return frame_rate(str(value))
    except InvalidValue:
        raise InvalidFile(f"{file}: expected frames a second of {name!r}, such as 25, got {shown(value, 80)}") from None


def _was_prepared(root: Path) -> bool:
    """Whether the folder was made of folders of images before they had a file of rates."""
    settings = prepared_values(root).get("settings")
    form = settings.get("form") if isinstance(settings, dict) else None
    return form == "frames" and (root / JOURNAL).is_file()


def _journal(file: Path) -> Iterator[tuple[str, Any]]:
    """The rates in a journal; lines that are half there are left out, and the last one of a folder counts."""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            values = read_json(line)
            yield values["target"], max(values["fps"], _LEAST)
        except (ValueError, KeyError, TypeError):
            continue
