"""The page of a report: one HTML file that loads nothing, neither from the network nor from beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from plotly.offline import get_plotlyjs

from hwbench.errors import WorkspaceError
from hwbench.reports import device_sections, run_sections, sections
from hwbench.reports.device import DeviceReport, gather_device
from hwbench.reports.markup import Html, element, join, script
from hwbench.reports.run import RunsReport, gather_runs
from hwbench.reports.study import StudyReport, gather
from hwbench.workspace import Workspace, is_stream, link_target, open_file, write_bytes, writing

# Scripts and styles of the page itself run; nothing else is loaded, sent or framed, whatever plotly.js would like.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def write(
    workspace: Workspace, study: str, out: Path, *, exported: Sequence[Path] = (), truth: Path | None = None
) -> StudyReport:
    """Writes the report of a study.

    Args:
        workspace: Where the study is.
        study: Its name.
        out: The HTML file; a crash leaves the old one or the new one.
        exported: Folders of exported models of the winner, for accuracy and size; they hold a ``manifest.json``.
        truth: Folder of ground truth of the same space and budget, for what random networks reach.

    Returns:
        What the page shows; ``missing()`` says what it could not show.

    Raises:
        UnknownName: No such study; the nearest names are listed.
        InvalidFile: Its result, or the manifest of a model, is damaged.
        WorkspaceError: The file cannot be written.
    """
    report = gather(workspace, study, exported, truth)
    save(out, page(report))
    return report


def write_device(workspace: Workspace, device: str, out: Path, *, spaces: Sequence[str] = ()) -> DeviceReport:
    """Writes the report of a device; arguments and errors as of ``write``, ``spaces`` as of ``gather_device``."""
    report = gather_device(workspace, device, spaces)
    save(out, device_page(report))
    return report


def write_runs(folders: Sequence[Path], out: Path, *, reload_s: float | None = None) -> RunsReport:
    """Writes the report of training runs; the page reloads itself after ``reload_s`` seconds while a run is under way.

    Raises:
        InvalidFile: A folder without a log, or a damaged file.
        WorkspaceError: The page cannot be written.
    """
    report = gather_runs(folders)
    save(out, runs_page(report, None if report.ended else reload_s))
    return report


def page(report: StudyReport) -> str:
    """The whole page about a study."""
    return document(f"{report.result.study}: hwbench report", sections.everything(report), figures=True)


def device_page(report: DeviceReport) -> str:
    """The whole page about a device."""
    return document(f"{report.device}: hwbench report", device_sections.everything(report), figures=True)


def runs_page(report: RunsReport, reload_s: float | None = None) -> str:
    """The whole page about training runs; it reloads itself every ``reload_s`` seconds."""
    title = ", ".join(run.name for run in report.runs)
    return document(
        f"{title}: hwbench report", run_sections.everything(report, reload_s), figures=True, reload_s=reload_s
    )


def document(
    title: str, parts: Sequence[Html], *, figures: bool = False, style: str = "", reload_s: float | None = None
) -> str:
    """A page of these parts, with the styles of all pages.

    Args:
        title: In the browser's tab.
        parts: One below the other.
        figures: Parts hold figures or tables that the page's script draws; then it comes with the page.
        style: More rules of CSS.
        reload_s: Seconds after which the browser loads the page again.
    """
    reload = () if reload_s is None else (element("meta", http_equiv="refresh", content=str(math.ceil(reload_s))),)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        *reload,
        element("title", title),
        element("style", Html(_resource("page.css") + style)),
    )
    scripts = (script(get_plotlyjs()), script(_resource("page.js"))) if figures else ()
    body = element("body", element("main", *parts), *scripts)
    return "<!doctype html>\n" + join([element("html", head, body, lang="en")]) + "\n"


def save(out: Path, text: str) -> None:
    """Writes a page; a crash leaves the old one or the new one.

    A device, a pipe or an open file, such as ``/dev/stdout``, stays what it is, and is given the page. A symbolic link
    stays, and what it leads to is written.

    Raises:
        WorkspaceError: The file cannot be written.
    """
    try:
        if is_stream(out):
            _give(out, text.encode())
        else:
            write_bytes(link_target(out), text.encode())
    except OSError as error:
        raise WorkspaceError(
            f"cannot write {out}: {error.strerror}; name a file that can be written: --out report.html"
        ) from None


def _give(stream: Path, data: bytes) -> None:
    """Writes to a device, a pipe or an open file, which is never made; what an open file holds stays."""
    with writing(stream), open(_descriptor(stream), "wb") as file:
        file.write(data)


def _descriptor(stream: Path) -> int:
    """A descriptor that writes there. That of an open file of this process shares its position, so that what the
    process prints besides stands before and behind the page, and neither overwrites the other.
    """
    place = open_file(stream)
    if place is not None and (place.parent == Path("/dev/fd") or place.is_relative_to(f"/proc/{os.getpid()}")):
        return os.dup(int(place.name))
    return os.open(stream, os.O_WRONLY | os.O_APPEND)


def _resource(name: str) -> str:
    return resources.files("hwbench.reports").joinpath(name).read_text(encoding="utf-8")
