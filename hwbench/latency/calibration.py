"""From rows to whole networks: a form that grows with the number of measured networks, and how far off it may be.

The forms stand in ``calibration_forms``. How far off a network may be is told by networks that were left out of
everything, the choice of the form included, and by a prior that they soon outweigh.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hwbench.errors import InvalidValue
from hwbench.latency.calibration_forms import LEAST_SHARE, FittedForm, NetworkFeatures
from hwbench.latency.pieces import TERMS
from hwbench.latency.pieces import Observation as Observation
from hwbench.latency.pieces import Piece as Piece
from hwbench.latency.pieces import family as family
from hwbench.latency.pieces import operators as operators
from hwbench.latency.pieces import weights as weights
from hwbench.latency.pieces import working_set as working_set
from hwbench.latency.uncertainty import Uncertainty
from hwbench.linear_algebra import one_blas_thread
from hwbench.specs import Workload
from hwbench.units import format_duration

NOMINAL = 0.9
# Of log(measured / predicted) before a network was measured: on eight machines and precisions (experiment 006) one
# ratio leaves 1.7 to 4.6 %, and with two degrees of freedom 4, 8 and 20 networks cover 83 to 97 % of the others on
# each of them, 91 % on average (experiment 023).
PRIOR = Uncertainty.of_deviation(0.025, 2.0)
# An error beyond so many standard deviations counts as so many: one network that went wrong is no reason to doubt all.
_CLIPPED = 3.0

Pairs = Sequence[tuple[float, float]]
"""(sum of rows, measured) in seconds, one for each calibration network."""


@dataclass(frozen=True)
class Calibration:
    """What a row becomes inside a network, and how far a network that was not measured may be from it.

    ``spread`` is a factor: ``nominal`` of all networks lie between ``seconds / spread`` and ``seconds * spread``. It is
    a quantile of Student's t (``uncertainty``): the mean square of log(measured / predicted) over networks that were
    left out, and a prior (``PRIOR``) which counts as two networks. A network that is left out takes no part in
    anything: neither in the fit, nor in the choice of the form, nor in the scales and lower ends that forms are fitted
    with (nested cross-validation: Varma and Simon 2006; the errors are those of the jackknife+, Barber et al. 2021).

    Attributes:
        form: ratio, shrunk, free or families.
        gain: Factor on the rows of a family without a gain of its own.
        constant_s: What every network costs on top of its blocks; below zero where weights cost, for those that stay in
            the caches.
        uncertainty: Of log(measured / predicted) of a network that was not measured, within the occasion on which the
            table was taken.
        count: Number of calibration networks.
        promised: Share of all networks that the interval is to hold; 0 where nothing is promised.
        errors: log(measured / predicted) of each, in the order given, by a fit to the others.
        gains: Factor on the rows of each family of blocks, where they have their own.
        terms: What each of its blocks, operators, weights or bytes costs a network on top of the rows, in seconds;
            below zero where rows hold more than that. Only those that the form has.
        tried: Mean absolute leave-one-out error of each form that was tried.
    """

    form: str
    gain: float
    constant_s: float
    uncertainty: Uncertainty
    count: int
    promised: float
    errors: tuple[float, ...]
    gains: Mapping[str, float] = field(default_factory=dict)
    terms: Mapping[str, float] = field(default_factory=dict)
    tried: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def fit(cls, pairs: Pairs, nominal: float = NOMINAL) -> Calibration:
        """Fits sums of rows; without the blocks there is nothing to tell the terms of a form by but its constant."""
        return cls.of([Observation(measured, (Piece("", rows),)) for rows, measured in pairs], nominal)

    @classmethod
    @one_blas_thread()
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
        features = NetworkFeatures.of([networks[index] for index in order])
        errors = [0.0] * len(networks)
        for place, index in enumerate(order):
            network = networks[index]
            # A prediction at or below zero is as wrong as can be, and no reason to fail.
            seconds = max(_seconds(features.without(place).best(), network.pieces), 1e-3 * network.measured_s)
            errors[index] = math.log(network.measured_s / seconds)
        best = features.best()
        return cls(
            form=best.form,
            gain=best.gain,
            constant_s=best.constant_s,
            # One gain is fitted to them, so that they tell of one degree less than there are networks.
            uncertainty=PRIOR.updated(_clipped(errors), len(errors) - 1),
            count=len(networks),
            promised=nominal,
            errors=tuple(errors),
            gains=best.gains,
            terms=best.terms,
            tried=best.tried,
        )

    @classmethod
    def alone(cls, network: Observation) -> Calibration:
        """The ratio of one network, which holds for itself: nothing is left out, nothing is promised for another."""
        gain = network.measured_s / sum(piece.seconds for piece in network.pieces)
        return cls("ratio", gain, 0.0, PRIOR, count=1, promised=0.0, errors=(0.0,))

    @property
    def spread(self) -> float:
        """Factor of the interval, either way, of a network whose rows were all measured, on the occasion of the table;
        1 where nothing is promised."""
        return self.uncertainty.spread(self.promised) if self.promised else 1.0

    def margin(self, confidence: float) -> float:
        """Factor on a prediction below which a network is with this probability, likewise; at least 1."""
        return self.uncertainty.margin(confidence)

    def cost(self, part: Workload, seconds: float) -> float:
        """What a single block adds to the latency of a network, from its row in context; in seconds, above zero."""
        gain = self.gains.get(family(part), self.gain) if self.gains else self.gain
        return _cost(gain, self.terms, Piece.of(part, seconds)) if self.terms else gain * seconds

    def describe(self) -> str:
        """The form in words: what is added up, from how many networks, and what leaving out said of each form."""
        if self.gains:
            rows = " + ".join(f"{gain:.4g} × rows of {name}" for name, gain in sorted(self.gains.items()))
        else:
            rows = f"{self.gain:.4g} × sum of rows"
        told = [(TERMS[name], cost) for name, cost in self.terms.items()]
        terms = [*((cost * number, f" {words}") for (number, words), cost in told), (self.constant_s, "")]
        plus = "".join(f" {'-' if s < 0 else '+'} {format_duration(abs(s))}{of}" for s, of in terms if s)
        tried = ", ".join(f"{name} {error:.2%}" for name, error in self.tried.items())
        chosen = f"; mean error left out: {tried}" if self.tried else ""
        return f"{self.form}: {rows}{plus}, from {self.count} networks{chosen}"


def _seconds(fitted: FittedForm, pieces: Sequence[Piece]) -> float:
    """What a form says of a whole network, in seconds."""
    costs = (_cost(fitted.gains.get(piece.family, fitted.gain), fitted.terms, piece) for piece in pieces)
    return sum(costs) + fitted.constant_s


def _cost(gain: float, terms: Mapping[str, float], piece: Piece) -> float:
    counts = dict(zip(TERMS, piece.counts))
    added = sum(cost * counts[name] for name, cost in terms.items())
    return max(gain * piece.seconds + added, LEAST_SHARE * gain * piece.seconds)


def _clipped(errors: Sequence[float]) -> list[float]:
    """The sizes of errors, ascending, none beyond ``_CLIPPED`` times what is usual among them or in the prior."""
    sizes = sorted(map(abs, errors))
    limit = _CLIPPED * max(1.4826 * statistics.median(sizes), PRIOR.deviation)
    return [min(size, limit) for size in sizes]
