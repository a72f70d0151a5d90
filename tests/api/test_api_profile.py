"""``hwbench.profile``: what its request refuses, what its listener hears, and what comes back."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from measured import TARGET, as_json, fake_device

import hwbench
import hwbench.cli.commands
from hwbench.api import campaigns
from hwbench.api.parallel_profile import arguments_of, profile_each
from hwbench.api.profile import DeviceProfile
from hwbench.api.profile_request import CONDITIONS
from hwbench.api.requests import fields_of
from hwbench.cli.listening import listening
from hwbench.cli.main import app
from hwbench.devices import Conditions
from hwbench.errors import InvalidValue, UnknownName
from hwbench.latency import LatencyTable, table_path
from hwbench.measure.store import MeasurementStore
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision, Target
from hwbench.testing.listeners import Keeper
from hwbench.workspace import Workspace

FEW = {"precision": "fp32", "limit": 6, "calibrate": 1}
TYPED = ("--precision", "fp32", "--limit", "6", "--calibrate", "1")


@pytest.fixture
def workspace(tmp_path):
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def fake(workspace, monkeypatch):
    return fake_device(monkeypatch, workspace.root / "files")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"precision": "fp8"}, "expected fp32, fp16, bf16 or int8, got 'fp8'"),
        ({"precision": ","}, "--precision: expected fp32, fp16, bf16, int8"),
        ({"budget": "12"}, "--budget: '12' has no unit"),
        ({"budget": "12 ms", "networks_only": True}, "--budget and --networks-only do not go together"),
        ({"all_rows": True, "accuracy": "1%"}, "whatever the accuracy is by then; leave --accuracy out"),
        ({"networks_only": True, "all_rows": True}, "whole networks alone; leave --all-rows out"),
        ({"networks_only": True, "variants": "all", "accuracy": "1%"}, "leave --accuracy and --variants out"),
        ({"networks_only": True, "calibrate": 0}, "--networks-only: expected at least --calibrate 1, got 0"),
        ({"conditions": "cold"}, "--conditions: expected stock or controlled, got 'cold'"),
        ({"device": " , "}, "--device: expected the name of a device"),
        ({"limit": 0}, "--limit: expected at least 1, got 0"),
        ({"threads": "2"}, "--threads: expected int, got '2'"),
    ],
)
def test_a_wrong_request_cannot_be_made(fields, message):
    with pytest.raises(InvalidValue) as caught:
        hwbench.ProfileRequest(**fields)
    assert message in str(caught.value)


def test_texts_of_a_request_are_read_where_they_are_asked_for():
    request = hwbench.ProfileRequest(device="pi, s9,pi", precision="int8,fp32", budget="12 ms")
    assert request.devices == ("pi", "s9")
    assert request.precisions == (Precision.INT8, Precision.FP32)
    assert request.budget_s == pytest.approx(0.012)
    assert tuple(Conditions) == CONDITIONS


def test_the_listener_hears_every_row_and_how_far_it_is(workspace, fake):
    parts = list(load_space(workspace, "x3d-tiny").parts(Precision.FP32, num_classes=8))
    fake.failures = dict.fromkeys(parts[::2], (Outcome.CRASH, "killed by SIGSEGV"))
    ears = Keeper()
    result = hwbench.profile(hwbench.ProfileRequest(**FEW), ears, workspace=workspace)
    (device,) = result.devices
    assert (device.ok + device.failed, device.skipped, result.status) == (6, 0, 0)
    assert len(ears.rows) == len({row.workload for row in ears.rows}) == 6
    assert sum(row.outcome is Outcome.CRASH for row in ears.rows) == device.failed
    assert 0 < device.failed < 6
    for stage in ("build", "measure"):
        heard = [at for at in ears.stages if at.stage == stage]
        assert (heard[0].done, heard[-1].done, heard[-1].total) == (0, 6, 6)
        assert [at.done for at in heard] == sorted(at.done for at in heard)
        assert heard[-1].rate.endswith(("/s", "/min"))
    assert any(f"{device.failed} failed" in at.note for at in ears.stages)
    assert any(at.note.startswith("session 1 of ") for at in ears.stages)
    assert any("killed by SIGSEGV" in line for line in ears.lines)


def _timeless(values):
    """What a profile says, without how long it took and the minute in which its rows were measured."""
    assert values["scales"]
    return values | {"seconds": 0, "scales": [scale | {"scale_at": ""} for scale in values["scales"]]}


def test_what_comes_back_is_what_the_command_prints(workspace, fake, tmp_path, monkeypatch):
    other = Workspace.create(tmp_path / "other")
    values = hwbench.profile(hwbench.ProfileRequest(**FEW), workspace=workspace).to_json()
    printed = as_json(monkeypatch, other, "profile", *TYPED)
    assert _timeless(values) == _timeless(printed)
    assert list(values) == list(printed)
    assert DeviceProfile.parse(printed, other.root).to_json() == printed
    again = hwbench.profile(hwbench.ProfileRequest(**FEW), workspace=other).to_json()
    assert (again["ok"], again["skipped"]) == (6, 6)
    paths = [table_path(one.root, TARGET, Precision.FP32) for one in (workspace, other)]
    assert LatencyTable.read(paths[0]).text != LatencyTable.read(paths[1]).text


def test_rows_are_measured_again_under_either_spelling(workspace, fake, monkeypatch):
    hwbench.profile(hwbench.ProfileRequest(**FEW), workspace=workspace)
    ears = Keeper()
    request = hwbench.ProfileRequest(**FEW, remeasure=True)
    assert hwbench.profile(request, ears, workspace=workspace).devices[0].ok == 6
    assert any("6 measured rows are measured again" in line for line in ears.lines)
    for spelling in ("--remeasure", "--anew"):
        assert as_json(monkeypatch, workspace, "profile", *TYPED, spelling)["ok"] == 6


def test_rows_of_a_kind_whose_package_is_gone_stay_in_table_and_store(workspace, fake):
    gone = "tsm_i8_o8_k1x3x3_fold8_relu@1x8x4x16x16/fp32/auto"
    (first,) = hwbench.profile(hwbench.ProfileRequest(**FEW), workspace=workspace).devices
    path = table_path(workspace.root, TARGET, Precision.FP32)
    row = next(iter(LatencyTable.read(path)))
    path.write_text(path.read_text().replace(row.workload.key, gone))
    with MeasurementStore(workspace.store) as store, store.database.transaction() as db:
        db.execute("UPDATE measurements SET workload = ? WHERE workload = ?", (gone, row.workload.key))
    assert hwbench.profile(hwbench.ProfileRequest(**FEW), workspace=workspace).devices[0].ok == first.ok
    assert {gone, row.workload.key} <= {row.workload.key for row in LatencyTable.read(path)}
    path.unlink()
    assert hwbench.profile(hwbench.ProfileRequest(**FEW), workspace=workspace).devices[0].ok == first.ok
    assert hwbench.report(hwbench.ReportRequest(device="local", out=workspace.root / "d.html"), workspace=workspace)


def test_a_limit_of_what_is_measured_again_takes_the_oldest_rows(workspace, fake):
    hwbench.profile(hwbench.ProfileRequest(**FEW), workspace=workspace)
    taken = []
    for _ in range(2):
        visits = len(fake.visits)
        hwbench.profile(hwbench.ProfileRequest(**FEW | {"limit": 3}, remeasure=True), workspace=workspace)
        taken.append(set(fake.visits[visits:]))
    assert [len(one) for one in taken] == [3, 3]
    assert not taken[0] & taken[1]


@pytest.mark.parametrize(("networks", "few"), [(0, False), (1, True), (2, True), (3, False)])
def test_too_few_networks_to_search_by_are_told_before_anything_is_measured(workspace, fake, networks, few):
    ears = Keeper()
    request = hwbench.ProfileRequest(precision="fp32", calibrate=networks, limit=1)
    hwbench.profile(request, ears, workspace=workspace)
    told = f"--calibrate {networks}: search and validate refuse a table with fewer than 3 calibration networks; "
    assert ears.lines[0].startswith(told) == few


@pytest.mark.parametrize(("space", "none"), [("squeeze-mobile", True), ("x3d-tiny", False)])
def test_layouts_of_a_space_that_has_one_are_told(workspace, fake, space, none):
    ears = Keeper()
    request = hwbench.ProfileRequest(space=space, precision="fp32", variants="all", calibrate=0, limit=1)
    hwbench.profile(request, ears, workspace=workspace)
    assert any(line.startswith(f"--variants all: no block of {space} has a kernel") for line in ears.lines) == none


def test_rows_that_spaces_share_are_measured_again_once(workspace, fake):
    spaces = workspace.root / "search_spaces"
    text = (spaces / "x3d-tiny.toml").read_text()
    (spaces / "twin.toml").write_text(text.replace('name = "x3d-tiny"', 'name = "twin"'))
    request = hwbench.ProfileRequest(space="x3d-tiny,twin", precision="fp32", calibrate=3, networks_only=True)
    first = hwbench.profile(request, workspace=workspace).devices[0].ok
    ears = Keeper()
    again = hwbench.profile(replace(request, remeasure=True), ears, workspace=workspace)
    assert again.devices[0].ok == len(ears.rows) == first


def test_what_a_limit_leaves_of_remeasuring_is_told(workspace, fake):
    request = hwbench.ProfileRequest(space="x3d-tiny", precision="fp32", calibrate=4, networks_only=True)
    hwbench.profile(request, workspace=workspace)
    ears = Keeper()
    found = hwbench.profile(replace(request, remeasure=True, limit=3), ears, workspace=workspace).devices[0]
    assert (found.ok, found.accuracies[0].stopped) == (3, "limit")
    (line,) = [line for line in ears.lines if "are measured again" in line]
    assert line.endswith("go on without --remeasure; --limit leaves 1 to the next --remeasure")


@pytest.mark.parametrize(
    ("space", "budget", "stopped"), [("x3d-tiny", "4 ms", "rows"), ("x3d-mini", "2 ms", "accuracy")]
)
def test_an_emulated_device_is_profiled_within_a_budget(workspace, fake, monkeypatch, space, budget, stopped):
    place = campaigns.place_campaign

    @contextmanager
    def emulated(*args, **options):
        with place(*args, **options) as campaign:
            yield replace(campaign, emulated=True)

    monkeypatch.setattr(campaigns, "place_campaign", emulated)
    request = hwbench.ProfileRequest(space=space, precision="int8", classes=8, budget=budget, accuracy="10%")
    result = hwbench.profile(replace(request, aa=False), workspace=workspace)
    (found,) = result.devices[0].accuracies
    assert result.tables[0].emulated
    assert found.stopped == stopped


def test_frames_have_the_columns_of_the_table(workspace, fake):
    parts = list(load_space(workspace, "x3d-tiny").parts(Precision.INT8, num_classes=8))
    fake.failures = {parts[0]: (Outcome.CRASH, "killed")}
    request = hwbench.ProfileRequest(calibrate=0)
    result = hwbench.profile(request, workspace=workspace)
    frame = result.to_frame()
    table = LatencyTable.read(table_path(workspace.root, TARGET, Precision.INT8))
    columns = table.text.splitlines()[1].split(",")
    assert list(frame.columns) == ["device", "target", "precision", *columns]
    assert list(table.to_frame().columns) == columns
    assert set(frame.precision) == {"fp32", "int8"}
    assert len(frame) == sum(map(len, result.tables))
    row = frame[frame.key == parts[1].key].iloc[0]
    stats = table[parts[1]]
    assert (row.median_s, row.sessions, row.outcome) == (stats.median_s, stats.num_sessions, "ok")
    failed = frame[frame.outcome != "ok"]
    assert list(failed.key) == [parts[0].key]
    assert failed.median_s.isna().all()
    assert failed.samples.isna().all()
    with MeasurementStore(workspace.store) as store:
        measured, nowhere = store.to_frame("local"), store.to_frame("s9")
        assert len(store.to_frame()) == len(measured) == len(frame)
    assert list(nowhere.columns) == list(measured.columns)
    assert len(nowhere) == 0
    both = measured.merge(frame, on="key", suffixes=("_stored", "_published"))
    assert both[both.outcome_stored == "ok"].median_s_stored.notna().all()
    assert (both.outcome_stored == both.outcome_published).all()


def test_an_empty_table_has_a_frame(workspace):
    frame = LatencyTable(TARGET, Precision.FP32, []).to_frame()
    assert (len(frame), str(frame.median_s.dtype), str(frame.sessions.dtype)) == (0, "float64", "Int64")


def test_names_are_looked_up_before_anything_is_measured(workspace, fake):
    for fields in ({"device": "lokal"}, {"device": "local,lokal"}, {"space": "x3d"}, {"variants": "segment"}):
        with pytest.raises(UnknownName):
            hwbench.profile(hwbench.ProfileRequest(**fields), workspace=workspace)
    assert fake.visits == []


FIELDS = {
    "space": "x3d-mobile", "precision": "int8", "threads": 2, "runtime": "onnx", "limit": 7,
    "accuracy": "3%", "all_rows": False, "refresh": False, "budget": "9 ms", "streaming": False,
    "classes": 5, "calibrate": 0, "networks_only": False, "processes": 2, "retry": True, "remeasure": True,
    "variants": "all", "conditions": "stock", "aa": False,
}  # fmt: skip


@pytest.mark.parametrize("fields", [{}, FIELDS, {"all_rows": True}, {"networks_only": True}, {"streaming": True}])
def test_a_process_of_its_own_gets_the_whole_request(fields):
    request = hwbench.ProfileRequest(device="pi,s9", **fields)
    command = typer.main.get_command(app).commands["profile"]
    context = command.make_context("profile", ["--device", "pi,s9", *arguments_of(request), "--json"])
    names = {one.name for one in fields_of(hwbench.ProfileRequest)}
    assert {"device", *FIELDS} == names
    assert hwbench.ProfileRequest(**{name: context.params[name] for name in names}) == request


def test_a_process_that_is_killed_has_the_status_of_a_shell(workspace, monkeypatch):
    (workspace.root / "killed.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.chdir(workspace.root)
    request, keeper = hwbench.ProfileRequest(device="local,s9", space="killed:make"), Keeper()
    result = hwbench.profile(request, keeper, workspace=workspace)
    assert (result.status, result.statuses) == (137, {"local": 137, "s9": 137})
    assert result.to_json() == {"devices": [{"device": name, "status": 137} for name in result.statuses]}
    assert "[local] ended by signal 9 (Killed); the same command goes on" in keeper.lines


def test_models_of_the_current_folder_are_found_in_a_process_of_its_own(workspace, tmp_path, monkeypatch):
    below, lib, keeper = workspace.root / "below", workspace.root / "lib", Keeper()
    for folder, module in ((below, "of_folder"), (lib, "of_path")):
        folder.mkdir()
        (folder / f"{module}.py").write_text("")
    monkeypatch.chdir(below)
    monkeypatch.setenv("PYTHONPATH", str(Path("..", "lib")))
    for module in ("of_folder", "of_path"):
        request = hwbench.ProfileRequest(space=f"{module}:make")
        assert profile_each(["local"], request, workspace.root, keeper) == ({}, {"local": 2})
        assert keeper.lines[-1].endswith(f"{module} has no 'make'; known: none")
    monkeypatch.chdir(tmp_path)  # of no workspace
    monkeypatch.setenv("PYTHONPATH", "bench/lib")
    (tmp_path / "of_outside.py").write_text("")
    (tmp_path / "json.py").write_text("raise RuntimeError('in place of that of Python')")
    for module in ("of_path", "of_outside"):
        request = hwbench.ProfileRequest(space=f"{module}:make")
        assert profile_each(["local"], request, workspace.root, keeper) == ({}, {"local": 2})
        assert keeper.lines[-1].endswith(f"{module} has no 'make'; known: none")


def test_models_of_folders_that_a_program_added_are_found_in_a_process_of_its_own(workspace, tmp_path, monkeypatch):
    (tmp_path / "of_program.py").write_text("")
    monkeypatch.chdir(workspace.root)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    request, keeper = hwbench.ProfileRequest(space="of_program:make"), Keeper()
    assert profile_each(["local"], request, workspace.root, keeper) == ({}, {"local": 2})
    assert keeper.lines[-1].endswith("of_program has no 'make'; known: none")


def test_several_devices_each_have_their_status(tmp_path):
    LatencyTable(Target("pi", "x", "1", 1), Precision.FP32, ()).write(tmp_path / "a.csv")
    profile = DeviceProfile("pi", "pi/x-1/t1", 1, 0, 0, (tmp_path / "a.csv",), tmp_path, 0.5, None)
    other = replace(profile, device="s9")
    result = hwbench.ProfileResult((profile, other), {"pi": 0, "gone": 3, "s9": 0})
    assert result.status == 3
    pi, gone, s9 = result.to_json()["devices"]
    assert (gone, pi["status"], s9["device"]) == ({"device": "gone", "status": 3}, 0, "s9")
    assert hwbench.ProfileResult((profile,), {"pi": 0}).to_json()["table"] == "a.csv"


def test_bars_stand_as_long_as_their_stage_and_later_ones_below(capsys):
    def run(listener):
        for done in range(3):
            for stage in ("build", "measure"):
                for note in ("a", "b")[: 2 - done // 2]:
                    listener.progress(hwbench.StageProgress(stage, done, 2, "1.0/s", note))

    with listening() as listener:
        listener.progress(hwbench.StageProgress("build", 0, 0))
        run(listener)
        first = capsys.readouterr().err
        listener.say("between")
        run(listener)
    second = capsys.readouterr().err
    for err in (first, second):
        assert [line.split()[0] for line in err.splitlines() if "2/2" in line] == ["build", "measure"]
    assert second.splitlines()[0] == "between"
    assert "2/2" in first.splitlines()[0]


def test_importing_loads_no_pandas_until_a_frame_is_wanted():
    source = (Path(hwbench.__file__).parent / "frames.py").read_text()
    assert source.count("import pandas") == 2  # for type checkers, and when a frame is made
