"""The forms of a calibration: how each is fitted to measured networks, and which of them the networks pay for.

Every form is a sum over blocks and a constant, so that the set of networks within a budget stays exact:

    seconds = sum over blocks of (gain of the family * row + what its terms cost) + constant

    form        free                                                               tried from
    ratio       one gain (the median)                                              3 networks
    shrunk      the gain, the constant, per block, weight and byte                 4
    free        the same, per operator as well, with a prior that holds little     20
    families    a gain for each family, the constant, per block                    5 for each of them, at least 35

A block that is timed alone finds its weights in the caches, where it left them, and so much of its activations as the
caches hold; inside a network they were displaced by those of the others. Weights and bytes are for that: bytes are
those of the working set, up to 4 MiB, for what is larger is fetched from memory either way (experiment 006).

All terms of ``shrunk`` are held near zero by a prior that the networks outweigh: from eight networks it is off by 0.7
to 2.0 % where a ratio is off by 1.2 to 4.1 %, and from 20 to 150 networks by no more than forms with some of the terms
and no prior, of which one had to be chosen (experiment 015). It is taken unless networks that are left out speak for
another one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwbench.latency.pieces import TERMS, Observation

_FAMILY_NETWORKS = 35
_NETWORKS_PER_TERM = 5
# A richer form must lower the leave-one-out error by this share of it, and by one standard error of the difference.
_GAIN = 0.05
# Errors below this one are of arithmetic.
_ROUNDING = 1e-6
# Ridges: networks scatter by about 1.5 to 2 % around any form, and the terms beyond the ratio are worth so much of a
# network each: 2 % in ``shrunk`` (of 0.5, 1, 2 and 4 %, 1 to 2 are best for the machines of experiment 006, from 4, 8
# and 20 networks alike), about 10 % in the others, for devices that are further from the sum of their blocks.
_RIDGES = {"shrunk": (0.015 / 0.02) ** 2, "free": (0.02 / 0.1) ** 2, "families": (0.02 / 0.1) ** 2}
_SHRUNK_NETWORKS = 4
_FREE_NETWORKS = 20
# Residuals beyond so many standard deviations count less (Huber 1964), which costs 5 % of efficiency.
_HUBER = 1.345
_ROUNDS = 5
# No block of a network costs less than this share of what its row and the gain say.
LEAST_SHARE = 0.2
# Terms that are counted from the fewest that any network has: what of them stays in the caches costs nothing.
_STAYING = ("weights", "bytes")
# The terms that are free in each form beside the gain and the constant; the ratio has neither.
_FORMS: Mapping[str, tuple[str, ...]] = {
    "shrunk": ("blocks", "weights", "bytes"),
    "free": tuple(TERMS),
    "families": ("blocks",),
}

Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]


@dataclass(frozen=True)
class FittedForm:
    """A form with its parameters.

    Attributes:
        form: Its name.
        gain: Factor on the rows of a family without a gain of its own.
        constant_s: What every network costs on top of its blocks.
        gains: Factor on the rows of each family; empty where they share one.
        terms: Seconds for one of each term that the form has.
        tried: Mean absolute leave-one-out error of each form that was tried.
    """

    form: str
    gain: float
    constant_s: float
    gains: Mapping[str, float]
    terms: Mapping[str, float]
    tried: Mapping[str, float]


@dataclass(frozen=True)
class NetworkFeatures:
    """Networks as rows of features: seconds of each family, counts of ``TERMS``, 1; parameters stand in that order.

    Attributes:
        counted: (networks, families + terms + 1), as counted.
        measured: (networks,) seconds.
        sharpest: (networks, families * terms): the most of a term that a block of the family has for its seconds.
        blocks: (networks, families * terms, features): that block, as the features that it adds by itself.
        families: Their names.
        total: Number of networks of which these are all, or all but one that is left out: a form is tried from so many.
    """

    counted: Floats
    measured: Floats
    sharpest: Floats
    blocks: Floats
    families: tuple[str, ...]
    total: int

    @classmethod
    def of(cls, networks: Sequence[Observation]) -> NetworkFeatures:
        """Counts what is in the blocks of networks."""
        families = tuple(sorted({piece.family for network in networks for piece in network.pieces}))
        place = {name: index for index, name in enumerate(families)}
        terms, width = len(TERMS), len(families) + len(TERMS) + 1
        counted = np.zeros((len(networks), width))
        counted[:, -1] = 1
        sharpest = np.full((len(networks), len(families) * terms), -np.inf)
        blocks = np.zeros((*sharpest.shape, width))
        for index, network in enumerate(networks):
            for piece in network.pieces:
                at = place[piece.family]
                counted[index, at] += piece.seconds
                counted[index, len(families) : -1] += piece.counts
                for term, count in enumerate(piece.counts):
                    ratio, to = count / piece.seconds, at * terms + term
                    if ratio > sharpest[index, to]:
                        sharpest[index, to] = ratio
                        blocks[index, to] = 0
                        blocks[index, to, at] = (1 - LEAST_SHARE) * piece.seconds
                        blocks[index, to, len(families) : -1] = piece.counts
        measured = np.array([network.measured_s for network in networks])
        return cls(counted, measured, sharpest, blocks, families, len(networks))

    def without(self, index: int) -> NetworkFeatures:
        """The same without one network, of which nothing is left in any number."""
        kept = np.arange(self.count) != index
        return NetworkFeatures(
            self.counted[kept], self.measured[kept], self.sharpest[kept], self.blocks[kept], self.families, self.total
        )

    def best(self) -> FittedForm:
        """The form that leave-one-out errors within these networks choose, fitted to all of them."""
        fits = {form: self._left_out(form) for form in self.forms}
        chosen = _choose({form: errors for form, (_, errors) in fits.items()})
        theta = fits[chosen][0]
        own = dict(zip(self.families, theta[: len(self.families)].tolist())) if chosen == "families" else {}
        terms = dict(zip(TERMS, theta[len(self.families) : -1].tolist()))
        return FittedForm(
            form=chosen,
            gain=float(fits["ratio"][0][0] if own else theta[0]),
            constant_s=float(theta[-1]) - sum(terms[name] * count for name, count in self.fewest.items()),
            gains=own,
            terms={name: cost for name, cost in terms.items() if cost},
            tried={form: float(np.mean(errors)) for form, (_, errors) in fits.items()},
        )

    @functools.cached_property
    def fewest(self) -> dict[str, float]:
        """Of the terms that may stay in the caches, the fewest that one of the networks has."""
        return {name: float(self.counted[:, self._column(name)].min()) for name in _STAYING}

    @functools.cached_property
    def features(self) -> Floats:
        """As counted, but weights and bytes from the fewest on: what is left for the constant is not below zero."""
        features = self.counted.copy()
        for name, count in self.fewest.items():
            features[:, self._column(name)] -= count
        return features

    @functools.cached_property
    def least(self) -> Floats:
        """For each family and term, what the block adds by each parameter that has most of the term for its seconds:
        where a term is below zero, no other block of the family comes as near to nothing."""
        rows = self.blocks[self.sharpest.argmax(axis=0), np.arange(self.sharpest.shape[1])]
        return np.asarray(rows[rows.any(axis=1)])

    @functools.cached_property
    def scales(self) -> list[float]:
        """What one of each feature would cost if a typical network consisted of it."""
        return list((np.median(self.measured) / np.maximum(np.median(self.features, axis=0), 1e-12)).tolist())

    @property
    def count(self) -> int:
        return len(self.measured)

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that there are enough networks for; simplest first."""
        forms = ["ratio"]
        if self.total >= _SHRUNK_NETWORKS:
            forms.append("shrunk")
        if self.total >= _FREE_NETWORKS:
            forms.append("free")
        present = int(self.counted[:, : len(self.families)].any(axis=0).sum())
        enough = max(_FAMILY_NETWORKS, _NETWORKS_PER_TERM * (present + 2))
        if self.total >= enough and present > 1:
            forms.append("families")
        return tuple(forms)

    def _column(self, term: str) -> int:
        return len(self.families) + list(TERMS).index(term)

    def _left_out(self, form: str) -> tuple[Floats, Floats]:
        """The parameters of a form by all networks, and |log(measured / predicted)| of each by a fit to the others.

        How much each network counts is found once, not again for each network that is left out.
        """
        everything = np.ones((1, self.count), dtype=bool)
        weights = self._weights(form, everything)
        others = ~np.eye(self.count, dtype=bool)
        thetas = self._fit(form, np.concatenate([everything, others]), weights)
        # A prediction at or below zero is as wrong as can be, and no reason to fail.
        predicted = np.maximum((thetas[1:] * self.features).sum(axis=1), 1e-3 * self.measured)
        return thetas[0], np.abs(np.log(self.measured / predicted))

    def _weights(self, form: str, masks: Masks) -> Floats:
        """Huber's weights of the networks for each mask: 1, and less for those that a form does not fit."""
        weights = np.ones(masks.shape)
        for _ in range(_ROUNDS if form != "ratio" else 0):
            residuals = np.abs(self._fit(form, masks, weights) @ self.features.T / self.measured - 1)
            limit = _HUBER * np.maximum(1.4826 * _medians(residuals, masks)[:, None], 1e-6)
            weights = np.minimum(1.0, limit / np.maximum(residuals, limit))
        return weights

    def _fit(self, form: str, masks: Masks, weights: Floats) -> Floats:
        """Parameters (fits, families + terms + 1) of one form, fitted to the networks that each mask keeps."""
        rows = self.features[:, : len(self.families)].sum(axis=1)
        ratio = _medians(np.broadcast_to(self.measured / rows, masks.shape), masks)
        ratio[~masks.any(axis=1)] = 1.0  # of two networks none is left: rows stand for themselves
        thetas = np.zeros((len(masks), self.features.shape[1]))
        thetas[:, : len(self.families)] = ratio[:, None]
        if form == "ratio":
            return thetas
        # What all networks have alike is the constant.
        free = [column for column in map(self._column, _FORMS[form]) if np.ptp(self.features[:, column]) > 0]
        free += range(len(self.families)) if form == "families" else ()
        counts = masks * weights
        ridge = _RIDGES[form]
        fitted = self._refined(thetas, counts, rows, [*free, thetas.shape[1] - 1], ridge)
        below = fitted[:, -1] < 0  # a constant below zero is no cost of anything
        if below.any():
            fitted[below] = self._refined(thetas[below], counts[below], rows, free, ridge)
        return self._allowed(thetas, fitted)

    def _refined(self, start: Floats, weights: Floats, rows: Floats, free: Sequence[int], ridge: float) -> Floats:
        """Weighted ridge regression of relative errors on what a change of the parameters from ``start`` gives."""
        # In parts of a typical network, so that one ridge fits all: 0.1 is a tenth of its latency.
        scales = [1.0] + [1.0 if at < len(self.families) else self.scales[at] for at in free]
        columns = np.stack([rows, *(self.features[:, at] for at in free)], axis=1)
        design = columns * np.array(scales) / self.measured[:, None]
        outer = (design[:, :, None] * design[:, None, :]).reshape(self.count, -1)
        normal = (weights @ outer).reshape(len(weights), len(scales), len(scales))
        normal += np.diag([0.0] + [ridge] * len(free))
        target = 1 - np.outer(start[:, 0], rows / self.measured)
        steps = np.linalg.solve(normal, ((weights * target) @ design)[:, :, None])[:, :, 0] * np.array(scales)
        fitted = start.copy()
        fitted[:, : len(self.families)] += steps[:, [0]]
        fitted[:, free] += steps[:, 1:]
        return fitted

    def _allowed(self, simple: Floats, fitted: Floats) -> Floats:
        """The point nearest to ``fitted``, on the way there from ``simple``, where no gain is below zero and no block
        costs less than its least share."""
        limits = np.concatenate([np.eye(len(self.families), fitted.shape[1]), self.least])
        from_, to = simple @ limits.T, fitted @ limits.T
        share = np.where(to < 0, from_ / np.maximum(from_ - to, 1e-300), 1.0).min(axis=1, keepdims=True)
        moved: Floats = simple + share * (fitted - simple)
        return moved


def _medians(values: Floats, masks: Masks) -> Floats:
    """The median of the kept values of each row."""
    ordered = np.sort(np.where(masks, values, np.inf), axis=1)
    rows, kept = np.arange(len(ordered)), masks.sum(axis=1)
    medians: Floats = (ordered[rows, (kept - 1) // 2] + ordered[rows, kept // 2]) / 2
    return medians


def _choose(errors: Mapping[str, Floats]) -> str:
    """``shrunk``, whose prior is the ratio, unless another form beats it clearly: by 5 % of the error, and by one
    standard error. Of fewer networks than it takes, and where the ratio is exact, it is the ratio."""
    if "shrunk" not in errors or float(np.mean(errors["ratio"])) <= _ROUNDING:
        return "ratio"
    chosen = "shrunk"
    for form in errors:
        gained = errors[chosen] - errors[form]
        standard_error = np.std(gained, ddof=1) / math.sqrt(len(gained))
        if float(np.mean(gained)) > max(_GAIN * float(np.mean(errors[chosen])), float(standard_error)):
            chosen = form
    return chosen
