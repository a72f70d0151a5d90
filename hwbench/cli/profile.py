"""``hwbench profile``: measure what a search space needs on a device, and publish the latency table."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli.main import app as program
from hwbench.cli.output import Json, emit, say
from hwbench.errors import DeviceError, HwbenchError, InvalidValue
from hwbench.specs.network import DEFAULT_CLASSES
from hwbench.units import milliseconds, parse_duration

if TYPE_CHECKING:
    from hwbench.devices import Conditions, Device
    from hwbench.latency import LatencyRow, SelfCheck
    from hwbench.measure.builder import Builder
    from hwbench.measure.campaign import Campaign, CampaignResult
    from hwbench.measure.store import MeasurementStore
    from hwbench.spaces import StagedSpace
    from hwbench.specs import Measurement, Precision, Repeatability, Target, Timing, Workload
    from hwbench.workspace import Workspace

# Four networks give the one-ratio calibration a spread; more are for ``hwbench validate``.
DEFAULT_CALIBRATION = 4
CALIBRATION_SEED = 0
# Blocks that the others are interpolated from: at least 20 with a latency.
FIRST_BLOCKS = 24
# Chains that tell what boundaries cost where not every boundary of a space is measured.
CHAINS = 40

app = typer.Typer(invoke_without_command=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def profile(
    context: typer.Context,
    device: Annotated[
        str, typer.Option(help="Device: a folder of profiles/; several with commas are profiled at the same time.")
    ] = "local",
    space: Annotated[str, typer.Option(help="Search space: a file of search_spaces/.")] = "x3d-tiny",
    precision: Annotated[str, typer.Option(help="fp32, int8, or both with a comma.")] = "fp32,int8",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the measured process.")] = 1,
    runtime: Annotated[str, typer.Option(help="executorch, onnx, torch or torchscript.")] = "executorch",
    limit: Annotated[int | None, typer.Option(min=1, help="Measure at most this many missing rows.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help='Latency budget such as "12 ms": measure only what networks within it use, the most used first.'
        ),
    ] = None,
    classes: Annotated[int, typer.Option(min=1, help="Classes of the networks' heads.")] = DEFAULT_CLASSES,
    calibrate: Annotated[int, typer.Option(min=0, help="Whole networks to calibrate with.")] = DEFAULT_CALIBRATION,
    networks_only: Annotated[
        bool, typer.Option("--networks-only", help="Measure only these networks: enough for --transfer-from.")
    ] = False,
    processes: Annotated[int | None, typer.Option(min=1, help="Build processes; default: what fits.")] = None,
    retry: Annotated[bool, typer.Option(help="Measure failed rows again.")] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Measure again what is measured; if interrupted, go on without this option.")
    ] = False,
    variants: Annotated[
        str, typer.Option(help="Also measure these layouts of convolutions over time: names with commas, or all.")
    ] = "",
    conditions: Annotated[
        str | None,
        typer.Option(help="stock leaves the device as it is, controlled holds its clocks and more; default: its file."),
    ] = None,
    aa: Annotated[bool, typer.Option("--aa/--no-aa", help="Run the A/A test of the device at the end.")] = True,
    as_json: Json = False,
) -> None:
    """Measure the blocks of a search space on a device and publish the latency table; diff compares two tables.

    Interrupted at any moment, the same command goes on where it stopped.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    from hwbench.workspace import Workspace

    started = time.monotonic()
    held = parse_conditions(conditions)
    budget_s = None if budget is None else parse_duration(budget, name="--budget")
    if budget is not None and networks_only:
        raise InvalidValue("--budget and --networks-only do not go together: whole networks are no rows of a search")
    workspace = Workspace.find()
    if "," in device:
        rest: dict[str, object] = {"space": space, "precision": precision, "threads": threads, "runtime": runtime}
        rest |= {"limit": limit, "budget": budget, "classes": classes, "calibrate": calibrate, "processes": processes}
        rest |= {"networks-only": networks_only, "anew": anew}
        rest |= {"variants": variants or None, "retry": retry, "conditions": conditions, "no-aa": not aa}
        _several(workspace, device, rest, as_json)
        return
    result, tables, found = profile_space(
        workspace,
        device,
        space,
        parse_precisions(precision),
        runtime=runtime,
        threads=threads,
        limit=limit,
        budget_s=budget_s,
        classes=classes,
        calibrate=calibrate,
        networks_only=networks_only,
        processes=processes,
        retry=retry,
        anew=anew,
        variants=parse_variants(variants),
        conditions=held,
        aa=aa,
    )
    values = _summary(workspace, device, result, tables, time.monotonic() - started)
    emit({**values, "aa": found and {**aa_values(found.found), "made_on": found.made_on}}, as_json=as_json)


def _refuse_options(context: typer.Context) -> None:
    """Options before a subcommand would do nothing."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            command = f"hwbench profile {context.invoked_subcommand}"
            raise InvalidValue(
                f"{parameter.opts[0]} does not go with {command}; its own options come last: {command} --help"
            )


def _several(workspace: Workspace, names: str, options: dict[str, object], as_json: bool) -> None:
    """Profiles every named device in a process of its own; prints what each says, and exits as the worst of them."""
    from hwbench.cli.several import profile_each
    from hwbench.devices import load_device

    devices = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in devices:
        load_device(workspace, name)
    arguments: list[str] = []
    for key, value in options.items():
        if value is True:
            arguments += [f"--{key}"]
        elif value is not None and value is not False:
            arguments += [f"--{key}", str(value)]
    results, status = profile_each(devices, arguments)
    if as_json:
        emit({"devices": results}, as_json=True)
    else:
        for result in results:
            emit(result, as_json=False, title=result["device"])
    if status:
        raise typer.Exit(status)


def profile_space(
    workspace: Workspace,
    device: str,
    space: str,
    precisions: Sequence[Precision],
    *,
    runtime: str = "executorch",
    threads: int = 1,
    limit: int | None = None,
    budget_s: float | None = None,
    classes: int = DEFAULT_CLASSES,
    calibrate: int = DEFAULT_CALIBRATION,
    networks_only: bool = False,
    processes: int | None = None,
    retry: bool = False,
    anew: bool = False,
    variants: Sequence[str] = (),
    conditions: Conditions | None = None,
    aa: bool = True,
    builder: Builder | None = None,
) -> tuple[CampaignResult, list[Path], SelfCheck | None]:
    """Measures what is missing of a space and publishes a table for each precision; bars and failures go to stderr.

    Args:
        workspace: Holds the space, the device, the store and the tables.
        device: Name of the device.
        space: Name of the space.
        precisions: One table each.
        runtime: Name of the runtime.
        threads: Threads of the measured process.
        limit: Measure at most so many missing rows.
        budget_s: Measure only blocks that networks within this budget may have, in seconds; default: all of the space.
        classes: Classes of the networks' heads.
        calibrate: Whole networks to calibrate with.
        networks_only: Measure these alone.
        processes: Build processes; default: what fits.
        retry: Measure failed rows again.
        anew: Measure again what is measured: the first ``limit`` rows, or all.
        variants: Layouts whose rows are measured beside those of the built-in choice.
        conditions: Whether the knobs of the device are held; default: what the device file says.
        aa: Run the A/A test at the end where something was measured, and publish it with the tables.
        builder: Builds, and goes on living; default: one of its own.

    Returns:
        What was measured, the tables, and the A/A test that stands in them.

    Raises:
        UnknownName: No such device, space or runtime.
        InvalidFile: A file of the workspace does not validate.
        DeviceError: The device does not answer.
        InfeasibleBudget: No network of the space is within the budget.
    """
    from hwbench.cli.campaigns import bars, say_failures
    from hwbench.cli.search import installed_target
    from hwbench.devices import load_device
    from hwbench.measure.store import MeasurementStore
    from hwbench.spaces import load_space

    place = load_device(workspace, device)
    place = replace(place, conditions=conditions or place.conditions)
    staged = load_space(workspace, space)
    for one in precisions:  # a damaged table is better known now than after an hour
        published_rows(workspace, installed_target(device, runtime, threads), one)
    if budget_s is None:
        workloads = [w for one in precisions for w in space_workloads(staged, one, classes, calibrate, variants)]
    else:
        workloads = [w for one in precisions for w in first_workloads(staged, one, classes, calibrate)]
    if networks_only:
        workloads = [w for w in workloads if len(w.blocks) > 1 and w.blocks[-1].kind == "head"]
    with (
        MeasurementStore(workspace.store) as store,
        place_campaign(
            store,
            workspace,
            place,
            runtime=runtime,
            threads=threads,
            processes=processes,
            retry=retry,
            builder=builder,
        ) as campaign,
    ):
        if anew:
            count = campaign.reopen(workloads[:limit])
            say(f"{count} measured rows are measured again; interrupted, go on without --anew")
        try:
            measured = len(campaign.missing(workloads)[:limit])
            with bars() as watch:
                result = campaign.run(workloads, watch, limit=limit)
            left = None if limit is None else limit - measured
            if budget_s is not None and left != 0:
                paths = [publish(workspace, campaign, one) for one in precisions]
                wanted = _within_budget(staged, paths, classes, budget_s, variants)
                rest = [w for w in wanted if w not in set(workloads)]
                if anew:
                    campaign.reopen(rest[:left])
                with bars() as watch:
                    result = result.plus(campaign.run(rest, watch, limit=left))
        except DeviceError:
            for one in precisions:  # what was measured until then is a table too
                publish(workspace, campaign, one)
            raise
        tables = [publish(workspace, campaign, one) for one in precisions]
        say_failures(result.failed)
        found = publish_aa(campaign, tables, again=bool(result.ok)) if aa else _published_aa(tables)
    return result, tables, found


@contextmanager
def place_campaign(
    store: MeasurementStore,
    workspace: Workspace,
    device: Device,
    *,
    runtime: str = "executorch",
    threads: int | None = None,
    processes: int | None = None,
    retry: bool = False,
    timing: Timing | None = None,
    builder: Builder | None = None,
) -> Iterator[Campaign]:
    """A campaign on a device of a workspace; talk about long steps goes to stderr.

    Args:
        store: Where the sessions go.
        workspace: Holds the build cache.
        device: Where to measure.
        runtime: Name of the runtime.
        threads: Threads of the engine; default: what the device file says.
        processes: Build processes; default: what fits.
        retry: Failed rows are measured again, all of them and not only those of a lost device.
        timing: Protocol of the rows; default: ``Timing()``.
        builder: Builds, and goes on living; default: one of its own.
    """
    from hwbench.measure.on_device import campaign_on
    from hwbench.specs import Outcome

    again = [outcome for outcome in Outcome if outcome is not Outcome.OK] if retry else [Outcome.LOST]
    with campaign_on(
        device,
        store=store,
        cache_dir=workspace.cache,
        runtime=runtime,
        threads=threads,
        timing=timing,
        processes=processes,
        builder=builder,
        retry=again,
        report=say,
    ) as campaign:
        yield campaign


def parse_precisions(text: str) -> list[Precision]:
    """Reads ``fp32,int8``: each at most once, in the order given.

    Raises:
        InvalidValue: Empty, or something else.
    """
    from hwbench.specs import Precision

    found = list(dict.fromkeys(Precision.parse(part.strip()) for part in text.split(",") if part.strip()))
    if not found:
        raise InvalidValue(f'--precision: expected fp32, int8 or "fp32,int8", got {text!r}')
    return found


def parse_conditions(text: str | None) -> Conditions | None:
    """Reads ``stock`` or ``controlled``; None where nothing was said.

    Raises:
        InvalidValue: Something else.
    """
    from hwbench.devices import Conditions

    if text is None:
        return None
    if text not in tuple(Conditions):
        raise InvalidValue(f"--conditions: expected {' or '.join(Conditions)}, got {text!r}")
    return Conditions(text)


def parse_variants(text: str) -> list[str]:
    """Reads ``one-hot,segments`` or ``all``; nothing for an empty text.

    Raises:
        UnknownName: No such variant.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        return []
    from hwbench.blocks import variants

    if names == ["all"]:
        return list(variants.names())
    for name in names:
        variants.get(name)
    return list(dict.fromkeys(names))


def space_workloads(
    space: StagedSpace, precision: Precision, classes: int, calibrate: int, variants: Sequence[str] = ()
) -> list[Workload]:
    """What a table of a space consists of: blocks, chains for the boundaries, networks to calibrate with, and blocks in
    other layouts.

    The blocks of the calibration networks come first and then these networks, so that a campaign with a limit gives a
    table that predicts at least the networks like them.
    """
    from hwbench.latency import context_chains, variant_rows
    from hwbench.search.wanted import by_use

    parts = by_use(space, precision, classes)
    first, whole = _to_calibrate(space, precision, classes, calibrate)
    return list(dict.fromkeys([*first, *context_chains(parts), *whole, *parts, *variant_rows(parts, variants)]))


def first_workloads(space: StagedSpace, precision: Precision, classes: int, calibrate: int) -> list[Workload]:
    """What tells which networks of a space are within a budget, before its blocks are measured.

    That is the calibration networks with their blocks, and chains spread over the sizes of what lies between blocks,
    with theirs; and so many blocks that the others can be interpolated.
    """
    from hwbench.latency import context_chains, spread_chains
    from hwbench.search.wanted import by_use

    first, whole = _to_calibrate(space, precision, classes, calibrate)
    parts = by_use(space, precision, classes)
    chains = spread_chains(context_chains(parts), CHAINS)
    blocks = list(dict.fromkeys([*first, *(part for chain in chains for part in chain.parts())]))
    lacking = max(FIRST_BLOCKS - len(blocks), 0)
    blocks += [part for part in parts if part not in set(blocks)][:lacking]
    return [*blocks, *whole, *chains]


def _to_calibrate(
    space: StagedSpace, precision: Precision, classes: int, calibrate: int
) -> tuple[list[Workload], list[Workload]]:
    """The blocks of the calibration networks, and these networks."""
    from hwbench.latency import calibration_networks

    networks = calibration_networks(space, calibrate, CALIBRATION_SEED, classes) if calibrate else []
    whole = [network.workload(precision) for network in networks]
    return [part for workload in whole for part in workload.parts()], whole


def _within_budget(
    space: StagedSpace, tables: Sequence[Path], classes: int, budget_s: float, variants: Sequence[str]
) -> list[Workload]:
    """What to measure by the tables so far; the precisions take turns."""
    from hwbench.latency import LatencyTable, variant_rows
    from hwbench.search.wanted import within_budget

    found = []
    for path in tables:
        table = LatencyTable.read(path)
        parts = within_budget(space, table, classes, budget_s)
        say(f"{table.precision}: {len(parts)} blocks are of use within the budget")
        found.append([*parts, *variant_rows(parts, variants)])
    turns = itertools.zip_longest(*found)
    return [workload for turn in turns for workload in turn if workload is not None]


def publish(workspace: Workspace, campaign: Campaign, precision: Precision) -> Path:
    """Writes the table of the campaign's target from the store, merged with the rows published before.

    A published row stays where the store knows nothing about its workload and it was taken under the same conditions.

    Raises:
        InvalidFile: The table that is there is damaged; nothing measured is lost.
        WorkspaceError: It cannot be written.
    """
    from hwbench.latency import LatencyTable, table_path

    path = table_path(workspace.root, campaign.target, precision)
    rows = {row.workload: row for row in _stored_rows(campaign, precision)}
    known = set(campaign.store.workloads(campaign.target))
    published = LatencyTable.read(path, target=campaign.target, precision=precision) if path.exists() else None
    old = list(published or ())
    kept = [row for row in old if row.workload not in known and row.conditions == campaign.fingerprint]
    dropped = [row for row in old if row.workload not in rows and row not in kept]
    if dropped:
        say(
            f"{path.name}: {len(dropped)} rows of an earlier version or of other conditions are left out; "
            "the command that made them measures them again"
        )
    table = LatencyTable(campaign.target, precision, [*rows.values(), *kept], emulated=campaign.emulated)
    if published is not None and published.conditions == table.conditions:
        table = table.with_aa(published.aa)
    table.write(path)
    return path


def publish_aa(campaign: Campaign, tables: Sequence[Path], *, again: bool) -> SelfCheck | None:
    """Runs the A/A test of the campaign's device and writes what it finds into the tables.

    A test that fails leaves the tables as they are, and is told.

    Args:
        campaign: Still open, so that device and conditions are those of the rows.
        tables: Published just now.
        again: Also where every table has one.

    Returns:
        What stands in the first table afterwards.
    """
    from hwbench.latency import LatencyTable, SelfCheck

    read = {path: LatencyTable.read(path) for path in tables}
    if campaign.repeat is not None and (again or any(table.aa is None for table in read.values())):
        try:
            found = SelfCheck(campaign.repeat(), datetime.now(UTC).date().isoformat())
        except HwbenchError as error:
            say(f"A/A test: {error}")
        else:
            say(f"A/A test: {found.found}")
            for path, table in read.items():
                table.with_aa(found).write(path)
    return _published_aa(tables)


def _published_aa(tables: Sequence[Path]) -> SelfCheck | None:
    from hwbench.latency import LatencyTable

    return LatencyTable.read(tables[0]).aa


def aa_values(found: Repeatability) -> dict[str, Any]:
    """An A/A test as ``--json`` prints it."""
    return {
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "pairs": found.pairs,
        "median_ms": milliseconds(found.median_s),
        "ok": found.ok,
    }


def published_rows(workspace: Workspace, target: Target, precision: Precision) -> list[LatencyRow]:
    """The rows of the table as it lies in the workspace; none where there is no table.

    Raises:
        InvalidFile: It does not validate.
    """
    from hwbench.latency import LatencyTable, table_path

    path = table_path(workspace.root, target, precision)
    if not path.exists():
        return []
    return list(LatencyTable.read(path, target=target, precision=precision))


def _stored_rows(campaign: Campaign, precision: Precision) -> Iterable[LatencyRow]:
    """The best row of each workload: measured before failed, then by the campaign's protocol, then the newest."""
    from hwbench.specs import Outcome

    best: dict[Workload, tuple[tuple[bool, bool], LatencyRow]] = {}
    for stored in campaign.store.rows(campaign.target, campaign.conditions):
        one = stored.measurement
        if one.workload.precision is not precision or stored.build != campaign.build_key(one.workload):
            continue
        row = latency_row(one, stored.finished_at[:10], campaign.fingerprint)
        rank = (one.outcome is Outcome.OK, one.timing == campaign.timing)
        if one.workload not in best or rank >= best[one.workload][0]:
            best[one.workload] = (rank, row)
    return [row for _, row in best.values()]


def latency_row(one: Measurement, measured_on: str, conditions: str) -> LatencyRow:
    """A measurement as the row of a table, with its date (UTC) and the digest of its conditions."""
    from hwbench.latency import LatencyRow, Role
    from hwbench.specs import Outcome

    role = Role.BLOCK
    if len(one.workload.blocks) > 1:
        role = Role.NETWORK if one.workload.blocks[-1].kind == "head" else Role.CHAIN
    stats = one.stats if one.outcome is Outcome.OK else None
    return LatencyRow(role, one.workload, one.outcome, stats, measured_on, conditions, one.reason)


def _summary(
    workspace: Workspace, device: str, result: CampaignResult, tables: Sequence[Path], seconds: float
) -> dict[str, Any]:
    names = [str(path.relative_to(workspace.root)) for path in tables]
    return {
        "device": device,
        "target": result.target.key,
        "ok": len(result.ok),
        "failed": len(result.failed),
        "skipped": len(result.skipped),
        "table": names[0],
        "tables": names,
        "seconds": round(seconds, 1),
    }


program.add_typer(app, name="profile")
