"""Tables that were taken under other conditions than those under which a device is measured now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwbench.errors import NotMeasured
from hwbench.latency import LatencyTable, load_table, table_path
from hwbench.latency.changes import differing_conditions

if TYPE_CHECKING:
    from hwbench.api.listener import Listener
    from hwbench.measure.campaign import Campaign
    from hwbench.specs import Precision
    from hwbench.workspace import Workspace


@dataclass(frozen=True)
class OtherConditions:
    """How a table was taken otherwise than the device is measured now.

    Args:
        words: What differs, by name where the store knows the conditions of the table, else by their digests.
        conditions: ``stock`` or ``controlled``, as the table was taken, where the device is measured in the other way
            now and nothing but that differs; empty: it is no answer, or not known.
        device: Name of the device.
    """

    words: str
    conditions: str
    device: str

    @property
    def in_file(self) -> str:
        """What to write so that the device is measured as the table was; empty where that is no answer."""
        return self.conditions and f'write conditions = "{self.conditions}" in profiles/{self.device}/device.toml'


def other_conditions(campaign: Campaign, table: LatencyTable) -> OtherConditions | None:
    """How a table was taken otherwise than the campaign measures; None: alike, or it has no latency."""
    from hwbench.devices import Conditions
    from hwbench.devices.control import SET_BY_CONTROL

    if table.conditions in ("", campaign.fingerprint):
        return None
    device, before = table.target.device, campaign.store.conditions_of(table.conditions)
    if before is None:
        return OtherConditions(f"{table.conditions}, now {campaign.fingerprint}", "", device)
    # A device that is left as it is has no such key.
    then, now = ({"conditions": Conditions.STOCK.value} | dict(one) for one in (before, campaign.conditions))
    apart = {name for name in {*then, *now} if then.get(name) != now.get(name)}
    turned = then["conditions"] if "conditions" in apart and apart <= SET_BY_CONTROL else ""
    return OtherConditions(differing_conditions(then, now), turned, device)


def tell_rows_left_behind(
    workspace: Workspace, campaign: Campaign, precisions: Sequence[Precision], variant: str, listener: Listener
) -> None:
    """Says so where a profile is about to measure beside tables of other conditions, whose rows it does not join.

    Args:
        workspace: Has the tables; one that is not there is passed over.
        campaign: What is about to be measured in.
        precisions: Of the tables.
        variant: ``stream``: the tables of new frames.
        listener: Hears of each table.
    """
    for precision in precisions:
        path = table_path(workspace.root, campaign.target, precision, variant)
        if path.is_file() and (other := other_conditions(campaign, LatencyTable.read(path))):
            kept = f"; to go on with them, add --conditions {other.conditions}, or {other.in_file}"
            listener.say(
                f"{path.name} was measured under other conditions ({other.words}): new rows take the place of its "
                f"rows{kept if other.conditions else ''}"
            )


def tell_other_conditions(
    workspace: Workspace, campaign: Campaign, forms: Collection[tuple[Precision, str]], listener: Listener
) -> None:
    """Says so where networks are measured beside a table of other conditions, as of another machine of that name.

    Args:
        workspace: Has the tables.
        campaign: What the networks are measured in.
        forms: Precisions and variants whose tables are meant; one that is not there is passed over.
        listener: Hears of each table.
    """
    for precision, variant in sorted(forms):
        try:
            table = load_table(workspace, campaign.target, precision, variant=variant)
        except NotMeasured:
            continue
        if other := other_conditions(campaign, table):
            mend = other.in_file or f"measure a table of your own: {table.command()}"
            listener.say(
                f"the table of {table.target} in {precision} was measured under other conditions ({other.words}), of "
                f"which its predictions hold: {mend}"
            )
