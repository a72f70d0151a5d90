"""How far from the truth the measuring protocol is, and a naive mean, on a simulated phone; what each part gives.

python experiments/005-protocol/run.py            # 200 blocks, 20 seeds, all variants: about half an hour on one core
python experiments/005-protocol/run.py --seeds 2 --blocks 40 --variants protocol naive
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from hwbench.measure.bench import Bench
from hwbench.measure.campaign import BATCH, Campaign
from hwbench.measure.drift import Drift, Pauses
from hwbench.measure.runner import measure_sessions
from hwbench.measure.store import MeasurementStore
from hwbench.runtimes.runners import Runner
from hwbench.spaces import read_space
from hwbench.specs import Artifact, Measurement, Outcome, Precision, Session, Target, Timing, Workload
from hwbench.testing.simulated_phone import (
    BIG,
    Cost,
    PhoneBuilder,
    PhoneMachine,
    PhoneTransport,
    work_cost,
    write_simulated,
)
from hwbench.workspace import shipped

HERE = Path(__file__).resolve().parent
SENTINEL = Cost(compute_s=1.8e-3, memory_s=0.2e-3)


@dataclass(frozen=True)
class Bed:
    """The blocks of one seed, their files, and a phone of that seed."""

    workloads: tuple[Workload, ...]
    folder: Path
    seed: int
    machine: PhoneMachine = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "machine", PhoneMachine(seed=self.seed))

    @property
    def build(self) -> PhoneBuilder:
        return PhoneBuilder(self.folder)

    def bench(self, cpus: tuple[int, ...]) -> Bench:
        return Bench(PhoneTransport(self.machine), Runner("simulated", ("runner",)), 1, cpus)


Found = Mapping[Workload, float]


def median_of_medians(row: Measurement) -> float:
    return row.stats.median_s


def mean_of_means(row: Measurement) -> float:
    return statistics.fmean(statistics.fmean(s.samples_s) / s.drift for s in row.sessions)


def protocol(
    bed: Bed,
    *,
    timing: Timing | None = None,
    cpus: tuple[int, ...] = BIG[-1:],
    sentinel: bool = True,
    waiting: bool = True,
    batch: int = BATCH,
    statistic: Callable[[Measurement], float] = median_of_medians,
) -> Found:
    """What ``hwbench profile`` does, from the campaign down to the lines of the runner."""
    timing = timing or Timing()
    reference = write_simulated(bed.folder / "sentinel.simulated", SENTINEL) if sentinel else None
    measure = partial(
        measure_sessions,
        bench=bed.bench(cpus),
        timing=timing,
        sentinel=reference,
        drift=Drift(),
        pauses=Pauses(given_up=not waiting),
        wait=bed.machine.idle,
    )
    with MeasurementStore(bed.folder / "measurements.sqlite") as store:
        target, conditions = Target("phone", "simulated", "1"), {"seed": str(bed.seed), "variant": str(batch)}
        campaign = Campaign(store, target, conditions, bed.build, measure, timing=timing, batch=batch, seed=bed.seed)
        rows = campaign.run(bed.workloads).measurements
    return {row.workload: statistic(row) for row in rows if row.outcome is Outcome.OK}


def naive(bed: Bed, *, timing: Timing, dropped: int = 0, cpus: tuple[int, ...] = ()) -> Found:
    """One process and one visit per block in the order of the list; the mean of what came after the first runs."""
    bench, found = bed.bench(cpus), {}

    def keep(artifact: Artifact, session: Session) -> None:
        found[artifact.workload] = statistics.fmean(session.samples_s[dropped:])

    for artifact in bed.build(bed.workloads):
        measure_sessions([artifact], rounds=1, seed=0, on_session=keep, bench=bench, timing=timing)
    return found


RUNS = Timing(warmup_s=0.0, min_samples=110, min_session_s=0.0, max_session_s=60.0)
# The defaults of LiteRT's benchmark_model: half a second of warm-up, then 50 runs and one second.
SECOND = Timing(warmup_s=0.5, min_samples=50, min_session_s=1.0, max_session_s=60.0)
IN_ORDER = {"batch": 1}  # all sessions of a block one after another, blocks in the order of the list

VARIANTS: Mapping[str, Callable[[Bed], Found]] = {
    "protocol": protocol,
    "naive": partial(naive, timing=RUNS, dropped=10),
    "naive, pinned": partial(naive, timing=RUNS, dropped=10, cpus=BIG[-1:]),
    "naive, half a second of warm-up and a second": partial(naive, timing=SECOND),
    "protocol, mean for median": partial(protocol, statistic=mean_of_means),
    "protocol, not pinned": partial(protocol, cpus=()),
    "protocol, no warm-up": partial(protocol, timing=Timing(warmup_s=0.0)),
    "protocol, fixed order": partial(protocol, **IN_ORDER),
    "protocol, sentinel corrects, no waiting": partial(protocol, waiting=False),
    "protocol, no sentinel": partial(protocol, sentinel=False),
    "protocol, no sentinel, fixed order": partial(protocol, sentinel=False, **IN_ORDER),
    "protocol, one session": partial(protocol, timing=Timing(min_rounds=1, max_rounds=1)),
    "protocol, 3 to 6 sessions": partial(protocol, timing=Timing(min_rounds=3, max_rounds=6)),
    "protocol, batches of 24": partial(protocol, batch=24),
    "protocol, 3 to 6 sessions, batches of 24": partial(protocol, timing=Timing(min_rounds=3, max_rounds=6), batch=24),
}


def blocks(count: int) -> tuple[Workload, ...]:
    """Blocks of ``x3d-mobile``, drawn once for all seeds."""
    space = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
    parts = sorted(space.parts(Precision.FP32), key=lambda part: part.key)
    return tuple(parts[i] for i in np.random.default_rng(0).permutation(len(parts))[:count])


def run(name: str, workloads: tuple[Workload, ...], seeds: int, first: int = 0) -> dict[str, float]:
    """Errors in per cent over all blocks and seeds, and what it took."""
    errors, shifts, seconds, lost = [], [], [], 0
    for seed in range(first, first + seeds):
        with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
            bed = Bed(workloads, Path(folder), seed)
            found = VARIANTS[name](bed)
        one = [100 * (found[w] / work_cost(w).seconds - 1) for w in workloads if w in found]
        lost += len(workloads) - len(one)
        errors += one
        shifts.append(statistics.median(one))
        seconds.append(bed.machine.now_s)
    sizes = np.abs(errors)
    return {
        "median_error_percent": round(float(np.median(sizes)), 3),
        "p90_error_percent": round(float(np.quantile(sizes, 0.9)), 3),
        "p99_error_percent": round(float(np.quantile(sizes, 0.99)), 3),
        "largest_error_percent": round(float(sizes.max()), 2),
        "median_of_worst_seed_percent": round(float(np.max(np.median(sizes.reshape(seeds, -1), axis=1))), 3)
        if not lost
        else None,
        "shift_of_a_seed_percent": round(float(np.median(np.abs(shifts))), 3),
        "rows_given_up": lost,
        "phone_minutes": round(statistics.fmean(seconds) / 60, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0, help="20: phones that no rule was chosen on")
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    workloads = blocks(options.blocks)
    results = {"blocks": options.blocks, "seeds": options.seeds, "first_seed": options.first_seed, "variants": {}}
    for name in options.variants:
        results["variants"][name] = found = run(name, workloads, options.seeds, options.first_seed)
        print(f"{name:46}", *(f"{value!s:>8}" for value in found.values()), flush=True)
        options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
