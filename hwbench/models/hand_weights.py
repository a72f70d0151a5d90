"""Weights of a model by hand to begin another training with: they fit by name and shape, as its function makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hwbench.errors import InvalidFile, InvalidValue
from hwbench.models import by_hand
from hwbench.models.answers import answer, clip_of
from hwbench.models.files import keys_of, listed, named_as, read_tensors
from hwbench.models.published import described, diff
from hwbench.printable import shown
from hwbench.specs import Network

AS_WRITTEN = "as written by torch.save(model.state_dict(), FILE)"

# What a head can end with.
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class HandWeights:
    """Weights of a model by hand as a checkpoint or a state dict has them.

    Attributes:
        path: The file; ``sha256`` is its digest.
        num_classes: Width of its logits; None of a state dict, whose shapes tell.
        weights: Name in the model -> tensor, on the CPU.
    """

    path: Path
    sha256: str
    num_classes: int | None
    weights: Mapping[str, torch.Tensor]

    @classmethod
    def read(cls, path: Path, network: Network) -> HandWeights:
        """The state dict in a file of torch, bare or where trainers put it.

        Args:
            path: The file.
            network: Whose names tell a trainer's prefix from the model's own.

        Raises:
            InvalidFile: No such file, damaged, or it holds no state dict.
            UnsupportedModule: The function of the network was not loaded.
        """
        expected = f"the state dict of {network.name}, {AS_WRITTEN}"
        data, values = read_tensors(path, expected)
        with torch.random.fork_rng():
            names = by_hand.trainable(network).state_dict().keys()
        weights = named_as(names, values)
        others = [name for name, value in weights.items() if not (isinstance(name, str) and torch.is_tensor(value))]
        if others or not weights:
            held = f"{shown(others[0])}, which is no tensor" if others else "nothing"
            raise InvalidFile(f"{path}: holds {held}; expected {expected}: {listed(names)}; {keys_of(values)}")
        return cls(path, hashlib.sha256(data).hexdigest(), None, weights)

    def of(self, network: Network, *, head: bool = True) -> dict[str, torch.Tensor]:
        """The weights, all that the network has and nothing else.

        Args:
            network: Whose weights they should be.
            head: Without it those of the last layer are left out, whose width is the number of classes.

        Raises:
            InvalidFile: Names or shapes do not fit; the first ones are named.
            InvalidValue: Without ``head``: the last layer is none that gives the logits.
            UnsupportedModule: The function of the network was not loaded.
        """
        with torch.random.fork_rng():
            module = by_hand.trainable(network)
        names = module.state_dict().keys() | self.weights.keys()
        left = set() if head else _names_below(module, _last_layer(module, network), names)
        expected, given = (
            {name: tensor for name, tensor in weights.items() if name not in left}
            for weights in (module.state_dict(), self.weights)
        )
        if difference := diff(described(expected), described(given)):
            shapes_alone = head and not (difference.missing or difference.unexpected)
            raise InvalidFile(
                f"{self.path}: weights of another network than {network.name}: {difference.brief}; give weights of the "
                f"same function, {'of other classes with --new-head, ' if shapes_alone else ''}or leave --weights out"
            )
        return given


def _names_below(module: nn.Module, layer: str, names: Iterable[str]) -> set[str]:
    """The names of all tensors of a layer, those of its parametrisations included, under all names that they have.

    Args:
        module: A model by hand.
        layer: The first name of the layer in it.
        names: Of tensors in the model and in a file.
    """
    last = module.get_submodule(layer)
    paths = [f"{path}." for path, part in module.named_modules(remove_duplicate=False) if part is last]
    tensors = {id(tensor) for tensor in (*last.parameters(), *last.buffers())}
    tied = {name for name, tensor in module.state_dict(keep_vars=True).items() if id(tensor) in tensors}
    return tied | {name for name in names if name.startswith(tuple(paths))}


def _last_layer(module: nn.Module, network: Network) -> str:
    """The name of the linear layer or convolution that a clip passes last.

    Raises:
        InvalidValue: There is none, or its width is not the number of classes.
    """
    passed: list[tuple[str, int]] = []
    for name, layer in module.named_modules():
        if isinstance(layer, LAYERS):
            at = name, layer.weight.shape[0]
            layer.register_forward_hook(lambda *_, at=at: passed.append(at))
    answer(network.name, module, clip_of(network.name, network.input))
    name, width = passed[-1] if passed else ("", 0)
    if width != network.num_classes:
        found = f"the last one is {name!r} of width {width}" if passed else "it has none"
        raise InvalidValue(
            f"--new-head: {network.name} should end with a linear layer or convolution as wide as its "
            f"{network.num_classes} classes, {found}; leave --weights and --new-head out"
        )
    return name
