"""The metrics of a run as JSON lines: one for every step, one for every epoch."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from hwbench.durable import make_folder
from hwbench.errors import InvalidFile
from hwbench.training.tensorboard import TensorBoard
from hwbench.workspace import write_bytes, writing

METRICS = "metrics.jsonl"


class MetricsLog:
    """``metrics.jsonl`` in the run's folder; without a folder nothing is kept.

    Opened at the length which the resumed state knows: lines of steps that are done again go, so no step stands twice.
    What a power cut made of a line (zeros in its place, its end missing) goes, too.
    """

    def __init__(self, folder: Path | None, length: int) -> None:
        self._file = None
        self._mirror: TensorBoard | None = None
        self.length = 0
        if folder is None:
            return
        path = folder / METRICS
        with writing(path):
            make_folder(folder)
            self._file = path.open("ab", buffering=0)
            self._file.truncate(min(length, path.stat().st_size))
            whole = _whole_lines(path.read_bytes())
            if len(whole) != self._file.seek(0, 2):
                write_bytes(path, whole)
                self._file.close()
                self._file = path.open("ab", buffering=0)
            self.length = len(whole)

    def mirror(self, board: TensorBoard) -> None:
        """Hands each line to TensorBoard, too."""
        self._mirror = board

    def write(self, **values: Any) -> None:
        """Appends one line and hands it to the system at once."""
        if self._mirror is not None:
            self._mirror.write(values)
        if self._file is not None:
            with writing(Path(self._file.name)):
                self.length += self._file.write(json.dumps(values).encode() + b"\n")

    def sync(self) -> None:
        """What was written is on the disk when this returns."""
        if self._file is not None:
            with writing(Path(self._file.name)):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


def _whole_lines(data: bytes) -> bytes:
    """The lines that are JSON, each with its end."""
    kept = []
    for line in data.splitlines(keepends=True):
        with contextlib.suppress(ValueError):
            json.loads(line)
            kept += [line] if line.endswith(b"\n") else []
    return b"".join(kept)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log in their order: ``event`` is ``step`` or ``epoch`` and says which keys a line has.

    Raises:
        InvalidFile: The folder has no log.
    """
    path = folder / METRICS
    try:
        whole = _whole_lines(path.read_bytes())
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror}; expected the log that hwbench train writes there") from None
    return [json.loads(line) for line in whole.splitlines()]


def is_log(folder: Path) -> bool:
    """Whether ``metrics.jsonl`` of a folder has a line that a run wrote: of a step or of an epoch."""
    try:
        lines = read_metrics(folder)
    except InvalidFile:
        return False
    return any(isinstance(line, dict) and line.get("event") in ("step", "epoch") for line in lines)
