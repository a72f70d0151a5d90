"""The supernet of a study: trained once, found again, and asked for every network."""

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hwbench.api.scoreboard
import hwbench.api.search
import hwbench.training.supernet
from hwbench import SearchRequest
from hwbench.api.listener import Listener, StageProgress
from hwbench.api.prediction import installed_target
from hwbench.api.scoreboard import ScoreboardRequest, scoreboard
from hwbench.api.study_data import Fidelity, StudyData
from hwbench.api.study_supernet import WEIGHTS, Members, StudySupernet, block_macs
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.devices import load_device
from hwbench.errors import InvalidFile, InvalidValue, UnknownName, VideoError
from hwbench.latency import table_path
from hwbench.room import SUPERNETS, clean_cache
from hwbench.spaces import StagedSpace, load_space, read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.resolve import load_result
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import BlockSpec, Precision, TensorSpec
from hwbench.studies.candidates import Candidate
from hwbench.studies.evaluators import Context, get
from hwbench.studies.ground_truth import GroundTruth
from hwbench.studies.study import Search
from hwbench.testing.tables import space_table, work
from hwbench.training.state import RESUME, begun_in
from hwbench.workspace import Workspace

SPACE = """
schema = 1
name = "small"
description = "For tests."
[input]
frames = [2, 4]
resolution = 16
[stem]
width = 8
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
depth = [1, 2]
width = [8, 16]
expansion = 1.0
kernel = ["1x3x3", "3x3x3"]
se = 0
act = "relu"
stride = 2
[head]
hidden = 16
act = "relu"
"""
SPEC = SyntheticSpec(train_per_class=4, val_per_class=1, size=24, frames=8)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.create(tmp_path_factory.mktemp("supernet") / "work")


@pytest.fixture(scope="module")
def data(place: Workspace) -> StudyData:
    return StudyData(place, str(prepare(place, SPEC)), Fidelity(1))


@pytest.fixture(scope="module")
def sums(place: Workspace) -> SpaceSums:
    path = place.root / "search_spaces" / "small.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SPACE)
    return SpaceSums.of(read_space(path), _cost, num_classes=8)


@pytest.fixture
def feasible(sums: SpaceSums) -> FeasibleSet:
    return FeasibleSet(sums, float(np.median(sums.totals(sums.space.encode(sums.space.architectures())))))


def test_the_ends_of_the_set(feasible: FeasibleSet) -> None:
    members = Members(feasible)
    inside = [one for one in feasible.space.architectures() if one in feasible]
    macs = {one: SpaceSums.of(feasible.space, block_macs, num_classes=8).total(one) for one in inside}
    assert macs[members.largest] == max(macs.values())
    assert feasible.sums.total(members.smallest) == min(map(feasible.sums.total, inside))


def test_it_is_trained_once_and_kept(
    place: Workspace, data: StudyData, feasible: FeasibleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = StudySupernet(place, data, feasible, 2, 0)
    network = feasible.space.network(Members(feasible).largest, 8)
    score = first.top1(network)
    assert 0 <= score <= 1
    assert sorted(path.name for path in first.folder.iterdir()) == [".lock", WEIGHTS]
    monkeypatch.setattr(hwbench.training.supernet, "train_supernet", None)
    again = StudySupernet(place, data, feasible, 2, 0)
    assert again.top1(network) == pickle.loads(pickle.dumps(again)).top1(network) == score


def test_a_trained_supernet_keeps_no_state_of_a_process_that_was_killed_behind_its_weights(
    place: Workspace, data: StudyData, feasible: FeasibleSet
) -> None:
    supernet = StudySupernet(place, data, feasible, 2, 0)
    supernet.prepare()
    (supernet.folder / RESUME).touch()
    StudySupernet(place, data, feasible, 2, 0).prepare()
    assert sorted(path.name for path in supernet.folder.iterdir()) == [".lock", WEIGHTS]


def test_another_budget_length_or_seed_is_another_supernet(
    place: Workspace, data: StudyData, feasible: FeasibleSet
) -> None:
    tighter = FeasibleSet(feasible.sums, 1.001 * feasible.smallest()[0])
    assert tighter.count < feasible.count
    ways = [(feasible, 2, 0), (feasible, 3, 0), (feasible, 2, 1), (tighter, 2, 0)]
    assert len({StudySupernet(place, data, *way).folder for way in ways}) == len(ways)


def test_other_videos_of_the_same_name_are_another_supernet(
    place: Workspace, data: StudyData, feasible: FeasibleSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data by name: the folder is told as it was typed, and what lies there changes."""

    def folder(source: str = "clips") -> Path:
        return StudySupernet(place, StudyData(place, source, Fidelity(1)), feasible, 1, 0).folder

    for where in ("here", "there"):
        shutil.copytree(data.source, tmp_path / where / "clips")
    monkeypatch.chdir(tmp_path / "there")
    there = folder()
    monkeypatch.chdir(tmp_path / "here")
    first, again = folder(), folder(str(tmp_path / "here" / "clips"))
    assert again == first != there
    one, other, *_ = sorted((tmp_path / "here" / "clips" / "train").iterdir())
    video = next(one.iterdir())
    added = shutil.copy(video, video.with_stem("added"))
    more = folder()
    Path(added).rename(other / "added.mp4")
    relabelled = folder()
    (tmp_path / "here" / "clips" / "val" / one.name).rename(tmp_path / "here" / "clips" / "val" / "renamed")
    one.rename(one.with_name("renamed"))
    assert len({first, there, more, relabelled, folder()}) == 5


def test_it_leaves_out_what_cannot_be_read(
    place: Workspace, data: StudyData, feasible: FeasibleSet, tmp_path: Path
) -> None:
    shutil.copytree(data.source, tmp_path / "clips")
    for split in ("train", "val"):
        sorted((tmp_path / "clips" / split).rglob("*.mp4"))[0].write_text("no video")
    strict, skipping = (
        StudySupernet(place, StudyData(place, str(tmp_path / "clips"), Fidelity(1), on_error=on_error), feasible, 1, 0)
        for on_error in ("raise", "skip")
    )
    network = feasible.space.network(Members(feasible).largest, 8)
    with pytest.raises(VideoError, match="damaged"):
        strict.top1(network)
    assert skipping.folder != strict.folder
    assert 0 <= skipping.top1(network) <= 1


def test_interrupted_it_goes_on(place: Workspace, data: StudyData, feasible: FeasibleSet) -> None:
    class Interrupting(Listener):
        def __init__(self, at: int) -> None:
            self.at, self.first = at, 0

        def progress(self, progress: StageProgress) -> None:
            self.first = self.first or progress.done
            if progress.done == self.at:
                raise KeyboardInterrupt

    length = 8 * SPEC.train_per_class // 16
    with pytest.raises(KeyboardInterrupt):
        StudySupernet(place, data, feasible, 4, 7, Interrupting(2 * length + 1)).prepare()
    rest = Interrupting(0)
    StudySupernet(place, data, feasible, 4, 7, rest).prepare()
    assert rest.first == 2 * length + 1


def test_nobody_clears_away_a_supernet(tmp_path: Path, data: StudyData, feasible: FeasibleSet) -> None:
    place = Workspace.create(tmp_path / "work")

    class Cleaning(Listener):
        def progress(self, progress: StageProgress) -> None:
            if progress.done > len(data.sized(feasible.space.cells[0].clip, 0).training) // 16:  # there is a state
                assert begun_in(supernet.folder)
                clean_cache(place.cache)
                assert begun_in(supernet.folder)

    supernet = StudySupernet(place, StudyData(place, data.source, Fidelity(1)), feasible, 2, 0, Cleaning())
    supernet.prepare()
    clean_cache(place.cache)
    assert (supernet.folder / WEIGHTS).is_file()


def test_another_supernet_of_a_study_is_refused_before_it_is_trained_and_the_command_to_go_on_names_its_own(
    workspace: Workspace, data: StudyData, make_search: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in its first trial: the supernet is trained, and there is no result."""
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)
    asked = SearchRequest(
        budget="4.2ms", evaluator="supernet", data=data.source, supernet_epochs=1, trials=1, measure=1, study="shared"
    )

    class Interrupting(Listener):
        def evaluated(self, candidate: Candidate) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hwbench.search(asked, Interrupting(), workspace=workspace)
    (trained,) = (workspace.cache / SUPERNETS).iterdir()
    changes = [{"supernet_epochs": 2}, {"seed": 1}, {"sampler": "tpe"}, {"confidence": 0.9}]
    for change in changes:
        with pytest.raises(InvalidValue, match="study 'shared' exists with other settings"):
            hwbench.search(replace(asked, **change), workspace=workspace)
    assert list((workspace.cache / SUPERNETS).iterdir()) == [trained]
    with pytest.raises(UnknownName, match=" --supernet-epochs 1 "):
        load_result(workspace, "shared")
    assert hwbench.search(replace(asked, supernet_epochs=None), workspace=workspace).trials == 1
    assert list((workspace.cache / SUPERNETS).iterdir()) == [trained]


def test_a_study_takes_no_supernet_over_from_a_command_that_never_came_to_it_and_keeps_the_one_that_it_began_with(
    workspace: Workspace,
    space: StagedSpace,
    data: StudyData,
    make_search: Callable[..., Search],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = SearchRequest(
        budget="4.2ms", evaluator="supernet", data=data.source, supernet_epochs=1, trials=1, measure=1, study="mine"
    )

    def note(study: str) -> str:
        return (workspace.studies / study / "supernet.txt").read_text()

    def trained() -> set[Path]:
        return set((workspace.cache / SUPERNETS).iterdir())

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt  # the supernet is trained, the study is not begun

    monkeypatch.setattr(hwbench.api.search, "measuring", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hwbench.search(asked, workspace=workspace)
    assert len(trained()) == 1
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)
    (workspace.studies / "noted").mkdir(parents=True)  # as earlier versions left it
    (workspace.studies / "noted" / "supernet.txt").write_text("151 from here to there\n")
    tighter = replace(asked, budget="3.6ms")
    mine, noted, fresh = (
        hwbench.search(replace(tighter, study=study), workspace=workspace).history
        for study in ("mine", "noted", "fresh")
    )
    assert mine == noted == fresh
    assert note("mine") == note("noted") == note("fresh")
    ours = trained()
    assert len(ours) == 2
    slower = space_table(space, Precision.INT8, lambda workload: 1.01 * work(workload))
    slower.write(table_path(workspace.root, slower.target, Precision.INT8))
    before = note("mine")
    assert hwbench.search(replace(tighter, trials=2), workspace=workspace).trials == 2
    assert (note("mine"), trained()) == (before, ours)
    hwbench.search(replace(tighter, study="newer"), workspace=workspace)  # by these rows it is another set
    assert note("newer") != before
    assert len(trained()) == 3


def test_a_study_in_another_storage_is_refused_before_a_supernet_is_trained(
    workspace: Workspace, data: StudyData, make_search: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)
    asked = SearchRequest(budget="4.2ms", trials=1, measure=1, study="mine", evaluator="entropy")
    hwbench.search(asked, workspace=workspace)
    other = replace(asked, evaluator="supernet", data=data.source, supernet_epochs=1, storage="sqlite:///other.db")
    with pytest.raises(InvalidValue, match="study 'mine' was begun without --storage"):
        hwbench.search(other, workspace=workspace)
    assert not (workspace.cache / SUPERNETS).exists()


def test_int8_files_of_a_runtime_that_writes_none_are_refused_before_a_supernet_is_trained(
    workspace: Workspace, space: StagedSpace, data: StudyData
) -> None:
    target = installed_target(load_device(workspace, "local"), "torch", 1)
    space_table(space, Precision.FP32, target=target).write(table_path(workspace.root, target, Precision.FP32))
    asked = SearchRequest(
        budget="100ms", runtime="torch", precision="fp32", evaluator="supernet", data=data.source, supernet_epochs=1,
        trials=1, finalists=2, finalist_score="int8",
    )  # fmt: skip
    with pytest.raises(InvalidValue, match="--finalist-score int8: runtime 'torch' writes no int8 file; use"):
        hwbench.search(asked, workspace=workspace)
    assert not (workspace.cache / SUPERNETS).exists()


def test_two_searches_train_a_supernet_once(
    place: Workspace, data: StudyData, feasible: FeasibleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    supernet = StudySupernet(place, data, feasible, 1, 5)
    supernet.prepare()
    weights = (supernet.folder / WEIGHTS).read_bytes()
    (supernet.folder / WEIGHTS).unlink()
    monkeypatch.setattr(hwbench.training.supernet, "train_supernet", None)
    code = "import sys; from pathlib import Path; from hwbench.training.run_lock import training_alone\n"
    code += "with training_alone(Path(sys.argv[1])): print('ready', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(supernet.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"

        class Waiting(Listener):
            def say(self, text: str) -> None:
                assert "another process trains this supernet" in text
                (supernet.folder / WEIGHTS).write_bytes(weights)
                other.stdin.close()

        StudySupernet(place, data, feasible, 1, 5, Waiting()).prepare()


def test_a_damaged_file_is_told(place: Workspace, data: StudyData, feasible: FeasibleSet) -> None:
    supernet = StudySupernet(place, data, feasible, 1, 3)
    supernet.folder.mkdir(parents=True)
    (supernet.folder / WEIGHTS).write_bytes(b"half")
    with pytest.raises(InvalidFile, match="supernet"):
        supernet.prepare()


def test_without_data_there_is_none() -> None:
    with pytest.raises(InvalidValue, match="--data"):
        get("supernet")(Context(0, lambda count: []))


def test_the_folder_goes_with_the_cache(place: Workspace, data: StudyData, feasible: FeasibleSet) -> None:
    assert (
        Path(".hwbench") / "cache" in StudySupernet(place, data, feasible, 1, 0).folder.relative_to(place.root).parents
    )


def test_a_ground_truth_is_scored_by_a_supernet_of_its_space(
    place: Workspace, data: StudyData, feasible: FeasibleSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hwbench.api.scoreboard, "SUPERNET_EPOCHS", 1)
    (tmp_path / "rows").mkdir()
    keys = [
        *(one.key for one in feasible.space.architectures()),
        next(iter(load_space(place, "x3d-tiny").architectures())).key,
    ]
    networks = [{"name": f"n{i}", "band": "edge", "architecture": key} for i, key in enumerate(keys)]
    for index, one in enumerate(networks):
        row = one | {"seed": 0, "top1": index / 100, "loss": 1.0, "hits": "01", "cpu_s": 100}
        row |= {"validation": [{"top1": 0.1, "loss": 2.0}] * 12, "training_loss": [1.0] * 48}
        (tmp_path / "rows" / f"{one['name']}-seed0.json").write_text(json.dumps(row))
    about = {"budget_ms": 1.0, "data": data.source, "classes": 8, "networks": networks}
    (tmp_path / "networks.json").write_text(json.dumps(about))
    board = scoreboard(ScoreboardRequest(source=str(tmp_path), evaluator=("supernet",)), workspace=place).board
    (found,) = [one for one in board.standings if one.evaluator == "supernet"]
    assert found.networks == len(keys) - 1  # the one of another space is not judged
    scores = GroundTruth.read(tmp_path).scores["supernet"]
    assert len({score for score, _ in scores.values()}) > 1


def _cost(block: BlockSpec, x: TensorSpec) -> float:
    return 1e-3 + block_macs(block, x) * 1e-9
