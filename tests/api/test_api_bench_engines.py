"""``hwbench.bench_engines``: one network in every engine, in turn."""

import contextlib
import itertools
import json
import math
import random
from dataclasses import replace

import pytest
from micro_workspace import NETWORK, SPACE

import hwbench
from hwbench.api import bench_engines
from hwbench.api.bench_engines import differ, engines_for, ranked
from hwbench.api.bench_model import BenchModel
from hwbench.cli.main import main
from hwbench.devices import load_device
from hwbench.errors import DeviceError, DeviceLost, InvalidValue
from hwbench.measure import bench, interleaved
from hwbench.measure.device_runner import Installed
from hwbench.measure.failures import MeasurementFailure
from hwbench.runtimes.runners import Runner, choose_runner
from hwbench.specs import (
    Artifact,
    DelegationReport,
    LatencyStats,
    Measurement,
    Outcome,
    Precision,
    Session,
    Target,
    Timing,
    Workload,
)
from hwbench.workspace import Workspace

BLOCK = Workload.parse("conv_i3_o4_k1x1x1_relu@1x3x2x4x4/fp32/auto")
QUICK = {"samples": 5, "seconds": 0.0, "classes": 8}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, runner_cache):
    made = Workspace.create(tmp_path_factory.mktemp("engines"))
    made.cache.symlink_to(runner_cache)
    choose_runner("executorch", made.cache)
    (made.root / "search_spaces" / "micro.toml").write_text(SPACE)
    return made


@pytest.fixture(scope="module")
def result(workspace):
    """bf16, which eager PyTorch and TorchScript have, and OpenVINO where it is installed."""
    return hwbench.bench_engines(hwbench.BenchRequest(model=NETWORK, precision="bf16", **QUICK), workspace=workspace)


def timed(runtime, *medians_ms):
    sessions = tuple(Session((ms / 1e3,) * 5, round=number) for number, ms in enumerate(medians_ms))
    measured = Measurement(BLOCK, Target("local", runtime, "1", 1), Timing(), Outcome.OK, sessions)
    return hwbench.BenchResult("net", "fp32", LatencyStats.of(sessions), measured)


@pytest.mark.long
def test_every_engine_that_has_the_precision_is_measured_and_the_others_are_named(result):
    measured = {engine.result.measurement.target.runtime for engine in result.engines}
    reasons = {one.runtime: one.reason for one in result.left_out}
    assert measured >= {"torch", "torchscript"}
    assert measured.isdisjoint(reasons)
    assert "builds fp32 and int8, got bf16" in reasons["onnx"]
    assert "builds fp32, fp16 and int8, got bf16" in reasons["executorch"]
    assert result.engines[0].ratio == 1
    assert [engine.ratio for engine in result.engines] == sorted(engine.ratio for engine in result.engines)
    assert all(len(engine.result.measurement.sessions) >= 3 for engine in result.engines)


@pytest.mark.long
def test_json_has_a_list_with_the_keys_of_one_engine(result):
    values = json.loads(json.dumps(result.to_json()))
    assert " ".join(values) == "model device precision threads cache emulated engines left_out"
    alone = result.engines[0].result.to_json()
    assert all(set(engine) == {*alone, "ratio", "noise"} for engine in values["engines"])
    assert list(result.to_frame().runtime) == [engine["runtime"] for engine in values["engines"]]


@pytest.mark.long
def test_the_command_prints_a_row_an_engine_and_who_is_left_out(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace.root)
    words = ["bench", NETWORK, "--runtime", "all", "--precision", "bf16", "--classes", "8"]
    with contextlib.suppress(SystemExit):
        main([*words, "--samples", "5", "--seconds", "0"])
    out, err = capsys.readouterr()
    assert "of the fastest" in out
    assert "torchscript" in out
    assert "left out: onnx: the onnx runtime builds" in err


def test_sessions_of_the_same_minute_are_held_against_each_other():
    fast = timed("a", 10.0, 20.0, 12.0, 30.0, 11.0)
    slower = timed("b", 10.5, 21.1, 12.6, 31.4, 11.6)  # by a twentieth in every minute
    same = timed("c", 10.4, 19.5, 12.5, 29.0, 11.2)
    assert differ(slower.measurement.sessions, fast.measurement.sessions)
    assert not differ(same.measurement.sessions, fast.measurement.sessions)
    assert differ(slower.measurement.sessions[:4], fast.measurement.sessions)
    assert not differ(slower.measurement.sessions[:1], fast.measurement.sessions)
    unpaired = [replace(one, round=None) for one in slower.measurement.sessions]
    assert not differ(unpaired, fast.measurement.sessions)
    far = timed("d", 90.0, 91.0, 92.0)
    assert differ(far.measurement.sessions, fast.measurement.sessions)
    ordered = ranked([far, slower, fast])
    assert [(one.result.measurement.target.runtime, one.noise) for one in ordered] == [
        ("a", False),
        ("b", False),
        ("d", False),
    ]
    assert [one.noise for one in ranked([same, fast])] == [False, True]


@pytest.mark.parametrize("engines", [2, 3, 6])
def test_engines_that_are_alike_are_seldom_told_apart_however_many_there_are(engines):
    """The fastest of many is fast by chance as well: one of six was told apart in a quarter of all comparisons."""
    rng, comparisons = random.Random(0), 300
    told_apart = 0
    for _ in range(comparisons):
        minutes = [rng.gauss(0, 0.02) for _ in range(8)]
        alike = [
            timed(f"engine{number}", *(10 * math.exp(minute + rng.gauss(0, 0.01)) for minute in minutes))
            for number in range(engines)
        ]
        told_apart += not all(one.noise for one in ranked(alike)[1:])
    assert 0.01 * comparisons < told_apart < 0.085 * comparisons


def test_an_engine_that_is_slower_in_every_round_is_told_apart_from_the_fastest_of_many():
    rng = random.Random(0)
    alike = [timed(f"engine{number}", *(rng.gauss(10, 0.05) for _ in range(5))) for number in range(5)]
    slower = timed("slower", *(rng.gauss(11, 0.05) for _ in range(5)))
    assert [one.noise for one in ranked([slower, *alike])][-1] is False


def test_other_devices_are_asked_for_what_goes_there(workspace):
    board = replace(load_device(workspace, "local"), name="board", transport_name="ssh")
    able, left_out = engines_for(board, Precision.FP32)
    assert able == ["executorch"]
    assert "measured on this machine only" in next(one.reason for one in left_out if one.runtime == "onnx")


def test_engines_without_streams_are_left_out_before_anything_is_built(workspace):
    able, left_out = engines_for(load_device(workspace, "local"), Precision.FP32, streaming=True)
    assert "executorch" in able
    assert "onnx" not in able
    assert "the onnx runtime builds no streams" in [one.reason for one in left_out]  # and advises no other engine


def runners_but_of(runtime, error, monkeypatch):
    def install(device, transport, probe, name, **options):
        if name == runtime:
            raise error
        return Installed(Runner("python", ("runner",)), "there", 0, 0.0)

    monkeypatch.setattr(bench, "install_runner", install)


def visited(artifacts, *, on_session, **options):
    for artifact in artifacts:
        on_session(artifact, Session((0.01,) * 5))
    return []


@pytest.fixture
def artifacts(tmp_path):
    return [Artifact(tmp_path, "0" * 64, BLOCK, name, "1", DelegationReport(0)) for name in ("torchscript", "torch")]


def test_an_engine_without_a_runner_on_the_device_leaves_the_others(workspace, artifacts, tmp_path, monkeypatch):
    monkeypatch.setattr(interleaved, "measure_sessions", visited)
    runners_but_of("torchscript", DeviceError("no runner of torchscript works there"), monkeypatch)
    device = load_device(workspace, "local")
    none, timed = interleaved.measure_interleaved(artifacts, device, cache_dir=tmp_path)
    assert (none.outcome, none.reason) == (Outcome.PUSH, "no runner of torchscript works there")
    assert timed.outcome is Outcome.OK
    with pytest.raises(DeviceError, match="no runner of torchscript"):
        interleaved.measure_interleaved(artifacts[:1], device, cache_dir=tmp_path)
    runners_but_of("torchscript", DeviceLost("gone"), monkeypatch)
    with pytest.raises(DeviceLost):
        interleaved.measure_interleaved(artifacts, device, cache_dir=tmp_path)


def test_an_engine_whose_runner_dies_leaves_the_others(workspace, artifacts, tmp_path, monkeypatch):
    def visit(some, **options):
        torch = some[0].runtime == "torch"
        return measure_sessions(some, **options) if torch and len(taken) > 1 else visited(some, **options)

    def dies(device, transport, probe, name, **options):
        return Installed(Runner("python", ("false",)), "there", 0, 0.0)

    (tmp_path / "model").write_bytes(b"a file")
    files = [replace(one, path=tmp_path / "model") for one in artifacts]
    taken, measure_sessions = [], interleaved.measure_sessions
    monkeypatch.setattr(interleaved, "measure_sessions", visit)
    monkeypatch.setattr(bench, "install_runner", dies)
    device, timing = load_device(workspace, "local"), Timing(min_rounds=5, max_rounds=5)
    place = {"cache_dir": tmp_path, "timing": timing, "on_session": lambda *_: taken.append(None)}
    timed, dead = interleaved.measure_interleaved(files, device, **place)
    assert (timed.outcome, len(timed.sessions)) == (Outcome.OK, 5)
    assert (dead.outcome, len(dead.sessions)) == (Outcome.LOST, 2)
    assert "ended before it reached a file" in dead.reason
    with pytest.raises(DeviceLost, match="ended before it reached a file"):
        interleaved.measure_interleaved(files[1:], device, **place)


def test_what_is_told_of_an_engine_names_it(workspace, artifacts, monkeypatch):
    taken = Session((0.01,) * 5, involuntary_switches=5)
    shared = replace(timed("torchscript", 10.0).measurement, sessions=(taken,) * 5)
    late = replace(shared, outcome=Outcome.TIMEOUT, reason="took longer than 62 s")
    lines = []

    class Talk(hwbench.Listener):
        def say(self, message):
            lines.append(message)

    monkeypatch.setattr(bench_engines, "engines_for", lambda *_, **__: (["torchscript", "torch"], []))
    models = iter(BenchModel(one, "fp32", "fp32", from_user=False) for one in artifacts)
    monkeypatch.setattr(bench_engines, "bench_model", lambda *_: next(models))
    monkeypatch.setattr(interleaved, "measure_interleaved", lambda *_, **__: [shared, late])
    result = hwbench.bench_engines(hwbench.BenchRequest(model=NETWORK), Talk(), workspace=workspace)
    assert any(line.startswith("torchscript: other programs kept taking the core: 5 of 5") for line in lines)
    (left,) = result.left_out
    assert left.runtime == "torch"
    measured = "after 5 sessions of 10 ms (median)"
    assert f"timeout: took longer than 62 s, {measured}; leave the device alone" in left.reason
    assert "--seconds " in left.reason


def test_a_doubted_session_takes_its_round_from_the_comparison_and_shifts_no_other(
    workspace, artifacts, tmp_path, monkeypatch
):
    """Engines a tenth apart in every round; rounds differ by a fifth, and another one is doubted of each engine."""
    doubted, turns = {"torchscript": 1, "torch": 4}, dict.fromkeys(("torchscript", "torch"), 0)

    def visit(some, *, on_session, **options):
        (artifact,) = some
        number = turns[artifact.runtime]
        turns[artifact.runtime] += 1
        median_s = 0.003 * (1.2 if number % 2 else 1.0) * (1.1 if artifact.runtime == "torch" else 1.0)
        jitter = 1 + 0.001 * (number % 3)
        two_modes = (10.0,) * 2 if number == doubted[artifact.runtime] else ()
        on_session(artifact, Session((median_s * jitter,) * 5 + two_modes))
        return []

    monkeypatch.setattr(interleaved, "measure_sessions", visit)
    runners_but_of("none", None, monkeypatch)
    timing = Timing(min_rounds=5, max_rounds=7)
    device = load_device(workspace, "local")
    faster, slower = interleaved.measure_interleaved(artifacts, device, cache_dir=tmp_path, timing=timing)
    assert differ(slower.sessions, faster.sessions)
    assert [one.round for one in faster.sessions] == [0, 2, 3, 4, 5, 6]
    assert [one.round for one in slower.sessions] == [0, 1, 2, 3, 5, 6]


@pytest.mark.parametrize(("last", "outcome"), [(5, Outcome.OK), (4, Outcome.TIMEOUT)])
def test_time_that_runs_out_in_a_session_too_many_takes_none_of_those_before(
    workspace, artifacts, tmp_path, monkeypatch, last, outcome
):
    rounds = itertools.count(0.5, 0.5)  # of two engines; the other one needs all rounds

    def visit(artifacts, *, on_session, **options):
        (artifact,), at = artifacts, next(rounds)
        if artifact.runtime == "torch" and at > last:
            return [MeasurementFailure(BLOCK, Outcome.TIMEOUT, "took longer than 62 s")]
        on_session(artifact, Session((0.01 if artifact.runtime == "torch" else 0.01 * at,) * 5))
        return []

    monkeypatch.setattr(interleaved, "measure_sessions", visit)
    runners_but_of("none", None, monkeypatch)
    timing = Timing(min_rounds=5, max_rounds=8)
    device = load_device(workspace, "local")
    _, torch = interleaved.measure_interleaved(artifacts, device, cache_dir=tmp_path, timing=timing)
    assert torch.outcome is outcome
    assert len(torch.sessions) == last


def test_a_file_and_the_function_for_one_engine_are_refused_in_one_line(workspace, tmp_path):
    path = tmp_path / "model.pte"
    path.write_bytes(b"")
    with pytest.raises(InvalidValue, match="is a file for one engine; --runtime all takes a name"):
        hwbench.bench_engines(hwbench.BenchRequest(model=str(path), runtime="all"), workspace=workspace)
    with pytest.raises(InvalidValue, match=r"hwbench\.bench_engines"):
        hwbench.bench(hwbench.BenchRequest(model=NETWORK, runtime="all"), workspace=workspace)
