import math
from dataclasses import replace

import numpy as np
import pytest

from hwbench.specs import BlockSpec, Measurement, Outcome, Session, Target, TensorSpec, Timing, Workload
from hwbench.studies.candidates import Candidate, pareto
from hwbench.studies.confirmation import Confirmation, PredictionError

BLOCK = BlockSpec.parse("conv_i3_o3_k1x1x1_relu")


def workload(name: str) -> Workload:
    return Workload((BLOCK,), TensorSpec(1, 3, 1, 1, int(name) + 1))


def measurement(name: str, seconds: float | None, emulated: bool = False) -> Measurement:
    outcome = Outcome.OK if seconds else Outcome.CRASH
    sessions = (Session((seconds,) * 3),) * 3 if seconds else ()
    target = Target("local", "executorch", "1.5.1")
    return Measurement(workload(name), target, Timing(), outcome, sessions, "boom", emulated=emulated)


def candidates(*pairs: tuple[float, float]) -> list[Candidate]:
    return [Candidate(str(i), score, seconds) for i, (score, seconds) in enumerate(pairs)]


@pytest.fixture
def confirm():
    rounds: list[list[str]] = []

    def make(truth: dict[str, float | None], budget=1.0, spread=1.05, count=2, emulated=False) -> Confirmation:
        names = {workload(n): n for n in truth}

        def measure(workloads):
            rounds.append([names[w] for w in workloads])
            return [measurement(names[w], truth[names[w]], emulated) for w in workloads]

        return Confirmation(measure, workload, budget, spread, count)

    make.rounds = rounds
    return make


def test_the_front_keeps_what_nothing_beats():
    found = candidates((1, 1.0), (2, 2.0), (2, 1.5), (0.5, 1.2), (3, 3.0), (3, 2.9))
    assert [c.architecture for c in pareto(found)] == ["0", "2", "5"]
    assert pareto([]) == []


def test_the_best_by_score_is_taken_when_it_is_within_the_budget(confirm):
    found = candidates((3, 0.99), (2, 0.9), (1, 0.5))
    best = confirm({"0": 0.995, "1": 0.9, "2": 0.5}).run(found)
    assert best == replace(found[0], measured_s=pytest.approx(0.995))
    # one by score alone, one whose whole interval is within the budget
    assert confirm.rounds == [["0", "1"]]


def test_one_over_the_budget_gives_way_to_the_next(confirm):
    found = candidates((3, 0.99), (2, 0.9), (1, 0.5))
    best = confirm({"0": 1.01, "1": 0.95, "2": 0.5}).run(found)
    assert best.architecture == "1"
    assert best.measured_s == pytest.approx(0.95)


def test_what_was_learned_about_the_ratio_chooses_the_next_round(confirm):
    found = candidates((5, 0.99), (4, 0.94), (3, 0.93), (2, 0.92), (1, 0.7))
    # everything takes 1.3 times what was predicted: only the last one can fit, and the others are not tried
    truth = {str(i): 1.3 * c.predicted_s for i, c in enumerate(found)}
    confirmation = confirm(truth)
    assert confirmation.run(found).architecture == "4"
    assert confirm.rounds == [["0", "1"], ["4"]]
    assert set(confirmation.measured) == {"0", "1", "4"}


def test_a_hit_does_not_end_it_while_better_ones_may_fit(confirm):
    found = candidates((6, 0.99), (5, 0.985), (4, 0.97), (3, 0.8), (2, 0.7))
    confirmation = confirm({"0": 1.02, "1": 1.01, "2": 0.99, "3": 0.81})
    assert confirmation.run(found).architecture == "2"
    assert confirm.rounds == [["0", "3"], ["1", "2"]]  # the last one has a lower score and is never asked


def test_one_that_is_predicted_just_beyond_the_budget_is_measured_where_it_may_fit(confirm):
    found = candidates((3, 0.97), (2, 0.8), (6, 1.2), (5, 1.005), (4, 1.01))
    confirmation = confirm({"0": 0.97, "1": 0.8, "3": 0.995, "4": 1.01}, spread=1.02)
    confirmation.beyond = found[2:]
    assert confirmation.run(found[:2]).architecture == "3"
    # the slowest has the highest score, and no chance; after the next one only what has a higher score is asked for
    assert confirm.rounds == [["0", "1"], ["3", "4"]]
    assert [c.architecture for c in confirmation.within()] == ["3", "0", "1"]


def test_where_none_is_predicted_within_the_budget_those_that_may_fit_are_measured(confirm):
    beyond = candidates((3, 1.2), (2, 1.01), (1, 1.005))
    confirmation = confirm({"1": 1.02, "2": 0.99})
    confirmation.beyond = beyond
    assert [c.architecture for c in confirmation.first([])] == ["1", "2"]
    assert confirmation.run([]).architecture == "2"
    assert confirm.rounds == [["1", "2"]]  # the best by score has no chance


def test_what_is_hopeless_by_now_is_not_measured(confirm):
    """All are a twentieth slower than predicted: what was predicted to just fit does not."""
    found = candidates((6, 0.999), (5, 0.998), (4, 0.997), (3, 0.8))
    confirmation = confirm({str(i): 1.05 * c.predicted_s for i, c in enumerate(found)}, spread=1.01)
    assert confirmation.run(found).architecture == "3"
    assert confirm.rounds == [["0", "3"]]


@pytest.mark.parametrize("measured", [1, 2, 3])
def test_the_chance_to_fit_is_how_often_networks_do(measured):
    """Of networks that are told nine in ten, or one in ten, as many fit; what is left is the tail of Student's t."""
    rng, count, single, shared = np.random.default_rng(0), 4000, 0.01, 0.03
    spread = math.exp(1.645 * math.hypot(single, shared))
    shift = rng.normal(0, shared, size=(count, 1))
    logs = (shift + rng.normal(0, single, size=(count, measured))).tolist()
    room = np.exp(shift[:, 0] + rng.normal(0, single, size=count)).tolist()
    chances = [PredictionError.of(known, spread, shared).chance(one) for known, one in zip(logs, room, strict=True)]
    assert np.mean([one < 0.9 for one in chances]) == pytest.approx(0.9, abs=0.035)
    assert np.mean([one < 0.1 for one in chances]) == pytest.approx(0.1, abs=0.035)


def test_the_chance_to_fit_is_that_of_a_normal_error():
    promised = PredictionError.of([], spread=1.1)
    assert promised.chance(1.0) == pytest.approx(0.5)
    assert 0.5 < promised.chance(1.05) < 0.9 < promised.chance(1.4)
    slower = PredictionError.of([math.log(1.06)] * 8, spread=1.02)
    assert slower.mean == pytest.approx(math.log(1.06), rel=0.05)
    assert slower.chance(1.0) < 0.01 < 0.99 < slower.chance(1.12)


def test_nothing_within_the_budget_is_none(confirm):
    found = candidates((2, 0.9), (1, 0.8))
    confirmation = confirm({"0": 2.0, "1": 1.9})
    assert confirmation.run(found) is None
    assert [c.measured_s for c in confirmation.measured.values()] == pytest.approx([2.0, 1.9])
    assert confirm({}).run([]) is None


def test_a_failure_is_no_latency(confirm):
    found = candidates((2, 0.9), (1, 0.8))
    confirmation = confirm({"0": None, "1": 0.8})
    assert confirmation.run(found).architecture == "1"
    assert confirmation.measured["0"].measured_s is None
    assert "boom" in confirmation.measured["0"].failure


def test_an_emulated_latency_confirms_nothing(confirm):
    confirmation = confirm({"0": 0.5}, emulated=True)
    assert confirmation.run(candidates((2, 0.9))) is None
    assert "emulation" in confirmation.measured["0"].failure


def test_an_emulated_latency_confirms_where_it_is_allowed(confirm):
    confirmation = confirm({"0": 0.5}, emulated=True)
    confirmation.emulated = True
    found = confirmation.run(candidates((2, 0.9)))
    assert found is not None
    assert found.measured_s == 0.5
