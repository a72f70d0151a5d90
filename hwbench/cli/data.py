"""``hwbench data``: what there is, whether it is fit for training, and what makes it faster to read."""

from __future__ import annotations

import shlex

import typer

from hwbench.api.data.bench import BenchDataRequest, bench_data
from hwbench.api.data.check import CheckDataRequest, CheckDataResult, check_data
from hwbench.api.data.listing import ListDataRequest, list_data
from hwbench.api.data.prepare import PrepareDataRequest, prepare_data
from hwbench.api.data.show import ShowDataRequest, show_data
from hwbench.cli.app import app as program
from hwbench.cli.generated import add_command, add_group, without
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say
from hwbench.cli.signals import GOES_ON
from hwbench.errors import CheckFailed
from hwbench.units import format_bytes, format_duration

# Lines of one kind that a person reads; --json has all.
_MOST_LINES = 20
_TITLES = {"reader": "layouts, as READER:PATH", "synthetic": "made here", "prepared": "prepared"}


def _list(request: ListDataRequest, as_json: bool) -> None:
    with listening() as listener:
        result = list_data(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
        return
    for kind in dict.fromkeys(one.kind for one in result.data):
        rows = [
            (one.name, f"{one.description} Options: {', '.join(one.options)}." if one.options else one.description)
            for one in result.data
            if one.kind == kind
        ]
        print_table(("", ""), rows, title=_TITLES[kind], header=False)


def _check(request: CheckDataRequest, as_json: bool) -> None:
    with listening() as listener:
        result = check_data(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
    else:
        _print_findings(result)
    for file in result.lists:
        say(f"wrote {file}")
    if not result.ok:
        raise typer.Exit(CheckFailed.exit_status)


def _print_findings(result: CheckDataResult) -> None:
    for kind, count in result.counts().items():
        findings = [finding for finding in result.findings if finding.kind == kind]
        rows = [(one.video, one.cause + (f" [{one.row}]" if one.row else "")) for one in findings[:_MOST_LINES]]
        if count > _MOST_LINES:
            rows.append((f"and {count - _MOST_LINES} more", "all of them: --json"))
        print_table(("", ""), rows, title=f"{kind} ({count}): {findings[0].meaning}", header=False)
    counts = {
        "videos": _numbers(result.videos),
        "fit": _numbers(result.clean),
        "classes": str(result.classes),
        "length": format_duration(result.duration_s),
        "codecs": _numbers(result.codecs),
        "sizes": _numbers(dict(list(result.sizes.items())[:5])),
    }
    print_table(("", ""), list(counts.items()), header=False)


def _prepare(request: PrepareDataRequest, as_json: bool) -> None:
    with listening() as listener:
        result = prepare_data(request, listener)
    size = f"{format_bytes(result.bytes)} of {format_bytes(result.original_bytes)}"
    table = {**result.to_json(), "videos": _numbers(result.videos), "bytes": size, "failed": len(result.failed)}
    emit(result.to_json() if as_json else without(table, "original_bytes", "notes"), as_json=as_json)
    if not result.ok:
        raise typer.Exit(CheckFailed.exit_status)
    say(f"next: hwbench train ARCHITECTURE --data {shlex.quote(str(result.out))}")


def _bench(request: BenchDataRequest, as_json: bool) -> None:
    from hwbench.data.load_timing import STAGES

    with listening() as listener:
        result = bench_data(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
        return
    rows = [(one.decoder, str(one.workers), one.fault or f"{one.clips_per_s:.1f}") for one in result.rates]
    print_table(("decoder", "workers", "clips/s"), rows, title="clips of {} x {} x {}".format(*result.clip))
    values = result.to_json()
    stages = [
        (meaning, f"{values['stage_ms'][stage]:.2f}", f"{values['stages'][stage]:.0%}")
        for stage, meaning in STAGES.items()
    ]
    print_table(("stage", "ms a clip", "share"), stages, title="in one process, each file opened anew")


def _show(request: ShowDataRequest, as_json: bool) -> None:
    with listening() as listener:
        result = show_data(request, listener)
    emit(result.to_json(), as_json=as_json)
    say(f"open {result.page} in a browser")


def _numbers(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


app = add_group(
    program,
    "data",
    ListDataRequest,
    _list,
    help="List what --data takes; subcommands check a data set, prepare it, time how it is read, and show it.",
)
add_command(app, "list", ListDataRequest, _list)
add_command(app, "check", CheckDataRequest, _check, after=GOES_ON)
add_command(app, "prepare", PrepareDataRequest, _prepare, after=GOES_ON)
add_command(app, "bench", BenchDataRequest, _bench)
add_command(app, "show", ShowDataRequest, _show)
