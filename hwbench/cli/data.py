"""``hwbench data``: what there is, whether it is fit for training, and what makes it faster to read."""

from __future__ import annotations

import typer

from hwbench.api.data.check import CheckDataRequest, CheckDataResult, check_data
from hwbench.api.data.listing import ListDataRequest, list_data
from hwbench.cli.app import app as program
from hwbench.cli.generated import add_command, add_group
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say
from hwbench.errors import CheckFailed
from hwbench.units import format_duration

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
add_command(app, "check", CheckDataRequest, _check)
