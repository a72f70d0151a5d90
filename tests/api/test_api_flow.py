"""A network that sees optical flow, from ``hwbench train --modality flow:FOLDER`` to a file that is run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from measured import TARGET, fake_device
from micro_workspace import NETWORK, VIDEOS, make, printed

import hwbench
from hwbench.errors import InvalidValue
from hwbench.latency import table_path
from hwbench.reports import commands
from hwbench.reports.result import read_result
from hwbench.spaces import load_space
from hwbench.specs import Precision
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import space_table
from hwbench.training import load_checkpoint
from hwbench.workspace import Workspace

INT8 = Precision.INT8


@pytest.fixture(scope="module", autouse=True)
def inside(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A workspace around the current folder, and ``motion`` with a folder of ``.flo`` files for each video."""
    made = make(tmp_path_factory.mktemp("api-flow") / "bench")
    videos = sorted((made.root / VIDEOS).glob("*/*/*.mp4"))
    assert videos
    for video in videos:
        # The class is told by the direction of the motion: all pixels alike, so that any crop tells it.
        angle = 2 * np.pi * sorted(path.name for path in video.parents[1].iterdir()).index(video.parent.name) / 8
        flow = np.broadcast_to(np.array([np.cos(angle), np.sin(angle)], "<f4") * 8, (32, 32, 2))
        folder = made.root / "motion" / video.relative_to(made.root / VIDEOS).with_suffix("")
        folder.mkdir(parents=True, exist_ok=True)
        header = np.float32(202021.25).tobytes() + np.array([32, 32], "<i4").tobytes()
        for frame in range(15):
            (folder / f"{frame:02d}.flo").write_bytes(header + flow.tobytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.root)
        yield made


@pytest.fixture(scope="module")
def checkpoint(inside: Workspace) -> Path:
    request = hwbench.TrainRequest(
        architecture=NETWORK,
        data=VIDEOS,
        modality="flow:motion",
        epochs=40,
        batch_size=8,
        settings=("ema_decay=0", "eval_every=40"),
        threads=1,
        workers=0,
        out="run",
    )
    return hwbench.train(request).checkpoint


def test_what_only_motion_tells_is_learnt(checkpoint: Path) -> None:
    stored, _ = load_checkpoint(checkpoint)
    assert stored.metrics["top1"] >= 0.75  # chance is 1/8
    assert stored.network.input.key == "1x2x4x32x32"
    assert str(stored.flow) == "flow:motion"
    assert stored.facts["modality"] == "flow:motion"
    run = json.loads((checkpoint.parent / "run.json").read_text())
    assert run["reading"] == {"modality": "flow:motion"}


def test_a_test_sees_flow_without_being_told(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    values, _ = printed(
        capfd, "test", str(checkpoint), "--clips", "1", "--crops", "1", "--threads", "1", "--workers", "0"
    )
    assert values["top1"] == load_checkpoint(checkpoint)[0].metrics["top1"]
    with pytest.raises(InvalidValue, match="was trained on flow:motion"):
        hwbench.test(hwbench.TestRequest(checkpoint=checkpoint, modality="rgb"))


def test_weights_of_flow_begin_no_training_on_pictures(checkpoint: Path) -> None:
    network = load_checkpoint(checkpoint)[0].network.name
    wanted = hwbench.TrainRequest(architecture=network, weights=checkpoint.parent, modality="rgb", out=Path("pictures"))
    with pytest.raises(InvalidValue, match="was trained on flow:motion; leave --modality out"):
        hwbench.train(wanted)
    assert not Path("pictures").exists()


def test_a_file_is_exported_and_says_what_it_sees(checkpoint: Path) -> None:
    result = hwbench.export(hwbench.ExportRequest(model=str(checkpoint), out="file", precision="fp32", threads=1))
    manifest = result.model.manifest
    assert (
        manifest.accuracy.top1_after == manifest.accuracy.top1_before == load_checkpoint(checkpoint)[0].metrics["top1"]
    )
    assert manifest.input.shape == (4, 2, 32, 32)
    assert "(T,2,H,W)" in manifest.input.layout
    assert "optical flow" in manifest.input.axes[1]
    page = Path("file/RUN.md").read_text()
    assert "(4, 2, 32, 32)" in page
    assert "R, G, B" not in page
    assert ".reshape(4, 32, 32, 2)" in page


def test_flow_of_a_stream_of_pictures_is_refused(checkpoint: Path) -> None:
    request = hwbench.ExportRequest(model=str(checkpoint), out="stream", precision="fp32", streaming=True)
    with pytest.raises(InvalidValue, match="--streaming"):
        hwbench.export(request)


def test_published_weights_take_pictures(checkpoint: Path, tmp_path: Path) -> None:
    torch.save(load_checkpoint(checkpoint)[1], tmp_path / "weights.pth")
    request = hwbench.TrainRequest(
        architecture=NETWORK, data=VIDEOS, modality="flow:motion", weights=tmp_path / "weights.pth", threads=1
    )
    with pytest.raises(InvalidValue, match="published weights take pictures; leave --weights out with --modality flow"):
        hwbench.train(request)


def test_a_run_that_begins_with_flow_goes_on_with_flow(checkpoint: Path, tmp_path: Path) -> None:
    stored, _ = load_checkpoint(checkpoint)
    request = hwbench.TrainRequest(
        architecture=NETWORK, data=VIDEOS, weights=checkpoint, threads=1, workers=0, epochs=1, lr=1e-9, out=tmp_path
    )
    begun, _ = load_checkpoint(hwbench.train(request).checkpoint)
    assert (begun.flow, begun.network) == (stored.flow, stored.network)
    assert begun.metrics["top1"] >= stored.metrics["top1"] - 0.1


def test_a_page_shows_what_it_sees() -> None:
    request = hwbench.ShowDataRequest(data=VIDEOS, modality="flow:motion", size=32, most_classes=2, per_class=1)
    assert hwbench.show_data(request).classes == 2
    assert "flow:motion" in Path("sheet.html").read_text()


@pytest.fixture
def fake(inside: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDevice:
    """A device of which nothing is measured, with a table of the space as it is for pictures."""
    inside.store.unlink(missing_ok=True)
    space_table(load_space(inside, "micro"), INT8).write(table_path(inside.root, TARGET, INT8))
    return fake_device(monkeypatch, tmp_path / "files")


def search(**options: Any) -> hwbench.SearchResult:
    how = {"space": "micro", "budget": "1 s", "data": VIDEOS, "trials": 3, "epochs": 1, "finalist_epochs": 1}
    return hwbench.search(hwbench.SearchRequest(**how | {"finalists": 2, "study": "motion"} | options))


def test_a_search_trains_and_measures_networks_of_flow(inside: Workspace, fake: FakeDevice) -> None:
    result = search(modality="flow:motion")
    assert result.settings.modality == "flow:motion"
    assert len({one.score for one in result.history}) > 0
    measured = {one.key for one in fake.visits if "micro" in one.key or "stem" in one.key}
    assert measured
    assert all("1x2x4x32x32" in key for key in measured)
    assert result.race is not None
    for standing in result.race.rounds[0].standings:
        stored, _ = load_checkpoint(inside.root / standing.checkpoint)
        assert (str(stored.flow), stored.network.input.c) == ("flow:motion", 2)
    stored_result = read_result(inside, "motion")
    assert "--modality flow:motion" in commands.search(stored_result)
    assert "--modality flow:motion" in commands.train(stored_result)
    with pytest.raises(InvalidValue, match="modality was 'flow:motion', now ''"):
        search()


def test_scores_of_pictures_are_not_taken_for_those_of_flow(inside: Workspace, fake: FakeDevice) -> None:
    search(study="pictures", finalists=0, finalist_epochs=None)
    said = Keeper()
    request = hwbench.SearchRequest(
        space="micro", budget="1 s", data=VIDEOS, trials=3, epochs=1, finalists=0, modality="flow:motion",
        learn_from=("pictures",), study="second",
    )  # fmt: skip
    hwbench.search(request, said)
    assert not any("were trained just as here" in line for line in said.lines)
    assert any(line.startswith("networks see flow:motion: predictions are those of") for line in said.lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "goes with --evaluator short-train or curve, or with --finalists, got --evaluator entropy"),
        ({"evaluator": "zero-cost", "finalists": 4}, "got --evaluator zero-cost"),
        ({"data": "clips", "streaming": True}, "frames of a stream are pictures; leave out --modality flow"),
    ],
)
def test_a_search_of_flow_trains_on_it(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        hwbench.SearchRequest(budget="5ms", modality="flow", **options)


def test_finalists_of_flow_may_be_found_without_training() -> None:
    request = hwbench.SearchRequest(budget="5ms", modality="flow", evaluator="entropy", finalists=4)
    assert request.plan.evaluator == "entropy"


def test_the_speed_of_reading_flow_is_told() -> None:
    request = hwbench.BenchDataRequest(
        data=VIDEOS, modality="flow:motion", frames=4, size=32, workers=(0,), decoder=("pyav",), seconds=0.4
    )
    result = hwbench.bench_data(request)
    assert result.rates[0].clips > 0
    assert result.stages.seconds["decode"] > 0
    assert result.stages.seconds["convert"] == 0
    with pytest.raises(InvalidValue, match="neither a folder nor a method"):
        hwbench.bench_data(hwbench.BenchDataRequest(data=VIDEOS, modality="flow:nowhere"))
