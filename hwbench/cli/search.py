"""``hwbench search``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.api.search import search
from hwbench.api.search_request import SearchRequest
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
    device, ordered = result.settings.device, sorted(front, key=lambda key: front[key].predicted_s)
    rows = [_cells(front[key], key == best, device) for key in ordered]
    title = f"{result.study}: {result.trials} trials within {result.settings.budgets_text()}"
    print_table(("", "score", "predicted", "measured", "within", "architecture"), rows, title=title)


def _cells(candidate: Candidate, best: bool, device: str) -> tuple[str, ...]:
    """Latencies stand in the order of the devices; ``within`` is the probability to fit of what was not measured."""
    predicted = candidate.predicted(device)
    measured = candidate.measured(device)
    times = [format_duration(measured[name]) if name in measured else "-" for name in predicted]
    return (
        "best" if best else "",
        f"{candidate.score:.4g}",
        ", ".join(format_duration(seconds) for seconds in predicted.values()),
        ", ".join(times),
        "-" if candidate.chance is None else f"{candidate.chance:.0%}",
        candidate.architecture,
    )


add_command(app, "search", SearchRequest, _run)
