"""A whole network as a value: a name, its blocks and its input."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwbench.errors import InvalidValue, UnsupportedModule
from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import CAUSAL, GLOBAL, TEMPORAL_STRIDE
from hwbench.specs.kind import BlockRole
from hwbench.specs.kinds.by_hand import HandKind
from hwbench.specs.tensor import Precision, TensorSpec
from hwbench.specs.workload import AUTO, STREAM, Workload

# Rows of a space are measured for the classes of the built-in synthetic set unless told otherwise.
DEFAULT_CLASSES = 8
# Of channels, classes and every other number of a network. The widest layers of language models have 53,248 units
# (Llama 3 405B), their largest vocabulary 262,144 words (Gemma 3).
MAX_SIZE = 1_000_000


@dataclass(frozen=True)
class Network:
    """Blocks from stem to head on a clip. ``name`` is what the user calls it: an architecture's key or ``zoo:NAME``.

    ``span_s`` is the time in seconds that its clips cover, where a space chooses it; None leaves that to the data. It
    costs nothing at inference and is no part of a workload.
    """

    name: str
    blocks: tuple[BlockSpec, ...]
    input: TensorSpec
    span_s: float | None = None

    @property
    def num_classes(self) -> int:
        """Width of the logits."""
        return self.blocks[-1].out_channels

    def with_classes(self, num_classes: int) -> Network:
        """The same network with another number of classes."""
        head = replace(self.blocks[-1], out_channels=num_classes)
        return replace(self, blocks=(*self.blocks[:-1], head))

    def with_channels(self, channels: int) -> Network:
        """The same network for clips of another number of channels: its first block takes them.

        Raises:
            InvalidValue: What the first block gives depends on the channels, as where a clip is split into pathways, or
                a user's function made it.
        """
        if channels == self.input.c:
            return self
        if isinstance(self.blocks[0].descriptor, HandKind):
            raise InvalidValue(
                f"{self.name}: a model of your own takes clips of three colours, not of {channels} channels"
            )
        first, input = replace(self.blocks[0], in_channels=channels), self.input.with_(c=channels)
        try:
            same = first.output(input) == self.blocks[0].output(self.input)
        except InvalidValue:
            same = False
        if not same:
            raise InvalidValue(
                f"{self.name}: its first block, of kind {first.kind!r}, takes clips of {self.input.c} channels alone, "
                f"got {channels}; choose a network with a stem, such as zoo:x3d-xs or zoo:slow-r50"
            )
        return replace(self, blocks=(first, *self.blocks[1:]), input=input)

    def on(self, input: TensorSpec) -> Network:
        """The same network on another clip.

        Raises:
            InvalidValue: One of its blocks does not take what reaches it.
        """
        x = input
        for block in self.blocks:
            x = block.output(x)
        return replace(self, input=input)

    @property
    def is_causal(self) -> bool:
        """Whether every block that can look at frames to come is causal."""
        return all(block.number(CAUSAL.name) for block in self.blocks if block.role is not BlockRole.HEAD)

    def causal(self) -> Network:
        """The same network with causal blocks: no frame depends on a later one. Weights have the same names and shapes.

        Raises:
            UnsupportedModule: A block has no causal form.
        """
        return replace(self, blocks=tuple(_causal(block) for block in self.blocks))

    def frame(self, precision: Precision) -> Workload:
        """One new frame of a stream as something to build and time.

        Raises:
            UnsupportedModule: The network is not causal, or steps over frames.
        """
        for block in self.blocks:
            _check_steps(block)
        if not self.is_causal:
            raise UnsupportedModule(
                f"{self.name} looks at frames to come, a stream has none yet; train a causal network: "
                "hwbench train NETWORK --causal"
            )
        return Workload(self.blocks, self.input.with_(t=1), precision, STREAM)

    def workload(self, precision: Precision, variant: str = AUTO) -> Workload:
        """The network as something to build and time; in ``stream`` one new frame of its causal form.

        Raises:
            UnsupportedModule: ``stream``, and the network has no causal form, or steps over frames.
        """
        if variant == STREAM:
            return self.causal().frame(precision)
        return Workload(self.blocks, self.input, precision, variant)


def part_workload(block: BlockSpec, x: TensorSpec, precision: Precision, variant: str = AUTO) -> Workload:
    """A single block on its input as something to build and time; in ``stream`` its causal form on one new frame.

    Raises:
        UnsupportedModule: ``stream``, and the block has no causal form, or steps over frames.
    """
    if variant != STREAM:
        return Workload((block,), x, precision, variant)
    causal = _causal(block)
    _check_steps(causal)
    return Workload((causal,), x.with_(t=1), precision, STREAM)


def _check_steps(block: BlockSpec) -> None:
    if block.number(TEMPORAL_STRIDE.name) > 1:
        raise UnsupportedModule(
            f"{block.key} steps over frames: some frames of a stream would give no answer; choose a network "
            "without temporal strides"
        )


def _causal(block: BlockSpec) -> BlockSpec:
    if block.role is BlockRole.HEAD and block.kernel == GLOBAL:
        return block  # the mean over the clip is over the frames so far
    if block.get(CAUSAL.name) is None:
        raise UnsupportedModule(
            f"{block.key}: blocks of kind {block.kind!r} have no causal form, only those of X3D have; choose a network "
            "such as zoo:x3d-xs"
        )
    if block.number(CAUSAL.name):
        return block
    return replace(block, extras=(*block.extras, (CAUSAL.name, 1)))
