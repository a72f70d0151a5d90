"""A deployed file in its own process, fed by pipes: ``python -m hwbench.runtimes.model_server FILE THREADS LIMIT_S N``.

First one line of JSON on stdout: ``input`` and ``output``, the two shapes, or ``error``. Then, for each input on stdin
(raw float32 in the order of its axes), the logits on stdout likewise. Ends when stdin does. A limit for loading and for
each execution is kept by SIGALRM. A file that is a stream begins anew after every N inputs; 0: never.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import BinaryIO

import numpy as np

from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import Model, ModelFailure, check_stream, load_engine, load_model


def main() -> int:
    """Serves one file."""
    path, threads, limit_s, window = sys.argv[1], *map(int, sys.argv[2:5])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print goes to stderr
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process by closing stdin
    load_engine(path, threads)
    signal.alarm(limit_s)
    try:
        model = load_model(path, Options(check=path, threads=threads))
        if window:
            check_stream(model)
        model.run()
    except Exception as error:  # a bad file raises what it likes
        _header(answers, {"error": " ".join(str(error).split())[:500] or type(error).__name__})
        return 1
    signal.alarm(0)
    _header(answers, {"input": model.input_shape, "output": list(model.output().shape)})
    return _answer(model, answers, limit_s, window)


def _answer(model: Model, answers: BinaryIO, limit_s: int, window: int) -> int:
    size = 4 * int(np.prod(model.input_shape))
    begin_anew, count = getattr(model, "begin_anew", lambda: None), 0
    begin_anew()  # it has run once already
    while len(data := sys.stdin.buffer.read(size)) == size:
        signal.alarm(limit_s)
        if window and count % window == 0:
            begin_anew()
        count += 1
        try:
            model.feed(np.frombuffer(data, dtype=np.float32))
            model.run()
        except ModelFailure as failure:
            print(failure, file=sys.stderr)
            return 1
        signal.alarm(0)
        answers.write(model.output().tobytes())
        answers.flush()
    return 0


def _header(answers: BinaryIO, values: dict[str, object]) -> None:
    answers.write(json.dumps(values).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
