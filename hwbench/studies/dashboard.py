"""The page of optuna-dashboard on a study: for this machine alone, and read-only, because a search may be writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from hwbench.errors import InvalidFile, InvalidValue, MissingDependency
from hwbench.studies.journal import Unlocked, damage_told, opened_again
from hwbench.studies.storage import StudyStorage, is_kept_at, kept_storage
from hwbench.studies.stored_settings import JOURNAL

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

# Other names lead here from pages of strangers (DNS rebinding).
_HOSTS = ("127.0.0.1", "localhost")
_READING = ("GET", "HEAD")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def dashboard_server(storage: BaseStorage, port: int) -> WSGIServer:
    """A server of the page on 127.0.0.1, not yet serving; ``server_port`` says where.

    Raises:
        MissingDependency: optuna-dashboard is not installed.
        InvalidValue: The port is taken.
    """
    try:
        from optuna_dashboard import wsgi
    except ImportError as error:
        raise MissingDependency(f"{error}; install it: pip install 'hwbench[dashboard]'") from None
    try:
        return make_server("127.0.0.1", port, read_only(wsgi(storage)), handler_class=_Quiet)
    except (OSError, OverflowError) as error:
        raise InvalidValue(f"--port {port}: {error}; choose another one, or 0 for any that is free") from None


def read_only(application: Application) -> Application:
    """The application for requests that read, and that name this machine as the host."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        host = str(environ.get("HTTP_HOST", "")).rpartition(":")[0] or str(environ.get("HTTP_HOST", ""))
        if host not in _HOSTS:
            start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
            return [b"open the page as 127.0.0.1 or localhost\n"]
        if environ["REQUEST_METHOD"] not in _READING:
            start_response("405 Method Not Allowed", [("Content-Type", "text/plain"), ("Allow", ", ".join(_READING))])
            return [b"hwbench shows studies read-only\n"]
        return application(environ, start_response)

    return guarded


@contextmanager
def opened_for_reading(folder: Path, storage: StudyStorage | None = None) -> Iterator[BaseStorage]:
    """The storage that a study was begun in; nothing is written there.

    Args:
        folder: Of the study.
        storage: The same place with a password, where it needs one, or the file that it was moved to; None: as the
            folder says.

    Raises:
        InvalidFile: The folder holds no study, or a damaged one, or its storage has lost the study.
        InvalidValue: ``storage`` is another place.
        MissingDependency: The package that speaks to the storage is not installed.
        WorkspaceError: The storage cannot be reached.
    """
    journal, kept = folder / JOURNAL, kept_storage(folder)
    if storage is not None and (kept is None or not is_kept_at(folder, kept, storage)):
        place = "in its folder" if kept is None else f"in {kept.shown}"
        raise InvalidValue(f"study {folder.name!r} is kept {place}, not in {storage.shown}")
    if kept is not None:
        with opened_again(folder, storage or kept, alone=False) as database:
            yield database
    elif journal.is_file():
        with damage_told(journal):
            opened = JournalStorage(JournalFileBackend(str(journal), lock_obj=Unlocked()))  # type: ignore[arg-type]
        yield opened
    else:
        raise InvalidFile(f"{folder}: holds no study; make one: hwbench search --budget BUDGET --study {folder.name}")


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing of requests."""
