"""Finalists of a search: paired comparisons over videos, rounds, and real trainings that go on."""

import json
import math
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_1samp

from hwbench import Listener
from hwbench.api.export_sources import source_of
from hwbench.api.finalists import StudyFinalists, file_scores, race_watch, video_results
from hwbench.api.study_data import Fidelity, StudyData
from hwbench.cli.search import _verdict
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.data.video_scores import VideoScores, load_scores, save_scores
from hwbench.deploy import open_validation
from hwbench.errors import CheckFailed, InvalidFile, VideoError
from hwbench.reports.result import read_result
from hwbench.reports.search_sections import verdict
from hwbench.spaces import read_space
from hwbench.specs import Architecture
from hwbench.studies.paired import VideoResults, paired_differences
from hwbench.studies.race import BEATEN, FAILED, GOES_ON, HALVED, WINS, FinalistRun, Race, RaceResult, judged
from hwbench.studies.race_workers import RaceWorkers
from hwbench.studies.worker_pool import Workers
from hwbench.testing.listeners import Keeper
from hwbench.training import load_checkpoint, score
from hwbench.workspace import Workspace

VIDEOS = 200


def results(top1: float, *, videos: int = VIDEOS, seed: int | None = None, loss: float = 1.0) -> VideoResults:
    """A network that is right on the easiest videos, or with a seed on random ones."""
    hits = np.arange(videos) < round(top1 * videos)
    if seed is not None:
        np.random.default_rng(seed).shuffle(hits)
    return VideoResults(hits, np.full(videos, loss))


class Trainer:
    """Top-1 by network and round; counts its calls."""

    epochs = 3

    def __init__(self, table: dict[str, tuple[float | None, ...]], seed: int | None = None) -> None:
        self.table, self.seed, self.calls = table, seed, []

    @property
    def description(self):
        return {"data": "synthetic", "score": "fp32", "epochs": self.epochs}

    def __call__(self, architecture, number, /):
        self.calls.append((architecture, number))
        top1 = self.table[architecture][min(number, len(self.table[architecture])) - 1]
        if top1 is None:
            raise CheckFailed("the loss is not a finite number")
        seed = None if self.seed is None else zlib.crc32(f"{architecture}{number}".encode())
        return FinalistRun(results(top1, seed=seed), seconds=2.0 * number, checkpoint=f"{architecture}.pt")


def outcomes(one):
    return {standing.architecture: standing.outcome for standing in one.standings}


def test_a_paired_interval_leaves_out_what_makes_videos_hard():
    better, worse = results(0.60), results(0.55)
    (paired,) = paired_differences(better, [worse])
    assert paired.top1.value == pytest.approx(0.05)
    assert paired.top1.low > 0
    (shuffled,) = paired_differences(results(0.60, seed=1), [results(0.55, seed=2)])
    assert shuffled.top1.low < 0 < shuffled.top1.high
    assert paired.top1.high - paired.top1.low < (shuffled.top1.high - shuffled.top1.low) / 2
    (same,) = paired_differences(better, [better])
    assert (same.top1.value, same.top1.low, same.top1.high) == (0, 0, 0)
    (loss,) = paired_differences(results(0.5, loss=1.0), [results(0.5, loss=1.25)])
    assert loss.loss.low == pytest.approx(0.25)


def test_intervals_of_many_comparisons_hold_together():
    rng, missed = np.random.default_rng(0), 0
    for _ in range(10):
        hits = rng.random((5, 120)) < 0.5  # five networks, equally good
        first, *others = (VideoResults(row, np.ones(120)) for row in hits)
        missed += any(one.top1.holds_zero is False for one in paired_differences(first, others))
    assert missed <= 3  # one in 20 on average
    first, other = results(0.6, seed=1), results(0.5, seed=2)
    alone, among = paired_differences(first, [other]), paired_differences(first, [other] * 6)
    assert among[0].top1.low < alone[0].top1.low


@pytest.mark.parametrize(("videos", "finalists"), [(2, 2), (10, 2), (30, 8)])
def test_an_interval_of_the_loss_is_no_narrower_than_that_of_a_normal_mean(videos, finalists):
    rng, hits = np.random.default_rng(videos), np.ones(videos, bool)
    first, *others = (VideoResults(hits, np.exp(row)) for row in rng.normal(size=(finalists, videos)))
    level = 1 - 0.05 / math.comb(finalists, 2)
    for other, one in zip(others, paired_differences(first, others), strict=True):
        low, high = ttest_1samp(other.losses - first.losses, 0).confidence_interval(level)
        assert one.loss.low <= low + 1e-12
        assert one.loss.high >= high - 1e-12
        assert one.loss.low < one.loss.value < one.loss.high


def test_intervals_of_the_loss_of_few_videos_hold_the_truth():
    rng, held, count = np.random.default_rng(4), 0, 100
    for _ in range(count):
        hard = rng.normal(size=8)
        first, second = (VideoResults(np.ones(8, bool), 5 + hard + rng.normal(size=8)) for _ in range(2))
        (one,) = paired_differences(first, [second])
        held += one.loss.low <= 0 <= one.loss.high
    assert held >= 0.92 * count


def test_the_loss_of_one_video_has_no_interval_but_its_value():
    first, second = (VideoResults(np.ones(1, bool), np.array([loss])) for loss in (1.0, 1.5))
    (one,) = paired_differences(first, [second])
    assert (one.loss.low, one.loss.value, one.loss.high) == (0.5, 0.5, 0.5)


def pair(wins: int, losses: int, videos: int = 128) -> tuple[VideoResults, VideoResults]:
    """Two networks of which either one alone is right on so many videos."""
    first, second = np.ones((2, videos), bool)
    second[:wins] = first[wins : wins + losses] = False
    return VideoResults(first, np.ones(videos)), VideoResults(second, np.ones(videos))


@pytest.mark.parametrize("finalists", [2, 8])
@pytest.mark.parametrize(
    ("wins", "losses"), [(4, 0), (5, 0), (6, 0), (10, 0), (11, 0), (7, 1), (8, 1), (20, 5), (30, 5)]
)
def test_a_network_is_beaten_only_where_the_exact_test_agrees(wins, losses, finalists):
    """McNemar's test, two-sided, at the level of a round among all pairs."""
    first, second = pair(wins, losses)
    runs = {"a": FinalistRun(first, 1.0)} | {f"b{number}": FinalistRun(second, 1.0) for number in range(finalists - 1)}
    _, *others = judged(runs, finalists)
    rejected = binomtest(wins, wins + losses).pvalue < 0.05 / math.comb(finalists, 2)
    assert {one.outcome == BEATEN for one in others} == {one.behind.low > 0 for one in others} == {rejected}
    assert all(one.behind.low <= one.behind.value <= one.behind.high for one in others)


def test_equally_good_networks_are_beaten_as_rarely_as_the_level_says():
    rng, beaten, rounds = np.random.default_rng(7), 0, 40
    for seed in range(rounds):
        of_luck, known = rng.random(128) < 0.3, rng.random(128) < 0.7  # the same videos are hard for all
        hits = np.where(of_luck, rng.random((8, 128)) < 0.5, known)
        runs = {str(number): FinalistRun(VideoResults(row, np.ones(128)), 1.0) for number, row in enumerate(hits)}
        beaten += any(one.outcome == BEATEN for one in judged(runs, 8, seed))
    assert beaten <= 0.05 * rounds


def test_results_of_other_videos_are_no_pairs():
    with pytest.raises(ValueError, match=r"results of \[200, 100\] videos"):
        paired_differences(results(0.5), [results(0.5, videos=100)])
    with pytest.raises(ValueError, match="are no pairs"):
        paired_differences(results(0.0, videos=0), [])


def test_the_halving_drops_half_and_the_evidence_more():
    close = {key: FinalistRun(results(top1, seed=i), 1.0) for i, (key, top1) in enumerate(zip("abcd", (0.6,) * 4))}
    assert sorted(outcomes_of(judged(close, 4)).values()) == sorted([GOES_ON, GOES_ON, HALVED, HALVED])
    clear = {key: FinalistRun(results(top1), 1.0) for key, top1 in zip("abcd", (0.9, 0.6, 0.5, 0.4))}
    assert outcomes_of(judged(clear, 4)) == {"a": WINS, "b": BEATEN, "c": BEATEN, "d": BEATEN}
    three = {key: FinalistRun(results(0.6, seed=i), 1.0) for i, key in enumerate("abc")}
    assert [one.outcome for one in judged(three, 3)] == [GOES_ON, GOES_ON, HALVED]


def outcomes_of(standings):
    return {one.architecture: one.outcome for one in standings}


def test_equal_accuracy_is_decided_by_the_loss():
    runs = {"a": FinalistRun(results(0.5, loss=1.2), 1.0), "b": FinalistRun(results(0.5, loss=1.1), 1.0)}
    first, second = judged(runs, 2)
    assert (first.architecture, second.outcome) == ("b", HALVED)
    assert second.loss_behind.low == pytest.approx(0.1)


def test_eight_four_two_one():
    names = "abcdefgh"
    trainer = Trainer({name: (0.60 - 0.005 * i,) for i, name in enumerate(names)}, seed=1)
    result = Race(8, trainer).run(list(names))
    assert [len(one.standings) for one in result.rounds] == [8, 4, 2]
    assert [one.epochs for one in result.rounds] == [3, 6, 12]
    assert (result.winner, result.videos, result.told_apart) == ("a", VIDEOS, False)
    assert [sum(number == n for _, n in trainer.calls) for number in (1, 2, 3)] == [8, 4, 2]
    assert result.seconds == 8 * 2 + 4 * 4 + 2 * 6
    read = RaceResult.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False)))
    assert read.to_json() == result.to_json()
    assert read.winner == "a"


def test_a_later_round_can_turn_it_round():
    trainer = Trainer({"a": (0.60, 0.60), "b": (0.59, 0.80), "c": (0.55, 0.9), "d": (0.2, 0.9)}, seed=3)
    result = Race(4, trainer).run(list("abcd"))
    assert outcomes(result.rounds[0])["d"] == BEATEN
    assert result.winner == "b"
    assert result.told_apart
    assert result.margin.value == pytest.approx(0.2)


def test_evidence_ends_a_race_early():
    trainer = Trainer({"a": (0.9,), "b": (0.5,), "c": (0.4,), "d": (0.3,)})
    result = Race(4, trainer).run(list("abcd"))
    assert len(result.rounds) == 1
    assert result.told_apart


def test_what_cannot_be_trained_is_out_and_says_why():
    result = Race(3, Trainer({"a": (None,), "b": (0.5,), "c": (0.5, None)}, seed=5)).run(list("abc"))
    failed = next(one for one in result.rounds[0].standings if one.architecture == "a")
    assert (failed.outcome, failed.note) == (FAILED, "the loss is not a finite number")
    assert result.rounds[0].standings[-1] == failed
    assert result.winner == "b"
    nobody = Race(2, Trainer({"a": (None,), "b": (None,)})).run(["a", "b"])
    assert (nobody.winner, nobody.told_apart, nobody.videos) == (None, False, 0)
    assert json.dumps(nobody.to_json(), allow_nan=False)


def test_where_a_later_round_fails_for_all_the_leader_of_the_one_before_wins_and_never_a_beaten_one():
    failing = {"a": (0.1,), "b": (0.90, None), "c": (0.88, None), "d": (0.1,)}
    result = Race(4, Trainer(failing, seed=1)).run(list("abcd"))  # "a" has the highest score
    assert outcomes(result.rounds[0])["a"] == BEATEN
    assert set(outcomes(result.rounds[1]).values()) == {FAILED}
    assert (result.winner, result.margin, result.told_apart) == ("b", None, False)
    words = "no finalist could be trained in round 2; the winner led round 1"
    assert (_verdict(result), verdict(result)) == (words, f"{words}.")
    old = RaceResult.from_json(result.to_json() | {"winner": None})  # as it was written before
    assert _verdict(old) == "no finalist could be trained in round 2; the winner is whom the score liked best"


def test_where_no_round_trains_anything_the_score_chooses_and_the_verdict_says_so():
    nobody = Race(2, Trainer({"a": (None,), "b": (None,)})).run(["a", "b"])
    assert nobody.winner is None
    assert _verdict(nobody) == "no finalist could be trained; the winner is whom the score liked best"


def test_a_search_reports_the_leader_of_the_last_round_that_trained_something(make_search):
    search = make_search()
    first = search.run(trials=12, measure=1)
    wanted = sorted(first.history, key=lambda c: -c.score)[2].architecture

    class Favourite(Trainer):
        def __call__(self, architecture, number, /):
            self.table.setdefault(architecture, (0.9 if architecture == wanted else 0.85, None))
            return super().__call__(architecture, number)

    result = replace(search, race=Race(4, Favourite({}, seed=1))).run(trials=12, measure=1)
    assert [len(one.standings) for one in result.race.rounds] == [4, 2]
    assert result.best.architecture == result.race.winner == wanted


def test_a_round_of_one_epoch_says_so():
    keeper, trainer = Keeper(), Trainer({name: (0.60 - 0.005 * i,) for i, name in enumerate("abcd")}, seed=1)
    trainer.epochs = 1
    Race(4, trainer, watch=race_watch(keeper, "videos")).run(list("abcd"))
    begins, *rounds = keeper.lines
    assert begins == "4 networks race, trained on videos"
    assert [line.partition(" at best after ")[2].partition(";")[0] for line in rounds] == ["1 epoch", "2 epochs"]


def test_a_single_network_is_not_trained():
    trainer, keeper = Trainer({"a": (0.5,)}), Keeper()
    result = Race(8, trainer, watch=race_watch(keeper, "synthetic")).run(["a"])
    assert keeper.lines == ["there is no race: of the networks that were tried, one is within the budget"]
    assert (result.winner, result.rounds, trainer.calls) == ("a", (), [])
    assert result.margin is None


def test_the_race_decides_among_what_was_measured_within_the_budget(make_search, workspace):
    search = make_search()
    first = search.run(trials=12, measure=1)
    wanted = sorted(first.history, key=lambda c: -c.score)[4].architecture

    class Favourite(Trainer):
        def __call__(self, architecture, number, /):
            self.table.setdefault(architecture, (0.9 if architecture == wanted else 0.5,))
            return super().__call__(architecture, number)

    trainer, campaigns = Favourite({}), []
    measure = search.measure

    def counting(workloads):
        campaigns.append(workloads)
        return measure(workloads)

    result = replace(search, measure=counting, race=Race(6, trainer)).run(trials=12, measure=1)
    limit = search.settings.budget_s
    raced = {c.architecture: c for c in result.measured if c.architecture in trainer.table}
    assert len(raced) == 6
    assert all(c.measured_s <= limit for c in raced.values())
    assert len(campaigns[0]) >= 6  # the finalists take turns in one campaign
    assert result.best.architecture == result.race.winner == wanted
    stored = read_result(workspace, "mine")
    assert stored.race.to_json() == result.race.to_json()
    assert stored.races == {4.2: stored.race}
    values = json.loads(stored.path.read_text())
    values["race"]["rounds"][0]["finalists"][0]["outcome"] = "fell over"
    stored.path.write_text(json.dumps(values))
    with pytest.raises(InvalidFile, match="race: expected how finalists raced"):
        read_result(workspace, "mine")


def test_budgets_of_a_front_have_races_of_their_own(make_search):
    search = make_search(budget_s=4.2e-3, smaller_s=(3.4e-3,))
    trainer = Trainer({})

    def train(architecture, number):
        trainer.table.setdefault(architecture, (0.5 + 0.01 * len(trainer.table),))
        return Trainer.__call__(trainer, architecture, number)

    class Known:
        description = trainer.description

        def __call__(self, architecture, number, /):
            return train(architecture, number)

    result = replace(search, race=Race(2, Known())).run(trials=10, measure=1)
    assert result.race is None
    for point in result.front:
        assert point.best.architecture == point.race.winner
        assert point.best.measured_s <= point.budget_ms / 1e3


# Real trainings

SPACE = """
schema = 1
name = "micro"
description = "a handful of blocks"
[input]
frames = 4
resolution = 32
[stem]
width = 8
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
depth = [1, 2]
width = [8, 16]
expansion = 2.0
kernel = "1x3x3+3x1x1"
se = 0
act = "relu"
stride = 2
[head]
hidden = 32
act = "relu"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Workspace:
    place = Workspace.create(tmp_path_factory.mktemp("race") / "work")
    (place.root / "search_spaces" / "micro.toml").write_text(SPACE)
    return place


@pytest.fixture(scope="module")
def source(place) -> str:
    return str(prepare(place, SyntheticSpec(train_per_class=4, val_per_class=2, size=32, frames=8)))


@pytest.fixture
def finalists(place, source, tmp_path):
    space = read_space(place.root / "search_spaces" / "micro.toml")

    def make(folder: str = "study", **changes) -> StudyFinalists:
        data = StudyData(place, source, Fidelity(1))
        fields = {"epochs": 1, "score": "fp32", "seed": 0, "runtime": "executorch", "num_classes": 8} | changes
        return StudyFinalists(place, place.studies / tmp_path.name / folder, data, space, **fields)

    return make


def members(finalists):
    return [one.key for one in finalists.space.architectures()]


def test_a_round_goes_on_from_the_weights_of_the_one_before(finalists):
    train = finalists()
    key = members(train)[0]
    train(key, 1)
    run = train(key, 2)
    checkpoint, weights = load_checkpoint(train.run_dir(key, 2) / "checkpoint.pt")
    before, _ = load_checkpoint(train.run_dir(key, 1) / "checkpoint.pt")
    assert (before.recipe.epochs, checkpoint.recipe.epochs) == (1, 2)
    assert checkpoint.facts["weights"] == f"sha256 {before.sha256}"
    assert run.results.top1 == pytest.approx(checkpoint.metrics["top1"])
    assert run.seconds == checkpoint.metrics["seconds"]
    assert (train.workspace.root / run.checkpoint).is_file()
    alone = finalists("alone", epochs=2)
    alone(key, 1)
    _, fresh = load_checkpoint(alone.run_dir(key, 1) / "checkpoint.pt")
    assert any(not np.allclose(weights[name], fresh[name]) for name in weights)


@pytest.mark.parametrize("score", ["fp32", "int8"])
def test_finalists_leave_out_what_cannot_be_read(finalists, source, tmp_path, score):
    folder = tmp_path / "clips"
    shutil.copytree(source, folder)
    for split in ("train", "val"):
        sorted((folder / split).rglob("*.mp4"))[0].write_text("no video")

    def of(on_error: str) -> StudyFinalists:
        whole = finalists("damaged", score=score)
        return replace(whole, data=StudyData(whole.workspace, str(folder), Fidelity(1), on_error=on_error))

    strict, skipping = of("raise"), of("skip")
    key = members(strict)[0]
    with pytest.raises(VideoError, match="damaged"):
        strict(key, 1)
    assert skipping.run_dir(key, 1) != strict.run_dir(key, 1)
    videos = len(list((folder / "val").rglob("*.mp4")))
    assert len(skipping(key, 1).results.hits) == videos - 1


def test_what_becomes_of_a_finalist_is_judged_on_the_validation_videos_of_the_study(finalists, source, tmp_path):
    """Class folders are split by the seed of the study, which is another than that of the finalist's weights."""
    folder = tmp_path / "classes"
    for name in ("grow", "shrink"):
        (folder / name).mkdir(parents=True)
        for file in sorted(Path(source).rglob(f"{name}/*.mp4")):
            shutil.copy(file, folder / name / f"{file.parents[1].name}-{file.name}")
    train = finalists("classes", score="int8")
    train = replace(train, data=StudyData(train.workspace, str(folder), Fidelity(1)))
    key = members(train)[0]
    first = train(key, 1)
    run_dir = train.run_dir(key, 1)
    path, scored = run_dir / "checkpoint.pt", run_dir / "int8-executorch" / "scores.npz"
    validated, judged_on = load_scores(run_dir / "scores.npz").videos, load_scores(scored).videos
    assert judged_on == validated
    _, tested = score(path, train.workspace)
    assert tested.by_video.videos == validated
    assert load_checkpoint(path)[0].data_seed == train.seed

    of_another_split = replace(source_of(path), data_seed=train.own_seed)
    other = open_validation(train.workspace, str(folder), of_another_split)
    save_scores(scored, file_scores(next(scored.parent.glob("*.pte")), other))  # as an earlier version wrote them
    assert load_scores(scored).videos != validated
    assert not train.is_trained(key, 1)
    again = train(key, 1)
    assert again.results.videos == load_scores(scored).videos == validated
    assert train.is_trained(key, 1)
    # The time of the training, which is kept: that of the file is none of it, whoever makes it.
    assert first.seconds == again.seconds == load_checkpoint(path)[0].metrics["seconds"]


def test_a_finalist_is_no_trial_again(finalists):
    """Of the same length and data: weights, clips and order have a seed of their own, the split is the study's."""
    train = finalists("own")
    key = members(train)[0]
    network = train.space.network(Architecture.parse(key), 1)
    trial = train.data._fit(network, train.seed, validate=True).scores.by_video
    again = train.data._fit(network, train.seed, validate=True).scores.by_video
    run = train(key, 1)
    assert np.allclose(video_results(trial).losses, video_results(again).losses)
    assert not np.allclose(video_results(trial).losses, run.results.losses)
    checkpoint, _ = load_checkpoint(train.run_dir(key, 1) / "checkpoint.pt")
    assert checkpoint.recipe.seed == train.own_seed != train.seed


def test_finalists_of_the_largest_seed_train(finalists):
    train = finalists("largest", seed=2**63 - 1)
    key = members(train)[0]
    train(key, 1)
    checkpoint, _ = load_checkpoint(train.run_dir(key, 1) / "checkpoint.pt")
    assert checkpoint.recipe.seed == 0
    assert checkpoint.data_seed == 2**63 - 1


def test_networks_that_differ_in_their_clips_alone_are_trained_on_these(place, finalists):
    (place.root / "search_spaces" / "spans.toml").write_text(
        SPACE.replace('"micro"', '"spans"').replace("[input]", "[input]\nspan_s = [0.3, 2]")
    )
    train = replace(finalists("spans"), space=read_space(place.root / "search_spaces" / "spans.toml"))
    short, long = (next(key for key in members(train) if f"span_s={span}," in key) for span in ("0.3", "2"))
    assert long == short.replace("span_s=0.3", "span_s=2")
    losses = [train(key, 1).results.losses for key in (short, long)]
    assert not np.allclose(*losses)
    clips = [load_checkpoint(train.run_dir(key, 1) / "checkpoint.pt")[0].clip.span_s for key in (short, long)]
    assert clips == [0.3, 2.0]


def test_a_race_that_ended_goes_on_and_trains_nothing_twice(finalists):
    class Stop(Listener):
        def progress(self, at):
            if at.stage == "finalist, round 2" and at.done == 2:
                raise KeyboardInterrupt

    keys = members(finalists())[:3]
    whole = Race(3, finalists("whole")).run(keys)
    with pytest.raises(KeyboardInterrupt):
        Race(3, finalists("parts", listener=Stop())).run(keys)
    files = {path: path.stat().st_mtime_ns for path in finalists("parts").folder.rglob("checkpoint.pt")}
    assert len(files) == 3
    again = Race(3, finalists("parts")).run(keys)
    assert {path: path.stat().st_mtime_ns for path in files} == files
    values = [
        [(s.architecture, s.top1, s.loss, s.outcome) for r in one.rounds for s in r.standings] for one in (whole, again)
    ]
    assert values[0] == values[1]


def test_workers_train_what_one_process_trains(finalists, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the last bits follow from the number of threads
    keys = members(finalists())[:3]
    alone, train = Race(3, finalists("alone")).run(keys), finalists("together")
    by_key = {one.key: train.space.network(one, 1) for one in train.space.architectures()}
    told = []
    ahead = RaceWorkers(Workers(2), train, by_key.__getitem__, train.folder, told.append)
    together = Race(3, train, ahead=ahead).run(keys)
    values = [
        [(s.architecture, s.top1, s.loss, s.outcome) for r in one.rounds for s in r.standings]
        for one in (alone, together)
    ]
    assert values[0] == values[1]
    assert told == []
    assert len(list(train.folder.rglob("checkpoint.pt"))) == len(list(finalists("alone").folder.rglob("checkpoint.pt")))


def test_a_network_that_diverges_is_out(finalists, monkeypatch):
    train, recipe = finalists(), StudyData.recipe
    monkeypatch.setattr(StudyData, "recipe", lambda self, seed: replace(recipe(self, seed), learning_rate=1e30))
    with pytest.raises(CheckFailed):
        train(members(train)[0], 1)


@pytest.mark.long
def test_the_score_of_an_int8_file_is_that_of_the_file(finalists):
    train = finalists(score="int8", epochs=8)
    key = members(train)[0]
    run = train(key, 1)
    out = train.run_dir(key, 1) / "int8-executorch"
    manifest = json.loads((out / "manifest.json").read_text())
    assert len(run.results.hits) == 16  # all validation videos
    assert run.results.top1 == pytest.approx(manifest["accuracy"]["top1_after"], abs=1e-9)
    written = (out / "scores.npz").stat().st_mtime_ns
    assert train(key, 1).results.loss == run.results.loss
    assert (out / "scores.npz").stat().st_mtime_ns == written


def test_videos_of_several_classes_have_losses_too():
    import torch

    scores = torch.tensor([[0.9, 0.2], [0.4, 0.6]], dtype=torch.float64)
    of_one = video_results(VideoScores(("a", "b"), ("v", "w"), torch.tensor([0, 0]), scores))
    assert of_one.hits.tolist() == [True, False]
    assert of_one.losses.tolist() == pytest.approx([-math.log(0.9), -math.log(0.4)])
    several = video_results(VideoScores(("a", "b"), ("v", "w"), torch.tensor([[1.0, 1.0], [1.0, 0.0]]), scores))
    assert several.hits.tolist() == [True, False]
    assert several.losses[0] == pytest.approx(-(math.log(0.9) + math.log(0.2)) / 2)
