"""What dropout costs short trainings of small networks. See README.md.

python experiments/030-dropout/run.py train --part 0/2   # rows/: in a workspace; and 1/2 beside it
python experiments/030-dropout/run.py summary            # results.json
"""

import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

from hwbench.data.sources import Reading
from hwbench.spaces import load_space
from hwbench.specs import Architecture
from hwbench.training import Resources, Scores, open_data, train
from hwbench.training.recipe_files import RecipeFile
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
ROWS, TRUTH = HERE / "rows", HERE.parent / "018-ground-truth" / "rows"
TINY = (
    "x3d-tiny:frames=8,resolution=64,s1.depth={},s1.width=32,s1.expansion=2,s1.kernel={},s1.se=0,s1.act=relu,"
    "s2.depth={},s2.width=64,s2.expansion=2,s2.kernel={},s2.se=0,s2.act=relu,"
    "s3.depth={},s3.width={},s3.expansion=3,s3.kernel={},s3.se=0,s3.act=relu"
)
FACTORED = "1x3x3+3x1x1"
# The network that a quickstart found, and one that is factored everywhere; by data set with the epochs.
SYNTHETIC = {
    "found": TINY.format(1, "1x3x3", 1, "3x3x3", 3, 128, "3x3x3"),
    "factored": TINY.format(3, FACTORED, 2, FACTORED, 2, 96, FACTORED),
}
# Networks of 018, which has their trainings with 0.2.
MOTION48 = ("edge-00", "edge-04", "edge-08", "edge-12")
DROPOUTS, SEEDS = (0.0, 0.2), (0, 1, 2)
# The default when these networks were trained.
SGD = RecipeFile.of({"optimizer": "sgd"}).recipe()


@dataclass(frozen=True)
class Job:
    """A training; its row has the accuracy after each epoch."""

    data: str
    epochs: int
    network: str
    architecture: str
    dropout: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.network}-{self.dropout:g}-seed{self.seed}"

    def run(self, workspace: Workspace) -> dict[str, object]:
        architecture = Architecture.parse(self.architecture)
        network = load_space(workspace, architecture.space).network(architecture, 1)
        recipe = replace(SGD, epochs=self.epochs, seed=self.seed, dropout=self.dropout)
        size = (network.input.t, network.input.h, network.input.w)
        data = open_data(workspace, self.data, size, recipe, reading=Reading(decoded_cache_bytes=4 << 30))
        top1: list[float] = []

        def keep(epoch: int, scores: Scores) -> None:
            top1.append(round(scores.top1, 4))

        cpu, network = time.process_time(), network.with_classes(len(data.training.classes))
        folder = workspace.root / "runs" / "030" / self.name
        train(recipe, network, data, folder, resources=Resources("cpu", 1, 0), validated=keep)
        about = {"network": self.network, "dropout": self.dropout, "seed": self.seed}
        return {**about, "data": self.data, "top1": top1, "cpu_s": round(time.process_time() - cpu)}


def jobs() -> list[Job]:
    tiny = [
        Job("synthetic", 11, name, key, dropout, seed)
        for seed in SEEDS
        for name, key in SYNTHETIC.items()
        for dropout in DROPOUTS
    ]
    keys = {name: json.loads((TRUTH / f"{name}-seed0.json").read_text())["architecture"] for name in MOTION48}
    return tiny + [Job("synthetic:motion48:small", 12, name, key, 0.0, 0) for name, key in keys.items()]


def train_part(part: str) -> None:
    """Trains what has no row, of every N-th job from K on."""
    number, count = (int(word) for word in part.split("/"))
    workspace = Workspace.find()
    for job in jobs()[number::count]:
        row = ROWS / f"{job.name}.json"
        if not row.exists():
            result = job.run(workspace)
            row.write_text(json.dumps(result) + "\n")
            print(job.name, result["top1"], flush=True)


def last(top1: list[float]) -> float:
    """Mean of the last three evaluations, as in 018."""
    return statistics.fmean(top1[-3:])


def summary() -> None:
    """By pairs of the same network and seed: what is gained without dropout, in points of top-1."""
    rows = [json.loads(path.read_text()) for path in sorted(ROWS.glob("*.json"))]
    found: dict[tuple[str, int, float], float] = {
        (row["network"], row["seed"], row["dropout"]): last(row["top1"]) for row in rows
    }
    for name in MOTION48:
        stored = json.loads((TRUTH / f"{name}-seed0.json").read_text())
        found[name, 0, 0.2] = last([one["top1"] for one in stored["validation"]])
    results = {}
    for data, names in (("synthetic", tuple(SYNTHETIC)), ("motion48", MOTION48)):
        pairs = [
            {"network": name, "seed": seed, "with": round(found[name, seed, 0.2], 4), "without": round(without, 4)}
            for (name, seed, dropout), without in found.items()
            if name in names and dropout == 0 and (name, seed, 0.2) in found
        ]
        gains = [100 * (float(pair["without"]) - float(pair["with"])) for pair in pairs]
        error = statistics.stdev(gains) / math.sqrt(len(gains))
        results[data] = {"gain": round(statistics.fmean(gains), 1), "error": round(error, 1), "pairs": pairs}
        print(data, f"{len(pairs)} pairs: {statistics.fmean(gains):+.1f} points, standard error {error:.1f}")
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("train").add_argument("--part", default="0/1", help="K/N: every N-th training from K on")
    commands.add_parser("summary")
    given = parser.parse_args()
    if given.command == "train":
        train_part(given.part)
    else:
        summary()


if __name__ == "__main__":
    main()
