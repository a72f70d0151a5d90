"""Gathers everything a report shows about a study: the result, the table behind it, and what the store knows.

What cannot be had is a ``Missing`` with the reason in words; a report is written with what there is.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.devices import load_device
from hwbench.documents import read_json
from hwbench.errors import HwbenchError
from hwbench.latency import (
    AdditivePredictor,
    LatencyTable,
    Position,
    interpolated,
    load_table,
    table_path,
    transferred,
)
from hwbench.latency.table_source import TableSource
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import StoredRow, fingerprint
from hwbench.reports import commands
from hwbench.reports.choices import importances
from hwbench.reports.comparisons import Group, calibration_group, candidate_group, held_out_group
from hwbench.reports.exported import ExportedModel, read_exported
from hwbench.reports.guessing import Guessing, TrainedDraws
from hwbench.reports.profiled import Fill, Missing, Profiled, code_unread, compared, given, or_missing, read_profiled
from hwbench.reports.result import StoredResult, read_result
from hwbench.reports.trained import board_doubts, judged
from hwbench.spaces import StagedSpace, load_space
from hwbench.specs import Architecture, Estimate, Outcome, Precision, TensorSpec, Workload
from hwbench.studies.candidates import Candidate, candidates_frame
from hwbench.studies.evaluators import get as get_evaluator
from hwbench.studies.evaluators import judgement
from hwbench.studies.latencies import choices_digest
from hwbench.studies.scoreboard import Scoreboard
from hwbench.studies.settings import INTERPOLATED, transferred_from
from hwbench.studies.stored_settings import JOURNAL
from hwbench.units import format_duration, milliseconds
from hwbench.workspace import Workspace, shipped

if TYPE_CHECKING:
    import pandas

# A prediction that moved by more than this share is another prediction; less is rounding.
_DRIFTED = 0.005
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")


@dataclass(frozen=True)
class Block:
    """One block of the winner.

    ``reached``: what the network holds behind it, in all pathways. ``costs_s``: what it adds to the whole network, by
    precision; absent: no row.
    """

    name: str
    workload: Workload
    reached: TensorSpec
    costs_s: Mapping[Precision, float]

    @property
    def output(self) -> TensorSpec:
        """What it puts out, of its own pathway alone."""
        return self.workload.output


@dataclass(frozen=True)
class Whole:
    """The winner as a whole network at one precision."""

    predicted: Estimate | Missing
    measured_s: float | None


@dataclass(frozen=True)
class Winner:
    """The best network of a study: its blocks in network order, and the whole at each precision."""

    blocks: tuple[Block, ...]
    whole: Mapping[Precision, Whole]
    measurement: StoredRow | None


@dataclass(frozen=True)
class StudyReport:
    """Everything that a report shows; where spaces competed, winner, tables and groups are of the winner's space.

    ``searched`` are the first and last moment of the search (UTC, ISO 8601).

    ``board`` is what the study's evaluator is worth on networks that were trained, ``judged_by`` which those are;
    ``importance`` the share of the scores' variance by choice.
    """

    result: StoredResult
    unit: str
    device: str | Missing
    winner: Winner | Missing
    tables: Mapping[Precision, Profiled | Missing]
    groups: tuple[Group, ...]
    conditions: Mapping[str, str]
    searched: tuple[str, str] | None
    models: tuple[ExportedModel, ...]
    doubts: tuple[str, ...]
    board: Scoreboard | Missing
    judged_by: str
    importance: Mapping[str, float] | Missing
    guessing: Guessing | None
    truth: TrainedDraws | None = None
    written_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def profiled(self) -> Profiled | Missing:
        """The table at the precision of the study."""
        return self.tables[self.result.precision]

    @property
    def predictor(self) -> AdditivePredictor | Missing:
        """What predicts at the precision of the study."""
        return self.profiled if isinstance(self.profiled, Missing) else self.profiled.predictor

    @property
    def spread(self) -> float | None:
        """Factor of the prediction interval of any network, with rows that are filled in or not."""
        return None if isinstance(self.predictor, Missing) else self.predictor.spread

    @property
    def winner_spread(self) -> float | None:
        """Factor of the prediction interval of the winner; of any network where its blocks are not known."""
        predicted = None if isinstance(self.winner, Missing) else self.winner.whole[self.result.precision].predicted
        return predicted.high_s / predicted.seconds if isinstance(predicted, Estimate) else self.spread

    @property
    def command(self) -> str:
        """What writes this page."""
        truth = None if self.truth is None else self.truth.folder
        return commands.report(self.result, tuple(model.path.parent for model in self.models), truth)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each scored trial; columns of ``candidates_frame``, the interval nan where nothing predicts."""
        known = math.nan if self.spread is None else self.spread
        if not self.result.spaces:
            return candidates_frame(self.result.history, known)
        by_space = {one.space: known if one.space == self.result.space else math.nan for one in self.result.spaces}
        return candidates_frame(self.result.history, by_space)

    def missing(self) -> tuple[str, ...]:
        """Everything that is missing, in words."""
        parts: list[object] = [self.device, self.winner, self.predictor, *self.tables.values()]
        if not isinstance(self.winner, Missing):
            parts += [whole.predicted for whole in self.winner.whole.values()]
        return tuple(dict.fromkeys(part.reason for part in parts if isinstance(part, Missing)))


def gather(workspace: Workspace, study: str, models: Sequence[Path] = (), truth: Path | None = None) -> StudyReport:
    """Reads all there is about a study.

    Args:
        workspace: Where the study, its table and its measurements are.
        study: Its name.
        models: Folders of exported models of the winner.
        truth: Folder of ground truth of the same space and budget.

    Raises:
        UnknownName: No such study; the nearest names are listed.
        InvalidFile: Its result, the manifest of a model, or the ground truth is damaged, or that is of another space.
    """
    result = read_result(workspace, study)
    exported = tuple(read_exported(path) for path in models)
    space = or_missing(lambda: _space(workspace, result))
    every = {p: or_missing(partial(_profiled, workspace, result, p, space)) for p in Precision}
    expected = {*compared(result.target.runtime), result.precision}
    tables = {p: table for p, table in every.items() if p in expected or not isinstance(table, Missing)}
    stored = or_missing(lambda: _stored(workspace, result))
    rows = [] if isinstance(stored, Missing) else stored
    winner = or_missing(lambda: _winner(result, space, tables, rows))
    own = tables[result.precision]
    board, judged_by = judged(workspace, result)
    return StudyReport(
        result=result,
        unit=_unit(result.settings.evaluator),
        device=or_missing(lambda: load_device(workspace, result.target.device).description),
        winner=winner,
        tables=tables,
        groups=_groups(result, space, own, rows),
        conditions={} if isinstance(own, Missing) else _conditions(own.table, rows),
        searched=_searched(result.path.with_name(JOURNAL)),
        models=exported,
        doubts=(
            *_doubts(result, space, own, winner, stored),
            *board_doubts(board, result),
            *_judgements(result, board),
            *_model_doubts(result, exported),
        ),
        board=board,
        judged_by=judged_by,
        importance=or_missing(lambda: importances(result.history)),
        guessing=Guessing.of(result),
        truth=None if truth is None else TrainedDraws.of(truth, result),
    )


def _unit(evaluator: str) -> str:
    try:
        return get_evaluator(evaluator).unit
    except HwbenchError:
        return f"score ({evaluator})"


def _judgements(result: StoredResult, board: Scoreboard | Missing) -> list[str]:
    """What is known against the evaluator, where no training of the study says better and none chose its winner."""
    judged_here = not isinstance(board, Missing) and any(one.judged for one in board.standings)
    if judged_here or result.races:
        return []
    try:
        doubt = judgement(get_evaluator(result.settings.evaluator), result.feasible)
    except HwbenchError:
        return []
    return [doubt] if doubt else []


def _profiled(
    workspace: Workspace, result: StoredResult, precision: Precision, space: StagedSpace | Missing
) -> Profiled:
    # A model of the user's own is one network.
    members = None if result.own_model is None else 1
    name, parts = result.space, list[Workload]()
    if not isinstance(space, Missing):
        members = space.size()
        parts = list(space.parts(precision, num_classes=result.settings.num_classes))
    settings = result.settings
    load_table(
        workspace, result.target, precision, result.named.get(name, name), settings.variant, settings.num_classes
    )
    roots = (workspace.root, shipped())
    paths = [table_path(root, result.target, precision, result.settings.variant) for root in roots]
    path = next(path for path in paths if path.is_file())
    fill = _filling(workspace, result) if precision == result.precision else None
    return read_profiled(workspace, path, result.named.get(name, name), members, parts, fill)


def _filling(workspace: Workspace, result: StoredResult) -> Fill | None:
    """How the search filled in rows that were not measured."""
    rows, variant = result.settings.missing_rows, result.settings.variant
    other = transferred_from(rows)
    if other is None:
        return interpolated if rows == INTERPOLATED else None
    table_source, target = TableSource.parse(other), result.target
    if table_source.is_of(target.device, result.precision, target.threads):  # it stands in for another device
        return None
    source = table_source.of(target, result.precision)
    named = result.named.get(result.space, result.space)
    known = load_table(workspace, *source, named, variant, result.settings.num_classes)
    return partial(transferred, known)


def _space(workspace: Workspace, result: StoredResult) -> StagedSpace:
    """The space of the winner, in the form in which its networks were timed.

    Raises:
        HwbenchError: It is a model of the user's own.
        UnknownName, InvalidFile: There is no such space, or its file is damaged.
    """
    if result.own_model is not None:
        raise HwbenchError(code_unread(result.own_model))
    space = load_space(workspace, result.space)
    return space.streamed() if result.settings.streaming else space


def _stored(workspace: Workspace, result: StoredResult) -> list[StoredRow]:
    """All finished rows of the study's target."""
    if not workspace.store.is_file():
        raise HwbenchError(
            "the store of measurements is not in this workspace: sessions, samples and conditions are not shown; "
            f"measure the winner again: {commands.bench(result, result.precision)}"
        )
    with MeasurementStore(workspace.store) as store:
        return list(store.rows(result.target))


def _winner(
    result: StoredResult,
    space: StagedSpace | Missing,
    tables: Mapping[Precision, Profiled | Missing],
    rows: Sequence[StoredRow],
) -> Winner:
    best = result.best
    workloads = {p: _workload(result, space, best.architecture, p) for p in tables}
    network = workloads[result.precision]
    parts = list(network.parts())
    _, *reached = accumulate(network.blocks, lambda x, block: block.output(x), initial=network.input)
    names = _block_names(given(space), Architecture.parse(best.architecture), len(parts))
    costs = {p: _costs(workloads[p], tables[p]) for p in tables}
    blocks = tuple(
        Block(name, part, after, {p: seconds for p in tables if (seconds := costs[p][index]) is not None})
        for index, (name, part, after) in enumerate(zip(names, parts, reached, strict=True))
    )
    measurement = _measurement(network, rows, best.measured_s)
    whole = {p: _whole(workload, tables[p], rows) for p, workload in workloads.items()}
    whole[result.precision] = replace(whole[result.precision], measured_s=best.measured_s)
    return Winner(blocks, whole, measurement)


def _workload(result: StoredResult, space: StagedSpace | Missing, key: str, precision: Precision) -> Workload:
    settings = result.settings
    network = given(space).network(Architecture.parse(key), settings.num_classes)
    return network.workload(precision, settings.variant)


def _block_names(space: StagedSpace, architecture: Architecture, count: int) -> list[str]:
    """``stem``, ``s1.1``, ``s1.2``, ..., ``head``: ``count`` blocks by stage, both counted from 1; several blocks of a
    stem or head are counted as well.
    """
    ahead = len(space.ends.on(space.cell(architecture).clip).before())
    depths = space.stage_depths(architecture)
    inner = [f"s{stage}.{block}" for stage, depth in enumerate(depths, start=1) for block in range(1, depth + 1)]
    return [*_numbered("stem", ahead), *inner, *_numbered("head", count - ahead - len(inner))]


def _numbered(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}.{number}" for number in range(1, count + 1)]


def _costs(network: Workload, profiled: Profiled | Missing) -> list[float | None]:
    """What each block adds to the network by prediction; None where there is no row or nothing predicts."""
    parts = list(network.parts())
    if isinstance(profiled, Missing) or isinstance(profiled.predictor, Missing):
        return [None] * len(parts)
    predictor = profiled.predictor
    return [
        predictor.row_cost(part, Position.of(index, len(parts))) if part in predictor.table else None
        for index, part in enumerate(parts)
    ]


def _whole(network: Workload, profiled: Profiled | Missing, rows: Sequence[StoredRow]) -> Whole:
    predicted = or_missing(lambda: given(given(profiled).predictor).predict(network))
    stats = None if isinstance(profiled, Missing) else profiled.table.latency(network)
    if stats is not None:
        return Whole(predicted, stats.median_s)
    latest = max(_usable(network, rows), key=lambda row: row.finished_at, default=None)
    return Whole(predicted, None if latest is None else latest.measurement.stats.median_s)


def _measurement(network: Workload, rows: Sequence[StoredRow], measured_s: float | None) -> StoredRow | None:
    """The stored row behind the measured latency of the result: the one that says the same number."""
    if measured_s is None:
        return None
    wanted = milliseconds(measured_s)
    found = [row for row in _usable(network, rows) if milliseconds(row.measurement.stats.median_s) == wanted]
    return max(found, key=lambda row: row.finished_at, default=None)


def _usable(network: Workload, rows: Sequence[StoredRow]) -> list[StoredRow]:
    return [
        row
        for row in rows
        if row.measurement.workload == network
        and row.measurement.outcome is Outcome.OK
        and not row.measurement.emulated
    ]


def _groups(
    result: StoredResult, space: StagedSpace | Missing, own: Profiled | Missing, rows: Sequence[StoredRow]
) -> tuple[Group, ...]:
    """Networks of the winner's space: that is what the table is fitted to."""
    result = replace(result, measured=tuple(c for c in result.measured if c.space == result.space))
    if isinstance(own, Missing) or isinstance(own.predictor, Missing):
        groups = [candidate_group(result, lambda _: 1.0)]
    else:
        predictor = own.predictor
        groups = [calibration_group(predictor, ()), candidate_group(result, partial(_spread, result, space, predictor))]
        known = or_missing(
            lambda: {_workload(result, space, c.architecture, result.precision) for c in result.measured}
        )
        if not isinstance(known, Missing):
            groups[0] = calibration_group(predictor, known)
            groups.append(held_out_group(predictor, _of_space(result, space, rows), known, result.settings.variant))
    return tuple(group for group in groups if group.comparisons)


def _spread(
    result: StoredResult, space: StagedSpace | Missing, predictor: AdditivePredictor, candidate: Candidate
) -> float:
    """Factor of the prediction interval of a candidate; of any network where its blocks are not known."""
    predicted = or_missing(
        lambda: predictor.predict(_workload(result, space, candidate.architecture, result.precision))
    )
    return predictor.spread if isinstance(predicted, Missing) else predicted.high_s / predicted.seconds


def _of_space(result: StoredResult, space: StagedSpace | Missing, rows: Sequence[StoredRow]) -> Sequence[StoredRow]:
    """Rows of networks that are made of blocks of the winner's space: the table is fitted to no others."""
    if isinstance(space, Missing):
        return rows
    parts = space.parts(result.precision, num_classes=result.settings.num_classes)
    known = {(part.blocks[0], part.input) for part in parts}
    return [r for r in rows if all((p.blocks[0], p.input) in known for p in r.measurement.workload.parts())]


def _conditions(table: LatencyTable, rows: Sequence[StoredRow]) -> Mapping[str, str]:
    """What the fingerprint of a table stands for; only the store knows. Empty where it does not."""
    digests = {row.conditions for row in table if row.stats is not None}
    return next((r.measurement.conditions for r in rows if fingerprint(r.measurement.conditions) in digests), {})


def _searched(journal: Path) -> tuple[str, str] | None:
    """First and last moment in the journal of a study (UTC, ISO 8601); None where it is gone or says none.

    A moment without an offset, as Optuna before 5 wrote it, is of the local zone.
    """
    try:
        lines = journal.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            entry = read_json(line)
            found += [v for k, v in entry.items() if k.startswith("datetime_")] if isinstance(entry, dict) else []
    dates = sorted(filter(None, map(_in_utc, found)))
    return (dates[0], dates[-1]) if dates else None


def _in_utc(value: object) -> str | None:
    """A moment of a journal in UTC, to the second; None: it is none."""
    if not isinstance(value, str) or not _DATE.match(value):
        return None
    try:
        moment = datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def _doubts(
    result: StoredResult,
    space: StagedSpace | Missing,
    own: Profiled | Missing,
    winner: Winner | Missing,
    stored: Sequence[StoredRow] | Missing,
) -> list[str]:
    """What does not fit together, in words."""
    found = []
    if isinstance(stored, Missing):
        found.append(stored.reason)
    if result.settings.emulated or (not isinstance(own, Missing) and own.table.emulated):
        which = "a latency table" if result.settings.further_budgets_ms else "the latency table"
        found.append(f"{which} was taken under emulation: its numbers are no latencies of a device")
    if not isinstance(space, Missing) and choices_digest(space) != result.settings.spaces.get(result.space):
        found.append(f"the space {result.space!r} was changed after the search: blocks are those of the space of today")
    predicted = None if isinstance(winner, Missing) else winner.whole[result.precision].predicted
    if isinstance(predicted, Estimate) and abs(predicted.seconds / result.best.predicted_s - 1) > _DRIFTED:
        found.append(
            f"the latency table was changed after the search: today it predicts {format_duration(predicted.seconds)} "
            f"for the winner, then {format_duration(result.best.predicted_s)}; search again: {commands.search(result)}"
        )
    return found


def _model_doubts(result: StoredResult, models: Sequence[ExportedModel]) -> list[str]:
    found = [doubt for model in models for doubt in model.doubts]
    others = {result.network_name(point.best): point.budget_ms for point in result.front if point.best is not None}
    for model in models:
        if not model.architecture or model.architecture == result.network_name(result.best):
            continue
        if model.architecture in others:
            within, limit = others[model.architecture], result.settings.budget_ms
            found.append(f"{model.path} is of the winner within {within:g} ms, not within {limit:g} ms")
        else:
            found.append(f"{model.path} is of {model.architecture}, which is not the winner of this study")
    return found
