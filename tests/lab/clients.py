"""The real programs that lab devices are tested with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hwbench.testing import lab
from hwbench.workspace import Workspace

LIMIT_S = 60


def ssh(
    board: lab.VirtualBoard, command: str, *, stdin: str = "", identity: Path | None = None
) -> subprocess.CompletedProcess[str]:
    words = ["ssh", *_options(board, identity), "-p", str(board.options["port"]), _place(board), command]
    return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=LIMIT_S)


def sftp(board: lab.VirtualBoard, folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    batch = folder / "batch"
    batch.write_text("".join(f"{line}\n" for line in lines))
    words = ["sftp", *_options(board), "-P", str(board.options["port"]), "-b", str(batch), _place(board)]
    return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)


def adb(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(["adb", *words], input=stdin, capture_output=True, text=True, timeout=LIMIT_S)


def adb_on(phone: lab.VirtualPhone, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return adb("-s", phone.serial, *words, stdin=stdin)


def command(workspace: Workspace, *words: str) -> subprocess.Popen[str]:
    """A process of its own, as a user starts it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "hwbench", *words],
        cwd=workspace.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """Status, what was printed as JSON, and what was said, of such a process."""
    with process:
        out, err = process.communicate(timeout=900)
    assert "Traceback" not in err
    return process.returncode, json.loads(out) if out else {}, err


def _place(board: lab.VirtualBoard) -> str:
    return f"{board.options['user']}@{board.options['host']}"


def _options(board: lab.VirtualBoard, identity: Path | None = None) -> list[str]:
    said = {
        "UserKnownHostsFile": board.options["known_hosts"],
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": "10",
    }
    words = [word for name, value in said.items() for word in ("-o", f"{name}={value}")]
    return ["-F", "none", "-i", str(identity or board.options["identity"]), *words]


def run(device: lab.LabDevice, command: str) -> subprocess.CompletedProcess[str]:
    """A command through the device's own way in."""
    return ssh(device, command) if isinstance(device, lab.VirtualBoard) else adb_on(_phone(device), "shell", command)


def push(device: lab.LabDevice, source: Path, target: str) -> subprocess.CompletedProcess[str]:
    """A file through the device's own way in."""
    if isinstance(device, lab.VirtualBoard):
        return sftp(device, source.parent, f"put {source} {target}")
    return adb_on(_phone(device), "push", str(source), target)


def pull(device: lab.LabDevice, source: str, target: Path) -> subprocess.CompletedProcess[str]:
    """A file through the device's own way in."""
    if isinstance(device, lab.VirtualBoard):
        return sftp(device, target.parent, f"get {source} {target}")
    return adb_on(_phone(device), "pull", source, str(target))


def attach_anew(device: lab.LabDevice) -> None:
    """After a connection was lost: an adb server keeps a device as offline until it is told to connect again."""
    if isinstance(device, lab.VirtualPhone):
        device.disconnect()
        device.connect()


def _phone(device: lab.LabDevice) -> lab.VirtualPhone:
    assert isinstance(device, lab.VirtualPhone)
    return device
