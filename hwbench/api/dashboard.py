"""``hwbench.dashboard``: the trials of a study in a browser, while a search is at work or afterwards."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import option, request

if TYPE_CHECKING:
    from pathlib import Path
    from wsgiref.simple_server import WSGIServer

    import pandas

    from hwbench.workspace import Workspace


@request
class DashboardRequest:
    """Show the trials of a study in a browser, with optuna-dashboard; Ctrl-C ends it.

    The page is served to this machine alone, and changes nothing: a search may be at work on the study.
    """

    study: str = option(argument=True, help="Name of the study.")
    port: int = option(default=8080, min=0, max=65535, help="Port on 127.0.0.1; 0: any that is free.")
    storage: str | None = option(
        default=None,
        help="URL of the study's storage where it needs a password, or its file was moved; default: as the study was "
        "begun.",
    )


class _Answering(threading.Thread):
    """Answers requests, in a thread of its own, until ``end``.

    What a signal raises ends the thread that waits for this one, where WSGI would make an answer of status 500 of it.
    """

    def __init__(self, server: WSGIServer) -> None:
        super().__init__(daemon=True)
        self._server = server
        self.ended = threading.Event()  # a thread whose ``join`` was interrupted looks as if it had ended

    def run(self) -> None:
        try:
            self._server.serve_forever()
        finally:
            self.ended.set()

    def end(self) -> None:
        """Returns when no request is answered any more."""
        if self.ident is not None and not self.ended.is_set():  # it answers, or is about to
            self._server.shutdown()
            self.ended.wait()


@dataclass(frozen=True)
class DashboardResult:
    """A page that can be served: ``serve`` it, within ``with`` or until Ctrl-C; then ``close`` it.

    Args:
        study: Name of the study.
        url: Of the page.
        server: Serves it.
        resources: What is closed with it.
    """

    study: str
    url: str
    server: WSGIServer
    resources: ExitStack
    _started: list[_Answering] = field(default_factory=list, init=False, repr=False, compare=False)
    _closed: threading.Event = field(default_factory=threading.Event, init=False, repr=False, compare=False)
    # Held while a thread starts; a signal may close what it interrupts.
    _starting: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False, compare=False)

    def serve(self) -> None:
        """Answers requests until the page is closed, its server is shut down or an exception ends it.

        A page that is closed answers none.
        """
        answering = _Answering(self.server)
        try:
            with self._starting:
                if self._closed.is_set():
                    return
                self._started.append(answering)
                answering.start()  # a request may be answered, and interrupted, before this returns
            answering.ended.wait()
        finally:
            answering.end()

    def close(self) -> None:
        """Ends ``serve`` where another thread is in it, and frees the port and the storage."""
        with self._starting:
            self._closed.set()
        for answering in self._started:
            answering.end()
        self.server.server_close()
        self.resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def to_json(self) -> dict[str, object]:
        """The keys that ``hwbench dashboard --json`` prints."""
        return {"study": self.study, "url": self.url}

    def to_frame(self) -> pandas.DataFrame:
        """One row: the printed keys."""
        from hwbench.frames import frame

        return frame([self.to_json()], dict.fromkeys(self.to_json()))


def dashboard(
    request: DashboardRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> DashboardResult:
    """Opens a study for optuna-dashboard; the page answers as soon as the result is told to ``serve``.

    Args:
        request: Which study, and where to serve it.
        listener: Hears nothing.
        workspace: Holds the study; default: the one around the current folder.

    Raises:
        MissingDependency: optuna-dashboard is not installed.
        InvalidFile: There is no such study, or it is damaged.
        InvalidValue: The port is taken, or the study is kept elsewhere.
        WorkspaceError: The storage of the study cannot be reached.
    """
    from hwbench.specs.study_name import check_reference
    from hwbench.studies.dashboard import dashboard_server, opened_for_reading
    from hwbench.studies.storage import StudyStorage
    from hwbench.workspace import Workspace

    studies = Workspace.at(workspace).studies
    check_reference(request.study, (path.name for path in studies.glob("*/")))
    folder = studies / request.study
    storage = None if request.storage is None else StudyStorage.parse(request.storage)
    with ExitStack() as resources:
        server = dashboard_server(resources.enter_context(opened_for_reading(folder, storage)), request.port)
        return DashboardResult(request.study, f"http://127.0.0.1:{server.server_port}/", server, resources.pop_all())
