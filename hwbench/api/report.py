"""``hwbench.report``: one self-contained page about a study or about a device."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import option, request
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.workspace import Workspace


@request
class ReportRequest:
    """Write a page about a study, or about a device.

    Of a study: front, predictions, history, blocks, int8 and fp32, and how to reproduce each number. Of a device: heat
    maps of its blocks, what int8 gains, predicted and measured networks, the course of measuring, coverage of spaces.

    The page is one file that opens without a network. What is not there yet is named in it, with the command for it.
    """

    study: str | None = option(
        default=None, argument=True, help="Name of a finished study; or name a device with --device."
    )
    out: Path = option(default=Path("report.html"), help="The HTML file.")
    model: tuple[Path, ...] = option(default=(), help="Folder of an exported model of the winner; may be repeated.")
    device: str | None = option(default=None, help="Device: a folder of profiles/; instead of a study.")
    space: tuple[str, ...] = option(default=(), help="With --device: a space whose coverage to show; may be repeated.")

    def validate(self) -> None:
        """Raises InvalidValue where the fields do not go together."""
        if (self.study is None) == (self.device is None):
            raise InvalidValue(
                "expected either a study or a device: hwbench report STUDY, or hwbench report --device NAME"
            )
        if self.device is not None and self.model:
            raise InvalidValue("--model is about a study: hwbench report STUDY --model DIR")
        if self.study is not None and self.space:
            raise InvalidValue("--space is about a device: hwbench report --device NAME --space SPACE")


@dataclass(frozen=True)
class ReportResult:
    """The page that was written, what it lacks and what it doubts, in words."""

    report: Path
    study: str | None
    device: str | None
    missing: tuple[str, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench report --json`` prints."""
        about = {"study": self.study} if self.device is None else {"device": self.device}
        return {"report": str(self.report), **about, "seconds": self.seconds, "missing": list(self.missing)}


def report(request: ReportRequest, listener: Listener = SILENT, *, workspace: Workspace | None = None) -> ReportResult:
    """Writes the page of a study or of a device.

    Args:
        request: What the page is about, and the file.
        listener: Hears what is missing and what is doubtful.
        workspace: Holds studies, devices and measurements; default: the one around the current folder.

    Raises:
        UnknownName: No such study, device or space.
        InvalidFile: A file that the page is made from is damaged.
    """
    from hwbench.reports import write, write_device
    from hwbench.workspace import Workspace

    started = time.monotonic()
    workspace = workspace or Workspace.find()
    doubts: tuple[str, ...] = ()
    if request.study is not None:
        written = write(workspace, request.study, request.out, exported=request.model)
        lacking, doubts = written.missing(), written.doubts
    else:
        assert request.device is not None
        lacking = write_device(workspace, request.device, request.out, spaces=request.space).missing()
    for doubt in doubts:
        listener.say(f"doubtful: {doubt}")
    for reason in lacking:
        listener.say(f"not in the report: {reason}")
    seconds = round(time.monotonic() - started, 1)
    return ReportResult(request.out, request.study, request.device, (*lacking, *doubts), seconds)
