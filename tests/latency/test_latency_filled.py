"""Rows that were not measured, on devices whose law is known: interpolated, and taken over from another device."""

import math

import numpy as np
import pytest

from hwbench.errors import NotMeasured
from hwbench.latency import (
    AdditivePredictor,
    BoostedRows,
    DeviceRatio,
    FilledTable,
    LatencyTable,
    Role,
    context_chains,
    interpolated,
    transferred,
)
from hwbench.latency.transfer import PRIOR
from hwbench.spaces import read_space
from hwbench.specs import Precision, Target
from hwbench.studies.latencies import compile_predictor
from hwbench.workspace import shipped

MOBILE = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
SPACE = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
PHONE = Target("s9", "executorch", "1.5.1", 1)


def drawn(space, count, seed):
    rng = np.random.default_rng(seed)
    return [space.network(space.random(rng), 8).workload(Precision.INT8) for _ in range(count)]


def parts_of(networks):
    return list(dict.fromkeys(part for network in networks for part in network.parts()))


@pytest.fixture
def curved(make_device):
    """A device that no line describes: narrow convolutions run below the full rate, activations differ."""

    class Curved(make_device):
        def seconds(self, workload):
            total = self.start_s + self.convert(workload.input) + self.convert(workload.output)
            for part in workload.parts():
                factor = {"swish": 1.1, "hswish": 1.04}.get(part.blocks[0].activation, 1.0)
                for c in part.blocks[0].operations(part.input):
                    rate = (5e9 if c.groups > 1 else 30e9) * min(1.0, (c.fan_in / 64) ** 0.3)
                    total += factor * (2e-6 + c.macs / rate)
            return total

    return Curved()


@pytest.fixture
def other():
    """Makes a table of another device from one: its families are faster by different ratios."""

    def make(table, ratios, target=PHONE, roles=tuple(Role)):
        from dataclasses import replace

        rows = []
        for row in table:
            if row.role in roles:
                parts = list(row.workload.parts())
                weights = [table.latency(p).median_s for p in parts]
                ratio = np.average([ratios.get(p.blocks[0].kind, 1.0) for p in parts], weights=weights)
                scaled = {n: v * float(ratio) for n, v in vars(row.stats).items() if n.endswith("_s")}
                rows.append(replace(row, stats=replace(row.stats, **scaled)))
        return LatencyTable(target, table.precision, rows)

    return make


def test_rows_are_interpolated_within_their_interval(curved):
    parts = parts_of(drawn(MOBILE, 30, 0))
    order = np.random.default_rng(1).permutation(len(parts))
    known, unknown = [parts[i] for i in order[:200]], [parts[i] for i in order[200:]]
    table = curved.table(known)
    filled = interpolated(table, parts)
    off = [math.log(filled[part].median_s / curved.seconds(part)) for part in unknown]
    assert len(unknown) > 100
    assert not any(filled.is_measured(part) for part in unknown)
    assert np.median(np.abs(off)) < 0.01
    assert 0.8 < np.mean(np.abs(off) <= math.log(filled.filled_spread)) <= 1.0
    assert 1.001 < filled.filled_spread < 1.05
    nearest = [table[min(known, key=lambda k: abs(k.input.numel - p.input.numel))].median_s for p in unknown]
    assert (
        np.median(np.abs(off)) < np.median([abs(math.log(n / curved.seconds(p))) for n, p in zip(nearest, unknown)]) / 4
    )


def test_the_same_table_interpolates_the_same(curved):
    parts = parts_of(drawn(MOBILE, 12, 2))
    table = curved.table(parts[:60])
    one, two = BoostedRows.fit(table), BoostedRows.fit(table)
    assert one.spread == two.spread
    assert one.predict(parts[60:70]).tolist() == two.predict(parts[60:70]).tolist()


def test_too_few_rows_are_not_learned_from(device):
    parts = parts_of(drawn(MOBILE, 12, 2))
    with pytest.raises(NotMeasured, match="has 19 blocks, at least 20 are needed to interpolate"):
        interpolated(device.table(parts[:19]), parts)


def test_what_is_filled_in_is_marked_and_never_written(device):
    parts = parts_of(drawn(MOBILE, 12, 2))
    table = device.table(parts[:50])
    filled = FilledTable(table, dict.fromkeys(parts, 1.0), 1.5, "guessed")
    assert filled.text == table.text
    assert filled.rows(Role.BLOCK) == table.rows(Role.BLOCK)
    assert filled.nearest(parts[60]) == table.nearest(parts[60])
    assert filled[parts[0]] == table[parts[0]]
    assert filled.is_measured(parts[0]) > filled.is_measured(parts[60]) == table.is_measured(parts[60])
    guess = filled[parts[60]]
    assert (guess.median_s, guess.num_sessions, guess.num_samples) == (1.0, 0, 0)
    assert sum(not filled.is_measured(part) for part in parts) == len(parts) - 50
    assert all(part in filled for part in parts)


def test_one_at_a_time_and_all_at_once_agree_on_filled_rows(device):
    parts = list(SPACE.parts(Precision.INT8, num_classes=8))
    networks = drawn(SPACE, 3, 3)
    needed = parts_of(networks)
    table = device.table(dict.fromkeys([*needed, *parts[::2]]), context_chains(needed), networks)
    predictor = AdditivePredictor.fit(interpolated(table, parts))
    assert sum(not predictor.table.is_measured(part) for part in parts) > 4
    codes = SPACE.random_codes(np.random.default_rng(4), 200)
    many = compile_predictor(SPACE, predictor, Precision.INT8, 8).predict_many(codes)
    shares = []
    for at, architecture in enumerate(SPACE.decode(codes)):
        network = SPACE.network(architecture, 8).workload(Precision.INT8)
        one = predictor.predict(network)
        assert (many.seconds[at], many.low_s[at], many.high_s[at]) == pytest.approx(
            (one.seconds, one.low_s, one.high_s), rel=1e-12, abs=0
        )
        whole = all(predictor.table.is_measured(part) for part in network.parts())
        assert (one.measured_share == 1.0) == whole
        assert one.low_s <= device.seconds(network) * 1.02
        assert one.high_s * 1.02 >= device.seconds(network)
        assert one.high_s <= one.seconds * predictor.spread * (1 + 1e-9)
        shares.append(one.measured_share)
    assert min(shares) < 1.0


def test_a_handful_of_shared_rows_carries_a_table_over(device, other):
    networks = drawn(SPACE, 8, 5)
    parts = parts_of([*networks, *drawn(SPACE, 30, 6)])
    known = device.table(parts, context_chains(parts), networks)
    truth = other(known, {"stem": 0.5, "x3d": 0.6, "head": 0.9})
    few = {part.key for part in [parts[0], *parts[1:8], *[p for p in parts if p.blocks[0].kind == "head"][:4]]}
    keys = few | {network.key for network in networks[:5]}
    new = LatencyTable(PHONE, Precision.INT8, [row for row in truth if row.workload.key in keys])
    ratio = DeviceRatio.fit(known, new)
    assert ratio.common == pytest.approx(0.6)
    assert 0.75 < ratio.families["head global"] < 0.9  # a few rows, shrunk by one
    assert [r for name, r in ratio.families.items() if "x3d" in name] == pytest.approx([0.6, 0.6])
    filled = transferred(known, new)
    off = [abs(math.log(filled[p].median_s / truth[p].median_s)) for p in parts if p.key not in few]
    assert max(off) < 0.1
    assert np.mean(np.array(off) <= math.log(filled.filled_spread)) >= 0.9
    predictor = AdditivePredictor.fit(filled)
    for network in networks[5:]:
        estimate = predictor.predict(network)
        assert estimate.low_s <= truth[network].median_s <= estimate.high_s
        assert estimate.seconds == pytest.approx(truth[network].median_s, rel=0.1)
        assert estimate.measured_share < 0.9


@pytest.fixture
def scattered(device):
    """Makes a table of so many of its blocks, and one of another device by ratios that scatter around one."""

    def make(count, seed, deviation=0.15):
        known = device.table(parts_of(drawn(MOBILE, 8, 5))[:count])
        ratios = np.random.default_rng([seed, count]).normal(math.log(2), deviation, count)
        rows = [row.times(math.exp(ratio)) for row, ratio in zip(known, ratios, strict=True)]
        return known, LatencyTable(PHONE, Precision.INT8, rows)

    return make


@pytest.mark.parametrize("shared", [1, 2, 3, 5, 8])
def test_ratios_of_a_few_shared_blocks_hold_for_nine_others_in_ten(scattered, shared):
    covered = []
    for seed in range(30):
        known, new = scattered(40, seed)
        few = np.random.default_rng(seed).permutation([row.workload.key for row in new])[:shared]
        ratio = DeviceRatio.fit(known, LatencyTable(PHONE, Precision.INT8, [r for r in new if r.workload.key in few]))
        assert ratio.count == shared
        others = [row for row in new if row.workload.key not in few]
        off = [row.stats.median_s / known[row.workload].median_s / ratio(row.workload) for row in others]
        covered += [1 / ratio.spread <= one <= ratio.spread for one in off]
    assert 0.85 <= np.mean(covered) <= 0.97


def test_one_shared_block_says_nothing_of_how_far_others_are_off(scattered):
    (one, other) = (DeviceRatio.fit(*scattered(1, 0, deviation)) for deviation in (0.0, 1.0))
    assert one.common == pytest.approx(2)
    assert other.common != pytest.approx(2, rel=0.05)
    assert one.spread == other.spread == PRIOR.spread(0.9)


@pytest.mark.parametrize("shared", [9, 10, 19, 24])
def test_the_spread_of_many_shared_blocks_is_the_quantile_of_those_left_out(scattered, shared):
    known, new = scattered(shared, 0)
    off = []
    for row in new:
        left = DeviceRatio.fit(known, new.without([row.workload]))
        off.append(abs(math.log(row.stats.median_s / known[row.workload].median_s / left(row.workload))))
    rank = math.ceil(0.9 * (shared + 1))
    assert DeviceRatio.fit(known, new).spread == pytest.approx(math.exp(sorted(off)[rank - 1]), rel=1e-9)


def test_three_networks_alone_carry_a_table_over(device, other):
    networks = drawn(SPACE, 12, 7)
    parts = parts_of(networks)
    known = device.table(parts, context_chains(parts), networks)
    truth = other(known, dict.fromkeys(("stem", "x3d", "head"), 0.4), roles=(Role.NETWORK,))
    new = LatencyTable(PHONE, Precision.INT8, truth.rows(Role.NETWORK)[:3])
    predictor = AdditivePredictor.fit(transferred(known, new))
    assert "no block measured on both" in predictor.table.how
    for network in networks:
        estimate = predictor.predict(network)
        assert estimate.seconds == pytest.approx(truth[network].median_s, rel=0.01)
        assert estimate.measured_share == 0.0


def test_nothing_measured_on_the_new_device_predicts_nothing(device):
    networks = drawn(SPACE, 5, 7)
    known = device.table(parts_of(networks), (), networks)
    with pytest.raises(NotMeasured, match="0 calibration networks"):
        AdditivePredictor.fit(transferred(known, LatencyTable(PHONE, Precision.INT8, [])))
