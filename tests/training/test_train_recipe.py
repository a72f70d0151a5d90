import json
import sys
from dataclasses import asdict, replace

import pytest
import torch
from torch import nn

from hwbench.errors import InvalidValue, MissingDependency
from hwbench.training import Recipe, Resources
from hwbench.training.muon import Muon
from hwbench.training.optimizers import make_optimizer, set_rate
from hwbench.training.recipe_files import RecipeFile


def test_the_rate_rises_to_its_peak_and_falls_to_nothing() -> None:
    recipe = Recipe(learning_rate=0.4, warmup_share=0.1)
    rates = [recipe.rate(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.04 * (i + 1) for i in range(10)])
    assert max(rates) == pytest.approx(0.4)
    assert all(a >= b for a, b in zip(rates[10:], rates[11:]))  # noqa: RUF007
    assert rates[55] == pytest.approx(0.2)
    assert 0 < rates[-1] < 0.001
    assert Recipe(learning_rate=0.1, warmup_share=0.0).rate(0, 1) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
        {"weight_decay": -1.0},
        {"label_smoothing": 1.0},
        {"ema_decay": -0.1},
        {"dropout": 1.5},
        {"clip_grad_norm": 0.0},
        {"precision": "fp8"},
        {"optimizer": "sdg"},
        {"seed": -1},
        {"seed": 2**63},
        {"learning_rate": 10**400},
        {"weight_decay": 10**5000},
        {"epochs": 10**400},
        {"test_crops": 2},
        {"eval_every": 0},
        {"schedule": "cosin"},
        {"loss": "mse"},
        {"accumulate": 0},
        {"multigrid": "lon"},
        {"decay_at": (), "multigrid": "long"},
        {"freeze": "heads"},
        {"freeze": "-1"},
        {"mixup": -0.1},
        {"mix_share": 1.1},
        {"layer_decay": 0.0},
        {"warmup_start": 1.0},
        {"final_share": -0.1},
        {"decay_at": (0.5, 1.0)},
        {"decay_factor": 0.0},
        {"precise_bn": -1},
        {"distill_weight": 2.0},
        {"distill_temperature": 0.0},
    ],
)
def test_impossible_recipes_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Recipe(**wrong)  # type: ignore[arg-type]


def test_only_matrices_are_decayed() -> None:
    module = nn.Sequential(nn.Conv3d(3, 4, 1), nn.BatchNorm3d(4), nn.Linear(4, 2))
    for name, kind in (("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW), ("muon", Muon)):
        optimizer = make_optimizer(module, Recipe(optimizer=name, weight_decay=0.3))
        assert isinstance(optimizer, kind)
        decays = {p.dim() > 1: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
        assert decays == {True: 0.3, False: 0.0}


def test_resources_set_threads_for_a_while_only() -> None:
    before = torch.get_num_threads()
    with Resources("cpu", threads=before + 1).applied() as device:
        assert torch.get_num_threads() == before + 1
        assert device.type == "cpu"
    assert torch.get_num_threads() == before
    with pytest.raises(InvalidValue, match="tpu"):
        Resources("tpu")
    with pytest.raises(InvalidValue, match="thread"):
        Resources(threads=0)
    if not torch.cuda.is_available():
        with pytest.raises(InvalidValue, match="cuda"):
            Resources("cuda").torch_device()


def test_schedules_meet_at_the_peak_and_end_where_they_say() -> None:
    def rates(**how: object) -> list[float]:
        recipe = Recipe(learning_rate=2.0, warmup_share=0.1, **how)  # type: ignore[arg-type]
        return [recipe.rate(step, 100) for step in range(100)]

    assert rates(schedule="constant")[9:] == pytest.approx([2.0] * 91)
    linear = rates(schedule="linear", final_share=0.5)
    assert linear[10] == 2.0
    assert linear[55] == pytest.approx(1.5)
    assert linear[99] == pytest.approx(1.0, abs=0.02)
    assert rates(final_share=0.25)[99] == pytest.approx(0.5, abs=0.01)
    stepped = rates(schedule="step", decay_at=(0.5, 0.8), decay_factor=0.1)
    assert [stepped[at] for at in (49, 50, 79, 80)] == pytest.approx([2.0, 0.2, 0.2, 0.02])
    assert rates(warmup_start=0.5)[:2] == pytest.approx([1.1, 1.2])


# What the fingerprint of a run held before recipes had more fields; runs that were begun then go on.
FIRST_FACTS = {
    "epochs": "16",
    "batch_size": "16",
    "learning_rate": "0.1",
    "optimizer": "sgd",
    "momentum": "0.9",
    "weight_decay": "5e-05",
    "warmup_share": "0.15",
    "label_smoothing": "0.05",
    "ema_decay": "0.98",
    "clip_grad_norm": "5.0",
    "dropout": "0.0",
    "precision": "fp32",
    "seed": "0",
    "eval_every": "1",
    "test_clips": "1",
    "test_crops": "1",
}


def test_the_default_recipe_of_before_has_the_facts_of_before() -> None:
    before = RecipeFile.of({"optimizer": "sgd"}).recipe()
    assert before.facts() == FIRST_FACTS
    changed = replace(
        before, accumulate=2, decay_at=(0.5, 0.9), repeats=2, multigrid="long", zero_init_final_bn=True
    ).facts()
    later = {
        "accumulate": "2",
        "decay_at": "(0.5, 0.9)",
        "repeats": "2",
        "multigrid": "long",
        "zero_init_final_bn": "True",
    }
    assert changed == {**FIRST_FACTS, **later}


def test_a_recipe_is_read_back_from_json() -> None:
    recipe = Recipe(schedule="step", decay_at=(0.25, 0.5), mixup=0.8, freeze="stem")
    assert Recipe(**json.loads(json.dumps(asdict(recipe)))) == recipe


@pytest.mark.parametrize("name", ["lamb", "lars"])
def test_optimizers_of_timm_come_with_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    monkeypatch.setitem(sys.modules, "timm.optim", None)
    with pytest.raises(MissingDependency, match=rf"{name}: timm is not installed.*hwbench\[timm\]"):
        make_optimizer(module, Recipe(optimizer=name))
    monkeypatch.undo()
    pytest.importorskip("timm", reason="pip install 'hwbench[timm]'")
    optimizer = make_optimizer(module, Recipe(optimizer=name, learning_rate=0.1, weight_decay=0.01))
    before = module[0].weight.detach().clone()
    module(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert type(optimizer).__name__.lower() == name
    assert not torch.equal(module[0].weight, before)


def test_the_last_block_has_the_whole_rate_and_each_before_it_a_share() -> None:
    module = nn.Sequential(nn.Conv3d(3, 4, 1), nn.BatchNorm3d(4), nn.Linear(4, 2))
    optimizer = make_optimizer(module, Recipe(layer_decay=0.5))
    set_rate(optimizer, 0.8)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert [rates[id(p)] for p in module.parameters()] == pytest.approx([0.2, 0.2, 0.4, 0.4, 0.8, 0.8])


@pytest.mark.parametrize(
    ("batch", "accumulate", "crops", "processes", "views"),
    [(16, 1, 1, 1, 16), (256, 32, 3, 1, 2), (256, 1, 1, 4, 64), (256, 2, 3, 4, 10), (4, 1, 3, 8, 1)],
)
def test_a_test_computes_no_more_clips_at_once_than_a_part_of_a_step(
    batch: int, accumulate: int, crops: int, processes: int, views: int
) -> None:
    assert Recipe(batch_size=batch, accumulate=accumulate).test_batch(crops, processes) == views
