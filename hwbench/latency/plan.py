"""What to measure besides single blocks: what shows the cost of boundaries, and networks to calibrate with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import InvalidValue
from hwbench.latency.arithmetic import macs
from hwbench.latency.calibration import family
from hwbench.latency.probes import boundary_probes
from hwbench.specs import STREAM, Architecture, Network, Precision, TensorSpec, Workload

# Draws for each calibration network: enough to choose from in every stratum of size.
_POOL = 32
# What is known of each parameter before any network is measured, in networks: hardly anything.
_PRIOR = 1e-3


class Space(Protocol):
    """What is asked of a search space here; ``hwbench.spaces.StagedSpace`` is one."""

    @property
    def variant(self) -> str:
        """In what form its networks are timed: ``stream`` or ``auto``."""
        ...

    def random(self, rng: np.random.Generator, /) -> Architecture:
        """A random member."""
        ...

    def network(self, architecture: Architecture, num_classes: int, /) -> Network:
        """The blocks of a member."""
        ...


def context_chains(parts: Iterable[Workload], count: int | None = None) -> list[Workload]:
    """What tells how much the boundaries between blocks cost: ``boundary_probes`` for every activation that may lie
    between two of the parts.

    Args:
        parts: Single blocks, such as ``StagedSpace.parts`` yields; of any number of precisions and variants.
        count: At most so many boundaries, spread over their numbers of values: these tell of the others.
    """
    ends: dict[tuple[TensorSpec, Precision, str], set[str]] = {}
    for part in parts:
        if len(part.blocks) != 1:
            raise InvalidValue(f"expected single blocks, got {part.key}")
        for side, x in (("output", part.output), ("input", part.input)):
            for one in x.pathways:
                ends.setdefault((one, part.precision, part.variant), set()).add(side)
    probes = [boundary_probes(*boundary) for boundary, sides in ends.items() if len(sides) == 2]
    if count is not None and count < len(probes):
        probes.sort(key=lambda pair: (pair[0].input.numel, pair[0].key))
        probes = [probes[at] for at in sorted(set(np.linspace(0, len(probes) - 1, count).astype(int).tolist()))]
    return [workload for pair in probes for workload in pair]


def calibration_networks(space: Space, count: int, seed: int, num_classes: int) -> list[Network]:
    """Different networks of a space that say much about a calibration: one from each of ``count`` strata of size.

    Size is the number of multiply-adds. Within a stratum the network is taken that tells most about the parameters of
    a calibration (a gain for each family of blocks, a term per block, a constant) beside those taken before:
    ``informative``. The same for the same arguments in every process. Fewer come back where the space has fewer
    members. Sorted by size. Streams that differ in the length of clips alone are one.
    """
    rng = np.random.default_rng([seed, 0xCA11B])
    drawn = dict.fromkeys(space.random(rng) for _ in range(_POOL * count))
    planned = [_PlannedWork.of(space.network(a, num_classes), space.variant) for a in drawn]
    if space.variant == STREAM:
        planned = list({work.network.workload(Precision.FP32, STREAM): work for work in planned}.values())
    pool = sorted(planned, key=lambda w: (w.macs, w.network.name))
    families = sorted({name for work in pool for name in work.by_family})
    sizes = np.array([work.macs for work in pool], dtype=float)
    blocks = np.array([len(work.network.blocks) for work in pool], dtype=float)
    columns = [np.array([work.by_family.get(name, 0) for work in pool]) / sizes for name in families]
    # A term per block and a constant count as what they would be worth in a typical network.
    typical = float(np.median(sizes))
    columns += [blocks / np.median(blocks) * typical / sizes, typical / sizes]
    strata = [part for part in np.array_split(np.arange(len(pool)), count) if len(part)]
    return [pool[index].network for index in informative(np.stack(columns, axis=1), strata)]


def informative(features: NDArray[np.float64], strata: Sequence[NDArray[np.intp]]) -> list[int]:
    """One row of features from each stratum, so that a linear fit to them is well determined, whatever it finds.

    Greedy D-optimal design: each row is the one with the largest variance of prediction given those before, which
    raises the determinant of the information matrix most (Fedorov 1972). The outermost strata choose first.

    Args:
        features: Shape (rows, parameters).
        strata: Numbers of rows, in groups that follow each other.

    Returns:
        A row for each stratum, in their order.
    """
    known = _PRIOR * np.eye(features.shape[1])
    chosen = {}
    for stratum in sorted(range(len(strata)), key=lambda i: (min(i, len(strata) - 1 - i), i)):
        rows = features[strata[stratum]]
        gained = (rows * np.linalg.solve(known, rows.T).T).sum(axis=1)
        best = int(np.argmax(gained))
        known += np.outer(rows[best], rows[best])
        chosen[stratum] = int(strata[stratum][best])
    return [chosen[stratum] for stratum in range(len(strata))]


@dataclass(frozen=True)
class _PlannedWork:
    """A network and its multiply-adds, in all and by family of blocks."""

    network: Network
    macs: int
    by_family: Mapping[str, int]

    @classmethod
    def of(cls, network: Network, variant: str) -> _PlannedWork:
        by_family: Counter[str] = Counter()
        for part in network.workload(Precision.FP32, variant).parts():
            by_family[family(part)] += macs(part)
        return cls(network, by_family.total(), by_family)
