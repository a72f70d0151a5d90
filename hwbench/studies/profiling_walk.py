"""Adaptive profiling: which rows of a space are measured, in which order, and how good their table is by then.

A walk over a space is a fixed sequence of batches. Each batch holds single blocks, which a ``RowChoice`` picks from
what those before showed, and whole networks, which are drawn like those that a user can choose. The networks calibrate
the table, and each of them, left out, is a judge of it: blocks are never measured because a judge has them.

    first batch    boundary probes, 8 networks, 96 blocks, and what is unlike all of these
    each further   48 blocks, or a quarter of those so far; a network for every 24 blocks, at most 40 in all

The walk depends on the rows of its own batches alone. So the same store gives the same next batch, whether the campaign
was interrupted, and whatever else was measured meanwhile; a row that is there already costs nothing.

Loads no torch.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hwbench.errors import NotMeasured
from hwbench.latency import (
    AOptimal,
    LatencyRow,
    LatencyTable,
    PredictionAccuracy,
    Role,
    RowChoice,
    context_chains,
    interpolated,
    left_out_errors,
    macs,
)
from hwbench.latency.block_features import BlockColumns
from hwbench.spaces import StagedSpace
from hwbench.specs import Architecture, LatencyStats, Outcome, Precision, Workload
from hwbench.studies.profiling_plan import DRAWS, first_workloads, reachable_within

# A batch of a campaign: a row's sessions lie a round of it apart.
FIRST_ROWS = 96
# Fitting what fills rows takes seconds, as measuring three rows does.
BATCH_ROWS = 48
BATCH_SHARE = 4
# Of eight errors the seventh is a limit of their median (``PredictionAccuracy``).
FIRST_NETWORKS = 8
# Of the limit that ends the walk.
CONFIDENCE = 0.9
ROWS_PER_NETWORK = 24
MOST_NETWORKS = 40
# Boundaries whose cost tells that of the others: two rows each, and the cost grows smoothly with their size.
BOUNDARIES = 12
# Below so many rows a space is measured whole: choosing could not save half of them.
WHOLE_ROWS = 2 * FIRST_ROWS
# Half as many rows must have been this much worse, or more rows do not help.
LEVEL = 0.95
_DRAW_SEED, _JUDGE_SEED = 0xB10C, 0x10D6E

# Rows fall in value at least and at most so fast: error by a power of their number, with these exponents.
_SLOWEST, _FASTEST, _USUAL = 0.2, 1.5, 0.5

MakeChoice = Callable[[Sequence[Workload], Sequence[Workload]], RowChoice]
"""From the blocks of a space and networks drawn from it."""


class StopReason(enum.StrEnum):
    """Why a profile ends.

    ``accuracy``: as asked. ``rows``: nothing is left to measure. ``limit``: as many rows as asked. ``level``: more rows
    would hardly help.
    """

    ACCURACY = "accuracy"
    ROWS = "rows"
    LIMIT = "limit"
    LEVEL = "level"


@dataclass(frozen=True)
class WalkStep:
    """Where a walk is: blocks that have a latency, what the judges say, and what comes next.

    ``batch`` is empty where ``stopped`` says why.
    """

    rows: int
    accuracy: PredictionAccuracy | None
    batch: tuple[Workload, ...] = ()
    stopped: StopReason | None = None


def look_confidence(look: int) -> float:
    """Of the limit at one look of many, from 1, so that none of them is broken with ``CONFIDENCE``.

    A walk ends at the first limit that is low enough, and would otherwise end by luck, the sooner the more often it is
    looked at. The shares 6 / (pi look)^2 of what may go wrong add up to all of it (alpha
    spending; Lan and DeMets 1983).
    """
    return 1 - (1 - CONFIDENCE) * 6 / (math.pi * look) ** 2


def is_worth_choosing(space: StagedSpace, precision: Precision, num_classes: int) -> bool:
    """Whether a space has so many rows that some of them are measured and the others are filled in."""
    parts = space.parts(precision, num_classes=num_classes)
    return sum(1 for _ in zip(parts, range(WHOLE_ROWS + 1))) > WHOLE_ROWS


class ProfilingWalk:
    """The batches of a space in one precision, and what they are worth.

    Args:
        space: What is profiled.
        precision: Of the rows.
        num_classes: Width of the heads.
        budget_s: Only networks within it, in seconds, and what they are made of; None: all of the space.
        networks: Whole networks in the first batch, at least ``FIRST_NETWORKS``.
        choice: Picks rows.
    """

    def __init__(
        self,
        space: StagedSpace,
        precision: Precision,
        num_classes: int,
        *,
        budget_s: float | None = None,
        networks: int = FIRST_NETWORKS,
        choice: MakeChoice = AOptimal,
    ) -> None:
        self.space = space
        self.precision = precision
        self.num_classes = num_classes
        self.budget_s = budget_s
        self._networks = max(networks, FIRST_NETWORKS)
        self._make_choice = choice
        self._batches: list[tuple[Workload, ...]] = []
        self._region: _Region | None = None
        # Rows that were lost and are not tried again in this walk; another one does.
        self.given_up: set[str] = set()

    @cached_property
    def parts(self) -> tuple[Workload, ...]:
        """All single blocks of the space."""
        return tuple(self.space.parts(self.precision, num_classes=self.num_classes))

    def batch(self, table: LatencyTable) -> tuple[Workload, ...]:
        """The first batch of the walk that has rows which the table lacks, all of it; empty at the end of the walk.

        A row that failed is there, but for those that were lost, unless they are ``given_up``.

        Raises:
            NotMeasured: With a budget: the first batch, which is to tell what is within it, has too few latencies.
            InfeasibleBudget: No network is within the budget.
        """
        measured = self._finished(table)
        for batch in self._walk(table):
            if not all(workload.key in measured for workload in batch):
                return batch
        return ()

    def step(self, table: LatencyTable, goal: float) -> WalkStep:
        """What to do next, so that the upper limit of the typical error becomes at most ``goal``, a fraction.

        Raises:
            NotMeasured, InfeasibleBudget: As ``batch``.
        """
        batch, accuracy, rows = self.batch(table), self.accuracy(table), num_blocks(table)
        if accuracy is not None and accuracy.bound <= goal:
            return WalkStep(rows, accuracy, stopped=StopReason.ACCURACY)
        if not batch:
            return WalkStep(rows, accuracy, stopped=StopReason.ROWS)
        # With few networks it is their number that keeps the limit above the error.
        settled = accuracy is not None and (accuracy.error > goal or accuracy.networks >= MOST_NETWORKS)
        if settled and accuracy is not None and self.is_level(table, accuracy):
            return WalkStep(rows, accuracy, stopped=StopReason.LEVEL)
        return WalkStep(rows, accuracy, batch)

    def expected(self, table: LatencyTable) -> tuple[Workload, ...]:
        """The batch after the one that ``batch`` names, if its rows measure as they are predicted.

        A guess, of which most comes true, for whoever builds ahead: nothing depends on it. Empty where too little is
        known for one.

        Raises:
            NotMeasured, InfeasibleBudget: As ``batch``.
        """
        batch = self.batch(table)
        if self._region is None or self._batches[-1:] != [batch]:
            return ()
        known = self._known(table, self._batches)
        try:
            filled = interpolated(known, [part for workload in batch for part in workload.parts()])
        except NotMeasured:
            return ()
        rows = [row for workload in batch if workload not in known and (row := _as_filled(filled, workload))]
        return self._next(LatencyTable(table.target, table.precision, [*known, *rows], emulated=table.emulated))

    def walked(self) -> tuple[Workload, ...]:
        """All rows of the batches so far."""
        return tuple(workload for batch in self._batches for workload in batch)

    def judges(self) -> tuple[Workload, ...]:
        """The networks of the batches so far that judge the table, in the order of their draw."""
        walked = set(self.walked())
        return tuple(network for network in self._pool if network in walked)

    def accuracy(self, table: LatencyTable) -> PredictionAccuracy | None:
        """How far off the table is for a network of the space, by the judges that it has; None while these are few."""
        try:
            errors = left_out_errors(self._filled(table), self.judges(), members=self.space.size())
            return PredictionAccuracy.of(errors, look_confidence(self._looks(table)))
        except NotMeasured:
            return None

    def _finished(self, table: LatencyTable) -> set[str]:
        return {row.workload.key for row in table if row.outcome is not Outcome.LOST} | self.given_up

    def _looks(self, table: LatencyTable) -> int:
        """How often the table was looked at: after each batch that is whole."""
        finished = self._finished(table)
        whole = [all(workload.key in finished for workload in batch) for batch in self._batches]
        return max(sum(whole), 1)

    def history(self, table: LatencyTable) -> Iterator[tuple[int, PredictionAccuracy]]:
        """Blocks and accuracy after each batch that is whole, as it would have been with all judges of today."""
        for batches in range(1, len(self._batches) + 1):
            known = self._known(table, self._batches[:batches])
            if all(workload.key in self._finished(table) for workload in self._batches[batches - 1]):
                accuracy = self.accuracy(_with_networks(known, table))
                if accuracy is not None:
                    yield num_blocks(known), accuracy

    def is_level(self, table: LatencyTable, now: PredictionAccuracy) -> bool:
        """Whether further rows would hardly help: half of the rows were as good, by the same judges."""
        counts = [num_blocks(self._known(table, self._batches[: n + 1])) for n in range(len(self._batches))]
        halves = [n for n, count in enumerate(counts) if 2 * count <= num_blocks(table)]
        if not halves or num_blocks(table) < 2 * WHOLE_ROWS:
            return False
        before = self.accuracy(_with_networks(self._known(table, self._batches[: halves[-1] + 1]), table))
        return before is not None and now.error > LEVEL * before.error

    def _walk(self, table: LatencyTable) -> Iterator[tuple[Workload, ...]]:
        """The batches of the walk; each is made once those before it have their rows."""
        number = 0
        while True:
            if number == len(self._batches):
                batch = self._next(self._known(table, self._batches))
                if not batch:
                    return
                self._batches.append(batch)
            yield self._batches[number]
            number += 1

    def _first(self, nothing: LatencyTable) -> tuple[Workload, ...]:
        if self.budget_s is not None:
            return tuple(first_workloads(self.space, self.precision, self.num_classes, self._networks))
        self._region = _Region.of_space(self)
        probes = context_chains(self.parts, BOUNDARIES)
        rows = self._region.choice.next(nothing, FIRST_ROWS)
        return (*probes, *self._pool[: self._networks], *self._region.covering(rows))

    def _next(self, known: LatencyTable) -> tuple[Workload, ...]:
        """The batch after those that have the rows of ``known``."""
        if not self._batches:
            return self._first(known)
        if self._region is None:
            self._region = _Region.within_budget(self, known)
        count = max(BATCH_ROWS, num_blocks(known) // BATCH_SHARE)
        rows = self._region.choice.next(known, count)
        if not rows:
            return ()
        taken = {row.workload.key for row in known}
        wanted = min(self._networks + (num_blocks(known) + len(rows)) // ROWS_PER_NETWORK, MOST_NETWORKS)
        lacking = max(wanted - sum(network in known for network in self._pool), 0)
        more = [network for network in self._pool if network.key not in taken][:lacking]
        return (*more, *rows)

    @property
    def _pool(self) -> tuple[Workload, ...]:
        return self._region.judges if self._region else ()

    def _known(self, table: LatencyTable, batches: Iterable[tuple[Workload, ...]]) -> LatencyTable:
        """The rows of some batches."""
        keys = {workload.key for batch in batches for workload in batch}
        rows = [row for row in table if row.workload.key in keys]
        return LatencyTable(table.target, table.precision, rows, emulated=table.emulated, scale=table.scale)

    def _filled(self, table: LatencyTable) -> LatencyTable:
        """The table with rows for all blocks of its networks."""
        parts = [part for row in table.rows(Role.NETWORK) for part in row.workload.parts()]
        missing = any(part not in table for part in parts)
        return interpolated(table, parts) if missing else table


@dataclass(frozen=True)
class _Region:
    """What is profiled.

    Args:
        judges: The networks that judge it, in the order in which they are measured.
        choice: Picks rows.
        parts: The blocks of other networks that are drawn alike, the largest first.
    """

    judges: tuple[Workload, ...]
    choice: RowChoice
    parts: tuple[Workload, ...]

    def covering(self, rows: Sequence[Workload]) -> list[Workload]:
        """The rows, and blocks that are too unlike all of them to be told from them."""
        chosen = list(rows)
        columns = BlockColumns.of(chosen)
        for part in self.parts:
            if columns.beyond(part) is not None:
                chosen.append(part)
                columns = BlockColumns.of(chosen)
        return chosen

    @classmethod
    def of_space(cls, walk: ProfilingWalk) -> _Region:
        return cls._of(walk, walk.parts, walk.space.random)

    @classmethod
    def within_budget(cls, walk: ProfilingWalk, known: LatencyTable) -> _Region:
        assert walk.budget_s is not None
        feasible, parts = reachable_within(walk.space, known, walk.num_classes, walk.budget_s)
        return cls._of(walk, parts, feasible.draw)

    @classmethod
    def _of(
        cls, walk: ProfilingWalk, parts: Sequence[Workload], draw: Callable[[np.random.Generator], Architecture]
    ) -> _Region:
        def drawn(count: int, seed: int) -> list[Workload]:
            rng = np.random.default_rng([0, seed])
            networks = [walk.space.network(draw(rng), walk.num_classes) for _ in range(count)]
            return [network.workload(walk.precision, walk.space.variant) for network in networks]

        judges = dict.fromkeys(drawn(2 * MOST_NETWORKS, _JUDGE_SEED))
        networks = drawn(DRAWS, _DRAW_SEED)
        used = dict.fromkeys(part for network in networks for part in network.parts())
        return cls(tuple(judges), walk._make_choice(parts, networks), tuple(sorted(used, key=macs, reverse=True)))


def whole_accuracy(table: LatencyTable, space: StagedSpace) -> PredictionAccuracy | None:
    """How far off a table is by all networks that it has, each left out; nothing is filled in. None: they are few."""
    measured = [row.workload for row in table.rows(Role.NETWORK)]
    judges = [network for network in measured if all(part in table for part in network.parts())]
    try:
        return PredictionAccuracy.of(left_out_errors(table, judges, members=space.size()))
    except NotMeasured:
        return None


def rows_to_goal(points: Sequence[tuple[int, float]], goal: float) -> int:
    """How many more rows until the limit of the error is at most ``goal``, if it goes on falling as it did.

    It is taken to fall by a power of the number of rows, whose exponent the first and the last point tell.

    Args:
        points: (rows, limit), at least one, in the order in which they came.
        goal: As a fraction.
    """
    (first, before), (rows, now) = points[0], points[-1]
    exponent = _USUAL
    if rows > first and before > 0 and now > 0:
        exponent = min(max(math.log(before / now) / math.log(rows / first), _SLOWEST), _FASTEST)
    factor: float = (now / goal) ** (1 / exponent)
    return max(math.ceil(rows * (factor - 1)), 0)


def num_blocks(table: LatencyTable) -> int:
    """Single blocks of a table that have a latency; a block counts once, whatever layouts it was measured in."""
    return sum(row.workload.variant == table.variant for row in table.rows(Role.BLOCK))


def _as_filled(filled: LatencyTable, workload: Workload) -> LatencyRow | None:
    """A block or network as a row that takes as long as its blocks; None where one of these has no number."""
    parts = [filled.latency(part) for part in workload.parts()]
    if Role.of(workload) is Role.CHAIN or None in parts:
        return None
    seconds = sum(part.median_s for part in parts if part is not None)
    stats = LatencyStats(seconds, seconds, seconds, seconds, seconds, 0, 0)
    measured = next(row for row in filled if row.stats is not None)
    return replace(measured, role=Role.of(workload), workload=workload, stats=stats)


def _with_networks(table: LatencyTable, other: LatencyTable) -> LatencyTable:
    """A table with the whole networks of another one."""
    rows = {row.workload.key: row for row in (*table, *other.rows(Role.NETWORK))}
    return LatencyTable(table.target, table.precision, rows.values(), emulated=table.emulated, scale=table.scale)
