"""What is inside a file: the time of each of its operations, by kind and by block."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hwbench.devices import Device
from hwbench.measure.artifact_check import OperationProfile, profile_ops
from hwbench.measure.attribution import Placed, block_of, place
from hwbench.measure.bench import open_bench
from hwbench.measure.on_device import protocol_for
from hwbench.runtimes.pte_record import GraphNode, read_record
from hwbench.specs import Artifact, Timing

# Kinds of operations by the name that an engine reports, the first that matches; names of XNNPACK, of ONNX Runtime and
# OpenVINO, and of torch.
_KINDS: tuple[tuple[str, str], ...] = (
    ("depthwise", r".*(DWConv|VMulCAddC|depthwise|GroupConv)"),
    ("pointwise", r"Fully ?Connected|(Fused)?MatMul|(Q|Fused)?Gemm|Batch Matrix|aten::(addmm|linear|mm|bmm|matmul)"),
    ("convolution", r".*conv(?!ert)"),
    ("conversion", r"Convert|QuantizeLinear|DequantizeLinear|Cast|aten::(quantize|dequantize|to|_to_copy)"),
    (
        "activation",
        r"Sigmoid|Clamp|Hard|Tanh|Softmax|Leaky|PReLU|ReLU|GELU|ELU|QuickGelu|Swish|Invalid Unary|Erf|Clip|"
        r"aten::(sigmoid|silu|relu|clamp|hard|softmax|_softmax|gelu)",
    ),
    ("pooling", r"Mean|Sum|.*Pool|Reduce|aten::(mean|sum|adaptive|avg|max_pool)"),
    (
        "copy",
        r"Slice|Copy|Transpose|Static Reshape|Reshape|Constant Pad|Pad|Concat|Split|Reorder|Squeeze|Unsqueeze|Gather|"
        r"Expand|StridedSlice|VariadicSplit|aten::(cat|copy|slice|permute|reshape|view|pad|constant_pad|contiguous|clone)",
    ),
    ("arithmetic", r"Add|Subtract|Sub|Mul|Div|Max|Min|Square|Subgraph|Eltwise|aten::(add|sub|mul|div)"),
)
_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)
_NUMBER = re.compile(r" #[0-9]+$")
# What ONNX Runtime and torch write before operations that are computed in int8, and before the same ones in fp32.
_QUANTISED = {"QLinear": "", "quantized::": "aten::"}


def kind_of(name: str) -> str:
    """The kind of an operation by what its engine calls its type: ``convolution``, ``depthwise``, ``pointwise`` (and
    linear layers), ``copy`` (of values, changing none), ``arithmetic``, ``activation``, ``pooling``, ``conversion`` of
    types, or ``other``.
    """
    for prefix, plain in _QUANTISED.items():
        if name.startswith(prefix):
            name = plain + name.removeprefix(prefix)
    return next((kind for kind, pattern in _PATTERNS if pattern.match(name)), "other")


def _type_in(name: str, path: Path) -> str:
    """The type in the name of an operation: all of it in a ``.pte`` file, else the first word. Other engines report the
    place in the graph behind it, which names the neighbours too: ``Reorder Transpose_9_abcde_acdeb_Convolution_14``.
    """
    return name if path.suffix == ".pte" else name.partition(" ")[0]


@dataclass(frozen=True)
class ProfiledOperation:
    """One operation as it ran.

    Attributes:
        name: As the engine reports it.
        kind: As ``kind_of`` says.
        seconds: Mean time of one execution.
        count: Executions that were averaged.
        attributed: It is known where in the model it is.
        block: The block that it belongs to; None where it belongs to none (conversions of layout and type that
            lowering put in between), or is not attributed.
        module: The innermost module that it comes from; None as for ``block``, and where two are possible.
        shape: Of what it gives; empty where that is not known.
    """

    name: str
    kind: str
    seconds: float
    count: int
    attributed: bool
    block: str | None = None
    module: str | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class FileProfile:
    """The operations of a file in the order in which they ran; ``traced_s`` is the median of the traced executions.

    ``graph`` is what the file tells of its delegate, and ``placed`` the operations of it that each report can be; empty
    where the file tells nothing. ``unattributed`` says why nothing is attributed, in words; empty where something is.
    """

    traced_s: float
    operations: tuple[ProfiledOperation, ...]
    graph: tuple[GraphNode, ...] = ()
    placed: tuple[Placed, ...] = ()
    unattributed: str = ""

    @property
    def operations_s(self) -> float:
        """The times of all operations together."""
        return sum(operation.seconds for operation in self.operations)


def profile_artifact(
    artifact: Artifact,
    device: Device,
    *,
    cache_dir: Path,
    threads: int | None = None,
    timing: Timing | None = None,
    report: Callable[[str], None] | None = None,
) -> FileProfile:
    """Times each operation of a file on a device, in a pass of its own: the tracer adds to each operation.

    Args:
        artifact: The file.
        device: Where.
        cache_dir: Where the runner lies.
        threads: Threads of the engine; default: what the device file says.
        timing: Warm-up, executions and limit of the one visit.
        report: Told what takes long.

    Raises:
        InvalidFile: It does not load.
        CheckFailed: It loads, but does not run, or the runner of the device tells no times of operations.
        DeviceError: The device does not answer.
    """
    precisions = (artifact.workload.precision,)
    with open_bench(
        device, artifact.runtime, cache_dir=cache_dir, threads=threads, precisions=precisions, report=report
    ) as bench:
        taken = profile_ops(artifact.path, bench=bench, timing=protocol_for(device, timing))
    return attributed(taken, artifact.path)


def attributed(taken: OperationProfile, path: Path) -> FileProfile:
    """The operations with their places in the model, as far as the file tells them."""
    graph, reason = _graph_of(path)
    names = [_NUMBER.sub("", operation.name) for operation in taken.operations]
    kinds = [kind_of(_type_in(operation.name, path)) for operation in taken.operations]
    placed = place(names, graph) if graph else None
    if graph and placed is None:
        reason = "what the engine ran does not fit the graph that the file tells of"
    if placed is None:
        plain = tuple(
            ProfiledOperation(one.name, kind, one.seconds, one.count, attributed=False)
            for one, kind in zip(taken.operations, kinds, strict=True)
        )
        return FileProfile(taken.total_s, plain, unattributed=reason)
    blocks = block_of(graph)
    operations = []
    for one, kind, at in zip(taken.operations, kinds, placed, strict=True):
        possible = {blocks[index] for index in at.candidates}
        block = next(iter(possible)) if len(possible) == 1 else None
        node = None if at.node is None else graph[at.node]
        module = node.modules[-1].path if node and node.modules else None
        shape = node.shape if node else ()
        known = len(possible) == 1
        operations.append(ProfiledOperation(one.name, kind, one.seconds, one.count, known, block, module, shape))
    return FileProfile(taken.total_s, tuple(operations), graph, placed)


def keeps_modules(path: Path) -> bool:
    """Whether files of this ending can tell which module an operation comes from."""
    return path.suffix == ".pte"


def _graph_of(path: Path) -> tuple[tuple[GraphNode, ...], str]:
    """What a file tells of its operations, or why it tells nothing."""
    if not keeps_modules(path):
        return (), f"{path.suffix} files do not keep which module an operation comes from"
    try:
        graph = read_record(path)
    except ValueError as error:
        return (), str(error)
    if graph is None:
        return (), "the file does not tell which module an operation comes from; export it again"
    return graph, ""
