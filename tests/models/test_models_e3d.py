"""E3D against its authors' network written out from their structures, and against the numbers that they publish."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hwbench.data.builtin
from hwbench.api.export_sources import source_of
from hwbench.blocks import build
from hwbench.blocks.mobile_cpu import X3dBottleneckBlock
from hwbench.data import SyntheticSpec
from hwbench.deploy import export, open_calibration, open_validation
from hwbench.errors import InvalidFile, UnsupportedModule
from hwbench.latency import macs, operations
from hwbench.models import (
    EfficientX3d,
    deployed,
    frames_to_batch,
    network,
    read_published,
    streamed,
    workload_module,
)
from hwbench.runtimes import get
from hwbench.runtimes.runners import check_file, choose_runner
from hwbench.spaces import load_card, load_space, read_card
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.training import Recipe, open_data, train
from hwbench.workspace import Workspace, shipped

WORKSPACE = Workspace(shipped())
# The structures that are published: of each stage its number of blocks, the channels inside, those out, the extents of
# the depthwise kernel over time and space, and the stride.
STEM, LAST = 24, 512
STRUCTURES = {
    "e3d-s": (
        *((3, 32, 24, 1, 5, 2), (6, 96, 48, 3, 3, 2), (6, 176, 120, 3, 3, 2)),
        *((6, 176, 120, 3, 3, 1), (6, 384, 256, 3, 3, 2)),
    ),
    "e3d-m": (
        *((3, 32, 24, 1, 5, 2), (6, 96, 64, 3, 3, 2), (6, 176, 120, 3, 3, 2)),
        *((6, 176, 120, 3, 3, 1), (6, 464, 184, 3, 3, 2)),
    ),
    "e3d-l": (
        *((3, 32, 24, 1, 5, 2), (13, 120, 48, 3, 3, 2), (13, 176, 120, 3, 3, 2)),
        *((13, 176, 120, 3, 3, 1), (13, 480, 192, 3, 3, 2)),
    ),
}
# Number of convolutions within which they were searched for, and what is counted here.
LAYERS = {"e3d-s": 83, "e3d-m": 83, "e3d-l": 167}
MACS = {"e3d-s": 1_865_084_928, "e3d-m": 4_644_315_648, "e3d-l": 18_341_740_672}
PARAMETERS = {"e3d-s": 3_383_382, "e3d-m": 3_247_830, "e3d-l": 5_504_894}

# One block of each kind of shortcut: the mean of pixels, none, the input.
KEYS = (
    "stem_i3_o8_k1x3x3_s2_relu",
    "x3d_i8_m8_o8_k1x5x5_s2_fs1_relu",
    "x3d_i8_m16_o16_k3x3x3_s2_fs1_relu",
    "x3d_i16_m16_o16_k3x3x3_fs1_relu",
    "head_i16_m24_d32_o8_kglobal_hb1_swish",
)
BLOCKS = tuple(BlockSpec.parse(key) for key in KEYS)
CLIP = TensorSpec(1, 3, 4, 32, 32)
SMALL = Network("zoo:small", BLOCKS, CLIP)


def trained(module: nn.Module) -> nn.Module:
    """The module as after training: every number of a normalisation is one of its own."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.1)
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.bias)
    return module.eval()


class Authors:
    """The network of the authors on the weights of one here."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self.weights = weights

    def __call__(self, clips: torch.Tensor) -> torch.Tensor:
        x = self._conv(clips, "s1.pathway0_stem_conv_xy", stride=2).relu()
        for stage in (2, 3):
            for block in range(3):
                name = f"s{stage}.pathway0_res{block}"
                x = self._block(x, f"{name}.layers", stride=2 - min(block, 1)) if self._has(name) else x
        x = self._conv(x, "head.conv_5").relu().mean((2, 3, 4))
        hidden = F.linear(
            x, self.weights["head.lin_5.kernel.conv.weight"].flatten(1), self._bias("head.lin_5.kernel.conv")
        )
        return F.linear(F.silu(hidden), self.weights["projection.model.weight"], self._bias("projection.model"))

    def _block(self, x: torch.Tensor, name: str, stride: int) -> torch.Tensor:
        y = self._conv(x, f"{name}.conv_0").relu()
        y = self._conv(y, f"{name}.conv_1", stride=stride, groups=y.shape[1]).relu()
        y = self._conv(y, f"{name}.conv_2")
        if x.shape[1] == y.shape[1]:
            y = y + (F.avg_pool3d(x, (1, stride, stride)) if stride > 1 else x)
        return y.relu()

    def _conv(self, x: torch.Tensor, name: str, stride: int = 1, groups: int = 1) -> torch.Tensor:
        """A convolution and its normalisation."""
        weight, norm = self.weights[f"{name}.kernel.conv.weight"], f"{name}.kernel.bn"
        padding = [size // 2 for size in weight.shape[2:]]
        y = F.conv3d(x, weight, None, (1, stride, stride), padding, groups=groups)
        values = [self.weights[f"{norm}.{one}"] for one in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(y, *values)

    def _bias(self, name: str) -> torch.Tensor:
        return self.weights[f"{name}.bias"]

    def _has(self, block: str) -> bool:
        return f"{block}.layers.conv_0.kernel.conv.weight" in self.weights


def test_it_is_that_of_its_authors_with_the_same_weights() -> None:
    torch.manual_seed(0)
    ours = trained(network(SMALL)).double()
    assert isinstance(ours, EfficientX3d)
    clips = torch.randn(2, 3, 4, 32, 48, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(ours(clips), Authors(ours.state_dict())(clips), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_card_is_the_structure_that_is_published(name: str) -> None:
    blocks = load_card(WORKSPACE, name).blocks
    stem, *inner, head = blocks
    assert (stem.out_channels, stem.kernel, stem.stride) == (STEM, ((1, 3, 3),), 2)
    assert (head.mid_channels, head.activation, head["hidden_bias"]) == (LAST, "swish", 1)
    expected, before = [], STEM
    for depth, mid, out, time, side, stride in STRUCTURES[name]:
        for index in range(depth):
            expected.append((before, mid, out, ((time, side, side),), 1 if index else stride))
            before = out
    assert [(b.in_channels, b.mid_channels, b.out_channels, b.kernel, b.stride) for b in inner] == expected
    assert {(b.activation, b.se_channels, b["free_shortcut"]) for b in inner} == {("relu", 0, 1)}


@pytest.mark.parametrize("name", STRUCTURES)
def test_its_size_beside_what_is_published(name: str) -> None:
    card = load_card(WORKSPACE, name)
    published = {one.metric: one.value for one in card.published}
    assert published.keys() == {"top1", "top5", "macs"}  # no number of parameters is
    one = card.network().workload(Precision.FP32)
    assert macs(one) == MACS[name]
    assert (round(macs(one) / 1e9, 1) == published["macs"]) == (name != "e3d-m")
    assert abs(macs(one) / 1e9 / published["macs"] - 1) < 0.02
    with torch.device("meta"):
        module = network(card.network())
    assert sum(p.numel() for p in module.parameters()) == PARAMETERS[name]
    assert sum(o.num_weights for o in operations(one)) == sum(p.numel() for p in module.parameters() if p.dim() > 1)
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv3d)]
    assert len(layers) - 1 == LAYERS[name]  # one is the hidden layer of the head


@pytest.mark.parametrize(
    ("name", "clip", "choices"),
    [
        ("e3d-s", ("13", "160"), [(3, 24, 1.5), (6, 48, 2), (6, 120, 1.5), (6, 120, 1.5), (6, 256, 1.5)]),
        ("e3d-m", ("16", "224"), [(3, 24, 1.5), (6, 64, 1.5), (6, 120, 1.5), (6, 120, 1.5), (6, 184, 2.5)]),
    ],
)
def test_published_ones_are_members_of_the_space(
    name: str, clip: tuple[str, str], choices: list[tuple[int, int, float]]
) -> None:
    space = load_space(WORKSPACE, "e3d-mobile")
    params = dict(zip(("frames", "resolution"), clip))
    for number, (depth, width, expansion) in enumerate(choices, start=1):
        kernel = "1x5x5" if number == 1 else "3x3x3"
        own = {"depth": depth, "width": width, "expansion": expansion, "kernel": kernel}
        params |= {f"s{number}.{axis}": str(value) for axis, value in own.items()}
    made, card = space.network(space.of_params(params), 174), load_card(WORKSPACE, name).network()
    assert (made.blocks, made.input) == (card.blocks, card.input)


def test_a_projection_in_each_shortcut_would_not_agree_better() -> None:
    """Multiply-adds as X3D's shortcuts would have them: those of M agree then, and those of L no more."""
    with_projections = {}
    for name in STRUCTURES:
        one = load_card(WORKSPACE, name).network()
        x, total = one.input, MACS[name]
        for block in one.blocks:
            after = block.output(x)
            if block.kind == "x3d" and block.in_channels != block.out_channels:
                total += block.in_channels * after.numel
            x = after
        with_projections[name] = round(total / 1e9, 1)
    assert with_projections == {"e3d-s": 1.9, "e3d-m": 4.7, "e3d-l": 18.4}


@pytest.mark.parametrize("x", [CLIP.with_(n=2), TensorSpec(1, 3, 3, 37, 30)], ids=str)
def test_the_deploy_form_computes_the_same(x: TensorSpec) -> None:
    torch.manual_seed(0)
    module, clips = trained(network(SMALL)).double(), torch.randn(x.shape, dtype=torch.float64)
    with torch.no_grad():
        expected, got = module(clips), deployed(module, x)(frames_to_batch(clips))
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_the_shortcut_of_even_sides_is_a_convolution_that_quantisers_know() -> None:
    block = build(BLOCKS[1]).eval()
    even, odd = (block.to_deploy(TensorSpec(1, 8, 2, side, side)) for side in (8, 7))
    assert isinstance(even.proj, nn.Conv2d)
    assert even.proj.weight.unique().tolist() == [0.25]
    assert isinstance(odd.proj, nn.AvgPool2d)
    assert not [name for name in block.state_dict() if "proj" in name]


@pytest.mark.parametrize("strides", [{"spatial_stride": 3}, {"temporal_stride": 2}])
def test_a_free_shortcut_goes_with_few_strides(strides: dict[str, int]) -> None:
    with pytest.raises(UnsupportedModule, match="a spatial stride of 1 or 2 and a temporal one of 1, got"):
        X3dBottleneckBlock(8, 8, 8, free_shortcut=True, **strides)  # type: ignore[arg-type]


def test_a_causal_one_takes_frame_by_frame() -> None:
    causal = Network("zoo:causal", BLOCKS, CLIP).causal()
    torch.manual_seed(0)
    module, clip = trained(network(causal)).double(), torch.randn(1, 3, 4, 32, 32, dtype=torch.float64)
    form = streamed(module, CLIP)
    _, *states = form.example()
    with torch.no_grad():
        for frame in clip.unbind(2):
            logits, *states = form(frame, *states)
        torch.testing.assert_close(logits, module(clip), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("x3d_i8_m8_o8_k3x3x3_fs2_relu", "fs1 for a shortcut without weights"),
        ("x3d_i8_m8_o8_k3x3x3_s3_fs1_relu", "a stride of 1 or 2 and every frame"),
        ("x3d_i8_m8_o8_k3x3x3_ts2_fs1_relu", "a stride of 1 or 2 and every frame"),
        ("x3d_i8_m8_o8_k1x7x7_relu", "the kernel 3x3x3, 1x3x3, 1x5x5 or 1x3x3"),
        ("stem_i3_o8_k1x5x5_s2_relu", "a stem of kernel 1x3x3.5x1x1 or 1x3x3"),
        ("head_i8_m8_d8_o5_kglobal_hb2_swish", "hb1 for a hidden layer with a bias"),
        ("head_i8_m8_d8_o5_kglobal_gelu", "a head such as"),
    ],
)
def test_what_is_no_such_block_is_refused(key: str, said: str) -> None:
    with pytest.raises(UnsupportedModule, match=said):
        build(BlockSpec.parse(key))


def test_weights_of_an_x3d_are_not_its_own(tmp_path: Path) -> None:
    torch.save(network(load_card(WORKSPACE, "x3d-xs").network()).state_dict(), tmp_path / "x3d.pth")
    with pytest.raises(InvalidFile, match="weights of another network than zoo:small"):
        read_published(tmp_path / "x3d.pth").of(SMALL)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("strides = [2, 2, 2, 1, 2]", "strides = [2, 2, 2, 1, 3]", "e3d.strides: expected 1 or 2"),
        ("expansions = [1.5, 2, ", "expansions = [2, ", "expected one expansion for each of 5 depths"),
        ("expansions = [1.5, 2, ", 'expansions = ["wide", 2, ', "expansions"),
        ('kernels = ["1x5x5", ', "kernels = [", "expected one kernel for each of 5 depths"),
        ("head_width = 512\n", "", "head_width"),
    ],
)
def test_what_a_card_cannot_say(old: str, new: str, said: str, tmp_path: Path) -> None:
    text = WORKSPACE.card("e3d-s").read_text()
    assert old in text
    path = tmp_path / "e3d-s" / "model.toml"
    path.parent.mkdir()
    path.write_text(text.replace(old, new))
    with pytest.raises(InvalidFile) as caught:
        read_card(path)
    assert said in str(caught.value)


@pytest.mark.long
def test_it_is_trained_and_exported(tmp_path: Path, runner_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps, then the file in fp32 and in int8: one delegate each, compared with what was trained."""
    spec = SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=8)
    monkeypatch.setattr(hwbench.data.builtin, "SyntheticSpec", lambda: spec)
    workspace = Workspace.create(tmp_path / "workspace")
    workspace.cache.symlink_to(runner_cache)
    recipe = Recipe(epochs=2, batch_size=4, learning_rate=0.05, seed=3, zero_init_final_bn=True)
    data = open_data(workspace, "synthetic", (CLIP.t, CLIP.h, CLIP.w), recipe)
    path = train(recipe, SMALL, data, workspace.root / "run").checkpoint.path
    original = source_of(path)
    first = network(SMALL).state_dict()["s1.pathway0_stem_conv_xy.kernel.bn.running_mean"]
    assert not torch.equal(original.module.state_dict()["s1.pathway0_stem_conv_xy.kernel.bn.running_mean"], first)
    validation = open_validation(workspace, "synthetic", original)
    calibration = open_calibration(workspace, "synthetic", original, count=8, seed=5)
    for precision, least in ((Precision.FP32, 100), (Precision.INT8, 15)):
        out = workspace.root / precision
        manifest = export(original, out, precision=precision, calibration=calibration, validation=validation).manifest
        assert (manifest.delegation.delegates, manifest.delegation.undelegated) == (1, {})
        assert manifest.parity.sqnr_db >= least


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_file_of_odd_sides_is_one_delegate_and_runs(precision: str, tmp_path: Path, runner_cache: Path) -> None:
    """The shortcut is an average there; sides that are even have a file above."""
    one = Workload(BLOCKS, TensorSpec(1, 3, 4, 35, 50), Precision(precision))
    torch.manual_seed(0)
    module, example = workload_module(one)
    assert any(isinstance(layer, nn.AvgPool2d) for layer in module.modules())
    out = tmp_path / "e3d.pte"
    report = get("executorch").build(module, (example,), one, out, [(example,)] * (precision == "int8")).delegation
    assert (report.delegates, dict(report.undelegated)) == (1, {})
    assert check_file(out, runner=choose_runner("executorch", runner_cache, None)).output.shape == (1, 8)
