"""How often what a search proposes with ``--confidence`` is measured within its budget. See README.md.

From a workspace, after `hwbench profile --space x3d-mini --precision int8 --classes 48`:

python experiments/006-latency-accuracy/proposals.py x3d-mini    # proposals.json; some ten minutes on a quiet machine
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hwbench.api.prediction import measuring, table_predictor
from hwbench.latency import AdditivePredictor
from hwbench.spaces import StagedSpace, load_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, BlockSpec, Outcome, Precision, TensorSpec
from hwbench.studies.latencies import space_latencies
from hwbench.testing.tables import installed_target
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "proposals.json"
DEVICE, PRECISION = "local", Precision.INT8
CONFIDENCES = (0.5, 0.9)
# Budgets as multiples of what the fastest network of the space takes, and proposals within each.
BUDGETS, PROPOSALS = (1.3, 1.6, 2.0, 2.5), 10


class Effects:
    """A random gain for every block: the best network within a budget is exact, and near to the budget."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._known: dict[tuple[BlockSpec, TensorSpec], float] = {}

    def __call__(self, block: BlockSpec, x: TensorSpec) -> float:
        return self._known.setdefault((block, x), abs(self._rng.normal()))


def proposals(
    space: StagedSpace, predictor: AdditivePredictor, classes: int, confidence: float
) -> Iterator[tuple[float, Architecture]]:
    """The optima of random landscapes within each budget, with the budget in seconds."""
    fastest, _ = FeasibleSet(space_latencies(space, predictor, PRECISION, classes), np.inf).smallest()
    sums = space_latencies(space, predictor, PRECISION, classes, confidence)
    for number, multiple in enumerate(BUDGETS):
        feasible = FeasibleSet(sums, multiple * fastest)
        for seed in range(PROPOSALS):
            effects = Effects(PROPOSALS * number + seed)
            best = feasible.best(SpaceSums.of(space, effects, num_classes=classes))
            yield multiple * fastest, best.architecture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space")
    name = parser.parse_args().space
    workspace = Workspace.find()
    space, target = load_space(workspace, name), installed_target()
    predictor, classes = table_predictor(workspace, target, PRECISION, name)
    measure = measuring(workspace, target, "executorch")
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for confidence in CONFIDENCES:
        proposed = list(proposals(space, predictor, classes, confidence))
        workloads = [space.network(one, classes).workload(PRECISION) for _, one in proposed]
        measured = {row.workload: row.stats.median_s for row in measure(workloads) if row.outcome is Outcome.OK}
        pairs = [(measured[w] / budget, w) for (budget, _), w in zip(proposed, workloads) if w in measured]
        shares = sorted(share for share, _ in pairs)
        results[f"{name} {confidence}"] = {
            "proposals": len(pairs),
            "networks": len(measured),
            "within": sum(share <= 1 for share in shares),
            "margin": round(predictor.margin(confidence), 4) if confidence > CONFIDENCES[0] else 1.0,
            "of_budget": [round(share, 4) for share in shares],
        }
        print(confidence, results[f"{name} {confidence}"], flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
