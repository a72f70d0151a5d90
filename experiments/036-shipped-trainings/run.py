"""The trainings that come with the space x3d-mini, and what is worth what is learned from them. See README.md.

python experiments/036-shipped-trainings/run.py table      # search_spaces/x3d-mini.trained.csv: rows of 031 and 033
python experiments/036-shipped-trainings/run.py train      # rows/: winners.json, as many processes as there are cores
python experiments/036-shipped-trainings/run.py summary    # results.json, in seconds
"""

import argparse
import csv
import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from hwbench.api.learning import coming_with, learn_from
from hwbench.spaces import load_space
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.fitted_scores import FittedScores
from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.ranking import rank_interval
from hwbench.testing.experiments import neighbour
from hwbench.workspace import TRAINED, Workspace, shipped

HERE = Path(__file__).resolve().parent
ROWS, WINNERS, RESULTS = HERE / "rows", HERE / "winners.json", HERE / "results.json"
SPACE, CLASSES, SEEDS = "x3d-mini", 48, (0, 1, 2)
DATA = "synthetic:motion48:small"

recipes, compared = neighbour(HERE.parent / "031-recipes"), neighbour(HERE.parent / "033-equal-ms-muon")
# The same recipe, data, and length; what is trained twice with one seed is one training.
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


def winners() -> Iterator[Any]:
    """Trainings of what searches found that learned from the table."""
    for name, architecture in json.loads(WINNERS.read_text())["networks"].items():
        yield from (
            recipes.Job({"name": name, "architecture": architecture}, seed, recipes.EPOCHS, ROWS) for seed in SEEDS
        )


def summary() -> None:
    workspace = Workspace.find()
    space = load_space(workspace, SPACE)
    learned = learn_from(workspace, space, coming_with(workspace, [SPACE]))
    model = FittedScores(SpaceSums.of(space, lambda block, x: 1.0, num_classes=CLASSES), learned.observations, True)
    results: dict[str, Any] = {
        "networks": len({one.architecture for one in learned.observations}),
        "trainings": len(learned.observations),
    }
    for name, folder, seeds in (("Muon", recipes.HERE, 2), ("SGD", recipes.truth.HERE, 6)):
        networks = [one for one in GroundTruth.read(folder).networks if len(one.trainings) >= seeds]
        bands = {band: number for number, band in enumerate(sorted({one.band for one in networks}))}
        said = [model.predict(Architecture.parse(one.architecture)).mean for one in networks]
        true = [statistics.fmean(training.top1 for training in one.trainings) for one in networks]
        tau = rank_interval(said, true, [bands[one.band] for one in networks])
        results[name] = {"networks": len(networks), "tau": [round(x, 3) for x in (tau.value, tau.low, tau.high)]}
    results["winners"] = trained()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def trained() -> Mapping[str, list[float]]:
    """Top-1 of each seed, by winner."""
    found: dict[str, list[float]] = {}
    for path in sorted(ROWS.glob("*.json")):
        row = json.loads(path.read_text())
        found.setdefault(row["name"], []).append(round(row["top1"], 4))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("table", "train", "summary"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which no training is begun")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "table":
        table()
    elif given.command == "train":
        recipes.train_all(winners(), given.device, given.until)
    else:
        summary()


if __name__ == "__main__":
    main()
