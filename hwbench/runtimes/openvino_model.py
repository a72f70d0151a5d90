"""An ``.ovz`` file in OpenVINO's plugin for processors, for the Python runner. Needs no torch."""

from __future__ import annotations

import itertools
import time
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt

from hwbench.runtimes.openvino import GRAPH, PRECISION, WEIGHTS, engine
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, Operation, arrays, middle_mean
from hwbench.specs import Precision

_INSTALL = "openvino is not installed; install it with: python -m pip install 'hwbench[openvino]'"
# What OpenVINO calls the numbers that it computes in; in int8 what is not quantised is in fp32.
_HINTS = {Precision.FP32: "f32", Precision.FP16: "f16", Precision.BF16: "bf16", Precision.INT8: "f32"}
# How often the model is compiled anew to be traced, and the seconds that all of it may take; at least once it is. What
# disturbs an operation in one of five is not told.
_TRACED_MODELS, _COMPILING_S = 5, 10.0
# Executions of a model compiled anew that are not told, or as many as are: the first touches its memory, and caches and
# pages are cold in it.
_COLD_RUNS = 3
# Reading what the engine counted takes as long as a small network, and its caches: such a one is read at the end alone.
_READ_EACH_NS = 1_000_000
# An operation of so many microseconds for each execution so far is told apart from one execution to the next.
_COARSE = 4

# Microseconds of an operation by the number of executions since its model was compiled: their mean, rounded down. The
# engine tells those of no single execution, of which it counts whole microseconds.
Averages = dict[int, int]


class OpenVinoModel:
    """A compiled model with one stream of as many threads as asked for, tuned for latency."""

    def __init__(self, path: str, options: Options) -> None:
        try:
            openvino = engine("openvino")
        except ImportError:
            raise ModelFailure("load", _INSTALL) from None
        self._path, self._options = path, options
        start = time.monotonic()
        self._compiled, precision = _compiled(openvino, path, options)
        self._compiling_s = time.monotonic() - start
        self._require_type(precision)
        self._shapes, self._input_file = [_fixed_shape(given) for given in self._compiled.inputs], options.input
        self._request = self._compiled.create_infer_request()

    def make_inputs(self) -> None:
        """Values of each input, from the file that is given or seeded."""
        self._inputs = arrays(self._shapes, self._input_file)
        self._bind(self._request)

    def _bind(self, request: Any) -> None:
        for index, values in enumerate(self._inputs):
            request.set_input_tensor(index, engine("openvino").Tensor(values, shared_memory=True))

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
        return _infer(self._request)

    def output(self) -> npt.NDArray[np.float32]:
        value = self._request.get_output_tensor(0).data
        if value.dtype != np.float32:
            raise ModelFailure("run", "the output is not a float32 tensor")
        array: npt.NDArray[np.float32] = np.array(value)
        return array

    def operations(self, runs: int) -> list[Operation]:
        self.traced_ns: list[int] = []
        models = min(_TRACED_MODELS, max(int(_COMPILING_S / self._compiling_s), 1), runs)
        cold = min(_COLD_RUNS, runs // models)
        traced = [self._traced(cold, runs // models + (index < runs % models)) for index in range(models)]
        rows = zip(*traced, strict=True)  # of one operation in all models: its order stays, names count on
        return [
            (row[0][0], 1e3 * middle_mean([us for _, averages in row for us in durations_us(averages, cold)]), runs)
            for row in rows
            if 2 * sum(any(averages.values()) for _, averages in row) > models
        ]

    def _traced(self, cold: int, runs: int) -> list[tuple[str, Averages]]:
        """Name and averages of each operation of a model compiled anew, with so many executions behind cold ones."""
        compiled, _ = _compiled(engine("openvino"), self._path, self._options, traced=True)
        request, last = compiled.create_infer_request(), cold + runs
        self._bind(request)
        events: dict[int, list[tuple[str, int]]] = {}
        for number in range(1, last + 1):
            took_ns = _infer(request)
            if number <= cold or number == last or took_ns >= _READ_EACH_NS:
                events[number] = [
                    (f"{event.node_type} {event.node_name}", round(event.real_time.total_seconds() * 1e6))
                    for event in request.profiling_info
                ]
            if number > cold:
                self.traced_ns.append(took_ns)
        return [
            (name, {number: at[index][1] for number, at in events.items()})
            for index, (name, _) in enumerate(events[last])
        ]

    def _require_type(self, precision: Precision) -> None:
        computed = _words(self._compiled.get_property("INFERENCE_PRECISION_HINT"))
        if computed != _HINTS[precision]:
            raise ModelFailure(
                "load",
                f"OpenVINO does not compute in {precision} on this processor, it would in {computed}; choose another "
                "precision (--precision bf16, int8 or fp32)",
            )


def durations_us(averages: Averages, cold: int) -> list[float]:
    """Microseconds of the executions of an operation behind the first ``cold`` ones.

    They are the differences of two sums, each of which an average tells up to a microsecond for every execution so far.
    Of an operation that this is too coarse for there is one value, the mean of all of them.

    Args:
        averages: By ascending numbers of executions; that of ``cold`` and a later one are among them.
        cold: How many executions are left out.
    """
    sums = [(number, us) for number, us in sums_us(averages).items() if number >= cold]
    (_, before), (last, after) = sums[0], sums[-1]
    mean = (after - before) / (last - cold)
    if mean < _COARSE * last:
        return [mean]
    return [(us - us_before) / (number - at) for (at, us_before), (number, us) in itertools.pairwise(sums)]


def sums_us(averages: Averages) -> dict[int, float]:
    """Microseconds of all executions together, by their number: the middle of what an average may be of.

    No sum is below an earlier one.
    """
    least = itertools.accumulate((number * average for number, average in averages.items()), max)
    most = list(itertools.accumulate((number * (us + 1) - 1 for number, us in reversed(averages.items())), min))
    return {number: (low + high) / 2 for number, low, high in zip(averages, least, reversed(most), strict=True)}


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


def _compiled(openvino: Any, path: str, options: Options, *, traced: bool = False) -> tuple[Any, Precision]:
    """A file as the engine computes it, and its precision."""
    graph, weights, precision = read_archive(path)
    core = openvino.Core()
    model = core.read_model(graph, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    return core.compile_model(model, "CPU", {**_settings(precision, options), "PERF_COUNT": traced}), precision


def _infer(request: Any) -> int:
    """Nanoseconds of an execution."""
    try:
        start = time.monotonic_ns()
        request.infer()
        end = time.monotonic_ns()
    except RuntimeError as error:
        raise ModelFailure("run", f"{type(error).__name__}: {error}") from error
    return max(end - start, 1)


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
