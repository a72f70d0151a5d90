"""Recurrent layers, step by step: a clip has so many frames, and a file knows how many.

What the input adds is one product for all steps, of an ``nn.Linear`` of its own, which int8 takes. The steps stay in
fp32: what one carries on would be rounded in all that follow.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from hwbench.blocks.graph.convolution import fully_connected
from hwbench.blocks.graph.rules import Call, name_of, rule
from hwbench.blocks.graph.shaping import concatenated, part
from hwbench.blocks.graph.values import Clip, Plain, Value
from hwbench.specs import Precision


class Cell(nn.Module, abc.ABC):
    """One step of a recurrent layer; with three axes everywhere, the last one features.

    Attributes:
        gates: So many rows of H of the weights belong to one place of the state.

    Args:
        weight: (gates · H, H') of the state.
        bias: What its product is shifted by; None: nothing.
    """

    gates: ClassVar[int] = 1

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.size = weight.shape[0] // self.gates
        self.hidden = fully_connected(weight, bias)

    @abc.abstractmethod
    def forward(self, x: torch.Tensor, y: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The next state.

        Args:
            x: What the input adds (..., gates · H).
            y: What the state adds, ``hidden`` of its first tensor.
            state: The state before.
        """

    def gate(self, x: torch.Tensor, first: int, count: int = 1) -> torch.Tensor:
        """So many gates next to each other."""
        return x.narrow(-1, first * self.size, count * self.size)


class LstmCell(Cell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000), gates in the order i, f, g, o.

    Args:
        weight: Of the state.
        bias: None.
        projection: (H', H), by which h becomes shorter (Sak et al. 2014); None: it stays.
    """

    gates = 4

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, projection: torch.Tensor | None = None) -> None:
        super().__init__(weight, bias)
        self.projection = nn.Identity() if projection is None else fully_connected(projection, None)

    def forward(self, x: torch.Tensor, y: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x + y
        taken_in, kept = torch.sigmoid(self.gate(x, 0)), torch.sigmoid(self.gate(x, 1))
        c = kept * state[1] + taken_in * torch.tanh(self.gate(x, 2))
        return self.projection(torch.sigmoid(self.gate(x, 3)) * torch.tanh(c)), c


class GruCell(Cell):
    """Gated recurrent unit (Cho et al. 2014), reset behind the product as in cuDNN and torch; gates r, z, n."""

    gates = 3

    def forward(self, x: torch.Tensor, y: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = torch.sigmoid(self.gate(x, 0, 2) + self.gate(y, 0, 2))
        new = torch.tanh(self.gate(x, 2) + self.gate(both, 0) * self.gate(y, 2))
        return (new + self.gate(both, 1) * (state[0] - new),)


class TanhCell(Cell):
    """``tanh(x + y)`` (Elman 1990)."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.tanh(x + y),)


class ReluCell(Cell):
    """``relu(x + y)``."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.relu(x + y),)


class Steps(nn.Module):
    """A cell over an axis of a tensor with three: (N, T, gates · H) -> h of all steps, (N, T, H'), or with T first.

    Args:
        cell: Of the steps.
        axis: 1 or 0: that of the steps.
        backwards: From the last step to the first.
        state: Before the first step, where it is constant; else ``forward`` gets it.
    """

    in_fp32: ClassVar[frozenset[Precision]] = frozenset({Precision.INT8})

    def __init__(self, cell: Cell, axis: int, backwards: bool, state: Sequence[torch.Tensor] | None) -> None:
        super().__init__()
        self.cell, self.axis, self.backwards, self.begins = cell, axis, backwards, len(state or ())
        for index, one in enumerate(state or ()):
            self.register_buffer(f"state_{index}", one.clone(memory_format=torch.contiguous_format))
        if state:  # a product of what is constant is no work of a file
            self.register_buffer("product", cell.hidden(state[0]))

    def forward(self, x: torch.Tensor, *state: torch.Tensor) -> torch.Tensor:
        product = None
        if self.begins:
            product = self.get_buffer("product")
            state = tuple(self.get_buffer(f"state_{index}") for index in range(self.begins))
        made, steps = [], range(x.shape[self.axis])
        for step in reversed(steps) if self.backwards else steps:
            product = self.cell.hidden(state[0]) if product is None else product
            state = self.cell(x.narrow(self.axis, step, 1), product, *state)
            made.append(state[0])
            product = None
        return torch.cat(made[::-1] if self.backwards else made, self.axis)


_CELLS: dict[str, type[Cell]] = {"lstm": LstmCell, "gru": GruCell, "rnn_tanh": TanhCell, "rnn_relu": ReluCell}


@rule("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def recurrent(call: Call) -> tuple[Value, ...]:
    """The sequence of all steps, and h of the last one; c of an LSTM is not covered."""
    cell = _CELLS[name_of(call.node).split(".")[1]]
    x, states, weights = call["input"], call["hx"], call["params"]
    if not isinstance(x, Plain) or len(x.shape) != 3:
        call.refuse("a sequence (N, T, C) that depends on the input is expected")
    states = states if isinstance(states, list) else [states]
    layers, directions, axis = call["num_layers"], 1 + call["bidirectional"], int(call["batch_first"])
    each = len(weights) // (layers * directions)
    lasts: list[Clip | Plain] = []
    read_last = any(user.args[1] == 1 for user in call.node.users)
    for layer in range(layers):
        made = []
        for backwards in range(directions):
            index = layer * directions + backwards
            state = [_state(call, one, index, axis) for one in states]
            own = weights[index * each : (index + 1) * each]
            made.append(_layer(call, cell, x, own, state, axis, bool(backwards)))
            if read_last:
                lasts.append(
                    part(call, made[-1], axis, range(1) if backwards else range(x.shape[axis] - 1, x.shape[axis]))
                )
        shape = (*made[0].shape[:2], sum(one.shape[2] for one in made))
        x = made[0] if directions == 1 else _sequence(concatenated(call, made, 2, shape))
    if not lasts:
        return (x,)
    lasts = [call.reshaped(one, (1, *call.shapes[1][1:])) for one in lasts]
    return x, lasts[0] if len(lasts) == 1 else concatenated(call, lasts, 0, call.shapes[1])


def _layer(call: Call, cell: type[Cell], x: Plain, weights: Sequence[Any], state: Sequence[Any], axis: int,
           backwards: bool) -> Plain:  # fmt: skip
    """One layer in one direction; weights as torch has them: of input and state, their biases, of the projection."""
    of_input, of_state, *rest = weights
    bias: Any
    shift: Any
    bias, shift = (rest.pop(0), rest.pop(0)) if len(rest) > 1 else (None, None)
    if shift is not None and cell is GruCell:  # the reset gate comes behind the shift of the state's third product
        kept = 2 * (len(shift) // 3)
        bias, shift = bias + torch.cat([shift[:kept], 0 * shift[kept:]]), torch.cat([0 * shift[:kept], shift[kept:]])
    elif shift is not None:
        bias, shift = bias + shift, None
    added = call.emit(fully_connected(of_input, bias), x)
    constant = [one for one in state if isinstance(one, torch.Tensor)]
    if constant and len(constant) < len(state):
        call.refuse("a state that depends on the input in part is not covered")
    module = Steps(cell(of_state, shift, *rest), axis, backwards, constant or None)
    node = call.emit(module, added, *(one for one in state if isinstance(one, Plain)))
    return Plain(node, (*x.shape[:2], rest[0].shape[0] if rest else of_state.shape[1]))


def _state(call: Call, states: Any, index: int, axis: int) -> Plain | torch.Tensor:
    """The state of one layer in one direction before the first step, of one step along the axis of the steps."""
    if isinstance(states, torch.Tensor):
        return states[index].unsqueeze(axis)
    n, size = states.shape[1:]
    return _sequence(
        call.reshaped(part(call, states, 0, range(index, index + 1)), (1, n, size) if axis == 0 else (n, 1, size))
    )


def _sequence(value: Clip | Plain) -> Plain:
    assert isinstance(value, Plain)
    return value
