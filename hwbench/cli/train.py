"""``hwbench train`` and ``hwbench test``: trained weights, and what they are worth."""

from __future__ import annotations

from hwbench.api.test import TestRequest, test
from hwbench.api.train import TrainRequest, train
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit


def _train(request: TrainRequest, as_json: bool) -> None:
    with listening() as listener:
        result = train(request, listener)
    emit(result.to_json(), as_json=as_json)


def _test(request: TestRequest, as_json: bool) -> None:
    with listening() as listener:
        result = test(request, listener)
    emit(result.to_json(), as_json=as_json)


add_command(app, "train", TrainRequest, _train)
add_command(app, "test", TestRequest, _test)
