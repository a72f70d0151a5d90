"""``hwbench.dashboard``: the trials of a study in a browser, while a search is at work or afterwards."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
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

    def serve(self) -> None:
        """Answers requests until the server is shut down or an exception ends it.

        The requests are answered in a thread of their own: what a signal raises ends the page, where WSGI would make
        an answer of status 500 of it.
        """
        ended = threading.Event()  # a thread whose ``join`` was interrupted looks as if it had ended

        def answer() -> None:
            try:
                self.server.serve_forever()
            finally:
                ended.set()

        thread = threading.Thread(target=answer, daemon=True)
        try:
            thread.start()  # a request may be answered, and interrupted, before this returns
            ended.wait()
        finally:
            if thread.ident is not None and not ended.is_set():  # it answers, or is about to
                self.server.shutdown()

    def close(self) -> None:
        """Frees the port and the storage."""
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
    from hwbench.studies.dashboard import dashboard_server, opened_for_reading
    from hwbench.studies.settings import check_name
    from hwbench.studies.storage import StudyStorage
    from hwbench.workspace import Workspace

    check_name(request.study)
    folder = Workspace.at(workspace).studies / request.study
    storage = None if request.storage is None else StudyStorage.parse(request.storage)
    with ExitStack() as resources:
        server = dashboard_server(resources.enter_context(opened_for_reading(folder, storage)), request.port)
        return DashboardResult(request.study, f"http://127.0.0.1:{server.server_port}/", server, resources.pop_all())
