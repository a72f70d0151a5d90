"""Is the network that the quickstart chooses a good one? See README.md.

From the folder in which `hwbench quickstart` ran:

python experiments/001-quickstart/choice.py train --study quickstart-0.765ms-0 --part 0/1   # runs/choice/*.json
python experiments/001-quickstart/choice.py collect choice.json     # all of them in one file
python experiments/001-quickstart/choice.py summary choice.json     # the place of what was chosen among the random ones
python experiments/001-quickstart/choice.py learned choice.json ... # what `--evaluator fitted` learns of random ones
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.api.prediction import table_predictor
from hwbench.api.quickstart import DATA, EPOCHS, SPACE
from hwbench.spaces import load_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, Precision
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.fitted_scores import FittedScores
from hwbench.studies.latencies import space_latencies
from hwbench.studies.ranking import rank_interval
from hwbench.testing.tables import installed_target
from hwbench.training import Recipe, Resources, Scores, open_data, train
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
NETWORKS = 30


def drawn(workspace: Workspace, study: str) -> list[Architecture]:
    """Uniform draws from the feasible set of a study of the quickstart."""
    budget_s = float(study.split("-")[1].removesuffix("ms")) / 1e3
    space, target = load_space(workspace, SPACE), installed_target()
    predictor, classes = table_predictor(workspace, target, Precision.INT8, SPACE)
    feasible = FeasibleSet(space_latencies(space, predictor, Precision.INT8, classes), budget_s)
    rng, found = np.random.default_rng(1), dict[Architecture, None]()
    while len(found) < min(NETWORKS, feasible.count):
        found[feasible.draw(rng)] = None
    return list(found)


def train_all(study: str, part: str, seed: int, chosen: list[str]) -> None:
    """Trains the random networks, or those that were chosen, as the quickstart trains its own."""
    workspace = Workspace.find()
    number, count = (int(word) for word in part.split("/"))
    keys = chosen or [one.key for one in drawn(workspace, study)]
    folder = workspace.root / "runs" / "choice"
    for place, key in list(enumerate(keys))[number::count]:
        name = f"{'chosen' if chosen else 'random'}-{place:02d}-seed{seed}"
        row = folder / f"{name}.json"
        if not row.exists():
            result = trained(workspace, key, seed, folder / name)
            row.write_text(json.dumps(result, indent=1) + "\n")
            print(name, result["validation"][-1], f"{result['cpu_s']} s", flush=True)


def trained(workspace: Workspace, key: str, seed: int, folder: Path) -> dict[str, Any]:
    network = load_space(workspace, SPACE).network(Architecture.parse(key), 1)
    recipe = Recipe(epochs=EPOCHS, seed=seed)
    size = (network.input.t, network.input.h, network.input.w)
    data = open_data(workspace, DATA, size, recipe)
    folder.mkdir(parents=True, exist_ok=True)
    validation, cpu = [], time.process_time()

    def keep(epoch: int, scores: Scores) -> None:
        loss = None if scores.by_video is None else negative_log_likelihood(scores)
        validation.append({"epoch": epoch, "top1": round(scores.top1, 4), "loss": loss})

    network = network.with_classes(len(data.training.classes))
    train(recipe, network, data, folder, resources=Resources("cpu", 1, 0), validated=keep)
    steps = [
        row for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()) if row["event"] == "step"
    ]
    losses = [[row["loss"] for row in steps if row["epoch"] == epoch] for epoch in range(EPOCHS)]
    return {
        "architecture": key,
        "seed": seed,
        "dropout": recipe.dropout,
        "cpu_s": round(time.process_time() - cpu),
        "validation": validation,
        "training_loss": [round(statistics.fmean(epoch), 4) for epoch in losses if epoch],
    }


def collect(out: Path) -> None:
    """The rows of the folder as one file, a line each."""
    rows = [
        {"role": path.name.partition("-")[0], **json.loads(path.read_text())}
        for path in sorted((Workspace.find().root / "runs" / "choice").glob("*.json"))
    ]
    out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def summary(path: Path) -> None:
    """Top-1 after the last epoch: of the random networks, and of each training of what was chosen, with its place."""
    rows = json.loads(path.read_text())
    top1 = {
        role: [row["validation"][-1]["top1"] for row in rows if row["role"] == role] for role in ("random", "chosen")
    }
    drawn = sorted(top1["random"])
    print(f"{len(drawn)} random: {drawn[0]:.1%} to {drawn[-1]:.1%}, median {statistics.median(drawn):.1%}, ", end="")
    print(f"deviation {statistics.stdev(drawn):.1%}; of chosen ones {statistics.stdev(top1['chosen']):.1%}")
    for row, found in zip([row for row in rows if row["role"] == "chosen"], top1["chosen"], strict=True):
        place = 1 + sum(one > found for one in drawn)
        print(f"chosen, seed {row['seed']}: {found:.1%}, place {place} of {len(drawn) + 1}")


def learned(paths: list[Path]) -> None:
    """Rank correlation of the top-1 of random networks with what the model of the others says of each."""
    rows = [row for path in paths for row in json.loads(path.read_text()) if row.get("role", "random") == "random"]
    space = load_space(Workspace.find(), SPACE)
    # The model looks at the way through the space alone: any sums will do.
    sums = SpaceSums.of(space, lambda block, x: 1.0, num_classes=8)
    observations = tuple(
        ScoreObservation(Architecture.parse(row["architecture"]), statistics.fmean(last_top1(row)), (), -1 - number)
        for number, row in enumerate(rows)
    )
    model = FittedScores(sums, observations, leave_out=True)
    said, true = [model.predict(one.architecture).mean for one in observations], [one.score for one in observations]
    tau = rank_interval(said, true, [0] * len(rows))
    print(f"{len(rows)} random networks, each left out: tau {tau.value:.2f} ({tau.low:.2f} to {tau.high:.2f})")


def last_top1(row: dict[str, Any]) -> list[float]:
    """Top-1 after the last three epochs."""
    return [one["top1"] for one in row["validation"][-3:]]


def negative_log_likelihood(scores: Scores) -> float:
    assert scores.by_video is not None
    likelihood = scores.by_video.scores.gather(1, scores.by_video.targets[:, None]).clamp_min(1e-12)
    return round(-likelihood.log().mean().item(), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    trains = commands.add_parser("train")
    trains.add_argument("--study", required=True)
    trains.add_argument("--part", default="0/1", help="K/N: every N-th network from K on")
    trains.add_argument("--seed", type=int, default=0)
    trains.add_argument("--chosen", nargs="*", default=[], help="networks in place of random ones")
    for name in ("collect", "summary"):
        commands.add_parser(name).add_argument("path", type=Path)
    commands.add_parser("learned").add_argument("paths", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "learned":
        learned(given.paths)
    elif given.command == "train":
        train_all(given.study, given.part, given.seed, given.chosen)
    else:
        {"collect": collect, "summary": summary}[given.command](given.path)


if __name__ == "__main__":
    main()
