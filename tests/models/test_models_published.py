"""Published weights: three forms of names, both ways, and what is said where they do not fit."""

import io
import pickle
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from hwbench.errors import InvalidFile, InvalidValue
from hwbench.models import (
    EfficientX3d,
    VanillaX3d,
    WeightsForm,
    create_x3d,
    form_of,
    network,
    read_published,
    translated,
    vanilla_from_efficient,
    x3d_blocks,
)
from hwbench.specs import BlockSpec, Network, TensorSpec

NETWORK = Network("zoo:test", x3d_blocks("XS", 7), TensorSpec(1, 3, 4, 64, 64))
X = torch.randn(2, 3, 3, 45, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
# How a file wraps weights does not depend on their form: make test has each of both, make test-long all pairs.
FILES = [
    pytest.param(wrap, form, marks=() if wrap == "bare" or form is WeightsForm.VANILLA else pytest.mark.long)
    for wrap in ("bare", "model_state", "state_dict")
    for form in WeightsForm
]


def settled(module: nn.Module) -> nn.Module:
    """Every statistic and every affine parameter of a norm is a number of its own."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.1)
    return module.eval()


@pytest.fixture(scope="module")
def efficient() -> EfficientX3d:
    torch.manual_seed(0)
    module = settled(EfficientX3d(num_classes=7)).double()
    assert isinstance(module, EfficientX3d)
    return module


@pytest.fixture(scope="module")
def weights(efficient: EfficientX3d) -> dict[str, torch.Tensor]:
    return efficient.state_dict()


def loaded(weights: dict[str, torch.Tensor]) -> nn.Module:
    """The network whose names they are, with these weights."""
    module = create_x3d(num_classes=7) if form_of(weights) is WeightsForm.VANILLA else EfficientX3d(num_classes=7)
    module.load_state_dict(weights)
    return module.double().eval()


# Names of PySlowFast, written out from its modules (stem_helper, resnet_helper, head_helper, operators).
PYSLOWFAST = {
    "s1.pathway0_stem.conv_xy.weight": (24, 3, 1, 3, 3),
    "s1.pathway0_stem.conv.weight": (24, 1, 5, 1, 1),
    "s1.pathway0_stem.bn.running_var": (24,),
    "s2.pathway0_res0.branch1.weight": (24, 24, 1, 1, 1),
    "s2.pathway0_res0.branch1_bn.weight": (24,),
    "s3.pathway0_res4.branch2.a.weight": (108, 48, 1, 1, 1),
    "s3.pathway0_res4.branch2.a_bn.bias": (108,),
    "s3.pathway0_res4.branch2.b.weight": (108, 1, 3, 3, 3),
    "s3.pathway0_res4.branch2.b_bn.num_batches_tracked": (),
    "s3.pathway0_res4.branch2.se.fc1.weight": (8, 108, 1, 1, 1),
    "s3.pathway0_res4.branch2.se.fc2.bias": (108,),
    "s5.pathway0_res6.branch2.c.weight": (192, 432, 1, 1, 1),
    "s5.pathway0_res6.branch2.c_bn.running_mean": (192,),
    "head.conv_5.weight": (432, 192, 1, 1, 1),
    "head.conv_5_bn.weight": (432,),
    "head.lin_5.weight": (2048, 432, 1, 1, 1),
    "head.projection.weight": (7, 2048),
    "head.projection.bias": (7,),
}


def test_three_forms(efficient: EfficientX3d, weights: dict[str, torch.Tensor]) -> None:
    made = {form: translated(weights, form) for form in WeightsForm}
    assert {form: form_of(names) for form, names in made.items()} == {form: form for form in WeightsForm}
    assert {form: len(names) for form, names in made.items()} == {"efficient-x3d": 568, "x3d": 563, "pyslowfast": 568}
    with torch.device("meta"):
        assert made[WeightsForm.VANILLA].keys() == create_x3d(num_classes=7).state_dict().keys()
    assert {name: tuple(made[WeightsForm.PYSLOWFAST][name].shape) for name in PYSLOWFAST} == PYSLOWFAST
    with torch.no_grad():
        expected = efficient(X)
        for form in WeightsForm:
            for target in (WeightsForm.VANILLA, WeightsForm.EFFICIENT):
                module = loaded(translated(made[form], target))
                assert isinstance(module, VanillaX3d if target is WeightsForm.VANILLA else EfficientX3d)
                torch.testing.assert_close(module(X), expected, rtol=1e-10, atol=1e-10)
    made[WeightsForm.EFFICIENT]["projection.model.bias"].zero_()
    assert weights["projection.model.bias"].any()


def test_there_and_back_is_the_same_to_the_bit() -> None:
    torch.manual_seed(1)
    vanilla = settled(create_x3d(num_classes=7)).state_dict()
    for through in (WeightsForm.EFFICIENT, WeightsForm.PYSLOWFAST):
        back = translated(translated(vanilla, through), WeightsForm.VANILLA)
        assert back.keys() == vanilla.keys()
        assert all(torch.equal(back[name], vanilla[name]) for name in vanilla)


def test_names_of_nothing_known(weights: dict[str, torch.Tensor]) -> None:
    with pytest.raises(InvalidValue, match="no weights of an X3D"):
        form_of(["fc.weight"])
    with pytest.raises(InvalidValue, match=r"s9\.other\.weight.*form efficient-x3d"):
        translated({**weights, "s9.other.weight": torch.zeros(1)}, WeightsForm.PYSLOWFAST)
    separable = network(
        Network(
            "small",
            tuple(
                BlockSpec.parse(key)
                for key in (
                    "stem_i3_o8_k1x3x3+5x1x1_s2_relu",
                    "x3d_i8_m16_o16_k1x3x3+3x1x1_s2_relu",
                    "head_i16_m48_d32_o6_kglobal_relu",
                )
            ),
            TensorSpec(1, 3, 4, 32, 32),
        )
    )
    with pytest.raises(InvalidValue, match=r"conv_1\.conv_xy"):
        vanilla_from_efficient(separable.state_dict())


def file_of(values: object, path: Path, **options: bool) -> Path:
    torch.save(values, path, **options)
    return path


@pytest.mark.parametrize(("wrap", "form"), FILES)
def test_a_file(
    form: WeightsForm, wrap: str, weights: dict[str, torch.Tensor], efficient: EfficientX3d, tmp_path: Path
) -> None:
    values: object = {name: tensor.float() if tensor.is_floating_point() else tensor
                      for name, tensor in translated(weights, form).items()}  # fmt: skip
    if wrap == "model_state":
        values = {"epoch": 3, wrap: values, "optimizer_state": {"state": {}}, "cfg": "MODEL:\n  ARCH: x3d\n"}
    elif wrap == "state_dict":
        values = {wrap: {f"model.{name}": tensor for name, tensor in values.items()}}  # type: ignore[attr-defined]
    # old files are no archives
    path = file_of(values, tmp_path / "x3d.pyth", _use_new_zipfile_serialization=wrap != "model_state")
    published = read_published(path)
    assert published.form is form
    assert published.num_classes == 7
    assert len(published.sha256) == 64
    module = network(NETWORK)
    module.load_state_dict(published.of(NETWORK))
    with torch.no_grad():
        torch.testing.assert_close(module.eval()(X.float()).double(), efficient(X), rtol=1e-3, atol=1e-4)
    headless = published.of(NETWORK.with_classes(3), head=False)
    assert {*published.of(NETWORK)} - {*headless} == {"projection.model.weight", "projection.model.bias"}


def test_counters_may_be_missing(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    bare = {name: tensor for name, tensor in weights.items() if not name.endswith("num_batches_tracked")}
    made = read_published(file_of(bare, tmp_path / "x")).of(NETWORK)
    assert made.keys() == weights.keys()
    assert made["s1.pathway0_stem_conv.kernel.bn.num_batches_tracked"] == 0


def test_a_path_may_be_text(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = file_of(weights, tmp_path / "x")
    published = read_published(str(path))
    assert (published.path, published.sha256) == (path, read_published(path).sha256)
    with pytest.raises(InvalidFile, match="missing"):
        read_published(f"{tmp_path}/missing")


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module._orig_mod.", "model.module.", "model._orig_mod."])
@pytest.mark.parametrize("key", [None, "model"])
def test_wrapped_names(prefix: str, key: str | None, weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    values: object = {"n_averaged": torch.tensor(3)} | {f"{prefix}{name}": tensor for name, tensor in weights.items()}
    values = values if key is None else {key: values, "optimizer": {}}
    assert read_published(file_of(values, tmp_path / "x")).of(NETWORK).keys() == weights.keys()


def test_what_a_trainer_holds_beside_the_network(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    values = {f"model._orig_mod.{name}": tensor for name, tensor in weights.items()}
    values |= {"loss.weight": torch.ones(3), "top1.correct": torch.tensor(0)}
    file = file_of({"state_dict": values, "pytorch-lightning_version": "2.5"}, tmp_path / "x")
    assert read_published(file).of(NETWORK).keys() == weights.keys()


@pytest.mark.parametrize("kind", [torch.float16, torch.float64, torch.int32])
def test_counters_of_any_kind_of_numbers(kind: torch.dtype, weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    counters = {name: torch.tensor(400_000) for name in weights if name.endswith("num_batches_tracked")}
    cast = {name: value.to(kind) for name, value in counters.items()}
    made = read_published(file_of(weights | cast, tmp_path / "x")).of(NETWORK)
    assert {made[name].dtype for name in counters} == {torch.long}
    if kind is not torch.float16:  # there it is infinite
        assert all(torch.equal(made[name], value) for name, value in counters.items())


@pytest.mark.parametrize("form", WeightsForm)
def test_the_difference_is_readable(form: WeightsForm, weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    made = translated(weights, form)
    gone = [name for name in made if re.search(r"(block\.0|fc1)\.weight", name)]
    assert len(gone) == 15
    for name in gone:
        del made[name]
    renamed = next(name for name in made if re.search(r"head.conv_5.*weight|pre_conv", name))
    made[f"{renamed}s"] = made.pop(renamed)
    first = next(iter(made))
    made[first] = made[first][:5]
    last = next(name for name in made if re.search(r"projection.*bias|blocks.5.proj.bias", name))
    made[last] = made[last].to(torch.int8)
    published = read_published(file_of({"model_state": made}, tmp_path / "x3d.pyth"))
    with pytest.raises(InvalidFile) as caught:
        published.of(NETWORK)
    text = str(caught.value)
    assert "x3d.pyth: weights of another network than zoo:test" in text
    assert f"missing: {gone[0]} (15 such: " in text
    assert "*" in text
    assert f"missing: {renamed}; nearest in the file: {renamed}s" in text
    assert f"not of this network: {renamed}s" in text
    assert f"other shape: {first}: expected (24, 3, 1, 3, 3), got (5, 3, 1, 3, 3)" in text
    assert f"other shape: {last}: expected (7,), got (7,) torch.int8" in text
    assert len(text.splitlines()) < 12


def test_another_network_is_told_in_a_few_lines(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    published = read_published(file_of(weights, tmp_path / "x3d.pyth"))
    deep = Network("zoo:deep", x3d_blocks("L", 400), NETWORK.input)
    with pytest.raises(InvalidFile) as caught:
        published.of(deep)
    text = str(caught.value)
    assert "missing" in text
    assert "other shape: projection.model.weight: expected (400, 2048), got (7, 2048)" in text
    assert len(text.splitlines()) < 24


class Thing:
    """Not a tensor."""


def test_files_that_are_refused(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    scripted = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # torch calls TorchScript deprecated
        torch.jit.save(torch.jit.trace(nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2)), scripted)
    headless = {name: tensor for name, tensor in weights.items() if "projection" not in name}
    files = {
        "objects": (_bytes({"model_state": weights, "cfg": Thing()}), "not opened, it holds objects other than plain"),
        "whole module": (_bytes(nn.Linear(2, 2)), "not opened, it holds objects other than plain"),
        "bare pickle": (pickle.dumps(Thing()), "damaged, or another kind of file|not opened"),
        "scripted": (scripted.getvalue(), "a TorchScript program, not weights"),
        "text": (b"junk\n", r"damaged, or another kind of file(;| \((?![0-9]+\)))"),
        "cut": (_bytes(weights)[:3000], "damaged, or another kind of file"),
        "list": (_bytes([1]), "holds a list"),
        "empty": (_bytes({}), "is empty"),
        "numbers": (_bytes({"model_state": {"a": 1}}), "holds a;"),
        "other": (_bytes({"fc.weight": torch.zeros(1)}), "no weights of an X3D.*got fc.weight"),
    }
    for name, (data, said) in files.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(InvalidFile, match=said) as caught:
            read_published(path)
        assert str(path) in str(caught.value)
        assert "weights_only" not in str(caught.value)
    with pytest.raises(InvalidFile, match="No such file"):
        read_published(tmp_path / "none")
    last = {"projection.model.weight": torch.tensor(1.0)}
    for name, given in {"headless": headless, "scalar": weights | last}.items():
        with pytest.raises(InvalidFile, match="no last layer"):
            _ = read_published(file_of(given, tmp_path / name)).num_classes


def _bytes(values: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()
