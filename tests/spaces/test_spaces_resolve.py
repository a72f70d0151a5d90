import json
import re
from pathlib import Path

import numpy as np
import pytest

from hwbench.errors import InvalidFile, InvalidValue, UnknownName, UsageError
from hwbench.spaces import load_card, load_space, open_spaces, read_card, resolve
from hwbench.spaces.digest import choices_digest
from hwbench.specs import Architecture
from hwbench.workspace import Workspace, shipped

CARDS = sorted((shipped() / "zoo").glob("*/model.toml"))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path)


def study(workspace: Workspace, name: str, text: str) -> None:
    path = workspace.studies / name / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_a_printed_key(workspace):
    space = load_space(workspace, "x3d-tiny")
    architecture = space.random(np.random.default_rng(0))
    assert resolve(workspace, architecture.key, 8) == space.network(architecture, 8)
    with pytest.raises(InvalidValue, match="number of classes"):
        resolve(workspace, architecture.key)


def test_the_best_of_a_study(workspace):
    space = load_space(workspace, "x3d-tiny")
    architecture = space.random(np.random.default_rng(1))
    study(workspace, "mine", json.dumps({"best": {"architecture": architecture.key}}))
    assert resolve(workspace, "mine:best", 8) == space.network(architecture, 8)


def searched(workspace: Workspace, names: str, variant: str = "auto") -> Architecture:
    """Stores a study of spaces, as ``search`` does; its best is of the first one."""
    union = open_spaces(workspace, names.split(","), variant=variant)
    best = union.members[0].random(np.random.default_rng(1))
    streaming = {"streaming": True} if variant == "stream" else {}
    settings = {"space": union.name, "choices": choices_digest(union), "variant": variant}
    study(workspace, "mine", json.dumps({"best": {"architecture": best.key}, **streaming, "settings": settings}))
    return best


@pytest.mark.parametrize(
    ("names", "variant"),
    [("x3d-tiny", "auto"), ("x3d-tiny", "stream"), ("x3d-tiny,x3d-mini", "auto"), ("zoo:x3d-xs", "auto")],
)
def test_the_best_of_a_study_of_the_space_as_it_is(workspace, names, variant):
    best = searched(workspace, names, variant)
    network = load_space(workspace, best.space).network(best, 8)
    assert resolve(workspace, "mine:best", 8) == (network.causal() if variant == "stream" else network)


@pytest.mark.parametrize(
    ("names", "variant"), [("x3d-tiny", "auto"), ("x3d-tiny", "stream"), ("x3d-tiny,x3d-mini", "auto")]
)
@pytest.mark.parametrize("classes", [None, 8])
@pytest.mark.parametrize(
    "edit", [("hidden = 256", "hidden = 512"), ("width = 24", "width = 16"), ("stride = 2", "stride = 1")]
)
def test_the_best_of_a_study_is_no_network_of_an_edited_space(workspace, names, variant, classes, edit):
    best = searched(workspace, names, variant)
    path = workspace.root / "search_spaces" / "x3d-tiny.toml"
    text = path.read_text()
    path.write_text(text.replace(*edit, 1))
    said = (
        "result.json: space 'x3d-tiny' was changed since study 'mine' searched it; bring its file back, "
        f".*{re.escape(best.key)}$"
    )
    with pytest.raises(InvalidFile, match=said):
        resolve(workspace, "mine:best", classes)
    assert resolve(workspace, best.key, 8).name == best.key
    path.write_text(f"# with a comment\n{text}")
    assert resolve(workspace, "mine:best", 8).name.startswith(best.key)


def test_the_best_of_a_study_stays_where_another_space_of_it_was_edited(workspace):
    best = searched(workspace, "x3d-tiny,x3d-mini")
    path = workspace.root / "search_spaces" / "x3d-mini.toml"
    path.write_text(path.read_text().replace("hidden = 192", "hidden = 96"))
    assert resolve(workspace, "mine:best", 8).name == best.key


def test_a_zoo_card(workspace):
    network = resolve(workspace, "zoo:x3d-l")
    assert network.name == "zoo:x3d-l"
    assert network.num_classes == 400
    assert len(network.blocks) == 1 + 5 + 10 + 25 + 15 + 1
    assert resolve(workspace, "zoo:x3d-l", 8).num_classes == 8


@pytest.mark.parametrize("path", CARDS, ids=lambda p: p.parent.name)
def test_every_card_validates_and_says_its_conditions(path):
    card = read_card(path)
    assert card.licence
    # ImageNet, Something-Something V1, Kinetics-400
    assert card.classes == (1000 if card.name == "mvit-b-16" else 174 if card.family == "e3d" else 400)
    assert all(p.conditions and p.source for p in card.published)
    assert card.network().input.shape[1:3] == (3, card.cell.frames)
    assert all(0 < p.value < 1 for p in card.published if p.unit == "share")


def test_all_networks_of_all_families_are_there():
    wanted = {f"{family}-{size}" for family in ("x3d", "efficient-x3d") for size in ["xs", "s", "m", "l"]}
    wanted |= {"r2plus1d-r50", "c2d-r50", "i3d-r50", "slow-r50", "csn-r101", "slowfast-r50", "slowfast-r101"}
    wanted |= {"squeezetime-r50", "e3d-s", "e3d-m", "e3d-l"}
    wanted |= {"slow-r50-4x16", "slowfast-r50-4x16", "slowfast-r101-16x8"}
    wanted |= {"mvit-b-16x4", "mvit-b-32x3", "mvit-b-16"}
    assert {path.parent.name for path in CARDS} == wanted


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("zoo:x3d-xl", UnknownName, "did you mean"),
        ("x3d-xs", InvalidValue, "zoo:x3d-xs"),
        ("nobody:best", UnknownName, "no finished study 'nobody'"),
        ("mine:worst", InvalidValue, "expected a printed key"),
        ("x3d-tinny:frames=8", UnknownName, "did you mean 'x3d-tiny'"),
        ("x3d-tiny:frames=9", InvalidValue, "frames cannot be '9'; nearest: 8"),
        ("x3d-tiny:frames=8,,", InvalidValue, "expected SPACE:name=value"),
        ("", InvalidValue, "expected a printed key"),
    ],
)
def test_an_unknown_name_is_told_the_nearest_ones(workspace, text, kind, said):
    with pytest.raises(kind, match=said) as caught:
        resolve(workspace, text, 8)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"best": {}}', '{"best": {"architecture": 3}}'])
def test_a_damaged_result_is_one_clear_error(workspace, text):
    study(workspace, "mine", text)
    with pytest.raises(InvalidFile, match=r"mine.result\.json: .*run the search again"):
        resolve(workspace, "mine:best", 8)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hidden = 2048", "hidden = 2048\nhiden = 3", "did you mean 'hidden'"),
        ("widths = [24, 48, 96, 192]", "widths = [24, 48]", "one width for each of 4"),
        ('family = "x3d"', 'family = "x4d"', "did you mean 'x3d'"),
        ('act = "swish"', 'act = "tanh"', "expected one of"),
        ('kernel = "3x3x3"', 'kernel = "three"', "odd TxHxW"),
        ("frames = 4", "frames = 0", "at least 1"),
        ('form = "model_state"', 'form = "pickle"', "state_dict or model_state"),
        ('name = "x3d-xs"', 'name = "x3d-s"', "the name of the folder"),
    ],
)
def test_a_card_that_does_not_validate(workspace, old, new, said):
    path = workspace.card("x3d-xs")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidFile, match=said):
        load_card(workspace, "x3d-xs")


def test_errors_are_usage_errors():
    assert issubclass(UnknownName, UsageError)


def test_a_folder_is_no_space(workspace):
    (workspace.root / "search_spaces" / "folder.toml").mkdir()
    with pytest.raises(UnknownName, match=r"^unknown \S+( space)? 'folder'; known: .*x3d-tiny"):
        load_space(workspace, "folder")
