"""What a power cut leaves of a published table."""

import pytest

from hwbench.latency import LatencyTable
from hwbench.testing.power import cut_power, python, record

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
# The first table of a device in its new folder, then the same published again with other A/A tests.
PROGRAM = f"""
import sys
from pathlib import Path
from hwbench.latency import LatencyRow, LatencyTable, Role, SelfCheck, table_path
from hwbench.specs import Outcome, Precision, Repeatability, Workload
from hwbench.testing.tables import installed_target, stats_of_law
keys = [f"x3d_i24_m54_o24_k3x3x3_swish@1x24x4x{{size}}x{{size}}/int8/auto" for size in range(4, 64)]
stats = stats_of_law(1e-3)
rows = [LatencyRow(Role.BLOCK, Workload.parse(key), Outcome.OK, stats, "2026-01-01", "c0ffee") for key in keys]
path = table_path(Path(sys.argv[1]), installed_target(), Precision.INT8)
for day in {DAYS}:
    check = SelfCheck(Repeatability(0.0, -0.1, 0.1, 5, 0.001), day)
    LatencyTable(installed_target(), Precision.INT8, rows, aa=check).write(path)
    print(path.relative_to(sys.argv[1]), day, flush=True)
"""


def check(folder, told):
    tables = list(folder.rglob("*.csv"))
    assert len(tables) >= bool(told), f"{told[-1]} is gone"
    for path in tables:
        table = LatencyTable.read(path)
        assert len(table) == 60
        assert table.aa.made_on >= (told[-1].split()[1] if told else "")


@pytest.mark.parametrize("points", [20, pytest.param(None, marks=pytest.mark.long)])
def test_19_a_power_cut_takes_no_table_that_was_told_as_published(tmp_path, power_shim, points):
    recording = record(python("-c", PROGRAM, str(tmp_path)), tmp_path, power_shim)
    report = cut_power(recording, check, points=points, mixed=3 if points else 30)
    assert report.problems == []
    assert report.disks > 10
