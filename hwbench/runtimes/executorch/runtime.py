"""From a module in deploy form to a ``.pte`` file."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hwbench.runtimes.base import Form, installed_version, runtimes
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.specs import Artifact, Precision, Workload
from hwbench.workspace import write_bytes

if TYPE_CHECKING:
    import torch
    from torch import nn


Quantize = Callable[["nn.Module", "torch.Tensor", Sequence["torch.Tensor"]], "nn.Module"]


@runtimes.register("executorch")
class ExecuTorch:
    """One XNNPACK delegate that holds the whole graph, fp32 values in and out at either precision.

    The steps: export; for int8 quantise (``quantize.quantized``); lower with the passes of
    ``hwbench.runtimes.passes`` (``lower.lowered``); refuse what is not one whole delegate (``delegation``); write.

    ``build`` does not run the file. For rows of a latency table the runner loads it anyway, and one that does not load
    is an outcome there; who ships a file checks it first with ``hwbench.runtimes.runners.check_file``.
    """

    name: ClassVar[str] = "executorch"
    suffix: ClassVar[str] = ".pte"

    def __init__(self, quantize: Quantize | None = None) -> None:
        """``quantize`` makes int8 of a module, an example and calibration inputs; default: ``quantize.quantized``."""
        self._quantize = quantize

    def version(self) -> str:
        """Version of the executorch distribution.

        Raises:
            MissingDependency: It is not installed.
        """
        return installed_version("executorch", ("executorch", "torchao"))

    def form(self, workload: Workload) -> Form:
        return Form.DEPLOY

    def build(
        self,
        module: nn.Module,
        example: torch.Tensor,
        workload: Workload,
        out: Path,
        calibration: Sequence[torch.Tensor],
    ) -> Artifact:
        """Writes the file; the same module, example and calibration data give the same bytes.

        Args:
            module: Deploy form; left as it is, and copied in eval mode.
            example: One input (N·T, C, H, W); its shape is baked in. The file reads its input in this order of axes.
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

            # A folded clip can be a view of another order in memory, which would be baked in as well.
            module, example = copy.deepcopy(module).eval(), example.contiguous()
            if workload.precision is Precision.INT8:
                module = (self._quantize or quantized)(module, example, calibration)
            program = lowered(exported(module, example))
            report = delegation(program)
            require_complete(report, workload.key)
            content = serialized(program)
        write_bytes(out, content)
        return Artifact(out, hashlib.sha256(content).hexdigest(), workload, self.name, version, report)
