"""``hwbench dashboard`` on studies in their folder and elsewhere; the page is that of optuna-dashboard."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from wsgiref.simple_server import make_server

import pytest

import hwbench
from hwbench.api.dashboard import DashboardResult
from hwbench.cli.main import main
from hwbench.errors import InvalidFile, InvalidValue, MissingDependency, WorkspaceError
from hwbench.interpreter import python_environment
from hwbench.studies.dashboard import read_only
from hwbench.studies.storage import StudyStorage

# A page whose user ends it while it answers; the answer goes out. The thread that answers may be at work before the
# one that started it goes on.
INTERRUPTED = """
import os, signal, threading, time
from contextlib import ExitStack
from wsgiref.simple_server import make_server
from hwbench.api.dashboard import DashboardResult

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a script

def page(environ, start_response):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)
    start_response("200 OK", [])
    return [b"page"]

started = threading.Thread.start

def start(thread):
    started(thread)
    time.sleep({LATE_S})

threading.Thread.start = start
server = make_server("127.0.0.1", 0, page)
print(server.server_port, flush=True)
with DashboardResult("mine", "", server, ExitStack()) as result:
    result.serve()
"""


@pytest.fixture
def study(make_search):
    """A finished study ``mine``."""
    search = make_search()
    search.run(trials=3, measure=1)
    return search


def opened(workspace, **changes):
    request = hwbench.DashboardRequest(**{"study": "mine", "port": 0} | changes)
    return hwbench.dashboard(request, workspace=workspace)


def ask(url, method, path, **headers):
    connection = http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"), timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def let_in(server):
    """Takes connections as PostgreSQL does, without a password, and answers nothing that is asked on them."""
    kept = []
    with contextlib.suppress(OSError):  # the test is over
        while True:
            kept.append(server.accept()[0])
            kept[-1].recv(10_000)
            kept[-1].sendall(b"R\0\0\0\x08\0\0\0\0" + b"Z\0\0\0\x05I")


def told(environ):
    """Status and body of a guarded application that answers ``page``."""
    statuses = []

    def page(environ, start_response):
        start_response("200 OK", [])
        return [b"page"]

    body = b"".join(read_only(page)(environ, lambda status, headers: statuses.append(status)))
    return statuses[0], body


@pytest.mark.parametrize(
    ("method", "host", "status"),
    [
        ("GET", "127.0.0.1:8080", "200 OK"),
        ("HEAD", "localhost", "200 OK"),
        ("POST", "127.0.0.1:8080", "405 Method Not Allowed"),
        ("DELETE", "localhost:1", "405 Method Not Allowed"),
        ("GET", "evil.example:8080", "421 Misdirected Request"),
        ("GET", "", "421 Misdirected Request"),
    ],
)
def test_the_page_is_read_by_this_machine_alone(method, host, status):
    assert told({"REQUEST_METHOD": method, "HTTP_HOST": host})[0] == status


@pytest.mark.parametrize("kept", ["journal", "sqlite"])
def test_the_page_shows_the_study_and_changes_nothing(make_search, workspace, tmp_path, kept):
    pytest.importorskip("optuna_dashboard", reason="pip install 'hwbench[dashboard]'")
    search = make_search()
    if kept == "sqlite":
        search.storage = StudyStorage.parse(f"sqlite:///{tmp_path / 'studies.db'}")
    search.run(trials=3, measure=1)
    file = tmp_path / "studies.db" if kept == "sqlite" else workspace.studies / "mine" / "journal.log"
    before = file.read_bytes()
    with opened(workspace) as page:
        assert page.url == f"http://127.0.0.1:{page.server.server_port}/"
        serving = threading.Thread(target=page.serve)
        serving.start()
        status, body = ask(page.url, "GET", "/api/studies")
        (listed,) = json.loads(body)["study_summaries"]
        assert (status, listed["study_name"]) == (200, "mine")
        status, body = ask(page.url, "GET", f"/api/studies/{listed['study_id']}?after=0")
        assert len(json.loads(body)["trials"]) == 3
        assert ask(page.url, "DELETE", f"/api/studies/{listed['study_id']}")[0] == 405
        with pytest.raises(InvalidValue, match=r"--port \d+: .*; choose another one, or 0"):
            opened(workspace, port=page.server.server_port)
        page.server.shutdown()
        serving.join()
    assert file.read_bytes() == before


def test_the_command_prints_its_url_and_ends_with_ctrl_c(study, workspace):
    pytest.importorskip("optuna_dashboard", reason="pip install 'hwbench[dashboard]'")
    process = subprocess.Popen(
        [sys.executable, "-m", "hwbench", "dashboard", "mine", "--port", "0", "--json"],
        cwd=workspace.root,
        env=python_environment({"PYTHONUNBUFFERED": ""}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = [process.stdout.readline() for _ in range(4)]
    url = json.loads("".join(lines))["url"]
    assert ask(url, "GET", "/dashboard")[0] == 200
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize("late_s", [0, 1], ids=["as it waits", "as it starts"])
def test_ctrl_c_while_a_request_is_answered_ends_the_page(late_s):
    script = INTERRUPTED.replace("{LATE_S}", str(late_s))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        port = int(process.stdout.readline())
        assert ask(f"http://127.0.0.1:{port}", "GET", "/")[0] == 200
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in err
    assert b"wsgiref" not in err


def test_a_page_that_is_closed_ends_who_serves_it():
    def answer(environ, start_response):
        start_response("200 OK", [])
        return [b"page"]

    server = make_server("127.0.0.1", 0, answer)
    page = DashboardResult("mine", f"http://127.0.0.1:{server.server_port}/", server, ExitStack())
    serving = threading.Thread(target=page.serve, daemon=True)
    serving.start()
    assert ask(page.url, "GET", "/") == (200, b"page")
    page.close()
    serving.join(timeout=20)
    assert not serving.is_alive()
    page.serve()  # as a thread does that starts too late


def test_what_cannot_be_shown(study, workspace, tmp_path, monkeypatch):
    with pytest.raises(InvalidFile, match="holds no study; make one: hwbench search --budget BUDGET --study other"):
        opened(workspace, study="other")
    with pytest.raises(InvalidValue, match="study 'mine' is kept in its folder, not in sqlite:///"):
        opened(workspace, storage=f"sqlite:///{tmp_path / 'x.db'}")
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    with pytest.raises(MissingDependency, match=r"pip install 'hwbench\[dashboard\]'"):
        opened(workspace)


def test_a_postgresql_that_hangs_is_one_line(study, workspace, monkeypatch):
    pytest.importorskip("psycopg", reason="pip install 'hwbench[postgres]'")
    monkeypatch.setattr("hwbench.studies.storage._OPENED_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=let_in, args=(server,), daemon=True).start()
        url = f"postgresql://me@127.0.0.1:{server.getsockname()[1]}/studies?sslmode=disable&gssencmode=disable"
        (workspace.studies / "mine" / "storage.txt").write_text(f"{url}\n")
        with pytest.raises(WorkspaceError, match=r"study 'mine': postgresql://me@.*: no answer within 1 s; ") as told:
            opened(workspace)
    assert "\n" not in str(told.value)


def test_a_missing_dashboard_is_one_line(study, workspace, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    monkeypatch.chdir(workspace.root)
    with pytest.raises(SystemExit) as end:
        main(["dashboard", "mine"])
    out, err = capfd.readouterr()
    assert (end.value.code, out) == (2, "")
    assert "pip install 'hwbench[dashboard]'" in err
