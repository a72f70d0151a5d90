import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import hwbench.testing.engines  # noqa: F401  # registers the faulty engine here, as `imports` does in the workers
from hwbench.control_group import ControlGroup
from hwbench.errors import HwbenchError, UnknownName, WorkspaceError
from hwbench.measure.builder import Builder, BuildFailure, build_all, default_processes
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.runtimes.pte_model import pte_layout
from hwbench.specs import Artifact, Outcome, Target, Workload
from hwbench.testing.fakes import FakeDevice

FINE, RAISES, ABORTS, SEGFAULTS, HANGS, PRINTS, KILLED = (
    Workload.parse(f"x3d_i8_m16_o8_k3x3x3_relu@1x8x{frames}x8x8/fp32/auto") for frames in (1, 2, 3, 4, 5, 6, 7)
)
INT8 = Workload.parse("x3d_i8_m16_o8_k3x3x3_relu@1x8x1x8x8/int8/auto")
OPTIONS = {"imports": ["hwbench.testing.engines"]}


def build(workloads, cache, **options):
    return {r.workload: r for r in build_all(workloads, "faulty", cache, **OPTIONS, **options)}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """One build of everything that ends by itself, with two workers."""
    cache = tmp_path_factory.mktemp("cache")
    workloads = [FINE, RAISES, ABORTS, FINE, SEGFAULTS, PRINTS, INT8]
    return cache, list(build_all(workloads, "faulty", cache, processes=2, **OPTIONS))


def test_every_workload_gets_one_answer(built):
    _, results = built
    assert sorted(r.workload for r in results) == sorted([FINE, RAISES, ABORTS, SEGFAULTS, PRINTS, INT8])
    good = {r.workload for r in results if isinstance(r, Artifact)}
    assert good == {FINE, PRINTS, INT8}


def test_a_failure_says_what_happened(built):
    reasons = {r.workload: r.reason for r in built[1] if isinstance(r, BuildFailure)}
    assert reasons[RAISES] == "DelegationFailed: aten.mean stayed outside"
    assert "SIGABRT" in reasons[ABORTS]
    assert "XNNPACK: no such kernel" in reasons[ABORTS]
    assert "SIGSEGV" in reasons[SEGFAULTS]


def test_a_worker_that_was_killed_is_tried_again_by_the_next_command(tmp_path):
    """As where memory is used up, which tells nothing about the workload."""
    (result,) = build([KILLED], tmp_path).values()
    assert (result.outcome, "SIGKILL (out of memory?)" in result.reason) == (Outcome.LOST, True)
    (aborted,) = build([ABORTS], tmp_path).values()
    assert aborted.outcome is Outcome.BUILD
    builds = []

    def kills(workloads):
        builds.extend(workloads)
        return build_all(workloads, "faulty", tmp_path, **OPTIONS)

    with MeasurementStore(tmp_path / "measurements.sqlite") as store:
        campaign = Campaign(store, Target("fake", "faulty", "1"), {}, kills, FakeDevice(tmp_path).measure)
        for _ in range(2):
            (row,) = campaign.run([KILLED, ABORTS]).failed[:1]
            assert row.outcome is Outcome.LOST
    assert builds == [KILLED, ABORTS, KILLED]


def test_artifacts_lie_in_the_cache_and_are_found_there(built):
    cache, results = built
    fine = next(r for r in results if r.workload == FINE)
    assert fine.path.parent == cache
    assert FINE.key.encode() in fine.path.read_bytes()
    before = fine.path.stat().st_mtime_ns
    assert build([FINE], cache) == {FINE: fine}
    assert fine.path.stat().st_mtime_ns == before


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.long), "int8"])
def test_a_block_is_read_twice_as_in_a_network_and_a_network_once(tmp_path, precision):
    """Otherwise XNNPACK computes the last step of a block in place, which it does not inside a network."""
    stem = Workload.parse(f"stem_i3_o8_k1x3x3+5x1x1_s2_relu@1x3x4x16x16/{precision}/auto")
    body, head = "x3d_i8_m16_o8_k1x3x3_relu", "head_i8_m16_d32_o6_kglobal_relu"
    network = Workload.parse(f"{stem.blocks[0].key}>{body}>{head}@1x3x4x16x16/{precision}/auto")
    made = {r.workload: pte_layout(r.path) for r in build_all([stem, network], "executorch", tmp_path, processes=1)}
    assert [one.shape for one in made[stem].outputs] == [(4, 8, 8, 8), (4, 8, 1, 1)]
    assert [one.shape for one in made[network].outputs] == [(1, 6)]


def test_failures_are_not_cached_as_artifacts(built):
    cache, _ = built
    assert len(list(cache.glob("*.json"))) == 3


def test_a_damaged_file_is_built_again_to_the_same_bytes(built):
    """Weights, and for int8 calibration data, follow from the workload."""
    cache, results = built
    for workload in (FINE, INT8):
        artifact = next(r for r in results if r.workload == workload)
        content = artifact.path.read_bytes()
        artifact.path.write_bytes(content[:-1] + b"?")
        with Builder("faulty", cache, processes=1, **OPTIONS) as builder:
            assert list(builder.build([workload])) == [artifact]
        assert artifact.path.read_bytes() == content


def test_int8_is_given_calibration_data_and_fp32_is_not(built):
    sizes = {r.workload: r.path.stat().st_size for r in built[1] if isinstance(r, Artifact)}
    assert sizes[INT8] - sizes[FINE] >= 4 * 8 * 8 * 8


def test_a_build_that_does_not_end_is_ended(tmp_path):
    with Builder("faulty", tmp_path, processes=1, **OPTIONS) as builder:
        (fine,) = builder.build([FINE])
        builder._time_limit_s = 1.0
        assert list(builder.build([HANGS])) == [BuildFailure(HANGS, "no result after 1 s")]
        assert fine.path.is_file()


def test_builds_under_way_end_with_the_iterator(tmp_path):
    with Builder("faulty", tmp_path, processes=2, **OPTIONS) as builder:
        results = builder.build([HANGS, FINE])
        assert next(results).workload == FINE
        workers = [*builder._workers]
        (busy,) = [worker for worker in workers if worker.workload is not None or not worker.ready]
        results.close()
        assert busy._process.poll() is not None
        assert builder._workers == [worker for worker in workers if worker is not busy]
    assert all(worker._process.poll() is not None for worker in workers)


def test_workers_end_with_a_killed_parent(tmp_path):
    code = """
    import sys
    from pathlib import Path
    import hwbench.testing.engines
    from hwbench.measure.builder import Builder
    from hwbench.specs import Workload
    with Builder("faulty", Path(sys.argv[1]), processes=1, imports=["hwbench.testing.engines"]) as builder:
        for result in builder.build([Workload.parse(key) for key in sys.argv[2:]]):
            print(builder._workers[0]._process.pid, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), FINE.key, HANGS.key]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE)
    worker = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        if not alive(worker):
            break
        time.sleep(0.1)
    assert not alive(worker)


def alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def test_a_cache_that_cannot_be_made_is_a_workspace_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match="file"):
        build([FINE], tmp_path / "file" / "cache")


def test_a_full_disk_ends_the_campaign_and_is_no_failure_of_a_workload(tmp_path):
    code = """
    import resource, signal, sys
    from pathlib import Path
    import hwbench.testing.engines
    from hwbench.errors import WorkspaceError
    from hwbench.measure.builder import build_all
    from hwbench.specs import Workload
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        print(list(build_all([Workload.parse(sys.argv[2])], "faulty", Path(sys.argv[1]), processes=1,
                             imports=["hwbench.testing.engines"])))
    except WorkspaceError as error:
        print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), FINE.key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "larger than the limit allows" in done.stdout


def test_workers_that_were_warmed_up_build_and_end_with_the_block(tmp_path):
    with Builder("faulty", tmp_path, processes=2, **OPTIONS) as builder:
        builder.warm_up()
        pids = [worker._process.pid for worker in builder._workers]
        assert len(pids) == 2
        (result,) = builder.build([FINE])
        assert isinstance(result, Artifact)
        assert {worker._process.pid for worker in builder._workers} <= set(pids)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with Builder("faulty", tmp_path, processes=1, **OPTIONS) as idle:
        idle.warm_up()


def test_workers_that_do_not_start_are_one_error(tmp_path):
    with pytest.raises(HwbenchError, match=r"do not start.*No module named 'hwbench_missing'"):
        list(build_all([FINE], "faulty", tmp_path, processes=1, imports=["hwbench_missing"]))


def test_an_unknown_runtime(tmp_path):
    with pytest.raises(UnknownName, match="executorch"):
        list(build_all([FINE], "executorhc", tmp_path))


def test_default_processes_fit_the_machine():
    assert 1 <= default_processes() <= os.cpu_count()


@pytest.mark.parametrize(("processors", "gib", "count"), [(1, 64, 1), (64, 2, 1), (64, 1, 1)])
def test_default_processes_fit_the_container(tmp_path, processors, gib, count):
    """A container sees the processors and the memory of its host."""
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text(f"{processors * 100_000} 100000\n")
    (tmp_path / "memory.max").write_text(f"{gib << 30}\n")
    (tmp_path / "memory.current").write_text("0\n")
    assert default_processes(ControlGroup(tmp_path, tmp_path / "cgroup")) == count


FIRST = """
import sys
from pathlib import Path
import hwbench.testing.engines
from hwbench.measure.builder import build_all
from hwbench.measure.cache import ArtifactCache
from hwbench.specs import Workload

folder = Path(sys.argv[1])
with ArtifactCache(folder, "faulty").building():
    print("holds", flush=True)
    sys.stdin.readline()
    list(build_all([Workload.parse(sys.argv[2])], "faulty", folder, imports=["hwbench.testing.engines"]))
"""


def test_who_waits_finds_what_the_other_process_built(tmp_path, monkeypatch):
    command = [sys.executable, "-c", FIRST, str(tmp_path), FINE.key]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "holds\n"
        monkeypatch.setattr("hwbench.measure.builder._Worker", None)  # a second build would need one
        found = []
        waiting = threading.Thread(target=lambda: found.append(build([FINE], tmp_path)))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        first.communicate("go\n")
        waiting.join(60)
    assert [type(result) for result in found[0].values()] == [Artifact]


def test_the_right_to_build_ends_with_a_killed_process(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", FIRST, str(tmp_path), FINE.key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout.readline() == "holds\n"
        first.kill()
    assert [type(result) for result in build([FINE], tmp_path).values()] == [Artifact]
