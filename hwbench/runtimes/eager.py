"""Eager PyTorch, the baseline: what a network costs before anything is done for a device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hwbench.errors import UnsupportedModule
from hwbench.runtimes.base import Runtime, runtimes
from hwbench.runtimes.capabilities import Capabilities, FileFormat
from hwbench.specs import Artifact, DelegationReport, Precision, Workload
from hwbench.specs.kinds.by_hand import is_by_hand, model_of
from hwbench.specs.plugin_sources import workload_digest
from hwbench.workspace import write_bytes

if TYPE_CHECKING:
    from torch import nn

    from hwbench.runtimes.base import Example

# One of ``eager_model.FACTORIES``: from the key of a workload to its module in original form and an example
# (N, 3, T, H, W).
FACTORY = "hwbench.models:eager_workload"


@runtimes.register("torch")
class EagerTorch(Runtime):
    """Eager PyTorch in fp32, fp16 or bf16, run by the Python runner without gradients.

    The file holds no weights. It names the workload, and the runner makes the module in its *original* form, 5-D
    (N, C, T, H, W) in, with random weights: a baseline is the plain network, not the form that was rewritten for
    another engine. So ``module`` and ``example`` are not looked at, and only speed can be asked of such a file. It is
    working state of the build cache, not an export: none is taken from a user.
    """

    name: ClassVar[str] = "torch"
    capabilities: ClassVar[Capabilities] = Capabilities(
        packages=("torch",),
        files=FileFormat(".eager.json", "the name of a network"),
        loader="hwbench.runtimes.eager_model:EagerModel",
        precisions=(Precision.FP32, Precision.FP16, Precision.BF16),
        original=(Precision.FP32, Precision.FP16, Precision.BF16),
        holds_weights=False,
    )

    def build(
        self,
        module: nn.Module,
        example: Example,
        workload: Workload,
        out: Path,
        calibration: Sequence[Example],
    ) -> Artifact:
        """Writes the name of the workload; the delegation report is empty: there is no delegate.

        The file of blocks of another package also holds a digest of that package: of an edited block it is another
        file, and rows of the block before the edit do not stand for it.

        Raises:
            UnsupportedModule: The workload is in int8, or a block of it is of a model that a function makes.
            WorkspaceError: ``out`` cannot be written.
        """
        self.require_precision(workload.precision)
        if made := [block for block in workload.blocks if is_by_hand(block)]:
            raise UnsupportedModule(
                f"--runtime torch makes a network anew from its name, and {model_of(made[0])} is made by a function of "
                "yours; take another runtime"
            )
        values = {"module": FACTORY, "argument": workload.key}
        if plugins := workload_digest(workload, rewritten=False):
            values["sources"] = plugins
        text = json.dumps(values, indent=2) + "\n"
        write_bytes(out, text.encode())
        digest = hashlib.sha256(text.encode()).hexdigest()
        return Artifact(out, digest, workload, self.name, self.version(), DelegationReport(0))
