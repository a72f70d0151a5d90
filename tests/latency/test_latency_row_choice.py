"""Which rows are measured next: conformance of every choice, and what each is for."""

import numpy as np
import pytest

from hwbench.latency import AOptimal, ByUse, LatencyRow, LatencyTable, RandomChoice, Role
from hwbench.spaces import read_space
from hwbench.specs import Outcome, Precision
from hwbench.workspace import shipped

SPACE = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
CHOICES = (RandomChoice, ByUse, AOptimal)


@pytest.fixture(scope="module")
def networks():
    rng = np.random.default_rng(0)
    return [SPACE.network(SPACE.random(rng), 8).workload(Precision.INT8) for _ in range(20)]


@pytest.fixture(scope="module")
def candidates():
    return list(SPACE.parts(Precision.INT8, num_classes=8))[:120]


@pytest.mark.parametrize("make", CHOICES)
def test_batches_are_new_rows_until_none_is_left(make, candidates, networks, device):
    choice = make(candidates, networks)
    measured = candidates[:30]
    while len(measured) < len(candidates):
        batch = choice.next(device.table(measured), 17)
        assert len(batch) == min(17, len(candidates) - len(measured))
        assert len({*batch, *measured}) == len(batch) + len(measured)
        assert {*batch} <= {*candidates}
        measured = [*measured, *batch]
    assert choice.next(device.table(measured), 17) == []


@pytest.mark.parametrize("make", CHOICES)
def test_a_choice_goes_on_where_it_was(make, candidates, networks, device):
    table = device.table(candidates[:25])
    assert make(candidates, networks).next(table, 9) == make(candidates, networks).next(table, 9)
    assert make(candidates, networks).next(table, 0) == []


@pytest.mark.parametrize("make", CHOICES)
def test_rows_that_failed_are_not_tried_again(make, candidates, networks, device):
    choice, table = make(candidates, networks), device.table(candidates[:25])
    (first,) = choice.next(table, 1)
    failed = LatencyRow(Role.BLOCK, first, Outcome.CRASH, None, "2026-11-24", table.conditions, "signal 11")
    known = LatencyTable(table.target, table.precision, [*table, failed])
    assert first not in choice.next(known, 20)


def test_the_order_of_the_candidates_does_not_change_a_random_choice(candidates, device):
    table = device.table(candidates[:25])
    forward, backward = RandomChoice(candidates).next(table, 9), RandomChoice(candidates[::-1]).next(table, 9)
    assert forward == backward
    assert forward != RandomChoice(candidates, seed=1).next(table, 9)


def test_what_most_networks_have_comes_first(candidates, networks, device):
    batch = ByUse([*candidates, *networks[0].parts()], networks).next(device.table([]), 12)
    used = [sum(part in set(network.parts()) for network in networks) for part in batch]
    assert used == sorted(used, reverse=True)
    assert used[0] == max(sum(p in set(n.parts()) for n in networks) for m in networks for p in m.parts())
