"""Models that a user wrote: ``package.module:function`` makes a module, which may name the blocks it is a chain of.

Only ``load`` imports code, and only the user's own words lead there: a command line, a request, or the process that was
given one. Everything that was read from a file is looked up among the models that were loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hwbench.blocks.copies import copied
from hwbench.blocks.lazy import uninitialised
from hwbench.errors import HwbenchError, InvalidValue, UnsupportedModule
from hwbench.models.answers import first_line, initialised, lasting_answer, noise
from hwbench.models.examined_blocks import check_state, examined, own_modules
from hwbench.registry import is_ending, suggest
from hwbench.specs import BlockSpec, ModelName, Network, TensorSpec
from hwbench.specs.kinds.by_hand import is_by_hand, model_of, part_of
from hwbench.specs.model_name import note_named

# What a function may take, and what it, or the module that it returns, may have.
CLASSES, INPUT, BLOCKS = "num_classes", "input_shape", "blocks"
# Not plain ``mean`` and ``std``, which a model that normalises inside has as buffers.
MEAN, STD = "input_mean", "input_std"
_CHAIN_TOLERANCE = 1e-4


@dataclass(frozen=True)
class HandModel:
    """A model that was loaded by its name.

    Attributes:
        name: As the user gave it.
        num_classes: What the function was called with; None where it takes no such argument.
        make: Makes a new module.
        input: One clip.
        names: Names of its blocks; one where it names none.
        network: Its blocks as values, on its clip.
        function: What the name meant.
        code: By name what Python loaded the user's modules from, which every import and every reload makes anew.
    """

    name: ModelName
    num_classes: int | None
    make: Callable[[], nn.Module]
    input: TensorSpec
    names: tuple[str, ...]
    network: Network
    function: Any
    code: Mapping[str, ModuleSpec | None]

    @property
    def is_current(self) -> bool:
        """Whether the name still means what was examined; after ``importlib.reload`` it means another model."""
        place = sys.modules.get(self.name.module)
        loaded = _code_of(self.code)
        same = all(loaded[module] is spec for module, spec in self.code.items())  # equal they are after a reload, too
        return same and getattr(place, self.name.function, None) is self.function

    def parts(self) -> list[nn.Module]:
        """The blocks of a new module, in the order of ``network.blocks``."""
        module = self.make()
        return [part for _, part in _merged(module, _parts(self.name, module), self.input)]

    def block(self, spec: BlockSpec) -> nn.Module:
        """One block of a new module."""
        return self.parts()[self.network.blocks.index(spec)]


_loaded: dict[tuple[ModelName, int | None], HandModel] = {}
_makers: dict[ModelName, None] = {}  # named beside a checkpoint


def load(name: ModelName, num_classes: int | None = None) -> HandModel:
    """Imports what the user named, calls it, and looks at what comes; once for each number of classes, and again where
    its code was loaded anew, as by ``importlib.reload``.

    Args:
        name: As the user gave it.
        num_classes: Width of the logits, for a function that takes ``num_classes``; any other has a head of its own.

    Raises:
        InvalidValue: There is no such function, it fails, it returns no module, its clip is not known, or its blocks
            are no chain that computes what it computes.
        UnsupportedModule: It does not return logits (1, classes), or they depend on the clips before.
    """
    function = imported(name)
    classes = num_classes if takes_classes(function) else None
    model = _loaded.get((name, classes))
    if model is None or not model.is_current:
        model = _loaded[name, classes] = _examined(name, function, classes)
    note_named(name, classes)
    return model


def name_maker(name: ModelName) -> None:
    """Imports what the user named beside a checkpoint, by whose classes and clip its model is made.

    Raises:
        InvalidValue: There is no such function.
    """
    imported(name)
    _makers[name] = None


def block(spec: BlockSpec) -> nn.Module:
    """A new block of a model that was loaded; what the kinds of ``hwbench.specs.kinds.by_hand`` name as ``module``.

    Raises:
        UnsupportedModule: No such model was loaded, or another version of it.
    """
    for model in _loaded.values():
        if spec in model.network.blocks and model.is_current:
            return model.block(spec)
    raise UnsupportedModule(_unknown((spec,)))


def whole(blocks: Sequence[BlockSpec]) -> nn.Module | None:
    """A new module of the model that has exactly these blocks; None where they are not all blocks of one."""
    for model in _loaded.values():
        if model.network.blocks == tuple(blocks) and model.is_current:
            return model.make()
    return None


def trainable(network: Network) -> nn.Module:
    """A new module of the model whose network this is, with as many classes, as its function initialises it.

    Its code may have changed since the blocks were named, as after a training; whether weights fit is seen when they
    are loaded.

    Raises:
        UnsupportedModule: No such model was named, its state is more than tensors, or what loading it raises.
        InvalidValue: It has another number of classes, or other blocks, or what loading it raises.
    """
    module = _model_of(network).make()
    check_state(network.name, module)
    return module


def _model_of(network: Network) -> HandModel:
    """The model whose network this is; raises what ``trainable`` raises."""
    label, parts = model_of(network.blocks[0]), [part_of(block) for block in network.blocks]
    for name in dict.fromkeys([*(name for name, _ in _loaded), *_makers]):
        model = load(_on_clip_of(network, name), network.num_classes) if name.label == label else None
        if model is None or [part_of(block) for block in model.network.blocks] != parts:
            continue
        if model.network.num_classes != network.num_classes:
            raise InvalidValue(
                f"{model.name} has {model.network.num_classes} classes, {network.num_classes} are needed; let the "
                f"function take {CLASSES}, and make its head as wide"
            )
        return model
    raise UnsupportedModule(_unknown(network.blocks))


def _on_clip_of(network: Network, name: ModelName) -> ModelName:
    """The name of a model with the clip of a network of it, where its function has another one, or none."""
    if name.input == network.input or any(m.name == name and m.input == network.input for m in _loaded.values()):
        return name
    plain, classes = replace(name, input=None), network.num_classes if takes_classes(imported(name)) else None
    with torch.random.fork_rng():
        module = made(plain, classes)
    return plain if input_of(plain, module) == network.input else replace(plain, input=network.input)


def is_by_hand_network(blocks: Sequence[BlockSpec]) -> bool:
    """Whether blocks are those of a network that a user wrote."""
    return bool(blocks) and all(is_by_hand(block) for block in blocks)


def takes_classes(function: object) -> bool:
    """Whether a function can be told the number of classes."""
    return not isinstance(function, nn.Module) and _classes_of(function) is not None


def is_importable(name: ModelName) -> bool:
    """Whether Python finds the module of a name, the working directory included."""
    with _working_directory():
        try:
            return importlib.util.find_spec(name.module) is not None
        except (ImportError, ValueError):
            return False


def imported(name: ModelName) -> Any:
    """What a name means: a function, or a module that was made already.

    Raises:
        InvalidValue: There is none.
    """
    plain = replace(name, input=None)
    with _working_directory():
        try:
            place = importlib.import_module(name.module)
        except HwbenchError:
            raise
        except (Exception, SystemExit) as error:  # the user's code raises what it likes
            if is_ending(error):
                raise
            raise InvalidValue(f"{plain} does not make a model: {type(error).__name__}: {first_line(error)}") from error
    if not hasattr(place, name.function):
        names = [n for n in dir(place) if not n.startswith("_")]
        raise InvalidValue(f"{plain}: {name.module} has no {name.function!r}; {suggest(name.function, names)}")
    return getattr(place, name.function)


def made(name: ModelName, num_classes: int | None = None) -> nn.Module:
    """The module that a function makes, on the CPU and in fp32; a module that was made already is copied.

    Raises:
        InvalidValue: There is no such function, it fails, it returns no module, or it takes a number of classes and
            none is given.
        UnsupportedModule: A module that was made already cannot be copied, or the weights are on the meta device.
    """
    function = imported(name)
    if isinstance(function, nn.Module):
        return _in_fp32(name, copied(function))
    plain, wanted = replace(name, input=None), {} if num_classes is None else {CLASSES: num_classes}
    if num_classes is None and _needs_classes(function):
        raise InvalidValue(f"{plain} is made for a number of classes: say how many, --classes N, as its table has them")
    with _working_directory():
        try:
            module = function(**wanted)
        except HwbenchError:
            raise
        except (Exception, SystemExit) as error:  # the user's code raises what it likes
            if is_ending(error):
                raise
            raise InvalidValue(f"{plain} does not make a model: {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise InvalidValue(f"{plain}: expected a torch.nn.Module, got {type(module).__name__}")
    return _in_fp32(name, module)


def _needs_classes(function: Any) -> bool:
    """Whether a function makes no model without being told a number of classes."""
    return (parameter := _classes_of(function)) is not None and parameter.default is parameter.empty


def _classes_of(function: Any) -> inspect.Parameter | None:
    try:
        return inspect.signature(function).parameters.get(CLASSES)
    except (TypeError, ValueError):
        return None


def _in_fp32(name: ModelName, module: nn.Module) -> nn.Module:
    if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        raise UnsupportedModule(f"{name}: its weights are on the meta device, where nothing can be computed")
    return module.cpu().float()


def input_of(name: ModelName, module: nn.Module) -> TensorSpec | None:
    """The clip of a model: from its name, else what the function or the module has as ``input_shape``, else None.

    Raises:
        InvalidValue: ``input_shape`` is not (1, 3, T, H, W).
    """
    shape: Any = _given(imported(name), INPUT, None) or getattr(module, INPUT, None)
    if name.input is None and shape is None:
        return None
    try:
        clip = name.input or (TensorSpec.parse(shape) if isinstance(shape, str) else TensorSpec(*map(int, shape)))
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"{name}: {INPUT}: expected (1, 3, T, H, W), got {shape!r}") from error
    if (clip.n, clip.c) != (1, 3):
        raise InvalidValue(f"{name}: expected one clip of three colours, 1x3xTxHxW, got {clip.key}")
    return clip


def normalisation_of(name: ModelName, module: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """What the function or the module has as ``input_mean`` and ``input_std``, of R, G, B from 0 to 1; else None.

    Raises:
        InvalidValue: There is one without the other, or it is not three numbers; ``input_std`` is not above 0.
    """

    def told(attribute: str) -> Any:
        value = _given(imported(name), attribute, None)
        return getattr(module, attribute, None) if value is None else value

    mean, std = told(MEAN), told(STD)
    if mean is None and std is None:
        return None
    try:
        found = tuple(map(float, mean)), tuple(map(float, std))
    except (TypeError, ValueError, RuntimeError):  # the last of a tensor of several numbers
        found = (), ()
    if any(len(one) != 3 or not all(map(math.isfinite, one)) for one in found) or min(found[1]) <= 0:
        raise InvalidValue(
            f"{name}: expected {MEAN} and {STD}, three numbers each, those of {STD} above 0; got {mean!r} and {std!r}"
        )
    return found


def normalisation_for(network: Network) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """``normalisation_of`` the model whose network this is.

    Raises:
        InvalidValue: As ``normalisation_of``, and as ``trainable``.
        UnsupportedModule: No such model was loaded.
    """
    model = _model_of(network)
    with torch.random.fork_rng():
        return normalisation_of(model.name, model.make())


def assumed_pixels(name: str, mean: float, std: float) -> str:
    """What is said where weights come with neither ``input_mean`` nor ``input_std``, and these hold in their place."""
    return (
        f"{name}: mean and std of its clips are assumed, {mean:g} and {std:g}; give the function or the module {MEAN} "
        f"and {STD}, (0, 0, 0) and (1, 1, 1) where it normalises pixels itself"
    )


def _examined(name: ModelName, function: Any, num_classes: int | None) -> HandModel:
    def make() -> nn.Module:
        module = made(name, num_classes)
        clip = input_of(name, module) if uninitialised(module) else None
        return module if clip is None else initialised(name, module, clip, function)

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().eval()
    clip = input_of(name, module)
    if clip is None:
        raise InvalidValue(
            f"{name}: its clip is not known; write {replace(name, input=None)}@1x3xTxHxW, such as @1x3x8x112x112, or "
            f"give the function an attribute {INPUT} = (1, 3, T, H, W)"
        )
    logits, example = lasting_answer(name, module, clip, function), noise(name, clip)
    parts = _parts(name, module)
    named = _merged(module, parts, clip)
    _check_chain(name, parts or named, example, logits)
    blocks = examined(name, named, example, function)
    network = Network(str(name), blocks, clip)
    code = _code_of(own_modules(function, [part for _, part in named]))
    return HandModel(name, num_classes, make, clip, tuple(part for part, _ in named), network, function, code)


def _code_of(modules: Iterable[str]) -> dict[str, ModuleSpec | None]:
    return {module: getattr(sys.modules.get(module), "__spec__", None) for module in modules}


def _given(function: Any, attribute: str, default: Any) -> Any:
    """An attribute of a function; what a class computes for its modules, as by a property, is none of the class."""
    value = getattr(function, attribute, default)
    return default if inspect.isclass(function) and _is_computed(value) else value


def _is_computed(value: Any) -> bool:
    return hasattr(value, "__get__") and not callable(value)


def _merged(module: nn.Module, parts: list[tuple[str, nn.Module]], clip: TensorSpec) -> list[tuple[str, nn.Module]]:
    """The blocks as (name, module), where everything from the first that gives no clip is one block with the last."""
    ends = _first_without_clip(parts, torch.zeros(clip.shape)) if parts else 0
    if ends == 0 or len(parts) == 1:
        return [("network", module)]
    if ends < len(parts) - 1:
        return [*parts[:ends], (parts[ends][0], _in_a_row(parts[ends:]))]
    return parts


def _in_a_row(parts: Sequence[tuple[str, nn.Module]]) -> nn.Sequential:
    """Blocks as one, by their names; a name that is taken, also by a method, comes behind the place of its block."""
    row = nn.Sequential()
    for place, (name, part) in enumerate(parts):
        plain = name.replace(".", "_")
        while hasattr(row, plain):
            plain = f"{place}_{plain}"
        row.add_module(plain, part)
    return row


def _first_without_clip(parts: Sequence[tuple[str, nn.Module]], x: torch.Tensor) -> int:
    """The place of the first block that gives something else than (N, C, T, H, W); behind the last where all do."""
    for index, (name, part) in enumerate(parts):
        x = _passed(name, part, x)
        if not isinstance(x, torch.Tensor) or x.dim() != 5:
            return index
    return len(parts)


def _passed(name: str, part: nn.Module, x: Any) -> Any:
    """What a block in eval mode gives; its input is left as it is, also where the block changes it in place."""
    try:
        with torch.no_grad():
            return part.eval()(x.clone() if isinstance(x, torch.Tensor) else x)
    except Exception as error:  # the model's own code
        raise InvalidValue(f"block {name!r} does not take what reaches it: {first_line(error)}; {_WAY_OUT}") from error


def _parts(name: ModelName, module: nn.Module) -> list[tuple[str, nn.Module]]:
    """What is named as blocks: by the function, by ``blocks`` of the module, or as steps of an ``nn.Sequential``.

    Raises:
        InvalidValue: The code that names them fails.
    """
    try:
        return _as_pairs(_named(imported(name), module))
    except HwbenchError:
        raise
    except Exception as error:  # the user's code raises what it likes
        raise InvalidValue(
            f"{name}: its {BLOCKS} cannot be read: {type(error).__name__}: {first_line(error)}; {_WAY_OUT}"
        ) from error


def _named(function: Any, module: nn.Module) -> Any:
    """Names to parts, a sequence of parts, or None for no blocks."""
    beside = NotImplemented if isinstance(function, nn.Module) else _given(function, BLOCKS, NotImplemented)
    if beside is not NotImplemented:
        return beside(module) if callable(beside) else beside
    if isinstance(module, nn.Sequential):
        return module
    computed = inspect.getattr_static(type(module), BLOCKS, None)
    # nn.Module takes an AttributeError in a property for the absence of the property.
    named = computed.__get__(module, type(module)) if _is_computed(computed) else getattr(module, BLOCKS, None)
    return named() if inspect.ismethod(named) else named


def _as_pairs(named: Any) -> list[tuple[str, nn.Module]]:
    if named is None:
        return []
    if isinstance(named, nn.Module):
        # A layer that is used twice is two steps of a chain.
        return [(name, part) for name, part in named._modules.items() if part is not None]
    if isinstance(named, Mapping):
        return [(str(name), part) for name, part in named.items()]
    pairs = [one if isinstance(one, tuple) else (str(index), one) for index, one in enumerate(named)]
    return [(str(name), part) for name, part in pairs]


_WAY_OUT = (
    "blocks are a chain from the clip to the logits; where they are not, name none: give the function an attribute "
    f"{BLOCKS} = None"
)


def _check_chain(
    name: ModelName, parts: Sequence[tuple[str, nn.Module]], clip: torch.Tensor, logits: torch.Tensor
) -> None:
    x: Any = clip
    for label, part in parts:
        x = _passed(label, part, x)
    if not bool(logits.isfinite().all()):
        if len(parts) == 1:
            return
        raise InvalidValue(f"{name}: returns values that are not finite, so its blocks cannot be checked; {_WAY_OUT}")
    tolerance = _CHAIN_TOLERANCE * float(logits.abs().max() + 1e-9)
    same_shape = isinstance(x, torch.Tensor) and x.shape == logits.shape
    if not same_shape or not float((x - logits).abs().max()) <= tolerance:  # NaN is neither
        raise InvalidValue(f"{name}: its blocks one after the other compute something else than it; {_WAY_OUT}")


def _unknown(blocks: Sequence[BlockSpec]) -> str:
    label = model_of(blocks[0])
    current = [m for m in _loaded.values() if m.name.label == label]
    if current:
        name = current[0].name
        return (
            f"{blocks[0].key}: made by another version of {name}, which has changed; profile it again, in a Python "
            f"session after a restart or importlib.reload of {name.module}"
        )
    return (
        f"the network {label} is made by a function of yours, and no file names code to run; name the function on the "
        "command line, as --made-by package.module:function with a checkpoint; train takes several with commas, as for "
        "a --teacher"
    )


class _working_directory:
    """Modules of the working directory can be imported, after those of Python and of what is installed.

    ``python -m`` puts the directory first, where its ``json.py`` would stand for Python's. Folders that the user's
    module adds to ``sys.path`` stay there.
    """

    def __enter__(self) -> None:
        self._folder = str(Path.cwd())
        sys.path.append(self._folder)

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ValueError):  # the user's module may have taken it away
            del sys.path[-1 - sys.path[::-1].index(self._folder)]
