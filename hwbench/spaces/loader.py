"""Reads ``search_spaces/<name>.toml`` into a StagedSpace. ``search_spaces/x3d-mobile.toml`` shows every key."""

from __future__ import annotations

import math
from pathlib import Path

from hwbench.errors import InvalidValue
from hwbench.spaces.fields import Fields
from hwbench.spaces.space import StagedSpace
from hwbench.spaces.stages import MAX_BLOCKS, MAX_CHOICES, Head, Stage, Stem
from hwbench.specs import ACTIVATIONS, Kernel, parse_kernel
from hwbench.workspace import Workspace


def load_space(workspace: Workspace, name: str) -> StagedSpace:
    """The space of that name, from the workspace or as shipped.

    Raises:
        UnknownName: No such space.
        InvalidFile: Its file does not validate.
    """
    return read_space(workspace.space(name))


def read_space(path: Path) -> StagedSpace:
    """Reads one file; the space is called as the file is.

    Raises:
        InvalidFile: An unknown or missing key, a wrong type, or a value that no network can have.
    """
    fields = Fields.read(path)
    name = fields.text("name")
    if name != path.stem:
        raise fields.error("name", f"expected the name of the file, {path.stem!r}", name)
    fields.text("description")
    inputs = fields.table("input")
    space = StagedSpace(
        name=name,
        frames=_positive(inputs, "frames"),
        resolution=_positive(inputs, "resolution"),
        stem=_stem(fields.table("stem")),
        stages=tuple(_stage(table) for table in fields.tables("stages")),
        head=_head(fields.table("head")),
    )
    inputs.done()
    fields.done()
    return space


# What the stem block is built as; written out in a space, so that it can be told what came.
_STEM = {"kernel": "1x3x3+5x1x1", "act": "relu"}


def _stem(fields: Fields) -> Stem:
    stem = Stem(_at_least_one(fields, "width"), _kernel(fields, "kernel"), _activation(fields, "act"))
    for name, expected in _STEM.items():
        if fields.text(name) != expected:
            raise fields.error(name, f"expected {expected}: stems of X3D have no other", fields.text(name))
    fields.done()
    return stem


def _stage(fields: Fields) -> Stage:
    stage = Stage(
        depth=_positive(fields, "depth"),
        width=_positive(fields, "width"),
        expansion=fields.numbers("expansion"),
        kernel=tuple(_parse(fields, "kernel", text) for text in fields.texts("kernel")),
        se=fields.numbers("se"),
        act=tuple(_known_activation(fields, "act", text) for text in fields.texts("act")),
        stride=_at_least_one(fields, "stride"),
    )
    if max(stage.depth) > MAX_BLOCKS:
        raise fields.error("depth", f"expected at most {MAX_BLOCKS} blocks", list(stage.depth))
    lists = (stage.depth, stage.width, stage.expansion, stage.kernel, stage.se, stage.act)
    if math.prod(map(len, lists)) > MAX_CHOICES:
        raise fields.error("depth, width, ...", f"expected at most {MAX_CHOICES} combinations", "more")
    if any(choice.mid_channels < 1 for choice in stage.choices()):
        raise fields.error("expansion", "expected at least one channel inside a block", list(stage.expansion))
    if any(ratio > 1 for ratio in stage.se):
        raise fields.error("se", "expected ratios from 0 (none) to 1", list(stage.se))
    fields.done()
    return stage


def _head(fields: Fields) -> Head:
    head = Head(_at_least_one(fields, "hidden"), _activation(fields, "act"))
    fields.done()
    return head


def _positive(fields: Fields, name: str) -> tuple[int, ...]:
    values = fields.integers(name)
    if min(values) < 1:
        raise fields.error(name, "expected whole numbers, at least 1", list(values))
    return values


def _at_least_one(fields: Fields, name: str) -> int:
    value = fields.integer(name)
    if value < 1:
        raise fields.error(name, "expected a whole number, at least 1", value)
    return value


def _kernel(fields: Fields, name: str) -> Kernel:
    return _parse(fields, name, fields.text(name))


def _parse(fields: Fields, name: str, text: str) -> Kernel:
    try:
        return parse_kernel(text)
    except InvalidValue as error:
        raise fields.error(name, f"expected a kernel such as 3x3x3 or 1x3x3+3x1x1 ({error})", text) from None


def _activation(fields: Fields, name: str) -> str:
    return _known_activation(fields, name, fields.text(name))


def _known_activation(fields: Fields, name: str, text: str) -> str:
    if text not in ACTIVATIONS:
        raise fields.error(name, f"expected one of {', '.join(ACTIVATIONS)}", text)
    return text
