"""What an efficient block is.

A block has two forms. The **original form** is an ordinary module on clips (N, C, T, H, W): exactly the vanilla
layers, forward and backward, of any size; it is what is trained and what checkpoints hold. The **deploy form** computes
the same in eval mode, for one size of input, with frames as batch (N·T, C, H, W), batch normalisation folded, and only
operations that a mobile runtime has. ``to_deploy`` makes it as a new module and leaves the block as it is.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hwbench.blocks.layout import batch_to_frames, frames_to_batch
from hwbench.blocks.streaming import Framewise, StreamStep
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, TensorSpec


class EfficientBlock(nn.Module, abc.ABC):
    """Base of all blocks; a subclass says its deploy form and the shape of its output."""

    @abc.abstractmethod
    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """The deploy form for inputs of shape ``input``: folded (N·T, C, H, W) in and out, in eval mode.

        Args:
            input: Shape of the clip.
            variant: Layout of convolutions over time and space (``hwbench.blocks.mobile_cpu.layouts``).

        Raises:
            UnsupportedModule: An attribute or a size that no rewrite covers.
            UnknownName: No such variant.
        """

    def to_stream(self, input: TensorSpec) -> StreamStep:
        """The step of the stream form (``hwbench.blocks.streaming``) for frames of shape ``input``, one frame long.

        By default that of a block which looks at each frame by itself and says so (``is_framewise``).

        Raises:
            UnsupportedModule: The block looks at frames to come, or has no such form.
        """
        if not self.is_framewise:
            raise UnsupportedModule(
                f"{type(self).__name__} has no stream form: give it a to_stream, or build X3D with causal blocks"
            )
        return Framewise(self.to_deploy(input.with_(t=1)))

    @property
    def is_framewise(self) -> bool:
        """Whether each frame that comes out depends on the same frame of the input alone."""
        return False

    def causal(self) -> None:
        """Makes the block look at no frame to come, in place; its weights stay. By default its parts are made so.

        A block without parts which is neither framewise nor knows how refuses by itself in ``to_stream``.
        """
        for part in self.modules():
            if part is not self and isinstance(part, EfficientBlock):
                part.causal()

    @abc.abstractmethod
    def output(self, x: TensorSpec) -> TensorSpec:
        """Shape of the output for an input of shape ``x``; equal to what the forward pass gives."""

    def deployable(self, shape: Sequence[int], variant: str = AUTO) -> nn.Module:
        """The deploy form with the block's own outside: a drop-in replacement for inputs of ``shape``, in eval mode.

        ``shape`` is (N, C, T, H, W), or (N, C, H, W) for blocks on pictures.

        Raises:
            UnsupportedModule: Neither of them, or what ``to_deploy`` raises.
        """
        x = tensor_spec(self, shape)
        return FixedSize(self.to_deploy(x, variant), tuple(shape), self.output(x)).eval()


def efficient_part(name: str, part: nn.Module) -> EfficientBlock:
    """A part of a block or of a network as the efficient block that its other forms are made of.

    Raises:
        UnsupportedModule: It is none, as where it was exchanged or wrapped; the message has its name.
    """
    if not isinstance(part, EfficientBlock):
        raise UnsupportedModule(
            f"{name}: expected an efficient block, got {type(part).__name__}, for which no deploy form is known here; "
            "put efficient blocks in its place, several as a Chain"
        )
    return part


class Residual(abc.ABC):
    """What a block is, too, that adds a branch to its input or to a projection of that."""

    @property
    @abc.abstractmethod
    def final_norm(self) -> nn.Module | None:
        """The normalisation that ends the branch; None: the branch ends otherwise, or nothing is added."""


def zero_final_norms(module: nn.Module) -> int:
    """Sets gamma of the last batch normalisation of each residual branch to 0, so that blocks begin as their shortcuts.

    Blocks that are ``Residual`` are looked at, and no names: a module of another make stays as it is.

    Returns:
        The number of normalisations that were set.

    Source: Goyal et al. 2017 (arXiv:1706.02677), section 5.1.
    """
    norms = [block.final_norm for block in module.modules() if isinstance(block, Residual)]
    gammas = [norm.weight for norm in norms if isinstance(norm, _BatchNorm) and norm.affine]
    for gamma in gammas:
        nn.init.zeros_(gamma)
    return len(gammas)


class FixedSize(nn.Module):
    """A folded module behind the outside of an ordinary one: folds its input, unfolds its output, checks the size.

    Raises (forward):
        UnsupportedModule: An input of another shape than the deploy form was made for.
    """

    def __init__(self, folded: nn.Module, shape: tuple[int, ...], output: TensorSpec) -> None:
        super().__init__()
        self.folded = folded
        self.shape = shape
        self.output = output

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if tuple(x.shape) != self.shape:
            raise UnsupportedModule(
                f"this deploy form was made for inputs of shape {self.shape}, got {tuple(x.shape)}; "
                "convert the original model again with an example of the new size"
            )
        if len(self.shape) == 4:
            return self.folded(x)  # type: ignore[no-any-return]
        y: torch.Tensor = self.folded(frames_to_batch(x))
        return batch_to_frames(y, self.output.t) if y.dim() == 4 else y  # logits are (N, classes) already

    def extra_repr(self) -> str:
        return f"shape={self.shape}"


def tensor_spec(block: nn.Module, shape: Sequence[int]) -> TensorSpec:
    """(N, C, T, H, W) or (N, C, H, W) as a TensorSpec, where pictures are clips of one frame."""
    if len(shape) == 4:
        n, c, h, w = shape
        return TensorSpec(n, c, 1, h, w)
    if len(shape) != 5:
        raise UnsupportedModule(f"{type(block).__name__}: expected an input (N, C, T, H, W), got {tuple(shape)}")
    return TensorSpec(*shape)
