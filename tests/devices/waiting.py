"""What tests wait for: a process that ends, a condition that comes true."""

import time
from pathlib import Path


def alive(pid):
    """Neither gone nor a zombie that nobody waits for."""
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, limit_s=20.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
