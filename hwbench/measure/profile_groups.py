"""The operations of a file summed up, by kind and by block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hwbench.measure.file_profile import FileProfile, ProfiledOperation
from hwbench.units import milliseconds

BETWEEN = "between blocks"
"""Stands for the block of operations that belong to none: conversions of layout and type that lowering put in."""
NOT_ATTRIBUTED = "not attributed"
"""Stands for the block of operations of which it is not known where in the model they are."""


@dataclass(frozen=True)
class OperationGroup:
    """Operations of one kind or of one block: their time together, its share of all operations, how many they are.

    ``kinds`` are the times by kind, the longest first.
    """

    name: str
    seconds: float
    share: float
    count: int
    kinds: tuple[tuple[str, float], ...]


def by_kind(profile: FileProfile) -> tuple[OperationGroup, ...]:
    """The operations by kind, the kind that takes longest first."""
    return tuple(sorted(_groups(profile, lambda one: one.kind), key=lambda group: -group.seconds))


def by_block(profile: FileProfile) -> tuple[OperationGroup, ...]:
    """The operations by block, in the order in which the blocks begin; empty where nothing is attributed."""
    if profile.unattributed:
        return ()
    groups = _groups(profile, block_name)
    return tuple(sorted(groups, key=lambda group: group.name in (BETWEEN, NOT_ATTRIBUTED)))


def block_name(operation: ProfiledOperation) -> str:
    """The block of an operation, or what stands for none."""
    return (operation.block or BETWEEN) if operation.attributed else NOT_ATTRIBUTED


def _groups(profile: FileProfile, key: Callable[[ProfiledOperation], str]) -> Iterable[OperationGroup]:
    members: dict[str, list[ProfiledOperation]] = defaultdict(list)
    for one in profile.operations:
        members[key(one)].append(one)
    whole = profile.operations_s or 1.0
    for name, operations in members.items():
        kinds: dict[str, float] = defaultdict(float)
        for one in operations:
            kinds[one.kind] += one.seconds
        seconds = sum(kinds.values())
        ordered = tuple(sorted(kinds.items(), key=lambda item: -item[1]))
        yield OperationGroup(name, seconds, seconds / whole, len(operations), ordered)


def profile_to_json(profile: FileProfile, median_s: float | None) -> dict[str, Any]:
    """The key ``profile`` of ``hwbench bench --profile --json``.

    Args:
        profile: Its times are by the clock on the wall.
        median_s: The latency without a tracer; None where it is by processor time, which leaves out what the times of
            the operations have in them.
    """
    remainder_s = None if median_s is None else median_s - profile.operations_s
    return {
        "operations_ms": milliseconds(profile.operations_s),
        "unaccounted_ms": None if remainder_s is None or remainder_s < 0 else milliseconds(remainder_s),
        "traced_ms": milliseconds(profile.traced_s),
        "by_kind": [_group_to_json("kind", group) for group in by_kind(profile)],
        "by_block": [
            {**_group_to_json("block", group), "kinds_ms": {kind: milliseconds(s) for kind, s in group.kinds}}
            for group in by_block(profile)
        ],
        "operations": [
            {
                "name": one.name,
                "kind": one.kind,
                "ms": milliseconds(one.seconds),
                "attributed": one.attributed,
                "block": one.block,
                "module": one.module,
                "shape": list(one.shape),
            }
            for one in profile.operations
        ],
        "unattributed": profile.unattributed or None,
    }


def _group_to_json(key: str, group: OperationGroup) -> dict[str, Any]:
    return {
        key: group.name,
        "ms": milliseconds(group.seconds),
        "share": round(group.share, 6),
        "count": group.count,
    }
