"""Weights of MViT under the names of two code bases, and the way between them.

    mvit               PyTorchVideo, and this package: ``blocks.0.attn.pool_k.weight``
    pyslowfast-mvit    PySlowFast: the same in blocks; ``patch_embed.proj.weight``, ``head.projection.weight``

Newer files of PyTorchVideo hold what pools queries, keys and values twice, under ``attn._attention_pool_k`` as well;
some of PySlowFast hold the layers of queries, keys and values as one, ``attn.qkv``. Networks for pictures make tokens
with a convolution over height and width alone. All are read (``separated``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

import torch

from hwbench.errors import InvalidValue


class MvitForm(StrEnum):
    """Whose names the weights of an MViT have."""

    PYTORCHVIDEO = "mvit"
    PYSLOWFAST = "pyslowfast-mvit"


_BLOCK = r"blocks\.\d+\.(?:norm[12]|attn\.(?:q|k|v|proj|norm_[qkv])|mlp\.fc[12]|proj)\.(?:weight|bias)"
# Layers of a block, which both code bases call alike.
_INNER = re.compile(rf"{_BLOCK}|blocks\.\d+\.attn\.pool_[qkv]\.weight")
# Around the blocks: this package and PyTorchVideo, PySlowFast.
_AROUND = {
    "patch_embed.patch_model.weight": "patch_embed.proj.weight",
    "patch_embed.patch_model.bias": "patch_embed.proj.bias",
    "cls_positional_encoding.cls_token": "cls_token",
    "cls_positional_encoding.pos_embed_spatial": "pos_embed_spatial",
    "cls_positional_encoding.pos_embed_temporal": "pos_embed_temporal",
    "cls_positional_encoding.pos_embed_class": "pos_embed_class",
    "norm_embed.weight": "norm.weight",
    "norm_embed.bias": "norm.bias",
    "head.proj.weight": "head.projection.weight",
    "head.proj.bias": "head.projection.bias",
}
_FROM_PYSLOWFAST = {theirs: ours for ours, theirs in _AROUND.items()}
# What makes tokens, under both names.
_PATCHES = ("patch_embed.patch_model.weight", "patch_embed.proj.weight")
_ALIAS = re.compile(r"(.*attn\.)_attention_pool_([qkv])\.(pool|norm)(\.\w+)")
_JOINED = re.compile(r"(.*attn\.)qkv(\.\w+)")
EXAMPLE = "blocks.0.attn.norm_k.weight"
Weights = Mapping[str, torch.Tensor]


def mvit_from_pyslowfast(weights: Weights) -> dict[str, torch.Tensor]:
    """State dict of an MViT of this package, and of PyTorchVideo, from PySlowFast's; the tensors are independent.

    Raises:
        InvalidValue: A name that is none of PySlowFast's MViT, or joined weights that are no three.
    """
    return _renamed(separated(weights), _FROM_PYSLOWFAST, "PySlowFast's")


def pyslowfast_from_mvit(weights: Weights) -> dict[str, torch.Tensor]:
    """State dict of PySlowFast's network from that of an MViT of this package, or of PyTorchVideo; queries, keys and
    values have a layer each.

    Raises:
        InvalidValue: A name that is none of an MViT.
    """
    return _renamed(separated(weights), _AROUND, "PyTorchVideo's")


def separated(weights: Weights) -> dict[str, torch.Tensor]:
    """The same weights without a second name for any, with a layer each for queries, keys and values, and with tokens
    made of frames: a kernel over height and width alone is one of a single frame.

    Raises:
        InvalidValue: Joined weights whose rows are no three layers.
    """
    made: dict[str, torch.Tensor] = {}
    for name, value in weights.items():
        if (alias := _ALIAS.fullmatch(name)) is not None:
            made.setdefault(f"{alias[1]}{alias[3]}_{alias[2]}{alias[4]}", value)
        elif (joined := _JOINED.fullmatch(name)) is not None:
            if value.shape[0] % 3:
                raise InvalidValue(f"{name!r}: expected rows for queries, keys and values, got {tuple(value.shape)}")
            made |= {f"{joined[1]}{one}{joined[2]}": part for one, part in zip("qkv", value.chunk(3))}
        elif name in _PATCHES and value.dim() == 4:
            made[name] = value.unsqueeze(2)
        else:
            made[name] = value
    return made


def to_pyslowfast(name: str) -> str | None:
    """PySlowFast's name of a weight of an MViT; None: there is none."""
    return _AROUND.get(name, name if _INNER.fullmatch(name) else None)


def mvit_form(names: Iterable[str]) -> tuple[MvitForm, int]:
    """The form that most of the names belong to, and how many do."""
    names = tuple(names)
    inner = sum(bool(_INNER.fullmatch(name) or _ALIAS.fullmatch(name) or _JOINED.fullmatch(name)) for name in names)
    ours, theirs = (sum(name in around for name in names) for around in (_AROUND, _FROM_PYSLOWFAST))
    return (MvitForm.PYSLOWFAST if theirs > ours else MvitForm.PYTORCHVIDEO), inner + max(ours, theirs)


def _renamed(weights: Weights, around: Mapping[str, str], whose: str) -> dict[str, torch.Tensor]:
    made: dict[str, torch.Tensor] = {}
    for name, value in weights.items():
        if name not in around and not _INNER.fullmatch(name):
            raise InvalidValue(f"{name!r}: no weight of an MViT under {whose} names; expected names such as {EXAMPLE}")
        made[around.get(name, name)] = value.clone()
    return made
