"""The values that flow through hwbench. Frozen, printable, standard library only."""

from hwbench.specs.architecture import Architecture
from hwbench.specs.artifact import Artifact, DelegationReport
from hwbench.specs.block import BlockSpec
from hwbench.specs.estimate import Estimate
from hwbench.specs.fields import ACTIVATIONS, GLOBAL, Kernel, format_kernel, parse_kernel
from hwbench.specs.kind import BlockKind, BlockRole, block_kinds
from hwbench.specs.kinds import ConvKind, PoolKind, SqueezeExcitationKind, X3dHeadKind, X3dKind, X3dStemKind
from hwbench.specs.model_name import ModelName
from hwbench.specs.network import Network, part_workload
from hwbench.specs.operations import Convolution, Operation, Path
from hwbench.specs.repeatability import Repeatability
from hwbench.specs.target import LOCAL, Target
from hwbench.specs.tensor import Pathways, Precision, TensorSpec
from hwbench.specs.timing import CacheState, LatencyStats, Measurement, Outcome, Session, Timing
from hwbench.specs.workload import AUTO, STREAM, Workload

__all__ = [
    "ACTIVATIONS",
    "AUTO",
    "STREAM",
    "GLOBAL",
    "LOCAL",
    "Architecture",
    "Artifact",
    "BlockKind",
    "BlockRole",
    "BlockSpec",
    "CacheState",
    "ConvKind",
    "Convolution",
    "DelegationReport",
    "Estimate",
    "Kernel",
    "LatencyStats",
    "Measurement",
    "ModelName",
    "Network",
    "Operation",
    "Outcome",
    "Path",
    "Pathways",
    "PoolKind",
    "Precision",
    "Repeatability",
    "Session",
    "SqueezeExcitationKind",
    "Target",
    "TensorSpec",
    "Timing",
    "Workload",
    "X3dKind",
    "X3dHeadKind",
    "X3dStemKind",
    "format_kernel",
    "block_kinds",
    "parse_kernel",
    "part_workload",
]
