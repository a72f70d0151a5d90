"""What a power cut leaves of a training run."""

import json
from pathlib import Path

import pytest
import torch
from tiny import RECIPE, Tiny, data
from torch import nn

import hwbench
from hwbench.data import TestClips, TrainingClips
from hwbench.errors import InvalidFile
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.testing.power import cut_power, python, record
from hwbench.training import Checkpoint, load_checkpoint, save_checkpoint
from hwbench.training.log import METRICS, MetricsLog
from hwbench.training.state import RESUME, Resume, TrainState, remove_states

STEPS_OF_AN_EPOCH = 6
# A whole run that writes its state after every step. What it tells: the end of an epoch, when its state is written.
PROGRAM = """
import sys
from pathlib import Path
import torch
import hwbench.training.state
from tiny import RECIPE, Tiny, data
from hwbench.training import Resources, fit
from dataclasses import replace
hwbench.training.state._COST_SHARE = 1e9
save = hwbench.training.state.Resume.save
def told(self, state, *, durable=True):
    save(self, state, durable=durable)
    if durable:
        print("epoch", state.position.epoch, flush=True)
hwbench.training.state.Resume.save = told
training, validation = data(Path(sys.argv[1]))
fit(Tiny(), training, validation, replace(RECIPE, epochs=int(sys.argv[3])), run_dir=Path(sys.argv[2], "runs", "one"),
    resources=Resources("cpu", 1, 0))
"""
# The same files with much less to compute: three epochs of two steps, the checkpoint, and the end of the states.
SHORT = """
import sys
from pathlib import Path
import hwbench.training.state
from test_train_power import CHECKPOINT, finished
from tiny import RECIPE, Tiny
from hwbench.training.log import MetricsLog
from hwbench.training.state import Resume, TrainState, remove_states
folder = Path(sys.argv[2], "runs", "one")
state, resume, log = TrainState(Tiny(), RECIPE), Resume(folder, {"run": "one"}), MetricsLog(folder, 0)
position = state.position
for epoch in range(3):
    for batch in range(2):
        log.write(event="step", step=position.step)
        position.step, position.batch, position.log_bytes = position.step + 1, batch + 1, log.length
        resume.save(state, durable=False)
    log.write(event="epoch", epoch=epoch)
    position.epoch, position.batch, position.log_bytes = epoch + 1, 0, log.length
    log.sync()
    resume.save(state)
    print("epoch", position.epoch, flush=True)
finished(folder / CHECKPOINT)
print("checkpoint", flush=True)
remove_states(folder)
"""
CHECKPOINT = "checkpoint.pt"
NETWORK = Network(
    "x3d-tiny:test",
    (BlockSpec.parse("stem_i3_o8_k1x3x3+5x1x1_s2_relu"), BlockSpec.parse("head_i8_m16_d32_o8_kglobal_relu")),
    TensorSpec(1, 3, 4, 16, 16),
)


def finished(path: Path) -> None:
    """A checkpoint as the end of a run writes it."""
    from hwbench.data import ClipSpec

    save_checkpoint(path, Checkpoint(NETWORK, tuple("abcdefgh"), RECIPE, ClipSpec(4, stride=2)), Tiny().state_dict())


def check(fingerprint: dict[str, str], folder: Path, told: tuple[str, ...]) -> None:
    run = folder / "runs" / "one"
    if told and told[-1] == "checkpoint":
        load_checkpoint(run / CHECKPOINT)
        return
    if (run / CHECKPOINT).exists():
        load_checkpoint(run / CHECKPOINT)
    state = TrainState(Tiny(), RECIPE)
    Resume(run, fingerprint).load(state)
    epochs = int(told[-1].split()[1]) if told else 0
    assert state.position.epoch >= epochs, f"epoch {epochs} was stored, the run goes on from {state.position.epoch}"
    log = MetricsLog(run, state.position.log_bytes)
    log.close()
    lines = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["event"] == "epoch"][:epochs] == list(range(epochs))
    steps = [line["step"] for line in lines if line["event"] == "step"]
    assert steps == sorted({*steps})


def test_19_a_power_cut_takes_no_epoch_and_no_checkpoint_that_was_told_as_stored(
    tmp_path: Path, power_shim: Path
) -> None:
    places = ":".join(map(str, (Path(__file__).parent, Path(hwbench.__file__).parents[1])))
    command = python("-c", SHORT, "-", str(tmp_path))
    recording = record(command, tmp_path, power_shim, env={"PYTHONPATH": places})
    report = cut_power(recording, lambda folder, told: check({"run": "one"}, folder, told), points=30)
    assert report.problems == []
    assert report.disks > 30


@pytest.mark.long
def test_19_a_power_cut_at_any_write_of_a_run_takes_no_epoch(data_root: Path, tmp_path: Path, power_shim: Path) -> None:
    from dataclasses import replace

    from hwbench.training.loop import fingerprint

    training, _ = data(data_root)
    recipe = replace(RECIPE, epochs=2)
    places = ":".join(map(str, (Path(__file__).parent, Path(hwbench.__file__).parents[1])))
    command = python("-c", PROGRAM, str(data_root), str(tmp_path), "2")
    recording = record(command, tmp_path, power_shim, env={"PYTHONPATH": places})
    facts = fingerprint(training, recipe, {})
    report = cut_power(recording, lambda folder, told: check(facts, folder, told))
    assert report.problems == []
    assert recording.told(len(recording.events)) == ("epoch 1", "epoch 2")
    assert report.disks > 100


def stored(folder: Path, module: nn.Module | None = None, **position: int) -> TrainState:
    """A state at a position."""
    state = TrainState(module or Tiny(), RECIPE)
    for name, value in position.items():
        setattr(state.position, name, value)
    return state


def test_19_19_a_step_state_that_is_torn_leaves_that_of_the_epoch(tmp_path: Path) -> None:
    resume = Resume(tmp_path, {})
    resume.save(stored(tmp_path, epoch=1, step=6))
    before = {path.name for path in tmp_path.iterdir()}
    resume.save(stored(tmp_path, epoch=1, batch=2, step=8), durable=False)
    (name,) = {path.name for path in tmp_path.iterdir()} - before
    assert before == {RESUME}
    whole = (tmp_path / name).read_bytes()
    state = stored(tmp_path)
    assert resume.load(state)
    assert state.position.step == 8
    middle = len(whole) // 2
    for torn in (b"", bytes(len(whole)), whole[:middle], whole[:4096] + bytes(len(whole) - 4096),
                 whole[: middle - 200] + bytes(400) + whole[middle + 200 :]):  # fmt: skip
        (tmp_path / name).write_bytes(torn)
        state = stored(tmp_path)
        assert resume.load(state)
        assert state.position.step == 6


def test_19_19_an_epoch_state_that_is_damaged_leaves_that_of_a_step(tmp_path: Path) -> None:
    resume = Resume(tmp_path, {})
    resume.save(stored(tmp_path, epoch=1, step=6))
    resume.save(stored(tmp_path, epoch=1, batch=2, step=8), durable=False)
    (tmp_path / RESUME).write_bytes(b"text")
    state = stored(tmp_path)
    assert resume.load(state)
    assert state.position.step == 8
    remove_states(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / RESUME).write_bytes(b"text")
    with pytest.raises(InvalidFile, match=r"resume\.pt.*move it away"):
        resume.load(state)


def test_19_19_the_newer_of_two_states_counts_and_a_folder_of_before_opens(tmp_path: Path) -> None:
    resume = Resume(tmp_path, {})
    resume.save(stored(tmp_path, epoch=0, batch=6, step=6), durable=False)
    resume.save(stored(tmp_path, epoch=1, step=6))
    state = stored(tmp_path)
    assert resume.load(state)
    assert (state.position.epoch, state.position.batch) == (1, 0)
    # before there were two files, resume.pt held the state of a step as well
    remove_states(tmp_path)
    resume.save(stored(tmp_path, epoch=1, batch=3, step=9))
    assert resume.load(state)
    assert (state.position.epoch, state.position.step) == (1, 9)


def test_19_19_lines_that_a_power_cut_tore_leave_the_log(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    for step in range(3):
        log.write(event="step", step=step)
    log.close()
    length = log.length
    path = tmp_path / METRICS
    path.write_bytes(path.read_bytes()[: length // 2] + bytes(length - length // 2))
    log = MetricsLog(tmp_path, length)
    log.write(event="step", step=3)
    log.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 3]
    assert log.length == path.stat().st_size


def test_19_19_a_run_goes_on_from_the_epoch_bit_for_bit(clips: tuple[TrainingClips, TestClips], tmp_path: Path) -> None:
    """Without the file of the steps, as after a power cut, the run ends with the same weights."""
    from hwbench.training import Resources, fit

    class Stop(Exception):
        pass

    def stop(at: object) -> None:
        if at.step == STEPS_OF_AN_EPOCH + 3:
            raise Stop

    how = {"resources": Resources("cpu", threads=1)}
    whole, parts = Tiny(), Tiny()
    fit(whole, *clips, RECIPE, **how)
    with pytest.raises(Stop):
        fit(parts, *clips, RECIPE, run_dir=tmp_path, progress=stop, **how)
    for path in tmp_path.glob("*.pt"):
        if path.name != RESUME:
            path.write_bytes(path.read_bytes()[:-1000] + bytes(1000))
    parts = Tiny()
    fit(parts, *clips, RECIPE, run_dir=tmp_path, **how)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True))
    steps = [json.loads(line).get("step") for line in (tmp_path / METRICS).read_text().splitlines()]
    assert sorted({*steps}) == list(range(19))
