"""Stages whose blocks choose for themselves: keys, codes, files, and the shipped space of them."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from random_spaces import fine_spaces

from hwbench.errors import InvalidFile, InvalidValue
from hwbench.spaces import load_card, read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.evaluators.entropy import Entropy
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.posterior import Layout, Posterior
from hwbench.studies.thompson import Thompson
from hwbench.workspace import Workspace, shipped

FINE = shipped() / "search_spaces" / "x3d-fine.toml"


@pytest.fixture(scope="module")
def fine():
    return read_space(FINE)


def work(block, x):
    return 1e-5 + sum(operation.macs for operation in block.operations(x)) / 20e9


@settings(max_examples=15, deadline=None)
@given(fine_spaces)
def test_keys_parameters_and_codes_stand_for_one_network_each(space):
    members = list(space.architectures())
    assert len({member.key for member in members}) == len(members) == space.size()
    assert space.decode(space.encode(members)) == members
    for member in members:
        assert Architecture.parse(member.key) == member
        params = space.params(member)
        assert params.keys() == space.choices.keys()
        assert space.of_params(params) == member
        assert space.member(space.cell(member), space.step_choices(member)) == member
        depths = [int(member[f"s{number}.depth"]) for number in range(1, len(space.stages) + 1)]
        assert space.stage_depths(member) == tuple(depths)


def by_hand(*pairs: tuple[str, str]) -> str:
    """A space of one stage, of at most two blocks, with other lines in the place of those that begin alike."""
    lines = {
        "depth": "[1, 2]", "width": "8", "expansion": "[1.0, 2.0]", "kernel": '["1x3x3", "3x3x3"]', "se": "[0, 0.5]",
        "act": '"relu"', "stride": "2", "by_block": '["kernel", "se"]',
    } | dict(pairs)  # fmt: skip
    stage = "\n".join(f"{name} = {value}" for name, value in lines.items())
    return f"""
schema = 1
name = "hand"
description = "For tests."
[input]
frames = [2, 4]
resolution = 16
[stem]
width = 8
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
{stage}
[head]
hidden = 16
act = "relu"
"""


@pytest.fixture
def hand(tmp_path):
    path = tmp_path / "hand.toml"

    def read(*pairs):
        path.write_text(by_hand(*pairs))
        return read_space(path)

    return read


def test_a_member_tells_of_the_blocks_that_it_has(hand):
    space = hand()
    assert list(space.choices) == [
        *("frames", "resolution", "s1.depth", "s1.width", "s1.expansion", "s1.act"),
        *("s1.b1.kernel", "s1.b1.se", "s1.b2.kernel", "s1.b2.se"),
    ]
    assert space.size() == 2 * 2 * (4 + 16)
    key = "hand:frames=2,resolution=16,s1.depth=2,s1.width=8,s1.expansion=2,s1.act=relu,s1.b1.kernel=1x3x3,s1.b1.se=0"
    member = Architecture.parse(f"{key},s1.b2.kernel=3x3x3,s1.b2.se=0.5")
    first, second = space.network(member, 4).blocks[1:-1]
    assert (first.kernel, first.se_channels, first.stride) == (((1, 3, 3),), 0, 2)
    assert (second.kernel, second.se_channels, second.stride) == (((3, 3, 3),), 8, 1)
    shallow = Architecture.parse(key.replace("depth=2", "depth=1"))
    assert len(space.network(shallow, 4).blocks) == 3
    with pytest.raises(InvalidValue, match=r"no choice for s1\.b2\.kernel, s1\.b2\.se"):
        space.validate(Architecture.parse(key))
    with pytest.raises(InvalidValue, match=r"no blocks for s1\.b2\.kernel, s1\.b2\.se; leave that out"):
        space.validate(Architecture.parse(member.key.replace("depth=2", "depth=1")))
    with pytest.raises(InvalidValue, match=r"unknown choice 's1\.b3\.kernel'; did you mean"):
        space.validate(Architecture.parse(f"{member.key},s1.b3.kernel=3x3x3"))
    codes = space.encode([shallow])
    assert codes[0, -2:].tolist() == [0, 0]
    codes[0, -1] = 1
    with pytest.raises(InvalidValue, match="blocks that are not there"):
        space.decode(codes)


def test_what_parameters_say_of_absent_blocks_changes_nothing(hand):
    space = hand()
    params = space.params(next(iter(space.architectures())))
    other = {**params, "s1.b2.kernel": "3x3x3", "s1.b2.se": "0.5"}
    assert params["s1.depth"] == "1"
    assert space.of_params(other) == space.of_params(params)


def test_the_time_that_clips_cover_is_a_choice_without_a_cost(tmp_path):
    path = tmp_path / "hand.toml"
    path.write_text(by_hand().replace("resolution = 16", "resolution = 16\nspan_s = [0.5, 2]"))
    space = read_space(path)
    members = list(space.architectures())
    assert list(space.choices)[:4] == ["frames", "resolution", "span_s", "s1.depth"]
    assert len(set(members)) == space.size() == 2 * 80
    assert {space.network(member, 4).span_s for member in members} == {0.5, 2.0}
    sums = SpaceSums.of(space, work, num_classes=4)
    assert sums.totals(space.encode(members)).tolist() == [sums.total(member) for member in members]
    for member in members[::7]:
        other = Architecture.parse(member.key.replace("span_s=0.5", "span_s=2"))
        assert space.network(member, 4).blocks == space.network(other, 4).blocks
        assert sums.total(member) == sums.total(other)
    costs = sorted(sums.total(member) for member in members)
    feasible = FeasibleSet(sums, costs[len(costs) // 2] * 1.01)
    within = {member for member in members if sums.total(member) <= feasible.budget_s}
    assert 0.9 * len(within) <= feasible.count <= len(within)
    drawn = {feasible.draw(np.random.default_rng(seed)) for seed in range(100)}
    assert drawn <= within
    assert {member["span_s"] for member in drawn} == {"0.5", "2"}
    path.write_text(by_hand().replace("resolution = 16", "resolution = 16\nspan_s = [0, 2]"))
    with pytest.raises(InvalidFile, match="span_s: expected seconds above 0"):
        read_space(path)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ((("by_block", '["width"]'),), "axes that blocks of family 'x3d' may choose (expansion, kernel, se)"),
        ((("by_block", '"kernels"'),), "by_block"),
        ((("hidden", "0"),), "hidden: expected a whole number, at least 1, got 0"),
        ((("temporal_stride", "0"),), "temporal_stride: expected a whole number, at least 1, got 0"),
        ((("temporal_stride", "[-1]"),), "temporal_stride: expected a whole number, at least 1, got -1"),
        ((("expansion", "[0.1]"), ("by_block", '["expansion"]')), "expected at least one channel inside a block"),
    ],
)
def test_a_file_that_cannot_be_meant_says_what_is_wrong(hand, pairs, said):
    with pytest.raises(InvalidFile) as caught:
        hand(*pairs)
    assert said in str(caught.value)


def test_hidden_is_a_choice_of_the_last_stage_alone(hand, tmp_path):
    space = hand(("hidden", "[8, 16]"))
    heads = {space.network(a, 4).blocks[-1].hidden_channels for a in space.architectures()}
    assert heads == {8, 16}
    text = by_hand(("hidden", "8"))
    twice = text.replace("[head]", text[text.index("[[stages]]") : text.index("[head]")] + "[head]")
    (tmp_path / "hand.toml").write_text(twice)
    with pytest.raises(InvalidFile, match="hidden: expected in the last stage alone"):
        read_space(tmp_path / "hand.toml")


def test_draws_over_the_space_are_uniform(hand):
    space = hand()
    members = list(space.architectures())
    rng, times = np.random.default_rng(0), 40
    one_by_one = Counter(space.random(rng) for _ in range(times * len(members)))
    together = Counter(space.decode(space.random_codes(rng, times * len(members))))
    for counts in (one_by_one, together):
        degrees = len(members) - 1
        chi_square = sum((counts[member] - times) ** 2 / times for member in members)
        assert set(counts) <= set(members)
        assert chi_square < degrees + 3.1 * math.sqrt(2 * degrees) + 6  # beyond the 99.9 % quantile


@pytest.mark.parametrize("name", ["x3d-xs", "x3d-s"])
def test_published_networks_are_members_of_the_shipped_space(fine, name):
    card = load_card(Workspace(shipped()), name)
    depths, texts = (3, 5, 11, 7), {"frames": str(card.cell.frames), "resolution": str(card.cell.resolution)}
    for stage, (depth, width) in enumerate(zip(depths, (24, 48, 96, 192)), start=1):
        texts |= {f"s{stage}.depth": str(depth), f"s{stage}.width": str(width), f"s{stage}.act": "swish"}
        for block in range(1, depth + 1):
            se = "0.0625" if block % 2 else "0"
            own = {"expansion": "2.25", "kernel": "3x3x3", "se": se}
            texts |= {f"s{stage}.b{block}.{axis}": value for axis, value in own.items()}
    texts |= {"s3.temporal_stride": "1", "s4.hidden": "2048"}
    member = fine.of_params(texts)
    assert fine.network(member, card.classes).blocks == card.blocks


def test_the_shipped_space_is_counted_drawn_and_searched(fine):
    sums = SpaceSums.of(fine, work, num_classes=8)
    smallest, _ = sums.smallest()
    feasible = FeasibleSet(sums, 2 * smallest)
    assert fine.size() > 1e35
    assert 0 < feasible.count < sums.num_known == fine.size()
    rng = np.random.default_rng(0)
    drawn = [feasible.draw(rng, (0.9, 1.0)) for _ in range(20)]
    assert all(0.9 * feasible.budget_s < sums.total(member) <= feasible.budget_s for member in drawn)
    scores = SpaceSums.of(fine, Entropy(None).block_score, num_classes=8)
    best = feasible.best(scores)
    assert best.seconds <= feasible.budget_s
    assert best.score == pytest.approx(scores.total(best.architecture))
    assert best.score > max(scores.total(member) for member in drawn)
    outside = fine.random(rng)
    assert outside not in feasible
    assert feasible.repair(outside) in feasible
    values = [scores.total(member) for member in drawn]
    scored = [ScoreObservation(member, value) for member, value in zip(drawn, values)]
    posterior = Posterior.fit(Layout(sums), scored)
    mean, _ = posterior.predict(drawn[:5])
    expected = posterior.expected()
    assert [expected.total(member) for member in drawn[:5]] == pytest.approx(mean.tolist(), abs=1e-9)
    proposed = Thompson(feasible).propose(scored, rng)
    assert proposed in feasible
