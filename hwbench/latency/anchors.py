"""Anchors: the few whole networks that are measured on every occasion, as they tell what all rows have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwbench.errors import InvalidValue
from hwbench.latency.arithmetic import macs
from hwbench.latency.pieces import family
from hwbench.latency.table import LatencyRow, LatencyTable, Role
from hwbench.specs import Workload

# Four tell a shift that is common from one that is not, and are measured in well under a minute.
ANCHORS = 4
# A network of twice the latency is as different as one that has all its work in other blocks.
_DOUBLING = 1.0


def anchor_rows(table: LatencyTable, count: int = ANCHORS) -> list[LatencyRow]:
    """At most so many calibration networks, as different as they can be: in latency, and in the families of blocks that
    their work is in.

    The fastest network comes first, then always the one that is least like those before (Gonzalez 1985). The same at
    every call.
    """
    networks = sorted(
        (row for row in table.rows(Role.NETWORK)), key=lambda row: (row.stats.median_s if row.stats else 0.0, str(row))
    )
    if not networks:
        return []
    places = _places(networks)
    chosen = [0]
    while len(chosen) < min(count, len(networks)):
        nearest = np.min(np.linalg.norm(places[:, None] - places[chosen][None], axis=2), axis=1)
        chosen.append(int(np.argmax(nearest)))
    return [networks[at] for at in sorted(chosen)]


def moved_blocks(table: LatencyTable, beyond: dict[Workload, float], count: int = 10) -> list[Workload]:
    """The blocks that tell anchors apart which moved by themselves: those to measure anew first.

    Args:
        table: Whose single blocks are meant.
        beyond: Of each anchor, log of what it became slower by than all together.
        count: At most so many.

    Returns:
        Blocks in more of the anchors that moved one way than in those that moved the other, the most telling first.
    """
    scores: dict[Workload, float] = {}
    for network, moved in beyond.items():
        parts = list(network.parts())
        for part in parts:
            scores[part] = scores.get(part, 0.0) + moved / len(parts)
    known = {part: score for part, score in scores.items() if part in table and score}
    return sorted(known, key=lambda part: (-abs(known[part]), part.key))[:count]


def _places(networks: Sequence[LatencyRow]) -> np.ndarray:
    """Each network as a point: log2 of its latency, and the share of its multiply-adds in each family of blocks."""
    families: dict[str, int] = {}
    work = []
    for row in networks:
        shares: dict[str, float] = {}
        for part in row.workload.parts():
            name = family(part)
            families.setdefault(name, len(families))
            shares[name] = shares.get(name, 0.0) + _work(part)
        work.append(shares)
    places = np.zeros((len(networks), len(families) + 1))
    for at, (row, shares) in enumerate(zip(networks, work)):
        places[at, 0] = _DOUBLING * np.log2(row.stats.median_s) if row.stats else 0.0
        for name, amount in shares.items():
            places[at, 1 + families[name]] = amount / (sum(shares.values()) or 1.0)
    return places


def _work(part: Workload) -> float:
    """Multiply-adds of a block; 1 for a kind whose arithmetic is not known."""
    try:
        return float(macs(part)) or 1.0
    except InvalidValue:
        return 1.0
