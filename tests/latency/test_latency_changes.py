"""Two tables of one device: what moved is found, what is noise is not, and all together is told apart from one."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from hwbench.api.validate import ValidateResult, calibrating, changes_since
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.latency import (
    BETWEEN_RUNS,
    LatencyRow,
    LatencyTable,
    Role,
    SelfCheck,
    between_runs,
    compare_tables,
    taken_otherwise,
    with_honest_intervals,
)
from hwbench.latency.occasions import Scale, between_scales
from hwbench.latency.significance import (
    Variances,
    false_discovery_rates,
    half_widths,
    median_interval,
    moderated,
    tails,
    unexplained,
    variances_within,
)
from hwbench.latency.uncertainty import CERTAIN
from hwbench.spaces import read_space
from hwbench.specs import LatencyStats, Measurement, Outcome, Precision, Repeatability, Session, Target, Timing
from hwbench.specs.timing import student_t95
from hwbench.workspace import shipped

SPACE = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
PARTS = sorted(SPACE.parts(Precision.INT8, num_classes=8), key=lambda p: p.key)
TARGET = Target("local", "executorch", "1.5.1", 1)
TRUE_S = {part: 1e-4 * 1.05**at for at, part in enumerate(PARTS)}


def measured(
    parts=PARTS, seed=0, *, shift=0.0, moves=None, spread=0.003, between=0.0, sessions=3, conditions="c0", aa=None
):
    """A table as the protocol would give it: medians of sessions that vary by ``spread``, rounded as in a file."""
    rng = np.random.default_rng(seed)
    rows = []
    for part in parts:
        centre = TRUE_S[part] * (1 + shift) * (moves or {}).get(part, 1.0) * math.exp(rng.normal(0, between))
        stats = LatencyStats.of([Session((centre * (1 + spread * e),)) for e in rng.normal(size=sessions)])
        rows.append(LatencyRow(Role.BLOCK, part, Outcome.OK, stats, "2026-01-31", conditions))
    table = LatencyTable(TARGET, Precision.INT8, rows)
    return table.with_aa(aa)


def written(table, tmp_path):
    table.write(tmp_path / "t.csv")
    return LatencyTable.read(tmp_path / "t.csv")


def test_the_tail_of_t_is_that_of_the_tables():
    degrees = np.array([2.0, 4.0, 10.0, 400.0])
    tabulated = np.array([4.303, 2.776, 2.228, 1.966])
    assert tails(tabulated, Variances(np.ones(4), degrees)) == pytest.approx(0.05, rel=2e-3)
    exact = 1 - 7 / math.sqrt(7**2 + 2)  # two degrees have a closed form
    assert tails(np.array([-7.0]), Variances(np.ones(1), np.array([2.0]))) == pytest.approx(exact)


def test_false_discovery_rates_are_those_of_benjamini_and_hochberg():
    assert false_discovery_rates(np.array([0.01, 0.2, 0.03, 0.5])) == pytest.approx([0.04, 4 / 15, 0.06, 0.5])


def test_variances_that_are_alike_share_what_they_know():
    rng = np.random.default_rng(0)
    alike = moderated(Variances(4e-6 * rng.chisquare(2, 500) / 2, np.full(500, 2.0)))
    assert alike.values == pytest.approx(4e-6, rel=0.4)
    assert alike.degrees.min() > 20
    usual = 4e-6 * 6 / rng.chisquare(6, 5000)  # what the method takes them to be drawn from
    unlike = moderated(Variances(usual * rng.chisquare(2, 5000) / 2, np.full(5000, 2.0)))
    assert unlike.degrees[0] - 2 == pytest.approx(6, rel=0.3)


def test_a_spread_that_intervals_do_not_explain_is_found():
    rng = np.random.default_rng(0)
    known = Variances(np.full(400, 1e-6), np.full(400, 8.0))
    assert unexplained(rng.normal(0, math.hypot(1e-3, 0.01), 400), known) == pytest.approx(0.01, rel=0.2)
    assert unexplained(rng.normal(0, 0.9e-3, 400), known) == 0


def test_the_interval_of_a_median_leaves_two_of_ten_out():
    assert median_interval(np.arange(10.0)) == (1.0, 8.0)
    assert median_interval(np.array([3.0, 1.0])) == (1.0, 3.0)


def test_the_interval_of_a_median_holds_it_with_95_percent_and_no_wider_one_is_needed():
    """A median is above as many of n values as heads come up in n throws."""
    for number in [*range(6, 121), 1000, 5000]:
        low, high = median_interval(np.arange(float(number)))
        assert low + high == number - 1
        missed, missed_if_narrower = (2 * binom.cdf(low + more, number, 0.5) for more in (0, 1))
        assert missed <= 0.05 < missed_if_narrower


def test_nothing_moved_between_two_tables_of_the_same(tmp_path):
    found = compare_tables(measured(seed=1), written(measured(seed=2), tmp_path))
    assert len(found.rows) == len(PARTS)
    assert found.none
    assert found.agreeing > 0.97
    assert found.consistent > 0.85
    assert abs(found.shift) < 0.002
    assert "no row moved" in str(found)


def test_false_alarms_are_rare_whatever_the_number_of_rows():
    alarms = sum(not compare_tables(measured(seed=s), measured(seed=1000 + s)).none for s in range(20))
    few = sum(
        not compare_tables(measured(PARTS[:6], seed=s), measured(PARTS[:6], seed=1000 + s)).none for s in range(60)
    )
    assert alarms <= 4  # one in twenty, and what chance adds
    assert few <= 7


def test_rows_that_moved_are_found_and_the_others_are_not(tmp_path):
    moves = {PARTS[3]: 1.06, PARTS[-2]: 0.93, PARTS[-1]: 1.5}
    found = compare_tables(measured(seed=1), written(measured(seed=2, moves=moves), tmp_path))
    assert {row.workload for row in found.moved} == set(moves)
    assert found.rows[0].workload == PARTS[-1]  # the largest first
    assert found.rows[0].change == pytest.approx(0.5, abs=0.02)
    assert not found.shifted
    assert f"3 of {len(PARTS)} rows moved" in str(found)


def test_a_shift_of_all_is_told_apart_from_a_row():
    found = compare_tables(measured(seed=1), measured(seed=2, shift=0.03, moves={PARTS[7]: 0.9}))
    assert found.shifted
    assert found.shift == pytest.approx(0.03, abs=0.002)
    assert found.shift_low < 0.03 < found.shift_high
    assert [row.workload for row in found.moved] == [PARTS[7]]
    assert found.moved[0].beyond == pytest.approx(-0.1, abs=0.01)
    assert found.agreeing < 0.5
    assert "all rows together slower" in str(found)


def on_day(table, factor, spread, at="2026-02-01T22:15Z"):
    scale = Scale(factor, factor / spread, factor * spread, at)
    return table.on_day(scale), scale


def test_a_shift_is_no_surer_than_the_scales_of_the_tables():
    """A refresh by noisy anchors: the scale is +3 %, and may be -1 %, of a device as fast as before."""
    before, first = on_day(measured(seed=1), 1.0, 1.0001, "2026-01-31T22:15Z")
    after, second = on_day(measured(seed=2), 1.03, 1.04)
    found = compare_tables(before, after, between_scales(first, second))
    assert found.shift == pytest.approx(0.03, abs=0.002)
    assert (found.shifted, found.moved) == (False, ())
    assert math.log1p(found.shift_high) == pytest.approx(math.log(1.03 * 1.04), abs=0.003)
    assert math.log1p(found.shift_low) == pytest.approx(math.log(1.03 / 1.04), abs=0.003)
    assert found.agreeing > 0.97
    assert found.consistent > 0.9
    # Both scales are unsure: the variances of their logarithms add up; a surer one tells.
    both = between_scales(on_day(before, 1.0, 1.03, first.at)[1], second)
    assert both.variance == pytest.approx((math.log(1.03) ** 2 + math.log(1.04) ** 2) / student_t95(1000) ** 2)
    sure, third = on_day(measured(seed=2), 1.03, 1.005)
    assert compare_tables(before, sure, between_scales(first, third)).shifted
    # Rows that moved by themselves do so whatever the scale.
    moved = measured(seed=2, moves={PARTS[7]: 0.9}).on_day(second)
    assert [row.workload for row in compare_tables(before, moved, both).moved] == [PARTS[7]]
    assert between_scales(second, second) == between_scales(None, None) == CERTAIN


def test_few_rows_are_no_surer_than_the_scale_either():
    after, scale = on_day(measured(PARTS[:4], seed=2), 1.06, 1.08)
    found = compare_tables(measured(PARTS[:4], seed=1), after, between_scales(None, scale))
    assert (found.moved, found.agreeing, found.consistent) == ((), 1.0, 1.0)


def test_few_rows_are_judged_each_by_itself():
    found = compare_tables(measured(PARTS[:2], seed=1), measured(PARTS[:2], seed=2, shift=0.5))
    assert len(found.moved) == 2
    assert not found.shifted
    assert [row.beyond for row in found.rows] == [row.change for row in found.rows]


def test_a_spread_of_all_rows_is_no_reason_to_call_each_of_them_moved():
    found = compare_tables(measured(seed=1), measured(seed=2, between=0.02, moves={PARTS[7]: 1.4}))
    assert [row.workload for row in found.moved] == [PARTS[7]]
    assert found.spread == pytest.approx(0.02, rel=0.3)


def test_what_the_same_file_may_differ_by_is_no_move():
    moves = {PARTS[3]: 1.06}
    aa = SelfCheck(Repeatability(0.02, -0.03, 0.07, 8, 2e-3), "2026-01-31")
    found = compare_tables(measured(seed=1, aa=aa), measured(seed=2, moves=moves))
    assert found.allowed == 0.07
    assert found.none
    small = compare_tables(measured(seed=1, spread=1e-4), measured(seed=2, spread=1e-4, moves={PARTS[3]: 1.008}))
    assert small.none  # surely there, and less than 1 %


def test_a_row_of_one_session_cannot_be_judged():
    found = compare_tables(measured(PARTS[:3], sessions=1), measured(PARTS[:3], seed=2, shift=1.0, sessions=1))
    assert found.moved == ()
    assert [(row.chance, row.rate) for row in found.rows] == [(None, None)] * 3
    assert math.isnan(found.consistent)


def test_rows_of_one_table_alone_and_failed_ones_are_told():
    failed = LatencyRow(Role.BLOCK, PARTS[0], Outcome.CRASH, None, "2026-01-31", reason="killed")
    before, after = measured(PARTS[:4]), measured(PARTS[1:6], seed=2)
    after = LatencyTable(TARGET, Precision.INT8, [*after, failed])
    found = compare_tables(before, after)
    assert {row.workload for row in found.rows} == set(PARTS[1:4])
    assert [row.workload for row in found.only_before] == [PARTS[0]]
    assert {row.workload for row in found.only_after} == set(PARTS[4:6])
    with pytest.raises(InvalidValue, match="no row in common"):
        compare_tables(measured(PARTS[:2]), measured(PARTS[2:4]))


def test_how_they_were_taken_otherwise_is_said():
    before = measured(PARTS[:2])
    assert taken_otherwise(before, before) == []
    other = LatencyTable(Target("s9", "executorch", "1.5.1", 2), Precision.INT8, measured(PARTS[:2], conditions="c1"))
    said = taken_otherwise(before, other)
    assert said[0] == f"another target: {TARGET}, then s9/executorch-1.5.1/t2"
    assert said[1] == "other conditions: c0, then c1"
    known = {"c0": {"kernel": "6.1", "cpus": "0"}, "c1": {"kernel": "6.2", "cpus": "0", "boost": "off"}}
    assert taken_otherwise(before, other, known)[1] == "other conditions: boost -, then off; kernel 6.1, then 6.2"
    doubtful = before.with_aa(SelfCheck(Repeatability(0.02, -0.01, 0.05, 8, 2e-3), "2026-01-31"))
    assert "the A/A test after found the same file twice differs by +2.00 %" in taken_otherwise(before, doubtful)[0]


def test_an_aa_test_stands_in_the_first_line_and_survives(tmp_path):
    aa = SelfCheck(Repeatability(0.00123456, -0.003, 0.005, 8, 0.00207), "2026-01-31")
    table = measured(PARTS[:2], aa=aa)
    line = table.text.splitlines()[0]
    end = "; aa=0.001235; aa_low=-0.003; aa_high=0.005; aa_pairs=8; aa_median_s=0.00207; aa_on=2026-01-31"
    assert line.endswith("emulated=no" + end)
    back = written(table, tmp_path)
    assert back.text == table.text
    assert back.aa.found.largest == 0.005
    assert back.aa.made_on == "2026-01-31"
    assert written(table.with_aa(None), tmp_path).aa is None
    assert "aa" not in table.with_aa(None).text.splitlines()[0].replace("hwbench", "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("aa_pairs=8", "aa_pairs=eight"),
        ("aa_pairs=8", "aa_pairs=1"),
        ("; aa_on=2026-01-31", ""),
        ("aa_on=2026-01-31", "aa_on=today"),
        ("aa_low=-0.003", "aa_low=0.004"),
        ("aa_median_s=0.00207", "aa_median_s=nan"),
        ("aa=0.001", "aa=nan"),
        ("; aa=", "; bb="),
    ],
)
def test_a_damaged_aa_test_is_refused(tmp_path, old, new):
    aa = SelfCheck(Repeatability(0.001, -0.003, 0.005, 8, 0.00207), "2026-01-31")
    text = measured(PARTS[:2], aa=aa).text
    assert old in text
    (tmp_path / "t.csv").write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidFile, match=r"A/A test|expected a first line"):
        LatencyTable.read(tmp_path / "t.csv")


@pytest.mark.parametrize("number", [1, 4, 12])
def test_rows_of_which_a_session_stalled_are_compared(number):
    stalled = LatencyStats.of([Session((seconds,)) for seconds in (0.001, 0.001, 2.0)])
    rows = [LatencyRow(Role.BLOCK, part, Outcome.OK, stalled, "2026-01-31", "c0") for part in PARTS[:number]]
    before, after = measured(PARTS[:number]), LatencyTable(TARGET, Precision.INT8, rows)
    for pair in ((before, after), (after, before)):
        changes = compare_tables(*pair)
        assert -1 <= changes.shift_low <= changes.shift <= changes.shift_high <= 1e6
        assert str(changes)


def stopped_early(seed):
    """A table whose rows end at five sessions where these agree to a percent, else at eight, as campaigns do; what an
    hour changes is a fifth of a percent."""
    rng, rows = np.random.default_rng(seed), []
    for part in PARTS:
        spread = 0.004 * math.exp(np.random.default_rng(len(rows)).normal(0, 0.5))  # that of the row, in every run
        centre = TRUE_S[part] * (1 + 0.002 * rng.normal())
        sessions = [Session((centre * (1 + spread * e),)) for e in rng.normal(size=8)]
        first = LatencyStats.of(sessions[:5])
        narrow = first.ci_high_s - first.ci_low_s <= 0.02 * first.median_s
        stats = first if narrow else LatencyStats.of(sessions)
        rows.append(LatencyRow(Role.BLOCK, part, Outcome.OK, stats, "2026-01-31", "c0"))
    return rows


def test_intervals_that_are_narrow_by_luck_are_widened_and_no_others():
    shares, usual = [], []
    for seed in range(30):
        pair = [stopped_early(2 * seed), stopped_early(2 * seed + 1)]
        usual.append(compare_tables(*(LatencyTable(TARGET, Precision.INT8, rows) for rows in pair)).agreeing)
        wide = [with_honest_intervals(rows, between=0.0) for rows in pair]
        shares.append(compare_tables(*(LatencyTable(TARGET, Precision.INT8, rows) for rows in wide)).agreeing)
        for before, after in zip(*(sorted(rows, key=lambda r: r.workload.key) for rows in (pair[0], wide[0]))):
            assert after.stats.median_s == before.stats.median_s
            assert after.stats.ci_low_s <= before.stats.ci_low_s
            assert after.stats.ci_high_s >= before.stats.ci_high_s
    assert min(shares) >= 0.95 > min(usual)
    half = [(row.stats.ci_high_s / row.stats.median_s - 1) for row in wide[0]]
    narrow = [(row.stats.ci_high_s / row.stats.median_s - 1) for row in pair[0]]
    assert np.median(half) < 1.5 * np.median(narrow)
    assert min(half) > 1.5 * min(narrow)


def test_rows_that_failed_or_have_one_session_keep_what_they_have():
    failed = LatencyRow(Role.BLOCK, PARTS[0], Outcome.CRASH, None, "2026-01-31", "c0", "died")
    once = list(measured(PARTS[1:2], sessions=1))
    several = list(measured(PARTS[2:], sessions=5))
    found = with_honest_intervals([failed, *once, *several])
    assert found[:2] == [failed, *once]
    assert with_honest_intervals([]) == []
    (alone,) = with_honest_intervals(several[:1], between=0.0)
    assert alone.stats == several[0].stats


def occasions(seed, hour=0.008, spread=0.003, parts=PARTS, day=0.0, sessions=6):
    """Each row on two occasions, between which it moves by ``hour`` (one standard deviation), and all by ``day``."""
    rng = np.random.default_rng(seed)
    for part in parts:
        centres = TRUE_S[part] * np.exp(rng.normal(0, hour / math.sqrt(2), size=2))
        centres[1] *= 1 + day
        found = [[Session((centre * (1 + spread * e),)) for e in rng.normal(size=sessions)] for centre in centres]
        yield {number: LatencyStats.of(those) for number, those in enumerate(found)}


def test_what_another_hour_changes_is_told_by_rows_that_were_measured_anew():
    found = [between_runs(occasions(seed)) * math.sqrt(2) for seed in range(20)]
    assert np.median(found) == pytest.approx(0.008, rel=0.15)
    assert max(found) < 0.015


def test_a_quiet_hour_and_few_rows_tell_nothing_of_the_next_hour():
    assert between_runs(occasions(0, hour=0.0)) == BETWEEN_RUNS
    # what all rows share takes one of eleven degrees
    assert between_runs(occasions(0, hour=0.05, parts=PARTS[:10])) == BETWEEN_RUNS
    assert between_runs(occasions(0, hour=0.05, parts=PARTS[:11])) > 2 * BETWEEN_RUNS
    assert between_runs([]) == BETWEEN_RUNS
    # two sessions of an occasion hardly tell their spread
    assert between_runs(occasions(0, hour=0.05, sessions=2)) == BETWEEN_RUNS


@pytest.mark.parametrize("anchors", [2, 3, 4, 5, 6, 9, 20])
def test_what_another_hour_changes_is_told_by_a_few_anchors_on_many_days(anchors):
    rng = np.random.default_rng(anchors)
    found = []
    for _ in range(40):
        days = np.cumsum(rng.normal(0, 0.05, size=2 + 40 // anchors))
        rows = [
            {day: LatencyStats.of([Session((centre,))] * 3) for day, centre in enumerate(np.exp(days + own))}
            for own in rng.normal(0, 0.02, size=(anchors, len(days)))
        ]
        found.append(between_runs(rows))
    assert np.mean(found) == pytest.approx(0.02, rel=0.12)


def test_rows_that_were_measured_anew_alone_tell_nothing_of_the_next_hour():
    several = list(occasions(0, hour=0.05))
    alone = [{2 * number: row[0], 2 * number + 1: row[1]} for number, row in enumerate(several, 1)]
    assert between_runs(alone) == BETWEEN_RUNS
    assert between_runs([*several, *alone]) == between_runs(several)


def test_what_all_rows_share_on_a_day_is_no_scatter_of_theirs():
    assert between_runs(occasions(0, hour=0.0, day=0.08)) == BETWEEN_RUNS
    apart, together = (between_runs(occasions(0, day=day)) for day in (0.0, 0.08))
    assert together == pytest.approx(apart, rel=1e-3)


def test_intervals_hold_what_another_hour_changes():
    shares = {0.0: [], BETWEEN_RUNS: []}
    for seed in range(20):
        rows = [list(measured(seed=2 * seed + at, sessions=6, between=BETWEEN_RUNS)) for at in (0, 1)]
        for between, found in shares.items():
            tables = (LatencyTable(TARGET, Precision.INT8, with_honest_intervals(those, between)) for those in rows)
            found.append(compare_tables(*tables).agreeing)
    assert np.mean(shares[0.0]) < 0.9
    # Intervals that touch, not the interval of a difference: more agree than 95 %.
    assert np.mean(shares[BETWEEN_RUNS]) >= 0.97
    wide = with_honest_intervals(rows[0])
    half = [(row.stats.ci_high_s - row.stats.ci_low_s) / 2 / row.stats.median_s for row in wide]
    assert 1.96 * BETWEEN_RUNS < np.median(half) < 3 * BETWEEN_RUNS


def test_a_table_tells_what_its_intervals_allow_for(tmp_path):
    assert written(measured(PARTS[:2]), tmp_path).between_runs == 0.0
    rows = list(measured(PARTS[:2]))
    table = LatencyTable(TARGET, Precision.INT8, rows, between_runs=0.0071)
    assert "; between_runs=0.0071\n" in table.text
    assert written(table, tmp_path).with_aa(None).between_runs == 0.0071
    for wrong in ("-0.1", "inf", "nan", "half"):
        (tmp_path / "t.csv").write_text(table.text.replace("between_runs=0.0071", f"between_runs={wrong}"))
        with pytest.raises(InvalidFile, match=f"between_runs as a share such as 0.005, got '{wrong}'"):
            LatencyTable.read(tmp_path / "t.csv")


def honest(rows):
    return LatencyTable(TARGET, Precision.INT8, with_honest_intervals(list(rows)), between_runs=BETWEEN_RUNS)


@pytest.mark.parametrize(
    "spread", [pytest.param(0.001, marks=pytest.mark.long), 0.003, pytest.param(0.006, marks=pytest.mark.long)]
)
@pytest.mark.parametrize(("count", "seeds"), [(1, 400), (4, 100), (len(PARTS), 10)])
def test_published_tables_of_which_nothing_changed_are_consistent_by_95_percent(tmp_path, spread, count, seeds):
    """Each row moves from one hour to the next by what the intervals of both tables allow for."""
    alike = []
    for seed in range(seeds):
        how = {"spread": spread, "between": BETWEEN_RUNS, "sessions": 5}
        pair = [honest(measured(PARTS[:count], 2 * seed + at, **how)) for at in (0, 1)]
        alike.append(compare_tables(*pair).consistent)
    assert 0.93 <= np.mean(alike) <= 0.97
    assert compare_tables(pair[0], written(pair[1], tmp_path)).consistent == pytest.approx(alike[-1], abs=0.1)


def measured_networks(rng):
    """Six networks, as on one of many days."""
    draw = np.random.default_rng(0)
    for _ in range(6):
        network = SPACE.network(SPACE.random(draw), 8).workload(Precision.INT8)
        centre = 1e-3 * math.exp(BETWEEN_RUNS * rng.normal())
        sessions = tuple(Session((centre * (1 + 0.002 * e),)) for e in rng.normal(size=5))
        yield Measurement(network, TARGET, Timing(), Outcome.OK, sessions)


def test_networks_that_validate_measures_again_are_consistent_by_95_percent():
    rng, alike = np.random.default_rng(0), []
    for _ in range(120):
        published = honest(LatencyRow.of(one, "2026-01-31") for one in measured_networks(rng))
        alike.append(changes_since(calibrating(published, 6), measured_networks(rng)).consistent)
    assert 0.93 <= np.mean(alike) <= 0.97


def test_what_an_interval_allows_for_another_hour_is_taken_off_again():
    degrees, least = np.array([2.0, 4.0, 4.0, 7.0]), 1e-12
    own = Variances(np.array([1e-6, 4e-5, 1e-7, 9e-6]), degrees)
    for between in (0.0, 0.002, 0.005):
        found = variances_within(half_widths(own.plus(between**2)), degrees, between**2, least)
        assert found.values == pytest.approx(own.values, rel=1e-2)
    narrow = variances_within(np.array([1.9 * 0.005]), np.array([4.0]), 0.005**2, least)
    assert narrow.values == pytest.approx([least])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_interval_of_a_few_changes_holds_what_is_true_by_95_percent(count):
    held = []
    for seed in range(200):
        pair = [
            honest(measured(PARTS[:count], 2 * seed + at, spread=0.004, between=BETWEEN_RUNS, sessions=5))
            for at in (0, 1)
        ]
        found = compare_tables(*pair)
        assert found.shift_low <= min(row.change for row in found.rows)
        assert found.shift_high >= max(row.change for row in found.rows)
        held.append(found.shift_low <= 0 <= found.shift_high)
    assert np.mean(held) >= 0.93
    assert "95 %" in str(found)


def test_a_few_rows_of_one_session_have_a_range_and_no_interval():
    for count in (1, 5):
        found = compare_tables(measured(PARTS[:count], sessions=1), measured(PARTS[:count], seed=2, sessions=1))
        assert not found.has_interval
        changes = [row.change for row in found.rows]
        assert (found.shift_low, found.shift_high) == pytest.approx((min(changes), max(changes)))
        assert "95 %" not in str(found)
        assert "too few sessions for an interval" in str(found)
    assert compare_tables(measured(PARTS[:6], sessions=1), measured(PARTS[:6], seed=2, sessions=1)).has_interval


@pytest.mark.parametrize(("count", "told"), [(1, False), (2, False), (3, True), (6, True)])
def test_fewer_than_three_networks_do_not_say_that_the_device_changed(count, told):
    since = compare_tables(honest(measured(PARTS[:count], seed=1)), honest(measured(PARTS[:count], seed=2, shift=0.2)))
    found = ValidateResult("local", None, (), "", since, "hwbench profile")
    assert (found.change is not None) == told
    assert found.change is None or f"slower now than when its table was taken: {count} " in found.change
