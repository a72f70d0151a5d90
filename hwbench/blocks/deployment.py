"""The deploy form of any module: by its own rewrite where it has one, else through its graph; and chains of blocks."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.graph import RewriteResult, deploy_graph
from hwbench.blocks.kinds import build
from hwbench.blocks.streaming import StreamChain, StreamForm, StreamStep
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, STREAM, BlockSpec, TensorSpec

_OF_FORM = ["input", "variant"]


def deploy_form(module: nn.Module, input: TensorSpec, variant: str = AUTO) -> nn.Module:
    """The deploy form for inputs of shape ``input``: folded (N·T, C, H, W) in, in eval mode; out as the module gives
    it, activations folded and logits (N, classes). Of several pathways there is one tensor for each.

    A module with ``to_deploy(input, variant)`` says its own (``has_own_form``); any other is rewritten operation by
    operation (``hwbench.blocks.graph``). The module is left as it is.

    Raises:
        UnsupportedModule: An attribute, an operation or a size that no rewrite covers.
        UnknownName: No such variant.
    """
    if variant == STREAM:
        return stream_form(module, input)
    if has_own_form(module):
        deployed: nn.Module = module.to_deploy(input, variant)  # type: ignore[operator]
        return deployed
    dtype = next((parameter.dtype for parameter in module.parameters()), torch.float32)
    examples = tuple(torch.zeros(one.shape, dtype=dtype) for one in input.pathways)
    return deploy_graph(module, examples, variant=variant, result=RewriteResult.FOLDED)


def has_own_form(module: nn.Module) -> bool:
    """Whether a module says its deploy form: its ``to_deploy`` takes ``input`` and ``variant``, by these names.

    A ``to_deploy`` that takes anything else, as in code of others, means something else.
    """
    if isinstance(module, EfficientBlock):
        return True
    try:
        return list(inspect.signature(module.to_deploy).parameters) == _OF_FORM  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError):  # there is none, or it is nothing that is called
        return False


def stream_form(module: nn.Module, input: TensorSpec, memory: int | None = None) -> StreamForm:
    """The stream form of a causal module: one new frame (N, C, H, W) and states in, what comes out and new states.

    Args:
        module: A block or a network of efficient blocks; left as it is.
        input: Shape of the clips, or of one frame; how many frames it has does not matter.
        memory: Frames that averages over time remember; None: all.

    Raises:
        UnsupportedModule: The module looks at frames to come, or has no stream form.
        InvalidValue: The memory is not at least one frame.
    """
    if not isinstance(module, EfficientBlock):
        raise UnsupportedModule(
            f"{type(module).__name__} has no stream form: only networks of X3D's blocks have one; choose such a network"
        )
    dtype = next((parameter.dtype for parameter in module.parameters()), torch.float32)
    one = input.with_(t=1)
    # bf16 counts to 256 and fp16 to 2048.
    halved = dtype.itemsize < torch.float32.itemsize
    form = StreamForm(module.to_stream(one), one.folded, memory, torch.float32 if halved else dtype).eval()
    return form.in_dtype(dtype) if halved else form


class BlockChain(EfficientBlock):
    """Blocks of any kinds one after the other, ``block_0``, ``block_1``, ...: (N, C, T, H, W) -> what the last gives.

    Where a block takes or gives several pathways, there is one tensor for each, and of more than one a tuple comes out.

    Args:
        blocks: What is built, from first to last.

    Raises:
        UnknownName: A kind that is not installed.
        UnsupportedModule: A combination of fields that a kind does not have.
    """

    def __init__(self, blocks: Sequence[BlockSpec]) -> None:
        super().__init__()
        self.specs = tuple(blocks)
        for index, spec in enumerate(self.specs):
            self.add_module(f"block_{index}", build(spec))

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return along(self.specs, self.children(), (x, *others))

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for (name, block), x in zip(self.named_children(), self._inputs(input), strict=True):
            layers[name] = deploy_form(block, x, variant)
        if any(spec.pathway or spec.descriptor.takes + spec.descriptor.gives > 2 for spec in self.specs):
            return DeployedPathways(self.specs, layers).eval()
        return nn.Sequential(layers).eval()

    def to_stream(self, input: TensorSpec) -> StreamStep:
        steps: OrderedDict[str, StreamStep] = OrderedDict()
        for (name, block), x in zip(self.named_children(), self._inputs(input), strict=True):
            if not isinstance(block, EfficientBlock):
                raise UnsupportedModule(f"{name}: {type(block).__name__} has no stream form")
            steps[name] = block.to_stream(x)
        return StreamChain(steps)

    def output(self, x: TensorSpec) -> TensorSpec:
        for spec in self.specs:
            x = spec.output(x)
        return x

    def _inputs(self, x: TensorSpec) -> Iterator[TensorSpec]:
        """What each block works on."""
        for spec in self.specs:
            yield spec.located(x)[1]
            x = spec.output(x)


class DeployedPathways(nn.Module):
    """Deploy forms of blocks with several pathways: one folded tensor in and out for each."""

    def __init__(self, specs: Sequence[BlockSpec], layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.specs = tuple(specs)
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *pathways: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return along(self.specs, self.children(), pathways)


def along(
    specs: Sequence[BlockSpec], blocks: Iterable[nn.Module], pathways: tuple[torch.Tensor, ...]
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """What comes of the tensors of some pathways behind a chain of blocks."""
    for spec, block in zip(specs, blocks, strict=True):
        at = spec.pathway - 1
        made = block(pathways[at]) if spec.pathway else block(*pathways)
        behind = made if isinstance(made, tuple) else (made,)
        pathways = (*pathways[:at], *behind, *pathways[at + 1 :]) if spec.pathway else behind
    return pathways if len(pathways) > 1 else pathways[0]
