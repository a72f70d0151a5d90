"""What the Python runner runs: ``.pte``, ``.onnx`` and ``.ts`` files in their engines, modules in eager PyTorch."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from hwbench.runtimes.protocol import Options

if TYPE_CHECKING:
    import torch
    from torch import nn

EAGER_SUFFIX, ONNX_SUFFIX, SCRIPT_SUFFIX = ".eager.json", ".onnx", ".ts"
# The factories that an ``.eager.json`` may name, and where each is. The list is closed: a file chooses one of these and
# gives it plain text, and reaches no other code. A factory takes a text and returns a module and an example; it reads
# and writes nothing.
FACTORIES = {
    "hwbench.models:eager_workload": ("hwbench.models", "eager_workload"),
    "hwbench.testing.models:small_net": ("hwbench.testing.models", "small_net"),
}
_FLOAT = 6  # ScalarType::Float
_MASK = (1 << 64) - 1

Operation = tuple[str, float, int]


class Failure(Exception):
    """A file that does not load or does not run; ``stage`` is ``load`` or ``run``."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


def mix(counter: int) -> int:
    """splitmix64 of a counter (Steele, Lea, Flood 2014); the C++ runner draws the same numbers."""
    z = counter * 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)


def uniform(first: int, count: int) -> npt.NDArray[np.float32]:
    """``count`` values in [-1, 1) from the counters that follow ``first``; exact in float32."""
    z = np.arange(first + 1, first + 1 + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float32) / np.float32(8388608) - np.float32(1)


class Model(Protocol):
    """A loaded file with its input in place."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the first input."""

    def feed(self, values: npt.NDArray[np.float32]) -> None:
        """Other values for the first input, in the order of its axes; its layout in memory stays."""

    def run(self) -> int:
        """Executes once; returns the nanoseconds of the execution alone."""

    def output(self) -> npt.NDArray[np.float32]:
        """The first output of the last execution."""

    def operations(self, runs: int) -> list[Operation]:
        """Name, mean nanoseconds and number of executions of each operation, from ``runs`` executions."""


def load_model(path: str, options: Options) -> Model:
    """Loads a file according to its name; ``options.input`` holds the values of its one input, if given.

    Raises:
        Failure: It cannot be loaded.
    """
    try:
        if path.endswith(EAGER_SUFFIX):
            return EagerModel(Path(path), options)
        if path.endswith(ONNX_SUFFIX):
            from hwbench.runtimes.onnx_model import OnnxModel

            return OnnxModel(path, options)
        if path.endswith(SCRIPT_SUFFIX):
            from hwbench.runtimes.script_model import ScriptModel

            return ScriptModel(path, options)
        return PteModel(path, options)
    except Failure:
        raise
    except Exception as error:  # a bad file raises what it likes; it is a result, and the other files go on
        raise Failure("load", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}") from error


def load_engine(path: str, threads: int) -> None:
    """Imports what runs a file, which is no part of loading it; that it is absent is told when the file is loaded."""
    with contextlib.suppress(ImportError):
        if path.endswith(ONNX_SUFFIX):
            importlib.import_module("onnxruntime")
        elif path.endswith((EAGER_SUFFIX, SCRIPT_SUFFIX)):
            importlib.import_module("torch")
        else:
            engine(threads)


def arrays(shapes: Sequence[Sequence[int]], input_file: str) -> list[npt.NDArray[np.float32]]:
    """The values of inputs of those shapes: from the file, if one is given, else seeded.

    Raises:
        Failure: The file has another number of values, or is for one input and there are more.
    """
    if input_file:
        values = np.fromfile(input_file, dtype=np.float32)
        if len(shapes) != 1 or values.size != int(np.prod(shapes[0])):
            raise Failure(
                "load", f"the input needs {4 * int(np.prod(shapes[0]))} bytes, the file has {4 * values.size}"
            )
        return [values.reshape(shapes[0])]
    made, used = [], 0
    for shape in shapes:
        count = int(np.prod(shape))
        made.append(uniform(used, count).reshape(shape))
        used += count
    return made


def tensors(shapes: Sequence[Sequence[int]], input_file: str) -> list[torch.Tensor]:
    """``arrays`` as tensors."""
    import torch

    return [torch.from_numpy(values) for values in arrays(shapes, input_file)]


class PteModel:
    """A ``.pte`` file in the ExecuTorch runtime."""

    def __init__(self, path: str, options: Options) -> None:
        bindings = engine(options.threads)
        tracing = {"enable_etdump": True, "debug_buffer_size": 0} if options.profile else {}
        # The method does not own the program: both are kept.
        self._program = bindings._load_program(path, **tracing)
        self._method = self._program.load_method("forward")
        meta = self._method.method_meta()
        infos = [meta.input_tensor_meta(i) for i in range(meta.num_inputs())]
        for i, info in enumerate(infos):
            if int(info.dtype()) != _FLOAT:
                raise Failure("load", f"input {i} is not float32")
        self._inputs = tensors([info.sizes() for info in infos], options.input)
        if options.check:  # layout matters to the values, not to the time
            known = pte_layout(Path(path)).inputs
            self._inputs = [_stored(value, order) for value, (_, order) in zip(self._inputs, known, strict=True)]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the first input."""
        return tuple(self._inputs[0].shape)

    def feed(self, values: npt.NDArray[np.float32]) -> None:
        """Other values for the first input, in the order of its axes; its layout in memory stays."""
        import torch

        self._inputs[0].copy_(torch.from_numpy(values.copy()).reshape(self.input_shape))

    def run(self) -> int:
        try:
            self._method.set_inputs(self._inputs)
            start = time.monotonic_ns()
            self._method.execute()
            end = time.monotonic_ns()
        except RuntimeError as error:
            raise Failure("run", str(error)) from error
        return max(end - start, 1)

    def output(self) -> npt.NDArray[np.float32]:
        return float_array(self._method.get_outputs()[0])

    def operations(self, runs: int) -> list[Operation]:
        for _ in range(runs):
            self.run()
        with tempfile.TemporaryDirectory(prefix="hwbench-") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from executorch.devtools import Inspector

            path = os.path.join(folder, "trace.etdp")
            self._program.write_etdump_result_to_file(path)
            blocks = Inspector(etdump_path=path).event_blocks
            return [
                (event.name, middle_mean(event.perf_data.raw) * 1e6, len(event.perf_data.raw))
                for block in blocks
                if block.name == "Execute"
                for event in block.events
                if event.perf_data is not None
            ]


@dataclass(frozen=True)
class PteLayout:
    """Shape of each input and output of a ``.pte`` that is a tensor, and in which order its axes lie in memory."""

    inputs: tuple[tuple[tuple[int, ...], list[int]], ...]
    outputs: tuple[tuple[tuple[int, ...], list[int]], ...]


def pte_layout(path: Path) -> PteLayout:
    """What the file says about itself; the bindings neither tell nor check the order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.exir._serialize._program import deserialize_pte_binary

        program = deserialize_pte_binary(path.read_bytes()).program
    plan = next(plan for plan in program.execution_plan if plan.name == "forward")

    def tensors(indices: Sequence[int]) -> tuple[tuple[tuple[int, ...], list[int]], ...]:
        values = [plan.values[index].val for index in indices]
        return tuple((tuple(map(int, v.sizes)), list(map(int, v.dim_order))) for v in values if hasattr(v, "dim_order"))

    return PteLayout(tensors(plan.inputs), tensors(plan.outputs))


def _stored(value: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The same tensor with its axes in that order in memory."""
    back = sorted(range(len(order)), key=lambda place: order[place])
    return value.permute(*order).contiguous().permute(*back)


def engine(threads: int) -> Any:
    """The bindings of the ExecuTorch runtime, with a thread pool of that size; for one thread with none, as in C++."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.extension.pybindings import portable_lib
        from executorch.kernels import quantized  # noqa: F401  # registers the kernels that the C++ runner links
    if portable_lib._threadpool_get_thread_count() != threads:
        portable_lib._unsafe_reset_threadpool(threads)
    _guard_pool(portable_lib, alone=threads == 1)
    return portable_lib


# ``NoThreadPoolGuard::set_enabled(bool)`` of ExecuTorch, for the calling thread; the bindings do not offer it.
_GUARD = "_ZN10executorch9extension10threadpool17NoThreadPoolGuard11set_enabledEb"


def _guard_pool(bindings: Any, *, alone: bool) -> None:
    """Whether files that this thread loads from now on are to compute without a pool.

    A pool of one thread computes the same, in 5 to 10 % more time (X3D-XS in fp32).
    """
    library = Path(bindings.__file__).parents[2] / "lib" / "libexecutorch_threadpool.so"
    with contextlib.suppress(OSError, AttributeError):  # another build of the runtime; then the pool of one stays
        enable = ctypes.CDLL(str(library))[_GUARD]
        enable.argtypes, enable.restype = [ctypes.c_bool], None
        enable(alone)


class TorchModel:
    """A module that is called in torch, whatever made it."""

    def __init__(self, module: nn.Module, shape: Sequence[int], options: Options) -> None:
        import torch

        torch.set_num_threads(options.threads)
        self._module = module
        self._inputs = tensors([shape], options.input)
        self._output: Any = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._inputs[0].shape)

    def feed(self, values: npt.NDArray[np.float32]) -> None:
        import torch

        self._inputs[0].copy_(torch.from_numpy(values.copy()).reshape(self.input_shape))

    def run(self) -> int:
        import torch

        try:
            with torch.inference_mode():
                start = time.monotonic_ns()
                self._output = self._module(*self._inputs)
                end = time.monotonic_ns()
        except Exception as error:
            raise Failure("run", f"{type(error).__name__}: {error}") from error
        return max(end - start, 1)

    def output(self) -> npt.NDArray[np.float32]:
        return float_array(self._output)

    def operations(self, runs: int) -> list[Operation]:
        from torch import profiler

        with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as trace:
            for _ in range(runs):
                self.run()
        # Times of one name added up, in microseconds, without what is called from within.
        rows = [(event.key, event.self_cpu_time_total, event.count) for event in trace.key_averages()]
        return [(name, 1e3 * total / runs, runs) for name, total, count in rows if count >= runs]


class EagerModel(TorchModel):
    """A module in eager PyTorch."""

    def __init__(self, path: Path, options: Options) -> None:
        module, example = load_eager(path)
        super().__init__(module, tuple(example.shape), options)


def load_eager(path: Path) -> tuple[nn.Module, torch.Tensor]:
    """The module that an ``.eager.json`` names, in eval mode, and an example of its input.

    The file holds ``module``, the name of one of ``FACTORIES``, and ``argument``, the text that it is called with.

    Raises:
        Failure: The file does not say so, or the factory is not one of these.
    """
    values = json.loads(path.read_text())
    name, argument = (values.get(key) for key in ("module", "argument")) if isinstance(values, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(argument, str):
        raise Failure("load", f'{path.name}: expected {{"module": "{next(iter(FACTORIES))}", "argument": "text"}}')
    if name not in FACTORIES:
        raise Failure("load", f"{path.name}: expected a factory inside hwbench ({', '.join(FACTORIES)}), got {name!r}")
    place, function = FACTORIES[name]
    module, example = getattr(importlib.import_module(place), function)(argument)
    return module.eval(), example


def float_array(value: Any) -> npt.NDArray[np.float32]:
    """A tensor as an array.

    Raises:
        Failure: It is none, or of another type of numbers.
    """
    import torch

    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        raise Failure("run", "the output is not a float32 tensor")
    array: npt.NDArray[np.float32] = np.ascontiguousarray(value.detach().numpy())
    return array


def middle_mean(values: Sequence[float]) -> float:
    """Mean of the middle half: robust, and finer than the microsecond in which XNNPACK reports."""
    skip = len(values) // 4
    return statistics.fmean(sorted(values)[skip : len(values) - skip])
