"""A ``.pte`` file in the ExecuTorch runtime, for the Python runner."""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, Operation, TensorFed, float_array, tensors

if TYPE_CHECKING:
    import torch

_FLOAT = 6  # ScalarType::Float


class PteModel(TensorFed):
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
                raise ModelFailure("load", f"input {i} is not float32")
        self._inputs = tensors([info.sizes() for info in infos], options.input)
        if options.check:  # layout matters to the values, not to the time
            known = pte_layout(Path(path)).inputs
            self._inputs = [_stored(value, order) for value, (_, order) in zip(self._inputs, known, strict=True)]

    @staticmethod
    def load_engine(threads: int) -> None:
        """Imports the bindings, with a thread pool of that size."""
        engine(threads)

    def run(self) -> int:
        try:
            self._method.set_inputs(self._inputs)
            start = time.monotonic_ns()
            self._method.execute()
            end = time.monotonic_ns()
        except RuntimeError as error:
            raise ModelFailure("run", str(error)) from error
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


def middle_mean(values: Sequence[float]) -> float:
    """Mean of the middle half: robust, and finer than the microsecond in which XNNPACK reports."""
    skip = len(values) // 4
    return statistics.fmean(sorted(values)[skip : len(values) - skip])
