"""Studies in SQLite, in a real PostgreSQL and behind Optuna's gRPC proxy: the same study, wherever it is kept."""

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent import futures
from pathlib import Path

import optuna
import pytest
from alembic.runtime.migration import HeadMaintainer
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.ddl import SchemaGenerator

import hwbench
from hwbench import ReportRequest
from hwbench.api.search_request import SearchRequest
from hwbench.errors import InvalidFile, InvalidValue, MissingDependency, UnknownName, WorkspaceError
from hwbench.spaces.begun import going_on
from hwbench.spaces.resolve import resolve
from hwbench.studies.advisory_lock import LockLost, advisory_lock
from hwbench.studies.dashboard import opened_for_reading
from hwbench.studies.journal import open_study
from hwbench.studies.settings import Settings
from hwbench.studies.storage import MARKER, StudyStorage
from hwbench.studies.stored_settings import stored_settings
from hwbench.studies.trials import SearchWatch, stored_rung_scores
from hwbench.studies.worker_pool import Workers
from hwbench.testing import postgres
from hwbench.testing.evaluations import Sleep
from hwbench.testing.searches import search_by_law
from hwbench.workspace import Workspace

PASSWORD = "s3cret-pass/word"


@pytest.fixture
def make(make_search):
    """A search with a storage; its scores are numbers of blocks."""

    def make(url=None, name="mine", **changes):
        search = make_search(name, **{"evaluator": "short-train", "budget_s": 7e-3} | changes)
        search.trainer = Sleep()
        search.storage = None if url is None else StudyStorage.parse(url)
        return search

    return make


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("psycopg", reason="pip install 'hwbench[postgres]'")
    if postgres.programs() is None:
        pytest.skip("apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="hwbench-pg-") as folder:
        os.chmod(folder, 0o755)
        with postgres.postgres(Path(folder) / "server", "s3cret-pass") as running:
            yield running


@pytest.fixture
def grpc_url():
    pytest.importorskip("grpc", reason="pip install 'hwbench[grpc]'")
    import grpc
    from optuna.storages._grpc.auto_generated import api_pb2_grpc
    from optuna.storages._grpc.servicer import OptunaStorageProxyService

    kept = optuna.storages.InMemoryStorage()
    proxy = grpc.server(futures.ThreadPoolExecutor(2))
    api_pb2_grpc.add_StorageServiceServicer_to_server(OptunaStorageProxyService(kept), proxy)
    port = proxy.add_insecure_port("127.0.0.1:0")
    proxy.start()
    yield f"grpc://127.0.0.1:{port}"
    proxy.stop(None).wait()


@pytest.fixture(params=["sqlite", "postgresql", "grpc"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'studies.db'}"
    return (
        request.getfixturevalue("server").url if request.param == "postgresql" else request.getfixturevalue("grpc_url")
    )


class Stop(SearchWatch):
    """Ends the search as SIGTERM does, when so many trials have a score."""

    def __init__(self, trials):
        self.left = trials

    def evaluated(self, candidate):
        self.left -= 1
        if not self.left:
            raise SystemExit(143)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["thompson", pytest.param("tpe", marks=pytest.mark.long)])
def test_every_storage_gives_the_study_of_the_journal(make, url, sampler):
    name = f"as-the-journal-{sampler}"
    journal = make(name="journal", sampler=sampler).run(trials=12, measure=1)
    interrupted = make(url, name, sampler=sampler)
    interrupted.watch = Stop(9)
    with pytest.raises(SystemExit):
        interrupted.run(trials=12, measure=1)
    found = make(url, name, sampler=sampler).run(trials=12, measure=1)
    assert [c.architecture for c in found.history] == [c.architecture for c in journal.history]
    assert [c.score for c in found.history] == [c.score for c in journal.history]


def test_a_study_with_other_settings_or_at_another_place_is_refused(make, url, tmp_path):
    make(url, "settled").run(trials=2, measure=1)
    with pytest.raises(InvalidValue, match=r"exists with other settings: seed was 0, now 4; .*--study settled-2"):
        make(url, "settled", seed=4).run(trials=2, measure=1)
    shown = StudyStorage.parse(url).shown
    with pytest.raises(InvalidValue, match="was begun with --storage") as caught:
        make(None, "settled").run(trials=2, measure=1)
    assert shown in str(caught.value)
    with pytest.raises(InvalidValue, match="was begun with --storage"):
        make(f"sqlite:///{tmp_path / 'other.db'}", "settled").run(trials=2, measure=1)
    make(None, "plain").run(trials=2, measure=1)
    with pytest.raises(InvalidValue, match=r"was begun without --storage; repeat it so, or .*--study plain-2"):
        make(url, "plain").run(trials=2, measure=1)


@contextlib.contextmanager
def foreign(url, name, **changes):
    """A study that another program made, or has where no direction is given."""
    storage = optuna.storages.RDBStorage(url)
    open_one = optuna.create_study if changes else optuna.load_study
    try:
        yield open_one(study_name=name, storage=storage, **changes)
    finally:
        storage.engine.dispose()


def refused(make, url, name):
    """What a search says of a study, whose attributes it leaves as they are."""
    with foreign(url, name) as study:
        before = study.user_attrs
    search = make(url, name)
    with pytest.raises(InvalidFile) as caught:
        search.run(trials=2, measure=1)
    with foreign(url, name) as study:
        assert study.user_attrs == before
    assert not (search.workspace.studies / name / MARKER).exists()
    return str(caught.value)


@pytest.mark.parametrize("directions", [["minimize"], ["maximize", "minimize"]])
def test_an_empty_study_of_other_directions_is_refused(make, tmp_path, directions):
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    with foreign(url, "other", directions=directions):
        pass
    message = refused(make, url, "other")
    assert f"expected one to maximize, what is kept under its name is to {' and '.join(directions)}; " in message
    with foreign(url, "alike", direction="maximize"):
        pass
    assert make(url, "alike").run(trials=2, measure=1).trials == 2


@pytest.mark.parametrize(("attributes", "trials"), [({"owner": "me"}, 3), ({"owner": "me"}, 0), ({}, 3)])
def test_a_study_that_is_none_of_a_search_is_refused(make, tmp_path, attributes, trials):
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    with foreign(url, "other", direction="maximize") as study:
        for name, value in attributes.items():
            study.set_user_attr(name, value)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=trials)
    assert "what is kept under its name is none of a search; choose another one" in refused(make, url, "other")
    with foreign(url, "other") as study:
        study.set_user_attr("settings", "those of mine")
    assert "what is kept under its name is none of a search; choose another one" in refused(make, url, "other")


def test_a_storage_that_lost_the_study_is_told_and_begins_nothing(make, tmp_path):
    database = tmp_path / "studies.db"
    search = make(f"sqlite:///{database}", "lost")
    search.run(trials=2, measure=1)
    folder = search.workspace.studies / "lost"
    database.rename(tmp_path / "away.db")
    _is_lost(search, "that file is gone")
    with pytest.raises(InvalidFile, match="that file is gone"), opened_for_reading(folder):
        pass
    assert stored_settings(folder, search.storage) == {}
    assert not database.exists()
    make(f"sqlite:///{database}", "other").run(trials=2, measure=1)
    _is_lost(search, "it holds none of that name")
    with pytest.raises(InvalidFile, match="it holds none of that name"), opened_for_reading(folder):
        pass
    (tmp_path / "away.db").replace(database)
    assert search.run(trials=3, measure=1).trials == 3


def _is_lost(search, how):
    """The search says how its study was lost, and leaves its result."""
    folder = search.workspace.studies / search.name
    result = (folder / "result.json").read_bytes()
    with pytest.raises(InvalidFile, match=rf"storage\.txt says .* begun in sqlite:.*, but {how}; bring"):
        search.run(trials=3, measure=1)
    assert (folder / "result.json").read_bytes() == result


@pytest.fixture
def original(tmp_path, monkeypatch):
    """A workspace with a study of three trials in a file of its own."""
    made = Workspace.create(tmp_path / "original")
    monkeypatch.chdir(made.root)
    assert _go_on(made, 3).trials == 3
    return made


def _go_on(workspace, trials, url="sqlite:///optuna.db"):
    return search_by_law(
        workspace, "x3d-tiny", 4e-3, study="s", trials=trials, sampler="random", storage=StudyStorage.parse(url)
    )


def _trials(workspace):
    with contextlib.closing(sqlite3.connect(workspace.root / "optuna.db")) as database:
        return database.execute("SELECT count(*) FROM trials").fetchone()[0]


def _trials_shown(folder):
    """How many trials the page has of the study in the file of the workspace, which is above the current folder."""
    with opened_for_reading(folder, StudyStorage.parse("sqlite:///../optuna.db")) as storage:
        return len(storage.get_all_trials(storage.get_all_studies()[0]._study_id))


def _of_before(workspace):
    """The storage of the study, as it was stored before: by its absolute path."""
    (workspace.studies / "s" / MARKER).write_text(f"sqlite:///{workspace.root / 'optuna.db'}\n")


@pytest.mark.parametrize("before", [False, True])
def test_a_study_in_a_file_of_a_workspace_that_was_moved_goes_on(original, tmp_path, monkeypatch, before):
    if before:
        _of_before(original)
    moved = Workspace(original.root.rename(tmp_path / "moved"))
    monkeypatch.chdir(moved.root / "experiments")
    folder = moved.studies / "s"
    assert _trials_shown(folder) == 3
    if before:
        gone = r"that file is gone; bring it back .*, name the one that it was moved to: --storage sqlite:///FILE, "
        with pytest.raises(InvalidFile, match=gone), opened_for_reading(folder):
            pass
    assert _go_on(moved, 5, "sqlite:///../optuna.db").trials == 5
    assert (folder / MARKER).read_text() == "sqlite:///optuna.db\n"
    assert _trials_shown(folder) == 5
    assert f" --storage sqlite:///{moved.root}/optuna.db --study s" in going_on(folder, ["x3d-tiny"])
    assert not original.root.exists()


@pytest.mark.parametrize("before", [False, True])
def test_a_copy_of_a_workspace_keeps_to_its_own_file(original, tmp_path, monkeypatch, before):
    if before:
        _of_before(original)
    copy = Workspace(Path(shutil.copytree(original.root, tmp_path / "copy")))
    monkeypatch.chdir(copy.root)
    assert _go_on(copy, 5).trials == 5
    assert (_trials(original), _trials(copy)) == (3, 5)
    with pytest.raises(InvalidValue, match=rf"was begun with --storage sqlite:///{copy.root}/optuna\.db; repeat it so"):
        _go_on(copy, 6, f"sqlite:///{original.root / 'optuna.db'}")
    assert _trials(original) == 3


def test_a_file_that_was_moved_holds_its_study_and_a_copy_of_it_is_another_place(original, tmp_path):
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    shutil.copy("optuna.db", tmp_path / "elsewhere.db")
    with pytest.raises(InvalidValue, match="was begun with --storage"):
        _go_on(original, 4, elsewhere)
    Path("optuna.db").unlink()
    assert _go_on(original, 4, elsewhere).trials == 4
    assert (original.studies / "s" / MARKER).read_text() == f"{elsewhere}\n"
    with pytest.raises(InvalidValue, match="was begun with --storage"):
        _go_on(original, 5)
    assert not Path("optuna.db").exists()


@pytest.mark.parametrize("give", [Path.rename, shutil.copytree], ids=["renamed", "copied"])
def test_a_folder_of_a_study_goes_on_under_its_new_name(make, tmp_path, give):
    whole = make(name="whole", sampler="random").run(trials=6, measure=1)
    search = make(name="begun", sampler="random")
    search.run(trials=3, measure=1)
    folder, studies = search.workspace.studies / "given", search.workspace.studies
    give(studies / "begun", folder)
    page = ReportRequest(study="given", out=tmp_path / "given.html")
    assert hwbench.report(page, workspace=search.workspace).study == "given"
    (folder / "result.json").unlink()
    with pytest.raises(UnknownName, match=r"study 'given' has no result: .* hwbench search .* --study given$"):
        hwbench.report(page, workspace=search.workspace)
    again = make(name="given", sampler="random")
    again.trainer = Counted()
    result = again.run(trials=6, measure=1)
    assert (result.study, again.trainer.trained) == ("given", 3)
    assert [one.architecture for one in result.history] == [one.architecture for one in whole.history]
    assert resolve(search.workspace, "given:best", 8).name == result.best.architecture
    assert stored_rung_scores(folder) == []
    with opened_for_reading(folder) as storage:
        assert [len(storage.get_all_trials(one._study_id)) for one in storage.get_all_studies()] == [6]
    with pytest.raises(InvalidValue, match="study 'given' exists with other settings"):
        make(name="given", sampler="random", seed=4).run(trials=6, measure=1)


class Counted(Sleep):
    """Counts its trainings."""

    trained = 0

    def __call__(self, network, seed):
        object.__setattr__(self, "trained", self.trained + 1)
        return super().__call__(network, seed)


def test_a_journal_of_several_studies_is_refused_where_none_has_the_name_of_its_folder(make):
    search = make(name="one")
    search.run(trials=2, measure=1)
    folder, num_choices = search.workspace.studies / "one", len(search.feasible.space.choices)
    with opened_for_reading(folder) as storage:
        optuna.create_study(study_name="two", storage=storage, directions=search.settings.directions)
    with open_study(folder, search.settings, None, num_choices) as study:
        assert (study.study_name, len(study.trials)) == ("one", 2)
    folder.rename(folder.with_name("three"))
    with pytest.raises(InvalidFile, match="study 'three': the journal in its folder holds 'one' and 'two', and none"):
        make(name="three").run(trials=2, measure=1)


def test_a_score_that_the_study_does_not_take_ends_the_search(make, monkeypatch):
    class Turns(SearchWatch):
        def started(self, trials, finished, best):
            monkeypatch.setattr(Settings, "directions", ["maximize"])

    search = make(name="two", objective="score,latency")
    search.watch = Turns()
    with pytest.raises(ValueError, match="did not match the number of the objectives"):
        search.run(trials=2, measure=1)


def test_trials_under_way_run_again_and_workers_share_the_study(make, url):
    search = make(url, "stopped", sampler="random")
    search.watch = Stop(5)
    with pytest.raises(SystemExit):
        search.run(trials=8, measure=1)
    search = make(url, "stopped", sampler="random")
    search.workers = Workers(2)
    result = search.run(trials=8, measure=1)
    assert result.trials == len({c.architecture for c in result.history}) == 8


def test_no_password_is_kept_or_shown(make, server, capfd):
    search = make(server.url, "secret")
    result = search.run(trials=3, measure=1)
    folder = search.workspace.studies / "secret"
    assert (folder / MARKER).read_text() == server.url.replace(f":{server.password}", "") + "\n"
    assert not [path for path in search.workspace.root.rglob("*") if path.is_file() and _holds(path, server.password)]
    assert server.password not in repr(result) + repr(search.storage) + "".join(capfd.readouterr())
    wrong = server.url.replace(server.password, "wrong-one")
    with pytest.raises(WorkspaceError, match="password authentication failed") as caught:
        make(wrong, "secret").run(trials=3, measure=1)
    assert "wrong-one" not in str(caught.value)
    assert caught.value.exit_status == 2


def _holds(path, text):
    return text.encode() in path.read_bytes()


def test_one_search_at_a_time_is_at_work_in_postgresql(make, server, tmp_path):
    class Nested(SearchWatch):
        said = ""

        def evaluated(self, candidate):
            if not Nested.said:
                # another machine has another workspace
                said = "in use by another process on postgresql:"
                with pytest.raises(InvalidValue, match=said) as caught, StudyStorage.parse(server.url).opened("alone"):
                    pass
                Nested.said = str(caught.value)

    search = make(server.url, "alone")
    search.watch = Nested()
    search.run(trials=2, measure=1)
    assert "--study alone-2" in Nested.said
    make(server.url, "alone").run(trials=3, measure=1)


_HOLDERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"


def test_a_search_whose_lock_is_lost_ends_before_it_writes(make, server, tmp_path, capfd):
    class Lose(SearchWatch):
        def evaluated(self, candidate):
            if candidate.trial == 3:
                with psycopg.connect(server.url, autocommit=True) as other:
                    ended = other.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM ({_HOLDERS}) AS holders")
                    assert ended.fetchall() == [(True,)]
                with open_study(tmp_path / "elsewhere" / "lost", search.settings, None, 0, search.storage) as study:
                    closed.extend(trial.state for trial in study.get_trials(deepcopy=False)[3:4])

    psycopg = pytest.importorskip("psycopg")
    closed = []
    search = make(server.url, "lost", sampler="random")
    search.watch = Lose()
    with pytest.raises(WorkspaceError, match=r"'lost': postgresql://.*the lock of the study is lost, .*: terminating"):
        search.run(trials=10, measure=1)
    assert closed == [TrialState.FAIL]
    assert capfd.readouterr().err == ""
    result = make(server.url, "lost", sampler="random").run(trials=10, measure=1)
    assert result.trials == len({c.architecture for c in result.history}) == 10


@pytest.fixture
def engine_of(server):
    """Makes an engine with settings of the session; all of them are ended."""
    import sqlalchemy

    engines = []

    def engine_of(**options):
        url = sqlalchemy.make_url(server.url).set(drivername="postgresql+psycopg")
        words = " ".join(f"-c{name}={value}" for name, value in options.items())
        engines.append(sqlalchemy.create_engine(url, connect_args={"options": words}))
        return engines[-1]

    yield engine_of
    for engine in engines:
        engine.dispose()


def test_pings_keep_a_lock_from_the_idle_timeout_of_a_server(engine_of):
    engine = engine_of(idle_session_timeout="400ms")
    with advisory_lock(engine, "idle", every_s=0.05) as is_held:
        time.sleep(1.0)
        assert is_held
        with advisory_lock(engine_of(), "idle") as other:
            assert not other
    with advisory_lock(engine_of(), "idle") as other:
        assert other
    with advisory_lock(engine, "idle", every_s=60.0):
        time.sleep(1.0)
        with pytest.raises(LockLost, match="idle-session timeout"), engine.connect():
            pass


def test_a_server_that_does_not_answer_is_not_waited_for(engine_of):
    from sqlalchemy import text
    from sqlalchemy.exc import OperationalError

    engine = engine_of()
    with advisory_lock(engine, "hung", every_s=0.1, answer_s=0.5), engine.connect() as used:
        backends = [pid for (pid,) in used.execute(text(f"{_HOLDERS} UNION SELECT pg_backend_pid()"))]
        assert len(backends) == 2
        for pid in backends:
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(OperationalError, match="closed"):
                used.execute(text("SELECT 1"))
            with pytest.raises(LockLost, match=r"no answer within 0\.5 s"):
                engine.connect()
        finally:
            for pid in backends:
                os.kill(pid, signal.SIGCONT)


def test_a_server_that_goes_away_is_one_line_and_loses_nothing(make, server):
    class Outage(SearchWatch):
        def evaluated(self, candidate):
            if candidate.trial == 4:
                server.kill()

    search = make(server.url, "outage", sampler="random")
    search.watch, search.workers = Outage(), Workers(2)
    try:
        with pytest.raises(WorkspaceError, match=r"study 'outage': postgresql://.*repeat the same command") as caught:
            search.run(trials=10, measure=1)
        assert "\n" not in str(caught.value)
        with pytest.raises(WorkspaceError, match="study 'outage': postgresql://"):
            make(server.url, "outage", sampler="random").run(trials=10, measure=1)
    finally:
        server.start()
    result = make(server.url, "outage", sampler="random").run(trials=10, measure=1)
    assert result.trials == len({c.architecture for c in result.history}) == 10


def test_a_grpc_server_that_is_not_there_is_one_line(make, monkeypatch):
    pytest.importorskip("grpc", reason="pip install 'hwbench[grpc]'")
    monkeypatch.setattr("hwbench.studies.storage._TIMEOUT_S", 0.2)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        address = f"grpc://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(WorkspaceError, match=rf"study 'down': {address}: no answer within 0\.2 s; .*repeat"):
            make(address, "down").run(trials=2, measure=1)


_PROXY = """
import sys
import optuna
optuna.storages.run_grpc_proxy_server(optuna.storages.InMemoryStorage(), host="127.0.0.1", port=int(sys.argv[1]))
"""


def test_a_grpc_server_that_stops_answering_is_one_line_and_loses_nothing(make, monkeypatch):
    class Hang(SearchWatch):
        def evaluated(self, candidate):
            if candidate.trial == 4:
                proxy.send_signal(signal.SIGSTOP)

    pytest.importorskip("grpc", reason="pip install 'hwbench[grpc]'")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    proxy = subprocess.Popen([sys.executable, "-W", "ignore", "-c", _PROXY, str(port)], stderr=subprocess.DEVNULL)
    try:
        monkeypatch.setattr("hwbench.studies.storage._TIMEOUT_S", 60)  # until the process has loaded everything
        make(f"grpc://127.0.0.1:{port}", "hung", sampler="random").run(trials=2, measure=1)
        monkeypatch.setattr("hwbench.studies.storage.ANSWER_S", 2.0)
        search = make(f"grpc://127.0.0.1:{port}", "hung", sampler="random")
        search.watch = Hang()
        with pytest.raises(WorkspaceError, match=r"study 'hung': grpc://.*: no answer within 2 s; .*repeat"):
            search.run(trials=10, measure=1)
        proxy.send_signal(signal.SIGCONT)
        monkeypatch.setattr("hwbench.studies.storage.ANSWER_S", 60.0)
        result = make(f"grpc://127.0.0.1:{port}", "hung", sampler="random").run(trials=10, measure=1)
        assert result.trials == len({c.architecture for c in result.history}) == 10
    finally:
        proxy.kill()
        proxy.wait()


_LIMITED = """
import resource, signal, sys
from pathlib import Path
from hwbench.errors import HwbenchError
from hwbench.testing.searches import search_by_law
from hwbench.studies.storage import StudyStorage
from hwbench.workspace import Workspace

workspace, storage = Workspace(Path(sys.argv[1])), StudyStorage.parse(sys.argv[2])
limit, trials = map(int, sys.argv[3:])
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
try:
    result = search_by_law(workspace, "x3d-tiny", 7e-3, trials=trials, sampler="random", storage=storage)
    print(result.trials, len({c.architecture for c in result.history}))
except HwbenchError as error:
    print(type(error).__name__, error.exit_status, error)
"""


@pytest.mark.slow
def test_a_full_disk_under_sqlite_is_one_line_and_loses_nothing(workspace, tmp_path):
    """A file that may not grow stands for the disk."""
    database = tmp_path / "small.db"

    def run(limit, trials):
        command = [
            sys.executable,
            "-c",
            _LIMITED,
            str(workspace.root),
            f"sqlite:///{database}",
            str(limit),
            str(trials),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True)

    assert run(0, 2).stdout == "2 2\n"
    ended = run(database.stat().st_size + 4096, 12)
    assert ended.stdout.startswith("WorkspaceError 2 study 'by-law': sqlite:///"), ended
    assert ended.stdout.count("\n") == 1
    assert ended.stderr == ""
    assert run(0, 12).stdout == "12 12\n"


def test_tables_of_another_version_of_optuna_are_told(make, tmp_path):
    url = f"sqlite:///{tmp_path / 'old.db'}"
    with StudyStorage.parse(url).opened("made"):
        pass
    _change(tmp_path / "old.db", "UPDATE alembic_version SET version_num = 'v3.0.0.d'")
    with pytest.raises(WorkspaceError, match=r"--storage sqlite:.*old\.db: .*optuna storage upgrade") as caught:
        make(url, "aged").run(trials=1, measure=1)
    assert caught.value.exit_status == 2
    _change(tmp_path / "old.db", "UPDATE alembic_version SET version_num = 'v99'")
    with pytest.raises(WorkspaceError, match="pip install -U optuna"):
        make(url, "aged").run(trials=1, measure=1)


def _change(database, statement):
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize("moment", ["create_all", "stamp"])
def test_two_searches_begin_on_a_new_database(tmp_path, monkeypatch, moment):
    """The second one makes its tables between a look of the first one and what that makes after it.

    The first one looks again, however long its first look took.
    """
    monkeypatch.setattr("hwbench.studies.storage._PATIENCE_S", 0)
    storage = StudyStorage.parse(f"sqlite:///{tmp_path / 'new.db'}")
    owner, method = {
        "create_all": (SchemaGenerator, "visit_table"),
        "stamp": (HeadMaintainer, "_insert_version"),
    }[moment]
    original, others = getattr(owner, method), []

    def overtaken(*arguments, **named):
        if not others:
            others.append("begun")
            with storage.opened("other") as opened:
                others.append(opened.get_all_studies())
        return original(*arguments, **named)

    monkeypatch.setattr(owner, method, overtaken)
    with storage.opened("mine") as opened:
        assert opened.get_all_studies() == []
    assert others == ["begun", []]


def test_a_database_that_cannot_be_opened_is_told_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"waits for {seconds} s"))
    storage = StudyStorage.parse(f"sqlite:///{tmp_path}")
    with pytest.raises(WorkspaceError, match="unable to open database file"), storage.opened("mine"):
        pass


def test_a_missing_folder_of_a_database_is_named(tmp_path):
    storage, folder = StudyStorage.parse(f"sqlite:///{tmp_path}/missing/new.db"), tmp_path / "missing"
    told = f"--storage {storage.shown}: no folder {folder}; make it, or name another file"
    with pytest.raises(WorkspaceError) as caught, storage.opened("mine"):
        pass
    assert str(caught.value) == told
    with pytest.raises(WorkspaceError) as caught:  # before any work
        SearchRequest(budget="1ms", storage=f"sqlite:///{folder}/new.db")
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "text",
    [
        "mysql://a/b",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://h",
        "grpc://h",
        "grpc://h:1/x",
        "no",
        "",
        "x://[:",
    ],
)
def test_what_is_no_storage(text):
    with pytest.raises(InvalidValue, match=r"--storage: expected sqlite:///FILE, postgresql://USER@HOST/DATABASE or"):
        StudyStorage.parse(text)


def test_what_is_no_url_is_not_quoted_as_one():
    with pytest.raises(InvalidValue, match=r"grpc://HOST:PORT, got a text that is no URL$"):
        StudyStorage.parse("nonsense")


def test_a_refused_url_shows_no_password():
    for text in (f"mysql://me:{PASSWORD}@h/d", f"postgresql://me:{PASSWORD}@h", f"mysql://h/d?password={PASSWORD}"):
        with pytest.raises(InvalidValue) as caught:
            StudyStorage.parse(text)
        assert "s3cret" not in str(caught.value)


def test_no_secret_of_a_url_is_shown(monkeypatch):
    secrets = {"sslpassword": "s3cret-1", "password": "s3cret-2", "scram_client_key": "s3cret-3"}
    query = "&".join(["sslmode=require", "passfile=/etc/pass", *(f"{name}={value}" for name, value in secrets.items())])
    storage = StudyStorage.parse(f"postgresql://me:{PASSWORD.replace('/', '%2F')}@h/d?{query}")
    assert storage.shown == "postgresql://me@h/d?passfile=%2Fetc%2Fpass&sslmode=require"
    assert {*storage.secrets} == {PASSWORD, *secrets.values()}

    def refuse(self, url, **_):
        raise SQLAlchemyError(f"no {url}")

    monkeypatch.setattr("optuna.storages.RDBStorage.__init__", refuse)
    with pytest.raises(WorkspaceError, match=r"no sqlite:///.*one\.db\?sslpassword=\*\*\*; what it") as caught:
        StudyStorage.parse("sqlite:///one.db?sslpassword=s3cret").opened("mine").__enter__()
    assert "s3cret" not in str(caught.value)


def test_a_missing_package_is_named_with_its_extra(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependency, match=r"pip install 'hwbench\[postgres\]'"):
        make("postgresql://me@127.0.0.1/db").run(trials=1, measure=1)
