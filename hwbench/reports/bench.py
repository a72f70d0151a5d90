"""The page of one measured file: what is inside, and how its latency went on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from hwbench.measure.file_profile import FileProfile
from hwbench.measure.profile_groups import OperationGroup, by_block, by_kind
from hwbench.measure.sustained_log import SustainedCourse
from hwbench.reports.drawing import BLUE, GREEN, GREY, ORANGE, SKY, VERMILLION, blank, plain
from hwbench.reports.fragments import DASH, figure
from hwbench.reports.markup import Html, element, table
from hwbench.reports.page import document, save
from hwbench.reports.sustained import sustained_section

PAGE = "bench.html"
_COLOURS = {
    "convolution": BLUE,
    "depthwise": VERMILLION,
    "pointwise": SKY,
    "copy": ORANGE,
    "arithmetic": GREEN,
    "activation": "#cc79a7",
    "pooling": "#f0e442",
    "conversion": "#555555",
}


def write_bench(
    folder: Path,
    facts: Mapping[str, Any],
    median_s: float,
    profile: FileProfile | None = None,
    course: SustainedCourse | None = None,
    remainder: str = "",
) -> Path:
    """Writes ``bench.html``.

    Args:
        folder: Where; made when needed.
        facts: What was measured, as ``hwbench bench --json`` names it.
        median_s: The latency without a tracer.
        profile: What is inside; None: not asked for.
        course: How the latency went on; None: not asked for.
        remainder: Of a profile: what there is to say of the latency that is not in operations.

    Raises:
        WorkspaceError: The page cannot be written.
    """
    title = f"{facts['model']} on {facts['device']}"
    parts = [element("h1", title), _facts(facts)]
    if profile is not None:
        parts += _profile(profile, median_s, remainder)
    if course is not None:
        parts += sustained_section([course])
    save(folder / PAGE, document(f"{title}: hwbench bench", parts, figures=True))
    return folder / PAGE


def _facts(facts: Mapping[str, Any]) -> Html:
    return table(("", ""), [(key, _text(value)) for key, value in facts.items() if key != "model"])


def _text(value: object) -> str:
    if value is None:
        return DASH
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _profile(profile: FileProfile, median_s: float, remainder: str) -> Iterator[Html]:
    yield element("h2", "Operations")
    yield element(
        "p",
        f"All operations together take {1e3 * profile.operations_s:.4g} ms; without a tracer one execution takes "
        f"{1e3 * median_s:.4g} ms, with it {1e3 * profile.traced_s:.4g} ms. Shares are shares of the operations.",
    )
    if remainder:
        yield element("p", f"{remainder[0].upper()}{remainder[1:]}.")
    yield table(("kind", "ms", "share", "operations"), _rows(by_kind(profile)), numeric=(1, 2, 3))
    yield element("h2", "Blocks")
    blocks = by_block(profile)
    if not blocks:
        yield element("p", f"Nothing is attributed to blocks: {profile.unattributed}.")
        return
    yield figure(
        "blocks", block_figure(blocks), "Time of each block in the order of the network, by kind of operation."
    )
    yield table(("block", "ms", "share", "operations"), _rows(blocks), numeric=(1, 2, 3))


def _rows(groups: Sequence[OperationGroup]) -> Iterator[Sequence[str]]:
    for group in groups:
        yield group.name, f"{1e3 * group.seconds:.4g}", f"{group.share:.1%}", str(group.count)


def block_figure(blocks: Sequence[OperationGroup]) -> go.Figure:
    """Milliseconds by block, in the order of the network, stacked by kind of operation."""
    drawn = blank(height=max(240, 60 + 22 * len(blocks)))
    names = [plain(group.name) for group in blocks]
    for kind in dict.fromkeys(kind for group in blocks for kind, _ in group.kinds):
        times = [1e3 * dict(group.kinds).get(kind, 0.0) for group in blocks]
        texts = [f"{name}: {plain(kind)} {ms:.3g} ms" for name, ms in zip(names, times, strict=True)]
        drawn.add_bar(
            y=names, x=times, orientation="h", name=plain(kind), customdata=texts,
            hovertemplate="%{customdata}<extra></extra>", marker={"color": _COLOURS.get(kind, GREY)},
        )  # fmt: skip
    drawn.update_layout(barmode="stack")
    drawn.update_yaxes(autorange="reversed")
    drawn.update_xaxes(title="ms", rangemode="tozero")
    return drawn
