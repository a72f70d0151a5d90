"""File systems that have no locks: what goes on there, and what is refused in words."""

import errno
import fcntl
import http.server
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import pytest

from hwbench.data.preparing import PreparedFolder
from hwbench.deploy.atomic_export import staging
from hwbench.devices.lease import holder, holders, leased
from hwbench.errors import HwbenchError, WorkspaceError
from hwbench.locks import try_flock, try_lockf
from hwbench.measure.cache import ArtifactCache
from hwbench.room import clean_cache, use
from hwbench.runtimes.native.build import Wheel, build_runner, lock
from hwbench.scratch import scratch_folder
from hwbench.spaces import fetch_weights
from hwbench.spaces.downloads import MIRROR, stored_weights
from hwbench.studies.journal import open_study
from hwbench.training.run_lock import is_trained_now, training_alone, training_in_turn
from hwbench.workspace import Workspace


@pytest.fixture(params=["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls fail as they do on Lustre without ``-o flock``, on NFS without lockd, and on some of FUSE."""
    number = getattr(errno, request.param)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    for name in ("flock", "lockf", "fcntl"):
        monkeypatch.setattr(fcntl, name, fail)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize(("try_lock", "name"), [(try_flock, "flock"), (try_lockf, "lockf")])
def test_what_another_process_holds_is_told_from_what_is_free(
    try_lock: Callable[[IO[str]], bool | None], name: str, tmp_path: Path
) -> None:
    code = f"import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.{name}(f, 2); print('held', flush=True); input()"
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        (tmp_path / "lock").open("w") as file,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert try_lock(file) is False
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait() == 0
        assert try_lock(file) is True


@pytest.mark.usefixtures("no_locks")
def test_trainings_preparations_and_exports_go_on_without_locks(tmp_path: Path) -> None:
    with training_alone(tmp_path / "run"):
        assert is_trained_now(tmp_path / "run")
    assert not is_trained_now(tmp_path / "run")
    with training_in_turn(tmp_path / "run", lambda: pytest.fail("waited")):
        pass
    with PreparedFolder(tmp_path / "prepared"):
        under_way = tmp_path / "prepared" / ".0.mp4.abc.tmp"
        under_way.write_text("half")
        with PreparedFolder(tmp_path / "prepared"):
            assert under_way.exists()
    with staging(tmp_path / "out"):
        pass
    use(tmp_path / "cache")


@pytest.mark.usefixtures("no_locks")
def test_the_runner_is_built_without_locks(tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && echo binary > "$2"; shift; done\n')
    compiler.chmod(0o755)
    wheel = Wheel(tmp_path / "executorch", "1.5.1")
    cache = tmp_path / "cache"
    binary = build_runner(cache, wheel=wheel, compiler=[str(compiler)])
    assert binary.read_text() == "binary\n"
    with lock(cache / "runner.lock"):
        assert build_runner(cache, wheel=wheel, compiler=[str(compiler)]) == binary


@pytest.mark.usefixtures("no_locks")
def test_where_two_processes_would_disturb_each_other_the_message_says_what_to_do(tmp_path: Path) -> None:
    def told(what: AbstractContextManager[object]) -> str:
        with pytest.raises(WorkspaceError, match="no locks, which keep two processes from") as error, what:
            pytest.fail("went on")
        return str(error.value)

    assert told(leased("x")).endswith("one device; name a folder on another disk: export XDG_STATE_HOME=DIR")
    assert holder("x") is None
    assert holders() == ()
    assert "building into one folder" in told(ArtifactCache(tmp_path / "cache", "eager").building())
    study = open_study(tmp_path / "studies" / "mine", None, None, 0)  # type: ignore[arg-type]
    assert told(study).startswith(f"{tmp_path / 'studies' / 'mine'}: its file system")
    with pytest.raises(WorkspaceError, match="by hand while no hwbench runs"):
        clean_cache(tmp_path / "cache")


WEIGHTS = bytes(range(256)) * 10_000


class Weights(http.server.BaseHTTPRequestHandler):
    """Gives ``WEIGHTS`` for every path, and ends the connection after ``sent`` bytes."""

    sent = len(WEIGHTS)

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        start = int(self.headers.get("Range", "bytes=0-")[len("bytes=") : -1])
        self.send_response(206 if start else 200)
        self.send_header("ETag", '"first"')
        self.send_header("Content-Length", str(len(WEIGHTS) - start))
        self.end_headers()
        self.wfile.write(WEIGHTS[start : start + self.sent])


@pytest.fixture
def _mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Weights) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(MIRROR, f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()


@pytest.mark.usefixtures("no_locks", "_mirror")
def test_published_weights_are_fetched_without_locks_by_two_at_once(tmp_path: Path) -> None:
    workspace, at_once = Workspace.create(tmp_path / "workspace"), []

    def fetch_too(*_: object) -> None:
        if not at_once:
            at_once.append(fetch_weights(workspace, "x3d-xs"))

    kept = fetch_weights(workspace, "x3d-xs", fetch_too).path
    assert [other.fetched for other in at_once] == [True]
    assert kept.read_bytes() == WEIGHTS
    assert {file.name for file in kept.parent.iterdir()} == {kept.name, f"{kept.name}.sha256", ".lock"}
    assert not fetch_weights(workspace, "x3d-xs").fetched


@pytest.mark.usefixtures("no_locks", "_mirror")
def test_a_fetch_without_locks_goes_on_by_itself_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.create(tmp_path / "workspace")
    monkeypatch.setattr(Weights, "sent", 600_000)
    with pytest.raises(HwbenchError, match="after 1800000 bytes; the same command begins anew"):
        fetch_weights(workspace, "x3d-xs")
    assert [file.name for file in stored_weights(workspace, "x3d-xs").parent.iterdir()] == [".lock"]
    monkeypatch.setattr(Weights, "sent", 1_000_000)
    assert fetch_weights(workspace, "x3d-xs").path.read_bytes() == WEIGHTS


@pytest.mark.usefixtures("no_locks", "_mirror")
def test_what_a_killed_fetch_without_locks_left_goes_with_a_later_one(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "workspace")
    kept = fetch_weights(workspace, "x3d-xs").path
    left = kept.with_name(f".{kept.name}.0123456789abcdef.tmp")
    of_now = kept.with_name(f".{kept.name}.fedcba9876543210.tmp")
    for part in (left, of_now):
        for file in (part, part.with_name(f"{part.name}.tag")):
            file.write_text("half")
    two_days_ago = time.time() - 2 * 24 * 3600
    for file in kept.parent.iterdir():
        if not file.name.startswith(of_now.name):
            os.utime(file, (two_days_ago, two_days_ago))
    assert not fetch_weights(workspace, "x3d-xs").fetched
    expected = {kept.name, f"{kept.name}.sha256", ".lock", of_now.name, f"{of_now.name}.tag"}
    assert {file.name for file in kept.parent.iterdir()} == expected


@pytest.mark.usefixtures("no_locks")
def test_scratch_folders_are_made_without_locks_and_none_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = tmp_path / "hwbench-abcdefgh"
    other.mkdir(mode=0o700)
    (other / ".lock").touch()
    with scratch_folder() as folder:
        assert folder.is_dir()
    assert [path for path in tmp_path.iterdir() if path.name.startswith("hwbench-")] == [other]
