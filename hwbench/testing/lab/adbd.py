"""An adbd of ours: the device's side of the adb protocol, for the real ``adb`` program.

It serves ``shell:``, ``shell,v2,raw:``, ``exec:`` and ``sync:`` (version 1), each with the protocol's flow control: one
message of a stream is under way until the other side has said OKAY. Only computers are served that sign a token with a
key that the phone has allowed. A program, started by ``Adbd``:
``python -m hwbench.testing.lab.adbd LISTENER CONFIGURATION``.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hwbench.testing.lab import enter, keys, sync
from hwbench.testing.lab.wire import MAX_PAYLOAD, VERSION, Message, Wire

TOKEN, SIGNATURE, PUBLIC_KEY = 1, 2, 3  # kinds of AUTH
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = 0, 1, 2, 3, 4  # kinds of packets of shell v2
SIGNALLED = 0x80


@dataclass(frozen=True)
class Configuration:
    """What an adbd is told. ``authorised`` is a file of the public keys of the computers that it serves."""

    root: str
    socket: str
    user: int
    banner: str
    authorised: str
    faults: str


class AdbdStream:
    """One stream of a connection. ``read`` and ``write`` block as the protocol says."""

    def __init__(self, wire: Wire, local: int, remote: int, limit: int) -> None:
        self._wire, self._local, self._remote, self._limit = wire, local, remote, limit
        self._arrived: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ready = threading.Semaphore(0)
        self._rest = b""
        self._closed = threading.Event()

    def okay(self) -> None:
        """The other side may send the next message of this stream."""
        self._wire.send(Message(b"OKAY", self._local, self._remote))

    def arrive(self, data: bytes) -> None:
        """Called by the receiver of the connection."""
        self._arrived.put(data)

    def acknowledged(self) -> None:
        """Called by the receiver of the connection."""
        self._ready.release()

    def end(self) -> None:
        """The other side has closed the stream, or the connection is gone."""
        self._closed.set()
        self._arrived.put(None)
        self._ready.release()

    def read(self) -> bytes:
        """What came, at least one byte; empty at the end."""
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        data_or_end = self._arrived.get()
        if data_or_end is None:
            self._arrived.put(None)
            return b""
        with contextlib.suppress(OSError):
            self.okay()
        return data_or_end

    def read_exactly(self, size: int) -> bytes:
        """So many bytes; EOFError if fewer come."""
        data = b""
        while len(data) < size:
            part = self.read()
            if not part:
                raise EOFError
            data += part
        self._rest = data[size:] + self._rest
        return data[:size]

    def write(self, data: bytes) -> None:
        """Sends, and waits until it was taken; BrokenPipeError when the stream is closed."""
        for at in range(0, len(data), self._limit):
            if self._closed.is_set():
                raise BrokenPipeError
            self._wire.send(Message(b"WRTE", self._local, self._remote, data[at : at + self._limit]))
            self._ready.acquire()
        if self._closed.is_set():
            raise BrokenPipeError

    def close(self) -> None:
        """Tells the other side, also if it has closed before: it waits for this."""
        with contextlib.suppress(OSError):
            self._wire.send(Message(b"CLSE", self._local, self._remote))


class AdbdConnection:
    """What one adb server has opened with us."""

    def __init__(self, connection: socket.socket, configuration: Configuration) -> None:
        self._socket = connection
        self._wire = Wire(connection)
        self._configuration = configuration
        self._streams: dict[int, AdbdStream] = {}
        self._limit = MAX_PAYLOAD
        self._accepted = False
        self._token = b""  # that the other side is to sign next
        self._last = 0

    def serve(self) -> None:
        """Until the other side is gone."""
        with contextlib.suppress(OSError):
            while (message := self._wire.receive()) is not None:
                self._handle(message)
        for stream in list(self._streams.values()):
            stream.end()
        self._socket.close()

    def _handle(self, message: Message) -> None:
        if message.command == b"CNXN":
            self._limit = min(MAX_PAYLOAD, message.second)
            self._ask()
        elif message.command == b"AUTH":
            # A signature by a key that we do not know is answered by another token; a key offered, by nothing: a
            # phone shows a dialogue now, and nobody touches it.
            if message.first == SIGNATURE and self._is_known(message.data):
                self._accepted = True
                self._wire.send(Message(b"CNXN", VERSION, MAX_PAYLOAD, self._configuration.banner.encode()))
            elif message.first == SIGNATURE:
                self._ask()
        elif self._accepted:
            self._of_stream(message)

    def _ask(self) -> None:
        """Sends a token to be signed; who connects anew, or has just failed, is nobody so far."""
        self._accepted = False
        self._token = secrets.token_bytes(keys.TOKEN_BYTES)
        self._wire.send(Message(b"AUTH", TOKEN, 0, self._token))

    def _is_known(self, signature: bytes) -> bool:
        token, self._token = self._token, b""  # each is good for one answer
        try:
            allowed = Path(self._configuration.authorised).read_text().splitlines()
        except OSError:
            return False
        return any(keys.verifies(key, token, signature) for key in allowed)

    def _of_stream(self, message: Message) -> None:
        if message.command == b"OPEN":
            self._open(message)
            return
        stream = self._streams.get(message.second)
        if stream is None:
            if message.command != b"CLSE":
                self._wire.send(Message(b"CLSE", 0, message.first))
        elif message.command == b"WRTE":
            stream.arrive(message.data)
        elif message.command == b"OKAY":
            stream.acknowledged()
        elif message.command == b"CLSE":
            stream.end()

    def _open(self, message: Message) -> None:
        service = _service(message.data.rstrip(b"\0").decode(errors="surrogateescape"))
        if service is None:
            self._wire.send(Message(b"CLSE", 0, message.first))
            return
        self._last += 1
        stream = self._streams[self._last] = AdbdStream(self._wire, self._last, message.first, self._limit)
        stream.okay()
        threading.Thread(target=self._run, args=(service, stream, self._last), daemon=True).start()

    def _run(self, service: Callable[[AdbdStream, Configuration], None], stream: AdbdStream, number: int) -> None:
        with contextlib.suppress(OSError, EOFError):
            service(stream, self._configuration)
        stream.close()
        self._streams.pop(number, None)


def _service(name: str) -> Callable[[AdbdStream, Configuration], None] | None:
    kind, _, rest = name.partition(":")
    if kind == "sync":
        return lambda stream, told: sync.serve(stream, Path(told.root), Path(told.faults))
    if kind == "exec" or kind == "shell" or kind.startswith("shell,"):
        command = rest or "exec sh"
        framed = kind.startswith("shell,v2")
        return lambda stream, told: (_framed if framed else _raw)(stream, told, command)
    return None


def _raw(stream: AdbdStream, told: Configuration, command: str) -> None:
    """Stdout and stderr as one, no exit status."""
    given, taken = os.pipe()
    read, write = os.pipe()
    connection = _started(told, command, (given, write, write))
    for number in {given, write}:
        os.close(number)
    threading.Thread(target=_feed, args=(stream, taken), daemon=True).start()
    with connection, os.fdopen(read, "rb", buffering=0) as out:
        while data := out.read(MAX_PAYLOAD):
            stream.write(data)


def _feed(stream: AdbdStream, taken: int) -> None:
    with os.fdopen(taken, "wb", buffering=0) as target, contextlib.suppress(OSError):
        while data := stream.read():
            target.write(data)


def _framed(stream: AdbdStream, told: Configuration, command: str) -> None:
    """Packets of shell v2: both streams apart, then the exit status."""
    given, taken = os.pipe()
    read_out, write_out = os.pipe()
    read_err, write_err = os.pipe()
    connection = _started(told, command, (given, write_out, write_err))
    for number in (given, write_out, write_err):
        os.close(number)
    sending = threading.Lock()

    def send(kind: int, data: bytes) -> None:
        with sending:
            stream.write(bytes([kind]) + len(data).to_bytes(4, "little") + data)

    def forward(kind: int, source: int) -> None:
        with os.fdopen(source, "rb", buffering=0) as out, contextlib.suppress(OSError):
            while data := out.read(MAX_PAYLOAD - 5):
                send(kind, data)

    threading.Thread(target=_unpack, args=(stream, taken), daemon=True).start()
    forwards = [threading.Thread(target=forward, args=pair) for pair in ((STDOUT, read_out), (STDERR, read_err))]
    for thread in forwards:
        thread.start()
    ended = enter.status(connection)
    for thread in forwards:
        thread.join()
    if ended is not None:  # else the device went down, and so did we
        send(EXIT, bytes([ended if ended >= 0 else SIGNALLED | -ended]))


def _unpack(stream: AdbdStream, taken: int) -> None:
    """Packets from the other side to the command's stdin."""
    with os.fdopen(taken, "wb", buffering=0) as target, contextlib.suppress(OSError, EOFError):
        while True:
            kind = stream.read_exactly(1)[0]
            data = stream.read_exactly(int.from_bytes(stream.read_exactly(4), "little"))
            if kind == CLOSE_STDIN:
                target.close()
            elif kind == STDIN and not target.closed:
                with contextlib.suppress(BrokenPipeError):
                    target.write(data)


def _started(told: Configuration, command: str, streams: tuple[int, int, int]) -> socket.socket:
    return enter.start(told.socket, command, streams)


def main(listener: int, configuration: str) -> None:
    """Serves until it is killed, as the user of the device."""
    told = Configuration(**json.loads(configuration))
    with socket.socket(fileno=listener) as server:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(told.user, told.user, told.user)
            os.setresuid(told.user, told.user, told.user)
        os.umask(0)
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=AdbdConnection(connection, told).serve, daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
