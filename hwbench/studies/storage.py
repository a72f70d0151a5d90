"""Where a study is kept besides its folder: SQLite, PostgreSQL, or the gRPC proxy of Optuna. No password is kept."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakSet

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    InternalError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)

from hwbench.errors import InvalidValue, MissingDependency, WorkspaceError
from hwbench.printable import SECRET_NAME, printable
from hwbench.studies.advisory_lock import ANSWER_S, advisory_lock, cut
from hwbench.studies.stored_settings import MARKER as MARKER
from hwbench.workspace import STATE

if TYPE_CHECKING:
    from optuna.storages import BaseStorage, RDBStorage

EXPECTED = "sqlite:///FILE, postgresql://USER@HOST/DATABASE or grpc://HOST:PORT"
_DRIVER = "postgresql+psycopg"
# Of a connection that is not answered.
_TIMEOUT_S = 10
# Of a database that is opened, which takes some hundred statements the first time, each a way there and back.
_OPENED_S = 60
# Of libpq: a machine that is gone is noticed after a minute, whether it was sent anything or not. A URL can set others.
_CONNECTION = {
    "connect_timeout": _TIMEOUT_S,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # ms
}
# Two processes that begin on a new database make its tables at once: one of them fails, and looks again.
_PATIENCE_S = 3
_PAUSE_S = 0.1


@dataclass(frozen=True)
class StudyStorage:
    """The storage of a study, by its URL.

    Args:
        url: With the password, where it has one; use ``shown`` for messages and files.
    """

    url: URL

    @classmethod
    def parse(cls, text: str, name: str = "--storage") -> StudyStorage:
        """Reads a URL; a relative file of SQLite is taken from the current folder.

        Raises:
            InvalidValue: It is none of ``EXPECTED``; the message begins with ``name`` and shows no password.
        """
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            raise InvalidValue(f"{name}: expected {EXPECTED}, got {_without_secrets(text)}") from None
        complete = {
            "sqlite": bool(url.database) and url.database != ":memory:",
            "postgresql": bool(url.database),
            "grpc": bool(url.host and url.port) and not url.database,
        }
        if not complete.get(url.drivername):
            raise InvalidValue(f"{name}: expected {EXPECTED}, got {cls(url).shown!r}")
        if url.drivername == "sqlite" and url.database:
            url = url.set(database=str(Path(url.database).absolute()))
        return cls(url)

    @property
    def shown(self) -> str:
        """The URL without passwords."""
        secret = [name for name in self.url.query if SECRET_NAME.search(name)]
        return self.url._replace(password=None).difference_update_query(secret).render_as_string()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What ``shown`` leaves out."""
        values = [v for name, several in self.url.normalized_query.items() if SECRET_NAME.search(name) for v in several]
        return tuple(str(value) for value in [self.url.password, *values] if value)

    @property
    def file(self) -> Path:
        """The file of SQLite, in the folder that links to it lead to."""
        path = Path(self.url.database or "")
        return Path(os.path.realpath(path.parent)) / path.name

    def is_at(self, other: StudyStorage) -> bool:
        """Whether another URL is of the same place, whatever its password and the links on the way are."""
        if {self.url.drivername, other.url.drivername} == {"sqlite"}:
            return _at(self.url, self.file).shown == _at(other.url, other.file).shown
        return self.shown == other.shown

    def has_study(self, name: str) -> bool:
        """Whether a file of SQLite holds a study of this name; nothing is written, and no file is made."""
        try:
            with contextlib.closing(sqlite3.connect(f"{self.file.as_uri()}?mode=ro", uri=True)) as database:
                rows = database.execute("SELECT 1 FROM studies WHERE study_name = ?", (name,))
                return rows.fetchone() is not None
        except sqlite3.Error:
            return False

    def require_folder(self) -> None:
        """Refuses a file of SQLite in a folder that is not there, before anything else is done.

        Raises:
            WorkspaceError: The message names the folder.
        """
        if self.url.drivername == "sqlite" and not (folder := Path(self.url.database or "").parent).is_dir():
            raise WorkspaceError(f"--storage {self.shown}: no folder {folder}; make it, or name another file")

    @contextmanager
    def opened(self, study: str, *, alone: bool = True) -> Iterator[BaseStorage]:
        """The storage, for as long as the block runs.

        Args:
            study: Name of the study that is wanted.
            alone: Nobody else is to work on the study meanwhile, which PostgreSQL sees to.

        Raises:
            MissingDependency: The package that speaks to it is not installed.
            WorkspaceError: It cannot be reached, or written, at the beginning or at any time, or its tables are of
                another version of Optuna.
            InvalidValue: Another process is at work on the study.
        """
        try:
            if self.url.drivername == "grpc":
                with self._proxy() as storage:
                    yield storage
            else:
                with self._database() as database, self._locked(database, study if alone else None):
                    yield database
        except Exception as error:
            if not _is_of_storage(error):
                raise
            raise WorkspaceError(
                f"study {study!r}: {self.shown}: {self._reason(error)}; what it holds is kept; mend it and repeat the "
                "same command"
            ) from None

    @contextmanager
    def _database(self) -> Iterator[RDBStorage]:
        self.require_folder()
        url, options = self.url, dict[str, int]()
        if url.drivername == "postgresql":
            _require("psycopg", "postgres")
            url = url.set(drivername=_DRIVER)
            options = {name: value for name, value in _CONNECTION.items() if name not in url.query}
        limited = _first_answer() if url.drivername == _DRIVER else contextlib.nullcontext()
        with limited as on_connection:
            storage = self._constructed(
                url.render_as_string(hide_password=False),
                engine_kwargs={
                    "pool_pre_ping": True,
                    "connect_args": options,
                    "pool_events": [(on_connection, "connect")] if on_connection else [],
                },
            )
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()

    def _constructed(self, url: str, **options: Any) -> RDBStorage:
        """An open database, whose tables are made where it is new.

        Raises:
            WorkspaceError: The tables are of another version of Optuna.
        """
        patient_until = math.inf  # a busy machine may need all patience for the first look
        while True:
            try:
                return _with_tables(url, options)
            except RuntimeError as error:
                raise WorkspaceError(f"--storage {self.shown}: {self._reason(error)}") from None
            except Exception as error:
                if not _is_of_tables(error) or time.monotonic() > patient_until:
                    raise
            patient_until = min(patient_until, time.monotonic() + _PATIENCE_S)
            time.sleep(_PAUSE_S)

    @contextmanager
    def _proxy(self) -> Iterator[BaseStorage]:
        _require("grpc", "grpc")
        from optuna.exceptions import ExperimentalWarning, StorageInternalError
        from optuna.storages import GrpcStorageProxy

        assert self.url.host is not None
        assert self.url.port is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            storage = GrpcStorageProxy(host=self.url.host, port=self.url.port)
        try:
            try:
                storage.wait_server_ready(timeout=_TIMEOUT_S)
            except ConnectionError:  # so Optuna calls a time-out
                raise StorageInternalError(f"no answer within {_TIMEOUT_S} s") from None
            _limit(storage._stub)
            yield storage
        finally:
            storage.close()

    @contextmanager
    def _locked(self, database: RDBStorage, study: str | None) -> Iterator[None]:
        """Holds PostgreSQL's advisory lock of a study; without it, what uses the database is refused."""
        if self.url.drivername != "postgresql" or study is None:
            yield
            return
        with advisory_lock(database.engine, study) as is_held:
            if not is_held:
                raise InvalidValue(
                    f"study {study!r} is in use by another process on {self.shown}; wait for it, or choose another "
                    f"name: --study {study}-2"
                )
            yield

    def _reason(self, error: BaseException) -> str:
        while error.__cause__ is not None:
            error = error.__cause__
        details = getattr(error, "details", None)
        text = str(details()) if callable(details) else str(error)
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return printable(text, 300)


@contextmanager
def _first_answer() -> Iterator[Callable[..., None]]:
    """Limits how long a server may take for the block; yields what is told of each connection of psycopg.

    Raises:
        StorageInternalError: It took longer, so that its connections were ended: libpq itself waits for ever.
    """
    from optuna.exceptions import StorageInternalError

    connections, late = WeakSet[Any](), threading.Event()

    def end() -> None:
        late.set()
        cut(connections)

    def on_connection(connection: Any, *_: object) -> None:
        connections.add(connection)
        if late.is_set():
            cut([connection])

    timer = threading.Timer(_OPENED_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield on_connection
    except SQLAlchemyError:
        if not late.is_set():
            raise
        raise StorageInternalError(f"no answer within {_OPENED_S} s") from None
    finally:
        timer.cancel()


def kept_storage(folder: Path) -> StudyStorage | None:
    """Where the folder of a study says that its trials are; None: in it. A relative file is one of the workspace.

    Raises:
        InvalidValue: The text there is none of ``EXPECTED``.
    """
    marker, workspace = folder / MARKER, _workspace_of(folder)
    if not marker.is_file():
        return None
    text = marker.read_text(encoding="utf-8").strip()
    with contextlib.suppress(ArgumentError, ValueError):
        url = make_url(text)
        if workspace is not None and url.drivername == "sqlite" and url.database:
            return StudyStorage.parse(_at(url, workspace / url.database).shown, str(marker))
    return StudyStorage.parse(text, str(marker))


def marker_text(folder: Path, storage: StudyStorage) -> str:
    """What the folder of a study keeps of a storage: a file in the workspace by its path there, which moves with it."""
    workspace = _workspace_of(folder)
    if workspace is not None and storage.url.drivername == "sqlite":
        file, root = storage.file, Path(os.path.realpath(workspace))
        if file.is_relative_to(root):
            return _at(storage.url, file.relative_to(root)).shown
    return storage.shown


def check_marker(folder: Path, storage: StudyStorage | None, journal: Path) -> None:
    """Refuses to begin a study a second time at another place; not where a file of SQLite was moved or copied.

    Args:
        folder: Of the study.
        storage: Where it is asked for now; None: in the folder.
        journal: The file it has where it is kept in the folder.

    Raises:
        InvalidValue: It is kept elsewhere; says where.
    """
    name, kept = folder.name, kept_storage(folder)
    if kept is None and (storage is None or not journal.is_file()):
        return
    if kept is not None and storage is not None and is_kept_at(folder, kept, storage):
        return
    how = "without --storage" if kept is None else f"with --storage {printable(kept.shown, 300)}"
    raise InvalidValue(f"study {name!r} was begun {how}; repeat it so, or choose another name: --study {name}-2")


def is_kept_at(folder: Path, kept: StudyStorage, asked: StudyStorage) -> bool:
    """Whether the place that is asked for is the one that a study is kept in, or a file of SQLite that was moved since,
    or was copied with the workspace.
    """
    return kept.is_at(asked) or _came_along(folder, kept, asked)


def _came_along(folder: Path, kept: StudyStorage, asked: StudyStorage) -> bool:
    """Whether the file that is asked for is the one that is kept, moved since, or was copied with the workspace."""
    if {kept.url.drivername, asked.url.drivername} != {"sqlite"} or not asked.has_study(folder.name):
        return False
    workspace = _workspace_of(folder)
    if not kept.file.exists():
        return True
    if workspace is None or not asked.file.is_relative_to(root := Path(os.path.realpath(workspace))):
        return False
    inside = asked.file.relative_to(root)
    original = Path(str(kept.file).removesuffix(f"/{inside}"))
    copied = original / folder.absolute().relative_to(workspace.absolute()) / MARKER
    return original != root and original / inside == kept.file and copied.is_file()


def _workspace_of(folder: Path) -> Path | None:
    """The workspace that the folder of a study lies in; None where it lies elsewhere."""
    state = folder.parent.parent
    return state.parent if state.name == STATE else None


def _at(url: URL, file: Path) -> StudyStorage:
    return StudyStorage(url.set(database=str(file)))


def _with_tables(url: str, options: dict[str, Any]) -> RDBStorage:
    from optuna.storages import RDBStorage

    storage = RDBStorage.__new__(RDBStorage)
    try:
        RDBStorage.__init__(storage, url, **options)
    except Exception:
        if hasattr(storage, "engine"):  # its connections would stay open
            storage.engine.dispose()
        raise
    return storage


def _is_of_tables(error: BaseException) -> bool:
    """Whether a statement failed, as where another process makes the same tables, and not the connection."""
    failed = error if isinstance(error, SQLAlchemyError) else error.__cause__
    kinds = (IntegrityError, ProgrammingError, OperationalError, InternalError)
    return isinstance(failed, kinds) and failed.statement is not None


def _is_of_storage(error: Exception) -> bool:
    from optuna.exceptions import StorageInternalError

    grpc_error: tuple[type[Exception], ...] = ()
    with contextlib.suppress(ImportError):
        import grpc

        grpc_error = (grpc.RpcError,)
    return isinstance(error, (SQLAlchemyError, StorageInternalError, *grpc_error))


def _limit(stub: object) -> None:
    """Ends every call of a stub of gRPC that is not answered; by itself gRPC waits for ever."""
    import grpc
    from optuna.exceptions import StorageInternalError

    def limited(call: Callable[..., object], request: object) -> object:
        try:
            return call(request, timeout=ANSWER_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            raise StorageInternalError(f"no answer within {ANSWER_S:g} s") from None

    for name, call in list(vars(stub).items()):
        setattr(stub, name, partial(limited, call))


def _require(module: str, extra: str) -> None:
    try:
        __import__(module)
    except ImportError as error:
        raise MissingDependency(f"--storage: {error}; install it: pip install 'hwbench[{extra}]'") from None


def _without_secrets(text: str) -> str:
    """What can be shown of a URL that does not parse."""
    try:
        scheme = urlsplit(text).scheme
    except ValueError:
        scheme = ""
    return repr(f"{scheme}://...") if scheme else "a text that is no URL"
