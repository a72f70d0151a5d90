"""What was looked at on a device, one thing at a time."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, FAILED = "ok", "warning", "failed"


@dataclass(frozen=True)
class CheckStep:
    """One thing that was looked at: ``state`` is ok, warning or failed; ``advice`` mends it."""

    name: str
    state: str
    found: str
    advice: str = ""
