"""``hwbench export`` of models from elsewhere: what works, and one clear sentence for what does not."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hwbench.api.export_sources import SourceArguments, open_source
from hwbench.api.listener import Listener
from hwbench.blocks import frames_to_batch
from hwbench.cli.main import main
from hwbench.data import SYNTHETIC, ClipSpec, default_clip
from hwbench.deploy import DeployedModel, ExportSource, external_model, foreign_original, is_external
from hwbench.deploy.external import ForeignModel
from hwbench.errors import InvalidFile, UnsupportedModule
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.training.checkpoint import Checkpoint, save_checkpoint
from hwbench.training.recipe import Recipe
from hwbench.workspace import Workspace

CODE = """
import threading

import torch
from torch import nn

def small():
    return nn.Sequential(nn.Conv3d(3, 8, 3, 2, 1), nn.BatchNorm3d(8), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten())

def number():
    return 3

def features():
    return nn.Conv3d(3, 8, 3)

def classified(num_classes):
    return nn.Sequential(nn.Conv3d(3, num_classes, 1), nn.AdaptiveAvgPool3d(1), nn.Flatten())

def halved():
    return small().bfloat16()

def locked():
    model = small()
    model[0].lock = threading.Lock()
    return model

made = locked()

def on_meta():
    return small().to("meta")

class Mean(nn.Module):
    def forward(self, x):
        return x.mean((2, 3, 4))

class Floats(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 8, 1)
    def forward(self, x):
        return self.conv(x.float()).mean((2, 3, 4))

class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.conv = nn.Linear(8, 8), nn.Conv3d(3, 8, 1)
    def forward(self, x):
        return self.state(torch.zeros(len(x), 8)) + self.conv(x).mean((2, 3, 4))

class Means(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 8, 1)
    def forward(self, x):
        return self.last(self.conv(x).mean((2, 3, 4)))

class Products(Means):
    def last(self, x):
        return torch.baddbmm(torch.zeros(1, 1, 8), x[None], torch.eye(8)[None])[0]

class Sums(Means):
    def last(self, x):
        return x.index_add(1, torch.arange(8), torch.ones(len(x), 8))

class Slopes(Means):
    def last(self, x):
        return nn.functional.prelu(x, torch.full((1,), 0.25))

class Recurrent(Means):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 8)
    def last(self, x):
        return self.lstm(x.float())[0]

class Strict(Means):
    def last(self, x):
        if x.dtype != torch.float32:
            raise KeyError("numbers of four bytes, please")
        return x

class Classes(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.conv, self.last = nn.Conv3d(3, 8, 1), nn.Linear(8, num_classes)
    def forward(self, x):
        return self.last(self.conv(x).mean((2, 3, 4)))

def normalised():
    return small()

normalised.input_mean, normalised.input_std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

def halfway():
    return small()

halfway.input_mean = (0.5, 0.5, 0.5)

def flat():
    return small()

flat.input_mean, flat.input_std = (0, 0, 0), (1, 1, 0)

class Summed(nn.Module):
    def forward(self, x):
        return x.mean((2, 3, 4)) * torch.einsum("nct->n", x[..., 0, 0])

class OneClip(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm3d(3)
    def forward(self, x):
        return self.norm(x).mean((2, 3, 4)).reshape(1, 3)

class Inside(OneClip):
    input_mean, input_std = (0, 0, 0), [1, 1, 1]

def shrunk():
    return nn.Sequential(nn.Hardshrink(), nn.AdaptiveAvgPool3d(1), nn.Flatten())

def broken():
    raise RuntimeError("no such luck")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Workspace.create(tmp_path / "workspace").root
    (folder / "handmade_nets.py").write_text(CODE)
    monkeypatch.chdir(folder)
    torch.set_num_threads(1)
    return folder


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["export", *arguments])
    return int(end.value.code or 0)


def test_a_model_of_the_users_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    weights = nn.Sequential(nn.Conv3d(3, 8, 3, 2, 1), nn.BatchNorm3d(8)).state_dict()
    torch.save(weights, folder / "weights.pt")
    clip = ("--input", "1x3x4x16x16", "--precision", "fp32", "--json")
    assert run("handmade_nets:small", *clip, "--weights", "weights.pt", "--out", "out") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["architecture"], said["weights"], said["delegates"]) == ("handmade_nets:small", "file", 1)
    manifest = DeployedModel.open(folder / "out").manifest
    assert manifest.input.shape == (4, 3, 16, 16)
    assert manifest.architecture.blocks == ()
    assert manifest.parity.max_relative_error < 1e-5


@pytest.mark.parametrize(
    ("words", "clip", "told"),
    [
        (("--stride", "2"), ClipSpec(4, stride=2), "each 2 after the one before"),
        (("--span", "500ms"), ClipSpec(4, span_s=0.5), "evenly over 0.5 s"),
    ],
)
def test_the_clips_of_a_model_of_the_users_own_are_cut_as_it_is_asked_for(
    words: tuple[str, str], clip: ClipSpec, told: str, folder: Path
) -> None:
    torch.save(nn.Sequential(nn.Conv3d(3, 8, 3, 2, 1), nn.BatchNorm3d(8)).state_dict(), folder / "weights.pt")
    given = ("--input", "1x3x4x16x16", "--precision", "fp32", "--weights", "weights.pt", "--out", "out")
    assert run("handmade_nets:normalised", *given, *words) == 0
    form = DeployedModel.open(folder / "out").manifest.input
    assert form.clip == clip
    assert form.values.endswith("assumed, as the model does not tell: how frames are cut")
    assert told in (folder / "out" / "RUN.md").read_text()


@pytest.mark.parametrize(
    ("net", "words"),
    [
        ("Products", "Input dtypes must be the same"),
        ("Sums", "must have the same scalar type"),
        ("Slopes", "Type promoting not supported"),
        ("Recurrent", "does not match weight dtype"),
        ("Strict", "numbers of four bytes, please"),
    ],
)
def test_a_model_that_takes_a_clip_in_its_own_dtype_alone_fixes_a_dtype_whatever_torch_says(
    net: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = ("--input", "1x3x4x16x16", "--precision", "fp32", "--out", "out")
    assert run(f"handmade_nets:{net}", *clip) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hwbench: ")]
    assert f" {net}: its forward fixes a dtype, and hwbench proves in double precision (" in line
    assert words in line
    assert "write x.to(self.fc.weight.dtype) in place of x.float()" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("handmade_nets:smal", "--input", "1x3x4x16x16"), "did you mean 'small'"),
        (("handmade_nets:small",), "--input NxCxTxHxW"),
        (("handmade_nets:small", "--input", "4x16x16"), "expected NxCxTxHxW"),
        (("handmade_nets:small", "--input", "2x3x4x16x16"), "one clip of three colours"),
        (("handmade_nets:small", "--input", "1x3x4x16x16", "--weights", "none.pt"), "which is no file"),
        (("handmade_nets:small", "--input", "1x3x4x16x16", "--weights", "handmade_nets.py"), "the state dict of this"),
        (("handmade_nets:small", "--input", "1x3x4x16x16", "--classes", "3"), "makes its own head"),
        (("handmade_nets:number", "--input", "1x3x4x16x16"), "expected a torch.nn.Module, got int"),
        (("handmade_nets:broken", "--input", "1x3x4x16x16"), "RuntimeError: no such luck"),
        (("handmade_nets:features", "--input", "1x3x4x16x16"), "expected logits"),
        (("handmade_nets:shrunk", "--input", "1x3x4x16x16", "--precision", "fp32"), "(Hardshrink)"),
        (
            ("handmade_nets:locked", "--input", "1x3x4x16x16", "--precision", "fp32"),
            "its attribute 0.lock cannot be copied",
        ),
        (("handmade_nets:made", "--input", "1x3x4x16x16"), "its attribute 0.lock cannot be copied"),
        (("handmade_nets:on_meta", "--input", "1x3x4x16x16"), "on the meta device"),
        (("handmade_nets:OneClip", "--input", "1x3x4x16x16", "--weights", "random"), "but no batch of 2"),
        (("handmade_nets:small", "--input", "1x3x100000x400000x400000"), "no memory for a clip"),
        (
            ("handmade_nets:Floats", "--input", "1x3x4x16x16", "--precision", "fp32"),
            "Floats: its forward fixes a dtype, and hwbench proves in double precision (Input type",
        ),
        (("handmade_nets:Kept", "--input", "1x3x4x16x16", "--precision", "fp32"), "and x.new_zeros(...) in place of"),
        (("handmade_nets:halfway", "--input", "1x3x4x16x16"), "expected input_mean and input_std, three numbers each"),
        (("handmade_nets:flat", "--input", "1x3x4x16x16"), "those of input_std above 0; got (0, 0, 0) and (1, 1, 0)"),
        (("handmade_nets:small", "--input", "1x3x4x16x16", "--span", "2"), "--span: '2' has no unit"),
        (("handmade_nets:small", "--input", "1x3x4x16x16", "--span", "2s", "--stride", "3"), "not both"),
        (("torchvision:r3d_8", "--weights", "random"), "did you mean 'r3d_18'"),
        (("torchvision:r3d_18",), "without weights"),
        (("torchvision:s3d", "--weights", "random", "--input", "1x3x8x64x64"), "does not take a clip of 1x3x8x64x64"),
        (("zoo:x3d-xs", "--weights", "random", "--input", "1x3x4x64x64"), "--input"),
        (("zoo:x3d-xs", "--weights", "random", "--stride", "2"), "--stride: zoo:x3d-xs has an input of its own"),
        (("nowhere:thing", "--input", "1x3x4x64x64"), "unknown architecture 'nowhere:thing'"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    arguments: tuple[str, ...], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments, "--out", "out") == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hwbench: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert not (folder / "out").exists()


def test_what_the_delegate_leaves_outside_is_said_of_the_model_by_its_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("handmade_nets:Summed", "--input", "1x3x4x16x16", "--precision", "fp32", "--out", "out") != 0
    assert "hwbench: handmade_nets:Summed: outside the delegate: 1 x aten.sum" in capsys.readouterr().err


class Own(nn.Module):
    """Has names that begin as those of a wrapper do."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Conv3d(3, 8, 1), nn.BatchNorm3d(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).mean((2, 3, 4))


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("key", [None, "state_dict", "model"])
def test_weights_in_the_wrappings_of_trainers(prefix: str, key: str | None, tmp_path: Path) -> None:
    weights = Own().state_dict()
    values = {f"{prefix}{name}": value for name, value in weights.items()}
    torch.save(values if key is None else {key: values, "epoch": 3}, tmp_path / "weights.pt")
    clip, spec = default_clip(SYNTHETIC, 2), TensorSpec(1, 3, 2, 4, 4)
    source = foreign_original(ForeignModel("own", Own()), clip, spec, tmp_path / "weights.pt", None)
    assert all(torch.equal(value, weights[name]) for name, value in source.module.state_dict().items())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"a": Own().state_dict(), "b": Own().state_dict()},
            "it should have 'model.0.weight', .* and 4 more; the file",
        ),
        (
            {"a": Own().state_dict(), "b": Own().state_dict()},
            "file has 'a', 'b', a state dict may be one of model_state",
        ),
        (
            nn.ModuleDict({"model": nn.Conv3d(3, 8, 1)}).state_dict(),
            "it should have .*; the file has 'model.weight', 'm",
        ),
        (
            {**Own().state_dict(), "model.2.weight": torch.ones(2)},
            "not of this network: model.2.weight$",
        ),
    ],
)
def test_what_is_wrong_with_a_state_dict_is_told(values: dict[str, object], said: str, tmp_path: Path) -> None:
    torch.save(values, tmp_path / "weights.pt")
    clip, spec = default_clip(SYNTHETIC, 2), TensorSpec(1, 3, 2, 4, 4)
    with pytest.raises(InvalidFile, match=f"weights.pt: not the state dict of this model: .*{said}"):
        foreign_original(ForeignModel("own", Own()), clip, spec, tmp_path / "weights.pt", None)


def test_a_state_dict_of_other_classes_names_the_option(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(external_model("handmade_nets:Classes", 7).module.state_dict(), folder / "weights.pt")
    clip = ("--input", "1x3x4x16x16", "--precision", "fp32", "--weights", "weights.pt", "--out", "out")
    assert run("handmade_nets:Classes", *clip) == 2
    said = "other shape: last.weight: expected (5, 8), got (7, 8) and 1 more; where it has another number of classes"
    assert f"{said}, say how many: --classes N" in capsys.readouterr().err
    assert run("handmade_nets:Classes", *clip, "--classes", "7") == 0


class PerFrame(Own):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).mean((3, 4)).transpose(1, 2).flatten(0, 1)


def test_a_row_of_logits_for_each_frame_is_refused() -> None:
    clip, spec = default_clip(SYNTHETIC, 2), TensorSpec(1, 3, 2, 4, 4)
    with pytest.raises(UnsupportedModule, match=r"^own: expected .*, it returns \(2, 8\); take the mean over frames$"):
        foreign_original(ForeignModel("own", PerFrame()), clip, spec, None, None)


def test_weights_that_would_run_code(tmp_path: Path) -> None:
    torch.save(Own(), tmp_path / "weights.pt")
    clip, spec = default_clip(SYNTHETIC, 2), TensorSpec(1, 3, 2, 4, 4)
    with pytest.raises(InvalidFile, match="reading those would run code") as caught:
        foreign_original(ForeignModel("own", Own()), clip, spec, tmp_path / "weights.pt", None)
    assert "weights_only" not in str(caught.value)


def opened(name: str, listener: Any, weights: str | None = None) -> ExportSource:
    """A model from elsewhere as something to export."""
    given = SourceArguments(weights=weights, input=TensorSpec(1, 3, 4, 16, 16))
    return open_source(Workspace(Path.cwd()), name, given, listener)


def test_mean_and_std_are_those_of_the_function_or_assumed_aloud(folder: Path) -> None:
    said: list[str] = []

    class Heard(Listener):
        def say(self, text: str) -> None:
            said.append(text)

    own = opened("handmade_nets:normalised", Heard()).normalisation
    assert (own.mean, own.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert opened("handmade_nets:Inside", Heard()).normalisation.std == (1, 1, 1)
    opened("handmade_nets:small", Heard(), "random")
    assert said == []
    source = opened("handmade_nets:small", Heard())
    (line,) = said
    assert line.startswith(
        "handmade_nets:small: mean and std of its clips are assumed, 0.45 and 0.225; give the function"
    )
    assert source.assumed == ("mean and std", "how frames are cut", "how far apart frames are")


def test_a_checkpoint_of_hwbench_is_no_state_dict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = Network("own", (BlockSpec("foreign", 3, 8),), TensorSpec(1, 3, 4, 16, 16))
    checkpoint = Checkpoint(network, tuple("abcdefgh"), Recipe(), ClipSpec(4, stride=2))
    weights = external_model("handmade_nets:small").module.state_dict()
    save_checkpoint(folder / "own run.pt", checkpoint, weights)
    clip = ("--input", "1x3x4x16x16", "--precision", "fp32", "--out", "out")
    assert run("handmade_nets:small", *clip, "--weights", "own run.pt") == 2
    said = (
        "--weights: own run.pt is a checkpoint of hwbench, with classes, clip and normalisation of its own; export it: "
    )
    assert f"{said}hwbench export 'own run.pt' --made-by handmade_nets:small" in capsys.readouterr().err


def test_names_are_told_apart(folder: Path) -> None:
    assert is_external("torchvision:r3d_18")
    assert is_external("handmade_nets:small")
    assert not any(map(is_external, ("zoo:json", "json:best", "x3d-tiny:frames=8", "nowhere:thing", "json", "a b:c")))


def test_a_model_that_takes_the_number_of_classes_is_told_it(folder: Path) -> None:
    assert external_model("handmade_nets:classified", 6).module[0].out_channels == 6


@pytest.mark.parametrize("function", ["halved", "Mean"])
def test_another_type_of_numbers_and_no_parameters(function: str, folder: Path) -> None:
    spec = TensorSpec(1, 3, 4, 16, 16)
    model = external_model(f"handmade_nets:{function}")
    source = foreign_original(model, default_clip(SYNTHETIC, 4), spec, None, seed=0)
    with torch.no_grad():
        x = torch.randn(spec.shape)
        torch.testing.assert_close(source.deployed()(frames_to_batch(x)), source.module(x), rtol=1e-4, atol=1e-5)


def test_a_torchvision_model_knows_its_clip_and_normalisation() -> None:
    model = external_model("torchvision:s3d", 7)
    assert model.input is not None
    assert model.input.key == "1x3x16x224x224"
    assert model.normalisation.mean == pytest.approx((0.43216, 0.394666, 0.37645))
    assert model.picture.test_scale == 256 / 224
    assert model.scaled_to == (256, 256)
    with torch.no_grad():
        assert model.module.eval()(torch.zeros(1, 3, 14, 224, 224)).shape == (1, 7)
