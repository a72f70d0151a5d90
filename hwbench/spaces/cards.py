"""Zoo cards, ``zoo/<name>/model.toml``: a published network with its licence, its source and its published numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.errors import HwbenchError, InvalidFile, InvalidValue
from hwbench.registry import suggest
from hwbench.spaces.axes import MAX_RESOLUTION, classes, frame_counts, is_too_wide, one, resolutions
from hwbench.spaces.families import MEMBERS, families
from hwbench.spaces.family import Family, Member
from hwbench.spaces.space import InputSize, StagedSpace, blocks_of
from hwbench.spaces.stages import Stage
from hwbench.specs import Architecture, BlockSpec, Network
from hwbench.specs.network import MAX_SIZE
from hwbench.toml_fields import Fields
from hwbench.workspace import Workspace

if TYPE_CHECKING:
    from hwbench.data import ClipSpec, Normalisation, PictureSpec

# What the space of a card is called begins so.
ZOO_SPACE = "zoo-"


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
class PublishedInput:
    """How published weights saw videos; the defaults are what cards of before meant.

    Attributes:
        sample_rate: Step between the frames of a clip, in frames of the video, or of ``target_fps`` per second; None
            where the clip has a span.
        span_s: Seconds that a clip covers.
        target_fps: Nominal frame rate of the videos that ``sample_rate`` counts in.
        convention: Which frames make a clip; a name of ``hwbench.data.conventions``.
        train_scale: Range of the shorter side of training frames over the crop.
        test_scale: The shorter side of test frames over the crop.
        resize: How a frame becomes a picture; a name of ``hwbench.data.Resize``.
        mean: Of R, G, B, pixels from 0 to 1.
        std: The same.
    """

    sample_rate: int | None
    span_s: float | None = None
    target_fps: int | None = None
    convention: str = "hwbench"
    train_scale: tuple[float, float] = (1.0, 1.25)
    test_scale: float = 1.0
    resize: str = "box"
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    std: tuple[float, float, float] = (0.225, 0.225, 0.225)


@dataclass(frozen=True)
class Card:
    """What a zoo card says; ``path`` is its file, ``space`` the space whose only member is its network."""

    path: Path
    name: str
    family: str
    licence: str
    source: str
    classes: int
    published_input: PublishedInput
    cell: InputSize
    blocks: tuple[BlockSpec, ...]
    published: tuple[PublishedFigure, ...]
    weights: Weights | None
    space: StagedSpace

    def network(self, num_classes: int | None = None) -> Network:
        """The network called ``zoo:NAME``; with its published number of classes unless another is given."""
        network = Network(f"zoo:{self.name}", self.blocks, self.cell.clip)
        return network if num_classes is None else network.with_classes(num_classes)

    @property
    def sample_rate(self) -> int | None:
        """Step between the frames of a clip; None where the clip has a span."""
        return self.published_input.sample_rate

    def clip(self, frames: int) -> ClipSpec:
        """How the published weights' clips of so many frames were cut.

        Raises:
            InvalidFile: The card says what no clip can be.
        """
        from hwbench.data import ClipSpec

        form = self.published_input
        try:
            return ClipSpec(frames, form.sample_rate, form.span_s, form.convention, form.target_fps)
        except HwbenchError as error:
            raise InvalidFile(f"{self.path}: input: {error}") from None

    def picture(self) -> PictureSpec:
        """How the published weights' frames were scaled and cut.

        Raises:
            InvalidFile: The card names a way of resizing that there is not, or scales below 1.
        """
        from hwbench.data import PictureSpec, Resize

        form = self.published_input
        if form.resize not in list(Resize):
            raise InvalidFile(
                f"{self.path}: input.resize: unknown {form.resize!r}; {suggest(form.resize, map(str, Resize))}"
            )
        try:
            return PictureSpec(form.train_scale, form.test_scale, Resize(form.resize))
        except InvalidValue as error:
            raise InvalidFile(f"{self.path}: input: {error}") from None

    def normalisation(self) -> Normalisation:
        """What pixels went through before the published weights."""
        from hwbench.data import Normalisation

        return Normalisation(self.published_input.mean, self.published_input.std)


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
    if not Architecture.can_be_of(f"{ZOO_SPACE}{name}"):
        allowed = "letters, digits, '.', '_' and '-', as it stands in the key of its network"
        raise fields.error("name", f"expected {allowed}; rename the folder as well", name)
    family = fields.text("family")
    described = MEMBERS.get(family, family)
    if described not in families:
        hint = suggest(family, [*families.names(), *MEMBERS])
        raise fields.error("family", f"expected a known family ({hint})", family)
    num_classes = classes(fields, "classes")
    inputs = fields.table("input")
    cell = InputSize(one(frame_counts)(inputs, "frames"), one(resolutions)(inputs, "resolution"))
    published_input = _published_input(inputs, cell.resolution)
    inputs.done()
    try:
        table = fields.table(described, most=MAX_SIZE)
        with families.blaming(families.get(described), on=str(path)):
            member = families.get(described).card(table)
        table.done()
        space = _space(name, cell, families.get(described), member)
        blocks = blocks_of(space.family, member.ends, member.stages, cell.clip, num_classes)
    except InvalidValue as error:
        raise fields.error(f"input, {described}", str(error), name) from None
    if wide := next(filter(is_too_wide, blocks), None):
        raise fields.error(described, f"expected blocks of at most {MAX_SIZE} channels", wide.key)
    card = Card(
        path=path,
        name=name,
        family=family,
        licence=fields.text("licence"),
        source=fields.text("source"),
        classes=num_classes,
        published_input=published_input,
        cell=cell,
        blocks=blocks,
        published=tuple(_published(table) for table in fields.tables("published", required=False)),
        weights=next((_weights(table) for table in fields.tables("weights", required=False)), None),
        space=space,
    )
    fields.done()
    return card


def _space(name: str, cell: InputSize, family: Family, member: Member) -> StagedSpace:
    """The space with one member; called ``zoo-NAME``, since a colon ends the name of a space in a printed key."""
    stages = (
        Stage(tuple((axis, (value,)) for axis, value in zip(choice.names, choice.values)), (), choice.constants)
        for choice in member.stages
    )
    return StagedSpace(
        f"{ZOO_SPACE}{name}", (cell.frames,), (cell.resolution,), family=family, ends=member.ends, stages=tuple(stages)
    )


def _published_input(fields: Fields, resolution: int) -> PublishedInput:
    """Table ``[input]`` without the size; a clip has a step or a span. ``resolution``: side of the crop in pixels."""
    span_s = fields.number("span_s") if "span_s" in fields else None
    sample_rate = one(frame_counts)(fields, "sample_rate") if span_s is None or "sample_rate" in fields else None
    if span_s is not None and sample_rate is not None:
        raise fields.error("span_s", "expected sample_rate or span_s, not both", span_s)
    target_fps = one(frame_counts)(fields, "target_fps") if "target_fps" in fields else None
    before = PublishedInput(None)
    low, high = fields.measures("train_scale", before.train_scale)
    test_scale = fields.number("test_scale", before.test_scale)
    for key, scale in (("train_scale", high), ("test_scale", test_scale)):
        if scale * resolution > MAX_RESOLUTION:
            raise fields.error(key, f"expected frames whose shorter side has at most {MAX_RESOLUTION} pixels", scale)
    mean, std = fields.measures("mean", before.mean), fields.measures("std", before.std)
    if not all(std):
        raise fields.error("std", "expected numbers of more than 0", list(std))
    return PublishedInput(
        sample_rate=sample_rate,
        span_s=span_s,
        target_fps=target_fps,
        convention=fields.text("convention", before.convention),
        train_scale=(low, high),
        test_scale=test_scale,
        resize=fields.text("resize", before.resize),
        mean=(mean[0], mean[1], mean[2]),
        std=(std[0], std[1], std[2]),
    )


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
