"""Files that tell what the boundary between two blocks costs, and do hardly anything else. Loads no torch.

An isolated block converts its input from what the runtime is handed (layout, number format) and its output back;
between two blocks of a network neither happens. What that takes is the difference between convolutions alone and the
same convolutions in one file. The cheapest convolution is best: of one alone, half to four fifths are the conversions,
where of a whole block they are a twentieth, which the noise of the row drowns (``experiments/006-latency-accuracy``).
"""

from __future__ import annotations

from hwbench.specs import BlockSpec, Precision, TensorSpec, Workload

# A boundary is (n T(1) - T(n)) / (n - 1): its error falls from 2.8 errors of T(1) at n = 2 to 1.9 at n = 4, and to no
# less than 1.4 for longer chains.
CHAIN_LENGTH = 4


def boundary_probes(x: TensorSpec, precision: Precision, variant: str) -> tuple[Workload, Workload]:
    """One convolution of each value with a weight of its channel, and a chain of ``CHAIN_LENGTH`` of these."""
    one = _probe(x)
    return Workload((one,), x, precision, variant), Workload((one,) * CHAIN_LENGTH, x, precision, variant)


def is_boundary_probe(workload: Workload) -> bool:
    """Whether a workload is one of these: then its row tells of boundaries, and no network has such a block."""
    return set(workload.blocks) == {_probe(workload.input)}


def _probe(x: TensorSpec) -> BlockSpec:
    return BlockSpec("conv", x.c, x.c, kernel=((1, 1, 1),), groups=x.c, activation="relu")
