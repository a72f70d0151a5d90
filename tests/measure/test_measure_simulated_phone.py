"""The measuring protocol against the truth, on a simulated phone in virtual time."""

import statistics
from dataclasses import replace
from functools import partial

import pytest

from hwbench.measure.bench import Bench
from hwbench.measure.campaign import Campaign
from hwbench.measure.drift import Drift, Pauses
from hwbench.measure.repeatability import compare_with_itself
from hwbench.measure.runner import measure_sessions
from hwbench.measure.store import MeasurementStore
from hwbench.runtimes.runners import Runner
from hwbench.specs import Outcome, Target, Timing, Workload
from hwbench.testing.simulated_phone import (
    BIG,
    LITTLE,
    QUIET,
    Cost,
    Phone,
    PhoneBuilder,
    PhoneMachine,
    PhoneTransport,
    work_cost,
    write_simulated,
)

WORKLOADS = tuple(
    Workload.parse(f"x3d_i{c}_m{2 * c + 6}_o{c}_k3x3x3_swish@1x{c}x8x{size}x{size}/fp32/auto")
    for c in (24, 48, 96)
    for size in (7, 10, 14, 20, 28, 34, 40, 46)
)
COST = Cost(0.9e-3, 0.1e-3)
RUNNER = Runner("simulated", ("runner",))


def bench(machine, cpus=BIG[-1:]):
    return Bench(PhoneTransport(machine), RUNNER, 1, cpus)


def sessions(machine, folder, *, cpus=BIG[-1:], cost=COST, **timing):
    """One visit each to ten files of the same cost."""
    found = []
    for workload in WORKLOADS[:10]:
        (artifact,) = PhoneBuilder(folder, lambda w: cost)([workload])
        measure_sessions(
            [artifact], rounds=1, seed=0, on_session=lambda a, s: found.append(s), bench=bench(machine, cpus),
            timing=Timing(**timing),
        )  # fmt: skip
    return found


def campaign(tmp_path, machine, *, workloads=WORKLOADS, sentinel=True, timing=None, store=None, conditions=None):
    timing = timing or Timing()
    reference = write_simulated(tmp_path / "sentinel.simulated", Cost(1.8e-3, 0.2e-3))
    measure = partial(
        measure_sessions, bench=bench(machine), timing=timing, sentinel=reference if sentinel else None,
        drift=Drift(), pauses=Pauses(), wait=machine.idle,
    )  # fmt: skip
    with MeasurementStore(store or tmp_path / "measurements.sqlite") as opened:
        made = Campaign(
            opened, Target("phone", "simulated", "1"), conditions or {}, PhoneBuilder(tmp_path), measure, timing=timing
        )
        return made.run(workloads)


def errors(result):
    return [row.stats.median_s / work_cost(row.workload).seconds - 1 for row in result.ok]


def test_on_a_quiet_phone_the_protocol_tells_the_truth(tmp_path):
    found = errors(campaign(tmp_path, PhoneMachine(QUIET)))
    assert len(found) == len(WORKLOADS)
    assert max(map(abs, found)) < 1e-5


def test_the_same_seed_is_the_same_phone(tmp_path):
    def medians(seed):
        result = campaign(tmp_path, PhoneMachine(seed=seed), workloads=WORKLOADS[:6], conditions={"n": next(n)})
        return [row.stats.median_s for row in result.ok]

    n = map(str, range(3))
    assert medians(1) == medians(1) != medians(2)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_protocol_is_within_a_percent_where_a_mean_in_fixed_order_is_not(tmp_path, seed):
    machine = PhoneMachine(seed=seed)
    result = campaign(tmp_path, machine)
    assert [row.outcome for row in result.measurements] == [Outcome.OK] * len(WORKLOADS)
    assert statistics.median(map(abs, errors(result))) < 0.01
    naive, machine = [], PhoneMachine(seed=seed)
    timing = Timing(warmup_s=0.0, min_samples=110, min_session_s=0.0, max_session_s=60.0)
    for artifact in PhoneBuilder(tmp_path)(WORKLOADS):
        measure_sessions(
            [artifact], rounds=1, seed=0, on_session=lambda a, s: naive.append(s), bench=bench(machine, ()),
            timing=timing,
        )  # fmt: skip
    truth = [work_cost(workload).seconds for workload in WORKLOADS]
    off = [statistics.fmean(s.samples_s[10:]) / t - 1 for s, t in zip(naive, truth, strict=True)]
    assert statistics.median(map(abs, off)) > 3 * statistics.median(map(abs, errors(result)))


def test_a_hot_phone_is_waited_for(tmp_path):
    hot = Phone(trips=(45.0, 50.0, 55.0), thermal_s=20.0)
    with_pauses, machine = campaign(tmp_path, PhoneMachine(hot)), PhoneMachine(hot)
    blind = campaign(tmp_path, machine, sentinel=False, conditions={"sentinel": "no"})
    assert statistics.median(map(abs, errors(with_pauses))) < 0.02
    assert statistics.median(map(abs, errors(blind))) > 0.05
    assert machine.temperature > 45 - hot.hysteresis


def test_the_governor_needs_time_and_falls_back_when_idle(tmp_path):
    machine = PhoneMachine(QUIET)
    machine.start(BIG[-1:])
    model = machine.load(str(write_simulated(tmp_path / "a", COST)), None)
    first = [model.run() * 1e-9 for _ in range(400)]
    assert first[1] == pytest.approx(COST.compute_s * 2.4 / 0.65 + COST.memory_s, rel=0.01)
    assert first[-1] == pytest.approx(COST.seconds, rel=1e-5)
    machine.idle(0.2)
    assert model.run() * 1e-9 > 2 * COST.seconds


def test_heat_lowers_the_clock_and_idling_restores_it(tmp_path):
    machine = PhoneMachine(replace(QUIET, rise=55.0))
    model = machine.load(str(write_simulated(tmp_path / "a", Cost(0.1, 0.0))), None)
    for _ in range(1500):
        model.run()
    assert machine.temperature > 50
    assert machine.clock_khz() < 2.4e6
    machine.idle(120)
    for _ in range(20):
        model.run()
    assert machine.clock_khz() == 2.4e6
    assert machine.temperature_mc() < 40_000


@pytest.mark.parametrize(
    ("nuisance", "seen"),
    [
        ({"preemptions": 50.0}, lambda s: s.involuntary_switches > 1 and max(s.samples_s) > 1.2 * s.median_s),
        ({"jitter": 0.05}, lambda s: 0.03 < statistics.stdev(s.samples_s) / s.median_s < 0.07),
        ({"drift": 0.1, "drift_s": 5.0}, lambda s: abs(s.median_s / COST.seconds - 1) > 0.01),
        ({"load_spread": 0.1}, lambda s: abs(s.median_s / COST.seconds - 1) > 0.02),
        ({"bursts": 5.0, "burst_memory": 3.0}, lambda s: s.median_s > 1.1 * COST.seconds),
        ({"cold_memory": 30.0}, lambda s: s.samples_s[0] > 2 * s.median_s),
    ],
)
def test_every_disturbance_can_be_seen(tmp_path, nuisance, seen):
    machine = PhoneMachine(replace(QUIET, **nuisance))
    warm = 0.0 if "cold_memory" in nuisance else 0.2
    visits = sessions(machine, tmp_path, warmup_s=warm, min_samples=200)
    quiet = sessions(PhoneMachine(QUIET), tmp_path, warmup_s=0.2, min_samples=200)
    assert sum(map(seen, visits)) >= 3
    assert not any(map(seen, quiet))
    assert all(s.cpu_s <= s.wall_s + 1e-9 for s in visits)


def test_a_process_that_is_not_pinned_starts_on_a_little_core_and_falls_back_to_one(tmp_path):
    moody = replace(QUIET, misplacements=1.0)
    free = sessions(PhoneMachine(moody), tmp_path, cpus=(), warmup_s=0.0, min_session_s=1.0)
    bound = sessions(PhoneMachine(moody), tmp_path, warmup_s=0.2)
    little = sessions(PhoneMachine(moody), tmp_path, cpus=LITTLE[:1], warmup_s=0.2)
    assert any(max(s.samples_s[-200:]) > 2 * COST.seconds for s in free)
    assert all(max(s.samples_s) < 1.01 * COST.seconds for s in bound)
    assert all(min(s.samples_s) > 2 * COST.seconds for s in little)


@pytest.mark.parametrize(("state", "factor"), [("warm", 1.0), ("rotate", 1.2), ("flush", 1.2)])
def test_cold_caches_are_part_of_the_protocol(tmp_path, state, factor):
    machine = PhoneMachine(replace(QUIET, cold_memory=2.0))
    found = sessions(machine, tmp_path, cost=Cost(0.9e-3, 0.1e-3), warmup_s=0.2, cache=state)
    assert statistics.median(s.median_s for s in found) == pytest.approx(factor * 1e-3, rel=0.002)


def test_the_a_a_test_tells_a_quiet_phone_from_a_restless_one(tmp_path):
    (artifact,) = PhoneBuilder(tmp_path, lambda w: COST)(WORKLOADS[:1])
    timing = Timing(warmup_s=0.2)
    quiet = compare_with_itself(artifact, bench=bench(PhoneMachine(QUIET)), timing=timing)
    usual = compare_with_itself(artifact, bench=bench(PhoneMachine(seed=4)), timing=timing)
    restless = Phone(drift=0.3, drift_s=2.0)
    shaken = compare_with_itself(artifact, bench=bench(PhoneMachine(restless, seed=4)), timing=timing)
    assert (quiet.ok, shaken.ok) == (True, False)
    assert abs(quiet.difference) < 1e-4
    assert abs(usual.difference) < 0.02


def test_what_is_no_simulated_file_does_not_load(tmp_path):
    machine = PhoneMachine(QUIET)
    artifacts = list(PhoneBuilder(tmp_path)(WORKLOADS[:2]))
    artifacts[0].path.write_text("[]")
    found = []
    failures = measure_sessions(
        artifacts, rounds=2, seed=0, on_session=lambda a, s: found.append(a), bench=bench(machine), timing=Timing()
    )
    assert [failure.outcome for failure in failures] == [Outcome.LOAD]
    assert found == artifacts[1:] * 2
