"""What a search needs of a space, of numbers over it, and of the networks within a budget; of a union of spaces, too.

One space is a union of one: ``StagedSpace``, ``SpaceSums`` and ``FeasibleSet`` are the parts of which
``hwbench.spaces.union`` makes wholes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hwbench.specs import Architecture, Network

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

    from hwbench.spaces.feasible import Optimum
    from hwbench.spaces.space import StagedSpace
    from hwbench.spaces.sums import SpaceSums


class SearchedSpace(Protocol):
    """What may be chosen. Every member is one ``Architecture``, which names its space."""

    @property
    def name(self) -> str:
        """As it is typed: of a union the names of its spaces with commas."""
        ...

    @property
    def members(self) -> tuple[StagedSpace, ...]:
        """The spaces it is made of."""
        ...

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """All that is chosen and its possible values, in order."""
        ...

    @property
    def values(self) -> Mapping[str, tuple[Any, ...]]:
        """The values that Optuna sees, in the order of ``choices``."""
        ...

    def size(self) -> int:
        """Number of architectures."""
        ...

    def sample(self, trial: BaseTrial, /) -> Architecture:
        """The member that an Optuna trial chooses; every choice is suggested."""
        ...

    def params(self, architecture: Architecture, /) -> dict[str, Any]:
        """The Optuna parameters of a member, one for each choice; ``of_params`` reads them."""
        ...

    def of_params(self, params: Mapping[str, str], /) -> Architecture:
        """The member with these Optuna parameters; raises InvalidValue where there is none."""
        ...

    def validate(self, architecture: Architecture, /) -> None:
        """Makes sure that an architecture is a member; raises InvalidValue for any other."""
        ...

    def network(self, architecture: Architecture, num_classes: int, /) -> Network:
        """The blocks of a member, from stem to head; raises InvalidValue for any other architecture."""
        ...


class NetworkSums(Protocol):
    """Numbers of all members that add up over blocks, such as latency."""

    @property
    def space(self) -> SearchedSpace: ...

    @property
    def members(self) -> tuple[SpaceSums, ...]:
        """The same by space, in the order of the spaces."""
        ...

    @property
    def num_classes(self) -> int:
        """Width of the heads."""
        ...

    @property
    def num_known(self) -> int:
        """Number of members all of whose blocks have a number."""
        ...

    @property
    def coverage(self) -> float:
        """Share of the space all of whose blocks have a number."""
        ...

    def of_space(self, name: str, /) -> SpaceSums:
        """Those of one space, by its name."""
        ...

    def total(self, architecture: Architecture, /) -> float:
        """The sum of one member; infinity where a block has no number."""
        ...


class NetworkSet(Protocol):
    """The members within a budget (or several), exactly.

    ``budget_s`` is the (first) budget in seconds, ``sums`` what members take of it.
    """

    budget_s: float

    @property
    def space(self) -> SearchedSpace: ...

    @property
    def sums(self) -> NetworkSums: ...

    @property
    def count(self) -> float:
        """Number of members within the budget."""
        ...

    @property
    def parts(self) -> tuple[NetworkSet, ...]:
        """The sets of the spaces that have any; of one space the set itself."""
        ...

    @property
    def counts(self) -> Mapping[str, float]:
        """The same by space; 0 of a space that has none."""
        ...

    def share(self) -> float:
        """Share of the known members that are within the budget."""
        ...

    def __contains__(self, architecture: object, /) -> bool: ...

    def latencies(self, number: int, /) -> NetworkSums:
        """What members take on the device of this number, from 0."""
        ...

    def tightened(self, share: float, /) -> NetworkSet:
        """The members within a share of the budget; raises InfeasibleBudget where there is none."""
        ...

    def smallest(self) -> tuple[float, Architecture]:
        """The smallest latency of any member, and the member."""
        ...

    def count_within(self, band: tuple[float, float], /) -> float:
        """Number of members whose latency is in a band, as ``draw`` takes it."""
        ...

    def draw(self, rng: np.random.Generator, band: tuple[float, float] = (0.0, 1.0)) -> Architecture:
        """A member, uniformly, whose share of the budget is above the first number and at most the second; raises
        InfeasibleBudget where there is none.
        """
        ...

    def best(self, scores: NetworkSums, within: float = 1.0) -> Optimum:
        """The member with the highest additive score within a share of the budget: exact. Raises InfeasibleBudget
        where none is within.
        """
        ...

    def repair(self, architecture: Architecture, /) -> Architecture:
        """The member within the budget that is nearest to a proposal, which comes back as it is where it is within."""
        ...
