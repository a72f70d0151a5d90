"""Tables that were taken under other conditions than those under which a device is measured now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwbench.latency import LatencyTable, table_path
from hwbench.latency.changes import differing_conditions
from hwbench.specs import AUTO, STREAM

if TYPE_CHECKING:
    from hwbench.api.listener import Listener
    from hwbench.measure.campaign import Campaign
    from hwbench.specs import Workload
    from hwbench.workspace import Workspace


@dataclass(frozen=True)
class OtherConditions:
    """How a table was taken otherwise than the device is measured now.

    Args:
        words: What differs, by name where the store knows the conditions of the table, else by their digests.
        conditions: ``stock`` or ``controlled``, as the table was taken, where the device is measured in the other way
            now; empty: in the same way, or it is not known.
        device: Name of the device.
    """

    words: str
    conditions: str
    device: str

    @property
    def in_file(self) -> str:
        """What to write so that the device is measured as the table was."""
        return f'write conditions = "{self.conditions}" in profiles/{self.device}/device.toml'


def other_conditions(campaign: Campaign, table: LatencyTable) -> OtherConditions | None:
    """How a table was taken otherwise than the campaign measures; None: alike, or it has no latency."""
    from hwbench.devices import Conditions

    if table.conditions in ("", campaign.fingerprint):
        return None
    device, before = table.target.device, campaign.store.conditions_of(table.conditions)
    if before is None:
        return OtherConditions(f"{table.conditions}, now {campaign.fingerprint}", "", device)
    # A device that is left as it is has no such key.
    then, now = ({"conditions": Conditions.STOCK.value} | dict(one) for one in (before, campaign.conditions))
    turned = then["conditions"] if then["conditions"] != now["conditions"] else ""
    return OtherConditions(differing_conditions(then, now), turned, device)


def tell_other_conditions(
    workspace: Workspace, campaign: Campaign, workloads: Collection[Workload], listener: Listener
) -> None:
    """Says so where networks are measured under ``stock`` beside a table of ``controlled``, or the other way round."""
    kinds = {(w.precision, STREAM if w.variant == STREAM else AUTO) for w in workloads}
    paths = (table_path(workspace.root, campaign.target, *kind) for kind in sorted(kinds))
    for path in filter(lambda path: path.is_file(), paths):
        other = other_conditions(campaign, LatencyTable.read(path))
        if other is not None and other.conditions:
            listener.say(
                f"{path.name} was taken under {other.conditions} conditions, and networks are measured under others "
                f"now ({other.words}), of which its predictions tell nothing; {other.in_file}"
            )
