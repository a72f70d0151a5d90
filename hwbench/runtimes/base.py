"""The contract of a runtime: one inference engine.

A runtime builds a file from a module (on the host, in a worker process) and names the runner that times such files on a
device. What is passed to ``build`` is in the form that ``Capabilities.form`` asks for. A build that fails raises; the
campaign turns that into a row with outcome ``build``.
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from hwbench.errors import HwbenchError, InvalidValue, MissingDependency, UnsupportedModule
from hwbench.printable import enumeration, shown
from hwbench.registry import Registry, class_with, instance_of, package_of
from hwbench.runtimes.capabilities import Capabilities, FileFormat
from hwbench.specs import STREAM, Artifact, Precision, Workload

if TYPE_CHECKING:
    import torch
    from torch import nn

    # One input of a module: a tensor, or one for each of several pathways.
    Example = torch.Tensor | tuple[torch.Tensor, ...]


# What is built for where nothing is said.
DEFAULT = "executorch"

Quantize = Callable[["nn.Module", "Example", Sequence["Example"]], "nn.Module"]


class Runtime(Protocol):
    """One engine; a class that inherits this one writes its name, its capabilities and ``build``.

    Importing the module of a runtime loads neither torch nor the engine. Instances hold no state.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def version(self) -> str:
        """Version of the engine, part of every Target and of every cache key.

        Raises:
            MissingDependency: It is not installed.
        """
        return installed_version(self.capabilities.packages[0])

    def require_precision(self, precision: Precision) -> None:
        """Refuses a precision that the runtime does not build; whoever calls ``build``, or plans to, asks first.

        Raises:
            UnsupportedModule: Says what it builds, and what to choose.
        """
        able = self.capabilities.precisions
        if precision not in able:
            others = [name for name, known in usable().items() if precision in known.precisions]
            raise UnsupportedModule(
                f"the {self.name} runtime builds {enumeration(able)}, got {precision}; {_choose(others)}"
            )

    def require_form(self, workload: Workload) -> None:
        """Refuses what the runtime does not build: a precision, or a stream; asked as ``require_precision``.

        Raises:
            UnsupportedModule: Says what it builds, and what to choose.
        """
        self.require_precision(workload.precision)
        if workload.variant == STREAM:
            self.require_streams()

    def require_streams(self) -> None:
        """Refuses streams where the runtime builds none, before anything else is done.

        Raises:
            UnsupportedModule: Says what to choose.
        """
        if not self.capabilities.streams:
            able = [name for name, known in usable().items() if known.streams]
            raise UnsupportedModule(f"the {self.name} runtime builds no streams; {_choose(able)}")

    def require_profile(self, file: Path | None = None) -> None:
        """Refuses times of operations where the runtime tells none, before anything is built or measured.

        Args:
            file: What is measured, which no other runtime takes; None for a network by name.

        Raises:
            UnsupportedModule: Says which runtimes do.
        """
        if not self.capabilities.profiles:
            able = [name for name, known in usable().items() if known.profiles]
            lacking = f"the {self.name} runtime tells no times of operations: leave --profile out, or "
            if file is None:
                raise UnsupportedModule(lacking + _choose(able))
            raise UnsupportedModule(
                f"{lacking}give in the place of {file} the name of its network, such as zoo:x3d-xs, with another "
                f"engine: --runtime {_one_of(able)}"
            )

    def precision_in(self, path: Path) -> Precision | None:
        """The precision that a file says it is in; None where files of the runtime do not say.

        Raises:
            InvalidFile: It is no file of the runtime.
        """
        return None

    def for_tables(self) -> Runtime:
        """The runtime as rows of latency tables want it: their int8 needs the speed of int8, not its accuracy."""
        return self

    def quantising(self, quantize: Quantize) -> Runtime:
        """The runtime, making int8 by ``quantize``, from a module, an example and calibration inputs.

        Raises:
            UnsupportedModule: Its quantiser is not ``Quantiser.GRAPH``.
        """
        raise UnsupportedModule(f"the runtime {self.name} takes no other quantiser than its own")

    def build(
        self,
        module: nn.Module,
        example: Example,
        workload: Workload,
        out: Path,
        calibration: Sequence[Example],
    ) -> Artifact:
        """Writes ``out`` from a module in eval mode and reports what the delegate took.

        Args:
            module: In the form asked for, tensor -> tensor; left as it is.
            example: One input; its shape is baked in. Of several pathways a tuple, as many arguments of the module.
            workload: What the module is; its precision decides about quantisation.
            out: The file to write (atomically).
            calibration: Inputs to calibrate int8 with; may be empty for fp32.

        Raises:
            NotCalibrated: int8 without calibration inputs.
            DelegationFailed: An operation is left outside the delegate.
        """
        ...


def arguments_of(example: Example, *, as_stored: bool = False) -> tuple[torch.Tensor, ...]:
    """The arguments that an example stands for, each in the order of its axes in memory: a folded clip can be a view of
    another order, which would be baked in as well. ``as_stored`` leaves them as they lie.
    """
    arguments = example if isinstance(example, tuple) else (example,)
    return arguments if as_stored else tuple(one.contiguous() for one in arguments)


def hands_on(module: nn.Module) -> bool:
    """Whether a module is a stream: ``states`` names what goes in behind the frame and comes out behind the answer."""
    return bool(getattr(module, "states", ()))


def as_example(arguments: tuple[torch.Tensor, ...]) -> Example:
    """The example that ``arguments_of`` reads."""
    return arguments if len(arguments) > 1 else arguments[0]


def single(example: Example, what: str) -> torch.Tensor:
    """The one tensor of an example.

    Raises:
        UnsupportedModule: It is of several pathways, which ``what`` does not take.
    """
    if isinstance(example, tuple):
        raise UnsupportedModule(f"{what} takes modules of one input, this one has {len(example)} pathways")
    return example


def _a_runtime(item: object) -> str:
    """Expects a class whose capabilities tell files and packages, which every command that takes a file reads."""
    if wrong := class_with("name", "capabilities", "build")(item):
        return wrong
    known = cast("type[Runtime]", item).capabilities
    if wrong := instance_of(Capabilities)(known):
        return f"capabilities: {wrong}"
    if wrong := instance_of(FileFormat)(known.files):
        return f"capabilities.files: {wrong}"
    if not isinstance(known.suffix, str) or not re.fullmatch(r"\.[^/]+", known.suffix):
        return f"capabilities.files: expected an ending such as '.pt2', got {shown(known.suffix)}"
    packages: object = known.packages
    if not isinstance(packages, tuple) or not packages or not all(isinstance(one, str) and one for one in packages):
        return f"capabilities.packages: expected names of distributions, the engine first, got {shown(packages)}"
    return ""


runtimes: Registry[type[Runtime]] = Registry("runtime", entry_points="hwbench.runtimes", expects=_a_runtime, named=True)


def loading() -> dict[str, Capabilities]:
    """Capabilities of all runtimes by name, hwbench's own first; packages that do not load are left out."""
    return {name: runtime.capabilities for name, runtime in runtimes.loading().items()}


def usable() -> dict[str, Capabilities]:
    """As ``loading``, without the runtimes that ``check_ending`` refuses."""
    known = loading()
    return {name: one for name, one in known.items() if _of_same_ending(name, known) is None}


_CHOOSE = "choose another engine: --runtime "


def _choose(able: Sequence[str]) -> str:
    """What to type for an engine that can."""
    return _CHOOSE + _one_of(able)


def _one_of(able: Sequence[str]) -> str:
    """Engines to choose among: those that are installed, or all where none is."""
    return " or ".join(list(filter(_installed, able)) or able)


def _installed(name: str) -> bool:
    try:
        version_of(runtimes.get(name)())
    except HwbenchError:
        return False
    return True


def version_of(runtime: Runtime) -> str:
    """``Runtime.version``; what that of another package raises is told with its name.

    Raises:
        MissingDependency: The engine is not installed.
        HwbenchError: The runtime is of another package, and raises something else.
    """
    with runtimes.blaming(type(runtime)):
        return runtime.version()


def without_choice(error: HwbenchError) -> str:
    """What a refusal says, without the engines to choose instead: for whoever asked for all engines."""
    return str(error).partition(f"; {_CHOOSE}")[0]


def check_ending(name: str) -> None:
    """Refuses a runtime of another package whose files end like those of another runtime.

    Raises:
        InvalidValue: The message names both packages, and the ending.
    """
    point = runtimes.point(name)
    if point is None:
        return
    known, package = loading(), package_of(point)
    other = _of_same_ending(name, known)
    if other is not None:
        owner = runtimes.point(other)
        raise InvalidValue(
            f"runtime {name!r} of the package {package}: its files end in {known[name].suffix}, as those of the "
            f"runtime {other!r} of {'hwbench' if owner is None else f'the package {package_of(owner)}'} do; "
            f"give it another ending, or remove it: python -m pip uninstall {package}"
        )


def _of_same_ending(name: str, known: Mapping[str, Capabilities]) -> str | None:
    """Another runtime whose files end like those of a runtime of another package, hwbench's own first."""
    if runtimes.point(name) is None or name not in known:
        return None
    return next((other for other in known if other != name and known[other].suffix == known[name].suffix), None)


def installed_version(distribution: str, together: Sequence[str] = ()) -> str:
    """Version of an installed distribution, which is not imported.

    Args:
        distribution: Its name on the package index.
        together: What the message says to install; default: the distribution.

    Raises:
        MissingDependency: It is not installed.
    """
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        command = f"python -m pip install {' '.join(map(shlex.quote, together or [distribution]))}"
        raise MissingDependency(f"{distribution} is not installed; install it with: {command}") from None
