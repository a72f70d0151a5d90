"""Winners of searches with the recipe of today against other networks of the same latency. See README.md.

python experiments/033-equal-ms-muon/run.py train      # rows/: as many processes as there are cores share the work
python experiments/033-equal-ms-muon/run.py summary    # results.json, in seconds
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwbench.testing.experiments import neighbour

HERE = Path(__file__).resolve().parent
ROWS, RESULTS = HERE / "rows", HERE / "results.json"
# What searches said: a study each, named for its role, precision and seed.
SEARCHES = "*-*-?.json"
SEEDS = (0, 1, 2)
# Of those, some chose the winner of a study or the best random network; these chose none.
FRESH = (3, 4, 5)
# Roles of what searches found: of 24 trainings, of an hour or 20 minutes of them, of 24 that begin from the trainings
# that come with the space, of a model alone.
TIMED = ("hour", "minutes")
WINNERS = ("search", *TIMED, "shipped", "fitted")
# Of those, the winners that are trained with seeds that chose none of them.
JUDGED = ("hour", "shipped")
# What a study in int8 costs, in whole trainings for one of its two budgets: 12, and 2 finalists.
STUDY_TRAININGS = 14

before, recipes = neighbour(HERE.parent / "019-equal-ms"), neighbour(HERE.parent / "031-recipes")
truth = recipes.truth


@dataclass(frozen=True)
class Compared:
    """A network that is compared at a budget (``int8-0.16``), and as what."""

    at: str
    role: str
    name: str
    architecture: str

    @property
    def trainings(self) -> list[dict[str, Any]]:
        return self.of_seeds(SEEDS)

    @property
    def fresh(self) -> list[dict[str, Any]]:
        return self.of_seeds(FRESH)

    def of_seeds(self, seeds: Sequence[int]) -> list[dict[str, Any]]:
        """Its rows, by seed; one that is not here may be in 031."""
        paths = [[folder / f"{self.name}-seed{seed}.json" for folder in (ROWS, recipes.ROWS)] for seed in seeds]
        found = [next(filter(Path.is_file, of_seed), None) for of_seed in paths]
        return [json.loads(path.read_text()) for path in found if path is not None]

    @property
    def hits(self) -> Any:
        return hits(self.trainings)

    @property
    def top1(self) -> float:
        return statistics.fmean(one["top1"] for one in self.trainings)


@cache
def compared() -> list[Compared]:
    """Winners of searches; X3D's shapes, the largest entropy and random networks are those of 019."""
    found, names = [], dict[str, str]()
    for path in sorted(HERE.glob(SEARCHES), reverse=True):
        role, precision, _ = path.stem.split("-")
        for point in json.loads(path.read_text())["front"]:
            at, architecture = f"{precision}-{point['budget_ms']:g}", point["best"]["architecture"]
            name = names.setdefault(architecture, f"{path.stem}-{point['budget_ms']:g}ms")
            found.append(Compared(at, role, name, architecture))
    budgets = {one.at for one in found}
    for one in json.loads(before.NETWORKS.read_text())["networks"]:
        if one["role"] in ("x3d", "entropy", "random") and one["at"] in budgets:
            name = names.setdefault(one["architecture"], one["name"])
            found.append(Compared(one["at"], one["role"], name, one["architecture"]))
    return found


def jobs() -> Iterator[Any]:
    """Winners with all seeds; some of them and the best random networks with seeds that chose none of them.

    Then X3D's shapes, entropies, and of random networks those that were chosen.
    """
    winners = [one for one in compared() if one.role in WINNERS]
    judged = [one for one in winners if one.role in JUDGED]
    known = [best_known(at) for at in dict.fromkeys(one.at for one in judged)]
    others = [one for one in compared() if one.role in ("x3d", "entropy")] + [best for _, best in best_random()]
    for wanted, seeds in ((winners, SEEDS), ((*judged, *known), FRESH), (others, SEEDS)):
        for seed in seeds:
            for one in {one.name: one for one in wanted}.values():
                yield from job(one, seed)


def job(one: Compared, seed: int) -> Iterator[Any]:
    """A training, where 031 has none."""
    if not (recipes.ROWS / f"{one.name}-seed{seed}.json").is_file():
        yield recipes.Job({"name": one.name, "architecture": one.architecture}, seed, recipes.EPOCHS, ROWS)


def best_random() -> list[tuple[str, Compared]]:
    """By budget, the best random network by its first training."""
    found = []
    for at in dict.fromkeys(one.at for one in compared()):
        random = [one for one in compared() if (one.at, one.role) == (at, "random") and one.trainings]
        found.append((at, max(random, key=lambda one: one.trainings[0]["top1"])))
    return found


def pool(at: str) -> list[Compared]:
    """The random networks of 018 at a budget that were trained."""
    precision, _, budget = at.partition("-")
    drawn = {one["name"]: one["architecture"] for one in json.loads(truth.NETWORKS.read_text())["networks"]}
    named = [Compared(at, "random", name, drawn[name]) for name in before.fitting(precision, float(budget))]
    return [one for one in named if one.trainings]


def best_known(at: str) -> Compared:
    """The best random network at a budget, of those that were trained twice or more."""
    return max((one for one in pool(at) if len(one.trainings) > 1), key=lambda one: one.top1)


def judged_fresh(at: str, winners: Sequence[Compared], shapes: Mapping[str, Compared]) -> dict[str, Any]:
    """Winners beside the best random network, by seeds that chose none of them; and beside other shapes."""
    ours, other = [one for one in winners if len(one.fresh) == len(FRESH)], best_known(at)
    if not ours or len(other.fresh) < len(FRESH):
        return {}
    winning = [hits(one.fresh) for one in ours]
    return {
        "studies": {one.name: [row["top1"] for row in one.fresh] for one in ours},
        "mean": statistics.fmean(row["top1"] for one in ours for row in one.fresh),
        "best random": {other.name: [row["top1"] for row in other.fresh]},
        "search better by": {
            "best random": before.apart(winning, hits(other.fresh)),
            **{role: before.apart(winning, one.hits) for role, one in shapes.items()},
        },
    }


def summary() -> None:
    """Winners by study, and the mean over studies less each of the others; what guessing would have found."""
    results = {}
    for at, random in best_random():
        here = [one for one in compared() if one.at == at]
        trained = [one for one in here if len(one.trainings) == len(SEEDS)]
        # In fp32 there is one study, of an hour.
        winners = next(filter(None, ([one for one in trained if one.role == role] for role in ("search", "hour"))), [])
        if not winners:
            continue
        guesses = pool(at)
        found = {"best random": random, **{role: best(here, role) for role in ("x3d", "entropy", "fitted")}}
        others = {role: one for role, one in found.items() if one is not None}
        mean = statistics.fmean(one.top1 for one in winners)
        results[at] = {
            "studies": {one.name: [row["top1"] for row in one.trainings] for one in winners},
            "mean": mean,
            **{
                role: {one.name: [row["top1"] for row in one.trainings] for one in here if one.role == role}
                for role in TIMED
            },
            "random, mean": statistics.fmean(one.trainings[0]["top1"] for one in guesses),
            "random": len(guesses),
            **{
                f"best of {k} random": guessed(guesses, k)
                for k in (STUDY_TRAININGS, 3 * STUDY_TRAININGS)
                if k <= len(guesses)
            },
            "best of those with two trainings": best_known(at).top1,
            **{
                f"{role}, by fresh seeds": judged_fresh(
                    at,
                    [one for one in trained if one.role == role],
                    {role: one for role, one in others.items() if role in ("x3d", "entropy")},
                )
                for role in JUDGED
            },
            "others": {
                role: {
                    "name": one.name,
                    "top1": [row["top1"] for row in one.trainings],
                    "search better by": before.apart([winner.hits for winner in winners], one.hits),
                }
                for role, one in others.items()
            },
        }
    truth.write(RESULTS, rounded(results))
    print(json.dumps(rounded(results), indent=1))


def hits(rows: Sequence[dict[str, Any]]) -> Any:
    """Share of the last evaluations in which each video was right: (seeds, videos)."""
    return np.array([[int(digit) for digit in one["hits"]] for one in rows]) / truth.LAST


def best(here: Sequence[Compared], role: str) -> Compared | None:
    """The best of a role by its first training; None: none is trained with all seeds."""
    trained = [one for one in here if one.role == role and len(one.trainings) == len(SEEDS)]
    return max(trained, key=lambda one: one.trainings[0]["top1"], default=None)


def guessed(networks: Sequence[Compared], k: int) -> float:
    """Top-1 of the best of k random networks by one training, in its other ones.

    The mean over all draws whose best network has any.
    """
    first = sorted(networks, key=lambda one: -one.trainings[0]["top1"])
    count = len(first)
    shares = [math.comb(count - 1 - place, k - 1) / math.comb(count, k) for place in range(count)]
    known = [
        (share, statistics.fmean(row["top1"] for row in one.trainings[1:]))
        for share, one in zip(shares, first, strict=True)
        if len(one.trainings) > 1
    ]
    return sum(share * top1 for share, top1 in known) / sum(share for share, _ in known)


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return round(float(value), 4) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train")
    train.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    train.add_argument("--until", type=float, default=float("inf"), help="seconds after which no training is begun")
    commands.add_parser("summary")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "train":
        recipes.train_all(jobs(), given.device, given.until)
    else:
        summary()


if __name__ == "__main__":
    main()
