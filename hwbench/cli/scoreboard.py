"""``hwbench scoreboard``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hwbench.api.scoreboard import ScoreboardRequest, ScoreboardResult, scoreboard
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say
from hwbench.printable import counted

if TYPE_CHECKING:
    from hwbench.studies.ranking import Interval
    from hwbench.studies.scoreboard import Standing

_COLUMNS = ("evaluator", "tau", "95 %", "of ceiling", "best 5", "regret", "cost", "networks", "")


def _run(request: ScoreboardRequest, as_json: bool) -> None:
    with listening() as listener:
        result = scoreboard(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
        return
    print_table(_COLUMNS, [_cells(one) for one in result.board.standings], title=result.source)
    for note in _notes(result):
        say(note)


def _cells(one: Standing) -> tuple[str, ...]:
    return (
        one.evaluator,
        _shown(one.tau.value),
        _bounds(one.tau),
        "-" if one.share is None else f"{one.share:.0%}",
        _percent(one.precision),
        f"{_percent(one.regret)}",
        "-" if one.cost_s is None else f"{one.cost_s:.3g} s",
        str(one.networks),
        one.verdict,
    )


def _notes(result: ScoreboardResult) -> Iterator[str]:
    board = result.board
    drawn = f"; one drawn at random loses {_percent(board.chance_regret)} of top-1 to the best of its band"
    judged = counted(board.networks, "network")
    learned = f" ({board.others} more, trained less often, are only learned from)" if board.others else ""
    yield f"{judged}{learned}{'' if math.isnan(board.chance_regret) else drawn}"
    if board.ceiling is not None:
        yield f"ceiling, the same networks trained again: tau {_shown(board.ceiling.value)} ({_bounds(board.ceiling)})"
    if board.cost_s is not None:
        yield f"a whole training takes {board.cost_s:.0f} s"
    yield board.verdict


def _bounds(interval: Interval) -> str:
    return "-" if math.isnan(interval.low) else f"{interval.low:.2f} to {interval.high:.2f}"


def _shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1%}"


add_command(app, "scoreboard", ScoreboardRequest, _run)
