"""``hwbench.profile``: measure what a search space needs on a device, and publish its latency tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.adaptive_profile import TableAccuracy, worst
from hwbench.api.listener import SILENT, Listener
from hwbench.api.profile_request import ProfileRequest as ProfileRequest
from hwbench.api.profile_request import parse_conditions, parse_variants
from hwbench.api.space_profile import SpaceProfile, tell_few_networks, tell_no_layouts
from hwbench.errors import DeviceError, InfeasibleBudget

if TYPE_CHECKING:
    import pandas

    from hwbench.devices import Device
    from hwbench.latency import LatencyTable, SelfCheck
    from hwbench.measure.builder import Builder
    from hwbench.measure.campaign import Campaign, CampaignResult
    from hwbench.spaces import StagedSpace
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
        statuses: Exit status by name of each device that was asked for; 0: profiled; 128 and its number: a signal ended
            the process of the device.
    """

    devices: tuple[DeviceProfile, ...]
    statuses: Mapping[str, int]

    @property
    def status(self) -> int:
        """The greatest exit status: 0 where every device was profiled."""
        return max(self.statuses.values())

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
    from hwbench.api.tables import (
        publish_aa,
        published_aa,
        published_rows,
        rows_of_profile,
        table_update,
        tell_kept,
    )
    from hwbench.measure.store import MeasurementStore
    from hwbench.spaces import open_spaces

    started = time.monotonic()
    variants = parse_variants(request.variants)
    spaces = open_spaces(workspace, request.spaces, request.classes, request.variant).members
    for precision in request.precisions:  # a damaged table is better known now than after an hour
        target = installed_target(place, request.runtime, request.threads)
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
        except (DeviceError, InfeasibleBudget):
            tell_kept(*kept, listener)
            raise
        say_failures(result.failed, listener)
        tell_kept(*kept, listener)
        for precision in request.precisions:
            table_update(workspace, campaign, precision, variant=request.variant).tell_scale(listener)
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
    from hwbench.api.campaigns import say_failures
    from hwbench.api.search_devices import SpaceListener

    result, accuracies, tables = campaign.run(()), list[TableAccuracy](), tuple[Path, ...]()
    beyond_budget = list[str]()
    for space in spaces:
        speaking = SpaceListener(listener, space.name, len(spaces))
        left = None if request.limit is None else request.limit - result.tried
        fresh = frozenset(row.workload for row in result.ok)
        if left == 0:
            of_space = SpaceProfile(request, workspace, campaign, speaking, space, fresh).standing(variants, tables)
        else:
            tell_few_networks(request, space, speaking)
            tell_no_layouts(request, space, variants, speaking)
            profiling = SpaceProfile(replace(request, limit=left), workspace, campaign, speaking, space, fresh)
            measured, of_space = profiling.run(variants)
            result = result.plus(measured)
        if isinstance(of_space, InfeasibleBudget):
            beyond_budget.append(space.name)
            if len(beyond_budget) == len(spaces):
                say_failures(result.failed, listener)
                raise of_space
            speaking.say(str(of_space))
            of_space = ()
        if left != 0:
            tables = profiling.publish()
        accuracies += [replace(one, space=space.name) for one in of_space]
    return result, tuple(accuracies), tables
