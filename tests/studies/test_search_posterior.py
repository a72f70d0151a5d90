"""The model that Thompson sampling learns: against its own definition, and by what it finds."""

import tracemalloc

import numpy as np
import pytest

from hwbench.spaces import read_space
from hwbench.spaces.costs import cost_sums
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.fidelities import FULL, Levels, ScoreObservation, doublings
from hwbench.studies.posterior import Layout, Posterior
from hwbench.studies.posterior_kernels import EffectKernels
from hwbench.studies.posterior_layout import PAIRS
from hwbench.studies.thompson import Thompson
from hwbench.workspace import shipped


def work(block, x):
    return sum(operation.macs for operation in block.operations(x))


def sums_of(name: str) -> SpaceSums:
    return SpaceSums.of(read_space(shipped() / "search_spaces" / f"{name}.toml"), work, num_classes=8)


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout(sums_of("x3d-tiny"))


@pytest.fixture(scope="module")
def mobile() -> Layout:
    return Layout(sums_of("x3d-mobile"))


@pytest.fixture(scope="module")
def drawn(layout) -> list:
    rng = np.random.default_rng(5)
    return [layout.sums.space.random(rng) for _ in range(60)]


def value(architecture) -> float:
    """More blocks and wider ones are better, a kernel only where a stage is deep."""
    depths = [int(architecture[f"s{stage}.depth"]) for stage in (1, 2, 3)]
    deep = architecture["s2.kernel"] == "3x3x3" and depths[1] > 2
    return sum(depths) + 2.0 * (architecture["s3.width"] == "128") + 3.0 * deep


def observed(members, scores) -> list[ScoreObservation]:
    return [ScoreObservation(a, score) for a, score in zip(members, scores, strict=True)]


def test_choices_meet_within_a_stage_with_what_reaches_it_and_with_the_input_size(mobile):
    layout = mobile
    assert {sort: len(pairs) for sort, pairs in layout.pairs.items()} == {
        PAIRS[0]: 4 * 15,  # of six axes
        PAIRS[1]: 3 * 6,  # the first stage always gets the same from the stem
        PAIRS[2]: 2 * 24 + 1,
    }
    assert len(layout.singles) == 26
    tiny = Layout(sums_of("x3d-tiny"))  # one input size, one width of the first two stages
    assert not tiny.pairs[PAIRS[1]]
    assert not tiny.pairs[PAIRS[2]]


def test_what_reaches_a_stage_is_a_column(mobile):
    rng = np.random.default_rng(0)
    members = [mobile.sums.space.random(rng) for _ in range(50)]
    codes = mobile.encode(members)
    names = list(mobile.sums.space.choices)
    for stage in (1, 2, 3):
        incoming = codes[:, len(names) + stage - 1]
        assert incoming.tolist() == codes[:, names.index(f"s{stage}.width")].tolist()


def test_close_numbers_behave_alike_in_whatever_order_they_are_listed():
    """Three layers whose score grows with the logarithm of their widths."""
    widths = [8, 16, 32, 64, 128, 256]
    layers = ["a", "b", "c"]

    def predicted(listed: list[int]) -> dict[tuple[int, ...], float]:
        sums = cost_sums({layer: dict.fromkeys(listed, 1) for layer in layers})
        space, rng = sums.space, np.random.default_rng(0)
        rows = rng.choice(widths, size=(12, 3)).tolist()
        members = [space.of_params(dict(zip(layers, row, strict=True))) for row in rows]
        posterior = Posterior.fit(Layout(sums), observed(members, np.log2(rows).sum(axis=1)))
        every = list(space.architectures())
        means = posterior.predict(every)[0]
        return {tuple(space.params(one).values()): mean for one, mean in zip(every, means, strict=True)}

    ascending, mixed = predicted(widths), predicted([64, 8, 256, 16, 128, 32])
    assert mixed == pytest.approx(ascending, rel=1e-6)


@pytest.mark.parametrize("name", ["x3d-tiny", "x3d-mobile", "r2plus1d-mobile"])
def test_mean_and_draws_are_sums_over_the_space(name, mobile):
    layout = mobile if name == "x3d-mobile" else Layout(sums_of(name))
    rng = np.random.default_rng(1)
    members = [layout.sums.space.random(rng) for _ in range(40)]
    scores = rng.normal(size=40)
    posterior = Posterior.fit(layout, observed(members, scores))
    others = [layout.sums.space.random(rng) for _ in range(20)]
    mean, deviation = posterior.predict(others)
    expected = posterior.expected()
    assert [expected.total(a) for a in others] == pytest.approx(mean.tolist(), abs=1e-9)
    draws = np.array([[f.total(a) for a in others] for f in (posterior.draw(rng) for _ in range(150))])
    # six standard errors of a mean, and as much of a standard deviation
    assert np.abs(draws.mean(axis=0) - mean).max() < 6 * deviation.max() / np.sqrt(150)
    assert draws.std(axis=0) == pytest.approx(deviation, rel=6 / np.sqrt(2 * 150), abs=1e-3)


def test_the_posterior_is_that_of_a_gaussian_process(layout, drawn):
    """Against the textbook formula, with a covariance that is counted out pair by pair."""
    posterior = Posterior.fit(layout, observed(drawn[:30], map(value, drawn[:30])))
    covariance = by_hand(layout, posterior)
    known, new = layout.encode(drawn[:30]), layout.encode(drawn[30:35])
    gram = np.array([[covariance(a, b) for b in known] for a in known])
    gram += (posterior.variances[-1] + 1e-6) * np.eye(30)
    cross = np.array([[covariance(a, b) for b in known] for a in new])
    scores = np.array([value(a) for a in drawn[:30]])
    mean = scores.mean() + cross @ np.linalg.solve(gram, scores - scores.mean())
    own = np.array([covariance(a, a) for a in new])
    deviation = scores.std() * np.sqrt(own - np.sum(cross * np.linalg.solve(gram, cross.T).T, axis=1))
    predicted = posterior.predict(drawn[30:35])
    assert predicted[0] == pytest.approx(mean)
    assert predicted[1] == pytest.approx(deviation)


def by_hand(layout: Layout, posterior: Posterior):
    """The covariance of two networks at one fidelity, noise left out."""

    def effect(column: int, one: int, other: int) -> float:
        scale = layout.scales[column]
        places = np.arange(len(scale))
        numeric = all(text.replace(".", "").isdigit() for text in scale)
        smooth = np.exp(-0.5 * ((places[:, None] - places) / 1.5) ** 2)
        near = 0.5 * np.eye(len(scale)) + 0.5 * smooth if numeric else np.eye(len(scale))
        centred = near - near.mean(0) - near.mean(1)[:, None] + near.mean()
        return centred[one, other] / np.trace(centred) * len(scale)

    def whole(stage: int, a, b) -> float:
        return 0.5 ** sum(a[c] != b[c] for c in layout.stages[stage])

    def covariance(a, b) -> float:
        total = posterior.variances[0] * sum(effect(c, a[c], b[c]) for c in layout.singles)
        for variance, sort in zip(posterior.variances[1:], PAIRS):
            total += variance * sum(effect(c, a[c], b[c]) * effect(d, a[d], b[d]) for c, d in layout.pairs[sort])
        return total + posterior.variances[-2] * sum(whole(stage, a, b) for stage in layout.stages)

    return covariance


def test_covariances_take_the_memory_of_what_they_are(mobile):
    rng, count = np.random.default_rng(0), 300
    codes = mobile.encode([mobile.sums.space.random(rng) for _ in range(count)])
    kernels = EffectKernels(mobile)
    tracemalloc.start()
    grams = kernels.grams(codes, codes[:250])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * sum(gram.nbytes for gram in grams)
    for row in (0, 31, 32, 299):
        alone = kernels.grams(codes[[row]], codes[:250])
        assert all(np.array_equal(gram[row], one[0]) for gram, one in zip(grams, alone))
    assert all(
        np.array_equal(np.diag(gram), one) for gram, one in zip(kernels.grams(codes, codes), kernels.diagonal(codes))
    )


def test_several_fidelities_are_one_gaussian_process(layout, drawn):
    """Ten trainings to the end, whose beginnings are known, and twenty of a quarter of the epochs alone."""
    quarter = (doublings(3, 12),)
    full = [ScoreObservation(a, 2 * value(a), FULL, n) for n, a in enumerate(drawn[:10])]
    short = [ScoreObservation(a, value(a) - 5 + (n % 2), quarter, n) for n, a in enumerate(drawn[:30])]
    posterior = Posterior.fit(layout, [*full, *short])
    at_one = by_hand(layout, posterior)
    codes, trainings = layout.encode([*drawn[:10], *drawn[:30]]), [*range(10), *range(30)]
    level = np.array([0] * 10 + [1] * 30)
    between = np.array([[1.0, np.exp(-2 / posterior.parameters.length)]] * 2)
    between[1] = between[1][::-1]
    gram = 1e-6 * np.eye(40)
    for i in range(40):
        for j in range(40):
            noise = posterior.variances[-1] * (trainings[i] == trainings[j])
            constant = 0.5 * (level[i] == level[j])
            gram[i, j] += between[level[i], level[j]] * (at_one(codes[i], codes[j]) + noise) + constant
    scores = np.array([one.score for one in [*full, *short]])
    moments = [(scores[level == k].mean(), scores[level == k].std()) for k in (0, 1)]
    values = np.array([(score - moments[k][0]) / moments[k][1] for score, k in zip(scores, level)])
    new = layout.encode(drawn[30:34])
    cross = np.array(
        [[between[0, level[i]] * at_one(a, codes[i]) + 0.5 * (level[i] == 0) for i in range(40)] for a in new]
    )
    mean = moments[0][0] + moments[0][1] * cross @ np.linalg.solve(gram, values)
    variance = [0.5 + at_one(a, a) for a in new] - np.sum(cross * np.linalg.solve(gram, cross.T).T, axis=1)
    predicted = posterior.predict(drawn[30:34])
    assert predicted[0] == pytest.approx(mean)
    assert predicted[1] == pytest.approx(moments[0][1] * np.sqrt(variance))
    expected = posterior.expected()
    assert [expected.total(a) for a in drawn[30:34]] == pytest.approx(mean.tolist())
    rng = np.random.default_rng(0)
    draws = np.array([[f.total(a) for a in drawn[30:34]] for f in (posterior.draw(rng) for _ in range(200))])
    assert np.abs(draws.mean(axis=0) - mean).max() < 6 * predicted[1].max() / np.sqrt(200)
    assert draws.std(axis=0) == pytest.approx(predicted[1], rel=6 / np.sqrt(2 * 200))


def test_short_trainings_tell_of_long_ones(layout, drawn):
    """Eight long trainings say little of 26 effects; forty short ones beside them say more, whatever their scale."""
    rng = np.random.default_rng(0)
    full = [ScoreObservation(a, value(a), FULL, n) for n, a in enumerate(drawn[:8])]
    short = [
        ScoreObservation(a, 0.1 * value(a) - 9 + 0.02 * rng.normal(), (-2.0,), n) for n, a in enumerate(drawn[:48])
    ]
    truth = [value(a) for a in drawn[48:]]
    alone, _ = Posterior.fit(layout, full).predict(drawn[48:])
    both, _ = Posterior.fit(layout, [*full, *short]).predict(drawn[48:])
    assert np.corrcoef(both, truth)[0, 1] > 0.9 > np.corrcoef(alone, truth)[0, 1]


def test_the_longest_of_two_trainings_that_agree_hides_the_other(layout, drawn):
    """What is known to the end gains nothing by its beginning, however far that is off."""
    full = [ScoreObservation(a, value(a), FULL, n) for n, a in enumerate(drawn[:40])]
    begun = [ScoreObservation(a, -value(a), (-3.0,), n) for n, a in enumerate(drawn[:40])]
    first, both = Posterior.fit(layout, full), Posterior.fit(layout, [*full, *begun])
    truth = [value(a) for a in drawn[40:]]
    assert np.corrcoef(first.predict(drawn[40:])[0], truth)[0, 1] > 0.95
    assert np.corrcoef(both.predict(drawn[40:])[0], truth)[0, 1] > 0.8


def test_it_predicts_what_it_has_not_seen(layout, drawn):
    posterior = Posterior.fit(layout, observed(drawn[:40], map(value, drawn[:40])))
    mean, deviation = posterior.predict(drawn[40:])
    truth = np.array([value(a) for a in drawn[40:]])
    assert np.corrcoef(mean, truth)[0, 1] > 0.95
    assert np.mean(np.abs(mean - truth) < 3 * deviation + 0.1) > 0.9
    assert posterior.variances[-1] < 0.1  # there is no noise


def test_noise_is_told_from_effects(layout, drawn):
    scores = np.random.default_rng(0).normal(size=len(drawn))
    mean, _ = Posterior.fit(layout, observed(drawn, scores)).predict(drawn)
    assert mean.std() < 0.6 * scores.std()


def test_few_and_equal_scores_are_no_trouble(layout, drawn):
    for scores in ([3.0], [2.0, 2.0, 2.0]):
        mean, deviation = Posterior.fit(layout, observed(drawn[: len(scores)], scores)).predict(drawn[:5])
        assert mean == pytest.approx(scores[0])
        assert np.isfinite(deviation).all()
    with pytest.raises(ValueError, match="nothing"):
        Posterior.fit(layout, [])


def test_of_many_scores_some_are_learned_from_the_same_at_every_call(mobile):
    rng, most = np.random.default_rng(0), 1500
    members = [mobile.sums.space.random(rng) for _ in range(most + 900)]
    truth = [float(np.log(mobile.sums.total(one))) for one in members]
    scored = observed(members[: most + 700], np.array(truth[: most + 700]) + 0.1 * rng.normal(size=most + 700))
    parameters = Posterior.fit(mobile, scored[:100]).parameters
    posterior = Posterior.fit(mobile, scored, parameters)
    mean, _ = posterior.predict(members[most + 700 :])
    again = Posterior.fit(mobile, list(scored), parameters)
    assert len(posterior.codes) == len(posterior.values) == most
    assert np.array_equal(posterior.codes, again.codes)
    assert np.array_equal(posterior.values, again.values)
    assert posterior.mean == pytest.approx(np.mean([one.score for one in scored]))
    assert np.corrcoef(mean, truth[most + 700 :])[0, 1] > 0.95
    assert mean.mean() == pytest.approx(np.mean(truth[most + 700 :]), abs=0.02)
    all_below = Posterior.fit(mobile, scored[:most], parameters)
    assert np.array_equal(all_below.codes, mobile.encode(members[:most]))


def rows_of(levels: list[tuple[float, ...]], trainings: list[int | None], most: int) -> list[int]:
    """Which observations stand for all; networks and scores do not matter."""
    network = Architecture("any", (("a", "b"),))
    scored = [ScoreObservation(network, 0.0, fidelity, t) for fidelity, t in zip(levels, trainings, strict=True)]
    return Levels.of(scored).chosen(most).tolist()


def test_an_even_spread_stands_for_all():
    assert rows_of([FULL] * 10, [None] * 10, 10) == list(range(10))
    assert rows_of([FULL] * 10, [None] * 10, 5) == [0, 2, 4, 6, 8]
    assert rows_of([FULL] * 10, [None] * 10, 7) == [0, 1, 2, 4, 5, 7, 8]


def test_ends_of_trainings_come_before_their_beginnings_and_the_fidelity_asked_about_first():
    quarter, half = (-2.0,), (-1.0,)
    levels = [quarter, half, FULL, quarter, half, quarter, FULL, quarter]
    trainings = [1, 1, 1, 2, 2, 3, 4, 5]
    assert rows_of(levels, trainings, 8) == list(range(8))
    assert rows_of(levels, trainings, 6) == [0, 2, 4, 5, 6, 7]
    assert rows_of(levels, trainings, 5) == [2, 4, 5, 6, 7]
    assert rows_of(levels, trainings, 4) == [2, 4, 5, 6]
    assert rows_of(levels, trainings, 2) == [2, 6]
    assert rows_of(levels, trainings, 1) == [2]


def test_the_optimum_is_found_within_the_budget(layout):
    feasible = FeasibleSet(layout.sums, layout.sums.smallest()[0] * 2.5)
    members = [a for a in layout.sums.space.architectures() if a in feasible]
    best = max(value(a) for a in members)
    thompson, rng = Thompson(feasible), np.random.default_rng(0)
    scored = [ScoreObservation(a, value(a)) for a in (feasible.draw(rng) for _ in range(8))]
    for _ in range(24):
        seen = {one.architecture for one in scored}
        proposals = [thompson.propose(scored, rng, attempt=attempt) for attempt in range(3)]
        assert all(one in feasible for one in proposals)
        found = next((one for one in proposals if one not in seen), proposals[0])
        scored.append(ScoreObservation(found, value(found)))
    assert max(one.score for one in scored) == best
    # as many draws find it seldom
    share = np.mean([value(a) == best for a in members])
    assert 1 - (1 - share) ** 32 < 0.5


def test_a_front_takes_shares_of_the_budget(layout):
    smallest = layout.sums.smallest()[0]
    feasible = FeasibleSet(layout.sums, smallest * 3)
    rng = np.random.default_rng(0)
    scored = [ScoreObservation(a, value(a)) for a in (feasible.draw(rng) for _ in range(20))]
    thompson = Thompson(feasible)
    times = [layout.sums.total(thompson.propose(scored, rng, front=True)) / smallest for _ in range(20)]
    assert max(times) <= 3
    assert max(times) - min(times) > 1
