"""``hwbench search``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from hwbench.api.reading import RGB
from hwbench.api.search import search
from hwbench.api.search_request import SearchRequest
from hwbench.api.train_request import RAISE
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say
from hwbench.cli.signals import GOES_ON
from hwbench.units import format_duration, format_share

if TYPE_CHECKING:
    from hwbench.studies.candidates import Candidate
    from hwbench.studies.race import RaceResult
    from hwbench.studies.search_result import SearchResult


def _run(request: SearchRequest, as_json: bool) -> None:
    with listening() as listener:
        result = search(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
    else:
        _print(result)
    form = _form(request, result)
    # The only member of a space by hand is the model itself; no file resolves to code.
    if result.front:
        best = {f"{result.study}:{p.budget_ms:.12g}ms": p.best for p in result.front if p.best is not None}
    else:
        best = {f"{result.study}:best": result.best}
    names = dict.fromkeys(result.named.get(one.space) or name for name, one in best.items())
    say(f"next: {' or '.join(f'hwbench train {name}{form}' for name in names)}")


def _form(request: SearchRequest, result: SearchResult) -> str:
    """What the best network is trained on, as what, and what follows of a stream."""
    from hwbench.reports.result import learned_data
    from hwbench.workspace import Workspace

    data = request.data or result.settings.data or learned_data(Workspace.find(), result.study, result.settings)
    words = f" --data {shlex.quote(data)}" if data else ""
    if request.modality != RGB:
        words += f" --modality {shlex.quote(request.modality)}"
    if request.on_error != RAISE:
        words += f" --on-error {request.on_error}"
    if not request.streaming:
        return words
    exported = f"hwbench export RUN/checkpoint.pt --streaming --precision {request.precision} --out RUN/stream"
    return f"{words} --causal --out RUN, then: {exported}"


def _print(result: SearchResult) -> None:
    """The answers, each as a table."""
    if result.front:
        _print_points(result)
    else:
        _print_pareto(result)
    if result.spaces:
        _print_spaces(result)
    races = {point.budget_ms: point.race for point in result.front} or {result.settings.budget_ms: result.race}
    for budget_ms, race in races.items():
        if race is not None and race.rounds:
            where = f" within {format_duration(budget_ms / 1e3)}" if len(races) > 1 else ""
            _print_race(f"race{where}: {_verdict(race)}", race)


def _print_points(result: SearchResult) -> None:
    """The best network within each budget."""
    settings, rows = result.settings, []
    for point in result.front:
        cells: tuple[str, ...] = ("", "", "", "", "none was measured within it")
        if point.best is not None:
            cells = _cells(settings.shown(point.best), settings.device)
        rows.append((settings.limit_text(point.budget_ms), *cells))
    title = f"{result.study}: {result.trials} trials, the best within each budget"
    print_table(("budget", "score", "predicted", "measured", "within", "architecture"), rows, title=title)


def _print_spaces(result: SearchResult) -> None:
    """What each space has within each budget; the winner's is marked."""
    points = [(point.budget_ms, point.best, point.spaces) for point in result.front]
    rows = [
        (
            format_duration(budget_ms / 1e3),
            "best" if best is not None and best.space == one.space else "",
            one.space,
            f"{one.feasible:.0f}" if one.feasible < 1e6 else f"{one.feasible:.2e}",
            format_share(one.share),
            str(one.trials),
            "-" if one.score is None else f"{result.settings.shown_score(one.score):.4g}",
        )
        for budget_ms, best, spaces in points or [(result.settings.budget_ms, result.best, result.spaces)]
        for one in spaces
    ]
    columns = ("budget", "", "space", "networks within", "share", "scored", "highest score")
    print_table(columns, rows, title=f"{result.study}: the spaces")


def _print_race(title: str, race: RaceResult) -> None:
    """Every finalist in the last round that it was in."""
    rows: dict[str, tuple[str, ...]] = {}
    for number, one in enumerate(race.rounds, start=1):
        for standing in one.standings:
            failed = standing.outcome == "failed"
            top1, loss = ("-", "-") if failed else (f"{standing.top1:.3f}", f"{standing.loss:.3f}")
            behind = "" if standing.behind is None else f"{standing.behind.low:+.3f} to {standing.behind.high:+.3f}"
            out = standing.note if failed else standing.outcome
            rows[standing.architecture] = (str(number), top1, loss, behind, out, standing.architecture)
    ordered = sorted(rows.values(), key=lambda row: -int(row[0]))
    print_table(("round", "top-1", "loss", "behind the leader by", "", "architecture"), ordered, title=title)


def _verdict(race: RaceResult) -> str:
    if race.fallback:
        return race.fallback
    if race.margin is None:
        return "the others of the last round could not be trained"
    return f"decided by {'evidence' if race.told_apart else 'the halving; the last two are not told apart'}"


def _print_pareto(result: SearchResult) -> None:
    """The front with the best network, as a table."""
    front = {one.architecture: result.settings.shown(one) for one in (result.best, *result.pareto)}
    best = result.best.architecture
    device, ordered = result.settings.device, sorted(front, key=lambda key: front[key].predicted_s)
    rows = [("best" if key == best else "", *_cells(front[key], device)) for key in ordered]
    title = f"{result.study}: {result.trials} trials within {result.settings.budgets_text()}"
    print_table(("", "score", "predicted", "measured", "within", "architecture"), rows, title=title)


def _cells(candidate: Candidate, device: str) -> tuple[str, ...]:
    """Latencies stand in the order of the devices; ``within`` is the probability to fit of what was not measured."""
    predicted = candidate.predicted(device)
    measured = candidate.measured(device)
    times = [format_duration(measured[name]) if name in measured else "-" for name in predicted]
    return (
        f"{candidate.score:.4g}",
        ", ".join(format_duration(seconds) for seconds in predicted.values()),
        ", ".join(times),
        "-" if candidate.chance is None else f"{candidate.chance:.0%}",
        candidate.architecture,
    )


add_command(app, "search", SearchRequest, _run, after=GOES_ON)
