"""How many rows a table needs, which ones, and what fills the rest. See README.md.

python experiments/015-rows-needed/run.py             # what results.json lacks, from the raw data of experiment 006
python experiments/015-rows-needed/run.py --afresh    # all of it again
python experiments/015-rows-needed/run.py tables      # the tables of README.md, from results.json
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from evaluation import HERE, Filling, Machine, held_out_errors
from networks import CLASSES, SPACE, draw, planned
from tables import print_tables

from hwbench.latency import AOptimal, ByUse, FilledRows, RandomChoice, RowChoice, macs, transferred
from hwbench.latency.gaussian import Structure
from hwbench.latency.row_models import GaussianRows, OperatorRows, RowModel, TreeRows
from hwbench.spaces import load_space
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Precision, Workload
from hwbench.workspace import Workspace

SEED, REPETITIONS = 15, 20
MACHINES = ("intel", "amd", "amd-zen4", "intel-read-once")
PRECISIONS = (Precision.FP32, Precision.INT8)
CALIBRATED = (4, 8, 20)
# Networks that rows are chosen for: drawn as those of experiment 006, none of them among these.
DRAWN, DRAWN_EACH = 400, 100
# Rows after which a choice looks at what was measured; between two of them it goes on as it saw it.
BATCHES = (100, 300, 400)
MODELS: dict[str, Callable[[Sequence[Workload]], RowModel]] = {
    "gaussian": GaussianRows,
    "operators": OperatorRows,
    "additive": lambda parts: GaussianRows(parts, Structure.ADDED),
    "trees": TreeRows,
}
# What is looked at, the most telling first: (choice, model, number of rows).
SECOND = "second precision"
CELLS = [
    ("a-optimal", "gaussian", 300),
    (SECOND, "transfer", 100),
    ("random", "gaussian", 300),
    ("a-optimal", "gaussian", 100),
    ("random", "operators", 300),
    *[(SECOND, "transfer", count) for count in (50, 25, 200)],
    *[(choice, "gaussian", count) for count in (300, 100) for choice in ("random", "by-use")],
    *[(choice, "operators", count) for count in (300, 100) for choice in ("a-optimal", "random", "by-use")],
    *[(choice, "gaussian", count) for count in (200, 50, 25, 400) for choice in ("a-optimal", "random", "by-use")],
    *[(choice, model, 300) for model in ("trees", "additive") for choice in ("random", "a-optimal", "by-use")],
    *[("random", model, count) for model in ("trees", "additive") for count in (100, 25, 50, 200, 400)],
    *[("random", "operators", count) for count in (25, 50, 200, 400)],
]
# Orders of rows of each choice; the repetitions, each with networks of its own to calibrate with, take them in turn.
ORDERS = {"random": 10, "by-use": 5, "a-optimal": 5, SECOND: 5}
OUT = HERE / "results.json"


@dataclass
class _Order:
    choice: RowChoice
    rows: list[int]


@dataclass
class Deals:
    """The repetitions of one machine and precision: networks to calibrate with, and rows in the order of a choice.

    ``other`` are those of its other precision, which is measured first where this one is the second.
    """

    machine: Machine
    drawn: list[Workload]
    other: Deals | None = None
    _orders: dict[tuple[str, int], _Order] = field(default_factory=dict)

    def networks(self, repetition: int) -> tuple[list[int], list[int]]:
        """Those to calibrate with, and those held out; the same for every cell."""
        order = self.machine.dealt(np.random.default_rng([SEED, 1, repetition]))
        return order[: CALIBRATED[-1]], order[CALIBRATED[-1] :]

    def rows(self, choice: str, number: int, count: int) -> list[int]:
        """Places of the first rows of one order of a choice; those that begin are one of each kind."""
        key = choice, number
        if key not in self._orders:
            self._orders[key] = self._order(choice, np.random.default_rng([SEED, 2, number]))
        order = self._orders[key]
        for size in BATCHES:
            if len(order.rows) < min(size, count):
                batch = order.choice.next(self.machine.table(order.rows), size - len(order.rows))
                order.rows += [self.places[part] for part in batch]
        return order.rows[:count]

    @functools.cached_property
    def places(self) -> dict[Workload, int]:
        """Of the blocks of the machine."""
        return {part: at for at, part in enumerate(self.machine.parts)}

    def _order(self, choice: str, rng: np.random.Generator) -> _Order:
        parts = [self.machine.parts[at] for at in rng.permutation(len(self.machine.parts))]
        drawn = [self.drawn[at] for at in rng.permutation(len(self.drawn))]
        first = [self.places[part] for part in {part.blocks[0].kind: part for part in parts}.values()]
        if choice == "random":
            return _Order(RandomChoice(parts, seed=int(rng.integers(1 << 30))), first)
        return _Order(ByUse(parts, drawn) if choice == "by-use" else AOptimal(parts, drawn[:DRAWN_EACH]), first)

    def filling(self, rows: Sequence[int], model: str) -> tuple[Filling, set[int]]:
        """All blocks as measured or filled, and those that are refused."""
        machine = self.machine
        fitted = FilledRows.fit(machine.table(rows), models=lambda parts: [MODELS[model](parts)])
        seconds, deviations = fitted.predict(machine.parts)
        seconds[rows], deviations[rows] = machine.seconds[rows], 0.0
        refused = {at for at, part in enumerate(machine.parts) if fitted.beyond(part)}.difference(rows)
        return Filling(seconds, deviations, fitted.common_share), refused

    def filling_second(self, number: int, count: int) -> tuple[Filling, set[int]]:
        """Likewise from 300 rows of the other precision, and so many of this one."""
        assert self.other is not None
        first = self.other.machine.table(self.other.rows("a-optimal", number, 300))
        rows = self.rows("a-optimal", number, count)
        table = transferred(first, self.machine.table(rows), self.machine.parts)
        found = [table.latency(part) for part in self.machine.parts]
        seconds = np.array([np.nan if stats is None else stats.median_s for stats in found])
        deviations = np.array([table.deviation(part) for part in self.machine.parts])
        refused = {at for at, stats in enumerate(found) if stats is None}
        return Filling(seconds, deviations, table.common_share), refused

    def evaluate(self, choice: str, model: str, count: int) -> dict[str, dict[str, float]]:
        """One cell: means over the repetitions, by number of calibration networks."""
        outcomes: dict[int, list[list[float]]] = {number: [] for number in CALIBRATED}
        for number in range(ORDERS[choice]):
            if choice == SECOND:
                filling, refused = self.filling_second(number, count)
            else:
                filling, refused = self.filling(self.rows(choice, number, count), model)
            for repetition in range(number, REPETITIONS, ORDERS[choice]):
                self._note(outcomes, repetition, filling, refused)
        return summaries(outcomes)

    def evaluate_all(self) -> dict[str, dict[str, float]]:
        """Likewise with all rows measured."""
        outcomes: dict[int, list[list[float]]] = {number: [] for number in CALIBRATED}
        filling = Filling(self.machine.seconds, np.zeros(len(self.machine.parts)), 0.0)
        for repetition in range(REPETITIONS):
            self._note(outcomes, repetition, filling, set())
        return summaries(outcomes)

    def _note(
        self, outcomes: dict[int, list[list[float]]], repetition: int, filling: Filling, refused: set[int]
    ) -> None:
        calibration, held_out = self.networks(repetition)
        known = [row for row in held_out if not refused.intersection(self.machine.places[row].tolist())]
        calibration = [row for row in calibration if not refused.intersection(self.machine.places[row].tolist())]
        for number in CALIBRATED:
            if number > len(calibration) or not known:
                continue
            errors, covered = held_out_errors(self.machine, filling, calibration[:number], known)
            shares = [float(np.mean(np.abs(errors) <= limit)) for limit in (0.05, 0.1)]
            refused_share = 1 - len(known) / len(held_out)
            outcomes[number].append([float(np.median(np.abs(errors))), *shares, float(covered.mean()), refused_share])


def summaries(outcomes: dict[int, list[list[float]]]) -> dict[str, dict[str, float]]:
    """Means over repetitions."""
    names = ("median_error", "within_5", "within_10", "coverage", "refused")
    found = {}
    for number, rows in outcomes.items():
        if rows:
            values = {name: round(float(value), 4) for name, value in zip(names, np.mean(rows, axis=0))}
            tenth, most = np.quantile([row[0] for row in rows], (0.1, 0.9))
            found[str(number)] = values | {
                "median_error_p10": round(float(tenth), 4),
                "median_error_p90": round(float(most), 4),
                "repetitions": len(rows),
            }
    return found


def drawn_networks() -> list[Workload]:
    """Networks of the space that experiment 006 does not have, drawn in the same way, in fp32."""
    space = load_space(Workspace.find(), SPACE)
    sums = SpaceSums.of(space, lambda block, x: float(macs(Workload((block,), x))), num_classes=CLASSES)
    seen = {w: None for role in planned(Precision.FP32).values() for w in role}
    return [Workload.parse(k) for k in draw(space, sums, {"": DRAWN // 5}, np.random.default_rng([SEED]), seen)[""]]


def cells(done: dict[str, object]) -> Iterator[tuple[str, tuple[str, str, int] | None]]:
    """The names of cells that are not done, with what they are; None: all rows."""
    for cell in (None, *CELLS):
        name = "all" if cell is None else " ".join(map(str, cell))
        if name not in done:
            yield name, cell


def run(machines: Sequence[str], precisions: Sequence[Precision], afresh: bool) -> None:
    """Works out what ``results.json`` lacks; it is written after every cell."""
    results: dict[str, dict[str, dict[str, object]]] = {}
    if OUT.exists() and not afresh:
        results = json.loads(OUT.read_text())
    drawn = drawn_networks()
    deals: dict[tuple[str, Precision], Deals] = {}
    # Cell by cell over all machines, so that what is there after any time tells of each of them.
    for machine in machines:
        for precision in precisions:
            results.setdefault(machine, {}).setdefault(precision.value, {})
            whole = [Workload(w.blocks, w.input, precision) for w in drawn]
            deals[machine, precision] = Deals(Machine.read(machine, precision), whole)
    for (machine, precision), of_machine in deals.items():
        (other,) = (one for one in PRECISIONS if one is not precision)
        of_machine.other = deals.get((machine, other))
    start = time.process_time()
    for name, cell in cells({}):
        for (machine, precision), of_machine in deals.items():
            done = results[machine][precision.value]
            if name in done or (cell and cell[0] == SECOND and of_machine.other is None):
                continue
            done[name] = of_machine.evaluate_all() if cell is None else of_machine.evaluate(*cell)
            OUT.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{time.process_time() - start:.0f} s: {machine} {precision} {name}: {done[name]}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="?", default="run", choices=("run", "tables"))
    options.add_argument("--machines", nargs="+", default=MACHINES, choices=MACHINES)
    options.add_argument("--precision", nargs="+", type=Precision, default=PRECISIONS, choices=PRECISIONS)
    options.add_argument("--afresh", action="store_true", help="forget what results.json has")
    given = options.parse_args()
    if given.what == "run":
        run(given.machines, given.precision, given.afresh)
    print_tables(json.loads(OUT.read_text()))


if __name__ == "__main__":
    main()
