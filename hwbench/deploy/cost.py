"""What blocks in fp32 cost in milliseconds, measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from hwbench.deploy.manifest_records import CostRecord
from hwbench.devices import load_device
from hwbench.errors import HwbenchError
from hwbench.measure.bench import open_bench
from hwbench.measure.runner import measure_sessions
from hwbench.specs import LOCAL, Artifact, LatencyStats, Session, Timing
from hwbench.workspace import Workspace

# Each round visits both files, in random order.
ROUNDS = 5

Meter = Callable[[Artifact, Artifact], CostRecord]


def meter(workspace: Workspace, device: str = LOCAL) -> Meter:
    """Measures (file with every block in int8, file with some in fp32) on one thread of a device of a workspace."""

    def measure(int8: Artifact, mixed: Artifact) -> CostRecord:
        try:
            place = load_device(workspace, device)
            if place.emulated:
                return unmeasured(f"{device} is emulated: its timings are no latencies")
            with open_bench(place, int8.runtime, cache_dir=workspace.cache, threads=1) as bench:
                sessions: dict[Path, list[Session]] = defaultdict(list)
                failed = measure_sessions(
                    [int8, mixed],
                    rounds=ROUNDS,
                    seed=0,
                    on_session=lambda artifact, session: sessions[artifact.path].append(session),
                    bench=bench,
                    timing=Timing(),
                )
        except HwbenchError as error:  # the export is fine without
            return unmeasured(str(error))
        if failed:
            return unmeasured(failed[0].reason)
        before, after = (1e3 * LatencyStats.of(tuple(sessions[file.path])).median_s for file in (int8, mixed))
        return CostRecord(device, before, after)

    return measure


def unmeasured(reason: str) -> CostRecord:
    """No cost, and why."""
    return CostRecord(None, None, None, reason)
