"""A calibrated graph that rounds to int8 in the blocks one chooses, to see what each of them costs."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx, nn

from hwbench.runtimes.executorch.quantize import block_of

_ROUND = "round_"


class Rounding:
    """The graph with a switch for each block: (T, 3, H, W) -> logits (1, classes).

    It computes in fp32 what the int8 file computes: a value is rounded if the block that makes it or one that takes it
    is in int8, as in the file. No new graph is needed for another choice of blocks.

    Args:
        observed: The calibrated graph of a whole network (``quantize.observed``); left as it is.
        blocks: Names of modules of the network.
    """

    def __init__(self, observed: fx.GraphModule, blocks: Sequence[str]) -> None:
        self.blocks = tuple(blocks)
        self._graph = copy.deepcopy(observed)
        self._switches: list[tuple[_Round, frozenset[str | None]]] = []
        for index, node in enumerate([*self._graph.graph.nodes]):
            if node.op == "call_module" and hasattr(self._graph.get_submodule(node.target), "calculate_qparams"):
                self._exchange(node, f"{_ROUND}{index}")
        self._graph.recompile()
        self._ends = self._block_ends()
        self.choose(self.blocks)

    def choose(self, blocks: Collection[str]) -> None:
        """Rounds in these blocks only."""
        for switch, near in self._switches:
            switch.on = not near.isdisjoint(blocks)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return self._graph(x)  # type: ignore[no-any-return]

    def outputs(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """The output of every block for an input."""
        taken = _Taken(self._graph, self._ends)
        with torch.inference_mode():
            taken.run(x)
        return taken.values

    def _exchange(self, node: fx.Node, name: str) -> None:
        """Puts a switch in the place of an observer; one that several nodes share becomes one for each."""
        around = [*node.all_input_nodes, *node.users]
        near = frozenset(block_of(each, self.blocks) for each in around) - {None}
        switch = _Round(self._graph.get_submodule(str(node.target)))
        self._graph.add_submodule(name, switch)
        node.target = name
        self._switches.append((switch, near))

    def _block_ends(self) -> dict[fx.Node, str]:
        """The last value of each block, rounded where it is."""
        last: dict[str, fx.Node] = {}
        for node in self._graph.graph.nodes:
            block = block_of(node, self.blocks) if node.op == "call_function" else None
            if block is not None:
                last[block] = node
        ends = {}
        for block, node in last.items():
            rounded = (user for user in node.users if str(user.target).startswith(_ROUND))
            ends[next(rounded, node)] = block
        return ends


class _Round(nn.Module):
    """What an observer stands for: rounding to its range, or nothing while it is off."""

    def __init__(self, observer: Any) -> None:
        super().__init__()
        self.on = True
        scale, zero_point = observer.calculate_qparams()
        self.axis = getattr(observer, "ch_axis", None)
        self.low, self.high = observer.quant_min, observer.quant_max
        self.scale = nn.Buffer(scale.float())
        self.zero_point = nn.Buffer(zero_point.to(torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.on:
            return x
        if self.axis is None:
            return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, self.low, self.high)
        return torch.fake_quantize_per_channel_affine(x, self.scale, self.zero_point, self.axis, self.low, self.high)


class _Taken(fx.Interpreter):
    """Runs a graph and keeps some of its values."""

    def __init__(self, module: fx.GraphModule, ends: dict[fx.Node, str]) -> None:
        super().__init__(module)
        self._ends = ends
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n in self._ends:
            self.values[self._ends[n]] = value
        return value
