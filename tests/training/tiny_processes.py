"""A program for torchrun: each process trains its share of the batches of a small network."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from tiny import RECIPE, Tiny, data
from torch import nn

import hwbench.training.state
from hwbench.data import FailurePolicy
from hwbench.errors import HwbenchError
from hwbench.torchrun import SaidElsewhere, leads
from hwbench.training import Recipe, Resources, TrainingProgress, fit
from hwbench.training.processes import World, joined


def network() -> Tiny:
    """Without dropout, which is drawn for each process on its own."""
    module = Tiny()
    module.layers[8].p = 0.0
    return module


class Partial(Tiny):
    """Has weights that no pass uses, and some that every second pass uses; of two processes both, or in turns."""

    def __init__(self, passes: int = 0) -> None:
        super().__init__()
        self.layers[8].p = 0.0
        self.pooler = nn.Linear(8, 8)
        self.branch = nn.Conv3d(8, 8, 1)
        self.passes = passes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        x = self.layers[:3](x)
        if self.passes % 2:
            x = x + self.branch(x)
        return self.layers[3:](x)


class Counting(nn.ReLU):
    """Keeps something of its batches that is no batch normalisation's."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen = self.seen + 1
        return super().forward(input)


def counting() -> Tiny:
    """A network with such a layer."""
    module = network()
    module.layers[2] = Counting()
    return module


# By the name in the options, for a process of some rank.
NETWORKS: dict[str, Callable[[int], Tiny]] = {
    "tiny": lambda rank: network(),
    "partial": lambda rank: Partial(),
    "in-turns": Partial,
    "counting": lambda rank: counting(),
}


def recipe(options: str) -> Recipe:
    """That of the tests with some fields replaced, which come as JSON."""
    return replace(RECIPE, **{"batch_size": 6, "sync_bn": True, **json.loads(options)})


def tell(at: TrainingProgress) -> None:
    """Prints the number of a step."""
    print(at.step, flush=True)


def run(
    world: World, root: Path, folder: Path, options: str, progress: Callable[[TrainingProgress], None] = tell
) -> None:
    """Trains ``network`` of the options, and stores the weights in the first process."""
    words = json.loads(options)
    module = NETWORKS[words.pop("network", "tiny")](world.rank)
    resources = Resources("cpu", 1, 0)
    training, validation = data(root, FailurePolicy(words.pop("on_error", "raise")))
    how = recipe(json.dumps(words))
    fit(module, training, validation, how, run_dir=folder, resources=resources, world=world, progress=progress)
    if world.leads:
        torch.save(module.state_dict(), folder / "trained.pt")


def threads() -> set[str]:
    """Names of the threads of this process."""
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}


if __name__ == "__main__":
    hwbench.training.state._COST_SHARE = 1e9
    try:
        with joined("cpu") as world:
            if not leads():
                Path(sys.argv[2]).mkdir(exist_ok=True)
                (Path(sys.argv[2]) / "follower").write_text(str(os.getpid()))
            run(world, Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
        if left := sorted(name for name in threads() if "gloo" in name):
            sys.exit(f"threads that outlive the process group: {left}")  # they abort a process that ends meanwhile
    except SaidElsewhere as error:
        sys.exit(error.exit_status)
    except HwbenchError as error:
        print(f"hwbench: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
