"""The network of a search against others of the same measured latency. See README.md.

python experiments/019-equal-ms/run.py shapes                    # shapes.json: X3D's shapes, each measured
python experiments/019-equal-ms/run.py choose SEARCH.json ...    # networks.json: what is compared at each budget
python experiments/019-equal-ms/run.py train --part 0/2          # rows/: each network with three seeds, one thread
python experiments/019-equal-ms/run.py summary                   # results.json, and a table on the screen
python experiments/019-equal-ms/run.py guess                     # guess.json: winners beside the best of k random ones
python experiments/019-equal-ms/run.py together                  # together.json: those in int8, in turn
python experiments/019-equal-ms/run.py cost                      # machine time of 018, 019 and 020
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwbench.api.prediction import measuring
from hwbench.specs import Outcome, Precision
from hwbench.testing.experiments import neighbour
from hwbench.testing.tables import installed_target
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
ROWS, NETWORKS, SHAPES = HERE / "rows", HERE / "networks.json", HERE / "shapes.json"
RESULTS, GUESS, TOGETHER = HERE / "results.json", HERE / "guess.json", HERE / "together.json"
SEEDS = (0, 1, 2)
# X3D's depths 1, 2, 5, 3 as they are, and times a depth factor of a half.
DEPTHS = ((1, 2, 5, 3), (1, 1, 3, 2))
# The larger budget of each precision.
LARGEST_MS = {Precision.INT8: 0.22, Precision.FP32: 0.3}
# A network is on a budget when its measured latency is at most this much above: what two measurements differ by.
TOLERANCE = 0.02
RESAMPLES = 4000
# What the studies cost, in whole trainings: 24 and 17 short ones at one half, and the races; for one budget of two.
SEARCH_TRAININGS = {"int8": 10, "fp32": 9}
# The trainings of studies are in no row: their number, times what a training of 018 takes.
STUDY_TRAININGS = 20 + 17 + 3 + 2 * 20 + 2 * 14
# Studies of other seeds (AGAIN-K-int8.json), on a machine that takes 1.74 times as long for the networks of 018: their
# budgets, and those that they stand for.
AGAIN = {0.278: 0.16, 0.389: 0.22}
# Their roles: whole studies, and the same with twice the trials (MORE-K-int8.json).
OTHER_SEEDS = ("again", "more")

truth = neighbour(HERE.parent / "018-ground-truth")


@dataclass(frozen=True)
class Training:
    """A network trained as those of 018 are; where 018 has it with the seed, that row counts."""

    network: dict[str, Any]
    seed: int

    @property
    def row(self) -> Path:
        return ROWS / f"{self.network['name']}-seed{self.seed}.json"

    @property
    def folder(self) -> Path:
        return Workspace.find().root / "runs" / "019" / f"{self.network['name']}-seed{self.seed}"

    @property
    def result(self) -> dict[str, Any] | None:
        earlier = truth.ROWS / self.row.name
        found = next((path for path in (self.row, earlier) if path.is_file()), None)
        return None if found is None else json.loads(found.read_text())


def shapes() -> None:
    """Latencies of X3D's shapes: of each clip and depth from the narrowest to the first one over the largest budget."""
    found: dict[str, dict[str, float]] = {}
    for precision, largest_ms in LARGEST_MS.items():
        ms = found[precision.value] = {}
        growing = [(clip, depth) for clip in truth.CLIPS for depth in DEPTHS]
        for width in reversed(truth.WIDTHS):
            keys = {one: truth.shape(*one, width) for one in growing}
            ms |= truth.measured([truth.network_of(key) for key in keys.values()], precision)
            growing = [one for one, key in keys.items() if ms.get(key, np.inf) <= largest_ms]
    truth.write(SHAPES, found)


def choose(searches: Sequence[Path]) -> None:
    """At each budget of each search: its winner, X3D's shapes, the largest entropy and 018's random networks."""
    random_ms = json.loads((truth.HERE / "latency.json").read_text())
    pool = {n["architecture"]: n["name"] for n in json.loads(truth.NETWORKS.read_text())["networks"]}
    shape_ms = json.loads(SHAPES.read_text()) if SHAPES.is_file() else {}
    budgets = []
    for path in searches:
        told = json.loads(path.read_text())
        precision = "fp32" if "fp32" in path.name else "int8"
        role = next((role for role in ("entropy", "fitted") if role in path.name), "search")
        if path.name.startswith(OTHER_SEEDS):
            role = path.stem.rpartition("-")[0]
        for point in told["front"]:
            budget = AGAIN[point["budget_ms"]] if role.startswith(OTHER_SEEDS) else point["budget_ms"]
            budgets.append((precision, budget, role, point["best"]["architecture"]))
    rows = []
    for precision, budget, role, architecture in budgets:
        label = f"{precision}-{budget:g}"
        rows.append({"at": label, "role": role, "architecture": architecture})
        if role == "search":
            limit = budget * (1 + TOLERANCE)
            rows += [
                {"at": label, "role": "x3d", "architecture": a} for a in widest(shape_ms.get(precision, {}), limit)
            ]
            fits = [a for a, ms in random_ms[precision].items() if 0.85 * budget <= ms <= limit and a in pool]
            rows += [{"at": label, "role": "random", "architecture": a} for a in fits]
    names = dict(pool)
    for row in rows:
        number = sum(name.startswith(f"{row['role']}-{row['at']}") for name in names.values())
        row["name"] = names.setdefault(row["architecture"], f"{row['role']}-{row['at']}-{number}")
    truth.write(NETWORKS, {"seeds": list(SEEDS), "networks": rows})


def widest(ms: dict[str, float], limit: float) -> Iterator[str]:
    """Of each clip and depth the widest of X3D's shapes within the limit."""
    for clip in truth.CLIPS:
        for depth in DEPTHS:
            fitting = [a for a in (truth.shape(clip, depth, w) for w in truth.WIDTHS) if ms.get(a, np.inf) <= limit]
            if fitting:
                yield fitting[0]


def trainings(role: str, seeds: Sequence[int]) -> list[Training]:
    networks = {n["name"]: n for n in json.loads(NETWORKS.read_text())["networks"] if n["role"] == role}
    return [
        Training({"name": n["name"], "architecture": n["architecture"]}, s) for s in seeds for n in networks.values()
    ]


def jobs() -> list[Training]:
    """Winners first. Of X3D's shapes and the random networks the best by the first seed get the others."""
    roles = {n["role"] for n in json.loads(NETWORKS.read_text())["networks"]}
    first = trainings("search", SEEDS) + best_of_first_seed("random")
    first += [one for role in sorted(roles) if role.startswith(OTHER_SEEDS) for one in trainings(role, SEEDS)]
    first += trainings("entropy", SEEDS[:1]) + trainings("x3d", SEEDS[:1])
    return first + best_of_first_seed("x3d") + trainings("entropy", SEEDS[1:])


def best_of_first_seed(role: str) -> list[Training]:
    """The further trainings of the best network of a role at each budget, by its first training."""
    listed = [n for n in json.loads(NETWORKS.read_text())["networks"] if n["role"] == role]
    again: dict[str, Training] = {}
    for at in dict.fromkeys(n["at"] for n in listed):
        here = [Training({"name": n["name"], "architecture": n["architecture"]}, 0) for n in listed if n["at"] == at]
        done = [(one.result["top1"], one) for one in here if one.result is not None]
        if len(done) == len(here) and done:
            best = max(done, key=lambda pair: pair[0])[1]
            again |= {f"{best.network['name']}-{seed}": Training(best.network, seed) for seed in SEEDS[1:]}
    return list(again.values())


def train_all(part: str) -> None:
    number, count = (int(word) for word in part.split("/"))
    seen: set[Path] = set()
    while left := [job for job in jobs() if job.result is None and job.row not in seen]:
        job = left[min(number, len(left) - 1)]
        seen.add(job.row)
        if count > 1 and not claim(job):
            continue
        row = truth.trained(job)
        truth.write(job.row, row)
        print(job.row.stem, {k: row[k] for k in ("top1", "loss", "cpu_s")}, flush=True)


def claim(job: Training) -> bool:
    """Whether this process is the first to take it: the folder of its run is made once."""
    try:
        job.folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def measured_ms(searches: Sequence[Path]) -> dict[str, dict[str, float]]:
    """By precision, the measured latency of all networks that are compared; the searches measured their own."""
    found = {p: {**json.loads((truth.HERE / "latency.json").read_text())[p]} for p in ("int8", "fp32")}
    for precision, ms in json.loads(SHAPES.read_text()).items():
        found[precision] |= ms
    for path in searches:
        for point in () if path.name.startswith(OTHER_SEEDS) else json.loads(path.read_text())["front"]:
            best = point["best"]
            found["fp32" if "fp32" in path.name else "int8"][best["architecture"]] = round(
                *best["measured_ms"].values(), 4
            )
    return found


def summary() -> None:
    """Top-1 over seeds by role, and what the search is better by, resampled over videos and seeds."""
    rows = json.loads(NETWORKS.read_text())["networks"]
    ms = measured_ms(sorted(HERE.glob("*-*.json")))
    results = []
    for at in dict.fromkeys(row["at"] for row in rows):
        here = [row for row in rows if row["at"] == at]
        times = ms[at.partition("-")[0]]
        winner = next(row for row in here if row["role"] == "search")
        for role in ("search", "again-1", "again-2", "more-1", "more-2", "fitted", "x3d", "random", "entropy"):
            named = [row for row in here if row["role"] == role and taken(row)]
            if not named:
                continue
            best = best_of(here, role)
            result = {
                "at": at,
                "role": role,
                "of": len(named),
                "name": best["name"],
                "ms": times.get(best["architecture"]),
            }
            result |= {"architecture": best["architecture"], "top1": round(mean_top1(best, SEEDS), 4)}
            result["seeds"] = [one["top1"] for one in taken(best)]
            result["mean_of_all"] = round(statistics.fmean(mean_top1(row, SEEDS[:1]) for row in named), 4)
            if role != "search":
                result["search_better_by"] = [round(x, 4) for x in difference([winner], best)]
            if role.startswith(OTHER_SEEDS):
                others = {one: best_of(here, one) for one in ("x3d", "random", "entropy")}
                result["better_than"] = {one: [round(x, 4) for x in difference([best], o)] for one, o in others.items()}
            results.append(result)
    truth.write(RESULTS, results)
    for at in dict.fromkeys(row["at"] for row in rows):
        here = [row for row in rows if row["at"] == at]
        studies = [n for n in here if n["role"].startswith(("search", "again")) and len(taken(n)) == len(SEEDS)]
        if len(studies) > 1:
            for role in ("x3d", "random", "entropy"):
                by = difference(studies, best_of(here, role))
                print(f"{len(studies)} studies at {at}, over {role}: {by[0]:+.1%} ({by[1]:+.1%} to {by[2]:+.1%})")
    for r in results:
        better = "" if r["role"] == "search" else "{:+.1%} ({:+.1%} to {:+.1%})".format(*r["search_better_by"])
        ms_text = f"{r['ms']:.3f}" if r["ms"] else ""
        print(f"| {r['at']} | {r['role']} of {r['of']} | {ms_text} | {r['top1']:.1%} | {len(r['seeds'])} | {better} |")


def guess() -> None:
    """Top-1 of the best of k random networks within each budget, by its first training, beside that of the winners.

    Means over all draws of k of the networks of 018 that fit. ``first`` is the top-1 of the training that they are
    chosen by, which favours them; ``again`` that of their other trainings, over the draws whose best has any.
    """
    names = json.loads(NETWORKS.read_text())["networks"]
    results = []
    for at in dict.fromkeys(row["at"] for row in names):
        precision, _, budget = at.partition("-")
        winners = [n for n in names if n["at"] == at and n["role"].startswith(("search", "again")) and taken(n)]
        studies = [mean_top1(one, SEEDS) for one in winners]
        found = [top1 for name in fitting(precision, float(budget)) if 0 in (top1 := all_top1(name))]
        found.sort(key=lambda top1: top1[0], reverse=True)
        again = [statistics.fmean(t for seed, t in top1.items() if seed) if len(top1) > 1 else None for top1 in found]
        best = max(statistics.fmean(top1.values()) for top1 in found if len(top1) > 1)
        result = {"at": at, "studies": [round(one, 4) for one in studies], "networks": len(found)}
        result |= {"mean": round(statistics.fmean(studies), 4), "regret": round(best - statistics.fmean(studies), 4)}
        cost = SEARCH_TRAININGS[precision]
        for k in sorted({cost, min(3 * cost, len(found))}):
            share = [math.comb(len(found) - 1 - place, k - 1) / math.comb(len(found), k) for place in range(len(found))]
            known = [(p, mean) for p, mean in zip(share, again, strict=True) if mean is not None]
            result[f"best_of_{k}"] = {
                "first": round(sum(p * top1[0] for p, top1 in zip(share, found, strict=True)), 4),
                "again": round(sum(p * mean for p, mean in known) / sum(p for p, _ in known), 4),
            }
        results.append(result)
        print(result)
    truth.write(GUESS, results)


def fitting(precision: str, budget_ms: float) -> list[str]:
    """Random networks of 018 at 85 to 102 % of a budget.

    The first 48 are measured. In int8 the later ones count by their prediction times what the first measured of it.
    """
    drawn = json.loads(truth.NETWORKS.read_text())["networks"]
    ms = json.loads((truth.HERE / "latency.json").read_text())[precision]
    scale = statistics.median(ms[n["architecture"]] / n["predicted_ms"] for n in drawn if n["architecture"] in ms)
    if precision == "int8":
        ms = {n["architecture"]: n["predicted_ms"] * scale for n in drawn} | ms
    low, high = 0.85 * budget_ms, (1 + TOLERANCE) * budget_ms
    return [n["name"] for n in drawn if low <= ms.get(n["architecture"], math.inf) <= high]


def all_top1(name: str) -> dict[int, float]:
    """Top-1 of all trainings of a random network, by seed."""
    folders = (truth.ROWS, ROWS)
    rows = [json.loads(path.read_text()) for folder in folders for path in folder.glob(f"{name}-seed*.json")]
    return {row["seed"]: row["top1"] for row in rows}


def cost() -> None:
    """Processor hours of 018 to 020; on two cores, two trainings side by side, it is half of them."""
    rows = [json.loads(path.read_text()) for folder in (truth.ROWS, ROWS) for path in folder.glob("*.json")]
    cpu_s = [row["cpu_s"] for row in rows if not row.get("gpu")]
    short = [json.loads(path.read_text())["cpu_s"] for path in (truth.HERE / "short").glob("*.json")]
    samplers = (HERE.parent / "020-samplers" / "rows").glob("*.json")
    hours = {
        "trainings on processors": sum(cpu_s) / 3600,
        "short ones of 018": sum(short) / 3600,
        "studies of 019": STUDY_TRAININGS * statistics.fmean(cpu_s) / 3600,
        "samplers of 020": sum(run["seconds"] for path in samplers for run in json.loads(path.read_text())) / 3600,
    }
    for name, value in (hours | {"all": sum(hours.values())}).items():
        print(f"{name}: {value:.1f} h")
    print(f"and {len(rows) - len(cpu_s)} trainings of 018 on a GPU")


def best_of(here: Sequence[dict[str, Any]], role: str) -> dict[str, Any]:
    """The network that stands for a role at a budget: the best of them by its first training."""
    return max((n for n in here if n["role"] == role and taken(n)), key=lambda row: mean_top1(row, SEEDS[:1]))


def together() -> None:
    """together.json: what is compared at the budgets in int8, timed in turn on the machine of today."""
    workspace, names = Workspace.find(), {}
    listed = json.loads(NETWORKS.read_text())["networks"]
    for row in listed:
        here = [n for n in listed if n["at"] == row["at"]]
        if row["at"].startswith("int8") and taken(row) and row == best_of(here, row["role"]):
            names[truth.network_of(row["architecture"]).workload(Precision.INT8)] = row["name"]
    measure = measuring(workspace, installed_target(), "executorch", keep=())
    found = {names[row.workload]: row for row in measure(list(names)) if row.outcome is Outcome.OK}
    truth.write(TOGETHER, {name: round(1e3 * found[name].stats.median_s, 4) for name in sorted(found)})


def taken(row: dict[str, Any]) -> list[dict[str, Any]]:
    named = {"name": row["name"], "architecture": row["architecture"]}
    return [result for seed in SEEDS if (result := Training(named, seed).result) is not None]


def mean_top1(row: dict[str, Any], seeds: Sequence[int]) -> float:
    return statistics.fmean(one["top1"] for one in taken(row) if one["seed"] in seeds)


def difference(winners: Sequence[dict[str, Any]], other: dict[str, Any]) -> tuple[float, float, float]:
    """Top-1 of the winners less the other's, and a 95 % interval."""
    return apart([hits(one) for one in winners], hits(other))


def apart(ours: Sequence[np.ndarray], theirs: np.ndarray) -> tuple[float, float, float]:
    """Mean of the hits of studies less those of a network, shape (seeds, videos) each, and a 95 % interval.

    Studies, videos and all seeds are drawn again.
    """
    rng = np.random.default_rng(19)
    draws = np.empty(RESAMPLES)
    for number in range(RESAMPLES):
        videos = rng.integers(theirs.shape[1], size=theirs.shape[1])
        chosen = [ours[one] for one in rng.integers(len(ours), size=len(ours))] if len(ours) > 1 else ours
        a = np.mean([one[rng.integers(len(one), size=len(one))][:, videos].mean() for one in chosen])
        draws[number] = a - theirs[rng.integers(len(theirs), size=len(theirs))][:, videos].mean()
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(np.mean([one.mean() for one in ours]) - theirs.mean()), float(low), float(high)


def hits(row: dict[str, Any]) -> np.ndarray:
    """Share of the last evaluations in which each video was right: (seeds, videos)."""
    return np.array([[int(digit) for digit in one["hits"]] for one in taken(row)]) / truth.LAST


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("choose").add_argument(
        "searches", type=Path, nargs="+", help="what `hwbench search --json` said"
    )
    commands.add_parser("train").add_argument("--part", default="0/1", help="K/N: the K-th of N processes, from 0")
    for name in ("shapes", "summary", "guess", "together", "cost"):
        commands.add_parser(name)
    given = parser.parse_args()
    torch.set_num_threads(1)
    {
        "shapes": shapes,
        "choose": lambda: choose(given.searches),
        "train": lambda: train_all(given.part),
        "summary": summary,
        "guess": guess,
        "together": together,
        "cost": cost,
    }[given.command]()


if __name__ == "__main__":
    main()
