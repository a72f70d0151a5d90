import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import replace

import pytest
from real_rows import latencies

from hwbench.measure.campaign import Campaign, CampaignWatch
from hwbench.measure.quality import REPEATS
from hwbench.measure.store import MeasurementStore
from hwbench.specs import LatencyStats, Outcome, Target, Timing, Workload
from hwbench.testing.fakes import PROBE_S, FakeDevice, proportional

TARGET = Target("fake", "fake", "1", 1)
CONDITIONS = {"device": "fake"}
TIMING = Timing(min_rounds=3, max_rounds=8, ci_ratio=0.01)
WORKLOADS = [
    Workload.parse(f"x3d_i24_m{48 + 8 * index}_o24_k3x3x3_swish@1x24x4x{14 + index}x14/fp32/auto") for index in range(7)
]
FIRST, SECOND, THIRD, *REST = WORKLOADS


def slow(workload):
    """A law of milliseconds: the stop rule does not care about less than three microseconds."""
    return 100 * proportional(workload)


@pytest.fixture
def store(tmp_path):
    with MeasurementStore(tmp_path / "measurements.sqlite") as opened:
        yield opened


def campaign(store, device, **values):
    values = {"timing": TIMING, "batch": 4, "build_key": lambda w: f"build of {w.sha256}", **values}
    return Campaign(store, TARGET, CONDITIONS, device.build, device.measure, **values)


class Recorder(CampaignWatch):
    def __init__(self):
        self.events = Counter()
        self.plan = None
        self.order = []

    def planned(self, missing, stored):
        self.plan = (missing, stored)

    def built(self, result):
        self.events["built"] += 1
        self.order.append("build")

    def turn(self, sessions):
        self.events["announced"] += sessions

    def visited(self, workload):
        self.events["visited"] += 1
        self.order.append("visit")

    def measured(self, measurement):
        self.events[str(measurement.outcome)] += 1


def test_rows_tell_the_true_latency_in_the_order_asked(store, tmp_path):
    device = FakeDevice(tmp_path / "files")
    result = campaign(store, device).run(WORKLOADS)
    assert [row.workload for row in result.measurements] == WORKLOADS
    assert (len(result.ok), len(result.failed), len(result.skipped)) == (7, 0, 0)
    for row in result.measurements:
        assert row.stats.median_s == pytest.approx(proportional(row.workload), rel=0.01)
        assert row.target == TARGET
        assert row.conditions == CONDITIONS


def test_nothing_is_built_or_measured_twice(store, tmp_path):
    device = FakeDevice(tmp_path / "files")
    campaign(store, device).run([*WORKLOADS, FIRST])
    assert set(device.builds.values()) == {1}
    visits = len(device.visits)
    again = campaign(store, device).run(WORKLOADS)
    assert (len(again.ok), len(again.skipped)) == (0, 7)
    assert (len(device.visits), sum(device.builds.values())) == (visits, 7)


@pytest.mark.parametrize("after", [0, 1, 5, 11, 12, 13, 20])
def test_an_interrupted_campaign_takes_no_session_twice(store, tmp_path, after):
    device = FakeDevice(tmp_path / "files", noise=1e-6)
    first = campaign(store, device)
    device.interrupt_after = after
    with pytest.raises(KeyboardInterrupt):
        first.run(WORKLOADS)
    assert len(device.visits) == after
    result = campaign(store, device).run(WORKLOADS)
    assert Counter(device.visits) == dict.fromkeys(WORKLOADS, TIMING.min_rounds)
    assert len(result.measurements) == 7
    assert all(row.outcome is Outcome.OK for row in result.measurements)


def test_a_campaign_killed_in_the_middle_goes_on_where_it_stopped(tmp_path):
    code = """
    import os, signal, sys
    from pathlib import Path
    from hwbench.measure.campaign import Campaign, CampaignWatch
    from hwbench.measure.store import MeasurementStore
    from hwbench.specs import Target, Timing, Workload
    from hwbench.testing.fakes import FakeDevice

    class Kill(CampaignWatch):
        left = int(sys.argv[2])
        def visited(self, workload):
            print(workload.key, flush=True)
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    device = FakeDevice(Path(sys.argv[1], "files"), noise=1e-6)
    with MeasurementStore(Path(sys.argv[1], "measurements.sqlite")) as store:
        campaign = Campaign(store, Target("fake", "fake", "1"), {"device": "fake"}, device.build, device.measure,
                            timing=Timing(min_rounds=3, max_rounds=8), batch=4)
        print(len(campaign.run([Workload.parse(key) for key in sys.argv[3:]], Kill()).ok))
    """

    def run(visits):
        keys = [workload.key for workload in WORKLOADS]
        command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), str(visits), *keys]
        return subprocess.run(command, capture_output=True, text=True, cwd=os.getcwd(), timeout=60)

    killed = run(14)
    assert killed.returncode == -signal.SIGKILL
    resumed = run(10_000)
    assert resumed.returncode == 0, resumed.stderr
    *visits, measured = resumed.stdout.split()
    assert Counter(killed.stdout.split() + visits) == {workload.key: 3 for workload in WORKLOADS}
    assert int(measured) == 7 - 4


def test_rows_stop_when_their_interval_is_narrow_and_at_the_cap_otherwise(store, tmp_path):
    quiet = FakeDevice(tmp_path / "files", noise=1e-6)
    campaign(store, quiet).run(WORKLOADS[:4])
    assert set(Counter(quiet.visits).values()) == {TIMING.min_rounds}
    loud = FakeDevice(tmp_path / "files", law=slow, noise=0.02)
    rows = campaign(store, loud, timing=replace(TIMING, ci_ratio=0.0001)).run(WORKLOADS[:4]).ok
    assert set(Counter(loud.visits).values()) == {TIMING.max_rounds}
    assert {row.stats.num_sessions for row in rows} == {TIMING.max_rounds}


def test_every_turn_has_an_order_of_its_own(store, tmp_path):
    device = FakeDevice(tmp_path / "files", law=slow, noise=0.02)
    campaign(store, device, batch=7).run(WORKLOADS)
    assert len(set(device.seeds)) == len(device.seeds) > 1
    assert device.visits[:7] != device.visits[7:14]


def test_a_batch_is_built_before_it_is_measured(store, tmp_path):
    watch = Recorder()
    campaign(store, FakeDevice(tmp_path / "files", noise=1e-6)).run(WORKLOADS, watch)
    assert watch.plan == (7, 0)
    assert watch.order == ["build"] * 4 + ["visit"] * 12 + ["build"] * 3 + ["visit"] * 9
    assert watch.events == {"built": 7, "announced": 21, "visited": 21, "ok": 7}


def test_failures_are_kept_and_cost_one_row_each(store, tmp_path):
    device = FakeDevice(
        tmp_path / "files",
        build_failures={FIRST: "DelegationFailed: 3 aten.mean outside"},
        failures={SECOND: (Outcome.CRASH, "killed by SIGABRT"), THIRD: (Outcome.LOAD, "invalid program")},
    )
    watch = Recorder()
    result = campaign(store, device).run(WORKLOADS, watch)
    assert {row.workload: (row.outcome, row.reason) for row in result.failed} == {
        FIRST: (Outcome.BUILD, "DelegationFailed: 3 aten.mean outside"),
        SECOND: (Outcome.CRASH, "killed by SIGABRT"),
        THIRD: (Outcome.LOAD, "invalid program"),
    }
    assert [row.workload for row in result.ok] == REST
    assert watch.events["build"] == watch.events["crash"] == watch.events["load"] == 1
    again = campaign(store, device).run(WORKLOADS)
    assert (len(again.ok), len(again.failed), len(again.skipped)) == (0, 3, 4)
    assert device.builds[FIRST] == 1
    mended = FakeDevice(tmp_path / "files")
    retried = campaign(store, mended, retry=(Outcome.BUILD, Outcome.CRASH)).run(WORKLOADS)
    assert [row.workload for row in retried.ok] == [FIRST, SECOND]
    assert [row.workload for row in retried.failed] == [THIRD]


def test_a_runner_that_says_nothing_about_a_file_is_not_asked_for_ever(store, tmp_path):
    device = FakeDevice(tmp_path / "files", noise=1e-6)

    def measure(artifacts, **options):
        return device.measure([a for a in artifacts if a.workload != FIRST], **options)

    result = Campaign(store, TARGET, CONDITIONS, device.build, measure, timing=TIMING).run(WORKLOADS)
    assert [(row.workload, row.outcome) for row in result.failed] == [(FIRST, Outcome.PARSE)]
    assert len(result.ok) == 6


def test_doubted_sessions_are_taken_again_a_few_times_and_then_judged_by_the_interval(store, tmp_path):
    device = FakeDevice(tmp_path / "files", law=slow, noise=0.02, preempted=frozenset({FIRST}))
    timing = replace(TIMING, ci_ratio=0.001)
    result = campaign(store, device, timing=timing).run([FIRST, SECOND])
    assert Counter(device.visits) == {FIRST: timing.max_rounds + REPEATS, SECOND: timing.max_rounds}
    assert len(result.ok) == 2


def test_a_row_that_is_too_noisy_is_no_latency_until_it_is_tried_anew(store, tmp_path):
    loud = FakeDevice(tmp_path / "files", law=slow, noise=0.6)
    noisy = campaign(store, loud).run([FIRST]).failed
    assert [row.outcome for row in noisy] == [Outcome.NOISY]
    assert "interval" in noisy[0].reason
    assert len(noisy[0].sessions) >= TIMING.min_rounds
    quiet = FakeDevice(tmp_path / "files", noise=1e-6)
    row = campaign(store, quiet, retry=(Outcome.NOISY,)).run([FIRST]).ok[0]
    assert row.stats == LatencyStats.of(row.sessions)
    assert len(row.sessions) == TIMING.min_rounds
    assert row.stats.median_s == pytest.approx(proportional(FIRST), rel=0.001)


def test_a_drift_that_is_known_later_is_noted_and_doubted(store, tmp_path):
    device = FakeDevice(tmp_path / "files", noise=1e-6, drifts={FIRST: [1.02, 1.0, 1.5, 1.0]})
    rows = campaign(store, device).run([FIRST, SECOND]).ok
    assert [s.drift for s in rows[0].sessions] == [1.02, 1.0, 1.0]  # the one at 1.5 is doubted, and another was taken
    assert [s.drift for s in rows[1].sessions] == [1.0, 1.0, 1.0]
    everything = store.sessions(FIRST, TARGET, TIMING, CONDITIONS, build=f"build of {FIRST.sha256}")
    assert [s.drift for s in everything] == [1.02, 1.0, 1.5, 1.0]
    assert rows[0].sessions[0].median_s == pytest.approx(proportional(FIRST) / 1.02, rel=1e-4)


def test_sessions_that_are_equal_are_told_apart_when_their_drift_becomes_known(store, tmp_path):
    device = FakeDevice(tmp_path / "files", noise=0.0, drifts={FIRST: [1.01, 1.02, 1.0]})
    (row,) = campaign(store, device).run([FIRST]).ok
    assert len({s.samples_s for s in row.sessions}) == 1
    assert [s.drift for s in row.sessions] == [1.01, 1.02, 1.0]


def test_a_session_at_another_clock_is_taken_again(store, tmp_path):
    device = FakeDevice(tmp_path / "files", noise=1e-6, clocks={FIRST: [2.4e9, 1.8e9]})
    (row,) = campaign(store, device).run([SECOND, FIRST, THIRD]).ok[1:2]
    assert [s.clock_hz for s in row.sessions] == [2.4e9] * 3
    assert Counter(device.visits) == {FIRST: 4, SECOND: 3, THIRD: 3}


def test_a_new_build_with_the_same_bytes_is_not_measured_again(store, tmp_path):
    device = FakeDevice(tmp_path / "files")
    campaign(store, device).run(WORKLOADS)
    visits = len(device.visits)
    result = campaign(store, device, build_key=lambda w: f"newer build of {w.sha256}").run(WORKLOADS)
    assert len(device.visits) == visits
    assert len(result.measurements) == 7


def steps_of_taking_over(path, rows):
    """Steps of SQLite's virtual machine, in tens, for one workload of a store with so many rows."""
    workloads = [
        Workload.parse(f"x3d_i24_m{8 * index}_o24_k3x3x3_swish@1x24x4x14x14/fp32/auto") for index in range(1, 1 + rows)
    ]
    device = FakeDevice(path / "files", noise=1e-6)
    with MeasurementStore(path / "measurements.sqlite") as store:
        campaign(store, device).run(workloads)
        newer, steps = campaign(store, device, build_key=lambda w: f"newer build of {w.sha256}"), []
        (artifact,) = device.build(workloads[:1])
        store.database.connection.set_progress_handler(lambda: steps.append(1), 10)
        assert newer._adopted(artifact)
        store.database.connection.set_progress_handler(None, 0)
        assert newer.missing(workloads) == workloads[1:]
    return len(steps)


def test_the_work_of_taking_over_a_row_does_not_grow_with_the_table(tmp_path):
    assert steps_of_taking_over(tmp_path / "many", 60) <= steps_of_taking_over(tmp_path / "few", 5) + 3


def test_a_lost_row_of_another_build_goes_on_and_a_failed_one_stands(store, tmp_path):
    failures = {FIRST: (Outcome.LOST, "the phone went away"), SECOND: (Outcome.CRASH, "killed by SIGABRT")}
    campaign(store, FakeDevice(tmp_path / "files", failures=failures)).run([FIRST, SECOND])
    newer = campaign(store, FakeDevice(tmp_path / "files"), build_key=lambda w: f"newer build of {w.sha256}")
    result = newer.run([FIRST, SECOND])
    assert [row.workload for row in result.ok] == [FIRST]
    assert [(row.workload, row.outcome) for row in result.failed] == [(SECOND, Outcome.CRASH)]


def test_a_new_build_with_other_bytes_is_measured(store, tmp_path):
    device = FakeDevice(tmp_path / "files")
    campaign(store, device).run([FIRST])

    def build(workloads):
        for artifact in device.build(workloads):
            yield replace(artifact, sha256="0" * 64)

    newer = Campaign(store, TARGET, CONDITIONS, build, device.measure, timing=TIMING, build_key=lambda w: "newer")
    assert len(newer.run([FIRST]).ok) == 1


def test_rows_under_emulation_are_stamped(store, tmp_path):
    result = campaign(store, FakeDevice(tmp_path / "files"), emulated=True).run([FIRST])
    assert result.ok[0].emulated
    assert latencies(store, TARGET, CONDITIONS) == []


def test_a_crowded_core_is_noticed_once_a_quiet_one_was_seen(store, tmp_path):
    crowdings = {FIRST: (2.0, 2.0, 1.31, 1.3, 1.3), SECOND: (2.0, 1.3, 1.32)}
    device = FakeDevice(tmp_path / "files", crowdings=crowdings)
    campaign(store, device).run([FIRST, SECOND])
    suspects = {workload: [] for workload in crowdings}
    for taken in store.taken(TARGET):
        suspects[taken.workload].append("another program shared the core" in taken.suspect)
    assert suspects[FIRST][:5] == [True, True, False, False, False]
    assert suspects[SECOND][:3] == [True, False, False]
    assert store.undisturbed(CONDITIONS).crowding.known == 1.3


def test_a_core_is_no_more_crowded_because_another_build_of_the_runner_says_less(store, tmp_path):
    # On the same quiet core, the loops of one build take a third longer than those of the other (experiment 013).
    first = FakeDevice(tmp_path / "first", crowdings={FIRST: 9 * (1.0,)})
    campaign(store, first, runner_build="runner-a").run([FIRST])
    second = FakeDevice(tmp_path / "second", crowdings={SECOND: 9 * (1.33,), FIRST: 9 * (1.33,)})
    campaign(store, second, runner_build="runner-b").run([SECOND])
    assert {taken.suspect for taken in store.taken(TARGET)} == {""}
    assert store.undisturbed(CONDITIONS, "runner-a").crowding.known == 1.0
    assert store.undisturbed(CONDITIONS, "runner-b").crowding.known == 1.33
    assert store.undisturbed(CONDITIONS).crowding.known == 0.0
    # With the first build again, what took a third longer is crowded.
    store.reopen([FIRST], TARGET, TIMING, CONDITIONS)
    campaign(store, second, runner_build="runner-a").run([FIRST])
    assert any("another program shared the core" in taken.suspect for taken in store.taken(TARGET))


def test_reopened_rows_are_measured_anew(store, tmp_path):
    device = FakeDevice(tmp_path / "files")
    campaign(store, device).run(WORKLOADS)
    device.law = lambda workload: 2 * proportional(workload)
    anew = campaign(store, device)
    assert anew.reopen([FIRST, SECOND]) == 2
    result = anew.run(WORKLOADS)
    assert {row.workload for row in result.ok} == {FIRST, SECOND}
    assert len(result.skipped) == len(WORKLOADS) - 2
    for row in result.ok:
        assert row.stats.median_s == pytest.approx(2 * proportional(row.workload), rel=0.01)


def test_reopened_rows_of_another_version_are_measured_anew_and_not_adopted(store, tmp_path):
    device = FakeDevice(tmp_path / "files")
    campaign(store, device, build_key=lambda workload: "before").run(WORKLOADS)
    updated = campaign(store, device, build_key=lambda workload: "updated")
    assert updated.reopen([FIRST, SECOND]) == 2
    updated.run(WORKLOADS)
    visits = Counter(device.visits)
    assert visits[FIRST] == visits[SECOND] == 2 * visits[THIRD]


@pytest.mark.parametrize("followed", [0.0, 0.5, 1.0])
def test_sessions_are_corrected_by_their_clock_as_far_as_latencies_follow_it(store, tmp_path, followed):
    device = FakeDevice(tmp_path, wander=0.04, clock_sensitivity=followed)
    store.clock(CONDITIONS, PROBE_S)
    result = campaign(store, device).run(WORKLOADS)
    assert [row.stats.median_s for row in result.ok] == pytest.approx([proportional(w) for w in WORKLOADS], rel=0.01)
    assert store.clock_sensitivity(CONDITIONS) == pytest.approx(followed, abs=0.1)
    told = [session for row in result.ok for session in row.sessions]
    assert [s.drift for s in told] == pytest.approx([(s.probe_s / PROBE_S) ** followed for s in told], rel=0.01)


def test_without_sessions_latencies_follow_the_clock_and_few_that_differ_are_believed(store, tmp_path):
    assert store.clock_sensitivity(CONDITIONS) == 1.0
    store.clock(CONDITIONS, PROBE_S)
    campaign(store, FakeDevice(tmp_path, law=slow, wander=0.04, clock_sensitivity=0.0)).run(WORKLOADS[:1])
    assert store.clock_sensitivity(CONDITIONS) < 0.3
    assert store.clock_sensitivity({"device": "another"}) == 1.0
