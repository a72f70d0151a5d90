"""``--learn-from`` of a study that trains: what others trained is proposed, learned from, and not trained again."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau

import hwbench
import hwbench.api.search
from hwbench import SearchRequest
from hwbench.api.learned import TrainingSettings
from hwbench.api.learning import learn_from
from hwbench.api.search_talk import begun_from
from hwbench.api.study_data import Fidelity, StudyData
from hwbench.api.training_forecast import TrainingForecast
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import InvalidValue
from hwbench.reports import commands
from hwbench.reports.result import learned_data, read_result
from hwbench.specs import Architecture
from hwbench.studies.course import startup_draws
from hwbench.studies.earlier import BEST, EarlierTrainings
from hwbench.studies.evaluators import scoring_of
from hwbench.studies.evaluators.short_train import ShortTrain
from hwbench.studies.fidelities import Levels, ScoreObservation
from hwbench.studies.first_networks import first_networks
from hwbench.studies.posterior import Posterior
from hwbench.studies.posterior_union import layout_of
from hwbench.studies.race import Race, RaceResult
from hwbench.studies.sampler import FeasibleSampler, samplers
from hwbench.studies.thompson import Thompson
from hwbench.testing.listeners import Keeper

SMALL, LARGE = 4.2e-3, 6e-3
OTHER = ScoreObservation(Architecture("x3d-tiny", ()), 0.0, elsewhere=True)
SCALES = {"depth": 1, "width": 40, "expansion": 2}


@pytest.fixture
def trained(monkeypatch):
    """The networks that are trained, with a score that follows from what is in them."""
    seen = []

    def top1(self, network, seed):
        seen.append(network.name)
        return len(network.blocks) / 40 + len(seen) % 3 / 100

    monkeypatch.setattr(StudyData, "top1", top1)
    return seen


@pytest.fixture(autouse=True)
def planned(monkeypatch):
    """How many trainings were told of, by search."""
    told = []
    monkeypatch.setattr(TrainingForecast, "tell", lambda self, networks, listener, clock: told.append(networks))
    return told


@pytest.fixture
def run(workspace, make_search, monkeypatch, trained):
    """Runs ``hwbench search`` on the simulated device."""
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)

    def run(budget, study, *sources, listener=None, **changes):
        request = SearchRequest(
            **{
                "budget": budget,
                "study": study,
                "evaluator": "short-train",
                "trials": 12,
                "pruner": "none",
                "learn_from": sources,
            }
            | {"finalists": 0, "epochs": 2}
            | changes
        )
        return hwbench.search(request, listener or Keeper(), workspace=workspace)

    return run


def test_a_second_budget_trains_nothing_twice(run, trained, workspace, space):
    first = run("4.2 ms", "first")
    before, keeper = len(trained), Keeper()
    second = run("6 ms", "second", "first", listener=keeper)
    known = {one.architecture: one.score for one in first.history}
    assert not known.keys() & set(trained[before:])
    ranked = sorted(known, key=lambda key: -known[key])
    assert [one.architecture for one in second.history[:BEST]] == ranked[:BEST]
    assert {one.architecture: one.score for one in second.history if one.architecture in known}.items() <= known.items()
    assert len(trained) - before == len(second.history) - BEST
    assert second.course.draws == ()  # twelve networks are known: nothing is drawn
    (said,) = (line for line in keeper.lines if "trained before" in line)
    assert said == (
        "12 of 12 networks trained before are within the budget; the best 4 are tried first; 12 were trained just as "
        "here, and are not trained again"
    )


def test_a_smaller_budget_takes_what_fits(run, trained, space, make_search):
    first = run("6 ms", "first")
    before, feasible = len(trained), make_search(budget_s=SMALL).feasible
    second = run("4.2 ms", "second", "first")
    fits = [one for one in first.history if feasible.sums.total(Architecture.parse(one.architecture)) <= SMALL]
    taken = [one.architecture for one in second.history if one.architecture in {one.architecture for one in fits}]
    assert len(taken) >= min(BEST, len(fits))
    assert len(trained) - before == len(second.history) - len(taken)


def test_trainings_of_another_length_are_learned_from_and_repeated(run, trained):
    first = run("6 ms", "first", epochs=2)
    before = len(trained)
    second = run("6 ms", "second", "first", epochs=4)
    best = max(first.history, key=lambda one: one.score).architecture
    assert second.history[0].architecture == best
    assert trained[before] == best
    assert len(trained) - before == len(second.history)


def test_the_same_command_goes_on_and_another_source_is_another_study(run, trained):
    run("4.2 ms", "first")
    run("6 ms", "second", "first")
    before = len(trained)
    again = run("6 ms", "second", "first")
    assert again.settings.sources == ("first",)
    assert len(again.history) == 12
    assert len(trained) == before
    assert run("6 ms", "second").settings == again.settings  # it goes on with what it began from
    run("4.2 ms", "third")
    with pytest.raises(InvalidValue, match="begun_from was 'learned from 12 networks of first"):
        run("6 ms", "second", "third")


@pytest.mark.parametrize("storage", [None, "sqlite"])
def test_a_study_goes_on_with_what_it_began_from_however_that_has_grown(run, workspace, trained, tmp_path, storage):
    if storage is not None:
        storage = f"sqlite:///{tmp_path / 'studies.db'}"
    first = run("4.2 ms", "first")
    second = run("6 ms", "second", "first", trials=8, storage=storage)
    kept = workspace.studies / "second" / "begun_from.json"
    text, keeper = kept.read_text(), Keeper()
    assert run("4.2 ms", "first", trials=16).trials == 16
    more = run("6 ms", "second", "first", trials=9, storage=storage, listener=keeper)
    assert more.settings == second.settings
    assert more.history[:8] == second.history
    (said,) = [line for line in keeper.lines if "has changed since" in line]
    assert said == (
        "--learn-from first has changed since study second began; it goes on with what it began from, 12 networks of "
        "first"
    )
    assert any(line.startswith("12 of 12 networks trained before are within") for line in keeper.lines)

    path = workspace.studies / "first" / "result.json"
    result, keeper = path.read_text(), Keeper()
    path.unlink()
    assert run("6 ms", "second", trials=10, storage=storage, listener=keeper).trials == 10
    told = "; study second goes on with what it began from, 12 networks of first"
    assert any(line.endswith(told) for line in keeper.lines)
    assert kept.read_text() == text

    path.write_text(result)
    kept.unlink()  # as studies of before
    keeper = Keeper()
    assert run("6 ms", "second", trials=11, storage=storage, listener=keeper).settings == second.settings
    (said,) = [line for line in keeper.lines if "has changed since" in line]
    assert said.endswith("which did not keep what was there; it goes on with what is there now, 16 networks of first")
    keeper = Keeper()
    assert run("6 ms", "second", trials=12, storage=storage, listener=keeper).trials == 12
    assert not [line for line in keeper.lines if "has changed since" in line]  # what is there now is kept
    assert {one.architecture for one in first.history} < {one["architecture"] for one in _kept(kept)}


def _kept(path):
    return json.loads(path.read_text())["trainings"]


def test_a_pruned_study_that_others_began_from_is_known_again(run, workspace, monkeypatch):
    """Versions of before read no scores that trainings had on the way: what a study keeps tells of the others alone."""

    def tested(self, network, seed, report):
        for epoch in range(4):
            report(epoch, len(network.blocks) * (epoch + 1) / 200)
        return len(network.blocks) * 4 / 200

    monkeypatch.setattr(StudyData, "tested", tested)
    run("6 ms", "first", pruner="asha", epochs=4, trials=16)
    fitted = {"evaluator": "fitted", "epochs": None, "trials": 2}
    new = run("6 ms", "new", "first", **fitted)
    with monkeypatch.context() as before:
        before.setattr("hwbench.api.begun_trainings.learn_from", lambda *_: learn_from(*_).as_before)
        old = run("6 ms", "old", "first", **fitted)
    assert old.settings.effort != new.settings.effort
    kept, keeper = workspace.studies / "old" / "begun_from.json", Keeper()
    kept.unlink()
    assert run("6 ms", "old", "first", **fitted, listener=keeper).settings == old.settings
    assert not [line for line in keeper.lines if "has changed since" in line]
    assert {one["state"] for one in _kept(kept)} == {"ended", "given up"}
    assert "went on" in {one["state"] for one in _kept(workspace.studies / "new" / "begun_from.json")}


def test_scores_of_another_unit_are_refused(run, monkeypatch):
    monkeypatch.setattr(StudyData, "losses", lambda self, network, seed, report: report(0, 1.0))
    run("4.2 ms", "curves", evaluator="curve")
    with pytest.raises(InvalidValue, match="scores there are curve, those of --evaluator short-train are top-1"):
        run("6 ms", "second", "curves")
    with pytest.raises(
        InvalidValue, match="--learn-from goes with --evaluator fitted, short-train or curve, got --evaluator zero-cost"
    ):
        SearchRequest(budget="6ms", evaluator="zero-cost", learn_from=("curves",))


def test_thompson_begins_with_what_is_known(make_search, space):
    import optuna

    feasible, rng = make_search(budget_s=LARGE).feasible, np.random.default_rng(0)
    drawn = list(dict.fromkeys(space.random(rng) for _ in range(40)))
    known = [ScoreObservation(a, float(a["s3.width"]), (), -1 - n) for n, a in enumerate(drawn)]
    study = optuna.create_study(
        direction="maximize",
        sampler=FeasibleSampler(feasible, samplers.get("thompson"), seed=0, startup=0, known=known),
    )
    proposed = space.sample(study.ask())
    expected = Posterior.fit(layout_of(feasible.sums), known).expected()
    assert proposed == feasible.best(expected).architecture
    assert float(proposed["s3.width"]) == max(float(value) for value in space.values["s3.width"])


@pytest.mark.parametrize(("agrees", "better"), [(1.0, True), (0.0, False), (-1.0, False)])
def test_other_data_help_as_far_as_trials_agree_with_them(make_search, space, agrees, better):
    rng = np.random.default_rng(3)
    layout = layout_of(make_search(budget_s=LARGE).feasible.sums)
    drawn = list(dict.fromkeys(space.random(rng) for _ in range(200)))

    def score(network):
        return sum(float(network[f"s{n}.{name}"]) / scale for n in (1, 2, 3) for name, scale in SCALES.items())

    def said(network, at):  # with noise
        return ScoreObservation(network, at + rng.normal(0, 0.5), (), 0)

    here = [replace(said(a, score(a)), training=n) for n, a in enumerate(drawn[:16])]
    elsewhere = [
        replace(said(a, 5 + 3 * agrees * score(a)), training=-1 - n, elsewhere=True)
        for n, a in enumerate(drawn[16:136])
    ]
    truth = [score(one) for one in drawn[136:]]
    alone, together = (
        kendalltau(Posterior.fit(layout, rows).predict(drawn[136:])[0], truth)[0]
        for rows in (here, [*elsewhere, *here])
    )
    if better:
        assert together > alone + 0.1
    else:
        assert together > alone - 0.1


def test_networks_of_other_data_are_not_tried_as_they_are(make_search, space):
    feasible, rng = make_search(budget_s=LARGE).feasible, np.random.default_rng(1)
    drawn = list(dict.fromkeys(feasible.draw(rng) for _ in range(20)))
    elsewhere = tuple(replace(OTHER, architecture=a, score=float(n), training=-1 - n) for n, a in enumerate(drawn))
    assert EarlierTrainings(elsewhere).best([feasible]) == []
    both = EarlierTrainings((*elsewhere, ScoreObservation(drawn[0], 0.1, (), -90)))
    assert both.best([feasible]) == [drawn[0]]
    assert both.networks == 1
    assert [startup_draws(24, one) for one in (None, EarlierTrainings(elsewhere), both)] == [12, 6, 5]
    assert startup_draws(24, EarlierTrainings(both.here)) == 11
    assert next(begun_from(EarlierTrainings(()), [feasible], 24), None) is None
    known = EarlierTrainings(tuple(ScoreObservation(one, 0.1, (), n) for n, one in enumerate(drawn[:3])))
    within = "3 of 3 networks trained before are within the budget"
    assert [list(begun_from(known, [feasible], trials)) for trials in (9, 2, 0)] == [
        [f"{within}; the best 3 are tried first"],
        [f"{within}; the best 2 are tried first"],
        [within],
    ]
    several = [replace(elsewhere[0], fidelity=(1.0, 0.0, 0.0))]  # of one training, at an earlier epoch
    *told, last = begun_from(EarlierTrainings((*both.observations, *several)), [feasible], 24)
    assert told == ["1 of 1 networks trained before are within the budget; the best is tried first"]
    assert last.startswith(
        f"{len(drawn)} trainings on other data count as far as trials agree with them; --learn-from none"
    )


def test_before_the_first_trial_thompson_proposes_what_is_best_on_other_data(make_search, space):
    feasible, rng = make_search(budget_s=LARGE).feasible, np.random.default_rng(0)
    drawn = list(dict.fromkeys(space.random(rng) for _ in range(40)))
    there = [ScoreObservation(a, float(a["s3.width"]), (), -1 - n) for n, a in enumerate(drawn)]
    expected = Posterior.fit(layout_of(feasible.sums), there).expected()
    proposed = Thompson(feasible).propose([replace(one, elsewhere=True) for one in there], rng)
    assert proposed == feasible.best(expected).architecture


def test_what_a_draw_says_is_what_is_predicted(make_search, space):
    feasible, rng = make_search(budget_s=LARGE).feasible, np.random.default_rng(5)
    drawn = list(dict.fromkeys(space.random(rng) for _ in range(60)))
    here = [ScoreObservation(a, float(a["s3.width"]) + rng.normal(), (), n) for n, a in enumerate(drawn[:15])]
    elsewhere = [
        replace(OTHER, architecture=a, score=float(a["s2.depth"]) + rng.normal(), training=-1 - n)
        for n, a in enumerate(drawn[15:45])
    ]
    posterior = Posterior.fit(layout_of(feasible.sums), [*elsewhere, *here])
    mean, deviation = posterior.predict(drawn[45:])
    np.testing.assert_allclose([posterior.expected().total(one) for one in drawn[45:]], mean, rtol=1e-9)
    draws = [posterior.draw(rng) for _ in range(400)]
    scores = np.array([[one.total(a) for one in draws] for a in drawn[45:]])
    np.testing.assert_allclose(scores.mean(axis=1), mean, atol=0.25 * deviation.max())
    np.testing.assert_allclose(scores.std(axis=1), deviation, rtol=0.2)


def test_the_best_of_several_lengths_go_by_how_they_stand_among_their_like(make_search, space):
    feasible, rng = make_search(budget_s=LARGE).feasible, np.random.default_rng(1)
    a, b, c, d = (feasible.draw(rng) for _ in range(4))
    short, whole = (-2.0, 0.0, 0.0), ()
    earlier = EarlierTrainings(
        (
            ScoreObservation(a, 0.2, short, -1),  # the best of the short ones, though its number is the smallest
            ScoreObservation(b, 0.1, short, -2),
            ScoreObservation(c, 0.5, whole, -3),
            ScoreObservation(d, 0.55, whole, -4),
        )
    )
    assert set(earlier.best([feasible], 2)) == {a, d}
    assert EarlierTrainings(()).best([feasible]) == []
    first = first_networks([feasible], make_search(budget_s=LARGE, sampler="random").settings, None, earlier)
    assert set(first) == {a, b, c, d}


@pytest.mark.parametrize("score", [0.1, 0.125])
def test_trainings_of_a_length_that_tell_nothing_apart_are_all_at_the_mean(make_search, score):
    feasible, rng = make_search(budget_s=LARGE).feasible, np.random.default_rng(1)
    drawn = list(dict.fromkeys(feasible.draw(rng) for _ in range(20)))
    short = [ScoreObservation(one, score, (-1.0,), n) for n, one in enumerate(drawn[:6])]
    longer = [ScoreObservation(drawn[6 + n], top1, (), 10 + n) for n, top1 in enumerate((0.5, 0.6, 0.7, 0.72))]
    values, mean, deviation = Levels.of(short).standardised(np.full(6, score))
    assert (values.tolist(), mean, deviation) == ([0.0] * 6, score, 1.0)
    best = EarlierTrainings((*short, *longer)).best([feasible], 10)
    assert best == [drawn[9], drawn[8], *drawn[:6], drawn[7], drawn[6]]


def test_scores_that_a_study_took_over_are_learned_from_once(run, workspace, space):
    run("4.2 ms", "first")
    run("6 ms", "second", "first")
    learned = learn_from(workspace, space, ["first", "second"])
    networks = [one.architecture for one in learned.observations]
    assert len(set(networks)) == len(networks) == 24 - BEST
    assert len({one.training for one in learned.observations}) == len(networks)


def test_a_study_that_kept_no_trainings_tells_the_data_of_their_sources(run, workspace, space, tmp_path):
    """Of networks of its spaces."""
    first, table = run("4.2 ms", "first").settings, tmp_path / "own.csv"

    def data(*sources):
        learned = f"learned from 3 networks of {', '.join(sources)} (0123456789ab)"
        return learned_data(workspace, "of-before", replace(first, data="", begun_from="", effort=learned))

    assert data("first") == first.data != ""
    lines = ["data,architecture,epochs,top1", f"{first.data},{space.name}:x,1,0.5", "elsewhere,x3d-mini:x,1,0.5"]
    table.write_text("\n".join(lines), encoding="utf-8-sig")
    assert data("first", str(table)) == data(str(table)) == first.data
    table.write_text("\n".join([*lines, f",{space.name}:y,1,0.5"]))
    assert data(str(table)) == ""
    table.unlink()
    assert data("first", str(table)) == data() == ""
    (tmp_path / "networks.json").write_text("{}")
    assert data("first", str(tmp_path)) == ""


def test_what_was_learned_from_tells_in_each_folder_what_to_train_the_best_network_on(
    run, workspace, space, monkeypatch
):
    lines = [f'"{one.key}",12,0.{n + 10},videos' for n, one in enumerate(list(space.architectures())[::4000][:8])]
    (workspace.root / "own.csv").write_text("\n".join(["architecture,epochs,top1,data", *lines]))
    monkeypatch.chdir(workspace.root)
    run("6 ms", "plain", "own.csv", evaluator="fitted", epochs=None, trials=2)
    monkeypatch.chdir(workspace.studies)
    assert " --data videos " in commands.train(read_result(workspace, "plain"))


def test_finalists_race_on_the_data_that_was_learned_from(run, workspace, monkeypatch):
    source = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    raced, fitted = [], {"evaluator": "fitted", "epochs": None, "trials": 4}

    def race(self, networks):
        raced.append(self.train.description["data"])
        return RaceResult(raced[-1], "fp32", 8, (), networks[0])

    monkeypatch.setattr(Race, "run", race)
    run("4.2 ms", "first", data=source)
    assert run("4.2 ms", "fit", "first", **fitted, finalists=2).settings.data == ""
    assert raced == [source]
    run("4.2 ms", "fit", "first", **fitted, finalists=2, data="synthetic")
    assert raced == [source, "synthetic"]
    run("4.2 ms", "plain", "first", **fitted)
    stored = read_result(workspace, "plain")
    assert f" --data {source} --finalists 4 " in commands.let_race(stored)
    assert f" --data {source} " in commands.train(stored)
    (workspace.studies / "first" / "result.json").unlink()
    assert f" --data {source} " in commands.train(read_result(workspace, "plain"))
    (workspace.studies / "plain" / "begun_from.json").write_text("{")
    assert " --data synthetic " in commands.train(read_result(workspace, "plain"))


def test_the_forecast_leaves_out_what_is_not_trained_again(run, planned):
    run("4.2 ms", "first")
    run("6 ms", "second", "first")
    assert planned == [12, 12 - BEST]


def test_what_was_learned_says_how_it_was_trained(run, workspace, space, make_search):
    run("4.2 ms", "first")
    learned = learn_from(workspace, space, ["first"])
    assert len(learned.at(Fidelity(2), "synthetic")) == 12
    assert {one.fidelity for one in learned.at(Fidelity(2), "synthetic")} == {()}
    assert {one.fidelity for one in learned.at(Fidelity(8), "synthetic")} == {(-2.0, 0.0, 0.0)}
    settings = make_search(evaluator="short-train", effort="2 epochs", data="synthetic").settings
    settings = replace(settings, scoring=scoring_of(ShortTrain))
    assert len(learned.same_as(settings)) == 12
    assert not learned.same_as(replace(settings, scoring=1))  # those of trainings with SGD
    skipping = replace(settings, on_error="skip")
    assert len(learned.same_as(skipping)) == 12  # all videos could be read
    made = TrainingSettings.of(skipping)
    without = replace(learned, trained=tuple(replace(one, made=made) for one in learned.trained))
    assert len(without.same_as(skipping)) == 12
    assert not without.same_as(settings)


def test_a_study_of_another_space_does_not_count_among_units(run, workspace, space):
    run("4.2 ms", "first")
    run("4.4 ms", "of-another")
    path = workspace.studies / "of-another" / "result.json"
    stored = json.loads(path.read_text())
    stored["settings"] |= {"choices": "0" * 16, "evaluator": "curve"}  # of the space before it was edited
    path.write_text(json.dumps(stored))
    for sources in (["first", "of-another"], ["of-another", "first"]):
        learned = learn_from(workspace, space, sources)
        assert (learned.unit, len(learned.trained)) == ("top-1", 12)
    with pytest.raises(InvalidValue, match=r"no training there is of space 'x3d-tiny'$"):
        learn_from(workspace, space, ["of-another"])


def test_scores_of_trainings_with_sgd_are_of_another_unit(run, workspace, space):
    run("4.2 ms", "first")
    path = workspace.studies / "first" / "result.json"
    stored = json.loads(path.read_text())
    assert stored["settings"]["scoring"] == 2
    stored["settings"]["scoring"] = 1
    path.write_text(json.dumps(stored))
    run("4.4 ms", "second")
    learned = learn_from(workspace, space, ["first"])
    with pytest.raises(
        InvalidValue, match=r"scores there are top-1 of trainings with SGD, those of .* are top-1; what"
    ):
        learned.check_unit("short-train")
    with pytest.raises(InvalidValue, match="first: top-1 of trainings with SGD, second: top-1"):
        learn_from(workspace, space, ["first", "second"])
