"""How the work on many files tells a listener where it is."""

from __future__ import annotations

import time
from collections.abc import Callable

from hwbench.api.listener import Listener, StageProgress
from hwbench.units import format_rate


def stage_reporter(listener: Listener) -> Callable[[str, int, int], None]:
    """A function of stage, files done and files in all that tells a listener of them, with the rate."""
    began: dict[str, tuple[float, int]] = {}

    def report(stage: str, done: int, total: int) -> None:
        started, before = began.setdefault(stage, (time.monotonic(), done))
        rate = format_rate(done - before, time.monotonic() - started) if done > before else ""
        listener.progress(StageProgress(stage, done, total, rate))

    return report
