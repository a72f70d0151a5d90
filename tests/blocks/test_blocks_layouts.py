"""Every variant, on any convolution over time and space, against the convolution itself."""

import copy
import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hwbench.blocks import batch_to_frames, frames_to_batch, variants
from hwbench.blocks.mobile_cpu.layouts import PER_FRAME, temporal_rank
from hwbench.blocks.mobile_cpu.taps import Taps, convolved
from hwbench.blocks.mobile_cpu.temporal import folded_conv, prior
from hwbench.errors import UnknownName, UnsupportedModule
from hwbench.specs import AUTO, TensorSpec

NAMES = (*variants.names(), AUTO)


def settled(norm: nn.BatchNorm3d) -> nn.BatchNorm3d:
    for value in (norm.running_mean, norm.weight, norm.bias):
        nn.init.normal_(value)
    nn.init.uniform_(norm.running_var, 0.3, 2)
    return norm.eval()


@st.composite
def cases(draw: st.DrawFn) -> tuple[nn.Conv3d, nn.BatchNorm3d | None, TensorSpec]:
    groups = draw(st.sampled_from((1, 1, 2, 3, 4)))
    depthwise = draw(st.booleans())
    within, without = (1, 1) if depthwise else (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    k = draw(st.sampled_from((1, 3, 5, 7)))
    kh, kw = draw(st.sampled_from((1, 2, 3, 5))), draw(st.sampled_from((1, 3, 4)))
    conv = nn.Conv3d(
        within * groups, without * groups, (k, kh, kw), bias=draw(st.booleans()), groups=groups,
        stride=(1, draw(st.integers(1, 2)), draw(st.integers(1, 3))),
        padding=(k // 2, draw(st.integers(0, 2)), draw(st.integers(0, 2))),
        dilation=(1, draw(st.integers(1, 2)), draw(st.integers(1, 2))),
    )  # fmt: skip
    norm = settled(nn.BatchNorm3d(conv.out_channels)) if draw(st.booleans()) else None
    frames = draw(st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8, 13, 16)))
    height, width = draw(st.integers(9, 12)), draw(st.integers(9, 13))
    return (
        conv.double().eval(),
        norm and norm.double(),
        TensorSpec(draw(st.integers(1, 3)), conv.in_channels, frames, height, width),
    )


@pytest.mark.parametrize("variant", NAMES)
@given(case=cases(), seed=st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_equal_to_the_convolution(
    variant: str, case: tuple[nn.Conv3d, nn.BatchNorm3d | None, TensorSpec], seed: int
) -> None:
    conv, norm, spec = case
    torch.manual_seed(seed)
    x = torch.randn(spec.shape, dtype=torch.float64)
    with torch.no_grad():
        expected = conv(x) if norm is None else norm(conv(x))
        got = folded_conv(conv, norm, nn.Identity(), spec, variant)(frames_to_batch(x))
        single = folded_conv(
            copy.deepcopy(conv).float(), norm and copy.deepcopy(norm).float(), nn.Identity(), spec, variant
        )(frames_to_batch(x.float()))
    assert tuple(expected.shape) == convolved(conv, spec).shape
    torch.testing.assert_close(batch_to_frames(got, spec.t), expected, rtol=1e-10, atol=1e-10)
    scale = max(float(expected.abs().max()), 1.0)
    torch.testing.assert_close(batch_to_frames(single, spec.t).double(), expected, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("variant", sorted(set(NAMES) - {PER_FRAME}))
@pytest.mark.parametrize("groups", [1, 6])
def test_number_of_operations_and_calls_does_not_depend_on_the_frames(variant: str, groups: int) -> None:
    conv = nn.Conv3d(6, 6, 3, padding=1, groups=groups)

    def counts(frames: int) -> tuple[int, int]:
        spec = TensorSpec(1, 6, frames, 5, 5)
        folded = folded_conv(conv, None, nn.Identity(), spec, variant)
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        convs = [layer for layer in folded.modules() if isinstance(layer, nn.Conv2d)]
        for layer in convs:
            layer.register_forward_hook(count)
        with torch.no_grad():
            folded(torch.zeros(spec.folded))
        assert calls == len(convs)
        graph = torch.export.export(copy.deepcopy(folded), (torch.zeros(spec.folded),)).graph
        return sum(node.op == "call_function" for node in graph.nodes), len(convs)

    assert counts(4) == counts(13)


def test_rank_is_that_of_the_weights() -> None:
    torch.manual_seed(0)
    for rank, k in itertools.product((1, 2, 3), (3, 5)):
        time, space = torch.randn(8, k, rank).double(), torch.randn(8, rank, 9).double()
        weight = (time @ space).reshape(8, 1, k, 3, 3)
        assert temporal_rank(weight) == rank
        assert temporal_rank(weight.float()) == rank
    assert temporal_rank(torch.zeros(4, 1, 3, 3, 3)) == 1


def test_separable_has_as_many_terms_as_the_rank() -> None:
    conv = nn.Conv3d(8, 8, 3, padding=1, groups=8, bias=False).double()
    with torch.no_grad():
        conv.weight.copy_((torch.randn(8, 3, 2).double() @ torch.randn(8, 2, 9).double()).reshape(8, 1, 3, 3, 3))
    spec = TensorSpec(1, 8, 4, 6, 6)
    folded = folded_conv(conv, None, nn.Identity(), spec, "separable")
    assert sum(isinstance(layer, nn.Conv2d) for layer in folded.modules()) == 4


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv3d(4, 4, 3, padding=1, stride=2),
        nn.Conv3d(4, 4, 3, padding=(0, 1, 1)),
        nn.Conv3d(4, 4, 3, padding=1, dilation=2),
        nn.Conv3d(4, 4, 3, padding="same"),
        nn.Conv3d(4, 4, 3, padding=1, padding_mode="replicate"),
        nn.Conv3d(4, 4, (2, 3, 3), padding=1),
    ],
    ids=str,
)
def test_what_no_variant_covers_is_refused(conv: nn.Conv3d) -> None:
    with pytest.raises(UnsupportedModule):
        Taps(conv, None)


def test_an_unknown_variant_names_the_others() -> None:
    with pytest.raises(UnknownName, match="shift-add"):
        folded_conv(nn.Conv3d(1, 1, 3, padding=1), None, nn.Identity(), TensorSpec(1, 1, 4, 5, 5), "shift-ad")


@pytest.mark.parametrize(("groups", "kernels"), [(4, "with depthwise kernels"), (1, "with all other kernels")])
def test_the_table_of_layouts_says_what_auto_stands_for(groups: int, kernels: str) -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "deploy.md").read_text()
    (row,) = (line for line in guide.splitlines() if line.endswith(f"what `auto` stands for {kernels} |"))
    name = prior(Taps(nn.Conv3d(4, 4, 3, padding=1, groups=groups), None))
    assert row.startswith(f"| `{name}` |")
