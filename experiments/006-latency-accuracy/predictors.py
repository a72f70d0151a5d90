"""The predictors of experiment 006, ours and simpler ones, on its held-out networks."""

import math
import statistics
from collections.abc import Callable

import numpy as np
from data import Data
from networks import CALIBRATION, FIRST, HELD_OUT, LATE, MORE, SEED, SPACE, kernels_of
from sklearn.ensemble import RandomForestRegressor

from hwbench.latency import AdditivePredictor, Comparison, Validation, macs
from hwbench.latency.calibration import NOMINAL
from hwbench.specs import Estimate, Workload
from hwbench.specs.block import ACTIVATIONS

Predict = Callable[[Workload], float]


def of_macs(data: Data) -> Predict:
    """Multiply-adds, scaled."""
    return macs


def isolated_sum(data: Data) -> Predict:
    """Every block as it was measured alone."""
    table = data.table()
    return lambda network: sum(table[part].median_s for part in network.parts())


def operators(data: Data) -> Predict:
    """Every convolution by itself, from random forests over measured convolutions (nn-Meter, Zhang et al. 2021)."""
    forests = {}
    measured = data.role("kernel")
    for depthwise in (True, False):
        those = {w: stats for w, stats in measured.items() if (w.blocks[0].groups > 1) == depthwise}
        forest = RandomForestRegressor(n_estimators=100, random_state=SEED, n_jobs=1)
        # Per multiply-add: trees do not extrapolate, and this hardly varies.
        forests[depthwise] = forest.fit(
            [features(w) for w in those], [math.log(stats.median_s / macs(w)) for w, stats in those.items()]
        )

    def predict(network: Workload) -> float:
        kernels = [kernel for part in network.parts() for kernel in kernels_of(part)]
        total = 0.0
        for depthwise, forest in forests.items():
            those = [kernel for kernel in kernels if (kernel.blocks[0].groups > 1) == depthwise]
            per_mac = np.exp(forest.predict([features(kernel) for kernel in those]))
            total += float(per_mac @ [macs(kernel) for kernel in those])
        return total

    return predict


def per_operator(data: Data) -> dict[str, list[Comparison]]:
    """Both forms of ``operators``; none where no convolution was measured by itself."""
    if not data.role("kernel"):
        return {}
    predict = operators(data)
    return {
        "per operator, scaled": compared(data, predict, fitted=True),
        "per operator": compared(data, predict, fitted=False),
    }


def features(kernel: Workload) -> list[float]:
    (block,), x = kernel.blocks, kernel.input
    ((time_, height, _),) = block.kernel
    acts = [float(block.activation == act) for act in ACTIVATIONS]
    sizes = (macs(kernel), x.c, block.out_channels, x.t, x.h, x.numel, kernel.output.numel)
    return [*(math.log(size) for size in sizes), time_, height, block.stride, *acts]


def compared(data: Data, predict: Predict, *, fitted: bool) -> list[Comparison]:
    """A simple predictor on the held-out networks, scaled to the calibration networks or as it is."""
    ratios = [stats.median_s / predict(w) for w, stats in data.role(*CALIBRATION).items()]
    gain = statistics.median(ratios) if fitted else 1.0
    left_out = sorted(
        abs(math.log(ratio / (statistics.median(ratios[:i] + ratios[i + 1 :]) if fitted else 1.0)))
        for i, ratio in enumerate(ratios)
    )
    spread = math.exp(left_out[min(math.ceil((len(left_out) + 1) * NOMINAL), len(left_out)) - 1])
    found = []
    for network, stats in data.role(*HELD_OUT).items():
        seconds = gain * predict(network)
        interval = Estimate(seconds, seconds / spread, seconds * spread)
        found.append(Comparison(network.sha256[:8], interval, stats.median_s))
    return found


def ours(data: Data, chains: str = "boundary") -> list[Comparison]:
    """``hwbench``'s predictor on the held-out networks."""
    predictor = AdditivePredictor.fit(data.table(chains), space=SPACE)
    held_out = data.role(*HELD_OUT).items()
    return [Comparison(w.sha256[:8], predictor.predict(w), stats.median_s) for w, stats in held_out]


def draws_apart(data: Data) -> dict[str, list[Comparison]]:
    """Likewise, with the networks of the first two draws only, and with those that were drawn late only."""
    first, late = (*FIRST, *MORE), tuple(LATE)
    if not (data.role(*late) and data.role(*first)):
        return {}
    return {"hwbench, first draws": ours(data.without(*late)), "hwbench, late draw": ours(data.without(*first))}


def split_again(data: Data, counts: list[int], splits: int) -> dict[str, float]:
    """Accuracy where other networks are held out: all are dealt again, so many of each band to calibrate with.

    A hundred networks held out tell a coverage of 90 % to 3 % (one standard deviation), and those to calibrate with
    vary, too; this tells how it is on average.
    """
    measured = data.role(*HELD_OUT, *CALIBRATION)
    rng = np.random.default_rng(SEED)
    coverages, medians, within_5 = [], [], []
    for _ in range(splits):
        chosen = {}
        for band, count in zip(data.bands(*HELD_OUT, *CALIBRATION), counts):
            chosen |= {band[i]: measured[band[i]] for i in rng.permutation(len(band))[:count]}
        predictor = AdditivePredictor.fit(data.table_with(chosen), space=SPACE)
        rest = {w: stats for w, stats in measured.items() if w not in chosen}
        found = Validation.of(
            [Comparison(w.sha256[:8], predictor.predict(w), stats.median_s) for w, stats in rest.items()], NOMINAL
        )
        coverages.append(found.coverage)
        medians.append(found.median_error)
        within_5.append(found.within_5)
    return {
        "splits": splits,
        "networks": sum(counts),
        "coverage": statistics.fmean(coverages),
        "coverage_p10": float(np.quantile(coverages, 0.1)),
        "coverage_p90": float(np.quantile(coverages, 0.9)),
        "median_error": statistics.median(medians),
        "largest_median_error": max(medians),
        "within_5": statistics.fmean(within_5),
    }
