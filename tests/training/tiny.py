"""A small network and a small real data set: what training tests train. Also run as a program, to be killed."""

import sys
from pathlib import Path

import torch
from torch import nn

import hwbench.training.state
from hwbench.data import ClipSpec, FailurePolicy, ScaleJitter, SyntheticSpec, TestClips, TestTransform, TrainingClips
from hwbench.data.synthetic import prepare
from hwbench.data.videos import read_splits
from hwbench.training import Recipe, Resources, fit
from hwbench.workspace import Workspace

SPEC = SyntheticSpec(train_per_class=3, val_per_class=1, size=24, frames=8)
CLIP = ClipSpec(4, stride=2)
RECIPE = Recipe(epochs=3, batch_size=4, learning_rate=0.05, dropout=0.3, seed=11)


class Tiny(nn.Module):
    """Logits of 8 classes; with the layers of an X3D that can go wrong: depthwise, batch norm, dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layers = nn.Sequential(
            nn.Conv3d(3, 8, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False),
            nn.BatchNorm3d(8),
            nn.ReLU(),
            nn.Conv3d(8, 8, 3, (1, 2, 2), 1, groups=8, bias=False),
            nn.BatchNorm3d(8),
            nn.SiLU(),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(8, 8),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def data(root: Path, policy: FailurePolicy = FailurePolicy.RAISE) -> tuple[TrainingClips, TestClips]:
    """The data set below ``root``, made on first use."""
    splits = read_splits(prepare(Workspace(root), SPEC))
    training = TrainingClips(
        splits.train, CLIP, ScaleJitter((16, 16)), seed=RECIPE.seed, policy=policy, cache_bytes=10**7
    )
    return training, TestClips(splits.val, CLIP, TestTransform((16, 16)), policy=policy, cache_bytes=10**7)


if __name__ == "__main__":
    hwbench.training.state._COST_SHARE = 1e9  # a step of this network takes less time than writing its state
    training, validation = data(Path(sys.argv[1]))
    module = Tiny()
    fit(
        module,
        training,
        validation,
        RECIPE,
        run_dir=Path(sys.argv[2]),
        resources=Resources("cpu", 1, int(sys.argv[3])),
        progress=lambda at: print(at.step, flush=True),
    )
    torch.save(module.state_dict(), Path(sys.argv[2]) / "trained.pt")
