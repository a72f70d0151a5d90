"""What of a table is about one space: a device has one table for all its spaces."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hwbench.latency.predictor import MIN_NETWORKS
from hwbench.latency.table import LatencyRow, LatencyTable, Role
from hwbench.specs import BlockRole, Workload


def with_own_networks(table: LatencyTable, parts: Collection[Workload], members: int | None = None) -> LatencyTable:
    """A table without the whole networks of other spaces: what a boundary saves there is nothing that holds here.

    Args:
        table: Of a device; it may have rows of several spaces.
        parts: The single blocks of the space.
        members: Number of networks of the space.

    Returns:
        The table as it is where fewer than three of its networks, or than the space has, are made of these blocks.
    """
    own = _made_of(parts)
    whole = [row for row in table if is_whole(row)]
    others = [row.workload for row in whole if not own(row)]
    enough = len(whole) - len(others) >= min(MIN_NETWORKS, members or MIN_NETWORKS)
    return table.without(others) if others and enough else table


def rows_of_space(table: LatencyTable, parts: Collection[Workload]) -> LatencyTable:
    """A table without blocks and whole networks of other spaces. Chains stay: boundaries are of no space.

    Args:
        table: Of a device.
        parts: The single blocks of the space.
    """
    own = _made_of(parts)
    others = [row.workload for row in table if (row.role is Role.BLOCK or is_whole(row)) and not own(row)]
    return table.without(others) if others else table


def _made_of(parts: Collection[Workload]) -> Callable[[LatencyRow], bool]:
    """Whether a row is made of some blocks alone, in whatever layout."""
    known = {(part.blocks[0], part.input) for part in parts}
    return lambda row: all((part.blocks[0], part.input) in known for part in row.workload.parts())


def is_whole(row: LatencyRow) -> bool:
    """Whether a row is of a whole network: measured as such, or one block that is a network."""
    return row.role is Role.NETWORK or row.workload.blocks[0].role is BlockRole.NETWORK
