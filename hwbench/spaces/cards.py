"""Zoo cards, ``zoo/<name>/model.toml``: a published network with its licence, its source and its published numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hwbench.errors import InvalidValue
from hwbench.registry import suggest
from hwbench.spaces.families import families
from hwbench.spaces.space import InputSize, blocks_of
from hwbench.specs import BlockSpec, Network
from hwbench.toml_fields import Fields
from hwbench.workspace import Workspace

# Families of cards that share their table and their blocks with another: they differ in their published weights.
_SAME = {"efficient-x3d": "x3d"}


@dataclass(frozen=True)
class PublishedFigure:
    """One number somebody published, with the conditions it holds under; ``unit`` is ``share`` for accuracies."""

    metric: str
    value: float
    unit: str
    conditions: str
    source: str


@dataclass(frozen=True)
class Weights:
    """Where published weights lie; ``form`` says how the file is laid out (``state_dict`` or ``model_state``).

    ``sha256`` is the digest of the file; empty where it is not known.
    """

    url: str
    form: str
    sha256: str = ""


@dataclass(frozen=True)
class Card:
    """What a zoo card says. ``sample_rate`` is the step between the frames of a clip, in frames of the video."""

    name: str
    family: str
    licence: str
    source: str
    classes: int
    sample_rate: int
    cell: InputSize
    blocks: tuple[BlockSpec, ...]
    published: tuple[PublishedFigure, ...]
    weights: Weights | None

    def network(self, num_classes: int | None = None) -> Network:
        """The network called ``zoo:NAME``; with its published number of classes unless another is given."""
        network = Network(f"zoo:{self.name}", self.blocks, self.cell.clip)
        return network if num_classes is None else network.with_classes(num_classes)


def load_card(workspace: Workspace, name: str) -> Card:
    """The card of that name, from the workspace or as shipped.

    Raises:
        UnknownName: No such card.
        InvalidFile: It does not validate.
    """
    return read_card(workspace.card(name))


def read_card(path: Path) -> Card:
    """Reads one card.

    Raises:
        InvalidFile: An unknown or missing key, a wrong type, or a value that no network can have.
    """
    fields = Fields.read(path)
    name = fields.text("name")
    if name != path.parent.name:
        raise fields.error("name", f"expected the name of the folder, {path.parent.name!r}", name)
    family = fields.text("family")
    described = _SAME.get(family, family)
    if described not in families:
        hint = suggest(family, [*families.names(), *_SAME])
        raise fields.error("family", f"expected a known family ({hint})", family)
    classes = fields.integer("classes")
    inputs = fields.table("input")
    cell = InputSize(inputs.integer("frames"), inputs.integer("resolution"))
    sample_rate = inputs.integer("sample_rate")
    inputs.done()
    try:
        cell.clip  # noqa: B018  # refuses an empty clip
        table = fields.table(described)
        member = families.get(described).card(table)
        table.done()
        blocks = blocks_of(families.get(described), member.ends, member.stages, cell.clip, classes)
    except InvalidValue as error:
        raise fields.error(f"input, {described}", str(error), name) from None
    card = Card(
        name=name,
        family=family,
        licence=fields.text("licence"),
        source=fields.text("source"),
        classes=classes,
        sample_rate=sample_rate,
        cell=cell,
        blocks=blocks,
        published=tuple(_published(table) for table in fields.tables("published", required=False)),
        weights=next((_weights(table) for table in fields.tables("weights", required=False)), None),
    )
    fields.done()
    return card


def _published(fields: Fields) -> PublishedFigure:
    published = PublishedFigure(
        *(fields.text("metric"), fields.number("value"), fields.text("unit")),
        *(fields.text("conditions"), fields.text("source")),
    )
    fields.done()
    return published


def _weights(fields: Fields) -> Weights:
    weights = Weights(fields.text("url"), fields.text("form"), fields.text("sha256", default=""))
    if not re.fullmatch("https://[!-~]+", weights.url):
        raise fields.error("url", "expected an address with https://", weights.url)
    if weights.sha256 and not re.fullmatch("[0-9a-f]{64}", weights.sha256):
        raise fields.error("sha256", "expected 64 hexadecimal digits in lower case", weights.sha256)
    if weights.form not in ("state_dict", "model_state"):
        raise fields.error("form", "expected state_dict or model_state", weights.form)
    fields.done()
    return weights
