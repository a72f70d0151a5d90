import pytest

from hwbench.measure.quality import REPEATS, doubt, half_width, sessions_needed, verdict
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
        (session(involuntary_switches=3), "preempted 3 times in 20 samples"),
        (session(cpu_s=0.016, wall_s=0.02), "only 80% of the time"),
        (session(drift=1.05), "sentinel moved by +5.0%"),
        (session(drift=0.95), "sentinel moved by -5.0%"),
        (Session(samples_s=(0.001,) * 16 + (0.0015,) * 4), "two modes: 4 of 20"),
        (Session(samples_s=(0.001,) * 17 + (0.0015,) * 3), ""),
    ],
)
def test_doubt_says_what_speaks_against_a_session(one, expected):
    reason = doubt(one, threads=1)
    assert expected in reason
    assert bool(reason) == bool(expected)


def test_several_threads_may_use_less_or_more_than_the_wall_time():
    assert doubt(session(cpu_s=0.035, wall_s=0.02), threads=2) == ""


def test_the_share_on_the_processor_is_not_judged_where_it_is_unknown():
    assert doubt(session(cpu_s=0.0, wall_s=0.02), threads=1) == ""


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
