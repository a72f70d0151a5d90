"""The suite that every graph rule passes: a test class with a fixture ``layer`` inherits ``GraphRuleConformance``.

``layer`` gives one module after another that takes (N, 4, T, H, W) and calls the operation, at least one for each form
of its arguments that the rule covers.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from hwbench.blocks import batch_to_frames, frames_to_batch
from hwbench.blocks.graph import deploy_graph
from hwbench.blocks.graph.rewrite import RewriteResult

CHANNELS = 4
# One clip and two; frames and pictures that no stride divides, and such that every one does.
SHAPES = tuple(itertools.product((1, 2), (4, 5), ((8, 8), (7, 9))))


class GraphRuleConformance:
    """Inherit, and give a fixture ``layer``."""

    @pytest.mark.parametrize(("clips", "frames", "size"), SHAPES)
    def test_the_rewritten_module_computes_the_same(
        self, layer: nn.Module, clips: int, frames: int, size: tuple[int, int]
    ) -> None:
        torch.manual_seed(0)
        x = torch.randn(clips, CHANNELS, frames, *size, dtype=torch.float64)
        module = layer.double().eval()
        with torch.no_grad():
            expected = module(x)
            got = deploy_graph(module, x, result=RewriteResult.FOLDED)(frames_to_batch(x))
        if expected.dim() == 5:
            got = batch_to_frames(got, expected.shape[2])
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)

    def test_no_operation_in_three_dimensions_is_left(self, layer: nn.Module) -> None:
        """ExecuTorch has no kernel for them."""
        x = torch.zeros(1, CHANNELS, 4, 8, 8)
        deployed = deploy_graph(layer.float().eval(), x, result=RewriteResult.FOLDED)
        exported = torch.export.export(deployed, (frames_to_batch(x),))
        called = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
        assert not [name for name in called if "3d" in name]

    def test_the_module_is_left_as_it_is(self, layer: nn.Module) -> None:
        module = layer.float().train()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        deploy_graph(module, torch.zeros(1, CHANNELS, 4, 8, 8), result=RewriteResult.FOLDED)
        assert module.training
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
