"""A model with efficient blocks, in deploy form."""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils import _pytree as pytree

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.copies import copied
from hwbench.blocks.double_precision import doubled, is_of_dtypes, takes
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO

log = logging.getLogger(__name__)

# Hooks that compute weights; the deploy form has what they computed last.
_OF_WEIGHTS = (BasePruningMethod, SpectralNorm, WeightNorm)
# Of the largest output. Double precision leaves 1e-15 for each layer, and a constant in single precision 1e-8.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class ConversionReport:
    """What became of the efficient blocks of a model: the names converted, and why the others stayed."""

    converted: tuple[str, ...]
    kept: Mapping[str, str]

    def __str__(self) -> str:
        count = len(self.converted) + len(self.kept)
        reasons = "".join(f"\n  {name or 'the model itself'}: {reason}" for name, reason in self.kept.items())
        return f"{len(self.converted)} of {count} efficient blocks converted{reasons}"


def convert_to_deployable_form(
    model: nn.Module,
    example_input: torch.Tensor | tuple[Any, ...],
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    variant: str = AUTO,
) -> nn.Module:
    """A copy of a model, in eval mode, in which every efficient block has its deploy form.

    The model is run once on a copy of the example, without gradients, to see the size of every block's input. Model and
    example are left as they were, training mode included. The result takes inputs of the example's size only. A block
    that the example does not reach, whose deploy form would lose hooks, a forward that was replaced or
    parametrisations, or which has no deploy form that computes the same, as where layers inside of it were exchanged,
    stays in original form, which is logged; ``conversion`` of the result tells (a ``ConversionReport``). Whether a
    deploy form computes the same is seen on noise of the example's size, in double precision.

    Args:
        model: Any module with efficient blocks in it, or an efficient block.
        example_input: One tensor, or a tuple of positional arguments.
        example_kwargs: Arguments by name.
        variant: Layout of convolutions over time and space.

    Raises:
        UnsupportedModule: The model has no efficient block, no block can be converted, one is run on inputs of
            several sizes, or the model holds something that cannot be copied.
        UnknownName: No such variant.
    """
    blocks = _blocks(model)
    if not blocks:
        raise UnsupportedModule(
            f"{type(model).__name__} has no efficient block, nothing would be converted; "
            "run hwbench.deploy.transmute_model on it first"
        )
    args = example_input if isinstance(example_input, tuple) else (example_input,)
    shapes = _shapes(model, blocks, args, dict(example_kwargs or {}))
    converted, kept = [], {}
    deploy_forms: dict[int, nn.Module] = {}
    for name, block in blocks.items():
        found, reason = shapes.get(block, []), _altered(block)
        if not found or reason is not None:
            kept[name] = reason or "the example does not reach it"
        elif len(set(found)) > 1:
            raise UnsupportedModule(
                f"{name}: runs on inputs of several sizes ({', '.join(map(str, dict.fromkeys(found)))}); "
                "a deploy form has one size: give each use a block of its own"
            )
        elif (reason := _difference(block, found[0], variant)) is not None:
            kept[name] = reason
        else:
            deploy_forms[id(block)] = block.deployable(found[0], variant)
            converted.append(name)
    report = ConversionReport(tuple(converted), kept)
    if not converted:
        raise UnsupportedModule(str(report))
    deployed = copied(model, deploy_forms).eval()  # shared uses of a block become shared uses of its deploy form
    deployed.conversion = report  # type: ignore[assignment]
    log.log(logging.WARNING if kept else logging.INFO, "%s", report)
    return deployed


def _blocks(model: nn.Module) -> dict[str, EfficientBlock]:
    """The outermost efficient blocks by name, each once."""
    found: dict[str, EfficientBlock] = {}

    def walk(module: nn.Module, name: str) -> None:
        if isinstance(module, EfficientBlock):
            if all(module is not other for other in found.values()):
                found[name] = module
            return
        for child_name, child in module.named_children():
            walk(child, f"{name}.{child_name}" if name else child_name)

    walk(model, "")
    return found


def _altered(block: EfficientBlock) -> str | None:
    """Why the deploy form of a block would compute something else, or do less."""
    for name, part in block.named_modules():
        hooks = [*part._forward_hooks.values(), *part._forward_pre_hooks.values()]
        what = None
        if not all(isinstance(hook, _OF_WEIGHTS) for hook in hooks):
            what = "hooks"
        elif "forward" in vars(part):
            what = "a forward that was replaced"
        elif hasattr(part, "parametrizations"):
            what = "parametrisations"
        if what is not None:
            return f"{name or 'it'} has {what}, which a deploy form would lose"
    return None


def _difference(block: EfficientBlock, shape: tuple[int, ...], variant: str) -> str | None:
    """Why there is no deploy form that computes what the block does; None too where that cannot be told.

    Both see the same noise in double precision, where more than rounding is another function.
    """
    with torch.random.fork_rng(devices=()), torch.no_grad():
        try:
            original = doubled(block)
            clip = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            torch.manual_seed(0)
            expected = original(clip.clone())
        except Exception:  # it cannot be copied, or its own code takes no such numbers
            return None
        try:
            deployed = original.deployable(shape, variant)
            torch.manual_seed(0)
            y = deployed(clip.clone())
        except (UnsupportedModule, RuntimeError, ValueError, TypeError) as error:
            if is_of_dtypes(error) or _has_working_form(block, shape, variant):
                return None
            return f"it has no deploy form: {(str(error).splitlines() or [type(error).__name__])[0][:300]}"
    pairs = itertools.zip_longest(pytree.tree_leaves(y), pytree.tree_leaves(expected))
    return None if all(_alike(*pair) for pair in pairs) else "its deploy form computes something else"


def _has_working_form(block: EfficientBlock, shape: tuple[int, ...], variant: str) -> bool:
    """Whether there is a deploy form that takes a clip in the block's own dtype."""
    dtype = next((x.dtype for x in block.parameters() if x.is_floating_point()), torch.float32)
    try:
        form = block.deployable(shape, variant)
    except Exception:  # the block's own code
        return False
    return takes(form, (torch.zeros(shape, dtype=dtype),))


def _alike(y: Any, expected: Any) -> bool:
    """Whether two outputs are the same but for rounding; values that are not finite are equal to themselves."""
    if not isinstance(y, torch.Tensor) or not isinstance(expected, torch.Tensor):
        return type(y) is type(expected)
    if y.shape != expected.shape:
        return False
    y, expected = y.double(), expected.double()
    finite = expected[expected.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    return torch.allclose(y, expected, rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True)


def _shapes(
    model: nn.Module, blocks: Mapping[str, EfficientBlock], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[nn.Module, list[tuple[int, ...]]]:
    """The shapes of the inputs that each block gets when the model runs on the example."""
    shapes: dict[nn.Module, list[tuple[int, ...]]] = defaultdict(list)

    def see(block: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        tensors = [value for value in (*positional, *named.values()) if isinstance(value, torch.Tensor)]
        if len(tensors) != 1:
            raise UnsupportedModule(f"{type(block).__name__}: expected one tensor as its input, got {len(tensors)}")
        shapes[block].append(tuple(tensors[0].shape))

    modes = {module: module.training for module in model.modules()}
    hooks = [block.register_forward_pre_hook(see, with_kwargs=True) for block in blocks.values()]
    try:
        model.eval()
        with torch.no_grad():
            own_args, own_kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
            model(*own_args, **own_kwargs)
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes.items():
            module.training = training
    return shapes
