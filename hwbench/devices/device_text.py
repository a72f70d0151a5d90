"""Reading what a device prints, with suspicion: control characters go, lengths and numbers have bounds.

The scripts that are sent to devices print parts, each after a line ``== NAME``; these functions take them apart. None
raises on any text: what does not read is empty, 0 or None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# A probe of a phone with a hundred sensors is some 30 KiB; more than this is no answer.
MAX_CHARS = 1 << 20
# Names of models, builds and sensors; the longest known build fingerprints have about 110 characters.
MAX_NAME = 200
_CPU_LIST = r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*"
# Processors beyond this number are none that a command could be bound to (the kernel's own limit is 8192).
MAX_CPUS = 1024


def clean(text: str, limit: int = MAX_NAME) -> str:
    """One line without control, format or private characters, at most ``limit`` long; spaces inside stay."""
    return "".join(c if c.isprintable() else " " for c in text[: 2 * limit]).strip()[:limit]


def number(text: str, highest: int = 1 << 53) -> int:
    """A whole number from 0 to ``highest``; 0 for what is none."""
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,18}", text):
        return 0
    return value if (value := int(text)) <= highest else 0


def decimal(text: str, lowest: float, highest: float) -> float | None:
    """A number with or without a fraction, within bounds; None for what is none."""
    text = text.strip()
    if not re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", text):
        return None
    return value if lowest <= (value := float(text)) <= highest else None


def sections(text: str) -> dict[str, str]:
    """Splits at the lines ``== NAME``."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text[:MAX_CHARS].replace("\0", "").splitlines():
        if line.startswith("== "):
            current = found.setdefault(line[3:].strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def fields(text: str, separator: str = ":") -> dict[str, str]:
    """Lines ``name : value``; of a name that comes twice the first counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(separator)
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Reads ``0-3,8``; empty for what is none."""
    if len(text) > 8 * MAX_CPUS or not re.fullmatch(_CPU_LIST, text):
        return ()
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), min(int(last or first), MAX_CPUS - 1) + 1))
    return tuple(sorted(cpu for cpu in cpus if cpu < MAX_CPUS))


def format_cpu_list(indices: Iterable[int]) -> str:
    """``0-3,6``, as ``parse_cpu_list`` reads it."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
