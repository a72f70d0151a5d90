"""The ``adb`` program: calls with a time limit, what is attached, and for each state the sentence that mends it.

adb is two programs, a client for each call and a server that stays and holds the devices. The server is shared with
everything else on this machine that uses adb, so it is started where it is missing and never stopped.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from hwbench.devices.base import CommandResult
from hwbench.errors import DeviceUnreachable, InvalidValue
from hwbench.printable import printable, printable_lines

log = logging.getLogger(__name__)

# A call that only asks the server takes milliseconds; a server on a busy machine takes seconds to start.
CALL_S, START_S = 10.0, 20.0
# Until adb has authorised and opened what it has just found.
SETTLE_S = 5.0
POLL_S = 0.1
DEFAULT_PORT = 5555
MAX_WORDS = 300  # of what adb says, in a message
MAX_ANSWER_BYTES = 1 << 20  # of a call; a list of a hundred devices has 10 KB

READY = "device"
_PASSING = ("offline", "authorizing", "connecting")
_STATES = (
    "no permissions",
    READY,
    "offline",
    "unauthorized",
    "authorizing",
    "connecting",
    "bootloader",
    "recovery",
    "rescue",
    "sideload",
    "host",
    "detached",
    "unknown",
)
_LINE = re.compile(rf"(?P<serial>\S.*?)\s+(?P<state>{'|'.join(_STATES)})\b(?P<why>.*?)(?P<rest>( [a-z_]+:\S+)*)\s*")
# What goes behind -s or connect: one word that cannot be taken for an option.
_WORD = re.compile(r"[!-,.-~][!-~]*")
_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:]+):(?P<port>\d+)")
_VERSIONS = re.compile(r"adb server version \((\d+)\) doesn't match this client \((\d+)\)")

_MISSING = (
    "the adb program is not installed; install it: sudo apt-get install adb (Debian, Ubuntu), "
    "brew install --cask android-platform-tools (macOS), winget install Google.PlatformTools (Windows)"
)
_MEND = {
    "no permissions": (
        "this user may not open its USB device: sudo apt-get install android-sdk-platform-tools-common (the udev "
        "rules), sudo usermod -aG plugdev $USER, log in again and plug it in again; a server that runs already keeps "
        "its rights: adb kill-server"
    ),
    "unauthorized": (
        'it has not allowed this computer: unlock it and accept the dialog "Allow USB debugging?"; where none comes, '
        "plug it in again, or revoke the USB debugging authorisations in its developer options; a virtual one allows "
        "the keys of ~/.android and ADB_VENDOR_KEYS: where adb's server was started with others, adb kill-server"
    ),
    "authorizing": 'it is asking: unlock it and accept the dialog "Allow USB debugging?"',
    "connecting": "it is still connecting; try again in a few seconds, or plug it in again",
    "offline": "it does not answer: unlock it, plug it in again, or: adb reconnect offline",
    "bootloader": "it is in its bootloader; start Android: fastboot reboot",
    "recovery": "it is in recovery mode; start Android: adb reboot",
    "rescue": "it is in rescue mode; start Android: adb reboot",
    "sideload": "it waits for an update (sideload); start Android: adb reboot",
}


@dataclass(frozen=True)
class Attached:
    """A device as adb lists it.

    Args:
        serial: What adb calls it; for a device over TCP its address.
        state: ``device`` when it can be used; else ``offline``, ``unauthorized``, ``no permissions``, ...
        model: Where adb knows it, with ``_`` for everything but letters and digits.
        way: ``usb``, ``tcp`` or ``emulator``.
    """

    serial: str
    state: str
    model: str
    way: str

    @property
    def ready(self) -> bool:
        """It can be used now."""
        return self.state == READY

    @property
    def usable_serial(self) -> bool:
        """It can be named to adb: one word that is no option."""
        return bool(_WORD.fullmatch(self.serial))

    @property
    def is_silent_place(self) -> bool:
        """It is a place in the network where nobody answers; there may be no device at all."""
        return self.way == "tcp" and self.state == "offline"

    @property
    def mend(self) -> str:
        """What to do about its state; empty when it is ready."""
        if self.ready:
            return ""
        if self.is_silent_place and self.usable_serial:
            return (
                "nobody answers there: unlock the device and bring it into this network, or take the place off adb's "
                f"list: adb disconnect {self.serial}"
            )
        known = next((state for state in _MEND if self.state.startswith(state)), "")
        return _MEND.get(known, f"its state is {self.state!r}: plug it in again, or: adb reconnect")

    def __str__(self) -> str:
        model = f", {self.model}" if self.model else ""
        return f"{self.serial} ({self.state}{model})"


def attached() -> tuple[Attached, ...]:
    """What the adb program of this machine sees, ready or not; starts adb's server where it is not running.

    Raises:
        DeviceUnreachable: adb is not installed, or its server does not start.
    """
    program = AdbProgram()
    program.start()
    return program.attached()


def checked_word(what: str, text: str) -> str:
    """Returns a serial or host that can be given to adb.

    Raises:
        InvalidValue: It has blanks or control characters, or begins as an option does.
    """
    if not _WORD.fullmatch(text):
        raise InvalidValue(f"{what}: expected one word that does not begin with '-', got {text!r}; see: adb devices")
    return text


def place_of(host: str, port: int = DEFAULT_PORT) -> str:
    """What adb calls the device at this place of the network."""
    checked_word("[adb] host", host)
    if not 0 < port < 65536:
        raise InvalidValue(f"[adb] port: expected 1 to 65535, got {port}; adb over TCP listens on {DEFAULT_PORT}")
    bare = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if bare else f"{host}:{port}"


def is_address(serial: str) -> bool:
    """It is a place in the network, so that ``connect`` applies."""
    return bool(_ADDRESS.fullmatch(serial))


def is_loopback(serial: str) -> bool:
    """It is an address of this machine."""
    match = _ADDRESS.fullmatch(serial)
    host = match["host"].strip("[]") if match else ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


# What adb says where the server that was there ends while it is asked; a moment later a new one starts.
_DYING = "protocol fault"
_DYING_PAUSES_S = (0.2, 0.5, 1.0)


class AdbProgram:
    """Calls of the adb program; nothing here goes through a shell of this machine."""

    def __init__(self, program: str = "adb") -> None:
        self._program = program

    def start(self) -> bool:
        """Makes sure that adb's server runs; true if it had to be started, so that it may not have found all yet.

        Raises:
            DeviceUnreachable: adb is not installed, or its server does not start.
        """
        result = self.call("start-server", timeout_s=START_S)
        for pause_s in _DYING_PAUSES_S:
            if result.ok or _DYING not in f"{result.stdout}{result.stderr}":
                break
            time.sleep(pause_s)
            result = self.call("start-server", timeout_s=START_S)
        said = printable_lines(f"{result.stdout}\n{result.stderr}")
        if result.timed_out:
            raise DeviceUnreachable(
                f"adb's server does not answer within {START_S:g} s on {server_place()}: another program may hold that "
                "place; end it (adb kill-server), or choose another one: ANDROID_ADB_SERVER_PORT=5038"
            )
        if not result.ok:
            raise DeviceUnreachable(
                f"adb's server does not start on {server_place()}: {words(said)}; "
                "end what holds that place, or choose another one: ANDROID_ADB_SERVER_PORT=5038"
            )
        if match := _VERSIONS.search(said):
            log.warning(
                "another adb was running (protocol %s, this one has %s); adb has ended it and started its own. The "
                "programs that use the other one (Android Studio, scrcpy) will do the same to this one: put one adb "
                "first on PATH for all of them",
                *match.groups(),
            )
        return "daemon started" in said

    def attached(self) -> tuple[Attached, ...]:
        """What the server sees, ready or not.

        Raises:
            DeviceUnreachable: The server does not answer.
        """
        result = self.call("devices", "-l")
        if not result.ok:
            said = "it does not answer" if result.timed_out else words(result.stderr or result.stdout)
            raise DeviceUnreachable(f"adb cannot list what is attached: {said}; start it anew: adb kill-server")
        return parse_list(result.stdout)

    def settled(self, serial: str | None, *, wait: bool) -> tuple[Attached, ...]:
        """What is attached, once nothing of it is on its way to another state, or after ``SETTLE_S``.

        Args:
            serial: Only this one is waited for; None: all.
            wait: Also wait for one to appear.
        """
        deadline = time.monotonic() + SETTLE_S
        while True:
            found = self.attached()
            meant = [one for one in found if serial in (None, one.serial)]
            settled = all(one.state not in _PASSING for one in meant) and (bool(meant) or not wait)
            if settled or time.monotonic() > deadline:
                return found
            time.sleep(POLL_S)

    def connect(self, place: str) -> None:
        """Connects to a device over TCP; one that is connected already is left as it is.

        Raises:
            DeviceUnreachable: Nobody answers there.
        """
        result = self.call("connect", place)
        said = words(f"{result.stdout} {result.stderr}")
        # adb's status is 0 also where it failed.
        if result.timed_out or not re.search(r"\bconnected to |failed to authenticate", said):
            why = f"no answer within {CALL_S:g} s" if result.timed_out else said
            raise DeviceUnreachable(
                f"adb cannot connect to {place}: {why}; is the device on, in this network, and does it listen there? "
                f"With a cable: adb tcpip {DEFAULT_PORT}; Android 11 and newer: adb pair HOST:PAIRING_PORT first, then "
                'the other port of its page "Wireless debugging", which changes at each start'
            )

    def features(self, serial: str) -> frozenset[str]:
        """What both adb and the device's adbd can do; empty where the device did not answer."""
        result = self.call("features", serial=serial)
        return frozenset(result.stdout.split()) if result.ok else frozenset()

    def call(self, *arguments: str, serial: str | None = None, timeout_s: float = CALL_S) -> CommandResult:
        """Runs adb to its end, at most ``timeout_s``; of what it says, at most ``MAX_ANSWER_BYTES`` of each stream.

        Raises:
            DeviceUnreachable: adb is not installed.
        """
        # Files, not pipes: a server that this call starts may keep them open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.popen(arguments, serial, subprocess.DEVNULL, out, err)
            timed_out = False
            try:
                timed_out = not _ends(process, timeout_s, (out, err))
            finally:
                process.kill()  # the client only: a server that it has just started has left its group
                process.wait()
            return CommandResult(process.returncode, _read(out), _read(err), timed_out)

    def popen(
        self,
        arguments: Sequence[str | bytes],
        serial: str | None,
        stdin: int | IO[bytes],
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
    ) -> subprocess.Popen[bytes]:
        """Starts adb; errors as ``call``."""
        device = () if serial is None else ("-s", checked_word("serial", serial))
        try:
            return subprocess.Popen(
                [self._program, *device, *arguments],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                # A session of its own: Ctrl-C at the terminal reaches neither it nor the server it may start.
                start_new_session=True,
                env=environment(os.environ),
            )
        except FileNotFoundError:
            raise DeviceUnreachable(_MISSING) from None
        except OSError as error:
            raise DeviceUnreachable(f"the adb program cannot be started: {error.strerror}; try: adb version") from error


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """For adb: what a command there gets as TERM is part of adb's request; ANDROID_SERIAL is read by us."""
    return {name: value for name, value in given.items() if name != "ANDROID_SERIAL"} | {"TERM": "dumb"}


def server_place() -> str:
    """Where adb looks for its server."""
    port = os.environ.get("ANDROID_ADB_SERVER_PORT", "5037")
    return printable(os.environ.get("ADB_SERVER_SOCKET", f"tcp:localhost:{port}"))


def parse_list(text: str) -> tuple[Attached, ...]:
    """Reads what ``adb devices -l`` prints. It is data: of a serial that moves a cursor nothing is left that does."""
    lines = [printable(line) for line in text.split("\n")]
    matches = [_LINE.fullmatch(line) for line in lines if not line.startswith(("List of devices", "*"))]
    return tuple(_attached(match) for match in matches if match)


def words(text: str) -> str:
    """What adb says, in one line: without its prefixes and its talk about its server."""
    lines = (line for line in text.split("\n") if line.strip() and not line.startswith("* daemon"))
    said = printable(" ".join(re.sub(r"^(adb: |error: )+", "", line) for line in lines), MAX_WORDS)
    return said.rstrip(".") or "adb does not say why"


def _attached(match: re.Match[str]) -> Attached:
    serial = match["serial"]
    details = dict(word.split(":", 1) for word in match["rest"].split())
    emulator = re.fullmatch(r"emulator-\d+", serial)
    tcp = is_address(serial) or "._adb" in serial
    way = "emulator" if emulator else "tcp" if tcp and "usb" not in details else "usb"
    return Attached(serial, match["state"], details.get("model", ""), way)


def _ends(process: subprocess.Popen[bytes], timeout_s: float, outputs: Sequence[IO[bytes]]) -> bool:
    """Whether it ends in this time, without filling the disk: some of what it says comes from a device."""
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        try:
            process.wait(max(0.0, min(POLL_S, left_s)))
        except subprocess.TimeoutExpired:
            if left_s <= 0 or any(os.fstat(file.fileno()).st_size > MAX_ANSWER_BYTES for file in outputs):
                return False
        else:
            return True


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_ANSWER_BYTES).decode(errors="replace")
