"""What the Python runner runs: files of any runtime, each in the loader that its runtime names."""

from __future__ import annotations

import contextlib
import importlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from hwbench.runtimes import DEFAULT, get, of_file
from hwbench.runtimes.protocol import Options

if TYPE_CHECKING:
    import torch
    from torch import nn

_MASK = (1 << 64) - 1

Operation = tuple[str, float, int]


class ModelFailure(Exception):
    """A file that does not load or does not run; ``stage`` is ``load`` or ``run``."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


def middle_mean(values: Sequence[float]) -> float:
    """Mean of the middle half: robust, and finer than the microsecond in which XNNPACK reports."""
    skip = len(values) // 4
    return statistics.fmean(sorted(values)[skip : len(values) - skip])


def averaged(times_ns: Mapping[str, Sequence[float]]) -> list[Operation]:
    """The operations whose executions took these times, in nanoseconds by name; the mean is ``middle_mean``."""
    return [(name, middle_mean(times), len(times)) for name, times in times_ns.items()]


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
    """A loaded file; after ``make_inputs``, where it has that, with its input in place."""

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
        """Name, mean nanoseconds and number of executions of each operation, from ``runs`` executions.

        A model that traces in this method alone, not in ``run``, has the nanoseconds of these executions in
        ``traced_ns`` from then on.
        """


class StreamModel(Model, Protocol):
    """A loaded file that may be a stream, as a loader of a runtime with ``streams`` returns it.

    ``run`` of a stream hands the states that came out to the next frame, within the time of the execution.

    Attributes:
        later_frames: After ``make_inputs``, what ``options.input`` holds behind the first frame: (frames, *input_shape)
            of float32, none where no file is given or it is no stream. ``frames_of`` reads both.
    """

    later_frames: npt.NDArray[np.float32]

    def begin_anew(self) -> None:
        """States as before the first frame: zeros; nothing where the file is no stream."""


def check_stream(model: Model) -> None:
    """Makes sure that a loaded stream has the members of ``StreamModel``.

    Raises:
        ModelFailure: It lacks one; the message names the loader, and what to write.
    """
    missing = [name for name in ("begin_anew", "later_frames") if not hasattr(model, name)]
    if missing:
        loader = f"{type(model).__module__}:{type(model).__qualname__}"
        raise ModelFailure(
            "load",
            f"the loader {loader} of its runtime lacks {' and '.join(missing)}, without which no stream begins anew or "
            "takes several frames; add what hwbench.runtimes.python_models.StreamModel says to it",
        )


class ModelLoader(Protocol):
    """What runs the files of a runtime here; ``Capabilities.loader`` names it. A class of models is one.

    What it returns may have ``make_inputs()``, which is called once, before anything else: making the values of the
    inputs is then no part of the time that loading takes.
    """

    def __call__(self, path: str, options: Options) -> Model:
        """Loads a file; ``options.input`` holds the values of its one input, if given. May raise what it likes."""

    def load_engine(self, threads: int) -> None:
        """Imports the engine, which is no part of the time that loading takes; ImportError where it is absent."""


def loader_of(path: str) -> ModelLoader:
    """What runs a file, by the ending of its name; of an unknown one it is what runs those of the default runtime."""
    module, _, name = get(of_file(Path(path)) or DEFAULT).capabilities.loader.partition(":")
    loader: ModelLoader = getattr(importlib.import_module(module), name)
    return loader


def load_model(path: str, options: Options) -> Model:
    """Loads a file according to its name, with its input in place: ``options.input``, if given, else seeded values.

    Raises:
        ModelFailure: It cannot be loaded.
    """
    model = load_file(path, options)
    make_inputs(model)
    return model


def load_file(path: str, options: Options) -> Model:
    """Loads a file according to its name, without its input: the part of loading that is timed.

    Raises:
        ModelFailure: It cannot be loaded.
    """
    with _loading():
        return loader_of(path)(path, options)


def make_inputs(model: Model) -> None:
    """Puts the input of a loaded file in place; a model without ``make_inputs`` has it there already.

    Raises:
        ModelFailure: The input that is given does not fit.
    """
    with _loading():
        getattr(model, "make_inputs", lambda: None)()


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    try:
        yield
    except ModelFailure:
        raise
    except Exception as error:  # a bad file raises what it likes; it is a result, and the other files go on
        raise ModelFailure("load", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}") from error


def load_engine(path: str, threads: int) -> None:
    """Imports what runs a file, which is no part of loading it; that it is absent is told when the file is loaded."""
    with contextlib.suppress(ImportError):
        loader_of(path).load_engine(threads)


def arrays(shapes: Sequence[Sequence[int]], input_file: str) -> list[npt.NDArray[np.float32]]:
    """The values of inputs of those shapes: from the file, if one is given, else seeded.

    Raises:
        ModelFailure: The file has another number of values, or is for one input and there are more.
    """
    if input_file:
        values = np.fromfile(input_file, dtype=np.float32)
        if len(shapes) != 1 or values.size != int(np.prod(shapes[0])):
            raise ModelFailure(
                "load", f"the input needs {4 * int(np.prod(shapes[0]))} bytes, the file has {4 * values.size}"
            )
        return [values.reshape(shapes[0])]
    made, used = [], 0
    for shape in shapes:
        count = int(np.prod(shape))
        made.append(uniform(used, count).reshape(shape))
        used += count
    return made


def frames_of(shape: Sequence[int], input_file: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The first frame for a stream, and all later ones (frames, *shape); none of them where no file is given.

    Raises:
        ModelFailure: The file holds no whole number of frames.
    """
    if not input_file:
        return arrays([shape], "")[0], np.empty((0, *shape), np.float32)
    values = np.fromfile(input_file, dtype=np.float32)
    if not values.size or values.size % int(np.prod(shape)):
        raise ModelFailure(
            "load", f"the input needs {4 * int(np.prod(shape))} bytes a frame, the file has {4 * values.size}"
        )
    frames = values.reshape(-1, *shape)
    return frames[0].copy(), frames[1:]


def tensors(shapes: Sequence[Sequence[int]], input_file: str) -> list[torch.Tensor]:
    """``arrays`` as tensors."""
    import torch

    return [torch.from_numpy(values) for values in arrays(shapes, input_file)]


class TensorFed:
    """What is fed from tensors of torch, the first of which takes other values."""

    _inputs: list[torch.Tensor]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the first input."""
        return tuple(self._inputs[0].shape)

    def feed(self, values: npt.NDArray[np.float32]) -> None:
        """Other values for the first input, in the order of its axes; its layout in memory stays."""
        import torch

        self._inputs[0].copy_(torch.from_numpy(values.copy()).reshape(self.input_shape))


class TorchModel(TensorFed):
    """A module that is called in torch, whatever made it."""

    def __init__(self, module: nn.Module, shapes: Sequence[Sequence[int]], options: Options) -> None:
        import torch

        torch.set_num_threads(options.threads)
        self._module, self._shapes, self._input_file = module, shapes, options.input
        self._output: Any = None

    def make_inputs(self) -> None:
        """Values of each input, from the file that is given or seeded."""
        self._inputs = tensors(self._shapes, self._input_file)

    @staticmethod
    def load_engine(threads: int) -> None:
        """Imports torch."""
        importlib.import_module("torch")

    def run(self) -> int:
        import torch

        try:
            with torch.inference_mode():
                start = time.monotonic_ns()
                self._output = self._module(*self._inputs)
                end = time.monotonic_ns()
        except Exception as error:
            raise ModelFailure("run", f"{type(error).__name__}: {error}") from error
        return max(end - start, 1)

    def output(self) -> npt.NDArray[np.float32]:
        return float_array(self._output[0] if isinstance(self._output, tuple) else self._output)

    def operations(self, runs: int) -> list[Operation]:
        from torch import profiler

        with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as trace:
            self.traced_ns = [self.run() for _ in range(runs)]
        # Times of one name added up, in microseconds, without what is called from within.
        rows = [(event.key, event.self_cpu_time_total, event.count) for event in trace.key_averages()]
        return [(name, 1e3 * total / runs, runs) for name, total, count in rows if count >= runs]


def float_array(value: Any) -> npt.NDArray[np.float32]:
    """A tensor as an array.

    Raises:
        ModelFailure: It is none, or of another type of numbers.
    """
    import torch

    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        raise ModelFailure("run", "the output is not a float32 tensor")
    array: npt.NDArray[np.float32] = np.ascontiguousarray(value.detach().numpy())
    return array
