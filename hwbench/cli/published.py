"""``hwbench verify TABLE``: whether the rows of a published latency table still hold, by measuring some anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.cli.diff import changes_as_json, difference_notes, print_changes
from hwbench.cli.output import emit, say
from hwbench.errors import CheckFailed, HwbenchError, InvalidValue, NotMeasured

if TYPE_CHECKING:
    from hwbench.devices import Conditions
    from hwbench.latency import LatencyTable, SelfCheck, TableChanges
    from hwbench.measure.campaign import Campaign, CampaignResult
    from hwbench.workspace import Workspace

# An A/A figure above this hides what any choice between blocks depends on: nothing could be found to have moved.
TELLING = 0.05


def verify_table(
    workspace: Workspace,
    path: Path,
    *,
    device: str | None = None,
    rows: int = 20,
    seed: int = 0,
    conditions: Conditions | None = None,
    as_json: bool = False,
) -> None:
    """Measures a sample of a table's rows on its device and compares; prints the comparison and a verdict.

    What is measured goes into a file of its own (``store_aside``): the table and the store that it was published from
    stay as they are.

    Args:
        workspace: Holds the device and the build cache.
        path: The table.
        device: Where to measure; default: the device of the table.
        rows: Size of the sample, spread over the latencies of the table.
        seed: Of the sample.
        conditions: Whether the knobs of the device are held; default: what the device file says.
        as_json: Print one JSON object.

    Raises:
        InvalidFile: The table does not validate.
        InvalidValue: The table or the device is emulated.
        NotMeasured: The table has no latency.
        DeviceError: The device does not answer.
        CheckFailed: The table does not hold, or the device is too noisy to tell.
    """
    from hwbench.cli.campaigns import place_campaign, store_aside
    from hwbench.devices import load_device
    from hwbench.latency import LatencyTable, compare_tables, sample_rows

    table = LatencyTable.read(path)
    place = load_device(workspace, device or table.target.device)
    place = replace(place, conditions=conditions or place.conditions)
    if table.emulated or place.emulated:
        raise InvalidValue(f"{path}: times under emulation are no latencies, and none can be verified")
    sample = sample_rows(table, rows, seed)
    if not sample:
        raise NotMeasured(f"{path} has no row with a latency; measure some: {table.command()}")
    published = LatencyTable(table.target, table.precision, sample, aa=table.aa, between_runs=table.between_runs)
    with (
        store_aside(workspace, f"{place.name}-{path.stem}") as store,
        place_campaign(
            store,
            workspace,
            place,
            runtime=table.target.runtime,
            threads=table.target.threads,
            processes=None,
            retry=False,
        ) as campaign,
    ):
        result, fresh = _measure(campaign, published)
    taken = {campaign.fingerprint: campaign.conditions}
    changes, notes = compare_tables(published, fresh), difference_notes(workspace, published, fresh, taken)
    holds, verdict = _verdict(changes, result)
    values = {
        "path": str(path),
        "device": place.name,
        "target": campaign.target.key,
        "seed": seed,
        "sampled": len(sample),
        "measured": len(fresh),
        "failed": len(result.failed),
        "agree": sum(row.agrees for row in changes.rows),
        "holds": holds,
        "verdict": verdict,
        "samples": str(store.path),
    }
    if as_json:
        emit({**values, **changes_as_json(changes, notes)}, as_json=True)
    else:
        print_changes(changes, notes, title=path.stem)
        emit(values, as_json=False)
    if not holds:
        raise CheckFailed(f"{path}: {verdict}. To measure it anew: {table.command()} --anew")


def _measure(campaign: Campaign, published: LatencyTable) -> tuple[CampaignResult, LatencyTable]:
    """Measures the rows of a table, and makes a table of those that have a latency again.

    Raises:
        CheckFailed: None has.
    """
    from hwbench.cli.campaigns import bars, say_failures
    from hwbench.latency import BETWEEN_RUNS, LatencyRow, LatencyTable, with_honest_intervals

    with bars() as watch:
        result = campaign.run([row.workload for row in published], watch)
    say_failures(result.failed)
    if not result.ok:
        raise CheckFailed(f"none of {len(published)} rows could be measured on {campaign.target}; see above")
    today = datetime.now(UTC).date().isoformat()
    measured = [LatencyRow.of(one, today, campaign.fingerprint) for one in result.ok]
    between = published.between_runs or BETWEEN_RUNS
    rows = with_honest_intervals(measured, between)
    return result, LatencyTable(
        campaign.target, published.precision, rows, aa=_aa(campaign, today), between_runs=between
    )


def _aa(campaign: Campaign, today: str) -> SelfCheck | None:
    from hwbench.latency import SelfCheck

    if campaign.repeat is None:
        return None
    try:
        found = SelfCheck(campaign.repeat(), today)
    except HwbenchError as error:
        say(f"A/A test: {error}")
        return None
    say(f"A/A test: {found.found}")
    return found


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
