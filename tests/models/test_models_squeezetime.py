"""SqueezeTime against its authors' network written out from their names, its numbers against the paper's table."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hwbench.blocks import build, frames_to_batch
from hwbench.blocks.deployment import deploy_form
from hwbench.errors import InvalidFile, InvalidValue, UnsupportedModule
from hwbench.latency import macs, operations
from hwbench.models import (
    SqueezeTimeForm,
    deployed,
    mmaction2_from_squeezetime,
    network,
    read_published,
    squeezetime_from_mmaction2,
    workload_module,
)
from hwbench.models.squeezetime import SqueezeTimeNetwork
from hwbench.reports.coverage import belongs
from hwbench.runtimes import get
from hwbench.runtimes.runners import check_file, choose_runner
from hwbench.spaces import load_card, load_space, read_space
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.testing.tables import space_table
from hwbench.workspace import Workspace, shipped

KEYS = (
    "squeeze-stem_i3_o8_k1x5x5_s2_sf4_p2_relu",
    "channel-time_i8_m4_o16_k1x3x3+1x7x7_ps5_relu",
    "channel-time_i16_m8_o32_k1x3x3+1x3x3_s2_ic8_ps3_relu",
    "channel-time_i32_m8_o32_k1x3x3+1x7x7_ps3_relu",
    "pool-head_i32_o5_kglobal_identity",
)
BLOCKS = tuple(BlockSpec.parse(key) for key in KEYS)
CLIP = TensorSpec(1, 3, 4, 35, 50)
SMALL = Network("zoo:small", BLOCKS, CLIP)
WORKSPACE = Workspace(shipped())


def trained() -> SqueezeTimeNetwork:
    """The small network as after training: every number of a normalisation is one of its own."""
    torch.manual_seed(0)
    module = network(SMALL)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.1)
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.bias)
    assert isinstance(module, SqueezeTimeNetwork)
    return module.eval()


def test_a_stem_whose_kernel_is_not_square_is_built_as_it_is_counted():
    spec, clip = BlockSpec.parse("squeeze-stem_i3_o8_k1x3x5_s2_sf4_relu"), torch.randn(1, *CLIP.shape[1:])
    stem = build(spec).eval()
    (convolution,) = spec.operations(CLIP)
    assert stem.conv.weight.numel() == convolution.num_weights
    assert stem.conv.weight.shape[2:] == (3, 5)
    assert stem(clip).shape == spec.output(CLIP).shape


class Authors:
    """The network of the paper on its authors' weights, by the names that their checkpoints have."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self.weights = weights

    def __call__(self, clips: torch.Tensor) -> torch.Tensor:
        """(N, C, T, H, W) -> logits; channels of the picture are those of the clip, each with all its frames."""
        x = self._conv(clips.flatten(1, 2), "backbone.net.conv1", stride=2)
        x = F.max_pool2d(F.relu(self._norm(x, "backbone.net.bn1")), 3, 2, 1)
        for stage in range(1, 5):
            for block in range(9):
                name = f"backbone.net.layer{stage}.{block}"
                x = self._block(x, name) if f"{name}.conv1.weight" in self.weights else x
        head = "cls_head.fc_cls"
        return F.linear(x.mean((2, 3)), self.weights[f"{head}.weight"], self.weights[f"{head}.bias"])

    def _block(self, x: torch.Tensor, name: str) -> torch.Tensor:
        if f"{name}.downsample.0.weight" in self.weights:
            down = [self.weights[f"{name}.downsample.0.{tensor}"] for tensor in ("weight", "bias")]
            x = self._norm(F.conv2d(x, *down, stride=2, groups=x.shape[1]), f"{name}.downsample.1")
        y = F.relu(self._norm(self._conv(x, f"{name}.conv1"), f"{name}.bn1"))
        y = F.relu(self._norm(self._learning(y, f"{name}.conv2"), f"{name}.bn2"))
        y = self._norm(self._conv(y, f"{name}.conv3"), f"{name}.bn3")
        if f"{name}.shortcut_conv.0.weight" in self.weights:
            x = self._norm(self._conv(x, f"{name}.shortcut_conv.0"), f"{name}.shortcut_conv.1")
        return F.relu(x + y)

    def _learning(self, x: torch.Tensor, name: str) -> torch.Tensor:
        gate = self._conv(F.adaptive_avg_pool2d(x, 1), f"{name}.param_conv.1")
        gate = self._conv(F.relu(self._norm(gate, f"{name}.param_conv.2")), f"{name}.param_conv.4").sigmoid()
        inner = f"{name}.spatial_conv"
        y = F.relu(self._norm(self._conv(gate * x, f"{inner}.glo_conv.0"), f"{inner}.glo_conv.1"))
        size = {"size": y.shape[2:], "mode": "bilinear", "align_corners": True}
        y = y + F.interpolate(self.weights[f"{inner}.pos_embed"], **size)
        y = F.relu(self._norm(self._conv(y, f"{inner}.glo_conv.3"), f"{inner}.glo_conv.4"))
        y = self._conv(x, f"{inner}.short_conv") * self._conv(y, f"{inner}.glo_conv.6").sigmoid()
        return self._conv(gate * x, f"{name}.temporal_conv") + y

    def _conv(self, x: torch.Tensor, name: str, stride: int = 1) -> torch.Tensor:
        weight = self.weights[f"{name}.weight"]
        return F.conv2d(x, weight, self.weights.get(f"{name}.bias"), stride, weight.shape[-1] // 2)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        values = [self.weights[f"{name}.{tensor}"] for tensor in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(x, *values)


def test_it_is_that_of_its_authors_with_the_same_weights() -> None:
    ours = trained().double()
    authors = Authors(mmaction2_from_squeezetime(ours.state_dict()))
    for height, width in ((40, 40), (35, 50)):  # 5 x 5 is the size of a map of positions, the others are interpolated
        clips = torch.randn(2, 3, 4, height, width, dtype=torch.float64)
        with torch.no_grad():
            torch.testing.assert_close(ours(clips), authors(clips), rtol=1e-10, atol=1e-10)


def test_its_size_is_that_of_the_paper() -> None:
    card = load_card(WORKSPACE, "squeezetime-r50")
    published = {one.metric: one.value for one in card.published}
    with torch.device("meta"):
        named = {name: one.numel() for name, one in network(card.network()).named_parameters()}
    assert sum(named.values()) == 29_706_688
    counted = sum(n for name, n in named.items() if not name.startswith("head.") and not name.endswith("position"))
    assert counted == 28_665_216
    assert round(counted / 1e6, 1) == published["parameters"]
    one = card.network().workload(Precision.FP32)
    assert round(macs(one) / 1e9, 1) == published["macs"]
    assert sum(operation.num_weights for operation in operations(one)) == sum(
        p.numel() for p in network(card.network()).parameters() if p.dim() > 1
    )


@pytest.mark.parametrize("n", [1, 2])
def test_the_deploy_form_computes_the_same(n: int) -> None:
    module, clips = trained().double(), CLIP.with_(n=n)
    x = torch.randn(clips.shape, dtype=torch.float64)
    with torch.no_grad():
        expected, got = module(x), deployed(module, clips)(frames_to_batch(x))
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_frames_become_the_channels_of_as_many_pictures_as_there_are_groups() -> None:
    stem = build(BLOCKS[0]).eval()
    clip = torch.randn(1, 3, 8, 16, 16)
    with torch.no_grad():
        whole, halves = stem(clip), [stem(clip[:, :, :4]), stem(clip[:, :, 4:])]
        folded = deploy_form(stem, TensorSpec(*clip.shape))(frames_to_batch(clip))
    torch.testing.assert_close(whole, torch.cat(halves, 2))
    torch.testing.assert_close(folded, frames_to_batch(whole), rtol=1e-5, atol=1e-5)
    assert whole.shape == BLOCKS[0].output(TensorSpec(*clip.shape)).shape
    with pytest.raises(InvalidValue, match=r"takes clips of 4 frames, or of a multiple of that, got 1x3x6x16x16"):
        BLOCKS[0].output(TensorSpec(1, 3, 6, 16, 16))
    with pytest.raises(InvalidValue, match=r"takes pictures of at least 2 x 2, got 1x16x1x1x4"):
        BLOCKS[2].output(TensorSpec(1, 16, 1, 1, 4))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("squeeze-stem_i3_o8_k3x5x5_s2_sf4_relu", "one kernel over space, such as 1x5x5"),
        ("squeeze-stem_i3_o8_k1x5x5_s2_sf0_relu", "at least one frame for each picture"),
        ("channel-time_i8_m4_o16_k3x1x1+1x3x3_relu", "two kernels over space"),
        ("channel-time_i8_m4_o16_k1x3x3_relu", "two kernels over space"),
        ("channel-time_i8_o16_k1x3x3+1x7x7_relu", "the channels inside"),
        ("channel-time_i8_m4_o16_k1x3x3+1x7x7_ic0_relu", "at least one channel of interaction"),
    ],
)
def test_what_is_no_such_block_is_refused(key: str, said: str) -> None:
    with pytest.raises(UnsupportedModule, match=said):
        build(BlockSpec.parse(key))


def test_other_blocks_make_no_squeezetime() -> None:
    with pytest.raises(UnsupportedModule, match="expected a squeeze-stem, channel-time blocks and a pool-head"):
        SqueezeTimeNetwork(BLOCKS[1:])


def test_names_go_there_and_back() -> None:
    weights = trained().state_dict()
    there = mmaction2_from_squeezetime(weights)
    back = squeezetime_from_mmaction2(there)
    assert len(there) == len(weights)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], value) for name, value in weights.items())
    # Red of the third of four frames: channel 6 here, where frames come first, and channel 2 there.
    assert torch.equal(there["backbone.net.conv1.weight"][:, 2], weights["stem.conv.weight"][:, 6])
    with pytest.raises(InvalidValue, match=r"'fc\.weight': no weight of a SqueezeTime of form mmaction2-squeezetime"):
        squeezetime_from_mmaction2({**there, "fc.weight": torch.zeros(1)})


@pytest.mark.parametrize("form", SqueezeTimeForm)
def test_a_file_of_each_form(form: SqueezeTimeForm, tmp_path: Path) -> None:
    module = trained()
    weights = module.state_dict()
    values = weights if form is SqueezeTimeForm.OWN else mmaction2_from_squeezetime(weights)
    torch.save({"meta": {"epoch": 1}, "state_dict": values}, tmp_path / "squeeze.pth")
    published = read_published(tmp_path / "squeeze.pth")
    assert (published.form, published.num_classes, published.doubts) == (form, 5, ())
    made = network(SMALL).eval()
    made.load_state_dict(published.of(SMALL))
    clip = torch.randn(CLIP.shape)
    with torch.no_grad():
        assert torch.equal(made(clip), module(clip))
    headless = published.of(SMALL.with_classes(3), head=False)
    assert published.of(SMALL).keys() - headless.keys() == {"head.proj.weight", "head.proj.bias"}
    with pytest.raises(InvalidFile, match="weights of another network than zoo:x3d-xs: those of a SqueezeTime"):
        published.of(load_card(WORKSPACE, "x3d-xs").network())


def test_what_no_training_leaves_is_told_by_name(tmp_path: Path) -> None:
    weights = mmaction2_from_squeezetime(trained().state_dict())
    weights["backbone.net.layer2.0.conv2.param_conv.2.running_var"].fill_(-1)
    torch.save(weights, tmp_path / "damaged.pth")
    with pytest.raises(InvalidFile, match=r"negative variance: backbone\.net\.layer2\.0\.conv2\.param_conv\.2\."):
        read_published(tmp_path / "damaged.pth").of(SMALL)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'kernel = "1x5x5"',
            'kernel = "3x5x5"',
            "stem.kernel: expected a kernel over space, such as 1x5x5: frames are channels, got",
        ),
        ('kernel = "1x3x3+1x3x3"\n', 'kernel = "3x3x3"\n', "kernel: expected two kernels over space"),
        ("position = 32", "position = 0", "position: expected a whole number, at least 1, got 0"),
        ("position = 32", "positions = 32", "unknown key 'positions'"),
        ("position = 32", "frame_pool = 2", "unknown key 'frame_pool'"),
        ('family = "squeezetime"', 'family = "squeeze"', "did you mean 'squeezetime'"),
    ],
)
def test_what_a_space_cannot_say(old: str, new: str, said: str, tmp_path: Path) -> None:
    text = WORKSPACE.space("squeeze-mobile").read_text()
    assert old in text
    path = tmp_path / "squeeze-mobile.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(InvalidFile) as caught:
        read_space(path)
    assert said in str(caught.value)


def test_the_stem_of_a_space_follows_its_frames() -> None:
    space = load_space(WORKSPACE, "squeeze-mobile")
    assert space.size() >= 1000
    stems = {part.blocks[0].key for part in space.parts(Precision.INT8) if part.blocks[0].kind == "squeeze-stem"}
    assert stems == {f"squeeze-stem_i3_o32_k1x5x5_s2_sf{frames}_p2_relu" for frames in (4, 8, 16)}


def test_a_table_belongs_to_a_space_by_the_stem_of_its_frames(tmp_path: Path) -> None:
    text = WORKSPACE.space("squeeze-mobile").read_text().replace("frames = [4, 8, 16]", "frames = 8")
    path = tmp_path / "squeeze-mobile.toml"
    path.write_text(text)
    of_eight = space_table(read_space(path), Precision.INT8)
    path.write_text(text.replace("frames = 8", "frames = 4"))
    assert belongs(load_space(WORKSPACE, "squeeze-mobile"), of_eight)
    assert not belongs(read_space(path), of_eight)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_file_is_one_delegate_and_runs(precision: str, tmp_path: Path, runner_cache: Path) -> None:
    one = Workload(BLOCKS, CLIP, Precision(precision))
    torch.manual_seed(0)
    module, example = workload_module(one)
    out = tmp_path / "squeeze.pte"
    report = get("executorch").build(module, (example,), one, out, [(example,)] * (precision == "int8")).delegation
    assert (report.delegates, dict(report.undelegated)) == (1, {})
    assert check_file(out, runner=choose_runner("executorch", runner_cache, None)).output.shape == (1, 5)
