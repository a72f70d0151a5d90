"""What the delegate took, read from the lowered graph, and the rule that it takes all."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import torch

from hwbench.errors import DelegationFailed
from hwbench.printable import counted
from hwbench.specs import DelegationReport

_DELEGATE = "executorch_call_delegate"


def read_delegation(graph_module: torch.fx.GraphModule) -> DelegationReport:
    """Counts the delegates of a lowered graph, and by name the operations left outside.

    Quantise and dequantise operations count like any other: values at the boundary are fp32 and are converted inside.
    Picking one output of a delegate is no operation.
    """
    calls = [name_of(node.target) for node in graph_module.graph.nodes if node.op == "call_function"]
    outside = Counter(name for name in calls if name not in (_DELEGATE, name_of(operator.getitem)))
    return DelegationReport(calls.count(_DELEGATE), dict(sorted(outside.items())))


def require_complete(report: DelegationReport, name: str) -> None:
    """Nothing to say about a graph that is exactly one delegate and nothing else.

    Raises:
        DelegationFailed: It is something else; the operations outside are named.
    """
    if report.complete:
        return
    if report.undelegated:
        left = ", ".join(f"{count} x {op}" for op, count in report.undelegated.items())
        raise DelegationFailed(
            f"{name}: outside the delegate: {left} ({_delegates(report.delegates)}); expected one delegate with "
            "everything inside. Write the operation in a form that XNNPACK takes"
        )
    raise DelegationFailed(
        f"{name}: expected one delegate, got {_delegates(report.delegates)}"
        + ("" if report.delegates else ": the module has no operation that XNNPACK computes")
    )


def name_of(target: Any) -> str:
    """Name of what a node calls, such as ``aten.mean.dim``."""
    return str(getattr(target, "__name__", target))


def _delegates(count: int) -> str:
    return counted(count, "delegate")
