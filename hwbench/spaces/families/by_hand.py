"""A model that a user wrote, ``package.module:function``, as a space with one member. No file of a space can name one.

The blocks are what the model says of itself when it is loaded (``hwbench.models.by_hand``): the stem is its first
block, the head its last one, and what lies between them is a stage with one choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NoReturn

from hwbench.errors import InvalidValue
from hwbench.spaces.axes import Axis
from hwbench.spaces.family import Ends, Family
from hwbench.spaces.space import InputSize, StagedSpace
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import BlockSpec, ModelName, Network, TensorSpec
from hwbench.specs.kinds.by_hand import is_by_hand, model_of
from hwbench.toml_fields import Fields

if TYPE_CHECKING:
    from hwbench.models.by_hand import HandModel


@dataclass(frozen=True)
class HandEnds(Ends):
    """First and last block of a model; a model without named blocks has its one block at the end.

    Attributes:
        name: Of the model.
        blocks: Its blocks when the space was opened.
        num_classes: Number of classes that the space was opened with; None: that of the model itself.
    """

    name: ModelName
    blocks: tuple[BlockSpec, ...]
    num_classes: int | None

    def stem(self) -> BlockSpec:
        return self.blocks[0]

    def before(self) -> tuple[BlockSpec, ...]:
        return self.blocks[:1] if len(self.blocks) > 1 else ()

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        """The last block as wide as asked for, or as it is where the user's function does not take ``num_classes``.

        Raises:
            InvalidValue: The code of the model was loaded anew since the space was opened.
        """
        if _load(self.name, self.num_classes).network.blocks != self.blocks:
            raise InvalidValue(
                f"{self.name}: its blocks are others than when the space was opened, for its code was loaded anew; "
                "open the space again"
            )
        return _load(self.name, num_classes).network.blocks[-1]

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.blocks[0].key, "blocks": [block.key for block in self.blocks[1:]]}


class ByHand(Family):
    """Networks that users wrote. The family of a space holds the blocks of its one member."""

    name = "by-hand"
    # Not offered by any stage: nothing is chosen.
    axes: ClassVar[tuple[Axis, ...]] = ()

    def __init__(self, inner: tuple[BlockSpec, ...] = ()) -> None:
        self._inner = inner

    def ends(self, fields: Fields) -> NoReturn:
        _refuse(fields)

    def card(self, fields: Fields) -> NoReturn:
        _refuse(fields)

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        """The blocks between the first and the last one; there may be none."""
        return self._inner


def hand_space(name: ModelName, num_classes: int | None = None) -> StagedSpace:
    """The space whose only member is a model that the user named; it is called as the model's label.

    Raises:
        InvalidValue: What loading the model raises, its clip is not square, or it stands in a notebook or script, whose
            ``__main__`` no process that builds its blocks can import.
        UnsupportedModule: It does not give logits.
    """
    if name.module == "__main__":
        raise InvalidValue(
            f"{name}: a model of a notebook or script has to stand in a file that other processes can import: write it "
            f"to mynets.py and name mynets:{name.function}"
        )
    model = _load(name, num_classes)
    clip, blocks = model.input, model.network.blocks
    if clip.h != clip.w:
        raise InvalidValue(f"{name}: a search space has square clips, got {clip.key}; train and export take any clip")
    cell = InputSize(clip.t, clip.h)
    chain = Stage(axes=(("chain", (name.label,)),), offered=())
    return StagedSpace(
        name=name.label,
        frames=(cell.frames,),
        resolution=(cell.resolution,),
        family=ByHand(blocks[1:-1]),
        ends=HandEnds(name, blocks, num_classes),
        stages=(chain,),
    )


def hand_network(name: ModelName, num_classes: int | None = None) -> Network:
    """The network of a model that the user named, as wide as asked for where its function takes ``num_classes``.

    Raises:
        InvalidValue, UnsupportedModule: What loading the model raises.
    """
    return _load(name, num_classes).network


def name_hand_maker(name: ModelName) -> None:
    """Imports the function that makes the model of a checkpoint, which tells the number of its classes.

    Raises:
        InvalidValue: There is no such function.
    """
    from hwbench.models import by_hand

    by_hand.name_maker(name)


def with_classes(space: StagedSpace, num_classes: int) -> StagedSpace:
    """The space opened with another number of classes, where blocks of a model before its head change with it.

    Any other space is given back as it is: heads follow the classes of a network, and a study knows its space by the
    blocks that it was opened with.

    Raises:
        InvalidValue, UnsupportedModule: What loading the model raises.
    """
    if not isinstance(space.ends, HandEnds):
        return space
    opened = replace(hand_space(space.ends.name, num_classes), variant=space.variant)
    assert isinstance(opened.ends, HandEnds)
    return space if opened.ends.blocks[:-1] == space.ends.blocks[:-1] else opened


def is_of(space: str, block: BlockSpec) -> bool:
    """Whether a block of a table may be one of the space that a user names: of that model, or of no model by hand."""
    name = ModelName.match(space)
    if name is None or not is_by_hand(block):
        return name is None and not is_by_hand(block)
    return model_of(block) == name.label


def is_importable(name: ModelName) -> bool:
    """Whether Python finds the module that a user's words name."""
    from hwbench.models import by_hand

    return by_hand.is_importable(name)


def _load(name: ModelName, num_classes: int | None) -> HandModel:
    from hwbench.models import by_hand

    return by_hand.load(name, num_classes)


def _refuse(fields: Fields) -> NoReturn:
    raise fields.error(
        "family", "expected a family that a file can describe; a model of your own is named on the command line as "
        "--space package.module:function", ByHand.name
    )  # fmt: skip
