"""What can be told of the blocks of a module by looking: shapes, arithmetic, and a digest of what makes them."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from hwbench.errors import InvalidValue, UnsupportedModule
from hwbench.specs import BlockSpec, ModelName, TensorSpec
from hwbench.specs.kinds.by_hand import hand_spec

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9]+")
# Of the 160 bits that a digest has; 17 decimal digits.
_DIGEST_BYTES = 7


def examined(
    name: ModelName, parts: Sequence[tuple[str, nn.Module]], clip: torch.Tensor, function: Any
) -> tuple[BlockSpec, ...]:
    """The blocks of a model in eval mode as values, from what happens to one clip.

    Args:
        name: Of the model.
        parts: Its blocks in a chain.
        clip: (1, 3, T, H, W).
        function: What makes the model.

    Raises:
        InvalidValue: A block has parameters and gives an empty activation.
    """
    code, specs, x = _code(function, [part for _, part in parts]), [], clip
    for index, (part_name, part) in enumerate(parts):
        y, counted = _counted(part, x)
        shapes = _spec(x), _spec(y)
        label = f"{name.label}.{_NOT_IN_NAME.sub('-', part_name).strip('-')}"
        version = _version(name, part_name, index, part, shapes, code)
        specs.append(hand_spec(index, len(parts), shapes, counted, label, version))
        x = y
    return tuple(specs)


def _spec(x: torch.Tensor) -> TensorSpec:
    """Its shape; T, H and W of logits are 1."""
    n, c, t, h, w = (*x.shape, 1, 1, 1)[:5]
    return TensorSpec(n, c, t, h, w)


def _counted(part: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, int, int]]:
    """What a block gives; its dense and depthwise multiply-adds, and its weights without biases and normalisation."""
    depthwise = [0]

    def add(layer: nn.Module, _: Any, y: torch.Tensor) -> None:
        if isinstance(layer, _CONVOLUTIONS) and layer.groups > 1:
            depthwise[0] += y.numel() * layer.weight[0].numel()

    hooks = [layer.register_forward_hook(add) for layer in part.modules()]
    try:
        with torch.no_grad(), _spelled_out_attention(), FlopCounterMode(display=False) as counter:
            y: torch.Tensor = part(x.clone())
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(y, torch.Tensor) or y.dim() not in (2, 5) or not y.numel():
        raise InvalidValue(f"expected a clip (N, C, T, H, W) or logits behind a block, got {type(y).__name__}")
    weights = sum(weight.numel() for weight in part.parameters() if weight.dim() > 1)
    return y, (max(counter.get_total_flops() // 2 - depthwise[0], 0), depthwise[0], weights)


@contextlib.contextmanager
def _spelled_out_attention() -> Iterator[None]:
    """Attention as products of matrices, for a while: of the fused operations of the CPU no multiply-add is counted."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def _version(
    name: ModelName, part_name: str, index: int, part: nn.Module, shapes: tuple[TensorSpec, TensorSpec], code: str
) -> str:
    """Digits that change with the code of a model, and with what a block consists of."""
    weights = [
        f"{key}{tuple(value.shape)}{value.dtype}" if torch.is_tensor(value) else f"{key}{type(value).__name__}"
        for key, value in part.state_dict().items()
    ]
    facts = [name.label, part_name, str(index), *(shape.key for shape in shapes), _ADDRESS.sub("", repr(part)), code]
    digest = hashlib.sha256("\0".join([*facts, *weights]).encode()).digest()
    return str(int.from_bytes(digest[:_DIGEST_BYTES], "big"))


def check_state(name: str, module: nn.Module) -> None:
    """Refuses a module whose state is more than tensors, which a checkpoint does not hold.

    Raises:
        UnsupportedModule: It has an extra state that is no tensor.
    """
    for key, value in module.state_dict().items():
        if not torch.is_tensor(value):
            raise UnsupportedModule(
                f"{name}: {key} of its state dict is a {type(value).__name__}, and a checkpoint holds tensors alone: "
                "let get_extra_state return a tensor, or leave it out and build what it holds from arguments"
            )


def _code(function: Any, parts: Sequence[nn.Module]) -> str:
    """Digest of the sources of a model (``own_modules``)."""
    digest = hashlib.sha256()
    for _, module in sorted(own_modules(function, parts).items()):
        digest.update(hashlib.sha256(Path(str(module.__file__)).read_bytes()).digest())
    return digest.hexdigest()


def own_modules(function: Any, parts: Sequence[nn.Module]) -> dict[str, ModuleType]:
    """By name the user's modules that make a model: of its function, of the classes of its parts, and those that these
    take names from."""
    classes = {type(layer) for part in parts for layer in part.modules()}
    first = inspect.getmodule(function if not isinstance(function, nn.Module) else type(function))
    package = first.__name__.partition(".")[0] if first is not None else ""
    starts = {module for one in classes if (module := inspect.getmodule(one)) is not None} | ({first} - {None})
    seen: dict[str, ModuleType] = {}
    waiting = [module for module in starts if module is not None and _is_own(module, first, package)]
    while waiting:
        module = waiting.pop()
        if module.__name__ not in seen and module.__file__ is not None:
            seen[module.__name__] = module
            waiting += [other for other in _named_in(module) if _is_own(other, first, package)]
    return seen


def _named_in(module: ModuleType) -> Iterator[ModuleType]:
    """The modules that a module has imported, or taken something from."""
    for value in list(vars(module).values()):
        other = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", "")))
        if isinstance(other, ModuleType):
            yield other


def _is_own(module: ModuleType, first: ModuleType | None, package: str) -> bool:
    """Whether a module is the user's: of the function's package, or a file beside the function's."""
    file, beside = getattr(module, "__file__", None), getattr(first, "__file__", None)
    if not file or not file.endswith(".py"):
        return False
    if module.__name__.partition(".")[0] == package:
        return True
    return beside is not None and Path(file).parent == Path(beside).parent
