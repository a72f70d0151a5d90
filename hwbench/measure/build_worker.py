"""One build worker: reads requests as JSON lines on stdin, builds, answers with JSON lines on stdout.

Run as ``python -m hwbench.measure.build_worker RUNTIME [MODULE ...]`` by ``builder``, which may lose it at any time: a
lowering that aborts takes one workload with it and nothing else. The worker ends when its stdin closes.

A request may name models that a user wrote: the names, and the folders in which their modules are found, come from the
process that the user gave the names to, never from a file.

Answers: ``{"ready": true}`` once, then per request ``{"artifact": ...}`` or ``{"failure": reason}``; and
``{"fatal": reason, "kind": class}`` where not the workload but the installation or the workspace is the trouble.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from hwbench.runtimes.base import Runtime

# Table rows need the speed of int8, not its accuracy: one batch of noise gives every value a range.
CALIBRATION_BATCHES = 1


def main() -> None:
    """Serves requests until stdin closes."""
    answers = _take_stdout()
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    from hwbench.errors import HwbenchError, WorkspaceError
    from hwbench.workspace import writing

    try:
        runtime = _start(sys.argv[1], sys.argv[2:])
    except HwbenchError as error:
        _answer(answers, _fatal(error))
        return
    _answer(answers, {"ready": True})
    while True:
        request = requests.get()
        try:
            out = Path(request["folder"], request["name"] + runtime.capabilities.suffix)
            _load_models(request.get("models", ()), request.get("path", ()))
            with writing(out):
                _answer(answers, {"artifact": _build(runtime, request["workload"], out)})
        except WorkspaceError as error:
            _answer(answers, _fatal(error))
        except Exception as error:
            _answer(answers, {"failure": _in_words(error)})


def _start(name: str, modules: list[str]) -> Runtime:
    import torch

    torch.set_num_threads(1)
    for module in modules:
        importlib.import_module(module)
    importlib.import_module("hwbench.models")
    from hwbench.runtimes import get
    from hwbench.runtimes.base import version_of

    runtime = get(name)
    version_of(runtime)  # raises where it is not installed
    return runtime.for_tables()


def _load_models(named: Iterable[tuple[str, int | None]], path: Iterable[str] = ()) -> None:
    """Loads the models that the user named to the process that asks, as (name, number of classes).

    ``path`` is the import path of that process. Its folders come after our own: what is installed stays in front.
    """
    from hwbench.models import by_hand
    from hwbench.specs import ModelName

    sys.path += [folder for folder in path if folder not in sys.path]
    for text, num_classes in named:
        by_hand.load(ModelName.parse(text), num_classes)


def _build(runtime: Runtime, key: str, out: Path) -> dict[str, Any]:
    """Builds a workload with random weights; the same workload always gives the same weights and calibration data.

    int8 is calibrated with a batch of seeded normal noise: the ranges decide about no latency. What is no whole network
    is built as part of one (``Continued``) where a delegate takes the whole graph and plans its memory.
    """
    import torch

    from hwbench.measure.cache import artifact_to_json
    from hwbench.models import Continued, eager_workload, workload_module
    from hwbench.runtimes import ModuleForm
    from hwbench.runtimes.base import as_example
    from hwbench.specs import STREAM, Precision, Workload

    workload = Workload.parse(key)
    runtime.require_form(workload)
    torch.manual_seed(int(workload.sha256[:8], 16))
    original = runtime.capabilities.form(workload) is ModuleForm.ORIGINAL
    module, example = eager_workload(key) if original else workload_module(workload)
    whole = workload.blocks[-1].role.gives_logits or workload.variant == STREAM
    if runtime.capabilities.delegates and not whole:
        module = Continued(module)
    batches = CALIBRATION_BATCHES if workload.precision is Precision.INT8 else 0
    # Drawn in the example's order of axes in memory, from which the values of int8 files of before follow.
    shaped = example if isinstance(example, tuple) else (example,)
    calibration = [as_example(tuple(torch.randn_like(one) for one in shaped)) for _ in range(batches)]
    return artifact_to_json(runtime.build(module, example, workload, out, calibration))


def _fatal(error: Exception) -> dict[str, Any]:
    return {"fatal": str(error), "kind": type(error).__name__}


def _in_words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def _take_stdout() -> TextIO:
    """Keeps stdout for answers; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _answer(answers: TextIO, values: dict[str, Any]) -> None:
    answers.write(json.dumps(values) + "\n")
    answers.flush()


def _read_requests(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    os._exit(0)  # also in the middle of a build: the parent is gone


if __name__ == "__main__":
    main()
