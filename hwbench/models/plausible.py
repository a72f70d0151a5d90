"""Whether tensors can be those of a trained network: what no training leaves behind is told by name.

A file may have every name and every shape and still hold nothing: a buffer that was never filled, a shard that was
never merged, a cast that overflowed. Such a file loads, runs and is wrong.

Refused, because no trained network has it:

* a value that is not a finite number;
* a convolution or linear layer whose weights are all zero, or all the same value: initialisation draws them, and
  gradients never make them equal again;
* a normalisation whose weights (gamma) are all zero, outside the end of a residual branch: nothing of the input passes;
* a running variance that is negative, or zero in all channels: the square root fails, or the layer multiplies by 316
  (``1 / sqrt(1e-5)``).

Told and not refused, because a network can be used so, though it was hardly trained to it:

* gamma all zero at the end of a residual branch: so a network begins (Goyal et al. 2017), and the branch gives nothing;
* running mean all zero and running variance all one: the normalisation has never seen data;
* the biases of a convolution or linear layer all zero: so they begin.

Beta may be zero, and single channels may be zero anywhere: pruning does that. A shortcut that was given an identity for
a normalisation (``hwbench.models.weights``) is no finding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

# Normalisations of X3D, those of ResNets, and those of MViT.
_NORM = re.compile(
    r"(?P<norm>(?:.*\.)?(?:bn|norm|norm_[abc]|branch1_norm|norm[12]|norm_[qkv]|norm_embed))"
    r"\.(?P<tensor>weight|bias|running_mean|running_var|num_batches_tracked)"
)
# The last normalisation of a residual branch, whose gamma begins as zero.
_BRANCH_END = re.compile(r".*\.(?:layers\.conv_2\.kernel\.bn|norm_c)\.weight")

NOT_FINITE = "not finite"
ALL_ZERO = "all zero"
CONSTANT = "all the same value"
NEGATIVE = "negative variance"
SILENT_BRANCH = "all zero, as before training: its branch adds nothing"
UNSEEN = "mean 0 and variance 1, as before training: has never seen data"
ZERO_BIAS = "biases all zero, as before training"


@dataclass
class Findings:
    """Names of tensors by what is wrong with them (``impossible``), or strange about them (``doubtful``)."""

    impossible: dict[str, list[str]] = field(default_factory=dict)
    doubtful: dict[str, list[str]] = field(default_factory=dict)


def examined(weights: Mapping[str, torch.Tensor]) -> Findings:
    """Looks at every tensor of a network.

    Args:
        weights: Name in form ``efficient-x3d``, or of a ResNet or an MViT -> tensor of floats, or a counter.
    """
    findings = Findings()
    for name, value in weights.items():
        if value.is_floating_point() and value.numel():
            impossible, doubtful = _verdict(name, value, weights)
            if impossible:
                findings.impossible.setdefault(impossible, []).append(name)
            elif doubtful:
                findings.doubtful.setdefault(doubtful, []).append(name)
    return findings


def _verdict(name: str, value: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[str | None, str | None]:
    """What is impossible about a tensor, and what is doubtful."""
    if not bool(torch.isfinite(value).all()):
        return NOT_FINITE, None
    match = _NORM.fullmatch(name)
    if match is None:
        return _of_layer(name, value)
    if match["tensor"] == "running_var":
        return _of_variance(value, weights.get(f"{match['norm']}.running_mean"))
    if match["tensor"] == "weight" and not value.any():
        return (None, SILENT_BRANCH) if _BRANCH_END.fullmatch(name) else (ALL_ZERO, None)
    return None, None


def _of_layer(name: str, value: torch.Tensor) -> tuple[str | None, str | None]:
    if name.endswith(".bias"):
        return None, None if value.any() else ZERO_BIAS
    if not value.any():
        return ALL_ZERO, None
    # The only weight of a layer is equal to itself.
    if value.numel() > 1 and bool((value == value.flatten()[0]).all()):
        return CONSTANT, None
    return None, None


def _of_variance(variance: torch.Tensor, mean: torch.Tensor | None) -> tuple[str | None, str | None]:
    if not variance.any():
        return ALL_ZERO, None
    if bool((variance < 0).any()):
        return NEGATIVE, None
    # An identity has a variance of 1 - 1e-5, and is none of these.
    unseen = mean is not None and not mean.any() and bool((variance == 1).all())
    return None, UNSEEN if unseen else None
