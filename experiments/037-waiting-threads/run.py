"""How threads of a training should wait for each other, on a quiet machine and beside another program. See README.md.

python experiments/037-waiting-threads/run.py      # results.json, in ten minutes
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from hwbench.interpreter import FEW_SPINS, SPINS, cores, python_command, python_environment

RESULTS = Path(__file__).resolve().parent / "results.json"
NETWORK = (
    "x3d-tiny:frames=8,resolution=64,s1.depth=3,s1.width=32,s1.expansion=2,s1.kernel=1x3x3,s1.se=0,s1.act=relu,"
    "s2.depth=1,s2.width=64,s2.expansion=2,s2.kernel=3x3x3,s2.se=0,s2.act=relu,"
    "s3.depth=1,s3.width=96,s3.expansion=3,s3.kernel=3x3x3,s3.se=0,s3.act=relu"
)
# By name: threads, and what of the environment says how they wait. libgomp looks 300,000 times where nothing is said.
WAYS = {
    "one thread": (1, {SPINS: "300000"}),
    "all threads, as libgomp waits": (cores(), {SPINS: "300000"}),
    "all threads, few looks": (cores(), {SPINS: "1000"}),
    "all threads, as hwbench sets it": (cores(), {SPINS: FEW_SPINS}),
    "all threads, OMP_WAIT_POLICY=passive": (cores(), {"OMP_WAIT_POLICY": "passive"}),
}


def seconds(threads: int, environment: dict[str, str]) -> float:
    """Of an epoch of the quickstart's videos, with the test behind it."""
    with tempfile.TemporaryDirectory() as folder:
        command = python_command(
            "hwbench", "train", NETWORK, "--data", "synthetic", "--epochs", "1", "--workers", "0", "--threads",
            str(threads), "--out", f"{folder}/run", "--json",
        )  # fmt: skip
        done = subprocess.run(
            command, env=python_environment(environment), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    return float(json.loads(done.stdout)["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for place in ("quiet", "beside another program"):
            for name, (threads, environment) in WAYS.items():
                other = None
                if place != "quiet":  # in a session of its own, as programs of others are
                    endless = [sys.executable, "-c", "while True: pass"]
                    other = subprocess.Popen(endless, start_new_session=True)
                try:
                    took = seconds(threads, environment)
                finally:
                    if other is not None:
                        other.kill()
                        other.wait()
                found.setdefault(place, {}).setdefault(name, []).append(round(took, 1))
                print(place, name, took, flush=True)
    medians = {place: {name: statistics.median(s) for name, s in ways.items()} for place, ways in found.items()}
    RESULTS.write_text(json.dumps({"cores": cores(), "median_s": medians, "all_s": found}, indent=1) + "\n")


if __name__ == "__main__":
    os.environ.pop(SPINS, None)
    main()
