"""How fast whole networks are predicted, a million at once and one after another, and whether the numbers are the same;
how long the exact feasible set takes, and how long a command that does nothing.

python experiments/008-prediction-speed/run.py
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from hwbench.latency import AdditivePredictor
from hwbench.spaces import read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.space import StagedSpace
from hwbench.specs import Precision
from hwbench.studies.latencies import compile_predictor, space_latencies
from hwbench.testing.tables import CLASSES, space_table
from hwbench.workspace import shipped

NETWORKS, ALONE, REPEATS = 10**6, 1000, 7
BUDGET_S = 0.03


def feasible_set(space: StagedSpace, predictor: AdditivePredictor) -> dict[str, object]:
    """Seconds to ask the table for every block, and to find out from the answers what is within a budget."""
    asked, found = [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        sums = space_latencies(space, predictor, Precision.INT8, CLASSES)
        middle = time.perf_counter()
        feasible = FeasibleSet(sums, BUDGET_S)
        asked.append(round(middle - start, 3))
        found.append(round(time.perf_counter() - middle, 3))
    return {
        "networks": float(feasible.count),
        "ask_seconds_median": float(np.median(asked)),
        "set_seconds_median": float(np.median(found)),
        "seconds_all": [round(a + b, 3) for a, b in zip(asked, found)],
    }


def help_seconds() -> float:
    """Median seconds of ``hwbench --help``."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-P", "-m", "hwbench", "--help"], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - start)
    return round(float(np.median(times)), 3)


def main() -> None:
    space = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
    predictor = AdditivePredictor.fit(space_table(space, Precision.INT8))
    start = time.perf_counter()
    compiled = compile_predictor(space, predictor, Precision.INT8, CLASSES)
    compile_s = time.perf_counter() - start
    codes = space.random_codes(np.random.default_rng(0), NETWORKS)
    compiled.predict_many(codes[:ALONE])
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        found = compiled.predict_many(codes)
        times.append(time.perf_counter() - start)
    networks = [space.network(a, CLASSES).workload(Precision.INT8) for a in space.decode(codes[:ALONE])]
    start = time.perf_counter()
    alone = np.array([predictor.predict(network).seconds for network in networks])
    alone_s = time.perf_counter() - start
    results = {
        "space": space.name,
        "networks": NETWORKS,
        "seconds_median": round(float(np.median(times)), 4),
        "seconds_all": [round(t, 4) for t in times],
        "compile_seconds": round(compile_s, 2),
        "one_at_a_time_seconds_per_million": round(alone_s * NETWORKS / ALONE),
        "largest_relative_difference": float(np.max(np.abs(found.seconds[:ALONE] / alone - 1))),
        "feasible_set": feasible_set(space, predictor),
        "help_seconds_median": help_seconds(),
        "load_average": round(os.getloadavg()[0], 2),
    }
    text = json.dumps(results, indent=2)
    print(text)
    Path(__file__).with_name("results.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
