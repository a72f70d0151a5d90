"""The page about training runs: where they are, their curves, what they are, what the trained networks are worth."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hwbench import __version__
from hwbench.reports import run_figures
from hwbench.reports.fragments import DASH, code, facts, figure, missing, reproduce, sortable, tile, wide
from hwbench.reports.markup import Html, element, table
from hwbench.reports.profiled import Missing
from hwbench.reports.run import FinalScores, RunReport, RunsReport
from hwbench.training.description import RunDescription

# Pairs of classes that are confused most, in the table.
_MOST_PAIRS = 200
# Unreadable videos that are listed before the others are only counted.
_MOST_UNREADABLE = 200
_MEASURES = {"class_top1": "mean top-1 of classes", "calibration_error": "calibration error", "mean_ap": "mAP"}


def everything(report: RunsReport, reload_s: float | None = None) -> list[Html]:
    """The parts of the page; ``reload_s``: seconds after which it reloads itself."""
    runs = report.runs
    alone = (part for place, run in enumerate(runs, 1) for part in _run(run, place, len(runs) > 1))
    return [*_headline(report, reload_s), *_curves(runs), *alone]


def _headline(report: RunsReport, reload_s: float | None) -> Iterator[Html]:
    runs = report.runs
    one = len(runs) == 1
    yield element("h1", f"Run {runs[0].name}" if one else f"{len(runs)} runs: {', '.join(run.name for run in runs)}")
    for run in runs:
        words = status(run) if one else f"{run.name}: {status(run)}"
        yield element("p", words, class_="lead") if run.ended else missing(words)
    if reload_s is not None:
        yield element("p", f"This page reloads itself every {reload_s:g} s until the end.", class_="muted")
    if one:
        yield element("div", *(tile(*cells) for cells in _tiles(runs[0])), class_="tiles")
    else:
        yield _side_by_side(runs)
        yield from _differences(runs)
    yield facts(("Page written, UTC", runs[0].written_at), ("hwbench", __version__))
    yield reproduce(f"hwbench report {shlex.join(str(run.folder) for run in runs)}")


def status(run: RunReport) -> str:
    """Where a run is, in one sentence or two."""
    log = run.log
    last = f"The last line was written {log.written_at} (UTC)."
    if run.ended:
        return f"Ended after {log.done_steps} steps. {last}"
    state = run.state.capitalize() if run.trained_now else "Interrupted (no process of this machine trains it)"
    if not log.steps:
        return f"{state}: no step is logged yet. {last}"
    at = f"step {log.done_steps}{_of(run.steps)}, epoch {log.steps[-1].epoch + 1}{_of(run.epochs)}"
    return f"{state}: {at}. {last} The curves go up to there."


def _of(total: int | None) -> str:
    return "" if total is None else f" of {total}"


def _tiles(run: RunReport) -> Iterator[tuple[str, str, str]]:
    last = run.last_validated
    if last is not None and last.top1 is not None and last.top5 is not None:
        note = f"after epoch {last.epoch + 1}"
        error = f", standard error {_standard_error(last.top1, last.videos):.1%}" if last.videos else ""
        yield "top-1", f"{last.top1:.1%}", f"{note}{error}"
        yield "top-5", f"{last.top5:.1%}", note
        best = max(run.log.validated, key=lambda epoch: epoch.top1 or 0.0)
        if (best.top1 or 0.0) > last.top1:
            yield "best top-1", f"{best.top1:.1%}", f"after epoch {best.epoch + 1}; not what is stored"
        for name, value in last.measures.items():
            yield _MEASURES.get(name, name), f"{value:.3f}", note
    if run.log.steps:
        length = run_figures.smoothing_steps(len(run.log.steps))
        average = run_figures.smoothed([step.loss for step in run.log.steps], length)[-1]
        yield "loss", f"{average:.3f}", f"of the last {length} steps or so"
        yield "steps", str(run.log.done_steps), _of(run.steps).strip()


def _standard_error(share: float, count: int) -> float:
    return math.sqrt(share * (1 - share) / count)


def _side_by_side(runs: Sequence[RunReport]) -> Html:
    columns = ("run", "state", "steps", "epochs", "top-1", "top-5", "best top-1", "calibration error", "mAP")
    return table(columns, [_row(run) for run in runs], numeric=range(2, len(columns)))


def _row(run: RunReport) -> tuple[str, ...]:
    last = run.last_validated
    best = max((epoch.top1 for epoch in run.log.validated if epoch.top1 is not None), default=None)
    measures = {} if last is None else last.measures
    values = (None, None) if last is None else (last.top1, last.top5)
    shares = (*values, best, measures.get("calibration_error"), measures.get("mean_ap"))
    counts = (str(run.log.done_steps), str(len(run.log.epochs)))
    return (run.name, run.state, *counts, *(DASH if share is None else f"{share:.4f}" for share in shares))


def _differences(runs: Sequence[RunReport]) -> Iterator[Html]:
    """What tells the runs apart, a column for each."""
    described = [run.description for run in runs if not isinstance(run.description, Missing)]
    if len(described) < len(runs):
        yield missing("what tells these runs apart is not shown: not all of them say what they are")
        return
    plain = [dict(_described(one)) for one in described]
    names = dict.fromkeys(name for values in plain for name in values)
    rows = [(name, *(values.get(name, DASH) for values in plain)) for name in names]
    differing = [row for row in rows if len(set(row[1:])) > 1]
    yield element("h3", "What tells them apart")
    if differing:
        yield table(("", *(run.name for run in runs)), differing)
    else:
        yield element("p", "Network, data and recipe are the same.")


def _described(one: RunDescription) -> Iterator[tuple[str, str]]:
    yield "network", one.network
    yield "input", one.input
    yield "data", one.data
    yield "classes", str(one.classes)
    yield from ((f"{part} videos", str(count)) for part, count in one.videos.items())
    yield from one.begins_with.items()
    yield from ((name, _plain(value)) for name, value in one.recipe.items())


def _plain(value: Any) -> str:
    """A field of a recipe."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or DASH
    return DASH if value == "" else str(value)


def _curves(runs: Sequence[RunReport]) -> Iterator[Html]:
    yield element("h2", "Curves")
    if any(run.log.steps for run in runs):
        length = run_figures.smoothing_steps(max(len(run.log.steps) for run in runs))
        yield element("h3", "Loss")
        yield figure("loss", run_figures.loss(runs), _loss_caption(runs, length))
        yield element("h3", "Learning rate")
        yield figure("rate", run_figures.learning_rate(runs), "The learning rate of each step.")
    else:
        yield missing("no step is logged yet: the loss and the learning rate wait for the first one")
    yield element("h3", "Top-1 and top-5")
    if any(run.log.validated for run in runs):
        caption = (
            "Share of validation videos after each epoch, of the running average of the weights where there is one."
        )
        yield figure("accuracy", run_figures.accuracy(runs), caption)
    else:
        yield missing("no epoch is validated yet: top-1 and top-5 wait for the first one")
    if any("calibration_error" in epoch.measures for run in runs for epoch in run.log.validated):
        yield element("h3", "Calibration error")
        caption = (
            "How far the highest score of a video is from the share of videos that are right, a mean over 15 bins "
            "weighted by their videos (Guo et al. 2017); 0 is best."
        )
        yield figure("calibration", run_figures.calibration_errors(runs), caption)


def _loss_caption(runs: Sequence[RunReport], length: int) -> str:
    thinned = max(len(run.log.steps) for run in runs) > run_figures.MAX_STEPS
    drawn = f" At most {run_figures.MAX_STEPS} steps of a run are drawn, evenly." if thinned else ""
    return f"Thin: every step. Thick: an exponential moving average over about {length} steps.{drawn}"


def _run(run: RunReport, place: int, several: bool) -> Iterator[Html]:
    """One run by itself; ids end with its place in the page, from 1: its name may hold what no id can."""
    if several:
        yield element("h2", f"Run {run.name}")
    yield element("h3" if several else "h2", "What the run is")
    yield from _description(run)
    yield element("h3" if several else "h2", "The trained network")
    if isinstance(run.scores, Missing):
        yield missing(run.scores.reason)
    else:
        yield from _final(run.scores, place)
    yield element("h3" if several else "h2", "Unreadable videos")
    yield from _unreadable(run)


def _description(run: RunReport) -> Iterator[Html]:
    yield facts(("Folder", str(run.folder)))
    if isinstance(run.description, Missing):
        yield missing(run.description.reason)
        return
    one = run.description
    videos = ", ".join(f"{count} {part}" for part, count in one.videos.items())
    yield facts(
        ("Network", one.network),
        ("Input, N x C x T x H x W", one.input),
        ("Data", one.data),
        ("Classes", str(one.classes)),
        *([("Videos", videos)] if videos else []),
        *one.begins_with.items(),
    )
    recipe = [(name, _plain(value)) for name, value in one.recipe.items()]
    short = ("epochs", "batch_size", "optimizer", "learning_rate", "schedule", "precision", "seed")
    summary = ", ".join(f"{name} {_plain(one.recipe[name])}" for name in short if name in one.recipe)
    yield element("details", element("summary", f"Recipe: {summary}"), table(("field", "value"), recipe))


def _final(scores: FinalScores, place: int) -> Iterator[Html]:
    shares = {"top-1": scores.top1, "top-5": scores.top5, **{_MEASURES[key]: v for key, v in scores.measures.items()}}
    cells = [(key, f"{value:.4f}") for key, value in shares.items()]
    yield facts(("Validation videos", str(scores.videos)), *cells)
    yield element("h3", "Accuracy by class, worst first")
    count = len(scores.worst_first)
    part = f"The {run_figures.MAX_BARS} worst of {count} classes. " if count > run_figures.MAX_BARS else ""
    yield figure(
        f"classes-{place}", run_figures.class_accuracy(scores.worst_first), f"{part}The table has all {count} classes."
    )
    rows = [
        (one.name, one.accuracy, one.videos, *((one.taken_for[0], one.taken_for[1]) if one.taken_for else (None, None)))
        for one in scores.worst_first
    ]
    table_columns = ("class", "accuracy", "videos", "most often taken for", "videos taken so")
    yield _folded(f"All {count} classes", sortable(f"class-rows-{place}", table_columns, _rounded(rows)))
    yield element("h3", "Confusion matrix")
    if scores.confusion is None:
        yield element(
            "p", "Videos have several classes at once: there is no confusion matrix and no calibration error."
        )
        return
    yield from _confusion(scores, place)
    yield element("h3", "Calibration")
    if isinstance(scores.calibration, Missing):
        yield missing(scores.calibration.reason)
    else:
        caption = (
            "Videos by their highest score. On the dashed line the score is the share that is right; below it the "
            "network is too sure of itself."
        )
        yield figure(f"reliability-{place}", run_figures.reliability(scores.calibration), caption)


def _confusion(scores: FinalScores, place: int) -> Iterator[Html]:
    assert scores.confusion is not None
    count = len(scores.classes)
    labelled = count <= run_figures.LABELLED
    numbered = "" if labelled else " Classes are numbered from 0 as in the data; the table below names the pairs."
    caption = f"Rows are the classes of videos, columns what they were taken for; a row sums to 100 %.{numbered}"
    drawn = figure(f"confusion-{place}", run_figures.confusion(scores), caption)
    yield wide(drawn, 320 + run_figures.ROW * count if labelled else 640)
    pairs = sorted(
        (
            (-videos, scores.classes[i], scores.classes[j], sum(row), i, j)
            for i, row in enumerate(scores.confusion)
            for j, videos in enumerate(row)
            if videos and i != j
        ),
    )
    rows = [(a, b, -less, of, round(-less / of, 4), i, j) for less, a, b, of, i, j in pairs[:_MOST_PAIRS]]
    if rows:
        title = f"The {len(rows)} pairs of classes that are confused most, of {len(pairs)}"
        columns = ("class", "taken for", "videos", "of", "share", "row", "column")
        yield _folded(title, sortable(f"pairs-{place}", columns, rows))
    else:
        yield element("p", "No video was taken for one of another class.")


def _folded(title: str, content: Html) -> Html:
    return element("details", element("summary", title), content)


def _rounded(rows: Iterable[Sequence[str | float | None]]) -> list[list[str | float | None]]:
    return [[round(cell, 4) if isinstance(cell, float) else cell for cell in row] for row in rows]


def _unreadable(run: RunReport) -> Iterator[Html]:
    last = run.log.epochs[-1] if run.log.epochs else None
    if last is None:
        yield missing("the end of the first epoch says which training videos could not be read")
        return
    if not last.unreadable and not last.lost_samples:
        yield element("p", f"All training videos could be read up to epoch {last.epoch + 1}.")
        return
    words = f"Training videos that could not be read: {len(last.unreadable)}; samples left out: {last.lost_samples}."
    yield element("p", words)
    listed = sorted(last.unreadable.items())[:_MOST_UNREADABLE]
    yield table(("video", "cause"), [(code(path), cause) for path, cause in listed])
    if len(last.unreadable) > len(listed):
        yield element("p", f"And {len(last.unreadable) - len(listed)} more: {run.folder}/metrics.jsonl lists them.")
