"""Profiling several devices at once: a process for each, so that one that is lost takes no other with it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from hwbench.cli.output import say
from hwbench.interpreter import python_command, python_environment


def profile_each(devices: Sequence[str], arguments: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """Runs ``hwbench profile`` for every device at the same time; their talk comes through with the name before it.

    Args:
        devices: Names of devices.
        arguments: The other options of the command.

    Returns:
        What each printed, in the order of the names (``device`` and ``status`` alone for one that failed), and the
        greatest of the exit statuses.
    """
    running = {name: _start(name, arguments) for name in devices}
    threads = [threading.Thread(target=_relay, args=(name, process)) for name, process in running.items()]
    for thread in threads:
        thread.start()
    try:
        printed = {name: process.stdout.read() if process.stdout else "" for name, process in running.items()}
        statuses = {name: process.wait() for name, process in running.items()}
    finally:
        # Ctrl-C at the terminal reached them too; they end by themselves, with everything measured kept.
        for process in running.values():
            if process.poll() is None:
                process.terminate()
        for process in running.values():
            process.wait()
        for thread in threads:
            thread.join()
        for process in running.values():
            with process:  # closes its pipes
                pass
    results: list[dict[str, Any]] = []
    for name in devices:
        values: Mapping[str, Any] = {"device": name}
        with contextlib.suppress(ValueError):
            values = json.loads(printed[name])
        results.append({**values, "status": statuses[name]})
    return results, max(abs(status) for status in statuses.values())


def _start(name: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        python_command("hwbench", "profile", "--device", name, *arguments, "--json"),
        env=python_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _relay(name: str, process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip():
            say(f"[{name}] {line.rstrip()}")
