"""A ``.pte`` file in the ExecuTorch runtime, for the Python runner."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import (
    ModelFailure,
    Operation,
    TensorFed,
    float_array,
    frames_of,
    middle_mean,
    tensors,
)
from hwbench.scratch import scratch_folder

if TYPE_CHECKING:
    import torch

# Types of numbers that go in, by ``ScalarType``; others than the first in states alone.
_FLOAT = 6
_TYPES = {_FLOAT: "float32", 5: "float16", 1: "int8"}


class PteModel(TensorFed):
    """A ``.pte`` file in the ExecuTorch runtime.

    It is a ``StreamModel``. ``hands_on``: It is a stream: what comes out behind the first output are the states for the
    next frame. They are handed on inside the time of an execution.
    """

    def __init__(self, path: str, options: Options) -> None:
        bindings = engine(options.threads)
        tracing = {"enable_etdump": True, "debug_buffer_size": 0} if options.profile else {}
        # The method does not own the program: both are kept.
        self._program = bindings._load_program(path, **tracing)
        self._method = self._program.load_method("forward")
        meta = self._method.method_meta()
        infos = [meta.input_tensor_meta(i) for i in range(meta.num_inputs())]
        self.hands_on = _is_stream(meta)
        for i, info in enumerate(infos):
            if int(info.dtype()) not in (_TYPES if self.hands_on and i > 0 else (_FLOAT,)):
                raise ModelFailure("load", f"input {i} is not float32")
        self._infos, self._path, self._options = infos, path, options
        self.later_frames: npt.NDArray[np.float32] = np.empty((0,), np.float32)

    def make_inputs(self) -> None:
        """Values of each input, from the file that is given or seeded; states are zeros."""
        import torch

        shapes = [info.sizes() for info in self._infos]
        if self.hands_on:
            first, self.later_frames = frames_of(shapes[0], self._options.input)
            self._inputs = [torch.from_numpy(first), *map(_zeros, self._infos[1:])]
        else:
            self._inputs = tensors(shapes, self._options.input)
        if self._options.check or self.hands_on:  # layout matters to the values, not to the time
            known = pte_layout(Path(self._path)).inputs
            self._inputs = [_stored(value, one.order) for value, one in zip(self._inputs, known, strict=True)]

    @staticmethod
    def load_engine(threads: int) -> None:
        """Imports the bindings, with a thread pool of that size."""
        engine(threads)

    def run(self) -> int:
        try:
            self._method.set_inputs(self._inputs)
            start = time.monotonic_ns()
            self._method.execute()
            if self.hands_on:
                self._output, *states = self._method.get_outputs()
                self._inputs[1:] = states
            end = time.monotonic_ns()
        except RuntimeError as error:
            raise ModelFailure("run", str(error)) from error
        return max(end - start, 1)

    def output(self) -> npt.NDArray[np.float32]:
        return float_array(self._output if self.hands_on else self._method.get_outputs()[0])

    def begin_anew(self) -> None:
        """States as before the first frame, where the file is a stream."""
        self._inputs[1:] = [value.clone().zero_() if self.hands_on else value for value in self._inputs[1:]]

    def operations(self, runs: int) -> list[Operation]:
        for _ in range(runs):
            self.run()
        with scratch_folder() as folder, warnings.catch_warnings():
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


class TensorLayout(NamedTuple):
    """Shape of a tensor, in which order its axes lie in memory, and the number of its ``ScalarType``."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    scalar: int = _FLOAT

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """As numpy names it, little-endian; None: of a type that no file of hwbench has."""
        return np.dtype(_TYPES[self.scalar]).newbyteorder("<") if self.scalar in _TYPES else None


@dataclass(frozen=True)
class PteLayout:
    """The inputs and outputs of a ``.pte`` that are tensors."""

    inputs: tuple[TensorLayout, ...]
    outputs: tuple[TensorLayout, ...]


def _zeros(info: Any) -> torch.Tensor:
    """A state before the first frame."""
    import torch

    return torch.zeros(*info.sizes(), dtype=getattr(torch, _TYPES[int(info.dtype())]))


def _is_stream(method: Any) -> bool:
    """Whether a method leaves the memory of its first output to the caller; one without such an output is no stream."""
    try:
        return not method.output_tensor_meta(0).is_memory_planned()
    except IndexError:
        return False


def pte_layout(path: Path) -> PteLayout:
    """What the file says about itself; the bindings neither tell nor check the order.

    Only these few fields are read (``schema/program.fbs`` of ExecuTorch): its own reader makes an object of every value
    and imports the whole exporter, which takes 5 s.

    Raises:
        ValueError: It is no ``.pte`` file with a method ``forward``.
    """
    data = path.read_bytes()
    if data[4:6] != b"ET":
        raise ValueError(f"{path}: no .pte file")
    try:
        plans = FlatTable.root(data).tables(_EXECUTION_PLANS)
        plan = next((plan for plan in plans if plan.text(_NAME) == "forward"), None)
        if plan is None:
            raise ValueError(f"{path}: no method forward")
        values = plan.tables(_VALUES)

        def tensors(field: int) -> tuple[TensorLayout, ...]:
            found = [values[index].union(_VALUE) for index in plan.numbers(field, "i")]
            return tuple(
                TensorLayout(
                    tuple(table.numbers(_SIZES, "i")),
                    tuple(table.numbers(_DIM_ORDER, "B")),
                    table.scalar(_SCALAR_TYPE, "b"),
                )
                for kind, table in found
                if kind == _TENSOR
            )

        return PteLayout(tensors(_INPUTS), tensors(_OUTPUTS))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: a damaged .pte file") from error


# Fields of the tables Program, ExecutionPlan, EValue (a union takes two) and Tensor, and the union's number for Tensor.
_EXECUTION_PLANS, _NAME, _VALUES, _INPUTS, _OUTPUTS, _VALUE = 1, 0, 2, 3, 4, 0
_SCALAR_TYPE, _SIZES, _DIM_ORDER, _TENSOR = 0, 2, 3, 5


@dataclass(frozen=True)
class FlatTable:
    """A table of a FlatBuffers file: where its fields are stands in a list that its first number points back to."""

    data: bytes
    place: int

    @classmethod
    def root(cls, data: bytes) -> FlatTable:
        return cls(data, _number(data, 0, "I"))

    def _field(self, field: int) -> int:
        """Where its value stands; 0 where the field is left out."""
        fields = self.place - _number(self.data, self.place, "i")
        at = 4 + 2 * field
        offset = _number(self.data, fields + at, "H") if at < _number(self.data, fields, "H") else 0
        return self.place + offset if offset else 0

    def _pointed(self, at: int) -> int:
        return at + _number(self.data, at, "I")

    def numbers(self, field: int, form: str) -> Sequence[int]:
        at = self._field(field)
        if not at:
            return ()
        start = self._pointed(at)
        return struct.unpack_from(f"<{_number(self.data, start, 'I')}{form}", self.data, start + 4)

    def scalar(self, field: int, form: str) -> int:
        """A number that stands in the table itself; 0 where the field is left out."""
        at = self._field(field)
        return _number(self.data, at, form) if at else 0

    def text(self, field: int) -> str:
        return bytes(self.numbers(field, "B")).decode()

    def tables(self, field: int) -> list[FlatTable]:
        offsets = self.numbers(field, "I")
        first = self._pointed(self._field(field)) + 4 if offsets else 0
        return [FlatTable(self.data, first + 4 * i + offset) for i, offset in enumerate(offsets)]

    def union(self, field: int) -> tuple[int, FlatTable]:
        """Number of its type, and its table."""
        kind, at = self._field(field), self._field(field + 1)
        return (self.data[kind] if kind else 0), FlatTable(self.data, self._pointed(at) if at else 0)


def _number(data: bytes, at: int, form: str) -> int:
    if at < 0:
        raise IndexError(at)
    number: int = struct.unpack_from("<" + form, data, at)[0]
    return number


def _stored(value: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The same tensor with its axes in that order in memory."""
    back = sorted(range(len(order)), key=lambda place: order[place])
    return value.permute(*order).contiguous().permute(*back)


def engine(threads: int) -> Any:
    """The bindings of the ExecuTorch runtime, with a thread pool of that size; for one thread with none, as in C++."""
    bindings = _bindings()
    if bindings._threadpool_get_thread_count() != threads:
        bindings._unsafe_reset_threadpool(threads)
    _guard_pool(bindings, alone=threads == 1)
    return bindings


def _bindings() -> Any:
    """The extension module itself: ``portable_lib`` around it imports the whole exporter, which takes 5 s."""
    import torch  # noqa: F401  # the libraries that the extension links

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from executorch.extension.pybindings import _C as bindings
        except ImportError:  # the name that it has in other versions
            from executorch.extension.pybindings import portable_lib as bindings
        from executorch.kernels import quantized  # noqa: F401  # registers the kernels that the C++ runner links
    return bindings


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
