"""The reference workload: it tells how fast a device is at present, and whether measuring there can be repeated."""

from __future__ import annotations

from hwbench.errors import CheckFailed
from hwbench.measure.builder import Builder, BuildFailure
from hwbench.specs import Artifact, Workload

# About 2 ms on a core of 20 billion multiply-adds a second, which is long against the clock and short against a round.
SENTINEL = Workload.parse("x3d_i96_m216_o96_k3x3x3_relu@1x96x4x14x14/fp32/auto")


def build_sentinel(builder: Builder) -> Artifact:
    """The file of the reference workload, built or from the cache.

    Raises:
        CheckFailed: It does not build.
    """
    (built,) = builder.build([SENTINEL])
    if isinstance(built, BuildFailure):
        raise CheckFailed(f"the reference workload {SENTINEL.key} does not build: {built.reason}; see: hwbench doctor")
    return built
