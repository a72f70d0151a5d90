"""``hwbench.profile``: measure what a search space needs on a device, and publish its latency tables."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.adaptive_profile import AdaptiveProfile, TableAccuracy, worst
from hwbench.api.listener import SILENT, Listener
from hwbench.api.profile_request import ProfileRequest as ProfileRequest
from hwbench.api.profile_request import parse_conditions, parse_variants
from hwbench.errors import DeviceError, InfeasibleBudget

if TYPE_CHECKING:
    import pandas

    from hwbench.api.tables import TableUpdate
    from hwbench.devices import Device
    from hwbench.latency import LatencyTable, SelfCheck
    from hwbench.measure.builder import Builder
    from hwbench.measure.campaign import Campaign, CampaignResult
    from hwbench.spaces import StagedSpace
    from hwbench.specs import Precision, Workload
    from hwbench.workspace import Workspace


@dataclass(frozen=True)
class DeviceProfile:
    """What was measured of one device, and its tables.

    Args:
        device: Its name.
        target: Key of the target: device, engine and threads.
        ok: Rows that were measured now.
        failed: Rows that have no latency, now or from before.
        skipped: Rows that were measured before.
        tables: The files, one for each precision.
        root: The workspace that they lie in.
        seconds: How long it took.
        aa: The A/A test that stands in the tables.
        accuracies: How good each table is.
        scales_before: Of a refresh, by precision: the factor of the table before it.
    """

    device: str
    target: str
    ok: int
    failed: int
    skipped: int
    tables: tuple[Path, ...]
    root: Path
    seconds: float
    aa: SelfCheck | None
    accuracies: tuple[TableAccuracy, ...] = ()
    scales_before: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, values: Mapping[str, Any], root: Path) -> DeviceProfile:
        """A profile from what ``to_json`` gave in a workspace."""
        from hwbench.api.tables import published_aa

        names = ("device", "target", "ok", "failed", "skipped", "seconds")
        tables = tuple(root / name for name in values["tables"])
        accuracies = tuple(TableAccuracy(**one) for one in values["precisions"])
        fields = {name: values[name] for name in names}
        before = {one["precision"]: one["scale_before"] for one in values["scales"] if "scale_before" in one}
        return cls(
            **fields,
            tables=tables,
            root=root,
            aa=published_aa(tables),
            accuracies=accuracies,
            scales_before=before,
        )

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench profile --json`` prints."""
        from hwbench.api.refresh import scale_values
        from hwbench.latency import LatencyTable

        names = [str(path.relative_to(self.root)) for path in self.tables]
        return {
            "device": self.device,
            "target": self.target,
            "ok": self.ok,
            "failed": self.failed,
            "skipped": self.skipped,
            "table": names[0],
            "tables": names,
            "seconds": self.seconds,
            "scales": [scale_values(LatencyTable.read(path), self.scales_before) for path in self.tables],
            "aa": self.aa and {**self.aa.found.as_json(), "made_on": self.aa.made_on},
            **worst(self.accuracies),
        }


@dataclass(frozen=True)
class ProfileResult:
    """What was measured of every device that was asked for.

    Args:
        devices: Those whose tables were published, in the order asked for.
        statuses: Exit status by name of each device that was asked for; 0: profiled.
    """

    devices: tuple[DeviceProfile, ...]
    statuses: Mapping[str, int]

    @property
    def status(self) -> int:
        """The greatest exit status: 0 where every device was profiled."""
        return max(abs(status) for status in self.statuses.values())

    @property
    def tables(self) -> tuple[LatencyTable, ...]:
        """The published tables of all devices, as they are now."""
        from hwbench.latency import LatencyTable

        return tuple(LatencyTable.read(path) for device in self.devices for path in device.tables)

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench profile --json`` prints: of the device, or of each below ``devices``."""
        profiles = {profile.device: profile.to_json() for profile in self.devices}
        if len(self.statuses) == 1 and profiles:
            return self.devices[0].to_json()
        each = [{"device": name, **profiles.get(name, {}), "status": status} for name, status in self.statuses.items()]
        return {"devices": each}

    def to_frame(self) -> pandas.DataFrame:
        """The rows of all tables: device, target, precision, then the columns of a table."""
        from hwbench.latency import tables_frame

        return tables_frame(self.tables)


def profile(
    request: ProfileRequest,
    listener: Listener = SILENT,
    *,
    workspace: Workspace | str | Path | None = None,
    builder: Builder | None = None,
) -> ProfileResult:
    """Measures what is missing of a space on a device and publishes a table for each precision.

    Of a space with many rows those are measured that tell most of the others, batch by batch, until networks that were
    left out are predicted as well as asked (``hwbench.studies.profiling_walk``); with ``all_rows`` every row.

    Several devices are profiled at the same time, each by a process of its own, so that one that is lost takes no other
    with it; of these the listener hears the talk alone.

    Args:
        request: What to measure, where and how.
        listener: Hears stages ``build`` and ``measure``, every row, and what is not as it should be.
        workspace: Holds spaces, devices, the store and the tables; default: the one around the current folder.
        builder: Builds, and goes on living; default: one of its own.

    Raises:
        UnknownName: No such device, space, runtime or layout.
        InvalidFile: A file of the workspace does not validate.
        DeviceError: The device does not answer; what was measured until then is published. Of several devices this is
            one of ``statuses`` instead.
        InfeasibleBudget: No network of the space is within the budget.
        UnsupportedModule: The runtime does not build a precision.
    """
    from hwbench.devices import load_device
    from hwbench.runtimes import get
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    places = [load_device(workspace, name) for name in request.devices]
    for precision in request.precisions:
        get(request.runtime).require_precision(precision)
    if request.streaming:
        get(request.runtime).require_streams()
    if len(places) > 1:
        return _profile_each(request, workspace, listener)
    return ProfileResult((_profile_device(request, workspace, places[0], listener, builder),), {request.devices[0]: 0})


def _profile_each(request: ProfileRequest, workspace: Workspace, listener: Listener) -> ProfileResult:
    from hwbench.api.parallel_profile import profile_each

    printed, statuses = profile_each(request.devices, request, workspace.root, listener)
    profiles = (DeviceProfile.parse(values, workspace.root) for values in printed.values())
    return ProfileResult(tuple(profiles), statuses)


def _profile_device(
    request: ProfileRequest, workspace: Workspace, place: Device, listener: Listener, builder: Builder | None
) -> DeviceProfile:
    place = replace(place, conditions=parse_conditions(request.conditions) or place.conditions)
    if request.refresh:
        from hwbench.api.refresh import refresh_device

        return DeviceProfile(**refresh_device(request, workspace, place, listener, builder))
    from hwbench.api.campaigns import place_campaign, say_failures
    from hwbench.api.other_conditions import tell_rows_left_behind
    from hwbench.api.prediction import installed_target
    from hwbench.api.tables import publish_aa, published_aa, published_rows, rows_of_profile, tell_kept
    from hwbench.measure.store import MeasurementStore
    from hwbench.spaces import open_spaces

    started = time.monotonic()
    variants = parse_variants(request.variants)
    spaces = open_spaces(workspace, request.spaces, request.classes, request.variant).members
    for precision in request.precisions:  # a damaged table is better known now than after an hour
        target = installed_target(place.name, request.runtime, request.threads)
        published_rows(workspace, target, precision, request.variant)
    with (
        MeasurementStore(workspace.store) as store,
        place_campaign(
            store,
            workspace,
            place,
            runtime=request.runtime,
            threads=request.threads,
            processes=request.processes,
            retry=request.retry,
            precisions=request.precisions,
            builder=builder,
            listener=listener,
        ) as campaign,
    ):
        tables_of = (workspace, campaign, request.precisions, request.variant)
        tell_rows_left_behind(*tables_of, listener)
        own = partial(rows_of_profile, workspace, campaign, spaces, request.classes)
        kept = (*tables_of, own, "profile --retry measures them again")
        try:
            result, accuracies, tables = _profile_spaces(request, workspace, campaign, listener, spaces, variants)
        except DeviceError:
            tell_kept(*kept, listener)
            raise
        say_failures(result.failed, listener)
        tell_kept(*kept, listener)
        again = bool(result.ok)
        aa = publish_aa(campaign, tables, again=again, listener=listener) if request.aa else published_aa(tables)
    return DeviceProfile(
        device=place.name,
        target=result.target.key,
        ok=len(result.ok),
        failed=len(result.failed),
        skipped=len(result.skipped),
        tables=tables,
        root=workspace.root,
        seconds=round(time.monotonic() - started, 1),
        aa=aa,
        accuracies=accuracies,
    )


def _profile_spaces(
    request: ProfileRequest,
    workspace: Workspace,
    campaign: Campaign,
    listener: Listener,
    spaces: Sequence[StagedSpace],
    variants: Sequence[str],
) -> tuple[CampaignResult, tuple[TableAccuracy, ...], tuple[Path, ...]]:
    """One space after the other, into the same tables; what they share is measured once.

    Raises:
        InfeasibleBudget: No network of any space is within the budget.
        DeviceError: The device is lost; what was measured until then is published.
    """
    from hwbench.api.search_devices import SpaceListener

    result, accuracies, tables = campaign.run(()), list[TableAccuracy](), tuple[Path, ...]()
    for number, space in enumerate(spaces):
        speaking = SpaceListener(listener, space.name, len(spaces))
        left = None if request.limit is None else request.limit - result.tried
        fresh = frozenset(row.workload for row in result.ok)
        try:
            if left == 0:
                of_space = _Profiling(request, workspace, campaign, speaking, space, fresh).standing(variants, tables)
            else:
                _tell_few_networks(request, space, speaking)
                _tell_no_layouts(request, space, variants, speaking)
                profiling = _Profiling(replace(request, limit=left), workspace, campaign, speaking, space, fresh)
                measured, of_space = profiling.run(variants)
                result, tables = result.plus(measured), profiling.publish()
        except InfeasibleBudget as error:
            if number == len(spaces) - 1 and not tables:
                raise
            speaking.say(str(error))
            continue
        accuracies += [replace(one, space=space.name) for one in of_space]
    return result, tuple(accuracies), tables


def _tell_few_networks(request: ProfileRequest, space: StagedSpace, listener: Listener) -> None:
    """Says where so few networks are asked for that the table alone predicts nothing; 0 asks for rows alone."""
    from hwbench.latency.predictor import MIN_NETWORKS

    least = min(MIN_NETWORKS, space.size())
    if 0 < request.calibrate < least:
        listener.say(
            f"--calibrate {request.calibrate}: search and validate refuse a table with fewer than {least} calibration "
            f"networks; the least is --calibrate {least}"
        )


def _tell_no_layouts(request: ProfileRequest, space: StagedSpace, variants: Sequence[str], listener: Listener) -> None:
    """Says where layouts are asked for of which no block of the space has several."""
    from hwbench.latency import has_variants
    from hwbench.studies.profiling_plan import by_use

    if variants and not any(map(has_variants, by_use(space, request.precisions[0], request.classes))):
        listener.say(
            f"--variants {request.variants}: no block of {space.name} has a kernel over time and space and several "
            "frames, so that no other layout is measured"
        )


@dataclass(frozen=True)
class _Profiling:
    """The campaign of one request on one device."""

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

    def run(self, variants: Sequence[str]) -> tuple[CampaignResult, tuple[TableAccuracy, ...]]:
        """Measures what is missing; what was measured until a device is lost is published."""
        from hwbench.api.campaigns import CampaignProgress
        from hwbench.api.occasions import begin_occasion, end_occasion

        started, watch = time.monotonic(), CampaignProgress(self.listener)
        place = (self.workspace, self.campaign)

        def begin(missing: Sequence[Workload]) -> None:
            begin_occasion(*place, missing, self.request.precisions, watch, self.request.variant)

        if self.adaptive:
            result, accuracies = self._chosen(variants).run(begin)
            end_occasion(*place, time.monotonic() - started, self.request.precisions, watch, self.request.variant)
            return result, accuracies
        workloads = _workloads(self.request, self.space, variants)
        self.campaign.store.claim(workloads, self.campaign.target)
        lacking = self.campaign.missing(workloads)
        again, later = self._reopened(workloads)
        # Rows that are measured again tie this day to theirs by themselves, the anchors among them.
        begin(self.campaign.missing([*again, *workloads]) if lacking else ())
        try:
            result, left = self._all([*again, *workloads], later, variants)
        except DeviceError:
            for precision in self.request.precisions:
                self._update(precision).salvage(self.listener)
            raise
        end_occasion(*place, time.monotonic() - started, self.request.precisions, watch, self.request.variant)
        return result, tuple(self.accuracy(path, left) for path in self.publish())

    def standing(self, variants: Sequence[str], tables: Sequence[Path]) -> tuple[TableAccuracy, ...]:
        """How good the tables are where other spaces have used up the limit, which is told; nothing is measured."""
        from hwbench.studies.profiling_walk import StopReason

        if self.adaptive:
            return self._chosen(variants).standing()
        request, workloads = self.request, _workloads(self.request, self.space, variants)
        left = [*self._lacking(workloads), *(self._to_remeasure(workloads, 0)[1] if request.remeasure else ())]
        accuracies = tuple(self.accuracy(path, left) for path in tables)
        for table in accuracies:
            reached = f"; --limit {request.limit} reached, {request.going_on} goes on"
            limited = reached if table.stopped == StopReason.LIMIT else ""
            self.listener.say(f"{table.precision}: {table.rows} of {table.rows_of_space} rows{limited}")
        return accuracies

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
    ) -> tuple[CampaignResult, Sequence[Workload]]:
        """Every row that is asked for, up to the limit; and those that the limit leaves to another command: where it is
        not known which are within the budget, all that the space lacks."""
        limit = self.request.limit
        result, left = self._measure(workloads, limit)
        if self.request.budget is None:
            return result, [*left, *later]
        limit = None if limit is None else limit - result.tried
        if limit == 0 and left:
            return result, [*later, *self._lacking(workloads)]
        known = set(workloads)
        within = [workload for workload in self._within_budget(variants) if workload not in known]
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
