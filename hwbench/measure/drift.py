"""How fast the machine is, relative to the beginning, by a reference file that is timed again and again."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hwbench.specs import Artifact, Session

# Visits that the reference is the median of: one disturbed visit must not shift every row.
WINDOW = 3
# A machine that was idle gets faster with each visit; the reference is taken once visits agree to this ...
SETTLED = 0.01
# ... or after so many.
MAX_REFERENCE_VISITS = 12
# Beyond this the sentinel says that something is the matter, not how to correct for it: a clock that fell slows what
# computes and not what waits for memory.
DRIFT = 0.03
# After a pause the machine is its old self again when the sentinel is as near as this.
RECOVERED = 0.01

# ``Session.crowding`` of an undisturbed core is the same to 2 or 3 % (experiment 013); where another program shares the
# core it is 15 % or more above. The lowest may be disturbed itself; the third lowest is hardly ever.
CROWDED = 1.12
# ``Session.memory`` doubles within seconds on a shared server, which the rows that were looked at hardly noticed: 1.3 %
# and nothing (experiment 010). What lies beyond this is doubted by judgement; no run has shown what it does to rows.
MEMORY_USED = 2.5
QUIETEST = 3

# Until sessions tell, latencies are taken to follow the clock, as if five changes of a hundredth had shown it.
# How far they follow, and the changes together.
FOLLOWED_AT_FIRST = (1.0, 0.05)

# First pause in seconds, doubled from one to the next; a phone loses a third of its heat in 20 s.
PAUSE_S, MAX_PAUSE_S = 5.0, 60.0
# A machine that does not recover in this time will not by waiting.
PATIENCE_S = 240.0
# Waiting takes at most so many times as long as measuring did; a phone cools about as fast as it heats.
WAITING_SHARE = 2.0

# Takes an artifact, the number of one of its sessions (from 0, in the order handed over), and that session's drift.
OnDrift = Callable[[Artifact, int, float], None]


class Lowest:
    """What a figure of sessions is where nothing disturbs it: the ``QUIETEST`` lowest of those seen, ascending."""

    def __init__(self, known: Iterable[float] = ()) -> None:
        self._seen = sorted(known)[:QUIETEST]

    def add(self, figure: float) -> None:
        """Notes one more; 0 says nothing."""
        if figure:
            self._seen = sorted([*self._seen, figure])[:QUIETEST]

    @property
    def usual(self) -> float:
        """The highest of the lowest, as far as there are any; 0: none."""
        return self._seen[-1] if self._seen else 0.0

    @property
    def known(self) -> float:
        """Likewise, where as many as are needed have been seen; else 0."""
        return self.usual if len(self._seen) == QUIETEST else 0.0


@dataclass
class Undisturbed:
    """``Session.crowding`` and ``Session.memory`` of a machine that nothing else uses, as far as sessions have told."""

    crowding: Lowest = field(default_factory=Lowest)
    memory: Lowest = field(default_factory=Lowest)

    def add(self, session: Session) -> None:
        """Notes what one more session tells."""
        self.crowding.add(session.crowding)
        self.memory.add(session.memory)


class Drift:
    """The sentinel's time relative to its first visits: 1.02 says that the machine has become 2 % slower.

    One object serves all turns of a campaign, which gives them one reference.
    """

    def __init__(self) -> None:
        self._first: list[float] = []
        self._reference_s = 0.0
        self._latest_s = 0.0
        self._faster: list[float] = []
        self._agreed = 0
        self._kept = False
        # The clock that sessions are compared with, as ``Session.probe_s`` tells it; 0: none yet.
        self.clock_s = 0.0
        # How far latencies follow the clock, as ``clock_sensitivity`` tells it.
        self.clock_sensitivity = 1.0
        self.undisturbed = Undisturbed()

    def by_clock(self, probe_s: float) -> float:
        """How much slower than at the reference the clock made a session; the first one asked about is that."""
        self.clock_s = self.clock_s or probe_s
        return by_clock(probe_s, self.clock_s, self.clock_sensitivity)

    def crowded(self, crowding: float) -> bool:
        """Notes ``Session.crowding`` of a visit; True where another program shared the core, as far as it is known."""
        if not crowding:
            return False
        self.undisturbed.crowding.add(crowding)
        return crowding > CROWDED * self.undisturbed.crowding.usual

    @property
    def settled(self) -> bool:
        """There is a reference: three visits in a row agree, or there were too many that did not."""
        latest = self._first[-WINDOW:]
        agreed = len(latest) == WINDOW and max(latest) <= min(latest) * (1 + SETTLED)
        return agreed or len(self._first) >= MAX_REFERENCE_VISITS

    def add(self, seconds: float) -> None:
        """Notes the median of one visit to the sentinel."""
        self._latest_s = seconds
        if not self.settled:
            self._first.append(seconds)
            self._reference_s = statistics.median(self._first[-WINDOW:])
        elif self.ratio < 1 - DRIFT:
            self._faster.append(seconds)
        else:
            self._faster.clear()
            self._agreed += not self.excessive

    def anew(self) -> float:
        """Takes the reference anew where the machine was disturbed when it was taken.

        So it was where the machine has been faster by more than ``DRIFT`` for ``WINDOW`` visits in a row, and for more
        of them than agreed with the reference before. A machine that becomes faster later has wandered, and what was
        measured before would be on another scale.

        Returns:
            By what all ratios so far are to be multiplied: 1.0 where it stays.
        """
        if self._kept or len(self._faster) < WINDOW or len(self._faster) <= self._agreed:
            return 1.0
        old, self._reference_s = self._reference_s, statistics.median(self._faster)
        self._agreed = len(self._faster)
        self._faster.clear()
        return old / self._reference_s

    def keep(self) -> None:
        """The reference stays from now on: there are ratios to it that nobody would multiply."""
        self._kept = True

    @property
    def ratio(self) -> float:
        """Now over then; 1.0 while nothing is known."""
        return self._latest_s / self._reference_s if self.settled else 1.0

    @property
    def excessive(self) -> bool:
        """The machine is so much slower than at first that a correction would be a guess."""
        return self.ratio > 1 + DRIFT


def by_clock(probe_s: float, reference_s: float, clock_sensitivity: float) -> float:
    """How much slower the clock made a session than the reference, where latencies follow it that far."""
    return float((probe_s / reference_s) ** clock_sensitivity)


def clock_sensitivity(rows: Iterable[Sequence[Session]]) -> float:
    """How far latencies follow the clock, from 0 (not at all) to 1 (they are cycles), by sessions that tell it.

    From one session of a row to the next, the logarithm of the latency changes by so many times that of
    ``Session.probe_s``: the slope of least absolute deviations, which is a weighted median of ratios. A disturbed
    session spoils two of them and not the rest.

    What computes at one clock follows it. A processor that runs wide vector instructions at a clock of their own may
    lower the other one, which the probe sees, and leave theirs as it is (experiment 013).

    Args:
        rows: Sessions of the same file each, in the order taken.
    """
    ratios = [FOLLOWED_AT_FIRST]
    for sessions in rows:
        points = [(math.log(s.probe_s), math.log(statistics.median(s.samples_s))) for s in sessions if s.probe_s]
        for (clock, latency), (next_clock, next_latency) in itertools.pairwise(points):
            if change := next_clock - clock:
                ratios.append(((next_latency - latency) / change, abs(change)))
    ratios.sort()
    half = sum(weight for _, weight in ratios) / 2
    sums = itertools.accumulate(weight for _, weight in ratios)
    slope = next(ratio for (ratio, _), so_far in zip(ratios, sums) if so_far >= half)
    return min(max(slope, 0.0), 1.0)


def between(before: float, after: float, share: float) -> float:
    """The drift at a point between two visits to the sentinel, log-linear; ``share`` runs from 0 to 1."""
    share = min(max(share, 0.0), 1.0)
    return math.exp((1 - share) * math.log(before) + share * math.log(after))


@dataclass
class Pauses:
    """How long to wait for a machine that has become slow because it is hot; one object serves a campaign.

    ``measured_s`` is how long has been measured, ``waited_s`` how long was waited. ``given_up`` is set when waiting did
    not help; from then on what is measured is corrected, doubted and kept.
    """

    next_s: float = PAUSE_S
    measured_s: float = 0.0
    waited_s: float = 0.0
    given_up: bool = False

    @property
    def possible(self) -> bool:
        """Waiting has helped so far, and would not take more than its share of the time."""
        return not self.given_up and self.waited_s + self.next_s <= WAITING_SHARE * self.measured_s

    def __iter__(self) -> Iterator[float]:
        """The pauses of one cooling, in seconds; stop when the machine has recovered.

        Each is twice as long as the one before, also across coolings: one that soon gets hot again was still warm.
        """
        waited = 0.0
        while waited < PATIENCE_S and self.possible:
            pause = self.next_s
            yield pause
            waited += pause
            self.waited_s += pause
            self.next_s = min(2 * pause, MAX_PAUSE_S)
        self.given_up = waited >= PATIENCE_S
