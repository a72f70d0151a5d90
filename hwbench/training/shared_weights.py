"""One set of weights for all networks of a space: each takes its slice of tensors that are as large as any needs.

A tensor of a network is found by its name and its stage and block. It is the first channels of the shared one, and the
middle of its kernel, as in Once-for-All (Cai et al., ICLR 2020) and BigNAS (Yu et al., ECCV 2020). No layer knows of
it: a network is built as always, and run with the slices in the place of its own tensors. So it holds for all families.
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from hwbench import models
from hwbench.errors import InvalidValue
from hwbench.models.assembly import ChainNetwork
from hwbench.models.efficient_x3d import EfficientX3d
from hwbench.models.mvit import MvitNetwork
from hwbench.models.resnet import ResnetNetwork
from hwbench.models.squeezetime import SqueezeTimeNetwork
from hwbench.spaces import StagedSpace
from hwbench.spaces.families.mvit import MLP
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.spaces.steps import ClipSpan, spread
from hwbench.specs import Architecture, BlockSpec
from hwbench.specs.kinds.resnet import FramePoolKind

# Networks whose modules are kept; building one takes as long as a third of a step.
_KEPT = 256
# What the parameters of a block of a stage begin with, by network. SlowFast tells stage and pathway as they are.
_BLOCKS = (
    (EfficientX3d, re.compile(r"s\d+\.pathway0_res\d+\.")),
    (ResnetNetwork, re.compile(r"blocks\.\d+\.res_blocks\.\d+\.")),
    (SqueezeTimeNetwork, re.compile(r"stages\.\d+\.\d+\.")),
    (MvitNetwork, re.compile(r"blocks\.\d+\.")),
)
# A name with dots is none of a parameter.
_DOT = "/"


class SharedWeights(nn.Module):
    """The weights of all networks of a space.

    Args:
        space: Whose networks.
        num_classes: Width of the logits.
        seed: Of the first weights.
        dropout: In the heads.

    Raises:
        UnsupportedModule: The space is one network that a user wrote.
    """

    def __init__(self, space: StagedSpace, num_classes: int, *, seed: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        self.space, self.num_classes, self.dropout = space, num_classes, dropout
        self._built: OrderedDict[Architecture, tuple[nn.Module, Mapping[str, str]]] = OrderedDict()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            for name, tensor in self._largest().items():
                self.register_parameter(name.replace(".", _DOT), nn.Parameter(tensor))

    def forward(self, clips: torch.Tensor, architecture: Architecture) -> torch.Tensor:
        """Logits (N, classes) of one network in training: normalised by the statistics of this batch.

        Args:
            clips: float32 (N, 3, T, H, W) of the size that the network takes.
            architecture: Which network.
        """
        module, names = self._network(architecture)
        tensors: dict[str, Any] = dict(self._slices(module, names, dict(self.named_parameters())))
        for name, buffer in module.named_buffers():  # statistics that nobody reads
            tensors[name] = torch.zeros(buffer.shape, dtype=buffer.dtype, device=clips.device)
        logits: torch.Tensor = functional_call(module, tensors, (clips,))
        return logits

    def inherited(self, architecture: Architecture, values: Mapping[str, torch.Tensor] | None = None) -> nn.Module:
        """A network of its own with copies of its slices; the statistics of its normalisations are not there yet.

        Args:
            architecture: Which network.
            values: Shared tensors to take in the place of these, such as a running average.
        """
        network = self.space.network(architecture, self.num_classes)
        module, names = models.network(network, dropout=self.dropout), self._network(architecture)[1]
        with torch.no_grad():
            for name, tensor in self._slices(module, names, values or dict(self.named_parameters())):
                module.get_parameter(name).copy_(tensor)
        return module

    def _network(self, architecture: Architecture) -> tuple[nn.Module, Mapping[str, str]]:
        """The module of a network without memory, in training mode, and the shared name of each of its parameters."""
        if architecture in self._built:
            self._built.move_to_end(architecture)
            return self._built[architecture]
        network = self.space.network(architecture, self.num_classes)
        with torch.device("meta"):
            module = models.network(network, dropout=self.dropout).train()
        found = module, shared_names(module, self.space, architecture)
        self._built[architecture] = found
        if len(self._built) > _KEPT:
            self._built.popitem(last=False)
        return found

    def _slices(
        self, module: nn.Module, names: Mapping[str, str], values: Mapping[str, torch.Tensor]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in module.named_parameters():
            whole = values[names[name].replace(".", _DOT)]
            yield name, whole[_place(parameter.shape, whole.shape)]

    def _largest(self) -> dict[str, torch.Tensor]:
        """By shared name a tensor in which every network finds its slice, drawn as the layers of the largest are."""
        found: dict[str, torch.Tensor] = {}
        for architecture in _corners(self.space):
            module = models.network(self.space.network(architecture, self.num_classes), dropout=self.dropout)
            names = shared_names(module, self.space, architecture)
            for name, parameter in module.named_parameters():
                known = found.get(names[name])
                found[names[name]] = parameter.detach() if known is None else _joined(known, parameter.detach())
        return found


def shared_names(module: nn.Module, space: StagedSpace, architecture: Architecture) -> dict[str, str]:
    """Names of the parameters of a network -> names that are the same in all networks of its space.

    A block goes by its stage and its place there. Its own name counts blocks through, or stages as checkpoints have
    them, where a pool is an entry of its own and a stage that changes no shape is none.
    """
    names = [name for name, _ in module.named_parameters()]
    blocks = _by_stage(module, names, space, architecture)

    def shared(name: str) -> str:
        prefix = next((prefix for prefix in blocks if name.startswith(prefix)), "")
        return blocks.get(prefix, "") + name[len(prefix) :]

    return {name: shared(name) for name in names}


def _by_stage(
    module: nn.Module, names: Sequence[str], space: StagedSpace, architecture: Architecture
) -> dict[str, str]:
    """What the names of the parameters of a block begin with -> what the shared ones begin with."""
    stages = space.stage_blocks(architecture)
    if isinstance(module, ChainNetwork):
        ends = len(space.ends.on(space.cells[0].clip).before())
        places = [*(f"stem.{number}." for number in range(ends)), *_places(stages)]
        places += (f"head.{number}." for number in range(len(module.specs) - len(places)))
        return {f"block_{number}.": place for number, place in enumerate(places)}
    pattern = next((pattern for kind, pattern in _BLOCKS if isinstance(module, kind)), None)
    if pattern is None:
        return {}
    prefixes = dict.fromkeys(match[0] for name in names if (match := pattern.match(name)))
    with_weights = [[block for block in blocks if block.kind != FramePoolKind.name] for blocks in stages]
    found = dict(zip(prefixes, _places(with_weights), strict=True))
    if isinstance(module, ResnetNetwork):
        found[f"blocks.{len(module.blocks) - 1}."] = "head."
    return found


def _places(stages: Sequence[Sequence[BlockSpec]]) -> list[str]:
    return [f"stage{stage}.{number}." for stage, blocks in enumerate(stages) for number in range(len(blocks))]


def _corners(space: StagedSpace) -> Iterator[Architecture]:
    """Networks in which every tensor of the space is as large as anywhere.

    Every other stage goes through its kinds of blocks at the largest and smallest of its numbers while those between
    stay at their largest choice, and then at their smallest; and the other way round. So each kind of block is there
    behind the widest and the narrowest stage. Where blocks choose for themselves all choose alike: what one has is no
    larger than where all have it.
    """
    cell, extremes = max(space.cells), [_extremes(stage) for stage in space.stages]
    spans = [step.choices[:1] for step in space.steps if isinstance(step, ClipSpan)]
    for first, end in itertools.product((0, 1), (-1, 0)):
        moving = [at % 2 == first for at in range(len(extremes))]
        for number in range(max((len(ends) for ends, moves in zip(extremes, moving) if moves), default=0)):
            chosen = [ends[number % len(ends) if moves else end] for ends, moves in zip(extremes, moving)]
            steps = [*spans, *(spread(stage, one) for stage, one in zip(space.stages, chosen))]
            yield space.member(cell, tuple(itertools.chain.from_iterable(steps)))


def _extremes(stage: Stage) -> list[StageChoice]:
    """The choices of a stage that differ in what tensors they have or how large these are: of each axis of numbers the
    smallest and the largest only. A deeper stage has all that a shallow one has, unless its last block is the wide one,
    and an activation has no tensors.
    """
    ends_wide = dict(stage.constants).get("widen") == MLP
    axes: list[Sequence[Any]] = []
    for name, values in stage.axes:
        numbers = all(isinstance(value, int | float) for value in values)
        ends = sorted({min(values), max(values)}) if numbers else values
        if name == "depth" and ends_wide:
            axes.append(values)
        else:
            axes.append(ends[-1:] if name in ("depth", "act") else ends)
    names = tuple(name for name, _ in stage.axes)
    return [StageChoice(chosen, names, stage.constants) for chosen in itertools.product(*axes)]


def _place(part: torch.Size, whole: torch.Size) -> tuple[slice, ...]:
    """Where a tensor lies in the shared one: the first channels, the middle of kernels."""
    if len(part) != len(whole) or any(size > full for size, full in zip(part, whole)):
        raise InvalidValue(f"no slice of {tuple(part)} in {tuple(whole)}: the weights are of another space")
    starts = [0 if axis < 2 else (full - size) // 2 for axis, (size, full) in enumerate(zip(part, whole))]
    return tuple(slice(start, start + size) for start, size in zip(starts, part))


def _joined(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A tensor as large as both along every axis; the larger of the two is in it, what is beyond is drawn like it."""
    shape = torch.Size(max(a, b) for a, b in zip(one.shape, other.shape, strict=True))
    larger = one if one.numel() >= other.numel() else other
    if larger.shape == shape:
        return larger
    joined = torch.randn(shape, dtype=larger.dtype) * larger.std(correction=0) + larger.mean()
    joined[_place(larger.shape, shape)] = larger
    return joined
