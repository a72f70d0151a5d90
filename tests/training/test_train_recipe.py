import pytest
import torch
from torch import nn

from hwbench.errors import InvalidValue
from hwbench.training import Recipe, Resources
from hwbench.training.state import make_optimizer


def test_the_rate_rises_to_its_peak_and_falls_to_nothing() -> None:
    recipe = Recipe(learning_rate=0.4, warmup_share=0.1)
    rates = [recipe.rate(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.04 * (i + 1) for i in range(10)])
    assert max(rates) == pytest.approx(0.4)
    assert all(a >= b for a, b in zip(rates[10:], rates[11:]))  # noqa: RUF007
    assert rates[55] == pytest.approx(0.2)
    assert 0 < rates[-1] < 0.001
    assert Recipe(warmup_share=0.0).rate(0, 1) == pytest.approx(0.1)


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
        {"precision": "fp16"},
        {"optimizer": "sdg"},
        {"seed": -1},
        {"test_crops": 2},
        {"eval_every": 0},
    ],
)
def test_impossible_recipes_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Recipe(**wrong)  # type: ignore[arg-type]


def test_only_matrices_are_decayed() -> None:
    module = nn.Sequential(nn.Conv3d(3, 4, 1), nn.BatchNorm3d(4), nn.Linear(4, 2))
    for name, kind in (("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW)):
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
