"""Weights of C2D, I3D, Slow, CSN, R(2+1)D and SlowFast under the names of two code bases, and the way between them.

    resnet              PyTorchVideo, and this package: ``blocks.1.res_blocks.0.branch2.conv_a``
    pyslowfast-resnet   PySlowFast: ``s2.pathway0_res0.branch2.a``

Of SlowFast ``blocks.1.multipathway_blocks.1.res_blocks.0.branch2.conv_a`` and ``s2.pathway1_res0.branch2.a``. Both code
bases have the same layers, so no tensor is changed. PyTorchVideo counts a pool over frames as a block, PySlowFast does
not: which stage a name of PyTorchVideo belongs to, only all names of a network say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

import torch

from hwbench.errors import InvalidValue
from hwbench.models.assembly import assemble
from hwbench.specs import Network


class ResnetForm(StrEnum):
    """Whose names the weights of a ResNet have."""

    PYTORCHVIDEO = "resnet"
    PYSLOWFAST = "pyslowfast-resnet"


_TENSORS = r"\.(?P<tensor>weight|bias|running_mean|running_var|num_batches_tracked)"
# PyTorchVideo: {v} is the block, {p} the pathway, which networks of one pathway leave out, {b} the block of the stage.
_OURS = re.compile(
    r"blocks\.(?P<v>\d+)\.(?:multipathway_blocks\.(?P<p>\d+)\.)?(?:res_blocks\.(?P<b>\d+)\.)?(?P<layer>[a-z_0-9.]+?)"
    + _TENSORS
)
# Layers of a block, of a stem, of a lateral connection, of a head: PyTorchVideo, PySlowFast.
_BLOCK = {
    "branch1_conv": "branch1", "branch1_norm": "branch1_bn",
    "branch2.conv_a": "branch2.a", "branch2.norm_a": "branch2.a_bn",
    "branch2.conv_b": "branch2.b", "branch2.norm_b": "branch2.b_bn",
    "branch2.conv_c": "branch2.c", "branch2.norm_c": "branch2.c_bn",
}  # fmt: skip
_STEM = {"conv": "conv", "norm": "bn"}
_FUSE = {"multipathway_fusion.conv_fast_to_slow": "conv_f2s", "multipathway_fusion.norm": "bn"}
_HEAD = {"proj": "head.projection"}
# Of PyTorchVideo alone: the two convolutions of R(2+1)D in the place of one.
_ONLY_OURS = ("branch2.conv_b.conv_t", "branch2.conv_b.norm", "branch2.conv_b.conv_xy")
_PYSLOWFAST = re.compile(
    r"(?:s1\.pathway\d\_stem\.(?:conv|bn)|s\d_fuse\.(?:conv_f2s|bn)|head\.projection"
    r"|s\d\.pathway\d_res\d+\.(?:" + "|".join(map(re.escape, _BLOCK.values())) + "))" + _TENSORS
)
EXAMPLES = ("blocks.1.res_blocks.0.branch2.conv_a.weight", "s2.pathway0_res0.branch2.a.weight")


def resnet_from_pyslowfast(weights: Mapping[str, torch.Tensor], network: Network) -> dict[str, torch.Tensor]:
    """State dict of a ResNet of this package, and of PyTorchVideo, from PySlowFast's; the tensors are independent.

    Args:
        weights: As PySlowFast names them.
        network: Whose weights they are: the number of a block follows from the pools between its stages.

    Raises:
        InvalidValue: A name that is not one of the network.
    """
    with torch.device("meta"):
        names = assemble(network.blocks).state_dict()
    ours = {theirs: name for name, theirs in pyslowfast_names(names).items() if theirs is not None}
    unknown = [name for name in weights if name not in ours]
    if unknown:
        raise InvalidValue(
            f"{unknown[0]!r}: no weight of {network.name} under PySlowFast's names; expected names such as "
            f"{next(iter(ours), EXAMPLES[1])}"
        )
    return {ours[name]: value.clone() for name, value in weights.items()}


def pyslowfast_from_resnet(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """State dict of PySlowFast's network from all weights of a ResNet of this package, or of PyTorchVideo.

    Raises:
        InvalidValue: A layer that PySlowFast does not have, such as those of R(2+1)D.
    """
    found: dict[str, torch.Tensor] = {}
    for name, theirs in pyslowfast_names(weights).items():
        if theirs is None:
            raise InvalidValue(f"{name!r}: no layer of PySlowFast; expected names such as {EXAMPLES[0]}")
        found[theirs] = weights[name].clone()
    return found


def pyslowfast_names(names: Iterable[str]) -> dict[str, str | None]:
    """All names of a network of this package -> PySlowFast's, None where that has no such layer."""
    places = {name: _OURS.fullmatch(name) for name in names}
    numbers = sorted({int(place["v"]) for place in places.values() if place is not None})
    stage = {number: place for place, number in enumerate(numbers, 1)}
    return {name: place and _theirs(place, stage[int(place["v"])]) for name, place in places.items()}


def resnet_form(names: Iterable[str]) -> tuple[ResnetForm, int]:
    """The form that most of the names belong to, and how many do."""
    counts = dict.fromkeys(ResnetForm, 0)
    for name in names:
        counts[ResnetForm.PYTORCHVIDEO] += is_ours(name)
        counts[ResnetForm.PYSLOWFAST] += _PYSLOWFAST.fullmatch(name) is not None
    best = max(ResnetForm, key=lambda form: counts[form])
    return best, counts[best]


def is_ours(name: str) -> bool:
    """Whether a name is that of a layer of a ResNet of this package."""
    place = _OURS.fullmatch(name)
    return place is not None and (_theirs(place, 2) is not None or place["layer"] in _ONLY_OURS)


def _theirs(place: re.Match[str], stage: int) -> str | None:
    """PySlowFast's name of a weight of the stage with that number, the stem being the first."""
    pathway, block, layer, tensor = int(place["p"] or 0), place["b"], place["layer"], place["tensor"]
    if block is not None:
        found = _BLOCK.get(layer) and f"s{stage}.pathway{pathway}_res{block}.{_BLOCK[layer]}"
    elif layer in _STEM:
        found = f"s{stage}.pathway{pathway}_stem.{_STEM[layer]}"
    elif layer in _FUSE:
        found = f"s{stage}_fuse.{_FUSE[layer]}"
    else:
        found = _HEAD.get(layer)
    return found and f"{found}.{tensor}"
