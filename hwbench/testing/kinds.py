"""The suite that every kind of block passes: a test class with a fixture ``block`` inherits ``BlockKindConformance``.

``block`` gives one ``BlockSpec`` after another, at least one for each form the kind has: every kernel, stride and
activation it allows, with and without what may be left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from hwbench.blocks import batch_to_frames, build, frames_to_batch
from hwbench.blocks.deployment import deploy_form
from hwbench.errors import InvalidValue, UnsupportedModule
from hwbench.specs import BlockRole, BlockSpec, TensorSpec, block_kinds
from hwbench.specs.fields import ACTIVATION, COMMON

# (N, T, H, W): one frame, an odd number, a multiple of the usual strides; odd and unequal pictures; two clips.
SIZES = ((1, 4, 8, 8), (1, 1, 7, 5), (2, 3, 7, 8))


class BlockKindConformance:
    """Inherit, and give a fixture ``block``."""

    def test_the_kind_is_registered_and_its_key_reads_back(self, block: BlockSpec) -> None:
        kind = block_kinds.get(block.kind)
        assert kind.name == block.kind
        assert block.descriptor is kind
        assert BlockSpec.parse(block.key) == block

    def test_fields_are_told_apart_and_have_defaults(self, block: BlockSpec) -> None:
        fields = block.descriptor.fields
        assert fields[-1] == ACTIVATION
        letters = [field.letters for field in (*fields, *(f for f in COMMON if f not in fields))]
        assert len(set(letters)) == len(letters)
        assert all(field.default is not None for field in fields if field not in COMMON)

    def test_its_module_has_the_shapes_that_are_told(self, block: BlockSpec) -> None:
        module = trained(block)
        for x in inputs(block):
            with torch.no_grad():
                real = tuple(module(torch.zeros(x.shape)).shape)
            assert (*real, 1, 1, 1)[:5] == block.output(x).shape
            assert len(real) == (2 if block.role is BlockRole.HEAD else 5)

    def test_the_deploy_form_computes_what_the_module_does(self, block: BlockSpec) -> None:
        module = trained(block).double()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        for x in inputs(block):
            clip = torch.randn(x.shape, dtype=torch.float64)
            with torch.no_grad():
                expected, got = module(clip), deploy_form(module, x)(frames_to_batch(clip))
            got = got if expected.dim() == 2 else batch_to_frames(got, block.output(x).t)
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())

    def test_the_deploy_form_stays_in_four_dimensions(self, block: BlockSpec) -> None:
        """ExecuTorch has no kernel for convolutions and pooling in 3-D."""
        x = next(inputs(block))
        exported = torch.export.export(deploy_form(trained(block), x), (torch.zeros(x.folded),))
        called = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
        assert not [name for name in called if "conv3d" in name or "pool3d" in name]

    def test_operations_are_those_of_the_module(self, block: BlockSpec) -> None:
        """Weights of convolutions and linear layers; their inputs and outputs join; work grows with the batch."""
        weights = sum(value.numel() for value in build(block).parameters() if value.dim() > 1)
        for x in inputs(block):
            found = block.operations(x)
            assert sum(operation.num_weights for operation in found) == weights
            main = [operation for operation in found if operation.path == "main"]
            assert all(a.output.c == b.input.c for a, b in itertools.pairwise(main))
            assert not main or main[-1].output.c == block.out_channels
            twice = block.operations(x.with_(n=2 * x.n))
            assert sum(o.macs for o in twice) == 2 * sum(o.macs for o in found)

    def test_another_number_of_channels_is_refused(self, block: BlockSpec) -> None:
        x = next(inputs(block))
        with pytest.raises(InvalidValue, match="channels"):
            block.output(x.with_(c=x.c + 1))

    def test_what_is_no_such_block_is_refused_before_it_is_built(self, block: BlockSpec) -> None:
        """A ``check`` that passes promises a module."""
        kind = block.descriptor
        for kernel in (((1, 1, 1),), ((3, 3, 3),), ((3, 1, 1), (1, 3, 3)), ((1, 3, 3), (3, 1, 1)), ()):
            other = BlockSpec.of(block.kind, **{f.name: block[f.name] for f in kind.fields} | {"kernel": kernel})
            reason = _refusal(other)
            assert other.key in reason if reason else isinstance(build(other), nn.Module)


def _refusal(block: BlockSpec) -> str:
    """What the kind says against a block; empty where nothing."""
    try:
        block.descriptor.check(block)
    except UnsupportedModule as refused:
        return str(refused)
    return ""


def inputs(block: BlockSpec) -> Iterator[TensorSpec]:
    """Inputs that a block is tried on."""
    return (TensorSpec(n, block.in_channels, t, h, w) for n, t, h, w in SIZES)


def trained(block: BlockSpec) -> nn.Module:
    """A module of the block in eval mode, its normalisations as after training: they do something."""
    torch.manual_seed(0)
    module = build(block)
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(layer.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(layer.running_var, 0.5, 2)  # type: ignore[arg-type]
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias)
    return module.eval()
