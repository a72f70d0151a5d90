"""What ``synthetic:motion48`` costs, what one frame is worth on it, and whether it tells networks apart. See README.md.

python experiments/021-motion48/run.py make                      # times both sets in a workspace of its own
python experiments/021-motion48/run.py train middle --seed 0     # one run on motion48:small, one thread
python experiments/021-motion48/run.py train small --one-frame   # the control: clips of one frame, repeated
python experiments/021-motion48/run.py summary                   # results.json from all rows in rows/
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from string import Template

import numpy as np
import torch

from hwbench.data import open_splits
from hwbench.data.builtin import find_builtin
from hwbench.data.decoding import Frames
from hwbench.data.transforms import Normalisation, Size, TestTransform, TrainTransform
from hwbench.spaces.resolve import resolve
from hwbench.specs import Network
from hwbench.training import Data, Recipe, Resources, build, load_checkpoint, open_data, train
from hwbench.training.recipe_files import RecipeFile
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
# The default when these networks were trained.
SGD = RecipeFile.of({"optimizer": "sgd"}).recipe()
ROWS = HERE / "rows"
SMALL = "synthetic:motion48:small"
# Depth, expansion, kernels and last width of members of x3d-tiny; ``narrow`` has half the channels of ``small``,
# ``quarter`` a quarter.
NETWORKS = {
    "quarter": {"depth": "1", "expansion": "2", "first": "1x3x3", "kernel": "1x3x3+3x1x1", "width": "24"},
    "narrow": {"depth": "1", "expansion": "2", "first": "1x3x3", "kernel": "1x3x3+3x1x1", "width": "48"},
    "small": {"depth": "1", "expansion": "2", "first": "1x3x3", "kernel": "1x3x3+3x1x1", "width": "96"},
    "middle": {"depth": "2", "expansion": "2", "first": "1x3x3+3x1x1", "kernel": "1x3x3+3x1x1", "width": "96"},
    "large": {"depth": "2", "expansion": "4", "first": "1x3x3+3x1x1", "kernel": "3x3x3", "width": "128"},
}


# Those of ``small`` that the networks with fewer channels have a part of.
WIDTHS = {"STEM": "24", "FIRST": "32", "SECOND": "64", "HEAD": "256"}
THINNER = {"narrow": 2, "quarter": 4}
THIN = """
schema = 1
name = "$NAME"
description = "fewer channels than x3d-tiny"
[input]
frames = 8
resolution = 64
[stem]
width = $STEM
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
depth = 1
width = $FIRST
expansion = 2.0
kernel = "1x3x3"
se = 0
act = "relu"
stride = 2
[[stages]]
depth = 1
width = $SECOND
expansion = 2.0
kernel = "1x3x3+3x1x1"
se = 0
act = "relu"
stride = 2
[[stages]]
depth = 1
width = $LAST
expansion = 3.0
kernel = "1x3x3+3x1x1"
se = 0
act = "relu"
stride = 2
[head]
hidden = $HEAD
act = "relu"
"""


def network(workspace: Workspace, name: str, num_classes: int) -> Network:
    depth, expansion, first, kernel, width = NETWORKS[name].values()
    space, widths = "x3d-tiny", ("32", "64", width)
    if name in THINNER:
        thinner = {part: str(int(wide) // THINNER[name]) for part, wide in WIDTHS.items()}
        space, widths = f"x3d-{name}", (thinner["FIRST"], thinner["SECOND"], width)
        file = workspace.root / "search_spaces" / f"{space}.toml"
        file.write_text(Template(THIN).substitute(NAME=space, LAST=width, **thinner))
    choices = {"frames": "8", "resolution": "64"}
    for stage in (1, 2, 3):
        choices |= {
            f"s{stage}.depth": depth,
            f"s{stage}.width": widths[stage - 1],
            f"s{stage}.expansion": expansion if stage < 3 else "3",
            f"s{stage}.kernel": first if stage == 1 else kernel,
            f"s{stage}.se": "0",
            f"s{stage}.act": "relu",
        }
    return resolve(workspace, f"{space}:" + ",".join(f"{k}={v}" for k, v in choices.items()), num_classes)


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended."""
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def make() -> None:
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for data in ("synthetic:motion48", SMALL):
            wall, cpu = time.monotonic(), cpu_s()
            splits = open_splits(Workspace(Path(folder)), data)
            row = {"wall_s": round(time.monotonic() - wall, 1), "cpu_s": round(cpu_s() - cpu, 1)}
            wall = time.monotonic()
            open_splits(Workspace(Path(folder)), data)
            row["again_s"] = round(time.monotonic() - wall, 2)
            row["bytes"] = sum(path.stat().st_size for part in (splits.train, splits.val) for path in part.paths)
            rows[data] = row | {"train": len(splits.train), "val": len(splits.val), "load": os.getloadavg()[0]}
            print(data, rows[data], flush=True)
    write("make", rows)


@dataclass(frozen=True)
class OneFrame:
    """Copies of one frame in place of a clip: a random one in training, the middle one in a test."""

    inner: TrainTransform | TestTransform

    @property
    def size(self) -> Size:
        return self.inner.size

    @property
    def normalisation(self) -> Normalisation:
        return self.inner.normalisation

    def pictures(self, frames: Frames, *rng: np.random.Generator) -> torch.Tensor | list[torch.Tensor]:
        at = int(rng[0].integers(len(frames))) if rng else len(frames) // 2
        return self.inner.pictures(np.broadcast_to(frames[at], frames.shape), *rng)


def run(name: str, seed: int, epochs: int, one_frame: bool, changes: list[str]) -> None:
    workspace = Workspace.find()
    changed = {key: json.loads(value) for key, _, value in (change.partition("=") for change in changes)}
    recipe = replace(SGD, **{"epochs": epochs, "seed": seed, "eval_every": epochs, "dropout": 0.2, **changed})
    data = open_data(workspace, SMALL, (8, 64, 64), recipe)
    if one_frame:
        for part in (data.training, data.validation):
            part.transform = OneFrame(part.transform)
    net = network(workspace, name, len(data.training.classes))
    label = f"{name}-{'one-frame-' if one_frame else ''}{epochs}epochs-seed{seed}"
    label += "".join("," + change.replace('"', "") for change in changes)
    wall, cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        trained = train(recipe, net, data, Path(folder), resources=Resources("cpu", 1, 0), progress=tell)
        row = {"wall_s": round(time.monotonic() - wall), "cpu_s": round(time.process_time() - cpu)}
        row |= {"top1": trained.checkpoint.metrics["top1"], "top5": trained.checkpoint.metrics["top5"]}
        row |= parts(trained.checkpoint.path, data)
    row |= {
        "network": name,
        "one_frame": one_frame,
        "changes": changes,
        "architecture": net.name,
        "recipe": asdict(recipe),
    }
    print(label, row, flush=True)
    write(label, row)


def tell(progress) -> None:
    if progress.step % 60 == 0:
        print(f"step {progress.step} of {progress.steps}: loss {progress.loss:.2f}", flush=True)


def parts(path: Path, data: Data) -> dict[str, object]:
    """Cross-entropy, top-1 of the shape and of the motion alone, and of each motion among the classes of its shape."""
    checkpoint, weights = load_checkpoint(path)
    module = build(checkpoint, weights).eval()
    answers, truths, losses = [], [], []
    with torch.inference_mode():
        for start in range(0, len(data.validation), 32):
            samples = [data.validation[i] for i in range(start, min(start + 32, len(data.validation)))]
            logits = module(torch.cat([s.views for s in samples]))
            labels = torch.tensor([s.label for s in samples])
            losses += torch.nn.functional.cross_entropy(logits, labels, reduction="none").tolist()
            answers += [checkpoint.classes[i] for i in logits.argmax(1)]
            truths += [checkpoint.classes[s.label] for s in samples]
    pairs = [(a.split("-", 1), b.split("-", 1)) for a, b in zip(answers, truths)]
    motions = sorted({truth[1] for _, truth in pairs})
    return {
        "loss": round(statistics.fmean(losses), 4),
        "shape": round(statistics.fmean(a[0] == b[0] for a, b in pairs), 4),
        "motion": round(statistics.fmean(a[1] == b[1] for a, b in pairs), 4),
        "by_motion": {m: round(statistics.fmean(a[1] == m for a, b in pairs if b[1] == m), 3) for m in motions},
    }


def write(name: str, row: object) -> None:
    ROWS.mkdir(exist_ok=True)
    (ROWS / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")


def summary() -> None:
    rows = {path.stem: json.loads(path.read_text()) for path in sorted(ROWS.glob("*.json"))}
    runs = {name: row for name, row in rows.items() if "network" in row}
    count = len(list(find_builtin(SMALL).spec.classes)) * find_builtin(SMALL).spec.val_per_class
    results: dict[str, object] = {"make": rows.get("make")}
    of_clips = [r for r in runs.values() if not r["one_frame"] and not r.get("changes")]
    results["other recipes"] = {
        n: {"top1": r["top1"], "cpu_s": r["cpu_s"]} for n, r in runs.items() if r.get("changes")
    }
    for epochs in sorted({r["recipe"]["epochs"] for r in of_clips}):
        alike = [r for r in of_clips if r["recipe"]["epochs"] == epochs]
        results[f"{epochs} epochs"] = compared({n: [r for r in alike if r["network"] == n] for n in NETWORKS}, count)
    results["one_frame"] = {
        n: {k: r[k] for k in ("top1", "shape", "motion")} for n, r in runs.items() if r["one_frame"]
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def compared(clips: dict[str, list[dict[str, object]]], count: int) -> dict[str, object]:
    """Each network's runs, and the variance of top-1 and of the loss between networks beside that of seeds."""
    results: dict[str, object] = {}
    for name, found in clips.items():
        if found:
            mean = statistics.fmean(r["top1"] for r in found)
            results[name] = {
                "architecture": found[0]["architecture"],
                "top1": [round(r["top1"], 4) for r in found],
                "mean": round(mean, 4),
                "standard_error": round((mean * (1 - mean) / count) ** 0.5, 4),
                **{
                    key: [r[key] for r in found]
                    for key in ("loss", "shape", "motion", "cpu_s", "wall_s")
                    if key in found[0]
                },
            }
    for score in ("top1", "loss"):
        several = [[r[score] for r in found] for found in clips.values() if len(found) > 1 and score in found[0]]
        if len(several) > 1:
            seeds = statistics.fmean(statistics.variance(values) for values in several)
            # the variance of means holds a share of that of the seeds
            means = statistics.variance([statistics.fmean(values) for values in several])
            ratio = round(means / seeds, 1) if seeds else None
            results[f"variance of {score}"] = {"between_networks": means, "of_seeds": seeds, "ratio": ratio}
    return results


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = options.add_subparsers(dest="command", required=True)
    commands.add_parser("make")
    one = commands.add_parser("train")
    one.add_argument("network", choices=NETWORKS)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--epochs", type=int, default=Recipe.epochs)
    one.add_argument("--one-frame", action="store_true")
    one.add_argument("--set", nargs="+", default=[], metavar="NAME=JSON", help="fields of the recipe")
    commands.add_parser("summary")
    given = options.parse_args()
    torch.set_num_threads(1)
    if given.command == "make":
        make()
    elif given.command == "train":
        run(given.network, given.seed, given.epochs, given.one_frame, given.set)
    else:
        summary()


if __name__ == "__main__":
    main()
