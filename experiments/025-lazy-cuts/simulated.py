"""Lazy cuts on simulated devices, where every row of a space has a truth. See README.md.

python experiments/025-lazy-cuts/simulated.py     # a few minutes; writes simulated.json and prints its table
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np

from hwbench.latency import AdditivePredictor, FilledRows, LatencyRow, LatencyTable, Role
from hwbench.latency.filled import FilledTable
from hwbench.latency.row_models import GaussianRows
from hwbench.spaces import load_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Outcome, Precision, Workload
from hwbench.studies.evaluators.base import Context
from hwbench.studies.evaluators.entropy import Entropy
from hwbench.studies.latencies import space_latencies
from hwbench.studies.row_cuts import ROUNDS, ROWS, filled_rows
from hwbench.testing.tables import CLASSES, installed_target, stats_of_law, work
from hwbench.workspace import Workspace

SPACE, PRECISION, REPETITIONS = "x3d-mini", Precision.INT8, 20
# Of what blocks are off a law of work, in logarithms: what rows of real machines leave (015), and three times as much.
DEVIATIONS = (0.03, 0.1)
# As many as profile chose live in 015; networks that calibrate; optima at these shares of the budget are looked at.
COUNT, CALIBRATED, SHARES = 145, 8, (1.0, 0.9, 0.8)
OUT = Path(__file__).parent / "simulated.json"


class Law:
    """A device: each block is off the law of work by a factor of its own, and a network is the sum of its blocks."""

    def __init__(self, seed: int, deviation: float) -> None:
        self._seed, self._deviation = seed, deviation

    def __call__(self, workload: Workload) -> float:
        parts = list(workload.parts())
        if len(parts) > 1:
            return math.fsum(map(self, parts))
        words = hashlib.sha256(f"{self._seed} {workload.key}".encode()).digest()[:8]
        off = np.random.default_rng(int.from_bytes(words, "little")).normal(0.0, self._deviation)
        return work(workload) * math.exp(off)


def repetition(seed: int, deviation: float) -> list[dict[str, float]]:
    """One search for the highest entropy: at first with few rows, then with those of its optima."""
    space, law, rng = load_space(Workspace.find(), SPACE), Law(seed, deviation), np.random.default_rng(seed)
    parts = list(space.parts(PRECISION, num_classes=CLASSES))
    measured = {parts[at] for at in rng.permutation(len(parts))[:COUNT]}
    measured |= {{part.blocks[0].kind: part for part in parts}[kind] for kind in {p.blocks[0].kind for p in parts}}
    drawn = [space.network(space.random(rng), CLASSES).workload(PRECISION) for _ in range(CALIBRATED)]
    entropy = Entropy(Context(0, lambda count: []))
    scores = SpaceSums.of(space, entropy.block_score, num_classes=CLASSES)
    budget_s = float(np.quantile([law(network) for network in drawn], 0.3))
    points: list[dict[str, float]] = []
    extra = 0
    for rounds in range(ROUNDS + 1):
        rows = [
            LatencyRow(role, w, Outcome.OK, stats_of_law(law(w)), "2026-11-25")
            for role, workloads in ((Role.BLOCK, sorted(measured)), (Role.NETWORK, dict.fromkeys(drawn)))
            for w in workloads
        ]
        table = LatencyTable(installed_target(), PRECISION, rows)
        model = FilledRows.fit(table, models=lambda known: [GaussianRows(known)])
        missing = [part for part in parts if part not in measured and not model.beyond(part)]
        seconds, deviations = model.predict(missing)
        filled = FilledTable(
            table, dict(zip(missing, seconds.tolist())), model.spread, model.how,
            deviations=dict(zip(missing, deviations.tolist())), common_share=model.common_share,
        )  # fmt: skip
        predictor = AdditivePredictor.fit(filled, space=SPACE)
        feasible = FeasibleSet(space_latencies(space, predictor, PRECISION, CLASSES), budget_s)
        optima = [feasible.tightened(share).best(scores).architecture for share in SHARES]
        networks = [space.network(one, CLASSES).workload(PRECISION) for one in optima]
        predicted, true = predictor.predict(networks[0]).seconds, law(networks[0])
        points.append({"off": math.log(true / predicted), "over": true / budget_s - 1, "rows": extra})
        wanted = filled_rows(filled, networks)[: ROWS - extra]
        if not wanted or rounds == ROUNDS:
            return points
        measured.update(wanted)
        extra += len(wanted)
    return points


def main() -> None:
    """Runs all repetitions and prints a table in Markdown."""
    found = {str(d): [repetition(seed, d) for seed in range(REPETITIONS)] for d in DEVIATIONS}
    OUT.write_text(json.dumps(found) + "\n")
    print("| blocks off by | | slower than predicted | 9 in 10 at most | over the budget by 1 % | rows | rounds |")
    print("| --- " * 7 + "|")
    for deviation, runs in found.items():
        for name, at in (("without", 0), ("with", -1)):
            off = [run[at]["off"] for run in runs]
            over = np.mean([run[at]["over"] > 0.01 for run in runs])
            rounds = np.mean([len(run) - 1 for run in runs]) if at else 0.0
            print(
                f"| {float(deviation):.0%} | {name} | {np.median(off):+.1%} | {np.quantile(np.abs(off), 0.9):.1%} | "
                f"{over:.0%} | {np.mean([run[at]['rows'] for run in runs]):.0f} | {rounds:.1f} |"
            )


if __name__ == "__main__":
    main()
