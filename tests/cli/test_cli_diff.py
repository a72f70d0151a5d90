"""``hwbench profile diff``: of files, folders and devices; what it prints, and its exit statuses."""

import json
import shutil

import pytest

from hwbench.cli.main import main
from hwbench.latency import LatencyRow, LatencyTable, table_path
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import fingerprint
from hwbench.spaces import load_space
from hwbench.specs import LatencyStats, Precision, Target, Timing
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.tables import space_table

TARGET = Target("local", "executorch", "1.5.1", 1)


@pytest.fixture
def tables(workspace):
    """The table of this machine in both precisions, and a copy of the folder as it was."""
    for precision in (Precision.FP32, Precision.INT8):
        table = space_table(load_space(workspace, "x3d-tiny"), precision, target=TARGET, calibration=2)
        table.write(table_path(workspace.root, TARGET, precision))
    shutil.copytree(workspace.root / "profiles" / "local", workspace.root / "old")
    return workspace.root / "profiles" / "local"


def run(capsys, *arguments):
    status = 0
    try:
        main(["profile", "diff", *map(str, arguments)])
    except SystemExit as end:
        status = end.code or 0
    out, err = capsys.readouterr()
    return status, out, err


def change(path, factor, rows=None):
    """Makes rows of a table (by place; None: all) slower by a factor."""
    table = LatencyTable.read(path)
    changed = []
    for at, row in enumerate(table):
        times = factor if rows is None or at in rows else 1.0
        numbers = [value * times for value in vars(row.stats).values()][:5]
        stats = LatencyStats(*numbers, row.stats.num_sessions, row.stats.num_samples)
        changed.append(LatencyRow(row.role, row.workload, row.outcome, stats, row.measured_on, row.conditions))
    LatencyTable(table.target, table.precision, changed).write(path)
    return [row.workload.key for at, row in enumerate(table) if rows is not None and at in rows]


def test_a_device_with_a_folder_as_it_was(tables, capsys):
    status, out, _ = run(capsys, "old", "local", "--json", "--fail")
    values = json.loads(out)
    assert status == 0
    assert (values["a"], values["b"], values["moved"]) == ("old", "local", 0)
    assert [one["table"] for one in values["tables"]] == ["executorch-1.5.1.fp32.t1", "executorch-1.5.1.int8.t1"]
    for one in values["tables"]:
        assert (one["agreeing"], one["shift"], one["notes"], one["only_a"], one["only_b"]) == (1, 0, [], [], [])
        assert len(one["rows"]) > 20
        assert set(one["rows"][0]) == {
            "role", "row", "change", "beyond", "a_ms", "b_ms", "agrees", "chance", "rate", "moved"}  # fmt: skip


def test_rows_that_moved_are_shown_and_fail_where_that_is_asked_for(tables, capsys):
    new = tables / "executorch-1.5.1.int8.t1.csv"
    old = "old/executorch-1.5.1.int8.t1.csv"
    moved = change(new, 1.2, {4, 9})
    status, out, err = run(capsys, old, new)
    assert status == 0
    assert "2 of" in out.splitlines()[0]
    first = out.splitlines()[2:4]
    assert {line.split()[-1] for line in first} == set(moved)
    assert all(float(line.split()[0].rstrip("%")) == pytest.approx(20, abs=0.1) for line in first)
    assert all(" yes " in line for line in first)
    assert "smaller changes are not shown" in err
    _, out, err = run(capsys, old, new, "--all")
    assert len(out.splitlines()) > 22
    assert "not shown" not in err
    status, _, err = run(capsys, "old", tables, "--fail")
    assert status == 5
    assert "hwbench: 2 rows moved; measure again" in err


def test_a_shift_of_all_rows_fails_too(tables, capsys):
    new = tables / "executorch-1.5.1.fp32.t1.csv"
    change(new, 1.05)
    status, out, err = run(capsys, "old", "local", "--fail", "--json")
    values = {one["table"]: one for one in json.loads(out)["tables"]}
    assert (status, values[new.stem]["shifted"], values[new.stem]["moved"]) == (5, True, [])
    assert values[new.stem]["shift"] == pytest.approx(0.05, abs=1e-3)
    assert f"all rows together in {new.stem}" in err


def test_conditions_that_differ_are_said_with_what_the_store_knows(workspace, capsys):
    parts = list(load_space(workspace, "x3d-tiny").parts(Precision.FP32, num_classes=8))[:3]
    kernels = [{"kernel": "6.1", "cpus": "0"}, {"kernel": "6.2", "cpus": "0"}]
    for name, conditions, timing in zip("ab", kernels, (Timing(), Timing(min_rounds=4))):
        with MeasurementStore(workspace.store) as store:
            device = FakeDevice(workspace.root / "files")
            Campaign(store, TARGET, conditions, device.build, device.measure, timing).run(parts)
        table = space_table(
            load_space(workspace, "x3d-tiny"), Precision.FP32, target=TARGET, conditions=fingerprint(conditions)
        )
        table.write(workspace.root / f"{name}.csv")
    _, out, err = run(capsys, "a.csv", "b.csv")
    assert "b: other conditions: kernel 6.1, then 6.2" in err
    assert "b: rows of another protocol" in err
    _, out, _ = run(capsys, "a.csv", "b.csv", "--json")
    assert len(json.loads(out)["tables"][0]["notes"]) == 2


def test_two_files_need_no_workspace(tables, tmp_path, monkeypatch, capsys):
    paths = [(tables.parents[1] / "old" / "executorch-1.5.1.int8.t1.csv").resolve()] * 2
    monkeypatch.chdir(tmp_path)
    assert run(capsys, *paths)[0] == 0
    status, _, err = run(capsys, "local", paths[0])
    assert status == 2
    assert "outside of a workspace" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("old", "lokal"), "did you mean 'local'"),
        (("old", "s9"), "no latency table in s9; measure one: hwbench profile --device s9"),
        (("old", "."), "no latency table in .; measure one: hwbench profile --device DEVICE"),
        (("old/executorch-1.5.1.int8.t1.csv", "old/executorch-1.5.1.fp32.t1.csv"), "no row is in both"),
        (("old", "other"), "no table of one name in both"),
        (("old", "old/device.toml"), "no table of one name in both"),
        (("old/device.toml", "old/device.toml"), "device.toml"),
        (("old",), "missing argument"),
    ],
)
def test_wrong_input_is_one_message_and_status_2(tables, capsys, arguments, said):
    other = tables.parents[1] / "other"
    other.mkdir()
    shutil.copy(tables / "executorch-1.5.1.int8.t1.csv", other / "executorch-1.6.0.int8.t1.csv")
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_options_of_profile_do_not_go_with_it(tables, capsys):
    with pytest.raises(SystemExit) as end:
        main(["profile", "--device", "local", "diff", "old", "local"])
    assert end.value.code == 2
    assert "--device does not go with hwbench profile diff" in capsys.readouterr().err
