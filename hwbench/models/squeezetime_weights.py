"""Weights of SqueezeTime under the names of its authors, and the way between them.

    squeezetime             this package: ``stages.0.0.conv_b.focus``, ``head.proj``
    mmaction2-squeezetime   the authors' code in mmaction2: ``backbone.net.layer1.0.conv2.temporal_conv``

Both have the same layers. One tensor is changed: the authors' stem has the channels of a clip one after the other, each
with all its frames, this package has the frames one after the other, each with all its channels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

import torch

from hwbench.errors import InvalidValue
from hwbench.specs.tensor import CLIP_CHANNELS


class SqueezeTimeForm(StrEnum):
    """Whose names the weights of a SqueezeTime have."""

    OWN = "squeezetime"
    MMACTION2 = "mmaction2-squeezetime"


# Layers of a block: this package, the authors.
_BLOCK = {
    "downsample.conv": "downsample.0", "downsample.norm": "downsample.1",
    "conv_a": "conv1", "norm_a": "bn1",
    "conv_b.gate.reduce": "conv2.param_conv.1",
    "conv_b.gate.norm": "conv2.param_conv.2",
    "conv_b.gate.expand": "conv2.param_conv.4",
    "conv_b.focus": "conv2.temporal_conv",
    "conv_b.interaction.local": "conv2.spatial_conv.short_conv",
    "conv_b.interaction.conv_a": "conv2.spatial_conv.glo_conv.0",
    "conv_b.interaction.norm_a": "conv2.spatial_conv.glo_conv.1",
    "conv_b.interaction.conv_b": "conv2.spatial_conv.glo_conv.3",
    "conv_b.interaction.norm_b": "conv2.spatial_conv.glo_conv.4",
    "conv_b.interaction.conv_c": "conv2.spatial_conv.glo_conv.6",
    "norm_b": "bn2", "conv_c": "conv3", "norm_c": "bn3",
    "shortcut.conv": "shortcut_conv.0", "shortcut.norm": "shortcut_conv.1",
}  # fmt: skip
# Layers outside of blocks.
_ENDS = {"stem.conv": "backbone.net.conv1", "stem.norm": "backbone.net.bn1", "head.proj": "cls_head.fc_cls"}
_TENSORS = r"\.(?P<tensor>weight|bias|running_mean|running_var|num_batches_tracked)"
_OURS = re.compile(r"(?:stages\.(?P<s>\d+)\.(?P<b>\d+)\.)?(?P<layer>[a-z_.]+?)" + _TENSORS)
_THEIRS = re.compile(r"(?:backbone\.net\.layer(?P<s>\d+)\.(?P<b>\d+)\.)?(?P<layer>[a-z_0-9.]+?)" + _TENSORS)
_POSITIONS = (
    re.compile(r"stages\.(?P<s>\d+)\.(?P<b>\d+)\.conv_b\.interaction\.position"),
    re.compile(r"backbone\.net\.layer(?P<s>\d+)\.(?P<b>\d+)\.conv2\.spatial_conv\.pos_embed"),
)
_STEM = {SqueezeTimeForm.OWN: "stem.conv.weight", SqueezeTimeForm.MMACTION2: "backbone.net.conv1.weight"}
SQUEEZETIME_EXAMPLES = ("stages.0.0.conv_b.focus.weight", "backbone.net.layer1.0.conv2.temporal_conv.weight")


def squeezetime_from_mmaction2(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """State dict of a SqueezeTime of this package from the authors'; the tensors are independent.

    Raises:
        InvalidValue: A name that is not one of the authors' code.
    """
    return _translated(weights, SqueezeTimeForm.MMACTION2)


def mmaction2_from_squeezetime(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """State dict of the authors' SqueezeTime in mmaction2 from one of this package; the tensors are independent.

    Raises:
        InvalidValue: A name that is not one of this package.
    """
    return _translated(weights, SqueezeTimeForm.OWN)


def squeezetime_name(name: str, form: SqueezeTimeForm) -> str | None:
    """What a weight is called in the other form; None where it is no weight of ``form``."""
    own = form is SqueezeTimeForm.OWN
    blocks, ends = (_BLOCK, _ENDS) if own else (_turned(_BLOCK), _turned(_ENDS))
    match = _POSITIONS[0 if own else 1].fullmatch(name)
    if match is not None:
        layer = "conv2.spatial_conv.pos_embed" if own else "conv_b.interaction.position"
        return _placed(match, own) + layer
    match = (_OURS if own else _THEIRS).fullmatch(name)
    if match is None:
        return None
    layers = ends if match["s"] is None else blocks
    if match["layer"] not in layers:
        return None
    place = "" if match["s"] is None else _placed(match, own)
    return f"{place}{layers[match['layer']]}.{match['tensor']}"


def squeezetime_form(names: Iterable[str]) -> tuple[SqueezeTimeForm, int]:
    """The form that most of the names belong to, and how many do."""
    names = tuple(names)
    counts = {form: sum(squeezetime_name(name, form) is not None for name in names) for form in SqueezeTimeForm}
    best = max(SqueezeTimeForm, key=lambda form: counts[form])
    return best, counts[best]


def stem_in(form: SqueezeTimeForm, name: str, value: torch.Tensor) -> torch.Tensor:
    """A tensor of ``form`` as the other one has it: of the stem another order of its input channels, else a copy."""
    if name != _STEM[form] or value.dim() != 4 or value.shape[1] % CLIP_CHANNELS:
        return value.clone()
    out, channels, *size = value.shape
    frames = channels // CLIP_CHANNELS
    parts = (frames, CLIP_CHANNELS) if form is SqueezeTimeForm.OWN else (CLIP_CHANNELS, frames)
    return value.reshape(out, *parts, *size).transpose(1, 2).reshape(value.shape).clone()


def _translated(weights: Mapping[str, torch.Tensor], form: SqueezeTimeForm) -> dict[str, torch.Tensor]:
    names = {name: squeezetime_name(name, form) for name in weights}
    unknown = [name for name, other in names.items() if other is None]
    if unknown:
        example = SQUEEZETIME_EXAMPLES[list(SqueezeTimeForm).index(form)]
        raise InvalidValue(
            f"{unknown[0]!r}: no weight of a SqueezeTime of form {form}; expected names such as {example}"
        )
    return {other: stem_in(form, name, weights[name]) for name, other in names.items() if other is not None}


def _placed(match: re.Match[str], own: bool) -> str:
    """The beginning of a name of the other form: the stage, counted from 1 there, and the block."""
    stage, block = int(match["s"]), match["b"]
    return f"backbone.net.layer{stage + 1}.{block}." if own else f"stages.{stage - 1}.{block}."


def _turned(names: Mapping[str, str]) -> dict[str, str]:
    return {value: key for key, value in names.items()}
