"""Messages of the adb protocol: https://android.googlesource.com/platform/packages/modules/adb/+/main/protocol.txt."""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass

VERSION = 0x01000001
MAX_PAYLOAD = 256 * 1024
_HEADER = struct.Struct("<4sIIII4s")


@dataclass(frozen=True)
class Message:
    """One message; what ``first`` and ``second`` mean depends on the command."""

    command: bytes
    first: int = 0
    second: int = 0
    data: bytes = b""


class Wire:
    """Messages over a socket; many threads may send, one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """Raises OSError when the other side is gone."""
        command = message.command
        magic = bytes(byte ^ 0xFF for byte in command)
        # No checksum: both sides are of a version that does without.
        size = len(message.data)
        head = _HEADER.pack(command, message.first, message.second, size, 0, magic)
        with self._sending:
            self._connection.sendall(head + message.data)

    def receive(self) -> Message | None:
        """The next message; None when the other side is gone or does not speak the protocol."""
        head = read_exactly(self._connection, _HEADER.size)
        if head is None:
            return None
        command, first, second, size, _, magic = _HEADER.unpack(head)
        if magic != bytes(byte ^ 0xFF for byte in command) or size > 1 << 20:
            return None
        data = read_exactly(self._connection, size)
        return None if data is None else Message(command, first, second, data)


def read_exactly(connection: socket.socket, size: int) -> bytes | None:
    """So many bytes; None when fewer come before the end."""
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(size - len(parts))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
