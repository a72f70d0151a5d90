"""MixUp and CutMix of clips and their classes, by torchvision; what is drawn follows from torch's generator alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hwbench.training.losses import dense_targets
from hwbench.training.recipe import Recipe

if TYPE_CHECKING:
    from torchvision.transforms import v2

Batch = tuple[torch.Tensor, torch.Tensor]


class Mixing:
    """Mixes each clip of a batch with the one before it: clips (N, 3, T, H, W) and targets -> clips and (N, C).

    One draw holds for a whole batch, of several processes for the share of one: each draws its own and mixes the clips
    that it has, so their losses are not those of one process. CutMix cuts the same box out of every frame.
    """

    def __init__(self, recipe: Recipe, classes: int) -> None:
        self._share, self._classes = recipe.mix_share, classes
        self._ways: list[v2.Transform] = []
        if not (recipe.mixup or recipe.cutmix):
            return
        from torchvision.transforms import v2

        if recipe.mixup:
            self._ways.append(v2.MixUp(alpha=recipe.mixup, num_classes=classes))
        if recipe.cutmix:
            self._ways.append(v2.CutMix(alpha=recipe.cutmix, num_classes=classes))

    def __bool__(self) -> bool:
        return bool(self._ways)

    def __call__(self, clips: torch.Tensor, targets: torch.Tensor) -> Batch:
        """A mixed batch, or the batch as it is."""
        if not self._ways or torch.rand(()).item() >= self._share:
            return clips, targets
        from torchvision import tv_tensors

        way = self._ways[int(torch.randint(len(self._ways), ()))]
        mixed, shares = way(tv_tensors.Video(clips), dense_targets(targets, self._classes))
        return mixed.as_subclass(torch.Tensor), shares
