"""What was changed on devices and is not yet put back: written, and on the disk, before each change is made.

One file for each unit in the user's state folder, beside the leases, so that whoever reaches the device next, from
whatever workspace and by whatever address, finds it; of a device that tells no serial number, one for its address.
A line is one change. What a crash or a power cut leaves is the file from before or the one from after. A line that
cannot be read, or that a newer hwbench wrote, is nobody's to forget: it stays as it is, byte for byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from hwbench.devices import lease
from hwbench.devices.probe import Probe
from hwbench.documents import read_json
from hwbench.durable import make_folder, sync_folder
from hwbench.errors import WorkspaceError
from hwbench.workspace import write_bytes, writing


@dataclass(frozen=True)
class Change:
    """One knob of one device, turned from ``before`` to ``ours``.

    ``identity`` is the address by which the device was reached; ``unit``, ``boot`` and ``fingerprint`` are those of the
    probe, empty where the device did not tell, or an older hwbench did not note it. ``at`` is UTC.
    """

    identity: str
    unit: str
    knob: str
    before: Mapping[str, str]
    ours: Mapping[str, str]
    at: str = ""
    pid: int = 0
    boot: str = ""
    fingerprint: str = ""

    @property
    def key(self) -> str:
        """Whose journal it belongs into."""
        return journal_key(self.unit, self.identity)


class Journal:
    """The changes of one unit. Whoever writes holds its lease."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, key: str) -> Journal:
        """That of a device, by ``journal_key``."""
        return cls(folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl")

    def changes(self) -> list[Change]:
        """What is to be put back, in the order in which it was changed; a line that does not read is none.

        Raises:
            WorkspaceError: The file is there and cannot be read.
        """
        return [change for _, change in self._lines() if change is not None]

    def foreign(self) -> int:
        """How many lines cannot be read, or are of a newer hwbench; errors as ``changes``."""
        return sum(change is None for _, change in self._lines())

    def add(self, change: Change) -> Change:
        """Notes a change that is about to be made; it is on the disk when this returns.

        Raises:
            WorkspaceError: It cannot be written; then the change must not be made.
        """
        noted = replace(change, at=datetime.now(UTC).isoformat(timespec="seconds"), pid=os.getpid())
        self._write([*(line for line, _ in self._lines()), json.dumps(asdict(noted)).encode()])
        return noted

    def drop(self, change: Change) -> None:
        """Forgets a change that was put back; without any line the file goes.

        Raises:
            WorkspaceError: It cannot be written.
        """
        self._write([line for line, one in self._lines() if one != change])

    def _lines(self) -> list[tuple[bytes, Change | None]]:
        """Each line with the change that it is; None for one that cannot be read."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise WorkspaceError(
                f"cannot read {self.path}, which says what is to be put back on a device: {error.strerror}; make it "
                "readable, or delete it if nothing was left turned"
            ) from error
        return [(line, _change(line)) for line in data.split(b"\n") if line.strip()]

    def _write(self, lines: Iterable[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        with writing(self.path):
            make_folder(self.path.parent, 0o700)
            if data:
                write_bytes(self.path, data)
            else:
                self.path.unlink(missing_ok=True)
                sync_folder(self.path.parent)


def journal_key(unit: str, identity: str) -> str:
    """Names the journal of a device: by its unit; by its address where it tells none."""
    return f"unit:{unit}" if unit else identity


def folder() -> Path:
    """Where journals lie."""
    return lease.folder().parent / "knobs"


def journals() -> list[Journal]:
    """Those of all devices, also such as hold nothing that can be read."""
    with contextlib.suppress(OSError):
        return [Journal(path) for path in sorted(folder().glob("*.jsonl"))]
    return []


def waiting() -> list[Journal]:
    """Those of all devices on which something is still to be put back, or is being measured."""
    return [journal for journal in journals() if _holds_changes(journal)]


def belongs(change: Change, probe: Probe, identity: str, expected: str | None = None) -> bool:
    """Whether a change was made on the unit that answers now.

    Where both serial numbers are known, they decide: another unit behind the same address is another device. Where one
    is missing, the boot id does: it is the same only on the same kernel, without a start in between. Where that does
    not tell, either, the change belongs to a device of the same fingerprint at the same address. A line of an hwbench
    that noted no fingerprint is taken for one of the device at the same address, as that hwbench did, unless the device
    file says by its fingerprint that another one answers.

    Args:
        change: As the journal has it.
        probe: Of the device that answers.
        identity: Of the transport that reached it.
        expected: The fingerprint in the device file, empty if it has none; None: there is no file to ask, and a line
            without any evidence belongs to nobody.
    """
    if change.unit and probe.unit:
        return change.unit == probe.unit
    if change.boot and change.boot == probe.boot:
        return True
    if change.identity != identity or change.unit or (change.fingerprint and change.fingerprint != probe.fingerprint):
        return False
    return bool(change.fingerprint) or (expected is not None and expected in ("", probe.fingerprint))


_KEYS = frozenset(field.name for field in fields(Change))
_NEEDED = frozenset({"identity", "knob", "before", "ours"})


def _change(line: bytes) -> Change | None:
    """The change of a line; None for a line that is damaged, or has what this hwbench does not know."""
    try:
        values = read_json(line)
    except ValueError:
        return None
    if not isinstance(values, dict) or not _NEEDED <= values.keys() <= _KEYS:
        return None
    change = Change(**{"unit": "", **values})
    if not isinstance(change.before, dict) or not isinstance(change.ours, dict) or type(change.pid) is not int:
        return None
    texts = (change.identity, change.unit, change.knob, change.at, change.boot, change.fingerprint)
    items = (text for pairs in (change.before, change.ours) for pair in pairs.items() for text in pair)
    return change if all(isinstance(text, str) and text.isprintable() for text in (*texts, *items)) else None


def _holds_changes(journal: Journal) -> bool:
    try:
        return bool(journal.changes())
    except WorkspaceError:
        return False
