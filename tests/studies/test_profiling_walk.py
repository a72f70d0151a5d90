"""Walks over a space on simulated devices: the same rows after every interruption, and claims that hold."""

import random
import zlib

import numpy as np
import pytest

from hwbench.blocks import variants
from hwbench.errors import InfeasibleBudget, NotMeasured
from hwbench.latency import (
    AdditivePredictor,
    FilledTable,
    LatencyRow,
    LatencyTable,
    PredictionAccuracy,
    Role,
    interpolated,
    left_out_errors,
    variant_rows,
)
from hwbench.latency.occasions import Scale
from hwbench.spaces import read_space
from hwbench.specs import Outcome, Precision
from hwbench.studies.profiling_walk import (
    BATCH_ROWS,
    FIRST_NETWORKS,
    FIRST_ROWS,
    WHOLE_ROWS,
    ProfilingWalk,
    StopReason,
    is_worth_choosing,
    look_confidence,
    num_blocks,
    rows_to_goal,
    whole_accuracy,
)
from hwbench.testing.tables import CLASSES, installed_target, space_table, stats_of_law
from hwbench.workspace import shipped

INT8 = Precision.INT8
SPACE = read_space(shipped() / "search_spaces" / "x3d-mini.toml")
TARGET = installed_target()


class RandomDevice:
    """A device that no line describes; what it is like is drawn from a seed.

    Rates fall with the width of convolutions, activations differ, a block in a network takes more than alone, and every
    row and every network has an error of its own, which no model knows.
    """

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.seed = seed
        self.dense, self.depthwise = chance.uniform(1e10, 6e10), chance.uniform(2e9, 2e10)
        self.knee, self.bend = chance.choice((16, 32, 64)), chance.uniform(0, 0.6)
        self.activations = {"swish": chance.uniform(1, 1.5), "hswish": chance.uniform(1, 1.2)}
        self.in_networks = chance.uniform(0.8, 1.5)
        self.row_error, self.network_error = chance.uniform(0.002, 0.03), chance.uniform(0.002, 0.02)

    def seconds(self, workload):
        total = 2e-5 + 4e-10 * (workload.input.numel + workload.output.numel)
        for part in workload.parts():
            factor = self.activations.get(part.blocks[0].activation, 1.0)
            factor *= self.in_networks if workload.is_network else 1.0
            for one in part.blocks[0].operations(part.input):
                rate = self.depthwise if one.groups > 1 else self.dense
                total += factor * (2e-6 + one.macs / (rate * min(1.0, (one.fan_in / self.knee) ** self.bend)))
        return total

    def measured(self, workload):
        error = self.network_error if workload.is_network else self.row_error
        own = np.random.default_rng([self.seed, zlib.crc32(workload.key.encode())]).standard_normal()
        return self.seconds(workload) * float(np.exp(error * own))

    def row(self, workload, outcome=Outcome.OK):
        stats = stats_of_law(self.measured(workload)) if outcome is Outcome.OK else None
        return LatencyRow(Role.of(workload), workload, outcome, stats, "2026-01-31", "c0ffee")

    def table(self, workloads):
        return LatencyTable(TARGET, INT8, [self.row(workload) for workload in dict.fromkeys(workloads)])


def profiled(device, goal, space=SPACE, **options):
    """The step at which a walk ends, its table, and the walk."""
    walk, done = ProfilingWalk(space, INT8, CLASSES, **options), {}
    while True:
        table = device.table(done)
        step = walk.step(table, goal)
        if step.stopped:
            return step, table, walk
        done |= dict.fromkeys(step.batch)


def true_error(device, table, walk, count=60, seed=99):
    """Median error of networks that nothing knows, as a user draws them."""
    rng = np.random.default_rng(seed)
    networks = [SPACE.network(SPACE.random(rng), CLASSES).workload(INT8) for _ in range(count)]
    filled = interpolated(table, walk.parts) if any(part not in table for part in walk.parts) else table
    predictor = AdditivePredictor.fit(filled)
    return float(np.median([abs(np.log(predictor.predict(n).seconds / device.measured(n))) for n in networks]))


def test_the_first_batch_tells_of_boundaries_networks_and_blocks():
    walk = ProfilingWalk(SPACE, INT8, CLASSES)
    first = walk.batch(LatencyTable(TARGET, INT8, ()))
    roles = [Role.of(workload) for workload in first]
    assert len(set(first)) == len(first)
    assert roles.count(Role.NETWORK) == FIRST_NETWORKS
    assert FIRST_ROWS <= roles.count(Role.BLOCK) < FIRST_ROWS + 10
    assert {part.blocks[0].kind for part in first if Role.of(part) is Role.BLOCK} == {"stem", "x3d", "head"}
    assert roles.count(Role.CHAIN) == 24
    assert set(walk.judges()) == {workload for workload in first if workload.is_network}


def test_a_walk_goes_on_with_the_same_rows_wherever_it_was_interrupted():
    device, empty = RandomDevice(3), LatencyTable(TARGET, INT8, ())
    walk, done, batches = ProfilingWalk(SPACE, INT8, CLASSES), {}, []
    for _ in range(3):
        batches.append(walk.batch(device.table(done)))
        done |= dict.fromkeys(batches[-1])
    chance = random.Random(0)
    order = [chance.sample(batch, len(batch)) for batch in batches]
    # Measured meanwhile, for whatever reason: rows that later batches may have, and a network.
    further = [*walk.parts[::7], SPACE.network(SPACE.random(np.random.default_rng(5)), CLASSES).workload(INT8)]
    for at in (0, len(batches[0]), len(batches[0]) + 40):
        some = [workload for batch in order for workload in batch][:at]
        for more in ((), further):
            again = ProfilingWalk(SPACE, INT8, CLASSES).batch(device.table([*some, *more]))
            number = batches.index(again)
            assert all(workload in {*some, *more} for batch in batches[:number] for workload in batch)
            assert not all(workload in {*some, *more} for workload in again)
    assert ProfilingWalk(SPACE, INT8, CLASSES).batch(empty) == batches[0]
    blocks = [sum(Role.of(workload) is Role.BLOCK for workload in batch) for batch in batches]
    assert blocks[1:] == [BATCH_ROWS, BATCH_ROWS]
    assert len({workload for batch in batches for workload in batch}) == sum(map(len, batches))


def test_most_of_the_next_batch_is_known_before_this_one_is_measured():
    device, walk, done = RandomDevice(3), ProfilingWalk(SPACE, INT8, CLASSES), {}
    assert walk.expected(device.table(done)) == ()  # nothing is known yet
    for _ in range(2):
        batch = walk.batch(device.table(done))
        expected = walk.expected(device.table(done))
        assert walk.batch(device.table(done)) == batch  # a guess changes nothing
        done |= dict.fromkeys(batch)
    after = walk.batch(device.table(done))
    assert not set(expected) & set(batch)
    assert len(set(expected) & set(after)) > 0.7 * len(after)
    assert after == ProfilingWalk(SPACE, INT8, CLASSES).batch(device.table(done))


def test_within_a_budget_nothing_is_expected_before_it_is_known_what_fits():
    device, walk, done = RandomDevice(3), ProfilingWalk(SPACE, INT8, CLASSES, budget_s=1.0), {}
    assert walk.expected(device.table(done)) == ()
    done |= dict.fromkeys(walk.batch(device.table(done)))
    assert walk.expected(device.table(done))


def test_rows_that_fail_are_gone_over_and_lost_ones_are_not():
    device, walk = RandomDevice(4), ProfilingWalk(SPACE, INT8, CLASSES)
    first = walk.batch(LatencyTable(TARGET, INT8, ()))
    network = next(workload for workload in first if workload.is_network)
    block = next(workload for workload in first if Role.of(workload) is Role.BLOCK)
    others = [device.row(workload) for workload in first if workload not in (network, block)]
    failed = [device.row(workload, Outcome.CRASH) for workload in (network, block)]
    table = LatencyTable(TARGET, INT8, [*others, *failed])
    second = walk.batch(table)
    assert second != first
    assert block not in second
    assert sum(workload.is_network for workload in second) == 6  # one for each 24 of 143 blocks, one for the failed one
    assert walk.accuracy(table).networks == FIRST_NETWORKS - 1
    lost = LatencyTable(TARGET, INT8, [*others, failed[0], device.row(block, Outcome.LOST)])
    assert ProfilingWalk(SPACE, INT8, CLASSES).batch(lost) == first


def test_what_is_claimed_holds_for_networks_that_nothing_knows():
    """One set of rows, nine sets of judges: each claims by itself, and is held against the networks of all others."""
    device = RandomDevice(102)
    walk = ProfilingWalk(SPACE, INT8, CLASSES)
    table = device.table(walk.batch(device.table(())))
    blocks = [row for row in table if row.role is not Role.NETWORK]
    filled = interpolated(table, walk.parts)
    seconds = {part: filled[part].median_s for part in walk.parts if part not in table}
    drawn = list(dict.fromkeys(SPACE.network(SPACE.random(np.random.default_rng(n)), CLASSES).workload(INT8)
                               for n in range(72)))  # fmt: skip
    broken = []
    for first in range(0, 72, FIRST_NETWORKS):
        judges, others = drawn[first : first + FIRST_NETWORKS], [*drawn[:first], *drawn[first + FIRST_NETWORKS :]]
        rows = LatencyTable(TARGET, INT8, [*blocks, *map(device.row, judges)])
        known = FilledTable(rows, seconds, filled.filled_spread, "by the test")
        claim = PredictionAccuracy.of(left_out_errors(known, judges), look_confidence(1))
        predictor = AdditivePredictor.fit(known)
        error = np.median([abs(np.log(predictor.predict(one).seconds / device.measured(one))) for one in others])
        broken += [(first, claim, error)] if claim.bound < error else []
    # Of nine claims, each of which one in ten may break, four and more break once in a hundred times.
    assert len(broken) <= 3, broken


def test_the_scale_of_a_day_is_no_error_of_a_prediction():
    device, walk = RandomDevice(3), ProfilingWalk(SPACE, INT8, CLASSES)
    table = device.table(walk.batch(device.table(())))
    slower = LatencyTable(TARGET, INT8, table, scale=Scale(1.15, 1.14, 1.16, "2026-01-31T22:15Z"))
    known, found = walk.accuracy(table), walk.accuracy(slower)
    assert (found.error, found.bound) == pytest.approx((known.error, known.bound))
    assert [one.error for _, one in walk.history(slower)] == pytest.approx([known.error])
    tiny = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
    rows = space_table(tiny, INT8, target=TARGET, calibration=4)
    slower = LatencyTable(TARGET, INT8, rows, scale=slower.scale)
    assert whole_accuracy(slower, tiny).bound == pytest.approx(whole_accuracy(rows, tiny).bound)


def test_all_looks_together_are_wrong_with_one_in_ten():
    shares = [1 - look_confidence(look) for look in range(1, 10_000)]
    assert sum(shares) == pytest.approx(0.1, abs=1e-4)
    assert shares == sorted(shares, reverse=True)


@pytest.mark.long
def test_claims_hold_on_sixty_devices():
    broken = []
    for seed in range(100, 160):
        device = RandomDevice(seed)
        step, table, walk = profiled(device, goal=0.015)
        error = true_error(device, table, walk)
        if step.accuracy.bound < error:
            broken.append((seed, step.accuracy, error))
    # A limit with a confidence of 0.9 may be broken by one device in ten: 11 of 60 and more come once in 20 times.
    assert len(broken) <= 10, broken


def test_a_budget_narrows_what_is_measured():
    device = RandomDevice(5)
    seconds = sorted(device.seconds(SPACE.network(SPACE.random(np.random.default_rng(n)), CLASSES).workload(INT8))
                     for n in range(60))  # fmt: skip
    walk, done = ProfilingWalk(SPACE, INT8, CLASSES, budget_s=seconds[3]), {}
    done |= dict.fromkeys(walk.batch(device.table(done)))
    second = walk.batch(device.table(done))
    judges = [workload for workload in second if workload.is_network]
    assert judges
    assert max(map(device.seconds, judges)) < 1.3 * seconds[3]
    tight, table = ProfilingWalk(SPACE, INT8, CLASSES, budget_s=1e-6), device.table(done)
    with pytest.raises(InfeasibleBudget):
        tight.batch(table)


@pytest.mark.long
def test_more_rows_that_do_not_help_end_a_walk():
    reasons = []
    for seed in (0, 2, 6):
        device = RandomDevice(seed)
        device.row_error, device.network_error = 0.002, 0.06  # no row can tell
        step, table, _ = profiled(device, goal=0.01)
        assert step.accuracy.bound > 0.01
        assert 384 <= num_blocks(table) <= 516
        reasons.append(step.stopped)
    # The median error of some thirty networks scatters: now and then it falls by a twentieth without a cause.
    assert reasons.count(StopReason.LEVEL) >= 2


def test_rows_of_other_layouts_are_no_further_blocks():
    device, walk, done = RandomDevice(0), ProfilingWalk(SPACE, INT8, CLASSES), {}
    device.network_error = 0.06  # the goal is far
    for _ in range(3):
        done |= dict.fromkeys(walk.batch(device.table(done)))
    blocks = [workload for workload in done if Role.of(workload) is Role.BLOCK]
    layouts = variant_rows(blocks, variants.names())
    assert len(blocks) < 2 * WHOLE_ROWS < len(blocks) + len(layouts)
    step = walk.step(device.table([*done, *layouts]), goal=1e-3)
    assert (step.rows, step.stopped) == (len(blocks), None)


def test_small_spaces_are_not_worth_choosing():
    tiny = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
    assert [is_worth_choosing(space, INT8, CLASSES) for space in (tiny, SPACE)] == [False, True]


@pytest.mark.parametrize("count", [4, 8, 20])
def test_the_limit_of_an_error_holds_nine_times_of_ten_whatever_its_distribution(count):
    rng = np.random.default_rng(count)
    for draw, median in (
        (rng.standard_normal, 0.6745),
        (lambda n: rng.standard_t(2, n), 0.8165),
        (lambda n: rng.uniform(-1, 1, n), 0.5),
    ):
        found = [PredictionAccuracy.of(draw(count)) for _ in range(2000)]
        assert np.mean([one.bound >= median for one in found]) > 0.88
        assert all(one.bound >= one.error for one in found)


def test_one_network_that_is_wrong_does_not_keep_a_limit_up():
    errors = [0.01 * (-1) ** n for n in range(12)]
    assert PredictionAccuracy.of([*errors, 4.6]).bound == pytest.approx(0.01)
    with pytest.raises(NotMeasured, match="3 networks that were left out are too few for 90%"):
        PredictionAccuracy.of(errors[:3])


def test_how_many_rows_are_left():
    assert rows_to_goal([(100, 0.04)], 0.02) == 300  # by the square root
    assert rows_to_goal([(100, 0.04), (200, 0.02)], 0.02) == 0
    assert rows_to_goal([(100, 0.08), (200, 0.04)], 0.02) == 200  # as the number of rows
    assert rows_to_goal([(100, 0.04), (200, 0.05)], 0.02) == pytest.approx(200 * (2.5**5 - 1), abs=1)
