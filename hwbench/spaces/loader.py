"""Reads ``search_spaces/<name>.toml`` into a StagedSpace. ``search_spaces/x3d-mobile.toml`` shows every key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from pathlib import Path
from typing import Any

from hwbench.errors import InvalidFile, InvalidValue, UnsupportedModule
from hwbench.registry import suggest
from hwbench.spaces.axes import Axis, frame_counts, is_too_wide, one, resolutions, write
from hwbench.spaces.cards import ZOO_SPACE, load_card
from hwbench.spaces.families import MEMBERS, families
from hwbench.spaces.families.by_hand import hand_space, name_hand_maker, with_classes
from hwbench.spaces.family import Family, stage_of
from hwbench.spaces.protocols import SearchedSpace
from hwbench.spaces.space import FIRST_FAMILY, StagedSpace
from hwbench.spaces.stages import MAX_CHOICES, Stage, StageChoice
from hwbench.spaces.steps import SPAN
from hwbench.spaces.union import joined
from hwbench.spaces.walk import after
from hwbench.specs import AUTO, STREAM, Architecture, BlockSpec, ModelName
from hwbench.specs.network import MAX_SIZE
from hwbench.toml_fields import MAX_VALUE, Fields
from hwbench.workspace import Workspace

_ZOO = "zoo:"


def load_space(workspace: Workspace, name: str) -> StagedSpace:
    """The space of that name, from the workspace or as shipped; ``zoo:NAME`` and ``zoo-NAME`` are that of a card.

    Raises:
        UnknownName: No such space or card.
        InvalidFile: Its file does not validate.
    """
    if name.startswith(_ZOO):
        return load_card(workspace, name.removeprefix(_ZOO)).space
    card = name.removeprefix(ZOO_SPACE)
    if name not in workspace.names("search_spaces") and name != card and card in workspace.names("zoo"):
        return load_card(workspace, card).space
    return read_space(workspace.space(name))


def open_space(workspace: Workspace, text: str, num_classes: int | None = None, variant: str = AUTO) -> StagedSpace:
    """The space that a user names: a file of ``search_spaces/``, ``zoo:NAME``, or ``package.module:function`` of a
    model by hand; with the variant ``stream`` the space of its causal networks, timed by the new frame.

    Never for a name that was read from a file: the function is imported and run.

    Raises:
        UnknownName: No such space.
        InvalidFile: Its file does not validate.
        InvalidValue, UnsupportedModule: The function makes no model that can be looked at, or networks have no stream
            form where one is asked for.
    """
    name = None if text.startswith(_ZOO) else ModelName.match(text)
    space = load_space(workspace, text) if name is None else hand_space(name, num_classes)
    return space.streamed() if variant == STREAM else space


def open_spaces(
    workspace: Workspace, texts: Sequence[str], num_classes: int | None = None, variant: str = AUTO
) -> SearchedSpace:
    """The union of the spaces that a user names, each as ``open_space`` takes it; of one the space itself.

    Raises:
        UnknownName: No such space.
        InvalidFile: Its file does not validate.
        InvalidValue, UnsupportedModule: A space stands there twice, a function makes no model that can be looked at, or
            ``variant`` is ``stream`` and networks have no stream form.
    """
    return joined([open_space(workspace, text, num_classes, variant) for text in texts])


def spaces_with_classes(space: SearchedSpace, num_classes: int) -> SearchedSpace:
    """A space or union that ``open_spaces`` gave, by the number of classes of a table where none was typed.

    It is another one only where a model by hand has other blocks before its head (``with_classes``).

    Raises:
        InvalidValue, UnsupportedModule: What loading the model raises.
    """
    members = [with_classes(one, num_classes) for one in space.members]
    return space if all(map(is_, members, space.members)) else joined(members)


def load_named(text: str | None) -> None:
    """Imports the function that a user names beside a checkpoint of its model, ``package.module:function``; None is
    nothing. The model is made when the checkpoint is read, which tells the number of its classes.

    Raises:
        InvalidValue: No such name, or there is no such function.
    """
    if text is not None:
        name_hand_maker(ModelName.parse(text))


def read_space(path: Path) -> StagedSpace:
    """Reads one file; the space is called as the file is.

    Raises:
        InvalidFile: An unknown or missing key, a wrong type, or a value that no network can have.
    """
    fields = Fields.read(path, most=MAX_SIZE)
    name = fields.text("name")
    if name != path.stem:
        raise fields.error("name", f"expected the name of the file, {path.stem!r}", name)
    if not Architecture.can_be_of(name):
        allowed = "letters, digits, '.', '_' and '-', first a letter or digit, as it begins the keys of its networks"
        raise fields.error("name", f"expected {allowed}; rename the file as well", name)
    fields.text("description")
    family = _family(fields)
    inputs = fields.table("input", most=MAX_VALUE)
    with families.blaming(family, on=str(path)):
        space = StagedSpace(
            name=name,
            frames=frame_counts(inputs, "frames"),
            resolution=resolutions(inputs, "resolution"),
            family=family,
            ends=family.ends(fields),
            stages=_stages(family, fields),
            spans_s=_spans(inputs),
        )
    inputs.done()
    fields.done()
    _check_blocks(space, fields)
    return space


def _check_blocks(space: StagedSpace, fields: Fields) -> None:
    """Makes sure that there is a block for each value that a file offers, beside the first one of each other axis.

    Raises:
        InvalidFile: There is none; the error names the key.
    """
    clip = min(space.cells).clip
    try:
        with families.blaming(space.family):
            ends = space.ends.on(clip)
            before = ends.before()
        _check(before, fields, "stem")
        x = after(before, clip)
        channels = {x.c}
        for stage, table in zip(space.stages, fields.tables("stages"), strict=True):
            if wrong := space.family.check_inputs(stage, channels):
                raise table.error(*wrong, list(stage[wrong[0]]))
            channels = set()
            for name, choice in _one_apart(stage):
                blocks = stage_of(space.family, choice, x)
                _check(blocks, table, name, tuple(axis for axis, _ in stage.axes))
                channels.add(after(blocks, x).c)
            x = after(blocks, x)
        with families.blaming(space.family):
            behind = ends.behind(choice, x, 1)
        _check(behind, fields, "head")
    except InvalidFile:
        raise
    except InvalidValue:  # such choices do not go together, or not with so small a clip; others may
        return


def _check(blocks: Iterable[BlockSpec], fields: Fields, name: str, names: Sequence[str] = ()) -> None:
    """Raises InvalidFile where a kind has no such block; of ``names`` one that the kind speaks of is told."""
    for block in blocks:
        try:
            block.descriptor.check(block)
        except UnsupportedModule as error:
            told = next((one for one in names if one in str(error)), name)
            raise fields.error(told, "expected values of which there is a block", str(error)) from None
        if is_too_wide(block):
            raise fields.error(name, f"expected blocks of at most {MAX_SIZE} channels", block.key)


def _one_apart(stage: Stage) -> Iterator[tuple[str, StageChoice]]:
    """By axis: the choices of a stage that have the first value of each other axis; the last has first values alone."""
    names, first = tuple(name for name, _ in stage.axes), tuple(values[0] for _, values in stage.axes)
    for at, (name, values) in enumerate(stage.axes):
        for value in values[::-1]:
            yield name, StageChoice((*first[:at], value, *first[at + 1 :]), names, stage.constants)


def _family(fields: Fields) -> Family:
    name = fields.text("family", FIRST_FAMILY)
    family = MEMBERS.get(name, name)
    if family not in families:
        raise fields.error("family", f"expected a known family ({suggest(name, [*families.names(), *MEMBERS])})", name)
    return families.get(family)


def _spans(fields: Fields) -> tuple[float, ...]:
    """Seconds that clips may cover; empty where the file leaves that to the data."""
    if SPAN not in fields:
        return ()
    values = fields.numbers(SPAN)
    if not all(values):
        raise fields.error(SPAN, "expected seconds above 0", list(values))
    _check_told_apart(values, fields, SPAN)
    return values


def _check_told_apart(values: Sequence[Any], fields: Fields, name: str) -> None:
    """Makes sure that keys of networks tell the values of an axis apart.

    Raises:
        InvalidFile: Two of them are written alike.
    """
    texts = [write(value) for value in values]
    if len(set(texts)) < len(texts):
        raise fields.error(name, "expected values that differ as keys write them, numbers with six digits", texts)


def _stages(family: Family, fields: Fields) -> tuple[Stage, ...]:
    tables = list(fields.tables("stages"))
    called = fields.text("family", FIRST_FAMILY)
    stages = tuple(_stage(family, called, table) for table in tables)
    for table, stage in zip(tables, stages):
        wrong = family.check_last(stage, last=stage is stages[-1])
        if wrong is not None:
            raise table.error(*wrong, list(stage[wrong[0]]))
    return stages


def _stage(family: Family, called: str, fields: Fields) -> Stage:
    offered = [axis for axis in family.axes if axis.default is None or axis.name in fields]
    axes = {axis.name: axis.read(fields, axis.name) if axis in offered else (axis.default,) for axis in family.axes}
    for name, values in axes.items():
        _check_told_apart(values, fields, name)
    constants = {axis.name: _constant(axis, fields) for axis in family.constants}
    stage = Stage(
        tuple(axes.items()),
        tuple(axis.name for axis in offered),
        tuple(constants.items()),
        _by_block(family, called, fields),
    )
    if math.prod(len(values) for values in axes.values()) > MAX_CHOICES:
        raise fields.error(", ".join(axes), f"expected at most {MAX_CHOICES} combinations", "more")
    wrong = family.check(stage)
    if wrong is not None:
        name, expected = wrong
        raise fields.error(name, expected, list(axes[name]) if name in axes else constants[name])
    fields.done()
    return stage


def _by_block(family: Family, called: str, fields: Fields) -> tuple[str, ...]:
    """The axes that blocks choose for themselves, in the order of the family, which the file calls ``called``."""
    names = fields.texts("by_block", ())
    for name in names:
        if name not in family.block_axes:
            known = ", ".join(family.block_axes) or "none"
            raise fields.error("by_block", f"expected axes that blocks of family {called!r} may choose ({known})", name)
        if name not in fields:
            raise fields.error("by_block", f"expected axes that the stage offers; add {name} = [...]", name)
    return tuple(axis.name for axis in family.axes if axis.name in names)


def _constant(axis: Axis, fields: Fields) -> Any:
    if axis.default is not None and axis.name not in fields:
        return axis.default
    return one(axis.read)(fields, axis.name)
