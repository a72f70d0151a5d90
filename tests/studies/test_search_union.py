"""Spaces that compete: what is typed and what comes of it, against brute force; only the measuring is on a fake."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import optuna
import pytest

import hwbench
import hwbench.api.search
from hwbench import Listener, SearchRequest
from hwbench.cli.main import main
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import InfeasibleBudget, InvalidValue, NotMeasured, UnknownName
from hwbench.latency import AdditivePredictor, LatencyTable, table_path, with_own_networks
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.reports import commands
from hwbench.reports.page import page
from hwbench.reports.result import read_result
from hwbench.reports.study import gather
from hwbench.spaces import SpaceUnion, open_spaces
from hwbench.spaces.budgets import Budget
from hwbench.spaces.limits import Limits
from hwbench.spaces.union import UnionSums, sums_over
from hwbench.spaces.union_set import UnionSet
from hwbench.specs import Architecture, Precision, Timing
from hwbench.studies.candidates import Candidate
from hwbench.studies.confirmation import Confirmation
from hwbench.studies.evaluators.base import Context
from hwbench.studies.evaluators.entropy import Entropy
from hwbench.studies.fidelities import FULL, ScoreObservation
from hwbench.studies.first_networks import first_networks
from hwbench.studies.latencies import choices_digest, space_latencies
from hwbench.studies.posterior import Posterior
from hwbench.studies.posterior_union import UnionLayout, layout_of
from hwbench.studies.sampler import FeasibleSampler, samplers
from hwbench.studies.settings import Settings
from hwbench.studies.thompson import Thompson
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.listeners import Keeper
from hwbench.testing.small_spaces import SMALL_SPACES, add_small_spaces
from hwbench.testing.tables import CLASSES, installed_target, space_table, work
from hwbench.units import format_share
from hwbench.workspace import Workspace

INT8 = Precision.INT8
NAMES = list(SMALL_SPACES)
X3D, R2PLUS1D = NAMES
BOTH = ",".join(NAMES)
# Both have networks within it, and neither all of them; within the small one only X3D has some.
BUDGET, SMALL = "0.3ms", "0.1ms"


def slower(workload):
    """The law of the other device."""
    return 2 * work(workload)


def both_tables(spaces, device, law):
    """One table of a device with the rows of both spaces."""
    target = replace(installed_target(), device=device)
    rows = {row.workload: row for one in spaces for row in space_table(one, INT8, law, target=target)}
    return LatencyTable(target, INT8, rows.values())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    workspace = Workspace.create(tmp_path_factory.mktemp("union") / "work")
    add_small_spaces(workspace)
    union = open_spaces(workspace, NAMES)
    tables = {"local": both_tables(union.members, "local", work), "s9": both_tables(union.members, "s9", slower)}
    return workspace, union, tables


@pytest.fixture
def workspace(made, tmp_path, monkeypatch):
    """One of its own, in which both devices are measured by their laws."""
    workspace = Workspace.create(tmp_path / "work")
    add_small_spaces(workspace)
    for device, table in made[2].items():
        table.write(table_path(workspace.root, replace(installed_target(), device=device), INT8))
    monkeypatch.chdir(workspace.root)
    laws = {"local": work, "s9": slower}

    def measuring(_, target, *rest, **__):
        device = FakeDevice(tmp_path / target.device, law=laws[target.device])

        def measure(workloads):
            timing = Timing(min_rounds=3, max_rounds=4)
            with MeasurementStore(workspace.store) as store:
                campaign = Campaign(store, target, {"device": target.device}, device.build, device.measure, timing)
                return campaign.run(workloads).measurements

        return measure

    monkeypatch.setattr(hwbench.api.search, "measuring", measuring)
    return workspace


@pytest.fixture(scope="module")
def union(made):
    return made[1]


@pytest.fixture(scope="module")
def sums(made, union):
    """The predicted latencies: each space by its own predictor."""
    parts = []
    for one in union.members:
        table = with_own_networks(made[2]["local"], list(one.parts(INT8, num_classes=CLASSES)), one.size())
        parts.append(space_latencies(one, AdditivePredictor.fit(table), INT8, CLASSES))
    return UnionSums(union, tuple(parts))


@pytest.fixture(scope="module")
def predicted(union, sums):
    """By member: seconds."""
    return {one: sums.total(one) for one in union.architectures()}


@pytest.fixture
def feasible(union, sums):
    return UnionSet(union, [Limits((Budget("latency", 0.3e-3, one),)) for one in sums.members])


def ask(workspace, listener=None, **changes):
    request = SearchRequest(**{"space": BOTH, "budget": BUDGET, "trials": 8} | changes)
    return hwbench.search(request, listener or Listener(), workspace=workspace)


def typed(capsys, *arguments):
    """Exit status, stdout and stderr of a command line."""
    try:
        main(["search", *arguments])
        status = 0
    except SystemExit as end:
        status = end.code or 0
    return (status, *capsys.readouterr())


def entropy_of(union):
    scores = sums_over(union, Entropy(Context(0, lambda count: [])).block_score, num_classes=CLASSES)
    return {one: scores.total(one) for one in union.architectures()}


def test_what_is_typed_is_the_best_of_both_spaces_by_brute_force(workspace, union, predicted, capsys):
    status, out, err = typed(capsys, "--space", BOTH, "--budget", BUDGET, "--trials", "12", "--json")
    assert status == 0, err
    found, within = json.loads(out), [one for one, seconds in predicted.items() if seconds <= 0.3e-3]
    scores = entropy_of(union)
    best = max(within, key=scores.__getitem__)
    assert (found["space"], found["feasible"]) == (BOTH, len(within))
    assert found["best"]["architecture"] == best.key
    assert found["best"]["space"] == best.space
    counts = {name: sum(one.space == name for one in within) for name in NAMES}
    assert {one["space"]: one["feasible"] for one in found["spaces"]} == counts
    assert [one["family"] for one in found["spaces"]] == ["x3d", "r2plus1d"]
    assert sum(one["share"] for one in found["spaces"]) == pytest.approx(1, abs=1e-5)
    assert sum(one["trials"] for one in found["spaces"]) == 12
    assert all(one["score"] is None or one["score"] <= found["best"]["score"] for one in found["spaces"])
    assert found["study"] == f"{X3D}-{R2PLUS1D}_local_int8_0.3ms_entropy"
    assert f"of these {counts[X3D]} ({format_share(counts[X3D] / len(within))}) of {X3D}" in err
    assert f"{X3D}: calibration: " in err
    assert err.count("latencies of local in int8 are those of") == 1
    assert f"next: hwbench train {found['study']}:best" in err
    stored = read_result(workspace, found["study"])
    assert [vars(one) for one in stored.spaces] == [pytest.approx(one) for one in found["spaces"]]
    assert {one.space for one in stored.history} == set(NAMES)
    network = hwbench.spaces.resolve(workspace, f"{found['study']}:best", CLASSES)
    assert network.name == best.key


def test_for_people_there_is_a_table_of_the_spaces(workspace, capsys):
    status, out, _ = typed(capsys, "--space", BOTH, "--budget", f"{SMALL},{BUDGET}", "--trials", "10")
    assert status == 0
    table = out[out.index(": the spaces") :]
    assert [sum(name in line for line in table.splitlines()) for name in NAMES] == [2, 2]
    assert sum(" best " in line for line in table.splitlines()) == 2


@pytest.mark.parametrize("sampler", ["thompson", "tpe", "nsga2", "random"])
def test_every_sampler_stays_within_and_sees_every_network_of_both(feasible, sampler):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize", sampler=FeasibleSampler(feasible, samplers.get(sampler), seed=0, startup=4)
    )
    scores, seen = entropy_of(feasible.space), []
    for _ in range(30):
        trial = study.ask()
        seen.append(feasible.space.sample(trial))
        study.tell(trial, scores[seen[-1]])
    assert len(set(seen)) == 30
    assert all(one in feasible for one in seen)
    assert {one.space for one in seen} == set(NAMES)


@pytest.mark.long
def test_a_study_ends_with_the_last_network_of_the_union(workspace, predicted):
    result = ask(workspace, budget="0.12ms", trials=90, evaluator="entropy", sampler="random", measure=1)
    within = {one.key for one, seconds in predicted.items() if seconds <= 0.12e-3}
    assert {one.architecture for one in result.history} == within
    assert result.trials == len(within)


def test_a_study_goes_on_and_another_list_of_spaces_is_refused(workspace):
    first = ask(workspace, study="once", trials=4)
    later = ask(workspace, study="once", trials=10)
    assert [one.architecture for one in later.history[:4]] == [one.architecture for one in first.history]
    assert len({one.architecture for one in later.history}) == 10
    for spaces in (X3D, f"{R2PLUS1D},{X3D}"):
        with pytest.raises(InvalidValue, match=f"space was '{BOTH}', now '{spaces}'"):
            ask(workspace, study="once", space=spaces)


def test_a_study_begins_with_networks_of_each_space(workspace):
    """Draws from all of them are three to one of X3D; the first ones are no draws of the union."""
    result = ask(workspace, evaluator="deep-and-slow", trials=8, seed=5)
    assert [one.space for one in result.history[:4]] == [X3D, R2PLUS1D, X3D, R2PLUS1D]
    assert not {0, 1, 2, 3} & set(result.course.draws)
    drawn = ask(workspace, evaluator="deep-and-slow", trials=4, sampler="random", study="drawn")
    assert drawn.course.draws == (0, 1, 2, 3)


def test_a_space_without_scores_has_no_best_network_to_begin_with(feasible, union):
    def score(block, x):
        if block.kind in own:
            raise NotMeasured("no score")
        return 1.0

    kinds = [{block.kind for block, _ in feasible.sets[one].reachable_parts()} for one in NAMES]
    own = kinds[1] - kinds[0]
    assert own
    scores = sums_over(union, score, num_classes=CLASSES)
    settings = Settings(union.name, "", "", "int8", 0.3, CLASSES)
    assert {one.space for one in first_networks([feasible], settings, scores)} == {NAMES[0]}


def test_an_edited_space_of_the_list_is_another_study(workspace):
    ask(workspace, study="mine", trials=4)
    path = workspace.root / "search_spaces" / f"{R2PLUS1D}.toml"
    path.write_text(path.read_text().replace("depth = [1, 2]", "depth = 1"))
    with pytest.raises(InvalidValue, match="choices was"):
        ask(workspace, study="mine", trials=4)


def test_a_front_says_who_won_at_which_budget(workspace, predicted, union):
    keeper = Keeper()
    result = ask(workspace, keeper, budget=f"{SMALL},{BUDGET}", trials=14, study="front")
    small, large = result.to_json()["front"]
    assert [one["feasible"] for one in small["spaces"]][1] == 0
    assert small["best"]["space"] == X3D
    scores = entropy_of(union)
    for point, limit in ((small, 0.1e-3), (large, 0.3e-3)):
        within = [one for one, seconds in predicted.items() if seconds <= limit]
        assert point["feasible"] == len(within)
        assert point["best"]["architecture"] == max(within, key=scores.__getitem__).key
    assert any(f"no network of space '{R2PLUS1D}'" in line and "goes on without" in line for line in keeper.lines)
    report = gather(workspace, "front")
    shown = page(report)
    assert "The spaces that compete" in shown
    assert shown.count(">won<") == 2
    assert f"--space {BOTH} " in commands.search(report.result)
    assert f"--space {report.result.space} " in commands.validate(report.result)[0]
    frame = report.to_frame()
    assert set(frame["space"]) == set(NAMES)
    assert list(result.to_frame()["space"]) == list(frame["space"])


def test_scores_of_a_space_are_of_networks_within_as_surely_as_asked_for(workspace, made, union, predicted):
    asked = {"budget": "0.12ms,0.162ms,0.3ms", "confidence": 0.999, "evaluator": "entropy", "sampler": "random"}
    result, surely = ask(workspace, trials=60, measure=1, **asked), {}
    for one in union.members:
        table = with_own_networks(made[2]["local"], list(one.parts(INT8, num_classes=CLASSES)), one.size())
        margin = AdditivePredictor.fit(table, moment=datetime.now(UTC)).margin(0.999)
        surely |= {network.key: margin * predicted[network] for network in one.architectures()}
    for point in result.front:
        times = surely | {c.architecture: min(c.measured_s, surely[c.architecture]) for c in result.measured}
        within = {key for key, seconds in times.items() if seconds <= point.budget_ms / 1e3}
        for one in point.spaces:
            scores = [c.score for c in result.history if c.architecture in within and c.space == one.space]
            assert (one.trials, one.score) == (len(scores), max(scores, default=None))
    (small, _), (_, middle), _ = (point.spaces for point in result.front)
    assert (small.trials, small.score) == (small.feasible + 1, result.front[0].best.score)  # one more was measured
    assert (middle.feasible, middle.trials, middle.score) == (0, 0, None)
    assert any(one.space == R2PLUS1D and one.predicted_s <= 0.162e-3 for one in result.history)


def test_where_no_space_has_a_network_the_nearest_budget_is_enough(workspace, capsys, predicted):
    status, out, err = typed(capsys, "--space", BOTH, "--budget", "10us")
    assert (status, out) == (4, "")
    named = err.split("--budget ")[1].split()[0]
    least = min(predicted.values())
    assert float(named.removesuffix("ms")) == pytest.approx(1e3 * least, rel=0.02)
    assert ask(workspace, budget=named, trials=1, measure=1).feasible >= 1


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"space": f"{X3D},{X3D}"}, InvalidValue, "expected each space once"),
        ({"space": f"{X3D},"}, InvalidValue, "expected each space once"),
        ({"space": f"{X3D},smal-r2plus1d"}, UnknownName, "did you mean 'small-r2plus1d'"),
        ({"evaluator": "supernet"}, InvalidValue, "networks of one space share weights"),
        ({"budget": "1us"}, InfeasibleBudget, f"no network of any of the spaces {BOTH}"),
    ],
)
def test_a_wrong_request_is_one_clear_error(workspace, changes, error, said):
    with pytest.raises(error, match=said):
        ask(workspace, **changes)


def test_several_devices_and_sizes_limit_the_networks_of_every_space(workspace, predicted):
    result = ask(workspace, device="local,s9", budget="0.3ms,0.5ms", max_file_size="20kB", trials=8)
    assert set(result.best.measured("local")) == {"local", "s9"}
    assert result.best.measured("local")["s9"] <= 0.5e-3
    assert dict(result.best.sizes)["file_size_bytes"] <= 20_000
    within = [one for one, seconds in predicted.items() if seconds <= 0.25e-3]
    assert 0 < result.feasible <= len(within)
    assert all(one.predicted("local")["s9"] <= 0.5e-3 for one in result.history)


@pytest.mark.long
def test_fitted_learns_from_trainings_of_every_space(workspace, union):
    """From a study of the union; that of one space alone says nothing of the other."""

    def trained(name, spaces):
        made = ask(workspace, space=spaces, study=name, trials=16, sampler="random")
        path = workspace.studies / name / "result.json"
        stored = json.loads(path.read_text())
        stored["settings"] |= {"evaluator": "short-train", "data": "synthetic", "effort": "2 epochs"}
        path.write_text(json.dumps(stored))
        return made

    trained("alone", X3D)
    with pytest.raises(InvalidValue, match=f"no training there is of space '{R2PLUS1D}'"):
        ask(workspace, evaluator="fitted", learn_from=("alone",))
    known = trained("both", BOTH)
    keeper = Keeper()
    result = ask(workspace, keeper, evaluator="fitted", learn_from=("both", "alone"), trials=6, study="second")
    assert any("learned from" in line for line in keeper.lines)
    scores = entropy_of(union)
    learned_best = max(scores[Architecture.parse(one.architecture)] for one in known.history)
    assert scores[Architecture.parse(result.best.architecture)] >= learned_best - 0.5


def observed(members, scores):
    return [ScoreObservation(one, score, FULL, n) for n, (one, score) in enumerate(zip(members, scores, strict=True))]


def test_mean_and_draws_of_the_model_are_sums_over_the_union(sums, union):
    layout, rng = layout_of(sums), np.random.default_rng(1)
    assert isinstance(layout, UnionLayout)
    members = [union.random(rng) for _ in range(40)]
    posterior = Posterior.fit(layout, observed(members, rng.normal(size=40)))
    others = list(union.architectures())
    mean, deviation = posterior.predict(others)
    expected = posterior.expected()
    assert [expected.total(one) for one in others] == pytest.approx(mean.tolist(), abs=1e-9)
    draws = np.array([[f.total(one) for one in others] for f in (posterior.draw(rng) for _ in range(150))])
    assert np.abs(draws.mean(axis=0) - mean).max() < 6 * deviation.max() / np.sqrt(150)
    assert draws.std(axis=0) == pytest.approx(deviation, rel=6 / np.sqrt(2 * 150), abs=1e-3)


def test_what_more_frames_are_worth_is_learned_from_all_spaces(union):
    """Scores of one space depend on frames alone; of the other networks of 8 frames are known, and none of 16."""
    x3d, r2plus1d = union.members
    both = SpaceUnion((replace(x3d, frames=(8, 16)), r2plus1d))
    known = [one for one in both.architectures() if one.space == X3D or one["frames"] == "8"]
    layout = layout_of(sums_over(both, lambda block, x: 0.0, num_classes=CLASSES))
    posterior = Posterior.fit(layout, observed(known, [float(one["frames"]) for one in known]))
    of_other = [one for one in both.architectures() if one.space == R2PLUS1D]
    few, many = (next(one for one in of_other if one["frames"] == frames) for frames in ("8", "16"))
    mean, deviation = posterior.predict([few, many])
    assert mean[1] > mean[0] + 1
    assert deviation[1] > deviation[0]


def test_thompson_finds_the_best_space_of_an_additive_score(feasible):
    """Every network of one space is better than all of the other one, which has more of them."""
    scores = {one: (10.0 if one.space == R2PLUS1D else 0.0) + s for one, s in entropy_of(feasible.space).items()}
    best = max((one for one in scores if one in feasible), key=scores.__getitem__)
    rng, thompson = np.random.default_rng(0), Thompson(feasible)
    known = dict.fromkeys(feasible.draw(rng) for _ in range(6))
    for _ in range(10):
        proposed = thompson.propose(observed(known, [scores[one] for one in known]), rng)
        attempt = 0
        while proposed in known and attempt < 4:
            attempt += 1
            proposed = thompson.propose(observed(known, [scores[one] for one in known]), rng, attempt=attempt)
        known[proposed] = None
        if proposed == best:
            break
    assert best in known


def test_errors_of_predictions_are_learned_by_space():
    """One space takes a fifth longer than predicted: that says nothing of the other."""
    spread = {"a": 1.03, "b": 1.05}
    confirmation = Confirmation(lambda w: [], lambda key: None, 1.0, spread, 2)
    for number in range(6):
        confirmation.measured[f"a:n={number}"] = Candidate(f"a:n={number}", 1.0, 0.8, 0.96)
    waiting = [Candidate("a:n=9", 2.0, 0.95), Candidate("b:n=9", 2.0, 0.95)]
    first, second = confirmation.with_chances(waiting)
    assert first.chance < 0.01
    assert second.chance > 0.7


def test_the_calibration_of_a_space_is_by_its_own_networks(made, union):
    """R(2+1)D takes half as long again as its rows say; X3D what they say."""
    table, (x3d, r2plus1d) = made[2]["local"], union.members
    parts = {one.name: list(one.parts(INT8, num_classes=CLASSES)) for one in union.members}
    stats = lambda s: replace(s, **{k: 1.5 * getattr(s, k) for k in ("median_s", "ci_low_s", "ci_high_s")})  # noqa: E731
    of_r2plus1d = {(p.blocks[0], p.input) for p in parts[R2PLUS1D]}
    rows = [
        replace(row, stats=stats(row.stats))
        if row.workload.is_network and all((p.blocks[0], p.input) in of_r2plus1d for p in row.workload.parts())
        else row
        for row in table
    ]
    mixed = LatencyTable(table.target, INT8, rows)
    for one, factor in ((x3d, 1.0), (r2plus1d, 1.5)):
        own = with_own_networks(mixed, parts[one.name], one.size())
        network = next(one.architectures())
        predicted = AdditivePredictor.fit(own).predict(one.network(network, CLASSES).workload(INT8)).seconds
        before = AdditivePredictor.fit(table).predict(one.network(network, CLASSES).workload(INT8)).seconds
        assert predicted == pytest.approx(factor * before, rel=0.02)
    few = with_own_networks(mixed, parts[X3D][:1])
    assert few is mixed


def test_the_settings_hold_a_digest_for_each_space(workspace, union):
    result = ask(workspace, trials=2, measure=1)
    assert result.settings.spaces == {one.name: choices_digest(one) for one in union.members}
    assert result.settings.choices == choices_digest(union)


def test_trainings_on_several_data_are_no_default_for_spaces_that_compete(workspace, union):
    """Each space comes with trainings, on data of its own; more of them are of R(2+1)D."""
    for one, number, data in zip(union.members, (6, 12), ("synthetic", "clips"), strict=True):
        rows = [f'"{n.key}",12,0.{i:02},{data}' for i, n in zip(range(10, 10 + number), one.architectures())]
        table = workspace.root / "search_spaces" / f"{one.name}.trained.csv"
        table.write_text("\n".join(["architecture,epochs,top1,data", *rows]) + "\n")
    keeper = Keeper()
    assert ask(workspace, keeper).settings.evaluator == "entropy"
    (told,) = [line for line in keeper.lines if line.endswith("; so the study begins without trainings")]
    assert "say on which of them scores are predicted: --evaluator fitted --data clips" in told
    for typed in ({"evaluator": "fitted"}, {"learn_from": tuple(f"{name}.trained.csv" for name in NAMES)}):
        with pytest.raises(InvalidValue, match="say on which of them scores are predicted"):
            ask(workspace, **typed)
    fitted = ask(workspace, evaluator="fitted", data="clips").settings
    again = Keeper()
    assert ask(workspace, again, study=f"{X3D}-{R2PLUS1D}_local_int8_0.3ms_fitted").settings == fitted
    assert not [line for line in again.lines if "begins without trainings" in line]


BY_CLASSES = """from torch import nn

def net(num_classes=400, width=8):
    if num_classes < 2:
        raise ValueError("nobody has asked for one class")
    last = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten())
    return nn.Sequential(nn.Conv3d(3, width, 3, 4, 1), nn.ReLU(), nn.Conv3d(width, num_classes, 1), last)

def wide(num_classes=400):
    return net(num_classes, 16)

net.input_shape = wide.input_shape = (1, 3, 4, 16, 16)
"""


def test_models_by_hand_whose_inner_blocks_have_the_width_of_the_classes_are_trained_and_race(
    workspace, tmp_path, monkeypatch
):
    (tmp_path / "nets_by_classes.py").write_text(BY_CLASSES)
    monkeypatch.syspath_prepend(tmp_path)
    names = ["nets_by_classes:net", "nets_by_classes:wide"]
    members = open_spaces(workspace, names, CLASSES).members
    both_tables(members, "local", work).write(table_path(workspace.root, installed_target(), INT8))
    videos = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=16, frames=8)))
    shared = {"space": ",".join(names), "budget": "1s", "data": videos, "classes": CLASSES}
    trained = {"evaluator": "short-train", "epochs": 1, "finalists": 2, "finalist_epochs": 2}
    result = ask(workspace, measure=1, trials=2, **trained, **shared)
    assert result.race.winner == result.best.architecture


@pytest.mark.parametrize("names", [["nets_of_table:net"], ["nets_of_table:net", "nets_of_table:wide"]])
def test_models_by_hand_are_searched_with_the_classes_of_their_table(workspace, tmp_path, monkeypatch, names):
    """Where nobody names a number, though all blocks of the models change with it, and their own is another one."""
    (tmp_path / "nets_of_table.py").write_text(BY_CLASSES)
    monkeypatch.syspath_prepend(tmp_path)
    members = open_spaces(workspace, names, CLASSES).members
    both_tables(members, "local", work).write(table_path(workspace.root, installed_target(), INT8))
    asked = {"space": ",".join(names), "budget": "1s", "trials": len(names), "measure": 1}
    result = ask(workspace, **asked)
    assert (result.settings.num_classes, result.feasible) == (CLASSES, len(names))
    assert ask(workspace, classes=CLASSES, **asked).settings == result.settings
