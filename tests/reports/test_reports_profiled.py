"""What a report reads of a table."""

import pytest

from hwbench.reports.profiled import Missing, read_profiled
from hwbench.spaces import load_space
from hwbench.specs import Precision
from hwbench.testing.tables import space_table
from hwbench.workspace import Workspace


@pytest.mark.parametrize(("members", "predicts"), [(None, False), (4096, False), (2, True)])
def test_a_small_space_needs_no_more_networks_than_it_has(members, predicts, tmp_path):
    """As a search does: the report of a study of two networks predicts what the study predicted."""
    workspace = Workspace.create(tmp_path / "work")
    table = space_table(load_space(workspace, "x3d-tiny"), Precision.INT8, calibration=2)
    path = workspace.root / "profiles" / "local" / "table.csv"
    table.write(path)
    found = read_profiled(workspace, path, "x3d-tiny", members)
    assert isinstance(found.predictor, Missing) is not predicts
