"""What is known of the space of the quickstart before anyone searches it: trained networks. See README.md.

python experiments/030-tiny-truth/run.py draw --networks 96   # networks.json of the folder that is shipped
python experiments/030-tiny-truth/run.py train                # rows/: each network, one thread; as many processes as
                                                              # there are cores share the work; or --device cuda
python experiments/030-tiny-truth/run.py winner --budget 1.365ms   # the network that is chosen by them within a budget,
                                                              # trained with other seeds; where there is a table of it
python experiments/030-tiny-truth/run.py summary              # results.json, in seconds
"""

import argparse
import importlib.util
import json
import math
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from hwbench.api.prediction import installed_target, table_predictor
from hwbench.api.quickstart import DATA, EPOCHS, SPACE
from hwbench.data import Reading
from hwbench.spaces import load_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, BlockSpec, Precision, TensorSpec
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.fitted_scores import FittedScores
from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.latencies import space_latencies
from hwbench.studies.ranking import rank_interval
from hwbench.training import Recipe, Resources, Scores, open_data, train
from hwbench.units import parse_duration
from hwbench.workspace import TRAINED, Workspace, shipped

HERE = Path(__file__).resolve().parent
FOLDER = shipped() / TRAINED / SPACE
WINNER, RESULTS = HERE / "winner.json", HERE / "results.json"
CLASSES = 8
# Networks are drawn up to so many times the multiply-adds of the smallest: what fits into the quickstart's budget has
# at most about so many, and a space of which nobody knows a latency is the same everywhere.
LARGEST = 1.9
WINNER_SEEDS = (1, 2, 3, 4, 5)
# Networks that the winner is compared with: the first that were drawn of those within the budget.
RANDOM = 15
# What is averaged: the last evaluations of a run.
LAST = 3


def neighbour(name: str) -> ModuleType:
    """The ``run.py`` of another experiment."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), HERE.parent / name / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


truth = neighbour("018-ground-truth")


def draw(count: int) -> None:
    """Uniform draws of the small part of the space; those that were drawn before stay."""
    path, space = FOLDER / "networks.json", load_space(Workspace.find(), SPACE)
    sums = SpaceSums.of(space, macs, num_classes=CLASSES)
    largest = LARGEST * sums.smallest()[0]
    known = json.loads(path.read_text())["networks"] if path.is_file() else []
    feasible, rng = FeasibleSet(sums, largest), np.random.default_rng([30, len(known)])
    found = {one["architecture"]: None for one in known}
    while len(found) < count:
        found.setdefault(feasible.draw(rng).key)
    networks = [{"name": f"{number:03d}", "band": "small", "architecture": key} for number, key in enumerate(found)]
    about = {"data": DATA, "classes": CLASSES, "recipe": asdict(Recipe(epochs=EPOCHS)), "drawn_from": feasible.count}
    about |= {"largest_gmacs": round(1e-9 * largest, 4)}
    path.parent.mkdir(parents=True, exist_ok=True)
    truth.write(path, {**about, "networks": networks})
    print(f"{len(networks)} of {feasible.count}")


def macs(block: BlockSpec, x: TensorSpec) -> float:
    return float(sum(operation.macs for operation in block.operations(x)))


def train_all(device: str) -> None:
    """Trains what has no row and is not being trained by another process."""
    for one in json.loads((FOLDER / "networks.json").read_text())["networks"]:
        row, folder = FOLDER / "rows" / f"{one['name']}-seed0.json", runs() / one["name"]
        with truth.claimed(folder) as ours:
            if ours and not row.exists():
                result = trained(one, 0, folder, device)
                row.parent.mkdir(exist_ok=True)
                row.write_text(json.dumps(result) + "\n")
                print(one["name"], {key: result[key] for key in ("top1", "loss", "cpu_s")}, flush=True)


def runs() -> Path:
    return Workspace.find().root / "runs" / "030"


def trained(one: dict[str, Any], seed: int, folder: Path, device: str) -> dict[str, Any]:
    """The row of a training as the quickstart trains; its accuracy is the mean of the last evaluations."""
    network = load_space(Workspace.find(), SPACE).network(Architecture.parse(one["architecture"]), CLASSES)
    recipe, cpu = Recipe(epochs=EPOCHS, seed=seed), time.process_time()
    size = (network.input.t, network.input.h, network.input.w)
    data = open_data(Workspace.find(), DATA, size, recipe, reading=Reading(decoded_cache_bytes=1 << 30))
    seen = dict[int, dict[str, Any]]()

    def keep(epoch: int, scores: Scores) -> None:
        seen[epoch] = truth.facts(scores)

    folder.mkdir(parents=True, exist_ok=True)
    train(recipe, network, data, folder, resources=Resources(device, 1, 0), validated=keep)
    evaluations = [seen[epoch] for epoch in sorted(seen)]
    judged = evaluations[-LAST:]
    return {
        "name": one["name"],
        "seed": seed,
        "cpu_s": round(time.process_time() - cpu),
        **({"gpu": torch.cuda.get_device_name()} if device == "cuda" else {}),
        "top1": round(statistics.fmean(row["top1"] for row in judged), 5),
        "loss": round(statistics.fmean(row["loss"] for row in judged), 5),
        "hits": "".join(str(sum(digits)) for digits in zip(*(map(int, row["hits"]) for row in judged))),
        "validation": [{"top1": row["top1"], "loss": row["loss"]} for row in evaluations],
        "training_loss": list(truth.training_losses(folder / "metrics.jsonl", recipe.epochs)),
    }


def winner(budget: str) -> None:
    """What the trained networks say is the best within a budget, trained with other seeds; who of them is within it."""
    workspace, known = Workspace.find(), GroundTruth.read(FOLDER)
    space, budget_s = load_space(workspace, SPACE), parse_duration(budget, name="--budget")
    target = installed_target("local", "executorch", 1)
    predictor, _ = table_predictor(workspace, target, Precision.INT8, SPACE)
    sums = space_latencies(space, predictor, Precision.INT8, CLASSES)
    feasible, model = FeasibleSet(sums, budget_s), FittedScores(sums, observed(known))
    best = feasible.best(model.expected()).architecture
    result = {
        "budget_ms": 1e3 * budget_s,
        "feasible": feasible.count,
        "within": [one.name for one in known.networks if Architecture.parse(one.architecture) in feasible],
        "architecture": best.key,
        "predicted_top1": round(model.predict(best).mean, 4),
        "trainings": [],
    }
    for seed in WINNER_SEEDS:
        one = {"name": "winner", "architecture": best.key}
        result["trainings"].append(trained(one, seed, runs() / f"winner-{seed}", "cpu"))
        truth.write(WINNER, result)
        print(seed, result["trainings"][-1]["top1"], flush=True)


def observed(known: GroundTruth) -> tuple[ScoreObservation, ...]:
    return tuple(ScoreObservation(Architecture.parse(one.architecture), one.top1) for one in known.networks)


def summary() -> None:
    """How well networks are ranked that were left out, and where the winner is among random ones."""
    known, space = GroundTruth.read(FOLDER), load_space(Workspace.find(), SPACE)
    sums = SpaceSums.of(space, macs, num_classes=CLASSES)
    model = FittedScores(sums, observed(known), leave_out=True)
    guessed = [model.predict(Architecture.parse(one.architecture)).mean for one in known.networks]
    top1 = {one.name: one.top1 for one in known.networks}
    tau = rank_interval(guessed, list(top1.values()), [0] * len(guessed))
    result = {"networks": len(top1), "tau": [round(value, 3) for value in (tau.value, tau.low, tau.high)]}
    if WINNER.is_file():
        found = json.loads(WINNER.read_text())
        random = [top1[name] for name in found["within"]][:RANDOM]
        seeds = [row["top1"] for row in found["trainings"]]
        places = [1 + sum(one > of_winner for one in random) for of_winner in seeds]
        result |= {
            "budget_ms": found["budget_ms"],
            "random": {"networks": len(random), "upper_quarter": round(float(np.quantile(random, 0.75)), 4)},
            "winner": {"predicted": found["predicted_top1"], "top1": seeds, "places": places},
            "in_upper_quarter": sum(place <= math.ceil((len(random) + 1) / 4) for place in places),
        }
        result["random"] |= {"mean": round(statistics.fmean(random), 4), "best": max(random)}
    truth.write(RESULTS, result)
    print(json.dumps(result, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw").add_argument("--networks", type=int, required=True)
    commands.add_parser("train").add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    commands.add_parser("winner").add_argument("--budget", required=True)
    commands.add_parser("summary")
    given = parser.parse_args()
    torch.set_num_threads(1)
    {
        "draw": lambda: draw(given.networks),
        "train": lambda: train_all(given.device),
        "winner": lambda: winner(given.budget),
        "summary": summary,
    }[given.command]()


if __name__ == "__main__":
    main()
