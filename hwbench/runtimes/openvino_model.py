"""An ``.ovz`` file in OpenVINO's plugin for processors, for the Python runner. Needs no torch."""

from __future__ import annotations

import time
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt

from hwbench.runtimes.openvino import GRAPH, PRECISION, WEIGHTS, engine
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, Operation, arrays, averaged
from hwbench.specs import Precision

_INSTALL = "openvino is not installed; install it with: python -m pip install 'hwbench[openvino]'"
# What OpenVINO calls the numbers that it computes in; in int8 what is not quantised is in fp32.
_HINTS = {Precision.FP32: "f32", Precision.FP16: "f16", Precision.BF16: "bf16", Precision.INT8: "f32"}


class OpenVinoModel:
    """A compiled model with one stream of as many threads as asked for, tuned for latency."""

    def __init__(self, path: str, options: Options) -> None:
        try:
            openvino = engine("openvino")
        except ImportError:
            raise ModelFailure("load", _INSTALL) from None
        graph, weights, precision = read_archive(path)
        core = openvino.Core()
        model = core.read_model(graph, openvino.Tensor(np.frombuffer(weights, np.uint8)))
        self._compiled = core.compile_model(model, "CPU", _settings(precision, options))
        self._require_type(precision)
        self._shapes, self._input_file = [_fixed_shape(given) for given in self._compiled.inputs], options.input
        self._request = self._compiled.create_infer_request()

    def make_inputs(self) -> None:
        """Values of each input, from the file that is given or seeded."""
        self._inputs = arrays(self._shapes, self._input_file)
        for index, values in enumerate(self._inputs):
            self._request.set_input_tensor(index, engine("openvino").Tensor(values, shared_memory=True))

    @staticmethod
    def load_engine(threads: int) -> None:
        """Imports OpenVINO."""
        engine("openvino")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._inputs[0].shape)

    def feed(self, values: npt.NDArray[np.float32]) -> None:
        self._inputs[0][...] = values.reshape(self.input_shape)

    def run(self) -> int:
        try:
            start = time.monotonic_ns()
            self._request.infer()
            end = time.monotonic_ns()
        except RuntimeError as error:
            raise ModelFailure("run", f"{type(error).__name__}: {error}") from error
        return max(end - start, 1)

    def output(self) -> npt.NDArray[np.float32]:
        value = self._request.get_output_tensor(0).data
        if value.dtype != np.float32:
            raise ModelFailure("run", "the output is not a float32 tensor")
        array: npt.NDArray[np.float32] = np.array(value)
        return array

    def operations(self, runs: int) -> list[Operation]:
        times: dict[str, list[float]] = {}
        for _ in range(runs):
            self.run()
            for event in self._request.profiling_info:
                if event.status == event.status.EXECUTED:
                    name = f"{event.node_type} {event.node_name}"
                    times.setdefault(name, []).append(event.real_time.total_seconds() * 1e9)
        return averaged(times)

    def _require_type(self, precision: Precision) -> None:
        computed = _words(self._compiled.get_property("INFERENCE_PRECISION_HINT"))
        if computed != _HINTS[precision]:
            raise ModelFailure(
                "load",
                f"OpenVINO does not compute in {precision} on this processor, it would in {computed}; choose another "
                "precision (--precision bf16, int8 or fp32)",
            )


def read_archive(path: str) -> tuple[bytes, bytes, Precision]:
    """Graph, weights and precision of a file.

    Raises:
        ModelFailure: It is no such archive.
    """
    try:
        with zipfile.ZipFile(path) as entries:
            graph, weights, word = (entries.read(name) for name in (GRAPH, WEIGHTS, PRECISION))
        return graph, weights, Precision(word.decode())
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ModelFailure(
            "load", f"expected an archive as hwbench export --runtime openvino writes it: {error}"
        ) from error


def _words(kind: Any) -> str:
    """A type of numbers as OpenVINO's settings call it: ``f32``, ``bf16``."""
    return str(kind.to_string())


def _settings(precision: Precision, options: Options) -> dict[str, Any]:
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": options.threads,
        "INFERENCE_PRECISION_HINT": _HINTS[precision],
        # The runner binds its process to the cores that it may use.
        "ENABLE_CPU_PINNING": False,
        "PERF_COUNT": options.profile,
    }


def _fixed_shape(given: Any) -> list[int]:
    """The shape of an input.

    Raises:
        ModelFailure: It is not float32, or an axis is open.
    """
    shape, kind = given.get_partial_shape(), _words(given.get_element_type())
    if shape.is_dynamic or kind != "f32":
        raise ModelFailure(
            "load",
            f"input {given.get_index()} is not float32 of a fixed shape: {kind} {shape}; "
            "export it again with hwbench export --runtime openvino",
        )
    return list(shape.to_shape())
