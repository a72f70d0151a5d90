"""Filled rows of the best networks of a search: measured on the device before the networks are confirmed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hwbench.errors import HwbenchError
from hwbench.printable import counted
from hwbench.specs import Outcome
from hwbench.units import format_duration

if TYPE_CHECKING:
    from hwbench.api.listener import Listener
    from hwbench.api.search_devices import DevicePredictors
    from hwbench.api.search_request import SearchRequest
    from hwbench.api.tables import TableUpdate
    from hwbench.measure.builder import Builder
    from hwbench.measure.campaign import CampaignResult
    from hwbench.specs import Target, Workload
    from hwbench.studies.candidates import Candidate
    from hwbench.studies.row_cuts import CutRows
    from hwbench.studies.study import Search
    from hwbench.workspace import Workspace

MEASURE_ROWS = (
    "Rows that were filled in, of the best networks, to measure at most before these are confirmed; 0: none. "
    "Default: 48 where profile chose the rows of the table."
)


@dataclass(frozen=True)
class _MeasuredRows:
    """Rows that were measured now, and those that have no latency now or since before."""

    fresh: int
    failed: int


@dataclass
class RowCutting:
    """Measures the filled rows of the best networks, and searches again, until these stand on measured rows.

    Args:
        request: The search.
        workspace: Holds device, store, build cache and tables.
        builder: Builds, and goes on living; None: one of its own.
        listener: Hears what is measured, and what it changes.
        limit: Rows to measure at most.
        updates: The tables that it wrote last.
    """

    request: SearchRequest
    workspace: Workspace
    builder: Builder | None
    listener: Listener
    limit: int
    updates: dict[Target, TableUpdate] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls,
        request: SearchRequest,
        known: Sequence[DevicePredictors],
        workspace: Workspace,
        builder: Builder | None,
        listener: Listener,
    ) -> RowCutting | None:
        """None where no row is to be measured: none is filled in, the request says so, or profile chose no rows."""
        from hwbench.studies.row_cuts import ROWS

        limit = request.measure_rows
        if limit is None:
            limit = ROWS if any(one.adaptive for one in known) and not any(one.emulated for one in known) else 0
        if not limit or not any(one.filled for one in known):
            return None
        return cls(request, workspace, builder, listener, limit)

    def run(
        self,
        search: Search,
        known: Sequence[DevicePredictors],
        again: Callable[[Search], tuple[Search, Sequence[DevicePredictors]]],
    ) -> tuple[Search, CutRows]:
        """Runs the trials and measures rows in turns; returns the search with the tables as they are afterwards.

        Args:
            search: Ready to run.
            known: What predicts on each device.
            again: The same search by the tables as they are now.

        Raises:
            DeviceError: A device could not be reached; trials and rows until then are kept.
            InfeasibleBudget: By the measured rows no network is within the budget.
        """
        from hwbench.studies.row_cuts import ROUNDS, CutRows, moved_predictions

        search.replaces = True
        cut, before, lost = CutRows(self.limit), dict[str, float](), 0
        tried: set[tuple[Target, Workload]] = set()
        unfit: set[Target] = set()
        while True:
            explored = search.explore(self.request.plan.trials, self.request.measure)
            if cut.rounds:
                self._tell(cut, explored.lost - lost)
            lost = explored.lost
            missing = [
                (target, row)
                for target, row in self._missing(search, known, explored.first, tried)
                if target not in unfit
            ]
            wanted = missing[: self.limit - cut.rows]
            cut = replace(cut, missing=len(missing), replaced=lost)
            if not wanted or cut.rounds == ROUNDS:
                break
            before = {c.architecture: c.predicted_s for c in explored.first} | before
            self.listener.say(
                f"the {len(explored.first)} best networks have {len(missing)} rows that were not measured: "
                f"{len(wanted)} are measured now, of {self.limit} in all (--measure-rows)"
            )
            started = time.monotonic()
            results = [self._measure(target, [w for t, w in wanted if t == target]) for target in _targets(wanted)]
            unfit.update(target for target, one in zip(_targets(wanted), results) if one is None)
            if not any(results):
                continue
            seconds = cut.seconds + time.monotonic() - started
            tried.update(wanted)
            search, known = again(search)
            cut = replace(
                cut,
                rows=cut.rows + sum(one.fresh for one in results if one),
                failed=cut.failed + sum(one.failed for one in results if one),
                rounds=cut.rounds + 1,
                seconds=seconds,
                networks=moved_predictions(before, _seconds(search)),
            )
        for update in self.updates.values():
            update.tell_scale(self.listener)
        if cut.missing:
            more = f"; --measure-rows {cut.rows + cut.missing} measures more"
            if cut.rows < self.limit:  # the rounds are over, which another search counts anew
                more = f" after {counted(cut.rounds, 'round')} of measuring; the same command goes on"
            self.listener.say(f"{cut.missing} rows of the best networks are still filled in{more}")
        return search, cut

    def _missing(
        self,
        search: Search,
        known: Sequence[DevicePredictors],
        networks: Sequence[Candidate],
        tried: set[tuple[Target, Workload]],
    ) -> list[tuple[Target, Workload]]:
        """The filled rows of networks on all devices, those of the best network first."""
        from hwbench.studies.row_cuts import filled_rows

        found: dict[tuple[Target, Workload], None] = {}
        for network in networks:
            workload = search.workload(network.architecture)
            for device in known:
                rows = filled_rows(device.by_space[network.space].table, [workload])
                found.update(dict.fromkeys((device.target, row) for row in rows))
        return [one for one in found if one not in tried]

    def _measure(self, target: Target, rows: Sequence[Workload]) -> _MeasuredRows | None:
        """Measures rows on a device into its table; None: the table is not of this device as it is."""
        from hwbench.api import campaigns
        from hwbench.api.other_conditions import other_conditions
        from hwbench.api.tables import rows_left_out, table_update
        from hwbench.api.ties import begin_occasion
        from hwbench.devices import load_device
        from hwbench.latency import load_table, table_path
        from hwbench.measure.store import MeasurementStore

        precision, variant = rows[0].precision, self.request.variant
        table = load_table(self.workspace, target, precision, self.request.spaces[0], variant)
        watch = campaigns.CampaignProgress(self.listener)
        with (
            MeasurementStore(self.workspace.store) as store,
            campaigns.place_campaign(
                store,
                self.workspace,
                load_device(self.workspace, target.device),
                runtime=self.request.runtime,
                threads=target.threads,
                precisions={precision},
                builder=self.builder,
                waits=True,
                listener=self.listener,
            ) as campaign,
        ):
            if campaign.target != target:
                raise HwbenchError(f"expected to measure on {target}, the device is {campaign.target}")
            if table.conditions != campaign.fingerprint:
                other = other_conditions(campaign, table)
                words, mend = "", f"measure a table of your own: {table.command(self.request.spaces[0])}"
                if other is not None:
                    words, mend = f" ({other.words})", other.in_file if other.conditions else mend
                self.listener.say(
                    f"the table of {target} in {precision} was taken under other conditions, so that no row is added"
                    f"{words}; {mend}"
                )
                return None
            if lost := rows_left_out(campaign, table):
                self.listener.say(
                    f"the table of {target} in {precision} has {lost} rows of an earlier version of hwbench, which new "
                    "rows would replace, so that none is added; what builds the same files today is taken over by "
                    f"{table.command(self.request.spaces[0])}"
                )
                return None
            if not (own := table_path(self.workspace.root, target, precision, variant)).is_file():
                own.parent.mkdir(parents=True, exist_ok=True)
                table.write(own)  # the rows that came with hwbench, beside which the new ones stand
            store.claim(rows, target)
            try:
                missing = campaign.missing(rows)
                if missing:
                    begin_occasion(self.workspace, campaign, missing, [precision], watch, variant)
                result: CampaignResult = campaign.run(rows, watch)
            finally:
                self.updates[target] = table_update(self.workspace, campaign, precision, variant=variant)
                self.updates[target].write(self.listener)
        campaigns.say_failures(result.failed, self.listener)
        return _MeasuredRows(len(missing), sum(one.outcome is not Outcome.OK for one in result.measurements))

    def _tell(self, cut: CutRows, lost: int) -> None:
        """What a round of measuring has changed."""
        moved = "" if cut.moved is None else f"; by them the best networks take {cut.moved:+.1%} (median)"
        gone = f"; {lost} scored networks are beyond the budget now, others replace them" if lost > 0 else ""
        rows = f"{cut.rows} rows measured in {format_duration(cut.seconds)}"
        self.listener.say(rows + (f", {cut.failed} failed" if cut.failed else "") + moved + gone)


def _targets(rows: Sequence[tuple[Target, Workload]]) -> list[Target]:
    return list(dict.fromkeys(target for target, _ in rows))


def _seconds(search: Search) -> Callable[[str], float]:
    from hwbench.specs import Architecture

    sums = search.latencies or search.feasible.sums
    return lambda key: sums.total(Architecture.parse(key))
