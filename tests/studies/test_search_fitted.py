"""``fitted``: an evaluator that is learned from trainings that there are, of a folder or of a study."""

import csv
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

import hwbench
import hwbench.api.search
from hwbench import SearchRequest
from hwbench.api.learned import DEFAULT_OPTIMIZER, Learned, LearnedTraining
from hwbench.api.learning import coming_with, learn_from
from hwbench.api.scoreboard import ScoreboardRequest, scoreboard
from hwbench.api.study_data import Fidelity
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import InvalidFile, InvalidValue, UnknownName
from hwbench.spaces import load_space
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.evaluators import Context, get
from hwbench.studies.evaluators.fitted import Fitted
from hwbench.studies.fidelities import ScoreObservation, doublings
from hwbench.studies.fitted_scores import FittedScores
from hwbench.studies.posterior import Posterior
from hwbench.studies.posterior_union import layout_of
from hwbench.studies.pruning import Pruning
from hwbench.studies.ranking import rank_correlation
from hwbench.testing.evaluators import EvaluatorConformance
from hwbench.testing.listeners import Keeper
from hwbench.training import Recipe
from hwbench.workspace import Workspace

NETWORKS = 40


def top1(architecture) -> float:
    """Depth is what helps, and width at the end."""
    return sum(int(architecture[f"s{n}.depth"]) for n in (1, 2, 3)) / 20 + int(architecture["s3.width"]) / 1000


def sums_of(space) -> SpaceSums:
    return SpaceSums.of(space, lambda block, x: 0.0, num_classes=8)


@pytest.fixture
def drawn(space):
    rng = np.random.default_rng(0)
    return list(dict.fromkeys(space.random(rng) for _ in range(2 * NETWORKS)))[:NETWORKS]


@pytest.fixture
def folder(tmp_path, drawn):
    folder = tmp_path / "truth"
    (folder / "rows").mkdir(parents=True)
    networks = [{"name": f"n{i:02d}", "band": "edge", "architecture": one.key} for i, one in enumerate(drawn)]
    for one, architecture in zip(networks, drawn):
        row = one | {"seed": 0, "top1": top1(architecture), "loss": 1.0, "hits": "01", "cpu_s": 100}
        row |= {"validation": [{"top1": 0.1, "loss": 2.0}] * 12, "training_loss": [1.0] * 48}
        (folder / "rows" / f"{one['name']}-seed0.json").write_text(json.dumps(row))
    about = {"budget_ms": 1.0, "data": "synthetic", "classes": 8, "networks": networks}
    (folder / "networks.json").write_text(json.dumps(about))
    return folder


class TestFitted(EvaluatorConformance):
    @pytest.fixture
    def evaluator(self):
        return Fitted

    @pytest.fixture
    def context(self, space):
        rng = np.random.default_rng(1)
        observations = [ScoreObservation(a, top1(a)) for a in (space.random(rng) for _ in range(20))]
        return Context(0, lambda count: [], fitted=FittedScores(sums_of(space), tuple(observations)))

    def test_its_sums_are_its_scores(self, evaluator, context, space):
        made, rng = evaluator(context), np.random.default_rng(2)
        networks = [space.network(space.random(rng), 8) for _ in range(5)]
        sums = made.score_sums()
        from hwbench.specs import Architecture

        totals = [sums.total(Architecture.parse(network.name)) for network in networks]
        assert [made.score(network) for network in networks] == pytest.approx(totals)
        assert all(made.predict(network).deviation > 0 for network in networks)


def of_all(held: FittedScores, without: Posterior) -> Posterior:
    """What is left out, with the mean and the deviation of all scores."""
    assert held.posterior is not None
    return replace(without, mean=held.posterior.mean, deviation=held.posterior.deviation)


def test_it_needs_something_to_learn_from():
    with pytest.raises(InvalidValue, match="give --learn-from STUDY"):
        get("fitted")(Context(0, lambda count: []))


def test_what_is_left_out_is_nothing_that_was_learned(space, drawn):
    """The effects that predict the network that is judged are learned from all others; all else is that of all."""
    observations = [ScoreObservation(a, top1(a)) for a in drawn]
    held = FittedScores(sums_of(space), tuple(observations), leave_out=True)
    assert held.posterior is not None
    without = of_all(held, Posterior.fit(layout_of(sums_of(space)), observations[1:], held.posterior.parameters))
    assert held.predict(drawn[0]).mean == pytest.approx(without.predict([drawn[0]])[0].item(), abs=1e-12)
    assert Posterior.fit(layout_of(sums_of(space)), observations[1:]).parameters != held.posterior.parameters
    twice = FittedScores(sums_of(space), (ScoreObservation(drawn[0], -5.0), *observations), leave_out=True)
    assert twice.posterior is not None
    neither = of_all(twice, Posterior.fit(layout_of(sums_of(space)), observations[1:], twice.posterior.parameters))
    assert twice.predict(drawn[0]).mean == pytest.approx(neither.predict([drawn[0]])[0].item(), abs=1e-12)
    assert pickle.loads(pickle.dumps(held)).predict(drawn[0]) == held.predict(drawn[0])
    learned = FittedScores(sums_of(space), tuple(observations))
    assert abs(learned.predict(drawn[0]).mean - top1(drawn[0])) < 0.02
    assert learned.predict(drawn[0]).deviation < held.predict(drawn[0]).deviation


def test_what_is_left_out_of_few_random_scores_is_ranked_neither_way(space):
    """The mean of the others is the lower, the higher the score that is left out: no prediction may follow it."""
    rng, taus = np.random.default_rng(1), []
    for _ in range(60):
        networks = list(dict.fromkeys(space.random(rng) for _ in range(8)))
        scores = rng.normal(0.5, 0.05, size=len(networks)).tolist()
        observations = tuple(ScoreObservation(*one) for one in zip(networks, scores, strict=True))
        held = FittedScores(sums_of(space), observations, leave_out=True)
        taus.append(rank_correlation([held.predict(one).mean for one in networks], scores, [0] * len(networks)))
    assert np.mean(taus) == pytest.approx(0, abs=0.12)  # nearly three standard errors


def test_the_last_score_on_the_data_that_is_predicted_does_not_predict_itself(space, drawn):
    observations = [ScoreObservation(one, top1(one), elsewhere=True) for one in drawn[1:]]
    for score in (0.1, 0.9):
        held = FittedScores(sums_of(space), (ScoreObservation(drawn[0], score), *observations), leave_out=True)
        assert held.posterior is not None
        there = held.posterior.elsewhere
        assert held.predict(drawn[0]).mean == pytest.approx(there.predict([drawn[0]])[0].item(), abs=1e-12)


def test_what_a_model_is_worth_is_judged_on_the_data_that_is_predicted(space, drawn):
    """Two data sets whose scores are noise about levels of their own: told apart is nothing that is ranked."""
    rng = np.random.default_rng(0)
    rows = [
        LearnedTraining(one.key, level + 0.02 * rng.normal(), Fidelity(12), number, data)
        for number, (one, (data, level)) in enumerate(zip(drawn, [("here", 0.3), ("there", 0.8)] * (NETWORKS // 2)))
    ]
    learned = Learned(("mine",), "top-1", tuple(rows), "here")
    left_out = learned.left_out(sums_of(space))
    assert left_out.networks == NETWORKS // 2
    assert not left_out.informative
    assert replace(learned, trained=tuple(rows[2:])).left_out(sums_of(space)).networks == NETWORKS // 2 - 1
    few = [one for one in rows if one.data == "there"] + rows[:4:2]
    assert replace(learned, trained=tuple(few)).left_out(sums_of(space)) is None


def test_a_study_of_fitted_that_kept_no_trainings_goes_on_while_they_are_the_same(
    workspace, folder, make_search, monkeypatch
):
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)
    request = SearchRequest(budget="4.2 ms", evaluator="fitted", learn_from=(str(folder),), trials=2, study="f")
    result, kept = hwbench.search(request, workspace=workspace), workspace.studies / "f" / "begun_from.json"
    text = kept.read_text()
    for damaged in (None, "{", text.replace('"score": ', '"points": '), text.replace("40 networks", "41 networks")):
        if damaged is None:
            kept.unlink()
        else:
            kept.write_text(damaged)
        assert hwbench.search(request, workspace=workspace).settings == result.settings
        assert json.loads(kept.read_text())["trainings"] == json.loads(text)["trainings"]


def test_the_variances_of_other_data_are_learned_once(space, drawn, monkeypatch):
    rng, fits = np.random.default_rng(0), []
    observations = [
        ScoreObservation(one, top1(one) + 0.02 * rng.normal(), (), number, elsewhere=number % 2 > 0)
        for number, one in enumerate(drawn)
    ]
    held = FittedScores(sums_of(space), tuple(observations), leave_out=True)
    posterior, layout = held.posterior, layout_of(sums_of(space))
    assert posterior.elsewhere is not None
    monkeypatch.setattr("hwbench.studies.posterior._learned", lambda *_: fits.append(1))
    both = (drawn[0], drawn[1])  # of each data one
    told = [held.predict(one).mean for one in both]
    for one, mean in zip(both, told, strict=True):
        others = [other for other in observations if other.architecture != one]
        there = [replace(other, elsewhere=False) for other in others if other.elsewhere]
        elsewhere = Posterior.fit(layout, there, posterior.elsewhere.parameters)
        without = of_all(held, Posterior.fit(layout, others, posterior.parameters, elsewhere=elsewhere))
        assert mean == pytest.approx(without.predict([one])[0].item(), abs=1e-12)
    alone = FittedScores(sums_of(space), tuple(one for one in observations if one.elsewhere), leave_out=True)
    alone.__dict__["posterior"] = posterior.elsewhere
    assert np.isfinite(alone.predict(drawn[1]).mean)
    assert not fits


def test_the_scoreboard_judges_it_on_networks_that_it_has_not_seen(workspace, folder, drawn):
    result = scoreboard(ScoreboardRequest(source=str(folder), evaluator=("fitted",)), workspace=workspace)
    fitted = next(one for one in result.board.standings if one.evaluator == "fitted")
    assert fitted.networks == NETWORKS
    assert fitted.tau.low > 0.6
    rng = np.random.default_rng(1)
    for path in sorted((folder / "rows").iterdir()):  # what cannot be learned is not ranked
        path.write_text(json.dumps(json.loads(path.read_text()) | {"top1": float(rng.random())}))
    (folder / "scores.json").unlink()
    result = scoreboard(ScoreboardRequest(source=str(folder), evaluator=("fitted",)), workspace=workspace)
    (noise,) = (one for one in result.board.standings if one.evaluator == "fitted")
    assert not noise.informative


def test_a_search_begins_with_its_exact_optimum(workspace, folder, space, make_search, monkeypatch):
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)
    keeper = Keeper()
    request = SearchRequest(budget="4.2 ms", evaluator="fitted", learn_from=(str(folder),), trials=8, study="f")
    result = hwbench.search(request, keeper, workspace=workspace)
    feasible = make_search().feasible
    learned = learn_from(workspace, space, [str(folder)]).scores(feasible.sums)
    assert result.history[0].architecture == feasible.best(learned.expected()).architecture.key
    assert result.history[0].score == max(one.score for one in result.history)
    (said,) = (line for line in keeper.lines if line.startswith("learned from 40 networks"))
    assert "of those left out one by one tau 0." in said
    assert "uninformative" not in said
    rows = sorted((folder / "rows").iterdir())
    rows[0].unlink()  # other trainings, other scores
    more, changed = replace(request, trials=12, workers=2), Keeper()
    grown = hwbench.search(more, changed, workspace=workspace)
    text = f"--learn-from {folder} has changed since study f began; it goes on with what it began from, 40 networks of"
    assert [line for line in changed.lines if line.startswith(text)]
    assert grown.settings == result.settings
    assert len(grown.history) == 12
    for one in grown.history:  # of workers, too
        assert one.score == pytest.approx(learned.predict(Architecture.parse(one.architecture)).mean, abs=1e-12)
    (workspace.studies / "f" / "begun_from.json").unlink()  # as studies of before
    with pytest.raises(
        InvalidValue, match=r"has changed since the study began, and its scores rest on .*: --study f-2"
    ):
        hwbench.search(more, workspace=workspace)


def test_a_study_is_learned_from_with_what_it_gave_up(workspace, space, make_search):
    def losses(network, seed, report):
        for epoch in range(3):
            report(epoch, 4.0 - len(network.blocks) * (1 + epoch) / 60)

    search = make_search("short", evaluator="curve", budget_s=7e-3, effort=str(Fidelity(3)), pruner="asha")
    search.losses, search.pruning = losses, Pruning("asha", 3)
    result = search.run(trials=20, measure=1)
    learned = learn_from(workspace, space, ["short"])
    whole = [one for one in learned.observations if not one.fidelity]
    begun = [one for one in learned.observations if one.fidelity == (doublings(1, 3), 0.0, 0.0)]
    assert len(whole) == len(result.history)
    assert len(begun) == 20  # those that went on, too: who was given up is no mean network of that length
    assert sum(one.given_up for one in begun) == len(result.given_up) > 0
    assert str(learned) == "20 networks of short"


def test_sources_that_say_nothing_are_told(workspace, folder, space, make_search):
    make_search("closed", evaluator="entropy").run(trials=4, measure=1)
    with pytest.raises(InvalidValue, match="scored by 'entropy', which trains nothing; give one of curve or short-"):
        learn_from(workspace, space, ["closed"])
    with pytest.raises(
        UnknownName, match=r"no finished study 'closd'; did you mean 'closed'.* --data synthetic --study"
    ):
        learn_from(workspace, space, ["closd"])
    with pytest.raises(InvalidValue, match="no training there is of space 'x3d-mini'"):
        learn_from(workspace, load_space(workspace, "x3d-mini"), [str(folder)])
    search = make_search("short", evaluator="curve", budget_s=7e-3, effort="2 epochs")
    search.losses = lambda network, seed, report: report(0, 1.0)
    search.run(trials=4, measure=1)
    with pytest.raises(
        InvalidValue, match=r"scores of one unit are learned from together, got .*: top-1, short: curve"
    ):
        learn_from(workspace, space, [str(folder), "short"])
    (folder / "rows" / "n00-seed0.json").write_text("{")
    with pytest.raises(InvalidFile, match="n00-seed0"):
        learn_from(workspace, space, [str(folder)])


def table(path, drawn, header="architecture,epochs,top1", **more):
    lines = [",".join([f'"{one.key}"', "12", str(top1(one)), *more.values()]) for one in drawn]
    path.write_text("\n".join([",".join([header, *more]), *lines]) + "\n")
    return path


def test_a_table_says_what_a_folder_says(workspace, folder, space, drawn, tmp_path):
    path = table(tmp_path / "trained.csv", drawn, seed="0")
    of_table, of_folder = (learn_from(workspace, space, [str(one)]) for one in (path, folder))
    assert of_table.unit == of_folder.unit == "top-1"
    assert of_table.observations == of_folder.observations
    other = learn_from(workspace, space, [str(table(tmp_path / "sgd.csv", drawn, optimizer="sgd"))])
    assert other.unit == "top-1 of trainings with SGD"


def test_trainings_on_other_data_are_apart(workspace, space, drawn, folder, tmp_path):
    table(tmp_path / "here.csv", drawn[:3], data="videos")
    table(tmp_path / "unknown.csv", drawn[3:5])
    sources = [str(folder), str(tmp_path / "here.csv"), str(tmp_path / "unknown.csv")]
    learned = learn_from(workspace, space, sources)

    def elsewhere(observations):
        return [one.elsewhere for one in observations]

    assert elsewhere(learned.at(Fidelity(12), "synthetic")) == [False] * NETWORKS + [True] * 3 + [False] * 2
    assert elsewhere(learned.at(Fidelity(12), "videos")) == [True] * NETWORKS + [False] * 5
    assert not any(elsewhere(learned.at(Fidelity(12), "")))
    assert elsewhere(learned.observations) == elsewhere(
        learned.at(Fidelity(12), "synthetic")
    )  # the first of the longest


@pytest.mark.parametrize(
    ("source", "trained_on", "data"),
    [
        ("gone", "videos as flow", "videos"),
        ("gone.csv", "videos as clips", "videos"),
        ("gone.csv", "same as before/videos as flow:tvl1", "same as before/videos"),
        ("ground/truth", "videos", None),
    ],
)
def test_finalists_race_on_the_videos_of_trainings_that_are_gone(drawn, source, trained_on, data):
    """Networks saw their flow; a folder of ground truth names data that may be nowhere else."""
    learned = Learned((source,), "top-1", (LearnedTraining(drawn[0].key, 0.5, Fidelity(12), 0, trained_on),))
    request = SearchRequest(budget="5ms", evaluator="fitted", learn_from=(source,), finalists=2)
    assert hwbench.api.search._racing_on(request, learned).data == data


@pytest.mark.parametrize(("encoding", "others"), [("utf-8", 1), ("utf-8-sig", 0)])
def test_finalists_race_on_what_networks_of_the_space_were_trained_on(
    workspace, drawn, tmp_path, make_search, monkeypatch, encoding, others
):
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)
    source = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    other = load_space(workspace, "x3d-mini").random(np.random.default_rng(0))
    rows = [(source, one.key, 12, top1(one)) for one in drawn[:16]] + [("elsewhere", other.key, 12, 0.5)] * others
    with (tmp_path / "trained.csv").open("w", encoding=encoding, newline="") as file:
        csv.writer(file).writerows([("data", "architecture", "epochs", "top1"), *rows])
    request = SearchRequest(
        budget="4.2 ms", learn_from=(str(tmp_path / "trained.csv"),), trials=4, finalists=2, finalist_epochs=1
    )
    assert hwbench.search(request, workspace=workspace).race.data == source


def test_the_data_that_is_predicted_is_what_is_asked_for_or_that_of_the_studies(
    workspace, space, drawn, tmp_path, make_search, monkeypatch
):
    """Not whichever data had the longest trainings."""
    search = make_search("mine", evaluator="short-train", budget_s=7e-3, effort="6 epochs", data="videos")
    search.trainer = lambda network, seed: len(network.blocks) / 40
    search.run(trials=8, measure=1)
    for name in ("here", "there"):
        table(tmp_path / f"{name}.csv", drawn[:20], data=name)
    tables = tuple(str(tmp_path / f"{name}.csv") for name in ("there", "here"))
    learned = learn_from(workspace, space, [tables[0], "mine"]).predicting("")
    assert learned.predicted == "videos"
    assert [(one.elsewhere, one.fidelity) for one in learned.observations] == [(True, (1.0, 0.0, 0.0))] * 20 + [
        (False, ())
    ] * 8
    assert "; scores are predicted on videos (8 networks)" in learned.describe(None)
    assert "; judged by those on videos (8 networks)" in learned.describe(None, beside=True)
    assert learned.effort != learned.predicting("there").effort
    assert "scores are predicted" not in learn_from(workspace, space, [tables[0]]).predicting("").describe(None)

    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)
    keeper = Keeper()
    request = SearchRequest(budget="4.2 ms", evaluator="fitted", learn_from=tables, trials=2, study="f")
    with pytest.raises(InvalidValue, match=r"were trained on there and here; say .*: --evaluator fitted --data there$"):
        hwbench.search(request, workspace=workspace)
    hwbench.search(replace(request, data="here"), keeper, workspace=workspace)
    (said,) = (line for line in keeper.lines if line.startswith("learned from 20 networks"))
    assert "; scores are predicted on here (20 networks); of those left out" in said
    with pytest.raises(InvalidValue, match="predicts scores on here; for those on there choose another name"):
        hwbench.search(replace(request, data="there"), workspace=workspace)
    trains = replace(request, evaluator="short-train", data="elsewhere", study="trains")
    with pytest.raises(UnknownName, match="no data at elsewhere"):  # which of the others is predicted is no question
        hwbench.search(trains, workspace=workspace)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"{}",12,1.5', "line 2: top1: expected a share from 0 to 1, got 1.5"),
        ('"{}",0,0.5', "line 2: epochs: expected at least 1, got 0"),
        ('"{}",twelve,0.5', "line 2: .*'twelve'"),
        ('"{}",12', "line 2: .*float"),
        ("{},12,0.5", "line 2: "),  # the commas of an architecture without quotes
        ('"nothing",12,0.5', "line 2: .*nothing"),
    ],
)
def test_a_table_that_is_none_is_told_with_its_line(workspace, space, drawn, tmp_path, line, message):
    path = tmp_path / "trained.csv"
    path.write_text(f"architecture,epochs,top1\n{line.format(drawn[0].key)}\n")
    with pytest.raises(InvalidFile, match=message):
        learn_from(workspace, space, [str(path)])


def test_files_that_are_no_tables_of_trainings(workspace, space, drawn, tmp_path):
    with pytest.raises(InvalidFile, match=r"no column top1; a table of trainings has architecture, epochs, top1"):
        learn_from(workspace, space, [str(table(tmp_path / "t.csv", drawn, "architecture,epochs,accuracy"))])
    with pytest.raises(InvalidFile, match=r"nosuch.csv: no such file; expected a table of trainings"):
        learn_from(workspace, space, ["nosuch.csv"])
    with pytest.raises(InvalidFile, match=r"has no networks.json; expected a folder of ground truth"):
        learn_from(workspace, space, [str(tmp_path)])
    (tmp_path / "p.csv").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(InvalidFile, match="no table of trainings"):
        learn_from(workspace, space, [str(tmp_path / "p.csv")])


def test_trainings_of_another_space_of_that_name_are_refused(workspace, space, drawn, tmp_path):
    path = table(tmp_path / "trained.csv", drawn)
    path.write_text(path.read_text().replace("s1.width=32", "s1.width=40"))
    with pytest.raises(InvalidValue, match=r"trained in another space of this name: .*s1\.width"):
        learn_from(workspace, space, [str(path)])


@pytest.mark.parametrize(("space", "networks", "trainings"), [("x3d-tiny", 15, 30), ("x3d-mini", 172, 290)])
def test_the_trainings_that_come_with_hwbench_are_of_its_spaces(tmp_path, space, networks, trainings):
    made = Workspace.create(tmp_path / "bench")
    opened, path = load_space(made, space), made.root / "search_spaces" / f"{space}.trained.csv"
    learned = learn_from(made, opened, [str(path)])
    assert str(learned).startswith(f"{networks} networks of ")
    assert len(learned.observations) == trainings
    assert coming_with(made, [space]) == (path.name,)
    assert learn_from(made, opened, [path.name]).observations == learned.observations
    path.unlink()  # a workspace of before there were any
    assert learn_from(made, opened, [path.name]).observations == learned.observations
    assert coming_with(made, [space, "x3d-mobile"]) == ()


def test_a_file_of_the_current_folder_does_not_stand_for_the_trainings_that_come_with_a_space(tmp_path, monkeypatch):
    made, name = Workspace.create(tmp_path / "bench"), "x3d-tiny.trained.csv"
    space, beside = load_space(made, "x3d-tiny"), made.root / "search_spaces" / name
    (tmp_path / name).write_text("".join(beside.read_text().splitlines(keepends=True)[:5]))
    monkeypatch.chdir(tmp_path)
    coming = coming_with(made, ["x3d-tiny"])
    assert coming == (str(beside),)
    assert len(learn_from(made, space, coming).observations) == 30
    assert len(learn_from(made, space, [name]).observations) == 4
    monkeypatch.chdir(beside.parent)
    assert coming_with(made, ["x3d-tiny"]) == (name,)


@pytest.mark.parametrize(
    ("optimizers", "unit"),
    [
        (("muon", "muon"), "top-1"),
        ((None, None), "top-1"),
        (("sgd", "sgd"), "top-1 of trainings with SGD"),
        (("adamw", "adamw"), "top-1 of trainings with adamw"),
        (("sgd", "muon"), None),
    ],
)
def test_a_ground_truth_is_of_one_optimizer(workspace, folder, space, optimizers, unit):
    paths = sorted((folder / "rows").glob("*.json"))
    for number, path in enumerate(paths):
        if (optimizer := optimizers[number % 2]) is not None:
            path.write_text(json.dumps(json.loads(path.read_text()) | {"recipe": {"optimizer": optimizer}}))
    if unit is None:
        with pytest.raises(InvalidValue, match="got top-1, top-1 of trainings with SGD"):
            learn_from(workspace, space, [str(folder)])
        return
    learned = learn_from(workspace, space, [str(folder)])
    assert learned.unit == unit
    if unit == "top-1":
        learned.check_unit("short-train")
    else:
        with pytest.raises(InvalidValue, match=f"scores there are {unit}, those of --evaluator short-train are top-1"):
            learned.check_unit("short-train")


def test_the_optimizer_that_goes_without_saying_is_that_of_the_default_recipe():
    assert Recipe().optimizer == DEFAULT_OPTIMIZER


def test_trainings_go_with_an_evaluator_that_learns():
    message = "--learn-from goes with --evaluator fitted, short-train or curve, got --evaluator entropy"
    with pytest.raises(InvalidValue, match=message):
        SearchRequest(budget="5ms", learn_from=("mine",), evaluator="entropy")


def test_what_trainings_said_scores_where_nothing_else_is_asked_for():
    assert SearchRequest(budget="5ms", learn_from=("mine",)).plan.evaluator == "fitted"
    assert SearchRequest(budget="5ms", learn_from=("mine",), data="synthetic").plan.evaluator == "short-train"
    assert SearchRequest(budget="5ms").plan.evaluator == "entropy"


@pytest.mark.parametrize("fidelity", [Fidelity(2), Fidelity(12, 0.5), Fidelity(1, 0.25, 0.75), Fidelity(3, 1.0, 0.1)])
def test_the_length_of_trainings_is_read_as_it_is_written(fidelity):
    assert Fidelity.parse(str(fidelity)) == fidelity
    with pytest.raises(InvalidValue, match="expected a length of trainings such as '2 epochs', got 'long'"):
        Fidelity.parse("long")
