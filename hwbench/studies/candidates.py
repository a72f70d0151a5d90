"""From trials to an answer: the front, the candidates worth measuring, and the best that was measured within budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hwbench.frames import NUMBER, frame
from hwbench.specs import Architecture, Measurement, Outcome, Workload
from hwbench.units import milliseconds

if TYPE_CHECKING:
    import pandas

# Measures whole networks on the device; a network that could not be measured comes back as a failure or not at all.
MeasureNetworks = Callable[[Sequence[Workload]], Iterable[Measurement]]

# Rounds of measuring, each with what the last one taught about the ratio of measured to predicted.
_ROUNDS = 3
_NUMBERS = ("score", "predicted_ms", "low_ms", "high_ms", "measured_ms")


@dataclass(frozen=True)
class Candidate:
    """A network that was evaluated: its score, its predicted latency and, once measured, its latency (or a failure)."""

    architecture: str
    score: float
    predicted_s: float
    measured_s: float | None = None
    failure: str = ""
    trial: int = -1

    def to_json(self, device: str) -> dict[str, object]:
        """Plain values for people and ``--json``: each latency by device."""
        measured = None if self.measured_s is None else {device: milliseconds(self.measured_s)}
        return {
            "architecture": self.architecture,
            "predicted_ms": {device: milliseconds(self.predicted_s)},
            "measured_ms": measured,
            "score": self.score,
        }


def candidates_frame(candidates: Iterable[Candidate], spread: float) -> pandas.DataFrame:
    """One row for each candidate, in order.

    Args:
        candidates: What the rows are about.
        spread: Factor of the prediction interval.

    Returns:
        Columns ``trial``, ``architecture``, one for each choice of the space (text), ``score``, ``predicted_ms``, its
        interval ``low_ms`` to ``high_ms``, ``measured_ms`` (nan: not measured) and ``failure`` (of the measurement).
    """
    rows = [_row(candidate, spread) for candidate in candidates]
    columns = dict.fromkeys(("trial", "architecture", *(name for row in rows for name in row)))
    return frame(rows, {**columns, **dict.fromkeys(_NUMBERS, NUMBER), "failure": None})


def _row(candidate: Candidate, spread: float) -> dict[str, object]:
    predicted_s, measured_s = candidate.predicted_s, candidate.measured_s
    return {
        "trial": candidate.trial,
        "architecture": candidate.architecture,
        **dict(Architecture.parse(candidate.architecture).choices),
        "score": candidate.score,
        "predicted_ms": milliseconds(predicted_s),
        "low_ms": milliseconds(predicted_s / spread),
        "high_ms": milliseconds(predicted_s * spread),
        "measured_ms": None if measured_s is None else milliseconds(measured_s),
        "failure": candidate.failure,
    }


def pareto(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that no other one beats in both score and predicted latency, fastest first."""
    front: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.predicted_s, -c.score)):
        if not front or candidate.score > front[-1].score:
            front.append(candidate)
    return front


@dataclass
class Confirmation:
    """Measures candidates until the best one within the budget is known.

    The best half of ``count`` is taken by score alone, the other half by score among those whose whole prediction
    interval is within the budget. If none of them turns out to be within the budget, the next ones are chosen by their
    prediction times the worst ratio of measured to predicted so far.

    Args:
        measure: Measures networks on the device.
        workload: From an architecture's key to what is measured.
        budget_s: The budget in seconds.
        spread: Factor of the prediction interval.
        count: Candidates to measure at once.
        emulated: Timings taken under emulation confirm as well.
    """

    measure: MeasureNetworks
    workload: Callable[[str], Workload]
    budget_s: float
    spread: float
    count: int
    emulated: bool = False
    measured: dict[str, Candidate] = field(default_factory=dict)

    def run(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The candidate with the highest score among those measured within the budget; None when there is none.

        What was measured, failures included, is in ``measured`` afterwards.
        """
        ranked = sorted(candidates, key=lambda c: (-c.score, c.predicted_s, c.architecture))
        chosen = self._first(ranked)
        for _ in range(_ROUNDS):
            if not chosen:
                return None
            self._measure(chosen)
            within = [c for c in self.measured.values() if c.measured_s is not None and c.measured_s <= self.budget_s]
            if within:
                return max(within, key=lambda c: (c.score, -c.predicted_s))
            chosen = self._next(ranked, self._worst_ratio())
        return None

    def _first(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        bold = list(ranked[: -(-self.count // 2)])
        safe = [c for c in ranked if c not in bold and c.predicted_s * self.spread <= self.budget_s]
        chosen = bold + safe[: self.count - len(bold)]
        others = [c for c in ranked if c not in chosen]
        return chosen + others[: self.count - len(chosen)]

    def _next(self, ranked: Sequence[Candidate], ratio: float) -> list[Candidate]:
        fresh = [c for c in ranked if c.architecture not in self.measured and c.predicted_s * ratio <= self.budget_s]
        return fresh[: self.count]

    def _worst_ratio(self) -> float:
        ratios = [c.measured_s / c.predicted_s for c in self.measured.values() if c.measured_s is not None]
        return max(ratios, default=1.0)

    def _measure(self, chosen: Sequence[Candidate]) -> None:
        by_workload: Mapping[Workload, Candidate] = {self.workload(c.architecture): c for c in chosen}
        for candidate in chosen:
            self.measured[candidate.architecture] = replace(candidate, failure="the device did not report it")
        for measurement in self.measure(list(by_workload)):
            candidate = by_workload[measurement.workload]
            self.measured[candidate.architecture] = _with(candidate, measurement, self.emulated)


def _with(candidate: Candidate, measurement: Measurement, emulated: bool) -> Candidate:
    if measurement.outcome is Outcome.OK and (emulated or not measurement.emulated):
        return replace(candidate, measured_s=measurement.stats.median_s, failure="")
    reason = "taken under emulation" if measurement.outcome is Outcome.OK else measurement.reason
    return replace(candidate, failure=f"{measurement.outcome}: {reason}")
