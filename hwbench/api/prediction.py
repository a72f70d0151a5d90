"""What requests share that predict from a published table, and measure whole networks to confirm it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hwbench import lookup
from hwbench.api.listener import SILENT, Listener
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, NotMeasured, UnknownName
from hwbench.specs import AUTO, STREAM

if TYPE_CHECKING:
    from hwbench.devices import Device
    from hwbench.latency import AdditivePredictor, LatencyTable
    from hwbench.measure.builder import Builder
    from hwbench.spaces.sums import SpaceSums
    from hwbench.specs import Measurement, Precision, Target, Workload
    from hwbench.studies.confirmation import MeasureNetworks
    from hwbench.workspace import Workspace

INTERPOLATE = (
    "Fill in rows that were not measured from those that were, by the model that is best at rows which are left out; "
    "intervals widen. Default: where profile chose the rows of the table."
)
INTERPOLATE_FLAGS = ("--interpolate/--no-interpolate",)
TRANSFER = (
    "Whose table stands in for rows that were not measured: a device, another precision or number of threads (t4) of "
    "this one, or some of them, as s9/fp32; intervals widen."
)


def check_filling(
    interpolate: bool | None, transfer_from: str | None, device: str, precision: str, threads: int
) -> None:
    """Refuses rows that would be filled in by two sources, or by those of the table that lacks them.

    Raises:
        InvalidValue: Says what to choose.
    """
    if interpolate and transfer_from:
        raise InvalidValue("--interpolate and --transfer-from fill in the same rows; choose one")
    if transfer_from:
        from hwbench.latency.table_source import TableSource  # its package loads numpy

        TableSource.parse(transfer_from).check(device, precision, threads)


def check_donor(workspace: Workspace, transfer_from: str | None) -> None:
    """Refuses a device for ``--transfer-from`` that has neither a table nor a file.

    Raises:
        InvalidValue: It does not parse.
        UnknownName: The nearest known devices are listed.
    """
    from hwbench.devices import load_device
    from hwbench.latency.table_source import TableSource

    device = TableSource.parse(transfer_from).device if transfer_from else None
    if not device:
        return
    folder = workspace.root / "profiles" / device
    if not (lookup.is_folder(folder) and any(folder.glob("*.csv"))):
        load_device(workspace, device)


def tell_left_out(sums: SpaceSums, listener: Listener, of: str = "the space") -> None:
    """Says where networks of a space are left out, as a block of theirs has neither a measured nor a filled row."""
    if sums.coverage < 1:
        listener.say(f"only {sums.coverage:.2%} of {of} is measured; the rest is left out")


def installed_target(place: Device, runtime: str, threads: int) -> Target:
    """The target that this installation measures on; found without loading the engine.

    Raises:
        UnknownName: No such runtime.
        InvalidValue: The runtime is not carried to the device.
        MissingDependency: The engine is not installed.
    """
    from hwbench.measure.cache import building_version
    from hwbench.measure.carried import check_runtime
    from hwbench.specs import Target

    check_runtime(place, runtime)
    return Target(place.name, runtime, building_version(runtime), threads)


def table_predictor(
    workspace: Workspace,
    target: Target,
    precision: Precision,
    space: str,
    classes: int | None = None,
    allow_emulated: bool = False,
    filling: tuple[bool | None, str | None] = (None, None),
    *,
    listener: Listener = SILENT,
    of_day: Listener | None = None,
    variant: str = AUTO,
) -> tuple[AdditivePredictor, int]:
    """What predicts the networks of a space from the published table of a target, calibrated by whole networks of the
    space where there are enough (``with_own_networks``), and the number of classes that heads of the table have.

    Args:
        workspace: Holds tables, spaces and devices.
        target: What is predicted for.
        precision: Of the arithmetic.
        space: Name of the space.
        classes: Of the heads; default: those of the table.
        allow_emulated: Take a table that was taken under emulation.
        filling: Whether missing rows are interpolated (None: where the rows of the table were chosen, so that it
            tells of all of the space), and whose rows are taken for them (``TableSource``).
        listener: Hears what was filled in.
        of_day: Hears of which day the table speaks; default: ``listener``.
        variant: ``stream``: by the table of new frames.

    Raises:
        NotMeasured: There is no table; the command that makes it is named.
        InvalidValue: It was taken under emulation, or the other one was and it was not, or ``filling`` is refused by
            ``check_filling``; or there is no table, as the runtime is not carried to the device.
        InvalidFile: It does not validate, or ``classes`` is None and its heads are for several numbers of classes.
    """
    from hwbench.api.occasions import tell_day
    from hwbench.latency import AdditivePredictor, interpolated, transferred, with_own_networks
    from hwbench.latency.table_source import TableSource
    from hwbench.spaces import open_space

    interpolate, other = filling
    check_filling(interpolate, other, target.device, precision, target.threads)
    source = TableSource.parse(other).of(target, precision) if other else (target, precision)
    known = _published(workspace, *source, space, variant, classes)
    table = _published(workspace, target, precision, space, variant, classes) if other else known
    if known.emulated and not table.emulated:
        raise InvalidValue(
            f"--transfer-from: the table of {known.target} was taken under emulation, which says nothing of "
            f"{target.device!r}; name a table of a real device"
        )
    interpolate = table.adaptive and not other if interpolate is None else interpolate
    num_classes = classes or profiled_classes(known, space)
    staged = open_space(workspace, space, num_classes, variant)
    parts = list(staged.parts(precision, num_classes=num_classes))
    table = with_own_networks(table, parts, staged.size())
    if interpolate and any(part not in table for part in parts):
        table = interpolated(table, parts)
    elif other:
        table = transferred(known, table, parts)
    if table.how:
        lacking = [part for part in parts if not table.is_measured(part)]
        share = sum(part in table for part in lacking) / len(parts)
        listener.say(f"{share:.1%} of {len(parts)} rows of the space were not measured: {table.how}")
    moment = datetime.now(UTC)
    tell_day(table, moment, of_day or listener)
    predictor = AdditivePredictor.fit(
        table,
        space=space,
        emulated=allow_emulated,
        members=staged.size(),
        moment=moment,
        classes=num_classes,
    )
    return predictor, num_classes


def _published(
    workspace: Workspace, target: Target, precision: Precision, space: str, variant: str, classes: int | None
) -> LatencyTable:
    """``load_table``, which names the command that makes a table only where ``profile`` does not refuse it."""
    from hwbench.devices import load_device
    from hwbench.latency import load_table
    from hwbench.measure.carried import check_runtime

    try:
        return load_table(workspace, target, precision, space, variant, classes)
    except NotMeasured:
        with contextlib.suppress(UnknownName):  # tables may lie where no device file does
            check_runtime(load_device(workspace, target.device), target.runtime)
        raise


def profiled_classes(table: LatencyTable, space: str) -> int:
    """The number of classes that the heads of a table have.

    Raises:
        InvalidFile: There are none, or several: which are meant must be said.
    """
    from hwbench.latency import Role
    from hwbench.spaces.families.by_hand import is_of

    ends = [row.workload.blocks[-1] for row in table.rows(Role.BLOCK) if is_of(space, row.workload.blocks[-1])]
    found = sorted({block.out_channels for block in ends if block.role.gives_logits})
    if len(found) == 1:
        return found[0]
    of_table, command = f"the table of {table.target} in {table.precision}", table.command(space)
    if not found:
        raise InvalidFile(f"{of_table} has no head of {space} yet; measure the rest of its rows: {command}")
    raise InvalidFile(
        f"{of_table} has heads for these numbers of classes: {', '.join(map(str, found))}; "
        f"choose one with --classes, or measure: {command}"
    )


def measuring(
    workspace: Workspace,
    target: Target,
    runtime: str,
    builder: Builder | None = None,
    *,
    keep: Collection[Workload] | None = None,
    listener: Listener = SILENT,
) -> MeasureNetworks:
    """Measures whole networks on a device: built, timed, stored; what the store knows already is not repeated.

    Args:
        workspace: Holds device, store and build cache.
        target: What is measured on.
        runtime: Name of the runtime.
        builder: Builds, and goes on living; default: one of its own.
        keep: Measure all of it now, whatever is known, into a file of its own (``store_aside``), and then copy the rows
            of these into the store, where it has none. Default: what the store lacks is measured, and goes there; so is
            what it has from an occasion before that of the table, on which the device took another time; and a device
            that another process holds is waited for.
        listener: Hears progress and failures, and of a table that was measured under other conditions, as on another
            machine of that name.
    """
    checked: set[tuple[Precision, str]] = set()

    def measure(workloads: Sequence[Workload]) -> Sequence[Measurement]:
        from hwbench.api.campaigns import CampaignProgress, place_campaign, say_failures, store_aside
        from hwbench.api.occasions import of_another_speed
        from hwbench.api.other_conditions import tell_other_conditions
        from hwbench.devices import load_device
        from hwbench.measure.store import MeasurementStore
        from hwbench.measure.store_types import RowPurpose

        place = load_device(workspace, target.device)
        with (
            MeasurementStore(workspace.store) if keep is None else store_aside(workspace, target.device) as store,
            place_campaign(
                store,
                workspace,
                place,
                runtime=runtime,
                threads=target.threads,
                precisions={workload.precision for workload in workloads},
                builder=builder,
                waits=keep is None,
                listener=listener,
            ) as campaign,
        ):
            if campaign.target != target:
                raise HwbenchError(f"expected to measure on {target}, the device is {campaign.target}")
            forms = {(one.precision, STREAM if one.variant == STREAM else AUTO) for one in workloads}
            tell_other_conditions(workspace, campaign, forms - checked, listener)
            checked.update(forms)
            if keep is None and (again := of_another_speed(workspace, campaign, workloads)):
                campaign.reopen(again)
                was, they_are = ("was", "it is") if len(again) == 1 else ("were", "they are")
                listener.say(
                    f"{len(again)} of these networks {was} measured on another occasion than the table, when "
                    f"{target.device} was faster or slower; {they_are} measured anew"
                )
            result = replace(campaign, purpose=RowPurpose.CONFIRMATION).run(workloads, CampaignProgress(listener))
            if keep is not None:
                with MeasurementStore(workspace.store) as known:
                    known.take_over(store, keep)
        say_failures(result.failed, listener)
        return result.measurements

    return measure
