"""``hwbench.bench`` and ``hwbench.doctor`` as functions."""

import json
import os
import shutil
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from micro_workspace import NETWORK, SPACE
from written_manifest import write_manifest

import hwbench
from hwbench import control_group
from hwbench.api import bench as bench_module
from hwbench.api.bench import stats_of, tell_missing_samples
from hwbench.api.bench_model import BenchModel, artifact_of, model_file
from hwbench.api.bench_request import session_timing
from hwbench.api.bench_sustained import _interrupted
from hwbench.cli.bench import _print_profile
from hwbench.control_group import ControlGroup
from hwbench.devices import arithmetic
from hwbench.errors import CheckFailed, DeviceUnreachable, InvalidFile, InvalidValue, UnknownName
from hwbench.measure import builder, cache, file_profile, on_device
from hwbench.measure.artifact_check import OperationProfile, OperationTime
from hwbench.measure.store_types import trusted
from hwbench.measure.sustained import CoursePoint
from hwbench.measure.sustained_log import CourseFacts, CourseLog
from hwbench.runtimes import suffixes
from hwbench.runtimes.runners import choose_runner
from hwbench.specs import Artifact, DelegationReport, LatencyStats, Outcome, Session
from hwbench.workspace import Workspace

PROGRAM = Path(__file__).resolve().parents[1] / "golden" / "pte" / "small-1.5.1.pte"
KEYS = (
    "model device runtime version precision threads cache median_ms p90_ms ci95_ms samples emulated "
    "load_ms first_ms peak_memory_bytes"
)


class Talk(hwbench.Listener):
    """Keeps what it hears."""

    def __init__(self):
        self.lines, self.stages, self.notes = [], [], set()

    def say(self, message):
        self.lines.append(message)

    def progress(self, at):
        self.stages.append((at.stage, at.done, at.total))
        self.notes.add(at.note)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, runner_cache):
    made = Workspace.create(tmp_path_factory.mktemp("bench"))
    made.cache.symlink_to(runner_cache)
    choose_runner("executorch", made.cache)
    return made


@pytest.fixture(scope="module")
def result(workspace):
    model = workspace.root / "model.pte"
    shutil.copyfile(PROGRAM, model)
    return hwbench.bench(hwbench.BenchRequest(model=str(model), samples=10, seconds=0.05), workspace=workspace)


def test_processor_time_is_not_held_against_times_of_operations(workspace, result, monkeypatch, capsys):
    measured = result.measurement
    many = tuple(
        replace(
            one, involuntary_switches=len(one.samples_s) + 1, cpu_s=0.5 * len(one.samples_s) * min(one.samples_s)
        ).on_the_processor()
        for one in measured.sessions
    )
    monkeypatch.setattr(on_device, "measure_artifact", lambda *_, **__: replace(measured, sessions=many))
    talk = Talk()
    request = hwbench.BenchRequest(model=result.model, samples=5, seconds=0.02, profile=True)
    profile = hwbench.bench(request, talk, workspace=workspace).to_json()["profile"]
    assert profile["unaccounted_ms"] is None
    assert profile["operations_ms"] > 0
    assert any("by processor time and the operations by the clock on the wall" in line for line in talk.lines)
    assert not any("operations account for" in line for line in talk.lines)
    _print_profile(profile, 1.0)
    out = capsys.readouterr().out
    assert "all operations" in out
    assert "not in operations" not in out


def test_operations_that_the_tracer_slows_leave_no_negative_remainder(workspace, result, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(on_device, "measure_artifact", lambda *_, **__: result.measurement)
    slow = file_profile.ProfiledOperation("Conv", "convolution", 1.0, 1, attributed=False)
    profiled = file_profile.FileProfile(1.1, (slow,), unattributed="this is a test")
    monkeypatch.setattr(file_profile, "profile_artifact", lambda *_, **__: profiled)
    monkeypatch.setattr(bench_module, "sessions_by_processor_time", lambda measurement: 0)
    talk = Talk()
    request = hwbench.BenchRequest(model=result.model, samples=5, seconds=0.02, profile=True, trace=tmp_path)
    profile = hwbench.bench(request, talk, workspace=workspace).to_json()["profile"]
    assert (profile["operations_ms"], profile["unaccounted_ms"]) == (1000, None)
    said = "he tracer slows the operations: together they take 1 s, the network without it "
    assert any(said in line for line in talk.lines)
    assert said in (tmp_path / "bench.html").read_text()
    _print_profile(profile, 1.0)
    assert "not in operations" not in capsys.readouterr().out


def test_a_file_is_measured_outside_of_the_workspace_and_prints_nothing(result, capfd):
    assert " ".join(result.to_json()) == KEYS
    assert json.loads(json.dumps(result.to_json())) == result.to_json()
    assert 0 < result.stats.ci_low_s <= result.stats.median_s <= result.stats.ci_high_s
    assert result.to_json()["median_ms"] == pytest.approx(1e3 * result.stats.median_s, abs=1e-6)
    assert result.precision is None
    assert capfd.readouterr() == ("", "")


def test_the_frame_has_a_row_for_each_sample(result):
    frame = result.to_frame()
    assert list(frame.columns) == ["session", "sample", "latency_s", "drift"]
    assert len(frame) == result.stats.num_samples == result.to_json()["samples"]
    corrected = frame.assign(latency_s=frame.latency_s / frame.drift)
    medians = corrected.groupby("session").latency_s.median()
    assert medians.median() == pytest.approx(result.stats.median_s)


def test_a_network_by_name_is_built_and_the_listener_hears_of_it(workspace):
    talk = Talk()
    name = "x3d_i8_m16_o8_k1x3x3_relu@1x8x4x16x16"
    with pytest.raises(hwbench.HwbenchError, match=r"x3d_i8|unknown architecture"):
        hwbench.bench(hwbench.BenchRequest(model=name), talk, workspace=workspace)
    (workspace.root / "search_spaces" / "micro.toml").write_text(SPACE)
    request = hwbench.BenchRequest(model=NETWORK, runtime="torch", samples=20, seconds=0.05, classes=8)
    result = hwbench.bench(request, talk, workspace=workspace)
    assert (result.precision, result.to_json()["runtime"]) == ("fp32", "torch")
    assert [done for stage, done, _ in talk.stages if stage == "build"] == [0, 1]
    assert talk.notes == {"torch"}  # a printed architecture leaves no room for the bar
    again = Talk()
    hwbench.bench(request, again, workspace=workspace)
    assert {total for _, _, total in again.stages} == {0}  # from the cache


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"model": "none.pte"}, InvalidFile, "no file none.pte"),
        ({"model": "zoo:x3d-sx"}, UnknownName, "x3d-xs"),
        ({"model": "zoo:x3d-xs", "device": "lokal"}, UnknownName, "did you mean 'local'"),
        ({"model": "zoo:x3d-xs", "device": "s9"}, DeviceUnreachable, "device 's9'"),
        ({"model": "zoo:x3d-xs", "precision": "fp8"}, InvalidValue, "expected fp32, fp16, bf16 or int8"),
        ({"model": "zoo:x3d-xs", "seconds": float("nan")}, InvalidValue, "--seconds"),
        ({"model": "zoo:x3d-xs", "seconds": 1e300}, InvalidValue, "--seconds: expected 0 to 86400, got 1e"),
        ({"model": "zoo:x3d-xs", "samples": 10**30}, InvalidValue, r"--samples: expected 1 to 1e\+07"),
        ({"model": "zoo:x3d-xs", "cache": "cold"}, InvalidValue, "--cache: expected warm, rotate or flush, got 'cold'"),
        ({"model": "zoo:x3d-xs", "threads": 0}, InvalidValue, "--threads: expected at least 1, got 0"),
    ],
)
def test_what_is_wrong_is_raised(workspace, fields, error, said):
    with pytest.raises(error, match=said):
        hwbench.bench(hwbench.BenchRequest(**fields), workspace=workspace)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"threads": 4096}, "4096 threads"),
        ({"threads": 4096, "runtime": "all"}, "4096 threads"),
        ({"precision": "fp16"}, "has no fp16 arithmetic"),
        ({"precision": "fp16", "runtime": "all"}, "has no fp16 arithmetic"),
        ({"device": "s9", "runtime": "onnx"}, "onnx files are measured on this machine only"),
    ],
)
def test_what_a_device_does_not_do_is_refused_before_anything_is_built(workspace, monkeypatch, fields, said):
    def build(*_, **__):
        pytest.fail("it is built")

    monkeypatch.setattr(builder, "build_all", build)
    monkeypatch.setattr(arithmetic, "_X86_HALF", ("no such feature",))
    monkeypatch.setattr(arithmetic, "_ARM_HALF", "no such feature")
    verb = hwbench.bench_engines if fields.get("runtime") == "all" else hwbench.bench
    with pytest.raises(InvalidValue, match=said):
        verb(hwbench.BenchRequest(model="zoo:x3d-xs", **fields), workspace=workspace)


@pytest.mark.parametrize("runtime", [None, "all"])
def test_threads_beyond_the_limit_of_a_container_are_refused_before_anything_is_built(
    workspace, monkeypatch, tmp_path, runtime
):
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "self").write_text("0::/\n")
    monkeypatch.setattr(control_group, "OWN", ControlGroup(tmp_path, tmp_path / "self"))
    monkeypatch.setattr(builder, "build_all", lambda *_, **__: pytest.fail("it is built"))
    verb = hwbench.bench_engines if runtime else hwbench.bench
    with pytest.raises(InvalidValue, match="2 threads were asked for, the container of this process has"):
        verb(hwbench.BenchRequest(model="zoo:x3d-xs", threads=2, runtime=runtime), workspace=workspace)


def test_a_file_has_its_own_classes(workspace, tmp_path):
    path = tmp_path / "model.pte"
    path.write_bytes(b"")
    with pytest.raises(InvalidValue, match=r"--classes is for networks by name; the head of .* is in the file"):
        hwbench.bench(hwbench.BenchRequest(model=str(path), classes=3), workspace=workspace)


def archive(path, word):
    with zipfile.ZipFile(path, "w") as entries:
        entries.writestr("model.xml", "")
        entries.writestr("model.bin", "")
        if word is not None:
            entries.writestr("precision.txt", word)
    return path


def test_an_archive_of_openvino_is_in_the_precision_that_it_tells(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "engine_version", lambda runtime: "2026.4.1")
    path = archive(tmp_path / "mine.ovz", "fp32")
    artifact, precision = artifact_of(path, None, None)
    assert (artifact.workload.precision, precision) == ("fp32", "fp32")
    assert artifact_of(path, "openvino", "fp32")[1] == "fp32"
    with pytest.raises(InvalidValue, match="is in fp32, not in int8; leave --precision out"):
        artifact_of(path, None, "int8")
    write_manifest(path, "int8")
    with pytest.raises(InvalidFile, match=r"is in fp32, and manifest.json beside it says int8; export it again"):
        artifact_of(path, None, None)


@pytest.mark.parametrize("word", [None, "fp33", b"\xff"])
def test_an_archive_of_openvino_without_a_precision_is_refused(tmp_path, word):
    with pytest.raises(InvalidFile, match=r"expected an OpenVINO model as hwbench export .* export it again"):
        artifact_of(archive(tmp_path / "mine.ovz", word), None, None)


def test_a_name_longer_than_that_of_a_file_may_be_is_no_file():
    assert model_file("x3d-mobile@1x3x8x112x112:" + "_".join(["k3x3x3"] * 60)) is None


def test_a_folder_without_a_model_says_so_and_that_of_a_run_names_its_checkpoint(tmp_path):
    run = tmp_path / "my run"
    run.mkdir()
    said = r"my run: the folder holds no model file \(model.pte, .* or model.ts\); make one: hwbench export"
    with pytest.raises(InvalidFile, match=f"{said} CHECKPOINT --out DIR"):
        model_file(str(run))
    (run / "checkpoint.pt").write_bytes(b"weights")
    with pytest.raises(InvalidFile, match=f"{said} '.*/my run/checkpoint.pt' --out DIR"):
        model_file(str(run))


@pytest.mark.parametrize("separator", ["\t", "\n", "\r"])
def test_a_path_that_the_list_of_the_runner_cannot_hold_is_refused_in_one_line(workspace, tmp_path, separator):
    path = tmp_path / f"my{separator}model.pte"
    shutil.copyfile(PROGRAM, path)
    with pytest.raises(InvalidFile, match="expected a path without tabs and line breaks; rename it") as raised:
        hwbench.bench(hwbench.BenchRequest(model=str(path), samples=5, seconds=0.02), workspace=workspace)
    assert len(str(raised.value).splitlines()) == 1


def test_the_help_names_all_files_that_are_measured():
    from hwbench.api.requests import fields_of

    (model,) = [one for one in fields_of(hwbench.BenchRequest) if one.name == "model"]
    assert f"A {suffixes()} file, " in model.option.help


def test_the_legal_states_of_caches_are_those_of_the_protocol():
    from hwbench.api.requests import fields_of
    from hwbench.specs import CacheState

    (cache,) = [one for one in fields_of(hwbench.BenchRequest) if one.name == "cache"]
    assert cache.option.choices == tuple(map(str, CacheState))


def test_doctor_returns_findings_and_prints_nothing(workspace, capfd):
    result = hwbench.doctor(workspace=workspace)
    assert result.ok
    assert {"python", "torch", "workspace", "disk"} <= {finding.name for finding in result.findings}
    assert len(result.to_frame()) == len(result.findings)
    assert list(result.to_json()) == ["ok", "cpus", "findings"]
    assert capfd.readouterr() == ("", "")


def test_doctor_cleans_only_when_asked(tmp_path):
    workspace = Workspace.create(tmp_path / "bench")
    workspace.cache.mkdir()
    build = workspace.cache / f"{'ab' * 32}.pte"
    build.write_bytes(bytes(5000))
    assert hwbench.doctor(workspace=workspace).cleaned is None
    assert build.is_file()
    talk = Talk()
    cleaned = hwbench.doctor(hwbench.DoctorRequest(clean=True), talk, workspace=workspace).cleaned
    assert cleaned["cache"].removed_bytes == 5000
    assert not build.is_file()
    assert any("removed" in line for line in talk.lines)


def test_a_latency_by_processor_time_is_told(result):
    taken = Session((0.008,) * 10, cpu_s=0.04, wall_s=0.08, involuntary_switches=12).on_the_processor()
    talk, clean = Talk(), Session((0.004,) * 10, cpu_s=0.04, wall_s=0.04)
    shared = replace(result.measurement, outcome=Outcome.OK, sessions=(taken, taken, clean))
    artifact = Artifact(
        Path("model.pte"), "0" * 64, result.measurement.workload, "executorch", "1.5.1", DelegationReport(1)
    )
    assert stats_of(shared, artifact, listener=talk).median_s == pytest.approx(0.004)
    assert [line for line in talk.lines if "2 of 3 sessions count by processor time" in line]
    talk.lines.clear()
    stats_of(replace(shared, sessions=(clean, clean)), artifact, listener=talk)
    assert talk.lines == []


@pytest.mark.parametrize(
    ("threads", "cache", "why"),
    [
        (2, "warm", ", since their processor time is that of all threads together"),
        (1, "flush", ", since their processor time is that of sample and emptying the caches"),
        (1, "warm", ""),
    ],
)
def test_sessions_that_count_by_the_clock_are_not_told_as_processor_time(result, threads, cache, why):
    """Samples of 18 ms in which 19 ms of processor time pass, as on a shared core: 10 ms where nothing else runs."""
    taken = Session((0.018,) * 10, cpu_s=0.19, wall_s=0.18, involuntary_switches=20)
    target, timing = replace(result.measurement.target, threads=threads), replace(session_timing(50, 1.5), cache=cache)
    sessions = trusted([(taken, "preempted")] * 3, timing)
    shared = replace(result.measurement, target=target, timing=timing, sessions=sessions)
    artifact = Artifact(Path("model.pte"), "0" * 64, shared.workload, "executorch", "1.5.1", DelegationReport(1))
    talk = Talk()
    stats = stats_of(shared, artifact, listener=talk)
    assert stats.median_s == 0.018
    told = "other programs kept taking the core: 3 of 3 sessions count by the clock on the wall, waiting included"
    assert talk.lines == [f"{told}{why}: the latency is an upper bound"]
    slow = file_profile.ProfiledOperation("Conv", "convolution", 0.012, 1, attributed=False)
    profile = file_profile.FileProfile(0.018, (slow,), unattributed="this is a test")
    measured = replace(result, stats=stats, measurement=shared, profile=profile)
    assert measured.to_json()["profile"]["unaccounted_ms"] == pytest.approx(6.0)
    remainder = bench_module._remainder(profile, measured)
    assert remainder.startswith("the operations account for 67% of the latency: the rest is what other programs took")
    talk.lines.clear()
    stats_of(replace(shared, emulated=True), artifact, listener=talk)
    assert talk.lines == []


def test_processor_time_of_several_threads_is_told_as_an_upper_bound(result):
    taken = Session((0.030,) * 10, cpu_s=0.19, wall_s=0.3, involuntary_switches=20).on_the_processor()
    shared = replace(result.measurement, target=replace(result.measurement.target, threads=2), sessions=(taken,) * 3)
    talk = Talk()
    bench_module.tell_preempted_sessions(shared, talk)
    assert [line.partition("3 of 3 sessions ")[2] for line in talk.lines] == [
        "count by processor time, which is that of all threads together: an upper bound"
    ]


def test_a_session_that_took_too_long_says_how_to_give_it_longer(result):
    artifact = Artifact(
        Path("model.pte"), "0" * 64, result.measurement.workload, "executorch", "1.5.1", DelegationReport(1)
    )
    timing = session_timing(50, 1.5)
    late = replace(result.measurement, outcome=Outcome.TIMEOUT, reason="took longer than 62 s", timing=timing)
    with pytest.raises(CheckFailed, match=r"took longer than 62 s; leave the device alone .*--seconds [0-9]+$") as told:
        stats_of(late, artifact)
    seconds = int(str(told.value).rpartition(" ")[2])
    assert session_timing(50, seconds).timeout_s == pytest.approx(2 * timing.timeout_s, rel=0.05)
    with pytest.raises(CheckFailed, match=r"gone; run the command again$"):
        stats_of(replace(late, outcome=Outcome.CRASH, reason="gone"), artifact)


@pytest.mark.parametrize(
    ("from_user", "reason"),
    [
        (True, ".onnx files do not keep which module an operation comes from"),
        (
            False,
            "the onnx runtime does not tell which module an operation comes from; --runtime executorch does",
        ),
    ],
)
def test_why_there_are_no_times_by_block_is_told_of_what_was_named(workspace, result, monkeypatch, from_user, reason):
    path, measured = Path("x.onnx"), result.measurement
    artifact = Artifact(path, "0" * 64, measured.workload, "onnx", "1", DelegationReport(0))
    operations = file_profile.attributed(OperationProfile(1.0, (OperationTime("Conv", 1.0, 1),)), path)
    monkeypatch.setattr(bench_module, "bench_model", lambda *_: BenchModel(artifact, "fp32", "fp32", from_user))
    monkeypatch.setattr(on_device, "measure_artifact", lambda *_, **__: measured)
    monkeypatch.setattr(file_profile, "profile_artifact", lambda *_, **__: operations)
    talk = Talk()
    request = hwbench.BenchRequest(model=NETWORK, runtime="onnx", profile=True)
    profile = hwbench.bench(request, talk, workspace=workspace).to_json()["profile"]
    assert profile["unattributed"] == reason
    assert f"no times by block: {reason}" in talk.lines


def test_a_precision_that_only_the_user_says_is_shown_and_counts_for_no_search(workspace, result, monkeypatch):
    courses = []

    def sustain(workspace, device, artifact, facts, **options):
        courses.append(facts)

    monkeypatch.setattr(bench_module, "sustain", sustain)
    monkeypatch.setattr(on_device, "measure_artifact", lambda *_, **__: result.measurement)
    talk = Talk()
    request = hwbench.BenchRequest(model=result.model, precision="int8", sustained="5min")
    assert hwbench.bench(request, talk, workspace=workspace).precision == "int8"
    assert isinstance(courses[0], CourseFacts)
    assert courses[0].precision == ""
    assert any("search --sustained does not use this course" in line for line in talk.lines)
    manifest = write_manifest(Path(result.model), "int8")
    try:
        hwbench.bench(request, workspace=workspace)
    finally:
        manifest.unlink()
    assert courses[1].precision == "int8"


@pytest.mark.parametrize(("emulated", "told"), [(False, 1), (True, 0)])
def test_fewer_samples_than_were_asked_for_are_told(result, emulated, told):
    sessions = (Session(samples_s=(1.0, 1.0)),) * 5
    slow, talk = replace(result.measurement, sessions=sessions, emulated=emulated), Talk()
    tell_missing_samples(LatencyStats.of(sessions), slow, 10, talk)
    assert talk.lines == []
    tell_missing_samples(LatencyStats.of(sessions), slow, 50, talk)
    assert (
        len([line for line in talk.lines if "10 samples, 50 were asked for" in line and "--seconds 50" in line]) == told
    )


def missing_samples(result, *sessions, samples=50, seconds=1.5):
    """What is told of these sessions, where 50 samples and 1.5 s were asked for: a session ends after 2 s."""
    measured, talk = replace(result.measurement, sessions=sessions, timing=session_timing(samples, seconds)), Talk()
    tell_missing_samples(LatencyStats.of(sessions), measured, samples, talk)
    return talk.lines


def test_samples_that_other_programs_cost_are_told_as_that(result):
    """Of a network of 3 ms sessions end long before 2 s: 60 samples each were thrown away on a shared core."""
    crowded = Session((0.003,) * 4, cpu_s=0.012, wall_s=0.012, disturbed=60)
    whole = Session((0.003,) * 100, wall_s=0.3, disturbed=10)
    (line,) = missing_samples(result, *(crowded,) * 5)
    assert line.startswith("20 samples, 50 were asked for: 300 more were thrown away, since other programs shared the")
    assert "leave the device alone" in line
    assert "--seconds" not in line
    (line,) = missing_samples(result, crowded, *(replace(whole, samples_s=(0.003,) * 11),) * 4)
    assert "48 samples" in line
    assert "60 more" in line


def test_longer_sessions_are_advised_where_sessions_ended_at_their_limit(result):
    slow = Session((0.5,) * 4, wall_s=2.0)
    assert missing_samples(result, *(slow,) * 5) == [
        "20 samples, 50 were asked for: a session ends after 2 s; --seconds 25 is long enough"
    ]
    beside = replace(slow, samples_s=(0.5,) * 3, wall_s=2.1, disturbed=1)  # ended at the limit all the same
    assert "--seconds 35" in missing_samples(result, *(beside,) * 5)[0]
    waiting = Session((0.3,) * 4, cpu_s=0.4, wall_s=2.0, involuntary_switches=9).on_the_processor()
    (line,) = missing_samples(result, *(waiting,) * 5)
    assert "--seconds 25 " in line  # by the wall: 50 samples of 0.1 s on the processor would be 5 s
    crowded = Session((0.1,) * 4, wall_s=0.4, disturbed=12)
    assert len(missing_samples(result, slow, *(crowded,) * 4)) == 2


def test_no_advice_is_at_or_below_what_was_asked_for(result):
    short = Session((0.003,) * 4, wall_s=0.012)  # of a runner that ends sessions as it likes
    assert missing_samples(result, *(short,) * 5) == ["20 samples, 50 were asked for: run the command again"]
    for seconds in (0.0, 1.5, 30.0):
        limit_s = session_timing(50, seconds).max_session_s
        lines = missing_samples(result, *(Session((limit_s / 9,) * 9, wall_s=limit_s),) * 5, seconds=seconds)
        assert int(lines[0].split("--seconds ")[1].split()[0]) > seconds


@pytest.mark.parametrize(("away_s", "goes_on"), [(-300.0, True), (-900.0, False), (300.0, True), (8 * 3600.0, False)])
def test_an_interrupted_course_goes_on_within_ten_minutes_whichever_way_the_clock_was_off(tmp_path, away_s, goes_on):
    workspace = Workspace.create(tmp_path / "bench")
    facts = CourseFacts("phone/onnx-1/t1", "net", "ab" * 32, "fp32", "2026-11-25T02:00:00+00:00", 0.03, 0.0297, 0.0303)
    log = CourseLog.begin(workspace.sustained / "phone", facts)
    log.add(CoursePoint(1.0, 2.0, 0.03, 60))
    at_s = time.time() + away_s
    os.utime(log.path, (at_s, at_s))
    found = _interrupted(workspace, facts)
    assert (found is not None and found.path == log.path) == goes_on
