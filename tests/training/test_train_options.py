"""Runs of recipes that are not the default: they resume alike, and do what they say."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_train_loop import CPU, Clips, lines, run, same, stop_at
from tiny import RECIPE, Tiny
from torch import nn

from hwbench.errors import CheckFailed, InvalidValue
from hwbench.training import fit
from hwbench.training import loop as module
from hwbench.training.steps import TrainingStep

SHORT = replace(RECIPE, epochs=2)


@pytest.mark.parametrize(
    "how",
    [
        {"accumulate": 2},
        {"mixup": 0.8, "cutmix": 1.0},
        {"loss": "bce"},
        {"freeze": "2", "layer_decay": 0.7},
        {"precise_bn": 2},
        {"gradient_checkpointing": True},
        {"schedule": "step", "warmup_start": 0.1},
        {"precision": "fp16"},
        {"optimizer": "lamb", "learning_rate": 0.01},
        {"precision": "bf16", "gradient_checkpointing": True},
    ],
    ids=lambda how: "-".join(how),
)
def test_recipes_are_repeated_and_resumed_bit_for_bit(clips: Clips, tmp_path: Path, how: dict[str, object]) -> None:
    from test_train_loop import Stop

    recipe = replace(SHORT, **how)  # type: ignore[arg-type]
    whole, result = run(clips, tmp_path / "whole", recipe)
    assert not same(whole, Tiny())
    with pytest.raises(Stop):
        run(clips, tmp_path / "parts", recipe, progress=stop_at(8))
    parts, again = run(clips, tmp_path / "parts", recipe)
    assert same(whole, parts)
    assert result.scores == again.scores
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")


def test_a_frozen_block_keeps_its_weights_and_statistics(clips: Clips) -> None:
    trained, _ = run(clips, recipe=replace(SHORT, freeze="2", precise_bn=1))
    before, after = Tiny().state_dict(), trained.state_dict()
    changed = {name.split(".")[1] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"3", "4", "9"}


def test_checkpointed_blocks_train_the_same_network(clips: Clips) -> None:
    plain, _ = run(clips, recipe=SHORT)
    thrifty, _ = run(clips, recipe=replace(SHORT, gradient_checkpointing=True))
    assert same(plain, thrifty)


class Normless(nn.Module):
    """Nothing that depends on the other clips of a batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layers = nn.Sequential(
            nn.Conv3d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 8)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_parts_of_a_batch_add_up_to_its_gradient(clips: Clips, tmp_path: Path) -> None:
    nets = [Normless(), Normless(), Normless()]
    for net, accumulate in zip(nets, (1, 3, 9), strict=True):
        fit(net, *clips, replace(SHORT, accumulate=accumulate), resources=CPU, run_dir=tmp_path / str(accumulate))
    losses = [[line["loss"] for line in lines(tmp_path / name) if line["event"] == "step"] for name in "139"]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)


def test_precise_statistics_are_tested_and_stored(clips: Clips) -> None:
    plain, _ = run(clips, recipe=SHORT)
    precise, _ = run(clips, recipe=replace(SHORT, precise_bn=3))
    differ = {n for n, (a, b) in _pairs(plain, precise).items() if not torch.equal(a, b)}
    assert differ == {f"layers.{i}.running_{what}" for i in (1, 4) for what in ("mean", "var")}


def _pairs(one: nn.Module, two: nn.Module) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    return {name: (tensor, two.state_dict()[name]) for name, tensor in one.state_dict().items()}


def test_a_teacher_is_learnt_from(clips: Clips) -> None:
    teacher = Tiny().eval()
    with torch.no_grad():
        teacher.layers[-1].bias += torch.tensor([4.0] + [0.0] * 7)
    recipe = replace(RECIPE, epochs=8, learning_rate=0.2, distill_weight=1.0)
    student = Tiny()
    fit(student, clips[0], None, recipe, resources=CPU, teacher=teacher)
    x = torch.cat([clips[0][i].views for i in range(8)])
    with torch.no_grad():
        assert student(x).softmax(1)[:, 0].mean() > Tiny().eval()(x).softmax(1)[:, 0].mean() + 0.1
    alone = Tiny()
    fit(alone, clips[0], None, recipe, resources=CPU)
    assert not same(student, alone)


class InPlace(Tiny):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.sub_(3.0))


def test_a_teacher_sees_the_clips_that_a_student_changes_in_place(clips: Clips) -> None:
    views = torch.cat([clips[0][i].views for i in range(8)])
    seen: list[float] = []

    class Teacher(Tiny):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.mean().item())
            return super().forward(x)

    recipe = replace(RECIPE, epochs=1, distill_weight=0.5)
    fit(InPlace(), clips[0], None, recipe, resources=CPU, teacher=Teacher().eval())
    assert min(seen) > views.mean().item() - 2.0


def test_targets_of_several_classes_train_with_bce_alone(clips: Clips, monkeypatch: pytest.MonkeyPatch) -> None:
    from hwbench.data import loading

    batches = loading.Loader.batches

    def several(self: loading.Loader, order: list[list[int]]) -> object:
        for batch in batches(self, order):
            one_hot = nn.functional.one_hot(batch.labels, 8).float()
            yield replace(batch, labels=one_hot + one_hot.roll(1, 1))

    monkeypatch.setattr(loading.Loader, "batches", several)
    _, result = run((clips[0], None), recipe=replace(SHORT, loss="bce"))  # type: ignore[arg-type]
    assert result.steps == 12
    with pytest.raises(InvalidValue, match="--loss bce"):
        run((clips[0], None), recipe=SHORT)  # type: ignore[arg-type]


def test_numbers_of_a_gpu_are_logged_one_step_later(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(clips, tmp_path / "plain", SHORT)
    make = TrainingStep.__init__

    def waiting(self: TrainingStep, *arguments: object, **more: object) -> None:
        make(self, *arguments, **more)  # type: ignore[arg-type]
        self.waits = True

    monkeypatch.setattr(TrainingStep, "__init__", waiting)
    monkeypatch.setattr(module.Resume, "is_cheap", lambda _: False)
    lengths: list[int] = []
    run(clips, tmp_path / "late", SHORT, progress=lambda at: lengths.append(len(lines(tmp_path / "late"))))
    assert lengths[:4] == [0, 1, 2, 3]
    assert lines(tmp_path / "late") == lines(tmp_path / "plain")
    with pytest.raises(CheckFailed, match=r"diverged: the loss is (nan|inf) at step 1 "):
        run(clips, recipe=replace(SHORT, learning_rate=1e30, clip_grad_norm=1e30, warmup_share=0.0))


def test_fp16_is_refused_where_it_does_not_run(clips: Clips, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no half here\nmore")

    monkeypatch.setattr("hwbench.training.steps.torch.autocast", refuse)
    with pytest.raises(InvalidValue, match=r"^precision: fp16 does not run on cpu here \(no half here\); use bf16"):
        run(clips, recipe=replace(SHORT, precision="fp16"))


@pytest.mark.slow
def test_a_compiled_network_trains_as_a_plain_one(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what comes behind the graph (C++ for a CPU) takes two minutes
    monkeypatch.setattr(nn.Module, "compile", functools.partialmethod(nn.Module.compile, backend="eager"))
    recipe = replace(SHORT, epochs=1, eval_every=1)
    for name, how in (("plain", recipe), ("compiled", replace(recipe, compile=True))):
        net = Normless()
        fit(net, *clips, how, resources=CPU, run_dir=tmp_path / name)
        assert "layers.0.weight" in net.state_dict()
    plain, compiled = ([x["loss"] for x in lines(tmp_path / n) if x["event"] == "step"] for n in ("plain", "compiled"))
    assert compiled == pytest.approx(plain, rel=1e-4)


def test_a_recipe_in_a_log_is_plain_json(clips: Clips, tmp_path: Path) -> None:
    run(clips, tmp_path, replace(SHORT, epochs=1))
    (epoch,) = [line for line in lines(tmp_path) if line["event"] == "epoch"]
    assert {"top1", "top5", "videos", "class_top1", "calibration_error"} <= epoch.keys()
    json.dumps(epoch)
