"""What int8 gains over fp32, block by block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from hwbench.latency import LatencyTable, Role
from hwbench.reports.families import BlockFamily
from hwbench.specs import LatencyStats, Precision, Workload


@dataclass(frozen=True)
class Gain:
    """One workload in both precisions; ``workload`` is the one in int8."""

    workload: Workload
    fp32: LatencyStats
    int8: LatencyStats

    @property
    def ratio(self) -> float:
        """fp32 over int8: 2 says that int8 takes half the time; below 1 int8 is slower."""
        return self.fp32.median_s / self.int8.median_s

    @property
    def slower(self) -> bool:
        """int8 takes longer than fp32."""
        return self.ratio < 1

    @property
    def certain(self) -> bool:
        """The 95 % intervals of the two do not overlap."""
        return self.fp32.ci_high_s < self.int8.ci_low_s or self.int8.ci_high_s < self.fp32.ci_low_s


@dataclass(frozen=True)
class FamilyGain:
    """The gains of one family: median and ends of the ratios, how many, and how many of them are slower in int8."""

    family: BlockFamily
    median: float
    low: float
    high: float
    count: int
    slower: int


def gains(fp32: LatencyTable, int8: LatencyTable, role: Role = Role.BLOCK) -> list[Gain]:
    """The workloads of one role with a latency in both tables, the largest gain first."""
    found = []
    for row in int8.rows(role):
        other = fp32.latency(replace(row.workload, precision=Precision.FP32))
        if other is not None and row.stats is not None:
            found.append(Gain(row.workload, other, row.stats))
    return sorted(found, key=lambda gain: (-gain.ratio, gain.workload.key))


def by_family(found: Iterable[Gain]) -> list[FamilyGain]:
    """The gains of blocks put together by family, the largest median first."""
    grouped: dict[BlockFamily, list[Gain]] = {}
    for gain in found:
        grouped.setdefault(BlockFamily.of(gain.workload), []).append(gain)
    families = [_family_gain(family, several) for family, several in grouped.items()]
    return sorted(families, key=lambda f: (-f.median, f.family))


def _family_gain(family: BlockFamily, several: list[Gain]) -> FamilyGain:
    ratios = [gain.ratio for gain in several]
    slower = sum(gain.slower for gain in several)
    return FamilyGain(family, median(ratios), min(ratios), max(ratios), len(ratios), slower)
