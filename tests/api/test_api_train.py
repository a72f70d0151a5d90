"""``hwbench.train`` and ``hwbench.test``: the same values as the commands, without a terminal."""

import json
import math
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from micro_workspace import NETWORK, VIDEOS, make, printed

import hwbench
import hwbench.data.sources
import hwbench.data.videos
from hwbench.api.export_sources import source_of
from hwbench.api.models import resolve_model
from hwbench.api.train_request import QAT_EPOCHS, QAT_RATE
from hwbench.data import FailurePolicy, Normalisation, PictureSpec, open_splits
from hwbench.data.video_scores import load_scores
from hwbench.deploy import open_validation
from hwbench.errors import (
    InvalidFile,
    InvalidValue,
    MissingDependency,
    UnknownName,
    UnsupportedModule,
    UsageError,
    WorkspaceError,
)
from hwbench.interpreter import python_environment
from hwbench.models import by_hand
from hwbench.models.hand_weights import HandWeights
from hwbench.spaces import load_named
from hwbench.specs import TensorSpec, model_name
from hwbench.testing.listeners import Keeper
from hwbench.training import FineTuning, Resources, TrainingProgress, load_checkpoint, save_checkpoint
from hwbench.training.quantized import Quantization
from hwbench.training.recipe import LOSSES, OPTIMIZERS, PRECISIONS, Recipe
from hwbench.training.run import initial
from hwbench.training.teacher import Teacher
from hwbench.workspace import Workspace

Trained = tuple[hwbench.TrainResult, Keeper]
COMMAND = ("train", NETWORK, "--data", VIDEOS, "--epochs", "2", "--batch-size", "8", "--threads", "1", "--workers", "0")
REQUEST = hwbench.TrainRequest(architecture=NETWORK, data=VIDEOS, epochs=2, batch_size=8, threads=1, workers=0)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make(tmp_path_factory.mktemp("api-train") / "bench")


@pytest.fixture(autouse=True)
def inside(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace.root)


@pytest.fixture(scope="module")
def trained(workspace: Workspace) -> Trained:
    """A network of the micro space, trained for two epochs, and what was heard of it."""
    heard = Keeper()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workspace.root)
        return hwbench.train(REQUEST, heard, workspace=workspace), heard


def test_the_data_is_listed_once(workspace: Workspace, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, read = [], hwbench.data.sources.read
    monkeypatch.setattr(hwbench.data.sources, "read", lambda *a: listed.append(a) or read(*a))
    hwbench.train(REQUEST, workspace=workspace)
    assert len(listed) == 1


def test_a_causal_network_is_another_run_and_stays_causal(workspace: Workspace, trained: Trained) -> None:
    causal = hwbench.train(replace(REQUEST, causal=True, epochs=1), workspace=workspace)
    assert causal.checkpoint.parent != trained[0].checkpoint.parent
    plain, made = (load_checkpoint(one.checkpoint)[0].network for one in (trained[0], causal))
    assert made == plain.causal()
    assert made != plain


def test_the_result_of_a_training_is_what_the_command_prints(
    trained: Trained, capfd: pytest.CaptureFixture[str]
) -> None:
    result, _ = trained
    values, talk = printed(capfd, *COMMAND)
    assert values == result.to_json()
    assert "finished before" in talk
    assert (result.architecture, result.epochs, result.chance) == (NETWORK, 2, 1 / 8)
    assert "top1_start" not in values


def test_a_finished_run_is_given_back_and_said(workspace: Workspace, trained: Trained) -> None:
    heard = Keeper()
    again = hwbench.train(REQUEST, heard, workspace=workspace)
    assert again.finished_before
    assert again.to_json() == trained[0].to_json()
    assert not heard.steps
    (line,) = heard.lines
    assert "start over with --fresh" in line


def test_a_finished_run_whose_validation_labels_were_corrected_says_so(
    workspace: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lists = tmp_path / "lists"
    for side in ("train", "val"):
        files = sorted((workspace.root / VIDEOS / side).glob("*/*.mp4"))
        lists.mkdir(exist_ok=True)
        (lists / f"{side}.txt").write_text("".join(f"{file} {file.parent.name}\n" for file in files))
    request = replace(REQUEST, data=str(lists), epochs=1, out=tmp_path / "run")
    first = hwbench.train(request, workspace=workspace)
    rows = (lists / "val.txt").read_text().splitlines()
    (lists / "val.txt").write_text("".join(f"{row}\n" for row in (rows[0].rsplit(" ", 1)[0] + " shrink", *rows[1:])))
    heard = Keeper()
    again = hwbench.train(request, heard, workspace=workspace)
    assert again.finished_before
    assert again.to_json() == first.to_json()
    before, changed = heard.lines
    assert "was finished before" in before
    assert f"it was validated on other videos or labels than {lists} has now; score it anew: hwbench test" in changed
    values, _ = printed(capfd, *changed.partition("hwbench ")[2].split(), "--threads", "1", "--workers", "0")
    assert values["videos"] == 8
    stored, weights = load_checkpoint(first.checkpoint)
    facts = {name: fact for name, fact in stored.facts.items() if name != "validation"}
    save_checkpoint(first.checkpoint, replace(stored, facts=facts), weights)  # as runs of before were stored
    silent = Keeper()
    assert hwbench.train(request, silent, workspace=workspace).finished_before
    assert len(silent.lines) == 1


@pytest.mark.parametrize(("own_model", "qat"), [(False, False), (True, False), (True, True)])
def test_what_scores_a_finished_run_anew_has_the_options_that_it_needs(
    workspace: Workspace,
    own: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    own_model: bool,
    qat: bool,
) -> None:
    data = tmp_path / "own data"
    for side in ("train", "val"):
        for name in ("grow", "shrink"):
            shutil.copytree(workspace.root / VIDEOS / side / name, data / side / name)
    (data / "val" / "grow" / "junk.mp4").write_bytes(b"junk")
    model = f"{own}:network@1x3x4x16x16" if own_model else NETWORK
    policy = "replace" if qat else "skip"
    request = replace(
        REQUEST, architecture=model, data=str(data), epochs=1, batch_size=4, on_error=policy, out=tmp_path / "a run"
    )
    first = hwbench.train(request, workspace=workspace)
    if qat:
        made_by = f"{own}:normalised, {model}"
        request = replace(
            request, architecture=str(first.checkpoint), qat=True, made_by=made_by, data=None, out=tmp_path / "tuned"
        )
        first = hwbench.train(request, workspace=workspace)
    shutil.copy(next((data / "train" / "grow").glob("*.mp4")), data / "val" / "grow" / "more.mp4")
    heard = Keeper()
    assert hwbench.train(request, heard, workspace=workspace).to_json() == first.to_json()
    advice = next(line for line in heard.lines if "score it anew" in line)
    argv = shlex.split(advice.partition("hwbench ")[2])
    assert argv[-2:] == (["--made-by", model] if own_model else ["--on-error", policy])
    if own_model:
        forget_names(monkeypatch)
    values, _ = printed(capfd, *argv, "--threads", "1", "--workers", "0")
    assert (values["videos"], len(values["unreadable"])) == (3, 1)
    if qat:
        monkeypatch.setattr(model_name, "_named", {})
        hwbench.train(replace(request, made_by=None), heard, workspace=workspace)
        assert heard.lines[-2].endswith(" --made-by package.module:function")


@pytest.mark.parametrize("fresh", [False, True])
def test_what_no_training_wrote_is_not_replaced(workspace: Workspace, tmp_path: Path, fresh: bool) -> None:
    for name, content in (("run.json", "{}"), ("scores.json", "mine"), ("notes.txt", "mine")):
        (tmp_path / name).write_text(content)
    with pytest.raises(InvalidValue, match=r"--out: run\.json and scores\.json in .* came from no training"):
        hwbench.train(replace(REQUEST, out=tmp_path, fresh=fresh), workspace=workspace)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "run.json": "{}",
        "scores.json": "mine",
        "notes.txt": "mine",
    }


@pytest.mark.parametrize(
    ("names", "fresh", "told"),
    [
        (("checkpoint.pt",), True, r"checkpoint\.pt in"),
        (("metrics.jsonl", "tensorboard/events", "resume.pt"), True, r"metrics\.jsonl, tensorboard and resume\.pt in"),
        (("metrics.jsonl",), False, r"metrics\.jsonl in"),
    ],
)
def test_a_folder_that_is_no_run_keeps_its_files(
    workspace: Workspace, tmp_path: Path, names: tuple[str, ...], fresh: bool, told: str
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        torch.save({"state_dict": {}}, tmp_path / name)
    before = {name: (tmp_path / name).read_bytes() for name in names}
    with pytest.raises(InvalidValue, match=f"--out: {told} .* came from no training, and would be"):
        hwbench.train(replace(REQUEST, out=tmp_path, fresh=fresh), workspace=workspace)
    assert {name: (tmp_path / name).read_bytes() for name in names} == before


def test_that_a_run_begins_anew_since_its_videos_have_changed_is_said(workspace: Workspace, tmp_path: Path) -> None:
    videos = shutil.copytree(workspace.root / VIDEOS, tmp_path / "videos")
    request, heard = replace(REQUEST, data=str(videos), seed=11), Keeper()  # no other test trains with this seed
    before = {*(workspace.root / "runs").glob("*")}
    with pytest.raises(KeyboardInterrupt):
        hwbench.train(request, Leaving(), workspace=workspace)
    (interrupted,) = {*(workspace.root / "runs").glob("*")} - before
    video = min((videos / "train").rglob("*.mp4"))
    shutil.copy(video, video.with_name("more.mp4"))
    hwbench.train(replace(request, seed=12), heard, workspace=workspace)
    assert heard.lines == []  # another recipe is asked for
    folder = hwbench.train(request, heard, workspace=workspace).checkpoint.parent
    assert heard.lines == [
        f"{interrupted}: was interrupted on other videos or clips of {videos} than there are now, and does not go on; "
        f"{folder} begins anew"
    ]


def test_what_a_run_of_before_left_starts_over(workspace: Workspace, tmp_path: Path) -> None:
    """A run is told by its description, which it had not once, by its state, or by its checkpoint."""
    request = replace(REQUEST, out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        hwbench.train(request, Leaving(), workspace=workspace)
    (tmp_path / "run.json").unlink()
    anew = replace(request, epochs=1, fresh=True)
    assert not hwbench.train(anew, workspace=workspace).finished_before
    (tmp_path / "run.json").unlink()
    assert not hwbench.train(anew, workspace=workspace).finished_before
    (tmp_path / "checkpoint.pt").write_text("damaged")
    assert not hwbench.train(anew, workspace=workspace).finished_before


def test_the_listener_hears_every_step(trained: Trained) -> None:
    result, heard = trained
    assert [at.step for at in heard.steps][-1] == result.steps == heard.steps[-1].steps == 4
    assert {at.stage for at in heard.stages} == {"train micro:…"}
    assert (heard.stages[0].done, heard.stages[0].total) == (0, None)
    assert (heard.stages[-1].done, heard.stages[-1].total) == (4, 4)
    assert heard.stages[-1].note.startswith("epoch 2/2  loss ")
    assert heard.stages[-1].rate.endswith(" steps/s")
    assert f"top-1 {result.top1:.3f}" in heard.stages[-1].note
    assert heard.lines == []


def test_the_frame_of_a_training_is_its_log(trained: Trained, tmp_path: Path) -> None:
    result, heard = trained
    frame = result.to_frame()
    steps, epochs = frame[frame.event == "step"], frame[frame.event == "epoch"]
    assert (len(steps), len(epochs), len(frame)) == (4, 2, 6)
    assert list(epochs.top1)[-1] == result.top1
    assert list(steps.loss)[-1] == heard.steps[-1].loss
    moved = hwbench.TrainResult(**{**vars(result), "checkpoint": tmp_path / "checkpoint.pt"})
    with pytest.raises(InvalidFile, match=r"metrics\.jsonl.*hwbench train"):
        moved.to_frame()


def test_the_scores_of_a_checkpoint_are_what_the_command_prints(
    workspace: Workspace, trained: Trained, capfd: pytest.CaptureFixture[str]
) -> None:
    heard, checkpoint = Keeper(), trained[0].checkpoint
    request = hwbench.TestRequest(checkpoint=checkpoint, clips=2, threads=1, workers=0)
    scored = hwbench.test(request, heard, workspace=workspace)
    values, _ = printed(capfd, "test", str(checkpoint), "--clips", "2", "--threads", "1", "--workers", "0")
    assert values == scored.to_json()
    assert (scored.videos, scored.views, scored.data, scored.unreadable) == (8, 6, VIDEOS, ())
    end = heard.ends()["test"]
    assert end.done == end.total
    once = hwbench.TestRequest(checkpoint=checkpoint, clips=1, crops=1, threads=1, workers=0)
    assert hwbench.test(once, workspace=workspace).top1 == trained[0].top1


def test_scores_of_each_video_are_kept(workspace: Workspace, trained: Trained, tmp_path: Path) -> None:
    result = trained[0]
    kept = load_scores(result.checkpoint.parent / "scores.npz")
    assert (kept.top(1), len(kept.videos)) == (result.top1, 8)
    report = json.loads((result.checkpoint.parent / "scores.json").read_text())
    assert (report["top1"], report["classes"]) == (result.top1, list(kept.classes))
    assert sum(map(sum, report["confusion"])) == 8
    request = hwbench.TestRequest(
        checkpoint=result.checkpoint, clips=2, threads=1, workers=0, scores=tmp_path / "test.npz"
    )
    tested = hwbench.test(request, workspace=workspace)
    again = load_scores(tmp_path / "test.npz")
    assert (again.top(1), again.videos) == (tested.top1, kept.videos)


def test_a_network_learns_from_another(workspace: Workspace, trained: Trained) -> None:
    values = {**vars(REQUEST), "epochs": 1, "teacher": trained[0].checkpoint.parent}
    taught = hwbench.train(hwbench.TrainRequest(**values), workspace=workspace)
    assert taught.checkpoint.parent != trained[0].checkpoint.parent
    facts = load_checkpoint(taught.checkpoint)[0].facts
    assert facts["teacher"] == f"sha256 {load_checkpoint(trained[0].checkpoint)[0].sha256}"
    network = resolve_model(workspace, NETWORK, 8)
    longer = replace(network, input=TensorSpec(1, 3, 8, 32, 32))
    with pytest.raises(InvalidValue, match=r"--teacher: .* sees clips 3x4x32x32, .*8"):
        Teacher.of(trained[0].checkpoint).module(longer, kept_classes(trained), Normalisation())
    with pytest.raises(InvalidValue, match="--teacher: the classes of"):
        Teacher.of(trained[0].checkpoint).module(network, ("a", "b"), Normalisation())


def kept_classes(trained: Trained) -> tuple[str, ...]:
    return load_checkpoint(trained[0].checkpoint)[0].classes


def test_the_log_for_tensorboard(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {**vars(REQUEST), "epochs": 1, "tensorboard": True, "out": tmp_path / "run"}
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingDependency, match=r"tensorboard is not installed.*hwbench\[tensorboard\]"):
        hwbench.train(hwbench.TrainRequest(**values), workspace=workspace)
    monkeypatch.undo()
    monkeypatch.chdir(workspace.root)
    pytest.importorskip("tensorboard", reason="pip install 'hwbench[tensorboard]'")
    hwbench.train(hwbench.TrainRequest(**values), workspace=workspace)
    (events,) = (tmp_path / "run" / "tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()
    assert b"validation/top1" in events.read_bytes()


@pytest.mark.long
def test_two_processes_print_one_result(workspace: Workspace, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "hwbench"]
    environment = python_environment({"OMP_NUM_THREADS": "1"})
    words = ["train", NETWORK, "--data", VIDEOS, "--epochs", "1", "--batch-size", "8", "--workers", "0", "--json"]
    done = subprocess.run(
        [*command, *words, "--out", str(tmp_path / "run")],
        env=environment, cwd=workspace.root, capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    values = json.loads(done.stdout)
    assert values["steps"] == 2
    assert load_checkpoint(tmp_path / "run" / "checkpoint.pt")[0].metrics["top1"] == values["top1"]
    wrong = subprocess.run(
        [*command, *words, "--teacher", "nowhere"],
        env=environment, cwd=workspace.root, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert wrong.returncode != 0
    (line,) = [line for line in wrong.stderr.splitlines() if line.startswith("hwbench: ")]
    assert "nowhere" in line


@pytest.mark.slow
def test_fine_tuning_tells_what_it_started_from(workspace: Workspace, trained: Trained) -> None:
    start = trained[0]
    values = {"architecture": str(start.checkpoint.parent), "qat": True, "batch_size": 8, "threads": 1, "workers": 0}
    tuned = hwbench.train(hwbench.TrainRequest(**values, epochs=1, out=Path("tuned")), workspace=workspace)
    assert (tuned.epochs, tuned.architecture) == (1, NETWORK)
    assert tuned.to_json()["top1_start"] == tuned.top1_start == start.top1
    with pytest.raises(InvalidValue, match=r"on data that seed 0 splits .* leave --seed out"):
        hwbench.train(hwbench.TrainRequest(**values, seed=1), workspace=workspace)


def test_fine_tuning_is_compared_with_the_same_views_of_the_same_videos(
    workspace: Workspace, trained: Trained, tmp_path: Path
) -> None:
    """The start is a finalist of a search, whose data has another seed than its weights."""
    class_folders(workspace, tmp_path / "data", "grow", "shrink")
    request = replace(REQUEST, data=str(tmp_path / "data"), epochs=1, batch_size=4, clips=2, crops=3)
    first = hwbench.train(replace(request, out=tmp_path / "run"), workspace=workspace)
    own, weights = load_checkpoint(first.checkpoint)
    finalist = replace(own, recipe=replace(own.recipe, seed=2), split_seed=0)
    start = save_checkpoint(tmp_path / "finalist.pt", finalist, weights)
    tuning = replace(request, architecture=str(start.path), data=None, qat=True, clips=None, crops=None)
    same = hwbench.train(replace(tuning, out=tmp_path / "same"), workspace=workspace)
    tuned = load_checkpoint(same.checkpoint)[0]
    assert (tuned.recipe.test_clips, tuned.recipe.test_crops, tuned.data_seed) == (2, 3, 0)
    assert tuned.facts["data"] == own.facts["data"]
    assert same.to_json()["top1_start"] == same.top1_start == own.metrics["top1"]

    class_folders(workspace, tmp_path / "others", "grow", "shrink")
    for file in sorted((tmp_path / "others").glob("*/*.mp4")):
        file.rename(file.with_name(f"other-{file.name}"))
    others = {"clips": {"clips": 3}, "crops": {"crops": 1}, "videos": {"data": str(tmp_path / "others")}}
    for name, how in others.items():
        other = hwbench.train(replace(tuning, **how, out=tmp_path / name), workspace=workspace)
        assert other.top1_start is None, name
        assert "top1_start" not in other.to_json()

    before = FineTuning.of(start.path)
    without = {name: fact for name, fact in own.facts.items() if name != "validation"}
    old = replace(before, checkpoint=replace(before.checkpoint, facts=without))  # as it was written once
    assert old.top1_before(tuned) == own.metrics["top1"]
    assert old.top1_before(load_checkpoint(tmp_path / "videos" / "checkpoint.pt")[0]) is None
    larger = replace(before, checkpoint=replace(before.checkpoint, picture=PictureSpec(test_scale=1.14)))
    assert larger.top1_before(replace(tuned, picture=PictureSpec(test_scale=1.14))) is None


@pytest.mark.parametrize("crops", [1, 3])
def test_a_network_with_rounding_is_tested_on_crops_of_the_one_size_it_takes(
    workspace: Workspace, trained: Trained, tmp_path: Path, crops: int
) -> None:
    own, weights = load_checkpoint(trained[0].checkpoint)
    published = save_checkpoint(tmp_path / "given.pt", replace(own, picture=PictureSpec(test_scale=1.14)), weights).path
    request = replace(REQUEST, architecture=str(published), data=None, qat=True, epochs=1, crops=crops)
    tuned = hwbench.train(replace(request, out=tmp_path / "tuned"), workspace=workspace)
    scored = hwbench.TestRequest(checkpoint=tuned.checkpoint, clips=1, threads=1, workers=0)
    assert hwbench.test(scored, workspace=workspace).views == 3
    assert hwbench.test(replace(scored, crops=crops), workspace=workspace).top1 == tuned.top1


def test_a_run_from_a_checkpoint_sees_videos_as_its_training_did(
    workspace: Workspace, trained: Trained, tmp_path: Path
) -> None:
    own, weights = load_checkpoint(trained[0].checkpoint)
    other = replace(
        own, clip=replace(own.clip, stride=2, span_s=None), normalisation=Normalisation((0.2,) * 3, (0.3,) * 3)
    )
    given = save_checkpoint(tmp_path / "given.pt", other, weights).path
    request = replace(REQUEST, epochs=1, weights=given)
    started = [
        load_checkpoint(hwbench.train(replace(request, out=tmp_path / name, **how), workspace=workspace).checkpoint)[0]
        for name, how in (("as it was", {}), ("as it is asked for", {"stride": 3}))
    ]
    assert [one.clip for one in started] == [other.clip, replace(other.clip, stride=3)]
    assert [one.normalisation for one in started] == [other.normalisation] * 2
    flow = replace(request, modality="flow", out=tmp_path / "flow")
    with pytest.raises(InvalidValue, match=r"given.pt was trained on pictures; leave --modality out"):
        hwbench.train(flow, workspace=workspace)
    rounded = replace(other, quantization=Quantization("0" * 64))
    save_checkpoint(given, rounded, weights)
    with pytest.raises(InvalidValue, match="was trained with the rounding of int8; give the checkpoint"):
        hwbench.train(replace(request, out=tmp_path / "rounded"), workspace=workspace)


OWN = """from torch import nn

INPUT = 1, 3, 4, 32, 32

def network(num_classes=8):
    layers = nn.Conv3d(3, 8, (1, 3, 3), (1, 2, 2)), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, num_classes))

def normalised(num_classes=8):
    return nn.Sequential(nn.BatchNorm3d(3), *network(num_classes))

def cubic(num_classes=8):
    layers = nn.AdaptiveAvgPool3d((1, 1, 1)), nn.Conv3d(3, num_classes, 1), nn.Flatten(), nn.ReLU()
    return nn.Sequential(*layers)

def mixed(num_classes=8):
    return nn.Sequential(*cubic(num_classes), nn.Unflatten(1, (-1, 2)), nn.Linear(2, 2), nn.Flatten())

class Registered(nn.Module):
    # its last layer has names in two containers
    input_shape = INPUT

    def __init__(self, num_classes, wrap=lambda layer: layer):
        super().__init__()
        *layers, last = network(num_classes)
        self.stem, self.head = nn.Sequential(*layers), nn.Sequential(wrap(last))
        self.blocks = nn.ModuleList([self.stem, self.head])

    def forward(self, x):
        return self.head(self.stem(x))

def registered(num_classes=8):
    return Registered(num_classes)

def weight_normed(num_classes=8):
    return Registered(num_classes, nn.utils.parametrizations.weight_norm)

def spectral_normed(num_classes=8):
    return Registered(num_classes, nn.utils.parametrizations.spectral_norm)

class Answering(nn.Module):
    input_shape = INPUT

    def __init__(self, num_classes, answer):
        super().__init__()
        self.net, self.answer = normalised(num_classes), answer

    def forward(self, x):
        logits = self.net(x)
        return self.answer(logits) if self.training else logits

def with_auxiliary(num_classes=8):
    return Answering(num_classes, lambda logits: (logits, logits))

def keyed(num_classes=8):
    return Answering(num_classes, lambda logits: {"out": logits})

def with_axis(num_classes=8):
    return Answering(num_classes, lambda logits: logits[:, None])

def per_frame(num_classes=8):
    return Answering(num_classes, lambda logits: logits.repeat(4, 1))

def both_ways(num_classes=8):
    return Answering(num_classes, lambda logits: logits.repeat(1, 2))

def detached(num_classes=8):
    return Answering(num_classes, lambda logits: logits.detach())

def of_classes(num_classes):
    return network(num_classes)

def of_two(num_classes):
    if num_classes != 2:
        raise ValueError(f"made for two classes, not for {num_classes}")
    return network(num_classes)

def of_two_by_default(num_classes=2):
    return of_two(num_classes)

for one in (network, normalised, cubic, mixed, of_classes, of_two, of_two_by_default):
    one.input_shape = INPUT
"""


@pytest.fixture
def own(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of a user's functions."""
    (workspace.root / "api_own_nets.py").write_text(OWN)
    monkeypatch.syspath_prepend(workspace.root)
    return "api_own_nets"


def forget_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process, to which no model was named."""
    monkeypatch.setattr(by_hand, "_loaded", {})
    monkeypatch.setattr(by_hand, "_makers", {})


def class_folders(workspace: Workspace, folder: Path, *names: str) -> str:
    """A data set of some classes alone."""
    for name in names:
        (folder / name).mkdir(parents=True)
        for file in (workspace.root / VIDEOS / "train" / name).glob("*.mp4"):
            (folder / name / file.name).write_bytes(file.read_bytes())
    return str(folder)


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"settings": ("freeze=7",)}, InvalidValue, "freeze: the network has 2 blocks"),
        ({"cuda_graphs": True, "device": "cpu"}, InvalidValue, "--cuda-graphs needs a GPU"),
        ({"optimizer": "lamb"}, MissingDependency, "timm is not installed"),
        ({"tensorboard": True}, MissingDependency, "tensorboard is not installed"),
        ({"teacher": True}, InvalidValue, "--teacher: the classes of"),
    ],
)
def test_a_refused_training_that_would_start_over_deletes_nothing(
    workspace: Workspace,
    own: str,
    trained: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, object],
    error: type[Exception],
    words: str,
) -> None:
    data, folder = class_folders(workspace, tmp_path / "data", "grow", "shrink"), tmp_path / "run"
    request = replace(REQUEST, architecture=f"{own}:network", data=data, epochs=1, batch_size=2, out=folder)
    hwbench.train(request, workspace=workspace)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {"checkpoint.pt", "metrics.jsonl", "run.json", "scores.json", "scores.npz"} <= before.keys()
    for module in ("timm.optim", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    if "teacher" in how:
        how = {"teacher": trained[0].checkpoint}
    with pytest.raises(error, match=words):
        hwbench.train(replace(request, fresh=True, **how), workspace=workspace)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    again = hwbench.train(replace(request, fresh=True, seed=1), workspace=workspace)
    assert (again.finished_before, load_checkpoint(again.checkpoint)[0].recipe.seed) == (False, 1)
    assert len(again.to_frame()) == again.steps + 1


class Leaving(hwbench.Listener):
    """Ends a run in its second epoch."""

    def trained(self, at: TrainingProgress) -> None:
        if at.epoch == 2:
            raise KeyboardInterrupt


def test_a_refused_training_that_would_start_over_is_not_said_to_go_on(workspace: Workspace, tmp_path: Path) -> None:
    """What is stored then is of the run before, perhaps of another one."""
    folder = tmp_path / "run"
    request = replace(REQUEST, epochs=2, out=folder)
    with pytest.raises(KeyboardInterrupt):
        hwbench.train(request, Leaving(), workspace=workspace)
    assert (folder / "resume.pt").is_file()
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to("resume.pt/none")  # cannot be opened
    with pytest.raises(WorkspaceError, match=r"the same command again$"):
        hwbench.train(replace(request, epochs=1, fresh=True), workspace=workspace)


def test_a_network_of_a_space_is_made_by_no_function(workspace: Workspace, own: str, tmp_path: Path) -> None:
    run = hwbench.train(replace(REQUEST, epochs=1, out=tmp_path / "run"), workspace=workspace).checkpoint
    by = {"made_by": f"{own}:network"}
    with pytest.raises(UsageError, match=r"--made-by: .* is made of blocks of a space; leave it out"):
        hwbench.test(hwbench.TestRequest(checkpoint=run, **by), workspace=workspace)
    with pytest.raises(UsageError, match=r"--made-by: .* is made of blocks of a space; leave it out"):
        hwbench.export(hwbench.ExportRequest(model=str(run), out=tmp_path / "x", **by), workspace=workspace)


def test_a_run_begins_with_a_checkpoint_of_the_same_function(workspace: Workspace, own: str, tmp_path: Path) -> None:
    request = replace(REQUEST, architecture=f"{own}:network", epochs=1, out=tmp_path / "first")
    first = hwbench.train(request, workspace=workspace).checkpoint
    digest, before = load_checkpoint(first)[0].sha256, load_checkpoint(first)[1]
    still = replace(request, weights=first, lr=1e-12, settings=("weight_decay=0", "ema_decay=0"))
    after = load_checkpoint(hwbench.train(replace(still, out=tmp_path / "second"), workspace=workspace).checkpoint)
    assert after[0].facts["weights"] == f"sha256 {digest}"
    assert all(torch.allclose(after[1][name], tensor, atol=1e-6) for name, tensor in before.items())
    fewer = replace(still, data=class_folders(workspace, tmp_path / "data", "grow", "shrink"), out=tmp_path / "third")
    with pytest.raises(InvalidValue, match=r"has 8 classes, .* has 2; add --new-head"):
        hwbench.train(fewer, workspace=workspace)
    result = hwbench.train(replace(fewer, new_head=True), workspace=workspace)
    weights = load_checkpoint(result.checkpoint)[1]
    assert weights["4.weight"].shape == (2, 8)
    assert torch.allclose(weights["0.weight"], before["0.weight"], atol=1e-6)


def test_weights_of_another_function_or_kind_are_refused_in_one_line(
    workspace: Workspace, trained: Trained, own: str, tmp_path: Path
) -> None:
    def said(error: type[Exception], **fields: object) -> str:
        with pytest.raises(error) as caught:
            hwbench.train(replace(request, **fields), workspace=workspace)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    request = replace(REQUEST, architecture=f"{own}:network", epochs=1, out=tmp_path / "first")
    first = hwbench.train(request, workspace=workspace).checkpoint
    request = replace(request, out=tmp_path / "second", weights=first)
    other = said(InvalidFile, architecture=f"{own}:normalised")
    assert (
        "missing: 0.running_mean and 6 more; not of this network: 4.weight and 1 more; other shape: 0.weight" in other
    )
    assert "is made by a function of yours, and" in said(InvalidValue, architecture=NETWORK)
    block = said(InvalidValue, weights=trained[0].checkpoint)
    assert "is made of hwbench's own blocks, and api_own_nets:network is made by a function of yours" in block
    (tmp_path / "page.pt").write_text("<html>not found</html>")
    wanted = (
        f"expected a checkpoint or the state dict of {own}:network, as written by torch.save(model.state_dict(), FILE)"
    )
    for name in ("page.pt", "none.pt"):
        assert said(InvalidFile, weights=tmp_path / name).endswith(wanted)


def test_a_run_begins_with_a_state_dict_of_a_function(workspace: Workspace, own: str, tmp_path: Path) -> None:
    def begun(values: object, **fields: object) -> dict[str, torch.Tensor]:
        torch.save(values, tmp_path / "plain.pt")
        result = hwbench.train(replace(request, fresh=True, **fields), workspace=workspace)
        return load_checkpoint(result.checkpoint)[1]

    def said(values: object) -> str:
        with pytest.raises(InvalidFile) as caught:
            begun(values)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    still = {"lr": 1e-12, "settings": ("weight_decay=0", "ema_decay=0"), "weights": tmp_path / "plain.pt"}
    request = replace(REQUEST, architecture=f"{own}:network", epochs=1, out=tmp_path / "run", **still)
    module = initial(resolve_model(workspace, f"{own}:network", 8), Recipe())
    weights = {name: value + 1 for name, value in module.state_dict().items()}
    wrapped = {"epoch": 3, "state_dict": {f"module.{name}": value for name, value in weights.items()}}
    for values in (weights, wrapped):
        after = begun(values)
        assert all(torch.allclose(after[name], value, atol=1e-6) for name, value in weights.items())
    other = {**weights, "4.weight": torch.zeros(3, 8), "4.bias": torch.zeros(3)}
    assert torch.allclose(begun(other, new_head=True)["0.weight"], weights["0.weight"], atol=1e-6)
    shapes = (
        "other shape: 4.weight: expected (8, 8), got (3, 8) and 1 more; give weights of the same function, of other"
    )
    assert shapes in said(other)
    whole = {**weights, "0.bias": weights["0.bias"].long()}
    assert "other shape: 0.bias: expected (8,), got (8,) torch.int64" in said(whole)
    assert "missing: 4.bias; give weights" in said({name: weights[name] for name in weights if name != "4.bias"})
    assert "holds 'epoch', which is no tensor; expected the state dict of" in said({**weights, "epoch": 3})
    assert "holds nothing" in said({})


NORMALISED = """
from api_own_nets import INPUT, network as plain

def of_function(num_classes=8):
    return plain(num_classes)

def of_module(num_classes=8):
    module = plain(num_classes)
    module.input_mean, module.input_std = (0, 0, 0), (1, 1, 1)
    return module

def wrong(num_classes=8):
    return plain(num_classes)

of_function.input_shape = of_module.input_shape = wrong.input_shape = INPUT
of_function.input_mean, of_function.input_std = [0.5, 0.4, 0.3], [0.25] * 3
wrong.input_mean = 0.5
"""


def test_a_model_by_hand_is_trained_on_pixels_as_its_function_says(
    workspace: Workspace, own: str, tmp_path: Path
) -> None:
    def seen(name: str, **fields: object) -> tuple[Normalisation, list[str]]:
        keeper, out = Keeper(), tmp_path / f"{name}{len(fields)}"
        asked = replace(REQUEST, architecture=name, epochs=1, out=out, **fields)
        checkpoint = hwbench.train(asked, keeper, workspace=workspace).checkpoint
        return load_checkpoint(checkpoint)[0].normalisation, keeper.lines

    (workspace.root / "api_normalised_nets.py").write_text(NORMALISED)
    module = initial(resolve_model(workspace, f"{own}:network", 8), Recipe())
    torch.save(module.state_dict(), file := tmp_path / "plain.pt")
    for name, expected in (
        ("api_normalised_nets:of_function", Normalisation((0.5, 0.4, 0.3), (0.25,) * 3)),
        ("api_normalised_nets:of_module", Normalisation((0.0,) * 3, (1.0,) * 3)),
    ):
        for fields in ({}, {"weights": file}):
            normalisation, lines = seen(name, **fields)
            assert normalisation == expected
            assert not [line for line in lines if "assumed" in line]
    assumed = f"{own}:network: mean and std of its clips are assumed, 0.45 and 0.225; give the function"
    normalisation, lines = seen(f"{own}:network", weights=file)
    assert normalisation == Normalisation()
    assert [line for line in lines if line.startswith(assumed)]
    normalisation, lines = seen(f"{own}:network")
    assert normalisation == Normalisation()
    assert not [line for line in lines if "assumed" in line]
    with pytest.raises(InvalidValue, match="expected input_mean and input_std, three numbers each"):
        seen("api_normalised_nets:wrong")


def test_weights_that_are_not_there_are_refused_before_the_data_is_opened(workspace: Workspace, tmp_path: Path) -> None:
    request = replace(REQUEST, data="synthetic:none", weights=tmp_path / "none.pt")
    with pytest.raises(InvalidFile, match=r"none\.pt: No such file or directory; expected weights of an X3D"):
        hwbench.train(request, workspace=workspace)


def test_weights_of_a_function_that_are_not_there_are_refused_before_the_data_is_opened(
    workspace: Workspace, own: str, tmp_path: Path
) -> None:
    request = replace(REQUEST, architecture=f"{own}:network", data="synthetic:none", weights=tmp_path / "none.pt")
    with pytest.raises(InvalidFile, match=rf"none\.pt: No such file or directory; .* the state dict of {own}:network"):
        hwbench.train(request, workspace=workspace)
    with pytest.raises(InvalidValue, match="has no 'netwrok'; did you mean"):
        hwbench.train(replace(request, architecture=f"{own}:netwrok"), workspace=workspace)


@pytest.mark.parametrize("name", ["of_two", "of_two_by_default"])
def test_a_function_is_called_with_the_number_of_classes_of_the_data_alone(
    workspace: Workspace, own: str, tmp_path: Path, name: str
) -> None:
    data = class_folders(workspace, tmp_path / "data", "grow", "shrink")
    request = replace(REQUEST, architecture=f"{own}:{name}", data=data, epochs=1, batch_size=4, out=tmp_path / "run")
    first = hwbench.train(request, workspace=workspace).checkpoint
    assert load_checkpoint(first)[1]["4.weight"].shape == (2, 8)
    again = replace(request, weights=first, out=tmp_path / "again")
    assert hwbench.train(again, workspace=workspace).epochs == 1
    page = tmp_path / "page.html"
    asked = hwbench.ShowDataRequest(data=data, architecture=request.architecture, out=page)
    shown = hwbench.show_data(asked, workspace=workspace)
    assert shown.clip == (4, 32, 32)


@pytest.mark.parametrize(("name", "left"), [("network", {"0.weight", "0.bias"}), ("cubic", set()), ("mixed", None)])
def test_the_head_of_a_model_by_hand_is_the_layer_that_a_clip_passes_last(
    workspace: Workspace, own: str, name: str, left: set[str] | None
) -> None:
    network = resolve_model(workspace, f"{own}:{name}", 8)
    weights = {key: value + 1 for key, value in initial(network, Recipe()).state_dict().items()}
    given = HandWeights(Path("own.pt"), "", 8, weights)
    assert given.of(network).keys() == weights.keys()
    if left is None:
        with pytest.raises(InvalidValue, match=r"as wide as its 8 classes, the last one is '5' of width 2; leave"):
            given.of(network, head=False)
    else:
        assert given.of(network, head=False).keys() == left


@pytest.mark.parametrize("classes", [8, 5])
@pytest.mark.parametrize("name", ["registered", "weight_normed", "spectral_normed"])
def test_a_new_head_has_nothing_of_the_old_one_under_any_of_its_names(
    workspace: Workspace, own: str, tmp_path: Path, name: str, classes: int
) -> None:
    network = resolve_model(workspace, f"{own}:{name}", 8)
    torch.save(initial(resolve_model(workspace, f"{own}:{name}", classes), Recipe()).state_dict(), tmp_path / "own.pt")
    given = HandWeights.read(tmp_path / "own.pt", network)
    assert given.of(network, head=False).keys() == {
        "stem.0.weight", "stem.0.bias", "blocks.0.0.weight", "blocks.0.0.bias",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("with_auxiliary", "it returns tuple; wrap it, and return its logits alone: self.net(x)[0]"),
        ("keyed", "it returns dict; wrap it, and return its logits alone: self.net(x)['out']"),
        ("with_axis", "it returns (2, 1, 8)"),
        ("per_frame", "it returns (8, 8); take the mean over frames"),
        ("both_ways", "it returns (2, 16)"),
        ("detached", ""),
    ],
)
def test_a_model_that_answers_otherwise_in_training_is_refused_in_one_line(
    workspace: Workspace, own: str, tmp_path: Path, name: str, words: str
) -> None:
    request = replace(REQUEST, architecture=f"{own}:{name}", epochs=1, out=tmp_path / "run")
    with pytest.raises(UnsupportedModule) as caught:
        hwbench.train(request, workspace=workspace)
    expected = f"expected logits (2, 8) in training, as in eval mode, {words}"
    detached = (
        "its logits in training depend on no weight that is trained; take torch.no_grad() and detach() out of its "
        "forward"
    )
    assert str(caught.value) == f"{own}:{name}: {expected if words else detached}"
    assert not request.out.exists()


@pytest.mark.slow
def test_a_teacher_of_another_function_is_named_beside_the_checkpoint(
    workspace: Workspace, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student, teacher = (
        hwbench.train(
            replace(REQUEST, architecture=f"{own}:{name}", epochs=1, out=tmp_path / name), workspace=workspace
        ).checkpoint
        for name in ("network", "normalised")
    )
    forget_names(monkeypatch)
    request = replace(REQUEST, data=None, architecture=str(student), qat=True, teacher=teacher, epochs=1)
    one = replace(request, made_by=f"{own}:network", out=tmp_path / "tuned")
    with pytest.raises(UnsupportedModule, match="train takes several with commas, as for a --teacher"):
        hwbench.train(one, workspace=workspace)
    both = replace(one, made_by=f"{own}:network, {own}:normalised")
    assert hwbench.train(both, workspace=workspace).epochs == 1


def test_a_checkpoint_tells_its_function_the_number_of_classes(
    workspace: Workspace, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, by = class_folders(workspace, tmp_path / "data", "grow", "shrink"), f"{own}:of_classes"
    request = replace(REQUEST, data=data, epochs=1, batch_size=4)
    first = hwbench.train(replace(request, architecture=by, out=tmp_path / "run"), workspace=workspace)
    scored = hwbench.TestRequest(checkpoint=first.checkpoint, threads=1, workers=0)
    forget_names(monkeypatch)
    with pytest.raises(UnsupportedModule, match="name the function on the command line, as --made-by"):
        hwbench.test(scored, workspace=workspace)
    assert hwbench.test(replace(scored, made_by=by), workspace=workspace).top1 == first.top1
    forget_names(monkeypatch)
    load_named(by)
    assert source_of(first.checkpoint).network.num_classes == 2
    forget_names(monkeypatch)
    taught = replace(request, architecture=f"{own}:network", teacher=first.checkpoint, made_by=by, out=tmp_path / "b")
    assert hwbench.train(taught, workspace=workspace).epochs == 1


def test_a_checkpoint_tells_the_clip_that_its_function_is_made_for(
    workspace: Workspace, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, by = class_folders(workspace, tmp_path / "data", "grow", "shrink"), f"{own}:network"
    request = replace(REQUEST, data=data, epochs=1, batch_size=4, out=tmp_path / "run")
    first = hwbench.train(replace(request, architecture=f"{by}@1x3x2x16x16"), workspace=workspace)
    run, views = str(first.checkpoint), {"threads": 1, "workers": 0}
    for own_clip in (False, True):
        forget_names(monkeypatch)
        if own_clip:
            resolve_model(workspace, by, 2)  # as a student of the same function, on the clip that it says itself
        tested = hwbench.test(hwbench.TestRequest(checkpoint=run, made_by=by, **views), workspace=workspace)
        assert tested.top1 == first.top1
    forget_names(monkeypatch)
    wrong = f"{by}@1x3x4x16x16"
    said = rf"^--made-by {wrong}: .* takes clips 1x3x2x16x16; name {by}, which takes them from there$"
    with pytest.raises(UsageError, match=said):
        hwbench.test(hwbench.TestRequest(checkpoint=run, made_by=wrong, **views), workspace=workspace)
    with pytest.raises(UsageError, match=said):
        hwbench.export(hwbench.ExportRequest(model=run, out=tmp_path / "x", made_by=wrong), workspace=workspace)
    with pytest.raises(UsageError, match=said):
        hwbench.train(replace(request, architecture=run, qat=True, data=None, made_by=wrong), workspace=workspace)


def test_a_single_class_is_told(workspace: Workspace, own: str, tmp_path: Path) -> None:
    heard = Keeper()
    data = class_folders(workspace, tmp_path / "data", "grow")
    request = replace(REQUEST, architecture=f"{own}:network", epochs=1, out=tmp_path / "run", data=data)
    first = hwbench.train(request, heard, workspace=workspace)
    assert first.top1 == 1
    assert any(line.startswith("one class only, 'grow': any network is right") for line in heard.lines)
    tuned, made_by = Keeper(), f"{own}:network"
    rounded = replace(
        request, architecture=str(first.checkpoint), qat=True, made_by=made_by, data=None, out=tmp_path / "tuned"
    )
    hwbench.train(rounded, tuned, workspace=workspace)
    assert [line for line in tuned.lines if line.startswith("one class only, 'grow'")]


def test_another_seed_that_validates_on_what_the_weights_saw_is_told(workspace: Workspace, tmp_path: Path) -> None:
    class_folders(workspace, tmp_path / "data", "grow", "shrink")
    request = replace(REQUEST, data=str(tmp_path / "data"), epochs=1, batch_size=4, out=tmp_path / "first")
    first = hwbench.train(request, workspace=workspace)
    said = []
    for seed in (0, 1, 2):  # 1 divides these few videos as 0 does
        heard = Keeper()
        more = replace(request, weights=first.checkpoint, seed=seed, out=tmp_path / f"seed-{seed}")
        hwbench.train(more, heard, workspace=workspace)
        said.append([line for line in heard.lines if "seed" in line])
    assert said[:2] == [[], []]
    (line,) = said[2]
    assert line.endswith("it is validated on videos that it was trained on; give --seed 0")

    own, weights = load_checkpoint(first.checkpoint)
    finalist = replace(own, recipe=replace(own.recipe, seed=2), split_seed=0)  # as a search trains it
    given = save_checkpoint(tmp_path / "finalist.pt", finalist, weights).path
    heard = Keeper()
    hwbench.train(replace(request, weights=given, seed=2, out=tmp_path / "second"), heard, workspace=workspace)
    assert [one for one in heard.lines if "seed" in one] == [line.replace(str(first.checkpoint), str(given))]


def test_a_checkpoint_of_before_groups_of_ucf_is_tested_on_what_it_was_not_trained_on(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_folders(workspace, tmp_path / "data", "grow", "shrink")
    for folder in (tmp_path / "data").iterdir():
        for clip, file in enumerate(sorted(folder.iterdir())):
            for group in range(3):
                shutil.copy(file, folder / f"v_{folder.name}_g{group:02d}_c{clip:02d}.mp4")
            file.unlink()
    data = str(tmp_path / "data")
    request = replace(REQUEST, data=data, epochs=1, batch_size=4, out=tmp_path / "first")
    with monkeypatch.context() as before:  # an earlier version: names told no groups
        before.setattr(hwbench.data.videos, "with_named_groups", lambda _: ())
        first = hwbench.train(request, workspace=workspace)
        expected = {path.name for path in open_splits(workspace, data).val.paths}
    assert expected != {path.name for path in open_splits(workspace, data).val.paths}
    scores = tmp_path / "scores.npz"
    hwbench.test(hwbench.TestRequest(checkpoint=first.checkpoint, scores=scores), workspace=workspace)
    assert {Path(name).name for name in load_scores(scores).videos} == expected
    validated = open_validation(workspace, data, source_of(first.checkpoint)).dataset.videos
    assert {path.name for path in validated.paths} == expected
    tuned, again = Keeper(), Keeper()
    rounded = replace(request, architecture=str(first.checkpoint), qat=True, data=None, out=tmp_path / "tuned")
    result = hwbench.train(rounded, tuned, workspace=workspace)
    assert load_checkpoint(result.checkpoint)[0].trained_on == load_checkpoint(first.checkpoint)[0].trained_on
    hwbench.train(replace(request, weights=first.checkpoint, out=tmp_path / "second"), again, workspace=workspace)
    said = [[line for line in heard.lines if "groups" in line] for heard in (tuned, again)]
    assert said[0] == []
    assert ["tell groups of UCF" in said[1][0], "without groups: it is validated on videos" in said[1][1]] == [True] * 2


def test_unreadable_videos_are_heard(workspace: Workspace, tmp_path: Path) -> None:
    data = Path(tmp_path / "data")
    for name in ("grow", "shrink"):
        for part in ("train", "val"):
            (data / part / name).mkdir(parents=True)
            for file in (workspace.root / VIDEOS / part / name).glob("*.mp4"):
                (data / part / name / file.name).write_bytes(file.read_bytes())
    bad = next((data / "train" / "grow").glob("*.mp4"))
    bad.write_text("text")
    heard = Keeper()
    request = hwbench.TrainRequest(
        architecture=NETWORK, data=str(data), epochs=1, batch_size=4, threads=1, workers=0, on_error="skip"
    )
    result = hwbench.train(request, heard, workspace=workspace)
    assert result.unreadable == (str(bad),)
    assert heard.lines[0].startswith("1 videos could not be read:\n")
    assert str(bad) in heard.lines[0]


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"epochs": 0}, InvalidValue, "--epochs: expected at least 1"),
        ({"lr": 0.0}, InvalidValue, "--lr: learning_rate must be more than 0, got 0"),
        ({"lr": math.nan}, InvalidValue, "--lr: expected a finite number, got nan"),
        ({"lr": math.inf}, InvalidValue, "--lr: expected a finite number, got inf"),
        ({"optimizer": "adam"}, InvalidValue, "--optimizer: expected adamw, lamb, lars, muon or sgd, got 'adam'"),
        ({"precision": "int8"}, InvalidValue, "--precision: expected bf16, fp16 or fp32"),
        ({"loss": "mse"}, InvalidValue, "--loss: expected auto, bce or cross-entropy"),
        ({"crops": 2}, InvalidValue, "--crops: expected 1 or 3, got 2"),
        ({"crops": 4}, InvalidValue, "--crops: expected 1 to 3"),
        ({"seed": -1}, InvalidValue, "--seed"),
        ({"on_error": "ignore"}, InvalidValue, "expected raise, skip or replace, got 'ignore'"),
        ({"device": "tpu"}, InvalidValue, "expected auto, cpu or cuda, got 'tpu'"),
        ({"span": "2"}, InvalidValue, "--span: '2' has no unit"),
        ({"span": "2s", "stride": 3}, InvalidValue, "not both"),
        ({"new_head": True}, UsageError, "add --weights FILE"),
        ({"variant": "one-hot"}, UsageError, "--variant goes with --qat"),
        ({"qat": True, "variant": "stream"}, UnknownName, "unknown variant 'stream'.*made by export --streaming$"),
        ({"qat": True, "variant": "one-hut"}, UnknownName, "did you mean 'one-hot'"),
        ({"qat": True, "weights": Path("x.pt")}, UsageError, "leave out --weights and --new-head"),
        ({"qat": True, "stride": 2}, UsageError, "cuts clips as the checkpoint did"),
    ],
)
def test_a_wrong_training_is_refused_when_it_is_requested(
    values: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        hwbench.TrainRequest(architecture=NETWORK, **values)


def test_a_wrong_test_is_refused_when_it_is_requested() -> None:
    with pytest.raises(InvalidValue, match="--crops: expected 1 or 3, got 2"):
        hwbench.TestRequest(checkpoint="x", crops=2)
    with pytest.raises(InvalidValue, match="--on-error"):
        hwbench.TestRequest(checkpoint="x", on_error="ignore")
    assert hwbench.TestRequest(checkpoint="x").checkpoint == Path("x")


def test_what_a_request_allows_is_what_the_library_allows() -> None:
    choices = {field.name: field.option.choices for field in hwbench.api.requests.fields_of(hwbench.TrainRequest)}
    assert choices["optimizer"] == OPTIMIZERS
    assert choices["precision"] == PRECISIONS
    assert choices["loss"] == LOSSES
    assert choices["on_error"] == tuple(FailurePolicy)
    assert [Resources(one).device for one in choices["device"]] == list(choices["device"])
    assert hwbench.TrainRequest(architecture=NETWORK).make_recipe() == Recipe()
    tuned = hwbench.TrainRequest(architecture=NETWORK, qat=True).make_recipe(3)
    assert (tuned.epochs, tuned.learning_rate, tuned.seed) == (QAT_EPOCHS, QAT_RATE, 3)
    asked = hwbench.TrainRequest(architecture=NETWORK, qat=True, crops=1).make_recipe(3, (10, 3))
    assert (asked.test_clips, asked.test_crops) == (10, 1)


def test_decoded_videos_on_the_disk_change_no_step(workspace: Workspace, trained: Trained, tmp_path: Path) -> None:
    request = replace(REQUEST, decoded_cache="1GiB", out=tmp_path / "run")
    result = hwbench.train(request, workspace=workspace)
    plain = trained[0].to_frame()
    assert list(result.to_frame().loss.dropna()) == list(plain.loss.dropna())
    assert any((workspace.cache / "decoded").glob("*.frames"))
    tested = [
        hwbench.test(hwbench.TestRequest(checkpoint=result.checkpoint, clips=2, crops=1, threads=1, workers=0, **how))
        for how in ({}, {"decoded_cache": "1GiB"})
    ]
    assert tested[0] == tested[1]


def test_that_decoded_videos_cannot_be_kept_is_said_once(
    workspace: Workspace, trained: Trained, tmp_path: Path
) -> None:
    here = make(tmp_path / "bench")
    here.cache.mkdir(exist_ok=True)
    (here.cache / "decoded").write_text("")
    data, trains, tests = str(workspace.root / VIDEOS), Keeper(), Keeper()
    hwbench.train(replace(REQUEST, decoded_cache="1GiB", data=data), trains, workspace=here)
    request = hwbench.TestRequest(
        checkpoint=trained[0].checkpoint.absolute(),
        data=data,
        clips=2,
        crops=1,
        decoded_cache="1GiB",
        threads=1,
        workers=0,
    )
    hwbench.test(request, tests, workspace=here)
    reason = "(Not a directory); what is not there is decoded each time"
    assert trains.lines == tests.lines == [f"{here.cache / 'decoded'}: cannot keep decoded videos {reason}"]


def test_a_decoder_that_is_not_installed_is_told(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hwbench.data.decoders.torchcodec.is_installed", lambda: False)
        with pytest.raises(MissingDependency, match="pip install 'hwbench"):
            hwbench.train(replace(REQUEST, decoder="torchcodec", out=tmp_path / "run"), workspace=workspace)
