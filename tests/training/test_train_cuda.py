"""Training on a GPU, skipped where torch finds none: what it computes is held against the same run on a CPU."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_train_loop import CPU, Clips, Stop, lines, stop_at
from test_train_supernet import CLASSES, R2PLUS1D, SQUEEZETIME, X3D, Within, _read, sized
from tiny import RECIPE, SPEC, Tiny, data
from torch import nn

from hwbench import models
from hwbench.specs import Architecture
from hwbench.training import Fit, Recipe, Resources, fit, load_checkpoint, open_data, score, train
from hwbench.training.run_files import CHECKPOINT
from hwbench.training.shared_weights import SharedWeights
from hwbench.training.supernet import score_inherited, train_supernet
from hwbench.training.teacher import Teacher
from hwbench.workspace import Workspace

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
GPU = Resources("cuda", threads=1)
SHORT = replace(RECIPE, epochs=2)


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Sums of 24 bits, as on a CPU: by default convolutions of a GPU take products of 10."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = before


def run(clips: Clips, recipe: Recipe, resources: Resources, folder: Path | None = None, **how: object) -> Fit:
    return fit(Tiny(), *clips, recipe, run_dir=folder, resources=resources, **how)  # type: ignore[arg-type]


def losses(folder: Path) -> list[object]:
    return [line["loss"] for line in lines(folder) if line["event"] == "step"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "adamw", "learning_rate": 0.01},
        {"accumulate": 2, "precise_bn": 2},
        {"gradient_checkpointing": True},
        {"mixup": 0.8, "cutmix": 1.0},
    ],
    ids=["sgd", "adamw", "accumulate", "checkpointing", "mixing"],
)
def test_a_gpu_trains_as_a_cpu_does(clips: Clips, tmp_path: Path, changes: dict[str, object]) -> None:
    # dropout and mixing draw from the generator of the device
    recipe = replace(SHORT, **changes)
    plain = {name: value for name, value in changes.items() if name not in ("mixup", "cutmix")}
    module = Tiny()
    module.layers[-2] = nn.Identity()
    other = Tiny()
    other.layers[-2] = nn.Identity()
    fit(module, *clips, recipe, run_dir=tmp_path / "gpu", resources=GPU)
    assert all(parameter.is_cuda for parameter in module.parameters())
    assert len(losses(tmp_path / "gpu")) == 12
    if plain == changes:
        fit(other, *clips, recipe, run_dir=tmp_path / "cpu", resources=CPU)
        assert losses(tmp_path / "gpu") == pytest.approx(losses(tmp_path / "cpu"), rel=2e-3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precisions_train(clips: Clips, tmp_path: Path, precision: str) -> None:
    run(clips, replace(SHORT, epochs=8), GPU, tmp_path / "fp32")
    run(clips, replace(SHORT, epochs=8, precision=precision), GPU, tmp_path / precision)
    found = losses(tmp_path / precision)
    assert found != losses(tmp_path / "fp32")
    assert found[0] == pytest.approx(losses(tmp_path / "fp32")[0], rel=2e-2)
    assert sum(found[-6:]) < sum(found[:6])  # type: ignore[arg-type]


def test_a_compiled_network_trains_on_a_gpu(clips: Clips, tmp_path: Path) -> None:
    for name, recipe in (("plain", SHORT), ("compiled", replace(SHORT, compile=True))):
        module = Tiny()
        module.layers[-2] = nn.Identity()
        fit(module, *clips, recipe, run_dir=tmp_path / name, resources=GPU)
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "plain"), rel=2e-3)


@pytest.mark.parametrize("changes", [{}, {"freeze": "1"}, {"mixup": 0.8}], ids=["plain", "frozen", "mixing"])
def test_replayed_passes_compute_the_same(data_root: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    recipe, trained = replace(RECIPE, epochs=4, **changes), {}
    for name, resources in (("plain", GPU), ("replayed", replace(GPU, cuda_graphs=True))):
        if "freeze" in changes:
            space = _read(tmp_path, X3D)
            network = space.network(next(space.architectures()), CLASSES)
            torch.manual_seed(3)
            module: nn.Module = models.network(network, dropout=0.3)
            training = data(data_root)[0]._reshaped(network.input.shape[2:])
        else:
            module, training = Tiny(), data(data_root)[0]
        fit(module, training, None, recipe, run_dir=tmp_path / name, resources=resources)
        trained[name] = module.state_dict()
    assert losses(tmp_path / "replayed") == pytest.approx(losses(tmp_path / "plain"), rel=1e-3)
    for name, tensor in trained["plain"].items():
        torch.testing.assert_close(trained["replayed"][name], tensor, rtol=1e-2, atol=1e-3)


def test_replayed_passes_go_on_after_an_interruption(clips: Clips, tmp_path: Path) -> None:
    replayed = replace(GPU, cuda_graphs=True)
    run(clips, RECIPE, replace(replayed, workers=2), tmp_path / "whole")
    with pytest.raises(Stop):
        run(clips, RECIPE, replayed, tmp_path / "parts", progress=stop_at(8))
    run(clips, RECIPE, replayed, tmp_path / "parts")
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=1e-3)


def test_an_interrupted_run_goes_on_and_may_change_the_device(clips: Clips, tmp_path: Path) -> None:
    whole = run(clips, RECIPE, GPU)
    for other in (GPU, CPU):
        folder = tmp_path / other.device
        with pytest.raises(Stop):
            run(clips, RECIPE, GPU, folder, progress=stop_at(8))
        again = run(clips, RECIPE, other, folder)
        assert again.steps == whole.steps
        assert [line["step"] for line in lines(folder) if line["event"] == "step"] == list(range(whole.steps))


def test_workers_read_for_a_gpu(data_root: Path, tmp_path: Path) -> None:
    run(data(data_root), SHORT, GPU, tmp_path / "alone")
    run(data(data_root), SHORT, Resources("cuda", 1, 2), tmp_path / "workers")
    assert losses(tmp_path / "workers") == pytest.approx(losses(tmp_path / "alone"), rel=1e-3)


def test_a_checkpoint_of_a_gpu_is_that_of_any_machine(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network, and one that learns from it, from the data to scores on a CPU."""
    monkeypatch.setattr("hwbench.data.builtin.SyntheticSpec", lambda: SPEC)
    workspace, space = Workspace.create(tmp_path / "workspace"), _read(tmp_path, X3D)
    network = space.network(Within(space).largest, CLASSES)
    size = (network.input.t, network.input.h, network.input.w)
    opened = open_data(workspace, "synthetic", size, SHORT)
    first = train(SHORT, network, opened, tmp_path / "first", resources=GPU)
    path = tmp_path / "first" / CHECKPOINT
    assert all(not tensor.is_cuda for tensor in load_checkpoint(path)[1].values())
    on_gpu, on_cpu = (score(path, workspace, resources=resources)[1] for resources in (GPU, CPU))
    assert on_gpu.by_video is not None
    assert on_cpu.by_video is not None
    assert torch.allclose(on_gpu.by_video.scores, on_cpu.by_video.scores, atol=1e-4)
    assert first.checkpoint.metrics["top1"] == pytest.approx(on_cpu.top1)
    taught = train(SHORT, network, opened, tmp_path / "second", teacher=Teacher.of(path), resources=GPU)
    assert taught.checkpoint.metrics["steps"] == first.checkpoint.metrics["steps"]


@pytest.mark.parametrize("text", [X3D, R2PLUS1D, SQUEEZETIME], ids=["x3d", "r2plus1d", "squeezetime"])
def test_shared_weights_train_on_a_gpu(clips: Clips, tmp_path: Path, text: str) -> None:
    space = _read(tmp_path, text)
    within, recipe = Within(space), replace(RECIPE, epochs=2, dropout=0.0)
    averages, scores = [], []
    for resources in (GPU, CPU):
        shared, seen = SharedWeights(space, CLASSES), list[float]()
        values = train_supernet(
            shared, within, clips[0], recipe, resources=resources, progress=lambda at, seen=seen: seen.append(at.loss)
        )
        averages.append(seen)
        architecture = within.largest
        training, validation = sized(clips, space, architecture)
        scores.append(
            score_inherited(shared, architecture, training, validation, recipe, values=values, resources=resources)
        )
    assert averages[0] == pytest.approx(averages[1], rel=1e-2)
    assert scores[0].videos == scores[1].videos == len(clips[1].videos)


def test_a_supernet_takes_clips_in_the_layout_that_a_gpu_is_fast_with(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels last, depthwise convolutions over three axes go to cuDNN's kernels, and a step took seconds."""
    space, seen = _read(tmp_path, X3D), list[bool]()
    forward = SharedWeights.forward

    def looked_at(self: SharedWeights, x: torch.Tensor, *network: Architecture) -> torch.Tensor:
        seen.append(x.is_contiguous())
        return forward(self, x, *network)

    monkeypatch.setattr(SharedWeights, "forward", looked_at)
    train_supernet(SharedWeights(space, CLASSES), Within(space), clips[0], Recipe(epochs=1), resources=GPU)
    assert seen
    assert all(seen)
