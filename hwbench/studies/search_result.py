"""What a search found: the answer of each budget, what was tried, and the keys that it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.spaces.resolve import RESULT
from hwbench.studies.candidates import BySpace, Candidate, candidates_frame
from hwbench.studies.course import SearchCourse
from hwbench.studies.front import FrontPoint
from hwbench.studies.left_out import LeftOut
from hwbench.studies.race import RaceResult
from hwbench.studies.row_cuts import CutRows
from hwbench.studies.settings import Settings
from hwbench.studies.space_shares import SpaceShare
from hwbench.studies.trials import GivenUp, RungScore
from hwbench.workspace import write_text

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class SearchResult:
    """What a search found: ``best`` was measured within the budget, of several the largest.

    ``history`` has the networks with a score that the tables predict, ``given_up`` those that a pruner ended before.

    Attributes:
        spread: Factor of the prediction interval, by space where there are several.
        front: The answer for each budget, ascending, where there are several.
        race: How the finalists fared against each other, where they raced for a single budget; ``best`` won.
        rungs: What all trials had at the epochs at which a pruner ended some.
        course: How long the trials took, and which of them were draws.
        spaces: What each space has within the (largest) budget, where there are several.
        cut_rows: Filled rows that were measured for the best networks; None: none could be.
        named: Models of the user's own, label of the space -> as it was named.
        learned: What a model of the trainings that the study began from is worth; None: there are none, or too few.
        unpredicted: Trials with a score whose networks have a block that a table lacks by now; ``trials`` counts them.
    """

    study: str
    settings: Settings
    feasible: float
    trials: int
    best: Candidate
    pareto: tuple[Candidate, ...]
    measured: tuple[Candidate, ...]
    history: tuple[Candidate, ...]
    spread: BySpace
    front: tuple[FrontPoint, ...] = ()
    race: RaceResult | None = None
    course: SearchCourse = field(default_factory=lambda: SearchCourse(0.0))
    given_up: tuple[GivenUp, ...] = ()
    rungs: tuple[RungScore, ...] = ()
    spaces: tuple[SpaceShare, ...] = ()
    cut_rows: CutRows | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    learned: LeftOut | None = None
    unpredicted: int = 0

    @property
    def emulated(self) -> bool:
        """Whether the latencies were taken under emulation."""
        return self.settings.emulated

    def to_json(self) -> dict[str, object]:
        """The keys that ``hwbench search --json`` prints."""
        return {
            "study": self.study,
            "space": self.settings.space,
            "budget_ms": self.settings.budget_ms,
            "trials": self.trials,
            "feasible": int(self.feasible) if self.feasible < 2**53 else self.feasible,
            "best": self._printed(self.best),
            "pareto": [self._printed(candidate) for candidate in self.pareto],
        } | self._further_keys()

    def _printed(self, candidate: Candidate) -> dict[str, object]:
        return candidate.to_json(self.settings.device, with_space=bool(self.spaces))

    def _further_keys(self) -> dict[str, object]:
        """Keys of what not every search has."""
        settings, found = self.settings, dict[str, object]()
        if settings.streaming:
            found["streaming"] = True
        if self.spaces:
            found["spaces"] = [one.to_json() for one in self.spaces]
        if self.front:
            found["front"] = [point.to_json(settings.device) for point in self.front]
        if self.race is not None:
            found["race"] = self.race.to_json()
        if settings.further_budgets_ms:
            found["budgets_ms"] = dict(settings.budgets_ms)
        if settings.max_file_bytes:
            found["max_file_size_bytes"] = settings.max_file_bytes
        if settings.max_activation_bytes:
            found["max_activation_bytes"] = settings.max_activation_bytes
        if settings.pruner:
            found["given_up"] = len(self.given_up)
        if self.cut_rows is not None:
            found["measured_rows"] = self.cut_rows.to_json()
        if self.learned is not None:
            found["learned"] = self.learned.to_json()
        if settings.sustained:
            found["sustained"] = dict(settings.sustained)
        return found | ({"emulated": True} if self.emulated else {})

    def to_frame(self) -> pandas.DataFrame:
        """One row for each scored trial, in order; the columns are those of ``candidates_frame``."""
        return candidates_frame(self.history, self.spread)

    def write(self, folder: Path) -> None:
        """Stores ``result.json``: the printed keys, the settings, every trial and every measured candidate."""
        stored = self.to_json() | {
            "settings": self.settings.as_dict(),
            "course": self.course.to_json(),
            "measured": [self._printed(c) | {"failure": c.failure} for c in self.measured],
            "history": [self._printed(c) | {"trial": c.trial} for c in self.history],
        }
        if self.named:
            stored["named"] = dict(self.named)
        if self.settings.pruner:
            stored["given_up"] = [one.to_json() for one in self.given_up]
            stored["rungs"] = [one.to_json() for one in self.rungs]
        if self.unpredicted:
            stored["unpredicted"] = self.unpredicted
        write_text(folder / RESULT, json.dumps(stored, indent=2, allow_nan=False) + "\n")
