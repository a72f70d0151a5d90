"""``hwbench bench --sustained``: the latency of a file after minutes of work, and the ratio that ``search`` uses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import Listener, StageProgress
from hwbench.errors import InvalidValue, NotMeasured
from hwbench.units import format_duration, milliseconds

if TYPE_CHECKING:
    from hwbench.devices import Device
    from hwbench.measure.sustained import CoursePoint
    from hwbench.measure.sustained_log import CourseFacts, SustainedCourse
    from hwbench.specs import Artifact, Target
    from hwbench.workspace import Workspace


def sustain(
    workspace: Workspace,
    device: Device,
    artifact: Artifact,
    facts: CourseFacts,
    *,
    limit_s: float,
    threads: int,
    listener: Listener,
) -> SustainedCourse:
    """Executes a file until its latency has settled, at most so long, and keeps the course in the workspace.

    A course of the same file that was interrupted within the last ten minutes goes on; its heat is gone, so that it
    settles anew. A later one begins: what it is held against is the latency of the cool device of now.

    Args:
        workspace: Keeps the course, window by window.
        device: Where; not one under emulation.
        artifact: The file.
        facts: What the course is of, with the latency of the cool device.
        limit_s: Time at the most, in seconds.
        threads: Threads of the engine.
        listener: Hears of each window.

    Raises:
        InvalidValue: The device is emulated.
        CheckFailed: The file does not run.
        DeviceError: The device does not answer.
    """
    from hwbench.measure.bench import open_bench
    from hwbench.measure.sustained import measure_course, settled_latency, window_s
    from hwbench.measure.sustained_log import LIMIT, SETTLED, CourseLog, read_course

    refuse_emulated(device)
    folder = workspace.sustained / device.name
    before = _interrupted(workspace, facts)
    pause_s = max(0.0, time.time() - before.path.stat().st_mtime) if before else 0.0
    log = CourseLog.resume(before.path) if before else CourseLog.begin(folder, facts)
    seen = list(before.points) if before else []
    if before:
        listener.say(
            f"going on with the course of {before.facts.started_at}, which was interrupted after "
            f"{format_duration(seen[-1].at_s)}; the device has cooled since, so it settles anew"
        )
    total = round(limit_s / window_s(limit_s))
    done = 0

    def keep(point: CoursePoint) -> None:
        nonlocal done
        done += 1
        log.add(point)
        heat = f", {point.temperature_celsius:.0f} °C" if point.temperature_celsius else ""
        listener.progress(
            StageProgress("sustained", done, max(done, total), note=f"{format_duration(point.latency_s)}{heat}")
        )

    with open_bench(
        device,
        artifact.runtime,
        cache_dir=workspace.cache,
        threads=threads,
        precisions=(artifact.workload.precision,),
        report=listener.say,
    ) as bench:
        try:
            points = measure_course(artifact, bench, limit_s=limit_s, on_point=keep, before=seen, pause_s=pause_s)
        except (KeyboardInterrupt, SystemExit):
            listener.say(f"{done} windows are kept in {log.path}; the same command goes on with them for ten minutes")
            raise
    log.end(SETTLED if settled_latency(points).settled else LIMIT)
    listener.progress(StageProgress("sustained", done, done))
    course = read_course(log.path)
    assert course is not None  # it has at least one window, or an error was raised
    if course.shared:
        listener.say(
            f"other programs took {1 - (course.cpu_share or 0):.0%} of the processor at the end, which is not heat: "
            "search --sustained does not use this course; leave the device alone and measure again"
        )
    if course.ended == LIMIT:
        listener.say(
            f"the latency has not settled within {format_duration(limit_s)}: what is given is its end; "
            "give it longer: --sustained 30min"
        )
    return course


def refuse_emulated(device: Device) -> None:
    """Raises InvalidValue for a device whose heat means nothing."""
    if device.emulated:
        raise InvalidValue(
            f"--sustained: device {device.name!r} is emulated, its heat is that of this machine; name a real device"
        )


def _interrupted(workspace: Workspace, facts: CourseFacts) -> SustainedCourse | None:
    """The latest course of the same file on the same device, where it was interrupted on this occasion."""
    from hwbench.latency.occasions import APART_S
    from hwbench.measure.sustained_log import OPEN, courses

    device = facts.target.partition("/")[0]
    for course in courses(workspace.sustained / device):
        if _of_one_file(course.facts) == _of_one_file(facts):
            # Else it is another device by now; nothing tells the pause since a time to come, of a clock that was ahead.
            recent = abs(time.time() - course.path.stat().st_mtime) <= APART_S
            return course if course.ended == OPEN and recent else None
    return None


def _of_one_file(facts: CourseFacts) -> tuple[str, ...]:
    """What is equal in courses of one file, of one device as it is."""
    return facts.target, facts.sha256, facts.precision, facts.unit, facts.digest


def course_to_json(course: SustainedCourse) -> dict[str, Any]:
    """The key ``sustained`` of ``hwbench bench --sustained --json``."""
    end, energy = course.settled, course.energy
    ratio, low, high = course.ratio
    read = bool(energy.source)
    return {
        "latency_ms": milliseconds(end.latency_s),
        "ci95_ms": [milliseconds(end.low_s), milliseconds(end.high_s)],
        "cool_ms": milliseconds(course.facts.cool_s),
        "ratio": round(ratio, 4),
        "ratio_ci95": [round(low, 4), round(high, 4)],
        "ended": course.ended,
        "cpu_share": None if course.cpu_share is None else round(course.cpu_share, 4),
        "seconds": round(sum(point.seconds for point in course.points), 1),
        "started_at": course.facts.started_at,
        "energy": {
            "source": energy.source or None,
            "watts": round(energy.watts, 6) if read else None,
            "resolution_watts": float(f"{energy.resolution_watts:.3g}") if read else None,
            "mj_per_execution": round(1e3 * energy.watts / course.executions_per_s, 6) if read else None,
            "readings": energy.readings,
            "reason": energy.reason or None,
        },
        "course": [
            {
                "at_s": round(point.at_s, 1),
                "latency_ms": milliseconds(point.latency_s),
                "temperature_celsius": point.temperature_celsius or None,
                "clock_mhz": point.clock_hz / 1e6 or None,
                "part": point.part,
            }
            for point in course.points
        ],
        "file": str(course.path),
    }


def sustained_ratio(workspace: Workspace, device: Device, target: Target, precision: str) -> SustainedCourse:
    """The latest course that has settled on a target, in a precision, with the processor to itself; its ratio holds for
    other networks there.

    A course of another device that had this name, or of other conditions than the device file asks for, is none.

    Raises:
        NotMeasured: There is none; says what to type.
    """
    from hwbench.measure.sustained_log import SETTLED, courses

    others = []
    for course in courses(workspace.sustained / target.device):
        facts = course.facts
        if (facts.target, facts.precision, course.ended) == (target.key, precision, SETTLED) and not course.shared:
            if facts.is_of(device):
                return course
            others.append(facts)
    passed_over = ""
    if others:
        passed_over = (
            f" on the device as it is now ({device.conditions}); the course of {others[0].started_at} is of another "
            f"one of this name, of this one before an update, or of other conditions ({others[0].conditions})"
        )
    raise NotMeasured(
        f"--sustained: no latency of {target.device} has settled yet with {target.runtime} {target.version}, "
        f"{target.threads} thread(s), {precision}{passed_over}; measure it: hwbench bench zoo:efficient-x3d-xs "
        f"--device {target.device} --runtime {target.runtime} --threads {target.threads} --precision {precision} "
        "--sustained 10min"
    )
