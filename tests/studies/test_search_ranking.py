"""Rank statistics against SciPy and by hand; a ground truth from its text; evaluators beside their ceiling."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from hwbench.errors import InvalidFile
from hwbench.studies.evaluators import get, judgement
from hwbench.studies.ground_truth import JUDGED, GroundTruth
from hwbench.studies.left_out import LeftOut
from hwbench.studies.ranking import (
    Interval,
    chance_regret,
    of_longer,
    of_unlike,
    precision_at,
    rank_correlation,
    rank_interval,
    regret,
)
from hwbench.studies.scoreboard import FEWEST, Scoreboard, Standing, scoreboard, standing

EPOCHS = 12
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@dataclass(frozen=True)
class Network:
    band: str
    top1: float


def test_one_band_is_kendalls_tau_b() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores, truths = rng.integers(0, 6, size=(2, 15))
        expected = kendalltau(scores, truths).statistic
        assert rank_correlation(scores, truths, [""] * 15) == pytest.approx(expected, nan_ok=True)


def test_what_is_known_of_bands_alone_ranks_nothing() -> None:
    bands = ["slow"] * 6 + ["fast"] * 6
    truths = [0.5] * 6 + [0.3] * 6 + np.random.default_rng(1).normal(0, 0.01, 12)
    by_band = [float(band == "slow") for band in bands]
    assert kendalltau(by_band, truths).statistic > 0.5
    assert math.isnan(rank_correlation(by_band, truths, bands))


def test_the_interval_of_noise_holds_zero_and_that_of_a_good_score_does_not() -> None:
    rng, bands = np.random.default_rng(2), ["a", "b"] * 20
    truths = rng.normal(size=40)
    noise = rank_interval(rng.normal(size=40), truths, bands)
    assert noise.holds_zero
    assert noise.low < noise.value < noise.high
    good = rank_interval(truths + 0.3 * rng.normal(size=40), truths, bands)
    assert good.low > 0.4
    assert not good.holds_zero


def test_the_interval_covers() -> None:
    """Of many samples of one population about nineteen in twenty hold its tau: a quick look, in wide bounds."""
    rng, rho = np.random.default_rng(3), 0.6
    truth, held = 2 / math.pi * math.asin(rho), 0
    for _ in range(60):
        x, noise = rng.normal(size=(2, 30))
        found = rank_interval(x, rho * x + math.sqrt(1 - rho**2) * noise, [""] * 30)
        held += found.low <= truth <= found.high
    assert held >= 50


def test_an_evaluator_is_not_believed_for_a_few_pairs_of_networks() -> None:
    """Bootstrap samples without a pair that differs tell nothing; those with one would all agree."""
    one_pair = standing("coin", [Network(*one) for one in zip("AABCDEFG", (0.5, 0.6, *[0.4] * 6))], range(FEWEST))
    assert one_pair.tau.value == 1
    few_pairs = [Network(*one) for one in zip("44332210", (0.5, 0.6, 0.4, 0.5, 0.3, 0.45, 0.2, 0.1))]
    one_learned = [Network("", top1) for top1 in (*[0.25] * 7, 0.4)]
    several = (
        one_pair,
        standing("coin", few_pairs, [1, 2, 1, 2, 1, 2, 3, 4]),
        standing("coin", one_learned, range(FEWEST)),
    )
    for one in several:
        assert (one.judged, one.informative) == (False, False)
        assert one.verdict == "too few networks of one latency differ in score and top-1"
        written = one.to_json()
        assert (written["informative"], written["tau_low"], written["tau_high"]) == (None, None, None)
    board = Scoreboard(several, FEWEST, None, 0.0, None)
    assert board.verdict == "too few networks of one latency differ in score and top-1 to judge evaluators by"
    assert board.best is None


def test_a_signal_in_small_bands_is_still_seen() -> None:
    top1 = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    seen = standing("good", [Network(*one) for one in zip("AAABBBCC", top1)], top1)
    assert seen.informative
    assert seen.tau.low <= seen.tau.value <= seen.tau.high


def test_a_model_of_scores_that_hardly_differ_is_doubted_without_an_interval() -> None:
    found = rank_interval([0.0] * 7 + [1.0], [0.25] * 7 + [0.4], [0] * 8)
    assert found.value == 1
    left_out = LeftOut(8, found, 0.1)
    assert str(left_out) == "tau 1.00"
    assert left_out.doubt == "too few scores differ for an interval"
    assert not left_out.informative
    assert json.dumps(left_out.to_json(), allow_nan=False)


def test_precision_and_regret_by_hand() -> None:
    truths = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
    assert precision_at(truths, truths, [""] * 10) == 1
    assert precision_at([-t for t in truths], truths, [""] * 10) == 0
    scores = [1, 9, 8, 7, 6, 0, 5, 0, 0, 0]  # the five first are 1, 2, 3, 4 and 6
    assert precision_at(scores, truths, [""] * 10) == pytest.approx(4 / 5)
    assert regret(scores, truths, [""] * 10) == pytest.approx(0.1)
    assert chance_regret(truths, [""] * 10) == pytest.approx(0.45)
    assert precision_at(scores[:4], truths[:4], [""] * 4, first=5) == pytest.approx(0.5)  # two of four


@pytest.mark.parametrize("measure", [regret, precision_at])
def test_no_measure_depends_on_the_order_of_networks_that_tie(measure) -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        scores, truths, bands = rng.integers(3, size=24), rng.integers(4, size=24) / 4, rng.integers(2, size=24)
        moved = rng.permutation(24)
        found = measure(scores[moved], truths[moved], bands[moved])
        assert found == pytest.approx(measure(scores, truths, bands), rel=1e-12)


def test_first_choices_that_tie_lose_their_mean() -> None:
    truths, bands = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], [""] * 8
    assert regret([1] * 8, truths, bands) == pytest.approx(chance_regret(truths, bands))
    assert regret([2, 1, 2, 2], truths[:4], [""] * 4) == pytest.approx(0.9 - (0.9 + 0.7 + 0.6) / 3)


def test_networks_that_tie_share_the_last_places() -> None:
    truths, bands = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], [""] * 8
    assert precision_at([1] * 8, truths, bands) == 0.5  # as by chance
    scores = [5, 4, 3, 3, 3, 3, 1, 1]  # two of four have the third and fourth place
    assert precision_at(scores, truths, bands) == pytest.approx((2 + 2 * 2 / 4) / 4)
    assert precision_at(truths, scores, bands) == pytest.approx((2 + 2 * 2 / 4) / 4)


def test_regret_is_told_within_bands() -> None:
    truths, bands = [0.9, 0.8, 0.3, 0.1], ["slow", "slow", "fast", "fast"]
    assert regret([1, 2, 2, 1], truths, bands) == pytest.approx(0.05)
    assert chance_regret(truths, bands) == pytest.approx(0.075)


def test_a_band_of_one_network_tells_no_regret() -> None:
    truths, bands = [0.9, 0.8, 0.3], ["slow", "slow", "fast"]
    assert regret([1, 2, 1], truths, bands) == pytest.approx(0.1)
    assert chance_regret(truths, bands) == pytest.approx(0.05)
    assert math.isnan(regret([1, 2], [0.9, 0.3], ["slow", "fast"]))
    assert math.isnan(chance_regret([0.9, 0.3], ["slow", "fast"]))


def test_an_evaluator_of_few_networks_is_not_believed() -> None:
    class One:
        band = ""

        def __init__(self, top1: float) -> None:
            self.top1 = top1

    networks = [One(i / 10) for i in range(FEWEST - 1)]
    few = standing("few", networks, [one.top1 for one in networks])
    assert few.tau.value == 1
    assert "too few" in few.verdict
    assert not few.informative
    written = few.to_json()
    assert (written["informative"], written["tau_low"], written["tau_high"]) == (None, None, None)
    assert json.dumps(written, allow_nan=False)
    enough = standing("enough", [*networks, One(0.9)], range(FEWEST)).to_json()
    assert (enough["informative"], enough["tau_low"]) == (True, pytest.approx(1))
    assert standing("none", networks, [math.nan] * len(networks)).networks == 0


def test_a_board_says_whether_anything_could_be_judged() -> None:
    nothing = Interval(math.nan, math.nan, math.nan)
    few, blind, good = (
        Standing("few", 2, nothing, 0.0, 0.0),
        Standing("blind", 20, Interval(0.1, -0.2, 0.4), 0.2, 0.1),
        Standing("good", 20, Interval(0.5, 0.2, 0.8), 0.8, 0.0),
    )
    boards = [Scoreboard(standings, 2, None, 0.0, None) for standings in ((few,), (few, blind), (good, blind))]
    said = ["too few networks to judge evaluators by: 2 of 8", "none of them is informative", "best: good"]
    assert [one.verdict for one in boards] == said


def test_means_of_more_trainings_agree_better_by_the_formula() -> None:
    """Twenty thousand networks whose trainings make as much noise as they differ by."""
    rng = np.random.default_rng(5)
    values, noise = rng.normal(size=20_000), rng.normal(size=(8, 20_000))
    one, four = (kendalltau(*(values + n.mean(0) for n in np.split(noise[: 2 * k], 2))).statistic for k in (1, 4))
    assert of_longer(one, 4) == pytest.approx(four, abs=0.02)
    assert of_longer(four, 1 / 4) == pytest.approx(one, abs=0.02)
    assert of_longer(1, 4) == 1
    assert of_longer(-1, 2) == of_longer(-0.8, 4) == -1
    assert math.isnan(of_longer(math.nan, 2))


def test_one_training_agrees_with_means_of_others_by_the_formula() -> None:
    rng = np.random.default_rng(6)
    values, noise = rng.normal(size=20_000), rng.normal(size=(8, 20_000))
    four = kendalltau(values + noise[:4].mean(0), values + noise[4:].mean(0)).statistic
    unlike = kendalltau(values + noise[0], values + noise[1:4].mean(0)).statistic
    assert of_unlike(four, 4, 1, 3) == pytest.approx(unlike, abs=0.02)
    assert of_unlike(four, 4, 4, 4) == pytest.approx(four)
    assert of_unlike(1, 2, 1, 1) == 1
    assert of_unlike(-0.2, 2, 1, 1) == of_unlike(0, 2, 1, 1) == 0


def test_the_ceiling_grows_with_the_trainings_of_a_network(truth: Path) -> None:
    """With noise as large as what the networks differ by, four trainings tell more than two of them do."""
    rng, template = np.random.default_rng(6), json.loads((truth / "rows" / "n0-seed0.json").read_text())
    value = rng.normal(size=24)
    for seeds in (2, 4):
        for number in range(24):
            row = template | {"name": f"n{number}", "band": "ab"[number % 2]}
            for seed in range(seeds):
                row |= {"seed": seed, "top1": value[number] + np.random.default_rng([number, seed]).normal()}
                (truth / "rows" / f"n{number}-seed{seed}.json").write_text(json.dumps(row))
    found = GroundTruth.read(truth)
    assert found.ceiling is not None
    assert found.ceiling.low < found.ceiling.value < found.ceiling.high
    fewer = replace(found, networks=tuple(replace(one, trainings=one.trainings[:2]) for one in found.networks))
    assert fewer.ceiling is not None
    assert fewer.ceiling.value < found.ceiling.value
    # Four trainings: noise of half the deviation, so a correlation of 0.8.
    assert found.ceiling.value == pytest.approx(2 / math.pi * math.asin(0.8), abs=0.15)


def test_networks_that_are_known_best_are_judged_on_once_they_are_enough(truth: Path) -> None:
    """40 networks, of which the first 23, and then 24, were trained a second time."""
    template = json.loads((truth / "rows" / "n0-seed0.json").read_text())
    for path in (truth / "rows").glob("*.json"):
        path.unlink()
    networks = [{"name": f"n{i}", "band": "ab"[i % 2], "architecture": f"space:w={i}"} for i in range(40)]
    facts = json.loads((truth / "networks.json").read_text())
    (truth / "networks.json").write_text(json.dumps(facts | {"networks": networks}))

    def trained(number: int, seed: int) -> None:
        row = template | networks[number] | {"seed": seed, "top1": 0.01 * number}
        (truth / "rows" / f"n{number}-seed{seed}.json").write_text(json.dumps(row))

    for number in range(40):
        trained(number, 0)
    for number in range(JUDGED - 1):
        trained(number, 1)
    board = scoreboard(GroundTruth.read(truth))
    assert (board.networks, board.others) == (40, 0)
    trained(JUDGED - 1, 1)
    found = GroundTruth.read(truth)
    assert [one.name for one in found.judged] == [f"n{i}" for i in range(JUDGED)]
    board = scoreboard(found)
    assert (board.networks, board.others) == (JUDGED, 40 - JUDGED)
    assert {one.networks for one in board.standings if one.evaluator == "good"} == {JUDGED}
    assert board.ceiling is not None
    assert board.ceiling.value == 1


def test_scores_that_are_not_numbers_are_left_out(truth: Path) -> None:
    board = scoreboard(GroundTruth.read(truth))
    by_name = {one.evaluator: one for one in board.standings}
    assert by_name["broken"].networks == 23


def test_a_scoreboard_of_text(truth: Path) -> None:
    board = scoreboard(GroundTruth.read(truth))
    assert board.networks == 24
    assert board.ceiling is not None
    assert 0.5 < board.ceiling.value < 1
    by_name = {one.evaluator: one for one in board.standings}
    assert by_name["good"].informative
    assert by_name["good"].cost_s == 2.0
    assert by_name["good"].share == pytest.approx(by_name["good"].tau.value / board.ceiling.value)
    assert not by_name["noise"].informative
    assert "uninformative" in by_name["noise"].verdict
    assert board.best is not None
    assert board.best.evaluator != "noise"
    half = by_name["top-1 after 6 of 12 epochs"]
    assert half.networks == 12
    assert half.cost_s == pytest.approx(50.0)
    json.dumps([one.to_json() for one in board.standings], allow_nan=False)


def test_what_a_gpu_did_is_no_processor_time(truth: Path) -> None:
    rows = sorted((truth / "rows").glob("*.json"))
    for path in rows[: len(rows) // 2]:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"gpu": "a card", "cpu_s": 1}))
    assert scoreboard(GroundTruth.read(truth)).cost_s == 100.0
    for path in rows:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"gpu": "a card", "cpu_s": 1}))
    board = scoreboard(GroundTruth.read(truth))
    assert board.cost_s is None
    assert {one.cost_s for one in board.standings if "epochs" in one.evaluator} == {None}
    json.dumps([one.to_json() for one in board.standings], allow_nan=False)


def test_the_beginning_of_a_training_is_not_held_against_its_own_end(truth: Path) -> None:
    """Where seeds decide everything, the same seed would agree with itself."""
    for path in (truth / "rows").glob("*.json"):
        row = json.loads(path.read_text())
        row["top1"] = np.random.default_rng([row["seed"], int(row["name"][1:])]).random()
        row["validation"] = [{"top1": row["top1"], "loss": 1.0}] * EPOCHS
        path.write_text(json.dumps(row))
    board = scoreboard(GroundTruth.read(truth))
    half = next(one for one in board.standings if one.evaluator == "top-1 after 6 of 12 epochs")
    assert half.tau.holds_zero
    assert half.tau.value < 0.6


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("networks.json", None, "networks.json"),
        ("networks.json", "{", "networks.json"),
        ("networks.json", "{}", "expected budget_ms"),
        ("scores.json", '{"good": {"n0": 1}}', "expected evaluator -> network"),
        ("scores.json", "[1]", "expected evaluator -> network"),
        ("scores.json", '{"good": [1, 2]}', "expected evaluator -> network"),
        ("rows/n3-seed0.json", "{}", "is no training"),
        ("rows/n3-seed0.json", '{"name": "n3", "seed": 0, "hits": "1x"}', "is no training"),
    ],
)
def test_damaged_files_are_named(truth: Path, name: str, text: str | None, message: str) -> None:
    path = truth / name
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(InvalidFile, match=message):
        GroundTruth.read(truth)


def test_nothing_trained(truth: Path) -> None:
    for path in (truth / "rows").glob("*.json"):
        path.unlink()
    with pytest.raises(InvalidFile, match="has been trained"):
        GroundTruth.read(truth)


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    """24 networks in two bands, half of them trained twice, and three evaluators: of good scores, noise, and a gap."""
    rng, folder = np.random.default_rng(4), tmp_path / "truth"
    (folder / "rows").mkdir(parents=True)
    networks = [{"name": f"n{i}", "band": "ab"[i % 2], "architecture": f"space:w={i}"} for i in range(24)]
    value = {one["name"]: rng.normal(0.5 if one["band"] == "a" else 0.4, 0.05) for one in networks}
    for index, one in enumerate(networks):
        for seed in range(2 if index < 12 else 1):
            top1 = value[one["name"]] + rng.normal(0, 0.01)
            curve = [{"top1": top1 * (epoch + 1) / EPOCHS, "loss": 1.0} for epoch in range(EPOCHS)]
            row = one | {"seed": seed, "top1": top1, "loss": 1.0, "hits": "0123", "validation": curve, "cpu_s": 100}
            row |= {"training_loss": list(np.linspace(3, 1 - top1, 4 * EPOCHS))}
            (folder / "rows" / f"{one['name']}-seed{seed}.json").write_text(json.dumps(row))
    good = {name: [float(one + rng.normal(0, 0.01)), 2.0] for name, one in value.items()}
    scores = {"good": good, "noise": {name: [float(rng.normal()), 1.0] for name in value}}
    scores["broken"] = good | {"n5": [math.nan, 1.0]}
    (folder / "scores.json").write_text(json.dumps(scores))
    (folder / "networks.json").write_text(
        json.dumps({"budget_ms": 1.0, "data": "synthetic", "classes": 8, "networks": networks})
    )
    return folder


def test_what_is_known_against_evaluators_is_what_the_experiment_says() -> None:
    board = {one.evaluator: one for one in scoreboard(GroundTruth.read(EXPERIMENTS / "031-recipes")).standings}
    for name in ("entropy", "zero-cost", "supernet"):
        doubt, one = judgement(get(name)), board[name]
        assert doubt is not None
        low, high = one.tau.low, one.tau.high
        assert f"(tau {one.tau.value:.2f}, 95 % {low:.2f} to {high:.2f}, experiment 031); train" in doubt
        assert ("no better than by chance" in doubt) == (not one.informative)
    assert "half as well as by a second training" in str(judgement(get("supernet")))
    assert board["supernet"].share == pytest.approx(0.5, abs=0.05)
