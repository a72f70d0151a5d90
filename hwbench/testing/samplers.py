"""The suite that every sampler passes: a test class with a fixture ``base`` inherits ``SamplerConformance``.

``base`` is what ``@samplers.register(NAME)`` was put on: it makes an Optuna sampler from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from hwbench.latency import AdditivePredictor
from hwbench.spaces import read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.specs import Architecture, Precision
from hwbench.studies.journal import finished_trials, open_study
from hwbench.studies.latencies import space_latencies
from hwbench.studies.sampler import Base, FeasibleSampler
from hwbench.studies.settings import Settings
from hwbench.testing.tables import CLASSES, installed_target, space_table
from hwbench.workspace import shipped

TRIALS, STARTUP = 24, 6
Score = Callable[[Architecture], float]


def _length(architecture: Architecture) -> float:
    """A score that knows no budget."""
    return float(len(architecture.key))


@pytest.fixture(scope="module")
def tiny_feasible() -> FeasibleSet:
    """About half of ``x3d-tiny`` by a known law."""
    space = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
    predictor = AdditivePredictor.fit(space_table(space, Precision.INT8), space=space.name)
    return FeasibleSet(space_latencies(space, predictor, Precision.INT8, CLASSES), 8e-3)


class SamplerConformance:
    """Inherit, and give a fixture ``base``; ``tiny_feasible`` is to be imported beside the class."""

    @pytest.fixture(autouse=True)
    def quiet(self) -> Iterator[None]:
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        yield
        optuna.logging.set_verbosity(before)

    def test_every_proposal_is_within_the_budget_and_new(self, base: Base, tiny_feasible: FeasibleSet) -> None:
        found = proposals(tiny_feasible, base)
        assert all(architecture in tiny_feasible for architecture in found)
        assert len(set(found)) == TRIALS

    def test_the_seed_decides(self, base: Base, tiny_feasible: FeasibleSet) -> None:
        first = proposals(tiny_feasible, base, seed=1)
        assert proposals(tiny_feasible, base, seed=1) == first
        assert proposals(tiny_feasible, base, seed=2) != first

    def test_an_interrupted_study_goes_on_as_it_would_have(self, base: Base, tiny_feasible: FeasibleSet) -> None:
        assert proposals(tiny_feasible, base, pieces=(9, TRIALS - 9)) == proposals(tiny_feasible, base)

    def test_a_network_during_which_a_search_was_killed_changes_nothing(
        self, base: Base, tiny_feasible: FeasibleSet, tmp_path: Path
    ) -> None:
        assert killed_proposals(tiny_feasible, base, tmp_path / "study") == proposals(tiny_feasible, base)


def proposals(
    feasible: FeasibleSet,
    base: Base,
    *,
    seed: int = 0,
    pieces: tuple[int, ...] = (TRIALS,),
    score: Score = _length,
) -> list[Architecture]:
    """What a sampler proposes in a study; a new sampler goes on with it for each of the ``pieces``."""
    found: list[Architecture] = []

    def objective(trial: optuna.Trial) -> float:
        architecture = feasible.space.sample(trial)
        found.append(architecture)
        trial.set_user_attr("architecture", architecture.key)
        return score(architecture)

    study = optuna.create_study(direction="maximize")
    for trials in pieces:
        study.sampler = FeasibleSampler(feasible, base, seed=seed, startup=STARTUP)
        study.optimize(objective, n_trials=trials)
    return found


def killed_proposals(
    feasible: FeasibleSet, base: Base, folder: Path, *, kills: tuple[int, ...] = (2, 9)
) -> list[Architecture]:
    """What a sampler proposes in a search that is killed while a network is scored, behind so many others."""
    space, found = feasible.space, list[Architecture]()
    settings = Settings(space.name, "", installed_target().key, "int8", 1e3 * feasible.budget_s, CLASSES)
    for trials in (*kills, TRIALS):
        sampler = FeasibleSampler(feasible, base, seed=0, startup=STARTUP)
        with open_study(folder, settings, sampler, len(space.choices)) as study:
            while len(finished_trials(study)) < trials:
                trial = study.ask()
                found.append(space.sample(trial))
                study.tell(trial, _length(found[-1]))
            if trials < TRIALS:
                space.sample(study.ask())
    return found
