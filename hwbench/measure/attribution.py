"""Which operation of a file a reported time belongs to: exactly, or not at all.

XNNPACK reports its operators in the order in which they run, by kind and without a name. The graph that it was given
(``hwbench.runtimes.pte_record``) has the same order, but more operations than run: bounds are joined with what is
before them, conversions with what is behind. So all ways are looked at in which the reports can lie in the graph, in
order, nothing left out that must run. A report belongs to an operation, or to a block, where all of them say so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from hwbench.runtimes.pte_record import GraphNode

# By kind of an operation in the graph: what the operator that computes it is called, and whether it must run.
_ALWAYS, _MAYBE = True, False
_CONVOLUTION = r"Convolution|Fully Connected|VMulCAddC|Group GEMM"
_UNARY = "Invalid Unary Op"
OPERATORS: Mapping[str, tuple[str, bool]] = {
    "Conv2d": (_CONVOLUTION, _ALWAYS),
    "DepthwiseConv2d": (_CONVOLUTION, _ALWAYS),
    "FullyConnected": ("Fully Connected|Dynamic Fully Connected", _ALWAYS),
    "ConvTranspose2d": ("Deconvolution", _ALWAYS),
    "BatchMatrixMultiply": ("Batch Matrix Multiply", _ALWAYS),
    "Add": ("Add", _ALWAYS),
    "Subtract": ("Subtract", _ALWAYS),
    "Multiply": ("Multiply", _ALWAYS),
    "Div": ("Divide", _ALWAYS),
    "Maximum": ("Maximum", _ALWAYS),
    "Minimum": ("Minimum", _ALWAYS),
    "GlobalAvgPooling2d": ("Mean|Sum|Global Average Pooling", _ALWAYS),
    "AvgPooling2d": ("Average Pooling", _ALWAYS),
    "MaxPooling2d": ("Max Pooling", _ALWAYS),
    "Softmax": ("Softmax", _ALWAYS),
    "Sigmoid": (f"Sigmoid|{_UNARY}", _ALWAYS),
    "Hardswish": (f"HardSwish|{_UNARY}", _ALWAYS),
    "Tanh": (f"Tanh|{_UNARY}", _ALWAYS),
    "Gelu": (f"GELU|{_UNARY}", _ALWAYS),
    "ELU": (f"ELU|{_UNARY}", _ALWAYS),
    "LeakyReLU": (f"Leaky ReLU|{_UNARY}", _ALWAYS),
    "PReLU": ("PReLU", _ALWAYS),
    "SquareRoot": (f"Square Root|{_UNARY}", _ALWAYS),
    "ReciprocalSquareRoot": (f"Reciprocal Square Root|{_UNARY}", _ALWAYS),
    "StaticSlice": ("Slice|Copy", _ALWAYS),
    "StaticTranspose": ("Transpose", _ALWAYS),
    "StaticReshape": ("Static Reshape|Copy", _MAYBE),
    "StaticConstantPad": ("Constant Pad", _MAYBE),
    "Clamp": (f"Clamp|{_UNARY}", _MAYBE),
    "Convert": (f"Convert|Copy|{_UNARY}", _MAYBE),
}
# What is not listed may be anything, once, or nothing.
_ANYTHING = (".*", _MAYBE)
# Of one value, or of one and a constant: in int8 such chains become one look-up, whose report has no name.
_UNARIES = frozenset({"Sigmoid", "Hardswish", "Tanh", "Gelu", "ELU", "LeakyReLU", "Clamp", "Convert"})
_PAIRS = frozenset({"Add", "Subtract", "Multiply", "Div", "Maximum", "Minimum"})
_CONCATENATIONS = {f"Concatenate{count}": count for count in range(2, 6)}


@dataclass(frozen=True)
class Placed:
    """What one report belongs to: the operations that it can be, as indices into the graph, in their order."""

    candidates: tuple[int, ...]

    @property
    def node(self) -> int | None:
        """The one operation that it is; None where several are possible."""
        return self.candidates[0] if len(self.candidates) == 1 else None


def place(names: Sequence[str], graph: Sequence[GraphNode]) -> tuple[Placed, ...] | None:
    """Finds the operation of each report.

    Args:
        names: What the engine calls the operators, in the order in which they run, numbers behind them left out.
        graph: What it was given.

    Returns:
        One for each report; None where the reports cannot be those of the graph.
    """
    slots = [slot for index in range(len(graph)) for slot in _slots(index, graph)]
    ahead = _reached(names, slots)
    # The same from the end: what lies behind a report has to fit as well.
    behind = _reached(names[::-1], slots[::-1])
    found = []
    for number in range(len(names)):
        mirrored = {len(slots) - 1 - at for at in behind[len(names) - 1 - number]}
        possible = sorted(ahead[number] & mirrored)
        if not possible:
            return None
        found.append(Placed(tuple(sorted({slots[at].node for at in possible}))))
    return tuple(found)


@dataclass(frozen=True)
class _Slot:
    """One operator that can run for an operation."""

    node: int
    pattern: re.Pattern[str]
    must: bool


def _slots(index: int, graph: Sequence[GraphNode]) -> list[_Slot]:
    node = graph[index]
    if node.kind in _CONCATENATIONS:
        return [_Slot(index, re.compile("Copy"), number == 0) for number in range(_CONCATENATIONS[node.kind])]
    pattern, must = OPERATORS.get(node.kind, _ANYTHING)
    if node.kind in _PAIRS and len({_origin(graph, one) for one in node.inputs}) < 2:
        pattern, must = f"{pattern}|{_UNARY}", _MAYBE
    slots = [_Slot(index, re.compile(pattern), must)]
    if node.clamped:
        slots.append(_Slot(index, re.compile(f"Clamp|{_UNARY}"), _MAYBE))
    return slots


def _origin(graph: Sequence[GraphNode], index: int) -> int:
    """The operation from which a value comes through operations of one value only."""
    while graph[index].kind in _UNARIES and graph[index].inputs:
        index = graph[index].inputs[0]
    return index


def _reached(names: Sequence[str], slots: Sequence[_Slot]) -> list[set[int]]:
    """For each report the slots that it can have, as far as those before it go.

    The last report leaves only slots behind it that need not run.
    """
    reached: list[set[int]] = []
    before = {-1}
    for number, name in enumerate(names):
        here: set[int] = set()
        for start in sorted(before):
            for at in range(start + 1, len(slots)):
                if at in here:
                    break
                if slots[at].pattern.match(name):
                    here.add(at)
                if slots[at].must:
                    break
        if number == len(names) - 1:
            here = {at for at in here if not any(slot.must for slot in slots[at + 1 :])}
        reached.append(here)
        before = here
    return reached


def block_of(nodes: Sequence[GraphNode]) -> tuple[str | None, ...]:
    """The block that each operation of a graph belongs to, by the name of its module; None where it belongs to none.

    A block is the outermost module that is more than a list of others. A list that holds single layers is one block, as
    a stem of several layers is. What all names begin with is left out: it is a wrapper around the network.
    """
    paths = {call.path for node in nodes for call in node.modules}
    holders = {path.rpartition(".")[0] for path in paths}
    blocks = [_outermost(node, holders) for node in nodes]
    whole = {block for block, is_list in blocks if is_list}
    joined = []
    for block, _ in blocks:
        above = [name for name in whole if block.startswith(f"{name}.")]
        joined.append(min(above, key=len) if above else block)
    wrappers = {call.path for node in nodes for call in node.modules if call.kind in _WRAPPERS}
    wrappers |= {call.path for node in nodes for call in node.modules[:1] if call.kind == _STREAM}
    inner = [_within(block, wrappers) for block in joined]
    shared = _shared_start([block for block in inner if block])
    return tuple(block[shared:] or None for block in inner)


def _within(name: str, wrappers: Set[str]) -> str:
    """A name without the wrappers that the module is in."""
    around = [f"{path}." for path in wrappers if path and name.startswith(f"{path}.")]
    return name.removeprefix(max(around, key=len, default=""))


def _shared_start(names: Sequence[str]) -> int:
    """How many characters all names have in common at their start, up to a dot."""
    shared = [name.split(".")[:-1] for name in names]
    depth = 0
    while shared and all(len(parts) > depth and parts[depth] == shared[0][depth] for parts in shared):
        depth += 1
    return sum(len(part) + 1 for part in shared[0][:depth]) if shared else 0


# What is put around a network, in fp16 and for rows of tables, and modules that only hold others. The outermost chain
# of a stream is the network beside its count of frames.
_WRAPPERS, _STREAM = frozenset({"Halved", "Continued"}), "StreamChain"
_LISTS = _WRAPPERS | {_STREAM, "Sequential", "ModuleList", "ModuleDict", "GraphModule"}


def _outermost(node: GraphNode, holders: Set[str]) -> tuple[str, bool]:
    """The name of the block, and whether it is a list that holds single layers."""
    around = ""
    for call in node.modules:
        if call.kind not in _LISTS:
            single = call.path not in holders and bool(around)
            return (around, True) if single else (call.path, False)
        around = "" if call.kind in _WRAPPERS else call.path
    return around, False
