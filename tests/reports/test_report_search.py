"""Whether a study earned its answer, as its page says it: race, scoreboard, draws, choices, front, ground truth."""

import json
import re
import time
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from hwbench.api.report import ReportRequest
from hwbench.api.scoreboard import ScoreboardRequest, scoreboard
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, NotMeasured
from hwbench.reports import commands, gather, page
from hwbench.reports.choices import importances
from hwbench.reports.guessing import Guessing, expected_best
from hwbench.reports.result import read_result
from hwbench.reports.trained import raced_networks, study_scoreboard
from hwbench.spaces import load_space
from hwbench.specs import Architecture, Precision
from hwbench.studies.candidates import Candidate
from hwbench.studies.paired import VideoResults
from hwbench.studies.race import FinalistRun, Race
from hwbench.studies.settings import missing_rows
from hwbench.workspace import Workspace

VIDEOS = 64

LEARNED = "learned from 24 networks of first, ../my truth (0123456789ab)"


class Trained:
    """Networks whose accuracy falls with their place in a list, by two videos each; which ones they are is chance."""

    description = {"data": "synthetic", "score": "int8", "epochs": 4}

    def __init__(self, architectures):
        self.architectures = architectures

    def __call__(self, architecture, number, /):
        place = self.architectures.index(architecture)
        hits = np.random.default_rng([place, number]).permutation(VIDEOS) < 50 - 2 * place
        return FinalistRun(VideoResults(hits, np.ones(VIDEOS)), seconds=10.0 * 2 ** (number - 1))


@pytest.fixture
def raced(workspace, stored) -> Workspace:
    """The study ``mine`` with eight finalists, of which the score liked the worst best."""
    result = read_result(workspace, "mine")
    best_first = [c.architecture for c in sorted(result.history, key=lambda c: -c.score)][:8]
    race = Race(8, Trained(best_first[::-1])).run(best_first)
    stored(lambda values: values.update(race=race.to_json(), course={"seconds": 60.0, "draws": list(range(6, 16))}))
    return workspace


def test_finalists_judge_by_the_data_that_are_asked_for(raced):
    assert scoreboard(ScoreboardRequest(source="mine", data="synthetic"), workspace=raced).board.networks == 8
    with pytest.raises(NotMeasured, match=r"none of its networks has been trained on other; .* or leave out --data"):
        scoreboard(ScoreboardRequest(source="mine", data="other"), workspace=raced)


def test_expected_best_is_that_of_all_subsets():
    assert expected_best([3.0, 1.0, 2.0]) == pytest.approx((2.0, 8 / 3, 3.0))
    assert expected_best([]) == ()
    rng = np.random.default_rng(0)
    values, drawn = rng.normal(size=9), rng.permuted(np.tile(np.arange(9), (20_000, 1)), axis=1)[:, :4]
    assert expected_best(values.tolist())[3] == pytest.approx(values[drawn].max(1).mean(), abs=0.02)


def test_expected_best_of_more_draws_than_floats_can_count_subsets_of():
    best = expected_best([float(value) for value in range(1500)])
    assert best == pytest.approx([n * 1501 / (n + 1) - 1 for n in range(1, 1501)], rel=1e-12)


def test_the_choice_that_decides_is_found():
    rng, trials = np.random.default_rng(0), []
    for number in range(24):
        depth, width, se = rng.integers(0, 3, 3)
        key = f"x:s1.depth={depth},s1.width={8 * (width + 1)},s1.se={se},s1.act=relu"
        trials.append(Candidate(key, 5.0 * depth + width, 1e-3, trial=number))
    shares = importances(trials)
    assert next(iter(shares)) == "s1.depth"
    assert shares["s1.depth"] > 0.8
    assert "s1.act" not in shares  # it never varied
    assert sum(shares.values()) <= 1
    with pytest.raises(HwbenchError, match="2 networks have a score"):
        importances(trials[:2])
    with pytest.raises(HwbenchError, match="same score"):
        importances([Candidate(c.architecture, 1.0, 1e-3) for c in trials])


def test_a_choice_has_no_share_of_what_others_explain_only_together():
    """Of the variance ``depth`` has a fifth, and the pair of ``width`` and ``se`` the rest."""
    trials = [
        Candidate(f"x:depth={depth},width={width},se={se},act={act}", depth + 2.0 * (width != se), 1e-3)
        for depth, width, se, act in product((0, 1), repeat=4)
    ]
    shares = importances(trials)
    assert shares["depth"] == pytest.approx(0.2, abs=0.1)
    assert sum(shares.values()) < 0.5


def test_the_page_of_a_race(raced, parse):
    report = gather(raced, "mine")
    shown = parse(page(report))
    race = report.result.race
    assert [len(one.standings) for one in race.rounds] == [8, 4, 2]
    trace = shown.trace("race", "winner")
    assert trace["x"] == [4, 12, 28]
    assert trace["y"] == pytest.approx([50 / VIDEOS] * 3)
    assert "the accuracy of the int8 file" in shown.text
    assert "not told apart from the next one: the halving decided (+3.1 points, -" in shown.text
    assert f"compared on the same {VIDEOS} validation videos" in shown.text
    # 8 x 10 s, 4 x 20 s, 2 x 40 s and the minute of the trials, at 10 s each
    assert report.guessing.networks == 30
    # a course of before tells worker time alone
    assert "The trials took 1 min 00 s of worker time; the finalists took 4 min 00 s of worker time." in shown.text
    assert "In 5 min 00 s of worker time 30 random networks would have been trained, at 10 s each" in shown.text
    command = commands.search(report.result)
    assert "--finalists 8 --finalist-epochs 4 --finalist-score int8" in command
    assert "--data synthetic" in command
    assert "--no-interpolate" in command
    for rows, option in ((missing_rows(True, None), "--interpolate"), (missing_rows(None, "t4"), "--transfer-from t4")):
        settings = replace(report.result.settings, missing_rows=rows)
        told = replace(report.result, settings=settings)
        assert f" {option} " in commands.search(told)
        assert [f" {option}" in command for command in commands.validate(told)] == [True]
    asked = commands.search(report.result).partition("--budget ")[2].partition("ms")[0]
    settings = report.result.settings
    hot = replace(settings, budget_ms=settings.budget_ms / 1.25, sustained={settings.device: 1.25})
    command = commands.search(replace(report.result, settings=hot))
    assert float(command.partition("--budget ")[2].partition("ms")[0]) == pytest.approx(float(asked))
    assert " --sustained " in command
    for learned in ({"effort": LEARNED}, {"effort": "2 epochs", "begun_from": LEARNED}):
        command = commands.search(replace(report.result, settings=replace(settings, **learned)))
        assert " --learn-from first --learn-from '../my truth' " in command


@pytest.mark.parametrize(("alike", "ends"), [(0.125, (0.105, 0.145)), (1.0, (0.98, 1.0)), (0.0, (0.0, 0.02))])
def test_an_axis_of_accuracy_holds_what_is_there_and_no_more(raced, stored, parse, alike, ends):
    def edit(values):
        for one in values["race"]["rounds"]:
            for standing in one["finalists"]:
                standing["top1"] = alike

    stored(edit)
    axis = parse(page(gather(raced, "mine"))).figure("race")["layout"]["yaxis"]
    assert axis["range"] == pytest.approx(ends)
    assert axis["tickformat"] == ".1%"  # whole percents would repeat


def test_networks_that_were_given_up_are_no_failures(workspace, stored, parse):
    lost = "more trials ended without a score"
    stored(lambda values: values.update(trials=values["trials"] + 4))
    assert f"4 {lost}" in parse(page(gather(workspace, "mine"))).text
    stored(lambda values: (values.update(given_up=[{}] * 3), values["settings"].update(pruner="asha")))
    text = parse(page(gather(workspace, "mine"))).text
    assert "asha gave up 3 more networks, behind the others before the end of the training. 1 " + lost in text
    stored(lambda values: values.update(given_up=3))
    with pytest.raises(InvalidFile, match="given_up: expected a list, got 3"):
        gather(workspace, "mine")


def test_networks_of_a_row_that_is_gone_are_no_failures(workspace, search_again, parse):
    space, result = load_space(workspace, "x3d-tiny"), read_result(workspace, "mine")
    parts = {one.architecture: {*parts_of(space, one.architecture)} for one in result.history}
    best = parts[result.best.architecture]
    row = next(part for one in parts.values() for part in sorted(one - best, key=str))
    lost = sum(row in parts[one.architecture] for one in result.history)
    after = search_again([row])
    assert (after.trials, len(after.history)) == (16, 16 - lost)
    text = parse(page(gather(workspace, "mine"))).text
    assert "more trials ended without a score" not in text
    networks = "1 more network" if lost == 1 else f"{lost} more networks"
    assert f"{networks} with a score had a block that the latency table lacked when the search ended." in text


def parts_of(space, architecture):
    return space.network(Architecture.parse(architecture), 8).workload(Precision.INT8).parts()


def test_what_the_winner_came_to_in_its_race_stands_before_the_score_that_chose_it(raced, stored, parse):
    result = read_result(raced, "mine")
    race, device = result.race, result.settings.device
    best = next(c for c in result.history if c.architecture == race.winner)

    def edit(values):
        values["best"] = best.to_json(device)
        values["settings"]["smaller_budgets_ms"] = [3.6]
        none, point = {"budget_ms": 3.6, "feasible": 40, "best": None}, {"budget_ms": 4.2, "feasible": 151}
        values["front"] = [none, point | {"best": best.to_json(device), "race": race.to_json()}]

    stored(edit)
    shown = parse(page(gather(raced, "mine")))
    assert race.top1(race.winner) == 50 / VIDEOS
    assert race.top1("x3d-tiny:unknown") is None
    assert f"top-1 in its race {50 / VIDEOS:.1%} trained anew; its score was {best.score:.4g}" in shown.text
    assert f"{best.score:.6g} {50 / VIDEOS:.1%}" in shown.text


def test_trials_of_several_workers_took_their_time_by_the_clock(raced, stored, parse):
    stored(lambda values: values["course"].update(clock_s=15.0))
    shown = parse(page(gather(raced, "mine"))).text
    assert "The trials took 15 s; the finalists took 4 min 00 s of worker time." in shown
    assert "In 5 min 00 s of worker time 30 random networks would have been trained, at 10 s each" in shown


@pytest.mark.parametrize(
    ("effort", "networks", "each"),
    [
        ("4 epochs", 24 + 24, "13 min 20 s each beside the trials and 10 s each beside the finalists"),
        ("2 epochs", 12 + 24, "26 min 40 s each beside the trials and 10 s each beside the finalists"),
        (
            "4 epochs, frames-share 0.5",
            12 + 24,
            "26 min 40 s each beside the trials and 10 s each beside the finalists",
        ),
        (
            "4 epochs, frames-share 0.5, resolution-share 0.5",
            3 + 24,
            "1 h 46 min each beside the trials and 10 s each beside the finalists",
        ),
    ],
)
def test_trainings_of_trials_with_fewer_threads_than_finalists_are_not_counted_as_several(
    raced, stored, parse, effort, networks, each
):
    """24 trials of 800 s; finalists, at first four epochs of whole clips, took 10 s each, and came to 24 times that."""

    def edit(values):
        values["settings"].update(evaluator="short-train", effort=effort)
        values["course"].update(seconds=24 * 800.0, whole_s=800.0)

    stored(edit)
    report = gather(raced, "mine")
    assert report.guessing.networks == networks
    assert f"{networks} random networks would have been trained, at {each}." in parse(page(report)).text


def test_a_study_keeps_how_long_a_trial_took(workspace):
    result = read_result(workspace, "mine")
    assert result.course.whole_s * result.trials == pytest.approx(result.course.seconds, abs=1e-3)


def test_an_evaluator_that_likes_the_wrong_networks_is_uninformative(raced, parse):
    report = gather(raced, "mine")
    (one,) = report.board.standings
    assert one.networks == 8
    assert one.tau.value < 0
    assert any("entropy is uninformative on the 8 networks" in doubt for doubt in report.doubts)
    assert "uninformative: the interval holds zero" in parse(page(report)).text
    best_first = [c.architecture for c in sorted(report.result.history, key=lambda c: -c.score)]
    right = study_scoreboard(report.result, {key: 0.9 - 0.01 * i for i, key in enumerate(best_first[:8])})
    assert right.standings[0].informative
    assert raced_networks(report.result).keys() == set(best_first[:8])


def test_points_of_very_many_trials_do_not_tell_their_networks(workspace, stored, parse):
    few = page(gather(workspace, "mine"))

    def edit(values):
        trials = values["history"]
        values["history"] = [trials[number % len(trials)] | {"trial": number} for number in range(10_000)]
        values["trials"] = 10_000

    stored(edit)
    report = gather(workspace, "mine")
    many = page(report)
    shown = parse(many)
    assert "do not tell their networks" not in few
    said = f"Points of more than 2,000 trials do not tell their networks, which stand in {report.result.path}."
    assert shown.text.count(said) == 2
    for trace in (shown.trace("pareto", "trials, predicted"), shown.trace("history", "trial")):
        assert len(trace["x"]) == 10_000
        assert {text.partition(":")[0] for text in trace["customdata"]} == {f"trial {n}" for n in range(10_000)}
        assert not any("depth" in text for text in trace["customdata"])
    assert all("depth" in text for text in shown.trace("pareto", "front, predicted")["customdata"])
    assert len(many) - len(few) < 3_000_000


def test_draws_stand_beside_the_history(raced, parse):
    report = gather(raced, "mine")
    shown = parse(page(report))
    drawn = [c.score for c in report.result.history if c.trial >= 6]
    trace = shown.trace("history", "random draws, expected best")
    assert trace["y"] == pytest.approx(list(expected_best(drawn)))
    assert trace["y"][0] == pytest.approx(np.mean(drawn))
    assert f"the best of {len(drawn)} random networks is expected at" in shown.text


def test_draws_that_were_given_up_are_draws_that_came_to_less(raced, stored, parse):
    ranked = sorted((c for c in read_result(raced, "mine").history if c.trial >= 6), key=lambda c: -c.score)
    survivors, lost = ranked[:4], {one.trial for one in ranked[4:]}

    def edit(values):
        values["settings"].update(pruner="asha")
        gone = [one for one in values["history"] if one["trial"] in lost]
        values["given_up"] = [one | {"epochs": 1, "score": one["score"] / 2} for one in gone]
        values["history"] = [one for one in values["history"] if one["trial"] not in lost]

    stored(edit)
    shown = parse(page(gather(raced, "mine")))
    scores = [one.score for one in survivors] + [-np.inf] * len(lost)
    counts = range(len(lost) + 1, len(ranked) + 1)
    trace = shown.trace("history", "random draws, expected best")
    assert trace["x"] == [count - 1 for count in counts]
    assert trace["y"] == pytest.approx([np.mean([max(one) for one in combinations(scores, n)]) for n in counts])
    assert trace["y"][-1] == pytest.approx(survivors[0].score)
    assert f"the best of {len(ranked)} random networks, {len(lost)} of them given up, is expected at" in shown.text
    assert f"{len(lost)} of them were given up and count as worse than the others" in shown.text


def test_where_all_draws_were_given_up_nothing_is_said_of_them(raced, stored, parse):
    def edit(values):
        values["settings"].update(pruner="asha")
        values["given_up"] = [one | {"epochs": 1} for one in values["history"] if one["trial"] >= 6]
        values["history"] = [one for one in values["history"] if one["trial"] < 6]

    stored(edit)
    assert (
        "10 trials were uniform draws, and all of them were given up: what draws"
        in parse(page(gather(raced, "mine"))).text
    )


def test_networks_that_newer_rows_put_beyond_the_budget_are_neither_draws_nor_the_best(
    workspace, search_again, stored, parse
):
    after = search_again(factor=1.1)
    stored(lambda values: values["course"].update(draws=list(range(3, 32))))
    predicted = [c for c in after.history if c.predicted_s <= 4.2e-3]
    draws = [c.score for c in predicted if c.trial >= 3]
    known = [*predicted, *(c for c in after.history if c.measured_s is not None and c.measured_s <= 4.2e-3)]
    beyond = [c for c in after.history if c not in known]
    best = max(c.score for c in known)
    assert best < max(c.score for c in beyond)
    assert 3 < len(draws) < 29
    shown = parse(page(gather(workspace, "mine")))
    line, drawn = shown.trace("history", "best so far"), shown.trace("history", "random draws, expected best")
    assert (line["x"][0], line["y"][-1]) == (min(c.trial for c in known), best)
    assert drawn["y"] == pytest.approx(list(expected_best(draws)))
    assert (
        f"the best of {len(draws)} random networks is expected at {max(draws):.4g}; the search came to {best:.4g},"
        in (shown.text)
    )
    assert f" {len(beyond)} of them were beyond the budget by the latency table when the search ended," in shown.text
    assert f"from the {len(draws)} draws of the study within the budget;" in shown.text


def test_draws_that_newer_rows_put_beyond_the_budget_are_told_where_too_few_are_left(
    workspace, search_again, stored, parse
):
    after = search_again(factor=1.1)
    drawn = [c.predicted_s <= 4.2e-3 for c in after.history if c.trial in after.course.draws]
    assert (drawn.count(True), drawn.count(False)) == (1, 4)
    said = "1 trial was a uniform draw within the budget, and 4 more are beyond it by newer rows of the table; 3 are"
    assert f"{said} needed to say" in parse(page(gather(workspace, "mine"))).text

    def edit(values):
        gone = [one for one in values["history"] if one["trial"] in after.course.draws]
        values["history"] = [one for one in values["history"] if one not in gone]
        values["given_up"] = [one | {"epochs": 1, "beyond": one["trial"] % 2 == 0} for one in gone]

    stored(edit)
    given_up = sum(number % 2 for number in after.course.draws)
    assert gather(workspace, "mine").guessing.drawn == given_up == 3


def test_what_is_not_known_is_said(workspace, stored, parse):
    report = gather(workspace, "mine")
    text = parse(page(report)).text
    assert "no finalists raced" in text
    assert "--finalists 8" in text
    assert "no network of the study was trained, so what its score is worth is not known" in text
    assert "in that time is not known: the search trained none to the end." in text
    assert "entropy: 48 trained networks of one budget were ranked no better than by chance" in text
    # the queued optima of an additive score are no draws
    assert set(report.result.course.draws).isdisjoint(range(3))
    stored(lambda values: values.pop("course"))
    old = gather(workspace, "mine")
    assert Guessing.of(old.result) is None
    assert "an older version did not store how long the trials took" in parse(page(old)).text
    stored(lambda values: values.update(course={"seconds": "long", "draws": []}))
    with pytest.raises(InvalidFile, match="course: expected seconds and draws"):
        read_result(workspace, "mine")


def test_the_front_has_a_row_for_each_budget(workspace, stored, parse):
    def edit(values):
        values["settings"]["smaller_budgets_ms"] = [1.5, 3.6]
        small = {"budget_ms": 1.5, "feasible": 2, "best": None}
        middle = {"budget_ms": 3.6, "feasible": 40, "best": values["pareto"][0]}
        values["front"] = [small, middle, {"budget_ms": 4.2, "feasible": 151, "best": values["best"]}]

    stored(edit)
    report = gather(workspace, "mine")
    shown = parse(page(report))
    assert "The best network within each budget" in shown.text
    assert "none was measured within it" in shown.text
    assert "--budget 1.5ms,3.6ms,4.2ms" in commands.search(report.result)
    lines = {shape["x0"] for shape in shown.figure("pareto")["layout"]["shapes"]}
    assert lines == {1.5, 3.6, 4.2}


def test_ground_truth_says_what_random_networks_reach(raced, tmp_path, parse):
    result = read_result(raced, "mine")
    folder = tmp_path / "truth"
    write_truth(folder, [c.architecture for c in result.history][:10], budget_ms=4.2)
    report = gather(raced, "mine", truth=folder)
    assert report.truth.expected[0] == pytest.approx(0.345)
    assert report.truth.expected[-1] == pytest.approx(0.39)
    shown = parse(page(report))
    assert "has an expected top-1 of 39.0%; a single one 34.5%" in shown.text
    assert {f"hwbench report mine --truth {folder} --out report.html"} <= {*shown.commands} & {*shown.codes}
    assert not any("--out report.html" in line and "--truth" not in line for line in shown.codes)
    write_truth(folder, [c.architecture for c in result.history][:10], budget_ms=1.0)
    with pytest.raises(InvalidFile, match=r"within 1 ms; the study is of 4\.2 ms"):
        gather(raced, "mine", truth=folder)
    with pytest.raises(InvalidFile, match=r"missing: has no networks\.json; expected a folder of ground truth$"):
        gather(raced, "mine", truth=tmp_path / "missing")
    with pytest.raises(InvalidValue, match="--truth is about a study"):
        ReportRequest(device="local", truth=folder)


def test_moments_of_a_search_are_those_of_utc(workspace, parse, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        journal = workspace.studies / "mine" / "journal.log"
        moments = sorted(re.findall(r'"datetime_[a-z]+": ?"([^"]{19})[^"]*\+00:00"', journal.read_text()))
        report = gather(workspace, "mine")
        assert report.searched == (moments[0], moments[-1])
        assert f"Search, UTC {moments[0]} to {moments[-1]}" in parse(page(report)).text
        # Optuna before 5 wrote local times, without an offset.
        begun, ended = ("2024-11-25T20:30:00.000001", "2024-11-25T21:00:00.000001")
        journal.write_text("".join(json.dumps({"datetime_start": one}) + "\n" for one in (begun, ended)))
        assert gather(workspace, "mine").searched == ("2024-11-26T01:30:00", "2024-11-26T02:00:00")
        journal.write_text(json.dumps({"datetime_start": "0001-01-01T00:00:00+14:00"}) + "\n")
        assert gather(workspace, "mine").searched is None
    finally:
        monkeypatch.undo()
        time.tzset()


def write_truth(folder: Path, architectures, budget_ms: float) -> None:
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    networks = [{"name": f"n{i}", "band": "edge", "architecture": key} for i, key in enumerate(architectures)]
    for index, one in enumerate(networks):
        row = one | {"seed": 0, "top1": 0.3 + index / 100, "loss": 1.0, "hits": "01", "cpu_s": 100}
        row |= {"validation": [{"top1": 0.1, "loss": 2.0}], "training_loss": [1.0]}
        (folder / "rows" / f"{one['name']}-seed0.json").write_text(json.dumps(row))
    about = {"budget_ms": budget_ms, "data": "synthetic", "classes": 8, "networks": networks}
    (folder / "networks.json").write_text(json.dumps(about))
