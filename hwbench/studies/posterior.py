"""What the scores of some networks say about all others: a Gaussian process whose draws are additive over stages.

A score is a constant, plus an effect of every choice, plus an effect of every pair of choices that meet: within a
stage, of a stage with the activation that reaches it, of a stage with the input size, of frames with resolution. All
effects are normal and sum to zero over the values of a choice, so that pairs hold what single choices do not explain.
Values are unrelated, but half of the variance of a numeric choice is smooth: close values behave alike. Four
variances, one for each sort of effect, and that of the noise maximise the marginal likelihood of the scores under weak
priors.

Because every effect is one of a stage, of what reaches it, or of the input size, a draw of the whole function is a
``SpaceSums``: its best network within a budget is found exactly (``FeasibleSet.best``).

Sources: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, §2.2 and §5.4; Duvenaud et al., Additive
Gaussian Processes, NeurIPS 2011; draws by Matheron's rule, Wilson et al., ICML 2020, eq. 9. Loads no torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from hwbench.spaces.space import InputSize
from hwbench.spaces.sums import CellSums, SpaceSums
from hwbench.spaces.walk import Floats, Integers, StageSums
from hwbench.specs import Architecture

# Sorts of effects, with the share of the variance of all scores that each is expected to hold, noise last.
SORTS = ("choice", "within a stage", "with what reaches a stage", "with the input size")
_EXPECTED = (0.6, 0.1, 0.05, 0.1, 0.15)
# Standard deviation of the logarithm of such a share: a factor of four is nothing unusual.
_SPREAD = 1.4
# Values that are so many places apart on a scale have a correlation of exp(-1/2).
_PLACES = 1.5
# The share of the variance of a numeric choice that is smooth.
_SMOOTH = 0.5
# A pair of terms: the numbers of two columns.
_Pair = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """The choices of a space as columns of numbers, and which of them meet.

    Columns are the choices of the space in its order, then for every step behind the first the channels that reach it.
    A step is a stage, or one block where blocks choose for themselves. A block that is not there counts as one with the
    first values: what it lacks is told by the depth.

    Attributes:
        sums: Any sums over the space; only the way through it is used.
    """

    sums: SpaceSums

    @cached_property
    def scales(self) -> tuple[tuple[str, ...], ...]:
        """The values of each column."""
        channels = [tuple(str(value) for value in values) for values in self._channels]
        return (*self.sums.space.choices.values(), *channels)

    @cached_property
    def pairs(self) -> dict[str, tuple[_Pair, ...]]:
        """The columns that meet, by sort of effect."""
        sides = range(self._sides)
        within, reaching, size = [], [], list(itertools.combinations(sides, 2))
        for number, columns in enumerate(self._of_stage):
            within += list(itertools.combinations(columns, 2))
            size += [(side, column) for side in sides for column in columns]
            if number:
                reaching += [(self._incoming + number - 1, column) for column in columns]
        told = [self._telling(pairs) for pairs in (within, reaching, size)]
        return dict(zip(SORTS[1:], told))

    @cached_property
    def singles(self) -> tuple[int, ...]:
        """The columns that have an effect on their own: choices of more than one value."""
        return tuple(c for c in range(self._incoming) if len(self.scales[c]) > 1)

    def encode(self, architectures: Sequence[Architecture]) -> Integers:
        """Shape (N, columns): the place of every value on its scale."""
        return np.array([self._row(a) for a in architectures], np.int64).reshape(-1, len(self.scales))

    def sums_of(self, single: dict[int, Floats], pairs: dict[_Pair, Floats], constant: float) -> SpaceSums:
        """The function with these effects, as sums over the space."""
        cells = tuple(self._cell(cell, single, pairs, constant) for cell in self.sums.cells)
        return replace(self.sums, cells=cells, missing=(), reason="")

    @cached_property
    def _of_stage(self) -> tuple[tuple[int, ...], ...]:
        """The columns of each stage's choices."""
        first, found = self._sides, []
        for axis in self.sums.axes:
            count = len(axis.stage.offered)
            found.append(tuple(range(first, first + count)))
            first += count
        return tuple(found)

    @cached_property
    def _incoming(self) -> int:
        return len(self.sums.space.choices)

    @cached_property
    def _sides(self) -> int:
        """The number of columns that are the input size."""
        return len(self.sums.space.size_texts(self.sums.cells[0].cell))

    @cached_property
    def _channels(self) -> list[list[int]]:
        """What may reach each stage behind the first, in channels."""
        stages = zip(*(cell.stages[1:] for cell in self.sums.cells))
        return [sorted({x.c for stage in alike for x in stage.inputs}) for alike in stages]

    @cached_property
    def _places(self) -> list[Integers]:
        """By stage: shape (choices, columns of the stage), the place of each value."""
        tables = []
        for axis in self.sums.axes:
            texts = [axis.stage.texts(name) for name in axis.stage.offered]
            told = [axis.texts_of(choice) for choice in axis.choices]
            rows = [[t.index(text) for t, text in zip(texts, row)] if row else [0] * len(texts) for row in told]
            tables.append(np.array(rows, np.int64).reshape(len(rows), len(texts)))
        return tables

    def _telling(self, pairs: list[_Pair]) -> tuple[_Pair, ...]:
        return tuple(pair for pair in pairs if all(len(self.scales[column]) > 1 for column in pair))

    def _input_places(self, cell: InputSize) -> tuple[int, ...]:
        texts = self.sums.space.size_texts(cell).values()
        return tuple(scale.index(text) for scale, text in zip(self.scales, texts))

    def _row(self, architecture: Architecture) -> list[int]:
        space = self.sums.space
        row: list[int] = space.encode([architecture])[0].tolist()
        stages = self.sums.cells[space.cells.index(space.cell(architecture))].stages
        state = 0
        for number, (axis, choice) in enumerate(zip(self.sums.axes, space.step_choices(architecture))):
            if number:
                row.append(self._channels[number - 1].index(stages[number].inputs[state].c))
            state = int(stages[number].out[state, axis.numbers[choice]])
        return row

    def _cell(self, cell: CellSums, single: dict[int, Floats], pairs: dict[_Pair, Floats], constant: float) -> CellSums:
        places = self._input_places(cell.cell)
        base = constant + sum(single[side][at] for side, at in enumerate(places) if side in single)
        for one, other in itertools.combinations(range(self._sides), 2):
            base += float(pairs[one, other][places[one], places[other]]) if (one, other) in pairs else 0.0
        stages = tuple(self._stage(number, stage, places, single, pairs) for number, stage in enumerate(cell.stages))
        return CellSums(cell.cell, float(base), stages)

    def _stage(
        self,
        number: int,
        stage: StageSums,
        input_places: tuple[int, ...],
        single: dict[int, Floats],
        pairs: dict[_Pair, Floats],
    ) -> StageSums:
        places, columns = self._places[number], self._of_stage[number]
        at = {column: places[:, index] for index, column in enumerate(columns)}
        total = np.zeros(len(places))
        for column in columns:
            if column in single:
                total += single[column][at[column]]
            for side, place in enumerate(input_places):
                if (side, column) in pairs:
                    total += pairs[side, column][place, at[column]]
        for pair in itertools.combinations(columns, 2):
            if pair in pairs:
                total += pairs[pair][at[pair[0]], at[pair[1]]]
        seconds = np.tile(total, (len(stage.inputs), 1))
        if number:
            incoming = self._incoming + number - 1
            rows = np.array([self._channels[number - 1].index(x.c) for x in stage.inputs])
            for column in columns:
                if (incoming, column) in pairs:
                    seconds += pairs[incoming, column][rows[:, None], at[column]]
        return replace(stage, seconds=seconds)


@dataclass(frozen=True)
class Posterior:
    """The scores of some networks, and what they say of all others. Made by ``fit``.

    Attributes:
        layout: The columns.
        codes: The networks that were scored, shape (N, columns).
        values: Their scores in standard deviations from their mean, shape (N).
        mean: Of the scores.
        deviation: Of the scores.
        variances: Of each of ``SORTS`` and of the noise, of one effect each.
    """

    layout: Layout
    codes: Integers
    values: Floats
    mean: float
    deviation: float
    variances: tuple[float, ...]

    @classmethod
    def fit(cls, layout: Layout, architectures: Sequence[Architecture], scores: Sequence[float]) -> Posterior:
        """Learns from scored networks.

        Args:
            layout: Of the space.
            architectures: The networks; one may be there more than once.
            scores: What each was worth, finite.

        Raises:
            ValueError: There is no network.
        """
        if not len(architectures):
            raise ValueError("nothing to learn from")
        given = np.asarray(scores, np.float64)
        mean, deviation = float(given.mean()), float(given.std()) or 1.0
        codes, values = layout.encode(architectures), (given - mean) / deviation
        kernels = _Kernels(layout)
        grams = kernels.grams(codes, codes)
        return cls(layout, codes, values, mean, deviation, _variances(kernels.counts, grams, values))

    def predict(self, architectures: Sequence[Architecture]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the score of networks, without noise, shape (N) each."""
        codes = self.layout.encode(architectures)
        cross = self._kernel(self._kernels.grams(codes, self.codes))
        own = self._kernel(self._kernels.diagonal(codes))
        mean = cross @ self._solve(self.values)
        variance = own - np.einsum("ij,ji->i", cross, self._solve(cross.T))
        return self.mean + self.deviation * mean, self.deviation * np.sqrt(np.maximum(variance, 0.0))

    def expected(self) -> SpaceSums:
        """The mean of the posterior."""
        return self._sums(self._solve(self.values), {}, {})

    def draw(self, rng: np.random.Generator, scale: float = 1.0) -> SpaceSums:
        """A function drawn from the posterior, ``scale`` times as far from its mean: 0 gives the mean."""
        single, pairs = self._kernels.draw([scale**2 * variance for variance in self.variances], rng)
        prior = np.zeros(len(self.codes))
        for column, effect in single.items():
            prior += effect[self.codes[:, column]]
        for (one, other), table in pairs.items():
            prior += table[self.codes[:, one], self.codes[:, other]]
        noise = scale * rng.normal(size=len(self.codes)) * np.sqrt(self.variances[-1])
        return self._sums(self._solve(self.values - prior - noise), single, pairs)

    @cached_property
    def _kernels(self) -> _Kernels:
        return _Kernels(self.layout)

    @cached_property
    def _solve(self) -> Callable[[Floats], Floats]:
        gram = self._kernel(self._kernels.grams(self.codes, self.codes))
        gram[np.diag_indices_from(gram)] += self.variances[-1]
        factor = cho_factor(gram, lower=True)
        return lambda right: cho_solve(factor, right)

    def _kernel(self, grams: Sequence[Floats]) -> Floats:
        return sum(variance * gram for variance, gram in zip(self.variances, grams))  # type: ignore[return-value]

    def _sums(self, weights: Floats, single: dict[int, Floats], pairs: dict[_Pair, Floats]) -> SpaceSums:
        """The function that weights of the scored networks add to effects of the prior."""
        scaled = self.deviation
        seen = self._kernels.onto(self.codes)
        effects = {
            column: scaled * (single.get(column, 0.0) + self.variances[0] * seen[column] @ weights)
            for column in self.layout.singles
        }
        tables = {
            (one, other): scaled * (pairs.get((one, other), 0.0) + variance * (seen[one] * weights) @ seen[other].T)
            for variance, sort in zip(self.variances[1:], SORTS[1:])
            for one, other in self.layout.pairs[sort]
        }
        return self.layout.sums_of(effects, tables, self.mean)


class _Kernels:
    """Covariances of the effects of a layout, of variance one each."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._scales = [_covariance(scale) for scale in layout.scales]
        self.counts = (len(layout.singles), *(len(layout.pairs[sort]) for sort in SORTS[1:]))

    def onto(self, codes: Integers) -> list[Floats]:
        """By column, shape (values, N): the covariance of the effect of a value with that of each network."""
        return [scale[:, codes[:, column]] for column, scale in enumerate(self._scales)]

    def grams(self, one: Integers, other: Integers) -> list[Floats]:
        """By sort, shape (N, M): the covariance of what the effects of one sort add to two networks."""
        by_column = [scale[one[:, c, None], other[:, c]] for c, scale in enumerate(self._scales)]
        return self._by_sort(by_column, (len(one), len(other)))

    def diagonal(self, codes: Integers) -> list[Floats]:
        """As ``grams`` of each network with itself, shape (N)."""
        by_column = [np.diag(scale)[codes[:, column]] for column, scale in enumerate(self._scales)]
        return self._by_sort(by_column, (len(codes),))

    def draw(
        self, variances: Sequence[float], rng: np.random.Generator
    ) -> tuple[dict[int, Floats], dict[_Pair, Floats]]:
        """Effects drawn from the prior."""
        roots = self._roots
        single = {
            column: np.sqrt(variances[0]) * roots[column] @ rng.normal(size=len(roots[column]))
            for column in self._layout.singles
        }
        pairs = {}
        for variance, sort in zip(variances[1:], SORTS[1:]):
            for one, other in self._layout.pairs[sort]:
                normal = rng.normal(size=(len(roots[one]), len(roots[other])))
                pairs[one, other] = np.sqrt(variance) * roots[one] @ normal @ roots[other].T
        return single, pairs

    @cached_property
    def _roots(self) -> list[Floats]:
        """By column a matrix whose product with its transpose is the covariance, which is singular."""
        roots = []
        for scale in self._scales:
            values, vectors = np.linalg.eigh(scale)
            roots.append(vectors * np.sqrt(np.maximum(values, 0.0)))
        return roots

    def _by_sort(self, by_column: list[Floats], shape: tuple[int, ...]) -> list[Floats]:
        grams = [sum((by_column[c] for c in self._layout.singles), start=np.zeros(shape))]
        for sort in SORTS[1:]:
            products = (by_column[one] * by_column[other] for one, other in self._layout.pairs[sort])
            grams.append(sum(products, start=np.zeros(shape)))
        return grams


def _covariance(scale: tuple[str, ...]) -> Floats:
    """Of the effects of the values of a choice: they sum to zero, and their mean variance is one."""
    count = len(scale)
    places = np.arange(count, dtype=np.float64)
    near = np.eye(count)
    if _numeric(scale):
        near = (1 - _SMOOTH) * near + _SMOOTH * np.exp(-0.5 * ((places[:, None] - places) / _PLACES) ** 2)
    centre = np.eye(count) - 1.0 / count
    centred: Floats = centre @ near @ centre
    size = float(np.trace(centred)) / count
    return centred / size if size > 0 else np.zeros((count, count))


def _numeric(scale: tuple[str, ...]) -> bool:
    try:
        return bool(np.isfinite([float(value) for value in scale]).all())
    except ValueError:
        return False


def _variances(counts: Sequence[int], grams: Sequence[Floats], values: Floats) -> tuple[float, ...]:
    """The variance of one effect of each sort, and of the noise, at the mode of their posterior."""
    expected = np.array(_EXPECTED) / np.array([*(max(count, 1) for count in counts), 1])
    eye = np.eye(len(values))
    parts = [*grams, eye]

    def loss(logs: Floats) -> tuple[float, Floats]:
        shares = expected * np.exp(logs)
        gram = sum(share * part for share, part in zip(shares, parts)) + 1e-9 * eye
        factor = cho_factor(gram, lower=True)
        weights, inverse = cho_solve(factor, values), cho_solve(factor, eye)
        inner = np.outer(weights, weights) - inverse
        slope = np.array([-0.5 * share * np.sum(inner * part) for share, part in zip(shares, parts)])
        value = 0.5 * values @ weights + np.log(np.diag(factor[0])).sum() + 0.5 * np.sum((logs / _SPREAD) ** 2)
        return float(value), slope + logs / _SPREAD**2

    found = minimize(loss, np.zeros(len(parts)), jac=True, method="L-BFGS-B", bounds=[(-9.0, 4.0)] * len(parts))
    return tuple((expected * np.exp(found.x)).tolist())
