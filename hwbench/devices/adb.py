"""Android devices through the ``adb`` program: a link for ``remote.py``, and the choice of the device."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from hwbench.devices.adb_channel import ANSWER_S, TALK_BYTES, AdbChannel, lost
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
from hwbench.devices.base import Address, TransportKind, transports
from hwbench.devices.link import Stream
from hwbench.devices.remote import RemoteTransport
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, InvalidValue, WorkspaceError
from hwbench.printable import printable
from hwbench.workspace import writing

log = logging.getLogger(__name__)

# A push says nothing while it goes on, so its limit is by size: slow Wi-Fi carries 1 MB/s.
PUSH_S, PUSH_BYTES_PER_S = 30.0, 500_000
# No byte of a file for so long: the device is gone.
STALL_S = 30.0
WAIT_S = 10.0
# What has just started may end a first connection at once.
CONNECT_TRIES = 2
_REFUSED = re.compile(r"(?:failed to copy .*': remote |SendRequest failed: )(.*)")
_LOCAL = re.compile(r"cannot (stat|open|read)|failed to (stat|open|read) (local|file)")

_UNSET_SERIAL = "clear the variable of the environment that asks for it: unset ANDROID_SERIAL"

_warned: set[str] = set()


def open_link(address: Address, environment: Mapping[str, str] = os.environ) -> AdbLink:
    """Finds the device and opens a link to it.

    Args:
        address: Its options are ``serial``, or ``host`` and ``port``; without them the only attached device is meant,
            or ANDROID_SERIAL.
        environment: Where ANDROID_SERIAL is looked up.

    Raises:
        DeviceUnreachable: None or several are attached, or it is in no state to be used; says what mends it.
        InvalidValue: The options contradict each other or cannot be given to adb.
    """
    program, name = AdbProgram(), address.name
    serial, mend = _wanted(address, environment)
    try:
        started = program.start()
    except DeviceUnreachable as error:
        raise DeviceUnreachable(f"device {name!r}: {error}") from error
    if serial is not None and is_address(serial):
        _warn_of_network(name, serial)
        _attach(program, name, serial, mend)
    chosen = choose(program.settled(serial, wait=started or serial is not None), address, serial, mend)
    link = AdbLink(program, address, chosen.serial, mend)
    link.check()
    return link


def connect(address: Address) -> RemoteTransport:
    """Opens a transport to the device; errors as ``open_link``."""
    return RemoteTransport(open_link(address), address)


def choose(found: tuple[Attached, ...], address: Address, serial: str | None, mend: str) -> Attached:
    """The device that is meant: that with the serial, or the only one.

    Args:
        found: What is attached.
        address: The device that is meant.
        serial: None: any but a place of the network where nobody answers, which adb lists for as long as its server
            runs.
        mend: What to do where no device has the serial, in words.

    Raises:
        DeviceUnreachable: There is none, there are several, or it is not ready; says what mends it.
    """
    name = address.name
    if serial is not None:
        meant = [one for one in found if one.serial == serial]
        others = f"attached: {_listed(found)}" if found else "nothing is attached"
        wrong = f"expected the one with serial {printable(serial)}, {others}; connect it, or {mend}"
    else:
        silent = [one for one in found if one.is_silent_place]
        meant = [one for one in found if one not in silent]
        wrong = (
            "no Android device is attached: connect it with a cable that carries data and switch on USB debugging in "
            "its developer options, then: adb devices. Over the network: "
            + address.mend('host = "ADDRESS" under [adb]', "--adb HOST:PORT")
            + "".join(f". adb lists {one.serial}: {one.mend}" for one in silent)
        )
    if not meant:
        raise DeviceUnreachable(f"device {name!r}: {wrong}")
    if len(meant) > 1:
        which = address.mend('serial = "SERIAL" under [adb]', "--adb SERIAL")
        raise DeviceUnreachable(
            f"device {name!r}: {len(meant)} devices are attached: {_listed(meant)}; say which it is: {which}, or for "
            "once: ANDROID_SERIAL=SERIAL in the environment"
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

    def __init__(self, program: AdbProgram, address: Address, serial: str, mend: str) -> None:
        self._program = program
        self._address = address
        self._name = address.name
        self._mend = mend
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
        deadline = time.monotonic() + PUSH_S + most_bytes / PUSH_BYTES_PER_S
        while (chunk := channel.read(STALL_S)) is not None:
            if time.monotonic() > deadline:
                raise self._lost(f"{count} of {most_bytes} bytes of {printable(source)} came, and no end")
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
                _connect_anew(self._program, self._name, self._serial, self._mend)
                found = self._program.settled(self._serial, wait=True)
                if any(one.serial == self._serial for one in found):
                    break
        else:
            if not started:
                if any(one.state == "offline" for one in self._program.attached() if one.serial == self._serial):
                    self._program.call("reconnect", serial=self._serial)
                self._program.call("wait-for-device", serial=self._serial, timeout_s=WAIT_S)
            found = self._program.settled(self._serial, wait=True)
        choose(found, self._address, self._serial, self._mend)
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
        deadline = time.monotonic() + ANSWER_S
        channel = self.open(command)
        try:
            channel.end_input()
            while (chunk := channel.read(max(0.0, deadline - time.monotonic()))) is not None:
                answer += chunk.data if chunk.stream is Stream.STDOUT else b""
                if len(answer) > TALK_BYTES:
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError
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


def _wanted(address: Address, environment: Mapping[str, str]) -> tuple[str | None, str]:
    """The serial that the options or the environment ask for, and what to do where no device has it."""
    options = address.options
    serial, host = options.get("serial"), options.get("host")
    if host is None and "port" in options:
        raise InvalidValue("[adb] port: expected host beside it")
    if host is not None:
        if serial is not None:
            raise InvalidValue("[adb]: expected serial, or host and port, got both")
        place = place_of(str(host), int(options.get("port", DEFAULT_PORT)))
        return place, address.mend("another host under [adb]", "another --adb HOST:PORT")
    if not serial and (asked := environment.get("ANDROID_SERIAL")):
        return checked_word("ANDROID_SERIAL", asked), _UNSET_SERIAL
    wanted = checked_word("[adb] serial", str(serial)) if serial else None
    return wanted, address.mend("another serial under [adb]", "another --adb SERIAL")


def _attach(program: AdbProgram, name: str, serial: str, mend: str) -> None:
    """``_connect_anew``; a place that adb did not list before is taken off its list again where nobody answers.

    adb would list it as offline from then on, beside the device that is meant.
    """
    with contextlib.ExitStack() as undone:
        if all(one.serial != serial for one in program.attached()):
            undone.callback(program.call, "disconnect", serial)
        _connect_anew(program, name, serial, mend)
        undone.pop_all()


def _connect_anew(program: AdbProgram, name: str, serial: str, mend: str) -> None:
    # adb says of a device that it lost that it is connected already, and leaves it offline.
    if any(one.serial == serial and not one.ready for one in program.attached()):
        program.call("disconnect", serial)
    try:
        program.connect(serial)
    except DeviceUnreachable as error:
        raise DeviceUnreachable(f"device {name!r}: {error}. Or {mend}") from error


def _warn_of_network(name: str, serial: str) -> None:
    if serial not in _warned and not is_loopback(serial):
        _warned.add(serial)
        log.warning(
            "device %r: adb over TCP (%s) asks nobody who they are unless it was paired: whoever reaches that port has "
            "a shell on the device. Use a network of your own, or a cable",
            name,
            serial,
        )


def _listed(found: Iterable[Attached]) -> str:
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
