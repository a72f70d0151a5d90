"""The top of a report: the study and its winner at a glance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hwbench.errors import InvalidValue
from hwbench.reports import commands
from hwbench.reports.fragments import DASH, code, facts, missing, ms, reproduce, tile
from hwbench.reports.markup import Html, element, table
from hwbench.reports.profiled import Missing
from hwbench.reports.result import StoredResult
from hwbench.reports.study import StudyReport
from hwbench.spaces.begun import asked_ms
from hwbench.specs import Architecture
from hwbench.studies.candidates import Candidate
from hwbench.studies.settings import Settings
from hwbench.units import format_bytes

_STAGE = "s"
_SIZES = {"file_size_bytes": "file", "activation_bytes": "activations"}


def headline(report: StudyReport) -> Iterator[Html]:
    """The study and its winner at a glance."""
    result, best = report.result, report.result.best
    settings, target = result.settings, result.target
    device = target.device if isinstance(report.device, Missing) else f"{target.device} ({report.device})"
    yield element("h1", f"Study {result.study}")
    yield element("p", _sentence(report), class_="lead")
    yield element("div", *(tile(*cells) for cells in _tiles(report)), class_="tiles")
    yield from (missing(doubt) for doubt in report.doubts)
    yield element("h3", "The winner, stage by stage")
    yield _architecture(report)
    yield element("p", code(best.architecture))
    yield facts(
        ("Space", _spaces_words(result)),
        ("Device", device),
        ("Target", f"{target} (runtime and version, threads)"),
        ("Precision", result.precision.value),
        ("Budget", _budget(result.settings)),
        *(("Further target", key) for key in settings.further_budgets_ms),
        (
            "Networks within the budget",
            f"{result.feasible:,.0f}" if result.feasible < 1e9 else f"{result.feasible:.3g}",
        ),
        ("Trials", f"{result.trials} ({settings.sampler}, evaluator {settings.evaluator}, seed {settings.seed})"),
        ("Measured candidates", _measured_words(result.measured)),
        *((f"File, {model.precision}", str(model.path)) for model in report.models),
    )
    if any(c.failure for c in result.measured):
        rows = [(code(c.architecture), c.failure) for c in result.measured if c.failure]
        yield element("details", element("summary", "Candidates that failed"), table(("architecture", "reason"), rows))
    yield reproduce(commands.search(result), commands.bench(result, result.precision))


def _sentence(report: StudyReport) -> str:
    result, best = report.result, report.result.best
    each = " a frame" if result.settings.streaming else ""
    found = (
        f"The best network of {' and '.join(result.settings.spaces)} for {' and '.join(result.settings.budgets_ms)} in "
        f"{result.precision} within {_budget(result.settings)}"
    )
    if best.measured_s is None:
        return f"{found} is predicted to take {ms(best.predicted_s)}{each}; it was not measured."
    if best.further:
        measured = best.measured(result.target.device)
        return f"{found} takes {' and '.join(f'{ms(t)}{each} on {name}' for name, t in measured.items())} as measured."
    room = 1 - best.measured_s / result.settings.budget_s
    words = f"{room:.1%} below the budget" if room >= 0 else f"{-room:.1%} above the budget"
    return f"{found} takes {ms(best.measured_s)}{each} as measured on the device: {words}."


def _budget(settings: Settings) -> str:
    """All upper limits of a study; where they are to hold for minutes, those as they were asked for."""
    if settings.sustained:
        return _for_minutes(settings)
    if list(settings.budgets_ms) == [settings.device] and not settings.max_file_bytes | settings.max_activation_bytes:
        return f"{settings.budget_ms:g} ms" + (" a frame" if settings.streaming else "")
    return settings.budgets_text()


def _for_minutes(settings: Settings) -> str:
    cool = _budget(replace(settings, sustained={}))
    ratios = " and ".join(f"{ratio:.5g}" for ratio in settings.sustained.values())
    if list(settings.budgets_ms) == [settings.device] and not settings.smaller_budgets_ms:
        asked = asked_ms(settings.budget_ms, settings.sustained[settings.device])
        each = " a frame" if settings.streaming else ""
        return f"{asked:.12g} ms{each} for minutes ({cool} on the cool device, ratio {ratios})"
    return f"{cool}, on the cool device; for minutes longer by the ratio {ratios}"


def _tiles(report: StudyReport) -> Iterator[tuple[str, str, str]]:
    result, best = report.result, report.result.best
    spread = report.winner_spread
    if spread is None:
        note = "no interval: nothing predicts"
    else:
        within = f"{1e3 * best.predicted_s / spread:.3f} – {1e3 * best.predicted_s * spread:.3f} ms"
        note = f"90 % interval {within}, on the occasion of the table"
    yield "predicted", ms(best.predicted_s), note
    yield "measured", DASH if best.measured_s is None else ms(best.measured_s), _measured_note(report)
    for other in best.further:
        yield f"predicted on {other.device}", ms(other.predicted_s), "by its table"
        time = DASH if other.measured_s is None else ms(other.measured_s)
        yield f"measured on {other.device}", time, f"budget {result.settings.budgets_ms[other.device]:g} ms"
    for name, num_bytes in best.sizes:
        yield _SIZES[name], format_bytes(num_bytes), "by the operations of its blocks"
    how = f"{result.precision}, {_threads(result.target.threads)}"
    yield "budget", f"{result.settings.budget_ms:g} ms", how + (", of a new frame" if result.settings.streaming else "")
    race = result.races.get(result.settings.budget_ms)
    raced = None if race is None else race.top1(best.architecture)
    score = result.settings.shown_score(best.score)
    if raced is None:
        yield "score", f"{score:.5g}", report.unit
    else:  # the best of many scores is a lucky one
        yield "top-1 in its race", f"{raced:.1%}", f"trained anew; its score was {score:.4g}"
    for model in report.models:
        top1 = DASH if model.top1_after is None else f"{model.top1_after:.1%}"
        size = "file not found" if model.num_bytes is None else format_bytes(model.num_bytes)
        yield f"top-1 {model.precision}", top1, f"of the exported file, {size}"


def _measured_note(report: StudyReport) -> str:
    if report.result.best.measured_s is None:
        return "not measured"
    if isinstance(report.winner, Missing) or report.winner.measurement is None:
        return "on the device, as a whole network"
    stats = report.winner.measurement.measurement.stats
    return f"95 % interval {1e3 * stats.ci_low_s:.3f} – {1e3 * stats.ci_high_s:.3f} ms"


def _architecture(report: StudyReport) -> Html:
    """The choices of the winner as a table: a line for the input, one for each stage."""
    try:
        choices = Architecture.parse(report.result.best.architecture).choices
    except InvalidValue as error:
        return missing(str(error))
    stages: dict[str, dict[str, str]] = {}
    inputs = []
    for name, value in choices:
        stage, dot, field = name.partition(".")
        if dot and stage[:1] == _STAGE and stage[1:].isdecimal():
            stages.setdefault(stage, {})[field] = value
        else:
            inputs.append(f"{name} {value}")
    fields = list(dict.fromkeys(field for chosen in stages.values() for field in chosen))
    ends = _stage_ends(report)
    rows = [("input", *[""] * len(fields), ", ".join(inputs))]
    if ends:
        rows.append(("stem", *[""] * len(fields), ends.get("stem", "")))
    rows += [(name, *(chosen.get(f, "") for f in fields), ends.get(name, "")) for name, chosen in stages.items()]
    if ends:
        rows.append(("head", *[""] * len(fields), ends.get("head", "")))
    return table(("stage", *fields, "output N×C×T×H×W" if ends else "size"), rows)


def _stage_ends(report: StudyReport) -> dict[str, str]:
    """What the network holds behind each stage; empty where the blocks are not known."""
    if isinstance(report.winner, Missing):
        return {}
    return {block.name.partition(".")[0]: block.reached.key for block in report.winner.blocks}


def _spaces_words(result: StoredResult) -> str:
    """The space; of several that competed the winner's first."""
    others = [name for name in result.settings.spaces if name != result.space]
    return f"{result.space}, which won over {' and '.join(others)}" if others else result.space


def _measured_words(measured: Sequence[Candidate]) -> str:
    failed = sum(c.measured_s is None for c in measured)
    return f"{len(measured) - failed}" + (f", {failed} more failed" if failed else "")


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"
