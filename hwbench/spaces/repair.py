"""Members within a budget near to a proposal.

The nearest one comes by dynamic programming over (distance, latency) fronts. One of the nearer ones, at random, is the
best member by scores of nearness with noise: perturb and maximise (Papandreou and Yuille, ICCV 2011).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

import numpy as np

from hwbench.spaces.scales import steps_along
from hwbench.spaces.sums import CellSums, SpaceSums
from hwbench.spaces.walk import Floats, Integers
from hwbench.specs import Architecture

# A distance is one integer: number of changed choices x _CHANGE + steps on their scales. No space has this many steps.
_CHANGE = 1_000_000
# What a change of a choice that is to be kept counts: more than all others together, noise included.
_KEPT = 10_000


@dataclass(frozen=True)
class _Front:
    """Pairs of which none is both nearer and faster than another, ascending in distance; how each came about."""

    distance: Integers
    seconds: Floats
    choice: Integers
    after: Integers


def nearest_within(sums: SpaceSums, budget_s: float, proposal: Architecture) -> Architecture:
    """The member within the budget with the fewest choices changed, then the fewest steps, then the least latency.

    There must be one. Distances between numbers are steps between the values of the choice in ascending order, however
    large each step is.
    """
    away = [stage_distances(sums, number, proposal) for number in range(len(sums.axes))]
    best: tuple[int, float, int] | None = None
    for at, cell in enumerate(sums.cells):
        offset = _size_distance(sums, cell, proposal)
        if not np.isfinite(cell.base) or (best is not None and offset > best[0]):
            continue
        front = _fronts(sums, cell, away)[0][0]
        within = np.flatnonzero(cell.base + front.seconds <= budget_s)
        if len(within):
            first = int(within[0])
            found = (offset + int(front.distance[first]), cell.base + float(front.seconds[first]), at)
            best = found if best is None else min(best, found)
    if best is None:
        raise AssertionError("a feasible set is never empty")
    return _trace(sums, sums.cells[best[2]], away, budget_s)


def _trace(sums: SpaceSums, cell: CellSums, away: list[Integers], budget_s: float) -> Architecture:
    fronts = _fronts(sums, cell, away)
    at = int(np.flatnonzero(cell.base + fronts[0][0].seconds <= budget_s)[0])
    state, picked = 0, []
    for axis, stage, by_state in zip(sums.axes, cell.stages, fronts):
        front = by_state[state]
        number = int(front.choice[at])
        picked.append(axis.choices[number])
        at, state = int(front.after[at]), int(stage.out[state, number])
    return sums.space.member(cell.cell, tuple(picked))


def _fronts(sums: SpaceSums, cell: CellSums, away: list[Integers]) -> list[list[_Front]]:
    """For each stage and each activation that reaches it: the front of what the rest of the network can be."""
    none = np.zeros(1, dtype=np.int64)
    after = [_Front(none, np.zeros(1), none, none)]
    stages = []
    for number in reversed(range(len(sums.axes))):
        stage = cell.stages[number]
        # Activations that everything behind costs the same share a front, and are one to the stage before.
        first: dict[int, int] = {}
        alike = np.array([first.setdefault(id(front), place) for place, front in enumerate(after)])
        known: dict[tuple[bytes, bytes], _Front] = {}
        fronts = []
        for out, row in zip(alike[stage.out], stage.seconds):
            key = (out.tobytes(), row.tobytes())
            if key not in known:
                known[key] = _front(away[number], out, row, after)
            fronts.append(known[key])
        after = fronts
        stages.append(after)
    return stages[::-1]


def _front(distances: Integers, outs: Integers, seconds: Floats, after: list[_Front]) -> _Front:
    pieces, to_be_had = [], np.isfinite(seconds)
    if not to_be_had.any():
        none = np.empty(0, np.int64)
        return _Front(none, np.empty(0), none, none)
    for out in np.unique(outs[to_be_had]).tolist():
        rest, options = after[out], np.flatnonzero((outs == out) & to_be_had)
        options = options[_undominated(distances[options], seconds[options])]
        grid = np.indices((len(options), len(rest.distance))).reshape(2, -1)
        chosen, follower = options[grid[0]], grid[1]
        pieces.append(
            (distances[chosen] + rest.distance[follower], seconds[chosen] + rest.seconds[follower], chosen, follower)
        )
    distance, total, chosen, follower = (np.concatenate(column) for column in zip(*pieces))
    keep = _undominated(distance, total)
    return _Front(distance[keep], total[keep], chosen[keep], follower[keep])


def _undominated(distance: Integers, seconds: Floats) -> Integers:
    """Indices of the pairs that no nearer pair beats, ascending in distance."""
    order = np.lexsort((seconds, distance))
    ordered = seconds[order]
    before = np.concatenate([[np.inf], np.minimum.accumulate(ordered)])[: len(ordered)]
    kept: Integers = order[ordered < before]
    return kept


def noisy_nearness(
    sums: SpaceSums, proposal: Architecture, rng: np.random.Generator, scale: float, kept: Set[str] = frozenset()
) -> SpaceSums:
    """Scores by which the best member within a budget is one of those near to a proposal, another one each time.

    Args:
        sums: What members of the space of the proposal take.
        proposal: Any member.
        rng: Draws Gumbel noise for each input size and each choice of each step.
        scale: Of the noise; a changed choice takes 1 from the score.
        kept: Names of choices that are changed only where nothing else is within the budget; other choices of their
            stages change like any.
    """
    sizes = rng.gumbel(scale=scale, size=len(sums.cells)) - size_distances(sums, proposal, kept) / _CHANGE
    stages = []
    for number, axis in enumerate(sums.axes):
        noise = rng.gumbel(scale=scale, size=len(axis.choices))
        stages.append(noise - stage_distances(sums, number, proposal, kept) / _CHANGE)
    cells = [
        replace(
            cell,
            base=float(size),
            stages=tuple(
                replace(stage, seconds=np.broadcast_to(near, stage.seconds.shape))
                for stage, near in zip(cell.stages, stages, strict=True)
            ),
        )
        for cell, size in zip(sums.cells, sizes, strict=True)
    ]
    return replace(sums, cells=tuple(cells))


def stage_distances(sums: SpaceSums, number: int, proposal: Architecture, kept: Set[str] = frozenset()) -> Integers:
    """By choice of a step: how far it is from that of a proposal. What one of both does not choose is no distance.

    Names in ``kept`` count ``_KEPT`` times.
    """
    axis, told = sums.axes[number], dict(proposal.choices)
    total = np.zeros(len(axis.choices), np.int64)
    for (name, choice), places in zip(axis.names.items(), axis.places.T):
        if choice in told:
            scale = axis.stage.texts(name)
            wanted, steps = scale.index(told[choice]), steps_along(scale)
            away = np.where((places < 0) | (places == wanted), 0, _CHANGE + np.abs(steps[places] - steps[wanted]))
            total += _weight(choice, kept) * away
    return total


def size_distances(sums: SpaceSums, proposal: Architecture, kept: Set[str] = frozenset()) -> Integers:
    """By input size: how far it is from that of a proposal; names in ``kept`` count ``_KEPT`` times."""
    return np.array([_size_distance(sums, cell, proposal, kept) for cell in sums.cells], dtype=np.int64)


def _size_distance(sums: SpaceSums, cell: CellSums, proposal: Architecture, kept: Set[str] = frozenset()) -> int:
    choices = sums.space.choices
    return sum(
        _weight(name, kept) * _distance(text, proposal[name], choices[name])
        for name, text in sums.space.size_texts(cell.cell).items()
    )


def _weight(choice: str, kept: Set[str]) -> int:
    return _KEPT if choice in kept else 1


def _distance(text: str, wanted: str, scale: tuple[str, ...]) -> int:
    steps = steps_along(scale)
    return 0 if text == wanted else _CHANGE + abs(int(steps[scale.index(text)] - steps[scale.index(wanted)]))
