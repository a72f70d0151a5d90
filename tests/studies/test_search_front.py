"""Several budgets on one device: a front in one study, whose trials all budgets share."""

import json
import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import pairwise

import optuna
import pytest

import hwbench.api.search
from hwbench.api.search_devices import DevicePredictors, front_within
from hwbench.cli.main import main
from hwbench.errors import InvalidValue, OverBudget, UnknownName
from hwbench.reports import commands
from hwbench.reports.result import read_result
from hwbench.spaces import resolve
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.studies.evaluators import get as get_evaluator
from hwbench.studies.evaluators.base import Context
from hwbench.studies.front import FrontSampler
from hwbench.studies.latencies import choices_digest
from hwbench.studies.posterior import Posterior
from hwbench.studies.sampler import samplers
from hwbench.studies.settings import Settings
from hwbench.studies.thompson import Thompson
from hwbench.studies.trials import SearchWatch

BUDGETS_S = (3.4e-3, 4.2e-3, 5.2e-3)


@pytest.fixture
def make_front(make_search):
    """Makes a search over ``BUDGETS_S``."""

    return partial(make_search, budget_s=BUDGETS_S[-1], smaller_s=BUDGETS_S[:-1])


def test_each_budget_has_its_exact_optimum_of_an_additive_score(make_front):
    search = make_front()
    entropy = get_evaluator("entropy")(Context(0, lambda n: []))
    scores = SpaceSums.of(search.feasible.space, entropy.block_score, num_classes=8)
    result = search.run(trials=3, measure=1)
    for point, feasible in zip(result.front, [*search.smaller, search.feasible], strict=True):
        optimum = feasible.best(scores)
        (tried,) = [c for c in result.history if c.architecture == optimum.architecture.key]
        assert tried.score == pytest.approx(optimum.score)
        assert point.best.measured_s <= feasible.budget_s
        assert point.feasible == feasible.count
    assert result.best == result.front[-1].best


def test_each_budget_has_optima_of_the_mean_and_of_draws(make_search, monkeypatch):
    scales, asked, propose, draw = defaultdict(list), [], Thompson.propose, Posterior.draw

    def proposing(self, observations, rng, *, attempt=0, **options):
        asked.append((self._feasible.budget_s, attempt))
        return propose(self, observations, rng, attempt=attempt, **options)

    def drawing(self, rng, scale):
        budget_s, attempt = asked[-1]
        if not attempt:
            scales[budget_s].append(scale)
        return draw(self, rng, scale)

    monkeypatch.setattr(Thompson, "propose", proposing)
    monkeypatch.setattr(Posterior, "draw", drawing)
    search = make_search(evaluator="deep-and-slow", sampler="thompson", budget_s=4.2e-3, smaller_s=(3.4e-3,))
    search.run(trials=28, measure=1)
    assert [sorted(set(found)) for found in scales.values()] == [[0.0, 0.25, 0.5]] * 2


@pytest.mark.parametrize("sampler", ["thompson", "random"])
def test_trials_are_shared_and_go_to_each_band(make_front, sampler):
    search = make_front(evaluator="deep-and-slow", sampler=sampler)
    result = search.run(trials=18, measure=1)
    assert len({c.architecture for c in result.history}) == 18
    bands = [sum(low < c.predicted_s <= high for c in result.history) for low, high in pairwise((0, *BUDGETS_S))]
    assert min(bands) >= 3
    if sampler == "random":
        assert bands == [6, 6, 6]
    for point, limit in zip(result.front, BUDGETS_S, strict=True):
        within = [c for c in result.history if c.predicted_s <= 0.98 * limit]  # all of these are surely measured within
        assert point.best.score >= max(c.score for c in within)


def test_a_small_budget_whose_networks_are_all_tried_is_passed_over(make_search, space):
    sums = make_search().feasible.sums
    smallest, _ = sums.smallest()
    few = FeasibleSet(sums, 1.02 * smallest)
    assert 1 <= few.count <= 6
    result = make_search("few", 4.2e-3, (few.budget_s,), evaluator="deep-and-slow").run(trials=12, measure=1)
    assert len({c.architecture for c in result.history}) == 12
    assert {c.architecture for c in result.history if c.predicted_s <= few.budget_s} == {
        a.key for a in space.architectures() if a in few
    }


@pytest.mark.parametrize("max_file_bytes", [0, 400_000])
def test_draws_are_slower_than_the_smaller_budget_under_a_limit_of_the_file(space, predictor, max_file_bytes):
    settings = Settings(
        space.name, choices_digest(space), predictor.table.target.key, "int8", 9.0, 8,
        smaller_budgets_ms=(4.5,), max_file_bytes=max_file_bytes,
    )  # fmt: skip
    small, large = front_within(space, [DevicePredictors({space.name: predictor})], settings)
    study = optuna.create_study(sampler=FrontSampler([small, large], samplers.get("random"), seed=0, startup=40))
    for _ in range(40):
        trial = study.ask()
        study.tell(trial, len(space.params(choose(space, trial))))
    drawn = [space.of_params(trial.params) for trial in study.trials]
    assert all(network in small for network in drawn[::2])
    assert all(network in large and large.sums.total(network) > 4.5e-3 for network in drawn[1::2])


def choose(space, trial):
    return space.of_params({name: trial.suggest_categorical(name, values) for name, values in space.values.items()})


def test_a_front_goes_on_as_if_it_had_not_been_interrupted(make_front, make_search):
    whole = make_front("whole", evaluator="deep-and-slow", sampler="tpe").run(trials=9, measure=1)

    class Stop(SearchWatch):
        def evaluated(self, candidate):
            if candidate.trial == 6:
                raise KeyboardInterrupt

    parts = make_front("parts", evaluator="deep-and-slow", sampler="tpe")
    parts.watch = Stop()
    with pytest.raises(KeyboardInterrupt):
        parts.run(trials=9, measure=1)
    again = make_front("parts", evaluator="deep-and-slow", sampler="tpe").run(trials=9, measure=1)
    assert [c.architecture for c in again.history] == [c.architecture for c in whole.history]
    with pytest.raises(InvalidValue, match="smaller_budgets_ms was"):
        make_search("parts", BUDGETS_S[-1], BUDGETS_S[1:2], evaluator="deep-and-slow", sampler="tpe").run(9, 1)


def test_all_budgets_are_measured_in_one_campaign(make_front):
    search, asked = make_front(), []
    measure = search.measure

    def counting(workloads):
        asked.append(list(workloads))
        return measure(workloads)

    search.measure = counting
    result = search.run(trials=12, measure=2)
    assert len(asked) == 1
    assert {c.architecture for c in result.measured} >= {point.best.architecture for point in result.front}


def test_a_budget_that_nothing_is_measured_within_has_no_best(make_front, workspace):
    search = make_front()
    measure = search.measure
    small = BUDGETS_S[0]

    def slower(workloads):
        return [m if m.stats.median_s > 1.05 * small else _delayed(m, small) for m in measure(workloads)]

    search.measure = slower
    result = search.run(trials=9, measure=1)
    assert [point.best is None for point in result.front] == [True, False, False]
    assert result.to_json()["front"][0]["best"] is None
    with pytest.raises(UnknownName, match=r"has no network that was measured within 3.4 ms; it has mine:4.2ms, "):
        resolve(workspace, "mine:3.4ms", 8)
    search = make_front("none")
    search.measure = lambda workloads: [_delayed(m, 1.0) for m in measure(workloads)]
    with pytest.raises(OverBudget, match="none of the"):
        search.run(trials=9, measure=1)


def test_what_was_scored_for_a_larger_budget_is_measured_for_a_smaller_one_that_it_may_fit(make_search):
    small = BUDGETS_S[0]
    search = make_search(budget_s=BUDGETS_S[-1], smaller_s=(small,), evaluator="deep-and-slow", sampler="random")
    measure = search.measure
    search.measure = lambda workloads: [_delayed(m, -5e-4) for m in measure(workloads)]
    result = search.run(trials=60, measure=4)
    best = result.front[0].best
    assert best.measured_s <= small < best.predicted_s
    assert best.score >= max(c.score for c in result.history if c.predicted_s - 4e-4 <= small)


def _delayed(measurement, seconds):
    sessions = tuple(
        replace(session, samples_s=tuple(s + seconds for s in session.samples_s)) for session in measurement.sessions
    )
    return replace(measurement, sessions=sessions)


def test_what_is_stored_is_read_and_repeated(make_front, workspace):
    result = make_front().run(trials=9, measure=1)
    stored = read_result(workspace, "mine")
    assert stored.settings.front_ms == pytest.approx([3.4, 4.2, 5.2])
    assert [p.best.architecture for p in stored.front] == [p.best.architecture for p in result.front]
    for limit, point in zip(("3400us", "4.2ms", "5.2ms"), result.front, strict=True):
        assert resolve(workspace, f"mine:{limit}", 8).name == point.best.architecture
    with pytest.raises(
        UnknownName, match=r"^9 ms is no budget of study 'mine'; it has mine:3.4ms, mine:4.2ms, mine:5.2ms"
    ):
        resolve(workspace, "mine:9ms", 8)
    with pytest.raises(InvalidValue, match="expected a printed key"):
        resolve(workspace, "mine:worst", 8)
    assert [p.budget_ms for p in stored.front] == [p.budget_ms for p in result.front]
    assert "--budget 3.4ms,4.2ms,5.2ms" in commands.search(stored)
    assert result.settings.default_study == "x3d-tiny_local_int8_3.4ms-4.2ms-5.2ms_entropy"
    assert result.settings.budgets_text() == "3.4 ms, 4.2 ms and 5.2 ms"


def test_the_command_prints_the_front(make_search, workspace, monkeypatch, capsys):
    measure = make_search().measure
    monkeypatch.chdir(workspace.root)
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: measure)

    def run(*options):
        with pytest.raises(SystemExit) as end:
            main(["search", "--trials", "8", *options])
        return (end.value.code or 0, *capsys.readouterr())

    status, out, _ = run("--budget", "4.2ms, 3.4 ms", "--json")
    printed = json.loads(out)
    assert status == 0
    assert [point["budget_ms"] for point in printed["front"]] == [3.4, 4.2]
    assert printed["best"] == printed["front"][-1]["best"]
    assert printed["budget_ms"] == 4.2
    status, out, err = run("--budget", "4.2ms,3.4ms")
    assert status == 0
    assert "the best within each budget" in out
    assert "are within 3.4 ms" in err
    status, _, err = run("--budget", "1us,4.2ms")
    assert status == 4
    assert "budget 1 µs" in err
    _, _, err = run("--budget", "4.123456ms,5.2ms")
    (name,) = re.findall(r"hwbench train (\S+) --data synthetic or", err)
    assert name.endswith(":4.123456ms")
    assert resolve(workspace, name, 8)


def test_the_band_of_a_budget_close_to_the_next_is_all_of_it(make_search):
    sums = make_search().feasible.sums
    sets = [FeasibleSet(sums, 4.2e-3), FeasibleSet(sums, 4.2e-3 * (1 + 1e-9))]
    sampler = FrontSampler(sets, samplers.get("random"), seed=0, startup=0)
    assert [one._band for one in sampler._samplers] == [(0.0, 1.0), (0.0, 1.0)]
