"""R(2+1)D as one network, with the state-dict keys of PyTorchVideo's published checkpoints."""

from __future__ import annotations

from typing import ClassVar

from hwbench.models.resnet import ResnetNetwork
from hwbench.specs.kinds.r2plus1d import R2plus1dKind


class R2plus1dNetwork(ResnetNetwork):
    """A stem, stages of R(2+1)D bottlenecks and a head: (N, 3, T, H, W) -> logits (N, classes).

    Source: "A Closer Look at Spatiotemporal Convolutions for Action Recognition", Tran et al. 2018 (arXiv 1711.11248).
    """

    inner: ClassVar[tuple[str, ...]] = (R2plus1dKind.name,)
