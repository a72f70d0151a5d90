"""Covariances of what choices, pairs of choices and whole stages add to a score, and draws of it. Loads no torch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce

import numpy as np

from hwbench.spaces.scales import is_numeric, steps_along
from hwbench.spaces.walk import Floats, Integers
from hwbench.studies.posterior_layout import ABSENT_VALUE, PAIRS, EffectLayout, Effects

# Numbers that are so many places apart in ascending order have a correlation of exp(-1/2).
_PLACES = 1.5
# The share of the variance of a numeric choice that is smooth.
_SMOOTH = 0.5
# The correlation of what two stages add as a whole that differ in one choice.
_ALIKE = 0.5
# Networks whose covariances with all others are worked out at a time: a matrix for each column of the layout.
_ROWS = 32


class EffectKernels:
    """Covariances of the effects of a layout, of variance one each.

    Args:
        layout: The columns.
    """

    def __init__(self, layout: EffectLayout) -> None:
        self._layout = layout
        self._scales = [layout.weight(column) * _present(_covariance, one) for column, one in enumerate(layout.scales)]
        self._whole = [_present(_alike, scale) for scale in layout.scales]
        self.counts = layout.counts

    def grams(self, one: Integers, other: Integers) -> list[Floats]:
        """By sort, shape (N, M): the covariance of what the effects of one sort add to two networks."""
        found = [np.empty((len(one), len(other))) for _ in self.counts]
        for first in range(0, len(one), _ROWS):
            rows = slice(first, first + _ROWS)
            for gram, part in zip(found, self._by_sort(one[rows, None, :], other[None, :, :]), strict=True):
                gram[rows] = part
        return found

    def diagonal(self, codes: Integers) -> list[Floats]:
        """As ``grams`` of each network with itself, shape (N)."""
        return self._by_sort(codes, codes)

    def effects(self, variances: Sequence[float], codes: Integers, weights: Floats) -> Effects:
        """The covariance of all effects with a weighted sum of networks.

        Args:
            variances: Of each sort.
            codes: The networks, shape (N, columns).
            weights: Shape (N).
        """
        onto = [scale[:, codes[:, column]] for column, scale in enumerate(self._scales)]
        single, pairs, stages = variances[0], dict(zip(PAIRS, variances[1:-1])), variances[-1]
        found = Effects()
        for column in self._layout.singles:
            found.single[column] = single * onto[column] @ weights
        for sort, variance in pairs.items():
            for one, other in self._layout.pairs[sort]:
                found.pairs[one, other] = variance * (onto[one] * weights) @ onto[other].T
        for number, columns in self._layout.stages.items():
            whole = [self._whole[column][:, codes[:, column]] for column in columns]
            *first, last = whole
            outer = reduce(lambda left, right: left[..., None, :] * right, first, stages * weights)
            found.stages[number] = outer @ last.T
        return found

    def draw(self, variances: Sequence[float], rng: np.random.Generator) -> Effects:
        """Effects drawn from the prior."""
        roots, found = self._roots, Effects()
        for column in self._layout.singles:
            found.single[column] = np.sqrt(variances[0]) * roots[column] @ rng.normal(size=len(roots[column]))
        for variance, sort in zip(variances[1:-1], PAIRS):
            for one, other in self._layout.pairs[sort]:
                normal = rng.normal(size=(len(roots[one]), len(roots[other])))
                found.pairs[one, other] = np.sqrt(variance) * roots[one] @ normal @ roots[other].T
        for number, columns in self._layout.stages.items():
            tensor = np.sqrt(variances[-1]) * rng.normal(size=[len(self._whole[c]) for c in columns])
            for axis, column in enumerate(columns):
                tensor = np.moveaxis(np.tensordot(self._whole_roots[column], tensor, (1, axis)), 0, axis)
            found.stages[number] = tensor
        return found

    @cached_property
    def _roots(self) -> list[Floats]:
        """By column a matrix whose product with its transpose is the covariance, which is singular."""
        return [_root(scale) for scale in self._scales]

    @cached_property
    def _whole_roots(self) -> list[Floats]:
        return [_root(scale) for scale in self._whole]

    def _by_sort(self, one: Integers, other: Integers) -> list[Floats]:
        """By sort the covariance of networks whose codes broadcast, the last axis being the columns."""
        shape = np.broadcast_shapes(one.shape, other.shape)[:-1]
        by_column = [scale[one[..., c], other[..., c]] for c, scale in enumerate(self._scales)]
        layout = self._layout
        found = [_total((by_column[c] for c in layout.singles), shape)]
        for sort in PAIRS:
            found.append(_total((by_column[a] * by_column[b] for a, b in layout.pairs[sort]), shape))
        alike = (
            reduce(operator.mul, (self._whole[c][one[..., c], other[..., c]] for c in columns))
            for columns in layout.stages.values()
        )
        found.append(_total(alike, shape))
        return found


def _total(parts: Iterator[Floats], shape: tuple[int, ...]) -> Floats:
    return sum(parts, start=np.zeros(shape))


def _root(covariance: Floats) -> Floats:
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def _present(make: Callable[[tuple[str, ...]], Floats], scale: tuple[str, ...]) -> Floats:
    """The covariance of the values of a scale; where a network has none of them, zero."""
    if scale[-1] != ABSENT_VALUE:
        return make(scale)
    count = len(scale) - 1
    padded = np.zeros((count + 1, count + 1))
    padded[:count, :count] = make(scale[:-1])
    return padded


def _alike(scale: tuple[str, ...]) -> Floats:
    """Of what stages add as a whole that have these values."""
    return _ALIKE + (1 - _ALIKE) * np.eye(len(scale))


def _covariance(scale: tuple[str, ...]) -> Floats:
    """Of the effects of the values of a choice: they sum to zero, and their mean variance is one."""
    count = len(scale)
    near = np.eye(count)
    if is_numeric(scale):
        places = steps_along(scale)
        near = (1 - _SMOOTH) * near + _SMOOTH * np.exp(-0.5 * ((places[:, None] - places) / _PLACES) ** 2)
    centre = np.eye(count) - 1.0 / count
    centred: Floats = centre @ near @ centre
    size = float(np.trace(centred)) / count
    return centred / size if size > 0 else np.zeros((count, count))
