"""What the scores of some networks say about all others: a Gaussian process whose draws are additive over stages.

A score is a constant, plus an effect of every choice, plus an effect of every pair of choices that meet: within a
stage, of a stage with the activation that reaches it, of a stage with the input size, of frames with resolution; plus
an effect of every stage as a whole, for what its choices do only together. All effects are normal. Those of choices
and pairs sum to zero over the values of a choice, so that pairs hold what single choices do not explain. Values are
unrelated, but half of the variance of a numeric choice is smooth: close values behave alike. Whole stages that differ
in one choice have a correlation of a half, in two choices a quarter, and so on. Five variances, one for each sort of
effect, and that of the noise maximise the marginal likelihood of the scores under a prior.

Scores of several fidelities (epochs, frames, resolution) are learned from together: each fidelity has its constant and
its scale, and what effects and noise of a training are at two fidelities has a correlation that falls with the number
of doublings between them, at a rate that is learned. A training that is known to the end so has nothing to add by its
beginning.

Scores of other data have a level and a scale of their own, and a posterior of their own. Its mean, in standard
deviations of those scores, is one more effect: by how much a score here rises with it is normal, 3/4 in the mean with
a deviation of a half, and what scores here say decides. Where the others agree with nothing, or say nothing, little is
lost; where they say the opposite, that is learned as well (``experiments/036-shipped-trainings``).

Of more than 1,500 scores 1,500 are learned from, spread evenly over the trainings (``Levels.chosen``): those of the
fidelity that is asked about come first, then the last ones of other trainings. Means and deviations of scores are those
of all.

Because every effect is one of a stage, of what reaches it, or of the input size, a draw of the whole function is a
``SpaceSums``: its best network within a budget is found exactly (``FeasibleSet.best``).

Sources: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, §2.2 and §5.4; Duvenaud et al., Additive
Gaussian Processes, NeurIPS 2011; several fidelities as a product of kernels, Bonilla et al., Multi-task Gaussian
Process Prediction, NeurIPS 2007, eq. 1; draws by Matheron's rule, Wilson et al., ICML 2020, eq. 9. Loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from hwbench.linear_algebra import one_blas_thread
from hwbench.spaces.protocols import NetworkSums
from hwbench.spaces.walk import Floats, Integers
from hwbench.specs import Architecture
from hwbench.studies.fidelities import Levels, ScoreObservation
from hwbench.studies.posterior_kernels import EffectKernels
from hwbench.studies.posterior_layout import SORTS, EffectLayout, Effects, Layout

# The share of the variance of all scores that each sort of effect is expected to hold, noise last.
_EXPECTED = (0.55, 0.1, 0.05, 0.1, 0.05, 0.15)
# Standard deviation of the logarithm of such a share of effects: a factor of two is nothing unusual. With a wider prior
# they follow the noise of a few trainings, and predict other networks less well (``experiments/034-few-trainings``).
SPREAD = 0.7
# Of that of the noise: scores may have none.
_NOISE_SPREAD = 1.4
# Doublings of epochs, frames or pixels by which scores lose a correlation of 1/e: what is tried.
_LENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
# Variance of the constant of a fidelity about the mean of its scores: networks that are trained longer are no sample.
_CONSTANT = 0.5
# By how much a score rises with what other data let expect of it, both in standard deviations: mean and deviation.
_SLOPE, _SLOPE_DEVIATION = 0.75, 0.5
# Variance of what a score has for itself, so that no matrix is singular.
_NUGGET = 1e-6
# Scores that are learned from: a matrix of them takes 18 MB, and time grows with their third power.
_MOST = 1500


@dataclass(frozen=True)
class Hyperparameters:
    """What the marginal likelihood decides.

    Attributes:
        variances: Of one effect of each of ``SORTS``, and of the noise.
        length: Doublings by which scores of two fidelities lose a correlation of 1/e.
    """

    variances: tuple[float, ...]
    length: float = _LENGTHS[-1]


@dataclass(frozen=True)
class Posterior:
    """The scores of some networks, and what they say of all others. Made by ``fit``.

    Attributes:
        layout: The columns.
        codes: The networks whose scores are learned from, shape (N, columns), N at most ``_MOST``.
        levels: The fidelities of the scores.
        values: The scores in standard deviations from the mean of all at their fidelity, shape (N).
        mean: Of all scores at the fidelity that is asked about.
        deviation: Of the same.
        parameters: What was learned beside the effects.
        elsewhere: What the same networks and others did on other data; None: nothing is known of that.
    """

    layout: EffectLayout
    codes: Integers
    levels: Levels
    values: Floats
    mean: float
    deviation: float
    parameters: Hyperparameters
    elsewhere: Posterior | None = None

    @classmethod
    @one_blas_thread()
    def fit(
        cls,
        layout: EffectLayout,
        observations: Sequence[ScoreObservation],
        parameters: Hyperparameters | None = None,
        spread: float = SPREAD,
        elsewhere: Posterior | None = None,
    ) -> Posterior:
        """Learns from scored networks; from 1,500 scores here and as many on other data, where there are more.

        Args:
            layout: Of the space.
            observations: At least one; a network may be there more than once. Where all are of other data, these are
                what is asked about.
            parameters: Known from observations like these; None: they are learned.
            spread: Standard deviation of the logarithm of the variances of effects under their prior.
            elsewhere: What was learned from the observations of other data; None: it is learned from them.

        Raises:
            ValueError: There is no network.
        """
        if not observations and elsewhere is None:
            raise ValueError("nothing to learn from")
        others = [replace(one, elsewhere=False) for one in observations if one.elsewhere]
        if others and elsewhere is None:
            elsewhere = cls.fit(layout, others, spread=spread)
        observations = [one for one in observations if not one.elsewhere]
        if elsewhere is not None and not observations:
            return elsewhere
        levels = Levels.of(observations)
        values, mean, deviation = levels.standardised(np.array([one.score for one in observations], np.float64))
        rows = levels.chosen(_MOST)
        codes = layout.encode([observations[row].architecture for row in rows])
        levels, values = levels.of_rows(rows), values[rows]
        if parameters is None:
            kernels = EffectKernels(layout)
            grams = [*kernels.grams(codes, codes), levels.same_training]
            expected = np.zeros(len(codes)) if elsewhere is None else elsewhere._standard(codes)
            parameters = _learned(kernels.counts, grams, levels, values - _SLOPE * expected, spread, expected)
        return cls(layout, codes, levels, values, mean, deviation, parameters, elsewhere)

    @property
    def variances(self) -> tuple[float, ...]:
        """Of each of ``SORTS`` and of the noise, of one effect each."""
        return self.parameters.variances

    @property
    def noise(self) -> float:
        """Standard deviation of what a score has beside all effects, in the unit of the scores."""
        return self.deviation * float(np.sqrt(self.variances[-1]))

    @one_blas_thread()
    def predict(self, architectures: Sequence[Architecture]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the score of networks, without noise, shape (N) each."""
        codes = self.layout.encode(architectures)
        expected, known = self._elsewhere(codes), self._elsewhere(self.codes)
        cross = self._kernel(self._kernels.grams(codes, self.codes)) * self._to_target + self._constant_to_target
        cross += _SLOPE_DEVIATION**2 * np.outer(expected, known)
        own = self._kernel(self._kernels.diagonal(codes)) + self._constant + (_SLOPE_DEVIATION * expected) ** 2
        mean = _SLOPE * expected + cross @ self._weights
        variance = own - np.einsum("ij,ji->i", cross, self._solve(cross.T))
        return self.mean + self.deviation * mean, self.deviation * np.sqrt(np.maximum(variance, 0.0))

    @one_blas_thread()
    def expected(self) -> NetworkSums:
        """The mean of the posterior."""
        return self._sums(self._weights, Effects(), 0.0, _SLOPE)

    @one_blas_thread()
    def draw(self, rng: np.random.Generator, scale: float = 1.0) -> NetworkSums:
        """A function drawn from the posterior, ``scale`` times as far from its mean: 0 gives the mean."""
        if scale == 0.0:
            return self.expected()
        variances, root = [scale**2 * variance for variance in self.variances], self._root[self.levels.level]
        first, prior = Effects(), np.zeros(len(self.codes))
        for number in range(len(self.levels.places)):
            effects = self._kernels.draw(variances[:-1], rng)
            noise = rng.normal(size=1 + int(self.levels.training.max())) * np.sqrt(variances[-1])
            prior += root[:, number] * (effects.at(self.codes, self.layout) + noise[self.levels.training])
            first = first if number else effects
        constants = scale * np.sqrt(self._constant) * rng.normal(size=len(self.levels.places))
        prior += constants[self.levels.level] + scale * np.sqrt(_NUGGET) * rng.normal(size=len(prior))
        slope = _SLOPE
        if self.elsewhere is not None:
            slope += scale * _SLOPE_DEVIATION * float(rng.normal())
            prior += slope * self._elsewhere(self.codes)
        return self._sums(self._solve(self.values - prior), first, float(constants[0]), slope)

    @cached_property
    def _kernels(self) -> EffectKernels:
        return EffectKernels(self.layout)

    @cached_property
    def _weights(self) -> Floats:
        return self._solve(self.values - _SLOPE * self._elsewhere(self.codes))

    def _elsewhere(self, codes: Integers) -> Floats:
        """What other data let expect of networks, in standard deviations of the scores there, shape (N)."""
        return np.zeros(len(codes)) if self.elsewhere is None else self.elsewhere._standard(codes)

    def _standard(self, codes: Integers) -> Floats:
        """The mean of the posterior less that of the scores, in their standard deviations, shape (N)."""
        effects, constant = self._standard_effects
        return constant + effects.at(codes, self.layout)

    @cached_property
    def _standard_effects(self) -> tuple[Effects, float]:
        """The mean of the posterior without what other data add, in standard deviations; effects and constant."""
        found = self._kernels.effects(self.variances[:-1], self.codes, self._to_target * self._weights)
        return found, float(self._constant_to_target @ self._weights)

    @cached_property
    def _solve(self) -> Callable[[Floats], Floats]:
        grams = [*self._kernels.grams(self.codes, self.codes), self.levels.same_training]
        correlation, same_level = _between(self.levels, self.parameters.length)
        expected = self._elsewhere(self.codes)
        gram = self._kernel(grams) * correlation + self._constant * same_level
        gram += _SLOPE_DEVIATION**2 * np.outer(expected, expected)
        gram[np.diag_indices_from(gram)] += _NUGGET
        factor = cho_factor(gram, lower=True)
        return partial(cho_solve, factor)

    @cached_property
    def _root(self) -> Floats:
        """Shape (levels, levels): makes of independent functions those of each level, of the first one the first."""
        return np.linalg.cholesky(self.levels.correlation(self.parameters.length)).astype(np.float64)

    @property
    def _constant(self) -> float:
        return 0.0 if self.levels.single else _CONSTANT

    @cached_property
    def _to_target(self) -> Floats:
        """Shape (N): the correlation of each score's level with the one that is asked about."""
        found: Floats = self.levels.correlation(self.parameters.length)[0][self.levels.level]
        return found

    @cached_property
    def _constant_to_target(self) -> Floats:
        return self._constant * np.equal(self.levels.level, 0).astype(np.float64)

    def _kernel(self, grams: Sequence[Floats]) -> Floats:
        return sum(variance * gram for variance, gram in zip(self.variances, grams))  # type: ignore[return-value]

    def _sums(self, weights: Floats, prior: Effects, constant: float, slope: float) -> NetworkSums:
        """The function that weights of the scored networks add to effects of the prior.

        ``slope`` is that of the prior, of what other data let expect.
        """
        found = self._kernels.effects(self.variances[:-1], self.codes, self._to_target * weights)
        constant += float(self._constant_to_target @ weights)
        added = [(prior, 1.0)]
        if self.elsewhere is not None:
            others, level = self.elsewhere._standard_effects
            slope += _SLOPE_DEVIATION**2 * float(self._elsewhere(self.codes) @ weights)
            added.append((others, slope))
            constant += slope * level
        scaled = Effects(
            *(
                {
                    key: self.deviation * sum((f * getattr(one, sort).get(key, 0.0) for one, f in added), effect)
                    for key, effect in getattr(found, sort).items()
                }
                for sort in ("single", "pairs", "stages")
            )
        )
        return self.layout.sums_of(scaled, self.mean + self.deviation * constant)


def _between(levels: Levels, length: float) -> tuple[Floats, Floats]:
    """Shape (N, N) each: the correlation of the levels of two scores, and whether the levels are the same."""
    level = levels.level
    return levels.correlation(length)[level[:, None], level], (level[:, None] == level).astype(np.float64)


def _learned(
    counts: Sequence[int],
    grams: Sequence[Floats],
    levels: Levels,
    values: Floats,
    spread: float,
    expected: Floats,
) -> Hyperparameters:
    """The mode of the posterior; of the lengths the best one. ``expected`` is what other data let expect."""
    slopes = _SLOPE_DEVIATION**2 * np.outer(expected, expected)
    if levels.single:
        return Hyperparameters(_variances(counts, grams, slopes, values, spread)[1])
    found = []
    for length in _LENGTHS:
        correlation, same_level = _between(levels, length)
        parts = [gram * correlation for gram in grams]
        loss, variances = _variances(counts, parts, _CONSTANT * same_level + slopes, values, spread)
        found.append((loss, Hyperparameters(variances, length)))
    return min(found, key=lambda one: one[0])[1]


def _variances(
    counts: Sequence[int], parts: Sequence[Floats], fixed: Floats, values: Floats, spread: float
) -> tuple[float, tuple[float, ...]]:
    """Minus the logarithm of the posterior at its mode, and the variances there."""
    expected = np.array(_EXPECTED) / np.array([*(max(count, 1) for count in counts), 1])
    eye = np.eye(len(values))
    fixed = fixed + _NUGGET * eye
    widths = np.array([*(spread for _ in counts), _NOISE_SPREAD])

    def loss(logs: Floats) -> tuple[float, Floats]:
        shares = expected * np.exp(logs)
        gram = sum(share * part for share, part in zip(shares, parts)) + fixed
        factor = cho_factor(gram, lower=True)
        weights, inverse = cho_solve(factor, values), cho_solve(factor, eye)
        inner = np.outer(weights, weights) - inverse
        slope = np.array([-0.5 * share * np.sum(inner * part) for share, part in zip(shares, parts)])
        value = 0.5 * values @ weights + np.log(np.diag(factor[0])).sum() + 0.5 * np.sum((logs / widths) ** 2)
        return float(value), slope + logs / widths**2

    mode = minimize(loss, np.zeros(len(parts)), jac=True, method="L-BFGS-B", bounds=[(-9.0, 4.0)] * len(parts))
    return float(mode.fun), tuple((expected * np.exp(mode.x)).tolist())


__all__ = ["SORTS", "Hyperparameters", "Layout", "Posterior"]
