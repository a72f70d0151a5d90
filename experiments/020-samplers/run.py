"""How many trials samplers need to come near a known optimum within a budget. See README.md.

python experiments/020-samplers/run.py run --landscape pairs --sampler thompson --seeds 20   # appends to rows/
python experiments/020-samplers/run.py summary                                                # results.json from rows/
"""

import argparse
import json
import statistics
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import optuna

from hwbench.spaces import read_space
from hwbench.spaces.costs import cost_sums
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.joint import JointSet
from hwbench.spaces.sums import CellSums, SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.posterior import Posterior
from hwbench.studies.posterior_layout import PAIRS, Effects, Layout
from hwbench.studies.sampler import FeasibleSampler, samplers
from hwbench.workspace import shipped

HERE = Path(__file__).resolve().parent
ROWS = HERE / "rows"
TRUTH = HERE.parent / "018-ground-truth"
# Of the prior of the model that ``fitted`` is drawn from. That of ``thompson`` is tighter (034).
SPREAD = 1.4
# Trainings of a network of 018 that ``fitted`` follows, of those that were trained often; others count with one. So
# what is trained later changes no landscape.
SEEDS = 5
TRIALS = 400
STARTUP = 12
# What counts as reached: this share of the way from a random network of the set to the best.
REACHED = 0.99
BUDGET = 0.03


def seconds(block, x) -> float:
    """A law of time in the likeness of a phone's: multiplications, and something for each operator."""
    return sum(1e-5 + operation.macs / 2e10 for operation in block.operations(x))


@dataclass(frozen=True)
class Landscape:
    """Scores of all members of a set, with their exact optimum within the budget, and what a trial sees of them."""

    feasible: FeasibleSet | JointSet
    scores: SpaceSums
    noise: float = 0.0

    def value(self, architecture: Architecture) -> float:
        """0 for a random member of the set on average, 1 for the best one."""
        return (self.scores.total(architecture) - self._mean) / (self._best - self._mean)

    def seen(self, architecture: Architecture) -> float:
        """What a trial is told: the value with the noise of one training, which is the same for all samplers."""
        rng = np.random.default_rng(zlib.crc32(architecture.key.encode()))
        return self.value(architecture) + self.noise * rng.normal() / (self._best - self._mean)

    def over(self, architecture: Architecture) -> list[float]:
        """By budget, by how much it is exceeded; 0 or less: by nothing."""
        if isinstance(self.feasible, JointSet):
            return [budget.sums.total(architecture) / budget.limit - 1 for budget in self.feasible.budgets]
        return [self.feasible.sums.total(architecture) / self.feasible.budget_s - 1]

    @cached_property
    def _best(self) -> float:
        return self.feasible.best(self.scores).score

    @cached_property
    def _mean(self) -> float:
        rng = np.random.default_rng(0)
        return statistics.fmean(self.scores.total(self.feasible.draw(rng)) for _ in range(500))


def landscape(kind: str, seed: int) -> Landscape:
    """Effects that are normal and know no order of values; the model of ``thompson`` expects close values to be alike.

    ``additive``: one for each value of each choice. ``pairs``: 40 % of the variance are effects of pairs, half of them
    within a stage. ``rugged``: half of the variance is drawn for each combination of all choices of a stage with the
    width before, which no model of pairs can know. ``fitted``: a draw of what the trainings of 018 leave possible, with
    the noise of a training. ``knapsack``: 30 items, three weights, of each of which half may be packed; the value of an
    item is its mean weight and something (Chu and Beasley, Journal of Heuristics 1998).
    """
    if kind in ("fitted", "knapsack"):
        return fitted(seed) if kind == "fitted" else knapsack(seed)
    rng, layout = np.random.default_rng([seed, 7]), Layout(mobile().sums)
    share = {"additive": (1.0, 0.0), "pairs": (0.6, 0.4), "rugged": (0.5, 0.0)}[kind]
    scales = [len(scale) for scale in layout.scales]
    single = {c: rng.normal(size=scales[c]) * np.sqrt(share[0] / len(layout.singles)) for c in layout.singles}
    pairs = {}
    for sort, part in zip(PAIRS, (0.5, 0.2, 0.3)):
        for one, other in layout.pairs[sort] if share[1] else ():
            deviation = np.sqrt(share[1] * part / len(layout.pairs[sort]))
            pairs[one, other] = deviation * rng.normal(size=(scales[one], scales[other]))
    scores = layout.sums_of(Effects(single, pairs), 0.0)
    if kind == "rugged":
        number = len(scores.axes)
        noise = [rng.normal(size=stage.seconds.shape) * np.sqrt(0.5 / number) for stage in scores.cells[0].stages]
        scores = replace(scores, cells=tuple(_added(cell, noise) for cell in scores.cells))
    return Landscape(mobile(), scores)


@cache
def mobile() -> FeasibleSet:
    """A sixth of ``x3d-mobile``."""
    space = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
    return FeasibleSet(SpaceSums.of(space, seconds, num_classes=400), BUDGET)


@cache
def trained() -> tuple[FeasibleSet, Posterior]:
    """The faster 43 % of ``x3d-mini``, as in 018, and what its trainings say of them."""
    truth, space = GroundTruth.read(TRUTH), read_space(shipped() / "search_spaces" / "x3d-mini.toml")
    sums = SpaceSums.of(space, seconds, num_classes=truth.num_classes)
    rng = np.random.default_rng(0)
    times = [sums.total(space.random(rng)) for _ in range(2000)]
    networks = [one for one in truth.networks if one.architecture.startswith("x3d-mini:")]
    observations = [
        ScoreObservation(Architecture.parse(one.architecture), training.top1)
        for one in networks
        for training in one.trainings[: SEEDS if one in truth.judged else 1]
    ]
    return FeasibleSet(sums, float(np.quantile(times, 0.43))), Posterior.fit(Layout(sums), observations, spread=SPREAD)


def fitted(seed: int) -> Landscape:
    feasible, posterior = trained()
    return Landscape(feasible, posterior.draw(np.random.default_rng([seed, 8])), posterior.noise)


def knapsack(seed: int) -> Landscape:
    rng = np.random.default_rng([seed, 9])
    weights = rng.integers(1, 100, size=(3, 30))
    values = weights.mean(axis=0) + 50 * rng.random(30)
    names = [f"item{number}" for number in range(30)]
    costs = {f"weight{w}": dict(zip(names, ({0: 0, 1: int(c)} for c in row))) for w, row in enumerate(weights)}
    budgets = {f"weight{w}": int(row.sum()) // 2 for w, row in enumerate(weights)}
    worth = cost_sums({name: {0: 0, 1: float(value)} for name, value in zip(names, values)})
    return Landscape(JointSet.of_named_costs(costs, budgets=budgets), worth)


def _added(cell: CellSums, noise: list[np.ndarray]) -> CellSums:
    return replace(cell, stages=tuple(replace(s, seconds=s.seconds + n) for s, n in zip(cell.stages, noise)))


def within(name: str) -> Callable[[Landscape, int], Iterator[float]]:
    """A sampler of hwbench, or an Optuna sampler in its wrapper."""

    def run(on: Landscape, seed: int) -> Iterator[float]:
        base = gp(noisy=on.noise > 0) if name == "gp" else samplers.get(name)
        study = optuna.create_study(
            direction="maximize", sampler=FeasibleSampler(on.feasible, base, seed=seed, startup=STARTUP)
        )
        seen = set()
        while True:
            trial = study.ask()
            space = on.feasible.space
            params = {name: trial.suggest_categorical(name, list(values)) for name, values in space.values.items()}
            architecture = space.of_params(params)
            assert architecture in on.feasible
            assert architecture not in seen
            seen.add(architecture)
            trial.set_user_attr("architecture", architecture.key)
            study.tell(trial, on.seen(architecture))
            yield on.value(architecture)

    return run


def gp(noisy: bool) -> Callable[[int], optuna.samplers.BaseSampler]:
    return lambda seed: optuna.samplers.GPSampler(seed=seed, n_startup_trials=0, deterministic_objective=not noisy)


def constrained(make: Callable[[int], optuna.samplers.BaseSampler]) -> Callable[[Landscape, int], Iterator[float]]:
    """Plain Optuna as its documentation has it: numbers as places on their scale, the budget as a constraint.

    Trials over the budget count, as each of them would have been trained; they are worth nothing.
    """

    def run(on: Landscape, seed: int) -> Iterator[float]:
        space = on.feasible.space
        study = optuna.create_study(direction="maximize", sampler=make(seed))
        while True:
            trial = study.ask()
            texts = [(name, suggest(trial, name, values)) for name, values in space.choices.items()]
            architecture = Architecture(space.name, tuple(texts))
            over = on.over(architecture)
            for number, by in enumerate(over):
                trial.set_constraint(str(number), by)
            study.tell(trial, on.seen(architecture))
            yield on.value(architecture) if max(over) <= 0 else -np.inf

    return run


def suggest(trial: optuna.Trial, name: str, values: tuple[str, ...]) -> str:
    if name.partition(".")[2] in ("kernel", "act", "se"):
        return trial.suggest_categorical(name, values)
    return values[trial.suggest_int(name, 0, len(values) - 1)]


def evolution(on: Landscape, seed: int) -> Iterator[float]:
    """Once-for-All's search (Cai et al., ICLR 2020): networks over the budget are drawn again for nothing.

    Population 50, the best quarter are parents, half of the children by mutation (0.1 of the choices), half by
    crossover of two parents. (Their population of 100 would spend a quarter of the trials on its first generation.)
    """
    rng, space = np.random.default_rng(seed), on.feasible.space
    names, values = list(space.choices), list(space.choices.values())

    def fitting(make: Callable[[], tuple[str, ...]]) -> Architecture:
        while True:
            architecture = Architecture(space.name, tuple(zip(names, make())))
            if architecture in on.feasible:
                return architecture

    def fresh() -> tuple[str, ...]:
        return tuple(scale[rng.integers(len(scale))] for scale in values)

    scored: list[tuple[float, Architecture]] = []
    for _ in range(50):
        drawn = fitting(fresh)
        scored.append((on.seen(drawn), drawn))
        yield on.value(drawn)
    while True:
        parents = [[v for _, v in a.choices] for _, a in sorted(scored, key=lambda s: -s[0])[:12]]

        def mutated(parents: list[list[str]] = parents) -> tuple[str, ...]:
            parent = parents[rng.integers(len(parents))]
            return tuple(s[rng.integers(len(s))] if rng.random() < 0.1 else v for s, v in zip(values, parent))

        def crossed(parents: list[list[str]] = parents) -> tuple[str, ...]:
            one, other = (parents[rng.integers(len(parents))] for _ in range(2))
            return tuple(pair[rng.integers(2)] for pair in zip(one, other))

        children = []
        for child in range(50):
            architecture = fitting(mutated if child % 2 else crossed)
            children.append((on.seen(architecture), architecture))
            yield on.value(architecture)
        scored = sorted([*scored, *children], key=lambda s: -s[0])[:50]


SAMPLERS = {
    **{name: within(name) for name in ("thompson", "tpe", "nsga2", "random", "gp")},
    "optuna-tpe": constrained(lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True)),
    "optuna-nsga2": constrained(lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=20)),
    "evolution": evolution,
}
OUTSIDE = ("optuna-tpe", "optuna-nsga2", "evolution")
KINDS = ("additive", "pairs", "rugged", "fitted", "knapsack")


def run(kind: str, name: str, seeds: int, trials: int) -> None:
    ROWS.mkdir(exist_ok=True)
    path = ROWS / f"{kind}-{name}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    for seed in range(len(rows), seeds):
        on, best, start = landscape(kind, seed), [], time.process_time()
        for value in SAMPLERS[name](on, seed):
            best.append(max(value, best[-1]) if best else value)
            if len(best) == trials or best[-1] >= REACHED:
                break
        reached = len(best) if best[-1] >= REACHED else None
        at = {str(n): round(max(best[min(n, len(best)) - 1], -1.0), 4) for n in (25, 50, 100, 200, 400)}
        rows.append(
            {
                "seed": seed,
                "trials": trials,
                "reached": reached,
                "best_at": at,
                "seconds": round(time.process_time() - start, 1),
            }
        )
        print(kind, name, rows[-1], flush=True)
        path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def summary() -> None:
    results: dict[str, dict[str, object]] = {}
    for path in sorted(ROWS.glob("*.json")):
        kind, _, name = path.stem.partition("-")
        rows = json.loads(path.read_text())
        trials = [row["reached"] or np.inf for row in rows]
        median = statistics.median(trials)
        results.setdefault(kind, {})[name] = {
            "seeds": len(rows),
            "reached": sum(np.isfinite(trials).tolist()),
            "median_trials": median if np.isfinite(median) else f"more than {rows[0]['trials']}",
            "median_best_at": {n: statistics.median(r["best_at"][n] for r in rows) for n in rows[0]["best_at"]},
            "seconds_per_run": statistics.median(row["seconds"] for row in rows),
        }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    for kind, found in results.items():
        for name, row in found.items():
            print(f"{kind:9} {name:13}", row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="command", required=True)
    command = sub.add_parser("run")
    command.add_argument("--landscape", choices=KINDS, required=True)
    command.add_argument("--sampler", choices=SAMPLERS, required=True)
    command.add_argument("--seeds", type=int, default=20)
    command.add_argument("--trials", type=int, default=TRIALS)
    sub.add_parser("summary")
    args = parser.parse_args()
    if args.command == "summary":
        summary()
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")  # Optuna's, of what is experimental
    run(args.landscape, args.sampler, args.seeds, args.trials)


if __name__ == "__main__":
    main()
