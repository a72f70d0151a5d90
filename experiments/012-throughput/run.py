"""Rows per minute of ``hwbench profile``, and how much of its time the device measures. See README.md.

python experiments/012-throughput/run.py [--rows 120] [--space x3d-mobile] [--precision fp32 int8]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from hwbench.measure.sentinel import SENTINEL
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import Run
from hwbench.specs import Target
from hwbench.workspace import Workspace


def profile(workspace: Workspace, words: list[str]) -> tuple[float, dict[str, object]]:
    """Seconds from the command to its end, and what it says."""
    start = time.monotonic()
    command = [sys.executable, "-P", "-m", "hwbench", "profile", "--device", "local", "--json", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, cwd=workspace.root, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return time.monotonic() - start, json.loads(done.stdout)


def seconds(run: Run) -> float:
    return (datetime.fromisoformat(run.ended_at) - datetime.fromisoformat(run.started_at)).total_seconds()


def shares(workspace: Workspace, target: Target, whole_s: float) -> dict[str, float]:
    """Shares of the time in which the device was busy with sessions, and in which samples were taken."""
    with MeasurementStore(workspace.store) as store:
        busy = sum(seconds(run) for run in store.runs(target))
        sessions = [session for row in store.rows(target) for session in row.measurement.sessions]
    samples = sum(session.wall_s for session in sessions)
    return {"measuring_share": round(busy / whole_s, 3), "samples_share": round(samples / whole_s, 3)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=40)
    options.add_argument("--space", default="x3d-mobile")
    options.add_argument("--precision", nargs="+", default=["fp32", "int8"])
    given = options.parse_args()
    results: dict[str, object] = {"space": given.space, "rows": given.rows, "sentinel": SENTINEL.key}
    with tempfile.TemporaryDirectory() as folder:
        for precision in given.precision:
            words = ["--space", given.space, "--precision", precision, "--limit", str(given.rows), "--calibrate", "8"]
            cache = Path(folder, f"cache-{precision}")
            for state in ("cold", "warm"):
                workspace = Workspace.create(Path(folder, f"{precision}-{state}"))
                cache.mkdir(exist_ok=True)
                workspace.cache.symlink_to(cache)
                whole_s, said = profile(workspace, words)
                found = {"seconds": round(whole_s, 1), "rows_per_minute": round(60 * given.rows / whole_s, 1)}
                found |= {key: said[key] for key in ("ok", "failed")}
                found |= shares(workspace, Target.parse(str(said["target"])), whole_s)
                results[f"{precision}, {state} cache"] = found
                print(precision, state, json.dumps(found), flush=True)
    Path(__file__).with_name("results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
