"""Ordinary layers exchanged for efficient blocks, in any torch model.

Three steps, each on what the one before has left:

1. A squeeze-excite module becomes one block.
2. A convolution becomes a block, together with the normalisation and the activation behind it where the forward of the
   model, traced, sends nothing but the one into the other. These stay in their places as ``nn.Identity``, so the
   model's own code stays as it is. A pooling becomes a block.
3. A module that adds two paths of blocks becomes one block.

What cannot be known stays: where a forward cannot be traced, nobody sees who else uses the output of a convolution.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.copies import copied
from hwbench.blocks.double_precision import doubled, fixed_dtype_refused
from hwbench.deploy.patterns import (
    Rule,
    activation_of,
    altered,
    convolution,
    pooling,
    residual,
    squeeze_excite,
)
from hwbench.deploy.tracing import Traced, Untraceable, trace
from hwbench.errors import UnsupportedModule
from hwbench.registry import Registry

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rules:
    """What is tried for a target device; of each step, the first block that a rule gives is taken.

    Attributes:
        groups: For modules of plain layers, the outermost first.
        layers: For single layers. ``convolution`` is asked before them, with what follows.
        sums: For modules of blocks, the innermost first.
    """

    convolution: Callable[[nn.Module, nn.Module | None, nn.Module | None], EfficientBlock | str | None]
    groups: tuple[Rule, ...] = ()
    layers: tuple[Rule, ...] = ()
    sums: tuple[Rule, ...] = ()


rules: Registry[Rules] = Registry("target device")
rules.register("mobile_cpu")(Rules(convolution, (squeeze_excite,), (pooling,), (residual,)))

# Shares of the largest output by which a model may differ after the exchange, in double precision.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class TransmuteReport:
    """The model with blocks in it, and what was exchanged.

    Attributes:
        model: The model that was given, or a block where the model itself was exchanged.
        replaced: Names of modules, with the block that took their place. Some are inside of others.
        absorbed: Names of modules that are now part of a block elsewhere, with the name of its place.
        kept: Names of layers and of groups that stay, with the reason.
    """

    model: nn.Module
    replaced: Mapping[str, str]
    kept: Mapping[str, str]
    absorbed: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} modules replaced, {len(self.absorbed)} absorbed, {len(self.kept)} kept"]
        lines += [f"  {_shown(name)} -> {block}" for name, block in self.replaced.items()]
        lines += [f"  {_shown(name)} -> inside {_shown(place)}" for name, place in self.absorbed.items()]
        lines += [f"  {_shown(name)}: {reason}" for name, reason in self.kept.items()]
        return "\n".join(lines)


def transmute_model(
    model: nn.Module,
    target_device: str = "mobile_cpu",
    *,
    example_input: torch.Tensor | tuple[Any, ...] | None = None,
    dry_run: bool = False,
) -> TransmuteReport:
    """Exchanges the layers of a model for efficient blocks with the same weights, in place.

    Parameters and buffers are the very same objects afterwards, so dtype, device, ``requires_grad`` and tying stay, and
    an optimiser made before goes on; training modes stay. A module used in two places becomes one block in both. Only
    exact types are exchanged: a subclass of ``nn.Conv3d`` may compute something else. Each match is proven on a random
    clip in double precision, in both forms of the block. If anything fails the model is as it was.

    Args:
        model: Any module. If it is itself exchanged, the block is in ``model`` of the result.
        target_device: Whose blocks: ``mobile_cpu``.
        example_input: One tensor, or a tuple of positional arguments; left as it is. The whole model is run on it
            before and after, in double precision and evaluation. With it, layers are also grouped in those parts of a
            model that can be traced where the whole cannot.
        dry_run: Only report.

    Raises:
        UnknownName: No such target device.
        UnsupportedModule: Nothing can be replaced (the message holds the reasons), or the forward uses the insides of
            what would be replaced, or, with an example, fixes a dtype.
    """
    tried = rules.get(target_device)
    if dry_run:
        report = _transmuted(copied(model), tried, example_input)
        return TransmuteReport(model, report.replaced, report.kept, report.absorbed)
    report = _transmuted(model, tried, example_input)
    log.log(logging.INFO, "%s", report)
    return report


def _transmuted(model: nn.Module, tried: Rules, example: torch.Tensor | tuple[Any, ...] | None) -> TransmuteReport:
    expected = None if example is None else _run(model, example)
    traceable = not _is_layer(model) and _traceable(model)
    work = _Work(model)
    with work.undone_on_failure():
        work.groups(tried.groups)
        work.layers(tried, _Flow.of(work.model, parts=example is not None))
        work.sums(tried.sums)
        report = work.report()
        if not report.replaced:
            raise UnsupportedModule(f"{type(model).__name__}: nothing can be replaced by an efficient block. {report}")
        if traceable and not isinstance(report.model, EfficientBlock):
            _check_forward(report.model, work.exchanged)
        if example is not None:
            _check_same(expected, _run(report.model, example))
    return report


class _Work:
    """A model that is being exchanged, with what is known so far and the way back."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.names = {module: name for name, module in model.named_modules()}
        self.replaced: dict[str, str] = {}
        self.absorbed: dict[str, str] = {}
        self.kept: dict[str, str] = {}
        self._undo: list[tuple[nn.Module, str, nn.Module]] = []

    def report(self) -> TransmuteReport:
        """What has become of it so far."""
        return TransmuteReport(self.model, self.replaced, self.kept, self.absorbed)

    @property
    def exchanged(self) -> set[nn.Module]:
        """What is in its place no more."""
        return {child for _, _, child in self._undo}

    @contextmanager
    def undone_on_failure(self) -> Iterator[None]:
        """Puts every module back if anything is raised."""
        try:
            yield
        except BaseException:
            for parent, name, child in reversed(self._undo):
                parent._modules[name] = child
            raise

    def groups(self, tried: tuple[Rule, ...]) -> None:
        """Modules of plain layers, the outermost first."""
        modules = _outside_blocks(self.model)
        left = {*modules}
        for module in modules:
            if module in left and self._apply(tried, module):
                left = {*_outside_blocks(self.model)}  # what was inside of a group is gone

    def layers(self, tried: Rules, flow: _Flow) -> None:
        """Convolutions with what follows them, then other layers."""
        reasons: dict[nn.Module, str] = {}
        for module in _outside_blocks(self.model):
            if not isinstance(module, nn.Conv3d):
                self._apply(tried.layers, module)
                continue
            if type(module) is nn.Conv3d and flow.uses_weights_of(module):
                self.kept[self.names[module]] = "the forward uses its weights itself"
                continue
            norm, act = flow.following(module)
            answer = tried.convolution(module, norm, act)
            if not isinstance(answer, EfficientBlock) and norm is not None:
                reasons[norm] = answer or "no rule covers it"
                norm = act = None
                answer = tried.convolution(module, None, None)
            if not isinstance(answer, EfficientBlock):
                self.kept[self.names[module]] = answer or "no rule covers it"
                continue
            self._exchange(module, answer)
            for layer in (norm, act):
                if layer is not None:
                    self.absorbed[self.names[layer]] = self.names[module]
                    self._put(layer, _placeholder(layer))
        for module in _outside_blocks(self.model):
            if isinstance(module, nn.BatchNorm3d):
                self.kept.setdefault(self.names[module], reasons.get(module) or flow.reason(module))

    def sums(self, tried: tuple[Rule, ...]) -> None:
        """Modules of blocks, the innermost first."""
        for module in reversed(_outside_blocks(self.model)):
            self._apply(tried, module)

    def _apply(self, tried: tuple[Rule, ...], module: nn.Module) -> bool:
        reason: str | None = None
        for rule in tried:
            answer = rule(module)
            if isinstance(answer, EfficientBlock):
                self._exchange(module, answer)
                return True
            reason = reason or answer
        if reason is not None:
            self.kept[self.names[module]] = reason
        return False

    def _exchange(self, module: nn.Module, block: EfficientBlock) -> None:
        name = self.names[module]
        self.replaced[name] = type(block).__name__
        inside = f"{name}." if name else ""
        for reasoned in [other for other in self.kept if other != name and other.startswith(inside)]:
            del self.kept[reasoned]
        self._put(module, block)
        self.names[block] = name

    def _put(self, module: nn.Module, other: nn.Module) -> None:
        """Another module in all places of one; not inside blocks, which hold the layers they are made of."""
        for parent in [p for p in _outside_blocks(self.model) if p is not module]:
            for name, child in [*parent._modules.items()]:
                if child is module:
                    self._undo.append((parent, name, child))
                    parent._modules[name] = other
        if self.model is module:
            self.model = other


class _Flow:
    """Which layer the output of a layer goes to, and nothing else, whenever it is called."""

    def __init__(self, traced: list[Traced], untraced: str | None) -> None:
        self._untraced = untraced
        self._graphs = [(one, one.calls()) for one in traced]
        self._used = {owner for one in traced for owner in _owners(one)}

    @classmethod
    def of(cls, model: nn.Module, *, parts: bool) -> _Flow:
        """Of a whole model, or, with ``parts``, of its largest parts that can be traced."""
        if _is_layer(model):
            return cls([], "the model is a single layer")
        try:
            return cls([*trace(model)], None)
        except Untraceable as error:
            reason = f"the forward of {type(model).__name__} cannot be traced ({error})"
        if parts:
            return cls([one for traces in _parts(model) for one in traces], reason)
        return cls([], f"{reason}, so who else uses the convolution before it is not known; give an example_input")

    def following(self, conv: nn.Module) -> tuple[nn.BatchNorm3d | None, nn.Module | None]:
        """The normalisation and the activation behind a convolution that can be one block with it."""
        after = self._next(conv)
        if after is not None and activation_of(after):
            return None, after
        if not isinstance(after, nn.BatchNorm3d) or self._unfit(after) is not None:
            return None, None
        act = self._next(after)
        return after, act if act is not None and activation_of(act) else None

    def uses_weights_of(self, layer: nn.Module) -> bool:
        """Whether a forward takes parameters of a layer past the layer."""
        return layer in self._used

    def reason(self, norm: nn.BatchNorm3d) -> str:
        """Why a normalisation is not part of a block."""
        return self._unfit(norm) or self._untraced or "it does not get all and only the output of one convolution"

    def _unfit(self, norm: nn.BatchNorm3d) -> str | None:
        if type(norm) is not nn.BatchNorm3d:
            return f"a subclass of BatchNorm3d ({type(norm).__name__}) may compute something else"
        if norm.running_mean is None:
            return "it has no running statistics, so it cannot be folded"
        return "its weights are used elsewhere, too" if norm in self._used else altered(norm)

    def _next(self, layer: nn.Module) -> nn.Module | None:
        """The module that gets every output of a layer and is called on nothing else, in all traces."""
        followed: set[nn.Module | None] = set()
        users = []
        for traced, calls in self._graphs:
            nodes = calls.get(layer, [])
            if any(len(node.users) != 1 for node in nodes):
                return None
            users.append({user for node in nodes for user in node.users})
            followed |= {traced.module(user) for user in users[-1]}
        after = followed.pop() if len(followed) == 1 else None
        if after is None:
            return None
        fed = all({*calls.get(after, [])} == only for (_, calls), only in zip(self._graphs, users))
        return after if fed else None


def _owners(traced: Traced) -> set[nn.Module]:
    """The layers whose parameters a forward uses itself."""
    names = {name.rpartition(".")[0] for name in traced.attributes()}
    return {traced.modules[name] for name in names if name in traced.modules}


def _parts(module: nn.Module) -> Iterator[tuple[Traced, ...]]:
    for child in module.children():
        if _is_layer(child):
            continue
        try:
            yield trace(child)
        except Untraceable:
            yield from _parts(child)


def _is_layer(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def _outside_blocks(model: nn.Module) -> list[nn.Module]:
    """All modules but the insides of efficient blocks, and blocks that were there; each once, parents first."""
    found: dict[nn.Module, None] = {}

    def walk(module: nn.Module) -> None:
        if module in found or isinstance(module, EfficientBlock):
            return
        found[module] = None
        for child in module.children():
            walk(child)

    walk(model)
    return [*found]


def _placeholder(layer: nn.Module) -> nn.Module:
    made = nn.Identity()
    made.training = layer.training
    return made


def _traceable(model: nn.Module) -> bool:
    try:
        trace(model)
    except Untraceable:
        return False
    return True


def _check_forward(model: nn.Module, exchanged: set[nn.Module]) -> None:
    """Raises UnsupportedModule where a forward reaches for what has become a part of a block."""
    try:
        traces = trace(model)
    except Untraceable as error:
        raise UnsupportedModule(
            f"{type(model).__name__}: its forward uses the insides of a layer that would become a block ({error}); "
            "the model is as it was"
        ) from None
    called = (str(nodes[0].target) for one in traces for part, nodes in one.calls().items() if part in exchanged)
    if (name := next(called, None)) is not None:
        raise UnsupportedModule(
            f"{type(model).__name__}: its forward calls what is now {name} by another reference than its name, as from "
            "a list, so that the layer would be used beside the block it is in; the model is as it was. Use an "
            "nn.ModuleList"
        )


def _run(model: nn.Module, example: torch.Tensor | tuple[Any, ...]) -> Any:
    """The output of a copy in double precision and evaluation."""
    args = example if isinstance(example, tuple) else (example,)
    exact = [a.detach().to("cpu", torch.float64, copy=True) if _is_float(a) else copy.deepcopy(a) for a in args]
    with torch.no_grad(), fixed_dtype_refused(model, args):
        return doubled(model)(*exact)


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _check_same(expected: Any, got: Any) -> None:
    tensors, others = (torch.utils._pytree.tree_leaves(value) for value in (expected, got))
    for a, b in zip(tensors, others, strict=True):
        if not isinstance(a, torch.Tensor):
            continue
        scale = max(float(a.abs().max()), 1.0) if a.numel() else 1.0
        if a.shape != b.shape or not bool(((a - b).abs() <= _TOLERANCE * scale).all()):
            raise UnsupportedModule(
                "the model does not compute the same on example_input after the exchange, and is as it was; its "
                "forward reaches layers past their modules. Please report it"
            )


def _shown(name: str) -> str:
    return name or "the model itself"
