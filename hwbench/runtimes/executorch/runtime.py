"""From a module in deploy form to a ``.pte`` file."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hwbench.runtimes.base import Quantize, Runtime, arguments_of, as_example, installed_version, runtimes
from hwbench.runtimes.capabilities import (
    NATIVE,
    NATIVE_BOARD,
    NATIVE_LOADER,
    PYTHON,
    Capabilities,
    FileFormat,
    Quantiser,
)
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.executorch.scheme import Scheme
from hwbench.specs import STREAM, Artifact, Precision, Workload
from hwbench.workspace import write_bytes

if TYPE_CHECKING:
    from torch import nn

    from hwbench.runtimes.base import Example


@runtimes.register("executorch")
class ExecuTorch(Runtime):
    """One XNNPACK delegate that holds the whole graph, fp32 values in and out at every precision; what a stream keeps
    of convolutions over time is of the precision in which it is computed.

    The steps: for fp16 round the weights (``half.Halved``), for int8 quantise (``quantize.quantized``); export; lower
    with the passes of ``hwbench.runtimes.passes`` (``lower.lowered``); refuse what is not one whole delegate
    (``delegation``); write.

    ``build`` does not run the file. For rows of a latency table the runner loads it anyway, and one that does not load
    is an outcome there; who ships a file checks it first with ``hwbench.runtimes.runners.check_file``.
    """

    name: ClassVar[str] = "executorch"
    capabilities: ClassVar[Capabilities] = Capabilities(
        packages=("executorch", "torchao", "torch"),
        # FlatBuffers writes the identifier of a schema, ETxx, behind the offset of the root table.
        files=FileFormat(".pte", "an ExecuTorch program", b"ET", 4),
        loader="hwbench.runtimes.pte_model:PteModel",
        precisions=(Precision.FP32, Precision.FP16, Precision.INT8),
        quantiser=Quantiser.GRAPH,
        delegates=("xnnpack",),
        streams=True,
        runners=(NATIVE, PYTHON),
        remote_runners=(NATIVE, NATIVE_LOADER, NATIVE_BOARD, PYTHON),
        remote_packages=("executorch", "torch", "numpy"),
        run_page="hwbench.runtimes.executorch:run.md.in",
        stream_page="hwbench.runtimes.executorch:run-stream.md.in",
    )

    def __init__(self, quantize: Quantize | None = None) -> None:
        """``quantize`` makes int8 of a module, an example and calibration inputs; default: ``quantize.quantized``."""
        self._quantize = quantize

    def version(self) -> str:
        """Version of the executorch distribution.

        Raises:
            MissingDependency: It is not installed.
        """
        return installed_version("executorch", ("executorch", "torchao"))

    def for_tables(self) -> Runtime:
        """With the cheapest observer of ranges for int8, in a process that builds many workloads."""
        import torch._export.utils as export_utils

        with quiet():
            from hwbench.runtimes.executorch.quantize import quantized

        # Each pass of torch.export looks up all operations of torch by name, a fifteenth of a build; once is enough in
        # a process that registers no more of them.
        export_utils._materialize_cpp_cia_ops = functools.cache(export_utils._materialize_cpp_cia_ops)
        return self.quantising(functools.partial(quantized, scheme=Scheme("minmax")))

    def quantising(self, quantize: Quantize) -> Runtime:
        return ExecuTorch(quantize)

    def build(
        self,
        module: nn.Module,
        example: Example,
        workload: Workload,
        out: Path,
        calibration: Sequence[Example],
    ) -> Artifact:
        """Writes the file; the same module, example and calibration data give the same bytes.

        Args:
            module: Deploy form; left as it is, and copied in eval mode.
            example: One input (N·T, C, H, W); its shape is baked in. The file reads its input in this order of axes.
                Of a stream a frame and the states in fp32, each in the order of axes that it has in memory.
            workload: Its precision decides about quantisation.
            out: The file.
            calibration: Inputs of the shape of ``example``, all of them used; needed for int8 only.

        Raises:
            MissingDependency: executorch or torchao is not installed.
            NotCalibrated: int8 without calibration data, or with data that does not reach every activation.
            DelegationFailed: The graph did not become exactly one delegate with nothing outside it.
            WorkspaceError: ``out`` cannot be written.
        """
        version = self.version()
        with quiet():
            # The first import of the engine, which warns; and it may be absent.
            from hwbench.runtimes.executorch.delegation import require_complete
            from hwbench.runtimes.executorch.lower import delegation, exported, lowered, serialized
            from hwbench.runtimes.executorch.quantize import quantized
            from hwbench.runtimes.executorch.states import in_int8
            from hwbench.runtimes.half import in_precision, states_in_precision

            streams = workload.variant == STREAM
            module, arguments = copy.deepcopy(module).eval(), arguments_of(example, as_stored=streams)
            if workload.precision is Precision.INT8:
                module = (self._quantize or quantized)(module, as_example(arguments), calibration)
                if streams:
                    module, arguments = in_int8(module, arguments)
            arguments = states_in_precision(module, arguments, workload.precision)
            program = lowered(exported(in_precision(module, workload.precision), *arguments))
            report = delegation(program)
            require_complete(report, workload.key)
            content = serialized(program, hands_on=streams)
        write_bytes(out, content)
        states = tuple(str(state.dtype).removeprefix("torch.") for state in arguments[1:]) if streams else ()
        return Artifact(out, hashlib.sha256(content).hexdigest(), workload, self.name, version, report, states)
