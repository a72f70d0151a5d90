"""The loop of an adaptive profile: measure a batch, see how good the table is, choose the next batch."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import Listener
from hwbench.errors import DeviceError, HwbenchError, InfeasibleBudget
from hwbench.measure.build_ahead import nothing_follows
from hwbench.printable import counted
from hwbench.specs import Outcome
from hwbench.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hwbench.api.campaigns import CampaignProgress
    from hwbench.api.profile_request import ProfileRequest
    from hwbench.api.tables import TableUpdate
    from hwbench.latency import LatencyTable, PredictionAccuracy
    from hwbench.measure.build_ahead import Following
    from hwbench.measure.campaign import Campaign, CampaignResult
    from hwbench.spaces import StagedSpace
    from hwbench.specs import Precision, Workload
    from hwbench.studies.profiling_walk import ProfilingWalk, WalkStep


@dataclass(frozen=True)
class TableAccuracy:
    """How good the table of a precision is when its profile ends.

    Args:
        precision: Of the table.
        rows: Blocks of the table that have a latency.
        rows_of_space: Blocks that the space has.
        networks: Whole networks that were left out, one at a time, and predicted by the rest.
        error: Median of how far off these predictions were, a fraction; None: fewer than four networks, or half of them
            have rows that cannot be filled in.
        accuracy: Upper limit of that median over all networks of the space, or of those within the budget, with a
            confidence of 0.9 or more.
        stopped: Why the profile ended: ``accuracy``, ``limit``, ``level`` (more rows hardly help) or ``rows``.
        space: Name of the space.
    """

    precision: str
    rows: int
    rows_of_space: int
    networks: int
    error: float | None
    accuracy: float | None
    stopped: str
    space: str = ""

    @classmethod
    def of(
        cls, precision: Precision, rows: tuple[int, int], found: PredictionAccuracy | None, stopped: str
    ) -> TableAccuracy:
        """With the numbers of rows that the table and the space have, and what left-out networks said."""
        if found is None:
            return cls(precision.value, *rows, 0, None, None, stopped)
        error, bound = (round(one, 5) if math.isfinite(one) else None for one in (found.error, found.bound))
        return cls(precision.value, *rows, found.networks, error, bound, stopped)


def worst(tables: Sequence[TableAccuracy]) -> Mapping[str, Any]:
    """The keys of a profile that tell of all its tables: those of the one that is known least well."""
    last = max(tables, key=lambda one: (one.accuracy is None, one.accuracy or 0.0), default=None)
    names = ("accuracy", "stopped", "rows", "rows_of_space")
    return {name: getattr(last, name, None) for name in names} | {"precisions": [vars(one) for one in tables]}


@dataclass
class _Course:
    """One precision: its walk, what was seen of it, and rows that are asked again and that the limit leaves."""

    walk: ProfilingWalk
    points: list[tuple[int, float]] = field(default_factory=list)
    batch: tuple[Workload, ...] = ()
    ended: TableAccuracy | None = None
    left: tuple[Workload, ...] = ()


@dataclass
class AdaptiveProfile:
    """Profiles a space until its tables are good enough; the precisions take turns.

    Args:
        request: What to measure, and how well.
        space: Whose rows.
        campaign: On the device.
        listener: Hears of every batch what came of it.
        update: Makes the table of a precision from the store.
        variants: Layouts that chosen blocks are measured in, too.
        fresh: Rows that this command has measured already, which are not measured again.
    """

    request: ProfileRequest
    space: StagedSpace
    campaign: Campaign
    listener: Listener
    update: Callable[[Precision], TableUpdate]
    variants: Sequence[str] = ()
    fresh: frozenset[Workload] = frozenset()

    def run(
        self, begin: Callable[[Sequence[Workload]], None]
    ) -> tuple[CampaignResult, tuple[TableAccuracy, ...] | InfeasibleBudget]:
        """Measures until each precision is as accurate as asked, or at the limit.

        Args:
            begin: Is called before the first rows that are missing are measured, and with rows that were measured for
                another purpose.

        Returns:
            What was measured, and how good the tables are by then; or, by these rows, that no network of the space is
            within the budget.

        Raises:
            DeviceError: The device is lost; what was measured until then is published.
        """
        courses, self._begin = self._begun(self.request.limit), begin
        try:
            self._measure_again(courses)
            while running := [course for course in courses if course.ended is None]:
                for number, course in enumerate(running):
                    self._step(course, [*running[number + 1 :], *running[:number]])
        except DeviceError:
            for course in courses:
                self.update(course.walk.precision).salvage(self.listener)
            raise
        except InfeasibleBudget as error:
            return self._result, error
        return self._result, tuple(course.ended for course in courses if course.ended)

    def standing(self) -> tuple[TableAccuracy, ...] | InfeasibleBudget:
        """How good the tables are by now, where no row may be measured any more.

        Returns:
            As ``run``, without rows.
        """
        courses = self._begun(0)
        try:
            self._leave(itertools.chain(*self._asked_again(courses)))
            for course in courses:
                self._step(course, ())
        except InfeasibleBudget as error:
            return error
        return tuple(course.ended for course in courses if course.ended)

    def _begun(self, limit: int | None) -> list[_Course]:
        """The courses of the precisions, before the first of at most so many rows."""
        from hwbench.api.campaigns import CampaignProgress
        from hwbench.studies.profiling_walk import ProfilingWalk

        self._progress: CampaignProgress = CampaignProgress(self.listener)
        self._started, self._measured, self._left = time.monotonic(), 0, limit
        self._result = self.campaign.run(())
        request = self.request
        self._courses = [
            _Course(
                ProfilingWalk(
                    self.space, precision, request.classes, budget_s=request.budget_s, networks=request.calibrate
                )
            )
            for precision in request.precisions
        ]
        return self._courses

    def _asked_again(self, courses: Sequence[_Course]) -> tuple[list[Workload], list[Workload]]:
        """What an earlier command asked again of rows that are there and has not measured since, whatever the options;
        and what this one asks again: failed rows with ``--retry``, all with ``--remeasure``.

        Raises:
            NotMeasured, InfeasibleBudget: As ``ProfilingWalk.batch``.
        """
        request, campaign = self.request, self.campaign
        reopened = {*campaign.store.reopened(campaign.target, campaign.conditions)}
        again: list[Workload] = []
        unfinished: list[Workload] = []
        if not (request.retry or request.remeasure or reopened):
            return unfinished, again
        for course in courses:
            table = self._table(course)
            unfinished += campaign.missing(row.workload for row in table if row.workload in reopened)
            if request.retry or request.remeasure:
                course.walk.batch(table)
                walked = set(self._with_variants(course.walk.walked())) - self.fresh
                rows = [row for row in table if row.workload in walked]
                again += [row.workload for row in rows if request.remeasure or row.outcome is not Outcome.OK]
        return unfinished, again

    def _leave(self, workloads: Iterable[Workload]) -> None:
        """Keeps with each precision what the limit leaves of rows that are asked again."""
        rows = tuple(dict.fromkeys(workloads))
        for course in self._courses:
            course.left = tuple(row for row in rows if row.precision is course.walk.precision)

    def _measure_again(self, courses: Sequence[_Course]) -> None:
        """Measures what is asked again, up to the limit; with ``--remeasure`` the oldest rows first."""
        request, campaign = self.request, self.campaign
        unfinished, again = self._asked_again(courses)
        if request.remeasure:
            by_age = campaign.by_age([*unfinished, *again])
            again = by_age[: self._left]
            text = f"{campaign.reopen(again)} measured rows are measured again; interrupted, go on without --remeasure"
            others = len(by_age) - len(again)
            self.listener.say(f"{text}; --limit leaves {others} to the next --remeasure" if others else text)
            self._leave(by_age[len(again) :])
        elif unfinished:
            rows_left = counted(len(unfinished), "row")
            self.listener.say(f"{rows_left} that an earlier command left to be measured again: measured first")
        if not request.remeasure and self._left is not None:
            self._leave(campaign.missing(dict.fromkeys([*unfinished, *again]))[self._left :])
        self._measure(dict.fromkeys([*unfinished, *again]))

    def _step(self, course: _Course, others: Sequence[_Course]) -> None:
        from hwbench.studies.profiling_walk import StopReason

        table = self._table(course)
        step = course.walk.step(table, self.request.accuracy_share)
        layouts = self._missing_layouts(course, table) if step.stopped else []
        if layouts and self._left != 0:
            self.listener.say(f"{course.walk.precision}: {counted(len(layouts), 'row')} of other layouts to measure")
            self._measure(layouts)
            return
        limited = self._left == 0 and (layouts or step.stopped is None)
        stopped = StopReason.LIMIT if limited or (course.left and step.stopped) else step.stopped
        if step.accuracy is not None:
            course.points += [(step.rows, step.accuracy.bound)] if math.isfinite(step.accuracy.bound) else []
        self.listener.say(self._told(course, step, stopped))
        if stopped is not None:
            rows = (step.rows, len(course.walk.parts))
            course.ended = TableAccuracy.of(course.walk.precision, rows, step.accuracy, stopped)
        elif step.batch == course.batch and not self.campaign.missing(step.batch):
            raise HwbenchError(f"the rows of a batch were measured and are not in the table of {self.campaign.target}")
        else:
            course.batch = step.batch
            self._measure(self._with_variants(step.batch), self._following(course, table, others))

    def _following(self, course: _Course, own: LatencyTable, others: Sequence[_Course]) -> Following:
        """What is measured after the batch of a course: those of the others, which are sure, then its own next one."""
        if self.campaign.ahead is None:
            return nothing_follows
        tables = [(one.walk, self._table(one)) for one in others if one.ended is None]

        def batches() -> Iterator[Workload]:
            for walk, table in tables:
                yield from self._with_variants(walk.batch(table))
            yield from self._with_variants(course.walk.expected(own))

        left = None if self._left is None else max(self._left - len(course.batch), 0)
        return lambda: itertools.islice(batches(), left)

    def _with_variants(self, batch: Sequence[Workload]) -> list[Workload]:
        return [*batch, *self._layouts(batch)]

    def _layouts(self, workloads: Iterable[Workload]) -> list[Workload]:
        """The single blocks among some workloads in the layouts that are asked for."""
        from hwbench.latency import Role, variant_rows

        return variant_rows((one for one in workloads if Role.of(one) is Role.BLOCK), self.variants)

    def _missing_layouts(self, course: _Course, table: LatencyTable) -> list[Workload]:
        """Layouts of chosen blocks that the table has without them; a layout that was lost is tried once a command."""
        outcomes = {row.workload: row.outcome for row in table}
        tried = {one.workload for one in self._result.measurements}
        finished = {workload for workload, outcome in outcomes.items() if outcome is not Outcome.LOST} | tried
        layouts = self._layouts(workload for workload in course.walk.walked() if workload in outcomes)
        return self.campaign.missing(workload for workload in layouts if workload not in finished)

    def _measure(self, workloads: Iterable[Workload], following: Following = nothing_follows) -> None:
        known = {one.workload for one in self._result.measurements}
        wanted = [workload for workload in workloads if workload not in known]
        claimed = self.campaign.store.claim(wanted, self.campaign.target)
        missing = self.campaign.missing(wanted)
        if claimed or (missing and not self._measured):
            self._begin(missing)
        measured = self.campaign.run(wanted, self._progress, limit=self._left, following=following)
        self._measured += measured.tried
        self._left = None if self._left is None else self._left - measured.tried
        self._result = self._result.plus(measured)
        lost = {one.workload.key for one in self._result.failed if one.outcome is Outcome.LOST}
        for course in self._courses:
            course.walk.given_up |= lost  # the next command tries them again

    def _table(self, course: _Course) -> LatencyTable:
        """The rows of this space alone: those of others neither count nor judge.

        The file is written as well, but loses no latency before this command has measured one.
        """
        from hwbench.latency import rows_of_space

        update = self.update(course.walk.precision)
        if not update.lost or any(one.workload.precision is course.walk.precision for one in self._result.ok):
            update.write(self.listener)
        return rows_of_space(update.table, course.walk.parts)

    def _told(self, course: _Course, step: WalkStep, stopped: str | None) -> str:
        """One line: how many rows, how good the table is, and what comes next."""
        from hwbench.studies.profiling_walk import StopReason

        goal, found = self.request.accuracy_share, step.accuracy
        text = f"{course.walk.precision}: {step.rows} of {len(course.walk.parts)} rows"
        if found is not None and math.isfinite(found.bound):
            text += (
                f"; {found.networks} networks, each left out, are off by {found.error:.1%} (median), so half of all "
                f"networks by at most {found.bound:.1%} (90 %)"
            )
        if stopped is None:
            return f"{text}; goal {goal:.1%}{self._to_go(course)}"
        others = f"the others are filled in; --all-rows measures all {len(course.walk.parts)}"
        lost = sum(workload.key in course.walk.given_up for workload in course.walk.walked())
        were = "was" if lost == 1 else "were"
        but_lost = f" but {lost} that {were} lost, which {self.request.going_on} tries again" if lost else ""
        goes_on = f"{self.request.going_on} goes on"
        if step.stopped and course.left and self.request.remeasure:
            goes_on = f"{counted(len(course.left), 'row')} left to the next --remeasure"
        return {
            StopReason.ACCURACY: f"{text}; goal {goal:.1%} reached, {others}",
            StopReason.ROWS: f"{text}; all rows are measured{but_lost}",
            StopReason.LIMIT: f"{text}; --limit reached, {goes_on}",
            StopReason.LEVEL: f"{text}; goal {goal:.1%} not reached, but more rows hardly help any more: {others}",
        }[StopReason(stopped)]

    def _to_go(self, course: _Course) -> str:
        from hwbench.studies.profiling_walk import rows_to_goal

        if not course.points:
            return ""
        more = min(
            rows_to_goal(course.points, self.request.accuracy_share), len(course.walk.parts) - course.points[-1][0]
        )
        text = f"; about {more} more rows"
        if not self._measured:
            return text
        seconds = (time.monotonic() - self._started) / self._measured * more
        return f"{text}, {format_duration(seconds)}"
