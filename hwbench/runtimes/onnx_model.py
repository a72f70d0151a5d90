"""An ``.onnx`` file in ONNX Runtime on the processor, for the Python runner. Needs no torch."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, Operation, arrays, averaged
from hwbench.scratch import scratch_folder

_ERRORS_ONLY = 3
# Executions of a new session that are not told: the first plans memory, and caches and pages are cold in it.
_COLD_RUNS = 3


class OnnxModel:
    """A session with as many threads as asked for within an operation, and one operation at a time."""

    def __init__(self, path: str, options: Options) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise ModelFailure(
                "load", "onnxruntime is not installed; install it with: python -m pip install onnxruntime"
            ) from None
        self._path, self._threads, self._input_file = path, options.threads, options.input
        self._session = self._open(onnxruntime)
        self._shapes = {given.name: _fixed_shape(given) for given in self._session.get_inputs()}
        self._binding = self._session.io_binding()
        for made in self._session.get_outputs():
            self._binding.bind_output(made.name)

    def make_inputs(self) -> None:
        """Values of each input, from the file that is given or seeded."""
        self._inputs = arrays(list(self._shapes.values()), self._input_file)
        for name, values in zip(self._shapes, self._inputs, strict=True):
            self._binding.bind_cpu_input(name, values)

    def _open(self, onnxruntime: Any, profile_to: str = "") -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        options.log_severity_level = _ERRORS_ONLY
        if profile_to:
            options.enable_profiling, options.profile_file_prefix = True, profile_to
        return onnxruntime.InferenceSession(self._path, options, providers=["CPUExecutionProvider"])

    @staticmethod
    def load_engine(threads: int) -> None:
        """Imports ONNX Runtime."""
        importlib.import_module("onnxruntime")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._inputs[0].shape)

    def feed(self, values: npt.NDArray[np.float32]) -> None:
        self._inputs[0][...] = values.reshape(self.input_shape)

    def run(self) -> int:
        try:
            start = time.monotonic_ns()
            self._session.run_with_iobinding(self._binding)
            end = time.monotonic_ns()
        except Exception as error:  # the engine has a class of its own for every kind of failure
            raise ModelFailure("run", f"{type(error).__name__}: {error}") from error
        return max(end - start, 1)

    def output(self) -> npt.NDArray[np.float32]:
        value = self._binding.copy_outputs_to_cpu()[0]
        if value.dtype != np.float32:
            raise ModelFailure("run", "the output is not a float32 tensor")
        array: npt.NDArray[np.float32] = np.ascontiguousarray(value)
        return array

    def operations(self, runs: int) -> list[Operation]:
        import onnxruntime

        with scratch_folder() as folder:
            session = self._open(onnxruntime, os.path.join(folder, "trace"))
            values = {given.name: value for given, value in zip(session.get_inputs(), self._inputs, strict=True)}
            traced_ns = []
            for _ in range(_COLD_RUNS + runs):
                start = time.monotonic_ns()
                session.run(None, values)
                traced_ns.append(max(time.monotonic_ns() - start, 1))
            events = json.loads(Path(session.end_profiling()).read_text())
        self.traced_ns, times_ns = traced_ns[_COLD_RUNS:], _kernel_times_ns(events)
        return averaged(
            {name: times[len(times) * _COLD_RUNS // (_COLD_RUNS + runs) :] for name, times in times_ns.items()}
        )


def _fixed_shape(given: Any) -> list[int]:
    """The shape of an input.

    Raises:
        ModelFailure: It is not float32, its rank is unknown, or an axis is open or of size 0.
    """
    sizes = list(given.shape)
    # ONNX Runtime gives no sizes for an unknown rank, as for a single number.
    if given.type != "tensor(float)" or not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        shape = sizes or "without sizes"
        raise ModelFailure("load", f"input {given.name} is not float32 of a fixed shape: {given.type} {shape}")
    return sizes


def _kernel_times_ns(events: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Nanoseconds of each execution of a kernel, in order, by type and name of its node."""
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times[f"{event['args']['op_name']} {event['name'].removesuffix('_kernel_time')}"].append(1e3 * event["dur"])
    return times
