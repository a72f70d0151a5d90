"""``hwbench verify TABLE``: rows are measured again beside the store, and the verdict is the truth about the device."""

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from documented_files import undocumented

from hwbench.api import campaigns
from hwbench.cli.main import main
from hwbench.latency import LatencyTable, sample_rows, table_path
from hwbench.latency.occasions import Scale
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import fingerprint
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision, Repeatability, Target, Timing
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.tables import space_table, work
from hwbench.workspace import Workspace

TARGET = Target("local", "executorch", "1.5.1", 1)
CONDITIONS = {"device": "fake", "kernel": "6.1"}


@pytest.fixture
def table(workspace):
    """A published table after the law of the device."""
    space = load_space(workspace, "x3d-tiny")
    made = space_table(space, Precision.INT8, target=TARGET, calibration=2, conditions=fingerprint(CONDITIONS))
    path = table_path(workspace.root, TARGET, Precision.INT8)
    made.write(path)
    return path


@pytest.fixture
def fake(workspace, monkeypatch):
    """Everything real but the device."""
    device = FakeDevice(workspace.root / "files", law=work, noise=1e-3)
    device.conditions, device.repeat, device.asked = CONDITIONS, None, []

    @contextmanager
    def place(store, workspace, place, *, runtime, threads, processes=1, retry=False, listener, precisions=()):
        device.asked.append((place.name, runtime, threads, place.conditions))
        target = replace(TARGET, device=place.name)
        yield Campaign(store, target, device.conditions, device.build, device.measure, Timing(), repeat=device.repeat)

    monkeypatch.setattr(campaigns, "place_campaign", place)
    return device


def run(capsys, *arguments):
    status = 0
    try:
        main(["verify", *map(str, arguments)])
    except SystemExit as end:
        status = end.code or 0
    out, err = capsys.readouterr()
    return status, out, err


def test_a_table_holds_and_stays_as_it_was(workspace, table, fake, capsys):
    before = table.read_bytes()
    fake.repeat = lambda: Repeatability(0.001, -0.002, 0.004, 8, 2e-3)
    status, out, err = run(capsys, table, "--rows", "10", "--json")
    values = json.loads(out)
    assert (status, values["holds"], values["moved"], values["shifted"]) == (0, True, [], False)
    assert (values["sampled"], values["measured"], values["failed"], values["agree"]) == (10, 10, 0, 10)
    assert values["verdict"].startswith("the table holds: 10 of 10 rows agree within their intervals")
    assert (values["device"], values["target"], values["notes"]) == ("local", TARGET.key, [])
    assert "A/A test: the same file twice differs by +0.10 %" in err
    assert fake.asked == [("local", "executorch", 1, fake.asked[0][3])]
    assert table.read_bytes() == before
    assert not (workspace.root / ".hwbench" / "measurements.sqlite").exists()
    with MeasurementStore(Path(values["samples"])) as store:
        assert store.counts() == {"ok": 10}
    assert len({*fake.visits}) == 10


def test_what_a_workspace_holds_stands_on_the_page_of_files(workspace, table, fake, capsys):
    with MeasurementStore(workspace.store):
        pass
    run(capsys, table, "--rows", "3")
    names = {path.name.partition("-")[0] for path in workspace.state.rglob("*") if path.is_file()}
    assert names >= {"measurements.sqlite", ".measurements.sqlite.checked", "local", ".local"}
    assert undocumented(workspace.root) == []


def test_every_run_measures_anew_and_the_seed_chooses_the_rows(table, fake, capsys):
    chosen = []
    for seed in (0, 0, 1):
        fake.visits.clear()
        run(capsys, table, "--rows", "3", "--seed", seed)
        chosen.append({*fake.visits})
    assert chosen[0] == chosen[1] != chosen[2]
    assert all(len(one) == 3 for one in chosen)


def test_a_slower_device_is_told_as_such(table, fake, capsys):
    fake.law = lambda workload: 1.05 * work(workload)
    status, out, err = run(capsys, table, "--rows", "12")
    assert status == 5
    assert "all rows together slower: median +" in out
    assert "the device is slower than the table says, by 5.0% in the median; 0 of 12 rows agree" in err
    assert "To measure it anew: hwbench profile --device local" in err
    assert "--remeasure" in err


def test_a_table_whose_scale_is_unsure_is_not_blamed_for_it(table, fake, capsys):
    """Refreshed by anchors that moved apart: the device is as fast as before, the scale says +3 % (-1 % to +7 %)."""
    made = LatencyTable.read(table)
    scale = Scale(1.03, 1.03 / 1.04, 1.03 * 1.04, "2026-01-31T22:15Z")
    LatencyTable(made.target, made.precision, made, scale=scale).write(table)
    for rows in (12, 5):
        status, out, _ = run(capsys, table, "--rows", rows, "--json")
        values = json.loads(out)
        assert (status, values["holds"], values["moved"], values["shifted"]) == (0, True, [], False)
        assert values["verdict"].startswith(f"the table holds: {rows} of {rows} rows agree within their intervals")
        assert values["shift"] == pytest.approx(1 / 1.03 - 1, abs=0.003)
        assert values["shift_low"] < values["shift"] < 0 < values["shift_high"]


def test_a_device_that_does_not_agree_with_itself_tells_nothing(table, fake, capsys):
    fake.repeat = lambda: Repeatability(-0.1, -0.4, 0.3, 8, 2e-3)
    status, out, err = run(capsys, table, "--rows", "3", "--json")
    assert (status, json.loads(out)["holds"], json.loads(out)["moved"]) == (5, False, [])
    assert "it cannot be told whether the table holds: the same file twice differs by up to 40% on this device" in err


def test_rows_that_moved_and_rows_that_fail_are_told(table, fake, capsys):
    sample = [row.workload for row in sample_rows(LatencyTable.read(table), 12, 0)]
    fake.law = lambda workload: (1.3 if workload == sample[4] else 1.0) * work(workload)
    fake.failures = {sample[7]: (Outcome.CRASH, "killed by SIGSEGV")}
    status, out, err = run(capsys, table, "--rows", "12", "--json")
    values = json.loads(out)
    assert (status, values["holds"], values["moved"]) == (5, False, [sample[4].key])
    assert (values["measured"], values["failed"]) == (11, 1)
    assert "1 rows moved and 1 rows cannot be measured any more" in values["verdict"]
    assert f"{sample[7].key}: crash: killed by SIGSEGV" in err


def test_another_device_and_other_conditions_are_said(workspace, table, fake, capsys):
    (workspace.root / "profiles" / "box").mkdir()
    text = (workspace.root / "profiles" / "local" / "device.toml").read_text().replace('"local"', '"box"', 1)
    (workspace.root / "profiles" / "box" / "device.toml").write_text(
        text.replace('transport = "box"', 'transport = "local"')
    )
    fake.conditions = {**CONDITIONS, "kernel": "6.2"}
    with MeasurementStore(workspace.store) as store:  # knows under which conditions the table was taken
        store.begin(sample_rows(LatencyTable.read(table), 1, 0)[0].workload, TARGET, Timing(), CONDITIONS)
    status, out, _ = run(capsys, table, "--device", "box", "--conditions", "controlled", "--rows", "4", "--json")
    assert status == 0
    assert fake.asked[0][0] == "box"
    assert fake.asked[0][3] == "controlled"
    assert json.loads(out)["notes"] == [
        "another target: local/executorch-1.5.1/t1, then box/executorch-1.5.1/t1",
        "other conditions: kernel 6.1, then 6.2",
    ]


def test_nothing_measured_is_a_failed_check(table, fake, capsys):
    fake.failures = {row.workload: (Outcome.LOAD, "no") for row in LatencyTable.read(table)}
    status, out, err = run(capsys, table, "--rows", "3")
    assert (status, out) == (5, "")
    assert "none of 3 rows could be measured" in err


def test_what_cannot_be_verified_is_refused(table, fake, capsys):
    made = LatencyTable.read(table)
    emulated = LatencyTable(made.target, made.precision, made, emulated=True)
    emulated.write(table.with_name("emulated.csv"))
    LatencyTable(made.target, made.precision, []).write(table.with_name("empty.csv"))
    table.with_name("broken.csv").write_text("nothing\n")
    for name, said in (
        ("emulated", "no latencies"),
        ("empty", "no row with a latency"),
        ("broken", "broken.csv"),
        ("none", "none.csv"),
    ):
        status, out, err = run(capsys, table.with_name(f"{name}.csv"))
        assert (status, out) == (2, ""), name
        assert said in err
    assert run(capsys, table, "--device", "lokal")[0] == 2
    assert run(capsys, table, "--rows", "0")[0] == 2
    assert fake.visits == []


def test_a_sample_covers_the_latencies_and_is_the_same_everywhere():
    space = load_space(Workspace(Path(__file__).resolve().parents[2]), "x3d-tiny")
    table = space_table(space, Precision.INT8, target=TARGET, calibration=2)
    drawn = sample_rows(table, 8, 3)
    ordered = sorted(row.stats.median_s for row in table)
    times = [row.stats.median_s for row in drawn]
    assert times == sorted(times)
    for at, time in enumerate(times):  # one from each eighth
        assert (
            ordered[int(at * len(ordered) / 8) - 1 if at else 0]
            <= time
            <= ordered[-(-(at + 1) * len(ordered) // 8) - 1]
        )
    assert drawn == sample_rows(table, 8, 3) != sample_rows(table, 8, 4)
    assert len(sample_rows(table, 10_000, 0)) == len(table)
