"""Whether the network that the quickstart finds is among the best of random ones within its budget. See README.md.

python experiments/035-quickstart-winner/run.py draw        # networks.json: in a workspace, after `hwbench quickstart`
python experiments/035-quickstart-winner/run.py train       # rows/: as many processes as there are cores share the work
python experiments/035-quickstart-winner/run.py found       # networks.json: what further quickstarts have found
python experiments/035-quickstart-winner/run.py table       # search_spaces/x3d-tiny.trained.csv, from rows
python experiments/035-quickstart-winner/run.py summary     # results.json, in seconds
python experiments/035-quickstart-winner/run.py six         # the same of trainings of six epochs, in six-epochs.jsonl
python experiments/035-quickstart-winner/run.py again       # again.jsonl: the two networks that a quickstart measured
"""

import argparse
import csv
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau

import hwbench
from hwbench import TestRequest, TrainRequest
from hwbench.api import quickstart
from hwbench.api.prediction import table_predictor
from hwbench.data import generation
from hwbench.data.synthetic import SyntheticSpec
from hwbench.spaces import StagedSpace, load_space, read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.evaluators.base import Context
from hwbench.studies.evaluators.entropy import Entropy
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.fitted_scores import FittedScores
from hwbench.studies.latencies import space_latencies
from hwbench.testing.experiments import neighbour
from hwbench.testing.tables import installed_target
from hwbench.workspace import Workspace, shipped

HERE = Path(__file__).resolve().parent
ROWS, NETWORKS, RESULTS = HERE / "rows", HERE / "networks.json", HERE / "results.json"
# Trained with quickstart.EPOCHS = 6, and judged on 128 videos of each class.
SIX = HERE / "six-epochs.jsonl"
# The two networks that the last quickstart of a workspace measured, the better score first, with losses.
AGAIN, TWO = HERE / "again.jsonl", ("learned", "second")
SEEDS, RANDOM = (0, 1, 2, 3, 4), 15
HALVES = (0, 1, 2), (3, 4)
# What was found by trainings that come with hwbench, by those of all five seeds, and by the closed form.
FOUND = "learned", "learned-all", "winner"
# With six epochs, by the trainings of as many seeds.
FOUND_AFTER_SIX = "learned, two seeds", "learned, five seeds", "winner"
# Of the random networks, the trainings that come with hwbench.
LEARNED_SEEDS = (0, 1)
# Validation videos of each of the eight classes, for the judge; the quickstart has 16.
JUDGED = SyntheticSpec(val_per_class=256)

truth = neighbour(HERE.parent / "018-ground-truth")


@dataclass(frozen=True)
class Job:
    """A training as the quickstart makes it."""

    name: str
    architecture: str
    seed: int

    @property
    def row(self) -> Path:
        return ROWS / f"{self.name}-seed{self.seed}.json"

    @property
    def folder(self) -> Path:
        folder: Path = Workspace.find().root / "runs" / "035" / self.row.stem
        return folder


def draw(budget_ms: float) -> None:
    """Random networks within the budget less the reserve, and what the quickstart found there by seed."""
    workspace = Workspace.find()
    within_s = budget_ms * (1 - quickstart.RESERVE) / 1e3
    target = installed_target()
    predictor, classes = table_predictor(workspace, target, quickstart.INT8, quickstart.SPACE)
    latencies = space_latencies(load_space(workspace, quickstart.SPACE), predictor, quickstart.INT8, classes)
    feasible, rng = FeasibleSet(latencies, within_s), np.random.default_rng(35)
    random = {f"random-{number:02}": str(feasible.draw(rng)) for number in range(RANDOM)}
    truth.write(NETWORKS, {"budget_ms": budget_ms, "random": random})
    find(budget_ms)


def find(budget_ms: float) -> None:
    """What the quickstart has found by seed, by the closed form and by trainings, beside what was found before."""
    within_ms, known = budget_ms * (1 - quickstart.RESERVE), json.loads(NETWORKS.read_text())
    for path in sorted(Workspace.find().studies.glob(f"quickstart-{within_ms:.4g}ms-*/result.json")):
        result = json.loads(path.read_text())
        kind = "learned" if result["settings"]["evaluator"] == "fitted" else "winner"
        known.setdefault(kind, {})[str(result["settings"]["seed"])] = result["best"]["architecture"]
    truth.write(NETWORKS, known)


def jobs() -> Iterator[Job]:
    known = json.loads(NETWORKS.read_text())
    for kind in FOUND:
        yield from (Job(kind, winner, int(seed)) for seed, winner in known.get(kind, {}).items())
    for seed in SEEDS:
        yield from (Job(name, architecture, seed) for name, architecture in known["random"].items())


def train(until: float) -> None:
    start, judged = time.monotonic(), str(generation.generate(Workspace.find(), JUDGED))
    for job in jobs():
        if time.monotonic() - start > until:
            return
        with truth.claimed(job.folder) as ours:
            if ours and not job.row.exists():
                row = trained(job, judged)
                truth.write(job.row, row)
                print(job.row.stem, {key: row[key] for key in ("top1", "judged", "cpu_s")}, flush=True)


def trained(job: Job, judged: str) -> dict[str, Any]:
    """Top-1 on the videos of the quickstart and on those of the judge."""
    cpu, out = time.process_time(), job.folder / "run"
    made = hwbench.train(
        TrainRequest(
            architecture=job.architecture,
            data=quickstart.DATA,
            epochs=quickstart.EPOCHS,
            seed=job.seed,
            out=out,
            threads=1,
            workers=0,
            device="cpu",
            fresh=True,
        )
    )
    cpu = time.process_time() - cpu
    tested, judged_loss = tested_on(made.checkpoint, judged)
    metrics = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    curve = [round(one["top1"], 4) for one in metrics if one["event"] == "epoch" and "top1" in one]
    return {
        "name": job.name,
        "architecture": job.architecture,
        "seed": job.seed,
        "top1": made.top1,
        "judged": tested.top1,
        "videos": tested.videos,
        "curve": curve,
        "loss": tested_on(made.checkpoint, quickstart.DATA)[1],
        "judged_loss": judged_loss,
        "cpu_s": round(cpu, 1),
    }


def tested_on(checkpoint: Path, data: str) -> tuple[hwbench.TestResult, float]:
    """Accuracy on one centre clip of each video, and the mean cross-entropy."""
    out = Path(checkpoint).parent / "scores.npz"
    test = TestRequest(
        checkpoint=checkpoint, data=data, scores=out, clips=1, crops=1, threads=1, workers=0, device="cpu"
    )
    tested = hwbench.test(test)
    with np.load(out) as of:
        likely = of["scores"][np.arange(tested.videos), of["targets"].astype(int)]
    return tested, round(float(-np.log(np.clip(likely, 1e-9, 1)).mean()), 4)


def again() -> None:
    """Trains the two networks that the last quickstart here measured, as ``train`` does, with each seed."""
    judged = str(generation.generate(Workspace.find(), JUDGED))
    studies = Workspace.find().studies.glob("quickstart-*-learned/result.json")
    measured = json.loads(max(studies, key=lambda path: path.stat().st_mtime).read_text())["measured"]
    best = sorted(measured, key=lambda one: -one["score"])
    for seed in SEEDS:
        for name, one in zip(TWO, best, strict=False):
            row = trained(Job(name, one["architecture"], seed), judged)
            with AGAIN.open("a") as file:
                file.write(json.dumps(row) + "\n")


def summary() -> None:
    """By seed, the place of what was found among the random networks that were trained with that seed."""
    results = results_of([json.loads(path.read_text()) for path in sorted(ROWS.glob("*.json"))], FOUND)
    truth.write(RESULTS, results)
    print(json.dumps(results, indent=1))


def results_of(rows: list[dict[str, Any]], kinds: Sequence[str]) -> dict[str, Any]:
    drawn = json.loads(NETWORKS.read_text())["random"]
    by_seed = {seed: {one["name"]: one for one in rows if one["seed"] == seed} for seed in SEEDS}
    complete = {seed: of for seed, of in by_seed.items() if drawn.keys() <= of.keys()}
    space = read_space(shipped() / "search_spaces" / f"{quickstart.SPACE}.toml")
    scores = {name: entropy(space, architecture) for name, architecture in drawn.items()}
    means = {name: statistics.fmean(of[name]["judged"] for of in complete.values()) for name in drawn}
    return {
        **{kind: places(kind, drawn, complete) for kind in kinds},
        "alone": {kind: {seed: of[kind]["judged"] for seed, of in by_seed.items() if kind in of} for kind in kinds},
        "random, mean over seeds": dict(sorted(means.items(), key=lambda one: -one[1])),
        "tau of entropy": tau(scores, means),
        "tau of fitted, each network left out": tau(left_out(space, rows, kinds), means),
        "cpu_s": round(sum(one["cpu_s"] for one in rows)),
    }


def six() -> None:
    """The same of trainings of six epochs, and whether the order of networks is the same with other seeds."""
    rows = [json.loads(line) for line in SIX.read_text().splitlines()]
    top1 = {(one["name"], one["seed"]): one["judged"] for one in rows}
    random = sorted({one["name"] for one in rows} - {*FOUND_AFTER_SIX})
    means = {seeds: {name: statistics.fmean(top1[name, s] for s in seeds) for name in random} for seeds in HALVES}
    spread = [statistics.stdev(top1[name, seed] for seed in SEEDS) for name in random]
    upper = {name: sum(sum(top1[x, s] > top1[name, s] for x in random) < RANDOM / 4 for s in SEEDS) for name in random}
    between = {
        "tau of seeds 0 to 2 with 3 and 4": tau(*means.values()),
        "deviation by seed": round(statistics.fmean(spread), 4),
        "seeds with which a random network is in the upper quarter": upper,
    }
    print(json.dumps(results_of(rows, FOUND_AFTER_SIX) | between, indent=1))


def places(kind: str, drawn: dict[str, str], complete: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """By seed, how one kind of winner stands by the judge's videos, and by the few of the quickstart."""
    seeds = {seed: place(of[kind], [of[name] for name in drawn]) for seed, of in complete.items() if kind in of}
    return {"seeds": seeds, "upper quarter": sum(one["upper quarter"] for one in seeds.values())}


def place(winner: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    better = sum(one["judged"] > winner["judged"] for one in others)
    return {
        "found": winner["judged"],
        "random": sorted((one["judged"] for one in others), reverse=True),
        "better": better,
        "upper quarter": better < len(others) / 4,
        "by 128 videos": {"found": winner["top1"], "better": sum(one["top1"] > winner["top1"] for one in others)},
    }


def left_out(space: StagedSpace, rows: list[dict[str, Any]], kinds: Sequence[str]) -> dict[str, float]:
    """What the trainings that come with hwbench, those of the others, say of each random network."""
    sums, known = SpaceSums.of(space, lambda block, x: 1.0, num_classes=8), {}
    for row in rows:
        if row["name"] not in kinds and row["seed"] in LEARNED_SEEDS:
            known[row["name"], row["seed"]] = Architecture.parse(row["architecture"]), row["judged"]
    observations = tuple(ScoreObservation(*one, (), -1 - number) for number, one in enumerate(known.values()))
    model = FittedScores(sums, observations, leave_out=True)
    return {name: model.predict(architecture).mean for (name, _), (architecture, _) in known.items()}


def tau(said: dict[str, float], true: dict[str, float]) -> float:
    return round(float(kendalltau([said[name] for name in true], list(true.values()))[0]), 3)


def trained_table() -> None:
    """The trainings that come with hwbench, from rows."""
    with (shipped() / "search_spaces" / f"{quickstart.SPACE}.trained.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("architecture", "epochs", "seed", "top1", "data"))
        for path in sorted(ROWS.glob("random-*.json")):
            row = json.loads(path.read_text())
            if row["seed"] in LEARNED_SEEDS:
                top1 = round(row["judged"], 5)
                table.writerow((row["architecture"], quickstart.EPOCHS, row["seed"], top1, quickstart.DATA))


def entropy(space: StagedSpace, architecture: str) -> float:
    return Entropy(Context(0, lambda count: [])).score(space.network(Architecture.parse(architecture), 8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("draw", "found"):
        commands.add_parser(name).add_argument("--budget-ms", type=float, required=True)
    training = commands.add_parser("train")
    training.add_argument("--until", type=float, default=float("inf"), help="seconds after which no training is begun")
    for name in ("summary", "six", "table", "again"):
        commands.add_parser(name)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "draw":
        draw(given.budget_ms)
    elif given.command == "found":
        find(given.budget_ms)
    elif given.command == "train":
        train(given.until)
    else:
        {"summary": summary, "six": six, "table": trained_table, "again": again}[given.command]()


if __name__ == "__main__":
    main()
