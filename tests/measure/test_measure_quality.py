import pytest

from hwbench.measure.quality import REPEATS, doubt, half_width, robust_half_width, sessions_needed, verdict
from hwbench.specs import LatencyStats, Outcome, Session, Timing

TIMING = Timing(min_rounds=3, max_rounds=6, ci_ratio=0.01)


def session(median_s=0.001, samples=20, **values):
    return Session(samples_s=(median_s,) * samples, **values)


def clean(*medians):
    return [(session(m), "") for m in medians]


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (session(), ""),
        (session(cpu_s=0.0199, wall_s=0.02, involuntary_switches=1), ""),
        (session(cpu_s=0.01, wall_s=0.02, involuntary_switches=5), ""),
        (session(involuntary_switches=6), "preempted 6 times in 20 samples"),
        (session(cpu_s=0.016, wall_s=0.02, involuntary_switches=6), "on the processor for 80% of the time"),
        (session(drift=1.05), "sentinel moved by +5.0%"),
        (session(drift=0.95), "sentinel moved by -5.0%"),
        (Session(samples_s=(0.001,) * 16 + (0.0015,) * 4), "two modes: 4 of 20"),
        (Session(samples_s=(0.001,) * 17 + (0.0015,) * 3), ""),
    ],
)
def test_doubt_says_what_speaks_against_a_session(one, expected):
    reason = doubt(one)
    assert expected in reason
    assert bool(reason) == bool(expected)


def test_half_width_is_relative_to_the_median():
    sessions = [one for one, _ in clean(0.00099, 0.001, 0.00101)]
    stats = LatencyStats.of(sessions)
    assert half_width(sessions) == pytest.approx((stats.ci_high_s - stats.ci_low_s) / 2 / 0.001)


@pytest.mark.parametrize(
    ("sessions", "needed"),
    [
        ([], 3),
        (clean(0.001), 2),
        (clean(0.001, 0.001, 0.001), 0),
        (clean(0.001, 0.001, 0.0012), 1),
        (clean(0.001, 0.0011, 0.0012, 0.001, 0.0011, 0.0012), 0),
        ([*clean(0.001, 0.0011, 0.0012, 0.001, 0.0011), (session(0.0012), "preempted")], 1),
        ([*clean(0.001, 0.0011, 0.0012, 0.001, 0.0011), *[(session(0.0013), "preempted")] * (1 + REPEATS)], 0),
        ([*clean(0.001, 0.001, 0.001), (session(0.009), "preempted")], 0),
    ],
)
def test_sessions_needed(sessions, needed):
    assert sessions_needed(sessions, TIMING) == needed


def test_verdict_is_about_the_interval_of_the_sessions_that_count():
    assert verdict([*clean(0.001, 0.00101, 0.00102), (session(0.05), "preempted")], TIMING) == (Outcome.OK, "")
    outcome, reason = verdict([*clean(0.001, 0.002, 0.003), (session(0.004), "preempted 9 times")], TIMING)
    assert outcome is Outcome.NOISY
    assert "after 4 sessions" in reason
    assert reason.endswith("last doubt: preempted 9 times")


def test_two_sessions_in_another_clock_state_do_not_make_a_row_noisy():
    sessions = clean(0.430, 0.431, 0.429, 0.467, 0.468, 0.430, 0.432, 0.430)
    assert half_width([one for one, _ in sessions]) > robust_half_width([one for one, _ in sessions])
    assert sessions_needed(sessions[:5], TIMING) == 1
    assert verdict(sessions, TIMING) == (Outcome.OK, "")


def test_the_robust_interval_is_that_of_a_normal_distribution():
    sessions = [one for one, _ in clean(*(0.001 * (1 + 0.01 * z) for z in (-1.15, -0.67, -0.32, 0, 0.32, 0.67, 1.15)))]
    assert robust_half_width(sessions) == pytest.approx(half_width(sessions), rel=0.35)
    assert robust_half_width(sessions[:1]) == half_width(sessions[:1])
