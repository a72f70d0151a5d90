"""The model that Thompson sampling learns: against its own definition, and by what it finds."""

import numpy as np
import pytest

from hwbench.spaces import read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.studies.posterior import SORTS, Layout, Posterior
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
def drawn(layout) -> list:
    rng = np.random.default_rng(5)
    return [layout.sums.space.random(rng) for _ in range(60)]


def value(architecture) -> float:
    """More blocks and wider ones are better, a kernel only where a stage is deep."""
    depths = [int(architecture[f"s{stage}.depth"]) for stage in (1, 2, 3)]
    deep = architecture["s2.kernel"] == "3x3x3" and depths[1] > 2
    return sum(depths) + 2.0 * (architecture["s3.width"] == "128") + 3.0 * deep


def test_choices_meet_within_a_stage_with_what_reaches_it_and_with_the_input_size():
    layout = Layout(sums_of("x3d-mobile"))
    assert {sort: len(pairs) for sort, pairs in layout.pairs.items()} == {
        SORTS[1]: 4 * 15,  # of six axes
        SORTS[2]: 3 * 6,  # the first stage always gets the same from the stem
        SORTS[3]: 2 * 24 + 1,
    }
    assert len(layout.singles) == 26
    tiny = Layout(sums_of("x3d-tiny"))  # one input size, one width of the first two stages
    assert not tiny.pairs[SORTS[2]]
    assert not tiny.pairs[SORTS[3]]


def test_what_reaches_a_stage_is_a_column(layout):
    mobile = Layout(sums_of("x3d-mobile"))
    rng = np.random.default_rng(0)
    members = [mobile.sums.space.random(rng) for _ in range(50)]
    codes = mobile.encode(members)
    names = list(mobile.sums.space.choices)
    for stage in (1, 2, 3):
        incoming = codes[:, len(names) + stage - 1]
        assert incoming.tolist() == codes[:, names.index(f"s{stage}.width")].tolist()


@pytest.mark.parametrize("name", ["x3d-tiny", "x3d-mobile", "r2plus1d-mobile"])
def test_mean_and_draws_are_sums_over_the_space(name):
    layout = Layout(sums_of(name))
    rng = np.random.default_rng(1)
    members = [layout.sums.space.random(rng) for _ in range(40)]
    scores = rng.normal(size=40)
    posterior = Posterior.fit(layout, members, scores)
    others = [layout.sums.space.random(rng) for _ in range(20)]
    mean, deviation = posterior.predict(others)
    expected = posterior.expected()
    assert [expected.total(a) for a in others] == pytest.approx(mean.tolist(), abs=1e-9)
    draws = np.array([[f.total(a) for a in others] for f in (posterior.draw(rng) for _ in range(600))])
    # six standard errors of a mean, and as much of a standard deviation
    assert np.abs(draws.mean(axis=0) - mean).max() < 6 * deviation.max() / np.sqrt(600)
    assert draws.std(axis=0) == pytest.approx(deviation, rel=6 / np.sqrt(2 * 600), abs=1e-3)


def test_the_posterior_is_that_of_a_gaussian_process(layout, drawn):
    """Against the textbook formula, with a covariance that is counted out pair by pair."""
    posterior = Posterior.fit(layout, drawn[:30], [value(a) for a in drawn[:30]])

    def effect(column: int, one: int, other: int) -> float:
        scale = layout.scales[column]
        places = np.arange(len(scale))
        numeric = all(text.replace(".", "").isdigit() for text in scale)
        smooth = np.exp(-0.5 * ((places[:, None] - places) / 1.5) ** 2)
        near = 0.5 * np.eye(len(scale)) + 0.5 * smooth if numeric else np.eye(len(scale))
        centred = near - near.mean(0) - near.mean(1)[:, None] + near.mean()
        return centred[one, other] / np.trace(centred) * len(scale)

    def covariance(a, b) -> float:
        total = posterior.variances[0] * sum(effect(c, a[c], b[c]) for c in layout.singles)
        for variance, sort in zip(posterior.variances[1:], SORTS[1:]):
            total += variance * sum(effect(c, a[c], b[c]) * effect(d, a[d], b[d]) for c, d in layout.pairs[sort])
        return total

    known, new = layout.encode(drawn[:30]), layout.encode(drawn[30:35])
    gram = np.array([[covariance(a, b) for b in known] for a in known]) + posterior.variances[-1] * np.eye(30)
    cross = np.array([[covariance(a, b) for b in known] for a in new])
    scores = np.array([value(a) for a in drawn[:30]])
    mean = scores.mean() + cross @ np.linalg.solve(gram, scores - scores.mean())
    own = np.array([covariance(a, a) for a in new])
    deviation = scores.std() * np.sqrt(own - np.sum(cross * np.linalg.solve(gram, cross.T).T, axis=1))
    predicted = posterior.predict(drawn[30:35])
    assert predicted[0] == pytest.approx(mean)
    assert predicted[1] == pytest.approx(deviation)


def test_it_predicts_what_it_has_not_seen(layout, drawn):
    posterior = Posterior.fit(layout, drawn[:40], [value(a) for a in drawn[:40]])
    mean, deviation = posterior.predict(drawn[40:])
    truth = np.array([value(a) for a in drawn[40:]])
    assert np.corrcoef(mean, truth)[0, 1] > 0.95
    assert np.mean(np.abs(mean - truth) < 3 * deviation + 0.1) > 0.9
    assert posterior.variances[-1] < 0.1  # there is no noise


def test_noise_is_told_from_effects(layout, drawn):
    scores = np.random.default_rng(0).normal(size=len(drawn))
    mean, _ = Posterior.fit(layout, drawn, scores).predict(drawn)
    assert mean.std() < 0.6 * scores.std()


def test_few_and_equal_scores_are_no_trouble(layout, drawn):
    for scores in ([3.0], [2.0, 2.0, 2.0]):
        mean, deviation = Posterior.fit(layout, drawn[: len(scores)], scores).predict(drawn[:5])
        assert mean == pytest.approx(scores[0])
        assert np.isfinite(deviation).all()
    with pytest.raises(ValueError, match="nothing"):
        Posterior.fit(layout, [], [])


def test_the_optimum_is_found_within_the_budget(layout):
    feasible = FeasibleSet(layout.sums, layout.sums.smallest()[0] * 2.5)
    members = [a for a in layout.sums.space.architectures() if a in feasible]
    best = max(value(a) for a in members)
    thompson, rng = Thompson(feasible), np.random.default_rng(0)
    scored = [(a, value(a)) for a in (feasible.draw(rng) for _ in range(8))]
    for _ in range(24):
        found = thompson.propose(scored, rng)
        assert found in feasible
        scored.append((found, value(found)))
    assert max(score for _, score in scored) == best
    # as many draws find it seldom
    share = np.mean([value(a) == best for a in members])
    assert 1 - (1 - share) ** 32 < 0.5


def test_a_front_takes_shares_of_the_budget(layout):
    smallest = layout.sums.smallest()[0]
    feasible = FeasibleSet(layout.sums, smallest * 3)
    rng = np.random.default_rng(0)
    scored = [(a, value(a)) for a in (feasible.draw(rng) for _ in range(20))]
    thompson = Thompson(feasible)
    times = [layout.sums.total(thompson.propose(scored, rng, front=True)) / smallest for _ in range(20)]
    assert max(times) <= 3
    assert max(times) - min(times) > 1
