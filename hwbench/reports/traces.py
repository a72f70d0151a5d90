"""The operations of a file for other programs: Perfetto (and chrome://tracing), and Model Explorer.

Formats: the Trace Event Format of Chrome (complete events, ``ph`` ``X``, microseconds), which Perfetto reads; graphs
and node data of Model Explorer as its sources declare them (``Graph`` and ``NodeDataProviderData``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwbench.measure.file_profile import FileProfile
from hwbench.measure.profile_groups import BETWEEN, block_name
from hwbench.runtimes.pte_record import GraphNode
from hwbench.workspace import write_text, writing

PERFETTO, GRAPH, NODE_DATA = "perfetto.json", "model-explorer.graph.json", "model-explorer.times.json"
_OPERATIONS, _BLOCKS = 1, 2


def write_traces(profile: FileProfile, folder: Path, name: str, facts: Mapping[str, Any]) -> tuple[Path, ...]:
    """Writes the files: for Perfetto always, for Model Explorer where the file tells of its graph.

    Those for Model Explorer that an earlier profile left are removed where none are written: they are of another file.

    Args:
        profile: The operations.
        folder: Where; made when needed.
        name: Of the model, as it is shown.
        facts: What the times are: device, runtime, threads, median and so on; kept in the file for Perfetto.

    Returns:
        The files.

    Raises:
        WorkspaceError: They cannot be written.
    """
    contents: dict[str, Any] = {PERFETTO: perfetto(profile, name, facts)}
    if profile.graph:
        contents |= {GRAPH: explorer_graph(profile, name), NODE_DATA: explorer_times(profile, name)}
    with writing(folder):
        for file in {GRAPH, NODE_DATA} - contents.keys():
            (folder / file).unlink(missing_ok=True)
    for file, values in contents.items():
        write_text(folder / file, json.dumps(values, indent=1) + "\n")
    return tuple(folder / file for file in contents)


def perfetto(profile: FileProfile, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """One mean execution: operations end to end in the order in which they ran, and below them their blocks."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": name}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": _OPERATIONS, "args": {"name": "operations"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": _BLOCKS, "args": {"name": "blocks"}},
    ]
    at = 0.0
    open_block: dict[str, Any] = {"name": ""}
    for one in profile.operations:
        us, block = 1e6 * one.seconds, block_name(one)
        detail = {"block": block, "module": one.module, "shape": "x".join(map(str, one.shape)), "runs": one.count}
        events.append(_event(one.name, one.kind, _OPERATIONS, at, us, {k: v for k, v in detail.items() if v}))
        if not profile.unattributed and block != BETWEEN:
            if open_block["name"] != block:
                open_block = _event(block, "block", _BLOCKS, at, 0.0, {})
                events.append(open_block)
            open_block["dur"] = round(at + us - open_block["ts"], 3)
        at += us
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {key: str(v) for key, v in facts.items()}}


def _event(name: str, category: str, track: int, at_us: float, us: float, args: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": round(at_us, 3),
        "dur": round(us, 3),
        "pid": 1,
        "tid": track,
        "args": dict(args),
    }


def explorer_graph(profile: FileProfile, name: str) -> list[dict[str, Any]]:
    """The graph of the delegate, nested by modules; an operation that the engine joined with another one is there."""
    return [{"id": name, "nodes": [_explorer_node(index, node) for index, node in enumerate(profile.graph)]}]


def _explorer_node(index: int, node: GraphNode) -> dict[str, Any]:
    shape = "x".join(map(str, node.shape))
    return {
        "id": str(index),
        "label": node.kind,
        "namespace": node.modules[-1].path.replace(".", "/") if node.modules else "",
        "attrs": [{"key": "module", "value": node.modules[-1].path if node.modules else BETWEEN}],
        "incomingEdges": [
            {"sourceNodeId": str(source), "sourceNodeOutputId": "0", "targetNodeInputId": str(place)}
            for place, source in enumerate(node.inputs)
        ],
        "outputsMetadata": [{"id": "0", "attrs": [{"key": "tensor_shape", "value": shape}]}],
    }


def explorer_times(profile: FileProfile, name: str) -> dict[str, Any]:
    """Milliseconds by node, from white to red. A report that may belong to several nodes is left out."""
    times: dict[str, float] = {}
    for one, at in zip(profile.operations, profile.placed, strict=True):
        if at.node is not None:
            times[str(at.node)] = times.get(str(at.node), 0.0) + 1e3 * one.seconds
    results = {node: {"value": round(ms, 6)} for node, ms in times.items()}
    gradient = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#d55e00"}]
    return {name: {"name": "ms", "results": results, "gradient": gradient}}
