import base64
import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
import sshd as server
from waiting import alive, wait_for

import hwbench
from hwbench.api.devices.trust import HostKeyAnswer, trust_first
from hwbench.devices import ssh, ssh_connection
from hwbench.devices.base import Address, transports
from hwbench.devices.known_hosts import HostKey
from hwbench.devices.route import route
from hwbench.devices.ssh import SshLink, fetch_host_key, trust
from hwbench.devices.ssh_connection import SshConnection
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, WorkspaceError
from hwbench.testing.transports import TransportConformance
from hwbench.workspace import Workspace

# Where the laboratory must run, so must this.
pytestmark = pytest.mark.skipif(
    not server.available() and "HWBENCH_LAB_REQUIRED" not in os.environ,
    reason="needs sshd: apt-get install openssh-server",
)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    sshd = server.Sshd(tmp_path_factory.mktemp("sshd") / "server")
    sshd.known()
    yield sshd
    sshd.stop()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """No test reads the keys, the configuration or the agent of who runs it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


def address(sshd, tmp_path, **options):
    return Address("board", {**sshd.options, **options}, str(tmp_path / "work"))


def connect(sshd, tmp_path, **options):
    return transports.get("ssh").connect(address(sshd, tmp_path, **options))


class TestSshTransport(TransportConformance):
    @pytest.fixture
    def transport(self, sshd, tmp_path_factory):
        with connect(sshd, tmp_path_factory.mktemp("device")) as transport:
            yield transport


@pytest.fixture(scope="module")
def dropbear(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dropbear")
    login = folder / "login"
    login.write_text(
        '#!/bin/sh\nprintf "\\033[2JWelcome\\nno newline"; echo warning >&2\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    login.chmod(0o755)
    sshd = server.Sshd(folder / "server", f"ForceCommand {login}")
    sshd.known()
    yield sshd
    sshd.stop()


class TestSshTransportByShell(TransportConformance):
    """A board whose server has no sftp, and whose login scripts talk."""

    @pytest.fixture
    def transport(self, dropbear, tmp_path_factory):
        with connect(dropbear, tmp_path_factory.mktemp("device")) as transport:
            yield transport


def test_files_that_the_shell_there_refuses(tmp_path, tmp_path_factory):
    sshd = server.Sshd(tmp_path_factory.mktemp("plain") / "server", "")
    sshd.known()
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    try:
        link = SshLink(address(sshd, tmp_path))
        with pytest.raises(DeviceError, match="cannot write /proc/none"):
            link.put(tmp_path / "file", "/proc/none")
        with pytest.raises(DeviceError, match="cannot read /proc/none"):
            link.get("/proc/none", tmp_path / "back", 10)
        with pytest.raises(DeviceError, match="longer than the 99999 bytes"):
            link.get(str(tmp_path / "file"), tmp_path / "back", 99_999)
        link.close()
    finally:
        sshd.stop()


def test_a_login_script_that_talks_into_sftp_leaves_files_to_the_shell(tmp_path, tmp_path_factory):
    # As a line of .bashrc does, which the shell reads that starts the program.
    sshd = server.Sshd(tmp_path_factory.mktemp("talks") / "server", f"Subsystem sftp echo Hi; {server.sftp_server()}")
    sshd.known()
    (tmp_path / "file").write_bytes(os.urandom(100_000))
    try:
        with connect(sshd, tmp_path) as transport:
            transport.pull(transport.push(tmp_path / "file"), tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
    finally:
        sshd.stop()


def test_files_that_sftp_refuses(sshd, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    link = SshLink(address(sshd, tmp_path))
    with pytest.raises(DeviceError, match="cannot write /proc/none"):
        link.put(tmp_path / "file", "/proc/none")
    with pytest.raises(DeviceError, match="cannot read /proc/none"):
        link.get("/proc/none", tmp_path / "back", 10)
    with pytest.raises(DeviceError, match="longer than the 99999 bytes"):
        link.get(str(tmp_path / "file"), tmp_path / "back", 99_999)
    with pytest.raises(DeviceError, match="longer than the 5 bytes"):
        link.get("/dev/zero", tmp_path / "back", 5)
    with pytest.raises(WorkspaceError):
        link.get(str(tmp_path / "file"), tmp_path / "none" / "back", 100_000)
    link.close()
    with pytest.raises(DeviceLost):
        link.open("true")


def test_a_disk_that_fills_up_is_told_by_sftp(tmp_path, tmp_path_factory):
    small = tmp_path / "sftp"
    small.write_text(f"#!/bin/sh\nulimit -f 64; trap '' XFSZ; exec {server.sftp_server()}\n")
    small.chmod(0o755)
    sshd = server.Sshd(tmp_path_factory.mktemp("small") / "server", f"Subsystem sftp {small}")
    sshd.known()
    (tmp_path / "file").write_bytes(b"x" * 300_000)
    (tmp_path / "short").write_bytes(b"x" * 20_000)
    try:
        link = SshLink(address(sshd, tmp_path))
        with pytest.raises(DeviceError, match=r"cannot write /.*/there: [0-9]+ of 300000 bytes were taken"):
            link.put(tmp_path / "file", str(tmp_path / "there"))
        link.put(tmp_path / "short", str(tmp_path / "there"))
        assert (tmp_path / "there").read_bytes() == (tmp_path / "short").read_bytes()
        link.close()
    finally:
        sshd.stop()


# Who is at the other end.


def fingerprint(sshd):
    said = subprocess.run(["ssh-keygen", "-lf", str(sshd.folder / "host_key")], capture_output=True, text=True)
    return said.stdout.split()[1]


def test_an_unknown_host_is_refused_until_it_is_trusted(sshd, tmp_path):
    workspace = Workspace(tmp_path / "ws")
    there = replace(address(sshd, tmp_path), workspace=workspace)
    there = replace(there, options={name: value for name, value in there.options.items() if name != "known_hosts"})
    expected = (
        rf"'board': the host key of 127.0.0.1:{sshd.port} is not known: ssh-ed25519 {re.escape(fingerprint(sshd))}"
    )
    with pytest.raises(DeviceUnreachable, match=f"{expected}.*ssh-keygen -lf .*ed25519.*hwbench devices trust board$"):
        transports.get("ssh").connect(there)
    key = fetch_host_key(there)
    assert (key.kind, key.sha256) == ("ssh-ed25519", fingerprint(sshd))
    path = trust(there, key)
    assert path == workspace.root / "profiles" / "board" / "known_hosts"
    assert path.read_text() == f"{key.line}\n"
    with transports.get("ssh").connect(there) as transport:
        assert transport.run(["true"], timeout_s=20).ok
    assert fetch_host_key(there) == key


def test_a_changed_host_key_is_refused(sshd, tmp_path):
    file = tmp_path / "known"
    other = server.make_key(tmp_path / "other")
    old = " ".join(other.with_suffix(".pub").read_text().split()[:2])
    file.write_text(f"[127.0.0.1]:{sshd.port} {old}\n")
    with pytest.raises(DeviceUnreachable, match="has changed") as caught:
        connect(sshd, tmp_path, known_hosts=str(file))
    for said in (fingerprint(sshd), f"({file}:1)", "hwbench devices trust board"):
        assert said in str(caught.value)
    there = address(sshd, tmp_path, known_hosts=str(file))
    trust(there, fetch_host_key(there))
    with transports.get("ssh").connect(there):
        pass
    assert len(file.read_text().splitlines()) == 1


def test_a_revoked_host_key_is_refused(sshd, tmp_path):
    file = tmp_path / "known"
    key = fetch_host_key(address(sshd, tmp_path))
    file.write_text(f"{key.line}\n@revoked * {key.line.partition(' ')[2]}\n")
    with pytest.raises(DeviceUnreachable, match="revoked"):
        connect(sshd, tmp_path, known_hosts=str(file))


def test_trust_needs_a_workspace():
    with pytest.raises(WorkspaceError, match="hwbench init"):
        trust(Address("board", {"host": "x"}), HostKey("x", "ssh-ed25519", b""))


# Who we are.


def test_a_key_that_is_not_accepted_is_named(sshd, tmp_path):
    stranger = server.make_key(tmp_path / "stranger")
    with pytest.raises(DeviceUnreachable, match=f"does not let '{sshd.user}' in with .*: {stranger}; .*ssh-copy-id"):
        connect(sshd, tmp_path, identity=str(stranger))
    with pytest.raises(DeviceUnreachable, match=r"no key to offer .*none"):
        connect(sshd, tmp_path, identity=str(tmp_path / "none"))
    (tmp_path / "broken").write_text("no key")
    with pytest.raises(DeviceUnreachable, match="broken cannot be read"):
        connect(sshd, tmp_path, identity=str(tmp_path / "broken"))


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """A real agent; adds keys."""
    socket = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not socket.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    yield lambda key: subprocess.run(["ssh-add", "-q", str(key)], check=True)
    process.kill()
    process.wait()


def test_a_locked_key_needs_an_agent(sshd, tmp_path, agent):
    key = tmp_path / "key"
    shutil.copy(sshd.key, key)
    shutil.copy(sshd.key.with_suffix(".pub"), tmp_path / "key.pub")
    agent(key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret words", "-f", str(key)], check=True, capture_output=True)
    with pytest.raises(DeviceUnreachable, match=r"locked with a passphrase.*ssh-add .*/key, and write agent = true"):
        connect(sshd, tmp_path, identity=str(key))
    new = replace(address(sshd, tmp_path, identity=str(key)), typed=True)
    with pytest.raises(DeviceUnreachable, match=r"ssh-add .*/key, and add it with --agent$"):
        transports.get("ssh").connect(new)
    with connect(sshd, tmp_path, identity=str(key), agent=True) as transport:
        assert transport.run(["true"], timeout_s=20).ok
    # With a key named, the agent's others are not offered.
    stranger = server.make_key(tmp_path / "stranger")
    with pytest.raises(DeviceUnreachable, match=f": {stranger};"):
        connect(sshd, tmp_path, identity=str(stranger), agent=True)


def test_an_agent_signs_for_a_file_with_the_public_key(sshd, tmp_path, agent):
    key = tmp_path / "key"
    shutil.copy(sshd.key, key)
    shutil.copy(sshd.key.with_suffix(".pub"), tmp_path / "board.pub")
    with pytest.raises(DeviceUnreachable, match=r"board.pub is a public key, .* write agent = true under \[ssh\]"):
        connect(sshd, tmp_path, identity=str(tmp_path / "board.pub"))
    agent(server.make_key(tmp_path / "other"))
    with pytest.raises(DeviceUnreachable, match=r"board.pub is a public key, whose private one no SSH agent was found"):
        connect(sshd, tmp_path, identity=str(tmp_path / "board.pub"), agent=True)
    agent(key)
    connect(sshd, tmp_path, identity=str(tmp_path / "board.pub"), agent=True).close()


# paramiko leaves the socket of such an agent to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_agent_that_does_not_answer_keeps_no_file_from_being_tried(sshd, tmp_path, monkeypatch):
    place = tmp_path / "agent"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()

        def hang_up():
            with contextlib.suppress(OSError):
                while True:
                    listening.accept()[0].close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        with connect(sshd, tmp_path, agent=True) as transport:
            assert transport.run(["true"], timeout_s=20).ok
        with pytest.raises(DeviceUnreachable, match=rf"agent at {place} does not answer \(.*\); start another: eval"):
            connect(sshd, tmp_path, agent=True, identity=str(tmp_path / "none"))
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def security_key(path):
    """A private key that only a device on USB can use, as ssh-keygen -t ed25519-sk writes it."""

    def text(data):
        return len(data).to_bytes(4, "big") + data

    public = text(b"sk-ssh-ed25519@openssh.com") + text(bytes(32)) + text(b"ssh:")
    private = bytes(8) + public + b"\x01" + text(b"h" * 64) + text(b"") + text(b"me")
    private += bytes(range(1, 1 + -len(private) % 8))
    head = b"openssh-key-v1\0" + text(b"none") + text(b"none") + text(b"") + (1).to_bytes(4, "big")
    body = base64.encodebytes(head + text(public) + text(private)).decode()
    kind = "OPENSSH PRIVATE" + " KEY"  # no file of the repository may hold what looks like a key
    path.write_text(f"-----BEGIN {kind}-----\n{body}-----END {kind}-----\n")
    return path


def test_a_key_that_cannot_be_read_does_not_keep_the_next_from_being_tried(sshd, tmp_path, home):
    (home / ".ssh").mkdir()
    first, stranger = security_key(tmp_path / "id_sk"), server.make_key(tmp_path / "stranger")
    options = {key: value for key, value in sshd.options.items() if key != "identity"}
    there = Address("board", options, str(tmp_path / "work"))

    def attempt(*keys):
        (home / ".ssh" / "config").write_text("".join(f"IdentityFile {key}\n" for key in keys))
        SshLink(there).close()

    attempt(first, sshd.key)
    with pytest.raises(DeviceUnreachable, match=r"stranger \(the key .*id_sk cannot be read"):
        attempt(first, stranger)
    with pytest.raises(DeviceUnreachable, match=f"in: the key {first} cannot be read"):
        attempt(first)


def test_a_board_that_was_set_up_anew_is_added_by_the_command_that_is_named(sshd, tmp_path, home):
    (home / ".ssh").mkdir()
    old = " ".join(server.make_key(tmp_path / "old").with_suffix(".pub").read_text().split()[:2])
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {old}\n")
    workspace = Workspace(tmp_path / "ws")
    there = {"name": "board", "ssh": f"{sshd.user}@127.0.0.1:{sshd.port}", "identity": str(sshd.key)}
    with pytest.raises(DeviceError, match="set up anew") as caught:
        hwbench.add_device(hwbench.AddDeviceRequest(**there), workspace=workspace)
    _, _, typed = str(caught.value).partition("hwbench devices add board ")
    assert typed.split()[-3:] == ["--replace", "--fingerprint", fingerprint(sshd)]
    request = hwbench.AddDeviceRequest(**there, replace=True, fingerprint=fingerprint(sshd))
    assert hwbench.add_device(request, workspace=workspace).file.is_file()


def test_a_fingerprint_is_asked_of_one_host_of_the_way(sshd, tmp_path, tmp_path_factory, home):
    jump = server.Sshd(tmp_path_factory.mktemp("jump") / "server")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(
        f"Host jump\n  HostName 127.0.0.1\n  IdentityFile {jump.key}\n  Port {jump.port}\n"
    )
    there = address(sshd, tmp_path, jump=f"{jump.user}@jump", known_hosts=str(tmp_path / "mine"))
    try:
        with pytest.raises(DeviceUnreachable, match=f"{sshd.port} is not known: .*: again --fingerprint SHA256:"):
            trust_first(there, HostKeyAnswer(fingerprint=fingerprint(jump)), "again")
        trust_first(there, HostKeyAnswer(fingerprint=fingerprint(sshd)), "again")
    finally:
        jump.stop()


# The way there.


def test_an_alias_of_the_configuration(sshd, tmp_path, home):
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.key}\n"
        f"  UserKnownHostsFile {sshd.folder}/known_hosts\n"
        f"Host piped\n  ProxyCommand {sys.executable} {__file__} {sshd.port}\n  HostKeyAlias [127.0.0.1]:{sshd.port}\n"
        f"  IdentityFile {sshd.key}\n  UserKnownHostsFile {sshd.folder}/known_hosts\n"
    )
    for host in ("lab", "piped"):
        there = Address("board", {"host": host, "user": sshd.user}, str(tmp_path / "work"))
        with transports.get("ssh").connect(there) as transport:
            assert transport.run(["echo", "ran"], timeout_s=20).stdout == "ran\n"


def test_a_jump_host_is_checked_too(sshd, tmp_path, tmp_path_factory, home):
    jump = server.Sshd(tmp_path_factory.mktemp("jump") / "server")
    (home / ".ssh").mkdir()
    known_hosts = home / ".ssh" / "mine"
    (home / ".ssh" / "config").write_text(
        f"Host jump\n  HostName 127.0.0.1\n  IdentityFile {jump.key}\n  Port {jump.port}\n"
    )
    there = address(sshd, tmp_path, jump=f"{jump.user}@jump", known_hosts=str(known_hosts))
    try:
        with pytest.raises(DeviceUnreachable, match=rf"host key of 127.0.0.1:{jump.port} is not known"):
            transports.get("ssh").connect(there)
        for expected in (jump, sshd):
            key = fetch_host_key(there)
            assert key.sha256 == fingerprint(expected)
            trust(there, key)
        with transports.get("ssh").connect(there) as transport:
            assert transport.run(["echo", "through"], timeout_s=20).stdout == "through\n"
            assert transport.identity == f"ssh:127.0.0.1:{sshd.port}"
            assert len(jump.sessions()) > 0
        beyond = replace(there, options={**there.options, "port": 1})
        with pytest.raises(DeviceUnreachable, match=r"the host before it does not reach 127\.0\.0\.1:1"):
            transports.get("ssh").connect(beyond)
    finally:
        jump.stop()


def test_hosts_that_do_not_answer(sshd, tmp_path, monkeypatch):
    with pytest.raises(DeviceUnreachable, match=r"'board': the name no-such-host\.invalid is not known"):
        connect(sshd, tmp_path, host="no-such-host.invalid")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with pytest.raises(DeviceUnreachable, match=f"nothing takes connections at 127.0.0.1:{port}"):
            connect(sshd, tmp_path, port=port)
        silent.listen(0)
        monkeypatch.setattr(ssh_connection, "HANDSHAKE_S", 0.5)
        monkeypatch.setattr(ssh_connection, "BANNER_S", 0.5)
        with pytest.raises(DeviceUnreachable, match=r"does not speak SSH as it should: (no answer|it ended)"):
            connect(sshd, tmp_path, port=port)
        monkeypatch.setattr(ssh_connection, "CONNECT_S", 0.2)
        fill = [socket.socket() for _ in range(4)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(DeviceUnreachable, match="gave no answer in 0 s; is it switched on"):
            connect(sshd, tmp_path, port=port)
        for one in fill:
            one.close()


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"", "it ended the connection"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "it ended the connection"),
        (b"Exceeded MaxStartups\r\n", "it said 'Exceeded MaxStartups' and ended the connection"),
        (b"HTTP/1.1 400 \x1b[2J\r\n\r\n", r"it said 'HTTP/1.1 400 \x1b[2J' and ended the connection"),
    ],
)
@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
def test_what_ends_the_connection_in_the_handshake_is_told(sshd, tmp_path, first, said, reset):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            side, _ = listening.accept()
            with side:
                side.sendall(first)
                while first and not side.recv(1).endswith(b"\n"):  # their first line
                    pass
                if reset:
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DeviceUnreachable) as caught:
            connect(sshd, tmp_path, port=listening.getsockname()[1])
        thread.join()
    assert f"does not speak SSH as it should: {said}; is this the port of its SSH server" in str(caught.value)
    assert str(caught.value).endswith("journalctl -u ssh")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "ended with status 1; try it: false"),
        ("echo no route >&2; exit 3", "ended with status 3 and said 'no route'; try it: echo no route >&2; exit 3"),
        ("kill $$", "ended by a signal (Terminated); try it: kill $$"),
        ("true http://me:word@gate", "ended with status 0; try it: true http://me:***@gate"),
    ],
)
def test_a_proxy_command_that_ends_is_told_with_its_status_and_words(sshd, tmp_path, home, command, said):
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(f"Host board\n  ProxyCommand {command}\n")
    with pytest.raises(DeviceUnreachable) as caught:
        connect(sshd, tmp_path, host="board", port=22)
    assert str(caught.value).endswith(f"for board:22, its ProxyCommand in ~/.ssh/config {said}")


# Faults.


def test_a_dropped_connection_costs_the_command(sshd, tmp_path):
    with connect(sshd, tmp_path) as transport:
        process = transport.spawn(["sh", "-c", "echo $$; sleep 60"])
        number = process.read_line(20)
        sshd.drop()
        start = time.monotonic()
        with pytest.raises(DeviceLost, match=f"'board': the connection to 127.0.0.1:{sshd.port} ended"):
            process.read_line(20)
        assert time.monotonic() - start < 5
        process.kill()
        assert transport.run(["echo", "again"], timeout_s=20).stdout == "again\n"
        wait_for(lambda: not alive(number))


def test_a_connection_that_ends_in_an_upload_says_what_to_do(sshd, tmp_path, monkeypatch):
    source, slow = tmp_path / "file", tmp_path / "slow"
    source.write_bytes(b"x" * 100_000)
    os.mkfifo(slow)
    link = SshLink(address(sshd, tmp_path))
    with pytest.raises(DeviceError, match="cannot write"):
        link.put(source, "/proc/none")
    sshd.drop()
    with pytest.raises(DeviceLost, match=r"ended: was it .* server\? The same command goes on when it answers again"):
        link.put(source, str(tmp_path / "there"))
    link.reconnect()
    monkeypatch.setattr(ssh, "CALL_S", 1.0)
    monkeypatch.setattr(ssh, "SLOWEST_BYTES_PER_S", 1_000_000)
    # Nobody reads it.
    with pytest.raises(DeviceLost, match=r"write .*slow within 1 s; the way there carries less than 50 kB/s.* a cable"):
        link.put(source, str(slow))
    link.close()


def test_a_server_that_is_away_for_a_while(sshd, tmp_path):
    with connect(sshd, tmp_path) as transport:
        assert transport.run(["true"], timeout_s=20).ok
        sshd.stop()
        with pytest.raises(DeviceLost):
            transport.run(["true"], timeout_s=20)
        timer = threading.Timer(1.5, sshd.start)
        timer.start()
        assert transport.run(["echo", "back"], timeout_s=20).stdout == "back\n"
        timer.join()


def test_a_stalled_connection_is_given_up(sshd, tmp_path, monkeypatch):
    for module in (ssh, ssh_connection):
        monkeypatch.setattr(module, "STALL_S", 2.0)
    monkeypatch.setattr(ssh_connection, "PING_S", 0.5)
    with connect(sshd, tmp_path) as transport:
        process = transport.spawn(["sh", "-c", "echo on; sleep 60"])
        assert process.read_line(20) == "on"
        # Nobody speaks for longer than that, and both are there.
        with pytest.raises(TimeoutError):
            process.read_line(3.5)
        stopped = sshd.sessions()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            start = time.monotonic()
            with pytest.raises(DeviceLost, match="no sign of life for 2 s"):
                process.read_line(30)
            assert time.monotonic() - start < 10
            assert transport.run(["echo", "again"], timeout_s=20).stdout == "again\n"
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def silence(sshd, seconds):
    """Its connections stay, and nothing comes over them for so long."""
    stopped = []
    for pid in sshd.sessions():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)

    def go_on():
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    timer = threading.Timer(seconds, go_on)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_a_silence_that_is_shorter_is_no_lost_connection(sshd, tmp_path, monkeypatch):
    with connect(sshd, tmp_path) as transport:
        assert transport.run(["true"], timeout_s=20).ok
        # Limits of making a connection are none of one that stands.
        for limit in ("CONNECT_S", "HANDSHAKE_S", "BANNER_S"):
            for module in (ssh, ssh_connection):
                monkeypatch.setattr(module, limit, 0.2, raising=False)
        with silence(sshd, 2.0):
            assert transport.run(["echo", "on"], timeout_s=20).stdout == "on\n"


def test_a_connection_that_ends_in_the_login_is_no_refused_key(sshd, tmp_path):
    connection = SshConnection(route(address(sshd, tmp_path))[0], address(sshd, tmp_path), None)
    with contextlib.closing(connection), silence(sshd, 2.0):
        timer = threading.Timer(1.0, sshd.drop)
        timer.start()
        with pytest.raises(DeviceUnreachable, match=r"ended the login: .*; look there: journalctl -u ssh"):
            connection.log_in()
        timer.join()


@pytest.mark.parametrize("stall_s", [30.0, 1.0])
def test_a_silence_in_the_login_is_no_refused_key(sshd, tmp_path, monkeypatch, stall_s):
    # What one key had, when that was less than a silence may take.
    monkeypatch.setattr(ssh_connection, "LOGIN_S", 0.5, raising=False)
    connection = SshConnection(route(address(sshd, tmp_path))[0], address(sshd, tmp_path), None)
    monkeypatch.setattr(ssh_connection, "STALL_S", stall_s)
    with silence(sshd, 4.0), contextlib.closing(connection):
        if stall_s > 4.0:
            connection.log_in()
            assert connection.alive
        else:
            with pytest.raises(DeviceUnreachable, match="gave no sign of life for 1 s"):
                connection.log_in()


CLIENT = """
import sys
from hwbench.devices.base import Address, transports
options = dict(zip(("host", "port", "user", "identity", "known_hosts"), sys.argv[2:]))
options["port"] = int(options["port"])
transport = transports.get("ssh").connect(Address("board", options, sys.argv[1]))
print("ready", flush=True)
script = 'echo $$ > "$1"; sleep 300'
transport.run(["sh", "-c", script, "sh", sys.argv[1] + "/pid"], timeout_s=200)
"""


def test_a_killed_client_leaves_nothing_running(sshd, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    options = [str(sshd.options[key]) for key in ("host", "port", "user", "identity", "known_hosts")]
    with subprocess.Popen(
        [sys.executable, "-c", "import hwbench.devices\n" + CLIENT, str(work), *options], stdout=subprocess.PIPE
    ) as client:
        wait_for(lambda: (work / "pid").exists() and (work / "pid").read_text().strip())
        number = (work / "pid").read_text()
        assert alive(number)
        client.kill()
    wait_for(lambda: not alive(number))


if __name__ == "__main__":  # as a ProxyCommand: carries bytes to a port of this machine
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(
        target=lambda: shutil.copyfileobj(sys.stdin.buffer.raw, sock.makefile("wb", 0)), daemon=True
    ).start()
    while block := sock.recv(65536):
        os.write(1, block)
