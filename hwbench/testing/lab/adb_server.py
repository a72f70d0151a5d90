"""A private server of the ``adb`` program, and adbd of ours as a process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from hwbench.testing.lab import android, keys
from hwbench.testing.lab.adbd import Configuration
from hwbench.testing.lab.machine import VirtualMachine
from hwbench.testing.lab.needs import require
from hwbench.testing.lab.processes import HOST, free_port, kill_tree, launch, wait_until_listening
from hwbench.testing.lab.root import user_id

PORT_VARIABLE = "ANDROID_ADB_SERVER_PORT"
AUTHORISED = "adb_keys"


class AdbServer:
    """A server of its own port, keys and devices, so that a user's own server and phones are not touched.

    Clients use it where ``ANDROID_ADB_SERVER_PORT`` is its port.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._key = folder / ".android" / "adbkey"  # where a server looks for its own below its HOME
        keys.make_key(self._key)

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment, also one that starts a server in the place of this one."""
        return {PORT_VARIABLE: str(self.port), keys.VENDOR_KEYS: str(self._key)}

    def start(self) -> None:
        """Starts it; returns when it takes connections."""
        environment = {**os.environ, **self.environment, "HOME": str(self.folder), "ADB_USB": "0"}
        environment["ADB_MDNS_AUTO_CONNECT"] = "0"
        argv = [require("adb"), "-P", str(self.port), "nodaemon", "server"]
        self._process = launch(argv, self.folder, environment)
        wait_until_listening(self.port, self._process, self.folder)

    def kill(self) -> None:
        """Kills it; a client that finds none starts one by itself."""
        if self._process is not None:
            kill_tree(self._process)
            self._process = None

    def stop(self) -> None:
        """Ends it, and one that a client started in its place."""
        self.kill()
        with socket.socket() as tried:
            if tried.connect_ex((HOST, self.port)) == 0:
                argv = [require("adb"), "-P", str(self.port), "kill-server"]
                subprocess.run(argv, check=False, capture_output=True, timeout=30)


class Adbd:
    """adbd on a lab device. ``start`` and ``kill`` as often as one likes, on the same port.

    It serves computers with a key that was allowed, at first those of this user on this one.
    """

    def __init__(self, folder: Path, machine: VirtualMachine) -> None:
        folder.mkdir(mode=0o755)
        self.folder = folder
        self.port = free_port()
        self._machine = machine
        self._process: subprocess.Popen[bytes] | None = None
        self.authorise()

    def authorise(self) -> None:
        """Whoever sits at the phone allows this computer's keys of now; holds for connections made from now on."""
        (self.folder / AUTHORISED).write_text("".join(f"{key}\n" for key in keys.computer_keys()))

    def unauthorise(self) -> None:
        """Nobody allows it: the state of a phone whose dialogue waits."""
        (self.folder / AUTHORISED).unlink(missing_ok=True)

    def start(self) -> None:
        """Starts it; returns when it takes connections."""
        told = Configuration(
            root=str(self._machine.root),
            socket=self._machine.socket,
            user=user_id(),
            banner=_banner(android.read_properties(self._machine.root)),
            authorised=str(self.folder / AUTHORISED),
            faults=str(self._machine.faults),
        )
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, self.port))
            listener.listen(16)
            # -P: a folder called hwbench in the current one is not ours.
            python = [sys.executable, "-P", "-m", "hwbench.testing.lab.adbd"]
            argv = [*python, str(listener.fileno()), json.dumps(asdict(told))]
            self._process = launch(argv, self.folder, pass_fds=[listener.fileno()])

    def kill(self) -> None:
        """Kills it; what it started on the device runs on."""
        if self._process is not None:
            kill_tree(self._process)
            self._process = None


def _banner(properties: dict[str, str]) -> str:
    names = ("ro.product.name", "ro.product.model", "ro.product.device")
    # Without more features the other side keeps to version 1 of sync.
    shown = "".join(f"{name}={properties.get(name, '')};" for name in names)
    return f"device::{shown}features=shell_v2,cmd"
