"""From a module in deploy form to an ``.onnx`` file."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hwbench.runtimes.base import Runtime, arguments_of, installed_version, runtimes
from hwbench.runtimes.capabilities import Capabilities, FileFormat, Quantiser
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.specs import Artifact, DelegationReport, Precision, Workload
from hwbench.workspace import write_bytes

if TYPE_CHECKING:
    from torch import nn

    from hwbench.runtimes.base import Example

# What runs a file, what describes one, what writes one; all of them are the extra ``onnx``.
_DISTRIBUTIONS = ("onnxruntime", "onnx", "onnxscript")


@runtimes.register("onnx")
class OnnxRuntime(Runtime):
    """ONNX Runtime with its own processor kernels, fp32 values in and out at either precision.

    The deploy form is what is written: on X3D-XS, one thread, ONNX Runtime takes about 0.6 of the time for it that the
    original form with its 3-D convolutions takes. int8 is static quantisation in QDQ form (``quantize``).

    The file holds the weights and nothing about the machine that wrote it. The delegation report is empty: ONNX Runtime
    has a kernel of its own for every operation, or does not load the file.
    """

    name: ClassVar[str] = "onnx"
    capabilities: ClassVar[Capabilities] = Capabilities(
        packages=(*_DISTRIBUTIONS, "torch"),
        files=FileFormat(".onnx", "an ONNX model"),
        loader="hwbench.runtimes.onnx_model:OnnxModel",
        precisions=(Precision.FP32, Precision.INT8),
        quantiser=Quantiser.ENGINE,
        run_page="hwbench.runtimes.onnx:run.md.in",
    )

    def version(self) -> str:
        """Version of the onnxruntime distribution.

        Raises:
            MissingDependency: It is not installed, or one of those that write the file.
        """
        versions = [installed_version(name, ["hwbench[onnx]"]) for name in _DISTRIBUTIONS]
        return versions[0]

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
            example: One input (N·T, C, H, W); its shape is baked in.
            workload: Its precision decides about quantisation.
            out: The file.
            calibration: Inputs of the shape of ``example``, all of them used; needed for int8 only.

        Raises:
            MissingDependency: onnx, onnxruntime or onnxscript is not installed.
            NotCalibrated: int8 without calibration data, or with values that are not finite.
            UnsupportedModule: The module has an operation that ONNX has not.
            WorkspaceError: ``out`` cannot be written.
        """
        version = self.version()
        with quiet():
            from hwbench.runtimes.onnx.export import exported
            from hwbench.runtimes.onnx.quantize import quantized

            model = exported(copy.deepcopy(module).eval(), *arguments_of(example))
            if workload.precision is Precision.INT8:
                model = quantized(model, example, calibration)
            content = model.SerializeToString(deterministic=True)
        write_bytes(out, content)
        digest = hashlib.sha256(content).hexdigest()
        return Artifact(out, digest, workload, self.name, version, DelegationReport(0))
