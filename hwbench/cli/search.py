"""``hwbench search``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.api.search import SearchRequest, search
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say
from hwbench.specs import ModelName
from hwbench.units import format_duration

if TYPE_CHECKING:
    from hwbench.studies.candidates import Candidate
    from hwbench.studies.study import SearchResult


def _run(request: SearchRequest, as_json: bool) -> None:
    with listening() as listener:
        result = search(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
    else:
        _print(result)
    # The only member of a space by hand is the model itself; no file resolves to code.
    say(f"next: hwbench train {request.space if ModelName.match(request.space) else f'{result.study}:best'}")


def _print(result: SearchResult) -> None:
    """The front with the best network, as a table."""
    front = {candidate.architecture: candidate for candidate in (result.best, *result.pareto)}
    best = result.best.architecture
    rows = [_cells(front[key], key == best) for key in sorted(front, key=lambda key: front[key].predicted_s)]
    title = f"{result.study}: {result.trials} trials within {format_duration(result.settings.budget_s)}"
    print_table(("", "score", "predicted", "measured", "architecture"), rows, title=title)


def _cells(candidate: Candidate, best: bool) -> tuple[str, ...]:
    measured = "-" if candidate.measured_s is None else format_duration(candidate.measured_s)
    predicted = format_duration(candidate.predicted_s)
    return "best" if best else "", f"{candidate.score:.4g}", predicted, measured, candidate.architecture


add_command(app, "search", SearchRequest, _run)
