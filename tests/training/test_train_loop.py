import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import CLIP, RECIPE, Tiny, data
from torch import nn

import hwbench
from hwbench.blocks.authors import is_ours
from hwbench.data import FailurePolicy, ScaleJitter, TestClips, TestTransform, TrainingClips
from hwbench.data.loading import Loader
from hwbench.errors import CheckFailed, InvalidFile, InvalidValue, NotCalibrated, VideoError, WorkspaceError
from hwbench.models import network
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.training import Fit, Recipe, Resources, TrainingProgress, fit
from hwbench.training.quantized import calibrated

Clips = tuple[TrainingClips, TestClips]
CPU = Resources("cpu", threads=1)
STEPS = 18  # 24 videos in batches of 4, three epochs


class Stop(Exception):
    pass


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def run(clips: Clips, folder: Path | None = None, recipe: Recipe = RECIPE, **how: object) -> tuple[nn.Module, Fit]:
    module = Tiny()
    return module, fit(module, *clips, recipe, run_dir=folder, resources=CPU, **how)  # type: ignore[arg-type]


def stop_at(step: int) -> object:
    def stop(at: TrainingProgress) -> None:
        if at.step == step:
            raise Stop

    return stop


def same(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_a_run_is_the_same_every_time_and_leaves_the_random_numbers_alone(clips: Clips, tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    before = torch.get_num_threads()
    first, result = run(clips, tmp_path)
    Tiny()  # seeds
    torch.manual_seed(5)
    second, again = run(clips)
    assert same(first, second)
    assert not first.training
    assert result.steps == again.steps == STEPS
    assert result.scores == again.scores
    assert torch.get_num_threads() == before
    torch.manual_seed(5)
    module = Tiny()
    torch.manual_seed(5)
    fit(module, *clips, replace(RECIPE, epochs=1), resources=CPU)
    assert torch.equal(torch.rand(3), expected)
    log = lines(tmp_path)
    assert [line["step"] for line in log if line["event"] == "step"] == list(range(STEPS))
    assert [line["epoch"] for line in log if line["event"] == "epoch"] == [0, 1, 2]
    assert log[-1]["top1"] == result.scores.top1
    third, _ = run(clips, recipe=replace(RECIPE, seed=12))
    assert not same(first, third)


@pytest.mark.parametrize("step", [1, 5, 6, 7, 17, 18])
def test_an_interrupted_run_ends_as_if_nothing_had_happened(clips: Clips, tmp_path: Path, step: int) -> None:
    whole, result = run(clips, tmp_path / "whole")
    with pytest.raises(Stop):
        run(clips, tmp_path / "parts", progress=stop_at(step))
    parts, again = run(clips, tmp_path / "parts")
    assert same(whole, parts)
    assert again.scores == result.scores
    strip = [{k: v for k, v in line.items() if k != "seconds"} for line in lines(tmp_path / "parts")]
    assert strip == lines(tmp_path / "whole")


@pytest.mark.parametrize("recipe", [replace(RECIPE, optimizer="adamw", learning_rate=0.01),
                                    replace(RECIPE, optimizer="sgd", momentum=0.9),
                                    replace(RECIPE, ema_decay=0.0, eval_every=2)])  # fmt: skip
def test_other_recipes_resume_alike(clips: Clips, tmp_path: Path, recipe: Recipe) -> None:
    whole, _ = run(clips, recipe=recipe)
    with pytest.raises(Stop):
        run(clips, tmp_path, recipe, progress=stop_at(8))
    parts, _ = run(clips, tmp_path, recipe)
    assert same(whole, parts)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_kill_9_loses_nothing_but_the_step_in_progress(data_root: Path, tmp_path: Path, workers: int) -> None:
    data(data_root)
    environment = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    program = [sys.executable, str(Path(__file__).with_name("tiny.py")), str(data_root)]

    def start(folder: Path, stop_after: int | None = None) -> list[int]:
        """Steps which a process reported before it ended, or was killed after so many."""
        command = [*program, str(folder), str(workers)]
        seen: list[int] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            for line in process.stdout:
                seen.append(int(line))
                if len(set(seen)) == stop_after:
                    process.send_signal(signal.SIGKILL)
                    break
        assert process.returncode == (0 if stop_after is None else -signal.SIGKILL)
        return seen

    assert sorted(set(start(tmp_path / "whole"))) == list(range(1, STEPS + 1))
    first = start(tmp_path / "parts", 4)
    second = start(tmp_path / "parts", 7)
    third = start(tmp_path / "parts")
    # a step reported is a step stored: the next process starts behind it (or behind one more, which it did not report);
    # the end of an epoch reports the last step again
    assert second[0] + (second[0] % 6 == 0) > max(first[:4])
    assert third[0] + (third[0] % 6 == 0) > max(second[:7])
    one, two = (torch.load(tmp_path / name / "trained.pt", weights_only=True) for name in ("whole", "parts"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")


def test_a_state_is_written_after_every_step_while_that_is_cheap(clips: Clips, tmp_path: Path) -> None:
    from hwbench.training.state import STEP, Resume, TrainState

    resume = Resume(tmp_path, {})
    state = TrainState(Tiny(), RECIPE)
    resume.save_if_cheap(state)
    assert (tmp_path / STEP).is_file()
    resume._cost_s = 1e9
    state.position.step = 99
    resume.save_if_cheap(state)
    assert resume.load(state)
    assert state.position.step == 0


def test_a_run_goes_on_with_what_is_advised_after_an_unreadable_video(
    clips: Clips, data_root: Path, tmp_path: Path
) -> None:
    with pytest.raises(Stop):
        run(clips, tmp_path, progress=stop_at(3))
    whole, _ = run(clips)
    parts, _ = run(data(data_root, FailurePolicy.SKIP), tmp_path)
    assert same(whole, parts)
    with pytest.raises(InvalidValue, match=r"on_error: skip there, raise now\); go on with --on-error skip,"):
        run(clips, tmp_path)


@pytest.mark.parametrize(("accumulate", "crops", "most"), [(1, 1, 4), (2, 1, 2), (1, 3, 3), (2, 3, 3), (4, 1, 1)])
def test_validation_computes_no_more_clips_at_once_than_training(
    clips: Clips, accumulate: int, crops: int, most: int
) -> None:
    def note(network: nn.Module, given: tuple[torch.Tensor]) -> None:
        tested.extend([len(given[0])] if network is module and not network.training else [])

    tested: list[int] = []
    module = Tiny()
    module.register_forward_pre_hook(note)
    validation = TestClips(clips[1].videos, CLIP, TestTransform((16, 16), crops))
    fit(module, clips[0], validation, replace(RECIPE, epochs=1, accumulate=accumulate), resources=CPU)
    assert max(tested) == most
    assert sum(tested) == crops * len(validation)


@pytest.mark.parametrize(("step", "from_the_epoch"), [(6, False), (7, True), (8, False), (14, True)])
def test_tensorboard_shows_every_validation_of_an_interrupted_run(
    clips: Clips, tmp_path: Path, step: int, from_the_epoch: bool
) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'hwbench[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with pytest.raises(Stop):
        run(clips, tmp_path, tensorboard=True, progress=stop_at(step))
    if from_the_epoch:
        (tmp_path / "resume-step.pt").unlink(missing_ok=True)
    run(clips, tmp_path, tensorboard=True)
    shown = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    log = lines(tmp_path)
    for tag, event, name in (("validation/top1", "epoch", "top1"), ("train/loss", "step", "loss")):
        expected = [line[name] for line in log if line["event"] == event]
        assert [point.value for point in shown.Scalars(tag)] == pytest.approx(expected)
    assert [point.step for point in shown.Scalars("validation/top1")] == [5, 11, 17]


def test_another_run_is_not_overwritten(clips: Clips, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run(clips, tmp_path, progress=stop_at(3))
    before = (tmp_path / "resume-step.pt").read_bytes()
    with pytest.raises(InvalidValue, match=r"learning_rate: 0\.05 there, 0\.01 now.*--fresh"):
        run(clips, tmp_path, replace(RECIPE, learning_rate=0.01))
    with pytest.raises(InvalidValue, match="network"):
        run(clips, tmp_path, identity={"network": "other"})
    other = TrainingClips(clips[0].videos, CLIP, ScaleJitter((16, 16), flip=0.5))
    with pytest.raises(InvalidValue, match="transform"):
        run((other, clips[1]), tmp_path)
    assert (tmp_path / "resume-step.pt").read_bytes() == before


def test_a_damaged_state_is_one_clear_error(clips: Clips, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run(clips, tmp_path, progress=stop_at(7))
    data = (tmp_path / "resume.pt").read_bytes()
    (tmp_path / "resume-step.pt").unlink()
    for broken in (b"", data[: len(data) // 2], b"text"):
        (tmp_path / "resume.pt").write_bytes(broken)
        with pytest.raises(InvalidFile, match=r"resume\.pt.*; move it away, and the same command begins anew"):
            run(clips, tmp_path)


def test_divergence_is_told_and_not_saved(clips: Clips, tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match=r"diverged.*--lr"):
        run(clips, tmp_path, replace(RECIPE, learning_rate=1e30, clip_grad_norm=1e30, warmup_share=0.0))


def test_bf16_trains(clips: Clips) -> None:
    _, result = run(clips, recipe=replace(RECIPE, precision="bf16", epochs=1))
    assert result.steps == 6


class Causal(Tiny):
    """With a mask as a buffer and as a weight that stays, and with a range that begins at nothing."""

    def __init__(self) -> None:
        super().__init__()
        mask = torch.triu(torch.full((8, 8), -math.inf), 1)
        self.register_buffer("mask", mask)
        self.register_buffer("lowest", torch.tensor([math.inf]))
        self.fixed = nn.Parameter(mask.clone(), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.lowest.copy_(torch.minimum(self.lowest, x.detach().min()))
        return super().forward(x) @ ((self.mask + self.fixed).softmax(-1) + self.lowest.isfinite())


def test_infinite_values_of_buffers_and_of_weights_that_stay_are_kept(clips: Clips) -> None:
    module, mask = Causal(), Causal().mask
    result = fit(module, *clips, replace(RECIPE, epochs=1), resources=CPU)
    assert result.scores is not None
    assert torch.equal(module.mask, mask)
    assert torch.equal(module.fixed, mask)
    assert module.lowest.isfinite()


class Viewing(Tiny):
    """Takes views that torch allows of contiguous tensors alone: of the clip, of a weight, behind a convolution."""

    def __init__(self, of: str) -> None:
        super().__init__()
        self.of = of

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, made = self.layers[0].weight, self.layers[0](x)
        if self.of == "clip":
            x.view(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])
        elif self.of == "weight":
            weight.view(len(weight), -1)
        elif self.of == "convolution":
            made.view(len(made), -1)
        elif self.of == "memory":  # which torch allows, and gives the colours of a pixel for a row
            x = x.as_strided(x.shape, (x[0].numel(), x[0, 0].numel(), x[0, 0, 0].numel(), x.shape[4], 1))
        return self.layers(x)


@pytest.mark.parametrize("of", ["clip", "weight", "convolution", "memory", "nothing"])
def test_a_model_that_takes_views_of_contiguous_tensors_is_trained_on_such(clips: Clips, of: str) -> None:
    module = Viewing(of)
    result = fit(module, *clips, replace(RECIPE, epochs=1), resources=CPU, teacher=Viewing(of).eval())
    assert result.scores is not None
    weight = module.layers[0].weight
    assert weight.is_contiguous() == (of != "nothing")
    assert weight.is_contiguous(memory_format=torch.channels_last_3d) == (of == "nothing")
    assert [batch.clips.is_contiguous() for batch in Loader(clips[1]).batches([[0], [1, 2]])] == [True, True]


def test_networks_of_hwbench_are_known_and_not_tried() -> None:
    blocks = ("stem_i3_o8_k1x3x3+5x1x1_s2_relu", "head_i8_m16_d32_o3_kglobal_relu")
    ours = network(Network("ours", tuple(map(BlockSpec.parse, blocks)), TensorSpec(1, 3, 4, 32, 32)))
    assert is_ours(ours)
    assert not is_ours(Tiny())
    assert not is_ours(nn.Sequential(ours, Tiny()))
    assert not is_ours(nn.Sequential(nn.Flatten()))


def test_it_learns(clips: Clips) -> None:
    # brightness at a fixed frame cannot tell the classes apart, but four pairs can be told from each other somewhat
    module, before = Tiny(), Tiny()
    training = clips[0]
    fit(module, training, None, replace(RECIPE, epochs=30, learning_rate=0.1), resources=CPU)

    def loss(net: nn.Module) -> float:
        x = torch.cat([training[i].views for i in range(24)])
        with torch.no_grad():
            return float(nn.functional.cross_entropy(net.eval()(x), torch.tensor(training.videos.labels)))

    assert loss(module) < 0.9 * loss(before)


def broken_data(root: Path, tmp_path: Path, policy: FailurePolicy) -> tuple[Clips, list[Path]]:
    training, validation = data(root, policy)
    bad = [tmp_path / "text.mp4", tmp_path / "empty.mp4", tmp_path / "missing.mp4"]
    bad[0].write_text("no video")
    bad[1].touch()
    training.videos = replace(training.videos, paths=(*bad, *training.videos.paths[3:]))
    return (training, validation), bad


def test_raise_names_the_file(data_root: Path, tmp_path: Path) -> None:
    clips, bad = broken_data(data_root, tmp_path, FailurePolicy.RAISE)
    with pytest.raises(VideoError) as caught:
        run(clips)
    assert str(caught.value).partition(": ")[0] in map(str, bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("policy", [FailurePolicy.SKIP, FailurePolicy.REPLACE])
def test_unreadable_videos_are_counted_and_named(data_root: Path, tmp_path: Path, policy: FailurePolicy) -> None:
    clips, bad = broken_data(data_root, tmp_path, policy)
    whole, result = run(clips, tmp_path / "whole")
    assert set(result.failures.causes) == set(map(str, bad))
    assert result.failures.samples >= 9  # three files in three epochs
    epochs = [line for line in lines(tmp_path / "whole") if line["event"] == "epoch"]
    assert set(epochs[0]["unreadable"]) == set(map(str, bad))
    with pytest.raises(Stop):
        run(clips, tmp_path / "parts", progress=stop_at(8))
    parts, again = run(clips, tmp_path / "parts")
    assert same(whole, parts)
    assert again.failures == result.failures


@pytest.mark.parametrize("policy", [FailurePolicy.SKIP, FailurePolicy.REPLACE])
def test_nothing_but_unreadable_videos_is_an_error(data_root: Path, tmp_path: Path, policy: FailurePolicy) -> None:
    clips, bad = broken_data(data_root, tmp_path, policy)
    clips[0].videos = replace(clips[0].videos, paths=tuple(bad[i % 3] for i in range(24)))
    with pytest.raises(VideoError, match="no video"):
        run(clips)


class Ranged:
    """Stands for a network with rounding: keeps what its ranges are taken from."""

    def calibrate(self, inputs: list[torch.Tensor]) -> None:
        self.inputs = inputs


@pytest.mark.parametrize("policy", [FailurePolicy.SKIP, FailurePolicy.REPLACE])
def test_ranges_are_taken_from_the_videos_that_can_be_read(
    data_root: Path, tmp_path: Path, policy: FailurePolicy
) -> None:
    (training, _), bad = broken_data(data_root, tmp_path, policy)
    ranged = calibrated(Ranged(), training, 0)
    replaced = 0 if policy is FailurePolicy.SKIP else len(bad)
    assert [tuple(clip.shape) for clip in ranged.inputs] == [(4, 3, 16, 16)] * (21 + replaced)


@pytest.mark.parametrize("policy", [FailurePolicy.SKIP, FailurePolicy.REPLACE])
def test_no_ranges_are_taken_from_unreadable_videos_alone(
    data_root: Path, tmp_path: Path, policy: FailurePolicy
) -> None:
    (training, _), bad = broken_data(data_root, tmp_path, policy)
    training.videos = replace(training.videos, paths=tuple(bad[i % 3] for i in range(24)))
    with pytest.raises(NotCalibrated, match=r"no video of .* could be read to take ranges from"):
        calibrated(Ranged(), training, 0)


def test_a_folder_that_cannot_be_written(clips: Clips, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(WorkspaceError, match="file"):
        run(clips, file / "run")
