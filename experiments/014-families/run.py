"""Every family at equal milliseconds: its published member, and the best of its space in three budgets. See README.md.

python experiments/014-families/run.py fastest                  # the smallest network of each space, measured
python experiments/014-families/run.py candidates x3d-mobile ... # networks/: draws at each budget, measured
python experiments/014-families/run.py train                    # rows/: short trainings, then the best of each family
python experiments/014-families/run.py together                 # together.json: all chosen ones in int8, in turn
python experiments/014-families/run.py latency                  # latency/: each network in every engine, in turn
python experiments/014-families/run.py summary                  # results.json and the tables of README.md
"""

import argparse
import atexit
import importlib.util
import json
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwbench.api.prediction import table_predictor
from hwbench.devices import load_device
from hwbench.errors import HwbenchError, InfeasibleBudget, NotMeasured
from hwbench.latency import macs
from hwbench.measure.bench import open_bench
from hwbench.measure.builder import Builder, BuildFailure
from hwbench.measure.failures import MeasurementFailure
from hwbench.measure.runner import measure_sessions
from hwbench.models import network as module_of
from hwbench.runtimes import get
from hwbench.spaces import StagedSpace, load_space, resolve
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, Artifact, LatencyStats, Network, Precision, Session, Timing, Workload
from hwbench.studies.latencies import space_latencies
from hwbench.testing.experiments import neighbour
from hwbench.testing.tables import installed_target
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
NETWORKS, ROWS, LATENCY = HERE / "networks", HERE / "rows", HERE / "latency"
FASTEST, TOGETHER, RESULTS, README = (
    HERE / "fastest.json",
    HERE / "together.json",
    HERE / "results.json",
    HERE / "README.md",
)
SPACES = tuple(f"{name}-mobile" for name in ("x3d", "r2plus1d", "squeeze", "slow", "i3d", "csn", "slowfast", "mvit"))
PUBLISHED = (
    "x3d-xs", "squeezetime-r50", "c2d-r50", "i3d-r50", "slow-r50", "r2plus1d-r50", "csn-r101", "slowfast-r50",
    "mvit-b-16x4",
)  # fmt: skip
CLASSES, DEVICE, INT8 = 48, "local", Precision.INT8
BUDGETS_MS = (2.0, 3.0, 4.0)
# How many networks of each space are drawn at a budget; of several a short training chooses.
CANDIDATES = 2
# Shares of the budget: what draws have at least by prediction, and between which a measured network stands for it.
BAND, MEASURED = 0.92, (0.88, 1.03)
# How often draws that measure elsewhere are replaced.
DRAW_ROUNDS = 4
SHORT_EPOCHS, EPOCHS, EVAL_EVERY, SEEDS = 4, 12, 4, (0, 1)
# A cell of the latency tables: engine and precision. fp16 on x86 is emulated: measured once, for the record.
FP16 = ("executorch", "fp16")
COMPILED = ("torch-compile", "fp32")
ENGINES = {
    "executorch": "ours",
    "openvino": "OpenVINO",
    "litert": "LiteRT",
    "onnx": "ONNX Runtime",
    "torch": "PyTorch",
    "torch-compile": "torch.compile",
}
TWO = tuple(
    (engine, precision) for engine in ("executorch", "openvino", "litert", "onnx") for precision in ("fp32", "int8")
)
CELLS = {
    "trained": (*TWO, ("torch", "fp32"), COMPILED, FP16),
    "outer": (*TWO, ("torch", "fp32"), COMPILED),
    "published": (*TWO, ("torch", "fp32")),
}
ROUNDS = {"trained": 5, "outer": 5, "published": 3}
TOGETHER_ROUNDS = 9
SESSION = Timing(min_samples=3, min_session_s=0.2, max_session_s=6.0, timeout_s=300.0)
# A file that takes longer to build is left out, and named.
BUILD_S = 600.0
# What ends a table of README.md that the summary writes.
END = "<!-- end -->"

truth = neighbour(HERE.parent / "018-ground-truth")


def fastest() -> None:
    """The network of each space that does the fewest multiply-adds, measured in int8: what budgets can be at all."""
    smallest = {}
    for name in SPACES:
        space = load_space(Workspace.find(), name)
        smallest[name] = space.network(work_of(space).smallest()[1], CLASSES)
    ms = measured(list(smallest.values()))
    rows = {name: {**facts(network), "ms": ms.get(network.name)} for name, network in smallest.items()}
    truth.write(FASTEST, rows)
    for name, row in rows.items():
        print(f"{name}: {row['ms']} ms, {row['gmacs']} GMAC, {row['parameters']} parameters")


def facts(network: Network) -> dict[str, Any]:
    return {
        "architecture": network.name,
        "input": network.input.key,
        "gmacs": round(1e-9 * macs(network.workload(Precision.FP32)), 4),
        "parameters": sum(p.numel() for p in module_of(network).parameters()),
    }


def candidates(name: str, budgets_ms: Sequence[float]) -> None:
    """Uniform draws from the exact set of a space that lie just within each budget, those that measure within it."""
    path, space = NETWORKS / f"{name}.json", load_space(Workspace.find(), name)
    known = json.loads(path.read_text())["budgets"] if path.is_file() else []
    sums, by = latencies_of(space)
    smallest_s, _ = sums.smallest()
    about = {"space": name, "size": space.size(), "predicted_by": by, "smallest_ms": rounded(1e3 * smallest_s)}
    ratios = [n["measured_ms"] / n["predicted_ms"] for one in known for n in (*one["networks"], *one["others"])]
    for budget_ms in budgets_ms:
        earlier = next((one for one in known if one["budget_ms"] == budget_ms), None)
        if earlier is None or 0 < len(earlier["networks"]) < CANDIDATES:
            drawn = within(sums, budget_ms, ratios, earlier or {"networks": [], "others": []})
            known = sorted([*(one for one in known if one is not earlier), drawn], key=lambda one: one["budget_ms"])
            truth.write(path, {**about, "budgets": known})


def latencies_of(space: StagedSpace) -> tuple[SpaceSums, str]:
    """What the networks of a space are predicted to take: by its table, or, where none was measured, by a law.

    The law is that a network takes as long by its multiply-adds as the fastest of its space does; measured draws
    correct it (``within``).
    """
    target = installed_target()
    try:
        predictor, _ = table_predictor(Workspace.find(), target, INT8, space.name, CLASSES)
    except NotMeasured:
        row = json.loads(FASTEST.read_text())[space.name]
        s_per_mac = 1e-12 * row["ms"] / row["gmacs"]
        return work_of(space, s_per_mac), "law"
    return space_latencies(space, predictor, INT8, CLASSES), "table"


def work_of(space: StagedSpace, s_per_mac: float = 1.0) -> SpaceSums:
    """Multiply-adds of networks; a block without any costs something, too: no sum may be zero."""
    return SpaceSums.of(
        space, lambda block, x: s_per_mac * (1.0 + macs(Workload((block,), x, INT8))), num_classes=CLASSES
    )


def measured(networks: Sequence[Network]) -> dict[str, float]:
    """Milliseconds of networks in int8 as ours, by name: the median of the session that was disturbed least."""
    names = {network.workload(INT8): network.name for network in networks}
    files: dict[str, Artifact] = {}
    for result in builder("executorch").build(names):
        if isinstance(result, BuildFailure):
            raise SystemExit(f"{names[result.workload]}: {result.reason}")
        files[names[result.workload]] = result
    sessions, _, _ = in_turn(files, "executorch", TOGETHER_ROUNDS)
    return {name: rounded(1e3 * min(one.median_s for one in taken)) for name, taken in sessions.items()}


def within(sums: SpaceSums, budget_ms: float, ratios: list[float], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """What a space has at one budget: draws that measure just within it; others are kept apart and replaced.

    Args:
        sums: What the networks of the space are predicted to take.
        budget_ms: The budget.
        ratios: Measured over predicted latencies of earlier draws of the space, by whose median draws are aimed; those
            of this call are added.
        earlier: Networks of this budget that were drawn before, those that measured within it and the others.
    """
    space, rng = sums.space, np.random.default_rng(14)
    taken, others = list(earlier["networks"]), list(earlier["others"])
    try:
        share = FeasibleSet(sums, 1e-3 * budget_ms).share()
        for _ in range(DRAW_ROUNDS):
            lacking = CANDIDATES - len(taken)
            shift = statistics.median(ratios) if ratios else 1.0
            feasible = FeasibleSet(sums, 1e-3 * budget_ms / shift)
            known = {row["architecture"] for row in (*taken, *others)}
            wanted = list(islice((one for one in near(feasible, rng) if one.key not in known), lacking))
            if not wanted:
                break
            ms = measured([space.network(one, CLASSES) for one in wanted])
            for one in [one for one in wanted if one.key in ms]:
                predicted_ms = round(1e3 * sums.total(one), 4)
                row = {"architecture": one.key, "predicted_ms": predicted_ms, "measured_ms": ms[one.key]}
                ratios.append(ms[one.key] / predicted_ms)
                fits = MEASURED[0] <= ms[one.key] / budget_ms <= MEASURED[1]
                (taken if fits else others).append(row)
    except InfeasibleBudget as error:
        if not taken:
            return {"budget_ms": budget_ms, "share": 0.0, "why": str(error), "networks": [], "others": others}
    named = [
        {
            "name": f"{space.name.removesuffix('-mobile')}-{budget_ms:g}ms-{number}",
            **facts(space.network(Architecture.parse(row["architecture"]), CLASSES)),
            **row,
        }
        for number, row in enumerate(taken)
    ]
    return {"budget_ms": budget_ms, "share": share, "networks": named, "others": others}


def near(feasible: FeasibleSet, rng: np.random.Generator, most: int = 2000) -> Iterator[Architecture]:
    """Different members in the band below the budget, as they are drawn; of so many draws at most."""
    seen: set[Architecture] = set()
    for _ in range(most):
        one = feasible.draw(rng)
        if feasible.sums.total(one) / feasible.budget_s >= BAND and one not in seen:
            seen.add(one)
            yield one


@dataclass(frozen=True)
class Training:
    """A network that is trained with the recipe, the order and the clips of 018, for so many epochs."""

    network: dict[str, Any]
    seed: int
    epochs: int

    @property
    def label(self) -> str:
        return f"{self.network['name']}-epochs{self.epochs}-seed{self.seed}"

    @property
    def row(self) -> Path:
        return ROWS / f"{self.label}.json"

    @property
    def folder(self) -> Path:
        return Workspace.find().root / "runs" / "014" / self.label

    @property
    def result(self) -> dict[str, Any] | None:
        return json.loads(self.row.read_text()) if self.row.is_file() else None


def spaces() -> list[dict[str, Any]]:
    """The spaces whose candidates are known."""
    return [json.loads(path.read_text()) for name in SPACES if (path := NETWORKS / f"{name}.json").is_file()]


def at(space: Mapping[str, Any], budget_ms: float) -> list[dict[str, Any]]:
    networks = next((one["networks"] for one in space["budgets"] if one["budget_ms"] == budget_ms), [])
    return networks[:CANDIDATES]


def short(network: dict[str, Any]) -> Training:
    return Training(network, SEEDS[0], SHORT_EPOCHS)


def best(space: Mapping[str, Any], budget_ms: float) -> dict[str, Any] | None:
    """The network of a space at a budget: of several the most accurate one, once all had the short training."""
    networks = at(space, budget_ms)
    if len(networks) < 2:
        return networks[0] if networks else None
    results = [(result, one) for one in networks if (result := short(one).result)]
    if len(results) < len(networks):
        return None
    return max(results, key=lambda pair: (pair[0]["top1"], -pair[0]["loss"]))[1]


def jobs() -> list[Training]:
    """All trainings that can be named by now."""
    drawn = [(space, budget_ms) for budget_ms in BUDGETS_MS for space in spaces()]
    first = [short(one) for space, budget_ms in drawn if len(networks := at(space, budget_ms)) > 1 for one in networks]
    chosen = [one for space, budget_ms in drawn if (one := best(space, budget_ms))]
    return first + [Training(one, seed, EPOCHS) for seed in SEEDS for one in chosen]


def train_all(device: str) -> None:
    """Trains what is named and not trained by another process, until the candidates of all spaces are trained."""
    while True:
        left = [job for job in jobs() if job.result is None]
        if not left and len(spaces()) == len(SPACES):
            return
        if not any(train_one(job, device) for job in left):
            time.sleep(5)


def train_one(job: Training, device: str) -> bool:
    """Whether it was trained here and now."""
    with truth.claimed(job.folder) as ours:
        if not ours or job.result is not None:
            return False
        recipe = replace(truth.SGD, epochs=job.epochs, seed=job.seed, eval_every=EVAL_EVERY, dropout=truth.DROPOUT)
        row = truth.trained(job, recipe, last=1, device=device)
        truth.write(job.row, row)
        print(job.label, {key: row[key] for key in ("top1", "loss", "cpu_s")}, flush=True)
        return True


def listed() -> list[tuple[str, str, dict[str, Any]]]:
    """Group, name and facts of every network that is timed; those of the smallest budget in fp16, too."""
    rows = []
    for group, budgets in (("trained", BUDGETS_MS[:1]), ("outer", BUDGETS_MS[1:])):
        rows += [
            (group, one["name"], {**one, "budget_ms": budget_ms, "space": space["space"]})
            for budget_ms in budgets
            for space in spaces()
            if (one := best(space, budget_ms))
        ]
    return rows + [("published", name, {"architecture": f"zoo:{name}"}) for name in PUBLISHED]


def latencies(groups: Sequence[str], engines: Sequence[str]) -> None:
    """Times the networks that lack an engine; those that they have are timed again, so that all are of one time."""
    for group, name, about in listed():
        path = LATENCY / f"{name}.json"
        known = json.loads(path.read_text())["cells"] if path.is_file() else {}
        cells = [cell for cell in CELLS[group] if cell[0] in engines or key(cell) in known]
        if group not in groups or all(key(cell) in known for cell in cells):
            continue
        began = time.monotonic()
        row = timed(group, name, about, cells)
        truth.write(path, row)
        numbers = ", ".join(f"{cell} {one.get('ms', 'failed')}" for cell, one in row["cells"].items())
        print(f"{name} ({time.monotonic() - began:.0f} s): {numbers}", flush=True)


def key(cell: tuple[str, str]) -> str:
    return " ".join(cell)


def timed(group: str, name: str, about: dict[str, Any], wanted: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """One network in all engines, which take turns in one process."""
    workspace = Workspace.find()
    architecture = about["architecture"]
    network = resolve(workspace, architecture, None if group == "published" else CLASSES)
    cells: dict[str, dict[str, Any]] = {}
    files: dict[str, Artifact] = {}
    for cell in wanted:
        began = time.monotonic()
        built = build(network, cell)
        cells[key(cell)] = {"build_s": round(time.monotonic() - began, 1)}
        if isinstance(built, Artifact):
            files[key(cell)] = built
        else:
            cells[key(cell)]["failed"] = built[:300]
    sessions, failures, conditions = in_turn(files, "torch", ROUNDS[group])
    for title, file in files.items():
        row, taken = cells[title], sessions[title]
        if len(taken) < ROUNDS[group]:
            whys = [f"{one.outcome}: {one.reason}" for one in failures if one.workload == file.workload]
            row["failed"] = "; ".join(whys)[:300]
        if taken:
            stats = LatencyStats.of(taken)
            row |= {"ms": rounded(1e3 * stats.median_s), "p90_ms": rounded(1e3 * stats.p90_s)}
            row |= {"rounds_ms": [rounded(1e3 * one.median_s) for one in taken], "samples": stats.num_samples}
        row |= {"version": file.version}
        if file.runtime == "executorch":
            row |= {"delegates": file.delegation.delegates, "undelegated": dict(file.delegation.undelegated)}
    result = {"name": name, "group": group, **about, **facts(network), "conditions": conditions}
    return {**result, "rounds": ROUNDS[group], "cells": cells}


def in_turn(
    files: Mapping[str, Artifact], runner: str, rounds: int
) -> tuple[dict[str, list[Session]], list[MeasurementFailure], dict[str, str]]:
    """Sessions of files by name, all in one process, in fresh random order each round; and what the machine was."""
    workspace = Workspace.find()
    device, sessions = load_device(workspace, DEVICE), defaultdict(list)
    names = {file.sha256: name for name, file in files.items()}
    with open_bench(device, runner, cache_dir=workspace.cache, threads=1, report=print) as bench:
        failures = measure_sessions(
            list(files.values()),
            rounds=rounds,
            seed=14,
            on_session=lambda file, session: sessions[names[file.sha256]].append(session),
            bench=bench,
            timing=SESSION,
        )
        return sessions, failures, {k: v for k, v in bench.conditions.items() if k in ("model", "kernel", "runner")}


def together() -> None:
    """All chosen networks in int8 as ours, in turn in one process: what is compared at one budget is of one minute."""
    workspace, files = Workspace.find(), {}
    for group, name, about in listed():
        if group != "published":
            built = build(resolve(workspace, about["architecture"], CLASSES), ("executorch", "int8"))
            if isinstance(built, str):
                raise SystemExit(f"{name}: {built}")
            files[name] = built
    sessions, failures, conditions = in_turn(files, "executorch", TOGETHER_ROUNDS)
    for failure in failures:
        print(f"{failure.workload.key[:80]}: {failure.outcome}: {failure.reason}")
    ms = {name: rounded(1e3 * LatencyStats.of(taken).median_s) for name, taken in sessions.items()}
    least = {name: rounded(1e3 * min(one.median_s for one in taken)) for name, taken in sessions.items()}
    results = {"int8_ms": ms, "int8_least_session_ms": least}
    truth.write(TOGETHER, {"conditions": conditions, "rounds": TOGETHER_ROUNDS, **results})
    for name, value in ms.items():
        print(f"{name}: {value} ms")


@cache
def builder(runtime: str) -> Builder:
    """One worker for each engine, which lives as long as this process: loading an engine takes as long as a build."""
    one = Builder(runtime, Workspace.find().cache, processes=1, time_limit_s=BUILD_S)
    atexit.register(one.close)
    return one


def build(network: Network, cell: tuple[str, str]) -> Artifact | str:
    """The file of a network in an engine, or why there is none."""
    runtime, precision = cell
    try:
        get(runtime).version()
        workload = network.workload(Precision.parse(precision))
        (result,) = builder(runtime).build([workload])
    except HwbenchError as error:
        return str(error)
    return result.reason if isinstance(result, BuildFailure) else result


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def summary() -> None:
    """results.json, and the tables of README.md between their marks."""
    networks = {path.stem: json.loads(path.read_text()) for path in sorted(LATENCY.glob("*.json"))}
    accuracy = [row for budget_ms in BUDGETS_MS for space in spaces() if (row := accuracy_of(space, budget_ms))]
    accuracy.sort(key=lambda row: (row["budget_ms"], -row["top1"]))
    by_group = {group: [networks[n] for g, n, _ in listed() if g == group and n in networks] for group in CELLS}
    ratios = {group: ratios_of(rows) for group, rows in by_group.items()}
    found = [reach(space) for space in spaces()]
    truth.write(RESULTS, {"spaces": found, "accuracy": accuracy, "of_ours": ratios})
    tables = {
        "budgets": budget_table(found),
        "accuracy": accuracy_table(accuracy),
        **{group: engine_table(rows, ratios[group]) for group, rows in by_group.items()},
    }
    text = README.read_text() if README.is_file() else ""
    for name, lines in tables.items():
        table = "\n".join(lines)
        print(f"{name}\n\n{table}\n")
        before, mark, after = text.partition(f"<!-- {name} -->\n")
        text = f"{before}{mark}{table}\n{END}{after.partition(END)[2]}" if mark else text
    if text:
        README.write_text(text)


def reach(space: Mapping[str, Any]) -> dict[str, Any]:
    """How much of a space is within each budget, and what was drawn there."""
    budgets = [
        {
            "budget_ms": one["budget_ms"],
            "share": one["share"] if space["predicted_by"] == "table" else None,
            "measured_ms": next((n["measured_ms"] for n in one["networks"]), None),
            "drawn": len(drawn := [*one["networks"], *one["others"]]),
            "measured_over_predicted": [round(n["measured_ms"] / n["predicted_ms"], 3) for n in drawn],
        }
        for one in space["budgets"]
    ]
    return {
        "space": space["space"],
        "size": space["size"],
        "predicted_by": space["predicted_by"],
        "smallest_ms": space["smallest_ms"],
        "budgets": budgets,
    }


def accuracy_of(space: Mapping[str, Any], budget_ms: float) -> dict[str, Any] | None:
    """The best network of a space at a budget, as it was trained; None before that."""
    one = best(space, budget_ms)
    rows = [row for seed in SEEDS if one and (row := Training(one, seed, EPOCHS).result)]
    if one is None or not rows:
        return None
    shorts = [(short(each).result or {}).get("top1") for each in at(space, budget_ms)]
    timed_ms = json.loads(TOGETHER.read_text())["int8_ms"].get(one["name"]) if TOGETHER.is_file() else None
    return {
        "budget_ms": budget_ms, "space": space["space"], **one, "timed_ms": timed_ms, "short_top1": shorts,
        "top1": round(statistics.fmean(row["top1"] for row in rows), 4), "seeds": [row["top1"] for row in rows],
        "loss": round(statistics.fmean(row["loss"] for row in rows), 4),
    }  # fmt: skip


def ratios_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each engine by precision: the geometric mean of ours over it, and of how many networks."""
    found = {}
    for engine in ENGINES:
        for precision in ("fp32", "int8"):
            pairs = [
                (ours["ms"], theirs["ms"])
                for row in rows
                if "ms" in (ours := row["cells"].get(f"executorch {precision}", {}))
                and "ms" in (theirs := row["cells"].get(f"{engine} {precision}", {}))
            ]
            if pairs:
                mean = math.exp(statistics.fmean(math.log(a / b) for a, b in pairs))
                found[f"{engine} {precision}"] = {"ours_over_it": round(mean, 3), "networks": len(pairs)}
    return found


def budget_table(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fastest network of each space, and what the network that stands for it measures at each budget."""
    lines = ["| space | networks | fastest, ms | " + " | ".join(f"within {b:g} ms" for b in BUDGETS_MS) + " |"]
    lines.append("| --- " * (3 + len(BUDGETS_MS)) + "|")
    for row in found:
        by_budget = {one["budget_ms"]: one for one in row["budgets"]}
        cells = " | ".join(drawn_text(by_budget.get(budget_ms), row["smallest_ms"]) for budget_ms in BUDGETS_MS)
        lines.append(f"| {row['space']} | {row['size']:.3g} | {row['smallest_ms']:.2f} | {cells} |")
    return lines


def drawn_text(budget: Mapping[str, Any] | None, smallest_ms: float) -> str:
    if budget is None:
        return "not drawn"
    if budget["measured_ms"]:
        return f"{budget['measured_ms']:.2f}"
    return "none is" if smallest_ms > budget["budget_ms"] else "no draw fits"


def accuracy_table(accuracy: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| within | space | int8, ms | clip | GMAC | parameters | top-1 | seeds | "
        f"after {SHORT_EPOCHS} epochs: it, others |",
        "| --- " * 9 + "|",
    ]
    for row in accuracy:
        kept = (short(dict(row)).result or {}).get("top1")
        others = [one for one in row["short_top1"] if one is not None and one != kept]
        early = "" if kept is None else ", ".join(f"{100 * one:.1f}" for one in [kept, *others])
        seeds, clip = ", ".join(f"{100 * one:.1f}" for one in row["seeds"]), clip_of(row)
        lines.append(
            f"| {row['budget_ms']:g} ms | {row['space']} "
            f"| {row['timed_ms'] or row['measured_ms']:.2f} | {clip} | {row['gmacs']:.3f} | "
            f"{1e-6 * row['parameters']:.2f} M | {row['top1']:.1%} | {seeds} | {early} |"
        )
    return lines


def clip_of(row: Mapping[str, Any]) -> str:
    _, _, *sides = row["input"].split("x")
    return f"{sides[0]} x {sides[1]}"


def engine_table(rows: Sequence[Mapping[str, Any]], ratios: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Milliseconds by engine and precision; the last line is ours over each, as a geometric mean."""
    columns = [
        (engine, p)
        for engine in ENGINES
        for p in ("fp32", "int8", "fp16")
        if any(f"{engine} {p}" in r["cells"] for r in rows)
    ]
    lines = ["| network | clip | GMAC | parameters | " + " | ".join(f"{ENGINES[e]} {p}" for e, p in columns) + " |"]
    lines.append("| --- " * (4 + len(columns)) + "|")
    for row in rows:
        cells = " | ".join(cell_text(row["cells"].get(key(column))) for column in columns)
        lines.append(
            f"| {row['name']} | {clip_of(row)} | {row['gmacs']:.3g} | {1e-6 * row['parameters']:.3g} M | {cells} |"
        )
    means = [ratios.get(key(column), {}).get("ours_over_it") for column in columns]
    texts = ["" if one is None or engine == "executorch" else f"{one:.2f}" for (engine, _), one in zip(columns, means)]
    return [*lines, "| ours over it | | | | " + " | ".join(texts) + " |"]


def cell_text(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    return f"{cell['ms']:.3g}" if "ms" in cell else "failed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    draws = steps.add_parser("candidates")
    draws.add_argument("spaces", choices=SPACES, nargs="+")
    draws.add_argument("--budgets", nargs="+", type=float, default=BUDGETS_MS, choices=BUDGETS_MS)
    times = steps.add_parser("latency")
    times.add_argument("--of", nargs="+", choices=list(CELLS), default=list(CELLS))
    times.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    steps.add_parser("train").add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for name in ("fastest", "together", "summary"):
        steps.add_parser(name)
    given = parser.parse_args()
    torch.set_num_threads(1)
    match given.step:
        case "fastest":
            fastest()
        case "candidates":
            for space in given.spaces:
                candidates(space, given.budgets)
        case "train":
            train_all(given.device)
        case "together":
            together()
        case "latency":
            sys.path.insert(0, str(HERE.parent / "002-deploy-latency"))
            with importlib.import_module("compiled_runtime").offered():
                latencies(given.of, given.engines)
        case "summary":
            summary()


if __name__ == "__main__":
    main()
