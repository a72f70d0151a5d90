"""In which order of memory a network is trained: channels last, where it computes the same in it.

All networks of hwbench do. A forward pass of a user may take views of its clips, of its weights or of what a layer
gives, which torch refuses where the axes lie in another order.
"""

from __future__ import annotations

import torch
from torch import nn

from hwbench.blocks.authors import is_of_our_class, is_ours
from hwbench.blocks.copies import copied
from hwbench.errors import UnsupportedModule
from hwbench.registry import is_ending
from hwbench.training.resources import clip_layout

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

# Of the largest logit: sums in another order make about 1e-6.
_TOLERANCE = 1e-4


class ContiguousClips(nn.Module):
    """A network behind clips (N, C, T, H, W) of any order of memory: it sees them contiguous."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.network(clips.contiguous())
        return logits


def place(module: nn.Module, device: torch.device, clips: torch.Tensor) -> torch.memory_format:
    """Moves a module to a device; on a CPU the weights of convolutions get channels last, which its kernels want.

    Args:
        module: To be trained.
        device: Where.
        clips: A few of the shape that it is trained on, on the CPU; left as they are.

    Returns:
        The memory format that it takes clips in; its weights have the same.
    """
    layout = clip_layout(device)
    if layout is not torch.contiguous_format and not is_ours(module) and not _takes_channels_last(module, clips):
        layout = torch.contiguous_format
    module.to(device)
    if layout is not torch.contiguous_format:
        _order_channels_last(module)
    return layout


def _order_channels_last(module: nn.Module) -> None:
    for parameter in module.parameters():
        if parameter.dim() in _CHANNELS_LAST:
            parameter.data = parameter.data.contiguous(memory_format=_CHANNELS_LAST[parameter.dim()])


def _takes_channels_last(module: nn.Module, clips: torch.Tensor) -> bool:
    """Whether a copy of a module computes with channels last what it computes without, and has gradients.

    A module that computes with the rounding of int8 gives other logits for sums in another order; it is not compared.
    """
    try:
        copy = copied(module).cpu()
    except UnsupportedModule:
        return False
    compared = not is_of_our_class(module)
    with torch.random.fork_rng(devices=[]):
        try:
            expected = _logits(copy, clips)
            _order_channels_last(copy)
            # clips are contiguous in validation
            for given in (clips, clips.contiguous(memory_format=torch.channels_last_3d)):
                difference = (_logits(copy, given) - expected).abs().max()
                if compared and not float(difference) <= _TOLERANCE * float(expected.abs().max()):
                    return False
            with torch.enable_grad():
                copy.train()(clips.contiguous(memory_format=torch.channels_last_3d)).float().sum().backward()
        except (Exception, SystemExit) as error:  # the user's code raises what it likes
            if is_ending(error):
                raise
            return False
    return True


def _logits(module: nn.Module, clips: torch.Tensor) -> torch.Tensor:
    """In eval mode; a module may change its clips in place."""
    with torch.no_grad():
        logits: torch.Tensor = module.eval()(clips.clone())
    return logits
