"""The way through a space as decisions in order: a stage at once, or what its blocks share and then block by block.

What a step hands on is an activation and, inside a stage whose blocks choose for themselves, what was chosen for all of
them. So such a stage is a chain of small steps, not the product of what its blocks may choose.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hwbench.spaces.family import Family, families, stage_of
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import BlockSpec, TensorSpec

# What is chosen for a block that the depth of its stage leaves out.
ABSENT = StageChoice((), ())
# The choice of the time that clips cover.
SPAN = "span_s"


@dataclass(frozen=True)
class Carried:
    """What is known of a stage between its steps.

    Attributes:
        choice: What all its blocks share, or all that was chosen for its last block.
        complete: Whether there are no more blocks.
    """

    choice: StageChoice
    complete: bool


@dataclass(frozen=True, eq=False)
class SpaceStep(abc.ABC):
    """One decision.

    Attributes:
        stage: What may be chosen.
        names: The names of what is chosen in a printed architecture, by axis.
    """

    stage: Stage
    names: Mapping[str, str]

    @cached_property
    def choices(self) -> tuple[StageChoice, ...]:
        """All that may be chosen, numbered in this order."""
        return self.stage.choices

    @cached_property
    def numbers(self) -> dict[StageChoice, int]:
        """From a choice to its number."""
        return {choice: number for number, choice in enumerate(self.choices)}

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Shape (choices, names): the place of each chosen value on its scale; -1 where nothing is chosen."""
        scales = [{text: at for at, text in enumerate(self.stage.texts(axis))} for axis in self.names]
        told = ((choice, self.texts_of(choice)) for choice in self.choices)
        rows = [[-1] * len(scales) if c == ABSENT else [s[text] for s, text in zip(scales, t)] for c, t in told]
        return np.array(rows, np.int64).reshape(len(rows), len(scales))

    @abc.abstractmethod
    def follow(
        self, family: Family, choice: StageChoice, x: TensorSpec, carried: Carried | None
    ) -> tuple[tuple[BlockSpec, ...], Carried] | None:
        """The blocks of a choice on what reaches the step, and what is known behind them; None: it cannot be chosen."""

    def texts_of(self, choice: StageChoice) -> tuple[str, ...]:
        """What a printed architecture tells of a choice, in the order of ``names``."""
        return () if choice == ABSENT else self.stage.texts_of(choice)

    def chosen(self, texts: Mapping[str, str]) -> StageChoice:
        """The choice that a printed architecture tells.

        Raises:
            KeyError, ValueError: A value is not offered.
        """
        return self.stage.choose({axis: texts[name] for axis, name in self.names.items()})


class ClipSpan(SpaceStep):
    """The time that a clip covers: what is seen, and no block."""

    def follow(
        self, family: Family, choice: StageChoice, x: TensorSpec, carried: Carried | None
    ) -> tuple[tuple[BlockSpec, ...], Carried] | None:
        return (), Carried(choice, True)


class WholeStage(SpaceStep):
    """Everything of a stage at once."""

    def follow(
        self, family: Family, choice: StageChoice, x: TensorSpec, carried: Carried | None
    ) -> tuple[tuple[BlockSpec, ...], Carried] | None:
        return stage_of(family, choice, x), Carried(choice, True)


class SharedChoices(SpaceStep):
    """What all blocks of a stage have in common, their number among it; makes no block."""

    def follow(
        self, family: Family, choice: StageChoice, x: TensorSpec, carried: Carried | None
    ) -> tuple[tuple[BlockSpec, ...], Carried] | None:
        return (), Carried(choice, False)


@dataclass(frozen=True, eq=False)
class OneBlock(SpaceStep):
    """What one block of a stage chooses for itself.

    Attributes:
        whole: The stage.
        number: The place of the block, from 0.
        depth: The name of the choice that says how many blocks there are.
    """

    whole: Stage
    number: int
    depth: str

    @cached_property
    def choices(self) -> tuple[StageChoice, ...]:
        always = min(self.whole["depth"]) > self.number
        return self.stage.choices if always else (*self.stage.choices, ABSENT)

    def follow(
        self, family: Family, choice: StageChoice, x: TensorSpec, carried: Carried | None
    ) -> tuple[tuple[BlockSpec, ...], Carried] | None:
        assert carried is not None
        if (choice == ABSENT) is not carried.complete:
            return None
        if choice == ABSENT:
            return (), carried
        joined = self._joined(carried.choice, choice)
        complete = carried.choice["depth"] == self.number + 1
        with families.blaming(family):
            block = family.block(joined, self.number, self.whole.by_block, x)
        return (block,), Carried(joined if complete else carried.choice, complete)

    def is_present(self, texts: Mapping[str, str]) -> bool:
        """Whether a printed architecture has the block."""
        return int(texts[self.depth]) > self.number

    def chosen(self, texts: Mapping[str, str]) -> StageChoice:
        return super().chosen(texts) if self.is_present(texts) else ABSENT

    def _joined(self, shared: StageChoice, own: StageChoice) -> StageChoice:
        key = shared, own
        if key not in self._kept:
            self._kept[key] = self.whole.joined(shared, own)
        return self._kept[key]

    @cached_property
    def _kept(self) -> dict[tuple[StageChoice, StageChoice], StageChoice]:
        return {}


def steps_of(stages: Iterable[Stage], spans_s: tuple[float, ...] = ()) -> Iterator[SpaceStep]:
    """All decisions of a space; choices are called ``s1.depth``, those of blocks ``s1.b1.kernel``.

    Args:
        stages: The stages.
        spans_s: Seconds that clips may cover; empty: that is no choice.
    """
    if spans_s:
        yield ClipSpan(Stage.of({SPAN: spans_s}), {SPAN: SPAN})
    for place, stage in enumerate(stages, start=1):
        if not stage.by_block:
            yield WholeStage(stage, _names(stage, f"s{place}"))
            continue
        shared = _names(stage.shared, f"s{place}")
        yield SharedChoices(stage.shared, shared)
        for number in range(max(stage["depth"])):
            names = _names(stage.own, f"s{place}.b{number + 1}")
            yield OneBlock(stage.own, names, stage, number, shared["depth"])


def spread(stage: Stage, choice: StageChoice) -> Iterator[StageChoice]:
    """What the steps of a stage choose where all its blocks choose alike.

    Args:
        stage: The stage.
        choice: A value for each of its axes.
    """
    if not stage.by_block:
        yield choice
        return
    yield stage.shared.restricted(choice)
    for number in range(max(stage["depth"])):
        yield stage.own.restricted(choice) if number < choice["depth"] else ABSENT


def members_of(stage: Stage) -> Iterator[tuple[StageChoice, ...]]:
    """All ways through the steps of a stage, in the order of their choices."""
    if not stage.by_block:
        yield from ((choice,) for choice in stage.choices)
        return
    deepest = max(stage["depth"])
    for shared in stage.shared.choices:
        depth = shared["depth"]
        for own in itertools.product(stage.own.choices, repeat=depth):
            yield (shared, *own, *[ABSENT] * (deepest - depth))


def _names(stage: Stage, prefix: str) -> dict[str, str]:
    return {axis: f"{prefix}.{axis}" for axis in stage.offered}
