"""``hwbench train`` and ``hwbench test``: trained weights, and what they are worth.

Under torchrun one process speaks: the first, or the one that ends the others by an error.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.test import TestRequest, test
from hwbench.api.train import TrainRequest, train
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit
from hwbench.cli.signals import GOES_ON
from hwbench.torchrun import SaidElsewhere, leads


def _train(request: TrainRequest, as_json: bool) -> None:
    with _speaking() as listener:
        result = train(request, listener)
    _emit(result.to_json(), as_json)


def _after(request: TrainRequest) -> str:
    """What goes on after an interruption: with ``--fresh`` what was trained would be deleted once more."""
    return f"without --fresh {GOES_ON}" if request.fresh else GOES_ON


def _test(request: TestRequest, as_json: bool) -> None:
    with _speaking() as listener:
        result = test(request, listener)
    _emit(result.to_json(), as_json)


@contextlib.contextmanager
def _speaking() -> Iterator[Listener]:
    """The listener of the first process; others hear nothing, and end silently where another has said why."""
    try:
        if leads():
            with listening() as listener:
                yield listener
        else:
            with contextlib.redirect_stdout(sys.stderr):
                yield SILENT
    except SaidElsewhere as error:
        raise SystemExit(error.exit_status) from None


def _emit(values: Mapping[str, Any], as_json: bool) -> None:
    if leads():
        emit(values, as_json=as_json)


add_command(app, "train", TrainRequest, _train, after=_after)
add_command(app, "test", TestRequest, _test)
