"""Ordinary layers exchanged for efficient blocks, in any torch model.

A *rule* looks at one module and answers with a block, with the reason why there is none, or with nothing when the
module is none of its business. A block takes the place of a module only if it computes the same: its output is compared
on a random input in double precision.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.mobile_cpu import (
    AdaptiveAvgPool3dOutSize1,
    Conv3d3x1x1BnAct,
    Conv3d3x3x3DwBnAct,
    Conv3d5x1x1BnAct,
    Conv3dPwBnAct,
    Conv3dTemporalKernel1BnAct,
)
from hwbench.blocks.mobile_cpu.convolutions import ConvBnAct
from hwbench.errors import UnsupportedModule
from hwbench.registry import Registry

log = logging.getLogger(__name__)

# A block, the reason why there is none, or None where the rule does not apply.
Rule = Callable[[nn.Module], EfficientBlock | str | None]
# What is tried for a target device, in this order: the first block that a rule gives is taken.
rules: Registry[tuple[Rule, ...]] = Registry("target device")

# Odd, unequal, and larger than the kernels: what is not the same shows.
_PROBE_THW = (7, 13, 11)
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class TransmuteReport:
    """The model with blocks in it, and what was exchanged.

    Attributes:
        model: The model that was given, or a block where the model itself was exchanged.
        replaced: Names of modules, with the block that took their place.
        kept: Names of convolutions and poolings that stay, with the reason.
    """

    model: nn.Module
    replaced: Mapping[str, str]
    kept: Mapping[str, str]

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} modules replaced, {len(self.kept)} kept"]
        lines += [f"  {name or 'the model itself'} -> {block}" for name, block in self.replaced.items()]
        lines += [f"  {name or 'the model itself'}: {reason}" for name, reason in self.kept.items()]
        return "\n".join(lines)


def transmute_model(model: nn.Module, target_device: str = "mobile_cpu", *, dry_run: bool = False) -> TransmuteReport:
    """Exchanges the layers of a model for efficient blocks with the same weights, in place.

    Parameters and buffers are the very same objects afterwards, so dtype, device, ``requires_grad`` and tying stay, and
    an optimiser made before goes on; training modes stay. A module used in two places becomes one block in both. Only
    exact types are exchanged: a subclass of ``nn.Conv3d`` may compute something else.

    Args:
        model: Any module. If it is itself such a layer, the block is in ``model`` of the result.
        target_device: Whose blocks: ``mobile_cpu``.
        dry_run: Only report.

    Raises:
        UnknownName: No such target device.
        UnsupportedModule: Nothing can be replaced; the message holds the reasons.
    """
    tried = rules.get(target_device)
    blocks: dict[nn.Module, EfficientBlock] = {}
    replaced: dict[str, str] = {}
    kept: dict[str, str] = {}
    for name, module in _candidates(model):
        result = _first(tried, module)
        if isinstance(result, EfficientBlock):
            blocks[module] = result
            replaced[name] = type(result).__name__
        elif result is not None:
            kept[name] = result
    if not replaced:
        reasons = TransmuteReport(model, replaced, kept)
        raise UnsupportedModule(f"{type(model).__name__}: nothing can be replaced by an efficient block. {reasons}")
    report = TransmuteReport(model if dry_run else _exchanged(model, blocks), replaced, kept)
    log.log(logging.INFO, "%s", report)
    return report


def _candidates(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Modules by name, without the insides of efficient blocks."""
    found: list[tuple[str, nn.Module]] = []
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if inside and name.startswith(inside):
            continue
        if isinstance(module, EfficientBlock):
            inside = (*inside, f"{name}." if name else "")
            continue
        found.append((name, module))
    return found


def _first(tried: tuple[Rule, ...], module: nn.Module) -> EfficientBlock | str | None:
    reason: str | None = None
    for rule in tried:
        result = rule(module)
        if isinstance(result, EfficientBlock):
            return result
        reason = reason or result
    return reason


def _exchanged(model: nn.Module, blocks: Mapping[nn.Module, EfficientBlock]) -> nn.Module:
    for module in [*model.modules()]:
        for name, child in [*module._modules.items()]:
            if child is not None and child in blocks:
                module._modules[name] = blocks[child]
    return blocks.get(model, model)


def _convolution(module: nn.Module) -> EfficientBlock | str | None:
    if not isinstance(module, nn.Conv3d):
        return None
    if type(module) is not nn.Conv3d:
        return f"a subclass of Conv3d ({type(module).__name__}) may compute something else"
    block = _of_geometry(module)
    if isinstance(block, str):
        return block
    block.kernel.conv = module
    block.train(module.training)
    return _proven(block, module)


def _of_geometry(conv: nn.Conv3d) -> ConvBnAct | str:
    """A block with a convolution of the same geometry, its weights on no device."""
    if isinstance(conv.padding, str) or conv.padding_mode != "zeros":
        return f"padding {conv.padding!r} of mode {conv.padding_mode!r}: only zeros, given in numbers, are covered"
    with torch.device("meta"):
        for block in _known(conv):
            if _geometry(block.conv) == _geometry(conv):
                return block
    return f"no efficient block has kernel {conv.kernel_size}, stride {conv.stride}, padding {conv.padding}, " + (
        f"dilation {conv.dilation}, groups {conv.groups} of {conv.in_channels} -> {conv.out_channels} channels"
    )


def _known(conv: nn.Conv3d) -> list[ConvBnAct]:
    """Every block that a convolution could be, by its channels and its spatial numbers."""
    i, o, g, bias = conv.in_channels, conv.out_channels, conv.groups, conv.bias is not None
    k, s, p, d = conv.kernel_size[1], conv.stride[1], int(conv.padding[1]), conv.dilation[1]
    return [
        Conv3dPwBnAct(i, o, bias=bias, activation="identity", use_bn=False),
        Conv3d3x3x3DwBnAct(i, s, bias=bias, activation="identity", use_bn=False),
        Conv3dTemporalKernel1BnAct(i, o, bias, g, k, s, p, d, activation="identity", use_bn=False),
        Conv3d3x1x1BnAct(i, o, groups=g, bias=bias, activation="identity", use_bn=False),
        Conv3d5x1x1BnAct(i, o, groups=g, bias=bias, activation="identity", use_bn=False),
    ]


def _geometry(conv: nn.Conv3d) -> tuple[object, ...]:
    sizes = (conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    return (*sizes, conv.groups, conv.in_channels, conv.out_channels, conv.padding_mode, conv.bias is None)


def _pooling(module: nn.Module) -> EfficientBlock | str | None:
    if not isinstance(module, nn.AdaptiveAvgPool3d):
        return None
    if type(module) is not nn.AdaptiveAvgPool3d:
        return f"a subclass of AdaptiveAvgPool3d ({type(module).__name__}) may compute something else"
    if module.output_size not in (1, (1, 1, 1), [1, 1, 1]):
        return f"adaptive pooling to {module.output_size}: only to 1 is covered"
    return AdaptiveAvgPool3dOutSize1().train(module.training)


def _proven(block: EfficientBlock, module: nn.Conv3d) -> EfficientBlock | str:
    """The block, if its original and its deploy form compute what the module does on a random clip."""
    from hwbench.blocks.base import tensor_spec
    from hwbench.blocks.layout import fold, unfold

    # Hooks would see the probe, and compiled or parametrised modules do not copy into double precision.
    if module._forward_hooks or module._forward_pre_hooks or hasattr(module, "parametrizations"):
        return "it has hooks or parametrisations, which a block would lose"
    shape = (2, module.in_channels, *_PROBE_THW)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        vanilla = copy.deepcopy(module).to("cpu", torch.float64)
        original = copy.deepcopy(block).to("cpu", torch.float64).eval()
        spec = tensor_spec(original, shape)
        expected, folded = vanilla(x), original.to_deploy(spec)(fold(x))
        results = (original(x), unfold(folded, original.output(spec).t))
        scale = max(float(expected.abs().max()), 1.0)
        if any(y.shape != expected.shape or float((y - expected).abs().max()) > _TOLERANCE * scale for y in results):
            return f"{type(block).__name__} does not compute the same"
    return block


rules.register("mobile_cpu")((_convolution, _pooling))
