"""What a report reads of a table."""

import pytest

from hwbench.latency import AdditivePredictor, LatencyTable, interpolated, with_own_networks
from hwbench.reports import gather, page
from hwbench.reports.profiled import Missing, read_profiled
from hwbench.spaces import load_space
from hwbench.specs import Architecture, BlockRole, Precision
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


def test_intervals_of_networks_are_as_wide_as_their_filled_rows_make_them(workspace, stored, int8_table, parse):
    stored(lambda values: values["settings"].update(missing_rows="interpolated"))
    space, result = load_space(workspace, "x3d-tiny"), gather(workspace, "mine").result
    parts = list(space.parts(Precision.INT8, num_classes=8))
    winner = space.network(Architecture.parse(result.best.architecture), 8).workload(Precision.INT8)
    inner = [part for part in winner.parts() if part.blocks[0].role is BlockRole.BODY]
    LatencyTable.read(int8_table).without(inner[:2]).write(int8_table)
    table = interpolated(with_own_networks(LatencyTable.read(int8_table), parts, space.size()), parts)
    predictor = AdditivePredictor.fit(table, space="x3d-tiny", members=space.size())
    factors = {
        one.architecture: factor(predictor, space.network(Architecture.parse(one.architecture), 8))
        for one in result.measured
    }
    assert predictor.calibration.spread < factors[result.best.architecture] < predictor.spread
    report = gather(workspace, "mine")
    (candidates,) = [group for group in report.groups if group.name == "candidates"]
    assert {one.name: one.predicted.high_s / one.predicted.seconds for one in candidates.comparisons} == pytest.approx(
        factors
    )
    best, frame, shown = result.best, report.to_frame(), parse(page(report))
    low, high = (1e3 * best.predicted_s * factors[best.architecture] ** sign for sign in (-1, 1))
    assert f"90 % interval {low:.3f} – {high:.3f} ms, on the occasion of the table" in shown.text
    assert frame["high_ms"][0] == pytest.approx(frame["predicted_ms"][0] * predictor.spread, rel=1e-5)
    assert f"widen the interval of a network, to a factor of at most {predictor.spread:.4f}." in shown.text
    band = shown.trace("predicted", "prediction interval")
    assert band["y"][0] / band["x"][0] == pytest.approx(predictor.calibration.spread)


def factor(predictor, network):
    """How far above its prediction the interval of a network reaches."""
    predicted = predictor.predict(network.workload(Precision.INT8))
    return predicted.high_s / predicted.seconds
