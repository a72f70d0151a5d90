"""How fast whole networks are predicted, a million at once and one after another, and whether the numbers are the same.

python experiments/008-prediction-speed/run.py
"""

import json
import os
import time
from pathlib import Path

import numpy as np

from hwbench.latency import AdditivePredictor
from hwbench.spaces import read_space
from hwbench.specs import Precision
from hwbench.studies.latencies import compile_predictor
from hwbench.testing.tables import CLASSES, space_table
from hwbench.workspace import shipped

NETWORKS, ALONE, REPEATS = 10**6, 1000, 7


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
        "load_average": round(os.getloadavg()[0], 2),
    }
    text = json.dumps(results, indent=2)
    print(text)
    Path(__file__).with_name("results.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
