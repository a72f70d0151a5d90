"""How far the optimum of a table with few rows is from its prediction, with and without lazy cuts. See README.md.

python experiments/025-lazy-cuts/cuts.py            # what results.json lacks, from the raw data of experiment 006
python experiments/025-lazy-cuts/cuts.py table      # the table of README.md, from results.json
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "015-rows-needed"))

from evaluation import Machine  # noqa: E402
from networks import CLASSES, SPACE  # noqa: E402

sys.path.insert(0, str(HERE.parent / "015-rows-needed"))  # 006, which evaluation looks into, has a run of its own

from run import Deals, drawn_networks  # noqa: E402

from hwbench.latency import AdditivePredictor, FilledRows, LatencyRow, LatencyTable, Role  # noqa: E402
from hwbench.latency.filled import FilledTable  # noqa: E402
from hwbench.latency.row_models import GaussianRows  # noqa: E402
from hwbench.spaces import load_space  # noqa: E402
from hwbench.spaces.feasible import FeasibleSet  # noqa: E402
from hwbench.spaces.sums import SpaceSums  # noqa: E402
from hwbench.specs import Architecture, Outcome, Precision, Workload  # noqa: E402
from hwbench.studies.evaluators.base import Context  # noqa: E402
from hwbench.studies.evaluators.entropy import Entropy  # noqa: E402
from hwbench.studies.latencies import space_latencies  # noqa: E402
from hwbench.studies.row_cuts import ROUNDS, ROWS, filled_rows  # noqa: E402
from hwbench.workspace import Workspace  # noqa: E402

MACHINES, PRECISIONS = ("intel", "amd-zen4", "amd"), (Precision.INT8, Precision.FP32)
# Rows that profile chose, networks that calibrate, and orders of rows that the repetitions take in turn.
COUNT, CALIBRATED, ORDERS, REPETITIONS = 150, 8, 5, 20
# Optima at these shares of the budget: the networks that are measured at first.
SHARES = (1.0, 0.9, 0.8)
OUT = HERE / "results.json"


@dataclass
class Bench:
    """One machine in one precision: every row is known, so that the truth of any network made of these rows is."""

    deals: Deals
    truth: AdditivePredictor

    @classmethod
    def read(cls, name: str, precision: Precision, drawn: Sequence[Workload]) -> Bench:
        """With the truth: the sum of all measured rows, calibrated by all networks."""
        machine = Machine.read(name, precision)
        whole = cls._table(machine, range(len(machine.parts)), range(len(machine.networks)))
        networks = [Workload(network.blocks, network.input, precision) for network in drawn]
        return cls(Deals(machine, networks), AdditivePredictor.fit(whole, space=SPACE))

    @staticmethod
    def _table(machine: Machine, rows: Sequence[int], networks: Sequence[int]) -> LatencyTable:
        measured, data = machine.table(rows), machine.data
        chains = [LatencyRow(Role.CHAIN, w, Outcome.OK, s, "2026-11-21") for w, s in data.role("boundary").items()]
        stats = {w: s for (_, w), s in data.rows.items()}
        whole = [
            LatencyRow(Role.NETWORK, w, Outcome.OK, stats[w], "2026-11-21")
            for w in (machine.networks[at] for at in networks)
        ]
        return LatencyTable(measured.target, measured.precision, [*measured, *chains, *whole])

    def predictor(self, rows: Sequence[int], networks: Sequence[int]) -> AdditivePredictor:
        """What a table with these rows predicts; the other rows are filled in."""
        machine = self.deals.machine
        table = self._table(machine, sorted(rows), networks)
        fitted = FilledRows.fit(table, models=lambda parts: [GaussianRows(parts)])
        missing = [part for part in machine.parts if part not in table and not fitted.beyond(part)]
        seconds, deviations = fitted.predict(missing)
        filled = FilledTable(
            table, dict(zip(missing, seconds.tolist())), fitted.spread, fitted.how,
            deviations=dict(zip(missing, deviations.tolist())), common_share=fitted.common_share,
        )  # fmt: skip
        return AdditivePredictor.fit(filled, space=SPACE)

    def repetition(self, number: int) -> dict[str, object]:
        """One search for the highest entropy within a budget, by few rows and then by measured ones."""
        machine, precision = self.deals.machine, self.deals.machine.data.precision
        calibration, _ = self.deals.networks(number)
        rows = list(self.deals.rows("a-optimal", number % ORDERS, COUNT))
        budget_s = float(np.quantile(machine.measured_s, 0.2 + 0.6 * number / (REPETITIONS - 1)))
        all_rows = self.predictor(range(len(machine.parts)), calibration[:CALIBRATED])
        points: list[dict[str, float]] = []
        measured = 0
        for rounds in range(ROUNDS + 1):
            predictor = self.predictor(rows, calibration[:CALIBRATED])
            feasible = FeasibleSet(space_latencies(space(), predictor, precision, CLASSES), budget_s)
            optima = [feasible.tightened(share).best(scores()) for share in SHARES]
            best = optima[0].architecture
            network = workload(best, precision)
            predicted, true = predictor.predict(network), self.truth.predict(network)
            points.append(
                {
                    "off": round(math.log(true.seconds / predicted.seconds), 5),
                    "filling_off": round(math.log(all_rows.predict(network).seconds / predicted.seconds), 5),
                    "over": round(true.seconds / budget_s - 1, 5),
                    "score": round(scores().total(best), 4),
                    "measured_share": round(predicted.measured_share, 4),
                    "within_interval": float(predicted.low_s <= true.seconds <= predicted.high_s),
                    "rows": measured,
                }
            )
            wanted = filled_rows(predictor.table, [workload(one.architecture, precision) for one in optima])
            wanted = wanted[: ROWS - measured]
            if not wanted or rounds == ROUNDS:
                break
            rows += [self.deals.places[part] for part in wanted]
            measured += len(wanted)
        return {"budget_ms": round(1e3 * budget_s, 3), "rounds": points}


@functools.cache
def space():
    """x3d-mobile."""
    return load_space(Workspace.find(), SPACE)


@functools.cache
def scores() -> SpaceSums:
    """The entropy of all networks."""
    return SpaceSums.of(space(), Entropy(Context(0, lambda count: [])).block_score, num_classes=CLASSES)


def workload(architecture: Architecture, precision: Precision) -> Workload:
    """A whole network."""
    return space().network(architecture, CLASSES).workload(precision)


def run() -> None:
    """Works out what ``results.json`` lacks; it is written after every repetition."""
    results: dict[str, dict[str, list[dict[str, object]]]] = json.loads(OUT.read_text()) if OUT.exists() else {}
    drawn = drawn_networks()
    for machine in MACHINES:
        for precision in PRECISIONS:
            done = results.setdefault(machine, {}).setdefault(precision.value, [])
            bench = Bench.read(machine, precision, drawn) if len(done) < REPETITIONS else None
            while bench is not None and len(done) < REPETITIONS:
                start = time.process_time()
                done.append(bench.repetition(len(done)))
                OUT.write_text(json.dumps(results, indent=1) + "\n")
                print(f"{time.process_time() - start:.0f} s: {machine} {precision} {done[-1]}", flush=True)


def print_table() -> None:
    """Per cent, medians over the repetitions, without cuts and with them."""
    heads = "optimum slower than predicted", "9 in 10 at most", "by filling", "9 in 10 at most"
    print("| " + " | ".join(("", "", *heads, "over the budget", "in its interval", "rows", "rounds")) + " |")
    print("| --- " * 10 + "|")
    for machine, precisions in json.loads(OUT.read_text()).items():
        for precision, found in precisions.items():
            for name, at in (("without", 0), ("with", -1)):
                points = [one["rounds"][at] for one in found]
                off, filling = ([point[key] for point in points] for key in ("off", "filling_off"))
                over = np.mean([point["over"] > 0.01 for point in points])
                inside = np.mean([point["within_interval"] for point in points])
                rounds = np.mean([len(one["rounds"]) - 1 for one in found]) if at else 0
                print(
                    f"| {machine} {precision} ({len(found)}) | {name} | {np.median(off):+.1%} | "
                    f"{np.quantile(np.abs(off), 0.9):.1%} | {np.median(filling):+.1%} | "
                    f"{np.quantile(np.abs(filling), 0.9):.1%} | {over:.0%} | {inside:.0%} | "
                    f"{np.mean([point['rows'] for point in points]):.0f} | {rounds:.1f} |"
                )


if __name__ == "__main__":
    if sys.argv[1:] != ["table"]:
        run()
    print_table()
