"""``hwbench scoreboard`` as a user calls it: of a folder of ground truth, of a study, and of wrong input."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hwbench.api.scoreboard import ScoreboardRequest, scoreboard
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import InvalidFile, InvalidValue, NotMeasured, UnknownName, VideoError
from hwbench.reports.result import read_result
from hwbench.reports.trained import finished_runs
from hwbench.spaces import load_space
from hwbench.studies.ground_truth import GroundTruth
from hwbench.testing.listeners import Keeper
from hwbench.testing.searches import search_by_law
from hwbench.training import CHECKPOINT
from hwbench.training.description import RunDescription, write_description
from hwbench.training.log import METRICS
from hwbench.workspace import Workspace, shipped

NETWORKS = 12


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path) -> Path:
    """Members of x3d-tiny in order of their width and depth, the later the better."""
    folder, space = tmp_path / "truth", load_space(workspace, "x3d-tiny")
    (folder / "rows").mkdir(parents=True)
    members = list(space.architectures())[:: space.size() // NETWORKS][:NETWORKS]
    networks = [{"name": f"n{i:02d}", "band": "edge", "architecture": one.key} for i, one in enumerate(members)]
    for index, one in enumerate(networks):
        row = one | {"seed": 0, "top1": 0.3 + index / 100, "loss": 1.0, "hits": "01", "cpu_s": 100}
        row |= {"validation": [{"top1": 0.1, "loss": 2.0}] * 12, "training_loss": [1.0] * 48}
        (folder / "rows" / f"{one['name']}-seed0.json").write_text(json.dumps(row))
    about = {"budget_ms": 1.0, "data": "synthetic", "classes": 8, "networks": networks}
    (folder / "networks.json").write_text(json.dumps(about))
    return folder


def test_an_evaluator_is_scored_and_kept(workspace: Workspace, folder: Path) -> None:
    result = scoreboard(ScoreboardRequest(source=str(folder), evaluator=("entropy",)), workspace=workspace)
    entropy = next(one for one in result.board.standings if one.evaluator == "entropy")
    assert entropy.networks == NETWORKS
    assert entropy.cost_s is not None
    assert result.to_json()["ceiling"] is None  # none was trained twice
    assert set(GroundTruth.read(folder).scores["entropy"]) == {f"n{i:02d}" for i in range(NETWORKS)}
    again = scoreboard(ScoreboardRequest(source=str(folder)), workspace=workspace)
    assert next(one for one in again.board.standings if one.evaluator == "entropy").tau == entropy.tau
    assert json.dumps(result.to_json(), allow_nan=False)
    assert list(result.to_frame()["evaluator"]) == [one.evaluator for one in result.board.standings]


@pytest.mark.parametrize("evaluator", ["entropy", "fitted"])
def test_a_space_may_lie_beside_the_folder_alone(workspace: Workspace, folder: Path, evaluator: str) -> None:
    text = (shipped() / "search_spaces" / "x3d-tiny.toml").read_text()
    (folder / "mine.toml").write_text(text.replace('"x3d-tiny"', '"mine"'))
    for path in (folder / "networks.json", *(folder / "rows").iterdir()):
        path.write_text(path.read_text().replace("x3d-tiny:", "mine:"))
    result = scoreboard(ScoreboardRequest(source=str(folder), evaluator=(evaluator,)), workspace=workspace)
    assert next(one for one in result.board.standings if one.evaluator == evaluator).networks == NETWORKS


def test_unreadable_videos_end_it_unless_they_are_left_out(workspace: Workspace, folder: Path) -> None:
    clips = prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8))
    sorted((clips / "train").rglob("*.mp4"))[0].write_text("no video")
    asked = {"source": str(folder), "evaluator": ("zero-cost",), "data": str(clips)}
    with pytest.raises(VideoError):
        scoreboard(ScoreboardRequest(**asked), workspace=workspace)
    keeper = Keeper()
    scoreboard(ScoreboardRequest(**asked, on_error="skip"), keeper, workspace=workspace)
    assert set(GroundTruth.read(folder).scores["zero-cost"]) == {f"n{i:02d}" for i in range(NETWORKS)}
    assert any(line.startswith("unreadable videos are no error (--on-error skip)") for line in keeper.lines)
    with pytest.raises(InvalidValue, match="--on-error skip goes with --evaluator"):
        ScoreboardRequest(source=str(folder), on_error="skip")


def test_of_a_study_those_count_that_were_trained(workspace: Workspace) -> None:
    found = search_by_law(workspace, "x3d-tiny", 5e-3, study="tried", trials=16)
    with pytest.raises(NotMeasured, match="none of its networks has been trained") as untrained:
        scoreboard(ScoreboardRequest(source="tried"), workspace=workspace)
    for option in ("--space x3d-tiny", "--budget 5ms", "--seed 0", "--finalists 8", "--study tried"):
        assert f" {option} " in f"{untrained.value} "
    history = sorted({one.architecture: one.score for one in found.history}.items(), key=lambda one: one[1])
    for index, (key, _) in enumerate(history):
        _run(workspace, f"n{index}", key, top1=index / 100)
    _run(workspace, "of-another-study", "x3d-tiny:frames=8", top1=0.9)
    board = scoreboard(ScoreboardRequest(source="tried"), workspace=workspace).board
    (one,) = board.standings
    assert one.evaluator == "entropy"
    assert one.networks == len(history)
    assert one.tau.value == pytest.approx(1)
    (workspace.root / "runs" / "n0" / CHECKPOINT).unlink()  # under way, or interrupted
    fewer = scoreboard(ScoreboardRequest(source="tried"), workspace=workspace).board
    assert fewer.networks == len(history) - 1
    with pytest.raises(NotMeasured):
        scoreboard(ScoreboardRequest(source="tried", data="other"), workspace=workspace)
    # newer ones on other data, and shorter ones, are no scores to rank beside those
    for index, (key, _) in enumerate(history[:5]):
        _run(workspace, f"other{index}", key, top1=0.5 - index / 100, data="other")
        _run(workspace, f"short{index}", key, top1=0.5 - index / 100, epochs=1)
    keeper = Keeper()
    same = scoreboard(ScoreboardRequest(source="tried"), keeper, workspace=workspace).board
    assert same == fewer
    alike = f"networks of the study that were trained in runs/: {len(history) - 1} (on synthetic, 16 epochs; other"
    assert any(line.startswith(alike) for line in keeper.lines)
    other = scoreboard(ScoreboardRequest(source="tried", data="other"), workspace=workspace).board
    assert other.networks == 5


def test_a_study_is_told_from_a_folder_of_its_name(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``hwbench export tried:best --out tried`` makes one."""
    found = search_by_law(workspace, "x3d-tiny", 5e-3, study="tried", trials=16)
    for number, key in enumerate(sorted({one.architecture for one in found.history})):
        _run(workspace, f"n{number}", key, top1=number / 100)
    of_study = scoreboard(ScoreboardRequest(source="tried"), workspace=workspace).board
    (tmp_path / "tried").mkdir()
    (tmp_path / "untried").mkdir()
    monkeypatch.chdir(tmp_path)
    assert scoreboard(ScoreboardRequest(source="tried"), workspace=workspace).board == of_study
    for no_study in ("./tried", "untried"):
        with pytest.raises(InvalidFile, match=r"tried: has no networks\.json; expected a folder of ground truth, or"):
            scoreboard(ScoreboardRequest(source=no_study), workspace=workspace)


def test_a_trial_that_was_trained_again_judges_nothing(workspace: Workspace) -> None:
    search_by_law(workspace, "x3d-tiny", 5e-3, study="tried", trials=4)
    stored = read_result(workspace, "tried")
    kept = replace(stored.settings, evaluator="curve", data="synthetic", effort="12 epochs", seed=3)
    result = replace(stored, settings=kept)
    key = result.best.architecture
    _run(workspace, "trial", key, top1=0.9, epochs=12, seed=3)
    assert not finished_runs(workspace, result).top1
    _run(workspace, "longer", key, top1=0.8, epochs=16, seed=3)
    assert finished_runs(workspace, result).top1 == {key: 0.8}
    _run(workspace, "other-seed", key, top1=0.7, epochs=12, seed=4)
    assert finished_runs(workspace, result).top1 == {key: 0.7}


def test_a_training_judges_an_evaluator_of_another_package_though_it_is_as_long_as_the_study_keeps(
    workspace: Workspace,
) -> None:
    search_by_law(workspace, "x3d-tiny", 5e-3, study="tried", trials=4)
    stored = read_result(workspace, "tried")
    kept = replace(stored.settings, evaluator="log-weights", data="synthetic", effort="12 epochs", seed=3)
    _run(workspace, "winner", stored.best.architecture, top1=0.9, epochs=12, seed=3)
    assert finished_runs(workspace, replace(stored, settings=kept)).top1 == {stored.best.architecture: 0.9}


def test_a_training_of_a_model_of_ones_own_is_of_the_network_of_its_study(workspace: Workspace) -> None:
    search_by_law(workspace, "x3d-tiny", 5e-3, study="tried", trials=4)
    stored = read_result(workspace, "tried")
    own = replace(stored.best, architecture="mynets.clips:frames=8,resolution=48")
    result = replace(stored, history=(*stored.history, own), named={"mynets.clips": "mynets:clips"})
    _run(workspace, "own", "mynets:clips", top1=0.9)
    _run(workspace, "other", "mynets:other", top1=0.8)
    assert finished_runs(workspace, result).top1 == {own.architecture: 0.9}


def test_wrong_input_is_told(workspace: Workspace, folder: Path, tmp_path: Path) -> None:
    def ask(source: str, **more: object) -> None:
        scoreboard(ScoreboardRequest(source=source, **more), workspace=workspace)

    with pytest.raises(UnknownName, match="no band 'edgy'; did you mean 'edge'"):
        ask(str(folder), band=("edgy",))
    with pytest.raises(UnknownName, match="entropie"):
        ask(str(folder), evaluator=("entropie",))
    with pytest.raises(UnknownName, match="nothing-like-it"):
        ask("nothing-like-it")
    with pytest.raises(InvalidFile, match=r"has no networks\.json"):
        ask(str(tmp_path))
    with pytest.raises(InvalidValue, match="--band"):
        ask("study", band=("edge",))


def _run(
    workspace: Workspace,
    name: str,
    network: str,
    top1: float,
    data: str = "synthetic",
    epochs: int = 16,
    seed: int = 0,
) -> None:
    folder, recipe = workspace.root / "runs" / name, {"epochs": epochs, "seed": seed}
    folder.mkdir(parents=True)
    described = RunDescription(network, "1x3x8x64x64", data, 8, {"train": 8, "val": 8}, recipe, {})
    write_description(folder, described)
    epoch = {"event": "epoch", "epoch": 0, "step": 1, "top1": top1, "top5": 1.0, "videos": 8}
    (folder / METRICS).write_text(json.dumps({**epoch, "lost_samples": 0, "unreadable": {}}) + "\n")
    (folder / CHECKPOINT).write_bytes(b"trained")
