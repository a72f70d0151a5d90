"""What is said and refused where rows are filled in, and that a study keeps to one filling."""

from dataclasses import replace

import pytest

from hwbench.api.prediction import table_predictor
from hwbench.errors import InvalidValue, NotMeasured
from hwbench.latency import LatencyTable, Role, table_path
from hwbench.spaces import load_space
from hwbench.specs import Precision, Target
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import installed_target, space_table
from hwbench.workspace import Workspace, shipped

INT8 = Precision.INT8
TARGET = installed_target()
PHONE = Target("s9", TARGET.runtime, TARGET.version, TARGET.threads)


@pytest.fixture
def workspace(tmp_path):
    """This machine has all rows but six; the phone has its networks and the first six blocks."""
    workspace = Workspace.create(tmp_path)
    space = load_space(Workspace(shipped()), "x3d-tiny")
    full = list(space_table(space, INT8))
    few = [row for row in full if row.role is Role.BLOCK][6:12]
    LatencyTable(TARGET, INT8, [row for row in full if row not in few]).write(table_path(tmp_path, TARGET, INT8))
    phone = [row for row in full if row.role is Role.NETWORK or row in few]
    LatencyTable(PHONE, INT8, phone).write(table_path(tmp_path, PHONE, INT8))
    return workspace


@pytest.fixture
def talk():
    return Keeper()


def test_rows_are_filled_in_only_when_asked_and_this_is_said(workspace, talk):
    for target in (PHONE, TARGET):
        with pytest.raises(NotMeasured, match=r"calibration networks and .* whose blocks have no rows, at least 3"):
            table_predictor(workspace, target, INT8, "x3d-tiny", 8, listener=talk)
    assert not any("rows of the space" in line for line in talk.lines)
    _, classes = table_predictor(workspace, TARGET, INT8, "x3d-tiny", filling=(True, None), listener=talk)
    (line,) = [line for line in talk.lines if "rows of the space" in line]
    assert "22.2% of 27 rows of the space were not measured: interpolated from 21 measured blocks" in line
    assert classes == 8


def test_another_device_stands_in(workspace, talk):
    predictor, classes = table_predictor(workspace, PHONE, INT8, "x3d-tiny", filling=(False, "local"), listener=talk)
    (line,) = [line for line in talk.lines if "rows of the space" in line]
    assert "77.8% of 27 rows of the space were not measured: transferred from local/" in line
    assert classes == 8
    assert predictor.table.target == PHONE
    with pytest.raises(NotMeasured, match="no latency table of pi/"):
        table_predictor(workspace, PHONE, INT8, "x3d-tiny", filling=(False, "pi"))
    with pytest.raises(NotMeasured, match="no latency table of pi/"):  # also where the device itself has none
        table_predictor(workspace, replace(PHONE, device="box"), INT8, "x3d-tiny", filling=(False, "pi"))
    with pytest.raises(InvalidValue, match="choose one"):
        table_predictor(workspace, PHONE, INT8, "x3d-tiny", filling=(True, "local"))
