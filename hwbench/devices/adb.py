"""Android devices through the ``adb`` program: a link for ``remote.py``, and the choice of the device.

adb hides more than it tells. A command whose device is unplugged ends with status 0 and not a word, as one that did
its work; one that is longer than 64 KiB does not run and has status 0; adb's own errors come in the same stream as
those of the command. So each command is framed by two marks in its stderr: what stands before the first is adb's talk,
and without the second it did not end by itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import secrets
import selectors
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from hwbench.devices.adb_program import (
    DEFAULT_PORT,
    AdbProgram,
    Attached,
    checked_word,
    is_address,
    is_loopback,
    place_of,
    words,
)
from hwbench.devices.base import Address, Option, TransportKind, transports
from hwbench.devices.link import Chunk, Stream
from hwbench.devices.remote import RemoteTransport
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, InvalidValue, WorkspaceError
from hwbench.printable import printable
from hwbench.workspace import writing

log = logging.getLogger(__name__)

# adb puts the length of a request into four hexadecimal digits and does not look whether it fits.
MAX_COMMAND_BYTES = 65_000
# A push says nothing while it goes on, so its limit is by size: slow Wi-Fi carries 1 MB/s.
PUSH_S, PUSH_BYTES_PER_S = 30.0, 500_000
# No byte of a file for so long: the device is gone.
STALL_S = 30.0
# adb never gives up a connection that the network swallowed. Of a command that is silent for so long, the device is
# asked whether it is there; one that has much to do answers within ALIVE_S.
SILENCE_S, ALIVE_S = 20.0, 20.0
# A command that only answers; the time for which adb keeps a device that is unplugged is below a second.
ANSWER_S = 15.0
WAIT_S = 10.0
# What has just started may end a first connection at once.
CONNECT_TRIES = 2
POLL_S = 0.2
CHUNK_BYTES = 1 << 16
TALK_BYTES = 1 << 14
# What adb ends with when the connection does: by version; any other status was sent by the device.
_ENDED_WITH = (0, 1, 255)
_REFUSED = re.compile(r"(?:failed to copy .*': remote |SendRequest failed: )(.*)")
_LOCAL = re.compile(r"cannot (stat|open|read)|failed to (stat|open|read) (local|file)")

_warned: set[str] = set()


def open_link(name: str, options: Mapping[str, Option], environment: Mapping[str, str] = os.environ) -> AdbLink:
    """Finds the device and opens a link to it.

    Args:
        name: What its device file calls it.
        options: ``serial``, or ``host`` and ``port``; without them the only attached device, or ANDROID_SERIAL.
        environment: Where ANDROID_SERIAL is looked up.

    Raises:
        DeviceUnreachable: None or several are attached, or it is in no state to be used; says what mends it.
        InvalidValue: The options contradict each other or cannot be given to adb.
    """
    program = AdbProgram()
    serial = _wanted(options, environment)
    try:
        started = program.start()
    except DeviceUnreachable as error:
        raise DeviceUnreachable(f"device {name!r}: {error}") from error
    if serial is not None and is_address(serial):
        _warn_of_network(name, serial)
        _connect_anew(program, name, serial)
    chosen = choose(program.settled(serial, wait=started or serial is not None), name, serial)
    link = AdbLink(program, name, chosen.serial)
    link.check()
    return link


def connect(address: Address) -> RemoteTransport:
    """Opens a transport to the device; errors as ``open_link``."""
    return RemoteTransport(open_link(address.name, address.options), address)


def choose(found: tuple[Attached, ...], name: str, serial: str | None) -> Attached:
    """The device that is meant: that with the serial, or the only one.

    Raises:
        DeviceUnreachable: There is none, there are several, or it is not ready; says what mends it.
    """
    place = "under [adb] in its device.toml"
    if serial is not None:
        meant = [one for one in found if one.serial == serial]
        others = f"attached: {_listed(found)}" if found else "nothing is attached"
        wrong = f"expected the one with serial {printable(serial)}, {others}; connect it, or change serial {place}"
    else:
        meant = list(found)
        wrong = (
            "no Android device is attached: connect it with a cable that carries data and switch on USB debugging in "
            f'its developer options, then: adb devices. Over the network: host = "ADDRESS" {place}'
        )
    if not meant:
        raise DeviceUnreachable(f"device {name!r}: {wrong}")
    if len(meant) > 1:
        raise DeviceUnreachable(
            f'device {name!r}: {len(meant)} devices are attached: {_listed(found)}; say which it is: serial = "SERIAL" '
            f"{place}, or for once: ANDROID_SERIAL=SERIAL in the environment"
        )
    (one,) = meant
    if not one.ready:
        raise DeviceUnreachable(f"device {name!r} ({one.serial}): {one.mend}")
    if not one.usable_serial:
        raise DeviceUnreachable(
            f"device {name!r}: its serial {one.serial!r} is no single word, so adb cannot be told which device is "
            "meant; use it over the network: adb tcpip 5555"
        )
    return one


class AdbLink:
    """A connection to one device through adb's server; each command and each file is a call of the adb program."""

    def __init__(self, program: AdbProgram, name: str, serial: str) -> None:
        self._program = program
        self._name = name
        self._serial = checked_word("serial", serial)
        self._channels: list[AdbChannel] = []
        self._unit: str | None = None

    @property
    def identity(self) -> str:
        # The number of the device itself: the same over USB and over the network.
        return f"adb:{self._unit or self._serial}"

    @property
    def over_usb(self) -> bool:
        """It is on a cable: neither an address, nor a name of the network's directory, nor an emulator."""
        return not (is_address(self._serial) or "._adb" in self._serial or self._serial.startswith("emulator-"))

    def open(self, command: str) -> AdbChannel:
        channel = AdbChannel(self._program, self._serial, command)
        self._channels = [one for one in self._channels if not one.closed] + [channel]
        return channel

    def put(self, source: Path, target: str) -> None:
        size = _size(source)
        result = self._program.call(
            "push",
            os.path.abspath(source),
            target,
            serial=self._serial,
            timeout_s=PUSH_S + size / PUSH_BYTES_PER_S,
        )
        said = f"{result.stderr}\n{result.stdout}"
        if result.timed_out:
            raise self._lost(f"a push of {size} bytes did not end")
        if result.ok and "1 file pushed" in said:
            return
        if refused := _REFUSED.search(said):
            why = printable(refused[1], 200)
            raise DeviceError(f"{self._serial} refuses {printable(target)}: {why}; {_hint(why)}")
        if _LOCAL.search(said):
            raise WorkspaceError(f"cannot read {source}: {words(said)}")
        raise self._lost(words(said))

    def get(self, source: str, target: Path, most_bytes: int) -> None:
        # Not adb pull: of a path that is a folder it takes all that lies in it, under names that the device gives.
        path = shlex.quote(source)
        channel = self.open(f"if [ -f {path} ]; then cat {path}; else echo no such file >&2; exit 1; fi")
        try:
            channel.end_input()
            with writing(target), open(target, "wb") as file:
                errors = self._copy(channel, file, source, most_bytes)
            if channel.status(ANSWER_S) != 0:
                said = printable(errors.decode(errors="replace"), 200)
                raise DeviceError(f"{self._serial} does not give {printable(source)}: {said}")
        except TimeoutError:
            raise self._lost(f"no byte of {printable(source)} came for {STALL_S:g} s") from None
        finally:
            channel.close()

    def _copy(self, channel: AdbChannel, file: IO[bytes], source: str, most_bytes: int) -> bytes:
        """Takes a file from a channel; returns what came as stderr."""
        count, errors = 0, b""
        while (chunk := channel.read(STALL_S)) is not None:
            if chunk.stream is Stream.STDERR:
                errors = (errors + chunk.data)[:TALK_BYTES]
                continue
            count += len(chunk.data)
            if count > most_bytes:
                raise DeviceError(f"{self._serial} gives more than {most_bytes} bytes for {printable(source)}")
            file.write(chunk.data)
        return errors

    def reconnect(self) -> None:
        started = self._program.start()
        found: tuple[Attached, ...] = ()
        if is_address(self._serial):
            for _ in range(CONNECT_TRIES):
                # Of a connection that the network swallowed, adb says for hours that it is there.
                self._program.call("disconnect", self._serial)
                _connect_anew(self._program, self._name, self._serial)
                found = self._program.settled(self._serial, wait=True)
                if any(one.serial == self._serial for one in found):
                    break
        else:
            if not started:
                if any(one.state == "offline" for one in self._program.attached() if one.serial == self._serial):
                    self._program.call("reconnect", serial=self._serial)
                self._program.call("wait-for-device", serial=self._serial, timeout_s=WAIT_S)
            found = self._program.settled(self._serial, wait=True)
        choose(found, self._name, self._serial)
        try:
            self.check()
        except DeviceUnreachable:
            self._program.call("reconnect", serial=self._serial)  # so that the next attempt finds it fresh
            raise

    def check(self) -> None:
        """Makes sure that the device runs commands, and that it is the one that was there before.

        Raises:
            DeviceUnreachable: It does not; another one is there; or its adbd is too old to say how a command ended.
        """
        features = self._program.features(self._serial)
        if features and "shell_v2" not in features:
            raise DeviceUnreachable(
                f"{self._who} has Android 6 or older: its adbd does not say how a command ended; expected Android 7 or "
                "newer. Where it has an sshd (Termux), use it over SSH"
            )
        unit = self._answer("getprop ro.serialno 2>/dev/null || :")
        if self._unit is not None and unit != self._unit:
            raise DeviceUnreachable(
                f"{self._who}: another device answers there now, {unit!r} in place of {self._unit!r}"
            )
        self._unit = unit

    def _answer(self, command: str) -> str:
        """What a short command prints, as one line."""
        answer = b""
        channel = self.open(command)
        try:
            channel.end_input()
            while (chunk := channel.read(ANSWER_S)) is not None and len(answer) < TALK_BYTES:
                answer += chunk.data if chunk.stream is Stream.STDOUT else b""
            if chunk is None:
                channel.status(ANSWER_S)
        except TimeoutError:
            raise DeviceUnreachable(f"{self._who} runs no command within {ANSWER_S:g} s; start it anew") from None
        except DeviceLost as error:
            raise DeviceUnreachable(f"device {self._name!r}: {error}") from error
        finally:
            channel.close()
        return printable(answer.decode(errors="replace"), 100)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()

    @property
    def _who(self) -> str:
        return f"device {self._name!r} ({self._serial})"

    def _lost(self, why: str) -> DeviceLost:
        return lost(self._serial, why)


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
                continue
            if self._process.poll() is not None and not self._take(0):
                self._end()  # a server that adb started may hold its streams open
            elif time.monotonic() - self._heard > SILENCE_S:
                self._ask()
            elif left <= 0:
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
            self.talk = talk
            self._held = rest.partition(b"\n")[2]
        elif last:
            self.talk = self._held[:TALK_BYTES]
        return self.begun


def _tail(data: bytes, mark: bytes) -> int:
    """How many of the last bytes may be the beginning of the mark and of what follows it."""
    place = data.rfind(mark)
    if place >= 0 and b"\n" not in data[place:]:
        return len(data) - place
    return next((n for n in range(min(len(mark) - 1, len(data)), 0, -1) if mark.startswith(data[-n:])), 0)


def _wanted(options: Mapping[str, Option], environment: Mapping[str, str]) -> str | None:
    """The serial that the options and the environment ask for."""
    serial, host = options.get("serial"), options.get("host")
    if host is None and "port" in options:
        raise InvalidValue("[adb] port: expected host beside it")
    if host is not None:
        if serial is not None:
            raise InvalidValue("[adb]: expected serial, or host and port, got both")
        return place_of(str(host), int(options.get("port", DEFAULT_PORT)))
    wanted = serial or environment.get("ANDROID_SERIAL")
    return checked_word("[adb] serial", str(wanted)) if wanted else None


def _connect_anew(program: AdbProgram, name: str, serial: str) -> None:
    # adb says of a device that it lost that it is connected already, and leaves it offline.
    if any(one.serial == serial and not one.ready for one in program.attached()):
        program.call("disconnect", serial)
    try:
        program.connect(serial)
    except DeviceUnreachable as error:
        raise DeviceUnreachable(f"device {name!r}: {error}") from error


def _warn_of_network(name: str, serial: str) -> None:
    if serial not in _warned and not is_loopback(serial):
        _warned.add(serial)
        log.warning(
            "device %r: adb over TCP (%s) asks nobody who they are unless it was paired: whoever reaches that port has "
            "a shell on the device. Use a network of your own, or a cable",
            name,
            serial,
        )


def _listed(found: tuple[Attached, ...]) -> str:
    return ", ".join(map(str, found))


def _size(source: Path) -> int:
    try:
        if source.is_file() and os.access(source, os.R_OK):
            return source.stat().st_size
    except OSError:
        pass
    raise WorkspaceError(f"cannot read {source}; build it again: run the same command once more")


def _hint(reason: str) -> str:
    """What to do about a refusal of the device."""
    if "No space left" in reason or "quota" in reason.lower():
        return "make room there (df -h, on Android: Settings > Storage)"
    if "Permission denied" in reason or "Read-only" in reason or "not permitted" in reason:
        return "choose another work_dir in its device.toml; on Android: /data/local/tmp/hwbench"
    return "is work_dir in its device.toml a folder there?"


transports.register("adb")(
    TransportKind(connect, {"serial": str, "host": str, "port": int}, work_dir="/data/local/tmp/hwbench")
)
