"""Gaussian processes over blocks: one kernel per field, their parameters by the posterior mode."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwbench.latency.block_features import Blocks, Floats, Integers
from hwbench.linear_algebra import one_blas_thread

# Between an Ornstein-Uhlenbeck process (1) and a smooth one (2): latencies have steps, at the sizes of vectors and
# caches. Of 1, 1.5 and 2 the one that left least in the data of experiment 006.
_POWER = 1.5
# Priors, log-normal: (median, standard deviation of the logarithm) of a field's rate, the variance that all fields
# explain together, the variance of one field of an additive process, and what a row has of its own. By judgement:
# a law of work is off by 10 %, by 3 % for each field.
_RATE = (0.1, 1.5)
_VARIANCE = (0.1**2, 1.5)
_FIELD_VARIANCE = (0.03**2, 1.5)
_NUGGET = (0.01**2, 1.0)
# Variance of a common factor: the law's level is not believed beyond a tenth.
_LEVEL = 0.1**2
# The mode is looked for on so many rows, spread evenly over those given: it costs their number to the third power.
_MODE_ROWS = 200
_STEPS = 25
_BOUND = 12.0
# Of the values of several fields, whose distances are worked out once.
_COMBINATIONS = 400
# Blocks that are predicted at a time, which bounds memory.
_CHUNK = 2048
# A process is conditioned on so many rows: a matrix of them takes 72 MB, and time grows with their third power.
_ROWS = 3000


class Structure(enum.Enum):
    """How the fields of a block act together.

    ``TOGETHER``: one process over all fields; blocks are alike where all their fields are. ``ADDED``: a process for
    each field and kind, added up.
    """

    TOGETHER = "together"
    ADDED = "added"


@dataclass(frozen=True)
class Kernel:
    """Covariance of what a law leaves over, from distances by field; ``theta`` are logarithms of its parameters.

    Together: variance * exp(-sum of rate * |difference|^1.5); a name differs by 0 or 1. Added: the sum of variance *
    exp(-rate * |difference|^1.5) over the fields, for blocks of one kind. Both have a common level on top.
    """

    structure: Structure
    theta: Floats

    @classmethod
    def prior(cls, structure: Structure, width: int) -> tuple[Floats, Floats]:
        """Means and standard deviations of the logarithms: rates, variances, the nugget."""
        several = structure is Structure.ADDED
        pairs = [_RATE] * width + ([_FIELD_VARIANCE] * width if several else [_VARIANCE]) + [_NUGGET]
        return np.log([median for median, _ in pairs]), np.array([sd for _, sd in pairs])

    @property
    def nugget(self) -> float:
        """Variance that each row has of its own."""
        return float(np.exp(self.theta[-1]))

    @property
    def variance(self) -> float:
        """Of one block, the nugget left out."""
        width = self._width
        return float(np.exp(self.theta[width:-1]).sum()) + _LEVEL

    @property
    def _width(self) -> int:
        return (len(self.theta) - 1) // 2 if self.structure is Structure.ADDED else len(self.theta) - 2

    def __call__(self, one: Blocks, other: Blocks) -> Floats:
        """Covariances, shape (one, other); the nugget left out."""
        if self.structure is Structure.ADDED:
            return self._added_up(one, other)
        apart = _weighted_distances(np.exp(self.theta[: self._width]), one, other)
        covariances: Floats = np.exp(self.theta[self._width] - apart) + _LEVEL
        return covariances

    def of_distances(self, apart: Floats) -> Floats:
        """Likewise, from distances of shape (fields, one, other)."""
        width = self._width
        rates, variances = np.exp(self.theta[:width]), np.exp(self.theta[width:-1])
        if self.structure is Structure.TOGETHER:
            together: Floats = variances[0] * np.exp(-np.tensordot(rates, apart, 1)) + _LEVEL
            return together
        return np.asarray(sum(v * np.exp(-r * d) for v, r, d in zip(variances, rates, apart)), dtype=float) + _LEVEL

    def _added_up(self, one: Blocks, other: Blocks) -> Floats:
        """Of an additive process, field by field: the distances of all fields at once are as many times as large.

        Blocks have few values in each field, and each pair of values is worked out once.
        """
        width = self._width
        rates, variances = np.exp(self.theta[:width]), np.exp(self.theta[width:-1])
        total = np.zeros((len(one), len(other)))
        for rate, variance, (apart, first, second) in zip(rates, variances, _by_value(one, other)):
            total += (variance * np.exp(-rate * apart))[first[:, None], second[None, :]]
        return total + _LEVEL

    def gradient(self, apart: Floats, weights: Floats) -> Floats:
        """Sum of ``weights`` * derivative of the covariances by each of the parameters but the nugget."""
        width = self._width
        rates, variances = np.exp(self.theta[:width]), np.exp(self.theta[width:-1])
        if self.structure is Structure.TOGETHER:
            weighted = weights * variances[0] * np.exp(-np.tensordot(rates, apart, 1))
            return np.append(-rates * np.tensordot(apart, weighted, 2), weighted.sum())
        fields = [weights * v * np.exp(-r * d) for v, r, d in zip(variances, rates, apart)]
        by_rate = [-r * float((d * field).sum()) for r, d, field in zip(rates, apart, fields)]
        return np.array([*by_rate, *(float(field.sum()) for field in fields)])


def distances(one: Blocks, other: Blocks) -> Floats:
    """|difference|^1.5 of each number, 0 or 1 for each name; shape (numbers + names, one, other).

    A value that was never measured (-1) differs from itself as well.
    """
    numbers = [_number_distances(a, b) for a, b in zip(one.numbers.T, other.numbers.T)]
    names = [_name_distances(a, b) for a, b in zip(one.names.T, other.names.T)]
    return np.array([*numbers, *names], dtype=float)


def _number_distances(one: Floats, other: Floats) -> Floats:
    apart: Floats = np.abs(one[:, None] - other[None, :])
    return apart * np.sqrt(apart)


def _name_distances(one: Integers, other: Integers) -> NDArray[np.bool_]:
    return np.asarray((one[:, None] != other[None, :]) | (one[:, None] < 0))


def _by_value(one: Blocks, other: Blocks) -> Iterator[tuple[Floats, Integers, Integers]]:
    """Of each field: the distances between its values, and where the value of each block stands among them."""
    for a, b in zip(one.numbers.T, other.numbers.T):
        numbers, places = np.unique(np.concatenate([a, b]), return_inverse=True)
        yield _number_distances(numbers, numbers), places[: len(a)], places[len(a) :]
    for a, b in zip(one.names.T, other.names.T):
        names, places = np.unique(np.concatenate([a, b]), return_inverse=True)
        yield _name_distances(names, names).astype(float), places[: len(a)], places[len(a) :]


def _weighted_distances(rates: Floats, one: Blocks, other: Blocks) -> Floats:
    """Sum of rate * distance over the fields, shape (one, other).

    Blocks have few values in each field: fields are taken together while they have few combinations, and each pair of
    combinations is worked out once.
    """
    total = np.zeros((len(one), len(other)))
    split = one.numbers.shape[1]
    both = np.concatenate([np.hstack([b.numbers, b.names]) for b in (one, other)])
    start, end = 0, both.shape[1]
    while start < end:
        stop = start + 1
        combined, places = np.unique(both[:, start:stop], axis=0, return_inverse=True)
        while stop < end:
            wider, places_of = np.unique(both[:, start : stop + 1], axis=0, return_inverse=True)
            if len(wider) > _COMBINATIONS:
                break
            combined, places, stop = wider, places_of, stop + 1
        numbers, names = combined[:, : max(split - start, 0)], combined[:, max(split - start, 0) :].astype(np.int64)
        values = Blocks(np.empty((len(combined), 0)), numbers, names)
        table = np.tensordot(rates[start:stop], distances(values, values), 1)
        total += table[places.ravel()[: len(one), None], places.ravel()[None, len(one) :]]
        start = stop
    return total


@dataclass(frozen=True)
class GaussianProcess:
    """A process conditioned on rows.

    Attributes:
        kernel: Its covariance.
        blocks: The rows it is conditioned on, at most ``_ROWS``.
        noise: Variance of each of them: of the measurement, and the nugget.
        factor: Cholesky factor of the covariance of the rows with their noise, lower.
        weights: Inverse covariance times values.
    """

    kernel: Kernel
    blocks: Blocks
    noise: Floats
    factor: Floats
    weights: Floats

    @classmethod
    def fit(cls, structure: Structure, blocks: Blocks, values: Floats, measured: Floats) -> GaussianProcess:
        """Finds the parameters and conditions on the rows.

        Args:
            structure: How fields act together.
            blocks: Rows.
            values: What is learnt, about zero; shape (rows,).
            measured: Variance of each value by its measurement.
        """
        some = np.unique(np.linspace(0, len(blocks) - 1, min(len(blocks), _MODE_ROWS)).round().astype(int))
        kernel = Kernel(structure, _mode(structure, blocks[some], values[some], measured[some]))
        return cls.conditioned(kernel, blocks, values, measured)

    @classmethod
    def conditioned(cls, kernel: Kernel, blocks: Blocks, values: Floats, measured: Floats) -> GaussianProcess:
        """A process whose parameters are known; of more than ``_ROWS`` rows it knows one out of each of so many strata.

        The same ones at every call, each drawn within its stratum: rows stand by key, so that an even step would keep
        some values of a field and leave out the others.
        """
        from scipy.linalg import cho_solve

        if len(blocks) > _ROWS:
            steps = np.arange(_ROWS) + np.random.default_rng(0x6A55).random(_ROWS)
            some = np.unique((steps * len(blocks) / _ROWS).astype(int))
            blocks, values, measured = blocks[some], values[some], measured[some]
        noise = measured + kernel.nugget
        factor: Floats = np.asarray(np.linalg.cholesky(kernel(blocks, blocks) + np.diag(noise)), dtype=float)
        return cls(kernel, blocks, noise, factor, cho_solve((factor, True), values))

    def predict(self, blocks: Blocks) -> tuple[Floats, Floats]:
        """Means and variances of blocks, the nugget included; both of the shape (blocks,)."""
        means, variances = np.empty(len(blocks)), np.empty(len(blocks))
        for start in range(0, len(blocks), _CHUNK):
            part = slice(start, start + _CHUNK)
            across = self.kernel(self.blocks, blocks[part])
            means[part] = across.T @ self.weights
            variances[part] = self.kernel.variance - (self.whitened(across) ** 2).sum(axis=0)
        return means, np.maximum(variances, 0.0) + self.kernel.nugget

    def whitened(self, across: Floats) -> Floats:
        """Inverse Cholesky factor times covariances of the rows with others, shape (rows, others)."""
        from scipy.linalg import solve_triangular

        return np.asarray(solve_triangular(self.factor, across, lower=True, check_finite=False), dtype=float)

    def left_out(self) -> tuple[Floats, Floats]:
        """Of each row, by all the others: value - mean, and the variance of that (Rasmussen & Williams 2006, 5.4.2)."""
        from scipy.linalg import cho_solve

        inverse = np.diag(cho_solve((self.factor, True), np.eye(len(self.blocks))))
        return self.weights / inverse, 1 / inverse


def _mode(structure: Structure, blocks: Blocks, values: Floats, measured: Floats) -> Floats:
    """Logarithms of the parameters at the mode of their posterior."""
    from scipy.linalg import cho_solve
    from scipy.optimize import minimize

    apart = distances(blocks, blocks)
    means, sds = Kernel.prior(structure, len(apart))
    eye = np.eye(len(blocks))

    def objective(theta: NDArray[np.float64]) -> tuple[float, Floats]:
        kernel = Kernel(structure, theta)
        covariance = kernel.of_distances(apart) + np.diag(measured + kernel.nugget + 1e-10)
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return 1e12, np.zeros(len(theta))
        weights = cho_solve((factor, True), values)
        off = (theta - means) / sds
        loss = 0.5 * values @ weights + np.log(np.diag(factor)).sum() + 0.5 * off @ off
        slope = 0.5 * (cho_solve((factor, True), eye) - np.outer(weights, weights))
        by_nugget = kernel.nugget * np.trace(slope)
        return float(loss), np.append(kernel.gradient(apart, slope), by_nugget) + off / sds

    bounds = [(mean - _BOUND, mean + _BOUND) for mean in means]
    with one_blas_thread():
        found = minimize(objective, means, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS})
    return np.asarray(found.x, dtype=float)
