"""The suite that everything passes that scores networks: a test class with a fixture ``plan`` inherits it.

``plan`` is a ``WorkerPlan`` of two workers. The trainers below stand for what an evaluator may do to its process; they
go to workers by pickle.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from hwbench.errors import CheckFailed, HwbenchError, InvalidFile
from hwbench.spaces import read_space
from hwbench.specs import Network
from hwbench.studies.evaluations import (
    Assignment,
    Died,
    Evaluations,
    EvaluatorSetup,
    Outcome,
    Scored,
    WorkerPlan,
    WorkerSetup,
)
from hwbench.studies.evaluators import Context, Trainer
from hwbench.studies.evaluators.short_train import ShortTrain
from hwbench.studies.paired import VideoResults
from hwbench.studies.race import FinalistRun, FinalistTrainer, Race
from hwbench.studies.race_workers import FinalistSetup, RaceWorkers
from hwbench.testing.evaluators import members
from hwbench.workspace import shipped


@dataclass(frozen=True)
class Sleep:
    """Scores a network with the number of its blocks, after a while.

    Args:
        seconds: How long it takes.
        folder: Gets an empty file for each process that scored, named by its id; None: no files.
    """

    seconds: float = 0.0
    folder: Path | None = None

    def __call__(self, network: Network, seed: int) -> float:
        if self.folder is not None:
            (self.folder / str(os.getpid())).touch()
        time.sleep(self.seconds)
        return float(len(network.blocks))


@dataclass(frozen=True)
class Die:
    """Ends its process by SIGKILL while it scores certain networks.

    Args:
        folder: Gets a file for each death, so that a network can be survived later.
        times: Deaths of each such network; None: every time.
        deadly: What the names of such networks contain.
    """

    folder: Path
    times: int | None
    deadly: str = ""

    def __call__(self, network: Network, seed: int) -> float:
        name = hashlib.sha256(network.name.encode()).hexdigest()
        deaths = len(list(self.folder.glob(f"{name}.*")))
        if self.deadly in network.name and (self.times is None or deaths < self.times):
            (self.folder / f"{name}.{deaths}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return float(len(network.blocks))


@dataclass(frozen=True)
class DieLeavingChild:
    """Ends its process by SIGKILL while it scores the first network, and leaves a process that it forked.

    Args:
        folder: Gets an empty file that is named by the id of the child, and ``outlived`` when the child ends by itself.
        seconds: After which the child ends.
    """

    folder: Path
    seconds: float = 60.0

    def __call__(self, network: Network, seed: int) -> float:
        if not any(self.folder.iterdir()):
            child = os.fork()
            if not child:
                time.sleep(self.seconds)
                (self.folder / "outlived").touch()
                os._exit(0)
            (self.folder / str(child)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return float(len(network.blocks))


@dataclass(frozen=True)
class Held:
    """Holds what no process can send to another one."""

    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, network: Network, seed: int) -> float:
        return 0.0


@dataclass(frozen=True)
class FileFinalists:
    """Trains a finalist of a race by writing the id of its process into a file.

    Args:
        folder: Gets the files.
        deadly: What the names of networks contain that end their process by SIGKILL.
        diverging: What the names of networks contain that cannot be trained.
    """

    folder: Path
    deadly: str = ""
    diverging: str = ""

    @property
    def description(self) -> Mapping[str, str | int]:
        """Of no real training."""
        return {"data": "synthetic", "score": "fp32", "epochs": 1}

    def file(self, architecture: str, number: int) -> Path:
        """Where the training of a round leaves its mark."""
        return self.folder / f"{hashlib.sha256(architecture.encode()).hexdigest()}-{number}"

    def is_trained(self, architecture: str, number: int, /) -> bool:
        """Whether its file is there."""
        return self.file(architecture, number).is_file()

    def __call__(self, architecture: str, number: int, /) -> FinalistRun:
        """Trains a network in a round, once.

        Raises:
            CheckFailed: It diverges.
        """
        if not self.is_trained(architecture, number):
            if self.deadly and self.deadly in architecture:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.diverging and self.diverging in architecture:
                raise CheckFailed("it diverges")
            self.file(architecture, number).write_text(str(os.getpid()))
        return FinalistRun(VideoResults(np.ones(4, dtype=bool), np.zeros(4)), 1.0)


@dataclass(frozen=True)
class Elsewhere:
    """Workers on machines that do not have the folder of the study."""

    plan: WorkerPlan

    def open(self, setup: WorkerSetup, networks: int, /) -> Evaluations:
        """Workers that are told of a file that is not there."""
        assert isinstance(setup, FinalistSetup)
        return self.plan.open(replace(setup, mark=setup.mark.with_name("is-not-there")), networks)


@dataclass(frozen=True)
class Raise:
    """Raises instead of scoring."""

    error: Exception | SystemExit

    def __call__(self, network: Network, seed: int) -> float:
        raise self.error


class Broken(ShortTrain):
    """Cannot be made, for a reason that is not hwbench's."""

    name = "broken"

    def __init__(self, context: Context) -> None:
        raise ZeroDivisionError("by nothing")


def setup(trainer: Trainer | None) -> EvaluatorSetup:
    """An evaluator whose score is what a trainer returns; it cannot be made without one."""
    return EvaluatorSetup(ShortTrain, Context(0, no_reference, trainer))


def no_reference(count: int) -> Sequence[Network]:
    """No networks to compare with; a function of a module, which pickles."""
    return ()


def alive(process: int) -> bool:
    """Whether a process runs, zombies not counted."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(processes: Sequence[int], within_s: float = 10.0) -> bool:
    """Whether all of these processes end within a time."""
    end = time.monotonic() + within_s
    while any(map(alive, processes)):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class EvaluationsConformance:
    """Inherit, and give a fixture ``plan``."""

    @pytest.fixture
    def networks(self) -> Sequence[Network]:
        return members(read_space(shipped() / "search_spaces" / "x3d-tiny.toml"), 6)

    def test_every_network_gets_its_score(self, plan: WorkerPlan, networks: Sequence[Network]) -> None:
        with plan.open(setup(Sleep()), len(networks)) as evaluations:
            outcomes = scored(evaluations, networks)
        assert {o.trial: o.score for o in outcomes if isinstance(o, Scored)} == {
            trial: float(len(network.blocks)) for trial, network in enumerate(networks)
        }

    def test_there_are_no_more_workers_than_networks(self, plan: WorkerPlan, networks: Sequence[Network]) -> None:
        with plan.open(setup(Sleep()), 1) as evaluations:
            while not evaluations.free:
                assert list(evaluations.outcomes()) == []
            assert evaluations.free == 1
            evaluations.assign(Assignment.of(7, networks[0]))
            assert evaluations.free == 0

    def test_a_worker_that_dies_costs_one_score_and_the_next_one_goes_on(
        self, plan: WorkerPlan, networks: Sequence[Network], tmp_path: Path
    ) -> None:
        deadly = networks[1].name
        with plan.open(setup(Die(tmp_path, 1, deadly)), len(networks)) as evaluations:
            outcomes = scored(evaluations, networks)
            assert [o.trial for o in outcomes if isinstance(o, Died)] == [1]
            (again,) = scored(evaluations, networks[1:2])
        assert isinstance(again, Scored)
        assert again.score == len(networks[1].blocks)

    @pytest.mark.parametrize(
        "error", [InvalidFile("clips: no video"), ZeroDivisionError("by nothing"), SystemExit(7)], ids=repr
    )
    def test_what_an_evaluator_raises_ends_the_search(
        self, plan: WorkerPlan, networks: Sequence[Network], error: Exception | SystemExit
    ) -> None:
        kind = type(error) if isinstance(error, HwbenchError) else HwbenchError
        with pytest.raises(kind, match=str(error)), plan.open(setup(Raise(error)), 2) as evaluations:
            scored(evaluations, networks[:2])

    def test_an_evaluator_that_cannot_be_made_ends_the_search(
        self, plan: WorkerPlan, networks: Sequence[Network]
    ) -> None:
        with pytest.raises(HwbenchError, match="needs data to train on"), plan.open(setup(None), 2) as evaluations:
            scored(evaluations, networks[:2])

    def test_an_evaluator_that_raises_where_it_is_made_is_named(
        self, plan: WorkerPlan, networks: Sequence[Network]
    ) -> None:
        broken = EvaluatorSetup(Broken, Context(0, no_reference, Sleep()))
        reason = "evaluator 'broken' cannot be made in a worker: ZeroDivisionError: by nothing"
        with pytest.raises(HwbenchError, match=reason), plan.open(broken, 2) as evaluations:
            scored(evaluations, networks[:2])

    def test_an_evaluator_that_cannot_be_sent_is_refused(self, plan: WorkerPlan, networks: Sequence[Network]) -> None:
        with (
            pytest.raises(HwbenchError, match="'short-train' cannot be sent to workers"),
            plan.open(setup(Held()), 2) as evaluations,
        ):
            scored(evaluations, networks[:1])

    def test_finalists_are_trained_by_workers(
        self, plan: WorkerPlan, networks: Sequence[Network], tmp_path: Path
    ) -> None:
        train, keys = FileFinalists(tmp_path / "done"), [one.name for one in networks[:3]]
        train.folder.mkdir()
        workers, told = finalists(plan, train, networks, tmp_path / "study")
        assert sorted(workers(keys, 1)) == sorted((key, "") for key in keys)
        processes = {int(train.file(key, 1).read_text()) for key in keys}
        assert os.getpid() not in processes
        assert gone(list(processes))
        assert sorted(workers(keys, 1)) == sorted((key, "") for key in keys)  # nothing is left to train
        assert {int(train.file(key, 1).read_text()) for key in keys} == processes
        assert (told, list(workers.folder.iterdir())) == ([], [])

    def test_a_finalist_that_kills_its_workers_is_out_and_one_that_diverges_is_left_to_the_search(
        self, plan: WorkerPlan, networks: Sequence[Network], tmp_path: Path
    ) -> None:
        deadly, diverging, sound = (one.name for one in networks[:3])
        train = FileFinalists(tmp_path, deadly, diverging)
        workers, _ = finalists(plan, train, networks, tmp_path / "study")
        reasons = dict(workers([deadly, diverging, sound], 1))
        assert "ended" in reasons[deadly]
        assert reasons[diverging] == reasons[sound] == ""
        assert [train.is_trained(key, 1) for key in (deadly, diverging, sound)] == [False, False, True]
        race = Race(3, train, ahead=workers).run([deadly, diverging, sound])
        assert (race.winner, len(race.rounds)) == (sound, 1)
        notes = {one.architecture: one.note for one in race.rounds[0].standings}
        assert "ended" in notes[deadly]
        assert notes[diverging] == "it diverges"

    def test_workers_that_do_not_see_the_study_train_no_finalists(
        self, plan: WorkerPlan, networks: Sequence[Network], tmp_path: Path
    ) -> None:
        train, keys = FileFinalists(tmp_path), [one.name for one in networks[:2]]
        workers, told = finalists(Elsewhere(plan), train, networks, tmp_path / "study")
        assert sorted(workers(keys, 1)) == sorted((key, "") for key in keys)
        assert not any(train.is_trained(key, 1) for key in keys)
        assert told == [f"finalists are trained here: workers do not see {tmp_path / 'study'}"]

    def test_no_worker_outlives_the_context(
        self, plan: WorkerPlan, networks: Sequence[Network], tmp_path: Path
    ) -> None:
        with contextlib.suppress(KeyboardInterrupt), plan.open(setup(Sleep(60.0, tmp_path)), 2) as evaluations:
            while not evaluations.free:
                list(evaluations.outcomes())
            evaluations.assign(Assignment.of(0, networks[0]))
            while not list(tmp_path.iterdir()):
                time.sleep(0.01)
            raise KeyboardInterrupt
        assert gone([int(path.name) for path in tmp_path.iterdir()])


def finalists(
    plan: WorkerPlan, train: FinalistTrainer, networks: Sequence[Network], folder: Path
) -> tuple[RaceWorkers, list[str]]:
    """Workers of a race among networks, and what they tell."""
    told: list[str] = []
    by_name = {network.name: network for network in networks}
    return RaceWorkers(plan, train, by_name.__getitem__, folder, told.append), told


def scored(evaluations: Evaluations, networks: Sequence[Network]) -> list[Outcome]:
    """What comes of networks, the trial of each being its place."""
    outcomes: list[Outcome] = []
    waiting = [Assignment.of(trial, network) for trial, network in enumerate(networks)]
    while len(outcomes) < len(networks):
        while waiting and evaluations.free:
            evaluations.assign(waiting.pop(0))
        outcomes += evaluations.outcomes()
    return outcomes
