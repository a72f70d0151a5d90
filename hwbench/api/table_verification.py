"""Whether the rows of a published latency table still hold, by measuring some of them anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.diff import changes_as_json, changes_frame, difference_notes
from hwbench.api.listener import SILENT, Listener
from hwbench.errors import CheckFailed, InvalidValue, NotMeasured

if TYPE_CHECKING:
    import pandas

    from hwbench.devices import Conditions, Device
    from hwbench.latency import LatencyTable, TableChanges
    from hwbench.measure.campaign import Campaign, CampaignResult
    from hwbench.workspace import Workspace

# An A/A figure above this hides what any choice between blocks depends on: nothing could be found to have moved.
TELLING = 0.05


@dataclass(frozen=True)
class TableVerification:
    """How a sample of a table's rows compares with what was measured now.

    Args:
        path: The table.
        device: Where the rows were measured.
        target: Key of the target that they were measured on.
        seed: Of the sample.
        sampled: Rows of the sample.
        measured: Rows of it that have a latency again.
        failed: Rows of it that have none.
        changes: Of the rows with a latency, from the table to now.
        notes: What else was not alike, in words.
        holds: Whether the table still holds.
        verdict: Why, in words.
        samples: The store of its own that has all samples.
        command: Measures the table anew.
    """

    path: Path
    device: str
    target: str
    seed: int
    sampled: int
    measured: int
    failed: int
    changes: TableChanges
    notes: tuple[str, ...]
    holds: bool
    verdict: str
    samples: Path
    command: str

    def summary(self) -> dict[str, Any]:
        """The keys of ``to_json`` but for the comparison of rows."""
        names = ("device", "target", "seed", "sampled", "measured", "failed", "agree", "holds", "verdict")
        values = {name: getattr(self, name) for name in names}
        return {"path": str(self.path), **values, "samples": str(self.samples)}

    @property
    def agree(self) -> int:
        """Number of rows that agree within their intervals."""
        return sum(row.agrees for row in self.changes.rows)

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench verify TABLE --json`` prints."""
        return {**self.summary(), **changes_as_json(self.changes, list(self.notes))}

    def to_frame(self) -> pandas.DataFrame:
        """One row for each row that was measured again: its table, then the keys of ``rows``."""
        return changes_frame({self.path.stem: self.changes})

    def check(self) -> None:
        """Raises CheckFailed where the table does not hold, or the device is too noisy to tell."""
        if not self.holds:
            raise CheckFailed(f"{self.path}: {self.verdict}. To measure it anew: {self.command} --remeasure")


def verify_table(
    workspace: Workspace,
    path: Path,
    *,
    device: str | None = None,
    rows: int = 20,
    seed: int = 0,
    conditions: Conditions | None = None,
    listener: Listener = SILENT,
) -> TableVerification:
    """Measures a sample of a table's rows on its device and compares.

    What is measured goes into a file of its own (``store_aside``): the table and the store that it was published from
    stay as they are.

    Args:
        workspace: Holds the device and the build cache.
        path: The table.
        device: Where to measure; default: the device of the table.
        rows: Size of the sample, spread over the latencies of the table.
        seed: Of the sample.
        conditions: Whether the knobs of the device are held; default: what the device file says.
        listener: Hears stages ``build`` and ``measure``, every row, and what the A/A test finds.

    Raises:
        InvalidFile: The table does not validate.
        InvalidValue: The table or the device is emulated.
        NotMeasured: The table has no latency.
        DeviceError: The device does not answer.
        CheckFailed: None of the rows could be measured.
    """
    from hwbench.api.campaigns import place_campaign, store_aside
    from hwbench.devices import load_device
    from hwbench.latency import LatencyTable, compare_tables
    from hwbench.latency.occasions import between_scales

    table = LatencyTable.read(path)
    place = load_device(workspace, device or table.target.device)
    place = replace(place, conditions=conditions or place.conditions)
    sample = _sample(path, table, place, rows, seed)
    with (
        store_aside(workspace, f"{place.name}-{path.stem}") as store,
        place_campaign(
            store,
            workspace,
            place,
            runtime=table.target.runtime,
            threads=table.target.threads,
            precisions=(table.precision,),
            listener=listener,
        ) as campaign,
    ):
        result, fresh = _measure(campaign, sample, listener)
    changes = compare_tables(sample, fresh, between_scales(table.scale, None))
    notes = tuple(difference_notes(workspace, sample, fresh, {campaign.fingerprint: campaign.conditions}))
    holds, verdict = _verdict(changes, result)
    return TableVerification(
        path=path,
        device=place.name,
        target=campaign.target.key,
        seed=seed,
        sampled=len(sample),
        measured=len(fresh),
        failed=len(result.failed),
        changes=changes,
        notes=notes,
        holds=holds,
        verdict=verdict,
        samples=store.path,
        command=table.command(),
    )


def _sample(path: Path, table: LatencyTable, place: Device, rows: int, seed: int) -> LatencyTable:
    """The rows of a table that are measured again, on the scale that predictions speak of."""
    from hwbench.latency import LatencyTable, sample_rows

    if table.emulated or place.emulated:
        raise InvalidValue(f"{path}: times under emulation are no latencies, and none can be verified")
    sample = sample_rows(table, rows, seed)
    if not sample:
        raise NotMeasured(f"{path} has no row with a latency; measure some: {table.command()}")
    found = LatencyTable(table.target, table.precision, sample, aa=table.aa, between_runs=table.between_runs)
    return found.on_day(table.scale)


def _measure(campaign: Campaign, published: LatencyTable, listener: Listener) -> tuple[CampaignResult, LatencyTable]:
    """Measures the rows of a table, and makes a table of those that have a latency again.

    Raises:
        CheckFailed: None has.
    """
    from hwbench.api.campaigns import CampaignProgress, say_failures
    from hwbench.api.tables import self_check
    from hwbench.latency import BETWEEN_RUNS, LatencyRow, LatencyTable, with_honest_intervals

    result = campaign.run([row.workload for row in published], CampaignProgress(listener))
    say_failures(result.failed, listener)
    if not result.ok:
        raise CheckFailed(f"none of {len(published)} rows could be measured on {campaign.target}; see above")
    today = datetime.now(UTC).date().isoformat()
    measured = [LatencyRow.of(one, today, campaign.fingerprint) for one in result.ok]
    between = published.between_runs or BETWEEN_RUNS
    rows = with_honest_intervals(measured, between)
    aa = self_check(campaign, listener)
    return result, LatencyTable(campaign.target, published.precision, rows, aa=aa, between_runs=between)


def _verdict(changes: TableChanges, result: CampaignResult) -> tuple[bool, str]:
    """Whether the table holds, and why in words."""
    from hwbench.specs import Outcome

    passing = (Outcome.NOISY, Outcome.THROTTLED, Outcome.LOST)  # these say something about the moment
    broken = [one for one in result.failed if one.outcome not in passing]
    agree = sum(row.agrees for row in changes.rows)
    count = f"{agree} of {len(changes.rows)} rows agree within their intervals"
    wrong = []
    if changes.shifted:
        faster = "slower" if changes.shift > 0 else "faster"
        wrong.append(f"the device is {faster} than the table says, by {abs(changes.shift):.1%} in the median")
    if changes.moved:
        beyond = ", beyond that of all" if changes.shifted else ""
        wrong.append(f"{len(changes.moved)} rows moved{beyond}")
    if broken:
        wrong.append(f"{len(broken)} rows cannot be measured any more")
    if wrong:
        return False, f"the table does not hold: {' and '.join(wrong)}; {count}"
    if changes.allowed > TELLING:
        figure = f"the same file twice differs by up to {changes.allowed:.0%} on this device"
        return False, f"it cannot be told whether the table holds: {figure}; {count}; end what else runs there"
    return True, f"the table holds: {count}, no row moved by more than {100 * changes.allowed:.2g} % and beyond chance"
