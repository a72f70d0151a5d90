"""From networks and workloads, as values, to modules."""

from __future__ import annotations

import contextlib
import re

import torch
from torch import nn

from hwbench.blocks.authors import is_ours
from hwbench.blocks.deployment import BlockChain, deploy_form, has_own_form, stream_form
from hwbench.blocks.layout import batch_to_frames, frames_to_batch
from hwbench.blocks.streaming import StreamForm
from hwbench.errors import UnsupportedModule
from hwbench.models import by_hand
from hwbench.models.assembly import assemble, initialise
from hwbench.models.efficient_x3d import EfficientX3d
from hwbench.models.x3d import VanillaX3d, create_x3d
from hwbench.specs import AUTO, BlockRole, Network, TensorSpec, Workload

# One input of a module: a tensor, or one for each of several pathways.
Example = torch.Tensor | tuple[torch.Tensor, ...]

# Attributes of layers that change nothing in eval mode.
_IN_TRAINING = re.compile(r"(, )?\b(p|momentum|inplace)=[^,)]*")


def network(network: Network, dropout: float = 0.5) -> nn.Module:
    """A network in its original form, initialised to be trained: (N, 3, T, H, W) -> logits (N, classes).

    Convolutions are drawn as He et al. 2015 do for ReLU (fan out), the last layer with a deviation of 0.01. A network
    that a user wrote is as its function makes it, dropout included.

    Raises:
        UnsupportedModule: Blocks that make no network, or those of a model that the user has not named.
    """
    if by_hand.is_by_hand_network(network.blocks):
        return by_hand.trainable(network)
    module = assemble(network.blocks, dropout)
    initialise(module)
    return module


def deployed(module: nn.Module, input: TensorSpec, variant: str = AUTO) -> nn.Module:
    """The deploy form of a network: frames as batch (N·T, 3, H, W) -> logits (N, classes), in eval mode.

    Args:
        module: A network, or a vanilla X3D; left as it is.
        input: Shape of the clips.
        variant: Layout of convolutions over time and space.

    Raises:
        UnsupportedModule: An operation or a size that no rewrite covers.
    """
    if isinstance(module, VanillaX3d):
        with contextlib.suppress(UnsupportedModule):  # another X3D goes through the graph
            module = efficient(module)
    return deploy_form(module, input, variant)


def keeps_blocks(module: nn.Module) -> bool:
    """Whether the deploy form of a network is made block by block, and not one graph of all of it."""
    return isinstance(module, VanillaX3d) or has_own_form(module)


def streamed(module: nn.Module, input: TensorSpec, memory: int | None = None) -> StreamForm:
    """The stream form of a causal network; see ``hwbench.blocks.deployment.stream_form``."""
    return stream_form(module, input, memory)


def efficient(module: VanillaX3d) -> EfficientX3d:
    """An EfficientX3d with the weights of a vanilla X3D, equal to it in eval mode at every size.

    Raises:
        UnsupportedModule: A vanilla network that is not of one of the four sizes, or has layers that those have not.
    """
    from hwbench.models.efficient_x3d import DEPTHS, x3d_blocks
    from hwbench.models.weights import efficient_from_vanilla

    weights = efficient_from_vanilla(module.state_dict())
    classes, like = weights["projection.model.weight"].shape[0], next(module.parameters())
    for size in dict.fromkeys(DEPTHS):
        with torch.device("meta"):
            made = EfficientX3d.of(x3d_blocks(size, classes))
        expected = {name: value.shape for name, value in made.state_dict().items()}
        if expected == {name: value.shape for name, value in weights.items()}:
            _check_layers(module, size)
            made.load_state_dict(weights, assign=True)
            return made.to(like.device).train(module.training)
    raise UnsupportedModule("expected a vanilla X3D of size XS, S, M or L; its weights have other names or shapes")


def _check_layers(module: VanillaX3d, size: str) -> None:
    """Raises UnsupportedModule where strides, activations or anything else without weights are others."""
    with torch.device("meta"):
        standard = create_x3d(expansion=size, num_classes=module.state_dict()["blocks.5.proj.weight"].shape[0])
    expected, layers = _layers(standard), _layers(module)
    for name in dict.fromkeys((*expected, *layers)):
        if layers.get(name) != expected.get(name):
            texts = [" ".join(one.get(name, (None, "nothing"))[1].split()) for one in (expected, layers)]
            raise UnsupportedModule(
                f"expected a vanilla X3D of size {size}: {name or 'the network'} is {texts[1]}, not {texts[0]}; "
                "transmute_model converts such a network"
            )


def _layers(module: nn.Module) -> dict[str, tuple[type[nn.Module], str]]:
    """Types of all modules and attributes of layers, but for what makes no difference in eval mode, by name."""
    return {
        name: (type(part), type(part).__name__ if [*part.children()] else _IN_TRAINING.sub("", repr(part)))
        for name, part in module.named_modules()
    }


class Unfolded(nn.Module):
    """A module in original form behind a folded input: (N·T, C, H, W) -> what it gives for clips (N, C, T, H, W).

    Modules of hwbench see clips as they lie in memory, without a copy; those of a user see contiguous ones.
    """

    def __init__(self, module: nn.Module, input: TensorSpec) -> None:
        super().__init__()
        self.module = module
        self.frames = input.t
        self.copies = not is_ours(module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        clips = batch_to_frames(x, self.frames)
        return self.module(clips.contiguous() if self.copies else clips)  # type: ignore[no-any-return]


class Continued(nn.Module):
    """A module whose output is read twice, as in a residual network: (N·T, C, H, W) -> (that, a corner of it).

    An engine that plans the memory of a whole graph computes a last step in place where only one reads what comes out.
    Alone, XNNPACK's ReLU behind the sum of a block therefore takes half as long as inside a network, and the reshape
    behind a stem's convolution over time, a seventh of that stem, no time at all (``experiments/006-latency-accuracy``,
    fp32). The corner is one pixel of each frame, and takes next to no time.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = self.module(x, *others)
        made = given[0] if isinstance(given, tuple) else given
        # A corner along an axis that is one long already would be the output itself.
        long = [axis for axis in (2, 3, 0, 1) if made.shape[axis] > 1]
        corner = made
        for axis in [axis for axis in long if axis > 1] or long[:1]:
            corner = corner[(slice(None),) * axis + (slice(1),)]  # quantisers know this, and not ``narrow``
        return (*given, corner) if isinstance(given, tuple) else (made, corner)


def workload_module(workload: Workload) -> tuple[nn.Module, Example]:
    """The deploy form of a workload with random weights, in eval mode, and one input (N·T, C, H, W) for it; of several
    pathways a tuple of one for each, of a stream a tuple of a frame and the states before the first frame.
    """
    module = _original(workload)
    folded = deploy_form(module, workload.input, workload.variant)
    if isinstance(folded, StreamForm):
        return folded, folded.example()
    return folded, _example(workload.input, fold=True)


def eager_workload(key: str) -> tuple[nn.Module, Example]:
    """The original form of a workload, by its key, and one input (N, C, T, H, W): the baseline of eager PyTorch."""
    workload = Workload.parse(key)
    return _original(workload), _example(workload.input)


def _example(x: TensorSpec, *, fold: bool = False) -> Example:
    drawn = [torch.randn(one.shape) for one in x.pathways]
    tensors = tuple(frames_to_batch(one) for one in drawn) if fold else tuple(drawn)
    return tensors if len(tensors) > 1 else tensors[0]


def _original(workload: Workload) -> nn.Module:
    """The blocks of a workload in eval mode, with random weights.

    Raises:
        UnsupportedModule: Blocks of a model that the user has not named, or of another version of it.
    """
    if (module := by_hand.whole(workload.blocks)) is not None:
        return module.eval()
    own = by_hand.is_by_hand_network(workload.blocks)
    if not own and workload.is_network and workload.blocks[0].role is BlockRole.STEM:
        return network(Network(workload.key, workload.blocks, workload.input), dropout=0.0).eval()
    return BlockChain(workload.blocks).eval()
