"""Models that fill rows: what they learn, how sure they say they are, and what they refuse."""

import itertools
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from hwbench.errors import NotMeasured
from hwbench.latency import AOptimal, FilledRows, FilledTable, LatencyTable, RandomChoice, interpolated, transferred
from hwbench.latency import gaussian as processes
from hwbench.latency.block_features import BlockColumns
from hwbench.latency.gaussian import GaussianProcess, Kernel, Structure, distances
from hwbench.latency.row_models import GaussianRows, OperatorRows, _CrossValidated, _Rows, default_models
from hwbench.spaces import read_space
from hwbench.specs import Precision
from hwbench.workspace import shipped

MOBILE = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
INT8, FP32 = Precision.INT8, Precision.FP32


def drawn(count, seed):
    rng = np.random.default_rng(seed)
    return [MOBILE.network(MOBILE.random(rng), 8).workload(INT8) for _ in range(count)]


def parts_of(networks):
    return list(dict.fromkeys(part for network in networks for part in network.parts()))


def gaussian(parts):
    return [GaussianRows(parts)]


@pytest.fixture
def stepped(make_device):
    """A device with what a law has no term for: a rate that depends on channels, and a cache that ends."""

    class Stepped(make_device):
        def seconds(self, workload):
            total = self.start_s
            for part in workload.parts():
                for c in part.blocks[0].operations(part.input):
                    moved = c.input.numel + c.output.numel
                    slow = 1.0 + 0.3 / (1.0 + math.exp((8e5 - moved) / 2e5))
                    total += slow * (2e-6 + c.macs / 2e10 * (64 / min(c.fan_in, 64)) ** 0.2 + moved * 1e-10)
            return total

    return Stepped()


def test_a_law_of_operators_is_found_again(device):
    parts = parts_of(drawn(12, 0))
    model = FilledRows.fit(device.table(parts[:60]), models=lambda rows: [OperatorRows(rows)])
    inside = [part for part in parts[60:] if not model.beyond(part)]
    seconds, deviations = model.predict(inside)
    off = np.log(seconds / [device.seconds(part) for part in inside])
    assert np.median(np.abs(off)) < 0.01
    assert np.abs(off).max() < 0.06
    assert np.mean(np.abs(off) < 1.645 * deviations) > 0.8


def test_the_best_model_is_chosen_and_its_intervals_hold(stepped):
    parts = parts_of(drawn(24, 1))
    order = np.random.default_rng(2).permutation(len(parts))
    table = stepped.table([parts[at] for at in order[:120]])
    model = FilledRows.fit(table)
    assert model.name == "a Gaussian process"
    assert model.errors[model.name] == min(model.errors.values()) == model.median_error
    assert set(model.errors) > {"boosted trees", "a law of operators"}
    left = [parts[at] for at in order[120:] if not model.beyond(parts[at])]
    seconds, deviations = model.predict(left)
    off = np.abs(np.log(seconds / [stepped.seconds(part) for part in left]))
    assert np.median(off) < model.errors["boosted trees"]
    assert 0.8 < np.mean(off < 1.645 * deviations) < 0.98
    assert np.ptp(deviations) > 0.2 * np.median(deviations)  # not one for all


def test_what_is_said_of_a_row_that_is_left_out_does_not_depend_on_it(stepped):
    """Nor do the parameters of a kernel: found with it, they made what is told of errors too good."""
    parts = parts_of(drawn(12, 1))[:40]
    rows = _Rows.of(parts, [row.stats for row in stepped.table(parts)])
    slower = replace(rows, seconds=rows.seconds * np.where(np.arange(len(parts)) == 7, 1.3, 1.0))
    for model in default_models(parts):
        before, after = (_CrossValidated.of(model, some) for some in (rows, slower))
        assert after.errors[7] - before.errors[7] == pytest.approx(math.log(1.3), abs=1e-9), model.name
        assert after.deviations[7] == before.deviations[7]


def test_a_row_that_cannot_be_of_its_block_is_named_and_not_learnt_from(stepped):
    parts = parts_of(drawn(12, 3))[:80]
    table = stepped.table(parts)
    rows = list(table)
    stats = {name: 100 * value for name, value in vars(rows[7].stats).items() if name.endswith("_s")}
    rows[7] = replace(rows[7], stats=replace(rows[7].stats, **stats))
    faulty = LatencyTable(table.target, table.precision, rows)
    model = FilledRows.fit(faulty, models=gaussian)
    assert list(model.faults) == [rows[7].workload.key]
    assert 50 < model.faults[rows[7].workload.key] < 200
    assert f"not learnt from: {rows[7].workload.key} at 1e+02 times" in model.how
    assert model.count == 79
    sound = FilledRows.fit(table, models=gaussian)
    assert not sound.faults
    assert model.median_error < 2 * sound.median_error


def test_rows_of_one_size_say_nothing_of_another(stepped):
    parts = parts_of(drawn(60, 4))
    frames = {part.input.t for part in parts}
    assert len(frames) > 1
    one = min(frames)
    same = [part for part in parts if part.input.t == one]
    assert len(same) > 40
    filled = interpolated(stepped.table(same[:40]), parts)
    other = next(part for part in parts if part.input.t != one)
    assert other not in filled
    why = filled.explain(other)
    assert f"{other.key} was not measured on local" in why
    assert "too unlike what was: " in why
    assert "hwbench profile --device local" in why
    with pytest.raises(NotMeasured, match="too unlike"):
        filled[other]


def test_a_kind_that_was_not_measured_is_refused(stepped):
    parts = parts_of(drawn(12, 5))
    bodies = [part for part in parts if part.blocks[0].kind == "x3d"]
    head = next(part for part in parts if part.blocks[0].kind == "head")
    filled = interpolated(stepped.table(bodies[:60]), parts)
    assert head not in filled
    assert "kind head was not measured" in filled.explain(head)


def test_a_table_of_which_no_missing_row_is_like_the_measured_ones_is_filled_with_none(stepped):
    """As that of one space, where another space of other kinds is searched."""
    parts = parts_of(drawn(12, 5))
    bodies = [part for part in parts if part.blocks[0].kind == "x3d"]
    heads = [part for part in parts if part.blocks[0].kind == "head"]
    filled = interpolated(stepped.table(bodies[:60]), heads)
    assert not any(head in filled for head in heads)
    assert filled.how == ""


def test_the_variance_of_a_network_adds_copies_and_common_errors(device):
    network = drawn(1, 6)[0]
    first, second, *others = dict.fromkeys(network.parts())
    table = device.table(others)
    copies = [list(network.parts()).count(part) for part in (first, second)]
    total = sum(device.seconds(part) for part in network.parts())
    costs = [n * device.seconds(part) / total for n, part in zip(copies, (first, second))]
    for share in (0.0, 0.3, 1.0):
        filled = FilledTable(
            table, {part: device.seconds(part) for part in (first, second)}, 1.1, "by hand",
            deviations={first: 0.1, second: 0.02}, common_share=share,
        )  # fmt: skip
        off = [cost * deviation for cost, deviation in zip(costs, (0.1, 0.02))]
        expected = share * sum(off) ** 2 + (1 - share) * (off[0] ** 2 + off[1] ** 2)
        assert filled.filled_variance(network.parts()) == pytest.approx(expected)
        low, high = filled[first].ci_low_s, filled[first].ci_high_s
        assert math.log(high / low) == pytest.approx(2 * 1.645 * 0.1, rel=1e-3)
        assert low < filled[first].p10_s < filled[first].p90_s < high
    assert device.table([*others, first, second]).filled_variance(network.parts()) == 0.0


def test_optimal_rows_leave_less_variance_than_random_ones(stepped):
    networks = drawn(40, 7)
    parts = parts_of(networks)
    variances, errors = {}, {}
    for choice in (AOptimal(parts, networks), RandomChoice(parts)):
        rows = parts[:3]
        for count in (37, 40):
            rows = [*rows, *choice.next(stepped.table(rows), count)]
        model = FilledRows.fit(stepped.table(rows), models=gaussian)
        seconds, deviations = model.predict(parts)
        filled = FilledTable(
            stepped.table(rows), dict(zip(parts, seconds)), 1.1, "", deviations=dict(zip(parts, deviations)),
            common_share=model.common_share,
        )  # fmt: skip
        name = type(choice).__name__
        variances[name] = np.mean([filled.filled_variance(network.parts()) for network in networks])
        predicted = [sum(filled[part].median_s for part in network.parts()) for network in networks]
        exact = [sum(stepped.seconds(part) for part in network.parts()) for network in networks]
        off = np.log(np.array(predicted) / exact)
        errors[name] = np.mean(np.abs(off - np.median(off)))
    assert variances["AOptimal"] < 0.6 * variances["RandomChoice"]
    assert errors["AOptimal"] < errors["RandomChoice"]


def test_optimal_rows_are_chosen_before_any_is_measured(device):
    networks = drawn(20, 8)
    parts = parts_of(networks)
    first = AOptimal(parts, networks).next(device.table([]), 10)
    assert len(set(first)) == 10
    assert first == AOptimal(parts, networks).next(device.table([]), 10)


def test_another_precision_stands_in(stepped):
    networks = drawn(24, 9)
    parts = parts_of(networks)

    def in_fp32(part):
        return replace(part, precision=FP32)

    def slower(part):
        return stepped.seconds(part) * (2.0 + 0.5 * (part.blocks[0].activation == "swish"))

    rows = [
        replace(row, workload=in_fp32(row.workload), stats=replace(row.stats, median_s=slower(row.workload)))
        for row in stepped.table(parts[:200])
    ]
    known = LatencyTable(stepped.table([]).target, FP32, rows)
    new = stepped.table(parts[:40])
    filled = transferred(known, new, parts)
    assert filled.how.startswith(f"transferred from {known.target} in fp32 by 40 blocks, 40 of them measured on both")
    left = [part for part in parts[40:] if part in filled]
    assert len(left) > 0.9 * len(parts[40:])
    off = np.abs([math.log(filled[part].median_s / stepped.seconds(part)) for part in left])
    alone = interpolated(new, parts)
    off_alone = [abs(math.log(alone[part].median_s / stepped.seconds(part))) for part in left if part in alone]
    assert np.median(off) < 0.7 * np.median(off_alone)
    assert filled.text == new.text


def encoded(count):
    """Blocks spread over the rows of a large space."""
    parts = list(itertools.islice(MOBILE.parts(INT8, num_classes=400), 0, 12 * count, 12))
    return BlockColumns.of(parts[: count // 2])(parts)


def of_prior(structure, blocks):
    width = blocks.numbers.shape[1] + blocks.names.shape[1]
    means, sds = Kernel.prior(structure, width)
    return Kernel(structure, means + 0.3 * sds * np.random.default_rng(3).normal(size=len(means)))


def test_an_additive_kernel_is_that_of_all_distances_and_does_not_hold_them():
    """On 6000 rows the distances of all fields take 6 GB, on those of x3d-mobile 220 GB."""
    blocks = encoded(600)
    one, kernel = blocks[:450], of_prior(Structure.ADDED, blocks)
    expected = kernel.of_distances(distances(one, blocks))
    tracemalloc.start()
    try:
        covariances = kernel(one, blocks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (covariances == expected).all()
    assert peak < 6 * covariances.nbytes


@pytest.mark.parametrize("structure", Structure)
def test_a_process_is_conditioned_on_so_many_rows_at_most(structure, monkeypatch):
    blocks = encoded(600)
    kernel, measured = of_prior(structure, blocks), np.full(len(blocks), 1e-4)
    values = 0.05 * np.tanh(blocks.numbers - blocks.numbers.mean(axis=0)).mean(axis=1)
    whole = GaussianProcess.conditioned(kernel, blocks, values, measured)
    assert (len(whole.blocks), whole.factor.shape) == (600, (600, 600))
    monkeypatch.setattr(processes, "_ROWS", 200)
    some, again = (GaussianProcess.conditioned(kernel, blocks, values, measured) for _ in range(2))
    assert 190 <= len(some.blocks) == len(some.factor) == len(some.weights) == len(some.noise) <= 200
    assert (some.predict(blocks)[0] == again.predict(blocks)[0]).all()
    off = np.abs(values - some.predict(blocks)[0])
    assert np.median(off) < 0.3 * np.median(np.abs(values))


def test_large_tables_are_filled_by_processes_of_some_of_their_rows(stepped, monkeypatch):
    parts = parts_of(drawn(24, 1))
    whole = FilledRows.fit(stepped.table(parts[:140]), models=gaussian)
    monkeypatch.setattr(processes, "_ROWS", 90)
    model = FilledRows.fit(stepped.table(parts[:140]), models=gaussian)
    assert (model.count, model.name) == (140, whole.name)
    assert whole.median_error < model.median_error < 3 * whole.median_error
