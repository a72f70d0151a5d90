"""How many trials a second a search makes with several workers, on an evaluator that sleeps. See README.md.

python experiments/022-workers/run.py processes        # 1 and 2 processes
python experiments/022-workers/run.py ray              # 1 and 2 actors of Ray, and 32 that take no processor
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from hwbench.studies.ray_workers import RayWorkers
from hwbench.studies.trials import SearchWatch
from hwbench.studies.worker_pool import Workers
from hwbench.testing.evaluations import Sleep
from hwbench.testing.searches import search_by_law
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
BUDGET_S = 7e-3
# Number of workers, seconds of a score, trials of each worker.
CASES = {"processes": ((1, 0.5, 20), (2, 0.5, 20)), "ray": ((1, 0.5, 20), (2, 0.5, 20), (1, 16.0, 3), (32, 16.0, 3))}


class Clock(SearchWatch):
    """The moments at which trials end."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def evaluated(self, candidate: object) -> None:
        self.moments.append(time.monotonic())


def rate(kind: str, count: int, sleep_s: float, trials: int) -> float:
    """Trials a second from the first round of all workers on, so that their start does not count."""
    plan = Workers(count) if kind == "processes" else RayWorkers("local", count, cpus=0.0)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        search_by_law(
            Workspace.create(Path(folder) / "work"), "x3d-tiny", BUDGET_S, trials=count * trials, sampler="random",
            evaluator="short-train", trainer=Sleep(sleep_s), workers=plan, watch=clock,
        )  # fmt: skip
    return (len(clock.moments) - count) / (clock.moments[-1] - clock.moments[count - 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=tuple(CASES))
    kind = parser.parse_args().kind
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    rows = []
    for count, sleep_s, trials in CASES[kind]:
        found = rate(kind, count, sleep_s, trials)
        base = next((row["trials_per_s"] for row in rows if row["sleep_s"] == sleep_s), found)
        rows.append({"workers": count, "sleep_s": sleep_s, "trials_per_s": found, "times_one": found / base})
        print(rows[-1], flush=True)
    results[kind] = rows
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
