"""A module to a program for the ExecuTorch runtime, in three steps: export, lower, serialise."""

from __future__ import annotations

from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge_transform_and_lower,
)
from executorch.exir.passes import MemoryPlanningPass
from torch import nn

from hwbench.runtimes.executorch.delegation import read_delegation
from hwbench.runtimes.passes.casts import CONFIGS
from hwbench.runtimes.passes.float_scalars import float_scalars
from hwbench.runtimes.passes.inject import delegate_passes
from hwbench.specs import DelegationReport


class _Partitioner(XnnpackPartitioner):  # type: ignore[misc]
    """The engine's partitioner, which keeps whole what XNNPACK computes whole, without a check of each place first.

    The check traces the graph once more. What XNNPACK does not take after all stays outside, and is refused there.
    """

    def ops_to_not_decompose(self, ep: torch.export.ExportedProgram) -> tuple[list[Any], None]:
        operations, _ = super().ops_to_not_decompose(ep)
        return operations, None


def exported(module: nn.Module, *example: torch.Tensor) -> torch.export.ExportedProgram:
    """The graph of a module in eval mode, for inputs of the shapes of ``example`` only.

    A dynamic batch is not offered: XNNPACK leaves its reshapes outside, and in int8 it aborts the process.
    """
    with torch.no_grad():
        program = torch.export.export(module, example, strict=False)
    float_scalars(program.graph_module)
    return program


def lowered(program: torch.export.ExportedProgram) -> EdgeProgramManager:
    """The graph given to XNNPACK as far as it goes, with the passes of hwbench."""
    # Nothing is left outside the delegate, which has checks of its own and takes dimension orders as it finds them.
    config = EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)
    with delegate_passes():
        return to_edge_transform_and_lower(program, partitioner=[_Partitioner(CONFIGS)], compile_config=config)


def delegation(program: EdgeProgramManager) -> DelegationReport:
    """What XNNPACK took of a lowered program."""
    return read_delegation(program.exported_program().graph_module)


def serialized(program: EdgeProgramManager, *, hands_on: bool = False) -> bytes:
    """The contents of the ``.pte`` file.

    With ``hands_on`` the caller gives the memory of inputs and outputs: an output becomes the input of the next
    execution without being copied. Runners know streams by that.
    """
    planning = MemoryPlanningPass(alloc_graph_input=not hands_on, alloc_graph_output=not hands_on)
    content: Any = program.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).buffer
    return bytes(content)
