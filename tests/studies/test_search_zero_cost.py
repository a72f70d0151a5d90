import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from hwbench.blocks.kinds import build
from hwbench.models import network
from hwbench.spaces import load_space, read_space
from hwbench.specs import BlockSpec, TensorSpec
from hwbench.studies.evaluators import AdditiveEvaluator, Context, get, zero_cost
from hwbench.studies.evaluators.zero_cost import MOST_ONES, MOST_POSITIONS, naswot, shrunk, synflow
from hwbench.testing.evaluators import random_clips
from hwbench.workspace import Workspace, shipped

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


def context(reference, clips=random_clips):
    return Context(3, lambda count: reference, clips=clips)


def units(module, x):
    """Of one clip the kernel has one entry, the number of units."""
    return round(math.exp(naswot(module, x)))


def test_naswot_of_one_layer_by_hand():
    module = nn.Sequential(nn.BatchNorm3d(1), nn.ReLU()).double()
    clips = torch.tensor([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]], dtype=torch.float64).reshape(2, 1, 1, 1, 3)
    # mean 1/3: the signs stay; the two clips agree in one unit of three
    assert naswot(module, clips) == pytest.approx(math.log(3 * 3 - 1 * 1))


@pytest.mark.parametrize("activation", [nn.ReLU(inplace=True), nn.SiLU(), nn.Hardswish(inplace=True)])
def test_only_what_goes_into_an_activation_is_a_unit(activation):
    clips = torch.randn(4, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    followed = nn.Sequential(nn.BatchNorm3d(2), activation)
    unfollowed = nn.Sequential(*followed, nn.BatchNorm3d(2), nn.Identity(), nn.Sigmoid())
    assert naswot(unfollowed, clips) == naswot(followed, clips)
    assert units(followed, clips[:1]) == 2 * 3 * 4 * 4


@pytest.mark.parametrize(("kernel", "reduced"), [("3x3x3", 0), ("1x3x3+3x1x1", 0), ("1x3x3", 8)])
def test_the_units_of_a_block_are_the_inputs_of_its_activations(kernel, reduced):
    """Two normalisations are followed by an activation; the third by a sum, which goes into that of the block."""
    gate = f"_se{reduced}" if reduced else ""
    block = build(BlockSpec.parse(f"x3d_i16_m24_o32_k{kernel}_s2{gate}_swish"))
    x = torch.randn(1, 16, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    assert units(block, x) == 4 * 8 * 8 * 24 + 4 * 4 * 4 * (24 + 32) + reduced


def test_many_units_are_counted_exactly(monkeypatch):
    clips = torch.randn(3, 2, 4, 9, 9, generator=torch.Generator().manual_seed(0))
    module = nn.Sequential(nn.ReLU())
    whole = naswot(module, clips)
    monkeypatch.setattr(zero_cost, "_CHUNK", 7)
    assert naswot(module, clips) == whole


def test_no_units_and_no_difference_between_clips_are_no_score():
    clips = torch.ones(2, 1, 1, 2, 2)
    assert math.isnan(naswot(nn.Sequential(nn.Conv3d(1, 1, 1)), clips))
    assert math.isnan(naswot(nn.Sequential(nn.ReLU()), clips))


def test_synflow_of_two_layers_by_hand():
    module = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[2.0, -3.0]]))
        module[1].weight.fill_(-4.0)
    # the output is (2 + 3) * 4 = 20, and each layer's sum of weight x gradient is all of it
    assert synflow(module, torch.ones(1, 2)) == pytest.approx(math.log(40))


def test_synflow_out_of_range_is_no_score():
    module = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(40)))
    for layer in module:
        nn.init.constant_(layer.weight, 1e30)
    assert math.isnan(synflow(module, torch.ones(1, 1)))


def test_the_module_is_left_as_it_is():
    module = network(TINY.network(members(1)[0], 8)).eval()
    module.get_submodule("s1").train()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    modes = [part.training for part in module.modules()]
    naswot(module, torch.randn(2, 3, 8, 64, 64))
    synflow(module, torch.ones(1, 3, 8, 64, 64))
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert not any(m._forward_pre_hooks for m in module.modules())


def test_scores_are_finite_repeatable_and_relative_to_feasible_networks():
    networks = [TINY.network(a, 8) for a in members(4)]
    reference = [TINY.network(a, 8) for a in members(4, seed=1)]
    make = get("zero-cost")
    evaluator = make(context(reference))
    scores = [evaluator.score(n) for n in networks]
    assert not isinstance(evaluator, AdditiveEvaluator)
    assert all(map(math.isfinite, scores))
    assert len(set(scores)) == 4
    assert [make(context(reference)).score(n) for n in networks[:1]] == scores[:1]
    assert sum(evaluator.score(n) for n in reference) == pytest.approx(0.0, abs=1e-6)


def test_the_clips_of_the_data_are_looked_at():
    networks = [TINY.network(a, 8) for a in members(3)]
    evaluators = [get("zero-cost")(context(networks, clips)) for clips in (random_clips, _brighter)]
    first, second = ([evaluator.score(n) for n in networks] for evaluator in evaluators)
    assert first != pytest.approx(second)


def _brighter(input, count, seed):
    return random_clips(input, count, seed) ** 2


def test_the_size_of_what_is_run_is_bounded(monkeypatch):
    """The largest clip of x3d-mobile took 6 GB for SynFlow and 3.9 GB for NASWOT."""
    space = load_space(Workspace(shipped()), "x3d-mobile")
    large = space.network(space.random(np.random.default_rng(0)), 8)
    seen = []
    monkeypatch.setattr(zero_cost, "build", lambda _: nn.Identity())
    monkeypatch.setattr(zero_cost, "naswot", lambda _, clips: seen.append(clips.shape) or 1.0)
    monkeypatch.setattr(zero_cost, "synflow", lambda _, ones: seen.append(ones.shape) or 1.0)
    for t, side in ((16, 224), (4, 224), (4, 128), (16, 8)):
        sized = type(large)(large.name, large.blocks, TensorSpec(1, 3, t, side, side))
        get("zero-cost")(context([sized]))
        clips, ones = seen[-2:]
        assert (clips[0], clips[2], ones[0], ones[2]) == (zero_cost.CLIPS, t, 1, 4)
        assert math.prod(clips[2:]) <= MOST_POSITIONS
        assert math.prod(ones[2:]) <= MOST_ONES[1]
        assert clips[3] == clips[4] <= side


@pytest.mark.parametrize("space", sorted(path.stem for path in (shipped() / "search_spaces").glob("*.toml")))
def test_a_network_of_every_shipped_space_is_scored(space):
    """That of the shortest and smallest clips of a few, for the time's sake; SqueezeTime has clips of 8 or 16."""
    opened, rng = load_space(Workspace(shipped()), space), np.random.default_rng(0)
    drawn = [opened.network(opened.random(rng), 8) for _ in range(20)]
    one = min((one for one in drawn if one.input.t > MOST_ONES[0]), key=lambda one: one.input.numel)
    assert math.isfinite(get("zero-cost")(context([one])).score(one))


def test_a_small_clip_is_taken_as_it_is():
    small = TensorSpec(1, 3, 8, 64, 64)
    assert shrunk(small, MOST_POSITIONS) == small
    assert shrunk(small.with_(t=16, h=112, w=56), MOST_POSITIONS) == TensorSpec(1, 3, 16, 64, 32)


def test_the_callers_random_numbers_are_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    evaluator = get("zero-cost")(context([TINY.network(a, 8) for a in members(2)]))
    torch.manual_seed(0)
    evaluator.score(TINY.network(members(1)[0], 8))
    assert torch.equal(torch.rand(1), expected)


_SCORES = """
import numpy as np, torch
torch.set_num_threads(1)
from hwbench.spaces import read_space
from hwbench.studies.evaluators import Context, get
from hwbench.testing.evaluators import members, random_clips
from hwbench.workspace import shipped
space = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
context = Context(3, lambda count: members(space, 1, seed=1), clips=random_clips)
print([get(name)(context).score(network) for name in ("entropy", "zero-cost") for network in members(space, 1)])
"""


@pytest.mark.long
def test_scores_are_the_same_in_every_process():
    runs = [subprocess.run([sys.executable, "-c", _SCORES], capture_output=True, text=True, check=True) for _ in "ab"]
    assert runs[0].stdout == runs[1].stdout
    assert all(math.isfinite(score) for score in json.loads(runs[0].stdout))
