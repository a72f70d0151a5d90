"""Networks that were evaluated, as values: what is known of each, and which of them no other one beats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwbench.frames import NUMBER, frame
from hwbench.specs import Architecture
from hwbench.units import milliseconds

if TYPE_CHECKING:
    import pandas

# A number that holds for all networks, or by space where they are of several.
BySpace = float | Mapping[str, float]

_NUMBERS = ("score", "predicted_ms", "low_ms", "high_ms", "measured_ms")


@dataclass(frozen=True)
class FurtherLatency:
    """What a network takes on a further device."""

    device: str
    predicted_s: float
    measured_s: float | None = None


@dataclass(frozen=True)
class Candidate:
    """A network that was evaluated: its score, its predicted latency and, once measured, its latency (or a failure).

    ``further`` are its latencies on the further devices of a study, in their order. ``sizes`` are bytes that have a
    budget, by the key that ``--json`` prints. ``chance`` is the probability that it is within all budgets, by what was
    measured of others; None: it was measured itself, or nothing is known.
    """

    architecture: str
    score: float
    predicted_s: float
    measured_s: float | None = None
    failure: str = ""
    trial: int = -1
    further: tuple[FurtherLatency, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    chance: float | None = None

    @property
    def space(self) -> str:
        """Name of the space that it is a member of."""
        return self.architecture.partition(":")[0]

    @property
    def is_predicted(self) -> bool:
        """Whether the tables have all of its blocks; a row that a trial had may be gone since."""
        return all(math.isfinite(seconds) for seconds in (self.predicted_s, *(one.predicted_s for one in self.further)))

    def predicted(self, device: str) -> dict[str, float]:
        """Seconds by device, the first of which is ``device``."""
        return {device: self.predicted_s, **{other.device: other.predicted_s for other in self.further}}

    def measured(self, device: str) -> dict[str, float]:
        """Seconds by device, the first of which is ``device``; devices on which it was not measured are left out."""
        times = {device: self.measured_s, **{other.device: other.measured_s for other in self.further}}
        return {name: seconds for name, seconds in times.items() if seconds is not None}

    def measured_on(self, number: int) -> float | None:
        """Seconds on the first device, whose number is 0, or on a further one; None: not measured there."""
        return self.further[number - 1].measured_s if number else self.measured_s

    def with_measured(self, number: int, seconds: float) -> Candidate:
        """The same with a latency on the device of this number."""
        if not number:
            return replace(self, measured_s=seconds)
        further = list(self.further)
        further[number - 1] = replace(further[number - 1], measured_s=seconds)
        return replace(self, further=tuple(further))

    def to_json(self, device: str, *, with_space: bool = False) -> dict[str, object]:
        """Plain values for people and ``--json``: each latency by device; the space where there are several."""
        measured = {name: milliseconds(seconds) for name, seconds in self.measured(device).items()}
        values: dict[str, object] = {
            "architecture": self.architecture,
            **({"space": self.space} if with_space else {}),
            "predicted_ms": {name: milliseconds(seconds) for name, seconds in self.predicted(device).items()},
            "measured_ms": measured or None,
            "score": self.score,
        }
        chance = {} if self.chance is None else {"chance": round(self.chance, 4)}
        return values | dict(self.sizes) | chance


def of_space(number: BySpace, space: str) -> float:
    """What a number is in a space."""
    return number[space] if isinstance(number, Mapping) else number


def candidates_frame(candidates: Iterable[Candidate], spread: BySpace) -> pandas.DataFrame:
    """One row for each candidate, in order.

    Args:
        candidates: What the rows are about.
        spread: Factor of the prediction interval; by space: those of several spaces are there.

    Returns:
        Columns ``trial``, ``architecture``, ``space`` where there are several, one for each choice of the space (text),
        ``score``, ``predicted_ms``, its interval ``low_ms`` to ``high_ms``, ``measured_ms`` (nan: not measured) and
        ``failure`` (of the measurement); before ``score``, for each further device, ``predicted_ms_on_DEVICE`` and
        ``measured_ms_on_DEVICE``.
    """
    rows = [_row(candidate, spread) for candidate in candidates]
    columns = dict.fromkeys(("trial", "architecture", *(name for row in rows for name in row)))
    rows = [dict.fromkeys(columns) | row for row in rows]  # networks of several spaces choose different things
    return frame(rows, {**columns, **dict.fromkeys(_NUMBERS, NUMBER), "failure": None})


def _row(candidate: Candidate, spread: BySpace) -> dict[str, object]:
    predicted_s, measured_s, factor = candidate.predicted_s, candidate.measured_s, of_space(spread, candidate.space)
    return {
        "trial": candidate.trial,
        "architecture": candidate.architecture,
        **({"space": candidate.space} if isinstance(spread, Mapping) else {}),
        **dict(Architecture.parse(candidate.architecture).choices),
        **{f"predicted_ms_on_{other.device}": milliseconds(other.predicted_s) for other in candidate.further},
        **{f"measured_ms_on_{other.device}": _milliseconds(other.measured_s) for other in candidate.further},
        "score": candidate.score,
        "predicted_ms": milliseconds(predicted_s),
        "low_ms": milliseconds(predicted_s / factor),
        "high_ms": milliseconds(predicted_s * factor),
        "measured_ms": _milliseconds(measured_s),
        "failure": candidate.failure,
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else milliseconds(seconds)


def pareto(candidates: Iterable[Candidate], latency: Callable[[Candidate], float] | None = None) -> list[Candidate]:
    """Those that no other one beats in both score and predicted latency, fastest first.

    Args:
        candidates: The networks.
        latency: What counts as the latency of one; default: that on the first device.
    """
    front: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (latency(c) if latency else c.predicted_s, -c.score)):
        if not front or candidate.score > front[-1].score:
            front.append(candidate)
    return front
