"""The ssh transport: a link over connections of paramiko (``ssh_connection``), and how a host's key becomes known."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shlex
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.devices.base import Address, TransportKind, transports
from hwbench.devices.known_hosts import HostKey, record
from hwbench.devices.link import Chunk, Stream
from hwbench.devices.remote import RemoteTransport
from hwbench.devices.route import own_known_hosts, route
from hwbench.devices.ssh_connection import AGAIN, STALL_S, SshConnection
from hwbench.devices.supervisor import plain
from hwbench.errors import DeviceError, DeviceLost, WorkspaceError
from hwbench.workspace import writing

if TYPE_CHECKING:
    import paramiko

BLOCK_BYTES, REQUEST_BYTES = 1 << 15, 1 << 18
# One answer of a server that is there, which may have much to do.
CALL_S = 60.0
# A file that moves more slowly than this for its whole length does not move.
SLOWEST_BYTES_PER_S = 50_000
_SLOW = (
    f"the way there carries less than {SLOWEST_BYTES_PER_S // 1000} kB/s, or its disk does: bring it nearer or use a "
    "cable, then the same command goes on"
)
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
        self._connections: list[SshConnection] = []
        self._sftp: paramiko.SFTPClient | None = None
        self._no_sftp = False
        self.reconnect()

    @property
    def identity(self) -> str:
        return f"ssh:{self._hops[-1]}"

    def open(self, command: str) -> SshChannel:
        with self._talking("open a shell"):
            # Without a limit of its own: a silence shorter than STALL_S is no lost connection.
            channel = self._connection.transport.open_session()
            self._connection.bound(channel)
            channel.settimeout(STALL_S)
            channel.exec_command(command)
            return SshChannel(channel, self._connection)

    def put(self, source: Path, target: str) -> None:
        try:
            file = source.open("rb")
        except OSError as error:
            raise WorkspaceError(f"cannot read {source}: {error.strerror}") from error
        with file:
            limit_s = _transfer_s(os.fstat(file.fileno()).st_size)
            sftp = self._files()
            if sftp is None:
                self._put_by_shell(file, target, limit_s)
                return
            with self._talking(f"write {target}", limit_s):
                sent = 0
                with sftp.open(target, "wb") as there:
                    there.set_pipelined(True)
                    while block := file.read(BLOCK_BYTES):
                        there.write(block)
                        sent += len(block)
                # Pipelined, a refusal of one of the last hundred blocks is not told, as when the disk is full.
                taken = sftp.stat(target).st_size
            if taken != sent:
                raise DeviceError(f"cannot write {target}: {taken} of {sent} bytes were taken")

    def get(self, source: str, target: Path, most_bytes: int) -> None:
        with writing(target), target.open("wb") as file:
            held = 0
            with contextlib.closing(self._blocks(source, most_bytes)) as blocks:
                for block in blocks:
                    held += len(block)
                    if held > most_bytes:
                        raise DeviceError(f"{source} is longer than the {most_bytes} bytes it was said to have")
                    file.write(block)

    def reconnect(self) -> None:
        self.close()
        try:
            for hop in self._hops:
                self._connections.append(SshConnection(hop, self._address, self._last_transport()))
                self._connections[-1].log_in()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._sftp = None
        while self._connections:
            self._connections.pop().close()

    @property
    def _connection(self) -> SshConnection:
        if not self._connections:
            raise DeviceLost(f"the SSH connection has ended; {AGAIN}")
        return self._connections[-1]

    def _last_transport(self) -> paramiko.Transport | None:
        return self._connections[-1].transport if self._connections else None

    @contextlib.contextmanager
    def _talking(self, what: str, transfer_s: float | None = None) -> Iterator[None]:
        """Makes of paramiko's exceptions ours: the connection ended, or the device refuses something."""
        import paramiko

        connection = self._connection
        try:
            limit = (CALL_S, what, AGAIN) if transfer_s is None else (transfer_s, what, _SLOW)
            with connection.within(*limit):
                yield
        except TimeoutError as error:
            connection.close()
            raise connection.lost(f"{connection.hop} gave no answer for {STALL_S:.0f} s") from error
        except (EOFError, paramiko.SSHException, paramiko.SFTPError) as error:
            if not connection.alive:
                raise connection.lost() from error
            raise DeviceError(f"cannot {what}: {str(error) or _NO_SESSION}") from error
        except OSError as error:
            if not connection.alive or error.errno in (errno.EPIPE, errno.ECONNRESET):
                raise connection.lost() from error
            raise DeviceError(f"cannot {what}: {error.strerror or error}") from error

    def _files(self) -> paramiko.SFTPClient | None:
        """The server's sftp; None where it has none, as dropbear on small boards, or a login script talks into it."""
        import paramiko

        if self._sftp is None and not self._no_sftp:
            with self._talking("transfer files"):
                try:
                    self._sftp = paramiko.SFTPClient.from_transport(self._connection.transport)
                except (paramiko.SSHException, paramiko.SFTPError, EOFError):
                    if not self._connection.alive:
                        raise
                    self._no_sftp = True
                else:
                    assert self._sftp is not None
                    self._sftp.get_channel().settimeout(STALL_S)
                    self._connection.bound(self._sftp.get_channel())
        return self._sftp

    def _put_by_shell(self, file: Any, target: str, limit_s: float) -> None:
        channel = self.open(_in_sh(f"exec cat > {shlex.quote(target)}"))
        said = b""
        try:
            with self._talking(f"write {target}", limit_s):
                while block := file.read(BLOCK_BYTES):
                    channel.write(block)
                channel.end_input()
                for chunk in _chunks(channel):
                    said = (said + chunk.data)[-300:] if chunk.stream is Stream.STDERR else said
                if channel.status(STALL_S):
                    raise DeviceError(f"cannot write {target}: {plain(said)}")
        finally:
            channel.close()

    def _blocks(self, source: str, most_bytes: int) -> Generator[bytes, None, None]:
        limit_s = _transfer_s(most_bytes)
        sftp = self._files()
        if sftp is None:
            with self._talking(f"give {source}", limit_s):
                yield from self._blocks_by_shell(source)
            return
        with self._talking(f"read {source}", limit_s), sftp.open(source, "rb") as there:
            # Asked for one by one: of what is asked for in advance a server may send any multiple, and all of it waits
            # in memory. Servers give up to this at once.
            there.MAX_REQUEST_SIZE = REQUEST_BYTES
            while block := there.read(REQUEST_BYTES):
                yield block

    def _blocks_by_shell(self, source: str) -> Generator[bytes, None, None]:
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

    def __init__(self, channel: paramiko.Channel, connection: SshConnection) -> None:
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
            with self._connection.within(STALL_S + len(data) / SLOWEST_BYTES_PER_S, "take what was sent"):
                self._channel.sendall(data)
        except TimeoutError as error:
            self._connection.close()
            raise self._connection.lost(f"{self._connection.hop} took nothing for {STALL_S:.0f} s") from error
        except (OSError, EOFError) as error:
            if not self._connection.alive:
                raise self._connection.lost() from error

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
        with contextlib.suppress(OSError, EOFError), self._connection.within(STALL_S, "let go of a command"):
            self._channel.close()

    def _check(self) -> None:
        if not self._connection.alive:
            raise self._connection.lost()


def fetch_host_key(address: Address) -> HostKey:
    """The key of the first host on the way that no file knows; of the device itself where all are known.

    The hosts before it are logged in to, since the way leads through them.

    Raises:
        DeviceUnreachable: A host does not answer.
    """
    connections: list[SshConnection] = []
    try:
        for hop in route(address):
            connections.append(SshConnection(hop, address, connections[-1].transport if connections else None))
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
        DeviceError: The key is revoked.
        WorkspaceError: The file cannot be read or written, or there is no workspace.
    """
    path = own_known_hosts(address)
    if path is None:
        raise WorkspaceError(f"device {address.name!r}: no workspace to record its host key in; make one: hwbench init")
    record(path, key, (file for hop in route(address) if hop.name == key.host for file in hop.known_hosts))
    return path


def _transfer_s(size: int) -> float:
    """What a file of so many bytes may take."""
    return CALL_S + size / SLOWEST_BYTES_PER_S


def _in_sh(line: str) -> str:
    return f"exec sh -c {shlex.quote(line)}"


def _chunks(channel: SshChannel) -> Iterator[Chunk]:
    while True:
        try:
            chunk = channel.read(STALL_S)
        except TimeoutError:
            raise DeviceLost(f"a file did not move for {STALL_S:.0f} s; {AGAIN}") from None
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
