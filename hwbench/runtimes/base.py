"""The contract of a runtime: one inference engine.

A runtime builds a file from a module (on the host, in a worker process) and names the runner that times such files on a
device. What is passed to ``build`` is in the form that ``form`` asks for. A build that fails raises; the campaign turns
that into a row with outcome ``build``.
"""

from __future__ import annotations

import enum
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from hwbench.errors import MissingDependency
from hwbench.registry import Registry
from hwbench.specs import Artifact, Workload

if TYPE_CHECKING:
    import torch
    from torch import nn


class Form(enum.Enum):
    """In which form a module is built: rewritten with frames as batch, (N·T, C, H, W) in, or as it was trained."""

    DEPLOY = enum.auto()
    ORIGINAL = enum.auto()


class Runtime(Protocol):
    """One engine. Instances hold no state."""

    name: ClassVar[str]
    suffix: ClassVar[str]

    def version(self) -> str:
        """Version of the engine, part of every Target and of every cache key."""
        ...

    def form(self, workload: Workload) -> Form:
        """The form in which ``build`` wants the module of a workload."""
        ...

    def build(
        self,
        module: nn.Module,
        example: torch.Tensor,
        workload: Workload,
        out: Path,
        calibration: Sequence[torch.Tensor],
    ) -> Artifact:
        """Writes ``out`` from a module in eval mode and reports what the delegate took.

        Args:
            module: In the form asked for, tensor -> tensor; left as it is.
            example: One input; its shape is baked in.
            workload: What the module is; its precision decides about quantisation.
            out: The file to write (atomically).
            calibration: Inputs to calibrate int8 with; may be empty for fp32.

        Raises:
            NotCalibrated: int8 without calibration inputs.
            DelegationFailed: An operation is left outside the delegate.
        """
        ...


runtimes: Registry[type[Runtime]] = Registry("runtime", entry_points="hwbench.runtimes")


def installed_version(distribution: str, together: Sequence[str] = ()) -> str:
    """Version of an installed distribution, which is not imported.

    Args:
        distribution: Its name on the package index.
        together: What the message says to install; default: the distribution.

    Raises:
        MissingDependency: It is not installed.
    """
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        command = f"python -m pip install {' '.join(together or [distribution])}"
        raise MissingDependency(f"{distribution} is not installed; install it with: {command}") from None
