"""The supernet of a study: trained once for the networks within its budget, kept in the workspace, and then asked."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.train_request import RAISE
from hwbench.room import SUPERNETS
from hwbench.units import format_rate

if TYPE_CHECKING:
    import numpy as np
    import torch

    from hwbench.api.study_data import StudyData
    from hwbench.data import TrainingClips
    from hwbench.spaces.feasible import FeasibleSet
    from hwbench.specs import Architecture, BlockSpec, Network, TensorSpec
    from hwbench.training import Recipe
    from hwbench.training.shared_weights import SharedWeights
    from hwbench.training.supernet import SupernetProgress
    from hwbench.workspace import Workspace

WEIGHTS = "supernet.pt"
# How networks share tensors. It is part of what a supernet is: where it changes, supernets are trained anew.
SHARING = "by stage and place"


@dataclass(frozen=True)
class Members:
    """The networks within the budget of a study, for ``train_supernet``."""

    feasible: FeasibleSet

    @cached_property
    def smallest(self) -> Architecture:
        """The fastest network."""
        return self.feasible.smallest()[1]

    @cached_property
    def largest(self) -> Architecture:
        """The network of the most multiply-adds within the budget: it has most to teach."""
        from hwbench.spaces.sums import SpaceSums

        sums = self.feasible.sums
        return self.feasible.best(SpaceSums.of(sums.space, block_macs, num_classes=sums.num_classes)).architecture

    def draw(self, rng: np.random.Generator) -> Architecture:
        """Any network, uniformly."""
        return self.feasible.draw(rng)


def block_macs(block: BlockSpec, x: TensorSpec) -> float:
    """Multiply-adds of a block."""
    return float(sum(operation.macs for operation in block.operations(x)))


@dataclass(frozen=True)
class StudySupernet:
    """Scores networks by the weights that they inherit; the supernet is trained when it is first needed.

    A training that ended goes on where it was; one process trains, and others wait for it. A supernet is found again by
    what it was trained for: space, budgets, videos with their place and classes, clips, epochs and seed.

    Args:
        workspace: Where it is kept.
        data: What it is trained and scored on.
        feasible: The networks within the budget.
        epochs: Passes over the training videos.
        seed: Of weights, order and draws.
        listener: Hears of the training.
        begun: ``networks`` of the supernet that a study which goes on began with; empty: those of ``feasible``. Newer
            rows change the set, and scores of two supernets are of two kinds.
    """

    workspace: Workspace
    data: StudyData
    feasible: FeasibleSet
    epochs: int
    seed: int
    listener: Listener = field(default=SILENT, compare=False, repr=False)
    begun: str = ""

    def top1(self, network: Network) -> float:
        """Top-1 on the validation videos with inherited weights, a fraction."""
        from hwbench.specs import Architecture
        from hwbench.training.supernet import score_inherited

        architecture = Architecture.parse(network.name)
        clips = self.data.sized(network.input, self.seed, network.span_s)
        scores = score_inherited(
            self._shared,
            architecture,
            clips.training,
            clips.validation,
            self._recipe,
            values=self._average,
            resources=self.data.resources(self.seed),
        )
        return scores.top1

    def prepare(self) -> None:
        """Trains the supernet, if that has not been done."""
        _ = self._average

    def __reduce__(self) -> tuple[type[StudySupernet], tuple[object, ...]]:
        """Other processes read the trained weights for themselves."""
        known = (self.workspace, self.data, self.feasible, self.epochs, self.seed)
        return StudySupernet, (*known, SILENT, self.begun)

    @cached_property
    def folder(self) -> Path:
        """Where it is kept; another supernet has another folder."""
        text = json.dumps(self._identity, sort_keys=True)
        return self.workspace.cache / SUPERNETS / hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def networks(self) -> str:
        """What it is trained on, in words that tell sets apart."""
        members = Members(self.feasible)
        return self.begun or f"{self.feasible.count:.6g} from {members.smallest.key} to {members.largest.key}"

    @cached_property
    def _identity(self) -> dict[str, str]:
        """What it was trained for, name -> text. Latencies enter by what follows from them: the set and its ends.

        Data by name may be other videos tomorrow, or in another folder: the videos themselves are compared.
        """
        return {
            "space": repr(self.feasible.sums.space),
            "networks": self.networks,
            "place": self._place,
            "data": self._training.videos.identity,
            "clip": str(self._training.clip),
            "transform": repr(self._training.transform),
            "epochs": str(self.epochs),
            "seed": str(self.seed),
            "sharing": SHARING,
            "recipe": repr(sorted(self._recipe.facts().items())),
            **({} if self.data.on_error == RAISE else {"on_error": self.data.on_error}),
        }

    @cached_property
    def _training(self) -> TrainingClips:
        """Clips of the first size of the space; those of its other sizes differ in that alone."""
        return self.data.sized(self.feasible.space.cells[0].clip, self.seed).training

    @property
    def _place(self) -> str:
        """Where the videos lie; a workspace that was moved takes its own along."""
        from hwbench.data.media import relative_name

        return relative_name(self._training.videos.root.resolve(), self.workspace.root.resolve())

    @property
    def _classes(self) -> tuple[str, ...]:
        return self._training.classes

    @cached_property
    def _recipe(self) -> Recipe:
        from hwbench.training import Recipe

        return Recipe(epochs=self.epochs, seed=self.seed)

    @cached_property
    def _shared(self) -> SharedWeights:
        from hwbench.training.shared_weights import SharedWeights

        space = self.feasible.space
        return SharedWeights(space, len(self._classes), seed=self.seed, dropout=self._recipe.dropout)

    @cached_property
    def _average(self) -> dict[str, torch.Tensor]:
        from hwbench.models.files import read_tensors
        from hwbench.training.run_lock import training_in_turn
        from hwbench.training.state import begun_in, remove_states

        path = self.folder / WEIGHTS
        if not path.is_file() or begun_in(self.folder):
            with training_in_turn(self.folder, self._say_waiting):
                if not path.is_file():
                    return self._trained(path)
                remove_states(self.folder)  # of a process that was killed when it had written the weights
        _, values = read_tensors(path, "a supernet; remove its folder, and it is trained again")
        return dict(values)

    def _say_waiting(self) -> None:
        self.listener.say(f"{self.folder}: another process trains this supernet; waiting for it")

    def _trained(self, path: Path) -> dict[str, torch.Tensor]:
        import io

        import torch

        from hwbench.training.state import remove_states
        from hwbench.training.supernet import train_supernet
        from hwbench.workspace import write_bytes

        started, first = time.monotonic(), 0

        def tell(at: SupernetProgress) -> None:
            nonlocal first
            first = first or at.step - 1
            rate = format_rate(at.step - first, time.monotonic() - started)
            self.listener.progress(StageProgress("supernet", at.step, at.steps, rate, f"loss {at.loss:.2f}"))

        largest = self.feasible.space.network(Members(self.feasible).largest, len(self._classes)).input
        average = train_supernet(
            self._shared,
            Members(self.feasible),
            self.data.sized(largest, self.seed).training,
            self._recipe,
            run_dir=self.folder,
            identity=self._identity,
            resources=self.data.resources(self.seed),
            progress=tell,
        )
        buffer = io.BytesIO()
        torch.save({name: tensor.cpu() for name, tensor in average.items()}, buffer)
        write_bytes(path, buffer.getvalue())
        remove_states(self.folder)
        return average
