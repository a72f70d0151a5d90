"""What two short loops between the samples are worth on this machine. See README.md.

python experiments/013-probe/run.py [--blocks 24] [--rounds 12]
"""

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np

from hwbench.devices import load_device
from hwbench.measure.bench import open_bench
from hwbench.measure.builder import Builder, BuildFailure
from hwbench.measure.drift import CROWDED, Drift, by_clock, clock_sensitivity
from hwbench.measure.runner import measure_sessions
from hwbench.spaces import load_space
from hwbench.specs import Artifact, Precision, Session, Timing
from hwbench.workspace import Workspace

SPACE, SEED = "x3d-mobile", 13
TIMING = Timing(warmup_s=0.02, min_session_s=0.05)


def spread(values: list[float]) -> float:
    """Standard deviation over mean."""
    return statistics.stdev(values) / statistics.fmean(values)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--blocks", type=int, default=24)
    options.add_argument("--rounds", type=int, default=12)
    given = options.parse_args()
    workspace = Workspace.find()
    parts = list(load_space(workspace, SPACE).parts(Precision.FP32, num_classes=400))
    drawn = [parts[at] for at in np.random.default_rng(SEED).choice(len(parts), given.blocks, replace=False)]
    with Builder("executorch", workspace.cache) as builder:
        built = [one for one in builder.build(drawn) if not isinstance(one, BuildFailure)]
    sessions: dict[bool, dict[str, list[Session]]] = {False: {}, True: {}}
    drift = Drift()
    with open_bench(load_device(workspace, "local"), "executorch", cache_dir=workspace.cache, report=print) as bench:
        for turn in range(given.rounds):
            for probe in (turn % 2 == 0, turn % 2 == 1):

                def keep(artifact: Artifact, session: Session, probe: bool = probe) -> None:
                    sessions[probe].setdefault(artifact.workload.key, []).append(session)

                one = replace(bench, probe=probe)
                failed = measure_sessions(
                    built,
                    rounds=1,
                    seed=turn,
                    on_session=keep,
                    bench=one,
                    timing=TIMING,
                    drift=drift if probe else None,
                )
                assert not failed, failed
    crowded = [
        s for row in sessions[True].values() for s in row if s.crowding > CROWDED * drift.undisturbed.crowding.known
    ]
    follow = clock_sensitivity(sessions[True].values())
    medians = {
        "no probe": {key: [statistics.median(s.samples_s) for s in row] for key, row in sessions[False].items()},
        "waiting for a quiet core": {
            key: [statistics.median(s.samples_s) for s in row] for key, row in sessions[True].items()
        },
        "and corrected by the clock": {key: [s.median_s for s in row] for key, row in sessions[True].items()},
        "corrected as far as they follow it": {
            key: [statistics.median(s.samples_s) / by_clock(s.probe_s, drift.clock_s, follow) for s in row]
            for key, row in sessions[True].items()
        },
    }
    results: dict[str, object] = {
        "blocks": len(built),
        "rounds": given.rounds,
        "clock_sensitivity": round(follow, 3),
        "sessions_crowded": len(crowded),
        "samples_disturbed": sum(s.disturbed for row in sessions[True].values() for s in row),
        "samples_kept": sum(len(s.samples_s) for row in sessions[True].values() for s in row),
        "clock_range": [
            round(q, 3) for q in np.quantile([s.drift for r in sessions[True].values() for s in r], (0, 1))
        ],
    }
    best = {key: min(min(medians[name][key]) for name in list(medians)[:2]) for key in medians["no probe"]}
    for name, rows in medians.items():
        found = sorted(spread(row) for row in rows.values())
        above = [statistics.median(row) / best[key] - 1 for key, row in rows.items()]
        results[name] = {
            "spread_median": round(statistics.median(found), 4),
            "spread_p90": round(found[int(0.9 * len(found))], 4),
            "above_fastest": round(statistics.median(above), 4),  # of a row's raw sessions, with or without the probe
        }
        print(f"{name}: sessions differ by {results[name]}")
    Path(__file__).with_name("results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
