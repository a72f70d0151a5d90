"""What an export tells of itself while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ExportProgress:
    """Where an export is: ``stage`` is calibrate, blocks, build or check; ``total`` is None where it is not known."""

    stage: str
    done: int
    total: int | None


Watch = Callable[[ExportProgress], None]
