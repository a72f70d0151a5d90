"""Adaptive profiles on a device whose law is known: how they end, what they say, and how they go on."""

import math

import numpy as np
import pytest
from measured import TARGET, Ears, as_json, fake_device

import hwbench
from hwbench.api.prediction import table_predictor
from hwbench.errors import InvalidValue
from hwbench.latency import LatencyTable, Role, table_path
from hwbench.spaces import load_space
from hwbench.specs import Precision
from hwbench.testing.tables import work
from hwbench.workspace import Workspace

INT8 = Precision.INT8
REQUEST = {"space": "x3d-mini", "precision": "int8", "classes": 8, "aa": False}
TYPED = ("--space", "x3d-mini", "--precision", "int8", "--classes", "8", "--no-aa")


@pytest.fixture
def workspace(tmp_path):
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def fake(workspace, monkeypatch):
    return fake_device(monkeypatch, workspace.root / "files")


def table_of(workspace):
    return LatencyTable.read(table_path(workspace.root, TARGET, INT8))


def test_a_large_space_is_profiled_until_it_is_known_well_enough(workspace, fake):
    ears = Ears()
    profile = hwbench.profile(hwbench.ProfileRequest(**REQUEST), ears, workspace=workspace).devices[0]
    (found,) = profile.accuracies
    assert (found.stopped, found.rows_of_space) == ("accuracy", 516)
    assert 90 < found.rows < 300
    assert found.error <= found.accuracy <= 0.02
    values = profile.to_json()
    assert (values["accuracy"], values["stopped"], values["rows"]) == (found.accuracy, "accuracy", found.rows)
    assert values["precisions"] == [vars(found)]
    table = table_of(workspace)
    assert table.adaptive
    assert len(table.rows(Role.BLOCK)) == found.rows
    assert len(table.rows(Role.NETWORK)) == found.networks
    assert any("goal 2.0% reached, the others are filled in; --all-rows measures all 516" in line for line in ears.said)
    # What was not measured is filled in without being asked for, and the claim holds for networks of the space.
    predictor, _ = table_predictor(workspace, TARGET, INT8, "x3d-mini", listener=ears)
    assert "rows of the space were not measured: " in ears.said[-1]
    space, rng = load_space(workspace, "x3d-mini"), np.random.default_rng(77)
    networks = [space.network(space.random(rng), 8).workload(INT8) for _ in range(40)]
    errors = [abs(math.log(predictor.predict(network).seconds / work(network))) for network in networks]
    assert np.median(errors) <= found.accuracy


def test_the_same_command_goes_on_with_the_same_rows(workspace, fake, monkeypatch, tmp_path):
    request = hwbench.ProfileRequest(**REQUEST, accuracy="0.3%", limit=250)
    hwbench.profile(request, workspace=workspace)
    chosen = list(fake.builds)
    other = Workspace.create(tmp_path / "other")
    again = fake_device(monkeypatch, other.root / "files")
    parts = [100, 60, 1, 89]
    ends = []
    for limit in parts:
        one = hwbench.ProfileRequest(**REQUEST, accuracy="0.3%", limit=limit)
        ends.append(hwbench.profile(one, workspace=other).devices[0])
    assert [end.ok for end in ends] == parts
    assert {end.accuracies[0].stopped for end in ends} == {"limit"}
    assert set(again.builds) == set(chosen)
    assert max(again.builds.values()) == 1


def test_interrupted_by_hand_it_goes_on_with_the_same_rows(workspace, fake, monkeypatch, tmp_path):
    request = hwbench.ProfileRequest(**REQUEST, accuracy="1%")
    fake.interrupt_after = 300
    with pytest.raises(KeyboardInterrupt):
        hwbench.profile(request, workspace=workspace)
    sessions = len(fake.visits)
    end = hwbench.profile(request, workspace=workspace).devices[0]
    other = Workspace.create(tmp_path / "other")
    again = fake_device(monkeypatch, other.root / "files")
    whole = hwbench.profile(request, workspace=other).devices[0]
    assert end.accuracies[0].rows == whole.accuracies[0].rows
    assert {row.workload for row in table_of(workspace)} == {row.workload for row in table_of(other)}
    assert sessions == 300
    assert len(fake.visits) == len(again.visits)


def test_all_rows_and_what_is_no_accuracy(workspace, fake, monkeypatch):
    values = as_json(monkeypatch, workspace, "profile", *TYPED, "--all-rows", "--limit", "30", "--calibrate", "1")
    assert (values["ok"], values["stopped"], values["rows_of_space"], values["accuracy"]) == (30, "limit", 516, None)
    assert not table_of(workspace).adaptive
    with pytest.raises(InvalidValue, match=r"--accuracy: expected a share such as 2% or 0.02, got '2'"):
        hwbench.ProfileRequest(accuracy="2")


def test_small_spaces_are_measured_whole(workspace, fake):
    profile = hwbench.profile(hwbench.ProfileRequest(precision="int8", classes=8, aa=False), workspace=workspace)
    (found,) = profile.devices[0].accuracies
    assert (found.stopped, found.rows, found.rows_of_space) == ("rows", 27, 27)
    assert found.networks == 4
    assert found.error <= found.accuracy
    assert not table_of(workspace).adaptive
