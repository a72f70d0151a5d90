"""Whether a study earned its answer: its front, the race of its finalists, what its score is worth and what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hwbench.printable import counted
from hwbench.reports import commands, figures, search_figures
from hwbench.reports.fragments import DASH, code, figure, missing, number, numbers, reproduce
from hwbench.reports.guessing import FEWEST_DRAWS, Guessing
from hwbench.reports.markup import Html, element, table
from hwbench.reports.profiled import Missing
from hwbench.reports.race_advice import race_advice
from hwbench.reports.result import StoredResult
from hwbench.reports.study import StudyReport
from hwbench.studies.candidates import Candidate
from hwbench.studies.left_out import LeftOut
from hwbench.studies.race import FAILED, RaceResult, RaceStanding
from hwbench.studies.ranking import Interval
from hwbench.units import format_duration


def front(report: StudyReport) -> Iterator[Html]:
    """The answer for each budget, where there are several."""
    result = report.result
    if not result.front:
        return
    yield element("h2", "The best network within each budget")
    rows = [
        (f"{point.budget_ms:g}", f"{point.feasible:,.0f}", *_answer(point.best, point.budget_ms, result))
        if point.best is not None
        else (f"{point.budget_ms:g}", f"{point.feasible:,.0f}", *[DASH] * 4, "none was measured within it")
        for point in result.front
    ]
    columns = ("score", "in its race", "predicted (ms)", "measured (ms)", "architecture")
    yield table(("budget (ms)", "networks within", *columns), rows, numeric=range(6))
    note = "All trials count for every budget that they are within; proposals take turns between the budgets."
    yield element("p", note, class_="muted")
    yield reproduce(commands.search(result))


def race(report: StudyReport) -> Iterator[Html]:
    """How the finalists fared against each other."""
    result = report.result
    races = {budget: one for budget, one in result.races.items() if one.rounds}
    yield element("h2", "The race of the finalists")
    if not races:
        yield missing(f"no finalists raced: the winner is whom the score liked best; {race_advice(result)}")
        return
    one = next(iter(races.values()))
    caption = (
        f"The best networks by score that were measured within the budget, trained on {one.data}, compared on the same "
        f"{one.videos} validation videos by the accuracy of {_score_words(one)}. A round begins with the weights of "
        "the last one and trains twice as long. Out is who is worse than the leader by the evidence (beaten), or not "
        "among the better half (halved)."
    )
    yield figure("race", search_figures.race(races), caption)
    for budget_ms, result_of in races.items():
        where = f" within {budget_ms:g} ms" if len(result.front) > 1 else ""
        yield element("p", f"The race{where}: {verdict(result_of)}")
        rows = [_race_row(number, s) for number, r in enumerate(result_of.rounds, 1) for s in r.standings]
        columns = ("round", "top-1", "loss (nats)", "behind the leader by, top-1", "loss", "outcome", "architecture")
        yield numbers(f"All trainings of the race{where} ({len(rows)})", columns, rows, (0, 1, 2))
    yield reproduce(commands.search(result))


def verdict(race: RaceResult) -> str:
    """How a race ended, as a sentence."""
    if race.fallback:
        return f"{race.fallback}."
    margin = race.margin
    if margin is None:
        return "one finalist was left without a comparison."
    words = (
        "more accurate than the next one by the evidence"
        if race.told_apart
        else "not told apart from the next one: the halving decided"
    )
    return f"the winner is {words} ({_points(margin)} of top-1)."


def worth(report: StudyReport) -> Iterator[Html]:
    """Whether the score of the study ranks trained networks."""
    result, name = report.result, report.result.settings.evaluator
    yield element("h2", "What the score is worth")
    if result.learned is not None and math.isfinite(result.learned.tau.low):
        yield element("p", _begun(result.learned))
    if isinstance(report.board, Missing):
        yield missing(report.board.reason)
        return
    (one,) = report.board.standings
    tau = one.tau
    words = f"Networks of the study that were trained ({report.judged_by}): {one.networks}."
    if math.isfinite(tau.value) and math.isfinite(tau.low):
        words += (
            f" Kendall's tau of {name} with their top-1 is {tau.value:.2f} (95 %: {tau.low:.2f} to {tau.high:.2f})."
        )
        words += (
            f" Its first choice loses {one.regret:.1%} to the best of them, a draw {report.board.chance_regret:.1%}."
        )
    yield element("p", f"{words} {name}: {one.verdict}.")
    if math.isfinite(tau.low) and not one.informative:
        yield missing(
            f"{name} is uninformative on these networks: what it likes best is a draw. Let finalists race "
            "(--finalists), or choose another evaluator by hwbench scoreboard"
        )
    yield reproduce(f"hwbench scoreboard {result.study}")


def _begun(learned: LeftOut) -> str:
    """What a model of the trainings of before says of networks that it does not know."""
    tau = learned.tau
    return (
        f"A model of the trainings that the study began from ranks {learned.networks} of their networks, each left "
        f"out in turn, with a Kendall's tau of {tau.value:.2f} (95 %: {tau.low:.2f} to {tau.high:.2f})."
    )


def cost(report: StudyReport) -> Iterator[Html]:
    """The course of the search beside random draws, and what it cost beside guessing."""
    result, guessing = report.result, report.guessing
    yield element("h2", "Trial history")
    drawn = figures.history(report)
    caption = f"Score of each of {len(result.history)} trials in the order they were run, and the best so far."
    caption += figures.unnamed(result)
    if beyond := sum(not result.is_within(one) for one in result.history):
        caption += (
            f" {beyond} of them {'was' if beyond == 1 else 'were'} beyond the budget by the latency table when the "
            "search ended, and no best so far."
        )
    if result.given_up:
        behind = counted(result.given_up, "more network")
        caption += f" {result.settings.pruner} gave up {behind}, behind the others before the end of the training."
    if result.unpredicted:
        caption += (
            f" {counted(result.unpredicted, 'more network')} with a score had a block that the latency table lacked "
            "when the search ended."
        )
    if (lost := result.trials - len(result.history) - result.given_up - result.unpredicted) > 0:
        caption += f" {lost} more trials ended without a score."
    if guessing is not None and guessing.expected:
        expected = list(map(report.result.settings.shown_score, guessing.expected))
        drawn = search_figures.random_draws(drawn, expected, guessing.fewest)
        caption += (
            f" Random: the expected best of as many uniform draws, from the {guessing.drawn} draws of the study"
            f"{' within the budget' if guessing.beyond else ''}; more of them would say more."
        )
        if guessing.given_up:
            caption += (
                f" {guessing.given_up} of them were given up and count as worse than the others: of as few draws "
                "nothing is said."
            )
    yield figure("history", drawn, caption)
    if guessing is None:
        yield missing(
            "an older version did not store how long the trials took: what guessing would have cost is not known"
        )
    else:
        for sentence in _guessing_words(guessing, report):
            yield element("p", sentence)
    yield reproduce(commands.search(result))


def importance(report: StudyReport) -> Iterator[Html]:
    """Which choices the scores depend on."""
    yield element("h2", "The choices that matter")
    if isinstance(report.importance, Missing):
        yield missing(report.importance.reason)
        yield reproduce(commands.search(report.result))
        return
    caption = (
        "Share of the variance of the scores that each choice explains alone (fANOVA, a forest over the trials). "
        "What was tried counts, and a search tries good networks more often. What choices explain only together is not "
        "shown: shares may sum to less than 100 %."
    )
    yield figure("importance", search_figures.importance(report.importance), caption)
    rows = [(name, f"{share:.1%}") for name, share in report.importance.items()]
    yield numbers(f"All choices as numbers ({len(rows)})", ("choice", "share"), rows, (1,))
    yield reproduce(commands.search(report.result))


def _spent(guessing: Guessing) -> str:
    """How long the trials took: by the clock, which earlier versions did not store, else in worker time."""
    worker = f"{format_duration(guessing.trials_s)} of worker time"
    trials = worker if guessing.clock_s is None else format_duration(guessing.clock_s)
    race = f"; the finalists took {format_duration(guessing.race_s)} of worker time" if guessing.race_s else ""
    return f"The trials took {trials}{race}"


def _each(guessing: Guessing) -> str:
    """How long a training takes: among the trials, where these were trainings, and among the finalists."""
    raced = f"{format_duration(guessing.training_s or 0.0)} each"
    if guessing.among_trials_s is None:
        return raced
    return f"{format_duration(guessing.among_trials_s)} each beside the trials and {raced} beside the finalists"


def _guessing_words(guessing: Guessing, report: StudyReport) -> Iterator[str]:
    spent = _spent(guessing)
    if guessing.networks is None:
        yield (
            f"{spent}. How many random networks could have been trained in that time is not known: the search trained "
            "none to the end."
        )
    else:
        worker_s = guessing.trials_s + guessing.race_s
        yield (
            f"{spent}. In {format_duration(worker_s)} of worker time {guessing.networks} random networks would have "
            f"been trained, at {_each(guessing)}."
        )
    if guessing.expected:
        lost = f", {guessing.given_up} of them given up," if guessing.given_up else ""
        drawn, best = map(report.result.settings.shown_score, (guessing.expected[-1], guessing.best))
        yield (
            f"By the study's own score the best of {guessing.drawn} random networks{lost} is expected at {drawn:.4g}; "
            f"the search came to {best:.4g}, {best - drawn:+.4g}."
        )
    elif not report.result.front:
        yield _too_few(guessing)
    truth = report.truth
    if truth is not None:
        count = min(guessing.networks or len(truth.expected), len(truth.expected))
        if count:
            yield (
                f"By the ground truth in {truth.folder} the best of {count} random networks has an expected top-1 of "
                f"{truth.expected[count - 1]:.1%}; a single one {truth.expected[0]:.1%}, the best of all "
                f"{len(truth.expected)} that were trained {truth.expected[-1]:.1%}."
            )


def _too_few(guessing: Guessing) -> str:
    """Why nothing is said of what draws come to."""
    draws = "1 trial was a uniform draw" if guessing.drawn == 1 else f"{guessing.drawn} trials were uniform draws"
    if guessing.beyond:
        draws += f" within the budget, and {guessing.beyond} more are beyond it by newer rows of the table"
    if guessing.drawn < FEWEST_DRAWS:
        return f"{draws}; {FEWEST_DRAWS} are needed to say what draws come to."
    return f"{draws}, and all of them were given up: what draws come to is not known."


def _answer(best: Candidate, budget_ms: float, result: StoredResult) -> tuple[str, ...]:
    measured = DASH if best.measured_s is None else number(best.measured_s)
    race, score = result.races.get(budget_ms), result.settings.shown_score(best.score)
    top1 = None if race is None else race.top1(best.architecture)
    raced = DASH if top1 is None else f"{top1:.1%}"
    return f"{score:.6g}", raced, number(best.predicted_s), measured, code(best.architecture)


def _race_row(round: int, standing: RaceStanding) -> tuple[str, ...]:
    if standing.outcome == FAILED:
        return str(round), DASH, DASH, DASH, DASH, f"failed: {standing.note}", code(standing.architecture)
    behind = DASH if standing.behind is None else _points(standing.behind)
    lost = standing.loss_behind
    loss = DASH if lost is None else f"{lost.value:+.3f} ({lost.low:+.3f} to {lost.high:+.3f})"
    cells = f"{standing.top1:.1%}", f"{standing.loss:.3f}", behind, loss, standing.outcome
    return str(round), *cells, code(standing.architecture)


def _points(interval: Interval) -> str:
    low, value, high = (100 * one for one in (interval.low, interval.value, interval.high))
    return f"{value:+.1f} points, {low:+.1f} to {high:+.1f}"


def _score_words(race: RaceResult) -> str:
    return "the int8 file" if race.score == "int8" else "the trained network"
