"""Several spaces as one: a member of the union is a member of exactly one of them, and its key says of which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.errors import InvalidValue, NotMeasured
from hwbench.registry import suggest
from hwbench.spaces.protocols import NetworkSums, SearchedSpace
from hwbench.spaces.space import StagedSpace
from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.walk import BlockNumber
from hwbench.specs import Architecture, Network

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

# The choice of the space, as Optuna sees it.
SPACE = "space"


@dataclass(frozen=True, repr=False)
class SpaceUnion:
    """The disjoint union of spaces.

    Optuna sees ``space``, then the choices of every space behind its name: ``x3d-tiny:frames``, ``x3d-tiny:s1.depth``,
    ... A trial has all of them; those of spaces that it does not choose have first values.

    Args:
        members: The spaces, in the order in which they are named.

    Raises:
        InvalidValue: A space stands there twice.
    """

    members: tuple[StagedSpace, ...]

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise InvalidValue(f"expected different spaces, got {twice[0]!r} more than once in {', '.join(names)}")

    def __repr__(self) -> str:
        """What is offered, all of it."""
        return f"SpaceUnion({', '.join(map(repr, self.members))})"

    @property
    def name(self) -> str:
        """The names of the spaces with commas."""
        return ",".join(self._by_name)

    @cached_property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """The space, and all that is chosen in each of them."""
        return self._prefixed({name: member.choices for name, member in self._by_name.items()})

    @cached_property
    def values(self) -> dict[str, tuple[Any, ...]]:
        """The values that Optuna sees, in the order of ``choices``."""
        return self._prefixed({name: member.values for name, member in self._by_name.items()})

    def of_space(self, name: str) -> StagedSpace:
        """The space of that name.

        Raises:
            InvalidValue: It is not in the union.
        """
        if name not in self._by_name:
            raise InvalidValue(f"no space {name!r} among {self.name}; {suggest(name, self._by_name)}")
        return self._by_name[name]

    def size(self) -> int:
        """Number of architectures."""
        return sum(member.size() for member in self.members)

    def architectures(self) -> Iterator[Architecture]:
        """All members, space by space; for small spaces."""
        for member in self.members:
            yield from member.architectures()

    def random(self, rng: np.random.Generator) -> Architecture:
        """A member drawn uniformly over the union."""
        weights = np.array([float(member.size()) for member in self.members])
        return self.members[int(rng.choice(len(weights), p=weights / weights.sum()))].random(rng)

    def sample(self, trial: BaseTrial) -> Architecture:
        """The member that an Optuna trial chooses."""
        return self.of_params({name: trial.suggest_categorical(name, values) for name, values in self.values.items()})

    def params(self, architecture: Architecture) -> dict[str, Any]:
        """The Optuna parameters of a member; ``of_params`` reads them."""
        chosen = self.of_space(architecture.space)
        own = {f"{chosen.name}:{name}": value for name, value in chosen.params(architecture).items()}
        return {name: values[0] for name, values in self.values.items()} | {SPACE: chosen.name} | own

    def of_params(self, params: Mapping[str, Any]) -> Architecture:
        """The architecture with these Optuna parameters, in any order; those of other spaces say nothing.

        Raises:
            InvalidValue: No space of the union is named, or a choice of it is missing, unknown, or not offered.
        """
        if SPACE not in params:
            raise InvalidValue(
                f"expected a choice of {SPACE!r} among {self.name}, got {', '.join(params) or 'nothing'}"
            )
        chosen = self.of_space(str(params[SPACE]))
        prefix = f"{chosen.name}:"
        return chosen.of_params({n.removeprefix(prefix): v for n, v in params.items() if n.startswith(prefix)})

    def validate(self, architecture: Architecture) -> None:
        """Makes sure that an architecture is a member; raises InvalidValue as the space does."""
        self.of_space(architecture.space).validate(architecture)

    def network(self, architecture: Architecture, num_classes: int) -> Network:
        """The blocks of a member, from stem to head.

        Raises:
            InvalidValue: Not a member of any of the spaces.
        """
        return self.of_space(architecture.space).network(architecture, num_classes)

    @cached_property
    def _by_name(self) -> dict[str, StagedSpace]:
        return {member.name: member for member in self.members}

    def _prefixed(self, offered: Mapping[str, Mapping[str, tuple[Any, ...]]]) -> dict[str, tuple[Any, ...]]:
        own = {f"{space}:{name}": values for space, named in offered.items() for name, values in named.items()}
        return {SPACE: tuple(offered)} | own


@dataclass(frozen=True)
class UnionSums:
    """Numbers of all members of a union, each from the sums of its own space.

    Attributes:
        space: The union.
        members: The sums of each space, in the order of the spaces.
    """

    space: SpaceUnion
    members: tuple[SpaceSums, ...]

    @property
    def num_classes(self) -> int:
        """Width of the heads."""
        return self.members[0].num_classes

    @property
    def num_known(self) -> int:
        """Number of members all of whose blocks have a number."""
        return sum(one.num_known for one in self.members)

    @property
    def coverage(self) -> float:
        """Share of the union all of whose blocks have a number."""
        return self.num_known / self.space.size()

    def require(self) -> None:
        """Makes sure that each space has a member to speak about; raises NotMeasured."""
        for one in self.members:
            one.require()

    def of_space(self, name: str) -> SpaceSums:
        """The sums of one space."""
        return self._by_name[name]

    def total(self, architecture: Architecture) -> float:
        """The sum of one member; infinity where a block has no number."""
        return self._by_name[self.space.of_space(architecture.space).name].total(architecture)

    def smallest(self) -> tuple[float, Architecture]:
        """The smallest sum that any member has, and the first such member. Exact.

        Raises:
            NotMeasured: No member has numbers for all its blocks.
        """
        known = [one.smallest() for one in self.members if one.num_known]
        if not known:
            raise NotMeasured(f"no network of the spaces {self.space.name} has all its rows")
        return min(known, key=lambda found: found[0])

    @cached_property
    def _by_name(self) -> dict[str, SpaceSums]:
        return {one.space.name: one for one in self.members}


def joined(spaces: Sequence[StagedSpace]) -> SearchedSpace:
    """The union of spaces; of one the space itself."""
    return spaces[0] if len(spaces) == 1 else SpaceUnion(tuple(spaces))


def joined_sums(space: SearchedSpace, members: Sequence[SpaceSums]) -> NetworkSums:
    """Sums over a space or a union of some, from those of each space."""
    return UnionSums(space, tuple(members)) if isinstance(space, SpaceUnion) else members[0]


def sums_over(space: SearchedSpace, number: BlockNumber, *, num_classes: int) -> NetworkSums:
    """As ``SpaceSums.of``, over a space or a union of some."""
    return joined_sums(space, [SpaceSums.of(one, number, num_classes=num_classes) for one in space.members])
