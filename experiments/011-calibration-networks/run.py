"""How many networks calibrate as well when they are chosen to inform as when they are drawn at random. See README.md.

python experiments/011-calibration-networks/run.py
"""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np

from hwbench.latency import Calibration, calibration_networks, macs
from hwbench.latency.calibration import Observation, Piece, family
from hwbench.spaces import read_space
from hwbench.specs import Network, Precision
from hwbench.workspace import shipped

SPACE = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
CLASSES, DEVICES, SEEDS, NOISE = 8, 40, 5, 0.01
COUNTS = (4, 8, 12, 20, 28, 36, 48)


def pieces(network: Network) -> tuple[Piece, ...]:
    """The blocks of a network with rows by a law: 10 us each and 20 billion multiply-adds a second."""
    return tuple(Piece.of(p, 1e-5 + macs(p) / 20e9) for p in network.workload(Precision.FP32).parts())


class Device:
    """Inside a network, a family of blocks costs up to a fifth more or less than its rows; a block, 10 us more or less;
    a network, up to 0.2 ms more. Measured with an error of 1 %."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        self.gains = {name: float(rng.uniform(0.8, 1.2)) for name in FAMILIES}
        self.block_s, self.constant_s = float(rng.uniform(-1e-5, 1e-5)), float(rng.uniform(0, 2e-4))

    def seconds(self, blocks: tuple[Piece, ...]) -> float:
        return self.constant_s + sum(self.gains[b.family] * b.seconds + self.block_s for b in blocks)


def predicted(calibration: Calibration, blocks: tuple[Piece, ...]) -> float:
    counts = {"blocks": len(blocks), "operators": sum(b.operators for b in blocks)}
    counts["weights"] = sum(b.weights for b in blocks)
    added = calibration.constant_s + sum(cost * counts[name] for name, cost in calibration.terms.items())
    return added + sum(calibration.gains.get(b.family, calibration.gain) * b.seconds for b in blocks)


def drawn(count: int, seed: int) -> list[Network]:
    rng = np.random.default_rng([seed, 2])
    return [SPACE.network(SPACE.random(rng), CLASSES) for _ in range(count)]


HELD_OUT = [pieces(network) for network in drawn(200, 99)]
FAMILIES = sorted({family(p) for network in drawn(50, 98) for p in network.workload(Precision.FP32).parts()})


def main() -> None:
    rows = []
    for count in COUNTS:
        for name in ("informative", "random"):
            errors, covered, forms = [], [], Counter()
            for seed in range(SEEDS):
                chosen = calibration_networks(SPACE, count, seed, CLASSES) if name != "random" else drawn(count, seed)
                blocks = [pieces(network) for network in chosen]
                for at in range(DEVICES):
                    device, rng = Device(at), np.random.default_rng([at, seed, 3])
                    noise = np.exp(rng.normal(0, NOISE, count)).tolist()
                    fit = Calibration.of([Observation(device.seconds(b) * e, b) for b, e in zip(blocks, noise)])
                    forms[fit.form] += 1
                    fresh = np.exp(rng.normal(0, NOISE, len(HELD_OUT)))
                    true = np.array([device.seconds(b) for b in HELD_OUT])
                    off = np.array([predicted(fit, b) for b in HELD_OUT]) / true
                    errors.append(np.abs(off - 1))
                    covered.append(np.abs(np.log(true * fresh / (off * true))) <= math.log(fit.spread))
            off = np.array(errors)
            rows.append(
                {
                    "networks": count,
                    "choice": name,
                    "median_error": round(float(np.median(off)), 5),
                    "p90_error": round(float(np.quantile(off, 0.9)), 5),
                    "worst_device_median": round(float(np.median(off, axis=1).max()), 5),
                    "coverage": round(float(np.mean(covered)), 4),
                    "forms": dict(forms.most_common()),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    text = json.dumps({"space": SPACE.name, "devices": DEVICES, "seeds": SEEDS, "noise": NOISE, "rows": rows}, indent=1)
    Path(__file__).with_name("results.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
