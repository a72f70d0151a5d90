"""What was changed on devices and is not yet put back: written, and on the disk, before each change is made.

One file for each device in the user's state folder, beside the leases, so that whoever reaches the device next, from
whatever workspace, finds it. A line is one change. What a crash leaves is the file from before or the one from after.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from hwbench.devices import lease
from hwbench.documents import read_json
from hwbench.workspace import write_bytes, writing


@dataclass(frozen=True)
class Change:
    """One knob of one device, turned from ``before`` to ``ours``; ``unit`` is that of the probe, ``at`` is UTC."""

    identity: str
    unit: str
    knob: str
    before: Mapping[str, str]
    ours: Mapping[str, str]
    at: str = ""
    pid: int = 0


class Journal:
    """The changes of one device. Whoever writes holds its lease."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, identity: str) -> Journal:
        """That of a device, by the identity of its transport."""
        return cls(folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsonl")

    def changes(self) -> list[Change]:
        """What is to be put back, in the order in which it was changed; a line that does not read is none."""
        try:
            return list(_read(self.path.read_bytes().splitlines()))
        except FileNotFoundError:
            return []

    def add(self, change: Change) -> Change:
        """Notes a change that is about to be made; it is on the disk when this returns.

        Raises:
            WorkspaceError: It cannot be written; then the change must not be made.
        """
        noted = replace(change, at=datetime.now(UTC).isoformat(timespec="seconds"), pid=os.getpid())
        self._write([*self.changes(), noted])
        return noted

    def drop(self, change: Change) -> None:
        """Forgets a change that was put back; without any the file goes."""
        self._write([one for one in self.changes() if one != change])

    def _write(self, changes: list[Change]) -> None:
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if changes:
                write_bytes(self.path, b"".join(json.dumps(asdict(one)).encode() + b"\n" for one in changes))
            else:
                self.path.unlink(missing_ok=True)
            _sync(self.path.parent)


def folder() -> Path:
    """Where journals lie."""
    return lease.folder().parent / "knobs"


def waiting() -> list[Journal]:
    """Those of all devices on which something is still to be put back, or is being measured."""
    with contextlib.suppress(OSError):
        return [journal for path in sorted(folder().glob("*.jsonl")) if (journal := Journal(path)).changes()]
    return []


def _read(lines: list[bytes]) -> Iterator[Change]:
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            change = Change(**read_json(line))
            texts = (change.identity, change.unit, change.knob, *change.before, *change.before.values())
            if all(isinstance(text, str) for text in (*texts, *change.ours, *change.ours.values())):
                yield change


def _sync(path: Path) -> None:
    """A file that was made or renamed is on the disk when its folder is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
