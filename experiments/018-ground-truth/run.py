"""Networks of one budget, trained: what evaluators and searches are judged on. See README.md.

python experiments/018-ground-truth/run.py draw --budget "0.4 ms"   # networks.json: what is trained; again: more
python experiments/018-ground-truth/run.py shapes                   # adds X3D's shapes that measure within it
python experiments/018-ground-truth/run.py train                    # rows/: each network and seed, one thread; as many
                                                                    # processes as there are cores share the work
python experiments/018-ground-truth/run.py int8                     # adds the accuracy of the int8 file to each row
python experiments/018-ground-truth/run.py latency                  # latency.json: all of them, in turn
"""

import argparse
import fcntl
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwbench.api.export import export_source
from hwbench.api.export_sources import source_of
from hwbench.api.prediction import measuring, table_predictor
from hwbench.data import Reading
from hwbench.deploy import open_validation
from hwbench.deploy.model_process import served
from hwbench.models import frames_to_batch
from hwbench.spaces import StagedSpace, read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.specs import Architecture, Network, Outcome, Precision
from hwbench.studies.latencies import space_latencies
from hwbench.testing.tables import installed_target
from hwbench.training import Recipe, Resources, Scores, open_data, train
from hwbench.training.recipe_files import RecipeFile
from hwbench.units import parse_duration
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
ROWS, NETWORKS, LATENCY = HERE / "rows", HERE / "networks.json", HERE / "latency.json"
DATA, CLASSES, DEVICE = "synthetic:motion48:small", 48, "local"
EPOCHS = 12
# What was the default when the first networks were trained.
DROPOUT = 0.2
# The default when these networks were trained.
SGD = RecipeFile.of({"optimizer": "sgd"}).recipe()
# What is averaged: the last evaluations of a run.
LAST = 3
# Shares of the budget.
BANDS = {"edge": (0.9, 1.0), "middle": (0.6, 0.7)}
PER_BAND = 24
# Trainings of each network that was drawn first: so many that the ceiling of their mean is above 0.65.
SEEDS = 6
# Networks of a band in all; those after the first ones are trained once, and some of them were twice.
ALL_OF_BAND = 75
# Clips, depths and widths of X3D's shapes, largest first: of each clip and depth the widest within the budget counts.
CLIPS = ((8, 64), (8, 48), (4, 64), (4, 48))
DEPTHS = ((2, 5, 11, 7), (1, 3, 7, 5), (1, 2, 5, 3), (1, 1, 3, 2))
WIDTHS = ((24, 48, 96, 192), (16, 32, 64, 128), (16, 24, 48, 96), (8, 16, 40, 80), (8, 16, 32, 64))


def space_of(architecture: str) -> StagedSpace:
    name = architecture.partition(":")[0]
    path = HERE / f"{name}.toml"
    return read_space(path if path.is_file() else Workspace.find().root / "search_spaces" / f"{name}.toml")


def network_of(architecture: str) -> Network:
    return space_of(architecture).network(Architecture.parse(architecture), CLASSES)


def draw(budget: str) -> None:
    """Uniform draws of the exact sampler within each band; bands take turns: a beginning of the list is fair, too.

    Networks that were drawn before stay, and the next ones are drawn by the table that is there now.
    """
    workspace, precision, budget_s = Workspace.find(), Precision.INT8, parse_duration(budget, name="--budget")
    space, target = space_of("x3d-mini:"), installed_target()
    predictor, _ = table_predictor(workspace, target, precision, "x3d-mini", CLASSES, False, (True, None))
    sums = space_latencies(space, predictor, precision, CLASSES)
    known = json.loads(NETWORKS.read_text())["networks"] if NETWORKS.is_file() else []
    feasible, rng = FeasibleSet(sums, budget_s), np.random.default_rng([18, len(known)] if known else 18)
    found: dict[str, dict[str, float]] = {
        band: {one["architecture"]: one["predicted_ms"] for one in known if one["band"] == band} for band in BANDS
    }
    wanted = ALL_OF_BAND if known else PER_BAND
    while any(len(networks) < wanted for networks in found.values()):
        drawn = feasible.draw(rng)
        share = sums.total(drawn) / budget_s
        for band, (low, high) in BANDS.items():
            if low <= share <= high and len(found[band]) < wanted:
                found[band].setdefault(drawn.key, round(1e3 * sums.total(drawn), 4))
    networks = [
        {"name": f"{band}-{number:02d}", "band": band, "architecture": key, "predicted_ms": milliseconds}
        for number in range(wanted)
        for band in BANDS
        for key, milliseconds in [list(found[band].items())[number]]
    ]
    about = {"budget_ms": 1e3 * budget_s, "data": DATA, "classes": CLASSES, "feasible": feasible.count}
    write(NETWORKS, {**about, "networks": [*networks, *(one for one in known if one["band"] not in BANDS)]})


def shapes() -> None:
    """X3D's shapes whose measured latency is within the budget: of each clip and depth the widest one."""
    known = json.loads(NETWORKS.read_text())
    names = [(clip, depth, [shape(clip, depth, width) for width in WIDTHS]) for clip in CLIPS for depth in DEPTHS]
    taken = measured([network_of(key) for _, _, keys in names for key in keys], Precision.INT8)
    found = []
    for clip, depth, keys in names:
        within = [key for key in keys if taken.get(key, np.inf) <= known["budget_ms"]]
        if within:
            label = f"x3d-{clip[0]}x{clip[1]}-{'.'.join(map(str, depth))}"
            found.append({"name": label, "band": "x3d", "architecture": within[0], "predicted_ms": None})
    known["networks"] = [n for n in known["networks"] if n["band"] != "x3d"] + found
    write(NETWORKS, known)


def shape(clip: tuple[int, int], depths: Sequence[int], widths: Sequence[int]) -> str:
    choices = {"frames": str(clip[0]), "resolution": str(clip[1])}
    for number, (depth, width) in enumerate(zip(depths, widths), start=1):
        choices |= {f"s{number}.depth": str(depth), f"s{number}.width": str(width), f"s{number}.expansion": "2.25"}
        choices |= {f"s{number}.kernel": "3x3x3", f"s{number}.se": "0.0625", f"s{number}.act": "swish"}
    return Architecture("x3d-shape", tuple(choices.items())).key


def measured(networks: Sequence[Network], precision: Precision) -> dict[str, float]:
    """Medians in milliseconds by architecture, as the store has them or as they are measured now."""
    workspace = Workspace.find()
    measure = measuring(workspace, installed_target(), "executorch")
    by_workload = {network.workload(precision): network.name for network in networks}
    rows = [row for row in measure(list(by_workload)) if row.outcome is Outcome.OK]
    return {by_workload[row.workload]: round(1e3 * row.stats.median_s, 4) for row in rows}


def latency() -> None:
    networks = [network_of(one["architecture"]) for one in json.loads(NETWORKS.read_text())["networks"]]
    write(LATENCY, {precision.value: measured(networks, precision) for precision in (Precision.INT8, Precision.FP32)})


@dataclass(frozen=True)
class Job:
    """A network to train with a seed."""

    network: dict[str, Any]
    seed: int

    @property
    def name(self) -> str:
        return f"{self.network['name']}-seed{self.seed}"

    @property
    def row(self) -> Path:
        return ROWS / f"{self.name}.json"

    @property
    def folder(self) -> Path:
        return Workspace.find().root / "runs" / "018" / self.name


def jobs() -> list[Job]:
    """Every network with a seed before any has the next one: what is trained so far is a fair sample.

    Networks that were drawn later follow with one seed.
    """
    networks = json.loads(NETWORKS.read_text())["networks"]
    drawn, shaped = ([n for n in networks if (n["band"] == "x3d") is of_x3d] for of_x3d in (False, True))
    drawn, later = drawn[: len(BANDS) * PER_BAND], drawn[len(BANDS) * PER_BAND :]
    first, *others = ([Job(n, seed) for n in drawn] for seed in range(SEEDS))
    once = [Job(n, 0) for n in shaped]
    return first + once + [job for seed in others for job in seed] + [Job(n, 0) for n in later]


def train_all(device: str) -> None:
    """Trains what has no row and is not being trained by another process."""
    for job in jobs():
        with claimed(job.folder) as ours:
            if ours and not job.row.exists():
                row = trained(job, device=device)
                write(job.row, row)
                print(job.name, {k: row[k] for k in ("top1", "loss", "cpu_s")}, flush=True)


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether this process alone has the folder; given back when it ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "claim").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def trained(job: Job, recipe: Recipe | None = None, last: int = LAST, device: str = "cpu") -> dict[str, Any]:
    """The row of a training on a device of torch; its accuracy is the mean of so many last evaluations."""
    network = network_of(job.network["architecture"])
    recipe = recipe or replace(SGD, epochs=EPOCHS, seed=job.seed, dropout=DROPOUT)
    size = (network.input.t, network.input.h, network.input.w)
    data = open_data(Workspace.find(), DATA, size, recipe, reading=Reading(decoded_cache_bytes=4 << 30))
    job.folder.mkdir(parents=True, exist_ok=True)
    seen, cpu = job.folder / "validated.jsonl", time.process_time()

    def keep(epoch: int, scores: Scores) -> None:
        with seen.open("a") as file:
            file.write(json.dumps({"epoch": epoch, **facts(scores)}) + "\n")

    resources = Resources(device, 1, 0, cuda_graphs=device == "cuda")
    train(recipe, network, data, job.folder, resources=resources, validated=keep)
    by_epoch = {row["epoch"]: row for row in map(json.loads, seen.read_text().splitlines())}
    evaluations = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    judged = evaluations[-last:]
    return {
        **job.network,
        "seed": job.seed,
        "recipe": asdict(recipe),
        "cpu_s": round(time.process_time() - cpu),
        **({"gpu": torch.cuda.get_device_name()} if device == "cuda" else {}),
        "top1": round(statistics.fmean(row["top1"] for row in judged), 5),
        "loss": round(statistics.fmean(row["loss"] for row in judged), 5),
        "hits": "".join(str(sum(digits)) for digits in zip(*(map(int, row["hits"]) for row in judged))),
        "validation": [{"top1": row["top1"], "loss": row["loss"]} for row in evaluations],
        "training_loss": list(training_losses(job.folder / "metrics.jsonl", recipe.epochs)),
    }


def facts(scores: Scores) -> dict[str, Any]:
    """Top-1, mean negative log-likelihood, and by video whether the highest score is right."""
    by_video = scores.by_video
    assert by_video is not None
    likelihood = by_video.scores.gather(1, by_video.targets[:, None]).clamp_min(1e-12)
    right = by_video.scores.argmax(1) == by_video.targets
    return {
        "top1": round(scores.top1, 5),
        "loss": round(-likelihood.log().mean().item(), 5),
        "hits": "".join(str(int(one)) for one in right),
    }


def training_losses(path: Path, epochs: int, parts: int = 4) -> Iterator[float]:
    """Means over quarters of epochs."""
    steps = [row for row in map(json.loads, path.read_text().splitlines()) if row["event"] == "step"]
    for epoch in range(epochs):
        losses = [row["loss"] for row in steps if row["epoch"] == epoch]
        yield from (round(float(part.mean()), 4) for part in np.array_split(losses, parts))


def int8_all() -> None:
    for job in jobs():
        if job.row.exists() and "int8" not in (row := json.loads(job.row.read_text())):
            write(job.row, {**row, "int8": int8(job)})
            print(job.name, row["validation"][-1]["top1"], json.loads(job.row.read_text())["int8"]["top1"], flush=True)


def int8(job: Job) -> dict[str, Any]:
    """Accuracy of the int8 file that is made of the final weights."""
    workspace, source = Workspace.find(), source_of(job.folder / "checkpoint.pt")
    deployed = export_source(workspace, source, job.folder / "int8", Precision.INT8, videos=16)
    validation = open_validation(workspace, DATA, source)
    hits, losses = [], []
    with served(deployed.path) as model:
        for video, view in validation.views():
            logits = torch.from_numpy(np.array(model(frames_to_batch(view).numpy())))
            label = int(validation.dataset.videos.labels[video])
            hits.append(int(logits.argmax()) == label)
            losses.append(-torch.log_softmax(logits.double(), 1)[0, label].item())
    return {
        "top1": round(statistics.fmean(hits), 5),
        "loss": round(statistics.fmean(losses), 5),
        "hits": "".join(str(int(hit)) for hit in hits),
        "sqnr_db": round(deployed.manifest.parity.sqnr_db, 1),
        "bytes": deployed.manifest.bytes,
    }


def write(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw").add_argument("--budget", required=True)
    commands.add_parser("train").add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for name in ("shapes", "int8", "latency"):
        commands.add_parser(name)
    given = parser.parse_args()
    torch.set_num_threads(1)
    {
        "draw": lambda: draw(given.budget),
        "shapes": shapes,
        "train": lambda: train_all(given.device),
        "int8": int8_all,
        "latency": latency,
    }[given.command]()


if __name__ == "__main__":
    main()
