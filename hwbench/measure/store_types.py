"""What the measurement store gives back beyond a measurement, and how values are written in its columns."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from hwbench.specs import CacheState, Measurement, Session, Target, Timing, Workload

# Fields of a session that are columns of the same name.
SESSION_NUMBERS = (
    "cpu_s", "wall_s", "involuntary_switches", "load_s", "first_s", "clock_hz", "temperature_celsius", "drift",
    "probe_s", "crowding", "memory", "disturbed",
)  # fmt: skip

# In the state of the device before a run: ``Runner.build``.
RUNNER_BUILD = "runner_build"

# Conditions of queries: a row by ``row_identity``, and the sessions of the latest attempt of a row by its number.
IDENTITY = "workload = ? AND target = ? AND timing = ? AND conditions = ? AND build = ?"
ATTEMPT = "measurement = ? AND attempt = (SELECT attempt FROM measurements AS m WHERE m.id = measurement)"


class RowPurpose(enum.StrEnum):
    """Why a row was measured first: a network that was chosen for its prediction calibrates no table."""

    TABLE = ""
    CONFIRMATION = "confirmation"


@dataclass(frozen=True)
class StoredRow:
    """A finished row with what the store knows beyond the measurement: its build, when it ended (UTC, ISO 8601), and
    why it was measured."""

    measurement: Measurement
    build: str
    finished_at: str
    purpose: RowPurpose = RowPurpose.TABLE


@dataclass(frozen=True)
class Run:
    """Sessions taken one after another on a device, and its state before and after (None: it did not come to its end).

    Times are UTC, ISO 8601; ``sessions`` is their number.
    """

    id: int
    before: Mapping[str, Any]
    after: Mapping[str, Any] | None
    started_at: str
    ended_at: str
    sessions: int


@dataclass(frozen=True)
class TakenSession:
    """A session with what the store knows beyond it: what of, under which conditions (a digest), when and in which run.

    ``taken_at`` is when it was stored (UTC, ISO 8601); ``run`` is None where that is not known; ``suspect`` says why it
    is doubted. ``current`` is False for sessions of an attempt that was given up.
    """

    row: int
    workload: Workload
    conditions: str
    session: Session
    suspect: str
    taken_at: str
    run: int | None
    current: bool


def row_identity(
    workload: Workload, target: Target, timing: Timing, conditions: Mapping[str, str], build: str
) -> tuple[str, str, str, str, str]:
    """What makes a row another row, as its columns have it."""
    return (workload.key, target.key, timing_key(timing), fingerprint(conditions), build)


def timing_key(timing: Timing) -> str:
    """A ``Timing`` as canonical JSON: part of a row's identity.

    A field that came later is left out where it says what was done before, so that older rows stay what they are.
    """
    values = asdict(timing)
    if timing.cache is CacheState.WARM:
        del values["cache"]
    return canonical(values)


def fingerprint(conditions: Mapping[str, str]) -> str:
    """Digest of a set of conditions; the order of the names does not matter."""
    return hashlib.sha256(canonical(conditions).encode()).hexdigest()[:16]


def canonical(values: Mapping[str, Any]) -> str:
    """JSON that is the same for the same values."""
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"))


def no_build(workload: Workload) -> str:
    """The build key of measurements that are not made from the cache."""
    return ""


def trusted(sessions: Sequence[tuple[Session, str]], timing: Timing) -> tuple[Session, ...]:
    """The sessions that count: the clean ones where they are at least ``timing.min_rounds``, else all; of those that
    are doubted then, the time on the processor where it is less (``Session.on_the_processor``).
    """
    clean = tuple(session for session, suspect in sessions if not suspect)
    if len(clean) >= timing.min_rounds:
        return clean
    return tuple(session.on_the_processor() if suspect else session for session, suspect in sessions)


def write_samples(session: Session) -> str:
    """The samples of a session as whole nanoseconds, in the order taken."""
    return json.dumps([round(s * 1e9) for s in session.samples_s], separators=(",", ":"))


def read_session(samples: str, numbers: Sequence[float]) -> Session:
    """A session from its samples, as ``write_samples`` wrote them, and its ``SESSION_NUMBERS``."""
    values = dict(zip(SESSION_NUMBERS, numbers, strict=True))
    return Session(samples_s=tuple(ns / 1e9 for ns in json.loads(samples)), **values)  # type: ignore[arg-type]


def now() -> str:
    """The time of day as the store writes it: UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
