"""The host side of ``hwbench.runtimes.model_server``: a deployed file as a function; its crash is an error."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from hwbench.errors import CheckFailed
from hwbench.interpreter import python_command, python_environment
from hwbench.runtimes.runners import FloatArray, describe_end


class ServedModel:
    """A loaded file: called with values of its input it gives its logits.

    Attributes:
        input_shape: (N·T, 3, H, W).
        output_shape: (N, classes).
    """

    def __init__(self, path: Path, process: subprocess.Popen[bytes], stderr: IO[bytes], timeout_s: float) -> None:
        self._path, self._process, self._stderr, self._timeout_s = path, process, stderr, timeout_s
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        line = self._stdout.readline()
        if not line.endswith(b"\n"):
            self._fail()
        header: dict[str, Any] = json.loads(line)
        if "error" in header:
            raise CheckFailed(f"{path.name} does not load and run on this machine: {header['error']}")
        self.input_shape: tuple[int, ...] = tuple(header["input"])
        self.output_shape: tuple[int, ...] = tuple(header["output"])

    def __call__(self, values: FloatArray) -> FloatArray:
        """Runs the file once.

        Raises:
            CheckFailed: The process died, failed or took too long.
        """
        if values.shape != self.input_shape:
            raise CheckFailed(f"{self._path.name}: takes an input of shape {self.input_shape}, got {values.shape}")
        size = 4 * int(np.prod(self.output_shape))
        try:
            self._stdin.write(np.ascontiguousarray(values, dtype=np.float32).tobytes())
            self._stdin.flush()
        except BrokenPipeError:
            self._fail()
        answer = self._stdout.read(size)
        if len(answer) != size:
            self._fail()
        return np.frombuffer(answer, dtype=np.float32).reshape(self.output_shape)

    def replay(self, clip: FloatArray) -> FloatArray:
        """The answer of a stream behind the last frame of a clip (T, 3, H, W); errors as of a call."""
        return self.answers(clip)[-1]

    def answers(self, clip: FloatArray) -> list[FloatArray]:
        """The answers (1, classes) of a stream behind each frame of a clip (T, 3, H, W); errors as of a call."""
        return [self(clip[frame : frame + 1]) for frame in range(len(clip))]

    def _fail(self) -> NoReturn:
        status = self._process.wait()
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace")
        if status == -signal.SIGALRM:
            how = f"took longer than {self._timeout_s:.0f} s"
        else:
            how = f"ended its process: {describe_end(status, said)}"
        raise CheckFailed(f"{self._path.name}: on this machine the file {how}")


@contextmanager
def served(path: Path, *, threads: int = 1, timeout_s: float = 120.0, window: int = 0) -> Iterator[ServedModel]:
    """Loads a file of any runtime in a process of its own, which ends with the block.

    Args:
        path: The file.
        threads: Threads of the engine.
        timeout_s: Limit for loading and for each execution.
        window: A stream begins anew after so many frames; 0: never.

    Raises:
        CheckFailed: It does not load or run, or kills its process.
    """
    words = [str(path.resolve()), str(threads), str(max(1, round(timeout_s))), str(window)]
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            python_command("hwbench.runtimes.model_server", *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=python_environment(),
        )
        try:
            yield ServedModel(path, process, stderr, timeout_s)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process, whatever it is doing, and closes its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
