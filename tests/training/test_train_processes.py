"""Two real processes of torchrun that train one network."""

import contextlib
import functools
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from test_train_loop import Stop, stop_at
from tiny import data
from tiny_processes import Partial, run

import hwbench
from hwbench.api.train import TrainRequest
from hwbench.data.loading import shuffled
from hwbench.errors import HwbenchError
from hwbench.training import processes
from hwbench.training.batch_norm import precise_statistics
from hwbench.training.processes import ALONE, World

PROGRAM = Path(__file__).with_name("tiny_processes.py")
STEPS = 12  # 24 videos in batches of 6, three epochs
# A lost process is noticed at once; the rest is torchrun's, which looks every few seconds.
END_S = 60


def torchrun(root: Path, folder: Path, options: str = "{}", count: int = 2) -> subprocess.Popen[str]:
    """Starts the program in some processes."""
    return started(count, PROGRAM, root, folder, options)


def started(count: int, *words: str | Path) -> subprocess.Popen[str]:
    """Starts some program in some processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(hwbench.__file__).parents[1]), str(PROGRAM.parent)]),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [*command, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def whole(root: Path, folder: Path, options: str = "{}", count: int = 2) -> tuple[list[int], str]:
    """Steps that a run told, and its talk."""
    with torchrun(root, folder, options, count) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return [int(line) for line in out.splitlines()], err


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "step"]


def epochs(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "epoch"]


@pytest.fixture(scope="module")
def folders(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same run in one process and in two."""
    data(data_root)
    folders = {name: tmp_path_factory.mktemp("runs") / name for name in ("one", "two")}
    with contextlib.redirect_stdout(io.StringIO()):
        run(ALONE, data_root, folders["one"], "{}")
    told, _ = whole(data_root, folders["two"])
    assert sorted(set(told)) == list(range(1, STEPS + 1))  # one process speaks
    return folders


def test_shares_of_a_batch_are_all_of_it_once() -> None:
    for batch in shuffled(23, 7, seed=1, epoch=0):
        parts = [World(rank, 3).part(batch) for rank in range(3)]
        assert sorted(index for part in parts for index in part) == sorted(batch)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert ALONE.part([1, 2]) == [1, 2]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dist.Store:
    """That of two processes, which are threads here and have no other means to talk, so none that times out."""
    store = dist.HashStore()
    monkeypatch.setattr(processes, "_store", lambda: store, raising=False)
    return store


@pytest.mark.usefixtures("store")
def test_the_leader_prepares_before_the_others_for_as_long_as_it_takes() -> None:
    prepared = list[int]()
    entered = threading.Event()

    def prepare(rank: int) -> int:
        for _ in range(2):
            entered.set()
            with World(rank, 2).leader_first():
                prepared.append(rank)
        return len(prepared)

    with ThreadPoolExecutor(2) as pool:
        follower = pool.submit(prepare, 1)
        entered.wait()
        leader = pool.submit(prepare, 0)
        assert leader.result() == follower.result() == 4
    assert prepared == [0, 1, 0, 1]


def test_who_waits_for_the_leader_learns_that_it_ended(store: dist.Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        follower = pool.submit(lambda: World(1, 2).leader_first().__enter__())
        assert processes._first_to_end()  # what the leader does with its error
        with pytest.raises(HwbenchError, match="another process of this run has ended"):
            follower.result()
    assert not processes._first_to_end()


@pytest.mark.slow
def test_two_processes_train_as_one(folders: dict[str, Path]) -> None:
    one, two = losses(folders["one"]), losses(folders["two"])
    assert len(one) == len(two) == STEPS
    assert two[:6] == pytest.approx(one[:6], abs=1e-4)
    assert [e["videos"] for e in epochs(folders["two"])] == [8, 8, 8]
    assert sorted(p.name for p in folders["two"].iterdir()) == [
        "follower", "metrics.jsonl", "resume-step.pt", "resume.pt", "trained.pt",
    ]  # fmt: skip


# The gradient is not scaled down, and steps are small: what rounds in another way stays small.
EVEN = {"optimizer": "sgd", "learning_rate": 0.01, "clip_grad_norm": 1e3, "batch_size": 4, "epochs": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"gradient_checkpointing": True},
        pytest.param({}, marks=pytest.mark.long),
        pytest.param({"accumulate": 2}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_weights_without_gradients_are_those_of_one_process(
    data_root: Path, tmp_path: Path, how: dict[str, object]
) -> None:
    options = json.dumps({**EVEN, "network": "partial", "weight_decay": 0.5, **how})
    with contextlib.redirect_stdout(io.StringIO()):
        run(ALONE, data_root, tmp_path / "one", options)
    _, talk = whole(data_root, tmp_path / "two", options)
    assert "Warning" not in talk
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    one, two = (torch.load(tmp_path / name / "trained.pt", weights_only=True) for name in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-4, rtol=1e-3)
    untrained = Partial().state_dict()
    assert torch.equal(two["pooler.weight"], untrained["pooler.weight"])  # not even decayed
    assert not torch.equal(two["branch.weight"], untrained["branch.weight"])


@pytest.mark.slow
def test_processes_may_use_different_weights_in_a_step(data_root: Path, tmp_path: Path) -> None:
    told, _ = whole(data_root, tmp_path / "two", json.dumps({**EVEN, "network": "in-turns"}))
    assert len(set(told)) == 6
    assert losses(tmp_path / "two")[0] < 3
    two = torch.load(tmp_path / "two" / "trained.pt", weights_only=True)
    untrained = Partial().state_dict()
    assert [name for name in untrained if torch.equal(two[name], untrained[name])] == ["pooler.weight", "pooler.bias"]


@pytest.fixture(scope="module")
def damaged(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set with a damaged video: all that the first process has to read in the first step of two clips."""
    training, _ = data(data_root)
    video = training.videos.paths[shuffled(len(training), 2, seed=training.seed, epoch=0)[0][0]]
    root = tmp_path_factory.mktemp("damaged")
    shutil.copytree(data_root, root, dirs_exist_ok=True)
    (root / video.relative_to(data_root)).write_bytes(b"no video")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"sync_bn": True},
        {"sync_bn": False, "precision": "fp16"},
        pytest.param({"sync_bn": True, "gradient_checkpointing": True}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_process_that_read_nothing_counts_for_nothing(damaged: Path, tmp_path: Path, how: dict[str, object]) -> None:
    options = json.dumps({**EVEN, "network": "counting", "batch_size": 2, "on_error": "skip", **how})
    with contextlib.redirect_stdout(io.StringIO()):
        run(ALONE, damaged, tmp_path / "one", options)
    whole(damaged, tmp_path / "two", options)
    alone, together = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(alone) == len(together) == 12
    assert epochs(tmp_path / "two")[0]["lost_samples"] == 1
    one, two = (torch.load(tmp_path / name / "trained.pt", weights_only=True) for name in ("one", "two"))
    # the first process alone tells what is stored
    assert two["layers.2.seen"] == 11
    assert two["layers.4.num_batches_tracked"] == (12 if how["sync_bn"] else 11)
    # the clip that was read is a batch of its own
    assert together[0] == pytest.approx(alone[0], abs=1e-4 if "precision" not in how else 1e-2)
    if how["sync_bn"]:
        assert together == pytest.approx(alone, abs=1e-4)
        for name in ("layers.4.running_mean", "layers.4.running_var", "layers.9.weight"):
            torch.testing.assert_close(two[name], one[name], atol=1e-4, rtol=1e-3)


@pytest.mark.long
def test_two_processes_share_repeats_and_phases(data_root: Path, tmp_path: Path) -> None:
    how = {"multigrid": "long", "repeats": 2, "batch_size": 4, "epochs": 4, "decay_at": [0.8], "eval_every": 4}
    with contextlib.redirect_stdout(io.StringIO()):
        run(ALONE, data_root, tmp_path / "one", json.dumps(how))
    whole(data_root, tmp_path / "two", json.dumps(how))
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(two) == 1 + 1 + 3 + 12  # batches of 32, 32, 16 and 4 clips
    assert two[:5] == pytest.approx(one[:5], abs=1e-4)


@pytest.mark.long
def test_shares_of_two_lengths_are_accumulated_in_as_many_parts(data_root: Path, tmp_path: Path) -> None:
    """Each part takes its statistics with those of the other process, which waits for it."""
    how = {"batch_size": 3, "accumulate": 2, "epochs": 1}
    told, _ = whole(data_root, tmp_path / "two", json.dumps(how))
    assert len(set(told)) == 8


@pytest.mark.parametrize(("fresh", "going_on"), [(False, "; the same"), (True, "; without --fresh the same")])
def test_a_run_whose_process_has_gone_is_said_to_go_on_without_fresh(
    monkeypatch: pytest.MonkeyPatch, fresh: bool, going_on: str
) -> None:
    def lose(*_: object) -> None:
        raise RuntimeError("[gloo/transport/tcp/pair.cc:538] Connection closed by peer")

    for name, value in {"TORCHELASTIC_RUN_ID": "one", "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    alone = functools.partial(dist.init_process_group, store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(dist, "init_process_group", alone)
    monkeypatch.setattr("hwbench.api.train._train", lose)
    try:
        with pytest.raises(HwbenchError, match=f"has gone{going_on} command goes on from the last stored step"):
            hwbench.train(TrainRequest(architecture="zoo:x3d-xs", fresh=fresh, device="cpu"))
    finally:
        dist.destroy_process_group()


# Each process its own statistics, what is drawn by step, and sums of three, whose order could matter.
MANY = json.dumps({"sync_bn": False, "mixup": 0.8, "accumulate": 2, "precise_bn": 2})


@pytest.mark.long
@pytest.mark.parametrize(("count", "options"), [(2, "{}"), (3, MANY)])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(
    data_root: Path, folders: dict[str, Path], tmp_path: Path, count: int, options: str
) -> None:
    folder, uninterrupted = tmp_path / "parts", folders["two"]
    if options == MANY:
        uninterrupted = tmp_path / "whole"
        whole(data_root, uninterrupted, options, count)
    with torchrun(data_root, folder, options, count) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 4:
                break
        os.kill(int((folder / "follower").read_text()), signal.SIGKILL)
        killed = time.monotonic()
        _, talk = process.communicate(timeout=END_S)
    assert process.returncode != 0
    assert time.monotonic() - killed < END_S
    said = [line for line in talk.splitlines() if line.startswith("hwbench: ")]
    assert len(said) <= 1  # none where torchrun was quicker
    assert all("another process of this run has gone; the same command goes on" in line for line in said)
    before = len(losses(folder))
    assert 4 <= before < STEPS
    told, _ = whole(data_root, folder, options, count)
    assert told[0] >= 4
    assert losses(folder) == losses(uninterrupted)
    parts, two = (torch.load(one / "trained.pt", weights_only=True) for one in (folder, uninterrupted))
    assert all(torch.equal(parts[name], two[name]) for name in two)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(
    data_root: Path, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "parts"
    monkeypatch.setattr("hwbench.training.state._COST_SHARE", 1e9)
    with pytest.raises(Stop):
        run(ALONE, data_root, folder, "{}", stop_at(5))  # type: ignore[arg-type]
    told, _ = whole(data_root, folder)
    assert told[0] == 6
    assert losses(folder) == pytest.approx(losses(folders["one"]), abs=1e-3)


@pytest.mark.slow
def test_a_failure_of_one_process_is_said_once(data_root: Path, tmp_path: Path) -> None:
    with torchrun(data_root, tmp_path / "run", json.dumps({"learning_rate": 1e30, "clip_grad_norm": 1e30})) as process:
        _, talk = process.communicate(timeout=120)
    assert process.returncode != 0
    (line,) = [line for line in talk.splitlines() if line.startswith("hwbench: ")]
    assert "training diverged" in line


# Three batches of clips by number; the second process cannot read its share of one.
PRECISE = """
import sys
import torch
from torch import nn
from hwbench.training.batch_norm import precise_statistics, synchronise
from hwbench.training.processes import joined

def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv3d(3, 4, 1), nn.BatchNorm3d(4), nn.Conv3d(4, 5, 1), nn.BatchNorm3d(5)).eval()

def share(number, rank):
    return torch.randn(1 + rank, 3, 2, 4, 4, generator=torch.Generator().manual_seed(2 * number + rank))

if __name__ == "__main__":
    with joined("cpu") as world:
        net = module()
        synchronise(net)
        batches = [share(number, world.rank) for number in range(3 - world.rank)]
        torch.save(precise_statistics(net, batches, [], world), f"{sys.argv[1]}/{world.rank}.pt")
"""


@pytest.mark.slow
def test_precise_statistics_are_those_of_all_processes_though_one_cannot_read_a_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "precise_processes.py"
    program.write_text(PRECISE)
    with started(2, program, tmp_path) as process:
        try:
            _, talk = process.communicate(timeout=300)
        finally:
            process.terminate()
    assert process.returncode == 0, talk
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    monkeypatch.syspath_prepend(tmp_path)
    from precise_processes import module, share  # type: ignore[import-not-found]

    batches = [torch.cat([share(number, 0), share(number, 1)]) for number in range(2)]
    expected = precise_statistics(module(), batches, [], ALONE)
    for name, value in expected.items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value)
