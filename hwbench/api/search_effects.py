"""Options of a search that would change nothing: refused, where they were certainly asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.api.requests import changed
from hwbench.api.score_plan import TRAINED_FINALISTS, WITH_DATA
from hwbench.api.search_request import SUPERNET
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwbench.api.search_request import SearchRequest

_OF_TRAININGS = ("time", "epochs", "frames_share", "resolution_share")
_OF_RACES = ("finalist_epochs", "finalist_score")


def check_effects(request: SearchRequest) -> None:
    """Refuses options about trainings where there are none. An option with its default value may not have been typed.

    An evaluator of another package may train with what a study offers it, as long as it is asked for.

    Args:
        request: With the evaluator of the study, where it goes on.

    Raises:
        InvalidValue: Names the options, and what they go with.
    """
    evaluator = request.plan.evaluator
    typed = changed(request, *_OF_TRAININGS)
    if typed and not (request.trains or request.plan.of_others):
        how = "trains all networks at once, for --supernet-epochs" if evaluator == SUPERNET else "trains nothing"
        raise InvalidValue(
            f"{', '.join(typed)}: evaluator {evaluator!r} {how}; leave {_it(typed)} out, or take --evaluator "
            f"{WITH_DATA}"
        )
    typed = changed(request, "supernet_epochs")
    if typed and evaluator != SUPERNET:
        raise InvalidValue(f"{typed[0]} goes with --evaluator {SUPERNET}, got --evaluator {evaluator}; leave it out")
    if request.startup is not None and request.sampler == "random":
        raise InvalidValue("--startup: sampler 'random' draws all networks; leave it out, or take --sampler thompson")
    typed = changed(request, *_OF_RACES)
    if typed and not request.plan.finalists:
        raise InvalidValue(
            f"{', '.join(typed)}: no networks race; leave {_it(typed)} out, or give --finalists {TRAINED_FINALISTS}"
        )


def _it(options: Sequence[str]) -> str:
    return "it" if len(options) == 1 else "them"
