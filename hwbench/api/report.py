"""``hwbench.report``: one self-contained page about a study, a device or training runs."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench import lookup
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.requests import option, request
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, UnknownName, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwbench.reports import RunsReport
    from hwbench.workspace import Workspace


@request
class ReportRequest:
    """Write a page about a study, about a device, or about training runs.

    Of a study: front, race of the finalists, what its score is worth, history beside random draws, choices that matter,
    predictions, blocks, int8 and fp32, and how to reproduce each number. Of a device: heat maps of its blocks, what
    int8 gains, predicted and measured networks, the course of measuring, coverage of spaces. Of a run (runs/NAME), also
    while it is under way: loss, learning rate, top-1 and top-5, recipe, accuracy by class, confusion matrix,
    calibration, unreadable videos; several runs share the figures of their curves.

    The page is one file that opens without a network. What is not there yet is named in it, with the command for it.
    """

    study: str | None = option(
        default=None,
        argument=True,
        help="Name of a finished study, or folder of a training run; or name a device with --device.",
    )
    runs: tuple[Path, ...] = option(
        default=(), argument=True, metavar="RUN", help="Folders of more runs, to compare their curves."
    )
    out: Path = option(default=Path("report.html"), help="The HTML file.")
    model: tuple[Path, ...] = option(default=(), help="Folder of an exported model of the winner; may be repeated.")
    truth: Path | None = option(
        default=None,
        help="Of a study: folder of ground truth of its space and budget, to say what random networks reach.",
    )
    device: str | None = option(default=None, help="Device: a folder of profiles/; instead of a study.")
    space: tuple[str, ...] = option(default=(), help="With --device: a space whose coverage to show; may be repeated.")
    watch: float | None = option(
        default=None,
        min=1,
        max=86400,
        metavar="SECONDS",
        help="Of runs: write the page again every so many seconds until they end; the page reloads itself.",
    )

    def validate(self) -> None:
        """Raises InvalidValue where the fields do not go together."""
        if (self.study is None and not self.runs) == (self.device is None):
            raise InvalidValue(
                "expected one of a study, a device and a run: hwbench report STUDY, hwbench report --device NAME, or "
                "hwbench report runs/NAME"
            )
        if self.model and (self.device is not None or self.runs):
            raise InvalidValue("--model is about a study: hwbench report STUDY --model DIR")
        if self.truth is not None and (self.device is not None or self.runs):
            raise InvalidValue("--truth is about a study: hwbench report STUDY --truth DIR")
        if self.device is None and self.space:
            raise InvalidValue("--space is about a device: hwbench report --device NAME --space SPACE")
        if self.device is not None and self.watch is not None:
            raise InvalidValue(_WATCHED)


_WATCHED = "--watch is about a training run: hwbench report runs/NAME --watch SECONDS"


@dataclass(frozen=True)
class ReportResult:
    """The page that was written, what it lacks and what it doubts, in words."""

    report: Path
    study: str | None
    device: str | None
    missing: tuple[str, ...]
    seconds: float
    runs: tuple[Path, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench report --json`` prints."""
        about: dict[str, Any] = {"study": self.study} if self.device is None else {"device": self.device}
        if self.runs:
            about = {"runs": [str(folder) for folder in self.runs]}
        return {"report": str(self.report), **about, "seconds": self.seconds, "missing": list(self.missing)}


def report(
    request: ReportRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> ReportResult:
    """Writes the page of a study, of a device or of training runs.

    Args:
        request: What the page is about, and the file.
        listener: Hears what is missing and what is doubtful; with ``watch`` also where the run is.
        workspace: Holds studies, devices and measurements; default: the one around the current folder. Runs need none.

    Raises:
        UnknownName: No such study, device or space.
        InvalidValue: A space is a model of the user's own, whose code is not imported.
        InvalidFile: A file that the page is made from is damaged, or a folder is not that of a run.
        WorkspaceError: There is no workspace, and a study or a device is asked for.
    """
    from hwbench.reports import write, write_device

    started = time.monotonic()
    place = _workspace(workspace, request)
    doubts: tuple[str, ...] = ()
    runs = () if request.device is not None else _runs(place, request)
    if runs:
        lacking = _write_runs(request, runs, listener).missing()
    elif request.device is not None:
        assert place is not None
        lacking = write_device(place, request.device, request.out, spaces=request.space).missing()
    else:
        assert place is not None
        assert request.study is not None
        written = write(place, request.study, request.out, exported=request.model, truth=request.truth)
        lacking, doubts = written.missing(), written.doubts
    for doubt in doubts:
        listener.say(f"doubtful: {doubt}")
    for reason in lacking:
        listener.say(f"not in the report: {reason}")
    seconds = round(time.monotonic() - started, 1)
    study = None if runs else request.study
    return ReportResult(request.out, study, request.device, (*lacking, *doubts), seconds, runs)


def _workspace(place: Workspace | str | Path | None, request: ReportRequest) -> Workspace | None:
    """The workspace of a report; None where the current folder is in none that can be used and a run is asked for."""
    from hwbench.reports import is_run
    from hwbench.workspace import Workspace

    try:
        return Workspace.at(place)
    except WorkspaceError:
        run = request.device is None and (request.study is None or request.runs or is_run(Path(request.study)))
        if place is None and run:
            return None
        raise


def _runs(workspace: Workspace | None, request: ReportRequest) -> tuple[Path, ...]:
    """The folders of runs that are asked for; none where a study is. Without a workspace there are no studies."""
    first = request.study
    if workspace is not None and first is not None and not request.runs and _is_study(workspace, first):
        if request.watch is not None:
            raise InvalidValue(f"{first} is a study; {_WATCHED}")
        return ()
    folders = (*(() if first is None else (Path(first),)), *request.runs)
    for folder in folders:
        _check_run(folder)
    for label, given in (("--model", request.model), ("--truth", request.truth)):
        if given:
            raise InvalidValue(f"{first} is a run; {label} is about a study: hwbench report STUDY {label} DIR")
    return folders


def _is_study(workspace: Workspace, name: str) -> bool:
    """Whether a name is that of a study: of a finished one, or of nothing else. Writes nothing where it is a run's.

    Raises:
        UnknownName: It is the name of nothing; InvalidValue: and cannot be that of a study.
    """
    from hwbench.reports import is_run
    from hwbench.spaces.begun import is_begun
    from hwbench.spaces.resolve import RESULT, load_result
    from hwbench.studies.settings import check_name
    from hwbench.workspace import STATE

    # `workspace.studies` would make the folder of the working state, also in a workspace that may only be read.
    if is_run(Path(name)) and not lookup.is_file(workspace.root / STATE / "studies" / name / RESULT):
        return False
    try:
        check_name(name)
        load_result(workspace, name)
    except (UnknownName, InvalidValue) as error:
        if lookup.is_folder(Path(name)) or (isinstance(error, InvalidValue) and Path(name).name != name):
            return False  # a path is no name of a study, whether there is such a folder or not
        if isinstance(error, UnknownName) and is_begun(workspace.studies / name):
            raise
        if name in workspace.names("profiles"):
            raise UnknownName(f"{name!r} is a device: hwbench report --device {name}") from None
        raise type(error)(f"{error}; or name the folder of a run: hwbench report runs/NAME") from None
    return True


def _check_run(folder: Path) -> None:
    from hwbench.reports import is_run

    if not is_run(folder):
        what = "it holds no metrics.jsonl" if lookup.is_folder(folder) else "there is no such folder"
        raise InvalidFile(f"{folder}: {what}; expected the folder of a run, which hwbench train makes")


def _write_runs(request: ReportRequest, folders: Sequence[Path], listener: Listener) -> RunsReport:
    """Writes the page once, or until the runs end."""
    from hwbench.reports import write_runs

    if request.watch is None:
        return write_runs(folders, request.out)
    listener.say(f"watching {', '.join(map(str, folders))}; open {request.out} in a browser; Ctrl-C ends")
    try:
        while not _tell(written := write_runs(folders, request.out, reload_s=request.watch), listener):
            time.sleep(request.watch)
        return written
    except (KeyboardInterrupt, SystemExit):
        with contextlib.suppress(HwbenchError):
            write_runs(folders, request.out)  # the page that stays does not reload itself
        raise


def _tell(written: RunsReport, listener: Listener) -> bool:
    """Tells where the runs are; whether all have ended."""
    for run in written.runs:
        log = run.log
        note = f"loss {log.steps[-1].loss:.3f}" if log.steps else ""
        if run.last_validated is not None:
            note += f"  top-1 {run.last_validated.top1:.3f}"
        total = log.done_steps if run.ended else run.steps
        # After the last step the network is tested and written; the stage ends with the run.
        if log.steps and (run.ended or log.done_steps != total):
            listener.progress(StageProgress(run.name, log.done_steps, total, note=note))
    return written.ended
