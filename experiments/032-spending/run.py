"""How a search spends its epochs best: studies on landscapes that are drawn from trainings of 031. See README.md.

python experiments/032-spending/run.py study "24 whole" "24 asha"   # adds rows/: twenty landscapes, ten studies on each
python experiments/032-spending/run.py summary                      # results.json
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState

from hwbench.spaces import read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.fidelities import FULL, ScoreObservation
from hwbench.studies.front import FrontSampler
from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.posterior import Posterior
from hwbench.studies.posterior_layout import Layout
from hwbench.studies.pruning import PREDICTED, Pruning
from hwbench.studies.thompson import Thompson
from hwbench.workspace import shipped

HERE = Path(__file__).resolve().parent
ROWS, RESULTS, TRUTH = HERE / "rows", HERE / "results.json", HERE.parent / "031-recipes"
LANDSCAPES, STUDIES, STARTUP, EPOCHS = 20, 10, 12, 12
# Networks of 031 that landscapes are drawn from; those behind them were trained later.
NETWORKS, SEEDS = 128, (0, 1)
# Of the prior of the model that landscapes are drawn from. That of the sampler is tighter (034).
SPREAD = 1.4
# Shares of the space within the two budgets of a front: those of 0.16 and 0.22 ms in int8 on the machine of 031.
SHARES = (0.21, 0.41)
# Epochs of the twelve at which networks are known, and how what trainings leave open there goes with the end.
KNOWN, GOES_WITH_END = (3, 6, 12), (0.45, 0.85, 1.0)
# Trainings of finalists beside those of the trials.
RACES = (1, 2, 4)


@dataclass(frozen=True)
class Way:
    """How a study spends epochs: so many networks, of so many of the twelve epochs, given up by a pruner or not."""

    trials: int
    pruner: str = "none"
    epochs: int = EPOCHS
    sampler: str = "thompson"


WAYS: Mapping[str, Way] = {
    **{f"{trials} whole": Way(trials) for trials in (12, 16, 18, 24, 30, 40, 72)},
    **{f"{trials} asha": Way(trials, "asha") for trials in (24, 36, 48)},
    **{f"{trials} half": Way(trials, epochs=6) for trials in (24, 48)},
    "24 whole, random": Way(24, sampler="random"),
    "24 asha, random": Way(24, "asha", sampler="random"),
}


def seconds(block, x) -> float:
    """A law of time in the likeness of a phone's: multiplications, and something for each operator (as in 020)."""
    return sum(1e-5 + operation.macs / 2e10 for operation in block.operations(x))


@cache
def sets() -> tuple[FeasibleSet, ...]:
    """The networks within each budget, ascending."""
    space = read_space(shipped() / "search_spaces" / "x3d-mini.toml")
    sums = SpaceSums.of(space, seconds, num_classes=48)
    rng = np.random.default_rng(0)
    times = [sums.total(space.random(rng)) for _ in range(2000)]
    return tuple(FeasibleSet(sums, float(np.quantile(times, share))) for share in SHARES)


@cache
def trainings() -> list[tuple[Architecture, list[tuple[float, ...]]]]:
    """Networks with top-1 after the ``KNOWN`` epochs in each of their trainings, at the end the row's mean.

    Of 031 those are taken that there were when the rows here were made.
    """
    return [
        (
            Architecture.parse(one.architecture),
            [(t.curve[2], t.curve[5], t.top1) for t in one.trainings if t.seed in SEEDS],
        )
        for one in GroundTruth.read(TRUTH).networks[:NETWORKS]
    ]


@cache
def posteriors() -> list[Posterior]:
    """What the trainings say of all networks, at each of the ``KNOWN`` epochs."""
    rows = [(network, training) for network, several in trainings() for training in several]
    layout = Layout(sets()[-1].sums)
    return [
        Posterior.fit(
            layout, [ScoreObservation(one, told[at], FULL, n) for n, (one, told) in enumerate(rows)], spread=SPREAD
        )
        for at in range(len(KNOWN))
    ]


@cache
def noise() -> Any:
    """Covariance between the ``KNOWN`` epochs of what a seed does, by the networks with two trainings."""
    apart = np.array([np.subtract(*several[:2]) / np.sqrt(2) for _, several in trainings() if len(several) > 1])
    return apart.T @ apart / len(apart)


@dataclass(frozen=True)
class Landscape:
    """What networks come to: a draw of what the trainings leave possible, with noise of seeds as it was.

    What is drawn after 3 and 6 epochs goes with the end as much as it does in trainings (README).
    """

    number: int

    @cached_property
    def drawn(self) -> list[Any]:
        rng = np.random.default_rng([32, self.number])
        return [one.draw(rng) for one in posteriors()]

    @cached_property
    def best(self) -> list[float]:
        """The highest top-1 within each budget, exactly."""
        return [one.best(self.drawn[-1]).score for one in sets()]

    def true(self, network: Architecture) -> Any:
        """Top-1 after the ``KNOWN`` epochs, over all seeds."""
        means = np.array([one.total(network) for one in expected()])
        open_ = np.array([one.total(network) for one in self.drawn]) - means
        scale = np.array([one.deviation for one in posteriors()]) / posteriors()[-1].deviation
        share = np.array(GOES_WITH_END)
        return means + share * scale * open_[-1] + np.sqrt(1 - share**2) * open_

    def trained(self, network: Architecture, rng: np.random.Generator) -> Any:
        """Top-1 after each epoch of a training."""
        told = np.clip(self.true(network) + rng.multivariate_normal(np.zeros(len(KNOWN)), noise()), 0, 1)
        return np.interp(np.arange(1, EPOCHS + 1), [0, *KNOWN], [1 / 48, *told])


@cache
def expected() -> list[Any]:
    return [one.expected() for one in posteriors()]


def study(way: Way, landscape: Landscape, seed: int) -> dict[str, Any]:
    """A study: the epochs that it trained, and by how much its winners are below the best within the budgets.

    Races begin with the best networks by their scores, each is trained once more, and the best of these wins.
    """
    rng = np.random.default_rng([landscape.number, seed])
    base = Thompson if way.sampler == "thompson" else None
    space, limits = sets()[-1].space, [one.budget_s for one in sets()]
    sampler = FrontSampler(sets(), base, seed=seed, startup=STARTUP if base else way.trials)
    made = optuna.create_study(direction="maximize", sampler=sampler)
    choices = {name: CategoricalDistribution(values) for name, values in space.values.items()}
    scores, epochs = dict[Architecture, float](), 0
    trials = dict[int, optuna.Trial]()
    judge = None if way.pruner == "none" else Pruning(way.pruner, EPOCHS, tuple(limits[:-1])).judge(made, trials)
    for _ in range(way.trials):
        trial = made.ask(choices)
        trials[trial.number], network = trial, space.of_params(trial.params)
        trial.set_user_attr(PREDICTED, sets()[-1].sums.total(network))
        curve = landscape.trained(network, rng)[: way.epochs]
        trained = next(
            (n + 1 for n, top1 in enumerate(curve) if judge and judge(trial.number, n, float(top1))), len(curve)
        )
        epochs += trained
        if trained < len(curve):
            made.tell(trial, state=TrialState.PRUNED)
        else:
            scores[network] = float(curve[-1])
            made.tell(trial, scores[network])
    regrets = {
        f"race of {finalists}" if finalists > 1 else "score": [
            best - landscape.true(winner(scores, limit, finalists, lambda one: landscape.trained(one, rng)[-1]))[-1]
            for limit, best in zip(limits, landscape.best)
        ]
        for finalists in RACES
    }
    return {"epochs": epochs, "regrets": regrets}


def winner(
    scores: Mapping[Architecture, float], limit: float, finalists: int, again: Callable[[Architecture], float]
) -> Architecture:
    """The best network within a budget by its score, or among several by another training of each."""
    within = [one for one in scores if sets()[-1].sums.total(one) <= limit]
    best = sorted(within, key=lambda one: -scores[one])[:finalists]
    return best[0] if finalists == 1 else max(best, key=again)


def studies(names: Sequence[str]) -> None:
    for name in names:
        found = [
            {"landscape": number, "seed": seed, **study(WAYS[name], Landscape(number), seed)}
            for number in range(LANDSCAPES)
            for seed in range(STUDIES)
        ]
        write(ROWS / f"{name.replace(', ', '-').replace(' ', '-')}.json", {"way": name, "studies": found})
        print(name, *told(found), flush=True)


def told(found: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """Mean epochs, and mean regrets in points, with the standard error over landscapes and studies."""
    yield round(statistics.fmean(one["epochs"] for one in found))
    for key in found[0]["regrets"]:
        points = 100 * np.array([np.mean(one["regrets"][key]) for one in found])
        yield {key: [round(float(points.mean()), 1), round(float(points.std() / np.sqrt(len(points))), 1)]}


def summary() -> None:
    rows = [json.loads(path.read_text()) for path in sorted(ROWS.glob("*.json"))]
    results = {}
    for way in sorted(rows, key=lambda row: list(WAYS).index(row["way"])):
        epochs, *regrets = told(way["studies"])
        results[way["way"]] = {"epochs": epochs, "regret": {k: v for one in regrets for k, v in one.items()}}
    write(RESULTS, results)
    for name, one in results.items():
        print(f"{name:20s} {one['epochs']:4d} epochs  {one['regret']}")


def write(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(rounded(value), indent=1) + "\n")


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(float(value), 4) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("study").add_argument("ways", nargs="+", choices=list(WAYS))
    commands.add_parser("summary")
    given = parser.parse_args()
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    {"study": lambda: studies(given.ways), "summary": summary}[given.command]()


if __name__ == "__main__":
    main()
