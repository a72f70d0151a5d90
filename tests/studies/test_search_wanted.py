"""Which rows a search needs: never without one that a network within the budget has."""

from collections import Counter

import numpy as np
import pytest

from hwbench.errors import InfeasibleBudget, NotMeasured
from hwbench.latency import AdditivePredictor, LatencyTable, Role
from hwbench.latency.occasions import Scale
from hwbench.spaces import read_space
from hwbench.specs import Precision
from hwbench.studies.latencies import compile_predictor
from hwbench.studies.profiling_plan import by_use, within_budget
from hwbench.testing.tables import CLASSES, space_table
from hwbench.workspace import shipped

SPACE = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
WHOLE = space_table(SPACE, Precision.INT8)
PARTS = list(SPACE.parts(Precision.INT8, num_classes=CLASSES))
# Three depths and two widths of one stage.
SMALL_SPACE = """schema = 1
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
depth = [1, 2, 3]
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


def some(step):
    """The table with the blocks of its networks, and every so manieth other one."""
    networks = {part for row in WHOLE.rows(Role.NETWORK) for part in row.workload.parts()}
    left_out = set(PARTS) - networks - set(PARTS[::step])
    return LatencyTable(WHOLE.target, WHOLE.precision, [row for row in WHOLE if row.workload not in left_out])


def latencies(codes):
    predictor = AdditivePredictor.fit(WHOLE)
    return compile_predictor(SPACE, predictor, Precision.INT8, CLASSES).predict_many(codes).seconds


def blocks(codes):
    members = SPACE.decode(codes)
    return {part for member in members for part in SPACE.network(member, CLASSES).workload(Precision.INT8).parts()}


def test_all_blocks_of_a_space_the_most_used_first():
    found = by_use(SPACE, Precision.INT8, CLASSES)
    assert sorted(found) == sorted(PARTS)
    assert found == by_use(SPACE, Precision.INT8, CLASSES)
    rng = np.random.default_rng(5)
    drawn = [SPACE.network(SPACE.random(rng), CLASSES).workload(Precision.INT8) for _ in range(500)]
    used = [sum(part in set(network.parts()) for network in drawn) for part in found]
    quarter = len(found) // 4
    assert np.mean(used[:quarter]) > 2 * np.mean(used[-quarter:])


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_every_block_of_a_network_within_the_budget_is_wanted(share):
    codes = SPACE.random_codes(np.random.default_rng(2), 4000)
    seconds = latencies(codes)
    budget_s = float(np.quantile(seconds, share))
    wanted = within_budget(SPACE, some(5), CLASSES, budget_s)
    assert len(wanted) == len(set(wanted))
    assert set(wanted) <= set(PARTS)
    assert blocks(codes[seconds <= budget_s]) <= set(wanted)


def test_a_small_budget_wants_few_blocks_and_those_most_networks_have_first():
    codes = SPACE.random_codes(np.random.default_rng(3), 4000)
    seconds = latencies(codes)
    order = np.argsort(seconds)
    wanted = within_budget(SPACE, WHOLE, CLASSES, float(seconds[order[40]]))
    assert len(wanted) < 0.8 * len(PARTS)
    fast = [blocks(codes[[at]]) for at in order[:40]]
    used = [sum(part in network for network in fast) for part in wanted]
    third = len(wanted) // 3
    assert np.mean(used[:third]) > 2 * np.mean(used[-third:])


def test_a_slower_day_wants_what_a_smaller_budget_wants():
    scaled = LatencyTable(WHOLE.target, WHOLE.precision, WHOLE, scale=Scale(1.25, 1.24, 1.26, "2026-01-31T22:15Z"))
    budget_s = float(np.quantile(latencies(SPACE.random_codes(np.random.default_rng(4), 4000)), 0.2))
    wanted = within_budget(SPACE, scaled, CLASSES, budget_s)
    smaller = within_budget(SPACE, WHOLE, CLASSES, budget_s / 1.25)
    assert set(smaller) <= set(wanted)
    assert len(wanted) < len(within_budget(SPACE, WHOLE, CLASSES, budget_s))


def test_what_cannot_be_told():
    with pytest.raises(InfeasibleBudget, match="smallest reachable latency"):
        within_budget(SPACE, WHOLE, CLASSES, 1e-6)
    few = LatencyTable(WHOLE.target, WHOLE.precision, [row for row in WHOLE if row.workload not in set(PARTS[3:])])
    with pytest.raises(NotMeasured, match="at least 20 are needed to interpolate"):
        within_budget(SPACE, few, CLASSES, 1.0)


def test_a_space_of_few_blocks_needs_no_interpolation(tmp_path):
    (tmp_path / "micro.toml").write_text(SMALL_SPACE)
    space = read_space(tmp_path / "micro.toml")
    whole, parts = space_table(space, Precision.INT8), set(space.parts(Precision.INT8, num_classes=CLASSES))
    assert len(parts) < 20
    assert set(within_budget(space, whole, CLASSES, 1.0)) == parts
    with pytest.raises(InfeasibleBudget, match="smallest reachable latency"):
        within_budget(space, whole, CLASSES, 1e-6)
    used = Counter(part for row in whole.rows(Role.NETWORK) for part in set(row.workload.parts()))
    failed = min(sorted(parts), key=lambda part: used[part])
    rest = LatencyTable(whole.target, whole.precision, [row for row in whole if row.workload != failed])
    assert failed not in within_budget(space, rest, CLASSES, 1.0)
