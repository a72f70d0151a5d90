"""The ssh transport: a link on paramiko.

Who is at the other end is checked at every host on the way, and nothing is taken on trust: a key that no file of known
hosts names is refused until ``trust`` has recorded it. Logins are by key, from files or an agent, never by password.
A connection over which nothing came for ``STALL_S``, although the other end was asked, has ended.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import logging
import os
import selectors
import shlex
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.devices.base import Address, TransportKind, transports
from hwbench.devices.known_hosts import HostKey, known, record
from hwbench.devices.link import Chunk, Stream
from hwbench.devices.remote import RemoteTransport
from hwbench.devices.route import Hop, own_known_hosts, route
from hwbench.devices.supervisor import plain
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, WorkspaceError
from hwbench.workspace import writing

if TYPE_CHECKING:
    import paramiko

# One attempt to connect, the handshake, and the login of one key.
CONNECT_S, HANDSHAKE_S, LOGIN_S = 10.0, 20.0, 20.0
# The other end is asked for a sign of life this often, and given up when there was none for so long. Wi-Fi that roams
# is away for a few seconds.
PING_S, STALL_S = 5.0, 30.0
BLOCK_BYTES = 1 << 15
# What an ssh server makes of ours where a shell cannot be started.
_NO_SESSION = "the SSH server takes no further session"


class SshLink:
    """A link to the device of an address; see ``Link``. Connects at once.

    Raises:
        DeviceUnreachable: A host on the way does not answer, its key is not the known one, or the login is refused.
        InvalidFile: ``~/.ssh/config`` cannot be read.
        InvalidValue: The options of the device's file.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._hops = route(address)
        self._connections: list[_Connection] = []
        self._sftp: paramiko.SFTPClient | None = None
        self._no_sftp = False
        self.reconnect()

    @property
    def identity(self) -> str:
        return f"ssh:{self._hops[-1]}"

    def open(self, command: str) -> SshChannel:
        with self._talking("open a shell"):
            channel = self._connection.transport.open_session(timeout=HANDSHAKE_S)
            channel.settimeout(STALL_S)
            channel.exec_command(command)
            return SshChannel(channel, self._connection)

    def put(self, source: Path, target: str) -> None:
        try:
            file = source.open("rb")
        except OSError as error:
            raise WorkspaceError(f"cannot read {source}: {error.strerror}") from error
        with file:
            sftp = self._files()
            if sftp is None:
                self._put_by_shell(file, target)
                return
            with self._talking(f"write {target}"), sftp.open(target, "wb") as there:
                there.set_pipelined(True)
                while block := file.read(BLOCK_BYTES):
                    there.write(block)

    def get(self, source: str, target: Path, most_bytes: int) -> None:
        with writing(target), target.open("wb") as file:
            held = 0
            for block in self._blocks(source, most_bytes):
                held += len(block)
                if held > most_bytes:
                    raise DeviceError(f"{source} is longer than the {most_bytes} bytes it was said to have")
                file.write(block)

    def reconnect(self) -> None:
        self.close()
        try:
            for hop in self._hops:
                self._connections.append(_Connection(hop, self._address, self._last_transport()))
                self._connections[-1].log_in()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._sftp = None
        while self._connections:
            self._connections.pop().close()

    @property
    def _connection(self) -> _Connection:
        if not self._connections:
            raise DeviceLost("the SSH connection has ended")
        return self._connections[-1]

    def _last_transport(self) -> paramiko.Transport | None:
        return self._connections[-1].transport if self._connections else None

    @contextlib.contextmanager
    def _talking(self, what: str) -> Iterator[None]:
        """Makes of paramiko's exceptions ours: the connection ended, or the device refuses something."""
        import paramiko

        connection = self._connection
        try:
            yield
        except TimeoutError as error:
            connection.close()
            raise DeviceLost(f"{connection.hop} gave no answer for {STALL_S:.0f} s") from error
        except (EOFError, paramiko.SSHException) as error:
            if not connection.alive:
                raise DeviceLost(connection.why) from error
            raise DeviceError(f"cannot {what}: {str(error) or _NO_SESSION}") from error
        except OSError as error:
            if not connection.alive or error.errno in (errno.EPIPE, errno.ECONNRESET):
                raise DeviceLost(connection.why) from error
            raise DeviceError(f"cannot {what}: {error.strerror or error}") from error

    def _files(self) -> paramiko.SFTPClient | None:
        """The server's sftp; None where it has none, as dropbear on small boards."""
        import paramiko

        if self._sftp is None and not self._no_sftp:
            with self._talking("transfer files"):
                try:
                    self._sftp = paramiko.SFTPClient.from_transport(self._connection.transport)
                except (paramiko.SSHException, EOFError):
                    if not self._connection.alive:
                        raise
                    self._no_sftp = True
                else:
                    assert self._sftp is not None
                    self._sftp.get_channel().settimeout(STALL_S)
        return self._sftp

    def _put_by_shell(self, file: Any, target: str) -> None:
        channel = self.open(_in_sh(f"exec cat > {shlex.quote(target)}"))
        try:
            while block := file.read(BLOCK_BYTES):
                channel.write(block)
            channel.end_input()
            said = b"".join(chunk.data for chunk in _chunks(channel) if chunk.stream is Stream.STDERR)
            if channel.status(STALL_S):
                raise DeviceError(f"cannot write {target}: {plain(said[-300:])}")
        finally:
            channel.close()

    def _blocks(self, source: str, most_bytes: int) -> Iterator[bytes]:
        sftp = self._files()
        if sftp is None:
            yield from self._blocks_by_shell(source)
            return
        with self._talking(f"read {source}"), sftp.open(source, "rb") as there:
            # Asked for in advance; the device's word for the size is not taken.
            there.prefetch(most_bytes)
            while block := there.read(BLOCK_BYTES):
                yield block

    def _blocks_by_shell(self, source: str) -> Iterator[bytes]:
        word = os.urandom(16).hex()
        # What a login script prints comes before the word.
        channel = self.open(_in_sh(f"echo {word}; exec cat {shlex.quote(source)}"))
        held, begun, said = b"", False, b""
        try:
            for chunk in _chunks(channel):
                if chunk.stream is Stream.STDERR:
                    said = (said + chunk.data)[-300:]
                elif begun:
                    yield chunk.data
                else:
                    _, found, rest = (held + chunk.data).partition(f"{word}\n".encode())
                    held, begun = (held + chunk.data)[-len(word) :], bool(found)
                    yield rest
            if channel.status(STALL_S):
                raise DeviceError(f"cannot read {source}: {plain(said)}")
        finally:
            channel.close()


class SshChannel:
    """A line of shell at the other end; see ``Channel``."""

    def __init__(self, channel: paramiko.Channel, connection: _Connection) -> None:
        self._channel = channel
        self._connection = connection
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)

    def read(self, timeout_s: float) -> Chunk | None:
        deadline = time.monotonic() + timeout_s
        while True:
            # Before looking for data: what came before the end is there when the end is seen.
            ended = self._channel.closed or self._channel.eof_received
            if self._channel.recv_ready():
                return Chunk(Stream.STDOUT, self._channel.recv(1 << 16))
            if self._channel.recv_stderr_ready():
                return Chunk(Stream.STDERR, self._channel.recv_stderr(1 << 16))
            if ended:
                self._check()
                return None
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            # The selector also wakes at an end; the half second is for an end that comes from another thread.
            self._selector.select(min(left, 0.5))

    def write(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except TimeoutError as error:
            self._connection.close()
            raise DeviceLost(f"{self._connection.hop} took nothing for {STALL_S:.0f} s") from error
        except (OSError, EOFError) as error:
            if not self._connection.alive:
                raise DeviceLost(self._connection.why) from error

    def end_input(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def status(self, timeout_s: float) -> int:
        if not self._channel.status_event.wait(timeout_s):
            self._check()
            raise TimeoutError
        status = int(self._channel.recv_exit_status())
        if status < 0:  # the connection ended, or the shell by a signal
            self._check()
            return 255
        return status

    def close(self) -> None:
        self._selector.close()
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()

    def _check(self) -> None:
        if not self._connection.alive:
            raise DeviceLost(self._connection.why)


class _Connection:
    """A connection to one host, and whoever watches it."""

    def __init__(self, hop: Hop, address: Address, through: paramiko.Transport | None) -> None:
        import paramiko

        # paramiko's threads tell a logger about errors that their callers get as exceptions.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
        self.hop = hop
        self._address = address
        self._stalled = False
        self._command: subprocess.Popen[bytes] | None = None
        sock = self._socket(through)
        try:
            self.transport = paramiko.Transport(sock, packetizer_class=_watched())
            # As OpenSSH does: a host is asked for a key of a kind that is known of it.
            kinds = {key.kind for key in self._known.keys}
            options = self.transport.get_security_options()
            options.key_types = sorted(options.key_types, key=lambda kind: _plain_kind(kind) not in kinds)
            self.transport.banner_timeout = self.transport.auth_timeout = LOGIN_S
            self._shake_hands()
        except BaseException:
            sock.close()
            self._end_command()
            raise

    @property
    def alive(self) -> bool:
        """Both ends are there."""
        return bool(self.transport.is_active()) and not self._stalled

    @property
    def why(self) -> str:
        """What became of it."""
        if self._stalled:
            return f"{self.hop} gave no sign of life for {STALL_S:.0f} s: is it still in this network?"
        return f"the connection to {self.hop} ended: was it switched off, or its SSH server?"

    def host_key(self) -> HostKey:
        """The key that the host showed."""
        key = self.transport.get_remote_server_key()
        return HostKey(self.hop.name, key.get_name(), key.asbytes())

    def is_known(self) -> bool:
        """A file names the key that the host showed."""
        shown = self.host_key()
        return shown in self._known.keys and shown.data not in self._known.revoked

    def log_in(self) -> None:
        """Checks who the host is, then logs in."""
        self._check_host_key()
        self._authenticate()
        self._watch()

    def close(self) -> None:
        """Ends it; calling it again does nothing."""
        self.transport.close()
        self._end_command()

    def _end_command(self) -> None:
        if self._command is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._command.pid, signal.SIGKILL)
            self._command.wait()
            self._command = None

    def _watch(self) -> None:
        """Asks for a sign of life, and ends the connection when there was none for long."""
        transport = weakref.proxy(self.transport)
        self.transport.packetizer.set_keepalive(PING_S, lambda: _ping(transport))
        threading.Thread(target=self._end_when_stalled, daemon=True, name="hwbench-ssh-watch").start()

    def _end_when_stalled(self) -> None:
        while self.transport.is_active():
            time.sleep(1.0)
            if time.monotonic() - self.transport.packetizer.heard > STALL_S:
                self._stalled = True
                self.transport.close()

    def _socket(self, through: paramiko.Transport | None) -> Any:
        import paramiko

        hop = self.hop
        if through is not None:
            try:
                return through.open_channel("direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=CONNECT_S)
            except (paramiko.SSHException, EOFError, OSError) as error:
                raise self._unreachable(f"the host before it does not reach {hop}: {error}") from error
        if hop.command:
            return self._start(hop.command)
        try:
            sock = socket.create_connection((hop.host, hop.port), CONNECT_S)
            # A command is several small packets, each of which would wait for the last to be acknowledged.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            raise self._unreachable(_no_connection(hop, error)) from error

    def _start(self, command: str) -> socket.socket:
        """Starts a ProxyCommand, in a shell as ssh does; it speaks over the other end of the socket."""
        ours, its = socket.socketpair()
        with its:
            self._command = subprocess.Popen(
                command,
                shell=True,
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return ours

    def _shake_hands(self) -> None:
        import paramiko

        try:
            self.transport.start_client(timeout=HANDSHAKE_S)
            if not self.transport.initial_kex_done:
                raise paramiko.SSHException(f"no answer in {HANDSHAKE_S:g} s")
        except (paramiko.SSHException, EOFError, OSError) as error:
            self.transport.close()
            raise self._unreachable(f"what answers at {self.hop} does not speak SSH as it should: {error}") from error

    def _check_host_key(self) -> None:
        shown = self.host_key()
        mend = f"hwbench devices trust {self._address.name}"
        if shown.data in self._known.revoked:
            raise self._unreachable(f"{self.hop} shows a host key that is revoked: {shown.kind} {shown.sha256}")
        if shown in self._known.keys:
            return
        if self._known.keys:
            expected = "; ".join(f"{key.kind} {key.sha256} ({place})" for key, place in self._known.keys.items())
            raise self._unreachable(
                f"the host key of {self.hop} has changed: it shows {shown.kind} {shown.sha256}, expected {expected}. "
                f"Either it was set up anew or someone else answers for it; if you know that it is right: {mend}"
            )
        raise self._unreachable(
            f"the host key of {self.hop} is not known: {shown.kind} {shown.sha256}; compare it with the device's own "
            f"(there: ssh-keygen -lf /etc/ssh/ssh_host_{_file_kind(shown.kind)}_key.pub), then: {mend}"
        )

    def _authenticate(self) -> None:
        import paramiko

        tried: list[str] = []
        locked: list[Path] = []
        for key, name in self._keys(locked):
            tried.append(name)
            try:
                # What is left to do after a key that is not enough alone is a password or a code.
                if not self.transport.auth_publickey(self.hop.user, key):
                    return
            except paramiko.BadAuthenticationType:
                break
            except paramiko.AuthenticationException:
                if not self.transport.is_active():
                    break
            except (paramiko.SSHException, EOFError, OSError) as error:
                raise self._unreachable(f"{self.hop} ended the login: {error}") from error
        raise self._unreachable(self._refused(tried, locked))

    def _refused(self, tried: list[str], locked: list[Path]) -> str:
        what = f"{self.hop} does not let {self.hop.user!r} in"
        if locked:
            mend = f"run: ssh-add {locked[0]}"
            if not self.hop.agent:
                mend += f", and write agent = true under [ssh] in profiles/{self._address.name}/device.toml"
            return f"{what}: the key {locked[0]} is locked with a passphrase that only an SSH agent can know; {mend}"
        if not tried:
            looked = ", ".join(map(str, self.hop.keys))
            return f"{what}: there is no key to offer ({looked}); make one: ssh-keygen -t ed25519, then: ssh-copy-id"
        user_and_port = f"-p {self.hop.port} {self.hop.user}@{self.hop.host}"
        return f"{what} with any of these keys: {', '.join(tried)}; bring one there: ssh-copy-id {user_and_port}"

    def _keys(self, locked: list[Path]) -> Iterator[tuple[paramiko.PKey, str]]:
        """Keys to offer, with the name of each: those that an agent holds, then files; adds those that are locked."""
        import paramiko

        agent = paramiko.Agent() if self.hop.agent else None
        held = {key.asbytes(): key for key in agent.get_keys()} if agent else {}
        try:
            wanted = {path: _public(path) for path in self.hop.keys}
            for data, key in held.items():
                if not self.hop.only_keys or data in wanted.values():
                    yield key, f"{key.get_name()} {key.fingerprint} of the agent"
            for path, public in wanted.items():
                if public not in held and path.exists():
                    try:
                        yield paramiko.PKey.from_path(path), str(path)
                    except (paramiko.PasswordRequiredException, TypeError):
                        locked.append(path)
                    except (OSError, ValueError, paramiko.SSHException, paramiko.UnknownKeyType) as error:
                        raise self._unreachable(f"the key {path} cannot be read: {error}") from error
        finally:
            if agent:
                agent.close()

    @property
    def _known(self) -> Any:
        return known(self.hop.name, self.hop.known_hosts)

    def _unreachable(self, reason: str) -> DeviceUnreachable:
        return DeviceUnreachable(f"device {self._address.name!r}: {reason}")


def fetch_host_key(address: Address) -> HostKey:
    """The key of the first host on the way that no file knows; of the device itself where all are known.

    The hosts before it are logged in to, since the way leads through them.

    Raises:
        DeviceUnreachable: A host does not answer.
    """
    connections: list[_Connection] = []
    try:
        for hop in route(address):
            connections.append(_Connection(hop, address, connections[-1].transport if connections else None))
            if not connections[-1].is_known():
                break
            if hop != route(address)[-1]:
                connections[-1].log_in()
        return connections[-1].host_key()
    finally:
        for connection in reversed(connections):
            connection.close()


def trust(address: Address, key: HostKey) -> Path:
    """Records a host key for a device, in place of what its own file said about that host; returns the file.

    Raises:
        WorkspaceError: The file cannot be written, or there is no workspace.
    """
    path = own_known_hosts(address)
    if path is None:
        raise WorkspaceError(f"device {address.name!r}: no workspace to record its host key in; make one: hwbench init")
    record(path, key)
    return path


def _watched() -> type[paramiko.packet.Packetizer]:
    """paramiko's reader of packets, which also notes when the last one came."""
    import paramiko

    class Watched(paramiko.packet.Packetizer):  # type: ignore[misc]
        heard = 0.0

        def read_message(self) -> Any:
            message = super().read_message()
            self.heard = time.monotonic()
            return message

    return Watched


def _ping(transport: paramiko.Transport) -> None:
    """Asks for an answer, of whatever kind; a server that does not know the request says so."""
    import paramiko

    message = paramiko.Message()
    message.add_byte(paramiko.common.cMSG_GLOBAL_REQUEST)
    message.add_string("keepalive@openssh.com")
    message.add_boolean(True)
    transport._send_user_message(message)


def _plain_kind(algorithm: str) -> str:
    """The kind of key that a signature algorithm is for: one RSA key signs in several ways."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def _file_kind(kind: str) -> str:
    """The word in the name of the server's file for a kind of key."""
    return "ed25519" if kind == "ssh-ed25519" else "rsa" if kind == "ssh-rsa" else "ecdsa"


def _public(path: Path) -> bytes:
    """The public key beside a private one; nothing where it is not there."""
    try:
        return base64.b64decode(path.with_name(f"{path.name}.pub").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return b""


def _no_connection(hop: Hop, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name {hop.host} is not known; is it spelled right, and the device in this network?"
    if isinstance(error, TimeoutError):
        return f"{hop} gave no answer in {CONNECT_S:.0f} s; is it switched on, and in this network?"
    if isinstance(error, ConnectionRefusedError):
        return f"nothing takes connections at {hop}; is an SSH server running there (on Debian: apt install ssh)?"
    return f"{hop} cannot be reached: {error.strerror or error}"


def _in_sh(line: str) -> str:
    return f"exec sh -c {shlex.quote(line)}"


def _chunks(channel: SshChannel) -> Iterator[Chunk]:
    while True:
        try:
            chunk = channel.read(STALL_S)
        except TimeoutError:
            raise DeviceLost(f"a file did not move for {STALL_S:.0f} s") from None
        if chunk is None:
            return
        yield chunk


def _connect(address: Address) -> RemoteTransport:
    return RemoteTransport(SshLink(address), address)


transports.register("ssh")(
    TransportKind(
        _connect,
        {
            "host": str,
            "port": int,
            "user": str,
            "identity": str,
            "known_hosts": str,
            "agent": bool,
            "jump": str,
        },
        ("host",),
    )
)
