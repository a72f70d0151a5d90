"""What each space of a union has within a budget, and what came of it: families side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwbench.spaces.protocols import NetworkSet
from hwbench.specs import Architecture
from hwbench.studies.candidates import Candidate


@dataclass(frozen=True)
class SpaceShare:
    """One space of a union, within one budget.

    Attributes:
        space: Its name.
        family: Of its networks.
        feasible: Number of its networks within the budget.
        share: The same as a share of all networks within the budget.
        trials: Number of its networks within the budget that have a score: of those of ``feasible``, and of those that
            were measured within it, whatever was predicted.
        score: The highest of these; None without any.
    """

    space: str
    family: str
    feasible: float
    share: float
    trials: int
    score: float | None

    def to_json(self) -> dict[str, Any]:
        """One of ``spaces`` of ``hwbench search --json``."""
        count = int(self.feasible) if self.feasible < 2**53 else self.feasible
        return vars(self) | {"feasible": count, "share": round(self.share, 6)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SpaceShare:
        """What ``to_json`` wrote; raises KeyError, TypeError or ValueError where it is none."""
        score = None if values["score"] is None else float(values["score"])
        numbers = float(values["feasible"]), float(values["share"]), int(values["trials"])
        return cls(str(values["space"]), str(values["family"]), *numbers, score)


def space_shares(
    feasible: NetworkSet, candidates: Sequence[Candidate], measured: Sequence[Candidate] = ()
) -> tuple[SpaceShare, ...]:
    """The spaces of a union in their order; nothing where there is one.

    Args:
        feasible: The networks within the budget, as surely as it is asked for.
        candidates: What has a score; those outside the set do not count.
        measured: What has a score and was measured within the budget: counts, whether it is in the set or not.
    """
    members, scores = feasible.space.members, dict[str, list[float]]()
    if len(members) == 1:
        return ()
    within = [one for one in candidates if Architecture.parse(one.architecture) in feasible]
    for candidate in {one.architecture: one for one in [*within, *measured]}.values():
        scores.setdefault(candidate.space, []).append(candidate.score)
    counts, total = feasible.counts, feasible.count
    return tuple(
        SpaceShare(
            one.name,
            one.family.name,
            counts[one.name],
            counts[one.name] / total,
            len(scores.get(one.name, ())),
            max(scores.get(one.name, ()), default=None),
        )
        for one in members
    )
