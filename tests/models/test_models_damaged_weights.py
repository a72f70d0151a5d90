"""19-25: published weights that hold nothing, or not a number, are refused by the name of the tensor, in every form."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from hwbench.errors import InvalidFile
from hwbench.models import EfficientX3d, WeightsForm, network, read_published, translated
from hwbench.models.published import PublishedWeights
from hwbench.specs import BlockSpec, Network, TensorSpec

# Four stages as in X3D, fewer and narrower blocks: the names are what matters.
KEYS = (
    "stem_i3_o8_k1x3x3+5x1x1_s2_relu",
    *("x3d_i8_m16_o8_k3x3x3_s2_se8_swish", "x3d_i8_m16_o8_k3x3x3_swish"),
    *("x3d_i8_m16_o12_k3x3x3_s2_se8_swish", "x3d_i12_m16_o12_k3x3x3_swish", "x3d_i12_m16_o12_k3x3x3_se8_swish"),
    *("x3d_i12_m24_o16_k3x3x3_s2_se8_swish", "x3d_i16_m24_o16_k3x3x3_swish"),
    *("x3d_i16_m24_o20_k3x3x3_s2_se8_swish", "x3d_i20_m24_o20_k3x3x3_swish"),
    "head_i20_m48_d32_o7_kglobal_relu",
)
NETWORK = Network("zoo:test", tuple(BlockSpec.parse(key) for key in KEYS), TensorSpec(1, 3, 4, 64, 64))
# A layer of each kind under the names of each form: a convolution, the last layer, a normalisation in the middle of a
# branch and at its end, the stem's.
CONV = {
    WeightsForm.EFFICIENT: "s3.pathway0_res1.layers.conv_0.kernel.conv.weight",
    WeightsForm.VANILLA: "blocks.2.res_blocks.1.branch2.conv_a.weight",
    WeightsForm.PYSLOWFAST: "s3.pathway0_res1.branch2.a.weight",
}
SQUEEZE = {
    WeightsForm.EFFICIENT: "s3.pathway0_res2.layers.se.se.block.0",
    WeightsForm.VANILLA: "blocks.2.res_blocks.2.branch2.norm_b.1.block.0",
    WeightsForm.PYSLOWFAST: "s3.pathway0_res2.branch2.se.fc1",
}
LAST = {
    WeightsForm.EFFICIENT: "projection.model.weight",
    WeightsForm.VANILLA: "blocks.5.proj.weight",
    WeightsForm.PYSLOWFAST: "head.projection.weight",
}
NORM = {
    WeightsForm.EFFICIENT: "s3.pathway0_res1.layers.conv_0.kernel.bn",
    WeightsForm.VANILLA: "blocks.2.res_blocks.1.branch2.norm_a",
    WeightsForm.PYSLOWFAST: "s3.pathway0_res1.branch2.a_bn",
}
END = {
    WeightsForm.EFFICIENT: "s3.pathway0_res1.layers.conv_2.kernel.bn",
    WeightsForm.VANILLA: "blocks.2.res_blocks.1.branch2.norm_c",
    WeightsForm.PYSLOWFAST: "s3.pathway0_res1.branch2.c_bn",
}
Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def trained() -> Weights:
    """Weights with statistics and affine parameters such as training leaves."""
    torch.manual_seed(0)
    module = EfficientX3d.of(NETWORK.blocks)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.1)
    return module.state_dict()


@pytest.fixture(params=WeightsForm)
def form(request: pytest.FixtureRequest) -> WeightsForm:
    return WeightsForm(request.param)


@pytest.fixture
def weights(trained: Weights, form: WeightsForm) -> Weights:
    return translated(trained, form)


def saved(weights: Weights, folder: Path) -> Path:
    path = folder / "weights.pyth"
    torch.save({"model_state": weights}, path)
    return path


def refusal(weights: Weights, form: WeightsForm) -> str:
    with pytest.raises(InvalidFile) as caught:
        PublishedWeights(Path("weights.pyth"), "", form, weights).of(NETWORK)
    return str(caught.value)


def test_19_25_whole_weights_are_taken_without_a_word(weights: Weights, form: WeightsForm, tmp_path: Path) -> None:
    published = read_published(saved(weights, tmp_path))
    assert published.doubts == ()
    network(NETWORK).load_state_dict(published.of(NETWORK))
    # The other way round, the shortcut that vanilla X3D has no normalisation for gets an identity: no finding either.
    back = read_published(saved(translated(translated(weights, WeightsForm.VANILLA), form), tmp_path))
    assert back.doubts == ()
    back.of(NETWORK)


def test_19_25_what_no_trained_network_has_is_refused_by_name(
    weights: Weights, form: WeightsForm, tmp_path: Path
) -> None:
    norm = NORM[form]
    damages = {
        CONV[form]: ("all zero", lambda value: value.zero_()),
        f"{SQUEEZE[form]}.weight": ("all the same value", lambda value: value.fill_(0.25)),
        LAST[form]: ("not finite", lambda value: value[3:4, 7:8].fill_(float("nan"))),
        f"{norm}.weight": ("all zero", lambda value: value.zero_()),
        f"{norm}.bias": ("not finite", lambda value: value[:1].fill_(float("inf"))),
        f"{norm}.running_var": ("all zero", lambda value: value.zero_()),
        f"{END[form]}.running_var": ("negative variance", lambda value: value[:1].neg_()),
    }
    for name, (said, damage) in damages.items():
        damage(weights[name])
        assert f"{said}: " in refusal(weights, form), name
    with pytest.raises(InvalidFile, match=rf"weights\.pyth: damaged weights of zoo:test \(form {form}") as caught:
        read_published(saved(weights, tmp_path)).of(NETWORK)
    text = str(caught.value)
    for name, (said, _) in damages.items():
        assert re.search(rf"{said}: .*{re.escape(name)}", text), text


def test_19_25_without_its_last_layer_the_rest_is_looked_at(
    weights: Weights, form: WeightsForm, tmp_path: Path
) -> None:
    weights[LAST[form]].zero_()
    headless = read_published(saved(weights, tmp_path))
    assert not {*LAST.values()} & {*headless.of(NETWORK.with_classes(3), head=False)}
    with pytest.raises(InvalidFile, match=f"all zero: {re.escape(LAST[form])}"):
        headless.of(NETWORK)


def test_19_25_what_a_network_begins_with_is_told_and_taken(
    weights: Weights, form: WeightsForm, tmp_path: Path
) -> None:
    weights[f"{END[form]}.weight"].zero_()
    weights[f"{END[form]}.bias"].zero_()
    weights[f"{NORM[form]}.running_mean"].zero_()
    weights[f"{NORM[form]}.running_var"].fill_(1)
    weights[f"{SQUEEZE[form]}.bias"].zero_()
    published = read_published(saved(weights, tmp_path))
    published.of(NETWORK)
    assert {*published.doubts} == {
        f"all zero, as before training: its branch adds nothing: {END[form]}.weight",
        f"mean 0 and variance 1, as before training: has never seen data: {NORM[form]}.running_var",
        f"biases all zero, as before training: {SQUEEZE[form]}.bias",
    }


def test_19_25_numbers_of_another_kind_are_refused_by_name(weights: Weights, form: WeightsForm, tmp_path: Path) -> None:
    whole = dict(weights)
    for kind in (torch.complex64, torch.int32, torch.float8_e5m2, torch.bool):
        weights[CONV[form]] = whole[CONV[form]].to(kind)
        assert re.search(rf"other shape: {re.escape(CONV[form])}: .* got .* {kind}", refusal(weights, form))
    for odd in (whole[CONV[form]].to_sparse(), whole[CONV[form]].to("meta")):
        weights[CONV[form]] = odd
        assert f"other shape: {CONV[form]}" in refusal(weights, form)
        assert PublishedWeights(Path("weights.pyth"), "", form, weights).doubts == ()
    counter = f"{NORM[form]}.num_batches_tracked"
    weights = {**whole, counter: torch.tensor(0.5)}
    assert f"other shape: {counter}: expected (), got () torch.float32" in refusal(weights, form)
    for kind in (torch.float64, torch.float16, torch.bfloat16):
        given = {name: value.to(kind) if value.is_floating_point() else value for name, value in whole.items()}
        made = read_published(saved(given, tmp_path)).of(NETWORK)
        network(NETWORK).load_state_dict(made)


def test_19_25_every_tensor_is_told_however_many(weights: Weights, form: WeightsForm) -> None:
    """More groups of names than lines, and groups with gaps: the message gives each of the names back."""
    gone = {name for name in weights if re.search(r"bn|norm_[abc]", name) and not name.endswith("tracked")}
    gone -= {name for name in gone if re.search(r"res(_blocks\.|)2", name)}
    zeroed = {name for name in weights if re.search(r"(fc1|block\.0)\.weight", name)} - gone
    for name in zeroed:
        weights[name].zero_()
    text = refusal({name: value for name, value in weights.items() if name not in gone}, form)
    assert len(text.splitlines()) < 12
    told = {"missing": set[str](), "all zero": set[str]()}
    for line in text.splitlines()[1:]:
        kind, names = re.sub(r"; nearest in the file: \S+", "", line.strip()).split(": ", 1)
        told[kind] |= expanded(re.sub(r"^and \d+ more: ", "", names))
    assert told == {"missing": gone, "all zero": zeroed}


def expanded(text: str) -> set[str]:
    """The names that a line of the message stands for."""
    names = set()
    for part in text.split("; "):
        match = re.fullmatch(r"(\S+)(?: \((\d+) such: (\S+), \* = (.*)\))?", part)
        assert match is not None, part
        names.add(match[1])
        found = set()
        for row in (match[4] or "").split(", ") if match[4] else []:
            *fixed, last = row.split("/")
            first, _, end = last.partition("-")
            for number in range(int(first), int(end or first) + 1):
                found.add(match[3].replace("*", "{}").format(*fixed, number))
        assert match[2] is None or len(found) == int(match[2])
        names |= found
    return names
