"""``hwbench profile``: measure what a search space needs on a device, and publish the latency table."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli.main import app as program
from hwbench.cli.output import Json, emit, say
from hwbench.errors import DeviceError, InvalidValue
from hwbench.specs.network import DEFAULT_CLASSES
from hwbench.units import parse_duration

if TYPE_CHECKING:
    from hwbench.devices import Conditions
    from hwbench.latency import SelfCheck
    from hwbench.measure.builder import Builder
    from hwbench.measure.campaign import CampaignResult
    from hwbench.spaces import StagedSpace
    from hwbench.specs import Precision, Workload
    from hwbench.workspace import Workspace

# Four networks give the one-ratio calibration a spread; more are for ``hwbench validate``.
DEFAULT_CALIBRATION = 4

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
    from hwbench.cli.tables import aa_values
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
    from hwbench.cli.campaigns import bars, place_campaign, say_failures
    from hwbench.cli.search import installed_target
    from hwbench.cli.tables import publish, publish_aa, published_aa, published_rows
    from hwbench.devices import load_device
    from hwbench.measure.store import MeasurementStore
    from hwbench.search.wanted import first_workloads, space_workloads
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
        workloads = [w for w in workloads if w.is_network]
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
        found = publish_aa(campaign, tables, again=bool(result.ok)) if aa else published_aa(tables)
    return result, tables, found


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
