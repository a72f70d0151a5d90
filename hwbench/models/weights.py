"""Weights of vanilla X3D as weights of EfficientX3d and back, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from hwbench.errors import InvalidValue

Weights = Mapping[str, torch.Tensor]

# Vanilla prefix -> efficient prefix; groups are (stage, block). ``conv_t`` is the convolution over space.
_RULES = (
    (r"blocks\.0\.conv\.conv_t", "s1.pathway0_stem_conv_xy.kernel.conv"),
    (r"blocks\.0\.conv\.conv_xy", "s1.pathway0_stem_conv.kernel.conv"),
    (r"blocks\.0\.norm", "s1.pathway0_stem_conv.kernel.bn"),
    (r"blocks\.(\d+)\.res_blocks\.(\d+)\.branch1_conv", "s{0}.pathway0_res{1}._res_proj.kernel.conv"),
    (r"blocks\.(\d+)\.res_blocks\.(\d+)\.branch1_norm", "s{0}.pathway0_res{1}._res_proj.kernel.bn"),
    (r"blocks\.(\d+)\.res_blocks\.(\d+)\.branch2\.conv_a", "s{0}.pathway0_res{1}.layers.conv_0.kernel.conv"),
    (r"blocks\.(\d+)\.res_blocks\.(\d+)\.branch2\.norm_a", "s{0}.pathway0_res{1}.layers.conv_0.kernel.bn"),
    (r"blocks\.(\d+)\.res_blocks\.(\d+)\.branch2\.conv_b", "s{0}.pathway0_res{1}.layers.conv_1.kernel.conv"),
    (r"blocks\.(\d+)\.res_blocks\.(\d+)\.branch2\.norm_b\.0", "s{0}.pathway0_res{1}.layers.conv_1.kernel.bn"),
    (r"blocks\.(\d+)\.res_blocks\.(\d+)\.branch2\.norm_b\.1\.block", "s{0}.pathway0_res{1}.layers.se.se.block"),
    (r"blocks\.(\d+)\.res_blocks\.(\d+)\.branch2\.conv_c", "s{0}.pathway0_res{1}.layers.conv_2.kernel.conv"),
    (r"blocks\.(\d+)\.res_blocks\.(\d+)\.branch2\.norm_c", "s{0}.pathway0_res{1}.layers.conv_2.kernel.bn"),
    (r"blocks\.(\d+)\.pool\.pre_conv", "head.conv_5.kernel.conv"),
    (r"blocks\.(\d+)\.pool\.pre_norm", "head.conv_5.kernel.bn"),
    (r"blocks\.(\d+)\.pool\.post_conv", "head.lin_5.kernel.conv"),
    (r"blocks\.(\d+)\.proj", "projection.model"),
)
_COMPILED = tuple((re.compile(pattern + r"\.(.+)"), target) for pattern, target in _RULES)
_PROJECTION = re.compile(r"(s\d+\.pathway0_res0\._res_proj\.kernel)\.conv\.weight")
# eps of the normalisation that a vanilla network does not have.
_EPS = 1e-5


def efficient_from_vanilla(weights: Weights) -> dict[str, torch.Tensor]:
    """State dict of the EfficientX3d that computes what the vanilla X3D with ``weights`` does in eval mode.

    Where the vanilla shortcut has no normalisation (its channels stay, its stride is 2) the efficient one gets an
    identity: gamma 1, beta 0, mean 0, variance 1 - eps.

    Raises:
        InvalidValue: A name that no rule covers.
    """
    found = {_renamed(name): value.clone() for name, value in weights.items()}
    for name in [*found]:
        match = _PROJECTION.fullmatch(name)
        if match and f"{match[1]}.bn.weight" not in found:
            found |= _identity_norm(f"{match[1]}.bn", found[name])
    return found


def _renamed(name: str) -> str:
    for pattern, target in _COMPILED:
        match = pattern.fullmatch(name)
        if match:
            *place, tail = match.groups()
            stage = str(int(place[0]) + 1) if place else ""
            return f"{target.format(stage, *place[1:])}.{tail}"
    raise InvalidValue(f"{name!r} is no weight of a vanilla X3D; expected names such as blocks.0.conv.conv_t.weight")


def _identity_norm(prefix: str, like: torch.Tensor) -> dict[str, torch.Tensor]:
    channels = like.shape[0]
    return {
        f"{prefix}.weight": like.new_ones(channels),
        f"{prefix}.bias": like.new_zeros(channels),
        f"{prefix}.running_mean": like.new_zeros(channels),
        f"{prefix}.running_var": like.new_full((channels,), 1 - _EPS),
        f"{prefix}.num_batches_tracked": torch.zeros((), dtype=torch.long, device=like.device),
    }
