"""What cards say of the input of published weights."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

from hwbench.data import ClipSpec, Normalisation, PictureSpec, Resize
from hwbench.errors import InvalidFile, UnknownName
from hwbench.spaces import load_card, load_space, resolve
from hwbench.spaces.cards import PublishedInput, read_card
from hwbench.workspace import Workspace, shipped

# Of E3D no weights are published, nor how videos were cut and scaled.
SHIPPED = sorted(path for path in (shipped() / "zoo").glob("*/model.toml") if not path.parent.name.startswith("e3d"))
# Seconds of a clip, shorter sides in training and in a test: the recipes of ResNets and of X3D.
RESNETS = (Fraction(32, 15), (256, 320), 256)
RECIPES = {
    "x3d-xs": (Fraction(8, 5), (182, 228), 182),
    "x3d-s": (Fraction(13, 5), (182, 228), 182),
    "x3d-m": (Fraction(8, 3), (256, 320), 256),
    "x3d-l": (Fraction(8, 3), (356, 446), 356),
    **dict.fromkeys(("r2plus1d-r50", "c2d-r50", "i3d-r50", "slow-r50", "csn-r101"), RESNETS),
    **dict.fromkeys(("slowfast-r50", "slowfast-r101", "mvit-b-16x4"), RESNETS),
    **dict.fromkeys(("slow-r50-4x16", "slowfast-r50-4x16"), RESNETS),
    "slowfast-r101-16x8": (Fraction(64, 15), (256, 360), 256),
    "mvit-b-32x3": (Fraction(16, 5), (256, 320), 256),
    # frame rates differ there: a clip is 64 frames of the video, whatever they last
    "squeezetime-r50": (None, (224, 448), 224),
    "mvit-b-16": (None, (256, 320), 256),
}
# Where it is not PyTorchVideo's; those networks normalise as is usual on ImageNet.
CONVENTIONS = {"squeezetime-r50": "mmaction2", "mvit-b-16": "hwbench"}
IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
OPTIONS = ("target_fps", "convention", "train_scale", "test_scale", "resize", "mean", "std")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_every_card_says_how_its_weights_saw_videos(path: Path) -> None:
    card = read_card(path)
    span, train, test = RECIPES[card.name.removeprefix("efficient-")]
    crop, picture, clip = card.cell.clip.h, card.picture(), card.clip(card.cell.clip.t)
    assert clip.span == span
    assert clip.convention == CONVENTIONS.get(card.name, "pytorchvideo")
    assert tuple(round(crop * scale) for scale in picture.train_scale) == train
    assert picture.resize is (Resize.SHORT_SIDE_ANTIALIASED if card.name == "mvit-b-16" else Resize.SHORT_SIDE)
    assert picture.test_transform((crop, crop), 3, card.normalisation()).size == (test, test)
    assert card.normalisation() == (IMAGENET if card.name in CONVENTIONS else Normalisation())


@pytest.mark.parametrize("size", ["s", "m", "l"])
def test_a_card_of_e3d_takes_its_clip_from_x3d(size: str) -> None:
    """Both are compared on one input; how it is scaled is left at the defaults."""
    card, x3d = (load_card(Workspace(shipped()), f"{family}-{size}") for family in ("e3d", "x3d"))
    assert card.weights is None
    assert card.cell == x3d.cell
    assert card.published_input == PublishedInput(x3d.sample_rate)


def card_with(tmp_path: Path, text: str, *without: str) -> Path:
    """The card of X3D-XS with other lines in the place of those keys."""
    lines = (shipped() / "zoo" / "x3d-xs" / "model.toml").read_text().splitlines()
    kept = [line for line in lines if line.partition(" =")[0] not in (without or OPTIONS)]
    kept.insert(kept.index("[input]") + 1, text)
    path = tmp_path / "x3d-xs" / "model.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(kept))
    return path


def test_a_card_of_before_means_what_it_meant(tmp_path: Path) -> None:
    card = read_card(card_with(tmp_path, ""))
    assert card.published_input == PublishedInput(12)
    assert card.clip(4) == ClipSpec(4, stride=12)
    assert card.picture() == PictureSpec()
    assert card.normalisation() == Normalisation()


def test_a_clip_may_have_a_span(tmp_path: Path) -> None:
    card = read_card(card_with(tmp_path, "span_s = 1.6", *OPTIONS, "sample_rate"))
    assert card.clip(4) == ClipSpec(4, span_s=1.6)
    assert card.sample_rate is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('convention = "pytorchvide"', "unknown clip convention 'pytorchvide'; did you mean"),
        ('convention = "mmaction2"\ntarget_fps = 30', "takes a stride in frames of the video"),
        ("span_s = 1.6", "expected sample_rate or span_s, not both"),
        ('resize = "shortside"', "input.resize: unknown 'shortside'; did you mean 'short-side'"),
        ("train_scale = [1.4, 1.1]", "expected scales of at least 1, the smaller one first"),
        ("test_scale = 0.5", "expected scales of at least 1"),
        ("train_scale = 1.2", "expected a list of 2 numbers"),
        ("mean = [0.5, 0.5]", "expected a list of 3 numbers"),
        ("std = [0.2, 0, 0.2]", "expected numbers of more than 0"),
        ("antialias = true", "unknown key 'antialias' in"),
    ],
)
def test_what_a_card_cannot_say(tmp_path: Path, text: str, said: str) -> None:
    path = card_with(tmp_path, text)
    with pytest.raises(InvalidFile) as caught:
        used(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("classes", "0", "classes: expected a whole number, at least 1, got 0"),
        ("classes", "1000000000000", "classes: expected at most 1000000 classes, got [1000000000000]"),
        ("widths", "[24, 48, 96, 1000000000]", "x3d.widths: expected a whole number, at most 1000000, got 1000000000"),
        ("expansion", "1e9", "x3d.expansion: expected a number, at most 1000000, got 1000000000.0"),
        ("expansion", "50000", "x3d: expected blocks of at most 1000000 channels, got 'x3d_i24_m1200000_o24_"),
        ("kernel", '"3x999999999x999999999"', "x3d.kernel: expected a kernel of at most 255 along each axis, got '3x9"),
        ("frames", "100000000", "input.frames: expected at most 10000 frames, got [100000000]"),
        ("frames", "0", "input.frames: expected a whole number, at least 1, got 0"),
        ("resolution", "1000000000", "input.resolution: expected at most 10000 pixels, got [1000000000]"),
        ("resolution", "-160", "input.resolution: expected a whole number, at least 1, got -160"),
        ("sample_rate", "0", "input.sample_rate: expected a whole number, at least 1, got 0"),
        ("sample_rate", "1000000000000000000", "input.sample_rate: expected at most 10000 frames, got ["),
        ("target_fps", "1000000000", "input.target_fps: expected at most 10000 frames, got ["),
        ("train_scale", "[1.0, 1e9]", "input.train_scale: expected frames whose shorter side has at most 10000 pixels"),
        ("test_scale", "1e9", "input.test_scale: expected frames whose shorter side has at most 10000 pixels"),
    ],
)
def test_a_card_has_bounds(tmp_path: Path, key: str, value: str, said: str) -> None:
    path = card_with(tmp_path, "", "nothing")
    path.write_text(re.sub(rf"(?m)^{key} = .*", f"{key} = {value}", path.read_text()))
    with pytest.raises(InvalidFile) as caught:
        read_card(path)
    assert str(caught.value).startswith(f"{path}: {said}")


@pytest.mark.parametrize("name", ["x3d xs", "x3d-xs (copy)", "größe", "a+b"])
def test_a_card_is_not_called_what_no_key_can_hold(tmp_path: Path, name: str) -> None:
    folder = card_with(tmp_path, "").parent.rename(tmp_path / name)
    path = folder / "model.toml"
    path.write_text(path.read_text().replace('name = "x3d-xs"', f'name = "{name}"'), encoding="utf-8")
    with pytest.raises(
        InvalidFile, match=r"name: expected letters, digits, .* the key of its network.*, got '"
    ) as caught:
        read_card(path)
    assert str(path) in str(caught.value)


def used(path: Path) -> None:
    card = read_card(path)
    card.clip(4)
    card.picture()


def test_a_card_is_a_space_with_one_member() -> None:
    workspace = Workspace(shipped())
    for name in workspace.names("zoo"):
        card, space = load_card(workspace, name), load_space(workspace, f"zoo:{name}")
        (architecture,) = space.architectures()
        assert space.network(architecture, card.classes).blocks == card.blocks
        assert architecture.key.startswith(f"zoo-{name}:frames={card.cell.frames},")
        assert resolve(workspace, architecture.key, card.classes).blocks == card.blocks
    with pytest.raises(UnknownName, match="unknown zoo model 'x3d-xxl'; did you mean 'x3d-l'"):
        load_space(workspace, "zoo:x3d-xxl")
    with pytest.raises(UnknownName, match="unknown space 'zoo-x3d-xxl'"):
        load_space(workspace, "zoo-x3d-xxl")
