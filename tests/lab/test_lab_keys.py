"""Point 8: who comes into a virtual device: only this user, by a key."""

from __future__ import annotations

import base64
import os
import secrets
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab.clients import LIMIT_S, adb, adb_on

from hwbench.devices import virtual
from hwbench.testing import lab
from hwbench.testing.lab import keys
from hwbench.testing.lab.adb_server import AdbServer
from hwbench.testing.lab.adbd import PUBLIC_KEY, SIGNATURE, TOKEN
from hwbench.testing.lab.needs import require
from hwbench.testing.lab.processes import HOST, free_port
from hwbench.testing.lab.wire import MAX_PAYLOAD, VERSION, Message, Wire
from hwbench.workspace import Workspace

# ---------------------------------------------------------------- another user of this machine, with the adb program


@pytest.fixture
def stranger(laboratory: None, tmp_path: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """The adb program of somebody with another home, and a server on another port."""
    server = AdbServer(tmp_path / "stranger")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ADB_", "ANDROID_"))}
    theirs = {**kept, **server.environment, "HOME": str(server.folder)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["adb", *words], env=theirs, capture_output=True, text=True, timeout=LIMIT_S)

    server.start()
    yield run
    server.stop()


def test_19_08_another_user_is_unauthorized_and_has_no_shell(
    phone: lab.VirtualPhone, stranger: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    stranger("connect", phone.serial)
    for words in (["shell", "echo in"], ["exec-out", "echo in"], ["push", __file__, "/data/local/tmp/theirs"]):
        done = stranger("-s", phone.serial, *words)
        assert done.returncode != 0
        assert "in\n" not in done.stdout
        assert "unauthorized" in done.stdout + done.stderr
    assert f"{phone.serial}\tunauthorized" in stranger("devices").stdout
    assert not phone.machine.path("/data/local/tmp/theirs").exists()
    assert adb_on(phone, "shell", "echo in").stdout == "in\n"


def test_19_08_a_virtual_phone_serves_the_user_who_added_it(
    stranger: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.create(tmp_path / "bench")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(keys.VENDOR_KEYS, raising=False)
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))  # nobody listens: hwbench starts a server there
    try:
        device = virtual.start(workspace, "lab", "adb")
        place = f"{device.options['host']}:{device.options['port']}"
        stranger("connect", place)
        assert stranger("-s", place, "shell", "echo in").stdout == ""
        assert f"{place}\tunauthorized" in stranger("devices").stdout
        with device.transport() as transport:
            assert transport.run(["echo", "in"], timeout_s=60).stdout == "in\n"
    finally:
        virtual.stop(workspace, "lab")
        adb("kill-server")


# ---------------------------------------------------------------- somebody who speaks the protocol


class Client:
    """A computer at the wire, with or without a key."""

    def __init__(self, phone: lab.VirtualPhone) -> None:
        self.connection = socket.create_connection((HOST, phone.network.port), 20)
        self.wire = Wire(self.connection)

    def hello(self) -> bytes:
        """Says what every computer says first; gives the token that is to be signed."""
        self.wire.send(Message(b"CNXN", VERSION, MAX_PAYLOAD, b"host::\0"))
        answer = self.receive()
        assert (answer.command, answer.first, len(answer.data)) == (b"AUTH", TOKEN, 20)
        return answer.data

    def receive(self) -> Message:
        answer = self.wire.receive()
        assert answer is not None
        return answer

    def sign(self, signature: bytes) -> Message:
        self.wire.send(Message(b"AUTH", SIGNATURE, 0, signature))
        return self.receive()

    def open(self) -> None:
        self.wire.send(Message(b"OPEN", 7, 0, b"exec:echo in\0"))


@pytest.fixture
def client(phone: lab.VirtualPhone) -> Iterator[Client]:
    client = Client(phone)
    with client.connection:
        yield client


def signature(key: Path, token: bytes) -> bytes:
    """By a private key, made with another implementation than the one under test."""
    digest = bytes.fromhex("3021300906052b0e03021a05000414") + token
    argv = ["openssl", "pkeyutl", "-sign", "-inkey", str(key), "-pkeyopt", "rsa_padding_mode:pkcs1"]
    return subprocess.run(argv, input=digest, check=True, capture_output=True, timeout=LIMIT_S).stdout


@pytest.fixture(scope="module")
def ours(phone: lab.VirtualPhone) -> Path:
    """The key of the private adb server, which the phone has allowed."""
    return Path(os.environ[keys.VENDOR_KEYS])


@pytest.fixture(scope="module")
def theirs(laboratory: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("theirs") / "adbkey"
    keys.make_key(path)
    return path


def test_19_08_only_a_signature_of_this_token_by_an_allowed_key_lets_in(
    client: Client, ours: Path, theirs: Path
) -> None:
    token = client.hello()
    used = signature(ours, token)
    for refused in (signature(theirs, token), b"", b"\0" * 256, secrets.token_bytes(256), used):
        answer = client.sign(refused)  # the last is of a token that was answered already
        assert (answer.command, answer.first) == (b"AUTH", TOKEN)
        assert answer.data != token
        token = answer.data
    client.open()
    assert client.sign(signature(ours, token)).command == b"CNXN"  # and nothing before it: the stream was not opened
    client.open()
    assert client.receive().command == b"OKAY"
    assert client.receive().data == b"in\n"


def test_19_08_a_key_that_is_offered_waits_for_ever(client: Client, theirs: Path) -> None:
    client.hello()
    client.wire.send(Message(b"AUTH", PUBLIC_KEY, 0, theirs.with_suffix(".pub").read_bytes()))
    client.open()
    client.connection.settimeout(0.5)
    assert client.wire.receive() is None


def test_19_08_a_connection_that_is_made_again_is_asked_again(client: Client, ours: Path) -> None:
    assert client.sign(signature(ours, client.hello())).command == b"CNXN"
    client.hello()
    client.open()
    answer = client.sign(b"")
    assert answer.command == b"AUTH"  # the stream was not opened


def test_19_03_a_folder_called_hwbench_in_the_current_one_does_not_run(
    laboratory: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hwbench").mkdir()
    (tmp_path / "hwbench" / "__init__.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    with lab.android_phone(serial="OTHER", connected=False) as phone:
        client = Client(phone)
        with client.connection:
            client.hello()
    assert not (tmp_path / "mark").exists()


# ---------------------------------------------------------------- the board


def test_19_08_the_board_accepts_its_own_key_alone(board: lab.VirtualBoard) -> None:
    """What sshd makes of its configuration; a login with another key is refused in the tests of ssh."""
    folder = board.sshd.folder
    argv = [require("sshd"), "-T", "-f", str(folder / "sshd_config")]
    said = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
    settings = dict(line.lower().split(" ", 1) for line in said.splitlines() if " " in line)
    wanted = {
        "listenaddress": f"{HOST}:{board.sshd.port}",
        "authenticationmethods": "publickey",
        "authorizedkeysfile": str(folder / "authorized_keys").lower(),
        "authorizedkeyscommand": "none",
        "trustedusercakeys": "none",
        "forcecommand": str(folder / "login").lower(),
        "allowtcpforwarding": "no",
        "allowstreamlocalforwarding": "no",
        "allowagentforwarding": "no",
        "permittunnel": "no",
        "permituserrc": "no",
    }
    assert {name: settings[name] for name in wanted} == wanted
    assert (folder / "authorized_keys").read_text() == board.sshd.identity.with_suffix(".pub").read_text()
    assert folder.stat().st_mode & 0o077 == 0  # so that nobody else reads the key


# ---------------------------------------------------------------- the keys themselves


def test_19_08_signatures_are_told_apart(laboratory: None, theirs: Path) -> None:
    token = secrets.token_bytes(20)
    (public,) = theirs.with_suffix(".pub").read_text().splitlines()
    good = signature(theirs, token)
    assert keys.verifies(public, token, good)
    assert not keys.verifies(public, secrets.token_bytes(20), good)
    assert not keys.verifies(public, b"", good)
    for at in (0, 100, 255):
        assert not keys.verifies(public, token, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    raw = base64.b64decode(public.split()[0])
    modulus = int.from_bytes(raw[8:264], "little")
    assert not keys.verifies(public, token, (int.from_bytes(good, "big") + modulus).to_bytes(257, "big"))
    one = struct.pack("<I", 1)  # exponent: everything is its own signature
    assert not keys.verifies(base64.b64encode(raw[:-4] + one).decode(), token, good)
    for damaged in ("", "AAAA", "\u0416", base64.b64encode(raw[:-4]).decode(), base64.b64encode(raw + raw).decode()):
        assert not keys.verifies(damaged, token, good)


def test_19_08_the_keys_of_a_user_are_those_that_adb_loads(
    laboratory: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(keys.VENDOR_KEYS, raising=False)
    (made,) = keys.computer_keys()
    own = tmp_path / ".android" / "adbkey"
    assert own.stat().st_mode & 0o077 == 0
    assert made.split()[0] == own.with_suffix(".pub").read_text().split()[0]
    own.with_suffix(".pub").unlink()
    (tmp_path / "more").mkdir()
    keys.make_key(tmp_path / "more" / "one.adb_key")
    (tmp_path / "damaged").write_text("no key")
    monkeypatch.setenv(keys.VENDOR_KEYS, f"{tmp_path}/more:{tmp_path}/damaged:{tmp_path}/missing")
    assert [key.split()[0] for key in keys.computer_keys()] == [
        made.split()[0],
        (tmp_path / "more" / "one.adb_key.pub").read_text().split()[0],
    ]
