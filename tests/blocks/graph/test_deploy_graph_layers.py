"""Layers that no network of the zoo has: recurrent ones, other normalisations, interpolation and more."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hwbench.blocks import frames_to_batch
from hwbench.blocks.graph import deploy_graph
from hwbench.blocks.graph.recurrent import Steps
from hwbench.blocks.graph.rewrite import Rewriter, exported
from hwbench.errors import UnsupportedModule
from hwbench.runtimes import get
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.runners import check_file
from hwbench.specs import BlockSpec, Precision, TensorSpec, Workload
from hwbench.testing.clip_functions import All, Does
from hwbench.testing.graph_rules import GraphRuleConformance


def sequence(x: torch.Tensor) -> torch.Tensor:
    """(N, T, C)."""
    return x.mean((3, 4)).transpose(1, 2)


def decoded(x: torch.Tensor, encoder: nn.Module, decoder: nn.Module) -> torch.Tensor:
    """The state of one layer is where another begins."""
    _, state = encoder(sequence(x))
    made: torch.Tensor = decoder(sequence(x), state)[0]
    return made


def began(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    state = torch.linspace(-1, 1, 3).to(x).view(1, 1, 3).expand(1, x.shape[0], 3)
    made: torch.Tensor = layer(sequence(x), (state, 2 * state))[0]
    return made


def pooled(x: torch.Tensor, query: nn.Module, attention: nn.Module) -> torch.Tensor:
    """Attention of learned queries over all places, as in the heads of V-JEPA and SigLIP."""
    places, queries = x.flatten(2).transpose(1, 2), query(torch.arange(2)).expand(x.shape[0], 2, 4)
    made: torch.Tensor = attention(queries, places, places)[0]
    return made


def by_cell(x: torch.Tensor, cell: nn.Module) -> torch.Tensor:
    state = torch.zeros(x.shape[0], 3).to(x)
    for frame in sequence(x).unbind(1):
        state = cell(frame, state)
    return state


ONE = {"batch_first": True}
RECURRENT: dict[str, nn.Module] = {
    "lstm": Does(lambda x, m: m(sequence(x))[0][:, -1], nn.LSTM(4, 3, **ONE)),
    "lstm with all steps": Does(lambda x, m: m(sequence(x))[0], nn.LSTM(4, 3, **ONE, bias=False)),
    "last step of the first of two layers": Does(lambda x, m: m(sequence(x))[1][0], nn.LSTM(4, 3, 2, **ONE)),
    "lstm with a projection": Does(lambda x, m: m(sequence(x))[0], nn.LSTM(4, 6, 2, **ONE, proj_size=2)),
    "lstm with frames first": Does(lambda x, m: m(sequence(x).transpose(0, 1))[0], nn.LSTM(4, 3)),
    "lstm that begins somewhere": Does(began, nn.LSTM(4, 3, **ONE)),
    "lstm of both directions": Does(
        lambda x, m: torch.cat([m(sequence(x))[0].flatten(1), m(sequence(x))[1][0].transpose(0, 1).flatten(1)], 1),
        nn.LSTM(4, 3, 2, **ONE, bidirectional=True),
    ),
    "gru": Does(lambda x, m: m(sequence(x))[1][-1], nn.GRU(4, 3, **ONE)),
    "gru of both directions": Does(lambda x, m: m(sequence(x))[0], nn.GRU(4, 3, 2, **ONE, bidirectional=True)),
    "gru without a shift": Does(lambda x, m: m(sequence(x))[0], nn.GRU(4, 3, bias=False, **ONE)),
    "gru that goes on": Does(decoded, nn.GRU(4, 3, **ONE), nn.GRU(4, 3, **ONE)),
    "lstm that goes on": Does(by_cell, nn.GRUCell(4, 3)),
    "tanh": Does(lambda x, m: m(sequence(x))[0], nn.RNN(4, 3, 2, **ONE)),
    "relu": Does(lambda x, m: m(sequence(x))[0], nn.RNN(4, 3, nonlinearity="relu", bidirectional=True, **ONE)),
    "cell": Does(by_cell, nn.RNNCell(4, 3)),
}
NORMALISATIONS: dict[str, nn.Module] = {
    "groups": nn.GroupNorm(2, 4),
    "one group": nn.GroupNorm(1, 4, eps=0.1),
    "groups without weights": nn.GroupNorm(2, 4, affine=False),
    "groups of pictures": Does(lambda x, m: m(x.transpose(1, 2).flatten(0, 1)), nn.GroupNorm(2, 4)),
    "groups of a sequence": Does(lambda x, m: m(x.mean((3, 4))), nn.GroupNorm(2, 4)),
    "groups of features": Does(lambda x, m: m(x.mean((2, 3, 4))), nn.GroupNorm(2, 4)),
    "groups, axes in another order": Does(lambda x, m: m(x.transpose(3, 4)).transpose(3, 4), nn.GroupNorm(4, 4)),
    "instances": nn.InstanceNorm3d(4, affine=True),
    "instances of pictures": Does(lambda x, m: m(x.transpose(1, 2).flatten(0, 1)), nn.InstanceNorm2d(4)),
    "instances with statistics": nn.InstanceNorm3d(4, affine=True, track_running_stats=True),
    "root mean square": Does(lambda x, m: m(sequence(x)), nn.RMSNorm(4)),
    "root mean square of channels": Does(
        lambda x, m: m(x.permute(0, 2, 3, 4, 1)).permute(0, 4, 1, 2, 3), nn.RMSNorm(4, eps=0.1)
    ),
    "length": Does(lambda x: x.mean((2, 3, 4)).norm(dim=1, keepdim=True) + x.norm(dim=1).mean((1, 2, 3))[:, None]),
    "lengths of frames and rows": Does(lambda x: x.norm(dim=2).mean(1) + x.norm(dim=3, keepdim=True).mean((1, 2))),
    "unit length": Does(lambda x: F.normalize(x.mean((2, 3, 4)))),
    "unit length of channels": Does(lambda x: F.normalize(x, dim=1)),
    "cosine": Does(lambda x: F.cosine_similarity(sequence(x)[:, 1:], sequence(x)[:, :-1], dim=-1)),
    "local response": nn.LocalResponseNorm(2),
    "logarithm of softmax": Does(
        lambda x: F.log_softmax(100 * x.mean((2, 3, 4)), 1) + F.log_softmax(x, 1).mean((2, 3, 4))
    ),
}
ATTENTION: dict[str, nn.Module] = {
    "pooled by a query": Does(pooled, nn.Embedding(2, 4), nn.MultiheadAttention(4, 2, batch_first=True)),
    "queries that are learned": Does(
        lambda x, query: F.scaled_dot_product_attention(
            query(torch.arange(2)).expand(x.shape[0], 2, 4), *[x.flatten(2).transpose(1, 2)] * 2
        ),
        nn.Embedding(2, 4),
    ),
    "values that are learned": Does(
        lambda x, value: F.scaled_dot_product_attention(
            *[sequence(x)] * 2, value(torch.arange(5)).expand(x.shape[0], 5, 4)
        ),
        nn.Embedding(5, 4),
    ),
}
ACTIVATIONS = (F.softplus, F.mish, F.logsigmoid, F.selu, F.celu, F.softsign, F.tanhshrink)
MADE_OF_OTHERS: dict[str, nn.Module] = {
    **{function.__name__: Does(lambda x, f=function: f(3 * x)) for function in ACTIVATIONS},
    "softplus with a slope": nn.Softplus(beta=3),
    "celu with a slope": nn.CELU(0.4),
    "half of the channels as a gate": nn.GLU(1),
    "logarithm and exponent": Does(lambda x: torch.log1p(x.abs()) + torch.expm1(x)),
    "on the line": Does(lambda x: torch.lerp(x, x.relu(), 0.3) + torch.lerp(x, x.relu(), x.sigmoid())),
    "product added": Does(lambda x: torch.addcmul(x, x, x.relu(), value=0.5)),
    "variance": Does(lambda x: x.var((2, 3, 4)) + x.var(1, correction=0).mean((1, 2, 3))[:, None]),
    "deviation": Does(lambda x: torch.cat([x.mean((3, 4)).std(-1), x.flatten(2).std(2), x[:, :, 0].std((2, 3))], 1)),
    "variance and mean": Does(lambda x: torch.cat(torch.var_mean(x, (2, 3), keepdim=True), 1)),
    "logarithm of a sum": Does(lambda x: (50 * x).logsumexp((3, 4)) + x.logsumexp(1).logsumexp((2, 3))[:, None]),
    "sums so far": Does(lambda x: x.cumsum(2) + x.mean((3, 4)).cumsum(-1)[..., None, None]),
    "places by a mask": Does(lambda x: x + torch.ones(10).to(x.device).bool().cumsum(0, dtype=x.dtype)),
    "differences": Does(lambda x: x.diff(dim=2)),
    "flipped": Does(lambda x: x.flip(2, 4) + x.flip(1) + x.flatten(1, 2).flip(1).view_as(x)),
    "every second token": Does(lambda x: x.flatten(2)[:, :, ::9] + x.flatten(2)[:, ::3, :250:5][:, :1]),
    "every second row of pictures": Does(lambda x: x.mean(2)[:, :, ::2, ::2] + x.mean(2)[:, :, 1::20, 1::20]),
    "turned": Does(lambda x: x.rot90(1, (3, 4))),
    "triangle": Does(lambda x: (sequence(x) @ sequence(x).mT).tril() + (sequence(x) @ sequence(x).mT).triu(1)),
    "by a mask": Does(
        lambda x: torch.where(torch.arange(10).to(x) > 6, x, x.relu())
        + torch.where(torch.arange(10).to(x) > 6, x, 0.5)
        + torch.where(torch.arange(10).to(x) > 6, torch.arange(10).to(x), x)
    ),
    "mask with infinity": Does(
        lambda x: torch.where(torch.ones(9, 9).tril().bool(), x[:, 0, 0] @ x[:, 0, 0].mT, -float("inf")).softmax(-1)
    ),
    "poolings over time": Does(
        lambda x: torch.cat(
            [f(x.mean((3, 4))).flatten(1) for f in (nn.AvgPool1d(2), nn.MaxPool1d(3, 2, 1), nn.AdaptiveAvgPool1d(1),
             nn.AdaptiveMaxPool1d(1))], 1,
        )
    ),
    "nearest": nn.Upsample(scale_factor=(1, 2, 3)),
    "nearest over time": Does(lambda x: F.interpolate(x.mean((3, 4)), scale_factor=2)),
    "nearest of pictures": Does(lambda x: F.interpolate(x[:, :, 0], size=(18, 20))),
    "linear": nn.Upsample(scale_factor=2, mode="trilinear"),
    "linear to a size": Does(lambda x: F.interpolate(x, size=(5, 4, 13), mode="trilinear")),
    "linear with corners": Does(lambda x: F.interpolate(x, size=(7, 9, 3), mode="trilinear", align_corners=True)),
    "linear by 1.7": Does(lambda x: F.interpolate(x[:, :, 0], scale_factor=1.7, mode="bilinear")),
    "linear over time": Does(lambda x: F.interpolate(x.mean((3, 4)), scale_factor=3, mode="linear")),
}  # fmt: skip
GROUPS = {
    "recurrent": RECURRENT,
    "normalisations": NORMALISATIONS,
    "attention": ATTENTION,
    "made of others": MADE_OF_OTHERS,
}


def settled(model: nn.Module) -> nn.Module:
    """The model in double precision, with weights and statistics that are neither 0 nor 1."""
    torch.manual_seed(0)
    for weight in model.parameters():
        nn.init.normal_(weight, 0.3, 0.7)
    for layer in model.modules():
        if getattr(layer, "running_var", None) is not None:
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    return model.double().eval()


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("group", GROUPS)
def test_layers_compute_what_they_computed(group: str, batch: int, tmp_path: Path) -> None:
    model = settled(All(list(GROUPS[group].values())))
    clip = torch.randn(batch, 4, 5, 9, 10, dtype=torch.float64)
    deployed = Rewriter(exported(model, clip)).deployed()
    with torch.no_grad():
        expected = [part(clip).flatten() for part in model.models]
        got = deployed(frames_to_batch(clip))
        copied = copy.deepcopy(deployed)(frames_to_batch(clip))
    pairs = zip(GROUPS[group], expected, got.split([len(part) for part in expected]), strict=True)
    wrong = {name: float((x - y).abs().max()) for name, x, y in pairs if not torch.allclose(x, y, 1e-9, 1e-9)}
    assert wrong == {}
    assert torch.equal(copied, got)
    torch.save(deployed, tmp_path / "deployed.pt")


class TestLayers(GraphRuleConformance):
    @pytest.fixture(params=["groups", "lstm of both directions", "linear with corners"])
    def layer(self, request: pytest.FixtureRequest) -> nn.Module:
        cases = {**RECURRENT, **NORMALISATIONS, **MADE_OF_OTHERS}
        return copy.deepcopy(cases[request.param])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Does(lambda x, m: m(sequence(x))[1][1], nn.LSTM(4, 3, **ONE)), r"lstm.input in .*result 2 is not covered"),
        (Does(lambda x: F.interpolate(x, size=(5, 13, 20))), "from 9 to 13 places is not covered, to a multiple is"),
        (Does(lambda x: x.flatten(2)[:, :, ::3]), "step 3 over axis 2 of 3 is not covered"),
        (nn.Softplus(threshold=3), "threshold=3 is not covered, with 20 or more is"),
        (Does(lambda x: x.norm(p=1, dim=1)), "a norm of order 1 is not covered, of order 2 is"),
        (Does(lambda x: x.norm(dim=(1, 2))), "over 2 axes is not covered, over one is"),
        (Does(lambda x: torch.where(x > 0, x, -x)), r"gt.Scalar in .* has no rule"),
        (Does(lambda x, m: m(x.permute(0, 2, 3, 4, 1)), nn.RMSNorm((10, 4))), "over the last 2 axes is not covered"),
        (Does(lambda x: F.pad(x, (60, 0)).flip(4)), "of 70 places is not covered, of 64 at most is"),
        (Does(lambda x: x[..., :1].var(4)), "a variance of 1 value with a correction of 1 is not a number"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_forms_that_are_not_covered_are_named(model: nn.Module, said: str) -> None:
    with pytest.raises(UnsupportedModule, match=said):
        deploy_graph(model, torch.randn(1, 4, 5, 9, 10))


class Recurrent(nn.Module):
    """A network of pictures, and a recurrent layer over its features (LRCN, Donahue et al., CVPR 2015)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.layer, self.head = layer, nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, t, h, w = x.shape
        y = self.features(x.transpose(1, 2).reshape(n * t, c, h, w)).view(n, t, -1)
        made: torch.Tensor = self.head(self.layer(y)[0][:, -1])
        return made


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8, Precision.FP16])
@pytest.mark.parametrize(
    "layer", [nn.LSTM(16, 16, **ONE, bidirectional=True), nn.GRU(16, 32, **ONE)], ids=["lstm", "gru"]
)
def test_a_recurrent_network_is_one_delegate(layer: Any, precision: Precision, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, clips = Recurrent(copy.deepcopy(layer)).eval(), [torch.randn(1, 3, 6, 24, 24) for _ in range(9)]
    form, given = deploy_graph(model, clips[0]), [frames_to_batch(clip).contiguous() for clip in clips]
    assert sum(isinstance(one, Steps) for one in form.modules()) == 1 + bool(layer.bidirectional)
    workload, path = (
        Workload((BlockSpec("foreign", 3, 1),), TensorSpec(1, 3, 1, 1, 1), precision),
        tmp_path / "model.pte",
    )
    with quiet():
        artifact = get("executorch").build(form, given[0], workload, path, given[1:])
    assert artifact.delegation.delegates == 1
    assert artifact.delegation.complete
    with torch.no_grad():
        expected = model(clips[0]).numpy()
    got = check_file(path, given[0].numpy()).output
    bound = {Precision.FP32: 1e-5, Precision.FP16: 3e-3, Precision.INT8: 5e-2}[precision]
    assert np.abs(got - expected).max() / np.abs(expected).max() < bound
