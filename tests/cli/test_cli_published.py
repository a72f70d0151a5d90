"""Published weights on the command line: exported, and trained on."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from hwbench.cli.main import main
from hwbench.data import ClipSpec, PictureSpec, Resize, SyntheticSpec, TestTransform
from hwbench.data.synthetic import prepare
from hwbench.deploy import DeployedModel
from hwbench.models import WeightsForm, network, read_published, translated
from hwbench.spaces import load_card, resolve
from hwbench.training import load_checkpoint
from hwbench.workspace import Workspace, shipped

SPEC = SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=16)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, runner_cache: Path) -> Iterator[Workspace]:
    """One with a card of its own, small videos of eight classes, and weights in all forms for 8 and for 5 classes."""
    torch.set_num_threads(1)
    made = Workspace.create(tmp_path_factory.mktemp("published") / "workspace")
    made.cache.symlink_to(runner_cache)
    card = (shipped() / "zoo" / "x3d-xs" / "model.toml").read_text()
    for before, after in (
        ('name = "x3d-xs"', 'name = "x3d-mini"'),
        ("resolution = 160", "resolution = 32"),
        ("sample_rate = 12", "sample_rate = 3"),
        ("depths = [3, 5, 11, 7]", "depths = [1]"),
        ("widths = [24, 48, 96, 192]", "widths = [8]"),
        ("hidden = 2048", "hidden = 64"),
        ("stem_width = 24", "stem_width = 8"),
    ):
        assert before in card
        card = card.replace(before, after)
    path = made.root / "zoo" / "x3d-mini" / "model.toml"
    path.parent.mkdir(parents=True)
    path.write_text(card)
    prepare(made, SPEC).rename(made.root / "videos")
    for classes in (8, 5):
        torch.manual_seed(classes)
        module = network(resolve(made, "zoo:x3d-mini", classes)).train()
        with torch.no_grad():
            for _ in range(30):  # statistics that the network has in use
                module(torch.randn(4, 3, 4, 32, 32))
        nn.init.normal_(module.projection.model.weight, std=0.3)
        for form in WeightsForm:
            torch.save({"model_state": translated(module.state_dict(), form)}, made.root / f"{form}-{classes}.pyth")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.root)
        yield made


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = 0
    try:
        main([*map(str, arguments)])
    except SystemExit as end:
        status = int(end.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


def test_an_export_is_measured_with_classes_in_the_order_of_the_data(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(
        capsys, "export", "zoo:x3d-mini", "--weights", "x3d-8.pyth", "--precision", "int8", "--calibrate", "videos",
        "--out", "made", "--threads", 1, "--json",
    )  # fmt: skip
    assert status == 0, err
    values = json.loads(out)
    assert values["weights"] == "published:x3d"
    assert 0 <= values["top1_before"] <= 1
    assert values["videos"] == 8
    assert "in the order of the logits they were taken to be those of videos" in values["top1_reason"]
    assert values["undelegated"] == {}
    manifest = DeployedModel.open(workspace.root / "made").manifest
    assert manifest.weights.sha256 == read_published(workspace.root / "x3d-8.pyth").sha256
    assert manifest.labels == ()
    assert manifest.input.clip.stride == load_card(workspace, "x3d-mini").sample_rate == 3
    assert manifest.architecture.network().num_classes == 8


def test_another_number_of_classes_has_no_accuracy(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    export = ("export", "zoo:x3d-mini", "--weights", "pyslowfast-5.pyth", "--out", "five", "--threads", 1, "--json")
    status, out, err = run(capsys, *export, "--precision", "fp32", "--data", "videos")
    assert status == 0, err
    values = json.loads(out)
    assert values["weights"] == "published:pyslowfast"
    assert (values["top1_before"], values["top1_after"]) == (None, None)
    assert values["top1_reason"] == "the weights have 5 classes without names, videos has 8"
    assert values["max_abs_error"] < 1e-3
    assert run(capsys, *export)[0] == 5  # int8 without data
    status, _, err = run(capsys, *export, "--classes", 8)
    assert status == 2
    assert "has 5 classes, got 8" in err


def test_training_begins_with_them(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    train = ("train", "zoo:x3d-mini", "--data", "videos", "--epochs", 1, "--lr", 1e-9, "--threads", 1, "--json")
    status, out, err = run(capsys, *train, "--weights", "efficient-x3d-8.pyth", "--out", "tuned")
    assert status == 0, err
    checkpoint, weights = load_checkpoint(Path(json.loads(out)["checkpoint"]))
    stored = torch.load("efficient-x3d-8.pyth", weights_only=True)["model_state"]
    for name in ("s2.pathway0_res0.layers.conv_1.kernel.conv.weight", "projection.model.weight"):
        torch.testing.assert_close(weights[name], stored[name], rtol=0, atol=1e-6)
    assert read_published(workspace.root / "efficient-x3d-8.pyth").sha256 in checkpoint.facts["weights"]
    # the same run without them is another one
    status, _, err = run(capsys, *train, "--out", "tuned")
    assert status == 2
    assert "weights: sha256" in err
    status, _, err = run(capsys, *train, "--weights", "x3d-5.pyth", "--out", "headless")
    assert status == 2
    assert "has 5 classes, videos has 8; add --new-head" in err
    status, out, err = run(capsys, *train, "--weights", "x3d-5.pyth", "--new-head", "--out", "headless")
    assert status == 0, err
    checkpoint, weights = load_checkpoint(Path(json.loads(out)["checkpoint"]))
    stored = torch.load("efficient-x3d-5.pyth", weights_only=True)["model_state"]
    name = "head.lin_5.kernel.conv.weight"
    torch.testing.assert_close(weights[name], stored[name], rtol=0, atol=1e-6)
    assert weights["projection.model.weight"].shape == (8, 64)
    assert "without the last layer" in checkpoint.facts["weights"]


def test_training_and_testing_see_what_the_card_says(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames, scales and filter of the card, also in ``hwbench test``; a stride of one's own is a clip of one's own."""
    train = ("train", "zoo:x3d-mini", "--data", "videos", "--epochs", 1, "--threads", 1, "--weights", "x3d-8.pyth")
    assert run(capsys, *train, "--out", "as-published")[0] == 0
    stored, _ = load_checkpoint(workspace.root / "as-published" / "checkpoint.pt")
    card = load_card(workspace, "x3d-mini")
    assert stored.clip == card.clip(4) == ClipSpec(4, stride=3, target_fps=30, convention="pytorchvideo")
    assert stored.picture == card.picture() == PictureSpec((1.1375, 1.425), 1.1375, Resize.SHORT_SIDE)
    assert stored.facts["clip"] == "4x3 at 30 fps, pytorchvideo"
    seen = []
    called = TestTransform.pictures
    monkeypatch.setattr(
        TestTransform, "pictures", lambda self, frames: seen.append((self.size, self.scale)) or called(self, frames)
    )
    test = ("test", "as-published/checkpoint.pt", "--clips", 1, "--threads", 1, "--workers", 0)
    assert run(capsys, *test, "--crops", 1)[0] == 0
    assert run(capsys, *test, "--crops", 3)[0] == 0
    # one crop of 32 of frames of 36, or three of 36
    assert set(seen) == {((32, 32), 1.1375), ((36, 36), 1.0)}
    assert run(capsys, *train, "--stride", 2, "--out", "own-stride")[0] == 0
    stored, _ = load_checkpoint(workspace.root / "own-stride" / "checkpoint.pt")
    assert (stored.clip, stored.picture) == (ClipSpec(4, stride=2), card.picture())


def test_a_file_is_fed_as_the_card_says(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    export = ("export", "zoo:x3d-mini", "--weights", "x3d-8.pyth", "--precision", "fp32", "--data", "videos")
    assert run(capsys, *export, "--out", "fed", "--threads", 1)[0] == 0
    manifest = DeployedModel.open(workspace.root / "fed").manifest
    assert manifest.input.clip == load_card(workspace, "x3d-mini").clip(4)
    assert "shorter side has 36 pixels" in manifest.input.resize
    assert "not antialiased" in manifest.input.resize
    page = (workspace.root / "fed" / "RUN.md").read_text()
    apart = "first and last frame of the window included, 0.122 s apart"
    assert f"evenly over 0.4 s, {apart}, by the convention `pytorchvideo`" in page
    assert "Make the picture of each: the frame scaled so that its shorter side has 36 pixels" in page


def test_a_published_top1_is_listed_with_its_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Workspace.create(tmp_path / "listed").root)
    rows = [line.split() for line in run(capsys, "zoo", "list")[1].splitlines()]
    assert ["zoo:e3d-s", "13x160x160", "1.87", "47.10", "%", "Something-Something", "V1", "none"] in rows
    assert ["zoo:efficient-x3d-l", "16x312x312", "18.37", "-", "-", "none"] in rows


def test_published_by_name(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror is a folder here; tests/spaces has a server."""
    place = workspace.root / "mirror" / "pytorchvideo" / "model_zoo" / "kinetics"
    place.mkdir(parents=True)
    (place / "X3D_XS.pyth").write_bytes((workspace.root / "x3d-8.pyth").read_bytes())
    monkeypatch.setenv("HWBENCH_ZOO_MIRROR", str(workspace.root / "mirror"))
    rows = {card["name"]: card for card in json.loads(run(capsys, "zoo", "list", "--json")[1])["cards"]}
    assert rows["x3d-mini"]["weights"] == "published"
    assert rows["efficient-x3d-l"]["weights"] == "none"
    assert (rows["x3d-xs"]["input"], rows["x3d-xs"]["top1"]) == ("4x160x160", 0.6912)
    assert rows["x3d-xs"]["macs"] == pytest.approx(0.61e9, rel=0.01)
    export = ("export", "zoo:x3d-mini", "--precision", "fp32", "--threads", 1, "--json", "--weights", "published")
    status, out, err = run(capsys, *export, "--out", "by-name")
    assert status == 0, err
    assert json.loads(out)["weights"] == "published:x3d"
    assert "the card names no SHA-256; this file is taken on first use" in err
    status, out, _ = run(capsys, "zoo", "get", "zoo:x3d-mini", "--json")
    values = json.loads(out)
    assert (status, values["fetched"], values["bytes"]) == (0, False, Path(values["path"]).stat().st_size)
    assert "zoo:x3d-mini" in (listed := run(capsys, "zoo")[1])
    assert "here" in next(line for line in listed.splitlines() if "x3d-mini" in line)
    train = ("train", "zoo:x3d-mini", "--data", "videos", "--epochs", 1, "--threads", 1, "--weights", "published")
    status, out, err = run(capsys, *train, "--out", "from-name", "--json")
    assert status == 0, err
    status, _, err = run(capsys, "train", "x3d-tiny:frames=8", "--data", "videos", "--weights", "published")
    assert status == 2
