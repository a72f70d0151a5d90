"""What tests wait for: a process that ends, a condition that comes true; and processes that heed signals, or do not."""

import signal
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


def heeding():
    """For ``preexec_fn``: signals end the process, although who started the tests may ignore them."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def in_the_background():
    """For ``preexec_fn``: what ``nohup command &`` in a script ignores, the process does."""
    heeding()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
