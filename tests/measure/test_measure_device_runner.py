"""Which runner a device gets, on this machine as if it were another one."""

import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwbench import control_group
from hwbench.control_group import ControlGroup
from hwbench.devices import Device, Probe, probe_device
from hwbench.devices.base import Address
from hwbench.devices.local import LocalTransport
from hwbench.devices.remote import RemoteTransport
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, InvalidValue
from hwbench.measure import device_runner, remote_toolchain
from hwbench.measure.artifact_check import check_artifact, profile_ops
from hwbench.measure.bench import open_bench
from hwbench.measure.device_runner import install_runner
from hwbench.measure.remote_toolchain import BoardPython, machine_of
from hwbench.measure.runner import measure_sessions
from hwbench.runtimes.capabilities import EXECUTOR_RUNNER, NATIVE_BOARD, NATIVE_LOADER, PYTHON
from hwbench.runtimes.pte_model import PteLayout, TensorLayout
from hwbench.runtimes.runners import check_file, python_runner
from hwbench.specs import Outcome, Timing
from hwbench.testing.links import ShellLink
from hwbench.testing.models import artifact

SMALL = Path(__file__).parents[1] / "golden" / "pte" / "small-1.5.1.pte"
ABORT = SMALL.with_name("abort-1.5.1.pte")
CPU = max(os.sched_getaffinity(0))
QUICK = Timing(warmup_s=0.001, min_samples=3, min_session_s=0.001, max_session_s=0.01, min_rounds=3, timeout_s=30)
PROBE = Probe("Board", "aarch64", "Linux 6", (), (), (), 0, "unknown", False)

# Says what ExecuTorch's example of a runner says, as recorded from one (1.5.1, logging on).
UPSTREAM = r"""#!/bin/sh
for word; do
  case $word in
    --num_executions=*) count=${word#*=};;
    --model_path=*) model=${word#*=};;
    --inputs=*) input=${word#*=};;
    --output_file=*) output=${word#*=};;
  esac
done
log() { echo "$1 00:00:00.000441 executorch:$2] $3" >&2; }
test -s "$input" || exit 9
case $model in
  *empty*) log E program.cpp:168 "Program identifier '' != expected 'ET12'"
           log E executor_runner.cpp:473 "Failed to parse model file $model"; exit 1;;
esac
log I executor_runner.cpp:624 "Model loaded in 0.299860 ms."
case $model in
  *abort*) log F evalue.h:348 "In function toTensor(), assert failed (isTensor()): EValue is not a Tensor."
           kill -ABRT $$;;
esac
i=1
while [ $i -le $count ]; do
  log I executor_runner.cpp:779 "Iteration $i of $count: 0.$((200000 + i)) ms"; i=$((i + 1))
done
log I executor_runner.cpp:789 "Model executed successfully $count time(s) in 0.200540 ms."
[ -z "$output" ] || cat "$ANSWER" > "$output-0.bin"
"""


def install(runner, cache, said=None, **more):
    with LocalTransport() as transport:
        device = Device("board", "local", runner=runner)
        report = said.append if said is not None else None
        probe = more.get("probe") or probe_device(transport)
        return install_runner(device, transport, probe, "executorch", cache_dir=cache, report=report)


def check(runner, cache):
    device = Device("board", "local", runner=runner, cpus=(CPU,))
    with open_bench(device, "executorch", cache_dir=cache) as bench:
        return bench, check_artifact(SMALL, bench=bench).output


@pytest.fixture(scope="module")
def expected():
    return check_file(SMALL).output


def test_a_libc_of_its_own(runner_cache, expected):
    bench, output = check(NATIVE_LOADER, runner_cache)
    assert bench.runner.label == f"{NATIVE_LOADER}/4"
    assert bench.conditions["runner"] == bench.runner.label
    assert re.fullmatch("[0-9a-f]{16}", bench.conditions["libraries"])
    np.testing.assert_allclose(output, expected, atol=1e-6)


@pytest.mark.slow
def test_the_compiler_of_the_device(tmp_path, expected):
    said = []
    installed = install(NATIVE_BOARD, tmp_path / "cache", said)
    assert installed.runner.kind == NATIVE_BOARD
    assert any("building the C++ runner on board" in line for line in said)
    assert sorted(path.name for path in Path(installed.folder).iterdir())[-1] == "runner"
    np.testing.assert_allclose(check_file(SMALL, runner=installed.runner).output, expected, atol=1e-6)
    runner = Path(installed.folder, "runner")
    before = runner.stat().st_mtime_ns
    install(NATIVE_BOARD, tmp_path / "cache")
    assert runner.stat().st_mtime_ns == before


def test_a_compiler_of_the_device_that_cannot_do_it(tmp_path, monkeypatch):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'runner.cpp:3: error: concepts are not supported' >&2\nexit 1\n")
    compiler.chmod(0o755)
    for program in ("sh", "tar", "gzip", "mkdir", "rm", "mv", "cat", "uname"):
        (tmp_path / program).symlink_to(shutil.which(program))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="concepts are not supported"):
        install(NATIVE_BOARD, tmp_path / "cache", probe=probe_here())
    assert not list((tmp_path / "cache").glob("*.part*"))


def probe_here():
    with LocalTransport() as transport:
        return probe_device(transport)


def test_a_python_of_the_device(tmp_path, expected):
    bench, output = check(sys.executable, tmp_path / "cache")
    assert bench.runner.kind == PYTHON
    assert bench.runner.command[0] == sys.executable
    np.testing.assert_allclose(output, expected, atol=1e-6)


def board_python(version, executorch, torch):
    return BoardPython("p", version, {"executorch": executorch, "torch": torch, "numpy": "2.0"})


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "there is no /opt/python3"),
        (
            board_python((3, 11), "1.4.1", "2.9"),
            r"needs .* executorch 1\.5\.1 .* it has .* executorch 1\.4\.1",
        ),
        (board_python((3, 10), "1.5.1", "2.9"), r"it has Python 3\.10"),
        (board_python((3, 11), "1.5.1", "-"), r"torch -, numpy 2.0; install there: /opt/python3 -m pip install"),
    ],
)
def test_a_python_that_does_not_do(tmp_path, monkeypatch, found, message):
    monkeypatch.setattr(device_runner, "ask_python", lambda *_: found)
    with pytest.raises(DeviceError, match=message):
        install("/opt/python3", tmp_path / "cache")


def test_versions_are_read_from_a_python():
    with LocalTransport() as transport:
        here = remote_toolchain.ask_python(transport, sys.executable, ["executorch"])
        assert (here.version, here.packages) == (sys.version_info[:2], {"executorch": "1.5.1"})
        assert remote_toolchain.ask_python(transport, "no-such-python", []) is None
        assert remote_toolchain.ask_python(transport, "true", []) is None


def test_nothing_works(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for program in ("sh", "uname"):
        (tmp_path / program).symlink_to(shutil.which(program, path="/usr/bin:/bin"))
    said = []
    way = device_runner._Way(Device("pi", "ssh"), LocalTransport(), PROBE, tmp_path / "cache", said.append)
    with pytest.raises(DeviceError) as caught:
        way.first()
    assert str(caught.value).count("\n") == 0
    assert "apt-get install g++-aarch64-linux-gnu" in str(caught.value)
    assert "python3 -m pip install executorch==1.5.1 torch" in str(caught.value)
    assert len(said) == 4


def test_a_device_out_of_reach_says_nothing_of_a_runner(tmp_path):
    said, link = [], ShellLink()
    with RemoteTransport(link, Address("pi", work_dir=str(tmp_path / "work")), pauses_s=[0.0]) as transport:
        way = device_runner._Way(Device("pi", "ssh"), transport, probe_here(), tmp_path / "cache", said.append)
        link.cut()
        link.refusals = 1
        with pytest.raises(DeviceLost):
            way._started(python_runner())
        with pytest.raises(DeviceUnreachable):
            way._started(python_runner())
        assert way._started(python_runner()) == python_runner()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"arch": "aarch64"}, "aarch64"),
        ({"arch": "aarch64", "abi": "arm64-v8a", "api_level": 29}, "aarch64"),
        ({"arch": "x86_64"}, "x86_64"),
        ({"arch": "aarch64", "abi": "armv7l"}, "aarch64"),
        ({"arch": "armv7l", "abi": "armv7l"}, "Linux for armv7l"),
        ({"arch": "riscv64"}, "Linux for riscv64"),
        ({"arch": "i686"}, "Linux for i686"),
        ({"arch": "armv8l", "abi": "armeabi-v7a", "api_level": 28}, "Android for armeabi-v7a"),
        ({"arch": "aarch64", "abi": "armeabi-v7a", "api_level": 28}, "Android for armeabi-v7a"),
        ({"arch": "x86_64", "abi": "x86_64", "api_level": 34}, "Android for x86_64"),
    ],
)
def test_kinds_of_machines(fields, expected):
    probe = Probe(**{**vars(PROBE), **fields})
    if " " not in expected:
        assert machine_of(probe) == expected
        return
    with pytest.raises(DeviceError, match=f"Board runs {expected}, for which executorch has no libraries") as caught:
        machine_of(probe)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("runtime", ["onnx", "torch", "torchscript"])
def test_other_engines_are_not_carried_to_other_devices(tmp_path, runtime):
    with (
        pytest.raises(
            InvalidValue, match=f"{runtime} files are measured on this machine only .*: --runtime executorch$"
        ),
        open_bench(Device("pi", "ssh", options={"host": "nowhere"}), runtime, cache_dir=tmp_path),
    ):
        pass


@pytest.fixture
def upstream(tmp_path, expected, monkeypatch):
    path = tmp_path / "executor_runner"
    path.write_text(UPSTREAM)
    path.chmod(0o755)
    (tmp_path / "answer.raw").write_bytes(expected.tobytes())
    monkeypatch.setenv("ANSWER", str(tmp_path / "answer.raw"))
    return str(path)


@pytest.fixture
def bench(upstream, tmp_path):
    device = Device("board", "local", runner=upstream, cpus=(CPU,))
    with open_bench(device, "executorch", cache_dir=tmp_path / "cache") as bench:
        yield bench


def test_an_executor_runner_of_the_user(bench, tmp_path):
    empty = tmp_path / "empty.pte"
    shutil.copy(SMALL, empty)
    files = [artifact(SMALL), artifact(ABORT, 1), artifact(empty, 2)]
    sessions = []
    failures = measure_sessions(
        files, rounds=2, seed=1, on_session=lambda *row: sessions.append(row), bench=bench, timing=QUICK, sentinel=SMALL
    )
    assert bench.runner.label == f"{EXECUTOR_RUNNER}/4"
    assert bench.conditions["cpus"] == str(CPU)
    assert [made.path for made, _ in sessions] == [SMALL] * 2
    reasons = {failure.outcome: failure.reason for failure in failures}
    assert "assert failed (isTensor())" in reasons[Outcome.CRASH]
    assert "SIGABRT" in reasons[Outcome.CRASH]
    assert "Failed to parse model file" in reasons[Outcome.LOAD]
    # An execution takes 0.2 ms: 10 warm up for twice the time asked for, and 5 fill the session.
    assert sessions[0][1].samples_s == pytest.approx([1e-9 * (200_010 + i) for i in range(1, 6)])
    assert sessions[0][1].load_s == pytest.approx(0.29986e-3)


def test_a_log_that_forgets_the_warm_up_of_a_small_file_has_its_samples(upstream, tmp_path, monkeypatch):
    """As on Android: an execution takes 0.05 ms, and the log keeps the last 500 of thousands of lines."""
    script = UPSTREAM.replace("0.$((200000 + i))", "0.0$((50000 + i))").replace(">&2", '>>"$RING"')
    Path(upstream).write_text(script.replace("\ni=1\n", '\n: >"$RING"\ni=1\n'))
    logcat = tmp_path / "bin" / "logcat"
    logcat.parent.mkdir()
    logcat.write_text('#!/bin/sh\nexec tail -n 500 "$RING"\n')
    logcat.chmod(0o755)
    monkeypatch.setenv("PATH", f"{logcat.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("RING", str(tmp_path / "ring"))
    sessions = []
    timing = replace(QUICK, warmup_s=0.05, min_session_s=0.1, max_session_s=1.0, min_rounds=1, max_rounds=1)
    device = Device("board", "local", runner=upstream, cpus=(CPU,))
    with open_bench(device, "executorch", cache_dir=tmp_path / "cache") as bench:
        failures = measure_sessions(
            [artifact(SMALL)],
            rounds=1,
            seed=0,
            on_session=lambda *row: sessions.append(row),
            bench=bench,
            timing=timing,
        )
    assert failures == []
    assert sessions[0][1].samples_s == pytest.approx([1e-9 * (50_000 + i) for i in range(2001, 2401)])


def test_what_it_computes(bench, expected):
    np.testing.assert_array_equal(check_artifact(SMALL, bench=bench).output, expected)


def test_a_file_that_takes_other_numbers_fails_to_load(bench, monkeypatch):
    whole_numbers = PteLayout((TensorLayout((1, 3), (0, 1), 4),), ())
    monkeypatch.setattr("hwbench.measure.executor_runner.pte_layout", lambda path: whole_numbers)
    (failure,) = measure_sessions(
        [artifact(SMALL)], rounds=1, seed=0, on_session=lambda *row: None, bench=bench, timing=QUICK
    )
    assert (failure.outcome, failure.reason) == (Outcome.LOAD, "input 0 is not float32")


def test_it_has_no_profile(bench):
    from hwbench.errors import CheckFailed

    with pytest.raises(CheckFailed, match="no times of operations"):
        profile_ops(SMALL, bench=bench, timing=QUICK)


def test_one_that_logs_nothing(tmp_path):
    path = tmp_path / "executor_runner"
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    with (
        open_bench(Device("board", "local", runner=str(path)), "executorch", cache_dir=tmp_path) as bench,
        pytest.raises(DeviceError, match="0 of 3 executions; expected lines 'Iteration N of M"),
    ):
        measure_sessions([artifact(SMALL)], rounds=1, seed=0, on_session=print, bench=bench, timing=QUICK)


def test_one_that_hangs_is_a_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("hwbench.measure.executor_runner._LOAD_LIMIT_S", 0.3)
    path = tmp_path / "executor_runner"
    path.write_text("#!/bin/sh\nsleep 60\n")
    path.chmod(0o755)
    hasty = Timing(timeout_s=0.2)
    with open_bench(Device("board", "local", runner=str(path)), "executorch", cache_dir=tmp_path) as bench:
        failures = measure_sessions([artifact(SMALL)], rounds=1, seed=0, on_session=print, bench=bench, timing=hasty)
    assert [failure.outcome for failure in failures] == [Outcome.TIMEOUT]


def test_a_runner_that_is_nowhere(tmp_path):
    with pytest.raises(DeviceError, match="there is no such file, neither there nor here; expected a path, or one of"):
        install("/nowhere/executor_runner", tmp_path)


@pytest.mark.parametrize(
    ("quota", "threads", "processors"), [("150000", 2, "1.5"), ("50000", 2, "0.5"), ("50000", 1, "")]
)
def test_more_threads_than_a_container_leaves_are_refused(tmp_path, monkeypatch, quota, threads, processors):
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    (tmp_path / "self").write_text("0::/\n")
    monkeypatch.setattr(control_group, "OWN", ControlGroup(tmp_path, tmp_path / "self"))
    here = Device("here", "local", runner="python")
    opened = open_bench(here, "executorch", cache_dir=tmp_path / "cache", threads=threads)
    if not processors:
        with opened as bench:
            assert bench.threads == threads
        return
    with pytest.raises(InvalidValue, match=f"{threads} threads .* has {processors} processors"), opened:
        pass
