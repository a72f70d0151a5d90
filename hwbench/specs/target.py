"""Where a number was taken: device, runtime and threads."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hwbench.errors import InvalidValue

# The device that hwbench runs on.
LOCAL = "local"


@dataclass(frozen=True, order=True)
class Target:
    """Device x runtime@version x threads, printed as ``s9/executorch-1.5.1/t1``. Rows of two targets never mix."""

    device: str
    runtime: str
    version: str
    threads: int = 1

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise InvalidValue(f"target: threads must be at least 1, got {self.threads}")

    @property
    def key(self) -> str:
        return f"{self.device}/{self.runtime}-{self.version}/t{self.threads}"

    @classmethod
    def parse(cls, key: str) -> Target:
        """Reads what ``key`` prints."""
        parts = key.split("/")
        runtime, dash, version = parts[1].partition("-") if len(parts) == 3 else ("", "", "")
        if not dash or not re.fullmatch(r"t[0-9]{1,9}", parts[2]):
            raise InvalidValue(f"target: expected DEVICE/RUNTIME-VERSION/tTHREADS, got {key!r}")
        return cls(parts[0], runtime, version, int(parts[2][1:]))

    def __str__(self) -> str:
        return self.key
