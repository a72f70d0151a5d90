"""What a family of networks is: the axes of its stages, and the blocks that choices stand for. Loads no torch."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hwbench.registry import Registry, instance_of
from hwbench.spaces.axes import Axis
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import BlockSpec, TensorSpec
from hwbench.toml_fields import Fields


class Ends(abc.ABC):
    """What stands before the first stage and behind the last one; a frozen dataclass of the family."""

    def on(self, clip: TensorSpec) -> Ends:
        """The ends of networks on clips of that shape: these, unless the stem depends on the clip."""
        del clip
        return self

    @abc.abstractmethod
    def stem(self) -> BlockSpec:
        """The block that takes the clip."""

    @abc.abstractmethod
    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        """The block behind a last stage, for what reaches it."""

    def before(self) -> tuple[BlockSpec, ...]:
        """All blocks before the first stage: the stem, unless the family says otherwise."""
        return (self.stem(),)

    def behind(self, last: StageChoice, x: TensorSpec, num_classes: int) -> tuple[BlockSpec, ...]:
        """All blocks behind a last stage: the head, unless the family says otherwise."""
        return (self.head(last, x, num_classes),)

    @abc.abstractmethod
    def parts(self) -> Mapping[str, object]:
        """What ``repr`` of a space shows, and so what its digest depends on: ``stem`` and ``head``."""


class Family(abc.ABC):
    """A family of networks: a stem, stages of blocks, a head. A subclass is one file in ``hwbench.spaces.families`` and
    one line in its ``__init__``.

    Class attributes:
        name: ``family`` in the file of a space.
        axes: What may be chosen for a stage, in the order of printed keys.
        constants: What a file fixes for a stage: (key, how it is read, its default or None).
        block_axes: Names of the axes that a file may let every block of a stage choose for itself (``by_block``). A
            family that has any has an axis ``depth``: the number of blocks of a stage.
    """

    name: ClassVar[str]
    axes: ClassVar[tuple[Axis, ...]]
    constants: ClassVar[tuple[Axis, ...]] = ()
    block_axes: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def ends(self, fields: Fields) -> Ends:
        """Reads what a file says beside input and stages: by custom the tables ``[stem]`` and ``[head]``.

        Raises:
            InvalidFile: A key is missing or has a value that no network of the family can have.
        """

    @abc.abstractmethod
    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        """The blocks of a stage on what reaches it, at least one.

        The blocks may depend on everything in ``choice`` and on the channels of ``x``; the same arguments give the
        same blocks.
        """

    def block(self, choice: StageChoice, number: int, by_block: tuple[str, ...], x: TensorSpec) -> BlockSpec:
        """One block of a stage whose blocks choose for themselves.

        By default it is the block that ``stage`` would have in its place: right where no block but the first depends
        on ``x``.

        Args:
            choice: What holds for the block.
            number: Its place in the stage, from 0.
            by_block: The axes that blocks choose for themselves.
            x: What reaches the block.
        """
        del by_block
        return self.stage(choice, x)[number]

    def check(self, stage: Stage) -> tuple[str, str] | None:
        """What is wrong with a stage as a whole: an axis and what was expected of it; None where nothing is."""
        del stage
        return None

    def check_last(self, stage: Stage, *, last: bool) -> tuple[str, str] | None:
        """As ``check``, of what depends on whether a stage is the last one."""
        del stage, last
        return None

    def check_inputs(self, stage: Stage, channels: Collection[int]) -> tuple[str, str] | None:
        """As ``check``, of what depends on the channels that may reach a stage, by what is chosen before it."""
        del stage, channels
        return None

    @abc.abstractmethod
    def card(self, fields: Fields) -> Member:
        """Reads the table of a zoo card that is called as the family: one network, told as its paper does.

        Raises:
            InvalidFile: As ``ends``.
        """


@dataclass(frozen=True)
class Member:
    """One network of a family: its ends, and a choice for each stage."""

    ends: Ends
    stages: tuple[StageChoice, ...]


def only(family: Family, choice: Mapping[str, Any]) -> StageChoice:
    """One choice from values by name, constants included; an axis without one has its default."""
    names = tuple(axis.name for axis in family.axes)
    values = tuple(choice.get(axis.name, axis.default) for axis in family.axes)
    constants = tuple((axis.name, choice.get(axis.name, axis.default)) for axis in family.constants)
    return StageChoice(values, names, constants)


families: Registry[Family] = Registry(
    "family", entry_points="hwbench.families", expects=instance_of(Family), named=True
)


def stage_of(family: Family, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
    """``Family.stage``.

    Raises:
        HwbenchError: The family is of another package, and raises something else; the message names it.
    """
    with families.blaming(family):
        return family.stage(choice, x)
