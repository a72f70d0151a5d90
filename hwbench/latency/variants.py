"""Which layout of convolutions over time is fastest for a network, by the rows of its blocks.

Only blocks with a kernel over time and space have variants. A row of such a block differs between variants by the
convolution alone, so that rows of single blocks decide, boundaries and all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hwbench.latency.table import LatencyTable
from hwbench.specs import AUTO, Workload


@dataclass(frozen=True)
class VariantChoice:
    """A variant for all convolutions of a network, and what the choice rests on.

    Attributes:
        variant: The fastest, or ``auto``, the built-in choice, where rows decide nothing.
        seconds: Of the blocks that have variants, by variant; only variants with a row for each of them.
    """

    variant: str
    seconds: Mapping[str, float]

    @property
    def measured(self) -> bool:
        """Whether at least two variants were compared."""
        return len(self.seconds) > 1


def has_variants(part: Workload) -> bool:
    """Whether the layout makes a difference to a single block: a kernel over time and space, and several frames."""
    (block,) = part.blocks
    return part.input.t > 1 and any(t > 1 and h * w > 1 for t, h, w in block.kernel)


def variant_rows(parts: Iterable[Workload], variants: Sequence[str]) -> list[Workload]:
    """What to measure so that variants can be compared: every single block that has variants, in each."""
    return [replace(part, variant=v) for part in parts if has_variants(part) for v in variants]


def fastest_variant(table: LatencyTable, network: Workload) -> VariantChoice:
    """The variant with the smallest sum of rows over the blocks of a network that have variants."""
    parts = [part for part in network.parts() if has_variants(part)]
    known = dict.fromkeys([AUTO, *(row.workload.variant for row in table)])
    seconds = {}
    for variant in known:
        rows = [table.latency(replace(part, variant=variant)) for part in parts]
        if parts and None not in rows:
            seconds[variant] = sum(row.median_s for row in rows if row is not None)
    # where a named variant does as well as the built-in choice, the latter keeps the keys of rows and files
    best = min(seconds, key=lambda variant: (seconds[variant], variant != AUTO), default=AUTO)
    return VariantChoice(best, seconds)
