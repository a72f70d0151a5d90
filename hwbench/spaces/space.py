"""A staged search space: what may be chosen, and the network that a set of choices stands for. Loads no torch."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hwbench.errors import InvalidValue
from hwbench.registry import suggest
from hwbench.spaces.family import Ends, Family
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.spaces.walk import Integers, Walk, after
from hwbench.specs import AUTO, Architecture, BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.specs.tensor import CLIP_CHANNELS

if TYPE_CHECKING:
    from optuna.trial import BaseTrial


# The family of files that name none.
FIRST_FAMILY = "x3d"


class InputSize(NamedTuple):
    """A choice of input: the number of frames and the side of the square crop in pixels."""

    frames: int
    resolution: int

    @property
    def clip(self) -> TensorSpec:
        """One clip of this size."""
        return TensorSpec(1, CLIP_CHANNELS, self.frames, self.resolution, self.resolution)


@dataclass(frozen=True, repr=False)
class StagedSpace:
    """Inputs x stages of one family, with a fixed stem and head. Every member is one ``Architecture`` and the other way
    round.

    Choices are text, in this order: ``frames``, ``resolution``, then the axes of the family by stage, of X3D
    ``s1.depth``, ``s1.width``, ``s1.expansion``, ``s1.kernel``, ``s1.se``, ``s1.act``, ``s2.depth``, ... They are the
    names and values that Optuna sees, too.
    """

    name: str
    frames: tuple[int, ...]
    resolution: tuple[int, ...]
    family: Family
    ends: Ends
    stages: tuple[Stage, ...]

    def __repr__(self) -> str:
        """What is offered, all of it: two spaces with the same text have the same members."""
        ends = {name: _end_text(name, part) for name, part in self.ends.parts().items()}
        named = {"name": self.name, "frames": self.frames, "resolution": self.resolution}
        if self.family.name != FIRST_FAMILY:  # before there were others, no space told its family
            named["family"] = self.family.name
        parts = {name: repr(value) for name, value in named.items()}
        parts |= {"stem": ends.pop("stem"), "stages": repr(self.stages), **ends}
        return f"StagedSpace({', '.join(f'{name}={text}' for name, text in parts.items())})"

    @cached_property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """Everything that is chosen and its possible values, in order."""
        found = {"frames": _texts(self.frames), "resolution": _texts(self.resolution)}
        for number, stage in enumerate(self.stages):
            found |= {name: stage.texts(axis) for axis, name in self.stage_names(number).items()}
        return found

    @property
    def values(self) -> Mapping[str, tuple[Any, ...]]:
        """The values that Optuna sees, in the order of ``choices``."""
        return self.choices

    def params(self, architecture: Architecture) -> dict[str, Any]:
        """The Optuna parameters of a member; ``of_params`` reads them."""
        return dict(architecture.choices)

    def stage_names(self, number: int) -> dict[str, str]:
        """The names of what is chosen for a stage, counted from 0, by axis."""
        return {axis: f"s{number + 1}.{axis}" for axis in self.stages[number].offered}

    def size_texts(self, cell: InputSize) -> dict[str, str]:
        """What a printed architecture tells of an input size: the first choices."""
        return {"frames": str(cell.frames), "resolution": str(cell.resolution)}

    @property
    def cells(self) -> tuple[InputSize, ...]:
        """All input sizes."""
        return tuple(InputSize(f, r) for f, r in itertools.product(self.frames, self.resolution))

    def size(self) -> int:
        """Number of architectures."""
        return math.prod(len(values) for values in self.choices.values())

    def architectures(self) -> Iterator[Architecture]:
        """All members in the order of their choices; for small spaces (see ``size``)."""
        names, values = tuple(self.choices), self.choices.values()
        return (Architecture(self.name, tuple(zip(names, texts))) for texts in itertools.product(*values))

    def random(self, rng: np.random.Generator) -> Architecture:
        """A member with every choice drawn on its own; as all choices are independent, uniform over the space."""
        return Architecture(self.name, tuple((n, v[int(rng.integers(len(v)))]) for n, v in self.choices.items()))

    def sample(self, trial: BaseTrial) -> Architecture:
        """The member that an Optuna trial chooses."""
        picked = tuple((name, trial.suggest_categorical(name, values)) for name, values in self.choices.items())
        return Architecture(self.name, tuple((name, str(value)) for name, value in picked))

    def member(self, cell: InputSize, stages: tuple[StageChoice, ...]) -> Architecture:
        """The architecture with these choices."""
        texts = [*self.size_texts(cell).values()]
        for stage, choice in zip(self.stages, stages, strict=True):
            texts += stage.texts_of(choice)
        return Architecture(self.name, tuple(zip(self.choices, texts, strict=True)))

    def of_params(self, params: Mapping[str, str]) -> Architecture:
        """The architecture with these Optuna parameters, in any order.

        Raises:
            InvalidValue: A choice is missing, unknown, or not among its values.
        """
        ordered = [name for name in self.choices if name in params] + [
            name for name in params if name not in self.choices
        ]
        architecture = Architecture(self.name, tuple((name, str(params[name])) for name in ordered))
        self.validate(architecture)
        return architecture

    def validate(self, architecture: Architecture) -> None:
        """Makes sure that an architecture is a member.

        Raises:
            InvalidValue: Another space, an unknown, missing or misplaced choice, or a value that is not offered; the
                nearest known names or values are listed.
        """
        known = self.choices
        if architecture.space != self.name:
            raise InvalidValue(f"{architecture.key}: expected a member of space {self.name!r}")
        for name, value in architecture.choices:
            if name not in known:
                raise InvalidValue(f"space {self.name!r}: unknown choice {name!r}; {suggest(name, known)}")
            if value not in known[name]:
                raise InvalidValue(
                    f"space {self.name!r}: {name} cannot be {value!r}; nearest: {_nearest(value, known[name])}; "
                    f"known: {', '.join(known[name])}"
                )
        given = [name for name, _ in architecture.choices]
        if missing := [name for name in known if name not in given]:
            raise InvalidValue(f"space {self.name!r}: no choice for {', '.join(missing)} in {architecture.key}")
        if given != list(known):
            raise InvalidValue(f"space {self.name!r}: expected the choices in the order {', '.join(known)}")

    def encode(self, architectures: Iterable[Architecture]) -> Integers:
        """Members as numbers, one row each: the place of every choice among its values, in the order of ``choices``.

        Raises:
            InvalidValue: One is not a member.
        """
        places = [{value: place for place, value in enumerate(values)} for values in self.choices.values()]
        rows = []
        for architecture in architectures:
            self.validate(architecture)
            rows.append([known[value] for known, (_, value) in zip(places, architecture.choices)])
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(places))

    def decode(self, codes: Integers) -> list[Architecture]:
        """The members that rows of ``encode`` stand for.

        Raises:
            InvalidValue: A number is not the place of a value.
        """
        self.check_codes(codes)
        named = list(self.choices.items())
        return [
            Architecture(self.name, tuple((name, values[at]) for (name, values), at in zip(named, row)))
            for row in codes.tolist()
        ]

    def random_codes(self, rng: np.random.Generator, count: int) -> Integers:
        """``count`` members drawn uniformly, with replacement, as ``encode`` writes them."""
        sizes = [len(values) for values in self.choices.values()]
        return rng.integers(sizes, size=(count, len(sizes)), dtype=np.int64)

    def check_codes(self, codes: Integers) -> None:
        """Makes sure that an array is one of ``encode``.

        Raises:
            InvalidValue: Another shape, or a number that is not the place of a value.
        """
        sizes = np.array([len(values) for values in self.choices.values()])
        if codes.ndim != 2 or codes.shape[1] != len(sizes):
            raise InvalidValue(f"space {self.name!r}: expected codes of shape (N, {len(sizes)}), got {codes.shape}")
        if codes.size and ((codes.max(axis=0) >= sizes).any() or codes.min() < 0):
            raise InvalidValue(f"space {self.name!r}: codes run from 0 to {(sizes - 1).tolist()}")

    def cell(self, architecture: Architecture) -> InputSize:
        """The input size that a member chooses."""
        return InputSize(int(architecture["frames"]), int(architecture["resolution"]))

    def stage_choices(self, architecture: Architecture) -> tuple[StageChoice, ...]:
        """What a member chooses for each stage."""
        return tuple(
            stage.choose({axis: architecture[name] for axis, name in self.stage_names(number).items()})
            for number, stage in enumerate(self.stages)
        )

    def network(self, architecture: Architecture, num_classes: int) -> Network:
        """The blocks of a member, from stem to head.

        Raises:
            InvalidValue: Not a member of this space.
        """
        self.validate(architecture)
        clip, chosen = self.cell(architecture).clip, self.stage_choices(architecture)
        return Network(architecture.key, blocks_of(self.family, self.ends, chosen, clip, num_classes), clip)

    def stage_depths(self, architecture: Architecture) -> tuple[int, ...]:
        """The number of blocks of each stage of a member."""
        x = after(self.ends.before(), self.cell(architecture).clip)
        counts = []
        for choice in self.stage_choices(architecture):
            blocks = self.family.stage(choice, x)
            counts.append(len(blocks))
            x = after(blocks, x)
        return tuple(counts)

    def parts(self, precision: Precision, variant: str = AUTO, num_classes: int = 400) -> Iterator[Workload]:
        """All distinct single blocks that members of the space are made of, on the inputs they get.

        The order is that of the file: by input size, then stem, stages from first to last, each head behind what first
        needs it.
        """
        found: list[tuple[BlockSpec, TensorSpec]] = []

        def note(block: BlockSpec, x: TensorSpec) -> float:
            found.append((block, x))
            return 0.0

        walk = Walk(note)
        for cell in self.cells:
            walk.stages(self.family, self.ends, self.stages, cell.clip, num_classes)
        return (Workload((block,), x, precision, variant) for block, x in found)


def blocks_of(
    family: Family, ends: Ends, stages: Iterable[StageChoice], clip: TensorSpec, num_classes: int
) -> tuple[BlockSpec, ...]:
    """The blocks of one network, from stem to head, on a clip."""
    blocks = [*ends.before()]
    x = after(blocks, clip)
    for choice in stages:
        stage = family.stage(choice, x)
        blocks += stage
        x = after(stage, x)
    return (*blocks, *ends.behind(choice, x, num_classes))


def _end_text(name: str, part: object) -> str:
    """A stem or head: the name of the part and its fields. The name of its class is nothing that a study holds."""
    if not is_dataclass(part):
        return repr(part)
    shown = ", ".join(f"{field.name}={getattr(part, field.name)!r}" for field in fields(part))
    return f"{name.capitalize()}({shown})"


def _texts(values: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)


def _nearest(value: str, known: tuple[str, ...]) -> str:
    """The known value that was probably meant: by distance between numbers, by likeness between words."""
    try:
        return min(known, key=lambda k: abs(float(k) - float(value)))
    except ValueError:
        return max(known, key=lambda k: difflib.SequenceMatcher(None, k, value).ratio())
