"""The numbers behind a report about a device, checked against tables and sessions that are made up."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hwbench.latency import LatencyRow, LatencyTable, Role, macs
from hwbench.measure.store_types import TakenSession
from hwbench.measure.sustained import CoursePoint
from hwbench.measure.sustained_log import CourseFacts, SustainedCourse
from hwbench.reports.coverage import belongs, coverage, parts_of
from hwbench.reports.device_figures import session_order
from hwbench.reports.drawing import GREEN
from hwbench.reports.families import BlockFamily, Column, Quantity, block_rows, frames, grid
from hwbench.reports.gains import by_family, gains
from hwbench.reports.sustained import course_figure
from hwbench.reports.timeline import classes, doubts, half_width, interruptions, session_spreads, visits
from hwbench.spaces import load_space
from hwbench.specs import LatencyStats, Outcome, Precision, Session, Target, Workload
from hwbench.specs.network import DEFAULT_CLASSES
from hwbench.testing.tables import space_table, stats_of_law
from hwbench.workspace import Workspace, shipped

TARGET = Target("board", "executorch", "1.5.1", 1)
NARROW, WIDE = "x3d_i8_m16_o8_k3x3x3_relu", "x3d_i8_m32_o8_k3x3x3_relu"


def table(times: dict[str, float], precision: Precision = Precision.INT8, failed: tuple[str, ...] = ()) -> LatencyTable:
    """Rows of single blocks, by ``BLOCK@INPUT`` and with an optional ``/VARIANT``."""

    def workload(text: str) -> Workload:
        block, _, variant = text.partition("/")
        return Workload.parse(f"{block}/{precision}/{variant or 'auto'}")

    rows = [
        LatencyRow(Role.BLOCK, workload(text), Outcome.OK, stats_of_law(seconds), "2026-01-31", "c0ffee")
        for text, seconds in times.items()
    ]
    rows += [
        LatencyRow(Role.BLOCK, workload(text), Outcome.NOISY, None, "2026-01-31", "", "too noisy") for text in failed
    ]
    return LatencyTable(TARGET, precision, rows)


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("x3d_i24_m54_o24_k3x3x3_s2_se8_swish@1x24x4x56x56/int8/auto", "x3d 3x3x3 swish se /2"),
        ("x3d_i8_m16_o8_k1x3x3+3x1x1_relu@1x8x4x8x8/int8/one-hot", "x3d 1x3x3+3x1x1 relu one-hot"),
        ("head_i8_m16_d32_o8_kglobal_relu@1x8x4x8x8/int8/auto", "head relu"),
        ("conv_i8_o8_k3x3x3_g8_relu@1x8x4x8x8/int8/auto", "conv 3x3x3 depthwise relu"),
        ("conv_i8_o8_k3x3x3_g2_relu@1x8x4x8x8/int8/auto", "conv 3x3x3 groups 2 relu"),
        ("conv_i1_o8_k3x3x3_relu@1x1x4x8x8/int8/auto", "conv 3x3x3 relu"),
        (
            "bottleneck_i8_m24_o32_k1x1x1+3x3x3_g24_relu@1x8x4x8x8/int8/auto",
            "bottleneck 1x1x1+3x3x3 depthwise relu",
        ),
        (
            "bottleneck_i8_m24_o32_k1x1x1+3x3x3_g8_relu@1x8x4x8x8/int8/auto",
            "bottleneck 1x1x1+3x3x3 groups 8 relu",
        ),
    ],
)
def test_families_have_names(key, label):
    assert BlockFamily.of(Workload.parse(key)).label == label


def test_a_cell_is_the_median_of_its_rows():
    rows = block_rows(table({f"{NARROW}@1x8x4x8x8": 1e-3, f"{WIDE}@1x8x4x8x8": 4e-3, f"{NARROW}@1x8x4x9x7": 5e-3}))
    assert frames(rows) == [4]
    found = grid(rows, Quantity.LATENCY)
    assert found.columns == (Column(8, 8, 8), Column(9, 7, 8))
    (family,) = found.families
    cell = found.cells[family, Column(8, 8, 8)]
    assert (cell.value, cell.low, cell.high, cell.count) == (2.5e-3, 1e-3, 4e-3, 2)
    rate = grid(rows, Quantity.RATE).cells[family, Column(9, 7, 8)]
    assert rate.value == pytest.approx(macs(Workload.parse(f"{NARROW}@1x8x4x9x7/int8/auto")) / 5e-3)


def test_many_inputs_are_put_together_by_size():
    other = "x3d_i16_m32_o16_k3x3x3_relu@1x16x4x8x8"
    rows = block_rows(table({f"{NARROW}@1x8x4x8x8": 1e-3, other: 3e-3, f"{NARROW}@1x8x4x16x16": 9e-3}))
    assert len(grid(rows, Quantity.LATENCY, max_columns=3).columns) == 3
    found = grid(rows, Quantity.LATENCY, max_columns=2)
    assert found.columns == (Column(16, 16, 0), Column(8, 8, 0))
    assert [cell.count for cell in found.cells.values()] == [2, 1]


def test_a_kind_without_arithmetic_has_a_latency_and_no_rate():
    rows = block_rows(table({"novel_i8_o8_k3x3x3_relu@1x8x4x8x8": 1e-3}))
    assert rows[0].rate is None
    assert grid(rows, Quantity.LATENCY).cells
    assert not grid(rows, Quantity.RATE).cells


def test_gains_are_sorted_and_those_that_are_slower_are_told():
    times = {f"{NARROW}@1x8x4x8x8": 2e-3, f"{WIDE}@1x8x4x8x8": 4e-3, f"{NARROW}@1x8x4x9x7": 1.005e-3}
    fp32 = table(times | {f"{NARROW}@1x8x4x5x5": 1.0}, Precision.FP32)
    int8 = table({f"{NARROW}@1x8x4x8x8": 1e-3, f"{WIDE}@1x8x4x8x8": 8e-3, f"{NARROW}@1x8x4x9x7": 1e-3})
    found = gains(fp32, int8)
    assert [round(gain.ratio, 3) for gain in found] == [2.0, 1.005, 0.5]
    assert [(gain.slower, gain.certain) for gain in found] == [(False, True), (False, False), (True, True)]
    (family,) = by_family(found)
    assert (round(family.median, 3), family.low, family.high, family.count, family.slower) == (1.005, 0.5, 2.0, 3, 1)
    assert gains(table({}, Precision.FP32), int8) == []


@pytest.fixture(scope="module")
def space():
    return load_space(Workspace(shipped()), "x3d-tiny")


def test_coverage_counts_measured_failed_and_missing(space):
    whole = space_table(space, Precision.INT8, target=TARGET, calibration=1)
    blocks = whole.rows(Role.BLOCK)
    failed = replace(blocks[1], outcome=Outcome.NOISY, stats=None, reason="noisy")
    # another layout is another row, and says nothing about the block as spaces have it
    other = replace(blocks[0], workload=replace(blocks[0].workload, variant="one-hot"))
    some = LatencyTable(TARGET, Precision.INT8, [failed, other, *blocks[4:]])
    classes = some.num_classes
    found = coverage(space.name, parts_of(space, classes), classes, some)
    assert (classes, found.whole.total, found.whole.measured, found.whole.failed) == (8, 27, 23, 1)
    assert found.whole.missing == len(found.missing) == 3
    assert {part.blocks[0] for part in found.missing} == {row.workload.blocks[0] for row in (*blocks[:1], *blocks[2:4])}
    assert sum(share.measured for share in found.families.values()) == 23
    everything = coverage(space.name, parts_of(space, classes), classes, whole)
    assert (everything.whole.measured, everything.missing) == (27, ())


def test_a_table_belongs_to_spaces_by_its_stems(space):
    whole = space_table(space, Precision.INT8, target=TARGET, calibration=1)
    assert belongs(space, whole)
    assert not belongs(load_space(Workspace(shipped()), "x3d-mobile"), whole)
    assert table({}).num_classes == DEFAULT_CLASSES


def taken(
    seconds: float, at_s: float, *, row: int = 1, run: int | None = 1, suspect: str = "", drift: float = 1.0
) -> TakenSession:
    """A session whose samples take ``seconds`` corrected for drift, stored ``at_s`` after midnight."""
    workload = Workload.parse(f"{NARROW}@1x8x4x8x8/int8/auto")
    session = Session((seconds * drift,) * 3, wall_s=0.2, drift=drift)
    at = datetime(2026, 1, 31, tzinfo=UTC) + timedelta(seconds=at_s)
    return TakenSession(row, workload, "c0ffee", session, suspect, at.isoformat(), run, True)


def test_residuals_are_relative_to_the_row_with_and_without_drift():
    sessions = [taken(1e-3, 0), taken(5e-3, 1, row=2), taken(1.1e-3, 2, drift=1.05), taken(1e-3, 3)]
    found = visits(sessions)
    assert [round(v.residual, 6) for v in found] == [0, 0, 0.1, 0]
    assert [round(v.uncorrected, 6) for v in found] == [0, 0, 0.155, 0]
    assert [round(v.drift, 6) for v in found] == [0, 0, 0.05, 0]


def test_interruptions_say_how_long_and_why():
    sessions = [
        taken(1e-3, 0),
        taken(1e-3, 1, drift=1.2),
        taken(1e-3, 41.25),  # after a wait
        taken(1e-3, 100),  # after something else
        taken(1e-3, 200, run=2),
        taken(1e-3, 200.5, run=3),
        taken(1e-3, 300, run=None),
    ]
    found = interruptions(sessions)
    assert [pause.before for pause in found] == [2, 3, 4, 6]
    assert found[0].seconds == pytest.approx(40)
    assert [pause.why.split(":")[0] for pause in found] == [
        "within a run",
        "within a run",
        "between runs",
        "between runs",
    ]
    assert "slow" in found[0].why
    assert "slow" not in found[1].why


def test_doubts_are_put_together_whatever_their_numbers():
    reasons = [
        "the sentinel moved by +5.1%",
        "",
        "the sentinel moved by -12.0%",
        "preempted 5 times in 21 samples, on it",
    ]
    found = doubts([taken(1e-3, at, suspect=reason) for at, reason in enumerate(reasons)])
    assert [(doubt.kind, doubt.count, doubt.share) for doubt in found] == [
        ("the sentinel moved by …", 2, 0.5),
        ("preempted … times in … samples", 1, 0.25),
    ]
    assert found[1].example == reasons[3]
    assert doubts([]) == []


def test_spreads_leave_doubted_sessions_out():
    sessions = [taken(1.0e-3, 0), taken(1.02e-3, 1), taken(1.01e-3, 2), taken(9e-3, 3, suspect="x"), taken(1, 4, row=2)]
    assert session_spreads(sessions, Precision.INT8) == [pytest.approx(0.02 / 1.01)]
    assert session_spreads(sessions, Precision.FP32) == []
    assert classes([0.0, 0.001, 0.0019, 0.05, 3.0]) == [1, 2, 0, 0, 0, 0, 1, 0, 1]
    assert half_width(LatencyStats(1.0, 0.9, 1.1, 0.97, 1.01, 3, 30)) == pytest.approx(0.03)


def test_a_session_that_told_no_temperature_is_not_drawn_at_zero():
    sessions = [taken(1e-3, at) for at in range(4)]
    told = [replace(s, session=replace(s.session, temperature_celsius=c)) for s, c in zip(sessions, (0, 31, 0, 32))]
    drawn = session_order(visits(told), [])
    (line,) = [trace for trace in drawn.data if trace.line.color == GREEN]
    assert list(line.y) == [None, 31, None, 32]


@pytest.mark.parametrize(
    ("told", "mode"), [((31,), "lines+markers"), ((31, 32), "lines"), ((31, 0, 32, 33), "lines+markers")]
)
def test_what_stands_alone_in_the_course_of_measuring_is_drawn_as_a_mark(told, mode):
    sessions = [taken(1e-3, at) for at in range(len(told))]
    visited = visits([replace(s, session=replace(s.session, temperature_celsius=c)) for s, c in zip(sessions, told)])
    sentinel, _, _, middle, temperature = session_order(visited, []).data
    assert temperature.mode == mode
    assert {sentinel.mode, middle.mode} == {"lines" if len(told) > 1 else "lines+markers"}


@pytest.mark.parametrize(("temperature_celsius", "clock_hz", "lowest"), [(40, 2e9, "y3"), (40, 0, "y2"), (0, 0, "y")])
def test_the_minutes_of_a_course_stand_below_its_lowest_panel(temperature_celsius, clock_hz, lowest):
    points = [CoursePoint(at, 5, 0.02, 250, temperature_celsius, clock_hz) for at in range(0, 300, 5)]
    facts = CourseFacts("board/executorch-1.5.1/t1", "a.pte", "0" * 64, "int8", "2026-01-31", 0.018, 0.017, 0.019)
    drawn = course_figure(SustainedCourse(facts, tuple(points), "settled", Path("course")))
    assert drawn.layout.xaxis.anchor == lowest
    assert len(drawn.data) == int(lowest[1:] or 1)
