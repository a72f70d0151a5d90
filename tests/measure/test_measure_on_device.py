"""The whole way on this machine: build with the real engine, time with the real runner."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from real_rows import latencies

import hwbench
from hwbench.devices import CommandResult, Conditions, Device, knobs, load_device
from hwbench.errors import CheckFailed, InvalidValue
from hwbench.measure.bench import Bench, open_bench
from hwbench.measure.builder import Builder
from hwbench.measure.on_device import campaign_on, measure_artifact
from hwbench.measure.repeatability import check_repeatability, compare_with_itself
from hwbench.measure.sentinel import SENTINEL
from hwbench.measure.store import MeasurementStore
from hwbench.runtimes.runners import choose_runner
from hwbench.specs import Artifact, DelegationReport, Outcome, Timing, Workload
from hwbench.workspace import Workspace

# However busy the machine that runs the tests is, no row is noisy.
QUICK = Timing(warmup_s=0.005, min_samples=5, min_session_s=0.01, min_rounds=3, max_rounds=3, ci_ratio=100)
SMALL = Workload.parse("x3d_i8_m16_o8_k1x3x3_relu@1x8x4x16x16/fp32/auto")
LARGE = Workload.parse("x3d_i8_m16_o8_k1x3x3_relu@1x8x4x64x64/fp32/auto")
INT8 = Workload.parse("x3d_i8_m16_o8_k1x3x3_relu@1x8x4x16x16/int8/auto")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, runner_cache):
    made = Workspace.create(tmp_path_factory.mktemp("bench"))
    made.cache.symlink_to(runner_cache)
    return made


@pytest.fixture(scope="module")
def local(workspace):
    return load_device(workspace, "local")


@pytest.fixture(scope="module")
def result(workspace, local):
    with (
        MeasurementStore(workspace.store) as store,
        campaign_on(local, store=store, cache_dir=workspace.cache, timing=QUICK) as campaign,
    ):
        return campaign.run([SMALL, LARGE, INT8])


def test_blocks_are_built_and_measured(result):
    assert [(row.outcome, row.reason) for row in result.measurements] == [(Outcome.OK, "")] * 3
    small, large, _ = (row.stats.median_s for row in result.measurements)
    assert 0 < small < large


def test_rows_say_where_and_how_they_were_taken(result):
    for row in result.measurements:
        assert (row.target.device, row.target.runtime, row.target.threads) == ("local", "executorch", 1)
        assert row.conditions["cpus"].isdecimal()
        assert {"device", "governor", "runner", "virtualised"} <= set(row.conditions)
        assert row.artifact_sha256
        assert not row.emulated
        assert len(row.sessions) >= QUICK.min_rounds


def test_runs_say_how_the_device_was_before_and_after(workspace, local, result):
    with MeasurementStore(workspace.store) as store:
        runs = store.runs(result.target)
    # Sessions that were doubted are taken again and counted here alone.
    assert sum(run.sessions for run in runs) >= sum(len(row.sessions) for row in result.measurements)
    for run in runs:
        assert run.before["conditions"] == "stock"
        assert run.before["held"] == {}
        assert run.before["boot"] == run.after["boot"]
        assert run.before["free_bytes"] > 0


def test_the_same_file_twice(workspace, local, result):
    found = check_repeatability(local, cache_dir=workspace.cache, pairs=3, timing=QUICK)
    assert found.pairs == 3
    assert found.low <= found.difference <= found.high
    missing = Artifact(workspace.root / "none.pte", "0" * 64, SMALL, "executorch", "1.5.1", DelegationReport(1))
    with (
        open_bench(local, "executorch", cache_dir=workspace.cache) as bench,
        pytest.raises(CheckFailed, match="A/A test: push"),
    ):
        compare_with_itself(missing, bench=bench, timing=QUICK)


def test_a_device_under_control_has_rows_of_its_own(workspace, local, result, monkeypatch):
    # Nothing of the machine that runs the tests is turned.
    monkeypatch.setattr(knobs, "as_root", lambda transport, *argv: CommandResult(126, "", "needs root"))
    said = []
    with (
        MeasurementStore(workspace.store) as store,
        campaign_on(
            local,
            store=store,
            cache_dir=workspace.cache,
            timing=QUICK,
            conditions=Conditions.CONTROLLED,
            report=said.append,
        ) as campaign,
    ):
        controlled = campaign.run([SMALL])
        last = store.runs(result.target)[-1]
    (row,) = controlled.ok
    assert row.conditions["conditions"] == "controlled"
    assert row.conditions["free"] or row.conditions["held"]
    assert set(row.conditions) == {*result.measurements[0].conditions, "conditions", "held", "free"}
    assert last.before["conditions"] == "controlled"
    assert last.before["held"]["cores"]
    assert any(text.startswith("held: ") for text in said)


def test_what_is_measured_needs_neither_sentinel_nor_build(workspace, local, result, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", guarded(subprocess.Popen))
    with (
        MeasurementStore(workspace.store) as store,
        campaign_on(local, store=store, cache_dir=workspace.cache, timing=QUICK) as campaign,
    ):
        again = campaign.run([SMALL, LARGE, INT8])
    assert again.measurements == result.measurements
    assert len(again.skipped) == 3


def guarded(start):
    def popen(argv, *rest, **options):
        assert "hwbench.measure.build_worker" not in argv
        return start(argv, *rest, **options)

    return popen


def test_rows_of_an_emulated_device_are_stamped(workspace, local, result):
    emulated = Device("pretend", "local", emulated=True)
    with (
        MeasurementStore(workspace.store) as store,
        campaign_on(emulated, store=store, cache_dir=workspace.cache, timing=QUICK) as campaign,
    ):
        (row,) = campaign.run([SMALL]).measurements
        assert row.emulated
        assert latencies(store, campaign.target, campaign.conditions) == []


def test_one_file_is_measured_by_itself(workspace, local, result):
    with Builder("executorch", workspace.cache) as builder:
        artifact = builder.cache.load(SMALL)
    before = MeasurementStore(workspace.store)
    rows = before.counts()
    measured = measure_artifact(artifact, local, cache_dir=workspace.cache, timing=QUICK)
    assert (measured.outcome, measured.workload) == (Outcome.OK, SMALL)
    assert len(measured.sessions) == 3
    assert before.counts() == rows
    before.close()


@pytest.fixture
def told_quiet(monkeypatch):
    """What each runner that is started here is told of a core that nothing else uses."""
    told, spawn = [], Bench.spawn
    monkeypatch.setattr(Bench, "spawn", lambda bench, options: told.append(options.quiet_ppm) or spawn(bench, options))
    return told


def test_one_file_waits_for_the_core_that_profiles_know(workspace, local, result, told_quiet):
    with Builder("executorch", workspace.cache) as builder:
        artifact = builder.cache.load(SMALL)
    build = choose_runner("executorch", workspace.cache).build
    with MeasurementStore(workspace.store) as store:
        known = store.undisturbed(result.measurements[0].conditions, build).crowding.known
        measure_artifact(artifact, local, cache_dir=workspace.cache, timing=QUICK, undisturbed=store.undisturbed)
    assert known > 0
    assert told_quiet[0] == round(1e6 * known)


def test_the_aa_test_of_tables_waits_for_the_core_as_their_rows_do(workspace, local, result, told_quiet):
    with (
        MeasurementStore(workspace.store) as store,
        campaign_on(local, store=store, cache_dir=workspace.cache, timing=QUICK) as campaign,
    ):
        known = store.undisturbed(campaign.conditions, campaign.runner_build).crowding.known
        campaign.repeat()
    assert known > 0
    assert told_quiet[0] == round(1e6 * known)


def test_build_workers_serve_one_campaign_after_the_other(workspace, local):
    def workers():
        return [worker._process.pid for worker in builder._workers]

    with (
        Builder("executorch", workspace.cache, processes=1) as builder,
        MeasurementStore(workspace.store) as store,
    ):
        seen = []
        for side in (20, 24):
            workload = Workload.parse(f"x3d_i8_m16_o8_k1x3x3_relu@1x8x4x{side}x{side}/fp32/auto")
            with campaign_on(local, store=store, cache_dir=workspace.cache, timing=QUICK, builder=builder) as campaign:
                assert [row.outcome for row in campaign.run([workload]).measurements] == [Outcome.OK]
            seen.append(workers())
    assert len(seen[0]) == 1
    assert seen[0] == seen[1]
    assert workers() == []


def test_a_file_that_does_not_load_is_a_measurement_with_a_reason(workspace, local, result, tmp_path):
    with Builder("executorch", workspace.cache) as builder:
        artifact = builder.cache.load(SMALL)
    path = tmp_path / "cut.pte"
    path.write_bytes(artifact.path.read_bytes()[:1000])
    broken = type(artifact)(path, "0", SMALL, "executorch", artifact.version, artifact.delegation)
    measured = measure_artifact(broken, local, cache_dir=workspace.cache, timing=QUICK)
    assert measured.outcome is Outcome.LOAD
    assert measured.reason


def test_more_threads_than_cores(workspace, local):
    with (
        MeasurementStore(workspace.store) as store,
        pytest.raises(InvalidValue, match="4096 threads"),
        campaign_on(local, store=store, cache_dir=workspace.cache, threads=4096),
    ):
        pass


def test_the_sentinel_is_a_few_milliseconds(workspace, local, result):
    """Long against the clock, short against a round; the bounds are wide, because machines differ."""
    with Builder("executorch", workspace.cache) as builder:
        artifact = builder.cache.load(SENTINEL)
    measured = measure_artifact(artifact, local, cache_dir=workspace.cache, timing=QUICK)
    assert 1e-4 < measured.stats.median_s < 0.1


@pytest.mark.long
def test_profile_killed_in_the_middle_takes_only_the_session_under_way_again(workspace, result, tmp_path):
    """The real command, killed with SIGKILL once sessions come in, then run again to its end."""
    code = "from hwbench.cli.main import main; main()"
    arguments = ("profile", "--precision", "fp32", "--calibrate", "0", "--no-aa", "--limit", "2", "--json")
    command = [sys.executable, "-c", code, *arguments]
    store = workspace.store
    before = sessions(store)
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen(command, cwd=workspace.root, env=env, **silent)
    try:
        deadline = time.monotonic() + 240
        while sum(sessions(store).values()) < sum(before.values()) + 3:
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    killed = sessions(store)
    again = subprocess.run(command, cwd=workspace.root, capture_output=True, text=True, timeout=300, env=env)
    assert again.returncode == 0, again.stderr
    after = sessions(store)
    limit = Timing().max_rounds + 4
    for row, count in killed.items():
        assert count <= after[row] <= max(limit, count)
    with MeasurementStore(store) as opened:
        # A busy machine may make a row noisy; none is open or lost.
        assert set(opened.counts()) <= {"ok", "noisy"}


def sessions(store):
    """Number of sessions by row, read as a bystander."""
    connection = sqlite3.connect(store, timeout=30)
    rows = Counter(dict(connection.execute("SELECT measurement, count(*) FROM sessions GROUP BY 1")))
    connection.close()
    return rows
