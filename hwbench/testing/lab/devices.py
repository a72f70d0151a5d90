"""Lab devices with their way in and their faults: a board behind sshd, a phone behind adbd.

    with ssh_board() as board:
        board.write_device_file(workspace, "lab")
        ...
        board.network.drop()

Each fault is one call here, on ``machine`` (heat, battery, load, properties) or on ``network`` (drop, stall, delay).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

from hwbench.devices.laboratory import requirements
from hwbench.errors import DeviceError, MissingDependency
from hwbench.testing.lab.adb_server import Adbd, AdbServer
from hwbench.testing.lab.folders import make_folder, sweep
from hwbench.testing.lab.hardware import CORTEX_A76, Processor
from hwbench.testing.lab.machine import VirtualMachine
from hwbench.testing.lab.network import VirtualNetwork
from hwbench.testing.lab.processes import HOST
from hwbench.testing.lab.root import Flavour
from hwbench.testing.lab.sshd import Sshd

BALLAST = "ballast"
_ATTACH_S = 10.0
_POLL_S = 0.02


class LabDevice(ABC):
    """What board and phone have in common."""

    transport_name: str
    machine: VirtualMachine
    network: VirtualNetwork

    @property
    @abstractmethod
    def options(self) -> dict[str, str | int]:
        """The table of its transport in a device file."""

    @abstractmethod
    def start_server(self) -> None:
        """Starts sshd or adbd after ``kill_server``."""

    @abstractmethod
    def kill_server(self) -> None:
        """Kills sshd with its sessions, or adbd; commands on the device run on, new connections are closed at once."""

    @property
    def work_dir(self) -> str:
        """Where files of hwbench belong on it."""
        return f"{self.machine.flavour.temporary}/hwbench"

    def device_file(self, name: str) -> str:
        """The text of its ``device.toml``."""
        lines = ["schema = 1", f'name = "{name}"', f'description = "laboratory {self.machine.flavour.value}"']
        lines += [f'transport = "{self.transport_name}"', "emulated = true", f'work_dir = "{self.work_dir}"', ""]
        lines += [f"[{self.transport_name}]"]
        lines += [f"{key} = {value if isinstance(value, int) else _toml(value)}" for key, value in self.options.items()]
        return "\n".join(lines) + "\n"

    def write_device_file(self, workspace: Path, name: str) -> Path:
        """Writes ``profiles/NAME/device.toml`` below a workspace's root; returns its path."""
        path = workspace / "profiles" / name / "device.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.device_file(name))
        return path

    def processes(self) -> dict[int, str]:
        """What runs on it: command lines by process number."""
        return self.machine.processes()

    def pull_cable(self) -> None:
        """Connections end and none are taken until ``plug_in``."""
        self.network.disconnect()

    def plug_in(self) -> None:
        """Ends ``pull_cable``."""
        self.network.connect()

    def reboot(self, down_s: float = 0.0) -> None:
        """Ends every process, is not there for a while, and comes back with another boot id; files stay."""
        self.network.disconnect()
        self.kill_server()
        self.machine.shut_down()
        time.sleep(down_s)
        self.machine.start()
        self.start_server()
        self.network.connect()

    def fill_disk(self, left_bytes: int = 0) -> None:
        """Leaves so little room for files, rounded down to pages; ``free_disk`` ends it.

        Where we may not mount a disk for it, files that are sent find no room at all, and commands notice nothing.
        """
        disk = self.machine.disk
        if disk is None:
            self.machine.full.touch()
            return
        state = os.statvfs(disk)
        with (disk / BALLAST).open("ab") as ballast:
            size = ballast.tell() + state.f_bavail * state.f_frsize - left_bytes
            os.posix_fallocate(ballast.fileno(), 0, max(1, size))

    def free_disk(self) -> None:
        """Ends ``fill_disk``."""
        self.machine.full.unlink(missing_ok=True)
        if self.machine.disk is not None:
            (self.machine.disk / BALLAST).unlink(missing_ok=True)

    def deny_writes(self) -> None:
        """The folders below its work folder, and where that would be made, take no new files."""
        self._set_modes(0o555)

    def allow_writes(self) -> None:
        """Ends ``deny_writes``."""
        self._set_modes(0o755)

    def _set_modes(self, mode: int) -> None:
        work = self.machine.path(self.work_dir)
        folders = [Path(folder) for folder, _, _ in os.walk(work)] if work.is_dir() else []
        for folder in (work.parent, *folders):
            folder.chmod(mode)

    def kill_for_memory(self, part: str) -> int:
        """Kills the processes whose command line has this in it, as the kernel does when memory is short.

        Returns how many.
        """
        killed: set[int] = set()
        # Again until none is left: one that was just forked is seen late.
        while found := {pid for pid, line in self.processes().items() if part in line}:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed |= found
            time.sleep(0.01)
        return len(killed)


class VirtualBoard(LabDevice):
    """A Linux board behind OpenSSH."""

    transport_name = "ssh"

    def __init__(self, machine: VirtualMachine) -> None:
        self.machine = machine
        self.sshd = Sshd(machine.folder / "ssh", machine)
        self.network = VirtualNetwork(self.sshd.port)
        self.known_hosts = machine.folder / "known_hosts"
        self.known_hosts.touch()

    @property
    def options(self) -> dict[str, str | int]:
        return {
            "host": HOST,
            "port": self.network.port,
            "user": self.sshd.user,
            "identity": str(self.sshd.identity),
            "known_hosts": str(self.known_hosts),
        }

    @property
    def host_key(self) -> str:
        """Type and key, as they stand in a file of known hosts."""
        return self.sshd.host_key

    @property
    def fingerprint(self) -> str:
        """``SHA256:...`` of the host key."""
        return self.sshd.fingerprint

    def trust(self) -> None:
        """Writes its host key of now into ``known_hosts``, in place of any other."""
        self.known_hosts.write_text(self.sshd.known_hosts_line(self.network.port))

    def another_host_key(self) -> contextlib.AbstractContextManager[None]:
        """Another host key for new connections, and the old one again afterwards; ``known_hosts`` is left as it is."""
        return self.sshd.another_host_key()

    def start_server(self) -> None:
        self.sshd.start()

    def kill_server(self) -> None:
        self.sshd.kill()


class VirtualPhone(LabDevice):
    """An Android phone behind adbd, reached over the network as ``host:port``."""

    transport_name = "adb"

    def __init__(self, machine: VirtualMachine) -> None:
        self.machine = machine
        self.adbd = Adbd(machine.folder / "adbd", machine)
        self.network = VirtualNetwork(self.adbd.port)

    @property
    def serial(self) -> str:
        """What ``adb -s`` takes."""
        return f"{HOST}:{self.network.port}"

    @property
    def options(self) -> dict[str, str | int]:
        return {"host": HOST, "port": self.network.port}

    def start_server(self) -> None:
        self.adbd.start()

    def kill_server(self) -> None:
        self.adbd.kill()

    def connect(self) -> None:
        """Makes it known to the private adb server, as plugging in a cable does; returns once it is there.

        A phone that does not answer is given up after ``_ATTACH_S``, without an error: the next command tells.
        """
        deadline = time.monotonic() + _ATTACH_S
        while True:
            # Of a connection that is just coming down, adb says that it is connected already: so it is asked again.
            self._adb("connect", self.serial)
            if self._state() not in ("", "offline", "connecting", "authorizing") or time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)

    def disconnect(self) -> None:
        """The private adb server forgets it; returns once it has."""
        self._adb("disconnect", self.serial)
        deadline = time.monotonic() + _ATTACH_S
        while self._state() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _state(self) -> str:
        """What the adb server says of it; "" where it does not know it."""
        lines = (line.split("\t") for line in self._adb("devices").splitlines())
        return next((words[1].strip() for words in lines if len(words) == 2 and words[0] == self.serial), "")

    def _adb(self, *words: str) -> str:
        return subprocess.run(["adb", *words], check=False, capture_output=True, timeout=30, text=True).stdout


@contextlib.contextmanager
def ssh_board(
    *, trusted: bool = True, rooted: bool = False, processor: Processor = CORTEX_A76
) -> Iterator[VirtualBoard]:
    """A Linux board that is up, until the end of the block.

    Args:
        trusted: Its host key stands in the file that ``options`` names.
        rooted: Commands may write to governor and clocks.
        processor: What its commands run on.

    Raises:
        MissingDependency: What such a device needs is missing; says how to get it.
    """
    with _machine(Flavour.BOARD, {}, rooted=rooted, processor=processor) as machine:
        board = VirtualBoard(machine)
        if trusted:
            board.trust()
        with _serving(board):
            yield board


@contextlib.contextmanager
def jump_host() -> Iterator[Sshd]:
    """An SSH server that runs no commands and forwards connections, until the end of the block."""
    with _folder(VirtualBoard.transport_name) as folder:
        server = Sshd(folder / "jump", None)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def android_phone(
    *,
    serial: str = "HWLAB0001",
    properties: Mapping[str, str] | None = None,
    rooted: bool = False,
    authorised: bool = True,
    connected: bool = True,
) -> Iterator[VirtualPhone]:
    """An Android phone that is up, until the end of the block.

    Args:
        serial: ``ro.serialno``.
        properties: Values of ``getprop`` that differ from the usual ones.
        rooted: Commands may write to governor and clocks.
        authorised: It accepts this computer, that is the keys that this user's adb server has.
        connected: It is attached to a private adb server, which clients in this process use; else to none.

    Raises:
        MissingDependency: What such a device needs is missing; says how to get it.
    """
    told = {**(properties or {}), "ro.serialno": serial}
    with contextlib.ExitStack() as stack:
        if connected:
            stack.enter_context(adb_server())  # first: the phone allows its key
        phone = VirtualPhone(stack.enter_context(_machine(Flavour.PHONE, told, rooted=rooted)))
        if not authorised:
            phone.adbd.unauthorise()
        stack.enter_context(_serving(phone))
        if connected:
            stack.enter_context(_attached(phone))
        yield phone


_server_lock = threading.Lock()
_servers: list[AdbServer] = []


@contextlib.contextmanager
def adb_server() -> Iterator[AdbServer]:
    """A private adb server that clients in this process use until the end of the block; inside of another: that one.

    It is named in the environment of this process, since that is where the ``adb`` program looks.
    """
    with _server_lock:
        outer = _servers[-1] if _servers else None
    if outer is not None:
        yield outer
        return
    with _folder(VirtualPhone.transport_name) as folder:
        server = AdbServer(folder / "adb")
        before = {name: os.environ.get(name) for name in server.environment}
        server.start()
        os.environ.update(server.environment)
        _servers.append(server)
        try:
            yield server
        finally:
            _servers.remove(server)
            for name, value in before.items():
                os.environ.pop(name, None)
                os.environ.update({name: value} if value is not None else {})
            server.stop()


@contextlib.contextmanager
def _machine(
    flavour: Flavour, properties: Mapping[str, str], *, rooted: bool, processor: Processor = CORTEX_A76
) -> Iterator[VirtualMachine]:
    kind = VirtualPhone if flavour is Flavour.PHONE else VirtualBoard
    _check_requirements(kind.transport_name)
    machine = VirtualMachine(flavour, properties, rooted=rooted, processor=processor)
    try:
        machine.start()
        yield machine
    finally:
        machine.stop()


@contextlib.contextmanager
def _folder(over: str) -> Iterator[Path]:
    _check_requirements(over)
    folder = make_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_requirements(over: str) -> None:
    missing = requirements(over)
    if missing:
        raise MissingDependency("; ".join(missing))
    sweep()


@contextlib.contextmanager
def _serving(device: LabDevice) -> Iterator[None]:
    try:
        device.start_server()
        yield
    finally:
        device.network.close()
        device.kill_server()


@contextlib.contextmanager
def _attached(phone: VirtualPhone) -> Iterator[None]:
    phone.connect()
    try:
        yield
    finally:
        phone.disconnect()


def _toml(text: str) -> str:
    if any(character in text for character in '"\\\n'):
        raise DeviceError(f"{text!r} cannot stand in a device file")
    return f'"{text}"'
