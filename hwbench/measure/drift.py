"""How fast the machine is now, relative to the beginning, by a reference file that is timed again and again."""

from __future__ import annotations

import statistics
from collections import deque

# One disturbed visit to the sentinel must not touch the rows around it: the median of three decides.
WINDOW = 3


class Drift:
    """The sentinel's time relative to its first visits: 1.02 says that the machine has become 2 % slower.

    A session is stored at once, so that a kill costs no more than the one in progress; its drift therefore comes from
    the visits before it, not from an interpolation with the next one. One object serves all turns of a campaign, which
    gives them one reference.
    """

    def __init__(self) -> None:
        self._first: list[float] = []
        self._latest: deque[float] = deque(maxlen=WINDOW)

    def add(self, seconds: float) -> None:
        """Notes the median of one visit to the sentinel."""
        if len(self._first) < WINDOW:
            self._first.append(seconds)
        self._latest.append(seconds)

    @property
    def ratio(self) -> float:
        """Now over then; 1.0 while nothing is known."""
        if not self._first:
            return 1.0
        return statistics.median(self._latest) / statistics.median(self._first)
