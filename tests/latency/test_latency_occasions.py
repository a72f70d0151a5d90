"""Occasions: shifts that rows have in common, the scale of a table, and what intervals make of it."""

import math
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from hwbench.api.occasions import describe_day, on_one_scale, tell_day
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.latency import BETWEEN_RUNS, AdditivePredictor, LatencyTable, Role
from hwbench.latency.anchors import anchor_rows
from hwbench.latency.occasions import (
    _ROUNDS,
    _ROW,
    BETWEEN_OCCASIONS,
    Scale,
    _variances,
    occasion_shifts,
    occasion_uncertainty,
)
from hwbench.latency.significance import Variances, half_widths
from hwbench.latency.uncertainty import CERTAIN, Uncertainty, student_t
from hwbench.measure.store_occasions import OccasionLog
from hwbench.spaces import read_space
from hwbench.specs import LatencyStats, Precision
from hwbench.specs.timing import student_t95
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import CLASSES, space_table
from hwbench.workspace import shipped

SPACE = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
AT = "2026-01-31T22:15Z"
THEN = datetime(2026, 1, 31, 22, 15, tzinfo=UTC)


def stats(seconds, half=0.003):
    return LatencyStats(seconds, 0.99 * seconds, 1.01 * seconds, (1 - half) * seconds, (1 + half) * seconds, 5, 50)


def on_occasions(rng, shifts, rows, own=0.004):
    """Rows whose logarithms move by the shifts, and each by itself."""
    return [
        {at: stats(1e-3 * (row + 1) * math.exp(shift + rng.normal(0, own))) for at, shift in enumerate(shifts)}
        for row in range(rows)
    ]


def test_shifts_are_found_and_their_intervals_hold():
    rng = np.random.default_rng(0)
    held, errors = [], []
    for _ in range(100):
        true = [0.0, *rng.uniform(-0.1, 0.1, int(rng.integers(1, 4)))]
        found = occasion_shifts(on_occasions(rng, true, 4), reference=0)
        for at, shift in found.by_occasion.items():
            held.append(abs(shift.log - true[at]) <= shift.half)
            errors.append(abs(shift.log - true[at]))
    assert np.mean(held) >= 0.93
    assert max(errors) < 0.015


@pytest.mark.parametrize("scatter", [0.01, 0.02, 0.03, 0.05])
def test_intervals_of_shifts_hold_however_far_anchors_scatter(scatter):
    rng = np.random.default_rng(7)
    held = []
    for true in rng.normal(0, 0.05, 1000):
        found = occasion_shifts(on_occasions(rng, [0.0, true], 4, own=scatter), 0).by_occasion[1]
        held.append(abs(found.log - true) <= found.half)
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("factor", [1 / 8, 1.5, 2.0, 4.0, 20.0])
def test_a_device_that_became_several_times_slower_has_the_shift_that_its_rows_agree_on(factor, number):
    together = occasion_shifts([{0: stats(1e-3 * row), 1: stats(factor * 1e-3 * row)} for row in range(1, 5)], 0)
    assert together.by_occasion[1].factor == pytest.approx(factor, rel=1e-3)
    assert (together.deviation, together.apart) == (pytest.approx(0.0035, abs=1e-4), False)
    rng, true, held = np.random.default_rng(3), math.log(factor), []
    for _ in range(200):
        shift = occasion_shifts(on_occasions(rng, [0.0, true], number, own=0.015), 0).by_occasion[1]
        held.append(abs(shift.log - true) <= shift.half)
    assert np.mean(held) >= {2: 0.88, 4: 0.92}[number]


def test_a_single_noisy_row_hardly_moves_an_occasion():
    noisy = {0: stats(1e-3, half=0.3), 1: stats(1.3e-3, half=0.3)}
    assert occasion_shifts([noisy], 0).by_occasion[1].factor < 1.05


def test_rows_that_moved_apart_have_no_shift_in_common():
    rng = np.random.default_rng(1)
    together = occasion_shifts(on_occasions(rng, [0.0, 0.06], 4), 0)
    assert not together.apart
    rows = on_occasions(rng, [0.0, 0.0], 4)
    rows = [{0: row[0], 1: stats(row[1].median_s * (1.12 if at % 2 else 1.0))} for at, row in enumerate(rows)]
    apart = occasion_shifts(rows, 0)
    assert apart.apart
    assert apart.by_occasion[1].half > 3 * together.by_occasion[1].half
    assert apart.residuals[1, 1] > 0.02 > -0.02 > apart.residuals[0, 1]


@pytest.mark.parametrize("occasions", [2, 3, 6, 12])
def test_what_anchors_moved_by_does_not_grow_with_the_number_of_occasions(occasions):
    """One of four anchors is 8 % slower on the latest occasion; a quarter of it, less the prior's part, is all's."""
    table = space_table(SPACE, Precision.INT8, calibration=4)
    networks, blocks = table.rows(Role.NETWORK), table.rows(Role.BLOCK)
    latest = occasions - 1
    several = {
        (row.workload, "build"): {
            at: stats(row.stats.median_s * (1.08 if number == 0 and at == latest else 1.0), 5e-4)
            for at in range(occasions)
        }
        for number, row in enumerate(networks)
    }
    first = {(row.workload, "build"): 0 for row in blocks}
    log = OccasionLog(
        tuple(THEN + timedelta(days=at) for at in range(occasions)), dict.fromkeys(several, latest) | first, several
    )
    one = on_one_scale({row.workload: (row, "build") for row in [*networks, *blocks]}, log, None, [])
    beside = math.log(1.08) / 4
    assert list(one.moved.values()) == pytest.approx([3 * beside, -beside, -beside, -beside], abs=0.003)
    assert one.shifts.moved(0).keys() == set(range(4))


def test_what_intervals_of_a_table_allow_for_another_hour_is_no_error_of_their_sessions():
    rows = [
        {at: replace(one, num_sessions=3) for at, one in row.items()}
        for row in on_occasions(np.random.default_rng(1), [0.0, 0.03], 6, own=0.008)
    ]
    wide = [{at: widened(one, BETWEEN_RUNS) for at, one in row.items()} for row in rows]
    found, told, untold = (
        occasion_shifts(*them) for them in ((rows, 0), (wide, 0, dict.fromkeys((0, 1), BETWEEN_RUNS)), (wide, 0))
    )
    assert told.by_occasion[1].half == pytest.approx(found.by_occasion[1].half, rel=0.01)
    assert told.deviation == pytest.approx(found.deviation, rel=0.01)
    assert untold.deviation < 0.98 * found.deviation


def widened(one, between):
    degrees = np.array([one.num_sessions - 1.0])
    error = (one.ci_high_s / one.median_s - 1) / student_t95(one.num_sessions - 1)
    (half,) = half_widths(Variances(np.array([error**2]), degrees).plus(between**2))
    return replace(one, ci_low_s=one.median_s * (1 - half), ci_high_s=one.median_s * (1 + half))


def test_occasions_are_tied_by_way_of_others_and_what_nothing_ties_has_no_shift():
    rows = [{0: stats(1.0), 1: stats(1.05)}, {1: stats(2.0), 2: stats(2.2)}, {3: stats(1.0), 4: stats(1.0)}]
    shifts = occasion_shifts(rows, 0).by_occasion
    assert set(shifts) == {0, 1, 2}
    assert shifts[2].factor == pytest.approx(1.05 * 1.1, rel=0.02)
    assert shifts[2].half > shifts[1].half
    nothing = occasion_shifts([{0: stats(1.0)}], 0)
    assert (dict(nothing.by_occasion).keys(), nothing.between) == ({0}, BETWEEN_OCCASIONS)


def test_occasions_soon_say_more_of_the_next_one_than_the_prior():
    rng = np.random.default_rng(2)
    quiet = occasion_shifts(on_occasions(rng, [0.001 * at for at in range(12)], 4), 0)
    wild = occasion_shifts(on_occasions(rng, rng.normal(0, 0.1, 12), 4), 0)
    assert quiet.between.deviation < 0.03 < BETWEEN_OCCASIONS.deviation < wild.between.deviation
    assert quiet.between.degrees == 15


def dense(rows, reference):
    """Shifts with their standard errors and residuals by normal equations of all rows and occasions at once."""
    cells = [(row, at, one) for row, those in enumerate(rows) if len(those) > 1 for at, one in those.items()]
    others = sorted({at for _, at, _ in cells} - {reference})
    numbers = {row: len(others) + place for place, row in enumerate(dict.fromkeys(row for row, _, _ in cells))}
    design = np.zeros((len(cells), len(others) + len(numbers)))
    for line, (row, at, _) in enumerate(cells):
        design[line, numbers[row]] = 1
        if at != reference:
            design[line, others.index(at)] = 1
    logs = np.array([math.log(one.median_s) for _, _, one in cells])
    errors = _variances([one for _, _, one in cells])
    free, scatter = len(cells) - design.shape[1], _ROW
    for _ in range(_ROUNDS):
        weights = 1 / (errors + scatter.variance / 2)
        known = (design.T * weights) @ design
        residuals = logs - design @ np.linalg.solve(known, design.T @ (weights * logs))
        beyond = 2 * (np.sum(residuals**2) - free * np.mean(errors)) / max(free, 1)
        scatter = _ROW.updated([math.sqrt(max(beyond, 0.0))], free)
    solution = np.full(design.shape[1], np.inf)
    for _ in range(_ROUNDS + 1):
        # A change to one more occasion updates the prior of its own variance.
        prior = [1 / BETWEEN_OCCASIONS.updated([shift], 1).variance for shift in solution[: len(others)]]
        covariance = np.linalg.inv(known + np.diag([*prior, *np.zeros(len(numbers))]))
        solution = covariance @ (design.T @ (weights * logs))
    halves = student_t95(max(free, 2)) * np.sqrt(np.diag(covariance))
    shifts = {at: (solution[place], halves[place]) for place, at in enumerate(others)}
    return shifts, {(row, at): residuals[line] for line, (row, at, _) in enumerate(cells)}, scatter.deviation


@pytest.mark.parametrize("reference", [0, 3])
def test_shifts_are_those_of_the_normal_equations_of_all_rows(reference):
    rng = np.random.default_rng(5)
    rows = [
        {
            int(at): stats(1e-3 * (row + 1) * math.exp(0.03 * at + rng.normal(0, 0.01)), rng.uniform(1e-3, 0.03))
            for at in sorted(rng.choice(5, rng.integers(1, 6), replace=False))
        }
        for row in range(40)
    ]
    found, (shifts, residuals, deviation) = occasion_shifts(rows, reference), dense(rows, reference)
    assert found.by_occasion.keys() == shifts.keys() | {reference}
    for at, (log, half) in shifts.items():
        assert (found.by_occasion[at].log, found.by_occasion[at].half) == pytest.approx((log, half), abs=1e-12)
    assert found.residuals == pytest.approx(residuals, abs=1e-12)
    assert found.deviation == pytest.approx(deviation, rel=1e-9)


def test_memory_grows_with_the_rows_and_not_with_their_square():
    """A table of 36,448 rows that are joined with those published before: 21 GB as one system of all rows."""
    rng = np.random.default_rng(6)
    rows = on_occasions(rng, [0.0, 0.03], 4000)
    tracemalloc.start()
    try:
        found = occasion_shifts(rows, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.by_occasion[1].log == pytest.approx(0.03, abs=0.001)
    assert peak < 8 * len(rows) ** 2 / 10


def test_a_scale_stands_in_the_first_line_and_older_readers_pass_over_it(tmp_path):
    table, path = space_table(SPACE, Precision.INT8), tmp_path / "t.csv"
    scale = Scale(1.0621, 1.0512, 1.0734, AT, Uncertainty.of_deviation(0.043, 6.0), 3)
    LatencyTable(table.target, table.precision, table, scale=scale).write(path)
    first = path.read_text().splitlines()[0]
    assert f"; scale:1.0621; scale_low:1.0512; scale_high:1.0734; scale_at:{AT}; occasion_sd:0.043; occ" in first
    # What readers of before took for keys, and refused where they did not know one.
    assert {pair.split("=", 1)[0] for pair in first.split("; ")[1:] if "=" in pair} == {
        "schema", "target", "precision", "emulated",
    }  # fmt: skip
    again = LatencyTable.read(path)
    assert again.scale == scale
    assert again.text == path.read_text()
    assert again.with_aa(None).scale == scale
    assert [row.stats for row in again] == [row.stats for row in LatencyTable.read(write(table, tmp_path))]


@pytest.mark.parametrize(
    ("factor", "deviation", "between"),
    [(9.5, 1.008, 0.996), (1.0, 0.996, 3.2), (1e5, 5.1, 0.005), (2e-5, 4.8, 0.0), (0.0123456, 2.0, 1.0)],
)
def test_a_scale_of_any_size_reads_back(tmp_path, factor, deviation, between):
    plain = space_table(SPACE, Precision.INT8)
    scale = Scale(factor, 0.9 * factor, 1.1 * factor, AT, Uncertainty.of_deviation(deviation, 5.0), 2)
    LatencyTable(plain.target, plain.precision, plain, between_runs=between, scale=scale).write(tmp_path / "t.csv")
    table = LatencyTable.read(tmp_path / "t.csv")
    numbers = [table.scale.factor, table.scale.low, table.scale.high]
    assert numbers == pytest.approx([scale.factor, scale.low, scale.high], rel=5e-4)
    assert [table.scale.between.deviation, table.between_runs] == pytest.approx([deviation, between], rel=0.05)
    assert table.text == (tmp_path / "t.csv").read_text()


def write(table, folder):
    table.write(folder / "plain.csv")
    return folder / "plain.csv"


@pytest.mark.parametrize(
    "wrong",
    ["scale:1.2", "scale:nan", "scale_at:yesterday", "occasions:0", "occasion_sd:-1", "occasion_sd:inf", "scale_low:2"],
)
def test_a_damaged_scale_is_refused(tmp_path, wrong):
    path = tmp_path / "t.csv"
    table = space_table(SPACE, Precision.INT8)
    LatencyTable(table.target, table.precision, table, scale=Scale(1.06, 1.05, 1.07, AT)).write(path)
    name = wrong.split(":")[0]
    first, _, rows = path.read_text().partition("\n")
    pairs = [wrong if pair.startswith(f"{name}:") else pair for pair in first.split("; ")]
    path.write_text("; ".join(pairs) + "\n" + rows)
    with pytest.raises(InvalidFile, match="scale"):
        LatencyTable.read(path)
    with pytest.raises(InvalidValue, match="inside its interval"):
        Scale(1.0, 1.1, 1.2, AT)


def test_predictions_speak_of_the_day_of_the_scale_and_widen_for_another_occasion():
    table = space_table(SPACE, Precision.INT8)
    scaled = LatencyTable(table.target, table.precision, table, scale=Scale(1.06, 1.05, 1.07, AT))
    network = SPACE.network(SPACE.random(np.random.default_rng(3)), CLASSES).workload(Precision.INT8)
    plain = AdditivePredictor.fit(table)
    same = AdditivePredictor.fit(scaled, moment=THEN + timedelta(minutes=9))
    other = AdditivePredictor.fit(scaled, moment=THEN + timedelta(hours=1))
    assert same.predict(network).seconds == pytest.approx(1.06 * plain.predict(network).seconds)
    assert other.predict(network).seconds == same.predict(network).seconds
    assert plain.spread < same.spread < other.spread
    assert 1.08 < other.spread < 1.15
    assert same.on_day(Scale(1.0, 1.0, 1.0, AT)).predict(network) == plain.predict(network)
    assert occasion_uncertainty(None, None) == CERTAIN
    assert occasion_uncertainty(None, THEN) == BETWEEN_OCCASIONS


@pytest.mark.parametrize("ahead", [timedelta(minutes=11), timedelta(hours=8), timedelta(days=40_000)])
def test_a_table_of_a_day_to_come_is_of_another_occasion(ahead):
    table = space_table(SPACE, Precision.INT8)
    scaled = LatencyTable(table.target, table.precision, table, scale=Scale(1.06, 1.05, 1.07, AT))
    moments = (THEN, THEN - timedelta(minutes=9), THEN + ahead, THEN - ahead)
    now, soon, later, early = (AdditivePredictor.fit(scaled, moment=moment) for moment in moments)
    assert now.spread == soon.spread < early.spread == later.spread
    assert scaled.scale.on(THEN - ahead) == scaled.scale.on(THEN + ahead) != scaled.scale.uncertainty


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (THEN + timedelta(minutes=9), ""),
        (THEN - timedelta(minutes=9), ""),
        (THEN + timedelta(minutes=70), ", 1 hour ago"),
        (THEN - timedelta(minutes=11), ", 11 minutes ahead of the clock"),
        (THEN - timedelta(days=2), ", 2 days ahead of the clock"),
    ],
)
def test_how_far_the_day_of_a_table_is_away_is_told_either_way(moment, words):
    table = space_table(SPACE, Precision.INT8)
    scaled = LatencyTable(table.target, table.precision, table, scale=Scale(1.0, 1.0, 1.0, AT))
    assert describe_day(scaled, moment).endswith(f"are those of 2026-01-31 22:15 UTC{words}")
    ears = Keeper()
    tell_day(scaled, moment, ears)
    assert len(ears.lines) == bool(words)
    assert all(f"{words}; another occasion may differ" in line and "--refresh" in line for line in ears.lines)


def test_the_difference_of_two_networks_is_surer_than_either_on_another_day():
    table = space_table(SPACE, Precision.INT8)
    scaled = LatencyTable(table.target, table.precision, table, scale=Scale(1.06, 1.05, 1.07, AT))
    same, other = (AdditivePredictor.fit(scaled, moment=THEN + timedelta(hours=h)) for h in (0, 24))
    rng = np.random.default_rng(4)
    first, second = (SPACE.network(SPACE.random(rng), CLASSES).workload(Precision.INT8) for _ in range(2))
    ours, theirs = other.predict(first), other.predict(second)
    difference = other.difference(first, second)
    assert difference.seconds == pytest.approx(ours.seconds - theirs.seconds)
    assert difference.low_s < difference.seconds < difference.high_s
    assert difference == same.difference(first, second)  # the occasion cancels
    assert difference.high_s - difference.low_s < (ours.high_s - theirs.low_s) - (ours.low_s - theirs.high_s)
    assert (difference.chance < 0.5) == (difference.seconds > 0)
    assert difference.chance + other.difference(second, first).chance == pytest.approx(1.0, abs=1e-6)
    assert other.difference(first, first).chance == pytest.approx(0.5)


def test_anchors_are_few_spread_and_the_same_at_every_call():
    table = space_table(SPACE, Precision.INT8, calibration=12)
    rows = anchor_rows(table)
    assert rows == anchor_rows(table)
    assert len(rows) == len({row.workload for row in rows}) == 4
    seconds = sorted(row.stats.median_s for row in table.rows(rows[0].role))
    assert rows[0].stats.median_s == seconds[0]
    assert rows[-1].stats.median_s >= seconds[-3]
    assert anchor_rows(LatencyTable(table.target, table.precision, ())) == []


def test_quantiles_and_sums_of_uncertainties():
    assert student_t(0.95, 4.0) == pytest.approx(2.1318, abs=1e-3)
    assert student_t(0.975, math.inf) == pytest.approx(1.96, abs=0.01)
    assert student_t(0.5, 3.0) == pytest.approx(0.0, abs=1e-6)
    one = Uncertainty.of_deviation(0.03, 4.0) + Uncertainty.of_deviation(0.04, 4.0)
    assert one.deviation == pytest.approx(0.05)
    assert 4.0 < one.degrees < 8.0
    assert one + CERTAIN == one
    assert CERTAIN.spread(0.9) == CERTAIN.margin(0.9) == 1.0
    assert one.chance(math.log(one.margin(0.9))) == pytest.approx(0.9, abs=1e-3)
    assert one.chance(-math.log(one.margin(0.9))) == pytest.approx(0.1, abs=1e-3)
    updated = Uncertainty.of_deviation(0.02, 2.0).updated([0.04] * 6, 6.0)
    assert updated.variance == pytest.approx((2 * 0.02**2 + 6 * 0.04**2) / 8)
    assert updated.degrees == 8.0
