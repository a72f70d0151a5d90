"""What threads of BLAS cost a calibration, a model of scores and a proposal, which hwbench gives one.

python experiments/008-prediction-speed/threads.py     # three minutes: alone, and beside two processes that compute
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np

from hwbench import linear_algebra
from hwbench.latency.calibration import Calibration, Observation, Piece
from hwbench.spaces import read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.posterior import Layout, Posterior
from hwbench.studies.thompson import Thompson
from hwbench.workspace import shipped

HERE = Path(__file__).resolve().parent
REPEATS = 9


class Unlimited:
    """Stands for the libraries whose threads are limited, and limits none."""

    def limit(self, **limits: object) -> nullcontext[None]:
        return nullcontext()


@contextmanager
def all_threads() -> Iterator[None]:
    found = linear_algebra._libraries
    linear_algebra._libraries = lambda with_scipy: Unlimited()  # type: ignore[assignment]
    try:
        yield
    finally:
        linear_algebra._libraries = found


def observations(count: int) -> list[Observation]:
    """Networks of 6 to 27 blocks, 1 % off the sum of their rows."""
    rng, found = np.random.default_rng(count), []
    for _ in range(count):
        pieces = tuple(
            Piece("abc"[rng.integers(3)], float(rng.uniform(1e-5, 1e-3)), 3, int(rng.integers(400_000)))
            for _ in range(rng.integers(6, 28))
        )
        found.append(Observation(1.1 * sum(p.seconds for p in pieces) * float(np.exp(rng.normal(0, 0.01))), pieces))
    return found


def asked() -> dict[str, Callable[[], object]]:
    space = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
    sums = SpaceSums.of(space, lambda block, x: sum(op.macs for op in block.operations(x)) / 2e10, num_classes=400)
    rng, layout = np.random.default_rng(0), Layout(sums)
    feasible = FeasibleSet(sums, float(np.quantile([sums.total(space.random(rng)) for _ in range(300)], 0.2)))
    drawn = [feasible.draw(rng) for _ in range(100)]
    scored = [ScoreObservation(one, float(rng.normal()) + 100 * sums.total(one)) for one in drawn]

    def propose() -> object:
        return Thompson(feasible).propose(scored, np.random.default_rng(1), attempt=1)

    layout.encode(drawn)
    propose()
    made = {count: observations(count) for count in (14, 40, 150)}
    found: dict[str, Callable[[], object]] = {
        f"calibration of {count} networks": lambda networks=networks: Calibration.of(networks)  # type: ignore[misc]
        for count, networks in made.items()
    }
    found["model of 24 scores"] = lambda: Posterior.fit(layout, scored[:24])
    found["model of 100 scores"] = lambda: Posterior.fit(layout, scored)
    return found | {"the same, and a proposal of thompson": propose}


@contextmanager
def beside(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def medians(asked: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    limits = {"one": nullcontext, "all": all_threads}
    times: dict[str, dict[str, list[float]]] = {}
    for what, ask in asked.items():
        times[what] = {name: [] for name in limits}
        for _ in range(REPEATS):
            for name, limit in limits.items():
                with limit():
                    start = time.perf_counter()
                    ask()
                    times[what][name].append(1e3 * (time.perf_counter() - start))
    return {what: {name: round(statistics.median(ms), 1) for name, ms in of.items()} for what, of in times.items()}


def main() -> None:
    what, results = asked(), {}
    for count in (0, 2):
        with beside(count):
            results[f"beside {count} processes"] = medians(what)
    text = json.dumps({"median_ms": results}, indent=1)
    print(text)
    (HERE / "threads.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
