"""How long the exact set of a space takes for one answer: a draw, an optimum, a repair, a neighbour.

python experiments/008-prediction-speed/set.py     # a minute
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hwbench.latency import AdditivePredictor
from hwbench.spaces import read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.repair import noisy_nearness
from hwbench.specs import Precision
from hwbench.studies.latencies import space_latencies
from hwbench.testing.tables import CLASSES, space_table
from hwbench.workspace import shipped

SPACES, PROPOSALS = ("x3d-mobile", "x3d-fine"), 30
# Of the networks of a space, drawn uniformly, about so many are within the budget.
SHARE = 0.1


def answers(name: str) -> dict[str, float]:
    """Median milliseconds of each answer; repairs are those of proposals over the budget."""
    space, rng = read_space(shipped() / "search_spaces" / f"{name}.toml"), np.random.default_rng(0)
    predictor = AdditivePredictor.fit(space_table(space, Precision.INT8))
    sums = space_latencies(space, predictor, Precision.INT8, CLASSES)
    drawn = [space.random(rng) for _ in range(300)]
    start = time.perf_counter()
    feasible = FeasibleSet(sums, float(np.quantile([sums.total(one) for one in drawn], SHARE)))
    made_ms = 1e3 * (time.perf_counter() - start)
    over = [one for one in drawn if one not in feasible][:PROPOSALS]

    def near(number: int) -> object:
        return feasible.best(noisy_nearness(sums, over[number], rng, 0.25))

    asked: dict[str, Callable[[int], object]] = {
        "draw": lambda number: feasible.draw(rng),
        "optimum": lambda number: feasible.best(noisy_nearness(sums, over[number], rng, 100.0)),
        "repair": lambda number: feasible.repair(over[number]),
        "neighbour": near,
    }
    times: dict[str, list[float]] = {what: [] for what in asked}
    feasible.best(sums)  # the optimiser is made with the first answer
    for number in range(PROPOSALS):
        for what, ask in asked.items():
            start = time.perf_counter()
            ask(number)
            times[what].append(1e3 * (time.perf_counter() - start))
    return {"set": round(made_ms, 1)} | {what: round(statistics.median(ms), 2) for what, ms in times.items()}


def main() -> None:
    results = {name: answers(name) for name in SPACES}
    text = json.dumps({"median_ms": results}, indent=1)
    print(text)
    Path(__file__).with_name("set.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
