"""What a report says of a table whose rows were chosen."""

import pytest

from hwbench.latency import LatencyRow, LatencyTable, Role, table_path
from hwbench.reports import device_page, gather_device
from hwbench.reports.chosen_rows import chosen_map, chosen_rows, error_history
from hwbench.reports.profiled import Missing
from hwbench.spaces import load_space
from hwbench.specs import Outcome, Precision
from hwbench.studies.profiling_walk import ProfilingWalk
from hwbench.testing.tables import CLASSES, installed_target, space_table, stats_of_law, work
from hwbench.workspace import Workspace, shipped

INT8 = Precision.INT8
TARGET = installed_target()
SPACE = load_space(Workspace(shipped()), "x3d-mini")


def chosen_table(path, killed=None):
    """The first two batches of a walk, chosen from what the file holds, as a profile does; one build may be killed."""
    walk, rows = ProfilingWalk(SPACE, INT8, CLASSES), {}
    for _ in range(2):
        LatencyTable(TARGET, INT8, rows.values()).write(path)
        for workload in walk.batch(LatencyTable.read(path)):
            is_lost = workload == killed
            outcome, stats = (Outcome.LOST, None) if is_lost else (Outcome.OK, stats_of_law(work(workload)))
            message = "killed by SIGKILL (out of memory?)" if is_lost else ""
            rows[workload] = LatencyRow(Role.of(workload), workload, outcome, stats, "2026-01-31", "c0ffee", message)
            walk.given_up |= {workload.key} if is_lost else set()
    LatencyTable(TARGET, INT8, rows.values(), adaptive=True).write(path)
    return LatencyTable.read(path)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return chosen_table(tmp_path_factory.mktemp("table") / "table.csv")


def test_the_page_shows_what_was_measured_and_how_good_it_was(table, tmp_path):
    workspace = Workspace.create(tmp_path)
    table.write(table_path(workspace.root, TARGET, INT8))
    report = gather_device(workspace, "local")
    (found,) = report.targets[0].chosen
    assert (found.space, found.precision, found.total) == ("x3d-mini", INT8, 516)
    assert found.measured == len(table.rows(Role.BLOCK))
    rows = [count for count, _ in found.history]
    assert rows == [found.measured - 48, found.measured]
    assert {accuracy.networks for _, accuracy in found.history} == {len(table.rows(Role.NETWORK))}
    page = device_page(report)
    assert f"x3d-mini, int8: {found.measured} of 516 rows measured" in page
    assert "Measured and filled rows" in page
    limit, median = error_history(found.history).data
    assert list(limit.y) == [100 * accuracy.bound for _, accuracy in found.history]
    assert all(low <= high for low, high in zip(median.y, limit.y))
    (heat,) = chosen_map(found).data
    shares = [value for row in heat.z for value in row if value is not None]
    assert len(shares) == len(found.counts)
    assert (min(shares), max(shares) <= 100) == (0, True)


def test_rows_that_nobody_chose_have_no_such_part(table):
    whole = space_table(SPACE, INT8, calibration=4)
    assert chosen_rows(SPACE, CLASSES, whole) is None
    others = LatencyTable(TARGET, INT8, whole.rows(Role.BLOCK)[:60], adaptive=True)
    found = chosen_rows(SPACE, CLASSES, others)
    assert found.measured == 60
    assert isinstance(found.history, Missing)
    assert "how good the table was after each batch is not known" in found.history.reason


def test_a_build_that_was_killed_leaves_the_history_as_it_was(table, tmp_path):
    first = ProfilingWalk(SPACE, INT8, CLASSES).batch(LatencyTable(TARGET, INT8, ()))
    killed = next(workload for workload in first if Role.of(workload) is Role.BLOCK)
    found = chosen_rows(SPACE, CLASSES, chosen_table(tmp_path / "table.csv", killed))
    assert [count for count, _ in found.history] == [found.measured - 48, found.measured]
    assert found.measured == len(table.rows(Role.BLOCK)) - 1
