"""What the beginning of a training says of its end: losses, extrapolations, and a model of all networks. See README.md.

python experiments/018-ground-truth/curves.py   # curves.json from rows/, in a minute

Each score of the first training of a network is held against the mean top-1 of its other ones, within bands;
``fitted`` and ``fitted with N epochs`` are learned without the end of any training of the network.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import gammaln

from hwbench.spaces import read_space
from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.walk import Floats
from hwbench.specs import Architecture
from hwbench.studies.fidelities import FULL, ScoreObservation, doublings
from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.posterior import Layout, Posterior
from hwbench.studies.ranking import rank_interval, regret
from hwbench.workspace import shipped, write_text

HERE = Path(__file__).resolve().parent
# Losses are means over quarters of epochs.
PARTS = 4
# Share of the covariance of curves that is taken to be chance.
SHRUNK = 0.1


# Exponents that are weighed.
_EXPONENTS = np.geomspace(0.05, 2.0, 24)
# Standard deviation of level and slope under the prior, in ranges of the curve: both may be far beyond what is seen.
_WIDE = 10.0
# Of the prior of the noise: as sure as one observation that its deviation is a twentieth of the range of the curve.
_SHAPE, _NOISE = 0.5, 0.05


@dataclass(frozen=True)
class Extrapolation:
    """A loss to come: mean and standard deviation, the noise of one loss included."""

    mean: float
    deviation: float


def power_law(epochs: Sequence[float], losses: Sequence[float], until: float) -> Extrapolation:
    """Where losses lead: ``a + b t^-c`` after ``t`` epochs, and normal noise.

    For an exponent ``c`` this is a linear regression, whose posterior under a normal-inverse-gamma prior is known in
    closed form (Murphy, Machine Learning: A Probabilistic Perspective, 2012, §7.6.3); exponents on a grid are weighted
    by their marginal likelihood.
    """
    at, values = np.asarray(epochs, np.float64), np.asarray(losses, np.float64)
    scale = float(np.ptp(values)) or 1.0
    start = float(values[-1])
    fits = [_regression(at, (values - start) / scale, until, exponent) for exponent in _EXPONENTS]
    evidence, means, variances = (np.array(column) for column in zip(*fits))
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    mean = float(weights @ means)
    variance = float(weights @ (variances + means**2)) - mean**2
    return Extrapolation(start + scale * mean, scale * float(np.sqrt(max(variance, 0.0))))


def _regression(at: Floats, values: Floats, until: float, exponent: float) -> tuple[float, float, float]:
    """Logarithm of the marginal likelihood of an exponent, and mean and variance of what comes."""
    last = at[-1]
    design = np.stack([np.ones(len(at)), (at / last) ** -exponent - 1.0], axis=1)
    new = np.array([1.0, (until / last) ** -exponent - 1.0])
    prior = np.eye(2) / _WIDE**2
    precision = prior + design.T @ design
    weights = np.linalg.solve(precision, design.T @ values)
    shape = _SHAPE + len(at) / 2
    rate = _SHAPE * _NOISE**2 + 0.5 * (values @ values - weights @ precision @ weights)
    evidence = -0.5 * np.linalg.slogdet(precision)[1] - shape * np.log(rate) + gammaln(shape)
    spread = rate / shape * (1.0 + new @ np.linalg.solve(precision, new))
    return float(evidence), float(new @ weights), float(spread * shape / max(shape - 1.0, 0.5))


def like_others(curves: Floats, losses: Sequence[float]) -> Extrapolation:
    """Where losses lead if the curve is one of those of the other networks: a normal distribution over whole curves.

    Args:
        curves: Shape (trainings, losses of a whole training).
        losses: The first ones of another network.
    """
    centred, seen = curves - curves.mean(axis=0), len(losses)
    covariance = centred.T @ centred / (len(curves) - 1)
    covariance = (1 - SHRUNK) * covariance + SHRUNK * np.diag(np.diag(covariance))
    gain = np.linalg.solve(covariance[:seen, :seen], covariance[:seen, -1])
    mean = curves[:, -1].mean() + gain @ (np.asarray(losses) - curves.mean(axis=0)[:seen])
    variance = (covariance[-1, -1] - gain @ covariance[:seen, -1]) * (1 + 1 / len(curves))
    return Extrapolation(float(mean), float(np.sqrt(max(variance, 0.0))))


def begun(training, epochs: int) -> list[float]:
    return list(training.losses[: PARTS * epochs])


def end_of(training, epochs: int):
    """The last quarter's loss as the power law sees it from the first epochs; the warm-up is left out."""
    whole, losses = len(training.losses), begun(training, epochs)
    first = min(PARTS // 2, len(losses) - 3)
    at = [(place + 1) / PARTS for place in range(first, len(losses))]
    return power_law(at, losses[first:], whole / PARTS)


def smoothed(training, epochs: int) -> float:
    """The mean loss of the last epoch that was seen."""
    return float(np.mean(begun(training, epochs)[-PARTS:]))


def left_out(layout: Layout, networks, judged, epochs: int | None) -> list[float]:
    """The posterior's means for networks whose trainings end after some epochs, or that have none (None); the variances
    are those of all (``left_out.py``).
    """
    variances, found = Posterior.fit(layout, observed(networks, epochs)).parameters, []
    for one in judged:
        posterior = Posterior.fit(layout, observed(networks, epochs, without_end_of=one), variances)
        mean, _ = posterior.predict([Architecture.parse(one.architecture)])
        found.append(float(mean[0]))
    return found


def observed(networks, epochs: int | None, without_end_of=None) -> list[ScoreObservation]:
    found = []
    for number, one in enumerate(networks):
        architecture, training = Architecture.parse(one.architecture), one.trainings[0]
        if one is not without_end_of:
            found.append(ScoreObservation(architecture, training.top1, FULL, number))
        if epochs is not None:
            apart = (doublings(epochs, len(training.curve)),)
            found.append(ScoreObservation(architecture, -smoothed(training, epochs), apart, number))
    return found


def curves_of(networks, without) -> Floats:
    """Losses of all trainings of the other networks."""
    return np.array([training.losses for one in networks if one is not without for training in one.trainings])


def calibrated(ends: Sequence[tuple[Extrapolation, float]]) -> dict[str, float]:
    """How far extrapolated last losses are off, and how often the truth is within two of their deviations."""
    errors = np.array([guess.mean - truth for guess, truth in ends])
    widths = np.array([guess.deviation for guess, _ in ends])
    return {
        "mean_error": round(float(errors.mean()), 3),
        "mean_absolute_error": round(float(np.abs(errors).mean()), 3),
        "median_deviation": round(float(np.median(widths)), 3),
        "within_two_deviations": round(float(np.mean(np.abs(errors) < 2 * widths)), 3),
    }


def main() -> None:
    truth = GroundTruth.read(HERE)
    space = read_space(shipped() / "search_spaces" / "x3d-mini.toml")
    layout = Layout(SpaceSums.of(space, lambda block, x: 0.0, num_classes=truth.num_classes))
    networks = [one for one in truth.networks if Architecture.parse(one.architecture).space == space.name]
    twice = [one for one in truth.judged if one in networks]
    whole = len(twice[0].trainings[0].curve)
    truths = [float(np.mean([training.top1 for training in one.trainings[1:]])) for one in twice]
    bands = [one.band for one in twice]
    scores = {"another training": [one.trainings[0].top1 for one in twice]}
    scores["fitted"] = left_out(layout, networks, twice, None)
    calibration = {}
    for epochs in (1, 2, 3, 6):
        first = [one.trainings[0] for one in twice]
        scores[f"loss of epoch {epochs}"] = [-smoothed(training, epochs) for training in first]
        scores[f"sum of losses of {epochs} epochs"] = [-sum(begun(training, epochs)) for training in first]
        scores[f"top-1 after epoch {epochs}"] = [training.curve[epochs - 1] for training in first]
        scores[f"power law from {epochs} epochs"] = [-end_of(training, epochs).mean for training in first]
        scores[f"fitted with {epochs} epochs"] = left_out(layout, networks, twice, epochs)
        scores[f"curve like others from {epochs} epochs"] = [
            -like_others(curves_of(networks, one), begun(one.trainings[0], epochs)).mean for one in twice
        ]
        ends = [(end_of(t, epochs), t.losses[-1]) for one in networks for t in one.trainings]
        like = [
            (like_others(curves_of(networks, one), begun(t, epochs)), t.losses[-1])
            for one in networks
            for t in one.trainings
        ]
        calibration[epochs] = {"power law": calibrated(ends), "curve like others": calibrated(like)}
    rows = {}
    for name, values in scores.items():
        tau = rank_interval(values, truths, bands)
        rows[name] = {"tau": round(tau.value, 3), "low": round(tau.low, 3), "high": round(tau.high, 3)}
        rows[name]["regret"] = round(regret(values, truths, bands), 4)
        print(f"{name:28}", rows[name])
    print(calibration)
    results = {"networks": len(twice), "learned_from": len(networks), "epochs": whole}
    results |= {"scores": rows, "last_loss": calibration}
    write_text(HERE / "curves.json", json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
