"""Finalists of a race trained by the workers of the search, several at a time.

What a worker trains it leaves in the folder of the study, where the process of the search reads it. A worker without
that folder, on another node of a cluster, trains nothing, and a network that a worker could not train is trained in the
process of the search, which says why it cannot be.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hwbench.errors import HwbenchError, InvalidValue
from hwbench.printable import printable
from hwbench.specs import Network
from hwbench.studies.evaluations import Assignment, Died, Outcome, Scored, WorkerPlan
from hwbench.studies.race import FinalistTrainer

# The score of a network that a worker did not train, as it does not see the folder of the study.
_UNSEEN = -1.0
# How the name of the file begins by which a worker knows the folder of the study.
_MARK = ".race-"
# So many workers may die of a network.
_DEATHS = 2


@dataclass(frozen=True)
class RaceWorkers:
    """Trains the finalists of a round ahead of the process of the search.

    Args:
        plan: The workers.
        train: What trains a finalist; sent to them.
        network: The network of an architecture in its printed form.
        folder: Of the study.
        tell: Hears in one line why workers train nothing.
    """

    plan: WorkerPlan
    train: FinalistTrainer
    network: Callable[[str], Network]
    folder: Path
    tell: Callable[[str], None]

    def __call__(self, architectures: Sequence[str], number: int, /) -> Iterator[tuple[str, str]]:
        """Has the networks of round ``number`` trained; each as it is done, and why it cannot be trained.

        An empty reason means that its training is finished, or that the process of the search shall try.

        Raises:
            HwbenchError: No worker can be started.
        """
        left = [one for one in architectures if not self.train.is_trained(one, number)]
        yield from ((one, "") for one in architectures if one not in left)
        if left:
            yield from self._trained(left, number)

    def _trained(self, architectures: Sequence[str], number: int) -> Iterator[tuple[str, str]]:
        waiting, under_way = deque(range(len(architectures))), set[int]()
        deaths, told = Counter[int](), False
        with _mark(self.folder) as mark, self.plan.open(FinalistSetup(self.train, number, mark), len(waiting)) as pool:
            while waiting or under_way:
                while waiting and pool.free:
                    under_way.add(waiting[0])
                    pool.assign(Assignment.of(waiting[0], self.network(architectures[waiting.popleft()])))
                for outcome in pool.outcomes():
                    under_way.remove(outcome.trial)
                    deaths[outcome.trial] += isinstance(outcome, Died)
                    if isinstance(outcome, Died) and deaths[outcome.trial] < _DEATHS:
                        waiting.append(outcome.trial)
                        continue
                    if _is_unseen(outcome) and not told:
                        told = True
                        self.tell(f"finalists are trained here: workers do not see {printable(str(self.folder), 200)}")
                    yield architectures[outcome.trial], outcome.reason if isinstance(outcome, Died) else ""


@dataclass(frozen=True)
class FinalistSetup:
    """What a worker makes its evaluator from.

    Args:
        train: Trains a finalist.
        number: Of the round.
        mark: A file in the folder of the study.
    """

    train: FinalistTrainer
    number: int
    mark: Path
    name = "what trains finalists"

    def evaluator(self) -> Finalist:
        """Trains finalists of the round."""
        return Finalist(self)

    def refusal(self, error: Exception) -> InvalidValue:
        """What it means that pickling the setup raised."""
        return InvalidValue(f"finalists cannot be sent to workers: {printable(str(error), 300)}; leave out --workers")


@dataclass(frozen=True)
class Finalist:
    """Trains a finalist where an evaluator would score a network."""

    setup: FinalistSetup
    name = "finalist"

    def score(self, network: Network) -> float:
        """Its top-1, a share; nan: it could not be trained, and below 0: this worker does not see the study."""
        if not self.setup.mark.is_file():
            return _UNSEEN
        try:
            return self.setup.train(network.name, self.setup.number).results.top1
        except HwbenchError:
            return math.nan


def _is_unseen(outcome: Outcome) -> bool:
    return isinstance(outcome, Scored) and outcome.score == _UNSEEN


@contextmanager
def _mark(folder: Path) -> Iterator[Path]:
    """A file that nobody else has, in the folder of the study, by which a worker knows that it sees the folder.

    The process of the search has the study for itself, so that what is there already was left by a killed one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{_MARK}*"):
        left.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=_MARK) as file:
        yield Path(file.name)
