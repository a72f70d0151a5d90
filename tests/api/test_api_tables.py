"""``hwbench.validate``, ``hwbench.diff`` and ``hwbench.verify``: what comes back is what the commands print."""

import contextlib
import shutil

import pytest
from measured import CONDITIONS, TARGET, as_json, fake_device

import hwbench
from hwbench.errors import CheckFailed, InvalidValue
from hwbench.latency import LatencyTable, table_path
from hwbench.latency.occasions import Scale
from hwbench.measure.store_types import fingerprint
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import space_table, work
from hwbench.workspace import Workspace

INT8 = Precision.INT8


def with_table(root):
    """A workspace with a table after the law of the fake device."""
    workspace = Workspace.create(root)
    table = space_table(
        load_space(workspace, "x3d-tiny"), INT8, target=TARGET, calibration=4, conditions=fingerprint(CONDITIONS)
    )
    table.write(table_path(workspace.root, TARGET, INT8))
    return workspace


@pytest.fixture
def workspace(tmp_path):
    return with_table(tmp_path / "bench")


@pytest.fixture
def fake(workspace, monkeypatch, tmp_path):
    return fake_device(monkeypatch, tmp_path / "files")


@pytest.fixture
def path(workspace):
    return table_path(workspace.root, TARGET, INT8)


def test_validation_is_what_the_command_prints_and_the_listener_hears_it(workspace, fake, tmp_path, monkeypatch):
    ears = Keeper()
    result = hwbench.validate(hwbench.ValidateRequest(networks=4), ears, workspace=workspace)
    printed = as_json(monkeypatch, with_table(tmp_path / "other"), "validate", "--networks", "4")
    assert result.to_json() == printed
    assert list(result.to_json()) == list(printed)
    assert len(ears.rows) == 4 + printed["again"]
    assert [at.done for at in ears.stages if at.stage == "measure"][-1] == len(ears.rows)
    assert f"calibration: {result.calibration}" in ears.lines
    assert result.change is None
    frame = result.to_frame()
    assert list(frame.columns) == [*printed["results"][0], "error", "covered"]
    assert list(frame.architecture) == [one["architecture"] for one in printed["results"]]
    assert frame.error.abs().max() < 0.2


def test_a_slower_device_is_heard_of(workspace, fake):
    fake.law = lambda workload: 1.2 * work(workload)
    ears = Keeper()
    result = hwbench.validate(hwbench.ValidateRequest(networks=3), ears, workspace=workspace)
    assert "the device is slower now" in result.change
    assert ears.lines[-1] == result.change


def test_validation_of_nothing_is_a_failed_check(workspace, fake):
    fake.failures = dict.fromkeys(space_workloads(workspace), (Outcome.CRASH, "killed"))
    fake.law = lambda workload: 1 / 0  # what has no failure is not measured either
    fake.build = lambda workloads: iter(())
    with pytest.raises(CheckFailed, match="only 0 of 3 networks could be measured"):
        hwbench.validate(hwbench.ValidateRequest(networks=3), workspace=workspace)


def test_validation_of_one_network_says_that_the_table_knows_the_others(workspace, fake, monkeypatch):
    space = load_space(workspace, "x3d-tiny")
    networks = list(space.architectures())
    monkeypatch.setattr("hwbench.api.validate.fresh_networks", lambda *_: [space.network(networks[0], 8)])
    ears = Keeper()
    with pytest.raises(CheckFailed, match="needs two networks that the calibration of the table") as found:
        hwbench.validate(hwbench.ValidateRequest(networks=3), ears, workspace=workspace)
    assert "space 'x3d-tiny' has 1: the table knows all others" in str(found.value)
    assert ears.rows == []


def space_workloads(workspace):
    return list(load_space(workspace, "x3d-tiny").parts(INT8, num_classes=8))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"precision": "fp8"}, "expected fp32, fp16, bf16 or int8"),
        ({"networks": 1}, "--networks: expected at least 2, got 1"),
        ({"interpolate": True, "transfer_from": "s9"}, "choose one"),
    ],
)
def test_a_wrong_validation_cannot_be_asked_for(fields, message):
    with pytest.raises(InvalidValue, match=message):
        hwbench.ValidateRequest(**fields)


def test_a_diff_compares_the_days_that_predictions_speak_of(workspace, path):
    table = LatencyTable.read(path)
    for name, factor in (("quick", 1.0), ("slow", 1.1)):
        scale = Scale(factor, factor / 1.002, factor * 1.002, "2026-01-31T22:15Z")
        of_day = LatencyTable(table.target, table.precision, table, scale=scale)
        of_day.write(workspace.root / f"{name}.csv")
    request = hwbench.DiffRequest(before="quick.csv", after="slow.csv")
    with contextlib.chdir(workspace.root):
        (diff,) = hwbench.diff(request, workspace=workspace).tables
    assert (diff.changes.shifted, diff.changes.moved) == (True, ())
    assert diff.changes.shift == pytest.approx(0.1)


def test_a_diff_is_no_surer_than_the_scales_of_the_tables(workspace, path):
    table = LatencyTable.read(path)
    for name, factor in (("quick", 1.0), ("slow", 1.03)):
        scale = Scale(factor, factor / 1.03, factor * 1.03, "2026-01-31T22:15Z")
        LatencyTable(table.target, table.precision, table, scale=scale).write(workspace.root / f"{name}.csv")
    request = hwbench.DiffRequest(before="quick.csv", after="slow.csv")
    with contextlib.chdir(workspace.root):
        (diff,) = hwbench.diff(request, workspace=workspace).tables
    assert (diff.changes.shifted, diff.changes.moved, diff.changes.agreeing) == (False, (), 1.0)
    assert diff.changes.shift == pytest.approx(0.03)
    assert (diff.changes.shift_low, diff.changes.shift_high) == pytest.approx((-0.012, 0.074), abs=0.002)


def test_a_diff_is_what_the_command_prints(workspace, path, monkeypatch):
    old = workspace.root / "old.csv"
    shutil.copy(path, old)
    slower = space_table(
        load_space(workspace, "x3d-tiny"), INT8, lambda w: 1.05 * work(w), target=TARGET, calibration=4
    )
    slower.write(path)
    request = hwbench.DiffRequest(before=str(old), after=str(path))
    result = hwbench.diff(request, workspace=workspace)
    printed = as_json(monkeypatch, workspace, "profile", "diff", str(old), str(path))
    assert result.to_json() == printed
    assert list(result.to_json()) == list(printed)
    assert (result.moved, result.shifted) == (0, (path.stem,))
    (table,) = printed["tables"]
    frame = result.to_frame()
    assert list(frame.columns) == ["table", *table["rows"][0]]
    assert list(frame.row) == [row["row"] for row in table["rows"]]
    assert set(frame.table) == {path.stem}
    assert frame.change.median() == pytest.approx(0.05, abs=1e-3)


def test_a_verified_table_is_what_the_command_prints(workspace, path, fake, monkeypatch):
    ears = Keeper()
    result = hwbench.verify(hwbench.VerifyRequest(model=path, rows=5), ears, workspace=workspace)
    printed = as_json(monkeypatch, workspace, "verify", str(path), "--rows", "5")
    assert result.to_json() | {"samples": ""} == printed | {"samples": ""}
    assert list(result.to_json()) == list(printed)
    assert result.samples.is_file()
    assert (result.holds, result.agree, len(ears.rows)) == (True, 5, 5)
    result.check()
    frame = result.to_frame()
    assert list(frame.columns) == ["table", *printed["rows"][0]]
    assert {*frame.row} == {row.workload.key for row in ears.rows}


def test_a_table_that_does_not_hold_is_a_value_and_a_failed_check_where_asked(workspace, path, fake):
    fake.law = lambda workload: 1.3 * work(workload)
    before = path.read_bytes()
    result = hwbench.verify(hwbench.VerifyRequest(model=path, rows=4), workspace=workspace)
    assert not result.holds
    assert result.agree < 4
    with pytest.raises(CheckFailed, match=r"the table does not hold: .* --remeasure"):
        result.check()
    assert path.read_bytes() == before
    assert len(LatencyTable.read(path).to_frame()) == len(LatencyTable.read(path))
