import hashlib
import json
import os
import resource
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import SPEC
from torch import nn

import hwbench
import hwbench.cli.train  # registers the commands
import hwbench.data.builtin
from hwbench import TrainRequest
from hwbench.api.listener import Listener, StageProgress
from hwbench.cli.main import main
from hwbench.data import ClipSpec, FailurePolicy
from hwbench.data.synthetic import prepare
from hwbench.errors import InvalidFile, InvalidValue, WorkspaceError
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.training import (
    CHECKPOINT,
    Checkpoint,
    Recipe,
    TrainingProgress,
    build,
    check_folder,
    evaluate,
    initial,
    load_checkpoint,
    open_data,
    run_folder,
    save_checkpoint,
    score,
    start_over,
    train,
)
from hwbench.training.description import RunDescription, read_description, write_description
from hwbench.training.loop import fingerprint
from hwbench.training.run_lock import is_trained_now
from hwbench.training.state import RESUME, STEP, begun_in, check_same_run
from hwbench.workspace import Workspace, temporary_beside

NETWORK = Network(
    "x3d-tiny:test",
    (BlockSpec.parse("stem_i3_o8_k1x3x3+5x1x1_s2_relu"), BlockSpec.parse("head_i8_m16_d32_o8_kglobal_relu")),
    TensorSpec(1, 3, 4, 16, 16),
)
RECIPE = Recipe(epochs=2, batch_size=4, seed=3)
ARCHITECTURE = (
    "x3d-tiny:frames=8,resolution=64,s1.depth=1,s1.width=32,s1.expansion=2,s1.kernel=1x3x3,s1.se=0,s1.act=relu,"
    "s2.depth=1,s2.width=64,s2.expansion=2,s2.kernel=3x3x3,s2.se=0,s2.act=relu,"
    "s3.depth=1,s3.width=96,s3.expansion=3,s3.kernel=3x3x3,s3.se=0,s3.act=relu"
)


def small_network(network: Network, dropout: float = 0.5) -> nn.Module:
    """Stands for ``hwbench.models.network``: these tests are about the run, not about the layers."""
    return nn.Sequential(
        nn.Conv3d(3, 4, (3, 3, 3), (1, 4, 4), bias=False), nn.BatchNorm3d(4), nn.ReLU(), nn.AdaptiveAvgPool3d(1),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(4, network.num_classes),
    )  # fmt: skip


@pytest.fixture
def workspace(data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with the shipped spaces, small networks and a small synthetic set."""
    models = types.ModuleType("hwbench.models")
    models.network = small_network
    monkeypatch.setitem(sys.modules, "hwbench.models", models)
    monkeypatch.setattr(hwbench, "models", models, raising=False)
    monkeypatch.setattr(hwbench.data.builtin, "SyntheticSpec", lambda: SPEC)
    workspace = Workspace.create(tmp_path / "workspace")
    workspace.data.parent.mkdir(exist_ok=True)
    (data_root / ".hwbench" / "data").mkdir(parents=True, exist_ok=True)
    workspace.data.symlink_to(data_root / ".hwbench" / "data")
    monkeypatch.chdir(workspace.root)
    return workspace


def test_a_run_ends_in_a_checkpoint_and_is_not_run_twice(workspace: Workspace, tmp_path: Path) -> None:
    data = open_data(workspace, "synthetic", (4, 16, 16), RECIPE)
    folder = tmp_path / "run"
    first = train(RECIPE, NETWORK, data, folder)
    assert not first.finished_before
    assert sorted(p.name for p in folder.iterdir()) == [
        ".lock",
        CHECKPOINT,
        "metrics.jsonl",
        "run.json",
        "scores.json",
        "scores.npz",
    ]
    stored, weights = load_checkpoint(folder / CHECKPOINT)
    assert stored == first.checkpoint
    assert (stored.network, stored.recipe, stored.classes) == (NETWORK, RECIPE, data.training.classes)
    assert stored.metrics["epochs"] == 2
    before = (folder / CHECKPOINT).stat().st_mtime_ns
    again = train(RECIPE, NETWORK, data, folder)
    assert again.finished_before
    assert again.checkpoint == stored
    assert (folder / CHECKPOINT).stat().st_mtime_ns == before
    with pytest.raises(InvalidValue, match="epochs: 2 there, 3 now"):
        train(replace(RECIPE, epochs=3), NETWORK, data, folder)
    # what was tested is what is stored
    scores = evaluate(build(stored, weights), data.validation)
    assert (scores.top1, scores.top5) == (stored.metrics["top1"], stored.metrics["top5"])
    start_over(folder)
    assert [p.name for p in folder.iterdir()] == [".lock"]


def test_a_run_that_starts_over_removes_what_killed_processes_left_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    of_others = temporary_beside(folder / "mine.pt")
    of_others.touch()
    for name in (CHECKPOINT, RESUME, "run.json", "metrics.jsonl", "scores.json", "scores.npz"):
        code = "import os, sys; from pathlib import Path; from hwbench.workspace import write_bytes; "
        code += "os.fsync = lambda _: os.kill(os.getpid(), 9); write_bytes(Path(sys.argv[1]), b'half')"
        assert subprocess.run([sys.executable, "-c", code, folder / name], check=False).returncode == -9
    (folder / f".{STEP}.tmp").write_bytes(b"half")  # as a process leaves it that is killed while it writes a step
    start_over(folder)
    assert [*folder.iterdir()] == [of_others]


def test_a_damaged_checkpoint_is_said_to_start_over_where_it_is_let(workspace: Workspace, tmp_path: Path) -> None:
    data = open_data(workspace, "synthetic", (4, 16, 16), RECIPE)
    run, other = tmp_path / "run", tmp_path / "other"
    train(RECIPE, NETWORK, data, run)
    other.mkdir()
    for folder in (run, other):
        (folder / CHECKPOINT).write_text("damaged")
    (run / "run.json").unlink()
    with pytest.raises(InvalidFile, match=r"damaged.*; start over with --fresh or choose another --out"):
        train(RECIPE, NETWORK, data, run)
    check_folder(run, fresh=True)
    for line in ("", '{"loss": 1}\n', "[1]\n"):
        (other / "metrics.jsonl").write_text(line)
        with pytest.raises(InvalidFile, match=r"damaged.*; move it away or choose another --out"):
            train(RECIPE, NETWORK, data, other)
        with pytest.raises(InvalidValue, match="came from no training"):
            check_folder(other, fresh=True)


def test_a_damaged_state_is_said_to_be_moved_away_which_begins_anew(workspace: Workspace, tmp_path: Path) -> None:
    """Whether anything else tells of a run there, which ``--fresh`` wants, or nothing."""
    data = open_data(workspace, "synthetic", (4, 16, 16), RECIPE)
    for folder in (tmp_path / "alone", tmp_path / "run"):
        folder.mkdir()
        (folder / "resume.pt").write_text("damaged")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"event": "step"}\n')
    for folder in (tmp_path / "alone", tmp_path / "run"):
        with pytest.raises(InvalidFile, match=r"resume\.pt: .*; move it away, and the same command begins anew$"):
            train(RECIPE, NETWORK, data, folder)
        (folder / "resume.pt").rename(folder / "kept")
        check_folder(folder)
        assert not train(RECIPE, NETWORK, data, folder).finished_before


def test_a_run_that_another_process_ends_meanwhile_is_not_trained_again(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_late(*arguments: object) -> nn.Module:
        monkeypatch.setattr("hwbench.training.run.initial", initial)
        first.append(train(RECIPE, NETWORK, data, tmp_path / "run"))
        (tmp_path / "run" / RESUME).touch()  # as where it was killed behind its checkpoint
        return initial(*arguments)

    data, first = open_data(workspace, "synthetic", (4, 16, 16), RECIPE), []
    monkeypatch.setattr("hwbench.training.run.initial", build_late)
    second = train(RECIPE, NETWORK, data, tmp_path / "run")
    assert not first[0].finished_before
    assert second.finished_before
    assert second.checkpoint == first[0].checkpoint
    assert not begun_in(tmp_path / "run")


def test_a_run_is_trained_by_one_process_until_its_checkpoint_is_stored(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(path: Path, *arguments: object) -> Checkpoint:
        held.append(is_trained_now(path.parent))
        return save_checkpoint(path, *arguments)

    held: list[bool] = []
    monkeypatch.setattr("hwbench.training.run.save_checkpoint", save)
    train(RECIPE, NETWORK, open_data(workspace, "synthetic", (4, 16, 16), RECIPE), tmp_path / "run")
    assert held == [True]
    assert not is_trained_now(tmp_path / "run")


def test_a_run_says_what_it_is_before_its_first_step_and_keeps_what_another_said(
    workspace: Workspace, tmp_path: Path
) -> None:
    data = open_data(workspace, "synthetic", (4, 16, 16), RECIPE)

    def stop(progress: TrainingProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(RECIPE, NETWORK, data, tmp_path, progress=stop)
    description = read_description(tmp_path)
    assert (description.network, description.input, description.data) == (NETWORK.name, NETWORK.input.key, "synthetic")
    assert description.recipe == RECIPE.to_plain()
    with pytest.raises(InvalidValue, match=r"another run|there, .* now"):
        train(replace(RECIPE, learning_rate=0.5), NETWORK, data, tmp_path, progress=stop)
    with pytest.raises(InvalidFile, match=r"that training has not ended; the hwbench train that began it goes on"):
        load_checkpoint(tmp_path / CHECKPOINT)
    assert read_description(tmp_path) == description
    (tmp_path / "run.json").write_text('{"network": "x"}')
    with pytest.raises(InvalidFile, match=r"run\.json: damaged"):
        read_description(tmp_path)


def test_of_long_facts_the_part_that_differs_is_told(tmp_path: Path) -> None:
    blocks = ">".join(f"x3d_i24_m{width}_o24_k3x3x3_s1_relu" for width in range(8))
    with pytest.raises(InvalidValue) as caught:
        check_same_run(tmp_path, {"network": blocks}, {"network": blocks.replace("m5", "m50"), "modality": "flow"})
    assert "(modality: rgb there, flow now, network: ...x3d_i24_m5_o24_k3x3x3_s1_relu>x3d" in str(caught.value)
    assert "... there, ...x3d_i24_m50_o24_k3x3x3_s1_relu>x3d" in str(caught.value)


def test_first_weights_follow_from_the_seed_alone(workspace: Workspace) -> None:
    torch.manual_seed(1)
    one = initial(NETWORK, RECIPE).state_dict()
    torch.manual_seed(2)
    two = initial(NETWORK, RECIPE).state_dict()
    other = initial(NETWORK, replace(RECIPE, seed=4)).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_the_folder_of_a_run_is_its_own(workspace: Workspace) -> None:
    data = open_data(workspace, "synthetic", (4, 16, 16), RECIPE)
    folders = {
        run_folder(workspace, RECIPE, NETWORK, data),
        run_folder(workspace, RECIPE, NETWORK, data),
        run_folder(workspace, replace(RECIPE, learning_rate=0.2), NETWORK, data),
        run_folder(workspace, RECIPE, replace(NETWORK, input=TensorSpec(1, 3, 4, 32, 32)), data),
        run_folder(workspace, RECIPE, NETWORK, open_data(workspace, "synthetic", (4, 16, 16), RECIPE,
                                                         clip=ClipSpec(4, stride=1))),
    }  # fmt: skip
    assert len(folders) == 4
    assert all(folder.parent == workspace.root / "runs" for folder in folders)


def test_a_run_has_one_folder_whatever_is_done_about_unreadable_videos(workspace: Workspace) -> None:
    policies = [FailurePolicy.RAISE, FailurePolicy.SKIP, FailurePolicy.REPLACE]
    data = [open_data(workspace, "synthetic", (4, 16, 16), RECIPE, policy=policy) for policy in policies]
    (folder,) = {run_folder(workspace, RECIPE, NETWORK, one) for one in data}

    def stop(progress: TrainingProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(RECIPE, NETWORK, data[0], folder, progress=stop)
    assert (folder / STEP).is_file()
    steps: list[int] = []
    train(RECIPE, NETWORK, data[1], folder, progress=lambda progress: steps.append(progress.step))
    assert steps[0] > 1  # the step before is not done again
    for other, name in ((data[0], "raise"), (data[2], "replace")):
        with pytest.raises(InvalidValue, match=rf"on_error: skip there, {name} now\); go on with --on-error skip"):
            train(RECIPE, NETWORK, other, folder)


def test_a_run_under_skip_of_before_is_found_in_its_own_folder(workspace: Workspace) -> None:
    data = {
        policy: open_data(workspace, "synthetic", (4, 16, 16), RECIPE, policy=policy)
        for policy in (FailurePolicy.RAISE, FailurePolicy.SKIP)
    }
    folder = run_folder(workspace, RECIPE, NETWORK, data[FailurePolicy.RAISE])
    network = {"network": ">".join(block.key for block in NETWORK.blocks) + "@" + NETWORK.input.key}
    facts = fingerprint(data[FailurePolicy.SKIP].training, RECIPE, network)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]
    before = folder.with_name(folder.name[:-10] + digest)
    assert before != folder
    before.mkdir(parents=True)
    assert run_folder(workspace, RECIPE, NETWORK, data[FailurePolicy.SKIP]) == before
    assert run_folder(workspace, RECIPE, NETWORK, data[FailurePolicy.RAISE]) == folder


def test_two_runs_do_not_share_a_folder(workspace: Workspace, tmp_path: Path) -> None:
    data = open_data(workspace, "synthetic", (4, 16, 16), RECIPE)

    def second(_: object) -> None:
        child = os.fork()
        if child == 0:  # locks of the same process do not exclude each other
            try:
                train(RECIPE, NETWORK, data, tmp_path)
            except InvalidValue as error:
                os._exit(7 if "another process" in str(error) else 8)
            os._exit(9)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with pytest.raises(SystemExit) as ended:
        train(RECIPE, NETWORK, data, tmp_path, progress=second)
    assert ended.value.code == 7
    assert not train(RECIPE, NETWORK, data, tmp_path).finished_before


def test_wrong_requests_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    data = open_data(workspace, "synthetic", (4, 16, 16), RECIPE)
    with pytest.raises(InvalidValue, match="has 5 classes, synthetic has 8"):
        train(RECIPE, NETWORK.with_classes(5), data, tmp_path)
    with pytest.raises(InvalidValue, match="8 frames"):
        open_data(workspace, "synthetic", (8, 16, 16), RECIPE, clip=ClipSpec(4, stride=1))
    trained = train(RECIPE, NETWORK, data, tmp_path)
    checkpoint, weights = load_checkpoint(trained.checkpoint.path)
    save_checkpoint(tmp_path / "other.pt", checkpoint, {"0.weight": weights["0.weight"]})
    with pytest.raises(InvalidFile, match=r"other\.pt.*another network"):
        score(tmp_path / "other.pt", workspace)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object], str]:
    """Exit status, the JSON object on stdout and the talk on stderr."""
    status = 0
    try:
        main([*arguments])
    except SystemExit as ended:
        status = int(ended.code or 0)
    shown = capsys.readouterr()
    return status, json.loads(shown.out) if shown.out.startswith("{") else {}, shown.err


def test_the_command_line(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("train", ARCHITECTURE, "--epochs", "1", "--batch-size", "8", "--threads", "1", "--json")
    status, result, talk = run(capsys, *command)
    assert (status, "epoch 1/1" in talk) == (0, True)
    assert {"checkpoint", "architecture", "top1", "top5", "epochs", "seconds"} <= result.keys()
    assert result["architecture"] == ARCHITECTURE
    assert result["epochs"] == 1
    assert result["chance"] == 1 / 8
    status, again, talk = run(capsys, *command)
    assert (status, again) == (0, result)
    assert "finished before" in talk
    _, fresh, talk = run(capsys, *command, "--fresh")
    assert "finished before" not in talk
    assert fresh["top1"] == result["top1"]
    checkpoint = str(result["checkpoint"])
    status, tested, _ = run(capsys, "test", checkpoint, "--clips", "2", "--crops", "3", "--threads", "1", "--json")
    assert status == 0
    assert (tested["videos"], tested["views"], tested["data"]) == (8, 6, "synthetic")
    _, tested, _ = run(capsys, "test", checkpoint, "--clips", "1", "--crops", "1", "--threads", "1", "--json")
    assert tested["top1"] == result["top1"]


class Filling(Listener):
    """Leaves no room for any file from a point of a run."""

    def __init__(self, after: str) -> None:
        self.after = after

    def progress(self, at: StageProgress) -> None:
        if self.after == "nothing":
            self._fill()

    def trained(self, at: TrainingProgress) -> None:
        if self.after == "a step":
            self._fill()

    def _fill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.parametrize(("after", "told"), [("nothing", False), ("a step", True)])
def test_a_run_begun_anew_that_has_no_room_is_said_to_go_on_where_something_is_stored(
    workspace: Workspace, after: str, told: bool
) -> None:
    request = TrainRequest(architecture=ARCHITECTURE, epochs=2, threads=1, out=workspace.root / "mine", fresh=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(WorkspaceError, match="cannot write") as refused:
            hwbench.train(request, Filling(after), workspace=workspace)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    going_on = ": with --fresh it begins anew, without --fresh the same command goes on where it stopped"
    assert str(refused.value).endswith(going_on) == told


def test_starting_over_outside_a_workspace_says_nothing_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, talk = run(capsys, "train", ARCHITECTURE, "--fresh")
    assert status == 2
    assert "no workspace" in talk
    assert "--fresh" not in talk


HOLDING = """
import sys
from pathlib import Path
from hwbench.training.run_lock import training_alone
with training_alone(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_starting_over_takes_nothing_from_a_run_that_another_process_trains(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workspace.root / "mine"
    folder.mkdir()
    write_description(folder, RunDescription("tiny", "1x3x4x16x16", "synthetic", 8, {}, {}, {}))
    (folder / "metrics.jsonl").write_text("{}\n")
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDING, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        status, _, talk = run(capsys, "train", ARCHITECTURE, "--epochs", "1", "--out", "mine", "--fresh", "--json")
        holder.kill()
    assert status == 2
    assert "another process trains here" in talk
    assert (folder / "metrics.jsonl").read_text() == "{}\n"


def test_a_finished_run_keeps_no_state_of_a_process_that_was_killed_behind_its_checkpoint(
    workspace: Workspace, tmp_path: Path
) -> None:
    data = open_data(workspace, "synthetic", (4, 16, 16), RECIPE)
    trained = train(RECIPE, NETWORK, data, tmp_path)
    for name in (RESUME, STEP):
        (tmp_path / name).touch()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert train(RECIPE, NETWORK, data, tmp_path).finished_before
        assert begun_in(tmp_path)
        holder.kill()
    again = train(RECIPE, NETWORK, data, tmp_path)
    assert (again.finished_before, again.checkpoint) == (True, trained.checkpoint)
    assert not begun_in(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", ARCHITECTURE, "--data", "nowhere"), "nowhere"),
        (("train", "x3d-tiny:frames=8", "--epochs", "1"), "x3d-tiny"),
        (("train", "zoo:x3d-xxs"), "x3d-xs"),
        (("train", ARCHITECTURE, "--on-error", "ignore"), "ignore"),
        (("train", ARCHITECTURE, "--lr", "0"), "learning_rate"),
        (("train", ARCHITECTURE, "--lr", "nan"), "--lr: expected a finite number"),
        (("train", ARCHITECTURE, "--precision", "int8"), "precision"),
        (("train", ARCHITECTURE, "--span", "2"), "no unit"),
        (("train", ARCHITECTURE, "--span", "2s", "--stride", "3"), "clip"),
        (("train", ARCHITECTURE, "--device", "tpu"), "tpu"),
        (("train", ARCHITECTURE, "--out", "file/run"), "file"),
        (("test", "missing.pt"), "missing.pt"),
        (("test", "file"), "file"),
        (("test", "file", "--crops", "9"), "crops"),
    ],
)
def test_wrong_command_lines_are_one_clear_error(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    Path("file").write_text("x")
    status, result, talk = run(capsys, *arguments)
    assert status == 2
    assert result == {}
    assert words in talk
    assert "Traceback" not in talk


def test_unreadable_videos_on_the_command_line(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    source = prepare(workspace, SPEC)
    for part in ("train", "val"):
        for name in ("grow", "shrink"):
            for file in (source / part / name).glob("*.mp4"):
                target = Path("own") / part / name / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    bad = [Path("own/train/grow/text.mp4"), Path("own/val/shrink/empty.mp4"), Path("own/train/shrink/cut.mp4")]
    bad[0].write_text("text")
    bad[1].touch()
    bad[2].write_bytes(Path("own/train/shrink/00000.mp4").read_bytes()[:500])
    command = ("train", ARCHITECTURE, "--data", "own", "--epochs", "1", "--batch-size", "4", "--threads", "1", "--json")
    status, _, talk = run(capsys, *command)
    assert status == 2
    assert any(str(path) in talk for path in bad)
    status, result, talk = run(capsys, *command, "--on-error", "skip", "--workers", "0")
    assert status == 0
    assert len([*(workspace.root / "runs").iterdir()]) == 1  # as the error advised, that run went on
    assert result["unreadable"] == sorted(map(str, bad))
    assert all(str(path) in talk for path in bad)
    assert run(capsys, *command, "--on-error", "skip", "--workers", "0")[1] == result
    status, _, talk = run(capsys, *command)
    assert status == 2
    assert "(on_error: skip there, raise now); go on with --on-error skip, start over with --fresh or" in talk
    status, result, _ = run(capsys, *command, "--on-error", "replace", "--workers", "2", "--fresh")
    assert result["unreadable"] == sorted(map(str, bad))
