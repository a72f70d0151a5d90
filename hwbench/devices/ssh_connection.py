"""A connection to one ssh server, on paramiko: who is at the other end, logging in, and whether it is still there.

Who is at the other end is checked at every host on the way, and nothing is taken on trust: a key that no file of known
hosts names is refused until ``trust`` has recorded it. Logins are by key, from files or an agent, never by password.
A connection over which nothing came for ``STALL_S``, although the other end was asked, has ended. So has one whose
other end talks, but does not do what it was asked for (``SshConnection.within``), or sends more than it may.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.devices.base import Address
from hwbench.devices.known_hosts import HostKey, known
from hwbench.devices.proxy_command import ProxyCommand
from hwbench.devices.route import Hop
from hwbench.devices.supervisor import plain
from hwbench.errors import DeviceLost, DeviceUnreachable

if TYPE_CHECKING:
    import paramiko

# One attempt to connect, the handshake, and the first line of it.
CONNECT_S, HANDSHAKE_S, BANNER_S = 10.0, 20.0, 20.0
# The other end is asked for a sign of life this often, and given up when there was none for so long. Wi-Fi that roams
# is away for a few seconds.
PING_S, STALL_S = 5.0, 30.0
# A login may take so long with all keys; and so often a second it is looked whether something took too long.
ALL_LOGINS_S, LOOK_S = 120.0, 1.0
# Of what a command prints, the other end may send 2 MiB before we take it; more than this it was not allowed to.
MOST_WAITING_BYTES = 16 << 20
# A ProxyCommand whose socket ended ends within this.
END_S = 1.0
# Of the first line of what is no SSH server, so much is told.
SAID_BYTES = 300
# What mends the end of a connection.
AGAIN = "the same command goes on when it answers again"
# What to look at where another end is no SSH server, or one that takes no logins now.
_WHICH = "is this the port of its SSH server, and has that too many logins at once? Look there: journalctl -u ssh"


class SshConnection:
    """A connection to one host, and whoever watches it."""

    def __init__(self, hop: Hop, address: Address, through: paramiko.Transport | None) -> None:
        import paramiko

        # paramiko's threads tell a logger about errors that their callers get as exceptions.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
        self.hop = hop
        self._address = address
        self._stalled = False
        self._fault, self._mend = "", AGAIN
        self._limits: dict[object, tuple[float, str, str]] = {}
        self._bounded: list[weakref.ref[paramiko.Channel]] = []
        self._command: ProxyCommand | None = None
        sock = self._socket(through)
        try:
            self.transport = paramiko.Transport(sock, packetizer_class=_watched())
            # As OpenSSH does: a host is asked for a key of a kind that is known of it.
            kinds = {key.kind for key in self._known.keys}
            options = self.transport.get_security_options()
            options.key_types = sorted(options.key_types, key=lambda kind: _plain_kind(kind) not in kinds)
            self.transport.banner_timeout = BANNER_S
            # Never first: paramiko tells its end as a key that is refused.
            self.transport.auth_timeout = 2 * ALL_LOGINS_S
            self._shake_hands()
        except BaseException:
            sock.close()
            self._end_command()
            raise

    @property
    def alive(self) -> bool:
        """Both ends are there."""
        return bool(self.transport.is_active()) and not self._stalled and not self._fault

    @property
    def why(self) -> str:
        """What became of it."""
        if self._fault:
            return f"{self.hop} {self._fault}"
        if self._stalled:
            return f"{self.hop} gave no sign of life for {STALL_S:.0f} s: is it still in this network?"
        return f"the connection to {self.hop} ended: was it switched off, or its SSH server?"

    def lost(self, why: str = "") -> DeviceLost:
        """The error of its end; ``why`` where something closer is known of it."""
        why = why or self.why
        if why.endswith("?"):
            return DeviceLost(f"{why} {self._mend[0].upper()}{self._mend[1:]}")
        return DeviceLost(f"{why}; {self._mend}")

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
        threading.Thread(target=self._end_when_stalled, daemon=True, name="hwbench-ssh-watch").start()
        with self.within(ALL_LOGINS_S, "let us log in"):
            self._authenticate()
        # Asks for a sign of life.
        transport = weakref.proxy(self.transport)
        self.transport.packetizer.set_keepalive(PING_S, lambda: _ping(transport))

    @contextlib.contextmanager
    def within(self, limit_s: float, what: str, mend: str = AGAIN) -> Iterator[None]:
        """Ends the connection when this takes longer, whatever is heard meanwhile; so whoever waits gets an error."""
        key = object()
        self._limits[key] = (time.monotonic() + limit_s, f"did not {what} within {limit_s:.0f} s", mend)
        try:
            yield
        finally:
            del self._limits[key]

    def bound(self, channel: paramiko.Channel) -> None:
        """Ends the connection when more waits in a channel than the other end was allowed to send."""
        self._bounded = [*(one for one in self._bounded if one() is not None), weakref.ref(channel)]

    def close(self) -> None:
        """Ends it; calling it again does nothing."""
        self.transport.close()
        self._end_command()

    def _end_command(self) -> None:
        if self._command is not None:
            self._command.close()

    def _end_when_stalled(self) -> None:
        while self.transport.is_active():
            time.sleep(LOOK_S)
            now = time.monotonic()
            self._stalled = self._stalled or now - self.transport.packetizer.heard > STALL_S
            late = [(what, mend) for limit, what, mend in list(self._limits.values()) if now > limit]
            if any(_waiting(channel()) > MOST_WAITING_BYTES for channel in self._bounded):
                late.append(("sends more than was asked for", AGAIN))
            if late and not self._fault:
                self._fault, self._mend = late[0]
            if self._stalled or self._fault:
                self.transport.close()

    def _socket(self, through: paramiko.Transport | None) -> Any:
        import paramiko

        hop = self.hop
        if through is not None:
            try:
                return through.open_channel("direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=CONNECT_S)
            except (paramiko.SSHException, EOFError, OSError) as error:
                said = str(error) or "the connection ended"
                raise self._unreachable(f"the host before it does not reach {hop}: {said}") from error
        if hop.command:
            self._command = ProxyCommand(hop.command)
            return self._command.socket
        try:
            sock = socket.create_connection((hop.host, hop.port), CONNECT_S)
            # A command is several small packets, each of which would wait for the last to be acknowledged.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            raise self._unreachable(_no_connection(hop, error)) from error

    def _shake_hands(self) -> None:
        import paramiko

        try:
            self.transport.start_client(timeout=HANDSHAKE_S)
            if not self.transport.initial_kex_done:
                raise TimeoutError
        except (paramiko.SSHException, EOFError, OSError) as error:
            why = self._not_ssh(error)
            self.transport.close()
            raise self._unreachable(why) from error

    def _not_ssh(self, error: Exception) -> str:
        """What is wrong with the first words of the other end."""
        import paramiko

        if self._command and (ended := self._command.ended(END_S if _has_ended(error) else 0.0)):
            return f"before an SSH server answered for {self.hop}, its ProxyCommand in ~/.ssh/config {ended}"
        greeting = self.transport.packetizer.greeting
        said = "" if not greeting or greeting.startswith("SSH-") else f"it said {plain(greeting.encode()[:SAID_BYTES])}"
        if _has_ended(error):
            said = f"{said} and ended the connection" if said else "it ended the connection"
        elif isinstance(_cause(error), TimeoutError):
            said = f"{said}, then nothing in {HANDSHAKE_S:g} s" if said else f"no answer in {HANDSHAKE_S:g} s"
        old = isinstance(error, paramiko.ssh_exception.IncompatiblePeer)
        return _no_ssh(self.hop, said or str(error), "update its SSH server" if old else _WHICH)

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
        skipped: list[str] = []
        for key, name in self._keys(locked, skipped):
            tried.append(name)
            try:
                # What is left to do after a key that is not enough alone is a password or a code.
                if not self.transport.auth_publickey(self.hop.user, key):
                    return
            except paramiko.BadAuthenticationType:
                break
            except (paramiko.SSHException, EOFError, OSError) as error:
                if self._stalled or self._fault:
                    raise self._unreachable(self.why) from error
                refused = isinstance(error, paramiko.AuthenticationException)
                if refused and self.transport.is_active():
                    continue
                # A server ends the connection over several keys, or with a word.
                if refused and (len(tried) > 1 or self.transport.packetizer.dismissed):
                    break
                said = "" if refused else str(error)
                raise self._unreachable(
                    f"{self.hop} ended the login: {said or 'the connection ended'}; look there: journalctl -u ssh"
                ) from error
        raise self._unreachable(self._refused(tried, locked, skipped))

    def _refused(self, tried: list[str], locked: list[Path], skipped: list[str]) -> str:
        what = f"{self.hop} does not let {self.hop.user!r} in"
        if locked:
            mend = f"run: ssh-add {locked[0]}"
            if not self.hop.agent:
                mend += f", and {self._with_agent}"
            return f"{what}: the key {locked[0]} is locked with a passphrase that only an SSH agent can know; {mend}"
        if not tried and skipped:
            return f"{what}: {'; '.join(skipped)}"
        if not tried:
            looked = ", ".join(map(str, self.hop.keys))
            return f"{what}: there is no key to offer ({looked}); make one: ssh-keygen -t ed25519, then: ssh-copy-id"
        user_and_port = f"-p {self.hop.port} {self.hop.user}@{self.hop.host}"
        others = f" ({'; '.join(skipped)})" if skipped else ""
        return (
            f"{what} with any of these keys: {', '.join(tried)}{others}; bring one there: ssh-copy-id {user_and_port}"
        )

    @property
    def _with_agent(self) -> str:
        return self._address.mend("agent = true under [ssh]", "--agent")

    def _keys(self, locked: list[Path], skipped: list[str]) -> Iterator[tuple[paramiko.PKey, str]]:
        """Keys to offer, with the name of each: those that an agent holds, then files.

        Args:
            locked: Gets the files that need a passphrase.
            skipped: Gets what is in the way of using other files, a sentence each.
        """
        import paramiko
        from cryptography.exceptions import UnsupportedAlgorithm

        agent = self._agent(skipped) if self.hop.agent else None
        held = {key.asbytes(): key for key in agent.get_keys()} if agent else {}
        try:
            wanted = {path: _public(path) for path in self.hop.keys}
            for data, key in held.items():
                if not self.hop.only_keys or data in wanted.values():
                    yield key, f"{key.get_name()} {key.fingerprint} of the agent"
            for path, public in wanted.items():
                if public in held or not path.exists():
                    continue
                if _public_in(path):
                    mend = "" if self.hop.agent else f"; if one does, {self._with_agent}"
                    skipped.append(f"{path} is a public key, whose private one no SSH agent was found to hold{mend}")
                    continue
                try:
                    yield paramiko.PKey.from_path(path), str(path)
                except (paramiko.PasswordRequiredException, TypeError):
                    locked.append(path)
                except (
                    OSError,
                    ValueError,
                    UnsupportedAlgorithm,  # of a security key, for example
                    paramiko.SSHException,
                    paramiko.UnknownKeyType,
                ) as error:
                    skipped.append(f"the key {path} cannot be read: {error}")
        finally:
            if agent:
                agent.close()

    def _agent(self, skipped: list[str]) -> paramiko.Agent | None:
        """The SSH agent; None where one does not answer as it should, which ``skipped`` gets."""
        import paramiko

        try:
            return paramiko.Agent()
        except (paramiko.SSHException, OSError) as error:
            place = os.environ.get("SSH_AUTH_SOCK", "")
            skipped.append(f"the SSH agent at {place} does not answer ({error}); start another: eval $(ssh-agent)")
            return None

    @property
    def _known(self) -> Any:
        return known(self.hop.name, self.hop.known_hosts)

    def _unreachable(self, reason: str) -> DeviceUnreachable:
        return DeviceUnreachable(f"device {self._address.name!r}: {reason}")


def _waiting(channel: paramiko.Channel | None) -> int:
    """Bytes that came over a channel and were not taken."""
    return 0 if channel is None else len(channel.in_buffer) + len(channel.in_stderr_buffer)


def _watched() -> type[paramiko.packet.Packetizer]:
    """paramiko's reader of packets, which also notes what of them we ask for."""
    import paramiko

    class Watched(paramiko.packet.Packetizer):  # type: ignore[misc]
        heard = 0.0
        # The first line that came; that of an SSH server says which one it is.
        greeting = ""
        # The other end has said that it ends the connection.
        dismissed = False

        def readline(self, timeout: float) -> str:
            line = str(super().readline(timeout))
            self.greeting = self.greeting or line
            return line

        def read_message(self) -> Any:
            message = super().read_message()
            self.heard = time.monotonic()
            self.dismissed = message[0] == paramiko.common.MSG_DISCONNECT
            return message

    return Watched


def _cause(error: BaseException) -> BaseException:
    """What paramiko met when it said this: of the first line it tells the end, a time limit and garbage alike."""
    told = isinstance(error, EOFError | OSError)
    return error if told else error.__context__ or error


def _has_ended(error: BaseException) -> bool:
    return isinstance(_cause(error), EOFError | ConnectionError)


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
    """The public key in a file or beside it; nothing where there is none."""
    return _public_in(path) or _public_in(path.with_name(f"{path.name}.pub"))


def _public_in(path: Path) -> bytes:
    """The public key that a file holds; nothing where it holds none."""
    try:
        kind, text = path.read_text().split()[:2]
        data = base64.b64decode(text)
    except (OSError, ValueError):
        return b""
    return data if data.startswith(len(kind).to_bytes(4, "big") + kind.encode()) else b""


def _no_ssh(hop: Hop, said: str, mend: str = _WHICH) -> str:
    return f"what answers at {hop} does not speak SSH as it should: {said}; {mend}"


def _no_connection(hop: Hop, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name {hop.host} is not known; is it spelled right, and the device in this network?"
    if isinstance(error, TimeoutError):
        return f"{hop} gave no answer in {CONNECT_S:.0f} s; is it switched on, and in this network?"
    if isinstance(error, ConnectionRefusedError):
        return f"nothing takes connections at {hop}; is an SSH server running there (on Debian: apt install ssh)?"
    if isinstance(error, ConnectionResetError):
        return _no_ssh(hop, "it ended the connection")
    return f"{hop} cannot be reached: {error.strerror or error}; is it switched on, and in this network?"
