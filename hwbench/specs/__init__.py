"""The values that flow through hwbench. Frozen, printable, standard library only."""

from hwbench.specs.architecture import Architecture
from hwbench.specs.artifact import Artifact, DelegationReport
from hwbench.specs.block import ACTIVATIONS, GLOBAL, BlockSpec, Kernel, format_kernel, parse_kernel
from hwbench.specs.estimate import Estimate
from hwbench.specs.network import Network
from hwbench.specs.repeatability import Repeatability
from hwbench.specs.target import LOCAL, Target
from hwbench.specs.tensor import Precision, TensorSpec
from hwbench.specs.timing import CacheState, LatencyStats, Measurement, Outcome, Session, Timing
from hwbench.specs.workload import AUTO, Workload

__all__ = [
    "CacheState",
    "ACTIVATIONS",
    "AUTO",
    "GLOBAL",
    "LOCAL",
    "Architecture",
    "Artifact",
    "BlockSpec",
    "DelegationReport",
    "Estimate",
    "Kernel",
    "LatencyStats",
    "Measurement",
    "Network",
    "Outcome",
    "Precision",
    "Repeatability",
    "Session",
    "Target",
    "TensorSpec",
    "Timing",
    "Workload",
    "format_kernel",
    "parse_kernel",
]
