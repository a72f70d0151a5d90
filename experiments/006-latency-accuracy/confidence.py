"""How often a network that just fits a budget with ``--confidence`` was measured within it. See README.md.

python experiments/006-latency-accuracy/confidence.py    # from the raw data in the folders, a minute or two
"""

import json
import statistics

import numpy as np
from data import Data
from networks import BANDS, CALIBRATION, HELD_OUT, HERE, SEED, SPACE

from hwbench.latency import AdditivePredictor
from hwbench.specs import Precision

CONFIDENCES = (0.5, 0.8, 0.9)
COUNTS = (10, 20)
SPLITS = 20


def shares(data: Data, count: int) -> dict[str, float]:
    """By confidence: the share of networks that take at most what they are said to, over splits of all networks."""
    measured, rng = data.role(*HELD_OUT, *CALIBRATION), np.random.default_rng(SEED)
    found: dict[float, list[bool]] = {confidence: [] for confidence in CONFIDENCES}
    for _ in range(SPLITS):
        chosen = {}
        for band in data.bands(*HELD_OUT, *CALIBRATION):
            chosen |= {band[i]: measured[band[i]] for i in rng.permutation(len(band))[: count // len(BANDS)]}
        predictor = AdditivePredictor.fit(data.table_with(chosen), space=SPACE)
        for network, stats in measured.items():
            if network not in chosen:
                ratio = stats.median_s / predictor.predict(network).seconds
                for confidence, within in found.items():
                    margin = predictor.calibration.margin(confidence) if confidence > 0.5 else 1.0
                    within.append(ratio <= margin)
    return {str(confidence): round(statistics.fmean(within), 3) for confidence, within in found.items()}


def main() -> None:
    results = {}
    for path in sorted(HERE.glob("*/*.csv")):
        if path.stem in tuple(Precision):
            data = Data.read(path.parent, Precision(path.stem))
            name = f"{path.parent.name} {path.stem}"
            most = len(data.role(*CALIBRATION))
            results[name] = {str(count): shares(data, count) for count in COUNTS if count <= most}
            print(name, results[name], flush=True)
    (HERE / "confidence.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
