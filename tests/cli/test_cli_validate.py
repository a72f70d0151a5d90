"""``hwbench validate`` tells a wrong prediction from a device that has changed, and leaves its table as it is."""

import json
from contextlib import contextmanager

import pytest

from hwbench.api import campaigns
from hwbench.cli.main import main
from hwbench.latency import LatencyTable, Role, SelfCheck, table_path
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision, Repeatability, Timing
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.tables import installed_target, space_table, work

TARGET = installed_target()
CONDITIONS = {"device": "fake"}


@pytest.fixture(params=[4, 12])
def table(workspace, request):
    """A table after the law of the device, with so many calibration networks."""
    made = space_table(load_space(workspace, "x3d-tiny"), Precision.INT8, target=TARGET, calibration=request.param)
    made.write(table_path(workspace.root, TARGET, Precision.INT8))
    return made


@pytest.fixture
def fake(workspace, monkeypatch):
    """Everything real but the device."""
    device = FakeDevice(workspace.root / "files", law=work, noise=1e-3)

    @contextmanager
    def place(store, workspace, place, **options):
        store.clock(CONDITIONS)  # as the real one does, whose sessions refer to it
        yield Campaign(store, TARGET, CONDITIONS, device.build, device.measure, Timing())

    monkeypatch.setattr(campaigns, "place_campaign", place)
    return device


def run(capsys, *arguments):
    status = 0
    try:
        main(["validate", "--networks", "5", *map(str, arguments)])
    except SystemExit as end:
        status = end.code or 0
    out, err = capsys.readouterr()
    return status, out, " ".join(err.split())


def calibrating(table: LatencyTable):
    return {row.workload for row in table.rows(Role.NETWORK)}


def test_a_device_as_it_was(table, fake, capsys):
    status, out, err = run(capsys, "--json")
    values = json.loads(out)
    assert status == 0
    assert values["again"] == min(6, len(calibrating(table)))
    assert values["device_change_low"] <= values["device_change"] <= values["device_change_high"]
    assert abs(values["device_change"]) < 0.003
    assert "than when its table was taken" not in err
    assert values["nominal"] == 0.9


def test_a_slower_device_is_no_wrong_prediction(workspace, table, fake, capsys):
    path = table_path(workspace.root, TARGET, Precision.INT8)
    before = path.read_bytes()
    with MeasurementStore(workspace.store) as store:
        store.clock(CONDITIONS, 2e-6)
    fake.law = lambda workload: 1.04 * work(workload)
    status, out, err = run(capsys, "--json")
    values = json.loads(out)
    assert status == 0
    assert values["device_change"] == pytest.approx(0.04, abs=0.004)
    assert "the device is slower now than when its table was taken" in err
    assert "hwbench profile --device local --space x3d-tiny" in err
    assert "--remeasure" in err
    assert path.read_bytes() == before
    again = calibrating(table) & {*fake.visits}
    assert len(again) == values["again"]
    with MeasurementStore(workspace.store) as store:  # what was measured again would be another calibration
        assert {*store.workloads(TARGET)}.isdisjoint(again)
        assert store.counts() == {"ok": 5}
    (aside,) = (workspace.root / ".hwbench" / "verified").glob("*.sqlite")
    with MeasurementStore(aside) as store:
        assert {*store.workloads(TARGET)} > again
        assert store.clock(CONDITIONS) == 2e-6


def test_all_are_measured_in_the_same_rounds(table, fake, capsys):
    status, out, _ = run(capsys, "--json")
    assert status == 0
    everything = 5 + json.loads(out)["again"]
    first = fake.visits[:everything]
    assert len({*first}) == everything
    places = sorted(first.index(workload) for workload in calibrating(table) if workload in first)
    assert places != [*range(places[0], places[0] + len(places))]


def test_what_is_known_is_measured_again_and_stays(workspace, table, fake, capsys):
    assert run(capsys)[0] == 0
    with MeasurementStore(workspace.store) as store:
        known = [*store.rows(TARGET)]
    fake.visits.clear()
    fake.law = lambda workload: 1.5 * work(workload)
    _, out, _ = run(capsys, "--json")
    assert json.loads(out)["median_error"] == pytest.approx(1 / 3, abs=0.02)
    assert {row.measurement.workload for row in known} < {*fake.visits}
    with MeasurementStore(workspace.store) as store:
        assert [*store.rows(TARGET)] == known


def test_interrupted_it_leaves_the_store_as_it_was(workspace, table, fake, capsys):
    fake.interrupt_after = 20
    assert run(capsys)[0] == 130
    with MeasurementStore(workspace.store) as store:
        assert store.counts() == {}


@pytest.mark.parametrize("factor", [0.96, 1.04])
def test_a_change_is_told_also_where_the_device_does_not_agree_with_itself(table, workspace, fake, capsys, factor):
    found = SelfCheck(
        Repeatability(0.01, -0.04, 0.05, 8, 2e-3), "2026-01-31"
    )  # of one file twice; here all changed alike
    table.with_aa(found).write(table_path(workspace.root, TARGET, Precision.INT8))
    fake.law = lambda workload: factor * work(workload)
    _, _, err = run(capsys)
    assert f"the device is {'slower' if factor > 1 else 'faster'} now than when its table was taken" in err


def test_what_a_missing_row_leaves_out_of_the_space_is_said(table, workspace, fake, capsys):
    assert "is measured; the rest is left out" not in run(capsys)[2]
    kept = [row for row in table if "i32_m256_o64_k3x3x3" not in row.workload.key or row.role is Role.NETWORK]
    LatencyTable(TARGET, table.precision, kept).write(table_path(workspace.root, TARGET, Precision.INT8))
    status, out, err = run(capsys, "--json")
    assert status == 0, err
    assert "% of the space is measured; the rest is left out" in err
    assert all("s2.expansion=4,s2.kernel=3x3x3" not in one["architecture"] for one in json.loads(out)["results"])


def test_none_is_measured_again(table, fake, capsys):
    status, out, _ = run(capsys, "--json", "--again", 0)
    values = json.loads(out)
    assert (status, values["again"], values["device_change"]) == (0, 0, None)
    assert calibrating(table).isdisjoint(fake.visits)


def test_none_can_be_measured_again(table, fake, capsys):
    fake.failures = dict.fromkeys(calibrating(table), (Outcome.CRASH, "killed"))
    status, out, err = run(capsys, "--json")
    values = json.loads(out)
    assert (status, values["again"], values["device_change"], values["networks"]) == (0, 0, None, 5)
    assert "killed" in err


@pytest.mark.parametrize("command", [("validate",), ("search", "--budget", "5ms")])
def test_where_there_is_no_table_heads_of_so_many_classes_are_to_be_measured(workspace, command, capsys):
    with pytest.raises(SystemExit):
        main([*command, "--space", "x3d-tiny", "--classes", "20"])
    said = " ".join(capsys.readouterr().err.split())
    assert "hwbench profile --device local --space x3d-tiny --precision int8 --classes 20" in said


@pytest.mark.parametrize(
    "words",
    [
        "validate --device s9 --precision fp32 --runtime onnx",
        "validate --transfer-from s9 --precision fp32 --runtime onnx",
        "search --device s9 --precision int8 --runtime torchscript --budget 60ms",
        "search --device s9 --precision fp32 --runtime onnx --budget 60ms --sustained",
        "search --device local,s9 --precision fp32 --runtime onnx --budget 60ms,60ms",
        "search --transfer-from s9 --precision fp32 --runtime onnx --budget 60ms",
        "profile --device s9 --precision fp32 --runtime onnx --refresh",
    ],
)
def test_no_table_is_advised_of_an_engine_that_is_not_carried_to_the_device(words, workspace, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "files are measured on this machine only (--device local); device 's9' runs executorch or litert" in said
    assert said.endswith(": --runtime executorch")
    assert "hwbench profile" not in said
