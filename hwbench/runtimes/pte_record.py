"""What a ``.pte`` file tells about the operations of its delegate: which module each comes from.

The XNNPACK delegate reports times by the kind of an operation and not by its place in a model. So the graph that the
delegate was given is kept in the file, as named data that the engine never loads (about 5 kB for an X3D). Files of
other programs have no such record.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.runtimes.pte_model import FlatTable

KEY = "hwbench.operations"
"""Name of the record in the file, with the number of the delegate behind it."""

_FORMAT = 1
# Fields of the tables Program, NamedData and DataSegment, and where the extended header stands.
_SEGMENTS, _NAMED_DATA, _KEY, _SEGMENT_INDEX, _OFFSET, _SIZE, _HEADER = 4, 7, 0, 1, 0, 1, 8
# An X3D-L has 3000 operations; a record beyond that size is none of ours.
_MOST_BYTES = 1 << 24


@dataclass(frozen=True)
class ModuleCall:
    """A module on the way from the whole model to an operation: its dotted name and the name of its class."""

    path: str
    kind: str


@dataclass(frozen=True)
class GraphNode:
    """One operation of the graph that the delegate was given, before the engine joins operations.

    Attributes:
        kind: As XNNPACK calls it in the file: ``Conv2d``, ``DepthwiseConv2d``, ``StaticReshape``, ...
        shape: Of what it gives, as the model counts axes (N, C, H, W); empty where it is no tensor.
        inputs: The operations that it reads, as indices into the graph; inputs of the model and weights are left out.
        clamped: It has bounds, as of a ReLU behind it.
        modules: From outermost to innermost, without the model itself; empty for what lowering has put in.
    """

    kind: str
    shape: tuple[int, ...]
    inputs: tuple[int, ...]
    clamped: bool
    modules: tuple[ModuleCall, ...]


def encode(nodes: Sequence[GraphNode]) -> bytes:
    """A record; the same nodes give the same bytes."""
    calls: dict[tuple[ModuleCall, int], int] = {}
    rows = []
    for node in nodes:
        place = -1
        for call in node.modules:
            place = calls.setdefault((call, place), len(calls))
        rows.append([node.kind, list(node.shape), list(node.inputs), int(node.clamped), place])
    modules = [[call.path, call.kind, outer] for call, outer in calls]
    values = {"format": _FORMAT, "modules": modules, "nodes": rows}
    return zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 9)


def decode(data: bytes) -> tuple[GraphNode, ...]:
    """The nodes of a record.

    Raises:
        ValueError: It is none, or of another format.
    """
    try:
        unpacked = zlib.decompressobj().decompress(data, _MOST_BYTES)
        values = json.loads(unpacked)
        if values["format"] != _FORMAT:
            raise ValueError(f"a record of format {values['format']!r}, expected {_FORMAT}")
        chains: list[tuple[ModuleCall, ...]] = []
        for path, kind, outer in values["modules"]:
            above = chains[_index(outer, len(chains))] if outer != -1 else ()
            chains.append((*above, ModuleCall(str(path), str(kind))))
        nodes: list[GraphNode] = []
        for kind, shape, inputs, clamped, place in values["nodes"]:
            modules = chains[_index(place, len(chains))] if place != -1 else ()
            read = tuple(_index(one, len(nodes)) for one in inputs)
            nodes.append(GraphNode(str(kind), tuple(map(int, shape)), read, bool(clamped), modules))
        return tuple(nodes)
    except (zlib.error, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"a damaged record of operations: {error!r}") from error


def read_record(path: Path) -> tuple[GraphNode, ...] | None:
    """The graph of the one delegate of a file; None where the file tells of none, or of several.

    Raises:
        ValueError: The file or its record is damaged.
    """
    data = path.read_bytes()
    try:
        root = FlatTable.root(data)
        records = [one for one in root.tables(_NAMED_DATA) if one.text(_KEY).startswith(KEY)]
        if len(records) != 1:
            return None
        segment = root.tables(_SEGMENTS)[records[0].scalar(_SEGMENT_INDEX, "I")]
        magic, _, _, base = struct.unpack_from("<4sIQQ", data, _HEADER)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: a damaged .pte file") from error
    if magic != b"eh00":
        raise ValueError(f"{path}: a .pte file with segments and no header")
    start = base + segment.scalar(_OFFSET, "Q")
    return decode(data[start : start + segment.scalar(_SIZE, "Q")])


def _index(value: Any, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise IndexError(value)
    return value
