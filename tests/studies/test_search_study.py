import errno
import json
import math
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import optuna
import pytest
from plugin_packages import offer

from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, OverBudget, WorkspaceError
from hwbench.spaces import load_result, resolve
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Precision
from hwbench.studies.candidates import Candidate
from hwbench.studies.evaluations import Assignment, EvaluatorSetup, InProcess
from hwbench.studies.evaluators import get as get_evaluator
from hwbench.studies.evaluators.base import Context, evaluators
from hwbench.studies.latencies import space_latencies
from hwbench.studies.optuna_log import quiet_optuna
from hwbench.studies.study import SearchWatch
from hwbench.units import milliseconds, parse_duration, typed_duration


@evaluators.register("deep-is-good")
class DeepIsGood:
    """Depth of all stages; not additive on purpose, and it counts its calls."""

    name = "deep-is-good"
    unit = "blocks"
    calls: list[str] = []
    unknown: frozenset[str] = frozenset()

    def __init__(self, context: Context) -> None:
        pass

    def score(self, network) -> float:
        self.calls.append(network.name)
        if "s3.width=96" in network.name and self.unknown:
            return float("nan")
        return len(network.blocks) + 1e-3 * network.blocks[-1].in_channels


@pytest.fixture(autouse=True)
def fresh_evaluator():
    DeepIsGood.calls.clear()
    DeepIsGood.unknown = frozenset()


def test_a_search_ends_with_a_measured_network_within_the_budget(make_search, workspace, space, device):
    search = make_search()
    result = search.run(trials=25, measure=3)
    best = result.best
    assert best.measured_s <= search.settings.budget_s
    workload = resolve(workspace, "mine:best", 8).workload(Precision.INT8)
    assert best.measured_s == pytest.approx(device.law(workload), rel=0.01)
    assert best.predicted_s == pytest.approx(device.law(workload), rel=0.01)
    assert result.trials == len(result.history) == 25
    assert len({c.architecture for c in result.history}) == 25
    assert all(c.predicted_s <= search.settings.budget_s for c in result.history)
    assert len(result.measured) == 3


def test_the_result_prints_and_stores_what_others_rely_on(make_search, workspace):
    result = make_search().run(trials=12, measure=2)
    printed = result.to_json()
    assert list(printed) == ["study", "space", "budget_ms", "trials", "feasible", "best", "pareto"]
    assert list(printed["best"]) == ["architecture", "predicted_ms", "measured_ms", "score"]
    assert printed["budget_ms"] == 4.2
    assert printed["best"]["measured_ms"]["local"] <= 4.2
    stored = load_result(workspace, "mine")
    assert {k: stored[k] for k in printed} == json.loads(json.dumps(printed))
    assert stored["settings"]["seed"] == 0
    assert len(stored["history"]) == 12
    assert sum(c["measured_ms"] is not None for c in stored["measured"]) == 2


def test_an_additive_score_is_answered_with_the_exact_optimum(make_search):
    search = make_search()
    entropy = get_evaluator("entropy")(Context(0, lambda n: []))
    optimum = search.feasible.best(SpaceSums.of(search.feasible.space, entropy.block_score, num_classes=8))
    result = search.run(trials=1, measure=1)
    assert result.best.score == pytest.approx(optimum.score)
    assert max(c.score for c in make_search("longer").run(trials=30, measure=1).history) <= optimum.score + 1e-9


def test_the_front_is_not_beaten_by_any_trial(make_search):
    result = make_search(evaluator="deep-is-good").run(trials=30, measure=2)
    assert len(result.pareto) > 1
    for candidate in result.history:
        assert any(f.score >= candidate.score and f.predicted_s <= candidate.predicted_s for f in result.pareto)
    for one in result.pareto:
        assert not any(
            other.score >= one.score and other.predicted_s <= one.predicted_s
            for other in result.pareto
            if other is not one
        )


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
@pytest.mark.parametrize("objective", ["score", "score,latency"])
def test_every_sampler_stays_within_the_budget_and_repeats_nothing(make_search, sampler, objective):
    search = make_search(evaluator="deep-is-good", sampler=sampler, objective=objective)
    result = search.run(trials=30, measure=1)
    assert all(c.predicted_s <= search.settings.budget_s for c in result.history)
    assert len({c.architecture for c in result.history}) == 30
    assert len(DeepIsGood.calls) == 30


def test_the_sampler_learns(make_search):
    def mean_of_last(sampler: str) -> float:
        search = make_search(f"learn-{sampler}", evaluator="deep-is-good", sampler=sampler, budget_s=7e-3)
        last = search.run(trials=60, measure=1).history[-25:]
        return sum(c.score for c in last) / len(last)

    assert mean_of_last("tpe") > mean_of_last("random") + 0.5


def test_the_same_seed_finds_the_same_another_seed_does_not(make_search):
    def keys(name, **changes):
        history = make_search(name, evaluator="deep-is-good", **changes).run(trials=20, measure=1).history
        return [c.architecture for c in history]

    assert keys("a") == keys("b")
    assert keys("a2", seed=1) != keys("b2", seed=2)


def test_a_study_goes_on_as_if_it_had_not_been_interrupted(make_search):
    whole = make_search("whole", evaluator="deep-is-good").run(trials=24, measure=1).history

    class Stop(SearchWatch):
        seen = 0

        def evaluated(self, candidate):
            self.seen += 1
            if self.seen == 17:
                raise KeyboardInterrupt

    halves = make_search("halves", evaluator="deep-is-good")
    halves.watch = Stop()
    with pytest.raises(KeyboardInterrupt):
        halves.run(trials=24, measure=1)
    DeepIsGood.calls.clear()
    again = make_search("halves", evaluator="deep-is-good").run(trials=24, measure=1).history
    # the trial under way is evaluated again, nothing else is
    assert len(DeepIsGood.calls) == 24 - 16
    assert len(again) == 24
    assert [c.architecture for c in again] == [c.architecture for c in whole]


def test_more_trials_under_the_same_name_only_add(make_search):
    first = make_search(evaluator="deep-is-good").run(trials=10, measure=1)
    DeepIsGood.calls.clear()
    second = make_search(evaluator="deep-is-good").run(trials=15, measure=1)
    assert len(DeepIsGood.calls) == 5
    assert [c.architecture for c in second.history[:10]] == [c.architecture for c in first.history]
    DeepIsGood.calls.clear()
    assert make_search(evaluator="deep-is-good").run(trials=15, measure=1).best == second.best
    assert DeepIsGood.calls == []


def _search_until_killed(search) -> None:
    class Slow(SearchWatch):
        def evaluated(self, candidate):
            if candidate.trial == 8:
                time.sleep(60)

    search.watch = Slow()
    search.run(trials=20, measure=1)


def test_a_killed_search_goes_on_from_its_journal(make_search, workspace):
    process = multiprocessing.get_context("fork").Process(target=_search_until_killed, args=(make_search(),))
    process.start()
    journal = workspace.studies / "mine" / "journal.log"
    while not (journal.is_file() and journal.read_text().count('"predicted_s"') >= 8):
        assert process.is_alive()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with journal.open("a") as file:
        file.write('{"op_code": 8, "torn')  # what a kill in the middle of a write leaves
    result = make_search().run(trials=20, measure=1)
    assert result.trials == 20
    assert len({c.architecture for c in result.history}) == 20


def test_another_process_may_not_use_the_study_at_the_same_time(make_search):
    search = make_search()

    class Nested(SearchWatch):
        said = ""

        def evaluated(self, candidate):
            if not self.said:
                with pytest.raises(InvalidValue, match="in use by another process") as caught:
                    make_search().run(trials=1, measure=1)
                Nested.said = str(caught.value)

    search.watch = Nested()
    search.run(trials=3, measure=1)
    assert "--study mine-2" in Nested.said


def test_a_process_that_a_killed_search_has_forked_does_not_keep_the_study_in_use(make_search):
    until, end = os.pipe()

    class Killed(SearchWatch):
        def evaluated(self, candidate):
            if not os.fork():  # as a reader of videos, which sees seconds later that it is alone
                os.close(end)
                os.read(until, 1)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)

    search = make_search()
    search.watch = Killed()
    process = multiprocessing.get_context("fork").Process(target=search.run, args=(2, 1))
    process.start()
    process.join()
    try:
        assert process.exitcode == -signal.SIGKILL
        assert make_search().run(trials=2, measure=1).trials == 2
    finally:
        os.close(end)
        os.close(until)


def test_other_settings_under_the_same_name_are_refused(make_search):
    make_search().run(trials=2, measure=1)
    with pytest.raises(InvalidValue, match=r"budget_ms was 4\.2, now 5\.0; .*--study mine-2"):
        make_search(budget_s=5e-3).run(trials=2, measure=1)
    with pytest.raises(InvalidValue, match="seed was 0, now 4"):
        make_search(seed=4).run(trials=2, measure=1)
    # an objective with another number of values, too
    with pytest.raises(InvalidValue, match="objective was 'score'"):
        make_search(objective="score,latency").run(trials=2, measure=1)


@pytest.mark.parametrize("text", ["garbage\n", '{"a": 1}\n', '{"op_code": 99, "worker_id": "x"}\n', "\x00\x01\n\n"])
def test_a_damaged_journal_is_one_clear_error(make_search, workspace, text):
    folder = workspace.studies / "mine"
    folder.mkdir(parents=True)
    (folder / "journal.log").write_text(text)
    with pytest.raises(InvalidFile, match=r"journal\.log: (damaged|is no journal)"):
        make_search().run(trials=2, measure=1)
    assert (folder / "journal.log").read_text() == text


def test_when_every_network_was_seen_the_search_stops(make_search, space, predictor):
    smallest, _ = space_latencies(space, predictor, Precision.INT8, 8).smallest()
    search = make_search(evaluator="deep-is-good", budget_s=smallest * 1.06)
    count = int(search.feasible.count)
    assert 2 < count < 80

    class Exhausted(SearchWatch):
        networks = 0

        def exhausted(self, networks):
            Exhausted.networks = networks

    search.watch = Exhausted()
    result = search.run(trials=500, measure=1)
    assert Exhausted.networks == count
    assert len({c.architecture for c in result.history}) == count
    assert result.trials < 500


def test_networks_without_a_score_are_no_candidates_and_end_the_search(make_search):
    DeepIsGood.unknown = frozenset({"96"})
    result = make_search(evaluator="deep-is-good", sampler="random").run(trials=20, measure=2)
    assert result.trials == 20
    assert 0 < len(result.history) < 20
    assert all("s3.width=128" in c.architecture for c in result.history)


def test_when_the_device_is_slower_than_predicted_slower_candidates_give_way(make_search, device):
    quick = device.law
    device.law = lambda workload: 1.25 * quick(workload)
    search = make_search(evaluator="deep-is-good")
    result = search.run(trials=60, measure=2)
    assert result.best.measured_s <= search.settings.budget_s
    assert result.best.predicted_s < 0.85 * search.settings.budget_s
    assert any(c.measured_s > search.settings.budget_s for c in result.measured)


def test_nothing_within_the_budget_is_never_called_a_result(make_search, workspace, device):
    quick = device.law
    device.law = lambda workload: 10 * quick(workload)
    with pytest.raises(OverBudget, match=r"none of the \d candidates .* is within 4.2 ms; the fastest takes") as caught:
        make_search().run(trials=20, measure=2)
    assert caught.value.exit_status == 5
    assert not (workspace.studies / "mine" / "result.json").exists()


def test_candidates_that_cannot_be_measured_say_why(make_search):
    search = make_search()
    search.measure = lambda workloads: []
    with pytest.raises(OverBudget, match="no candidate could be measured on the device: the device did not report it"):
        search.run(trials=4, measure=2)


def test_a_study_without_any_score_names_the_evaluator(make_search, monkeypatch):
    monkeypatch.setattr(DeepIsGood, "score", lambda self, network: math.nan)
    with pytest.raises(OverBudget, match="no candidate has a score; evaluator 'deep-is-good' gave none"):
        make_search(evaluator="deep-is-good").run(trials=3, measure=2)


def test_an_evaluator_that_fails_is_named_with_the_network(make_search, monkeypatch):
    monkeypatch.setattr(DeepIsGood, "score", lambda self, network: None)
    with pytest.raises(HwbenchError, match=r"evaluator 'deep-is-good' failed on x3d-tiny:\S*: TypeError: ") as error:
        make_search(evaluator="deep-is-good").run(trials=3, measure=2)
    assert isinstance(error.value.__cause__, TypeError)


def no_file(evaluator, network) -> float:
    return float(Path("weights/table.json").read_text())


def no_answer(evaluator, network) -> float:
    raise RuntimeError("the label server did not answer")


@pytest.mark.parametrize(
    ("score", "cause", "said"),
    [
        (no_file, FileNotFoundError, r"\[Errno 2\] .*'weights/table\.json'$"),
        (no_answer, RuntimeError, "the label server"),
    ],
)
def test_an_evaluator_whose_file_or_server_fails_is_no_full_disk(make_search, monkeypatch, score, cause, said):
    monkeypatch.setattr(DeepIsGood, "score", score)
    expected = rf"^evaluator 'deep-is-good' failed on x3d-tiny:\S*: {cause.__name__}: {said}"
    with pytest.raises(HwbenchError, match=expected) as error:
        make_search(evaluator="deep-is-good").run(trials=3, measure=2)
    assert isinstance(error.value.__cause__, cause)
    assert not isinstance(error.value, WorkspaceError)


def test_an_evaluator_that_cannot_be_made_is_named(make_search, monkeypatch):
    monkeypatch.setattr(DeepIsGood, "__init__", no_file)
    with pytest.raises(HwbenchError, match=r"^evaluator 'deep-is-good' failed: FileNotFoundError: "):
        make_search(evaluator="deep-is-good").run(trials=3, measure=2)


def test_an_evaluator_without_a_score_of_a_block_is_named(make_search, monkeypatch):
    monkeypatch.setattr(DeepIsGood, "block_score", lambda self, block, x: None, raising=False)
    with pytest.raises(HwbenchError, match=r"^evaluator 'deep-is-good' failed: TypeError: .*NoneType"):
        make_search(evaluator="deep-is-good").run(trials=3, measure=2)


REPORTING = """
class Plain:
    name, unit = "plain", "points"

    def __init__(self, context):
        pass

    def score(self, network):
        return 1.0

    def score_reporting(self, network, report):
        report(0, 1.0)
        return 1.0


class Wrapping(Plain):
    name = "wrapping"

    def score_reporting(self, network, report):
        try:
            report(0, 1.0)
        except OSError as error:
            raise RuntimeError("curve broke") from error
        raise RuntimeError("engine broke")
"""


@pytest.mark.parametrize("name", ["plain", "wrapping"])
@pytest.mark.parametrize("offered", [False, True])
def test_what_a_study_cannot_write_is_not_the_evaluators(space, monkeypatch, tmp_path, name, offered):
    full = OSError(errno.ENOSPC, "No space left on device")
    room = [False, True]

    def judge(trial: int, epoch: int, score: float) -> bool:
        if room.pop(0):
            return False
        raise full

    offer(monkeypatch, tmp_path, evaluators, REPORTING, {"plain": "Plain", "wrapping": "Wrapping"})
    made = evaluators.get(name)
    if not offered:
        made = type(made.__name__, (made,), {})
    scored = InProcess(EvaluatorSetup(made, Context(0, lambda count: [])))
    scored.judge = judge
    network = space.network(space.random(np.random.default_rng(0)), 8)
    scored.assign(Assignment(0, network, reports=True))
    with pytest.raises(OSError, match="No space left") as caught:
        list(scored.outcomes())
    assert caught.value is full
    scored.assign(Assignment(1, network, reports=True))
    if name == "plain":
        assert [one.score for one in scored.outcomes()] == [1.0]
    else:
        with pytest.raises(HwbenchError, match=r"^evaluator 'wrapping' .*engine broke$"):
            list(scored.outcomes())


@pytest.mark.parametrize("seconds", [2.87991234e-5, 1.2345678e-6, 0.0601234, 1.0, 123.4567891])
def test_a_budget_that_is_suggested_is_kept_when_it_is_typed(seconds):
    kept_ms = milliseconds(parse_duration(typed_duration(seconds)))
    assert 1e3 * seconds * (1 - 1e-12) <= kept_ms <= 1e3 * seconds * (1 + 1e-5) + 1e-6


def test_one_candidate_that_does_not_build_does_not_end_the_search(make_search, device, space):
    search = make_search()
    entropy = get_evaluator("entropy")(Context(0, lambda n: []))
    best = search.feasible.best(SpaceSums.of(space, entropy.block_score, num_classes=8)).architecture
    device.build_failures = {space.network(best, 8).workload(Precision.INT8): "XNNPACK refused"}
    result = search.run(trials=20, measure=3)
    assert result.best.architecture != best.key
    assert [c.architecture for c in result.measured if "XNNPACK refused" in c.failure] == [best.key]


@pytest.mark.parametrize("name", ["zoo", "a/b", "", "-a", "a:b"])
def test_names_that_cannot_be_a_study(make_search, name):
    with pytest.raises(InvalidValue, match="expected a name"):
        make_search(name).run(trials=1, measure=1)


def test_optuna_is_quiet_and_left_as_it_was(make_search, capfd):
    before = optuna.logging.get_verbosity()
    make_search().run(trials=5, measure=1)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")


def test_optuna_is_left_as_it_was_by_blocks_that_overlap():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        search, report = quiet_optuna(), quiet_optuna()
        search.__enter__()
        report.__enter__()
        search.__exit__(None, None, None)
        assert optuna.logging.get_verbosity() == optuna.logging.ERROR
        report.__exit__(None, None, None)
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(before)


def test_candidates_print_no_latency_that_was_not_measured():
    assert Candidate("a", 1.0, 2e-3).to_json("local")["measured_ms"] is None
