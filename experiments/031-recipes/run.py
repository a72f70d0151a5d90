"""What optimizers make of short trainings of small networks of all families. See README.md.

python experiments/031-recipes/run.py draw                    # networks.json: those of 018
python experiments/031-recipes/run.py train                   # rows/, families/, short/: in a workspace; as many
                                                              # processes as there are cores share the work
python experiments/031-recipes/run.py summary                 # results.json, in seconds
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau

from hwbench.studies.ground_truth import GroundTruth
from hwbench.testing.experiments import neighbour
from hwbench.training import Recipe
from hwbench.training.recipe_files import RecipeFile

HERE = Path(__file__).resolve().parent
ROWS, FAMILIES, SHORT, FOUND = HERE / "rows", HERE / "families", HERE / "short", HERE / "found"
# Second trainings of the later networks: the scoreboard judges on the others alone.
AGAIN = HERE / "again"
# What searches found (README.md), and the band of networks that their budgets are for.
SEARCHES = {"search": HERE / "search-int8.json", "halving": HERE / "halving-int8.json"}
BAND_OF = {0.16: "middle", 0.22: "edge"}
FOUND_SEEDS = (0, 1, 2)
# Ways to spend trainings on random networks: the epochs after which one in so many goes on.
HALVINGS = {
    "3, 6: a half": ((3, 6), 2),
    "4: a third": ((4,), 3),
    "1, 3, 9: a third": ((1, 3, 9), 3),
}
DRAWS = 600
NETWORKS, RESULTS, OF_014 = HERE / "networks.json", HERE / "results.json", HERE.parent / "014-families"
# The networks of 018 that are compared, and the seeds of all of them; the later networks are trained with the first,
# and with the second so that what is learned from some can be judged on all (036).
JUDGED, SEEDS = 48, (0, 1)
# Further seeds of those that are compared, so that the scoreboard knows their order better.
FURTHER_SEEDS = (2, 3)
EPOCHS, FAMILY_EPOCHS, SHORT_EPOCHS = 12, 4, 6
# Optimizers at their usual rates, without dropout, in trainings as a search makes them, of two networks.
OPTIMIZERS, COMPARED = ("muon", "sgd", "adamw"), ("edge-00", "middle-05")
# Of 014, those of 4 ms: one of each family.
OF_FAMILIES = (
    *("csn-4ms-0", "mvit-4ms-1", "slow-4ms-1", "i3d-4ms-0"),
    *("squeeze-4ms-1", "x3d-4ms-1", "slowfast-4ms-0", "r2plus1d-4ms-0"),
)

truth = neighbour(HERE.parent / "018-ground-truth")


@dataclass(frozen=True)
class Job:
    """A training with the default recipe, or that of another optimizer; its row is as those of 018."""

    network: dict[str, Any]
    seed: int
    epochs: int
    rows: Path
    optimizer: str = "muon"

    @property
    def name(self) -> str:
        told = f"-{self.optimizer}" if self.rows == SHORT else ""
        return f"{self.network['name']}{told}-seed{self.seed}"

    @property
    def recipe(self) -> Recipe:
        return RecipeFile.of({"optimizer": self.optimizer}).recipe({"epochs": self.epochs, "seed": self.seed})

    @property
    def row(self) -> Path:
        return self.rows / f"{self.name}.json"

    @property
    def folder(self) -> Path:
        folder: Path = truth.Workspace.find().root / "runs" / "031" / self.rows.name / self.name
        return folder


def draw() -> None:
    drawn = json.loads(truth.NETWORKS.read_text())
    truth.write(NETWORKS, {**drawn, "networks": [one for one in drawn["networks"] if one["band"] in truth.BANDS]})


def jobs() -> Iterator[Job]:
    """Of all networks two trainings, of those that are compared first; families, winners, other optimizers."""
    drawn = json.loads(NETWORKS.read_text())["networks"]
    networks, later = drawn[:JUDGED], drawn[JUDGED:]
    first, second = ([Job(network, seed, EPOCHS, ROWS) for network in networks] for seed in SEEDS)
    yield from first
    known = {
        network["name"]: network
        for path in sorted((OF_014 / "networks").glob("*.json"))
        for budget in json.loads(path.read_text())["budgets"]
        for network in budget["networks"]
    }
    for name in OF_FAMILIES:
        yield Job({"name": name, "architecture": known[name]["architecture"]}, 0, FAMILY_EPOCHS, FAMILIES)
    yield from second
    for name, architecture in found().items():
        yield from (Job({"name": name, "architecture": architecture}, seed, EPOCHS, FOUND) for seed in FOUND_SEEDS)
    for optimizer in OPTIMIZERS:
        yield from (Job(n, 0, SHORT_EPOCHS, SHORT, optimizer) for n in networks if n["name"] in COMPARED)
    yield from (Job(network, SEEDS[0], EPOCHS, ROWS) for network in later)
    yield from (Job(network, SEEDS[1], EPOCHS, AGAIN) for network in later)
    yield from (Job(network, seed, EPOCHS, ROWS) for seed in FURTHER_SEEDS for network in networks)


def found() -> dict[str, str]:
    """The winner within each budget of each search: name -> architecture."""
    return {
        f"{name}-{one['budget_ms']:g}ms": one["best"]["architecture"]
        for name, path in SEARCHES.items()
        for one in json.loads(path.read_text())["front"]
    }


def train_all(wanted: Iterable[Job], device: str, until: float, last: int = truth.LAST) -> None:
    """Trains what has no row and is not being trained by another process; begins nothing after ``until`` seconds.

    The accuracy of a row is the mean of so many ``last`` evaluations.
    """
    start = time.monotonic()
    for job in wanted:
        if time.monotonic() - start > until:
            return
        with truth.claimed(job.folder) as ours:
            if ours and not job.row.exists():
                row = truth.trained(job, job.recipe, last=last, device=device)
                truth.write(job.row, row)
                print(job.name, {key: row[key] for key in ("top1", "loss", "cpu_s")}, flush=True)


def summary() -> None:
    """What both optimizers give the 48 networks, how seeds agree, and the families after four epochs."""
    before, now = (GroundTruth.read(path.parent) for path in (truth.ROWS, ROWS))
    now = replace(now, networks=now.networks[:JUDGED])
    names = [network.name for network in now.networks]
    results: dict[str, Any] = {
        "networks": {"sgd, dropout 0.2": of_all(before, names), "muon": of_all(now, names)},
        "agree": {
            band: round(tau([top1(before, names, band), top1(now, names, band)]), 3) for band in ("edge", "middle")
        },
        "families": {name: of_family(name) for name in OF_FAMILIES},
        "search": {f"{budget_ms:g} ms": of_searches(budget_ms, now) for budget_ms in BAND_OF},
        "halving": {
            f"{way}; {count} networks": halving(now, rungs, kept, count)
            for way, (rungs, kept) in {"whole trainings": ((), 1), **HALVINGS}.items()
            for count in (12, 24)
        },
        "short": {
            f"{name}, {optimizer}": round(json.loads(path.read_text())["validation"][-1]["top1"], 3)
            for name in COMPARED
            for optimizer in OPTIMIZERS
            if (path := SHORT / f"{name}-{optimizer}-seed0.json").is_file()
        },
    }
    truth.write(RESULTS, results)
    print(json.dumps(results, indent=1))


def top1(ground: GroundTruth, names: Sequence[str], band: str) -> list[float]:
    known = {network.name: network.top1 for network in ground.networks}
    return [known[name] for name in names if name.startswith(band)]


def of_all(ground: GroundTruth, names: Sequence[str]) -> dict[str, Any]:
    """Means over networks and the first seeds; deviations and agreement within bands."""
    networks = [network for network in ground.networks if network.name in names]
    trainings = {n.name: [one for one in n.trainings if one.seed in SEEDS] for n in networks}
    curves = [one.curve for every in trainings.values() for one in every]
    spread: dict[str, list[float]] = {"seeds": [], "networks": [], "tau": []}
    for band in sorted({network.band for network in networks}):
        pairs = [[one.top1 for one in trainings[n.name]] for n in networks if n.band == band]
        noise = statistics.fmean((one - other) ** 2 / 2 for one, other in pairs)
        spread["seeds"].append(noise)
        spread["networks"].append(statistics.variance(statistics.fmean(pair) for pair in pairs) - noise / 2)
        spread["tau"].append(tau(list(zip(*pairs, strict=True))))
    return {
        "top1": round(statistics.fmean(one.top1 for every in trainings.values() for one in every), 4),
        "top1_by_epoch": [round(statistics.fmean(epoch), 3) for epoch in zip(*curves, strict=True)],
        "best": max((round(statistics.fmean(o.top1 for o in every), 4), n) for n, every in trainings.items()),
        "deviation_of_seeds": round(statistics.fmean(spread["seeds"]) ** 0.5, 4),
        "deviation_of_networks": round(max(0.0, statistics.fmean(spread["networks"])) ** 0.5, 4),
        "tau_of_two_seeds": round(statistics.fmean(spread["tau"]), 3),
    }


def of_searches(budget_ms: float, ground: GroundTruth) -> dict[str, Any]:
    """Top-1 of what each search found, beside the networks of its band, the best of which is the best by luck as well.

    ``best, by the other seed``: the mean over both seeds of what the best by one seed has with the other.
    """
    seeds = {
        name: [
            round(json.loads(path.read_text())["top1"], 4) for path in sorted(FOUND.glob(f"{name}-{budget_ms:g}ms-*"))
        ]
        for name in SEARCHES
    }
    pairs = [[n.trainings[seed].top1 for seed in SEEDS] for n in ground.networks if n.band == BAND_OF[budget_ms]]
    other = statistics.fmean(max(pairs, key=lambda pair, k=seed: pair[k])[1 - seed] for seed in SEEDS)
    return {
        "seeds": seeds,
        "found": {name: round(statistics.fmean(top), 4) for name, top in seeds.items() if top},
        "random, mean": round(statistics.fmean(map(statistics.fmean, pairs)), 4),
        "best, by both seeds": round(max(map(statistics.fmean, pairs)), 4),
        "best, by the other seed": round(other, 4),
    }


def halving(ground: GroundTruth, rungs: Sequence[int], kept: int, count: int) -> dict[str, float]:
    """Asynchronous successive halving of random networks by one training each, as Optuna does it; by band.

    What is told is the top-1 of the winner in its other training, and the epochs that were trained; means over draws.
    """
    rng, told = np.random.default_rng(31), dict[str, float]()
    for band in ("edge", "middle"):
        networks = [network for network in ground.networks if network.band == band]
        top, epochs = [], []
        for _ in range(DRAWS):
            seed = int(rng.integers(2))
            best, spent, seen = (-1.0, 0.0), 0, dict[int, list[float]]()
            for number in rng.permutation(len(networks))[:count]:
                this, other = (networks[number].trainings[s] for s in (seed, 1 - seed))
                for rung in rungs:
                    at = seen.setdefault(rung, [])
                    at.append(this.curve[rung - 1])
                    if sorted(at, reverse=True)[max(len(at) // kept - 1, 0)] > at[-1]:
                        spent += rung
                        break
                else:
                    spent += EPOCHS
                    best = max(best, (this.top1, other.top1))
            top.append(best[1])
            epochs.append(spent)
        told[f"{band}, top1"] = round(statistics.fmean(top), 3)
        told[f"{band}, epochs"] = round(statistics.fmean(epochs))
    return told


def tau(both: Sequence[Sequence[float]]) -> float:
    return float(kendalltau(*both).statistic)


def of_family(name: str) -> dict[str, Any]:
    """Top-1 of the last evaluation, and that of 014's trainings with SGD and a dropout of 0.2."""

    def last(path: Path) -> float | None:
        return round(json.loads(path.read_text())["validation"][-1]["top1"], 3) if path.is_file() else None

    rows = OF_014 / "rows"
    return {
        "muon, 4 epochs": last(FAMILIES / f"{name}-seed0.json"),
        "sgd, 4 epochs": last(rows / f"{name}-epochs4-seed0.json"),
        "sgd, 12 epochs": [last(rows / f"{name}-epochs12-seed{seed}.json") for seed in SEEDS],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw")
    train = commands.add_parser("train")
    train.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    train.add_argument("--until", type=float, default=float("inf"), help="seconds after which no training is begun")
    commands.add_parser("summary")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "train":
        train_all(jobs(), given.device, given.until)
    elif given.command == "draw":
        draw()
    else:
        summary()


if __name__ == "__main__":
    main()
