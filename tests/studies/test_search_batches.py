"""Batches of Thompson sampling: what parallel workers are proposed before any of them is done."""

import numpy as np
import optuna
import pytest

from hwbench.spaces import read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.studies.posterior import Layout
from hwbench.studies.posterior_layout import Effects
from hwbench.studies.sampler import FeasibleSampler, samplers
from hwbench.studies.thompson import Thompson
from hwbench.workspace import shipped

BATCH, ROUNDS, STARTUP = 8, 2, 8
THOMPSON = samplers.get("thompson")


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


@pytest.fixture(scope="module")
def feasible() -> FeasibleSet:
    space = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
    sums = SpaceSums.of(space, lambda block, x: sum(o.macs for o in block.operations(x)), num_classes=8)
    return FeasibleSet(sums, 2.5 * sums.smallest()[0])


def landscape(feasible, seed):
    """Effects of choices and of pairs within a stage, with the exact optimum."""
    layout, rng = Layout(feasible.sums), np.random.default_rng(seed)
    sizes = [len(scale) for scale in layout.scales]
    effects = Effects({c: rng.normal(size=sizes[c]) for c in layout.singles})
    for one, other in layout.pairs["within a stage"]:
        effects.pairs[one, other] = 0.4 * rng.normal(size=(sizes[one], sizes[other]))
    return layout.sums_of(effects, 0.0)


def in_batches(feasible, seed, base=THOMPSON):
    """The proposals of a study whose trials end eight at a time, and what they are worth: 1 is the optimum."""
    scores = landscape(feasible, seed)
    best = feasible.best(scores).score
    mean = np.mean([scores.total(feasible.draw(np.random.default_rng([seed, n]))) for n in range(200)])
    study = optuna.create_study(
        direction="maximize", sampler=FeasibleSampler(feasible, base, seed=seed, startup=STARTUP)
    )
    batches = []
    for _ in range(1 + ROUNDS):
        trials = [study.ask() for _ in range(BATCH)]
        batches.append([feasible.space.sample(trial) for trial in trials])
        for trial, architecture in zip(trials, batches[-1]):
            study.tell(trial, scores.total(architecture))
    return batches, [[(scores.total(a) - mean) / (best - mean) for a in batch] for batch in batches]


def test_no_network_comes_twice_and_each_is_within_the_budget(feasible):
    batches, _ = in_batches(feasible, 0)
    proposed = [architecture for batch in batches for architecture in batch]
    assert len(set(proposed)) == len(proposed) == BATCH * (1 + ROUNDS)
    assert all(feasible.sums.total(a) <= feasible.budget_s for a in proposed)


def test_each_member_is_the_exact_optimum_of_a_function_of_its_own(feasible, monkeypatch):
    """No network within the budget has a higher value of the function that was drawn for a proposal."""
    drawn, best = [], FeasibleSet.best

    def kept(self, scores, share=1.0):
        found = best(self, scores, share)
        drawn.append((scores, found))
        return found

    monkeypatch.setattr(FeasibleSet, "best", kept)
    in_batches(feasible, 1)
    codes = feasible.space.encode(list(feasible.space.architectures()))
    inside = codes[feasible.sums.totals(codes) <= feasible.budget_s]
    for function, found in drawn[-BATCH:]:
        # the set leaves out what is closer to the budget than a step of its grid: nobody here is
        assert function.totals(inside).max() == pytest.approx(found.score)
    values = {round(float(function.totals(inside[:1])[0]), 9) for function, _ in drawn[-BATCH:]}
    assert len(values) >= BATCH // 2  # every other proposal begins with the mean, which a batch is given once


class OneDraw(Thompson):
    """What a batch is held against: one function for all of it, changed by noise on the scores of its choices."""

    def propose(self, observations, rng, *, attempt=0, running=0, front=False, turns=1):
        function = self._posterior(list(observations)).draw(np.random.default_rng(len(observations)), 0.5)
        if not running and not attempt:
            return self._feasible.best(function).architecture
        layout = Layout(self._feasible.sums)
        spread = np.std([function.total(one.architecture) for one in observations])
        noise = {c: 0.3 * spread * rng.normal(size=len(layout.scales[c])) for c in layout.singles}
        added = layout.sums_of(Effects(noise), 0.0)
        return max(
            (self._feasible.best(function).architecture, *(self._feasible.draw(rng) for _ in range(64))),
            key=lambda a: function.total(a) + added.total(a),
        )


@pytest.mark.long
def test_several_draws_find_more_than_one_with_noise_and_than_uniform_draws(feasible):
    """The best after two batches of eight, over six landscapes."""

    def reached(base):
        return np.array([max(v for batch in in_batches(feasible, seed, base)[1] for v in batch) for seed in range(6)])

    several, one, uniform = reached(THOMPSON), reached(OneDraw), reached(None)
    assert several.mean() > one.mean()
    assert several.mean() > uniform.mean() + 0.05
