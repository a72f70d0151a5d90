"""Runs the Python of a page. A program of its own: it loads torch once and forks for each page.

A request is one line of JSON: ``cwd``, ``page``, ``blocks`` (line and text), ``files`` (TOML files to read when the
blocks have run). The answer is one line: the exit status. stdout and stderr of a page lie beside ``cwd``.
"""

import json
import os
import signal
import sys
import traceback
import types
from pathlib import Path

LIMIT_S = 600


def serve() -> None:
    import torch  # noqa: F401  # what every page would load

    import hwbench.deploy
    import hwbench.models
    import hwbench.studies.study  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(request: dict) -> None:
    """Runs a page in this process and ends it."""
    cwd, status = Path(request["cwd"]), 1
    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(f"{cwd}{suffix}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(cwd)
    sys.path.insert(0, str(cwd))
    signal.alarm(LIMIT_S)
    module = types.ModuleType("page")
    sys.modules["page"] = module
    try:
        for line, text in request["blocks"]:
            exec(compile("\n" * line + text, request["page"], "exec"), vars(module))
        for path in request["files"]:
            read(cwd, Path(path))
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def read(root: Path, path: Path) -> None:
    """Reads a TOML file of a workspace as hwbench does; raises what hwbench raises."""
    from hwbench.devices.device import read_device
    from hwbench.spaces import load_space
    from hwbench.spaces.cards import load_card
    from hwbench.workspace import Workspace

    if path.parts[0] == "search_spaces":
        load_space(Workspace(root), path.stem)
    elif path.parts[0] == "zoo":
        load_card(Workspace(root), path.parts[1])
    else:
        assert path.parts[0] == "profiles", path
        read_device(root / path)


if __name__ == "__main__":
    serve()
