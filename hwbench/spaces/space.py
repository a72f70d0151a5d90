"""A staged search space: what may be chosen, and the network that a set of choices stands for. Loads no torch."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hwbench.errors import InvalidValue, UnsupportedModule
from hwbench.registry import suggest
from hwbench.spaces.codes import Codes
from hwbench.spaces.family import Ends, Family, families, stage_of
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.spaces.steps import SPAN, Carried, ClipSpan, OneBlock, SpaceStep, members_of, steps_of
from hwbench.spaces.walk import Integers, Walk, after
from hwbench.specs import AUTO, STREAM, Architecture, BlockSpec, Network, Precision, TensorSpec, Workload, part_workload
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
    names and values that Optuna sees, too. Where clips may cover several times, ``span_s`` follows ``resolution``.
    Where blocks choose for themselves, ``s1.b1.kernel``, ``s1.b2.kernel``, ... follow what the stage chooses. A member
    tells nothing of blocks that its depth leaves out.

    ``variant`` is the form in which networks and blocks are timed: ``auto`` on clips, ``stream`` by the new frame; the
    networks of a space of streams are causal (``streamed``).
    """

    name: str
    frames: tuple[int, ...]
    resolution: tuple[int, ...]
    family: Family
    ends: Ends
    stages: tuple[Stage, ...]
    spans_s: tuple[float, ...] = ()
    variant: str = AUTO

    def __repr__(self) -> str:
        """What is offered, all of it: two spaces with the same text have the same members."""
        ends = {name: _end_text(name, part) for name, part in self.ends.parts().items()}
        named = {"name": self.name, "frames": self.frames, "resolution": self.resolution}
        if self.spans_s:
            named["span_s"] = self.spans_s
        if self.family.name != FIRST_FAMILY:  # before there were others, no space told its family
            named["family"] = self.family.name
        if self.variant != AUTO:
            named["variant"] = self.variant
        parts = {name: repr(value) for name, value in named.items()}
        stem = {name: ends.pop(name) for name in ("stem",) if name in ends}  # costs have no ends
        parts |= {**stem, "stages": repr(self.stages), **ends}
        return f"StagedSpace({', '.join(f'{name}={text}' for name, text in parts.items())})"

    def streamed(self) -> StagedSpace:
        """The space whose networks are causal and timed by the new frame.

        Raises:
            UnsupportedModule: Some of its blocks have no stream form.
        """
        made = replace(self, variant=STREAM)
        smallest = replace(made, frames=self.frames[:1], resolution=self.resolution[:1])  # the blocks of all sizes
        try:
            tuple(smallest.parts(Precision.FP32))
        except UnsupportedModule as error:
            raise UnsupportedModule(
                f"--streaming: space {self.name} (family {self.family.name}) has networks with no stream form: {error}"
            ) from None
        return made

    @cached_property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """Everything that is chosen and its possible values, in order."""
        found = {"frames": _texts(self.frames), "resolution": _texts(self.resolution)}
        for step in self.steps:
            found |= {name: step.stage.texts(axis) for axis, name in step.names.items()}
        return found

    @cached_property
    def steps(self) -> tuple[SpaceStep, ...]:
        """The decisions behind the input size, in order."""
        return tuple(steps_of(self.stages, self.spans_s))

    @property
    def members(self) -> tuple[StagedSpace, ...]:
        """Itself: one space is a union of one (``hwbench.spaces.union``)."""
        return (self,)

    @property
    def values(self) -> Mapping[str, tuple[Any, ...]]:
        """The values that Optuna sees, in the order of ``choices``."""
        return self.choices

    def params(self, architecture: Architecture) -> dict[str, Any]:
        """The Optuna parameters of a member; ``of_params`` reads them. Blocks that are not there have first values, so
        that all trials have all parameters.
        """
        return {**{name: values[0] for name, values in self.choices.items()}, **dict(architecture.choices)}

    def size_texts(self, cell: InputSize) -> dict[str, str]:
        """What a printed architecture tells of an input size: the first choices."""
        return {"frames": str(cell.frames), "resolution": str(cell.resolution)}

    @property
    def cells(self) -> tuple[InputSize, ...]:
        """All input sizes."""
        return tuple(InputSize(f, r) for f, r in itertools.product(self.frames, self.resolution))

    def size(self) -> int:
        """Number of architectures."""
        return len(self.cells) * max(1, len(self.spans_s)) * math.prod(stage.size() for stage in self.stages)

    def architectures(self) -> Iterator[Architecture]:
        """All members in the order of their choices; for small spaces (see ``size``)."""
        ways: list[Iterable[tuple[StageChoice, ...]]] = [members_of(stage) for stage in self.stages]
        ways[:0] = ([(choice,) for choice in step.choices] for step in self.steps if isinstance(step, ClipSpan))
        listed = [tuple(one) for one in ways]
        for cell in self.cells:
            for choices in itertools.product(*listed):
                yield self.member(cell, tuple(itertools.chain.from_iterable(choices)))

    def random(self, rng: np.random.Generator) -> Architecture:
        """A member drawn uniformly over the space: every choice on its own, but the number of blocks that choose for
        themselves by the ways in which they can.
        """
        drawn = {name: values[self._codes.random_place(name, rng)] for name, values in self.choices.items()}
        return Architecture(self.name, self._present(drawn))

    def sample(self, trial: BaseTrial) -> Architecture:
        """The member that an Optuna trial chooses."""
        picked = {name: str(trial.suggest_categorical(name, values)) for name, values in self.values.items()}
        return Architecture(self.name, self._present(picked))

    def member(self, cell: InputSize, choices: tuple[StageChoice, ...]) -> Architecture:
        """The architecture with a choice for every step."""
        pairs = [*self.size_texts(cell).items()]
        for step, choice in zip(self.steps, choices, strict=True):
            pairs += zip(step.names.values(), step.texts_of(choice))
        return Architecture(self.name, tuple(pairs))

    def of_params(self, params: Mapping[str, str]) -> Architecture:
        """The architecture with these Optuna parameters, in any order; those of blocks that are not there are left out.

        Raises:
            InvalidValue: A choice is missing, unknown, or not among its values.
        """
        texts = {name: str(value) for name, value in params.items()}
        if texts.keys() >= self.choices.keys() and all(texts[name] in v for name, v in self.choices.items()):
            ordered = dict(self._present(texts))
        else:
            ordered = {name: texts[name] for name in self.choices if name in texts}
        ordered |= {name: text for name, text in texts.items() if name not in self.choices}
        architecture = Architecture(self.name, tuple(ordered.items()))
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
        given = dict(architecture.choices)
        expected = self._expected(given)
        if missing := [name for name in expected if name not in given]:
            raise InvalidValue(f"space {self.name!r}: no choice for {', '.join(missing)} in {architecture.key}")
        if beyond := [name for name in given if name not in expected]:
            raise InvalidValue(
                f"space {self.name!r}: {architecture.key} has no blocks for {', '.join(beyond)}; leave that out, or "
                "make the stage deeper"
            )
        if list(given) != expected:
            raise InvalidValue(f"space {self.name!r}: expected the choices in the order {', '.join(expected)}")

    def encode(self, architectures: Iterable[Architecture]) -> Integers:
        """Members as numbers, one row each: the place of every choice among its values, in the order of ``choices``; 0
        for what a block that is not there would choose.

        Raises:
            InvalidValue: One is not a member.
        """
        told = []
        for architecture in architectures:
            self.validate(architecture)
            told.append(dict(architecture.choices))
        return self._codes.encode(told)

    def decode(self, codes: Integers) -> list[Architecture]:
        """The members that rows of ``encode`` stand for.

        Raises:
            InvalidValue: A number is not the place of a value.
        """
        self.check_codes(codes)
        return [Architecture(self.name, choices) for choices in self._codes.decode(codes)]

    def random_codes(self, rng: np.random.Generator, count: int) -> Integers:
        """``count`` members drawn uniformly, with replacement, as ``encode`` writes them."""
        return self._codes.random(rng, count)

    def check_codes(self, codes: Integers) -> None:
        """Makes sure that an array is one of ``encode``.

        Raises:
            InvalidValue: Another shape, a number that is not the place of a value, or one of a block that is not there.
        """
        self._codes.check(codes)

    def cell(self, architecture: Architecture) -> InputSize:
        """The input size that a member chooses."""
        return InputSize(int(architecture["frames"]), int(architecture["resolution"]))

    def span_s(self, architecture: Architecture) -> float | None:
        """The seconds that the clips of a member cover; None where that is the data's to say."""
        return float(architecture[SPAN]) if self.spans_s else None

    def step_choices(self, architecture: Architecture) -> tuple[StageChoice, ...]:
        """What a member chooses in each step; ``ABSENT`` for blocks that are not there."""
        texts = dict(architecture.choices)
        return tuple(step.chosen(texts) for step in self.steps)

    def network(self, architecture: Architecture, num_classes: int) -> Network:
        """The blocks of a member, from stem to head.

        Raises:
            InvalidValue: Not a member of this space.
        """
        self.validate(architecture)
        clip = self.cell(architecture).clip
        ends, (stages, last) = self.ends.on(clip), self._laid_out(architecture)
        blocks = [*ends.before(), *itertools.chain.from_iterable(stages)]
        behind = ends.behind(last, after(blocks, clip), num_classes)
        network = Network(architecture.key, (*blocks, *behind), clip, self.span_s(architecture))
        return network.causal() if self.variant == STREAM else network

    def stage_depths(self, architecture: Architecture) -> tuple[int, ...]:
        """The number of blocks of each stage of a member."""
        return tuple(len(blocks) for blocks in self.stage_blocks(architecture))

    def stage_blocks(self, architecture: Architecture) -> tuple[tuple[BlockSpec, ...], ...]:
        """The blocks of each stage of a member; a pool behind a stage is one of its blocks."""
        return tuple(tuple(blocks) for blocks in self._laid_out(architecture)[0])

    def _laid_out(self, architecture: Architecture) -> tuple[list[list[BlockSpec]], StageChoice]:
        """The blocks of each stage of a member, and what was chosen for the last of them."""
        clip = self.cell(architecture).clip
        x = after(self.ends.on(clip).before(), clip)
        stages: list[list[BlockSpec]] = []
        carried: Carried | None = None
        for step, choice in zip(self.steps, self.step_choices(architecture)):
            move = step.follow(self.family, choice, x, carried)
            assert move is not None
            blocks, carried = move
            if not isinstance(step, OneBlock | ClipSpan):
                stages.append([])
            if blocks:
                stages[-1] += blocks
            x = after(blocks, x)
        assert carried is not None
        return stages, carried.choice

    def _present(self, texts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Of texts for all choices those that a member with them tells."""
        return tuple((name, texts[name]) for name in self._expected(texts))

    def _expected(self, texts: Mapping[str, str]) -> list[str]:
        """The names of all that is chosen where the depths of stages are told."""
        if self._alike:
            return list(self.choices)
        sizes = list(self.choices)[: -sum(len(step.names) for step in self.steps)]
        steps = (s for s in self.steps if not isinstance(s, OneBlock) or s.depth not in texts or s.is_present(texts))
        return [*sizes, *(name for step in steps for name in step.names.values())]

    @cached_property
    def _alike(self) -> bool:
        """Whether all members choose the same things."""
        return not any(isinstance(step, OneBlock) for step in self.steps)

    @cached_property
    def _codes(self) -> Codes:
        return Codes(self.name, self.choices, self.steps)

    def part(self, block: BlockSpec, x: TensorSpec, precision: Precision) -> Workload:
        """The row of a table that a block on its input has, as networks of the space are timed."""
        return part_workload(block, x, precision, self.variant)

    def parts(self, precision: Precision, variant: str | None = None, num_classes: int = 400) -> Iterator[Workload]:
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
            walk.steps(self.family, self.ends, self.steps, cell.clip, num_classes)
        form = variant or self.variant
        workloads = (part_workload(block, x, precision, form) for block, x in found)
        return iter(dict.fromkeys(workloads)) if form == STREAM else workloads  # one new frame, whatever the clip


def blocks_of(
    family: Family, ends: Ends, stages: Iterable[StageChoice], clip: TensorSpec, num_classes: int
) -> tuple[BlockSpec, ...]:
    """The blocks of one network, from stem to head, on a clip."""
    with families.blaming(family):
        ends = ends.on(clip)
        blocks = [*ends.before()]
    x = after(blocks, clip)
    for choice in stages:
        stage = stage_of(family, choice, x)
        blocks += stage
        x = after(stage, x)
    with families.blaming(family):
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
