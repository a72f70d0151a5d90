"""From scores to an answer: which candidates are worth measuring, and the best that was measured within its budget."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hwbench.specs import Measurement, Outcome, Workload
from hwbench.studies.candidates import BySpace, Candidate, of_space

if TYPE_CHECKING:
    from hwbench.spaces.protocols import NetworkSums

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


@dataclass(frozen=True)
class DeviceBudget:
    """A device on which networks are to be within a budget.

    Attributes:
        device: Its name.
        budget_s: Upper limit of the latency there.
        spread: Factor of the prediction interval there, by space where there are several.
        latencies: What networks are predicted to take there.
        measure: Measures networks there.
        occasion: Standard deviation of what all networks share there today, relative (``PredictionError.of``); by
            space where there are several.
    """

    device: str
    budget_s: float
    spread: BySpace
    latencies: NetworkSums
    measure: MeasureNetworks
    occasion: BySpace = 0.0


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
        the rest of the error alone. The prior of the variance counts as one network. The shift is fitted to the logs,
        which takes a degree of freedom from their residuals, less the share of it that the prior of the shift holds.

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
        degrees = 1 + len(logs) - len(logs) / (len(logs) + weight)
        variance = (prior**2 + math.fsum((log - mean) ** 2 for log in logs)) / degrees
        return cls(mean, math.sqrt(variance * (1 + 1 / (len(logs) + weight))))

    def chance(self, room: float) -> float:
        """The probability that a network takes at most ``room`` times what is predicted."""
        return 0.5 * math.erfc((self.mean - math.log(room)) / (self.deviation * math.sqrt(2)))


@dataclass
class Confirmation:
    """Measures candidates until the best ``wanted`` within the budget are known.

    The best half of ``count`` is taken by score alone, the other half by score among those whose whole prediction
    interval is within the budget; where none is predicted within it, those of ``beyond`` that may fit. It goes on until
    no network that was not measured, whatever was predicted of it, has both a higher score than the last of the best
    ``wanted`` so far and a tenth of a chance to fit, by what has been measured, or until ``_ROUNDS`` are over.

    Args:
        measure: Measures networks on the device.
        workload: From an architecture's key to what is measured.
        budget_s: The budget in seconds.
        spread: Factor of the prediction interval. By space where there are several: each has a calibration of its own,
            so what was measured of one says nothing of another.
        count: Candidates to measure at once.
        emulated: Timings taken under emulation confirm as well.
        further: Further devices, each with its budget. Only what is within the budgets before is measured there.
        measured: What was measured, by architecture; confirmations of several budgets share it.
        wanted: Networks within the budget to know.
        occasion: Deviation of what all networks share today (``PredictionError.of``); by space where there are several.
        beyond: Networks that were scored and are predicted beyond the budget, by little or by much.
    """

    measure: MeasureNetworks
    workload: Callable[[str], Workload]
    budget_s: float
    spread: BySpace
    count: int
    emulated: bool = False
    further: Sequence[DeviceBudget] = ()
    measured: dict[str, Candidate] = field(default_factory=dict)
    wanted: int = 1
    occasion: BySpace = 0.0
    beyond: Sequence[Candidate] = ()

    def run(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The candidate with the highest score among those measured within the budget; None when there is none.

        What was measured, failures included, is in ``measured`` afterwards.
        """
        confirm([(self, candidates)])
        return next(iter(self.within()), None)

    def first(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """What ``run`` measures first, in no order."""
        return self._first(_ranked(candidates))

    def with_chances(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Candidates as they were measured; those that were not, with the probability that they fit."""
        errors = functools.cache(self._errors)
        return [self.measured.get(c.architecture) or replace(c, chance=self._chance(c, errors)) for c in candidates]

    def within(self) -> list[Candidate]:
        """What was measured within the budget, highest score first."""
        within = [c for c in self.measured.values() if self._is_within(c)]
        return sorted(within, key=lambda c: (-c.score, c.predicted_s))

    @property
    def _limits(self) -> list[float]:
        """Budgets, the first device first."""
        return [self.budget_s, *(other.budget_s for other in self.further)]

    def _is_within(self, candidate: Candidate) -> bool:
        times = [candidate.measured_on(number) for number in range(len(self._limits))]
        return all(t is not None and t <= limit for t, limit in zip(times, self._limits, strict=True))

    def _is_predicted_within(self, candidate: Candidate) -> bool:
        """Whether its whole prediction intervals are within the budgets."""
        factors = self._in_space([self.spread, *(other.spread for other in self.further)], candidate.space)
        times = [candidate.predicted_s, *(other.predicted_s for other in candidate.further)]
        return all(t * f <= limit for t, f, limit in zip(times, factors, self._limits, strict=True))

    def _first(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        """Half of them bold, half safe; where nothing is predicted within the budget, what may fit of ``beyond``."""
        if not ranked:
            return self._next(ranked)
        bold = list(ranked[: -(-self.count // 2)])
        safe = [c for c in ranked if c not in bold and self._is_predicted_within(c)]
        chosen = bold + safe[: self.count - len(bold)]
        others = [c for c in ranked if c not in chosen]
        return chosen + others[: self.count - len(chosen)]

    def _next(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        """Those with a higher score than the last of the best so far that may fit, by what has been measured."""
        within, errors = self.within(), functools.cache(self._errors)
        last = within[self.wanted - 1] if len(within) >= self.wanted else None
        hopeful = [
            c
            for c in _ranked([*ranked, *self.beyond])
            if c.architecture not in self.measured
            and (last is None or c.score > last.score)
            and self._chance(c, errors) > _HOPELESS
        ]
        return hopeful[: self.count]

    def _chance(self, candidate: Candidate, errors: Callable[[str], list[PredictionError]]) -> float:
        """The probability that a network is within the budget of every device."""
        times = [candidate.predicted_s, *(other.predicted_s for other in candidate.further)]
        by_device = errors(candidate.space)
        return math.prod(e.chance(limit / t) for e, limit, t in zip(by_device, self._limits, times, strict=True))

    def _errors(self, space: str) -> list[PredictionError]:
        """By device, what the errors of networks of a space are like, by those of it that were measured."""
        spreads = self._in_space([self.spread, *(other.spread for other in self.further)], space)
        alike = [c for c in self.measured.values() if not isinstance(self.spread, Mapping) or c.space == space]
        pairs = [[(c.predicted_s, c.measured_s) for c in alike]]
        for number in range(len(self.further)):
            pairs.append([(c.further[number].predicted_s, c.further[number].measured_s) for c in alike])
        known = [[math.log(m / p) for p, m in by_device if m is not None] for by_device in pairs]
        occasions = self._in_space([self.occasion, *(other.occasion for other in self.further)], space)
        return [PredictionError.of(*promised) for promised in zip(known, spreads, occasions, strict=True)]

    def _in_space(self, numbers: Sequence[BySpace], space: str) -> list[float]:
        return [of_space(number, space) for number in numbers]

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
        by_workload = defaultdict[Workload, list[Candidate]](
            list
        )  # networks that differ in their clips alone share one
        for candidate in chosen:
            by_workload[self.workload(candidate.architecture)].append(candidate)
            self.measured[candidate.architecture] = replace(candidate, failure=f"{where}the device did not report it")
        for measurement in measure(list(by_workload)):
            for candidate in by_workload[measurement.workload]:
                self.measured[candidate.architecture] = self._with(candidate, measurement, number, where)

    def _with(self, candidate: Candidate, measurement: Measurement, number: int, where: str) -> Candidate:
        if measurement.outcome is Outcome.OK and (self.emulated or not measurement.emulated):
            return replace(candidate.with_measured(number, measurement.stats.median_s), failure="")
        reason = "taken under emulation" if measurement.outcome is Outcome.OK else measurement.reason
        return replace(candidate, failure=f"{where}{measurement.outcome}: {reason}")


def confirm(wanted: Sequence[tuple[Confirmation, Sequence[Candidate]]]) -> None:
    """Measures what several confirmations ask for: all of a round in one campaign, whose networks take turns.

    Args:
        wanted: Confirmations that measure on the same devices and share ``measured``, each with its candidates; the
            last one has the largest budget.
    """
    ranked = [(one, _ranked(candidates)) for one, candidates in wanted]
    chosen = each_once(one._first(candidates) for one, candidates in ranked)
    for _ in range(_ROUNDS):
        if not chosen:
            return
        wanted[-1][0]._measure(chosen)
        chosen = each_once(one._next(candidates) for one, candidates in ranked)


def _ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda c: (-c.score, c.predicted_s, c.architecture))


def each_once(several: Iterable[Sequence[Candidate]]) -> list[Candidate]:
    """The networks of several lists, in order, each once."""
    return list({candidate.architecture: candidate for one in several for candidate in one}.values())
