"""A published table with what predicts from it, and what stands where something cannot be had."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hwbench.errors import HwbenchError
from hwbench.latency import AdditivePredictor, LatencyTable, interpolated, with_own_networks
from hwbench.runtimes import usable
from hwbench.specs import Precision, Workload
from hwbench.workspace import Workspace, shipped

T = TypeVar("T")
# Adds rows that were not measured: of a table and the parts of a space.
Fill = Callable[[LatencyTable, Collection[Workload]], LatencyTable]

# Precisions that a report compares, and says are missing where they are; of the others it tells what is there.
COMPARED = (Precision.FP32, Precision.INT8)


def compared(runtime: str) -> tuple[Precision, ...]:
    """Of the precisions that a report compares those that a runtime builds, its first one where it builds neither.

    All of them of a runtime that is not known here.
    """
    known = usable().get(runtime)
    if known is None:
        return COMPARED
    return tuple(p for p in COMPARED if p in known.precisions) or known.precisions[:1]


def not_built(runtime: str, precision: Precision) -> str:
    """Why there is no comparison with a precision on a runtime, in words."""
    return f"the {runtime} runtime builds no {precision}, so fp32 and int8 cannot be compared on it"


@dataclass(frozen=True)
class Missing:
    """Something a report would show, and why it is not there, with what to type."""

    reason: str


@dataclass(frozen=True)
class Profiled:
    """A latency table as it lies there, and what predicts from it, with rows that are filled in."""

    name: str
    sha256: str
    table: LatencyTable
    predictor: AdditivePredictor | Missing


def or_missing(read: Callable[[], T]) -> T | Missing:
    """What ``read`` returns; an error of ours becomes its own reason."""
    try:
        return read()
    except HwbenchError as error:
        return Missing(str(error))


def given(value: T | Missing) -> T:
    """The value; what is missing raises its reason, so that whatever needs it is missing for the same reason."""
    if isinstance(value, Missing):
        raise HwbenchError(value.reason)
    return value


def code_unread(model: str) -> str:
    """Why a model of the user's own, by its name, is not looked at: no page leads to code."""
    return f"the space is a model of your own, {model}: a report does not import its code, so its blocks are not shown"


def read_profiled(
    workspace: Workspace,
    path: Path,
    space: str | None = None,
    members: int | None = None,
    parts: Collection[Workload] = (),
    fill: Fill | None = None,
) -> Profiled:
    """Reads a table and fits what predicts from it; ``space`` is named in messages, and has so many ``members``.

    Where the ``parts`` of the space are given, its own networks calibrate as they do in a search, and rows that were
    not measured are filled in as ``fill`` does it, without it where ``profile`` chose the rows.

    Raises:
        InvalidFile: The table does not validate.
    """
    table = LatencyTable.read(path)
    own = with_own_networks(table, parts, members) if parts else table
    way = fill or (interpolated if table.adaptive else None)
    lacking = any(part not in own for part in parts)
    filled = or_missing(lambda: way(own, parts)) if way and lacking else own
    inside = path.is_relative_to(workspace.root)
    return Profiled(
        name=str(path.relative_to(workspace.root if inside else shipped())) + ("" if inside else " (shipped)"),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        table=table,
        predictor=or_missing(lambda: AdditivePredictor.fit(given(filled), space=space, members=members)),
    )
