"""What to measure besides single blocks: chains that show what boundaries cost, and networks to calibrate with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from hwbench.errors import InvalidValue
from hwbench.latency.work import macs
from hwbench.specs import Architecture, Network, Precision, TensorSpec, Workload

# A boundary is (n T(b) - T(b...b)) / (n - 1): its error falls from 2.8 errors of T(b) at n = 2 to 1.9 at n = 4, and to
# no less than 1.4 for longer chains, which cost more to build.
CHAIN_LENGTH = 4
# Draws from which calibration networks are chosen: enough to fill every stratum of size.
_POOL = 64


class Space(Protocol):
    """What is asked of a search space here; ``hwbench.spaces.StagedSpace`` is one."""

    def random(self, rng: np.random.Generator, /) -> Architecture:
        """A random member."""
        ...

    def network(self, architecture: Architecture, num_classes: int, /) -> Network:
        """The blocks of a member."""
        ...


def context_chains(parts: Iterable[Workload]) -> list[Workload]:
    """One chain of blocks for every activation that may lie between two of the parts.

    An isolated block converts its input from what the runtime is handed (layout, number format) and its output back;
    between two blocks of a network neither happens. Where a block puts out what it takes in, the chain is
    ``CHAIN_LENGTH`` copies of it; elsewhere it is a pair, the one block ahead of the boundary and the other behind. The
    blocks with the fewest multiply-adds are taken, because what they cost themselves is the noise.

    Args:
        parts: Single blocks, such as ``StagedSpace.parts`` yields; of any number of precisions and variants.
    """
    ends: dict[tuple[TensorSpec, Precision, str], tuple[list[Workload], list[Workload]]] = {}
    for part in parts:
        if len(part.blocks) != 1:
            raise InvalidValue(f"expected single blocks, got {part.key}")
        ends.setdefault((part.output, part.precision, part.variant), ([], []))[0].append(part)
        ends.setdefault((part.input, part.precision, part.variant), ([], []))[1].append(part)
    chains = (_chain(sources, sinks) for sources, sinks in ends.values() if sources and sinks)
    return list(dict.fromkeys(chains))


def calibration_networks(space: Space, count: int, seed: int, num_classes: int) -> list[Network]:
    """Different networks of a space, spread over its sizes: one from each of ``count`` strata of multiply-adds.

    The same for the same arguments in every process. Fewer come back where the space has fewer members.
    """
    rng = np.random.default_rng([seed, 0xCA11B])
    drawn = dict.fromkeys(space.random(rng) for _ in range(_POOL * count))
    by_size = sorted(
        (space.network(a, num_classes) for a in drawn), key=lambda n: (macs(n.workload(Precision.FP32)), n.name)
    )
    strata = [part for part in np.array_split(np.arange(len(by_size)), count) if len(part)]
    return [by_size[int(rng.choice(part))] for part in strata]


def _chain(sources: Sequence[Workload], sinks: Sequence[Workload]) -> Workload:
    same = [part for part in sinks if part.output == part.input]
    if same:
        cheapest = min(same, key=_cost)
        return Workload(cheapest.blocks * CHAIN_LENGTH, cheapest.input, cheapest.precision, cheapest.variant)
    ahead, behind = min(sources, key=_cost), min(sinks, key=_cost)
    return Workload(ahead.blocks + behind.blocks, ahead.input, ahead.precision, ahead.variant)


def _cost(part: Workload) -> tuple[int, str]:
    return macs(part), part.key
