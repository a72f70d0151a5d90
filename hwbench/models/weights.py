"""Weights of X3D under the names of three code bases, and the way from each to each.

    efficient-x3d   EfficientX3d of PyTorchVideo's accelerator, and of this package: ``s2.pathway0_res0.layers.conv_0``
    x3d             X3D of PyTorchVideo: ``blocks.1.res_blocks.0.branch2.conv_a``
    pyslowfast      X3D of PySlowFast: ``s2.pathway0_res0.branch2.a``

All three compute the same but for one layer: a shortcut whose channels stay and whose stride is 2 (the first block) has
a normalisation in ``efficient-x3d`` and ``pyslowfast`` and none in ``x3d``. On the way there it becomes an identity:
gamma 1, beta 0, mean 0, variance 1 - eps. On the way back it is folded, which changes nothing in eval mode: its scale
into the convolution of the shortcut, its shift into the last normalisation of the other branch, which is added to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import torch

from hwbench.errors import InvalidValue, UnsupportedModule

Weights = Mapping[str, torch.Tensor]


class WeightsForm(StrEnum):
    """Whose names weights have."""

    EFFICIENT = "efficient-x3d"
    VANILLA = "x3d"
    PYSLOWFAST = "pyslowfast"


# Layers in the order of WeightsForm. {s} is the stage, {v} the same counted from the stem, {b} the block, {h} the head.
# In x3d ``conv_t`` is the convolution over space.
_BLOCK = ("s{s}.pathway0_res{b}", "blocks.{v}.res_blocks.{b}", "s{s}.pathway0_res{b}")
_BRANCH = tuple(f"{place}.{branch}" for place, branch in zip(_BLOCK, ("layers", "branch2", "branch2")))
_LAYERS = (
    ("s1.pathway0_stem_conv_xy.kernel.conv", "blocks.0.conv.conv_t", "s1.pathway0_stem.conv_xy"),
    ("s1.pathway0_stem_conv.kernel.conv", "blocks.0.conv.conv_xy", "s1.pathway0_stem.conv"),
    ("s1.pathway0_stem_conv.kernel.bn", "blocks.0.norm", "s1.pathway0_stem.bn"),
    (f"{_BLOCK[0]}._res_proj.kernel.conv", f"{_BLOCK[1]}.branch1_conv", f"{_BLOCK[2]}.branch1"),
    (f"{_BLOCK[0]}._res_proj.kernel.bn", f"{_BLOCK[1]}.branch1_norm", f"{_BLOCK[2]}.branch1_bn"),
    (f"{_BRANCH[0]}.conv_0.kernel.conv", f"{_BRANCH[1]}.conv_a", f"{_BRANCH[2]}.a"),
    (f"{_BRANCH[0]}.conv_0.kernel.bn", f"{_BRANCH[1]}.norm_a", f"{_BRANCH[2]}.a_bn"),
    (f"{_BRANCH[0]}.conv_1.kernel.conv", f"{_BRANCH[1]}.conv_b", f"{_BRANCH[2]}.b"),
    (f"{_BRANCH[0]}.conv_1.kernel.bn", f"{_BRANCH[1]}.norm_b.0", f"{_BRANCH[2]}.b_bn"),
    (f"{_BRANCH[0]}.se.se.block.0", f"{_BRANCH[1]}.norm_b.1.block.0", f"{_BRANCH[2]}.se.fc1"),
    (f"{_BRANCH[0]}.se.se.block.2", f"{_BRANCH[1]}.norm_b.1.block.2", f"{_BRANCH[2]}.se.fc2"),
    (f"{_BRANCH[0]}.conv_2.kernel.conv", f"{_BRANCH[1]}.conv_c", f"{_BRANCH[2]}.c"),
    (f"{_BRANCH[0]}.conv_2.kernel.bn", f"{_BRANCH[1]}.norm_c", f"{_BRANCH[2]}.c_bn"),
    ("head.conv_5.kernel.conv", "blocks.{h}.pool.pre_conv", "head.conv_5"),
    ("head.conv_5.kernel.bn", "blocks.{h}.pool.pre_norm", "head.conv_5_bn"),
    ("head.lin_5.kernel.conv", "blocks.{h}.pool.post_conv", "head.lin_5"),
    ("projection.model", "blocks.{h}.proj", "head.projection"),
)
_TENSORS = r"\.(?P<tensor>weight|bias|running_mean|running_var|num_batches_tracked)"
_PATTERNS = {
    form: tuple(
        re.compile(re.sub(r"\\\{(\w)\\\}", r"(?P<\1>\\d+)", re.escape(layer[index])) + _TENSORS) for layer in _LAYERS
    )
    for index, form in enumerate(WeightsForm)
}
_SHORTCUT = re.compile(r"(s\d+\.pathway0_res\d+)\._res_proj\.kernel\.conv\.weight")
# Of every normalisation in all three code bases.
_EPS = 1e-5


def form_of(names: Iterable[str]) -> WeightsForm:
    """The form that most of the names belong to.

    Raises:
        InvalidValue: No name belongs to any.
    """
    names = tuple(names)
    counts = {form: sum(_place(name, form) is not None for name in names) for form in WeightsForm}
    best = max(WeightsForm, key=lambda form: counts[form])
    if not counts[best]:
        raise InvalidValue(f"no weights of an X3D: expected names {likely_names()}; got {first_of(names)}")
    return best


def likely_names() -> str:
    """A name of each form, behind "expected names"."""
    return ", or ".join(_like(form) for form in WeightsForm)


def first_of(names: Sequence[str]) -> str:
    """The first of the names in a file, behind "got"."""
    return ", ".join(names[:3]) or "no names at all"


def translated(weights: Weights, to: WeightsForm) -> dict[str, torch.Tensor]:
    """Weights under the names of another form; the tensors of both are independent.

    Raises:
        InvalidValue: A name that is not of the form of the others.
    """
    form = form_of(weights)
    found = renamed(weights, form, WeightsForm.EFFICIENT)
    if form is WeightsForm.VANILLA:
        found |= _identity_norms(found)
    if to is WeightsForm.VANILLA:
        found = _without_shortcut_norms(found)
    return {name: value.clone() for name, value in renamed(found, WeightsForm.EFFICIENT, to).items()}


def efficient_from_vanilla(weights: Weights) -> dict[str, torch.Tensor]:
    """State dict of the EfficientX3d that computes what the vanilla X3D with ``weights`` does in eval mode.

    Raises:
        InvalidValue: A name that no rule covers.
    """
    found = renamed(weights, WeightsForm.VANILLA, WeightsForm.EFFICIENT)
    return {name: value.clone() for name, value in (found | _identity_norms(found)).items()}


def vanilla_from_efficient(weights: Weights) -> dict[str, torch.Tensor]:
    """State dict of the vanilla X3D that computes what the EfficientX3d with ``weights`` does in eval mode.

    Raises:
        InvalidValue: A name that no rule covers: blocks that vanilla X3D does not have.
    """
    found = renamed(_without_shortcut_norms(weights), WeightsForm.EFFICIENT, WeightsForm.VANILLA)
    return {name: value.clone() for name, value in found.items()}


def renamed(weights: Weights, form: WeightsForm, to: WeightsForm) -> dict[str, torch.Tensor]:
    """The same tensors under other names, no layer more or less.

    Raises:
        InvalidValue: A name that is not of ``form``.
    """
    names = names_in(weights, form, to)
    unknown = [name for name, other in names.items() if other is None]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        example = _filled(_LAYERS[1][list(WeightsForm).index(form)], "weight", 2, 0, 5)
        raise InvalidValue(
            f"{unknown[0]!r}{more}: no weight of an X3D of form {form}; expected names such as {example}"
        )
    return {other: weights[name] for name, other in names.items() if other is not None}


def names_in(names: Iterable[str], form: WeightsForm, to: WeightsForm) -> dict[str, str | None]:
    """Names of ``form`` -> their names in another form, None where that has no such layer.

    The names have to be those of a whole network: the number of its stages is in some of them.
    """
    if form is to:
        return {name: name for name in names}
    places = {name: _place(name, form) for name in names}
    head = max((place[1] for place in places.values() if place is not None), default=0)
    target = list(WeightsForm).index(to)
    return {
        name: place and _filled(_LAYERS[place[0]][target], place[3], *place[1:3], head)
        for name, place in places.items()
    }


def without_shortcut_norm(shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Names in ``efficient-x3d`` of the normalisations that vanilla X3D does not have."""
    return {
        name for prefix in _shortcuts(shapes) for name in shapes if name.startswith(f"{prefix}._res_proj.kernel.bn.")
    }


# Index of the layer, stage (0 outside of stages), block, tensor.
_Place = tuple[int, int, int, str]


def _place(name: str, form: WeightsForm) -> _Place | None:
    for index, pattern in enumerate(_PATTERNS[form]):
        match = pattern.fullmatch(name)
        if match:
            at = match.groupdict()
            stage = int(at["s"]) if "s" in at else int(at["v"]) + 1 if "v" in at else 0
            return index, stage, int(at.get("b", 0)), at["tensor"]
    return None


def _filled(template: str, tensor: str, stage: int, block: int, head: int) -> str:
    return f"{template.format(s=stage, v=stage - 1, b=block, h=head)}.{tensor}"


def _like(form: WeightsForm) -> str:
    return f"such as {_filled(_LAYERS[5][list(WeightsForm).index(form)], 'weight', 2, 0, 5)}"


def _shortcuts(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Blocks whose shortcut is a convolution that keeps the channels."""
    matches = [(match[1], shape) for name, shape in shapes.items() if (match := _SHORTCUT.fullmatch(name))]
    return [prefix for prefix, shape in matches if len(shape) > 1 and shape[0] == shape[1]]


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in weights.items()}


def _identity_norms(weights: Weights) -> dict[str, torch.Tensor]:
    """What the shortcuts without a normalisation need to have one."""
    found: dict[str, torch.Tensor] = {}
    for prefix in _shortcuts(_shapes(weights)):
        norm, like = f"{prefix}._res_proj.kernel.bn", weights[f"{prefix}._res_proj.kernel.conv.weight"]
        if f"{norm}.weight" not in weights:
            channels = like.shape[0]
            found |= {
                f"{norm}.weight": like.new_ones(channels),
                f"{norm}.bias": like.new_zeros(channels),
                f"{norm}.running_mean": like.new_zeros(channels),
                f"{norm}.running_var": like.new_full((channels,), 1 - _EPS),
                f"{norm}.num_batches_tracked": torch.zeros((), dtype=torch.long, device=like.device),
            }
    return found


def _without_shortcut_norms(weights: Weights) -> dict[str, torch.Tensor]:
    """The weights with the normalisations that vanilla X3D does not have folded into their neighbours."""
    found = dict(weights)
    for prefix in _shortcuts(_shapes(weights)):
        norm, conv, last = f"{prefix}._res_proj.kernel.bn", f"{prefix}._res_proj.kernel.conv.weight", _last_norm(prefix)
        parts = [found.pop(f"{norm}.{name}", None) for name in ("weight", "bias", "running_mean", "running_var")]
        found.pop(f"{norm}.num_batches_tracked", None)
        gamma, beta, mean, variance = (None if part is None else part.double() for part in parts)
        if gamma is None or beta is None or mean is None or variance is None:
            continue
        if last not in found:
            raise UnsupportedModule(f"{norm}: cannot be folded, {last} is not there to take its shift")
        scale = gamma / torch.sqrt(variance + _EPS)
        shift = beta - mean * scale
        # An identity comes back as it was, to the bit: 1 - eps has a rounding error in float32.
        if not torch.allclose(scale, torch.ones_like(scale), rtol=0, atol=1e-7):
            found[conv] = (found[conv].double() * scale.reshape(-1, 1, 1, 1, 1)).to(found[conv].dtype)
        if shift.any():
            found[last] = (found[last].double() + shift).to(found[last].dtype)
    return found


def _last_norm(prefix: str) -> str:
    return f"{prefix}.layers.conv_2.kernel.bn.bias"
