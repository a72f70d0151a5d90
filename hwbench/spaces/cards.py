"""Zoo cards, ``zoo/<name>/model.toml``: a published network with its licence, its source and its published numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hwbench.errors import InvalidValue
from hwbench.registry import suggest
from hwbench.spaces.fields import Fields
from hwbench.spaces.space import Cell
from hwbench.spaces.stages import MAX_BLOCKS, Head, StageChoice, Stem
from hwbench.specs import ACTIVATIONS, BlockSpec, Network, parse_kernel
from hwbench.workspace import Workspace

FAMILIES = ("efficient-x3d", "x3d")


@dataclass(frozen=True)
class Published:
    """One number somebody published, with the conditions it holds under; ``unit`` is ``share`` for accuracies."""

    metric: str
    value: float
    unit: str
    conditions: str
    source: str


@dataclass(frozen=True)
class Weights:
    """Where published weights lie; ``form`` says how the file is laid out (``state_dict`` or ``model_state``)."""

    url: str
    form: str


@dataclass(frozen=True)
class Card:
    """What a zoo card says. ``sample_rate`` is the step between the frames of a clip, in frames of the video."""

    name: str
    family: str
    licence: str
    source: str
    classes: int
    sample_rate: int
    cell: Cell
    blocks: tuple[BlockSpec, ...]
    published: tuple[Published, ...]
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
    if family not in FAMILIES:
        raise fields.error("family", f"expected a known family ({suggest(family, FAMILIES)})", family)
    classes = fields.integer("classes")
    inputs = fields.table("input")
    cell = Cell(inputs.integer("frames"), inputs.integer("resolution"))
    sample_rate = inputs.integer("sample_rate")
    inputs.done()
    try:
        cell.clip  # noqa: B018  # refuses an empty clip
        blocks = _x3d_blocks(fields.table("x3d"), classes)
    except InvalidValue as error:
        raise fields.error("input, x3d", str(error), name) from None
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


def _x3d_blocks(fields: Fields, classes: int) -> tuple[BlockSpec, ...]:
    """The table of X3D (arXiv 2004.04730, table 3): depths and widths by stage, everything else alike in all stages."""
    depths, widths = fields.series("depths"), fields.series("widths")
    if len(depths) != len(widths):
        raise fields.error("widths", f"expected one width for each of {len(depths)} depths", list(widths))
    if sum(depths) > MAX_BLOCKS:
        raise fields.error("depths", f"expected at most {MAX_BLOCKS} blocks in all", list(depths))
    kernel, act = parse_kernel(fields.text("kernel")), fields.text("act")
    if act not in ACTIVATIONS:
        raise fields.error("act", f"expected one of {', '.join(ACTIVATIONS)}", act)
    expansion, se = fields.number("expansion"), fields.number("se")
    stem = Stem(fields.integer("stem_width"), parse_kernel(fields.text("stem_kernel")), "relu")
    blocks = [stem.block()]
    choices = [StageChoice(depth, width, expansion, kernel, se, act) for depth, width in zip(depths, widths)]
    for choice in choices:
        blocks += choice.blocks(blocks[-1].out_channels, stride=2)
    blocks.append(Head(fields.integer("hidden"), "relu").block(choices[-1], classes))
    fields.done()
    return tuple(blocks)


def _published(fields: Fields) -> Published:
    published = Published(
        *(fields.text("metric"), fields.number("value"), fields.text("unit")),
        *(fields.text("conditions"), fields.text("source")),
    )
    fields.done()
    return published


def _weights(fields: Fields) -> Weights:
    weights = Weights(fields.text("url"), fields.text("form"))
    if weights.form not in ("state_dict", "model_state"):
        raise fields.error("form", "expected state_dict or model_state", weights.form)
    fields.done()
    return weights
