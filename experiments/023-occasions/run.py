"""What intervals hold on real machines, and what a refresh of the scale does on simulated phones. See README.md.

python experiments/023-occasions/run.py    # from the raw data of experiment 006, and simulated; ten minutes of one core
"""

import json
import math
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "006-latency-accuracy"))

from data import Data  # noqa: E402
from networks import CALIBRATION, HELD_OUT  # noqa: E402

from hwbench.api.occasions import on_one_scale  # noqa: E402
from hwbench.latency import (  # noqa: E402
    AdditivePredictor,
    BoundaryModel,
    Calibration,
    LatencyRow,
    LatencyTable,
    Role,
    calibration_networks,
    context_chains,
    macs,
)
from hwbench.latency.anchors import anchor_rows  # noqa: E402
from hwbench.latency.calibration import Observation, Piece, family  # noqa: E402
from hwbench.latency.predictor import Position  # noqa: E402
from hwbench.measure.store_occasions import OccasionLog  # noqa: E402
from hwbench.spaces import read_space  # noqa: E402
from hwbench.specs import LatencyStats, Outcome, Precision, Target, Workload  # noqa: E402
from hwbench.specs.timing import student_t95  # noqa: E402
from hwbench.workspace import shipped  # noqa: E402

COUNTS = {4: 200, 5: 200, 8: 200, 20: 200}
PHONES, CALIBRATING, CLASSES = 60, (4, 5, 8), 8
MEASURED_ON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = MEASURED_ON + timedelta(days=1)
PHONE = Target("simulated", "executorch", "1.5.1", 1)


def observations(data: Data) -> list[Observation]:
    """Every network of a machine with its rows in context."""
    table = data.table_with({})
    boundary = BoundaryModel.fit(table.boundary_rows)
    found = []
    for network, stats in data.role(*HELD_OUT, *CALIBRATION).items():
        parts = list(network.parts())
        places = [Position.of(at, len(parts)) for at in range(len(parts))]
        alone = [table[part].median_s for part in parts]
        found.append(
            Observation(
                stats.median_s,
                tuple(
                    Piece.of(p, boundary.in_context(p, s, first=at is Position.FIRST, last=at is Position.LAST))
                    for p, s, at in zip(parts, alone, places)
                ),
            )
        )
    return found


def predicted(fit: Calibration, network: Observation) -> float:
    seconds = fit.constant_s
    for piece in network.pieces:
        counts = dict(zip(("blocks", "operators", "weights", "bytes"), piece.counts))
        seconds += fit.gains.get(piece.family, fit.gain) * piece.seconds
        seconds += sum(cost * counts[name] for name, cost in fit.terms.items())
    return seconds


def largest(fit: Calibration) -> float:
    """The interval of before: the conformal quantile of errors left out, or the largest of them."""
    rank = min(math.ceil((fit.count + 1) * 0.9), fit.count)
    return sorted(map(abs, fit.errors))[rank - 1]


def coverage(networks: list[Observation], count: int, splits: int) -> dict[str, float]:
    """Shares of the other networks that are in their intervals, over random splits."""
    rng = np.random.default_rng([count, 23])
    before, after, widths, differences = [], [], [], []
    for _ in range(splits):
        order = rng.permutation(len(networks))
        fit = Calibration.of([networks[at] for at in order[:count]])
        logs = np.array([math.log(networks[at].measured_s / predicted(fit, networks[at])) for at in order[count:]])
        before.append(np.mean(np.abs(logs) <= largest(fit)))
        after.append(np.mean(np.abs(logs) <= math.log(fit.spread)))
        widths.append((largest(fit), math.log(fit.spread)))
        # Two networks against each other: what they share cancels.
        pair = fit.uncertainty.times(2 * count / (count + 1)).spread(0.9)
        half = len(logs) // 2
        differences.append(np.mean(np.abs(logs[:half] - logs[half : 2 * half]) <= math.log(pair)))
    low, high = (np.median([w[at] for w in widths]) for at in (0, 1))
    return {
        "splits": splits,
        "before": round(float(np.mean(before)), 3),
        "before_least_of_ten": round(float(np.quantile(before, 0.1)), 3),
        "before_half_width": round(float(low), 4),
        "after": round(float(np.mean(after)), 3),
        "after_least_of_ten": round(float(np.quantile(after, 0.1)), 3),
        "after_half_width": round(float(high), 4),
        "difference": round(float(np.mean(differences)), 3),
    }


class Phone:
    """A device whose networks cost up to 6 % more or less by the families of their blocks, 0.8 % more or less each by
    themselves, and whose speed is another one on another occasion: by 3 to 10 %, either way."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 5])
        self.gains: dict[str, float] = {}
        self.own: dict[Workload, float] = {}
        self.shift = float(self.rng.choice([-1, 1]) * self.rng.uniform(0.03, 0.10))

    def seconds(self, workload: Workload) -> float:
        """On the day of the table."""
        parts = list(workload.parts())
        total = sum(self._block(part, alone=len(parts) == 1) for part in parts)
        if len(parts) > 1:
            total *= math.exp(self.own.setdefault(workload, float(self.rng.normal(0, 0.008))))
        return total

    def _block(self, part: Workload, alone: bool) -> float:
        gain = self.gains.setdefault(family(part), float(self.rng.uniform(0.94, 1.06)))
        return (1e-5 + macs(part) / 20e9) * (1.0 if alone else 1.1 * gain)

    def measured(self, workload: Workload, *, later: bool) -> LatencyStats:
        """Five sessions, each off by 0.6 %; and on each occasion half a per cent of its own."""
        true = self.seconds(workload) * math.exp((self.shift if later else 0.0) + self.rng.normal(0, 0.005))
        medians = true * np.exp(self.rng.normal(0, 0.006, 5))
        centre = float(np.median(medians))
        half = 1.253 * student_t95(4) * float(np.std(medians, ddof=1)) / math.sqrt(5)
        return LatencyStats(centre, 0.99 * centre, 1.01 * centre, centre - half, centre + half, 5, 50)


def phone(seed: int, count: int) -> dict[str, list[float]]:
    """Errors and coverage of 20 networks on another occasion: by the table as it is, and after a refresh."""
    space, device, precision = read_space(shipped() / "search_spaces" / "x3d-tiny.toml"), Phone(seed), Precision.INT8
    networks = [n.workload(precision) for n in calibration_networks(space, count, seed, CLASSES)]
    rng = np.random.default_rng([seed, 6])
    fresh = [space.network(space.random(rng), CLASSES).workload(precision) for _ in range(20)]
    needed = dict.fromkeys(part for network in (*networks, *fresh) for part in network.parts())
    groups = ((Role.BLOCK, needed), (Role.CHAIN, context_chains(list(needed))), (Role.NETWORK, networks))
    rows = {
        workload: LatencyRow(role, workload, Outcome.OK, device.measured(workload, later=False), "2026-01-31", "c")
        for role, workloads in groups
        for workload in workloads
    }
    table = published(rows, {}, (MEASURED_ON,))
    anchors = [row.workload for row in anchor_rows(table)]
    again = {w: {0: stats_of(rows[w]), 1: device.measured(w, later=True)} for w in anchors}
    latest = {w: LatencyRow(Role.NETWORK, w, Outcome.OK, both[1], "2026-02-01", "c") for w, both in again.items()}
    refreshed = published(rows | latest, again, (MEASURED_ON, LATER))
    truth = {network: device.measured(network, later=True).median_s for network in fresh}
    found = {}
    for name, known in (("without", table), ("refreshed", refreshed)):
        predictor = AdditivePredictor.fit(known, moment=LATER + timedelta(minutes=5))
        estimates = {network: predictor.predict(network) for network in fresh}
        found[f"{name}_errors"] = [abs(e.seconds / truth[n] - 1) for n, e in estimates.items()]
        found[f"{name}_covered"] = [float(e.low_s <= truth[n] <= e.high_s) for n, e in estimates.items()]
        found[f"{name}_spread"] = [predictor.spread - 1]
    scale = refreshed.scale
    assert scale is not None
    found["scale_covered"] = [float(scale.low <= math.exp(device.shift) <= scale.high)]
    return found


def stats_of(row: LatencyRow) -> LatencyStats:
    assert row.stats is not None
    return row.stats


def published(rows: dict, several: dict, ended: tuple[datetime, ...]) -> LatencyTable:
    """The table as ``hwbench profile`` publishes it, with the occasions of its store."""
    of_rows = {(workload, "b"): (1 if workload in several else 0) for workload in rows}
    log = OccasionLog(ended, of_rows, {(workload, "b"): both for workload, both in several.items()})
    one = on_one_scale({workload: (row, "b") for workload, row in rows.items()}, log, None, ())
    return LatencyTable(PHONE, Precision.INT8, one.rows, scale=one.scale)


def phones(count: int) -> dict[str, float]:
    """Over all phones; a phone's error is the median of its networks."""
    found: dict[str, list[list[float]]] = {}
    for seed in range(PHONES):
        for name, values in phone(seed, count).items():
            found.setdefault(name, []).append(values)
    result: dict[str, float] = {"phones": PHONES}
    for name in ("without", "refreshed"):
        result[f"{name}_median_error"] = round(float(np.median(np.concatenate(found[f"{name}_errors"]))), 4)
        result[f"{name}_worst_phone"] = round(max(float(np.median(e)) for e in found[f"{name}_errors"]), 4)
        result[f"{name}_coverage"] = round(float(np.mean(np.concatenate(found[f"{name}_covered"]))), 3)
        result[f"{name}_half_width"] = round(float(np.median(found[f"{name}_spread"])), 4)
    result["scale_coverage_of_95"] = round(float(np.mean(found["scale_covered"])), 3)
    return result


def main() -> None:
    """Goes on where it stopped; remove results.json to begin anew."""
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {"phones": {}, "machines": {}}

    def keep(group: str, name: str, count: int, values: dict[str, float]) -> None:
        results[group].setdefault(name, {})[str(count)] = values
        print(group, name, count, json.dumps(values), flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")

    for count in CALIBRATING:
        if str(count) not in results["phones"].get("x3d-tiny", {}):
            keep("phones", "x3d-tiny", count, phones(count))
    raw = sorted(p for p in (HERE.parent / "006-latency-accuracy").glob("*/*.csv") if p.stem in tuple(Precision))
    machines = {f"{p.parent.name} {p.stem}": observations(Data.read(p.parent, Precision(p.stem))) for p in raw}
    for count, splits in COUNTS.items():
        for name, networks in machines.items():
            if str(count) not in results["machines"].get(name, {}):
                keep("machines", name, count, coverage(networks, count, splits))


if __name__ == "__main__":
    main()
