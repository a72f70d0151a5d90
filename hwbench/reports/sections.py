"""The figures of a report with what is said about them, from the gathered values to HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hwbench.latency.calibration import NOMINAL
from hwbench.printable import counted
from hwbench.reports import commands, figures, search_sections
from hwbench.reports.comparisons import Group
from hwbench.reports.exported import ExportedModel
from hwbench.reports.fragments import DASH, code, figure, missing, ms, number, numbers, reproduce
from hwbench.reports.headline import headline
from hwbench.reports.markup import Html, element, join, table
from hwbench.reports.profiled import COMPARED, Missing, not_built
from hwbench.reports.provenance import provenance, reproduction
from hwbench.reports.space_sections import spaces
from hwbench.reports.study import Block, StudyReport, Whole, Winner
from hwbench.specs import Precision
from hwbench.studies.candidates import Candidate
from hwbench.units import format_bytes

GROUP_COLUMNS = ("group", "networks", "median error", "MAPE", "within 5 %", "within 10 %", "Spearman", "in interval")


def everything(report: StudyReport) -> list[Html]:
    """All sections."""
    chosen = [search_sections.front, spaces, pareto, search_sections.race, search_sections.worth, search_sections.cost]
    told = [search_sections.importance, predicted_measured, blocks, precisions, accuracy, reproduction, provenance]
    return [join(part(report)) for part in (headline, *chosen, *told)]


def pareto(report: StudyReport) -> Iterator[Html]:
    """Score over latency."""
    result = report.result
    yield element("h2", "Pareto front: score over latency")
    caption = (
        f"Each point is one trial. The front ({counted(len(result.pareto), 'network')}) holds those that no other one "
        f"beats in both score and predicted latency. Measured candidates stand at their measured latency. Score: "
        f"{report.unit}; higher is better, and scores compare within this study only."
        + (" One above 1 is shown as 1, and ordered by its value." if result.settings.shown_score(2.0) < 2 else "")
        + figures.unnamed(result)
    )
    yield figure("pareto", figures.pareto(report), caption)
    devices = [device for device in result.settings.budgets_ms if device != result.target.device]
    columns = ("score", "predicted (ms)", "measured (ms)", *_further_columns(devices), "architecture")
    aligned = range(len(columns) - 1)
    rows = [_candidate_row(result.settings.shown(c)) for c in result.pareto]
    yield numbers(f"The front as numbers ({len(rows)})", columns, rows, aligned)
    by_score = sorted(result.measured, key=lambda c: -c.score)
    measured = [_candidate_row(result.settings.shown(c)) for c in by_score]
    yield numbers(f"The measured candidates as numbers ({len(measured)})", columns, measured, aligned)
    yield reproduce(commands.search(result))


def predicted_measured(report: StudyReport) -> Iterator[Html]:
    """How good the predictions are."""
    result = report.result
    yield element("h2", "Predicted against measured latency")
    if isinstance(report.predictor, Missing):
        yield missing(report.predictor.reason)
    if not report.groups:
        measure = (*commands.validate(result), commands.search(result))[0]
        yield missing(f"no measured network can be compared; measure some: {measure}")
        return
    caption = "Dashed and dotted lines: errors of 5 % and 10 %, relative to the measured latency. " + " ".join(
        group_sentence(group, report.spread is not None) for group in report.groups
    )
    band = None
    if not isinstance(report.predictor, Missing):
        calibration = report.predictor.calibration
        band = calibration.spread
        caption += (
            f" The band is the prediction interval on the occasion of the table, a factor of {calibration.spread:.4f} "
            f"either way (90 % nominal), from {calibration.count} calibration networks."
        )
        if calibration.promised < NOMINAL:
            caption += f" So few networks promise only {calibration.promised:.0%}."
        if report.predictor.table.how:
            caption += (
                " Rows that were filled in widen the interval of a network, to a factor of at most "
                f"{report.predictor.spread:.4f}."
            )
    yield figure("predicted", figures.predicted_measured(report.groups, band), caption)
    rows = [group_row(group, report.spread is not None) for group in report.groups]
    yield table(GROUP_COLUMNS, rows, numeric=range(1, 8))
    yield reproduce(commands.profile(result, result.precision), commands.search(result), *commands.validate(result))


def blocks(report: StudyReport) -> Iterator[Html]:
    """Where the winner's time goes."""
    result, winner, precision = report.result, report.winner, report.result.precision
    yield element("h2", "Latency by block of the winner")
    if isinstance(winner, Missing):
        yield missing(winner.reason)
        return
    rows = [b for b in winner.blocks if precision in b.costs_s]
    predicted = winner.whole[precision].predicted
    if isinstance(predicted, Missing):
        yield missing(predicted.reason)
    if rows:
        caption = (
            f"What each block adds to the {precision} network by prediction, in network order, with its share. "
            "A block costs less inside a network than alone, because conversions at its boundaries fall away."
        )
        constant = 0.0 if isinstance(report.predictor, Missing) else report.predictor.constant_s
        if constant > 0:
            caption += f" {ms(constant)} of the network are not of any block."
        if constant < 0:
            caption += f" The network takes {ms(-constant)} less, for what stays in the caches from block to block."
        yield figure("blocks", figures.blocks(winner, precision), caption)
        whole = sum(b.costs_s[precision] for b in rows)
        cells = [(*_block_cells(b), number(b.costs_s[precision]), f"{b.costs_s[precision] / whole:.1%}") for b in rows]
        cells.append(("all", "", "", "", number(whole), "100.0%"))
        columns = ("name", "block", "input N×C×T×H×W", "output", "latency (ms)", "share")
        yield numbers(f"The blocks as numbers ({len(rows)})", columns, cells, (4, 5))
    yield reproduce(commands.profile(result, precision), report.command)


def precisions(report: StudyReport) -> Iterator[Html]:
    """int8 against fp32, for the blocks and the whole of the winner."""
    result, winner = report.result, report.winner
    yield element("h2", "int8 against fp32")
    if isinstance(winner, Missing):
        yield missing(winner.reason)
        return
    lacking = {p: [b for b in winner.blocks if p not in b.costs_s] for p in COMPARED}
    for precision, absent in lacking.items():
        if precision not in report.tables:
            yield missing(not_built(result.target.runtime, precision))
        elif absent:
            yield missing(_lacking(report, precision, absent))
    if all(len(absent) < len(winner.blocks) for absent in lacking.values()):
        caption = "What each block of the winner adds to the network by prediction, in fp32 and in int8."
        yield figure("precisions", figures.precisions(winner), caption)
        both = [b for b in winner.blocks if b.costs_s.keys() >= {*COMPARED}]
        columns = ("name", "block", "input N×C×T×H×W", "output", "fp32 (ms)", "int8 (ms)", "int8 / fp32")
        yield numbers(f"The blocks as numbers ({len(both)})", columns, [_pair_cells(b) for b in both], (4, 5, 6))
    headings = ("whole network", "predicted (ms)", "interval (ms)", "measured (ms)")
    yield table(headings, [_whole_cells(p, whole) for p, whole in winner.whole.items()], numeric=(1, 2, 3))
    if any(whole.measured_s is None for whole in winner.whole.values()):
        note = f"{DASH}: not known. hwbench bench measures the whole network at any precision and prints the latency."
        yield element("p", note, class_="muted")
    if winner.whole.keys() >= {*COMPARED}:
        yield from _ratio(winner)
    yield reproduce(
        *(commands.profile(result, p) for p in report.tables),
        *(commands.bench(result, p) for p in report.tables),
    )


def accuracy(report: StudyReport) -> Iterator[Html]:
    """Accuracy and size of the exported files."""
    result = report.result
    yield element("h2", "Accuracy and files")
    model = report.models[0] if report.models else None
    make = [commands.train(result, model), *(commands.export(result, p) for p in report.tables)]
    if not report.models:
        yield missing(
            "no exported model was given, so the accuracy of the winner is not known here; train it, export it, and "
            "name the folders with --model: the commands below do that"
        )
        models = [f"--model {commands.exported(result, p)}" for p in report.tables]
        yield reproduce(*make, f"{report.command} {' '.join(models)}")
        return
    columns = (
        "precision",
        "file",
        "size",
        "top-1 trained",
        "top-1 of the file",
        "difference",
        "SQNR (dB)",
        "sha256 begins",
    )
    yield table(columns, [_model_cells(model) for model in report.models], numeric=(2, 3, 4, 5, 6))
    yield element("p", f"{_VIEWED} {_videos(report.models)}", class_="muted")
    yield reproduce(*make, *(commands.bench_file(result, model.path) for model in report.models))


_VIEWED = (
    "Top-1 is the share of validation videos whose class is ranked first; trained: the network in fp32 before export. "
    "SQNR compares the outputs of both: signal to quantisation noise, higher is nearer."
)


def _videos(models: Sequence[ExportedModel]) -> str:
    """How many videos, and why there is no accuracy where there is none."""
    counts = sorted({model.videos for model in models if model.videos})
    reasons = [f"{model.path}: {model.reason}." for model in models if model.top1_after is None and model.reason]
    return " ".join([*(f"Tested on {count} videos." for count in counts), *reasons])


def _candidate_row(candidate: Candidate) -> tuple[str, ...]:
    times = [(candidate.predicted_s, candidate.measured_s), *((o.predicted_s, o.measured_s) for o in candidate.further)]
    cells = [cell for p, m in times for cell in (number(p), DASH if m is None else number(m))]
    return f"{candidate.score:.6g}", *cells, code(candidate.architecture)


def _further_columns(devices: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{what} on {device} (ms)" for device in devices for what in ("predicted", "measured"))


def group_sentence(group: Group, with_interval: bool) -> str:
    """How far the predictions of a group are off; coverage only where an interval was not made from the group."""
    summary = group.summary
    if summary is None:
        (one,) = group.comparisons
        return f"{group.name.capitalize()} ({group.note}): one network, error {one.error:+.2%}."
    held = f", {summary.coverage:.0%} within the interval" if with_interval and group.held_out else ""
    return f"{group.name.capitalize()} ({group.note}): {summary.networks} networks, MAPE {summary.mape:.2%}{held}."


def group_row(group: Group, with_interval: bool) -> tuple[str, ...]:
    """The same as a row of a table with ``GROUP_COLUMNS``."""
    s = group.summary
    if s is None:
        return (group.name, str(len(group.comparisons)), *[DASH] * 6)
    shares = [f"{s.within_5:.0%}", f"{s.within_10:.0%}", f"{s.spearman:.3f}"]
    held = f"{s.coverage:.0%}" if with_interval and group.held_out else DASH
    return (group.name, str(s.networks), f"{s.median_error:.2%}", f"{s.mape:.2%}", *shares, held)


def _block_cells(block: Block) -> tuple[str, str, str, str]:
    return block.name, code(block.workload.blocks[0].key), block.workload.input.key, block.output.key


def _pair_cells(block: Block) -> tuple[str, ...]:
    fp32, int8 = block.costs_s[Precision.FP32], block.costs_s[Precision.INT8]
    return (*_block_cells(block), number(fp32), number(int8), f"{int8 / fp32:.2f}")


def _lacking(report: StudyReport, precision: Precision, absent: Sequence[Block]) -> str:
    profiled = report.tables[precision]
    if isinstance(profiled, Missing):
        return profiled.reason
    if isinstance(profiled.predictor, Missing):
        return profiled.predictor.reason
    names = ", ".join(block.name for block in absent)
    return (
        f"the {precision} table has no rows for {len(absent)} blocks of the winner ({names}); "
        f"measure them: {commands.profile(report.result, precision)}"
    )


def _whole_cells(precision: Precision, whole: Whole) -> tuple[str, ...]:
    measured = DASH if whole.measured_s is None else number(whole.measured_s)
    if isinstance(whole.predicted, Missing):
        return precision.value, DASH, DASH, measured
    low, high = number(whole.predicted.low_s), number(whole.predicted.high_s)
    return precision.value, number(whole.predicted.seconds), f"{low} – {high}", measured


def _ratio(winner: Winner) -> Iterator[Html]:
    """How much of the fp32 time int8 takes, where both are known in the same way."""
    fp32, int8 = winner.whole[Precision.FP32], winner.whole[Precision.INT8]
    found = []
    if fp32.measured_s is not None and int8.measured_s is not None:
        found.append(f"{int8.measured_s / fp32.measured_s:.2f} as measured")
    if not isinstance(fp32.predicted, Missing) and not isinstance(int8.predicted, Missing):
        found.append(f"{int8.predicted.seconds / fp32.predicted.seconds:.2f} as predicted")
    if found:
        yield element("p", f"int8 takes this share of the fp32 time: {', '.join(found)}.")


def _model_cells(model: ExportedModel) -> tuple[str, ...]:
    before, after = model.top1_before, model.top1_after
    return (
        model.precision,
        code(str(model.path)),
        DASH if model.num_bytes is None else format_bytes(model.num_bytes),
        DASH if before is None else f"{before:.1%}",
        DASH if after is None else f"{after:.1%}",
        DASH if before is None or after is None else f"{100 * (after - before):+.1f} points",
        DASH if model.sqnr_db is None else f"{model.sqnr_db:.1f}",
        code(model.sha256[:12]),
    )
