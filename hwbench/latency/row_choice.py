"""Which rows of a space are measured next."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from hwbench.latency.table import LatencyTable
from hwbench.specs import Workload


class RowChoice(Protocol):
    """Says which blocks are measured next, in batches, from what was measured so far.

    A choice is made from the blocks of a space and from networks that its user can choose. The same known rows give the
    same batch, so that an interrupted campaign goes on as it would have.
    """

    def next(self, known: LatencyTable, count: int) -> list[Workload]:
        """The ``count`` single blocks, not yet in ``known``, whose measurement takes most from the predicted networks'
        variance.

        A row that failed counts as known. Fewer than ``count`` blocks, or none, where no more are left.
        """
        ...


class RandomChoice:
    """Blocks in one random order: what every other choice has to beat.

    Args:
        candidates: Single blocks; all rows of a space. Their order makes no difference.
        networks: Not looked at.
        seed: Of the order.
    """

    def __init__(self, candidates: Sequence[Workload], networks: Sequence[Workload] = (), seed: int = 0) -> None:
        keys = {part: f"{seed} {part.key}" for part in dict.fromkeys(candidates)}
        self._order = sorted(keys, key=lambda part: hashlib.sha256(keys[part].encode()).digest())

    def next(self, known: LatencyTable, count: int) -> list[Workload]:
        """The first of the order that are not yet known."""
        return _first_unknown(self._order, known, count)


class ByUse:
    """Blocks that most of the networks have, first; of those with the same number, in the order of the candidates.

    Args:
        candidates: Single blocks; all rows of a space.
        networks: Draws of the networks that can be chosen; one that is drawn twice counts twice.
    """

    def __init__(self, candidates: Sequence[Workload], networks: Sequence[Workload]) -> None:
        used = Counter(part for network in networks for part in set(network.parts()))
        self._order = sorted(dict.fromkeys(candidates), key=lambda part: -used[part])

    def next(self, known: LatencyTable, count: int) -> list[Workload]:
        """The most used that are not yet known."""
        return _first_unknown(self._order, known, count)


def _first_unknown(order: Sequence[Workload], known: LatencyTable, count: int) -> list[Workload]:
    keys = {row.workload.key for row in known}
    unknown = (part for part in order if part.key not in keys)
    return [part for part, _ in zip(unknown, range(max(count, 0)))]
