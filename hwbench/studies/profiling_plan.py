"""Which rows of a latency table a search needs, the most valuable first: so that a campaign may end early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hwbench.latency import (
    AdditivePredictor,
    FilledTable,
    LatencyTable,
    Role,
    calibration_networks,
    context_chains,
    interpolated,
    variant_rows,
)
from hwbench.latency.boosted import MIN_ROWS
from hwbench.spaces import StagedSpace
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.studies.latencies import row_positions

# Networks drawn to see which blocks they share: a block that one in a hundred has is seen ten times, give or take 3.
DRAWS = 1000
CALIBRATION_SEED = 0
# Blocks that the others are interpolated from: at least 20 with a latency.
FIRST_BLOCKS = 24
# Boundaries that tell what the others cost: it grows smoothly with their size (experiment 006).
CHAINS = 40


def space_workloads(
    space: StagedSpace, precision: Precision, classes: int, calibrate: int, variants: Sequence[str] = ()
) -> list[Workload]:
    """What a table of a space consists of: blocks, chains for the boundaries, networks to calibrate with, and blocks in
    other layouts.

    The blocks of the calibration networks come first and then these networks, so that a campaign with a limit gives a
    table that predicts at least the networks like them; without such networks so many blocks as others are interpolated
    from.
    """
    parts = by_use(space, precision, classes)
    first, whole = _to_calibrate(space, precision, classes, calibrate)
    chains = context_chains(parts, CHAINS)
    first = first or parts[:FIRST_BLOCKS]
    return list(dict.fromkeys([*first, *chains, *whole, *parts, *variant_rows(parts, variants)]))


def first_workloads(space: StagedSpace, precision: Precision, classes: int, calibrate: int) -> list[Workload]:
    """What tells which networks of a space are within a budget, before its blocks are measured.

    That is the calibration networks with their blocks; what boundaries cost, spread over the sizes of what lies between
    blocks; and so many blocks that the others can be interpolated.
    """
    first, whole = _to_calibrate(space, precision, classes, calibrate)
    parts = by_use(space, precision, classes)
    blocks = list(dict.fromkeys(first))
    lacking = max(FIRST_BLOCKS - len(blocks), 0)
    blocks += [part for part in parts if part not in set(blocks)][:lacking]
    return [*blocks, *whole, *context_chains(parts, CHAINS)]


def by_use(space: StagedSpace, precision: Precision, num_classes: int, seed: int = 0) -> list[Workload]:
    """All blocks of a space as rows, those first that most of its networks have; the same at every call.

    The networks are drawn uniformly; what none of them has comes last, in the order of the space.
    """
    return list(_by_use(space, precision, num_classes, seed))


# A profile asks for the same rows several times; a draw costs about a millisecond.
@lru_cache(maxsize=16)
def _by_use(space: StagedSpace, precision: Precision, num_classes: int, seed: int) -> tuple[Workload, ...]:
    rng = np.random.default_rng([seed, 0xB10C])
    drawn = [space.network(space.random(rng), num_classes) for _ in range(DRAWS)]
    parts = list(space.parts(precision, num_classes=num_classes))
    return tuple(_most_used(drawn, parts, precision, space.variant))


def within_budget(
    space: StagedSpace, table: LatencyTable, num_classes: int, budget_s: float, seed: int = 0
) -> list[Workload]:
    """The blocks of a space that some network within a budget may have, those first that most of these have.

    Blocks that the table lacks are interpolated, and counted at the lower end of their interval, as networks are: what
    is left out is out for nine networks in ten, not by a guess. A space of so few blocks that all are measured first
    needs no interpolation; networks with a block that failed are left out.

    Args:
        space: The space.
        table: Whose rows tell what blocks cost, and what its precision is.
        num_classes: Width of the heads.
        budget_s: In seconds.
        seed: Of the networks that are drawn.

    Raises:
        NotMeasured: The table has too few blocks or calibration networks to tell.
        InfeasibleBudget: No network is that fast.
    """
    feasible, reachable = reachable_within(space, table, num_classes, budget_s)
    rng = np.random.default_rng([seed, 0xB10C])
    drawn = [space.network(feasible.draw(rng), num_classes) for _ in range(DRAWS)]
    return _most_used(drawn, reachable, table.precision, space.variant)


def reachable_within(
    space: StagedSpace, table: LatencyTable, num_classes: int, budget_s: float
) -> tuple[FeasibleSet, list[Workload]]:
    """The networks that may be within a budget, and the blocks that they may have, as ``within_budget`` takes them.

    Raises:
        NotMeasured: The table has too few blocks or calibration networks to tell.
        InfeasibleBudget: No network is that fast.
    """
    parts = list(space.parts(table.precision, num_classes=num_classes))
    filled = _filled(table, parts)
    predictor = AdditivePredictor.fit(filled, space=space.name, members=space.size(), emulated=True)
    position = row_positions(space)

    def least(block: BlockSpec, x: TensorSpec) -> float:
        part = space.part(block, x, table.precision)
        factor = 1.0 if filled.is_measured(part) else filled.filled_spread
        return predictor.row_cost(part, position(block, x)) / factor / predictor.calibration.spread

    constant_s = predictor.constant_s / predictor.calibration.spread
    feasible = FeasibleSet(SpaceSums.of(space, least, num_classes=num_classes, constant=constant_s), budget_s)
    parts = [space.part(block, x, table.precision) for block, x in feasible.reachable_parts()]
    return feasible, list(dict.fromkeys(parts))


def _filled(table: LatencyTable, parts: Sequence[Workload]) -> FilledTable:
    """The table with numbers for the blocks of a space that it lacks, but where the space has too few to learn from."""
    if len(parts) <= FIRST_BLOCKS and len(table.rows(Role.BLOCK)) < MIN_ROWS:
        return FilledTable(table, {}, spread=1.0, how="")
    return interpolated(table, parts)


def _to_calibrate(
    space: StagedSpace, precision: Precision, classes: int, calibrate: int
) -> tuple[list[Workload], list[Workload]]:
    """The blocks of the calibration networks, and these networks."""
    networks = calibration_networks(space, calibrate, CALIBRATION_SEED, classes) if calibrate else []
    whole = [network.workload(precision, space.variant) for network in networks]
    return [part for workload in whole for part in workload.parts()], whole


def _most_used(networks: list[Network], parts: list[Workload], precision: Precision, variant: str) -> list[Workload]:
    used = Counter(part for network in networks for part in set(network.workload(precision, variant).parts()))
    return sorted(dict.fromkeys(parts), key=lambda part: -used[part])
