"""One command on an Android device: a call of ``adb shell`` whose end can be told from a lost connection.

adb hides more than it tells. A command whose device is unplugged ends with status 0 and not a word, as one that did
its work; one that is longer than 64 KiB does not run and has status 0; adb's own errors come in the same stream as
those of the command. So each command is framed by two marks in its stderr: what stands before the first is adb's talk,
and without the second it did not end by itself.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import selectors
import subprocess
import threading
import time
from collections import deque

from hwbench.devices.adb_program import AdbProgram, words
from hwbench.devices.link import Chunk, Stream
from hwbench.errors import DeviceLost, InvalidValue

# adb puts the length of a request into four hexadecimal digits and does not look whether it fits.
MAX_COMMAND_BYTES = 65_000
# adb never gives up a connection that the network swallowed. Of a command that is silent for so long, the device is
# asked whether it is there; one that has much to do answers within ALIVE_S.
SILENCE_S, ALIVE_S = 20.0, 20.0
# A command that only answers; the time for which adb keeps a device that is unplugged is below a second.
ANSWER_S = 15.0
POLL_S = 0.2
CHUNK_BYTES = 1 << 16
TALK_BYTES = 1 << 14
# A status in decimal, and the end of its line.
STATUS_BYTES = 5
# What adb ends with when the connection does: by version; any other status was sent by the device.
_ENDED_WITH = (0, 1, 255)


def lost(serial: str, why: str) -> DeviceLost:
    """The error of a device that went away."""
    return DeviceLost(f"{serial} went away: {why}; connect it again and give the same command again: it goes on")


class AdbChannel:
    """A call of ``adb shell``, with separate streams and without a terminal."""

    def __init__(self, program: AdbProgram, serial: str, command: str) -> None:
        self._serial = serial
        self._marks = Marks()
        line = self._marks.frame(command).encode(errors="surrogateescape")
        if len(line) > MAX_COMMAND_BYTES or b"\0" in line:
            raise InvalidValue(
                f"a command for {serial}: expected at most {MAX_COMMAND_BYTES} bytes without a zero among them, got "
                f"{len(line)}; give fewer or shorter arguments"
            )
        pipe = subprocess.PIPE
        self._process = program.popen(("shell", "-T", line), serial, pipe, pipe, pipe)
        self._program = program
        self._heard = time.monotonic()
        self._chunks: deque[Chunk] = deque()
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._selector = selectors.DefaultSelector()
        for stream, file in ((Stream.STDOUT, self._process.stdout), (Stream.STDERR, self._process.stderr)):
            assert file is not None
            self._selector.register(file, selectors.EVENT_READ, stream)
        self.closed = False

    def read(self, timeout_s: float) -> Chunk | None:
        deadline = time.monotonic() + timeout_s
        while not self._chunks:
            if self.closed or not self._selector.get_map():
                self._judge()
                return None
            left = deadline - time.monotonic()
            if self._take(max(0.0, min(left, POLL_S))):
                if left > 0 or self._chunks or not self._selector.get_map():
                    continue
            elif self._process.poll() is not None and not self._take(0):
                self._end()  # a server that adb started may hold its streams open
                continue
            elif time.monotonic() - self._heard > SILENCE_S:
                self._ask()
            # What came may have been talk of adb, of which nothing is given: it may come without end.
            if left <= 0:
                raise TimeoutError(f"nothing came in {timeout_s:g} s")
        return self._chunks.popleft()

    def write(self, data: bytes) -> None:
        if self._writer is None:
            # adb takes no input while the device takes no output; who waits here would not read.
            self._writer = threading.Thread(target=self._feed, daemon=True)
            self._writer.start()
        self._input.put(data)

    def end_input(self) -> None:
        if self._writer is None:
            self._close_input()
        else:
            self._input.put(None)

    def status(self, timeout_s: float) -> int:
        if self._marks.status is None:
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"the command has not ended after {timeout_s:g} s") from None
            self._judge()
        return self._process.returncode if self._marks.status is None else self._marks.status

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._process.kill()
        self._process.wait()
        self._input.put(None)
        self._selector.close()
        for file in (self._process.stdout, self._process.stderr):
            if file is not None:
                file.close()
        if self._writer is None:
            self._close_input()

    def _take(self, timeout_s: float) -> bool:
        """Takes what came in this time; true if something came or a stream ended."""
        events = self._selector.select(timeout_s)
        if events:
            self._heard = time.monotonic()
        for key, _ in events:
            data = os.read(key.fd, CHUNK_BYTES)
            if not data:
                self._selector.unregister(key.fileobj)
            if key.data is Stream.STDERR:
                data = self._marks.feed(data)
            if data:
                self._chunks.append(Chunk(key.data, data))
        return bool(events)

    def _ask(self) -> None:
        """Raises DeviceLost if the device does not answer."""
        answer = self._program.call("shell", "-T", "echo here", serial=self._serial, timeout_s=ALIVE_S)
        if answer.stdout.strip() != "here":
            raise lost(self._serial, f"not a word for {SILENCE_S:g} s, and it does not answer")
        self._heard = time.monotonic()

    def _end(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
        if rest := self._marks.feed(b""):
            self._chunks.append(Chunk(Stream.STDERR, rest))

    def _judge(self) -> None:
        """Raises DeviceLost if the command did not end by itself."""
        if self._marks.status is not None:
            return
        try:
            status = self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            status = -1
        # Without the second mark: the device's shell was ended by a signal, or the connection was.
        if not self._marks.begun or status < 0 or status in _ENDED_WITH:
            talk = self._marks.talk.decode(errors="replace")
            raise lost(self._serial, words(talk) if talk.strip() else "adb's connection ended before the command did")

    def _feed(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it reads no more
            while (data := self._input.get()) is not None:
                self._process.stdin.write(data)
                self._process.stdin.flush()
        self._close_input()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()


class Marks:
    """Two marks around a command in its stderr, made of 16 random bytes; takes them out of what comes."""

    def __init__(self) -> None:
        nonce = secrets.token_hex(16).encode()
        self._begin, self._end = nonce + b"<", nonce + b">"
        self._after = re.compile(re.escape(self._end) + rb"(\d{1,3})\r?\n")
        self._held = b""
        self.begun = False
        self.status: int | None = None
        self.talk = b""

    def frame(self, command: str) -> str:
        """The command between the marks, in a shell of its own, so that it may exit."""
        return f"echo '{self._begin.decode()}' >&2; (\n{command}\n); echo '{self._end.decode()}'$? >&2"

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes of stderr, of which none are the last; returns those that are the command's."""
        self._held += data
        if not self.begun and not self._find_begin(last=not data):
            return b""
        if self.status is None and (match := self._after.search(self._held)):
            self.status = int(match[1])
            self._held = self._held[: match.start()] + self._held[match.end() :]
        kept = _tail(self._held, self._end) if self.status is None and data else 0
        given, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return given

    def _find_begin(self, *, last: bool) -> bool:
        talk, mark, rest = self._held.partition(self._begin)
        if mark and b"\n" in rest:
            self.begun = True
            self.talk = self.talk or talk
            self._held = rest.partition(b"\n")[2]
        elif last or len(self._held) > TALK_BYTES:
            self.talk = (self.talk or self._held)[:TALK_BYTES]
            self._held = self._held[-2 * len(self._begin) :]
        return self.begun


def _tail(data: bytes, mark: bytes) -> int:
    """How many of the last bytes may be the beginning of the mark and of what follows it."""
    place = data.rfind(mark)
    if place >= 0 and b"\n" not in data[place:] and len(data) - place - len(mark) < STATUS_BYTES:
        return len(data) - place
    return next((n for n in range(min(len(mark) - 1, len(data)), 0, -1) if mark.startswith(data[-n:])), 0)
