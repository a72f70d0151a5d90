"""The suite that every sampler passes: a test class with a fixture ``base`` inherits ``SamplerConformance``.

``base`` is what ``@samplers.register(NAME)`` was put on: it makes an Optuna sampler from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import optuna
import pytest

from hwbench.latency import AdditivePredictor
from hwbench.spaces import read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.specs import Architecture, Precision
from hwbench.studies.latencies import space_latencies
from hwbench.studies.sampler import Base, FeasibleSampler
from hwbench.testing.tables import CLASSES, space_table
from hwbench.workspace import shipped

TRIALS, STARTUP = 24, 6
Score = Callable[[Architecture], float]


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


def proposals(
    feasible: FeasibleSet,
    base: Base,
    *,
    seed: int = 0,
    pieces: tuple[int, ...] = (TRIALS,),
    score: Score = lambda architecture: float(len(architecture.key)),
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
