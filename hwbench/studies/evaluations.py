"""Where networks are scored: in this process, in worker processes, or on a cluster; one protocol for all of them.

The search alone asks and tells Optuna. What scores networks knows nothing of studies: it is given networks, as many at
a time as it has room for, and returns scores in whatever order they come. A study so has one writer however many
workers there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import numpy as np

from hwbench import errors
from hwbench.errors import HwbenchError, InvalidValue
from hwbench.printable import printable
from hwbench.registry import blaming
from hwbench.spaces.protocols import NetworkSet
from hwbench.specs import Architecture, Network
from hwbench.specs.kinds.by_hand import is_by_hand, model_of
from hwbench.specs.model_name import ModelName, named_models
from hwbench.studies.evaluators import Context, Evaluator, ReportingEvaluator, evaluators
from hwbench.studies.pruning import Judge


@dataclass(frozen=True)
class Assignment:
    """One network to score.

    Args:
        trial: Number of the trial that asks.
        network: What is scored.
        models: (name, number of classes) of the models by hand whose blocks the network has: a worker loads them.
        reports: Whether scores are reported on the way, and the network may be given up.
    """

    trial: int
    network: Network
    models: tuple[tuple[str, int | None], ...] = ()
    reports: bool = False

    @classmethod
    def of(cls, trial: int, network: Network, *, reports: bool = False) -> Assignment:
        """The assignment with the models that were named to this process."""
        labels = [model_of(block) for block in network.blocks if is_by_hand(block)]
        return cls(trial, network, tuple(named_models(labels)), reports)


@dataclass(frozen=True)
class Scored:
    """The score of one trial's network (nan: it has none), and the seconds that scoring took."""

    trial: int
    score: float
    seconds: float


@dataclass(frozen=True)
class Reported:
    """What a worker says of a network that it goes on scoring; it waits for whether it shall."""

    trial: int
    epoch: int
    score: float


@dataclass(frozen=True)
class GaveUp:
    """A network was given up after an epoch, from 0."""

    trial: int
    epoch: int
    seconds: float


@dataclass(frozen=True)
class Died:
    """A worker ended while it scored the network of a trial; ``reason`` says how, in words."""

    trial: int
    reason: str


@dataclass(frozen=True)
class Failed:
    """An evaluator raised: by its name a class of ``hwbench.errors``, or any other; ends the search."""

    kind: str
    reason: str

    @classmethod
    def of(cls, error: Exception | SystemExit, doing: str) -> Failed:
        """What a worker says of an error; ``doing`` is what failed, for errors that are not ours."""
        if isinstance(error, HwbenchError):
            return cls(type(error).__name__, str(error))
        return cls("", f"{doing}: {type(error).__name__}: {printable(str(error), 500)}")

    def error(self) -> HwbenchError:
        """The error to raise in the process of the search."""
        kind = getattr(errors, self.kind, HwbenchError) if self.kind else HwbenchError
        return kind(self.reason)


Outcome = Scored | GaveUp | Died


class Evaluations(Protocol):
    """Scores networks. Used as a context; its end, however it comes, ends every worker, also in the middle of a score.

    The caller assigns no more networks than are ``free``, and takes outcomes until each assignment has one.
    """

    @property
    def free(self) -> int:
        """How many more networks can be assigned now. Workers may come and go: it changes while outcomes are taken."""
        ...

    def assign(self, assignment: Assignment, /) -> None:
        """Begins to score a network.

        Raises:
            HwbenchError: No worker can be started.
        """
        ...

    def outcomes(self) -> Iterator[Outcome]:
        """Waits until something has happened; what ended, which may be nothing where a worker has become ready.

        Raises:
            HwbenchError: An evaluator cannot be made, or raised; or no worker can be started.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


@runtime_checkable
class JudgedEvaluations(Evaluations, Protocol):
    """Evaluations that can give networks up; ``judge`` says which, where there is one."""

    judge: Judge | None


# Reference networks that a study keeps: newer rows change the feasible set, and scores stay relative to the same ones.
KEPT = 16


@dataclass(frozen=True)
class ReferenceNetworks:
    """``Context.reference`` of a study: networks of its feasible set, the same ones in every process.

    Args:
        feasible: What is drawn from.
        seed: Of the study.
        num_classes: Of the heads.
        kept: Keys of the first ``KEPT``, as they were drawn when the study began; fewer: there are no more. Empty: they
            are drawn now.
    """

    feasible: NetworkSet
    seed: int
    num_classes: int
    kept: tuple[str, ...] = ()

    def __call__(self, count: int) -> Sequence[Network]:
        """Up to ``count`` different networks, uniformly; fewer where the set is small."""
        return [self.feasible.space.network(architecture, self.num_classes) for architecture in self._drawn(count)]

    def keys(self) -> tuple[str, ...]:
        """Those that a study keeps."""
        return tuple(architecture.key for architecture in self._drawn(KEPT))

    def _drawn(self, count: int) -> list[Architecture]:
        drawn = {Architecture.parse(key): None for key in self.kept}
        if 0 < len(drawn) < KEPT or len(drawn) >= count:
            return list(drawn)[:count]
        rng = np.random.default_rng([self.seed, 2])
        for _ in range(20 * count):
            drawn[self.feasible.draw(rng)] = None
            if len(drawn) == count:
                break
        return list(drawn)


@dataclass(frozen=True)
class EvaluatorSetup:
    """All that a worker needs to make the evaluator of a study; pickled on its way to other processes."""

    make: type[Evaluator]
    context: Context

    @property
    def name(self) -> str:
        """What is made, in messages."""
        return f"evaluator {self.make.name!r}"

    def evaluator(self) -> Evaluator:
        """A new evaluator."""
        with evaluators.blaming(self.make):
            return self.make(self.context)

    def refusal(self, error: Exception) -> InvalidValue:
        """What it means that pickling the setup raised: the evaluator, or what it trains with, cannot be sent."""
        return InvalidValue(
            f"{self.name} cannot be sent to workers: {printable(str(error), 300)}; define it in a "
            "module of its own, or leave out --workers and --ray"
        )


class NetworkScorer(Protocol):
    """What a worker scores networks with."""

    @property
    def name(self) -> str:
        """In messages."""
        ...

    def score(self, network: Network, /) -> float:
        """The score of a network; nan: it has none."""
        ...


class WorkerSetup(Protocol):
    """What a worker is sent: a description of its evaluator that can be pickled, such as ``EvaluatorSetup``."""

    @property
    def name(self) -> str:
        """What is made, in messages."""
        ...

    def evaluator(self) -> NetworkScorer:
        """A new evaluator."""
        ...

    def refusal(self, error: Exception) -> InvalidValue:
        """What it means that pickling the setup raised."""
        ...


class WorkerPlan(Protocol):
    """Workers that a search is to have, wherever they run."""

    def open(self, setup: WorkerSetup, networks: int, /) -> Evaluations:
        """What scores ``networks`` networks of a study; workers start when it is entered.

        Raises:
            HwbenchError: There can be no such workers; says why.
        """
        ...


class InProcess:
    """Scores one network at a time in this very process: what an evaluator raises is told in one line with its name.

    What the judge raises passes as it is, whatever an evaluator makes of it: the study is not the evaluator's.
    """

    def __init__(self, setup: EvaluatorSetup) -> None:
        self._setup = setup
        self._assigned: Assignment | None = None
        self.judge: Judge | None = None
        self._of_judge: Exception | None = None

    @cached_property
    def _evaluator(self) -> Evaluator:
        with blaming(self._setup.name):
            return self._setup.evaluator()

    @property
    def free(self) -> int:
        return int(self._assigned is None)

    def assign(self, assignment: Assignment, /) -> None:
        self._assigned = assignment

    def outcomes(self) -> Iterator[Outcome]:
        assignment, self._assigned = self._assigned, None
        if assignment is None:
            return
        self._of_judge = None
        try:
            outcome = _outcome(self._evaluator, assignment, self._reported)
        except Exception:
            if (of_judge := self._of_judge) is not None:  # an evaluator may raise another error in its place
                raise of_judge from of_judge.__cause__
            with blaming(self._setup.name, on=assignment.network.name):
                raise
        yield outcome

    def _reported(self, report: Reported) -> bool:
        assert self.judge is not None
        try:
            return self.judge(report.trial, report.epoch, report.score)
        except Exception as error:
            self._of_judge = error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass


def answer(
    evaluator: NetworkScorer, assignment: Assignment, reported: Callable[[Reported], bool] | None = None
) -> Scored | GaveUp | Failed:
    """What a worker answers to an assignment; it raises nothing. ``reported`` says whether to give the network up."""
    try:
        _load_models(assignment.models)
        return _outcome(evaluator, assignment, reported)
    except (Exception, SystemExit) as error:
        return Failed.of(error, f"evaluator {evaluator.name!r} failed on {assignment.network.name}")


class _GiveUp(Exception):
    """Raised through an evaluator."""


def _outcome(
    evaluator: NetworkScorer, assignment: Assignment, reported: Callable[[Reported], bool] | None
) -> Scored | GaveUp:
    started, last = time.monotonic(), 0

    def report(epoch: int, score: float) -> None:
        nonlocal last
        last = epoch
        if reported is not None and reported(Reported(assignment.trial, epoch, score)):
            raise _GiveUp

    with evaluators.blaming(type(evaluator), on=assignment.network.name):
        try:
            if assignment.reports and isinstance(evaluator, ReportingEvaluator):
                score = float(evaluator.score_reporting(assignment.network, report))
            else:
                score = float(evaluator.score(assignment.network))
        except _GiveUp:
            return GaveUp(assignment.trial, last, time.monotonic() - started)
    return Scored(assignment.trial, score, time.monotonic() - started)


def _load_models(named: Iterable[tuple[str, int | None]]) -> None:
    """Loads models that the user named to the process of the search."""
    for text, num_classes in named:
        from hwbench.models import by_hand

        by_hand.load(ModelName.parse(text), num_classes)
