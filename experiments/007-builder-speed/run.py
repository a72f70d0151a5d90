"""How many blocks a second the builder makes with a cold cache, and how fast a warm cache answers. See README.md.

python experiments/007-builder-speed/run.py [--blocks 200] [--processes 2] [--space x3d-mobile] [--precision fp32 int8]
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

from hwbench.measure.builder import Builder, BuildFailure
from hwbench.spaces import load_space
from hwbench.specs import Precision, Workload
from hwbench.workspace import Workspace


def timed(builder: Builder, workloads: list[Workload]) -> tuple[float, float, list[float]]:
    """Seconds until all are there, until the first is, and between one and the next."""
    start = last = time.perf_counter()
    first, gaps = 0.0, []
    for result in builder.build(workloads):
        if isinstance(result, BuildFailure):
            raise SystemExit(f"{result.workload.key}: {result.reason}")
        now = time.perf_counter()
        first = first or now - start
        gaps.append(now - last)
        last = now
    return time.perf_counter() - start, first, gaps


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--blocks", type=int, default=200)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--space", default="x3d-mobile")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--precision", nargs="+", default=list(Precision), type=Precision, help="default: both")
    given = options.parse_args()
    space = load_space(Workspace.find(), given.space)
    path = Path(__file__).with_name("results.json")
    results = json.loads(path.read_text()) if path.exists() and len(given.precision) == 1 else {}
    results |= {"space": given.space, "blocks": given.blocks, "processes": given.processes}
    for precision in given.precision:
        parts = sorted(set(space.parts(precision)), key=lambda part: part.key)
        drawn = random.Random(given.seed).sample(parts, given.blocks)
        with (
            tempfile.TemporaryDirectory() as cache,
            Builder("executorch", Path(cache), processes=given.processes) as builder,
        ):
            seconds, first, gaps = timed(builder, drawn)
            warm, _, answers = timed(builder, drawn)
        results[precision.value] = {
            "cold_s": round(seconds, 1),
            "blocks_per_s": round(given.blocks / seconds, 2),
            "first_s": round(first, 1),
            "median_gap_s": round(statistics.median(gaps), 2),
            "warm_ms_each": round(1e3 * warm / given.blocks, 2),
            "warm_ms_worst": round(1e3 * max(answers), 2),
        }
        print(precision.value, json.dumps(results[precision.value]), flush=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
