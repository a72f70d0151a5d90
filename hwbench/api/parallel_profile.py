"""Profiling several devices at once: a process for each, so that one that is lost takes no other with it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hwbench.api.listener import Listener
from hwbench.api.requests import fields_of
from hwbench.errors import HwbenchError
from hwbench.interpreter import added_folders, python_environment, python_path, python_program
from hwbench.workspace import Workspace

# ``hwbench`` where modules of one more folder can be imported, after those of Python and of what is installed.
_MAIN = "import sys; sys.path.append(sys.argv[1]); from hwbench.cli.main import main; main(sys.argv[2:])"
# A line of a process for its listener; None: it says nothing more.
_Talk = queue.SimpleQueue[str | None]


def profile_each(
    devices: Sequence[str], request: object, root: Path, listener: Listener
) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """Runs ``hwbench profile`` for every device at the same time.

    Args:
        devices: Their names.
        request: The other options of the command.
        root: The workspace. The processes run in the current folder as far as it is in this workspace; else in its
            root. Modules of the current folder, where models of the user's own may lie, are found in either case, and
            so are those of folders that this process has added to ``sys.path``.
        listener: Hears what each process says, with the name of its device before it.

    Returns:
        By device what ``--json`` prints, of those that were profiled; and the exit status of each: 128 and its number
        where a signal ended the process.
    """
    arguments = arguments_of(request)
    folder = _folder(root)
    running = {name: _start(name, arguments, folder) for name in devices}
    talk: _Talk = queue.SimpleQueue()
    threads = [threading.Thread(target=_relay, args=(name, one, talk)) for name, one in running.items()]
    for thread in threads:
        thread.start()
    try:
        _pass_on(talk, len(threads), listener)
        printed = {name: one.stdout.read() if one.stdout else "" for name, one in running.items()}
        statuses = {name: _status(name, one, listener) for name, one in running.items()}
    finally:
        _end(list(running.values()), threads)
    values: dict[str, dict[str, Any]] = {}
    for name, text in printed.items():
        with contextlib.suppress(ValueError):  # what failed printed nothing
            values[name] = json.loads(text)
    return values, statuses


def arguments_of(request: object) -> list[str]:
    """The options of ``hwbench profile`` that stand for a request, but for its device."""
    arguments: list[str] = []
    for one in fields_of(type(request)):
        value = getattr(request, one.name)
        if one.name == "device" or value == one.default:
            continue
        if isinstance(value, bool):
            arguments.append(one.label if value else f"--no-{one.label.removeprefix('--')}")
        else:
            arguments += [one.label, str(value)]
    return arguments


def _folder(root: Path) -> Path:
    """The current folder, where the workspace around it is this one; else its root."""
    with contextlib.suppress(HwbenchError, OSError):
        if Workspace.find().root == root.resolve():
            return Path.cwd()
    return root


def _start(name: str, arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        python_program(_MAIN, os.getcwd(), "profile", "--device", name, *arguments, "--json"),
        env=python_environment({"PYTHONPATH": os.pathsep.join([python_path(), *added_folders()])}),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _status(name: str, process: subprocess.Popen[str], listener: Listener) -> int:
    """The exit status of a process, as a shell has it; one that a signal ended could not say so itself."""
    status = process.wait()
    if status >= 0:
        return status
    listener.say(f"[{name}] ended by signal {-status} ({signal.strsignal(-status)}); the same command goes on")
    return 128 - status


def _relay(name: str, process: subprocess.Popen[str], talk: _Talk) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip():
            talk.put(f"[{name}] {line.rstrip()}")
    talk.put(None)


def _pass_on(talk: _Talk, processes: int, listener: Listener) -> None:
    """Tells the listener, in the thread that asked, until no process says anything more."""
    while processes:
        line = talk.get()
        if line is None:
            processes -= 1
        else:
            listener.say(line)


def _end(processes: list[subprocess.Popen[str]], threads: list[threading.Thread]) -> None:
    """Ctrl-C at the terminal reached the processes too: they end by themselves, with everything measured kept."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        process.wait()
    for thread in threads:
        thread.join()
    for process in processes:
        with process:  # closes its pipes
            pass
