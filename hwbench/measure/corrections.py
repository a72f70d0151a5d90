"""The drift of sessions: what is known when one comes, and what later visits to the sentinel say of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hwbench.measure.drift import Drift, OnDrift, between
from hwbench.measure.quality import doubt
from hwbench.measure.reference import median_s
from hwbench.measure.visits import session_of
from hwbench.runtimes import protocol
from hwbench.specs import Artifact, Session


@dataclass
class _Corrected:
    """A session that was handed over: the time at its middle, and what its drift is known to be by now."""

    artifact: Artifact
    number: int
    at_ns: int
    drift: float
    by_probe: bool


class DriftCorrections:
    """Keeps the drift of every session that was handed over, and tells when a better one is known.

    A session lies between two visits to the sentinel: the one before it is known when the session comes, the one after
    it corrects the session. A session whose own probe told the clock needs neither.

    Args:
        drift: What sentinel and clock said so far; None: no drift is known.
        on_drift: Told of each session whose drift became known better.
    """

    def __init__(self, drift: Drift | None, on_drift: OnDrift) -> None:
        self.drift = drift
        self._on_drift = on_drift
        self._handed: list[_Corrected] = []
        self._numbers: Counter[str] = Counter()
        # What the last two visits to the sentinel said, and when; how many sessions were handed over before the last.
        self._told = 0
        self._before = 1.0
        self._after = 1.0
        self._from_ns: int | None = None
        self._to_ns: int | None = None

    def known(self, visit: protocol.Visit) -> float:
        """How slow the machine was at a visit, as far as that is known by now."""
        if self.drift is None:
            return 1.0
        return self.drift.by_clock(visit.probe_ns * 1e-9) if visit.probe_ns else self.drift.ratio

    def hand_over(self, artifact: Artifact, session: Session, visit: protocol.Visit) -> None:
        """Notes a session that was handed over."""
        number = self._numbers[visit.id]
        self._numbers[visit.id] += 1
        by_probe = bool(session.probe_s)
        self._handed.append(_Corrected(artifact, number, visit.at_ns, session.drift, by_probe))

    def restart(self) -> None:
        """A runner begins: the sessions of the one before stay as they are."""
        self._told = len(self._handed)

    def heard(self, visit: protocol.Visit, drift: Drift) -> bool:
        """Notes what a visit to the sentinel says; False where it was disturbed itself and says nothing."""
        if self._to_ns is not None and doubt(session_of(visit, None, 1.0)):
            return False
        before, self._from_ns = drift.ratio, self._to_ns
        drift.add(median_s(visit))
        factor = drift.anew()
        if factor != 1.0 and not visit.probe_ns:
            for handed in self._handed:
                self._correct(handed, handed.drift * factor)
        self._before, self._after, self._to_ns = before * factor, drift.ratio, visit.at_ns
        return True

    def judge(self, believed: bool) -> None:
        """Corrects the sessions between the last two visits to the sentinel, if what the last one said is believed."""
        start, end = self._from_ns, self._to_ns
        if believed and start is not None and end is not None:
            for handed in self._handed[self._told :]:
                if handed.by_probe:
                    continue  # its own clock says more
                share = (handed.at_ns - start) / max(end - start, 1)
                self._correct(handed, between(self._before, self._after, share))
        self._told = len(self._handed)

    def _correct(self, handed: _Corrected, drift: float) -> None:
        handed.drift = drift
        self._on_drift(handed.artifact, handed.number, drift)
