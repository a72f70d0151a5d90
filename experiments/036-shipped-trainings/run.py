"""The trainings that come with the space x3d-mini, and what is worth what is learned from them. See README.md.

python experiments/036-shipped-trainings/run.py table      # search_spaces/x3d-mini.trained.csv: rows of 031 and 033
python experiments/036-shipped-trainings/run.py summary    # results.json, in seconds
python experiments/036-shipped-trainings/run.py transfer   # transfer.json, in ten minutes
python experiments/036-shipped-trainings/run.py studies    # studies.json, in an hour
"""

import argparse
import csv
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from optuna.distributions import CategoricalDistribution

from hwbench.api.learning import coming_with, learn_from
from hwbench.api.study_data import Fidelity
from hwbench.spaces import load_space
from hwbench.spaces.protocols import NetworkSums
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.fidelities import FULL, ScoreObservation
from hwbench.studies.fitted_scores import FittedScores
from hwbench.studies.front import FrontSampler
from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.posterior import Posterior
from hwbench.studies.posterior_layout import Layout
from hwbench.studies.ranking import Interval, of_longer, rank_interval
from hwbench.studies.thompson import Thompson
from hwbench.testing.experiments import neighbour
from hwbench.workspace import TRAINED, Workspace, shipped

HERE = Path(__file__).resolve().parent
RESULTS, TRANSFER, STUDIES = (HERE / f"{name}.json" for name in ("results", "transfer", "studies"))
SPACE, CLASSES = "x3d-mini", 48
DATA, OTHER, LENGTH = "synthetic:motion48:small", "elsewhere", Fidelity(12)
# Trainings of its own that a study has, and draws of them.
OWN, DRAWS = (0, 6, 12, 24, 48), 10

# Of the studies: trials, landscapes; and from what they begin, with how many uniform draws.
TRIALS, LANDSCAPES = 24, 30
WAYS = (
    ("nothing", 12),
    ("the table, as of other data", 12),
    ("the table, as of other data", 6),
    ("the table, as of other data", 0),
    ("shuffled, as of other data", 12),
    ("shuffled, as of other data", 6),
    ("shuffled, as of other data", 0),
    ("the opposite, as of other data", 12),
    ("the opposite, as of other data", 6),
    ("the opposite, as of other data", 0),
    ("nothing", 6),
)

# Top-1 of the trainings of each network, by its band and architecture.
Truths = dict[tuple[str, str], list[float]]

recipes, compared = neighbour(HERE.parent / "031-recipes"), neighbour(HERE.parent / "033-equal-ms-muon")
spending = neighbour(HERE.parent / "032-spending")
# The same recipe, data, and length; what is trained twice with one seed is one training.
# Second trainings of later networks are left out: they judge the table.
FOLDERS = (recipes.ROWS, recipes.FOUND, compared.ROWS)


def table() -> None:
    """Writes the trainings of members of the space, of which each is one of a network and a seed."""
    rows: dict[tuple[str, int], float] = {}
    for path in (path for folder in FOLDERS for path in sorted(folder.glob("*.json"))):
        row = json.loads(path.read_text())
        if row["architecture"].startswith(f"{SPACE}:"):
            rows.setdefault((row["architecture"], row["seed"]), row["top1"])
    with (shipped() / "search_spaces" / f"{SPACE}{TRAINED}").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("architecture", "epochs", "seed", "top1", "data"))
        for (architecture, seed), top1 in sorted(rows.items()):
            writer.writerow((architecture, recipes.EPOCHS, seed, top1, DATA))


def summary() -> None:
    workspace = Workspace.find()
    space = load_space(workspace, SPACE)
    learned = learn_from(workspace, space, coming_with(workspace, [SPACE]))
    model = FittedScores(SpaceSums.of(space, lambda block, x: 1.0, num_classes=CLASSES), learned.observations, True)
    results: dict[str, Any] = {
        "networks": len({one.architecture for one in learned.observations}),
        "trainings": len(learned.observations),
    }
    for name, truths in (
        ("Muon", top1s(recipes.HERE, 2)),
        ("SGD", top1s(recipes.truth.HERE, 6)),
        ("Muon, all networks", together(top1s(recipes.HERE, 1), again())),
    ):
        bands = {band: number for number, band in enumerate(sorted({band for band, _ in truths}))}
        said = [model.predict(Architecture.parse(architecture)).mean for _, architecture in truths]
        tau = rank_interval(said, list(map(statistics.fmean, truths.values())), [bands[band] for band, _ in truths])
        twice = {network: found for network, found in truths.items() if len(found) > 1}
        seeds = rank_interval(*zip(*(found[:2] for found in twice.values())), [bands[band] for band, _ in twice])
        times = sum(map(len, truths.values())) / len(truths)
        results[name] = {
            "networks": len(truths),
            "trainings": sum(map(len, truths.values())),
            "tau": rounded(tau),
            "one training says of another": {"networks": len(twice), "tau": rounded(seeds)},
            "so many say of as many others": round(of_longer(seeds.value, times), 3),
        }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def top1s(folder: Path, seeds: int) -> Truths:
    """Top-1 of the networks of a ground truth that have at least so many trainings."""
    networks = [one for one in GroundTruth.read(folder).networks if len(one.trainings) >= seeds]
    return {(one.band, one.architecture): [training.top1 for training in one.trainings] for one in networks}


def again() -> Truths:
    """Top-1 of the second trainings of the later networks of 031."""
    rows = (json.loads(path.read_text()) for path in sorted(recipes.AGAIN.glob("*.json")))
    return {(row["band"], row["architecture"]): [row["top1"]] for row in rows}


def together(one: Truths, other: Truths) -> Truths:
    return {network: [*found, *other.get(network, ())] for network, found in one.items()}


def rounded(tau: Interval) -> list[float]:
    return [round(x, 3) for x in (tau.value, tau.low, tau.high)]


def observations(data: str) -> tuple[ScoreObservation, ...]:
    """The trainings of the table, as a study on this data takes them."""
    workspace = Workspace.find()
    return learn_from(workspace, load_space(workspace, SPACE), coming_with(workspace, [SPACE])).at(LENGTH, data)


def shuffled(told: Sequence[ScoreObservation]) -> tuple[ScoreObservation, ...]:
    """The same scores of other networks: trainings that say nothing."""
    order = np.random.default_rng(36).permutation(len(told))
    return tuple(replace(one, score=told[other].score) for one, other in zip(told, order, strict=True))


def against(told: Sequence[ScoreObservation]) -> tuple[ScoreObservation, ...]:
    """The opposite of what they say."""
    return tuple(replace(one, score=1 - one.score) for one in told)


# What a study may begin from.
BEGINNINGS: Mapping[str, Callable[[], tuple[ScoreObservation, ...]]] = {
    "nothing": tuple,
    "the table, as of other data": lambda: observations(OTHER),
    "the table, as of the same data": lambda: observations(DATA),
    "shuffled, as of other data": lambda: shuffled(observations(OTHER)),
    "the opposite, as of other data": lambda: against(observations(OTHER)),
}


def transfer() -> None:
    """How well a model ranks the 48 networks of 018 (trained with SGD) that begins from the table, with few of its own.

    No training of the 48 is learned from, neither of the table nor of the study.
    """
    truth = GroundTruth.read(recipes.truth.HERE).networks
    judged = [one for one in truth if len(one.trainings) >= 6]
    later = [one for one in truth if len(one.trainings) < 6]
    names, bands = {one.architecture for one in judged}, [int(one.band == "edge") for one in judged]
    true = [statistics.fmean(training.top1 for training in one.trainings) for one in judged]
    sums = SpaceSums.of(load_space(Workspace.find(), SPACE), lambda block, x: 1.0, num_classes=CLASSES)
    begun = {name: [one for one in made() if one.architecture.key not in names] for name, made in BEGINNINGS.items()}
    rng, found = np.random.default_rng(0), dict[str, dict[str, list[float]]]()
    for count in OWN:
        for _ in range(DRAWS if count else 1):
            drawn = [later[place] for place in rng.choice(len(later), count, replace=False)]
            own = [
                ScoreObservation(Architecture.parse(one.architecture), one.trainings[0].top1, FULL, number)
                for number, one in enumerate(drawn)
            ]
            for name, before in begun.items():
                if own or before:
                    model = FittedScores(sums, (*before, *own))
                    said = [model.predict(Architecture.parse(one.architecture)).mean for one in judged]
                    tau = rank_interval(said, true, bands).value
                    found.setdefault(str(count), {}).setdefault(name, []).append(tau)
        means = {name: round(statistics.fmean(taus), 3) for name, taus in found[str(count)].items()}
        print(count, means, flush=True)
        merged = json.loads(TRANSFER.read_text()) if TRANSFER.is_file() else {}
        TRANSFER.write_text(json.dumps(merged | {str(count): means}, indent=1) + "\n")


def studies() -> None:
    """Studies of 24 trainings on landscapes of 032's kind, drawn from trainings with SGD: what beginnings are worth.

    Regret to the best within each of two budgets, after a race of two, in points; the mean over landscapes and studies.
    """
    rows = [
        ScoreObservation(Architecture.parse(one.architecture), training.top1, FULL, number * 10 + seed)
        for number, one in enumerate(GroundTruth.read(recipes.truth.HERE).networks)
        for seed, training in enumerate(one.trainings)
    ]
    model = Posterior.fit(Layout(spending.sets()[-1].sums), rows, spread=spending.SPREAD)
    found: dict[str, list[float]] = json.loads(STUDIES.read_text()) if STUDIES.is_file() else {}
    for number in range(LANDSCAPES):
        true = model.draw(np.random.default_rng([36, number]))
        for name, startup in WAYS:
            way = f"{name}; {startup} draws"
            if len(found.setdefault(way, [])) <= number:
                found[way].append(study(true, BEGINNINGS[name](), startup, model.noise, number))
                STUDIES.write_text(json.dumps(found, indent=1) + "\n")
                print(number, way, [round(float(np.mean(found[way])), 2), found[way][-1]], flush=True)


def study(true: NetworkSums, before: Sequence[ScoreObservation], startup: int, noise: float, seed: int) -> float:
    """The mean regret of a study within its budgets, in points."""
    sets, rng = spending.sets(), np.random.default_rng([seed, 1])
    made = optuna.create_study(
        direction="maximize",
        sampler=FrontSampler(sets, Thompson, seed=seed, startup=startup, known=before),
    )
    choices = {name: CategoricalDistribution(values) for name, values in sets[-1].space.values.items()}
    scores = dict[Architecture, float]()
    for _ in range(TRIALS):
        trial = made.ask(choices)
        network = sets[-1].space.of_params(trial.params)
        scores[network] = true.total(network) + float(rng.normal(0, noise))
        made.tell(trial, scores[network])
    regrets = []
    for one in sets:
        winner = spending.winner(
            scores, one.budget_s, 2, lambda network: true.total(network) + float(rng.normal(0, noise))
        )
        regrets.append(one.best(true).score - true.total(winner))
    return round(100 * statistics.fmean(regrets), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"table": table, "summary": summary, "transfer": transfer, "studies": studies}
    parser.add_argument("command", choices=commands)
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    commands[parser.parse_args().command]()


if __name__ == "__main__":
    main()
