"""The way through all networks of a space at one input size: every block on every input that it gets, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import add

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import NotMeasured
from hwbench.spaces.family import Ends, Family
from hwbench.spaces.stages import Stage
from hwbench.specs import BlockSpec, TensorSpec

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# What one block on its input adds; NotMeasured where that is not known.
BlockNumber = Callable[[BlockSpec, TensorSpec], float]


@dataclass(frozen=True)
class StageSums:
    """One stage at one input size.

    Attributes:
        inputs: The activations that may reach the stage.
        seconds: Shape (inputs, choices): what the blocks of the stage add up to, those of the head included behind
            the last stage.
        out: Shape (inputs, choices): the number of the activation that reaches the next stage; 0 behind the last.
    """

    inputs: tuple[TensorSpec, ...]
    seconds: Floats
    out: Integers


def on_inputs(blocks: Iterable[BlockSpec], x: TensorSpec) -> Iterator[tuple[BlockSpec, TensorSpec]]:
    """Each block of a chain alone, with what it works on of what reaches it."""
    for block in blocks:
        yield block.located(x)
        x = block.output(x)


def after(blocks: Iterable[BlockSpec], x: TensorSpec) -> TensorSpec:
    """What comes out of a chain."""
    for block in blocks:
        x = block.output(x)
    return x


class Place:
    """An activation, with what every block that was asked for on it adds, and where that leads."""

    __slots__ = ("steps", "x")

    def __init__(self, x: TensorSpec) -> None:
        self.x = x
        self.steps: dict[int, tuple[float, Place]] = {}  # by the id of a block that the walk keeps


class Walk:
    """Asks for each block on its input once, and remembers which have no number.

    Args:
        number: What a block on its input has.
        combine: Makes one number of those of blocks in a row, from 0 on: their sum, or the largest.
    """

    def __init__(self, number: BlockNumber, combine: Callable[[float, float], float] = add) -> None:
        self._number = number
        self._combine = combine
        self._places: dict[TensorSpec, Place] = {}
        self._blocks: dict[BlockSpec, BlockSpec] = {}
        self._chains: dict[int, tuple[tuple[BlockSpec, ...], tuple[BlockSpec, ...]]] = {}
        self._of_pathways: dict[tuple[BlockSpec, TensorSpec], float] = {}
        self.missing: list[tuple[BlockSpec, TensorSpec]] = []
        self.reason = ""

    def along(self, blocks: tuple[BlockSpec, ...], place: Place) -> tuple[float, Place]:
        """What blocks in a row make, combined from the first, and where they lead."""
        total = 0.0
        for block in self._kept(blocks):
            step = place.steps.get(id(block))
            if step is None:
                step = place.steps[id(block)] = (self._ask(block, place.x), self.place(block.output(place.x)))
            total = self._combine(total, step[0])
            place = step[1]
        return total, place

    def _kept(self, blocks: tuple[BlockSpec, ...]) -> tuple[BlockSpec, ...]:
        """The same blocks, equal ones as one object: a hash for each step would take a third of the time of the walk.

        The tuple is kept, too, so that no other gets its id.
        """
        found = self._chains.get(id(blocks))
        if found is None:
            found = self._chains[id(blocks)] = (blocks, tuple(self._blocks.setdefault(b, b) for b in blocks))
        return found[1]

    def place(self, x: TensorSpec) -> Place:
        """The place of an activation; there is one for each."""
        found = self._places.get(x)
        if found is None:
            found = self._places[x] = Place(x)
        return found

    def _ask(self, block: BlockSpec, x: TensorSpec) -> float:
        if block.pathway:  # the same beside whatever the other pathways hold
            part = block.located(x)
            if part not in self._of_pathways:
                self._of_pathways[part] = self._ask(*part)
            return self._of_pathways[part]
        try:
            return self._number(block, x)
        except NotMeasured as error:
            self.missing.append((block, x))
            self.reason = self.reason or str(error)
            return float("inf")

    def stages(
        self, family: Family, ends: Ends, stages: Sequence[Stage], clip: TensorSpec, num_classes: int
    ) -> tuple[float, tuple[StageSums, ...]]:
        """What the stem adds to all networks on a clip, and the sums of each stage."""
        base, first = self.along(ends.before(), self.place(clip))
        inputs, found = [first], []
        for index, stage in enumerate(stages):
            last = index == len(stages) - 1
            seconds = np.empty((len(inputs), len(stage.choices)))
            out = np.zeros(seconds.shape, dtype=np.int64)
            reached: dict[int, tuple[int, Place]] = {}
            for row, place in enumerate(inputs):
                for number, choice in enumerate(stage.choices):
                    total, end = self.along(family.stage(choice, place.x), place)
                    if last:
                        total = self._combine(total, self.along(ends.behind(choice, end.x, num_classes), end)[0])
                    else:
                        out[row, number] = reached.setdefault(id(end), (len(reached), end))[0]
                    seconds[row, number] = total
            found.append(StageSums(tuple(place.x for place in inputs), seconds, out))
            inputs = [place for _, place in reached.values()]
        return base, tuple(found)
