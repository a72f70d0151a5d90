"""A lab device without its way in: a root folder whose processes run under proot and qemu, and what may befall it.

``VirtualMachine`` is the hardware: it boots, heats up, fills its disk, goes down. ``sshd`` and ``adbd`` lead into it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from hwbench.errors import DeviceError
from hwbench.testing.lab import android, enter, hardware
from hwbench.testing.lab.folders import DISK, make_folder, remove_folder
from hwbench.testing.lab.needs import SFTP_SERVER, require
from hwbench.testing.lab.processes import end_watched, watched
from hwbench.testing.lab.root import INIT, SFTP_FAULTS, SFTP_PRELOAD, Flavour, make_root, user_id

# The default processor, `max`, computes wrong int8 results (SVE kernels); the release keeps fingerprints equal on all
# hosts.
QEMU = "qemu-aarch64-static -cpu {processor} -r 5.10.43-hwbench-lab"
DISK_BYTES = 256 << 20
BOOT_S = 30.0


class VirtualMachine:
    """A device of its own folder below the temporary folder; ``start`` boots it, ``stop`` removes it.

    Args:
        flavour: Board or phone.
        properties: For a phone: values of ``getprop`` that differ from the usual ones.
        rooted: Commands may write below /sys: governor, clocks.
        processor: What its commands run on.
    """

    def __init__(
        self,
        flavour: Flavour,
        properties: Mapping[str, str] | None = None,
        *,
        rooted: bool = False,
        processor: hardware.Processor = hardware.CORTEX_A76,
    ) -> None:
        self.folder = make_folder()
        self.flavour = flavour
        self.processor = processor
        self._rooted = rooted
        self.root = self.folder / "root"
        self.socket = str(self.folder / "init.sock")
        self.faults = self.folder / "faults"
        self.faults.mkdir(mode=0o755)
        self._proot: subprocess.Popen[bytes] | None = None
        self._mounted = False
        try:
            make_root(self.root, flavour, processor)
            if flavour is Flavour.PHONE:
                android.write_properties(self.root, properties or {})
            self._write_proc()
            self.set_temperature(hardware.CASE_CELSIUS)
            self.set_battery(percent=80, charging=True)
            self._own()
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        """Boots; returns when commands run. A boot has a new boot id.

        Raises:
            DeviceError: It does not come up.
        """
        hardware.write(self.folder / "proc/boot_id", str(uuid.uuid4()))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        log = self.folder / "proot.log"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, log.open("ab") as err:
            listener.bind(self.socket)
            os.chmod(self.socket, 0o600)
            os.chown(self.socket, user_id(), -1)
            listener.listen(64)
            pinned = ["taskset", "-c", ",".join(map(str, hardware.usable()))]
            # The first process takes the socket as descriptor 3.
            shell = ["sh", "-c", 'exec "$@" 3<&0 </dev/null', "sh"]
            self._proot = subprocess.Popen(
                [*pinned, *shell, *self._entry(qemu=True), INIT],
                stdin=listener.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=err,
                env=self._environment(),
                start_new_session=True,
            )
        if self.run("echo up", timeout_s=BOOT_S) != (0, "up\n"):
            raise DeviceError(f"the lab device does not boot: {(self.folder / 'proot.log').read_text()[-500:]}")

    def shut_down(self) -> None:
        """Ends every process in it at once, as when its power is cut."""
        if self._proot is None:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        end_watched(self._proot.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._proot.wait(1)
        self._proot.kill()
        self._proot.wait()
        self._proot = None

    def stop(self) -> None:
        """Ends it and removes its folder; calling it again does nothing."""
        self.shut_down()
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self._disk())], check=False, capture_output=True)
            self._mounted = False
        remove_folder(self.folder)

    @property
    def up(self) -> bool:
        """Whether it is booted."""
        return self._proot is not None

    @property
    def disk(self) -> Path | None:
        """Where its disk lies on the host, if it has one of its own: it is small and can be filled."""
        return self._disk() if self._mounted else None

    def processes(self) -> dict[int, str]:
        """What runs in it now beside its first process: command lines by process number."""
        found = {}
        for pid in self._traced():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                line = b" ".join(_guest(words)).decode(errors="replace").strip()
                if line and INIT not in line:
                    found[pid] = line
        return found

    def run(self, command: str, *, timeout_s: float = 30.0) -> tuple[int, str]:
        """Runs a line of shell in it, past every transport; gives exit status and stdout.

        Raises:
            DeviceError: It is down, or the command takes longer.
        """
        with tempfile.TemporaryFile() as out, open(os.devnull, "r+b") as null:
            deadline = time.monotonic() + timeout_s
            try:
                connection = enter.start(self.socket, command, (null.fileno(), out.fileno(), null.fileno()))
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                ended = enter.status(connection)
            except OSError as error:
                raise DeviceError(f"the lab device does not answer: {error}") from error
            if ended is None:
                raise DeviceError("the lab device went down")
            out.seek(0)
            return ended, out.read().decode(errors="replace")

    def path(self, path: str) -> Path:
        """Where an absolute path of the device lies on the host."""
        return self.root / path.lstrip("/")

    def sftp_server(self) -> list[str]:
        """The command that serves its files: the host's sftp-server, with the root as its only view."""
        libraries = _shared_libraries(SFTP_SERVER)
        shown = [str(SFTP_SERVER), *libraries, f"{self.faults}:{SFTP_FAULTS}"]
        binds = [word for path in shown for word in ("-b", path)]
        loader = next(path for path in libraries if Path(path).name.startswith("ld"))
        return [*self._entry(qemu=False), *binds, loader, "--preload", SFTP_PRELOAD, str(SFTP_SERVER)]

    @property
    def full(self) -> Path:
        """A fault: while this file exists, files that are sent find no room."""
        return self.faults / "full"

    def truncate_pushes(self, kept_bytes: int | None) -> None:
        """Files that are sent keep so many bytes, and are confirmed all the same; None ends it."""
        path = self.faults / "truncate"
        path.unlink(missing_ok=True)
        if kept_bytes is not None:
            path.write_text(str(kept_bytes))

    def set_temperature(self, celsius: float) -> None:
        """Of the case; the cores are a little warmer. Android's thermal status follows."""
        for number, above in enumerate(hardware.ZONES.values()):
            path = self.root / f"sys/class/thermal/thermal_zone{number}/temp"
            hardware.write(path, str(round((celsius + above) * 1000)))
        self._set_battery_value("temp", round(celsius * 10))

    def set_battery(self, *, percent: int, charging: bool) -> None:
        """Charge, and whether a charger is connected."""
        self._set_battery_value("capacity", percent)
        self._set_battery_value("status", "Charging" if charging else "Discharging")
        hardware.write(self.root / "sys/class/power_supply/usb/type", "USB")
        hardware.write(self.root / "sys/class/power_supply/usb/online", str(int(charging)))

    def set_load(self, average: float) -> None:
        """What /proc/loadavg says."""
        hardware.write(self.folder / "proc/loadavg", f"{average:.2f} {average:.2f} {average:.2f} 1/120 2000")

    def set_property(self, name: str, value: str) -> None:
        """Changes a value of ``getprop``, as an update of the firmware does."""
        android.write_properties(self.root, {name: value})

    def _set_battery_value(self, name: str, value: object) -> None:
        hardware.write(self.root / "sys/class/power_supply/battery" / name, str(value))

    def _write_proc(self) -> None:
        folder = self.folder / "proc"
        folder.mkdir(mode=0o755)
        (folder / "cpuinfo").write_text(hardware.cpuinfo(self.processor))
        (folder / "meminfo").write_text(hardware.meminfo())
        self.set_load(0.1)
        hardware.write(folder / "boot_id", "")

    def _own(self) -> None:
        """Makes the tree readable, gives what may be written to the device's user, and mounts a disk if we may."""
        written = {name for folder in self._written() for name in (folder, *folder.rglob("*"))}
        for name in (self.root, *self.root.rglob("*")):
            if not name.is_symlink():
                mode = name.stat().st_mode | (0o555 if name.is_dir() or os.access(name, os.X_OK) else 0o444)
                # Where we are the device's user ourselves, the mode alone keeps it from the rest.
                name.chmod(mode if name in written else mode & ~0o222)
        if os.geteuid() == 0:
            for name in written:
                os.chown(name, user_id(), user_id(), follow_symlinks=False)
            options = f"size={DISK_BYTES},uid={user_id()},gid={user_id()},mode=0771"
            argv = ["mount", "-t", "tmpfs", "-o", options, DISK, str(self._disk())]
            self._mounted = subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def _written(self) -> list[Path]:
        """Folders that commands may write to; the rest belongs to whoever runs the laboratory."""
        folders = [self._disk()]
        folders += [self.path(android.STATE)] if self.flavour is Flavour.PHONE else []
        return folders + ([self.root / "sys"] if self._rooted else [])

    def _disk(self) -> Path:
        return self.path(self.flavour.temporary)

    def _environment(self) -> dict[str, str]:
        temporary = self.flavour.temporary
        path = "/system/bin" if self.flavour is Flavour.PHONE else "/usr/bin:/bin:/sbin"
        # proot and qemu are found by their full path or on the host's own PATH.
        return {"PATH": f"{path}:/usr/bin:/bin", "HOME": temporary, "TMPDIR": temporary, "USER": "shell"}

    def _entry(self, *, qemu: bool) -> list[str]:
        """The words in front of a command that make it run in the root, as the device's user."""
        drop = []
        if os.geteuid() == 0:
            user = user_id()
            drop = [require("setpriv"), f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
        binds = [word for bind in self._binds() for word in ("-b", bind)]
        through = ["-q", QEMU.format(processor=self.processor.emulated)] if qemu else []
        return [*drop, require("proot"), "-r", str(self.root), *through, *binds, "-w", self.flavour.temporary]

    def _binds(self) -> list[str]:
        proc = self.folder / "proc"
        shown = {name: f"/proc/{name}" for name in ("cpuinfo", "meminfo", "loadavg")}
        shown["boot_id"] = "/proc/sys/kernel/random/boot_id"
        return ["/dev", "/proc", *(f"{proc / name}:{there}" for name, there in shown.items())]

    def _traced(self) -> list[int]:
        """The processes that our proot watches: all that were ever started in it and live."""
        return watched(self._proot.pid) if self._proot is not None else []


def _guest(words: Sequence[bytes]) -> Sequence[bytes]:
    """The words of a command inside qemu: after ``-0 NAME`` stands the program, then its arguments."""
    if b"-0" not in words:
        return words
    at = words.index(b"-0")
    return [words[at + 1], *words[at + 3 :]]


def _shared_libraries(program: Path) -> list[str]:
    listed = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True, timeout=30).stdout
    return [word for word in listed.split() if word.startswith("/")]
