"""What a profile measures of one space: all of its rows, or those within the budget, or those that tell most."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.api.adaptive_profile import AdaptiveProfile, TableAccuracy
from hwbench.api.listener import Listener
from hwbench.api.profile_request import ProfileRequest
from hwbench.errors import DeviceError, InfeasibleBudget
from hwbench.printable import counted

if TYPE_CHECKING:
    from hwbench.api.tables import TableUpdate
    from hwbench.measure.campaign import Campaign, CampaignResult
    from hwbench.spaces import StagedSpace
    from hwbench.specs import Precision, Workload
    from hwbench.workspace import Workspace


def tell_few_networks(request: ProfileRequest, space: StagedSpace, listener: Listener) -> None:
    """Says where so few networks are asked for that the table alone predicts nothing; 0 asks for rows alone."""
    from hwbench.latency.predictor import MIN_NETWORKS

    least = min(MIN_NETWORKS, space.size())
    if 0 < request.calibrate < least:
        listener.say(
            f"--calibrate {request.calibrate}: search and validate refuse a table with fewer than {least} calibration "
            f"networks; the least is --calibrate {least}"
        )


def tell_no_layouts(request: ProfileRequest, space: StagedSpace, variants: Sequence[str], listener: Listener) -> None:
    """Says where layouts are asked for of which no block of the space has several."""
    from hwbench.latency import has_variants
    from hwbench.studies.profiling_plan import by_use

    if variants and not any(map(has_variants, by_use(space, request.precisions[0], request.classes))):
        listener.say(
            f"--variants {request.variants}: no block of {space.name} has a kernel over time and space and several "
            "frames, so that no other layout is measured"
        )


@dataclass(frozen=True)
class SpaceProfile:
    """What a request measures of one space in a campaign on one device."""

    request: ProfileRequest
    workspace: Workspace
    campaign: Campaign
    listener: Listener
    space: StagedSpace
    # Rows that this command has measured already, of other spaces: not measured again.
    fresh: frozenset[Workload] = frozenset()

    @cached_property
    def adaptive(self) -> bool:
        """Whether some rows are chosen; of a small space all are measured."""
        from hwbench.studies.profiling_walk import is_worth_choosing

        if self.request.all_rows or self.request.networks_only:
            return False
        return is_worth_choosing(self.space, self.request.precisions[0], self.request.classes)

    def run(self, variants: Sequence[str]) -> tuple[CampaignResult, tuple[TableAccuracy, ...] | InfeasibleBudget]:
        """Measures what is missing; what was measured until a device is lost is published.

        Returns:
            What was measured, and how good the tables are by then; or, by these rows, that no network of the space is
            within the budget.
        """
        from hwbench.api.campaigns import CampaignProgress
        from hwbench.api.ties import begin_occasion, end_occasion

        started, watch = time.monotonic(), CampaignProgress(self.listener)
        place = (self.workspace, self.campaign)

        def begin(missing: Sequence[Workload]) -> None:
            begin_occasion(*place, missing, self.request.precisions, watch, self.request.variant)

        if self.adaptive:
            result, accuracies = self._chosen(variants).run(begin)
            if not isinstance(accuracies, InfeasibleBudget):
                end_occasion(*place, time.monotonic() - started, self.request.precisions, watch, self.request.variant)
            return result, accuracies
        workloads = _workloads(self.request, self.space, variants)
        claimed = self.campaign.store.claim(workloads, self.campaign.target)
        lacking = self.campaign.missing(workloads)
        again, later = self._reopened(workloads)
        # Rows that are measured again tie this day to theirs by themselves, the anchors among them.
        if lacking or claimed:
            begin(self.campaign.missing([*again, *workloads]) if lacking else ())
        try:
            result, left = self._all([*again, *workloads], later, variants)
        except DeviceError:
            for precision in self.request.precisions:
                self._update(precision).salvage(self.listener)
            raise
        if isinstance(left, InfeasibleBudget):
            return result, left
        end_occasion(*place, time.monotonic() - started, self.request.precisions, watch, self.request.variant)
        return result, tuple(self.accuracy(path, left) for path in self.publish())

    def standing(self, variants: Sequence[str], tables: Sequence[Path]) -> tuple[TableAccuracy, ...] | InfeasibleBudget:
        """How good the tables are where other spaces have used up the limit, which is told; nothing is measured."""
        from hwbench.studies.profiling_walk import StopReason

        if self.adaptive:
            return self._chosen(variants).standing()
        workloads = _workloads(self.request, self.space, variants)
        lacking = self._lacking(workloads)
        if self.request.budget is not None and not self.campaign.missing(workloads):
            try:
                workloads += self._within_budget(variants)
            except InfeasibleBudget as error:
                return error
            lacking = self.campaign.missing(dict.fromkeys(workloads))
        later = self._to_remeasure(workloads, 0)[1] if self.request.remeasure else []
        accuracies = tuple(self.accuracy(path, [*lacking, *later]) for path in tables)
        for table in accuracies:
            text = f"{table.precision}: {table.rows} of {table.rows_of_space} rows"
            if table.stopped == StopReason.LIMIT:
                text += f"; --limit {self.request.limit} reached, {self._going_on(table.precision, lacking, later)}"
            self.listener.say(text)
        return accuracies

    def _going_on(self, precision: str, lacking: Sequence[Workload], later: Sequence[Workload]) -> str:
        """What goes on where rows of a precision are missing, or are all there and left to be measured again."""
        if any(one.precision.value == precision for one in lacking):
            return f"{self.request.going_on} goes on"
        count = sum(one.precision.value == precision for one in later)
        return f"{counted(count, 'row')} left to the next --remeasure"

    def _chosen(self, variants: Sequence[str]) -> AdaptiveProfile:
        place = (self.request, self.space, self.campaign, self.listener)
        return AdaptiveProfile(*place, self._update, variants, self.fresh)

    def publish(self) -> tuple[Path, ...]:
        """The tables as the store has them now."""
        updates = [self._update(precision) for precision in self.request.precisions]
        for update in updates:
            update.write(self.listener)
        return tuple(update.path for update in updates)

    def _update(self, precision: Precision) -> TableUpdate:
        from hwbench.api.tables import table_update

        return table_update(
            self.workspace, self.campaign, precision, adaptive=self.adaptive, variant=self.request.variant
        )

    def _all(
        self, workloads: Sequence[Workload], later: Sequence[Workload], variants: Sequence[str]
    ) -> tuple[CampaignResult, Sequence[Workload] | InfeasibleBudget]:
        """Every row that is asked for, up to the limit; and those that the limit leaves to another command: where it is
        not known which are within the budget, all that the space lacks; or that no network is within the budget."""
        limit = self.request.limit
        result, left = self._measure(workloads, limit)
        if self.request.budget is None:
            return result, [*left, *later]
        limit = None if limit is None else limit - result.tried
        if limit == 0 and left:
            return result, [*later, *self._lacking(workloads)]
        known = set(workloads)
        try:
            within = [workload for workload in self._within_budget(variants) if workload not in known]
        except InfeasibleBudget as error:
            return result, error
        if self.request.remeasure:
            again, others = self._to_remeasure(within, limit)
            self.campaign.reopen(again)
            within, later = [*again, *within], [*later, *others]
        further, left = self._measure(within, limit)
        return result.plus(further), [*left, *later]

    def _reopened(self, workloads: Sequence[Workload]) -> tuple[list[Workload], list[Workload]]:
        """The rows that ``--remeasure`` makes missing again, and those that the limit leaves; none without it."""
        if not self.request.remeasure:
            return [], []
        again, later = self._to_remeasure(workloads, self.request.limit)
        count = self.campaign.reopen(again)
        text = f"{count} measured rows are measured again; interrupted, go on without --remeasure"
        self.listener.say(f"{text}; --limit leaves {len(later)} to the next --remeasure" if later else text)
        return again, later

    def _to_remeasure(self, workloads: Sequence[Workload], limit: int | None) -> tuple[list[Workload], list[Workload]]:
        """Which of some workloads ``--remeasure`` takes: what is unfinished, then the oldest rows, up to the limit; and
        those beyond it."""
        known = {*self.campaign.store.workloads(self.campaign.target)} - self.fresh
        by_age = self.campaign.by_age(one for one in workloads if one in known)
        return (by_age, []) if limit is None else (by_age[:limit], by_age[limit:])

    def _lacking(self, workloads: Sequence[Workload]) -> list[Workload]:
        """Which of some workloads, and of the rows of the space where these are asked for, are missing."""
        classes, precisions = self.request.classes, () if self.request.networks_only else self.request.precisions
        parts = [part for precision in precisions for part in self.space.parts(precision, num_classes=classes)]
        return self.campaign.missing(dict.fromkeys([*workloads, *parts]))

    def accuracy(self, path: Path, left: Sequence[Workload]) -> TableAccuracy:
        """How good a table is whose rows were not chosen, by its calibration networks.

        ``left`` is what the limit leaves to another command, of any precision.
        """
        from hwbench.latency import LatencyTable, rows_of_space
        from hwbench.studies.profiling_walk import StopReason, whole_accuracy

        table = LatencyTable.read(path)
        parts = list(self.space.parts(table.precision, num_classes=self.request.classes))
        table = rows_of_space(table, parts)
        rows = sum(part in table for part in parts)
        limited = self.request.limit is not None and any(one.precision is table.precision for one in left)
        stopped = StopReason.LIMIT if limited else StopReason.ROWS
        return TableAccuracy.of(table.precision, (rows, len(parts)), whole_accuracy(table, self.space), stopped)

    def _measure(self, workloads: Sequence[Workload], limit: int | None) -> tuple[CampaignResult, Sequence[Workload]]:
        """The rows, and those that the limit leaves to another command; one that is tried in vain is none of these."""
        from hwbench.api.campaigns import CampaignProgress

        left = [] if limit is None else self.campaign.missing(dict.fromkeys(workloads))[limit:]
        result = self.campaign.run(workloads, CampaignProgress(self.listener), limit=limit)
        if left:
            self.listener.say(f"--limit reached, {self.request.going_on} goes on")
        return result, left

    def _within_budget(self, variants: Sequence[str]) -> list[Workload]:
        """What to measure by the tables so far; the precisions take turns."""
        from hwbench.latency import LatencyTable, variant_rows
        from hwbench.studies.profiling_plan import within_budget

        budget_s = self.request.budget_s
        assert budget_s is not None
        useful = []
        for path in self.publish():
            table = LatencyTable.read(path)
            parts = within_budget(self.space, table, self.request.classes, budget_s)
            self.listener.say(f"{table.precision}: {len(parts)} blocks are of use within the budget")
            useful.append([*parts, *variant_rows(parts, variants)])
        turns = itertools.zip_longest(*useful)
        return [workload for turn in turns for workload in turn if workload is not None]


def _workloads(request: ProfileRequest, space: StagedSpace, variants: Sequence[str]) -> list[Workload]:
    """What to measure at first: all of the space, or what tells which of it is within the budget."""
    from hwbench.studies.profiling_plan import first_workloads, space_workloads

    size = (request.classes, request.calibrate)
    rows = [
        workload
        for precision in request.precisions
        for workload in (
            space_workloads(space, precision, *size, variants)
            if request.budget is None
            else first_workloads(space, precision, *size)
        )
    ]
    return [workload for workload in rows if workload.is_network] if request.networks_only else rows
