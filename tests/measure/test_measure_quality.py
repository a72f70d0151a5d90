import random
import statistics
from dataclasses import replace

import pytest

from hwbench.measure.drift import Lowest, Undisturbed
from hwbench.measure.quality import (
    FLOOR_S,
    REPEATS,
    bootstrap_interval,
    doubt,
    half_width,
    narrow_enough,
    robust_half_width,
    sessions_needed,
    usual_cores,
    verdict,
)
from hwbench.measure.store_types import trusted
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
        (Session(samples_s=(0.001,) * 17 + (0.006,) * 3, cpu_s=0.02, wall_s=0.035, involuntary_switches=5), ""),
        (session(cpu_s=0.019, wall_s=0.02), "waited for the processor for 5% of a typical sample"),
        (session(involuntary_switches=6), "preempted 6 times in 20 samples"),
        (session(cpu_s=0.016, wall_s=0.02, involuntary_switches=6), "on the processor for 80% of the time"),
        (session(drift=1.05), "sentinel moved by +5.0%"),
        (session(drift=0.95), "sentinel moved by -5.0%"),
        (session(drift=1.15, probe_s=2e-5), ""),
        (session(drift=1.3, probe_s=2e-5), "the clock moved by +30.0%"),
        (Session(samples_s=(0.001,) * 16 + (0.0015,) * 4), "two modes: 4 of 20"),
        (Session(samples_s=(0.001,) * 17 + (0.0015,) * 3), ""),
    ],
)
def test_doubt_says_what_speaks_against_a_session(one, expected):
    reason = doubt(one)
    assert expected in reason
    assert bool(reason) == bool(expected)


def test_a_clock_unlike_the_usual_one_is_doubted():
    assert doubt(session(clock_hz=2.3e9), 2.4e9) == ""
    assert "2.10 GHz instead of 2.40" in doubt(session(clock_hz=2.1e9), 2.4e9)
    assert doubt(session(clock_hz=0.0), 2.4e9) == doubt(session(clock_hz=2.1e9), 0.0) == ""


def test_a_session_on_a_core_that_another_program_used_is_doubted():
    alone = Undisturbed(Lowest([1.33, 1.32, 1.31]))
    assert doubt(session(crowding=1.36), undisturbed=alone) == doubt(session(crowding=2.0)) == ""
    assert "another program shared the core: independent work took 50% longer" in doubt(
        session(crowding=1.5), undisturbed=Undisturbed(Lowest([1.0]))
    )


def test_a_session_while_others_used_the_memory_is_doubted():
    alone = Undisturbed(memory=Lowest([6.0, 5.8, 5.9, 9.0]))
    assert doubt(session(memory=14.0), undisturbed=alone) == doubt(session(memory=0.0), undisturbed=alone) == ""
    said = "others used the memory: a sweep over it took 200% longer"
    assert said in doubt(session(memory=18.0), undisturbed=alone)
    assert doubt(session(memory=18.0)) == ""


def test_the_lowest_figures_are_kept():
    lowest = Lowest()
    assert (lowest.usual, lowest.known) == (0.0, 0.0)
    for figure in (3.0, 0.0, 2.0):
        lowest.add(figure)
    assert (lowest.usual, lowest.known) == (3.0, 0.0)
    for figure in (5.0, 1.0):
        lowest.add(figure)
    assert (lowest.usual, lowest.known) == (3.0, 3.0)


def drawn(chance, sessions, between, within=0.01, samples=31):
    """Sessions whose truth is one second."""
    found = []
    for _ in range(sessions):
        centre = chance.gauss(1.0, between)
        found.append(Session(samples_s=tuple(chance.gauss(centre, within) for _ in range(samples))))
    return found


def test_the_bootstrap_interval_holds_the_truth_as_often_as_it_says():
    chance = random.Random(1)
    intervals = [bootstrap_interval(drawn(chance, 6, 0.005), 200) for _ in range(300)]
    assert 0.92 <= statistics.fmean(low <= 1.0 <= high for low, high in intervals) <= 0.99
    assert bootstrap_interval(drawn(random.Random(2), 3, 0.005)) == bootstrap_interval(
        drawn(random.Random(2), 3, 0.005)
    )


def test_the_bootstrap_draws_the_median_of_as_many_samples_as_there_are():
    (one,) = drawn(random.Random(3), 1, 0.0, samples=21)
    chance = random.Random(4)
    plain = sorted(statistics.median(chance.choices(one.samples_s, k=21)) for _ in range(4000))
    low, high = bootstrap_interval([one], 4000)
    assert low == pytest.approx(plain[100], abs=5e-4)
    assert high == pytest.approx(plain[3900], abs=5e-4)


def test_between_sessions_counts_more_than_within_them():
    def width(between, within):
        low, high = bootstrap_interval(drawn(random.Random(5), 8, between, within))
        return high - low

    assert width(0.01, 0.001) > 1.5 * width(0.001, 0.01)


def test_short_rows_stop_at_the_floor():
    short = [session(1e-5 + k * FLOOR_S / 3) for k in range(3)]
    assert half_width(short) > 0.1
    assert narrow_enough(short, TIMING)
    assert not narrow_enough([session(1e-5 + k * FLOOR_S * 1.1) for k in (-1, 0, 1)], TIMING)


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
        ([*clean(0.001, 0.001), (session(0.001), "preempted")], 1),
        ([*clean(0.001), *[(session(0.001), "preempted")] * 2], 2),
        ([*clean(0.001), *[(session(0.001), "preempted")] * 9], 0),
        ([(session(0.001), "preempted")] * (6 + REPEATS), 0),
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


def test_of_several_threads_those_that_wait_take_no_processor_time():
    """Three sessions in which two threads were busy, and one in which the second waited for a third of the time."""
    busy, waiting = session(cpu_s=0.0382, wall_s=0.02), session(cpu_s=0.0320, wall_s=0.02)
    assert usual_cores([busy, busy, waiting]) == pytest.approx(1.91)
    assert usual_cores([]) == usual_cores([session(cpu_s=0.019)]) == 1.0
    assert doubt(busy, busy_cores=1.91) == ""
    assert doubt(waiting, busy_cores=1.91) == (
        "waited for the processor for 16% of a typical sample, by the 1.9 cores that this file keeps busy otherwise"
    )
    assert doubt(waiting) == ""  # by itself it looks as if nothing waited


def test_where_every_session_was_preempted_its_processor_time_counts():
    """As measured on a core that another program had half of the time: samples of 5 ms take 9 or 14 ms on the clock."""
    shared = [
        Session(samples_s=(clock_s,) * 10, cpu_s=10 * 0.005, wall_s=0.1, involuntary_switches=15, drift=1.01)
        for clock_s in (0.009, 0.014, 0.010, 0.012, 0.009)
    ]
    taken = [(one, doubt(one)) for one in shared]
    assert all("preempted" in suspect for _, suspect in taken)
    counted = trusted(taken, TIMING)
    assert [one.median_s for one in counted] == pytest.approx([0.005 / 1.01] * 5)
    assert verdict(taken, TIMING) == (Outcome.OK, "")
    assert verdict([(one, "another doubt") for one in shared_by_the_clock(shared)], TIMING)[0] is Outcome.NOISY
    beside_clean = clean(*(0.0049,) * TIMING.min_rounds)
    assert [one.median_s for one in trusted([*taken, *beside_clean], TIMING)] == [0.0049] * TIMING.min_rounds


def shared_by_the_clock(sessions):
    """The same sessions from a device that tells no processor time."""
    return [replace(one, cpu_s=0.0) for one in sessions]


@pytest.mark.parametrize(
    "one",
    [
        session(cpu_s=0.01, wall_s=0.02),  # waits, but nothing took the core from it: an accelerator may compute
        session(cpu_s=0.01, wall_s=0.02, involuntary_switches=3),  # preempted in fewer samples than a quarter
        session(cpu_s=0.021, wall_s=0.03, involuntary_switches=9),  # more than the typical sample takes
        session(involuntary_switches=9),  # no processor time is known
    ],
)
def test_other_sessions_stay_by_the_clock(one):
    assert one.on_the_processor() is one
