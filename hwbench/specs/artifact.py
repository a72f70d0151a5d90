"""A built file, and how much of it the delegate took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hwbench.specs.workload import Workload


@dataclass(frozen=True)
class DelegationReport:
    """How a graph was split: number of delegates, and the operations left outside them (name -> count)."""

    delegates: int
    undelegated: Mapping[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """One delegate and nothing outside it."""
        return self.delegates == 1 and not self.undelegated


@dataclass(frozen=True)
class Artifact:
    """A file that a runtime can run, made from a workload.

    Attributes:
        sha256: Digest of the file itself.
        states: Of a stream, the type of numbers of each state in the order of inputs: ``float32``,
            ``float16`` or ``int8``.
    """

    path: Path
    sha256: str
    workload: Workload
    runtime: str
    version: str
    delegation: DelegationReport
    states: tuple[str, ...] = ()
