"""From trials to an answer: the front, the candidates worth measuring, and the best that was measured within budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hwbench.frames import NUMBER, frame
from hwbench.specs import Architecture, Measurement, Outcome, Workload
from hwbench.units import milliseconds

if TYPE_CHECKING:
    import pandas

    from hwbench.spaces.sums import SpaceSums

# Measures whole networks on the device; a network that could not be measured comes back as a failure or not at all.
MeasureNetworks = Callable[[Sequence[Workload]], Iterable[Measurement]]

# Rounds of measuring, each with what the last one taught about the ratio of measured to predicted.
_ROUNDS = 8
# A network that fits with a smaller probability is not measured.
_HOPELESS = 0.1
# Standard deviations on either side that hold nine in ten of a normal distribution.
_NINE_IN_TEN = 1.645
# Of log(measured / predicted), where calibration networks happen to agree.
_LEAST_DEVIATION = 0.005
# Of the prior of the shift, in networks: (deviation of one network / deviation of the shift) squared.
_SHIFT_WEIGHT = 0.25
_NUMBERS = ("score", "predicted_ms", "low_ms", "high_ms", "measured_ms")


@dataclass(frozen=True)
class DeviceBudget:
    """A device on which networks are to be within a budget.

    Attributes:
        device: Its name.
        budget_s: Upper limit of the latency there.
        spread: Factor of the prediction interval there.
        latencies: What networks are predicted to take there.
        measure: Measures networks there.
        occasion: Standard deviation of what all networks share there today, relative (``PredictionError.of``).
    """

    device: str
    budget_s: float
    spread: float
    latencies: SpaceSums
    measure: MeasureNetworks
    occasion: float = 0.0


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

    def to_json(self, device: str) -> dict[str, object]:
        """Plain values for people and ``--json``: each latency by device."""
        measured = {name: milliseconds(seconds) for name, seconds in self.measured(device).items()}
        values: dict[str, object] = {
            "architecture": self.architecture,
            "predicted_ms": {name: milliseconds(seconds) for name, seconds in self.predicted(device).items()},
            "measured_ms": measured or None,
            "score": self.score,
        }
        chance = {} if self.chance is None else {"chance": round(self.chance, 4)}
        return values | dict(self.sizes) | chance


def candidates_frame(candidates: Iterable[Candidate], spread: float) -> pandas.DataFrame:
    """One row for each candidate, in order.

    Args:
        candidates: What the rows are about.
        spread: Factor of the prediction interval.

    Returns:
        Columns ``trial``, ``architecture``, one for each choice of the space (text), ``score``, ``predicted_ms``, its
        interval ``low_ms`` to ``high_ms``, ``measured_ms`` (nan: not measured) and ``failure`` (of the measurement);
        before ``score``, for each further device, ``predicted_ms_on_DEVICE`` and ``measured_ms_on_DEVICE``.
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
        **{f"predicted_ms_on_{other.device}": milliseconds(other.predicted_s) for other in candidate.further},
        **{f"measured_ms_on_{other.device}": _milliseconds(other.measured_s) for other in candidate.further},
        "score": candidate.score,
        "predicted_ms": milliseconds(predicted_s),
        "low_ms": milliseconds(predicted_s / spread),
        "high_ms": milliseconds(predicted_s * spread),
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


@dataclass(frozen=True)
class PredictionError:
    """What log(measured / predicted) of a network not yet measured is like: normal.

    Attributes:
        mean: The shift that the networks of today have in common.
        deviation: Of one network around it.
    """

    mean: float
    deviation: float

    @classmethod
    def of(cls, logs: Sequence[float], spread: float, occasion: float = 0.0) -> PredictionError:
        """What the calibration promises, corrected by what was measured.

        What networks share, the occasion among it, cancels as soon as some of them are measured: those are ranked with
        the rest of the error alone. The prior of the variance counts as one network.

        Args:
            logs: log(measured / predicted) of the networks that were measured.
            spread: Factor of the interval that holds nine networks in ten, whatever the occasion.
            occasion: Deviation of what they share, as the table knows it; 0: it does not, and twice the deviation of a
                single network is assumed.
        """
        total = math.log(spread) / _NINE_IN_TEN
        prior = max(math.sqrt(max(total**2 - occasion**2, 0.0)), _LEAST_DEVIATION)
        weight = (prior / occasion) ** 2 if occasion else _SHIFT_WEIGHT
        mean = math.fsum(logs) / (len(logs) + weight)
        variance = (prior**2 + math.fsum((log - mean) ** 2 for log in logs)) / (1 + len(logs))
        return cls(mean, math.sqrt(variance * (1 + 1 / (len(logs) + weight))))

    def chance(self, room: float) -> float:
        """The probability that a network takes at most ``room`` times what is predicted."""
        return 0.5 * math.erfc((self.mean - math.log(room)) / (self.deviation * math.sqrt(2)))


@dataclass
class Confirmation:
    """Measures candidates until the best one within the budget is known.

    The best half of ``count`` is taken by score alone, the other half by score among those whose whole prediction
    interval is within the budget. It goes on until no network that was not measured has both a higher score than the
    best so far and a tenth of a chance to fit, by what has been measured, or until ``_ROUNDS`` are over.

    Args:
        measure: Measures networks on the device.
        workload: From an architecture's key to what is measured.
        budget_s: The budget in seconds.
        spread: Factor of the prediction interval.
        count: Candidates to measure at once.
        emulated: Timings taken under emulation confirm as well.
        further: Further devices, each with its budget. Only what is within the budgets before is measured there.
        occasion: Deviation of what all networks share today (``PredictionError.of``).
    """

    measure: MeasureNetworks
    workload: Callable[[str], Workload]
    budget_s: float
    spread: float
    count: int
    emulated: bool = False
    further: Sequence[DeviceBudget] = ()
    occasion: float = 0.0
    measured: dict[str, Candidate] = field(default_factory=dict)

    def run(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The candidate with the highest score among those measured within the budget; None when there is none.

        What was measured, failures included, is in ``measured`` afterwards.
        """
        ranked = sorted(candidates, key=lambda c: (-c.score, c.predicted_s, c.architecture))
        chosen = self._first(ranked)
        for _ in range(_ROUNDS):
            if not chosen:
                break
            self._measure(chosen)
            chosen = self._next(ranked)
        return self._best()

    def with_chances(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Candidates as they were measured; those that were not, with the probability that they fit."""
        errors = self._errors()
        return [self.measured.get(c.architecture) or replace(c, chance=self._chance(c, errors)) for c in candidates]

    def _best(self) -> Candidate | None:
        within = [c for c in self.measured.values() if self._is_within(c)]
        return max(within, key=lambda c: (c.score, -c.predicted_s), default=None)

    @property
    def _limits(self) -> list[float]:
        """Budgets, the first device first."""
        return [self.budget_s, *(other.budget_s for other in self.further)]

    def _is_within(self, candidate: Candidate) -> bool:
        times = [candidate.measured_on(number) for number in range(len(self._limits))]
        return all(t is not None and t <= limit for t, limit in zip(times, self._limits, strict=True))

    def _is_predicted_within(self, candidate: Candidate, factors: Sequence[float]) -> bool:
        """Whether its predictions, each times a factor, are within the budgets."""
        times = [candidate.predicted_s, *(other.predicted_s for other in candidate.further)]
        return all(t * f <= limit for t, f, limit in zip(times, factors, self._limits, strict=True))

    def _first(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        bold = list(ranked[: -(-self.count // 2)])
        spreads = [self.spread, *(other.spread for other in self.further)]
        safe = [c for c in ranked if c not in bold and self._is_predicted_within(c, spreads)]
        chosen = bold + safe[: self.count - len(bold)]
        others = [c for c in ranked if c not in chosen]
        return chosen + others[: self.count - len(chosen)]

    def _next(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        """Those with a higher score than the best so far that may fit, by what has been measured."""
        best, errors = self._best(), self._errors()
        hopeful = [
            c
            for c in ranked
            if c.architecture not in self.measured
            and (best is None or c.score > best.score)
            and self._chance(c, errors) > _HOPELESS
        ]
        return hopeful[: self.count]

    def _chance(self, candidate: Candidate, errors: Sequence[PredictionError]) -> float:
        """The probability that a network is within the budget of every device."""
        times = [candidate.predicted_s, *(other.predicted_s for other in candidate.further)]
        return math.prod(e.chance(limit / t) for e, limit, t in zip(errors, self._limits, times, strict=True))

    def _errors(self) -> list[PredictionError]:
        """By device."""
        spreads = [self.spread, *(other.spread for other in self.further)]
        pairs = [[(c.predicted_s, c.measured_s) for c in self.measured.values()]]
        for other in zip(*(c.further for c in self.measured.values()), strict=True):
            pairs.append([(latency.predicted_s, latency.measured_s) for latency in other])
        known = [[math.log(m / p) for p, m in by_device if m is not None] for by_device in pairs]
        occasions = [self.occasion, *(other.occasion for other in self.further)]
        return [PredictionError.of(*promised) for promised in zip(known, spreads, occasions, strict=True)]

    def _measure(self, chosen: Sequence[Candidate]) -> None:
        going_on = list(chosen)
        for number, measure in enumerate([self.measure, *(other.measure for other in self.further)]):
            if not going_on:
                return
            self._measure_on(number, measure, going_on)
            latest = [self.measured[candidate.architecture] for candidate in going_on]
            going_on = [c for c in latest if (t := c.measured_on(number)) is not None and t <= self._limits[number]]

    def _measure_on(self, number: int, measure: MeasureNetworks, chosen: Sequence[Candidate]) -> None:
        """Measures on the first device, whose number is 0, or on a further one."""
        where = f"{self.further[number - 1].device}: " if number else ""
        by_workload: Mapping[Workload, Candidate] = {self.workload(c.architecture): c for c in chosen}
        for candidate in chosen:
            self.measured[candidate.architecture] = replace(candidate, failure=f"{where}the device did not report it")
        for measurement in measure(list(by_workload)):
            candidate = by_workload[measurement.workload]
            self.measured[candidate.architecture] = self._with(candidate, measurement, number, where)

    def _with(self, candidate: Candidate, measurement: Measurement, number: int, where: str) -> Candidate:
        if measurement.outcome is Outcome.OK and (self.emulated or not measurement.emulated):
            return replace(candidate.with_measured(number, measurement.stats.median_s), failure="")
        reason = "taken under emulation" if measurement.outcome is Outcome.OK else measurement.reason
        return replace(candidate, failure=f"{where}{measurement.outcome}: {reason}")
