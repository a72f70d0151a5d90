"""Whether a model is judged fairly on a network that it has not seen: permuted scores must not be told. See README.md.

python experiments/018-ground-truth/left_out.py   # left_out.json from rows/, two minutes

Top-1 of the networks that were trained most often is permuted within a band, so that nothing can be learned, and every
network is predicted from all others: with variances learned anew without it, and with those of all networks.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hwbench.spaces import read_space
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.fitted_scores import FittedScores
from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.ranking import rank_correlation
from hwbench.workspace import shipped, write_text

HERE = Path(__file__).resolve().parent
PERMUTATIONS = 160


def anew(sums: SpaceSums, observations: Sequence[ScoreObservation]) -> list[float]:
    """Predictions with variances that are learned without the network."""
    found = []
    for one in observations:
        others = [other for other in observations if other.architecture != one.architecture]
        found.append(FittedScores(sums, tuple(others)).predict(one.architecture).mean)
    return found


def kept(sums: SpaceSums, observations: Sequence[ScoreObservation]) -> list[float]:
    """Predictions with the variances of all, as the scoreboard makes them."""
    model = FittedScores(sums, tuple(observations), leave_out=True)
    return [model.predict(one.architecture).mean for one in observations]


def main() -> None:
    truth, space = GroundTruth.read(HERE), read_space(shipped() / "search_spaces" / "x3d-mini.toml")
    sums = SpaceSums.of(space, lambda block, x: 0.0, num_classes=truth.num_classes)
    networks = [one for one in truth.judged if one.architecture.startswith("x3d-mini:")]
    architectures = [Architecture.parse(one.architecture) for one in networks]
    bands, top1 = np.array([one.band for one in networks]), np.array([one.top1 for one in networks])
    rng, taus = np.random.default_rng(0), {"anew": list[float](), "kept": list[float]()}
    for _ in range(PERMUTATIONS):
        scores = top1.copy()
        for band in np.unique(bands):
            of_band = np.flatnonzero(bands == band)
            scores[of_band] = scores[rng.permutation(of_band)]
        observations = [ScoreObservation(*one) for one in zip(architectures, scores.tolist())]
        for name, predicted in (("anew", anew(sums, observations)), ("kept", kept(sums, observations))):
            taus[name].append(rank_correlation(predicted, scores.tolist(), bands.tolist()))
    result = {
        name: {
            "tau": round(statistics.fmean(found), 4),
            "error": round(statistics.stdev(found) / PERMUTATIONS**0.5, 4),
        }
        for name, found in taus.items()
    }
    write_text(HERE / "left_out.json", json.dumps({"networks": len(networks), **result}, indent=1) + "\n")
    print(result)


if __name__ == "__main__":
    main()
