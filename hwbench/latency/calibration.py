"""From rows to whole networks: a form that grows with the number of measured networks, and how far off it was.

Every form is a sum over blocks and a constant, so that the set of networks within a budget stays exact:

    seconds = sum over blocks of (gain of the family * row + what its terms cost) + constant

    form        free                                                  tried from
    ratio       one gain (the median)                                 3 networks
    affine      the gain, the constant                                20
    blocks      the gain, the constant, per block                     20
    operators   the gain, the constant, per operator                  20
    weights     the gain, the constant, per weight                    20
    caches      the gain, the constant, per weight, per byte          20
    families    a gain for each family, the constant, per block       5 for each of them, at least 35

A block that is timed alone finds its weights in the caches, where it left them, and so much of its activations as the
caches hold; inside a network they were displaced by those of the others. ``weights`` is for the first, and ``caches``
for both: its bytes are those of the working set, up to 4 MiB, for what is larger is fetched from memory either way
(experiment 006).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import InvalidValue
from hwbench.specs import Workload, format_kernel
from hwbench.specs.operations import Operation
from hwbench.units import format_duration

NOMINAL = 0.9
# A second parameter is only tried from here on (the median ratio was better in published data until about 20 networks).
_MORE_NETWORKS = 20
_FAMILY_NETWORKS = 35
_NETWORKS_PER_TERM = 5
# A richer form must lower the leave-one-out error by this share of it, and by one standard error of the difference.
_GAIN = 0.05
# Ridge: networks scatter by about 2 % around any form, and terms beyond the ratio are worth about 10 % of a network.
_RIDGE = (0.02 / 0.1) ** 2
# Residuals beyond so many standard deviations count less (Huber 1964), which costs 5 % of efficiency.
_HUBER = 1.345
_ROUNDS = 5
# No block of a network costs less than this share of what its row and the gain say.
_LEAST_SHARE = 0.2
# What may be paid for beside the rows; and in which numbers it is told, in words.
_TERMS = {
    "blocks": (1, "a block"),
    "operators": (1, "an operator"),
    "weights": (10**6, "a million weights"),
    "bytes": (2**20, "a MiB of working sets"),
}
# Those of them that are counted from the fewest that any network has: what of them stays in the caches costs nothing.
_STAYING = ("weights", "bytes")
_CACHE_BYTES = 4 << 20
# The terms that are free in each form beside the gain and the constant; the ratio has neither.
_FORMS: Mapping[str, tuple[str, ...]] = {
    "affine": (),
    "blocks": ("blocks",),
    "operators": ("operators",),
    "weights": ("weights",),
    "caches": ("weights", "bytes"),
    "families": ("blocks",),
}

Pairs = Sequence[tuple[float, float]]
"""(sum of rows, measured) in seconds, one for each calibration network."""
Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]


@dataclass(frozen=True, order=True)
class Piece:
    """One block of a network: its family, its row in context in seconds, its numbers of operators and weights, and the
    bytes of its working set that a cache may hold."""

    family: str
    seconds: float
    operators: int = 1
    weights: int = 0
    working_set: int = 0

    @classmethod
    def of(cls, part: Workload, seconds: float) -> Piece:
        """A single block whose row in context is known."""
        return cls(family(part), seconds, operators(part), weights(part), working_set(part))

    @property
    def counts(self) -> tuple[int, ...]:
        """How many it has of each term, in the order of ``_TERMS``."""
        return 1, self.operators, self.weights, self.working_set


@dataclass(frozen=True, order=True)
class Observation:
    """A whole network that was measured, and the rows of its blocks."""

    measured_s: float
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Calibration:
    """What a row becomes inside a network, and how far a network that was left out fell from it.

    ``spread`` is a factor: ``nominal`` of all networks lie between ``seconds / spread`` and ``seconds * spread``. It is
    the conformal quantile of |log(measured / predicted)| over leave-one-out predictions (Vovk et al. 2005; Barber et
    al. 2021, the jackknife). A network that is left out takes no part in the choice of the form either, so that the
    choice is inside what is cross-validated. With too few networks for that quantile (fewer than 9 for 90 %) it is the
    largest of the errors, which promises less: ``promised``.

    Attributes:
        form: ratio, affine, blocks, operators, weights, caches or families.
        gain: Factor on the rows of a family without a gain of its own.
        constant_s: What every network costs on top of its blocks; below zero where weights cost, for those that stay in
            the caches.
        spread: Factor of the interval, either way.
        count: Number of calibration networks.
        promised: Share of all networks that the interval is to hold: ``nominal``, or with few calibration networks
            ``count / (count + 1)``.
        errors: log(measured / predicted) of each, in the order given, by a fit to the others.
        gains: Factor on the rows of each family of blocks, where they have their own.
        terms: What each of its blocks, operators, weights or bytes costs a network on top of the rows, in seconds;
            below zero where rows hold more than that. Only those that the form has.
        tried: Mean absolute leave-one-out error of each form that was tried.
    """

    form: str
    gain: float
    constant_s: float
    spread: float
    count: int
    promised: float
    errors: tuple[float, ...]
    gains: Mapping[str, float] = field(default_factory=dict)
    terms: Mapping[str, float] = field(default_factory=dict)
    tried: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def fit(cls, pairs: Pairs, nominal: float = NOMINAL) -> Calibration:
        """Fits sums of rows; without the blocks there are only the forms ``ratio`` and ``affine``."""
        return cls.of([Observation(measured, (Piece("", rows),)) for rows, measured in pairs], nominal)

    @classmethod
    def of(cls, networks: Sequence[Observation], nominal: float = NOMINAL) -> Calibration:
        """Chooses the form by leave-one-out error, from the simplest up, and fits it to all networks.

        The order of the networks makes no difference. A single bad network moves little: the ratio is a median, and the
        other forms are fitted by Huber's weights to relative errors.

        Raises:
            InvalidValue: Fewer than two networks: nothing is left to check with.
        """
        if len(networks) < 2:
            raise InvalidValue(f"calibration: expected at least 2 networks, got {len(networks)}")
        order = sorted(range(len(networks)), key=lambda index: networks[index])
        data = _Data.of([networks[index] for index in order])
        fits = {form: data.left_out(form) for form in data.forms}
        chosen = _choose({form: found[0] for form, found in fits.items()})
        theta = fits[chosen][0].theta
        inside = np.empty(data.count)
        for index in range(data.count):
            others = {form: found[1 + index] for form, found in fits.items()}
            inside[order[index]] = others[_choose(others)].errors[index]
        ordered = np.sort(np.abs(inside))
        rank = min(math.ceil((data.count + 1) * nominal), data.count)
        own = dict(zip(data.families, theta[: len(data.families)].tolist())) if chosen == "families" else {}
        terms = dict(zip(_TERMS, theta[len(data.families) : -1].tolist()))
        return cls(
            form=chosen,
            gain=float(fits["ratio"][0].theta[0] if own else theta[0]),
            constant_s=float(theta[-1]) - sum(terms[name] * count for name, count in data.fewest.items()),
            spread=math.exp(ordered[rank - 1]),
            count=data.count,
            promised=min(nominal, data.count / (data.count + 1)),
            errors=tuple(inside.tolist()),
            gains=own,
            terms={name: cost for name, cost in terms.items() if cost},
            tried={form: found[0].mean_error for form, found in fits.items()},
        )

    @classmethod
    def alone(cls, network: Observation) -> Calibration:
        """The ratio of one network, which holds for itself: nothing is left out, nothing is promised for another."""
        gain = network.measured_s / sum(piece.seconds for piece in network.pieces)
        return cls("ratio", gain, 0.0, spread=1.0, count=1, promised=0.0, errors=(0.0,))

    def margin(self, confidence: float) -> float:
        """Factor on a prediction below which a network is with this probability; at least 1.

        It is the conformal quantile of measured / predicted of networks that were left out. With too few of them for
        that quantile (fewer than 9 for 90 %) it is the largest ratio, which promises ``count / (count + 1)``.
        """
        rank = min(math.ceil((self.count + 1) * confidence), self.count)
        return max(1.0, math.exp(sorted(self.errors)[rank - 1]))

    def cost(self, part: Workload, seconds: float) -> float:
        """What a single block adds to the latency of a network, from its row in context; in seconds, above zero."""
        gain = self.gains.get(family(part), self.gain) if self.gains else self.gain
        if not self.terms:
            return gain * seconds
        counts = dict(zip(_TERMS, Piece.of(part, seconds).counts))
        added = sum(cost * counts[name] for name, cost in self.terms.items())
        return max(gain * seconds + added, _LEAST_SHARE * gain * seconds)

    def describe(self) -> str:
        """The form in words: what is added up, from how many networks, and what leaving out said of each form."""
        if self.gains:
            rows = " + ".join(f"{gain:.4g} × rows of {name}" for name, gain in sorted(self.gains.items()))
        else:
            rows = f"{self.gain:.4g} × sum of rows"
        told = [(_TERMS[name], cost) for name, cost in self.terms.items()]
        terms = [*((cost * number, f" {words}") for (number, words), cost in told), (self.constant_s, "")]
        plus = "".join(f" {'-' if s < 0 else '+'} {format_duration(abs(s))}{of}" for s, of in terms if s)
        tried = ", ".join(f"{name} {error:.2%}" for name, error in self.tried.items())
        chosen = f"; mean error left out: {tried}" if self.tried else ""
        return f"{self.form}: {rows}{plus}, from {self.count} networks{chosen}"


def family(part: Workload) -> str:
    """What blocks share that are wrong in the same way: the kind, and the kernel of its convolution over time."""
    (block,) = part.blocks
    return f"{block.kind} {format_kernel(block.kernel)}"


def operators(part: Workload) -> int:
    """Number of operations of a single block; 1 for a kind whose arithmetic is not known."""
    return len(_operations(part)) or 1


def weights(part: Workload) -> int:
    """Number of weights of a single block; 0 for a kind whose arithmetic is not known."""
    return sum(operation.num_weights for operation in _operations(part))


def working_set(part: Workload) -> int:
    """Bytes that a single block comes back to, at most as many as a cache may hold: all weights, and what its largest
    operation reads and writes; 0 for a kind whose arithmetic is not known."""
    largest = max((o.input.numel + o.output.numel for o in _operations(part)), default=0)
    return min(part.precision.value_bytes * (largest + weights(part)), _CACHE_BYTES)


def _operations(part: Workload) -> tuple[Operation, ...]:
    try:
        return part.blocks[0].operations(part.input)
    except InvalidValue:
        return ()


@dataclass(frozen=True)
class LeftOut:
    """One form by the networks that are kept: its parameters, and log(measured / predicted) of each network by a fit to
    the kept ones but itself."""

    theta: Floats
    errors: Floats
    kept: Masks

    @property
    def absolute(self) -> Floats:
        """Errors of the kept networks, without their sign."""
        return np.abs(self.errors[self.kept])

    @property
    def mean_error(self) -> float:
        """What forms are compared by."""
        return float(np.mean(self.absolute))


@dataclass(frozen=True)
class _Data:
    """Networks as rows of features: seconds of each family, counts of ``_TERMS``, 1; parameters stand in that order.

    Weights and bytes count from the ``fewest`` on that one of the networks has: so many may stay in the caches, and
    what is left for the constant is not below zero.

    ``least`` has, for each family and each term, what the block adds by each parameter that has most of the term for
    its seconds: where a term is below zero, no other block of the family comes as near to nothing.
    """

    features: Floats
    measured: Floats
    least: Floats
    families: tuple[str, ...]
    fewest: Mapping[str, float]

    @classmethod
    def of(cls, networks: Sequence[Observation]) -> _Data:
        families = tuple(sorted({piece.family for network in networks for piece in network.pieces}))
        place = {name: index for index, name in enumerate(families)}
        width = len(families) + len(_TERMS) + 1
        features = np.zeros((len(networks), width))
        features[:, -1] = 1
        most: dict[tuple[str, int], Piece] = {}
        for index, network in enumerate(networks):
            for piece in network.pieces:
                features[index, place[piece.family]] += piece.seconds
                features[index, len(families) : -1] += piece.counts
                for term, count in enumerate(piece.counts):
                    other = most.setdefault((piece.family, term), piece)
                    if count * other.seconds > other.counts[term] * piece.seconds:
                        most[piece.family, term] = piece
        least = np.zeros((len(most), width))
        for row, piece in zip(least, most.values()):
            row[place[piece.family]] = (1 - _LEAST_SHARE) * piece.seconds
            row[len(families) : -1] = piece.counts
        fewest = {}
        for name in _STAYING:
            column = features[:, len(families) + list(_TERMS).index(name)]
            fewest[name] = float(column.min())
            column -= fewest[name]
        return cls(features, np.array([network.measured_s for network in networks]), least, families, fewest)

    @functools.cached_property
    def scales(self) -> list[float]:
        """What one of each feature would cost if a typical network consisted of it."""
        return list((np.median(self.measured) / np.maximum(np.median(self.features, axis=0), 1e-12)).tolist())

    @property
    def count(self) -> int:
        return len(self.measured)

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that there are enough networks for, and that differ between these networks; simplest first."""
        found = ["ratio"]
        if self.count >= _MORE_NETWORKS:
            differ = np.ptp(self.features, axis=0) > 0
            several = [form for form in _FORMS if form != "families"]
            found += [form for form in several if all(differ[self._column(term)] for term in _FORMS[form])]
        enough = max(_FAMILY_NETWORKS, _NETWORKS_PER_TERM * (len(self.families) + 2))
        if self.count >= enough and len(self.families) > 1:
            found.append("families")
        return tuple(found)

    def _column(self, term: str) -> int:
        return len(self.families) + list(_TERMS).index(term)

    def left_out(self, form: str) -> list[LeftOut]:
        """What the networks say of a form: first all of them, then all but the first, all but the second, ...

        How much each network counts is found once for each of these, not again for each network that is left out.
        """
        others = ~np.eye(self.count, dtype=bool)
        masks = np.concatenate([np.ones((1, self.count), dtype=bool), others])
        weights = self._weights(form, masks)
        found = []
        for kept, counts in zip(masks, weights):
            thetas = self._fit(form, np.concatenate([kept[None], kept & others]), counts)
            # A prediction at or below zero is as wrong as can be, and no reason to fail.
            predicted = np.maximum((thetas[1:] * self.features).sum(axis=1), 1e-3 * self.measured)
            found.append(LeftOut(thetas[0], np.log(self.measured / predicted), kept))
        return found

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
        free = [self._column(term) for term in _FORMS[form]]
        free += range(len(self.families)) if form == "families" else ()
        counts = masks * weights
        fitted = self._refined(thetas, counts, rows, [*free, thetas.shape[1] - 1])
        below = fitted[:, -1] < 0  # a constant below zero is no cost of anything
        if below.any():
            fitted[below] = self._refined(thetas[below], counts[below], rows, free)
        return self._allowed(thetas, fitted)

    def _refined(self, start: Floats, weights: Floats, rows: Floats, free: Sequence[int]) -> Floats:
        """Weighted ridge regression of relative errors on what a change of the parameters from ``start`` gives."""
        # In parts of a typical network, so that one ridge fits all: 0.1 is a tenth of its latency.
        scales = [1.0] + [1.0 if at < len(self.families) else self.scales[at] for at in free]
        columns = np.stack([rows, *(self.features[:, at] for at in free)], axis=1)
        design = columns * np.array(scales) / self.measured[:, None]
        outer = (design[:, :, None] * design[:, None, :]).reshape(self.count, -1)
        normal = (weights @ outer).reshape(len(weights), len(scales), len(scales))
        normal += np.diag([0.0] + [_RIDGE] * len(free))
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


def _choose(found: Mapping[str, LeftOut]) -> str:
    """The simplest form that no richer one beats clearly: by 5 % of the error, and by one standard error."""
    (chosen, *richer) = found
    for form in richer:
        gained = found[chosen].absolute - found[form].absolute
        standard_error = np.std(gained, ddof=1) / math.sqrt(len(gained))
        if float(np.mean(gained)) > max(_GAIN * found[chosen].mean_error, float(standard_error)):
            chosen = form
    return chosen
