"""How the latency of files went on for minutes: figure and table of courses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from hwbench.measure.sustained_log import SustainedCourse
from hwbench.reports.drawing import BLUE, GREEN, ORANGE, TEMPLATE, blank, plain
from hwbench.reports.fragments import DASH, figure
from hwbench.reports.markup import Html, element, table

_COLUMNS = ("file", "target", "precision", "taken", "cool ms", "sustained ms", "ratio", "ended", "power")


def sustained_section(courses: Sequence[SustainedCourse]) -> Iterator[Html]:
    """A heading, a table with a row a course, and the figure of the first of them."""
    yield element("h2", "Sustained latency")
    yield table(_COLUMNS, (_row(course) for course in courses), numeric=(4, 5, 6))
    first = courses[0]
    name = first.facts.model
    yield figure("course", course_figure(first), f"Course of {name}: one point a window of executions back to back.")


def _row(course: SustainedCourse) -> Sequence[str]:
    facts, end, energy = course.facts, course.settled, course.energy
    ratio, low, high = course.ratio
    power = f"{energy.watts:.3g} W ({energy.source})" if energy.source else "not readable"
    return (
        facts.model,
        facts.target,
        facts.precision or DASH,
        facts.started_at,
        f"{1e3 * facts.cool_s:.4g}",
        f"{1e3 * end.latency_s:.4g}",
        f"{ratio:.3f} ({low:.3f} to {high:.3f})",
        course.ended,
        power,
    )


def course_figure(course: SustainedCourse) -> go.Figure:
    """Milliseconds over minutes; temperature and clock below, where the device tells them."""
    drawn = blank(height=460)
    minutes = [point.at_s / 60 for point in course.points]
    lines: list[tuple[str, list[float], str, str]] = [
        ("latency, ms", [1e3 * point.latency_s for point in course.points], "y", BLUE),
        ("temperature, °C", [point.temperature_celsius for point in course.points], "y2", ORANGE),
        ("clock, GHz", [point.clock_hz / 1e9 for point in course.points], "y3", GREEN),
    ]
    told = [line for line in lines if any(line[1])]
    for place, (name, values, axis, colour) in enumerate(told):
        known = [(at, value) for at, value in zip(minutes, values, strict=True) if value]
        texts = [f"{at:.1f} min: {value:.4g} {plain(name)}" for at, value in known]
        drawn.add_scatter(
            x=[at for at, _ in known],
            y=[value for _, value in known],
            mode="lines+markers",
            name=plain(name),
            yaxis=axis,
            marker={"color": colour, "size": 4},
            customdata=texts,
            hovertemplate=TEMPLATE,
        )
        high = 1 - place / len(told)
        drawn.update_layout(
            {f"yaxis{axis[1:]}": {"title": plain(name), "domain": [high - 0.9 / len(told), high], "automargin": True}}
        )
    drawn.update_xaxes(title="minutes", rangemode="tozero", anchor=told[-1][2])  # below the lowest panel
    return drawn
