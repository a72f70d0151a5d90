import math

import numpy as np
import pytest
import torch
from torch import nn

from hwbench.models import network
from hwbench.spaces import read_space
from hwbench.studies.evaluators import AdditiveEvaluator, Context, get
from hwbench.studies.evaluators.zero_cost import naswot, synflow
from hwbench.workspace import shipped

TINY = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def members(count, seed=0):
    rng = np.random.default_rng(seed)
    return [TINY.random(rng) for _ in range(count)]


def test_naswot_of_one_layer_by_hand():
    module = nn.Sequential(nn.BatchNorm3d(1)).double()
    clips = torch.tensor([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]], dtype=torch.float64).reshape(2, 1, 1, 1, 3)
    # mean 1/3: the signs stay; the two clips agree in one unit of three
    assert naswot(module, clips) == pytest.approx(math.log(3 * 3 - 1 * 1))


def test_synflow_of_two_layers_by_hand():
    module = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[2.0, -3.0]]))
        module[1].weight.fill_(-4.0)
    # the output is (2 + 3) * 4 = 20, and each layer's sum of weight x gradient is all of it
    assert synflow(module, torch.ones(1, 2)) == pytest.approx(math.log(40))


def test_the_module_is_left_as_it_is():
    module = network(TINY.network(members(1)[0], 8)).eval()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    naswot(module, torch.randn(2, 3, 8, 64, 64))
    synflow(module, torch.ones(1, 3, 8, 64, 64))
    assert not module.training
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert not any(m._forward_hooks for m in module.modules())


def test_scores_are_finite_repeatable_and_relative_to_feasible_networks():
    networks = [TINY.network(a, 8) for a in members(4)]
    reference = [TINY.network(a, 8) for a in members(4, seed=1)]
    make = get("zero-cost")
    context = Context(3, lambda count: reference)
    evaluator = make(context)
    scores = [evaluator.score(n) for n in networks]
    assert not isinstance(evaluator, AdditiveEvaluator)
    assert all(map(math.isfinite, scores))
    assert len(set(scores)) == 4
    assert [make(context).score(n) for n in networks[:1]] == scores[:1]
    assert sum(evaluator.score(n) for n in reference) == pytest.approx(0.0, abs=1e-6)


def test_the_callers_random_numbers_are_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    evaluator = get("zero-cost")(Context(3, lambda count: [TINY.network(a, 8) for a in members(2)]))
    torch.manual_seed(0)
    evaluator.score(TINY.network(members(1)[0], 8))
    assert torch.equal(torch.rand(1), expected)
