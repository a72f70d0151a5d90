"""Published weights by name, fetched from a real server that breaks off, changes the file, or is not there."""

import datetime
import fcntl
import hashlib
import http.server
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest
from plugin_packages import offer

import hwbench
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, UnknownName, WorkspaceError
from hwbench.ownership import SAFE_DIRECTORY, who_else
from hwbench.spaces import downloads, fetch_weights, read_card
from hwbench.spaces.downloads import MIRROR, FetchedWeights, mirrored, stored_weights
from hwbench.spaces.families import families
from hwbench.workspace import Workspace, shipped

PLACE = "pytorchvideo/model_zoo/kinetics/X3D_XS.pyth"
PLAIN = """
schema = 1
name = "plain-tiny"
family = "plain"
licence = "Apache-2.0"
source = "a test"
classes = 10

[input]
frames = 4
resolution = 32
sample_rate = 4

[plain]
width = 8
"""
DATA = bytes(range(256)) * 20_000  # 5 MB


class Heard(hwbench.Listener):
    """Keeps what is said."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def say(self, message: str) -> None:
        self._lines.append(message)


class Server(http.server.ThreadingHTTPServer):
    """Serves one file; ``cut`` bytes of each answer, where it is not None, and ``pause_s`` between pieces."""

    daemon_threads = True
    data = DATA
    tag = '"first"'
    cut: int | None = None
    pause_s = 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        asked = self.headers.get("Range", "")
        server.asked.append(asked)
        if self.path != f"/{PLACE}":
            self.send_error(404)
            return
        start = int(match[1]) if (match := re.fullmatch(r"bytes=(\d+)-", asked)) else 0
        if self.headers.get("If-Range") not in (None, server.tag):
            start = 0
        body = server.data[start:]
        self.send_response(206 if start else 200)
        self.send_header("ETag", server.tag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = body if server.cut is None else body[: server.cut]
        for at in range(0, len(sent), 1 << 16):
            self.wfile.write(sent[at : at + (1 << 16)])
            time.sleep(server.pause_s)
        if server.cut is not None:
            self.close_connection = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv(MIRROR, server.address)
        for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(proxy, raising=False)
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "workspace")


def pin(workspace: Workspace, sha256: str) -> None:
    """Writes the digest into the card."""
    card = workspace.root / "zoo" / "x3d-xs" / "model.toml"
    text = card.read_text()
    card.write_text(text.replace("[[weights]]\n", f'[[weights]]\nsha256 = "{sha256}"\n', 1))


def test_a_file_is_fetched_once_and_checked_each_time(workspace: Workspace, server: Server) -> None:
    told: list[tuple[int, int | None]] = []
    got = fetch_weights(workspace, "x3d-xs", lambda done, total: told.append((done, total)))
    assert got.path == workspace.state / "weights" / "x3d-xs" / "X3D_XS.pyth"
    assert got.path.read_bytes() == DATA
    assert (got.bytes, got.fetched, got.pinned) == (len(DATA), True, False)
    assert got.sha256 == hashlib.sha256(DATA).hexdigest()
    assert told[-1] == (len(DATA), len(DATA))
    again = fetch_weights(workspace, "x3d-xs")
    assert (again.sha256, again.fetched) == (got.sha256, False)
    assert server.asked == [""]
    assert {path.name for path in got.path.parent.iterdir()} == {"X3D_XS.pyth", "X3D_XS.pyth.sha256", ".lock"}
    got.path.write_bytes(DATA[:-1])  # the card names no digest: that of the first fetch holds
    with pytest.raises(InvalidFile, match=r"expected SHA-256 .* damaged or replaced: remove the folder"):
        fetch_weights(workspace, "x3d-xs")


def test_two_threads_fetch_a_file_once(workspace: Workspace, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, flock, others = threading.Event(), fcntl.flock, list[Future[FetchedWeights]]()

    def locked(file: IO[str], how: int) -> None:
        if how == fcntl.LOCK_EX:
            waits.set()
        flock(file, how)

    def fetch_beside(*_: object) -> None:
        if not others:
            others.append(pool.submit(fetch_weights, workspace, "x3d-xs", lambda *_: waits.set()))
            assert waits.wait(60)

    monkeypatch.setattr(fcntl, "flock", locked)
    with ThreadPoolExecutor(1) as pool:
        assert fetch_weights(workspace, "x3d-xs", fetch_beside).fetched
        assert not others[0].result(60).fetched
    assert len(server.asked) == 1


@pytest.mark.parametrize("cut", [None, 3_000_000])
def test_19_02_fetched_weights_are_ours_whatever_the_umask_is(
    workspace: Workspace, server: Server, cut: int | None
) -> None:
    server.cut = cut
    before = os.umask(0)
    try:
        kept = fetch_weights(workspace, "x3d-xs").path
    finally:
        os.umask(before)
    for path in (kept.parent.parent, kept.parent, kept, kept.with_name(f"{kept.name}.sha256")):
        assert who_else(path) == ""
    assert not fetch_weights(workspace, "x3d-xs").fetched


def test_19_02_weights_of_a_mirror_are_ours_whatever_the_umask_is(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mirror" / PLACE
    file.parent.mkdir(parents=True)
    file.write_bytes(b"weights")
    monkeypatch.setenv(MIRROR, str(tmp_path / "mirror"))
    before = os.umask(0)
    try:
        kept = fetch_weights(workspace, "x3d-xs").path
    finally:
        os.umask(before)
    assert who_else(kept) == ""


@pytest.mark.parametrize("place", ["..", ".", "X3D_XS.pyth", "X3D_XS.pyth.sha256"])
def test_19_02_weights_that_others_can_change_are_refused(
    workspace: Workspace, server: Server, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.delenv(SAFE_DIRECTORY, raising=False)
    kept = fetch_weights(workspace, "x3d-xs").path
    path = (kept.parent / place).resolve()
    mode = path.stat().st_mode
    path.chmod(mode | 0o002)
    with pytest.raises(WorkspaceError, match=rf"{path} can be written by everybody, .*digest.*chmod go-w {path};"):
        fetch_weights(workspace, "x3d-xs")
    path.chmod(mode)
    assert fetch_weights(workspace, "x3d-xs").path == kept
    path.chmod(mode | 0o002)
    monkeypatch.setenv(SAFE_DIRECTORY, str(workspace.root))
    assert fetch_weights(workspace, "x3d-xs").path == kept


def test_a_connection_that_breaks_off_is_taken_up_again(workspace: Workspace, server: Server) -> None:
    server.cut = 2_000_000
    assert fetch_weights(workspace, "x3d-xs").path.read_bytes() == DATA
    assert server.asked == ["", "bytes=2000000-", "bytes=4000000-"]


def test_the_same_command_goes_on_where_three_tries_ended(workspace: Workspace, server: Server) -> None:
    server.cut = 1_000_000
    with pytest.raises(HwbenchError, match=r"after 3000000 bytes; the same command goes on there"):
        fetch_weights(workspace, "x3d-xs")
    assert not stored_weights(workspace, "x3d-xs").exists()
    server.cut = None
    assert fetch_weights(workspace, "x3d-xs").path.read_bytes() == DATA
    assert server.asked[-1] == "bytes=3000000-"


def test_a_file_that_has_changed_meanwhile_is_begun_anew(workspace: Workspace, server: Server) -> None:
    server.cut = 1_000_000
    with pytest.raises(HwbenchError):
        fetch_weights(workspace, "x3d-xs")
    server.cut, server.data, server.tag = None, DATA[::-1], '"second"'
    assert fetch_weights(workspace, "x3d-xs").path.read_bytes() == DATA[::-1]


def test_a_fetch_that_was_killed_goes_on(workspace: Workspace, server: Server) -> None:
    server.pause_s = 0.02
    code = "import sys; from hwbench.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "zoo", "get", "x3d-xs"]
    process = subprocess.Popen(command, cwd=workspace.root, stderr=subprocess.DEVNULL, env={**os.environ})
    part = stored_weights(workspace, "x3d-xs").with_name("X3D_XS.pyth.part")
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.pause_s = 0.0
    assert fetch_weights(workspace, "x3d-xs").path.read_bytes() == DATA
    assert re.fullmatch(r"bytes=[1-9]\d*-", server.asked[-1])


def test_a_digest_that_a_killed_fetch_did_not_write_is_said_to_be_taken_on_first_use(
    workspace: Workspace, server: Server
) -> None:
    code = "import os, sys; from hwbench.cli.main import main; from hwbench.spaces import downloads; "
    code += "downloads._checked = lambda *_: os.kill(os.getpid(), 9); main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "zoo", "get", "x3d-xs"]
    assert subprocess.run(command, cwd=workspace.root, stderr=subprocess.DEVNULL, check=False).returncode == -9
    kept = stored_weights(workspace, "x3d-xs")
    assert {path.name for path in kept.parent.iterdir()} == {kept.name, ".lock"}
    told: list[str] = []
    request = hwbench.GetWeightsRequest(name="x3d-xs")
    first = hwbench.get_weights(request, Heard(told), workspace=workspace)
    second = hwbench.get_weights(request, Heard(told), workspace=workspace)
    assert (first.fetched, second.fetched) == (False, False)
    (said,) = told
    assert said.endswith(
        f"the card names no SHA-256; this file is taken on first use, and only {first.sha256} from now on"
    )


def test_a_digest_in_the_card_is_held(workspace: Workspace, server: Server) -> None:
    pin(workspace, hashlib.sha256(DATA).hexdigest())
    assert fetch_weights(workspace, "x3d-xs").pinned
    other = Workspace.create(workspace.root.parent / "other")
    pin(other, "0" * 64)
    with pytest.raises(InvalidFile, match=rf"{PLACE}: expected SHA-256 0000.*nothing was kept"):
        fetch_weights(other, "x3d-xs")
    assert {path.name for path in stored_weights(other, "x3d-xs").parent.iterdir()} <= {".lock", "X3D_XS.pyth.part.tag"}


def test_what_cannot_be_had_says_the_way_out(
    workspace: Workspace, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(MIRROR, f"{server.address}/nothing")
    with pytest.raises(HwbenchError, match=r"the server answers 404 .*--weights FILE"):
        fetch_weights(workspace, "x3d-xs")
    monkeypatch.setenv(MIRROR, "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(HwbenchError, match=r"cannot reach 127\.0\.0\.1:9: .*refused.*; fetch .* elsewhere"):
        fetch_weights(workspace, "x3d-xs")
    for nothing in (str(tmp_path / "none"), "~no-such-user/zoo"):
        monkeypatch.setenv(MIRROR, nothing)
        with pytest.raises(InvalidValue, match="expected a folder or an address"):
            fetch_weights(workspace, "x3d-xs")
    monkeypatch.setenv(MIRROR, str(tmp_path))
    with pytest.raises(HwbenchError, match=r"no such file in HWBENCH_ZOO_MIRROR; put https://"):
        fetch_weights(workspace, "x3d-xs")
    with pytest.raises(InvalidValue, match=r"zoo:efficient-x3d-m has no published weights; these have: .*x3d-xs"):
        fetch_weights(workspace, "efficient-x3d-m")
    with pytest.raises(UnknownName, match="did you mean 'x3d-xs'"):
        fetch_weights(workspace, "x3d-xss")


def test_a_card_whose_family_does_not_load_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, tmp_path, families, "import no_such_module_of_plugins\n", {"plain": "plain"})
    workspace = Workspace.create(tmp_path / "bench")
    card = workspace.root / "zoo" / "plain-tiny" / "model.toml"
    card.parent.mkdir(parents=True)
    card.write_text(PLAIN)
    told: list[str] = []
    listed = {one.name for one in hwbench.list_zoo(None, Heard(told), workspace=workspace).cards}
    assert {"x3d-xs", "plain-tiny"} & listed == {"x3d-xs"}
    (said,) = told
    assert "family 'plain' of the package plugins does not load" in said
    with pytest.raises(InvalidValue, match=r"zoo:efficient-x3d-m has no published weights; these have: .*x3d-xs"):
        fetch_weights(workspace, "efficient-x3d-m")


@pytest.mark.parametrize(
    ("mirror", "message"),
    [
        ("http://me:qX7@127.0.0.1:9/zoo", "expected an address without a user and a password, .*name their folder"),
        ("https://qX7@127.0.0.1:9", "expected an address without a user and a password"),
        ("ftp://me:qX7@127.0.0.1:9", r"expected a folder or an address .*, got 'ftp://me:\*\*\*@127\.0\.0\.1:9'"),
    ],
)
def test_19_the_password_of_a_mirror_is_not_shown(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, mirror: str, message: str
) -> None:
    monkeypatch.setenv(MIRROR, mirror)
    with pytest.raises(InvalidValue, match=message) as caught:
        fetch_weights(workspace, "x3d-xs")
    assert "qX7" not in str(caught.value)


def test_a_server_that_sends_without_end_is_left(
    workspace: Workspace, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MAX_BYTES", 1_000_000)
    with pytest.raises(InvalidFile, match="5120000 bytes announced"):
        fetch_weights(workspace, "x3d-xs")


class Redirecting(http.server.BaseHTTPRequestHandler):
    """Sends all paths but those of ``/there`` to ``target``."""

    target = ""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        there = self.path.startswith("/there/")
        self.send_response(200 if there else 302)
        if not there:
            self.send_header("Location", self.target)
        self.send_header("Content-Length", str(len(DATA) if there else 0))
        self.end_headers()
        if there:
            self.wfile.write(DATA)


def certificate(folder: Path) -> Path:
    """A file with a new key and its certificate for this machine."""
    pytest.importorskip("cryptography", reason="install cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, *form) + made.public_bytes(serialization.Encoding.PEM)
    (folder / "both.pem").write_bytes(text)
    return folder / "both.pem"


@pytest.fixture
def redirecting(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a mirror with https, which sends whoever asks to ``Redirecting.target``."""
    for proxy in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as mirror:
        mirror.daemon_threads = True
        mirror.socket = context.wrap_socket(mirror.socket, server_side=True)
        thread = threading.Thread(target=mirror.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv(MIRROR, f"https://localhost:{mirror.server_port}")
        yield f"https://localhost:{mirror.server_port}"
        mirror.shutdown()
        thread.join()


def test_19_from_https_no_redirect_leads_to_what_is_not(
    workspace: Workspace, server: Server, redirecting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in (f"{server.address}/{PLACE}", "ftp://me:***@127.0.0.1/a"):
        monkeypatch.setattr(Redirecting, "target", target.replace("***", "qX7"))
        message = rf"redirects to {re.escape(target)}, which is not https; .*--weights FILE"
        with pytest.raises(HwbenchError, match=message):
            fetch_weights(workspace, "x3d-xs")
    assert not server.asked
    assert not stored_weights(workspace, "x3d-xs").exists()
    monkeypatch.setattr(Redirecting, "target", f"{redirecting}/there/a")
    assert fetch_weights(workspace, "x3d-xs").path.read_bytes() == DATA


def test_a_folder_takes_the_place_of_the_address(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"https://dl.fbaipublicfiles.com/{PLACE}"
    monkeypatch.delenv(MIRROR, raising=False)
    assert mirrored(url) == url
    file = tmp_path / "mirror" / PLACE
    file.parent.mkdir(parents=True)
    file.write_bytes(b"weights")
    monkeypatch.setenv(MIRROR, str(tmp_path / "mirror"))
    assert fetch_weights(workspace, "x3d-xs").path.read_bytes() == b"weights"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("\n<!DOCTYPE html><title>Sign in</title>", "a page of HTML"),
        ('<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "an answer in XML"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "the pointer of Git LFS in its place"),
        ("", "an empty file"),
    ],
)
def test_what_is_no_file_of_weights_is_not_taken_on_first_use(
    workspace: Workspace, server: Server, content: str, told: str
) -> None:
    server.data = content.encode()
    with pytest.raises(InvalidFile, match=f"expected a file of weights, got {told}; nothing was kept"):
        fetch_weights(workspace, "x3d-xs")
    server.data = DATA
    assert fetch_weights(workspace, "x3d-xs").path.read_bytes() == DATA


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('url = "https://', 'url = "file:///', "expected an address with https://"),
        ("[[weights]]\n", '[[weights]]\nsha256 = "ABC"\n', "expected 64 hexadecimal digits"),
    ],
)
def test_cards_name_safe_addresses_and_whole_digests(tmp_path: Path, before: str, after: str, message: str) -> None:
    text = (shipped() / "zoo" / "x3d-xs" / "model.toml").read_text()
    assert before in text
    card = tmp_path / "x3d-xs" / "model.toml"
    card.parent.mkdir()
    card.write_text(text.replace(before, after))
    with pytest.raises(InvalidFile, match=message):
        read_card(card)
