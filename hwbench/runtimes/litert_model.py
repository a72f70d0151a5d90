"""A ``.tflite`` file in LiteRT on the processor, for the Python runner. Needs no torch."""

from __future__ import annotations

import functools
import importlib
import math
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwbench.runtimes.litert import HALF_ENTRY, LiteRt, input_name
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, Operation, arrays

_INSTALL = "ai-edge-litert is not installed; install it with: python -m pip install ai-edge-litert"
# TFLITE_XNNPACK_DELEGATE_FLAG_FORCE_FP16 of LiteRT's xnnpack_delegate.h. Without it a file in fp16 is computed in fp32
# wherever the processor has no arithmetic for it.
_FORCE_HALF = 4


class LiteRtModel:
    """A compiled model on the processor, with XNNPACK on as many threads as asked for."""

    def __init__(self, path: str, options: Options) -> None:
        try:
            compiled, settings = (_engine(name) for name in ("compiled_model", "options"))
        except ImportError:
            raise ModelFailure("load", _INSTALL) from None
        half = is_half(path)
        cpu = settings.CpuOptions(num_threads=options.threads, xnnpack_flags=_FORCE_HALF if half else None)
        self._model = compiled.CompiledModel.from_file(
            path, environment=_environment(), options=settings.Options(cpu_options=cpu)
        )
        if half and not self._model.is_fully_accelerated():
            raise ModelFailure(
                "load",
                "XNNPACK does not compute all of the file in fp16 on this processor; choose another precision "
                "(--precision int8 or fp32)",
            )
        signature = self._model.get_signature_by_index(0)
        self._names = sorted(signature["inputs"], key=_place)
        self._shapes = [_fixed_shape(name, self._details("input")[name]) for name in self._names]
        self._input_file = options.input
        given = {name: self._model.create_input_buffer_by_name(signature["key"], name) for name in self._names}
        self._given = [given[name] for name in signature["inputs"]]
        self._buffers = [given[name] for name in self._names]
        self._made = self._model.create_output_buffers(0)
        self._result = self._details("output")[signature["outputs"][0]]

    def make_inputs(self) -> None:
        """Values of each input, from the file that is given or seeded."""
        self._inputs = arrays(self._shapes, self._input_file)
        for buffer, values in zip(self._buffers, self._inputs, strict=True):
            buffer.write(values)

    def _details(self, which: str) -> dict[str, Any]:
        key = self._model.get_signature_by_index(0)["key"]
        found: dict[str, Any] = getattr(self._model, f"get_{which}_tensor_details")(key)
        return found

    @staticmethod
    def load_engine(threads: int) -> None:
        """Imports LiteRT."""
        for name in ("compiled_model", "options", "environment", "schema_py_generated"):
            _engine(name)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._inputs[0].shape)

    def feed(self, values: npt.NDArray[np.float32]) -> None:
        self._inputs[0][...] = values.reshape(self.input_shape)
        self._buffers[0].write(self._inputs[0])

    def run(self) -> int:
        try:
            start = time.monotonic_ns()
            self._model.run_by_index(0, self._given, self._made)
            end = time.monotonic_ns()
        except RuntimeError as error:
            raise ModelFailure("run", f"{type(error).__name__}: {' '.join(str(error).split())}") from error
        return max(end - start, 1)

    def output(self) -> npt.NDArray[np.float32]:
        if self._result["dtype"] != "float32":
            raise ModelFailure("run", "the output is not a float32 tensor")
        shape = [int(size) for size in self._result["shape"]]
        values: npt.NDArray[np.float32] = self._made[0].read(math.prod(shape), np.float32).reshape(shape)
        return values

    def operations(self, runs: int) -> list[Operation]:
        raise ModelFailure(
            "run",
            "LiteRT's Python package tells no times of operations; --runtime executorch does, and has the same kernels",
        )


def is_half(path: str) -> bool:
    """Whether a file says that it may be computed in fp16.

    Raises:
        ModelFailure: It is no file of LiteRT, or ends too soon.
    """
    content = Path(path).read_bytes()
    if not LiteRt.capabilities.files.matches(content[:8]):
        raise ModelFailure("load", "expected a LiteRT model; export it again with hwbench export --runtime litert")
    try:
        model = _engine("schema_py_generated").Model.GetRootAsModel(content, 0)
        _require_whole(model, len(content))
        return HALF_ENTRY.encode() in {model.Metadata(i).Name() for i in range(model.MetadataLength())}
    except (struct.error, ValueError, IndexError):
        raise ModelFailure("load", f"the file ends after {len(content)} bytes, before what is in it does") from None


@functools.cache
def _environment() -> Any:
    """One for all files of the process, without the compilers for other processors that the package may carry."""
    environment = _engine("environment")
    libraries = Path(environment.__file__).parent
    return environment.Environment.create(
        options=environment.EnvironmentOptions(str(libraries), compiler_plugin_path=str(libraries / "tools"))
    )


def _engine(name: str) -> Any:
    return importlib.import_module(f"ai_edge_litert.{name}")


def _require_whole(model: Any, size_bytes: int) -> None:
    """Whether all weights and operator codes are in the file: the engine would read behind its end, and be killed.

    Raises:
        ValueError: They are not.
    """
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    for code in codes:  # the end of what Python writes; reading them raises where one is cut
        max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    for index in range(model.BuffersLength()):
        weights = model.Buffers(index)
        if weights.Offset() + weights.Size() > size_bytes:
            raise ValueError(f"buffer {index} ends behind byte {size_bytes}")
        weights.DataAsNumpy()  # raises where the vector inside ends behind the file


def _place(name: str) -> tuple[int, str]:
    """Where an input stands among the arguments; those of another converter by name, behind them."""
    prefix = input_name(0).rstrip("0")
    number = name.removeprefix(prefix)
    return (int(number), name) if name.startswith(prefix) and number.isdigit() else (1 << 30, name)


def _fixed_shape(name: str, details: dict[str, Any]) -> list[int]:
    """The shape of an input.

    Raises:
        ModelFailure: It is not float32, or an axis is open.
    """
    shape, kind = [int(size) for size in details["shape"]], details["dtype"]
    if kind != "float32" or any(size < 1 for size in shape):
        raise ModelFailure(
            "load",
            f"input {name} is not float32 of a fixed shape: {kind} {shape}; "
            "export it again with hwbench export --runtime litert",
        )
    return shape
