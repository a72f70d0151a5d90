"""The metrics of a run as JSON lines: one for every step, one for every epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hwbench.workspace import writing

METRICS = "metrics.jsonl"


class MetricsLog:
    """``metrics.jsonl`` in the run's folder; without a folder nothing is kept.

    Opened at the length which the resumed state knows: lines of steps that are done again go, so no step stands twice.
    """

    def __init__(self, folder: Path | None, length: int) -> None:
        self._file = None
        self.length = 0
        if folder is None:
            return
        path = folder / METRICS
        with writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            self._file.truncate(min(length, path.stat().st_size))
            self.length = self._file.seek(0, 2)

    def write(self, **values: Any) -> None:
        """Appends one line and hands it to the system at once."""
        if self._file is not None:
            with writing(Path(self._file.name)):
                self.length += self._file.write(json.dumps(values).encode() + b"\n")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
