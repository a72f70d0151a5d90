"""Models from elsewhere as something to export: torchvision's video models, and what a function of the user's makes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hwbench.blocks.graph import deploy_graph
from hwbench.data import ClipSpec, Normalisation
from hwbench.deploy.manifest import WeightsOrigin
from hwbench.deploy.original import Original, settle
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, UnknownName, UnsupportedModule
from hwbench.measure.cache import file_sha256
from hwbench.registry import suggest
from hwbench.specs import AUTO, BlockSpec, Precision, TensorSpec, Workload

TORCHVISION = "torchvision"
# What torchvision's reference training cuts from a video.
_FRAMES = 16
_SETTLING_CLIPS = 2


@dataclass(frozen=True)
class ForeignNetwork:
    """A network that is not made of our blocks: a name, its input, and the width of its logits."""

    name: str
    input: TensorSpec
    num_classes: int

    @property
    def blocks(self) -> tuple[BlockSpec, ...]:
        """None are known."""
        return ()

    def workload(self, precision: Precision, variant: str = AUTO) -> Workload:
        """What stands for the network where a workload is asked for: one block of a kind that nobody can build."""
        block = BlockSpec("foreign", self.input.c, self.num_classes)
        return Workload((block,), self.input, precision, variant)

    def deployed(self, module: nn.Module, variant: str = AUTO) -> nn.Module:
        """The deploy form, through the graph."""
        example = torch.zeros(self.input.shape, dtype=next(module.parameters()).dtype)
        return deploy_graph(module, example, variant=variant)


@dataclass(frozen=True)
class ForeignModel:
    """A module with what is known of its clips; ``input`` is None where it is not known."""

    name: str
    module: nn.Module
    input: TensorSpec | None = None
    normalisation: Normalisation = field(default_factory=Normalisation)


def is_foreign(name: str) -> bool:
    """Whether a name means ``torchvision:MODEL`` or ``package.module:function``.

    ``zoo:NAME``, ``STUDY:best`` and printed architectures do not; a module counts where Python finds it.
    """
    head, colon, tail = name.strip().partition(":")
    if not colon or head == "zoo" or tail == "best" or not tail.isidentifier():
        return False
    return head == TORCHVISION or _found(head)


def foreign_model(name: str, num_classes: int | None = None) -> ForeignModel:
    """The model that a name means, with the weights that it is made with.

    Args:
        name: ``torchvision:MODEL``, or ``package.module:function`` of a function without arguments that returns a
            module; the working directory is looked into as well.
        num_classes: Width of the logits; None takes the model's own.

    Raises:
        UnknownName: torchvision has no such video model.
        InvalidValue: There is no such function, it fails, or it returns no module.
    """
    head, _, tail = name.strip().partition(":")
    if head == TORCHVISION:
        return _torchvision(tail, num_classes)
    if num_classes is not None:
        raise InvalidValue(f"--classes: {name} makes its own head; leave it out")
    return ForeignModel(name, _made(head, tail))


def foreign_original(
    model: ForeignModel, clip: ClipSpec, input: TensorSpec, weights: Path | None, seed: int | None
) -> Original:
    """A model from elsewhere as something to export.

    Args:
        model: The model; its module is changed.
        clip: How clips are cut from a video.
        input: One clip.
        weights: A file with its state dict; None keeps what it has.
        seed: Of the noise that batch norms take their statistics from, where the weights are random; else None.

    Raises:
        InvalidFile: The file is no state dict of this model.
        InvalidValue: The model does not take the input.
        UnsupportedModule: It does not return logits (1, classes).
    """
    module, origin = model.module.eval(), WeightsOrigin("made")
    if weights is not None:
        _load(module, weights)
        origin = WeightsOrigin("file", sha256=file_sha256(weights))
    elif seed is not None:
        origin = WeightsOrigin("random", seed=seed)
    answer = _answer(model.name, module, input)
    if weights is None and seed is not None:
        generator = torch.Generator().manual_seed(seed)
        settle(module, torch.randn(_SETTLING_CLIPS, *input.shape[1:], generator=generator))
    network = ForeignNetwork(model.name, input, answer.shape[1])
    return Original(network, module, clip, origin, normalisation=model.normalisation)


def _torchvision(name: str, num_classes: int | None) -> ForeignModel:
    from torchvision import models

    known = models.list_models(models.video)
    if name not in known:
        raise UnknownName(f"unknown video model of torchvision {name!r}; {suggest(name, known)}")
    preset = models.get_model_weights(name).DEFAULT.transforms()
    size = int(preset.crop_size[0])
    mean, std = ((float(v[0]), float(v[1]), float(v[2])) for v in (preset.mean, preset.std))
    classes = {} if num_classes is None else {"num_classes": num_classes}
    module: nn.Module = models.get_model(name, **classes)
    return ForeignModel(
        f"{TORCHVISION}:{name}", module, TensorSpec(1, 3, _FRAMES, size, size), Normalisation(mean, std)
    )


def _found(module: str) -> bool:
    if not all(part.isidentifier() for part in module.split(".")):
        return False
    with _working_directory():
        try:
            return importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            return False


def _made(module: str, function: str) -> nn.Module:
    name = f"{module}:{function}"
    with _working_directory():
        try:
            place = importlib.import_module(module)
            make: Any = getattr(place, function)
            made = make if isinstance(make, nn.Module) else make()
        except HwbenchError:
            raise
        except AttributeError as error:
            if not hasattr(sys.modules.get(module), function):
                names = [n for n in dir(sys.modules.get(module)) if not n.startswith("_")]
                raise InvalidValue(f"{name}: {module} has no {function!r}; {suggest(function, names)}") from error
            raise InvalidValue(f"{name} does not make a model: {_line(error)}") from error
        except Exception as error:  # the user's code raises what it likes
            raise InvalidValue(f"{name} does not make a model: {type(error).__name__}: {_line(error)}") from error
    if not isinstance(made, nn.Module):
        raise InvalidValue(f"{name}: expected a torch.nn.Module, got {type(made).__name__}")
    return made


class _working_directory:
    """Modules of the working directory can be imported, after those of Python and of what is installed.

    ``python -m`` puts the directory first, where its ``json.py`` would stand for Python's.
    """

    def __enter__(self) -> None:
        self._path = list(sys.path)
        sys.path.append(str(Path.cwd()))

    def __exit__(self, *_: object) -> None:
        sys.path[:] = self._path


def _load(module: nn.Module, path: Path) -> None:
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
        module.load_state_dict(values)
    except Exception as error:  # torch raises half a dozen kinds, depending on what the file is instead
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InvalidFile(f"{path}: not the state dict of this model: {' '.join(lines[:3])[:300]}") from None


def _answer(name: str, module: nn.Module, input: TensorSpec) -> torch.Tensor:
    """What the model returns for a clip of zeros."""
    try:
        with torch.no_grad():
            answer = module(torch.zeros(input.shape))
    except Exception as error:  # the model's own code
        raise InvalidValue(
            f"{name} does not take a clip of {input.key} (NxCxTxHxW): {_line(error)}; give another size: --input"
        ) from error
    if not isinstance(answer, torch.Tensor) or answer.dim() != 2:
        got = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise UnsupportedModule(f"{name}: expected logits (1, classes), it returns {got}")
    return answer


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]
