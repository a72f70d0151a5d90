"""What a model of the user's answers to a clip, and what to write where it takes none or answers with no logits."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hwbench.blocks.copies import copied
from hwbench.blocks.double_precision import is_of_dtypes
from hwbench.blocks.kept import changed, kept_values, refusal
from hwbench.blocks.lazy import lazy_layers, uninitialised
from hwbench.errors import InvalidValue, UnsupportedModule
from hwbench.models.examined_blocks import own_modules
from hwbench.models.variables import Variables
from hwbench.registry import is_ending
from hwbench.specs import ModelName, TensorSpec

# What modules raise of a clip of another size.
_OF_SIZES = RuntimeError, ValueError, AssertionError, IndexError

# The stub of torch lacks device and dtype.
_without_values: Any = nn.UninitializedBuffer

# Of the largest logit: sums in another order make about 1e-6.
_TOLERANCE = 1e-4


def clip_of(name: ModelName | str, input: TensorSpec) -> torch.Tensor:
    """A clip of zeros.

    Raises:
        InvalidValue: There is no memory for it.
    """
    try:
        return torch.zeros(input.shape)
    except RuntimeError:
        raise InvalidValue(f"{name}: no memory for a clip of {input.key} (NxCxTxHxW); give another size") from None


def noise(name: ModelName | str, input: TensorSpec, seed: int = 0) -> torch.Tensor:
    """A clip of normal noise.

    Raises:
        InvalidValue: There is no memory for it.
    """
    return clip_of(name, input).normal_(generator=torch.Generator().manual_seed(seed))


def answer(name: ModelName | str, module: nn.Module, clip: torch.Tensor) -> torch.Tensor:
    """What a model in eval mode returns for a clip, which is left as it is: logits (1, classes).

    Raises:
        InvalidValue: It does not take the clip.
        UnsupportedModule: It returns something else.
    """
    try:
        with torch.no_grad():
            logits = module.eval()(clip.clone())
    except (Exception, SystemExit) as error:  # the model's own code
        if is_ending(error):
            raise
        shape = "x".join(map(str, clip.shape))
        raise InvalidValue(
            f"{name} does not take a clip of {shape} (NxCxTxHxW): {_cause(error)}; {_advice(module, error, clip)}"
        ) from error
    return _logits(f"{name}: expected logits (1, classes)", logits, len(clip))


def require_training_answer(name: ModelName | str, module: nn.Module, input: TensorSpec, num_classes: int) -> None:
    """Refuses a model that answers in training with something else than the logits it answers with in eval mode.

    A copy of it sees two clips of noise. What cannot be copied, and what fails for two clips, is trained to be seen.

    Args:
        name: Of the model, for errors.
        module: Left as it is.
        input: Shape of one clip.
        num_classes: Width of its logits in eval mode.

    Raises:
        UnsupportedModule: It returns something else than logits (2, classes), or logits that no weight is trained by.
    """
    copy = _copy(module)
    if copy is None:
        return
    clips = torch.cat([noise(name, input, seed) for seed in range(2)])
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.enable_grad():
                logits = copy.train()(clips)
        except (Exception, SystemExit) as error:  # the model's own code
            if is_ending(error):
                raise
            return
    expected = f"{name}: expected logits ({len(clips)}, {num_classes}) in training, as in eval mode"
    logits = _logits(expected, logits, len(clips))
    if logits.shape[1] != num_classes:
        raise UnsupportedModule(f"{expected}, it returns {tuple(logits.shape)}")
    if not logits.requires_grad:
        raise UnsupportedModule(
            f"{name}: its logits in training depend on no weight that is trained; take torch.no_grad() and detach() "
            "out of its forward"
        )


def _logits(expected: str, returned: Any, clips: int) -> torch.Tensor:
    """What a model returned for so many clips, if it is as many rows; ``expected`` begins the message.

    Raises:
        UnsupportedModule: It is something else.
    """
    if not isinstance(returned, torch.Tensor) or returned.dim() != 2:
        got = tuple(returned.shape) if isinstance(returned, torch.Tensor) else type(returned).__name__
        raise UnsupportedModule(f"{expected}, it returns {got}{_picked(returned)}")
    if len(returned) != clips:
        raise UnsupportedModule(f"{expected}, it returns {tuple(returned.shape)}; take the mean over frames")
    return returned


def initialised(name: ModelName | str, module: nn.Module, input: TensorSpec, function: object = None) -> nn.Module:
    """The module with weights in its lazy layers, which has seen no clip: a copy of it gets a clip of zeros.

    A module without lazy layers is returned as it is; one that cannot be copied gets the clip itself.

    Args:
        name: Of the model, for errors.
        module: It has seen no clip.
        input: Shape of the clip.
        function: The user's function that made the module, whose variables stay as they are; None: there is none.

    Raises:
        InvalidValue: It does not take the clip, no clip reaches a lazy layer, or there is no memory for the clip.
        UnsupportedModule: It does not return logits (1, classes).
    """
    layers = lazy_layers(module)
    if not layers:
        return module
    copy, variables = _copy(module), _variables(module, function)
    seen = module if copy is None else copy
    modes = [(part, part.training) for part in seen.modules()]
    answer(name, seen, clip_of(name, input))
    variables.put_back()
    for part, mode in modes:
        part.training = mode
    if missing := uninitialised(seen):
        raise InvalidValue(
            f"{name}: a clip does not reach {missing[0]}, which stays without values; leave its layer out"
        )
    if seen is module:
        return module
    return copied(module, {id(layer): seen.get_submodule(path) for path, layer in layers.items()})


def lasting_answer(
    name: ModelName | str, module: nn.Module, input: TensorSpec, function: object = None
) -> torch.Tensor:
    """``answer`` of a module that has seen no clip yet to seeded noise; it must be the same after another clip.

    Args:
        name: Of the model, for errors.
        module: Its lazy layers have weights (``initialised``).
        input: Shape of the clip.
        function: The user's function that made the module; variables of its modules and classes are looked at, too.
            None: there is none.

    Raises:
        InvalidValue: The module does not take the clip, or there is no memory for it.
        UnsupportedModule: It returns something else, or keeps something of a clip that later answers depend on.
    """
    clip = noise(name, input)
    fresh, before, variables = _copy(module), kept_values(module), _variables(module, function)
    logits = answer(name, module, clip)
    kept = [*changed(before, kept_values(module)), *variables.changed()]
    if kept and fresh is not None:
        variables.put_back()
        answer(name, fresh, noise(name, input, seed=1))
        difference = (answer(name, fresh, clip) - logits).abs().max()
        if float(difference) > _TOLERANCE * float(logits.abs().max()):
            raise refusal(str(name), kept)
    return logits


def _variables(module: nn.Module, function: object) -> Variables:
    """The variables of the user's modules, and of the classes in them that the parts of a model are of."""
    if function is None or isinstance(function, nn.Module):
        return Variables(())
    own = own_modules(function, [module])
    classes = dict.fromkeys(one for part in module.modules() for one in type(part).__mro__ if one.__module__ in own)
    return Variables([*own.values(), *classes])


def _copy(module: nn.Module) -> nn.Module | None:
    """A copy; None of a module that holds what cannot be copied, and that no deploy form is made of either."""
    # torch copies parameters without values, and no buffers.
    empty = [one for one in module.buffers() if isinstance(one, nn.UninitializedBuffer)]
    try:
        return copied(module, {id(one): _without_values(device=one.device, dtype=one.dtype) for one in empty})
    except UnsupportedModule:
        return None


def first_line(error: BaseException) -> str:
    """The first line of what an error says, of 300 characters at most."""
    return (str(error).strip().splitlines() or [""])[0][:300]


def _cause(error: BaseException) -> str:
    """What a module says; it is torch that says what is a RuntimeError."""
    return first_line(error) if type(error) is RuntimeError else f"{type(error).__name__}: {first_line(error)}"


def _picked(returned: Any) -> str:
    """How the logits are taken out of what a model returns."""
    if hasattr(returned, "logits"):
        return "; wrap it, and return its logits alone: self.net(x).logits"
    if isinstance(returned, Mapping):
        key = "logits" if "logits" in returned else next(iter(returned), "logits")
        return f"; wrap it, and return its logits alone: self.net(x)[{key!r}]"
    return "; wrap it, and return its logits alone: self.net(x)[0]" if isinstance(returned, tuple | list) else ""


def _advice(module: nn.Module, error: BaseException, clip: torch.Tensor) -> str:
    """What helps a module that failed for a clip."""
    if (inputs := _inputs(module)) != 1:
        return f"its forward takes {inputs} inputs, a network here takes one clip"
    if is_of_dtypes(error):
        return "the model converts its input itself, and hwbench runs it in fp32: leave the conversion out"
    if _takes(module, clip.transpose(1, 2)):
        return "it takes (N, T, C, H, W): wrap it, and call self.net(x.transpose(1, 2))"
    if isinstance(error, _OF_SIZES) and not isinstance(error, RecursionError):
        return "give another size: --input, or look where it fails: --debug"
    return "look where it fails: --debug"


def _takes(module: nn.Module, clip: torch.Tensor) -> bool:
    """Whether a module returns anything for a clip."""
    try:
        with torch.no_grad():
            module(clip.clone())
    except (Exception, SystemExit) as error:  # the model's own code
        if is_ending(error):
            raise
        return False
    return True


def _inputs(module: nn.Module) -> int:
    """How many inputs a module must be given; 1 where it takes one, or where Python cannot tell."""
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return 1
    with contextlib.suppress(TypeError):
        signature.bind(None)
        return 1
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return sum(one.default is one.empty and one.kind not in optional for one in signature.parameters.values())
