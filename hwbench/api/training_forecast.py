"""How long the trainings of a search will take, by a few steps of some networks, told before the first of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hwbench.api.listener import Listener
from hwbench.api.score_plan import ASHA, NO_PRUNER
from hwbench.api.search_request import SearchRequest
from hwbench.api.study_data import StudyData
from hwbench.errors import InvalidValue
from hwbench.interpreter import cores
from hwbench.printable import counted
from hwbench.units import format_duration

if TYPE_CHECKING:
    from hwbench.spaces.protocols import NetworkSet
    from hwbench.specs import Network
    from hwbench.studies.time_limit import TimeLimit, TrialClock

# Networks of the set that are timed: what they take differs by their frames, resolution and depth.
NETWORKS = 3
# A clip of a test takes no backward pass, which is two thirds of a step.
_TEST_SHARE = 1 / 3
# Of the epochs of whole trainings those that are trained: half of the networks are given up after a quarter, half of
# the others after a half (0.52 to 0.53 for 12 to 24 networks, experiment 031). What Hyperband gives up is not foretold.
_SHARES = {NO_PRUNER: 1.0, ASHA: 0.53}
# Below so many trainings twice as many of half the length find more (experiment 032: 24 of six epochs leave 8 points to
# the best, 12 of twelve 11).
_FEW = 16
# The evaluator that trains and tests nothing.
LOSSES_ALONE = "curve"


@dataclass(frozen=True)
class _Costs:
    """Seconds of an epoch, of a whole training, of one as the pruner lets it go on, and of all races at most.

    By ``timed`` networks, each with its share of the processors of ``workers``.
    """

    timed: int
    workers: int
    epoch_s: float
    training_s: float
    each_s: float
    race_s: float


@dataclass
class TrainingForecast:
    """The trainings of a search before they begin.

    Attributes:
        request: What is asked for.
        data: What is trained on.
        feasible: The networks within the (largest) budget.
        num_classes: Of the heads in the set.
        races: How many races there are at most: one for each budget.
    """

    request: SearchRequest
    data: StudyData
    feasible: NetworkSet
    num_classes: int
    races: int
    _told: int | None = field(default=None, init=False)

    @classmethod
    def of(
        cls, request: SearchRequest, data: StudyData, feasible: NetworkSet, num_classes: int, *, races: int
    ) -> TrainingForecast | None:
        """None where networks are not scored by trainings on this machine."""
        if not request.trains or request.ray is not None:
            return None
        return cls(request, data, feasible, num_classes, races)

    def begin(self, time_s: float, known: int, listener: Listener) -> int:
        """Says how many networks a study that begins trains in its time; some seconds of training are timed for it.

        Args:
            time_s: For the trainings and the races.
            known: Trainings of before that the study begins from.
            listener: Hears it.

        Returns:
            How many fit, at most those that are asked for.

        Raises:
            InvalidValue: There is no time for one training and the races.
            VideoError: A video cannot be read.
        """
        most = int(min(self.request.plan.trials, self.feasible.count))
        costs = self._costs(most)
        fit = costs.workers * int(max(0.0, time_s - costs.race_s) / costs.each_s)
        if not fit:
            least_s = 1.1 * costs.training_s
            without = ""
            if costs.race_s:
                enough = time_s >= least_s
                without = " or --finalists 0" if enough else f", or {format_duration(least_s)} with --finalists 0"
            raise InvalidValue(
                f"--time {self.request.time}: a training takes about {format_duration(costs.training_s)}"
                f"{self._race(costs.race_s, ' and')}; give at least "
                f"{format_duration(least_s + 1.1 * costs.race_s)}{without}"
            )
        self._told = min(most, fit)
        self._say(self._told, costs, "--trials" if self.request.trials else "--time", listener)
        epochs = self.request.plan.epochs
        if fit < most and fit + known < _FEW and epochs > 1:
            listener.say(
                f"{counted(fit, 'training')} {'finds' if fit == 1 else 'find'} little more than as many draws do: "
                f"with another --study, --epochs {epochs // 2} trains twice as many in this time, which finds more"
            )
        return self._told

    def tell(self, networks: int, listener: Listener, clock: TrialClock | None = None) -> int:
        """Says what is trained, and how long that takes here; once. Some seconds of training are timed for it.

        Args:
            networks: To be scored, if there is time.
            listener: Hears it.
            clock: Of that and the races; None: there is time for all.

        Returns:
            How many networks are scored in this time, as far as one knows.

        Raises:
            VideoError: A video cannot be read.
        """
        if self._told is not None:
            return self._told
        if clock is not None and (fit := clock.fit(self.request.workers)) is not None:
            self._told = min(networks, fit)
            listener.say(
                f"{counted(self._told, 'more training')} {'fits' if self._told == 1 else 'fit'} into what is left of "
                f"--time {self.request.time}, by those of before"
            )
            return self._told
        self._told = networks
        self._say(networks, self._costs(networks), "--trials", listener)
        return networks

    def _say(self, networks: int, costs: _Costs, chosen: str, listener: Listener) -> None:
        plan = self.request.plan
        most = "about" if plan.pruner in _SHARES else "at most"
        seconds = math.ceil(networks / costs.workers) * costs.each_s
        listener.say(
            f"{counted(networks, 'training')} of {counted(plan.epochs, 'epoch')} "
            f"{'takes' if networks == 1 else 'take'} {most} {format_duration(seconds)}"
            f"{self._race(costs.race_s, ', and')}, by the first steps of {counted(costs.timed, 'network')} "
            f"({format_duration(costs.epoch_s)} for an epoch); {chosen}, --epochs and --finalists say how much is "
            "trained"
        )

    def _costs(self, networks: int) -> _Costs:
        drawn = self._drawn(networks)
        workers = min(self.request.workers, networks)  # the rest has nothing to do
        epoch_s = self._epoch_s(drawn, workers)
        training_s = self._training_s(drawn[0], epoch_s)
        each_s = training_s * _SHARES.get(self.request.plan.pruner, 1.0)
        return _Costs(len(drawn), workers, epoch_s, training_s, each_s, self._races_s(epoch_s))

    def _race(self, seconds: float, joined: str) -> str:
        """Says how long the races take; nothing where there is none."""
        if not seconds:
            return ""
        each = f" within each of {self.races} budgets" if self.races > 1 else ""
        finalists = _finalists(self.request, self.feasible)
        told = f"{joined} the race of the best {finalists}{each} at most {format_duration(seconds)}"
        if self.request.plan.finalist_score == "int8":
            return f"{told}, and the int8 files of {finalists} finalists besides"
        return told

    def _drawn(self, networks: int) -> Sequence[Network]:
        from hwbench.studies.evaluations import ReferenceNetworks

        draw = ReferenceNetworks(self.feasible, self.request.seed, self.num_classes)
        return draw(min(NETWORKS, networks))

    def _epoch_s(self, networks: Sequence[Network], workers: int) -> float:
        """Seconds of an epoch of a network with its share of the processors.

        The first network is trained twice: its videos are decoded before they are timed.
        """
        seed = self.request.seed
        threads = None if workers == 1 else max(1, cores() // workers)
        self.data.epoch_s(networks[0], seed, threads)
        return statistics.fmean(self.data.epoch_s(one, seed, threads) for one in networks)

    def _training_s(self, example: Network, epoch_s: float) -> float:
        """Seconds of one training with its tests."""
        plan, tests = self.request.plan, 0
        if plan.evaluator != LOSSES_ALONE:
            tests = plan.epochs if self.request.plan.pruner != NO_PRUNER else 1
        test = self.data.test_share(example, self.request.seed) * _TEST_SHARE
        return (plan.epochs + tests * test) * epoch_s

    def _races_s(self, epoch_s: float) -> float:
        """Seconds of all races, whose trainings see whole clips."""
        finalists = _finalists(self.request, self.feasible)
        epochs = race_epochs(finalists, self.request.plan.finalist_epochs, self.request.workers)
        return self.races * epochs * epoch_s / _clip_share(self.request)


def time_limit(request: SearchRequest, feasible: NetworkSet, *, races: int) -> TimeLimit | None:
    """The time of a study that trains, of which its races have a part; None: it takes as long as it takes."""
    from hwbench.studies.time_limit import TimeLimit

    if request.time_s is None:
        return None
    finalists = _finalists(request, feasible) if request.trains else 0
    epochs = races * race_epochs(finalists, request.plan.finalist_epochs, request.workers)
    return TimeLimit(request.time_s, epochs / (request.plan.epochs * _clip_share(request)))


def _finalists(request: SearchRequest, feasible: NetworkSet) -> int:
    """How many networks begin a race: at most as many as are scored."""
    return int(min(request.plan.finalists, request.plan.trials, feasible.count))


def _clip_share(request: SearchRequest) -> float:
    """What of a whole clip the trainings of trials see; those of races see it all."""
    return request.frames_share * request.resolution_share**2


def race_epochs(finalists: int, first: int, workers: int = 1) -> int:
    """Epochs that one of the workers trains in a race in which nobody is beaten before the halving.

    Args:
        finalists: How many begin.
        first: Epochs of the first round; each further one has twice as many.
        workers: Networks that are trained at the same time.
    """
    from hwbench.studies.race import round_epochs

    epochs, number = 0, 1
    while finalists > 1:
        epochs += math.ceil(finalists / workers) * round_epochs(first, number)
        finalists, number = math.ceil(finalists / 2), number + 1
    return epochs
