"""What a whole short training says, beside as many epochs of a long one. See README.md.

python experiments/018-ground-truth/short.py train     # short/: 48 networks, six epochs each; half an hour on two
                                                       # cores with two processes
python experiments/018-ground-truth/short.py summary   # short.json, in seconds

Both have the same data, order, seed and dropout; the learning rate of the short one falls to zero. Each is held against
the mean top-1 of the other trainings of the network.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from run import DROPOUT, LAST, SGD, Job, claimed, trained, write

from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.ranking import rank_correlation, regret
from hwbench.workspace import Workspace, write_text

HERE = Path(__file__).resolve().parent
ROWS, RESULTS = HERE / "short", HERE / "short.json"
EPOCHS, RESAMPLES = 6, 4000


@dataclass(frozen=True)
class ShortJob(Job):
    """A network to train for six epochs, with a row and a folder of its own."""

    @property
    def row(self) -> Path:
        return ROWS / f"{self.name}.json"

    @property
    def folder(self) -> Path:
        return Workspace.find().root / "runs" / "018-short" / self.name


def train_all() -> None:
    for one in GroundTruth.read(HERE).judged:
        job = ShortJob({"name": one.name, "band": one.band, "architecture": one.architecture}, 0)
        with claimed(job.folder) as ours:
            if ours and not job.row.exists():
                row = trained(job, replace(SGD, epochs=EPOCHS, seed=job.seed, dropout=DROPOUT), last=1)
                write(job.row, row)
                print(job.name, row["top1"], row["cpu_s"], flush=True)


def summary() -> None:
    """Kendall's tau and regret within bands, and the difference of both kinds of score, over networks drawn again."""
    found: list[dict[str, Any]] = []
    for one in GroundTruth.read(HERE).judged:
        path = ROWS / f"{one.name}-seed0.json"
        first, *others = one.trainings
        if path.is_file():
            scores = {"whole, top-1": json.loads(path.read_text())["top1"]}
            scores["beginning, top-1"] = first.curve[EPOCHS - 1]
            scores["beginning, mean of three"] = fmean(first.curve[EPOCHS - LAST : EPOCHS])
            scores["twelve epochs, top-1"] = first.top1
            found.append({"band": one.band, "truth": fmean(t.top1 for t in others), **scores})
    names = [name for name in found[0] if name not in ("band", "truth")]
    rng, taus = np.random.default_rng(18), {name: [] for name in names}
    for _ in range(RESAMPLES):
        drawn = [found[place] for place in rng.integers(len(found), size=len(found))]
        for name in names:
            taus[name].append(tau(drawn, name))
    result: dict[str, Any] = {"networks": len(found)}
    for name in names:
        apart = np.array(taus["whole, top-1"]) - np.array(taus[name])
        values = [one[name] for one in found]
        result[name] = {
            "tau": round(tau(found, name), 3),
            "interval": np.quantile(taus[name], (0.025, 0.975)).round(3).tolist(),
            "whole better by": np.quantile(apart, (0.025, 0.5, 0.975)).round(3).tolist(),
            "regret": round(regret(values, [one["truth"] for one in found], [one["band"] for one in found]), 4),
        }
        print(f"{name:25}", result[name])
    result["beginning, top-1 of each training"] = beginnings()
    print("beginning, top-1 of each training", result["beginning, top-1 of each training"])
    write_text(RESULTS, json.dumps(result, indent=1) + "\n")


def beginnings() -> dict[str, list[float]]:
    """Tau after each epoch of a long training, against the mean of the network's others; one for each training."""
    judged = GroundTruth.read(HERE).judged
    found: dict[str, list[float]] = {}
    for epoch in range(2, EPOCHS * 2 + 1, 2):
        found[f"{epoch} epochs"] = []
        for place in range(min(len(one.trainings) for one in judged)):
            rows = [
                {
                    "band": one.band,
                    "score": one.trainings[place].curve[epoch - 1],
                    "truth": fmean(t.top1 for other, t in enumerate(one.trainings) if other != place),
                }
                for one in judged
            ]
            found[f"{epoch} epochs"].append(round(tau(rows, "score"), 3))
    return found


def tau(rows: list[dict[str, Any]], name: str) -> float:
    return rank_correlation([r[name] for r in rows], [r["truth"] for r in rows], [r["band"] for r in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("train", "summary"))
    torch.set_num_threads(1)
    {"train": train_all, "summary": summary}[parser.parse_args().command]()


if __name__ == "__main__":
    main()
