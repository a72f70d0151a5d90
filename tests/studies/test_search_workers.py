"""Searches whose networks are scored by several processes: real processes, and real kills."""

import functools
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass, replace

import pytest

from hwbench.specs import Architecture
from hwbench.studies.evaluations import Died
from hwbench.studies.journal import finished_trials, open_study
from hwbench.studies.trials import SearchWatch
from hwbench.studies.worker_pool import Workers
from hwbench.testing.evaluations import (
    Die,
    DieLeavingChild,
    EvaluationsConformance,
    FileFinalists,
    Sleep,
    alive,
    finalists,
    gone,
    scored,
    setup,
)


def race_and_die(folder):
    """Begins to train a finalist and ends this process."""
    workers, _ = finalists(Workers(1), FileFinalists(folder.parent), [], folder)
    list(replace(workers, network=lambda key: os.kill(os.getpid(), signal.SIGKILL))(["one"], 1))


class TestWorkerPool(EvaluationsConformance):
    @pytest.fixture
    def plan(self):
        return Workers(2)

    def test_a_worker_that_dies_is_noticed_though_a_process_that_it_forked_goes_on(self, networks, ran):
        """As the readers of videos do: they hold the socket of the worker."""
        with Workers(1).open(setup(DieLeavingChild(ran)), 2) as evaluations:
            outcomes = scored(evaluations, networks[:2])
        (child,) = ran.iterdir()  # it was ended, and left no word of an end of its own
        assert gone([int(child.name)])
        (reason,) = [outcome.reason for outcome in outcomes if isinstance(outcome, Died)]
        assert "killed by SIGKILL" in reason
        assert len(outcomes) == 2

    def test_what_a_killed_race_left_in_the_study_goes_with_the_next_one(self, networks, tmp_path):
        study = tmp_path / "study"
        process = multiprocessing.get_context("spawn").Process(target=race_and_die, args=(study,))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert [path.name[:6] for path in study.iterdir()] == [".race-"]
        workers, told = finalists(Workers(1), FileFinalists(tmp_path), networks, study)
        assert list(workers([networks[0].name], 1)) == [(networks[0].name, "")]
        assert (told, list(study.iterdir())) == ([], [])


@pytest.fixture
def make(make_search):
    """A search whose evaluator is a trainer."""

    def make(name, trainer, workers=None, **changes):
        search = make_search(name, evaluator="short-train", budget_s=7e-3, **changes)
        search.trainer, search.workers = trainer, workers
        return search

    return make


@pytest.fixture
def ran(tmp_path):
    """Where ``Sleep`` leaves the numbers of its processes, and ``Die`` its deaths."""
    (tmp_path / "ran").mkdir()
    return tmp_path / "ran"


DEADLY = "s3.width=96,s3.expansion=3"


def keys(result):
    return [candidate.architecture for candidate in result.history]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["thompson", pytest.param("tpe", marks=pytest.mark.long)])
def test_one_worker_finds_what_this_process_finds(make, sampler):
    here = make("here", Sleep(), sampler=sampler).run(trials=24, measure=1)
    there = make("there", Sleep(), Workers(1), sampler=sampler).run(trials=24, measure=1)
    assert keys(there) == keys(here)


@pytest.mark.parametrize(
    "sampler", ["thompson", "tpe", *(pytest.param(name, marks=pytest.mark.long) for name in ("nsga2", "random"))]
)
def test_workers_share_the_trials_and_repeat_nothing(make, sampler, ran):
    search = make("several", Sleep(0.01, ran), Workers(3), sampler=sampler)
    result = search.run(trials=30, measure=1)
    assert result.trials == len(set(keys(result))) == 30
    assert all(c.predicted_s <= search.settings.budget_s for c in result.history)
    processes = [int(path.name) for path in ran.iterdir()]
    assert 1 <= len(processes) <= 3  # how many start before the last trial is the machine's to say
    assert os.getpid() not in processes
    assert not any(map(alive, processes))


def test_a_batch_of_thompson_is_of_several_draws(make):
    """Its members were proposed from the same scores: the optimum of the mean is in it once."""
    search = make("batch", Sleep(0.3), Workers(4), sampler="thompson")
    result = search.run(trials=20, measure=1)
    assert len(set(keys(result)[-4:])) == 4


class Deaths(SearchWatch):
    def __init__(self):
        self.told = []

    def died(self, architecture, reason, again):
        self.told.append((architecture, reason, again))


@pytest.mark.slow
def test_a_killed_worker_costs_its_score_and_the_trial_runs_again(make, ran):
    undisturbed = make("undisturbed", Sleep(), sampler="tpe").run(trials=10, measure=1)
    deadly = "s2.depth=2"  # two of the ten: each death costs the start of a process
    search = make("killed", Die(ran, 1, deadly), Workers(1), sampler="tpe")
    search.watch = deaths = Deaths()
    result = search.run(trials=10, measure=1)
    assert len(deaths.told) == sum(deadly in key for key in keys(result)) > 1
    assert all(again and "killed by SIGKILL" in reason for _, reason, again in deaths.told)
    assert [(c.architecture, c.score) for c in result.history] == [
        (c.architecture, c.score) for c in undisturbed.history
    ]


@pytest.mark.long
def test_a_network_that_kills_every_worker_has_no_score(make, ran):
    search = make("deadly", Die(ran, None, DEADLY), Workers(2), sampler="random")
    search.watch = deaths = Deaths()
    result = search.run(trials=8, measure=1)
    deadly = {architecture for architecture, _, _ in deaths.told}
    assert deadly
    assert [again for *_, again in deaths.told].count(False) == len(deadly)
    assert len(deaths.told) == 3 * len(deadly)
    assert len(result.history) == 8 - len(deadly)
    folder = search.workspace.studies / "deadly"
    with open_study(folder, search.settings, None, len(search.feasible.space.choices)) as study:
        failures = [t.user_attrs["failure"] for t in finished_trials(study) if "failure" in t.user_attrs]
    assert len(failures) == len(deadly)
    assert all("3 workers died: the worker ended: killed by SIGKILL" in failure for failure in failures)


def test_ctrl_c_ends_all_workers_and_the_same_command_goes_on(make, ran):
    class Stop(SearchWatch):
        def evaluated(self, candidate):
            if len(list(ran.iterdir())) == 2:
                raise KeyboardInterrupt

    search = make("stopped", Sleep(0.2, ran), Workers(2), sampler="random")
    search.watch = Stop()
    with pytest.raises(KeyboardInterrupt):
        search.run(trials=20, measure=1)
    assert not any(alive(int(path.name)) for path in ran.iterdir())
    result = make("stopped", Sleep(), Workers(2), sampler="random").run(trials=12, measure=1)
    assert len(set(keys(result))) == result.trials == 12


@dataclass(frozen=True)
class Hang:
    """Scores all networks but one, which takes for ever."""

    name: str

    def __call__(self, network, seed):
        while network.name == self.name:
            time.sleep(0.01)
        return float(len(network.blocks))


def test_a_proposal_that_ended_before_the_draws_is_none(make):
    """The first draw hangs until the search is interrupted, and is repeated; a draw and a proposal ended before."""

    class Stop(SearchWatch):
        def evaluated(self, candidate):
            if candidate.trial == 3:
                raise KeyboardInterrupt

    def search(name, trainer, workers=None):
        return replace(make(name, trainer, workers, sampler="thompson"), startup=2)

    alone = search("alone", Sleep())
    (first,) = alone.run(trials=1, measure=1).history
    network = alone.feasible.space.network(Architecture.parse(first.architecture), alone.settings.num_classes)
    stopped = search("mine", Hang(network.name), Workers(2))
    with pytest.raises(KeyboardInterrupt):
        replace(stopped, watch=Stop()).run(trials=8, measure=1)
    result = search("mine", Sleep()).run(trials=8, measure=1)
    assert [one.trial for one in result.history[:2]] == [1, 2]
    drawn, repeated = result.course.draws  # the first draw is one when it is repeated, too; trial 2 was proposed
    assert drawn == 1
    assert {one.trial: one.architecture for one in result.history}[repeated] == first.architecture


def run(search):
    search.run(trials=40, measure=1)


def test_a_killed_search_takes_its_workers_along_and_goes_on(make, ran):
    search = make("shot", Sleep(0.5, ran), Workers(2), sampler="random")
    process = multiprocessing.get_context("fork").Process(target=functools.partial(run, search))
    process.start()
    journal = search.workspace.studies / "shot" / "journal.log"
    while not (journal.is_file() and journal.read_text().count('"state":1,') >= 2):
        assert process.is_alive()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert gone([int(path.name) for path in ran.iterdir()])
    before = journal.read_text().count('"state":1,')
    result = make("shot", Sleep(), Workers(2), sampler="random").run(trials=12, measure=1)
    assert len(set(keys(result))) == result.trials == 12
    assert before >= 2
    assert journal.read_text().count('"state":1,') == 12
