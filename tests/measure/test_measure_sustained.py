"""Latency after heat has settled, against the truth of a simulated phone in virtual time."""

import json
import math
import random
import statistics
from dataclasses import replace
from itertools import pairwise

import pytest

from hwbench.devices import Conditions, Device
from hwbench.errors import CheckFailed, InvalidFile
from hwbench.measure.bench import Bench
from hwbench.measure.runner import measure_sessions
from hwbench.measure.store_types import fingerprint
from hwbench.measure.sustained import LEAST_S, CoursePoint, measure_course, settled_latency, settled_points
from hwbench.measure.sustained_log import CourseFacts, CourseLog, SustainedCourse, courses, read_course
from hwbench.runtimes.runners import Runner
from hwbench.specs import LatencyStats, Measurement, Outcome, Target, Timing, Workload
from hwbench.testing.simulated_phone import BIG, QUIET, Cost, Phone, PhoneBuilder, PhoneMachine, PhoneTransport

WORKLOAD = Workload.parse("x3d_i24_m54_o24_k3x3x3_swish@1x24x8x14x14/fp32/auto")
COST = Cost(90e-3, 10e-3)
FACTS = CourseFacts("phone/simulated-1/t1", "net", "ab" * 32, "fp32", "2026-11-25T02:00:00+00:00", 0.03, 0.0297, 0.0303)


def bench(machine):
    return Bench(PhoneTransport(machine), Runner("simulated", ("runner",)), 1, BIG[-1:])


@pytest.fixture
def artifact(tmp_path):
    (made,) = PhoneBuilder(tmp_path, lambda workload: COST)([WORKLOAD])
    return made


def course(artifact, phone=None, seed=0, limit_s=1800.0, away_s=0.0):
    """A course; ``away_s``: so long a device is gone after its first 100 seconds."""
    machine = PhoneMachine(phone or Phone(), seed)
    return measure_course(
        artifact,
        bench(machine),
        limit_s=limit_s,
        on_point=lambda point: None,
        clock=lambda: machine.now_s + (away_s if machine.now_s > 100 else 0.0),
    )


def hot_latency(artifact, phone):
    """Of a phone that has been hot for ten minutes, over ten more, without what wanders from minute to minute."""
    found = []
    measure_sessions(
        [artifact], rounds=80, seed=0, on_session=lambda a, s: found.append(statistics.median(s.samples_s)),
        bench=bench(PhoneMachine(replace(phone, drift=0.0), 100)),
        timing=Timing(warmup_s=0.0, min_samples=1, min_session_s=15.0, max_session_s=15.0, timeout_s=200.0),
    )  # fmt: skip
    return statistics.fmean(found[40:])


def check_settled(artifact, phone, seeds):
    hot, within = hot_latency(artifact, phone), 0
    for seed in range(seeds):
        points = course(artifact, phone, seed)
        end = settled_latency(points)
        assert end.settled
        assert LEAST_S <= points[-1].at_s < 1500
        assert end.latency_s == pytest.approx(hot, rel=0.03)
        assert hot > 1.08 * points[0].latency_s  # heat has slowed it down: there was something to find
        within += end.low_s <= hot <= end.high_s
    assert within >= 0.8 * seeds


def test_the_settled_latency_is_within_its_interval_and_found_early(artifact):
    check_settled(artifact, Phone(), 2)


@pytest.mark.long
@pytest.mark.parametrize("thermal_s", [60.0, 150.0])
def test_the_settled_latency_is_within_its_interval_on_many_phones(artifact, thermal_s):
    check_settled(artifact, Phone(thermal_s=thermal_s), 10)


def test_a_phone_that_stays_cool_has_settled_as_soon_as_it_can_be_told(artifact):
    points = course(artifact, QUIET)
    end = settled_latency(points)
    assert end.settled
    assert points[-1].at_s < LEAST_S + 20
    assert end.latency_s == pytest.approx(COST.seconds, rel=1e-3)


def test_what_has_not_settled_within_the_time_says_so(artifact):
    points = course(artifact, Phone(thermal_s=2000.0, rise=70.0), limit_s=200.0)
    assert not settled_latency(points).settled
    assert points[-1].at_s == pytest.approx(200.0, abs=3)


def test_a_slow_file_takes_no_longer_than_the_time(artifact):
    artifact.path.write_text(json.dumps(vars(Cost(2.7, 0.3))))
    points = course(artifact, Phone(thermal_s=2000.0, rise=70.0), limit_s=200.0)
    assert not settled_latency(points).settled
    assert 200 <= points[-1].at_s + points[-1].seconds / 2 < 220


def test_a_device_that_was_away_in_the_middle_settles_anew(artifact):
    points = course(artifact, limit_s=900.0, away_s=300.0)
    first, second = ([point for point in points if point.part == part] for part in (0, 1))
    assert len(first) + len(second) == len(points)
    assert second[0].at_s - first[-1].at_s == pytest.approx(300, abs=10)
    assert second[-1].at_s - second[0].at_s >= LEAST_S - 20
    assert all(b.at_s - a.at_s < 10 for a, b in pairwise(second))


def test_an_interruption_loses_nothing_and_settling_begins_anew(artifact, tmp_path):
    log, machine = CourseLog.begin(tmp_path / "phone", FACTS), PhoneMachine(seed=1)

    def interrupt(point):
        log.add(point)
        if point.at_s > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_course(artifact, bench(machine), limit_s=600.0, on_point=interrupt)
    kept = read_course(log.path)
    assert kept.ended == "interrupted"
    assert kept.points[-1].at_s > 100
    machine.idle(400.0)
    points = measure_course(
        artifact, bench(machine), limit_s=900.0, on_point=log.add, before=kept.points, pause_s=400.0
    )
    log.end("settled")
    whole = read_course(log.path)
    assert whole.points == points
    assert whole.points[: len(kept.points)] == kept.points
    later = [point for point in points if point.part == 1]
    assert later[0].at_s > kept.points[-1].at_s + 400
    assert later[-1].at_s - later[0].at_s >= LEAST_S - 20  # what was measured before does not count
    assert {point.part for point in settled_points(points)} == {1}


def test_a_file_that_does_not_run_is_a_failed_check(artifact):
    artifact.path.write_text("no file")
    with pytest.raises(CheckFailed, match="load"):
        course(artifact)
    with pytest.raises(CheckFailed, match="no window"):
        settled_latency(())


def points(count, latency_s=0.036, *, seconds=5.0, degrees=lambda at: 40.0):
    return tuple(
        CoursePoint(seconds * (n + 0.5), seconds, latency_s, 100, degrees(seconds * n), 2e9) for n in range(count)
    )


def test_heat_that_still_rises_has_not_settled_whatever_the_latency_says():
    assert settled_latency(points(60)).settled
    assert not settled_latency(points(60, degrees=lambda at: 30 + at / 20)).settled
    assert not settled_latency(points(30)).settled  # too short


def blind_course(seed, rise, tau_s=1.0, limit_s=600.0):
    """Of a device without a thermometer that ends slower by ``rise``; its speed wanders by 1 % within a minute."""
    rng, window_s, wander, taken = random.Random(seed), 5.0, 0.0, []
    kept = math.exp(-window_s / 60)
    while not taken or (not settled_latency(taken).settled and taken[-1].at_s + window_s / 2 < limit_s):
        at_s = window_s * (len(taken) + 0.5)
        wander = kept * wander + math.sqrt(1 - kept**2) * rng.gauss(0, 0.01)
        hot = 1 + rise * (1 - math.exp(-at_s / tau_s))
        taken.append(CoursePoint(at_s, window_s, 0.01 * hot * math.exp(wander + rng.gauss(0, 0.005)), 100))
    return taken


def test_a_device_without_a_thermometer_that_still_heats_has_not_settled():
    for seed in range(12):
        slow = blind_course(seed, 0.25, tau_s=300.0)
        assert not settled_latency(slow).settled
        assert slow[-1].at_s > 590


def test_without_a_thermometer_the_interval_has_what_is_left_of_the_rise():
    ends = [settled_latency(blind_course(seed, 0.2, tau_s=120.0)) for seed in range(20)]
    settled = [end for end in ends if end.settled]
    assert len(settled) >= 5
    assert sum(end.low_s <= 0.012 <= end.high_s for end in settled) >= 0.9 * len(settled)


def test_a_device_without_a_thermometer_that_only_wanders_settles():
    for seed in range(12):
        taken = blind_course(seed, 0.0)
        end = settled_latency(taken)
        assert end.settled
        assert taken[-1].at_s < 400
        assert end.low_s <= 0.01 <= end.high_s
        assert end.high_s - end.latency_s < 0.05 * end.latency_s


def test_a_course_of_few_windows_has_an_interval_though_no_change_can_be_told():
    short = blind_course(0, 0.2, limit_s=15.0)
    assert math.isfinite(settled_latency(short).high_s)
    assert not settled_latency(short).settled


def test_the_ratio_has_an_interval_from_both_latencies(tmp_path):
    ratio, low, high = SustainedCourse(FACTS, points(60), "settled", tmp_path).ratio
    assert ratio == pytest.approx(1.2)
    assert (high - ratio) / ratio == pytest.approx((0.02**2 + 0.01**2) ** 0.5, rel=1e-6)
    assert low == pytest.approx(2 * ratio - high)


def test_courses_are_the_latest_first_and_a_damaged_file_is_left_out(tmp_path):
    for day, count in ((24, 3), (26, 4), (25, 5)):
        log = CourseLog.begin(tmp_path, CourseFacts(**{**vars(FACTS), "started_at": f"2026-11-{day}T02:00:00+00:00"}))
        for point in points(count):
            log.add(point)
    (tmp_path / "broken.jsonl").write_text('{"kind": "window"}\n')
    found = list(courses(tmp_path))
    assert [len(one.points) for one in found] == [4, 5, 3]
    cut = found[0].path
    cut.write_text(cut.read_text()[:-7])  # a kill in the middle of a line
    assert len(read_course(cut).points) == 3
    with pytest.raises(InvalidFile, match="no course"):
        read_course(tmp_path / "broken.jsonl")
    first = json.loads(cut.read_text().splitlines()[1])
    cut.write_text(cut.read_text().splitlines()[0] + "\n" + json.dumps({**first, "latency_s": 0}) + "\n")
    with pytest.raises(InvalidFile, match="without executions"):
        read_course(cut)
    assert list(courses(tmp_path / "none")) == []


def test_a_course_is_of_the_device_and_the_conditions_that_were_measured():
    board = Device("board", "ssh", fingerprint="1" * 16, unit="a" * 16)
    measured = Measurement(
        WORKLOAD, Target("board", "simulated", "1"), Timing(), Outcome.OK, conditions={"device": "1" * 16, "cpus": "7"}
    )
    facts = CourseFacts.of(board, measured, "net", "ab" * 32, "fp32", LatencyStats(0.03, 0.03, 0.03, 0.03, 0.03, 3, 30))
    assert (facts.fingerprint, facts.unit, facts.conditions) == ("1" * 16, "a" * 16, "stock")
    assert facts.digest == fingerprint(measured.conditions)
    assert facts.is_of(board)
    assert facts.is_of(Device("board", "ssh"))  # its file does not tell which it is
    for other in ({"fingerprint": "2" * 16}, {"unit": "b" * 16}, {"conditions": Conditions.CONTROLLED}):
        assert not facts.is_of(replace(board, **other))
        assert FACTS.is_of(replace(board, **other))  # an older hwbench kept none of them


def test_a_course_of_an_older_version_is_read(tmp_path):
    log = CourseLog.begin(tmp_path, FACTS)
    log.add(points(1)[0])
    first, *windows = log.path.read_text().splitlines()
    begin = json.loads(first)
    for name in ("fingerprint", "unit", "conditions", "digest"):
        del begin[name]
    log.path.write_text("\n".join([json.dumps(begin), *windows, ""]))
    assert read_course(log.path).facts == FACTS
    del begin["cool_s"]
    log.path.write_text("\n".join([json.dumps(begin), *windows, ""]))
    with pytest.raises(InvalidFile, match="cool_s"):
        read_course(log.path)


def test_a_course_goes_on_behind_a_line_that_was_cut_off(tmp_path):
    log = CourseLog.begin(tmp_path, FACTS)
    for point in points(3):
        log.add(point)
    with log.path.open("a") as file:
        file.write('{"kind": "window", "at_s": 17.5, "sec')
    going_on = CourseLog.resume(log.path)
    going_on.add(replace(points(1)[0], part=1))
    going_on.end("settled")
    (whole,) = courses(tmp_path)
    assert [point.part for point in whole.points] == [0, 0, 0, 1]
    assert whole.ended == "settled"
