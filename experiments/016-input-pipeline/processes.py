"""Clips per second of training in one process and in two that share each batch. See README.md.

python experiments/016-input-pipeline/processes.py [--rounds 3]     # processes.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
BATCH, STEPS = 16, 24  # 384 training videos, an epoch
# The pace is that of the steps after the first ones, in which workers start and decoded videos are not there yet.
FIRST = 6
NETWORK = (
    "x3d-tiny:frames=8,resolution=64,s1.depth=1,s1.width=32,s1.expansion=4,s1.kernel=1x3x3+3x1x1,s1.se=0,s1.act=relu,"
    "s2.depth=3,s2.width=64,s2.expansion=4,s2.kernel=1x3x3+3x1x1,s2.se=0,s2.act=relu,"
    "s3.depth=4,s3.width=96,s3.expansion=3,s3.kernel=1x3x3+3x1x1,s3.se=0,s3.act=relu"
)
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
# By name: how Python is called, and threads of each process.
WAYS: dict[str, tuple[Sequence[str], int]] = {
    "one process, one thread": (("-m", "hwbench"), 1),
    "one process, two threads": (("-m", "hwbench"), 2),
    "two processes, one thread each": ((*TORCHRUN, "2", "-m", "hwbench"), 1),
}


def clips_per_s(way: str) -> float:
    """Of one epoch of the synthetic set, from scratch."""
    called, threads = WAYS[way]
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "run"
        command = [sys.executable, *called, "train", NETWORK, "--data", "synthetic", "--epochs", "1"]
        command += ["--batch-size", str(BATCH), "--threads", str(threads), "--out", str(out)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        with subprocess.Popen(command, cwd=Workspace.find().root, env=environment, stdout=subprocess.DEVNULL) as run:
            began = seen(out / "metrics.jsonl", FIRST, run)
            ended = seen(out / "metrics.jsonl", STEPS, run)
        if run.returncode:
            raise SystemExit(f"{way}: status {run.returncode}")
    return BATCH * (STEPS - FIRST) / (ended - began)


def seen(metrics: Path, steps: int, run: subprocess.Popen[bytes]) -> float:
    """When so many steps were written down."""
    while run.poll() is None:
        if metrics.is_file() and metrics.read_text().count('"event": "step"') >= steps:
            return time.perf_counter()
        time.sleep(0.02)
    raise SystemExit(f"the run ended with status {run.returncode} before step {steps}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(given.rounds):
        for way in list(WAYS)[:: 1 if number % 2 == 0 else -1]:
            found[way].append(round(clips_per_s(way), 2))
            print(way, found[way][-1], flush=True)
    two = found["two processes, one thread each"]
    ratios = {
        way: round(statistics.median(a / b for a, b in zip(two, values)), 3)
        for way, values in found.items()
        if values is not two
    }
    result = {"batch": BATCH, "clips_per_s": found, "two_processes_over": ratios}
    (HERE / "processes.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
