"""What a search cost, and what random draws from the same set would have come to for as much."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hwbench.errors import InvalidFile
from hwbench.reports.result import StoredResult
from hwbench.spaces.begun import SHARES
from hwbench.studies.evaluators import TRAINING
from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.race import RaceResult, RaceStanding

# Draws of a study below which nothing is said of random networks.
FEWEST_DRAWS = 3
# Stored times are rounded: a number of trainings may be short of a whole one by so much.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Guessing:
    """Random networks in the place of a search.

    Attributes:
        trials_s: Worker time of the trials: the sum of their wall times, several of which may run at a time.
        race_s: Worker time of the trainings of finalists; 0 without a race.
        training_s: Wall time of one training to the end, of the first round of the race; None: none is known.
        draws: Scores of the study's own uniform draws that have one and are predicted within the budget, in the order
            of their trials.
        best: Score of the best trial within the budget.
        clock_s: Wall time of the trials, as a clock on the wall has it; None: not stored.
        given_up: Further draws, which a pruner gave up; they count as worse than those with a score.
        among_trials_s: Wall time of such a training as trials ran, which may have had fewer threads than those of the
            race: that of a trial, by its epochs and the size of its clips; None: trials are no trainings.
        beyond: Further draws with a score, which newer rows of a table put beyond the budget.
    """

    trials_s: float
    race_s: float
    training_s: float | None
    draws: tuple[float, ...]
    best: float
    clock_s: float | None = None
    given_up: int = 0
    among_trials_s: float | None = None
    beyond: int = 0

    @classmethod
    def of(cls, result: StoredResult) -> Guessing | None:
        """Of a stored study; None where it does not say how long its trials took."""
        if result.course is None or not result.history:
            return None
        drawn = set(result.course.draws)
        scored = [c for c in sorted(result.history, key=lambda c: c.trial) if c.trial in drawn]
        draws = tuple(c.score for c in scored if result.is_predicted_within(c))
        return cls(
            result.course.seconds,
            _race_s(result),
            _training_s(result),
            draws,
            max((c.score for c in result.history if result.is_within(c)), default=result.best.score),
            result.course.clock_s,
            len(drawn.intersection(result.given_up_trials)),
            _among_trials_s(result),
            len(scored) - len(draws),
        )

    @property
    def networks(self) -> int | None:
        """How many networks would have been trained to the end in the worker time of the search; None: not known."""
        if not self.training_s:
            return None
        if self.among_trials_s is None:
            return math.floor((self.trials_s + self.race_s) / self.training_s)
        return math.floor(self.trials_s / self.among_trials_s + self.race_s / self.training_s + _ROUNDING)

    @property
    def drawn(self) -> int:
        """Number of draws within the budget, with a score or given up."""
        return len(self.draws) + self.given_up

    @cached_property
    def expected(self) -> tuple[float, ...]:
        """Expected best score of some random networks, up to ``drawn``: of 1, 2, ... where no draw was given up.

        Empty where there are too few draws to tell, or all of them were given up.
        """
        return expected_best(self.draws, self.given_up) if self.drawn >= FEWEST_DRAWS else ()

    @property
    def fewest(self) -> int:
        """The number of random networks that the first of ``expected`` is of: any more than were given up."""
        return self.given_up + 1


def expected_best(values: Sequence[float], below: int = 0) -> tuple[float, ...]:
    """Expected maximum of n of some values, drawn without replacement, for n = 1 to all of them.

    Of ``below`` further values it is only known that they are less than all of these. Any more values than so many hold
    one that is known: then n begins at ``below + 1``.

    An unbiased estimate of the expected best of n independent draws, where the values are such draws: the mean of the
    maximum over all subsets of n. With the values ascending, value i is the maximum of C(i - 1, n - 1) subsets of
    C(k, n) (Dodge et al., Show Your Work, EMNLP 2019, in the unbiased form of Tang et al., ACL 2020).
    """
    ordered = sorted(values)
    k = len(ordered) + below
    best = []
    for n in range(below + 1, k + 1):
        # From the largest value down each share follows from the one before: the counts of subsets outgrow floats.
        share, terms = n / k, []
        for i in range(k - 1, n - 2, -1):
            terms.append(ordered[i - below] * share)
            if i:
                share *= (i - n + 1) / i
        best.append(math.fsum(terms))
    return tuple(best)


@dataclass(frozen=True)
class TrainedDraws:
    """Networks of a folder of ground truth, whose top-1 is known: what random networks are expected to reach.

    Attributes:
        folder: As it was named.
        expected: Expected top-1 of the best of 1, 2, ... of them.
    """

    folder: str
    expected: tuple[float, ...]

    @classmethod
    def of(cls, folder: Path, result: StoredResult) -> TrainedDraws:
        """The networks of the space of a study; X3D's own shapes, which nobody drew, are in another space.

        Raises:
            InvalidFile: A file of the folder is damaged, or none of its networks is of that space.
        """
        truth = GroundTruth.read(folder)
        space, limit = result.settings.space, result.settings.budget_ms
        top1 = [one.top1 for one in truth.networks if one.architecture.partition(":")[0] == space]
        if not top1 or truth.budget_ms != limit:
            raise InvalidFile(
                f"{folder}: has {len(top1)} networks of space {space!r} within {truth.budget_ms:g} ms; the study is of "
                f"{limit:g} ms; name ground truth of the same space and budget with --truth"
            )
        return cls(str(folder), expected_best(top1))


def _race_s(result: StoredResult) -> float:
    """Worker time of the trainings of the races; one that serves several budgets counts once."""
    runs = {(s.architecture, number): s.seconds for race in result.races.values() for number, s in _numbered(race)}
    return math.fsum(runs.values())


def _numbered(race: RaceResult) -> Iterator[tuple[int, RaceStanding]]:
    for number, one in enumerate(race.rounds, start=1):
        yield from ((number, standing) for standing in one.standings)


def _training_s(result: StoredResult) -> float | None:
    """Mean wall time of a training in the first round of the races."""
    first = [race.rounds[0] for race in result.races.values() if race.rounds]
    seconds = [standing.seconds for one in first for standing in one.standings if standing.seconds]
    return math.fsum(seconds) / len(seconds) if seconds else None


def _among_trials_s(result: StoredResult) -> float | None:
    """Wall time of a training of the first round of the races as trials ran; None: not known."""
    settings, course = result.settings, result.course
    epochs = re.match(r"\d+", settings.effort)
    first = next((race.rounds[0] for race in result.races.values() if race.rounds), None)
    clip = _clip_share(settings.effort)
    if settings.evaluator not in TRAINING or not epochs or first is None or not 0 < clip <= 1:
        return None
    if course is None or not course.whole_s:
        return None
    return course.whole_s * first.epochs / int(epochs[0]) / clip


def _clip_share(effort: str) -> float:
    """What of a whole clip the trainings of trials see; those of races see it all."""
    shares = dict(SHARES.findall(effort))
    return float(shares.get("frames-share", 1)) * float(shares.get("resolution-share", 1)) ** 2
