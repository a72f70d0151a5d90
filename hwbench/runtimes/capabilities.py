"""What a runtime can do, as a value: read without its engine, and instead of asking what a runtime is called."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hwbench.specs import AUTO, Precision, Workload

# Kinds of runners; the kind is part of the conditions of every row.
NATIVE = "native"
NATIVE_LOADER = "native-loader"  # with a libc of its own
NATIVE_BOARD = "native-board"  # made by the device's compiler
PYTHON = "python"
EXECUTOR_RUNNER = "executor-runner"  # the user's own build of ExecuTorch's example


class ModuleForm(enum.Enum):
    """In which form a module is built: rewritten with frames as batch, (N·T, C, H, W) in, or as it was trained."""

    DEPLOY = enum.auto()
    ORIGINAL = enum.auto()


class Quantiser(enum.Enum):
    """Who makes int8 of a network.

    ``NONE``: nobody, the runtime has no int8. ``ENGINE``: ``Runtime.build``, after training, in the one way of the
    engine. ``GRAPH``: the observers of ``hwbench.runtimes.executorch.quantize`` in a graph of torch.export, after
    training or during it (``train --qat``), with blocks in fp32 where asked for; such a runtime has ``quantising``.
    """

    NONE = enum.auto()
    ENGINE = enum.auto()
    GRAPH = enum.auto()


@dataclass(frozen=True)
class FileFormat:
    """The files of a runtime.

    Attributes:
        suffix: How their names end; no other runtime's do.
        content: What such a file is, in words with an article, for messages.
        magic: Bytes that every one of them holds; empty where the format has none.
        magic_at: Where these bytes begin.
    """

    suffix: str
    content: str = "a model"
    magic: bytes = b""
    magic_at: int = 0

    def matches(self, start: bytes) -> bool:
        """Whether a file that begins with these bytes can be one of the format."""
        return start[self.magic_at : self.magic_at + len(self.magic)] == self.magic


@dataclass(frozen=True)
class Capabilities:
    """What a runtime can do.

    Attributes:
        packages: Distributions that determine a built file. The version of the first one is the version of the engine.
        files: What its files look like.
        loader: What runs a file in the Python runner, a ``python_models.ModelLoader``, as ``package.module:name``.
        precisions: What it builds.
        quantiser: Who makes int8.
        original: Precisions in which networks of the variant ``auto`` are built as they were trained, 5-D (N, C, T, H,
            W) in. All others are built in deploy form, with frames as batch.
        delegates: What takes the whole graph and plans its memory. A part of a network is then built with an operation
            behind it (``models.Continued``), as if the network went on.
        runners: Kinds of runners of this machine that run its files, the best first.
        remote_runners: Kinds of runners that are carried to other devices; empty: measured on this machine only.
        remote_packages: Distributions that a Python on another device needs; the first is the engine, in our version.
        streams: Whether it builds networks that take one new frame with their states (``specs.STREAM``).
        profiles: Whether its loader tells times of operations, for ``bench --profile``.
        holds_weights: Whether a file holds the network. One that does not is working state of the build cache: it is
            no export, and none is taken from a user.
        run_page: Text beside an export that says how to run it, as ``package:file``.
        stream_page: That text beside an export that is a stream.
    """

    packages: tuple[str, ...]
    files: FileFormat
    loader: str
    precisions: tuple[Precision, ...] = (Precision.FP32,)
    quantiser: Quantiser = Quantiser.NONE
    original: tuple[Precision, ...] = ()
    delegates: tuple[str, ...] = ()
    runners: tuple[str, ...] = (PYTHON,)
    remote_runners: tuple[str, ...] = ()
    remote_packages: tuple[str, ...] = ()
    streams: bool = False
    profiles: bool = True
    holds_weights: bool = True
    run_page: str = "hwbench.runtimes:run.md.in"
    stream_page: str = "hwbench.runtimes:run-stream.md.in"

    @property
    def suffix(self) -> str:
        """How the names of its files end."""
        return self.files.suffix

    @property
    def remote(self) -> bool:
        """Whether files can be measured on other devices."""
        return bool(self.remote_runners)

    def form(self, workload: Workload) -> ModuleForm:
        """The form in which the module of a workload is built."""
        plain = workload.precision in self.original and workload.variant == AUTO
        return ModuleForm.ORIGINAL if plain else ModuleForm.DEPLOY
