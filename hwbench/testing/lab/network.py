"""The network in front of a lab device: a port that forwards connections, and all that a cable or Wi-Fi may do.

One port for each device, which stays the same while servers behind it come and go.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from enum import Enum

from hwbench.testing.lab.processes import HOST, free_port

CHUNK = 16 * 1024
# Ends a connection with RST in place of FIN: what the far side sees of a cable that is pulled, once it answers again.
_RESET = struct.pack("ii", 1, 0)


class Direction(Enum):
    """Which way bytes go."""

    TO_DEVICE = "to the device"
    FROM_DEVICE = "from the device"


class VirtualNetwork:
    """Forwards a port of its own to a server's; used by any thread."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._state = threading.Condition()
        self._stalled = False
        self._delay_s = 0.0
        self._left: dict[Direction, int] = {}
        self.passed = dict.fromkeys(Direction, 0)
        self.port = free_port()
        self.connect()

    def connect(self) -> None:
        """The cable is in: connections are taken."""
        with self._state:
            if self._listener is not None:
                return
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, self.port))
            listener.listen(64)
            self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def disconnect(self) -> None:
        """The cable is out: connections end, and new ones are refused until ``connect``."""
        with self._state:
            listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
            listener.close()
        self.drop()

    def drop(self) -> None:
        """Ends the connections of now; new ones are taken."""
        with self._state:
            ended, self._open = self._open, set()
            self._left.clear()
            self._state.notify_all()
        for connection in ended:
            _reset(connection)

    def drop_after(self, count: int, direction: Direction) -> None:
        """Ends all connections once so many more bytes went that way; new ones are taken."""
        with self._state:
            self._left[direction] = count

    def stall(self) -> None:
        """Nothing passes, and nobody is told: Wi-Fi out of reach. New connections are taken and stall too."""
        with self._state:
            self._stalled = True

    def resume(self) -> None:
        """Ends ``stall``; what was held back passes now."""
        with self._state:
            self._stalled = False
            self._state.notify_all()

    def delay(self, seconds: float) -> None:
        """Each piece of up to 16 KiB takes so much longer; 0 ends it."""
        with self._state:
            self._delay_s = seconds

    def close(self) -> None:
        """Takes it down for good."""
        self.disconnect()
        self.resume()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket()
            with self._state:
                self._open |= {near, far}
            threading.Thread(target=self._join, args=(near, far), daemon=True).start()

    def _join(self, near: socket.socket, far: socket.socket) -> None:
        try:
            far.connect((HOST, self._server_port))
        except OSError:
            self._end(near, far)
            return
        for connection in (near, far):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self._pump, args=(far, near, Direction.FROM_DEVICE), daemon=True)
        back.start()
        self._pump(near, far, Direction.TO_DEVICE)
        back.join()
        self._end(near, far)

    def _pump(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        try:
            while data := source.recv(CHUNK):
                allowed = self._allowed(source, len(data), direction)
                target.sendall(data[:allowed])
                if allowed < len(data):
                    self.drop()
                    return
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # A server that is killed with unread bytes resets its side; the other one would wait for ever.
            for connection in (source, target):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _allowed(self, source: socket.socket, size: int, direction: Direction) -> int:
        """Waits as the faults say; how many of the bytes may pass before the connection ends."""
        with self._state:
            delay_s = self._delay_s
        time.sleep(delay_s)
        with self._state:
            self._state.wait_for(lambda: not self._stalled or source not in self._open)
            left = self._left.get(direction)
            passing = size if left is None else min(size, left)
            if left is not None:
                self._left[direction] = left - passing
            self.passed[direction] += passing
            return passing

    def _end(self, *connections: socket.socket) -> None:
        with self._state:
            self._open -= set(connections)
        for connection in connections:
            connection.close()


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    # Closing alone would leave a thread in recv, and the connection open until it returns.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
