"""The way through all networks of a space at one input size: every block on every input that it gets, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import add

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import NotMeasured
from hwbench.spaces.family import Ends, Family
from hwbench.spaces.steps import ABSENT, Carried, OneBlock, SpaceStep
from hwbench.specs import BlockSpec, TensorSpec

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# A stage that has all its blocks.
_COMPLETE = Carried(ABSENT, True)

# What one block on its input adds; NotMeasured where that is not known.
BlockNumber = Callable[[BlockSpec, TensorSpec], float]


@dataclass(frozen=True)
class StageSums:
    """One step, mostly a stage, at one input size.

    Attributes:
        inputs: The activations that may reach the step; one stands there as often as it comes with something else
            that was chosen for the stage.
        seconds: Shape (inputs, choices): what the blocks of the step add up to, those of the head included behind
            the last one; infinity where a choice is not to be had, or lacks a number.
        out: Shape (inputs, choices): the number of the activation that reaches the next step; 0 behind the last.
        carried: By input: what is known of the stage inside which the step is; empty where no stage is open.
    """

    inputs: tuple[TensorSpec, ...]
    seconds: Floats
    out: Integers
    carried: tuple[Carried | None, ...] = ()

    def at(self, row: int) -> tuple[TensorSpec, Carried | None]:
        """What reaches the step."""
        return self.inputs[row], self.carried[row] if self.carried else None


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
        self._of_heads: dict[tuple[BlockSpec, ...], Carried] = {}
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

    def steps(
        self, family: Family, ends: Ends, steps: Sequence[SpaceStep], clip: TensorSpec, num_classes: int
    ) -> tuple[float, tuple[StageSums, ...]]:
        """What the stem adds to all networks on a clip, and the sums of each step."""
        ends = ends.on(clip)
        base, first = self.along(ends.before(), self.place(clip))
        states: list[tuple[Place, Carried | None]] = [(first, None)]
        found = []
        for index, step in enumerate(steps):
            behind = steps[index + 1 :]
            seconds = np.full((len(states), len(step.choices)), np.inf)
            out = np.zeros(seconds.shape, dtype=np.int64)
            reached: dict[tuple[int, Carried | None], tuple[int, Place]] = {}
            for row, (place, carried) in enumerate(states):
                for number, choice in enumerate(step.choices):
                    move = step.follow(family, choice, place.x, carried)
                    if move is None:
                        continue
                    total, end = self.along(move[0], place)
                    if not behind:
                        head = ends.behind(move[1].choice, end.x, num_classes)
                        total = self._combine(total, self.along(head, end)[0])
                    else:
                        handed = self._handed(move[1], behind, ends, end.x, num_classes)
                        out[row, number] = reached.setdefault((id(end), handed), (len(reached), end))[0]
                    seconds[row, number] = total
            within = tuple(carried for _, carried in states) if isinstance(step, OneBlock) else ()
            found.append(StageSums(tuple(place.x for place, _ in states), seconds, out, within))
            states = [(place, handed) for (_, handed), (_, place) in reached.items()]
        return base, tuple(found)

    def _handed(
        self, carried: Carried, behind: Sequence[SpaceStep], ends: Ends, x: TensorSpec, num_classes: int
    ) -> Carried | None:
        """What the steps behind have to know of an open stage: of a complete one no more than the head does."""
        if not isinstance(behind[0], OneBlock):
            return None
        if not carried.complete:
            return carried
        if not all(isinstance(step, OneBlock) for step in behind):
            return _COMPLETE
        return self._of_heads.setdefault(ends.behind(carried.choice, x, num_classes), carried)
