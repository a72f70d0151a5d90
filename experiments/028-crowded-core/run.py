"""What a session says of a network while others use its core, by the clock and by processor time. See README.md.

python experiments/028-crowded-core/run.py          # results.json, in three minutes on a core that is free otherwise
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hwbench.devices import load_device
from hwbench.measure.bench import open_bench
from hwbench.measure.builder import Builder
from hwbench.measure.quality import doubt
from hwbench.measure.runner import measure_sessions
from hwbench.spaces import load_space
from hwbench.specs import Artifact, Precision, Session, Timing, Workload
from hwbench.workspace import Workspace

OUT = Path(__file__).with_name("results.json")
DEVICE, RUNTIME, SPACE, CLASSES = "local", "executorch", "x3d-tiny", 8
NETWORKS, ROUNDS = 6, 5
# Busy programs on each core that may be used.
OTHERS = (0, 1, 2)


def networks(builder: Builder, workspace: Workspace) -> list[Artifact]:
    """Uniform draws of the space in fp32 and int8."""
    space, rng = load_space(workspace, SPACE), np.random.default_rng(28)
    drawn = [space.network(space.random(rng), CLASSES) for _ in range(NETWORKS)]
    wanted = [one.workload(precision) for one in drawn for precision in (Precision.FP32, Precision.INT8)]
    return [one for one in builder.build(wanted) if isinstance(one, Artifact)]


@contextlib.contextmanager
def busy(others: int) -> Iterator[None]:
    """So many programs on each core that compute all the time."""
    words = ["taskset", "-c", "{}", sys.executable, "-c", "while True: sum(range(10000))"]
    cores = [core for core in sorted(os.sched_getaffinity(0)) for _ in range(others)]
    running = [subprocess.Popen([word.format(core) for word in words]) for core in cores]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def measured(workspace: Workspace) -> dict[int, dict[Workload, list[Session]]]:
    """Sessions of each network beside so many others; the numbers of others take turns."""
    found: dict[int, dict[Workload, list[Session]]] = {others: {} for others in OTHERS}
    device = load_device(workspace, DEVICE)
    with (
        Builder(RUNTIME, workspace.cache) as builder,
        open_bench(device, RUNTIME, cache_dir=workspace.cache, threads=1) as bench,
    ):
        artifacts = networks(builder, workspace)
        for turn in range(ROUNDS):
            for others in OTHERS:

                def keep(artifact: Artifact, session: Session, others: int = others) -> None:
                    found[others].setdefault(artifact.workload, []).append(session)

                with busy(others):
                    measure_sessions(artifacts, rounds=1, seed=turn, on_session=keep, bench=bench, timing=Timing())
    return found


def summary(found: dict[int, dict[Workload, list[Session]]]) -> list[dict[str, object]]:
    """By network and number of others: medians of sessions in ms, and how many of them were doubted."""
    rows = []
    for workload in found[0]:
        quiet = statistics.median(one.median_s for one in found[0][workload])
        for others, by_workload in found.items():
            sessions = by_workload.get(workload, [])
            clock = statistics.median(one.median_s for one in sessions)
            processor = statistics.median(one.on_the_processor().median_s for one in sessions)
            rows.append(
                {
                    "network": workload.key,
                    "others": others,
                    "clock_ms": round(1e3 * clock, 4),
                    "processor_ms": round(1e3 * processor, 4),
                    "clock_of_quiet": round(clock / quiet, 4),
                    "processor_of_quiet": round(processor / quiet, 4),
                    "sessions": len(sessions),
                    "doubted": sum(bool(doubt(one)) for one in sessions),
                }
            )
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=OUT)
    given = options.parse_args()
    rows = summary(measured(Workspace.find()))
    given.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    for others in OTHERS:
        some = [row for row in rows if row["others"] == others]
        for how in ("clock", "processor"):
            ratios = sorted(float(str(row[f"{how}_of_quiet"])) for row in some)
            middle = statistics.median(ratios)
            print(f"{others} others on each core, by {how}: {middle:.2f} of quiet, {ratios[0]:.2f} to {ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
