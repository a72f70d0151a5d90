"""What optimizers make of short trainings of small networks of all families. See README.md.

python experiments/031-recipes/run.py draw                    # networks.json: the first 48 of 018
python experiments/031-recipes/run.py train                   # rows/, families/: in a workspace; as many processes as
                                                              # there are cores share the work; or --device cuda
python experiments/031-recipes/run.py summary                 # results.json, in seconds
"""

import argparse
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from hwbench.training import Recipe

HERE = Path(__file__).resolve().parent
ROWS, FAMILIES, NETWORKS, RESULTS = HERE / "rows", HERE / "families", HERE / "networks.json", HERE / "results.json"
# The networks of 018 that are trained with every optimizer, and the seeds of all of them.
JUDGED, SEEDS = 48, (0, 1)
EPOCHS, FAMILY_EPOCHS = 12, 4
# Of 014, those of 4 ms: one of each family.
OF_FAMILIES = (
    *("csn-4ms-0", "mvit-4ms-1", "slow-4ms-1", "i3d-4ms-0"),
    *("squeeze-4ms-1", "x3d-4ms-1", "slowfast-4ms-0", "r2plus1d-4ms-0"),
)


def neighbour(name: str) -> ModuleType:
    """The ``run.py`` of another experiment."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), HERE.parent / name / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


truth = neighbour("018-ground-truth")


@dataclass(frozen=True)
class Job:
    """A training with the default recipe; its row is that of 018."""

    network: dict[str, Any]
    seed: int
    epochs: int
    rows: Path

    @property
    def name(self) -> str:
        return f"{self.network['name']}-seed{self.seed}"

    @property
    def row(self) -> Path:
        return self.rows / f"{self.name}.json"

    @property
    def folder(self) -> Path:
        folder: Path = truth.Workspace.find().root / "runs" / "031" / self.rows.name / self.name
        return folder


def draw() -> None:
    drawn = json.loads(truth.NETWORKS.read_text())
    truth.write(NETWORKS, {**drawn, "networks": drawn["networks"][:JUDGED]})


def jobs() -> Iterator[Job]:
    """All networks with one seed, the families, and all with the next."""
    networks = json.loads(NETWORKS.read_text())["networks"]
    first, *others = ([Job(network, seed, EPOCHS, ROWS) for network in networks] for seed in SEEDS)
    yield from first
    known = {
        network["name"]: network
        for path in sorted((HERE.parent / "014-families" / "networks").glob("*.json"))
        for budget in json.loads(path.read_text())["budgets"]
        for network in budget["networks"]
    }
    for name in OF_FAMILIES:
        yield Job({"name": name, "architecture": known[name]["architecture"]}, 0, FAMILY_EPOCHS, FAMILIES)
    for jobs in others:
        yield from jobs


def train_all(device: str, until: float) -> None:
    """Trains what has no row and is not being trained by another process; begins nothing after ``until`` seconds."""
    start = time.monotonic()
    for job in jobs():
        if time.monotonic() - start > until:
            return
        with truth.claimed(job.folder) as ours:
            if ours and not job.row.exists():
                row = truth.trained(job, Recipe(epochs=job.epochs, seed=job.seed), device=device)
                truth.write(job.row, row)
                print(job.name, {key: row[key] for key in ("top1", "loss", "cpu_s")}, flush=True)


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
        train_all(given.device, given.until)
    elif given.command == "draw":
        draw()
    else:
        summary()


if __name__ == "__main__":
    main()
