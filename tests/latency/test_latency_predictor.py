import math
from collections import Counter

import numpy as np
import pytest

from hwbench.errors import InvalidValue, NotMeasured
from hwbench.latency import (
    AdditivePredictor,
    BoundaryModel,
    Calibration,
    FilledTable,
    LatencyTable,
    Position,
    calibration_networks,
    context_chains,
    macs,
)
from hwbench.latency.boundary import _by_size, _Difference
from hwbench.latency.plan import informative
from hwbench.latency.probes import CHAIN_LENGTH, is_boundary_probe
from hwbench.spaces import read_space
from hwbench.specs import Precision, Workload
from hwbench.workspace import shipped

SPACE = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
MOBILE = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
PARTS = list(SPACE.parts(Precision.INT8, num_classes=8))
CHAINS = context_chains(PARTS)
NETWORKS = [n.workload(Precision.INT8) for n in calibration_networks(SPACE, 10, 0, 8)]


def fresh(count: int, seed: int = 5) -> list[Workload]:
    rng = np.random.default_rng(seed)
    return [SPACE.network(SPACE.random(rng), 8).workload(Precision.INT8) for _ in range(count)]


def test_every_activation_between_blocks_has_a_probe_alone_and_a_chain_of_them():
    inner = {p.input for w in fresh(200) for p in list(w.parts())[1:]}
    assert len(set(CHAINS)) == len(CHAINS) == 2 * len(inner)
    for length in (1, CHAIN_LENGTH):
        assert {c.input for c in CHAINS if len(c.blocks) == length} == inner
    for chain in CHAINS:
        assert is_boundary_probe(chain)
        assert {p.output for p in chain.parts()} == {chain.input}
        assert macs(chain) == len(chain.blocks) * chain.input.numel
    assert not any(is_boundary_probe(w) for w in (*PARTS, *NETWORKS))


def test_few_boundaries_are_spread_over_their_sizes():
    parts = list(MOBILE.parts(Precision.INT8, num_classes=8))
    every, few = context_chains(parts), context_chains(parts, 10)
    assert len(few) == 20 < len(every)
    assert set(few) < set(every)
    sizes, all_sizes = [w.input.numel for w in few[::2]], sorted(w.input.numel for w in every[::2])
    assert sizes == sorted(sizes)
    assert [sizes[0], sizes[-1]] == [all_sizes[0], all_sizes[-1]]
    assert context_chains(parts, 10_000) == every


def test_precisions_have_chains_of_their_own():
    both = PARTS + list(SPACE.parts(Precision.FP32, num_classes=8))
    assert len(context_chains(both)) == 2 * len(CHAINS)
    with pytest.raises(InvalidValue, match="single blocks"):
        context_chains(CHAINS)


def test_calibration_networks_are_different_spread_and_repeatable():
    networks = calibration_networks(SPACE, 12, 3, 8)
    again = calibration_networks(SPACE, 12, 3, 8)
    sizes = [macs(n.workload(Precision.INT8)) for n in networks]
    assert networks == again
    assert len({n.name for n in networks}) == 12
    assert sizes == sorted(sizes)
    assert sizes[-1] > 2 * sizes[0]
    assert calibration_networks(SPACE, 12, 4, 8) != networks
    assert len(calibration_networks(MOBILE, 4, 0, 400)) == 4


def test_boundaries_are_found_exactly(device):
    boundary = BoundaryModel.fit(device.table(PARTS, CHAINS))
    for x in {chain.input for chain in CHAINS}:
        assert boundary(x) == pytest.approx(device.start_s + 2 * device.convert(x), rel=1e-9)
    strange = CHAINS[0].input.with_(t=5, h=40, w=40)
    assert boundary(strange) == pytest.approx(device.start_s + 2 * device.convert(strange), rel=1e-6)


def test_boundaries_that_no_chain_was_measured_for_cost_what_those_of_their_size_do():
    x = PARTS[3].input
    sizes = {100: 1e-6, 200: 2e-6, 300: 9e-6, 400: 8e-6, 500: 20e-6}  # beyond 200 nothing fits the caches

    def shape(values):
        return x.with_(c=1, t=1, h=values // 10, w=10)

    by_size = _by_size({shape(size): _Difference(seconds, 1e-6) for size, seconds in sizes.items()})
    of = [BoundaryModel({}, by_size)(shape(values)) for values in range(10, 1010, 10)]
    assert of == sorted(of)
    assert [of[14], of[4], of[99]] == pytest.approx([1.5e-6, 0.5e-6, 40e-6])
    assert [of[29], of[34], of[39]] == pytest.approx([8.5e-6] * 3, rel=1e-3)  # no less for more
    assert BoundaryModel({x: 1e-6}, ((x.numel, 1e-6),))(x.with_(t=2 * x.t)) == pytest.approx(2e-6)


def test_a_boundary_is_believed_as_far_as_its_chain_is_exact():
    exact, loose = _Difference(4e-6, 1e-9), _Difference(4e-6, 1e-3)
    assert exact.drawn_to(1e-6) == pytest.approx(4e-6, rel=1e-3)
    assert loose.drawn_to(1e-6) == pytest.approx(1e-6, rel=1e-3)
    assert _Difference(4e-6, 0.5e-6).drawn_to(1e-6) == pytest.approx(2.5e-6)  # as far off as shapes differ
    assert _Difference(-9e-6, 1e-9).drawn_to(1e-6) == 0.0
    x = PARTS[3].input.with_(c=1, t=1, h=10, w=10)
    good, bad = _Difference(1e-6, 1e-8), _Difference(-50e-6, 1e-5)
    larger = x.with_(t=2 * x.t)
    assert dict(_by_size({x: good, larger: bad}))[larger.numel] == pytest.approx(1e-6, rel=0.1)


def test_without_chains_boundaries_cost_nothing_and_noise_below_zero_counts_as_zero(device):
    assert BoundaryModel.fit(device.table(PARTS))(PARTS[3].input) == 0.0

    class Strange(type(device)):
        def seconds(self, workload):
            return super().seconds(workload) * (2 if len(workload.blocks) > 1 else 1)

    boundary = BoundaryModel.fit(Strange().table(PARTS, CHAINS))
    assert min(boundary(p.input) for p in PARTS) >= 0.0


def test_a_row_keeps_a_share_of_its_own_time(device):
    boundary = BoundaryModel({p.output: 1.0 for p in PARTS} | {p.input: 1.0 for p in PARTS})
    assert boundary.in_context(PARTS[5], 1e-3, first=False, last=False) == pytest.approx(0.2e-3)


def test_an_additive_device_is_predicted_exactly_whole_networks_never_seen(device):
    predictor = AdditivePredictor.fit(device.table(PARTS, CHAINS, NETWORKS))
    assert predictor.calibration.form == "ratio"
    assert predictor.calibration.gain == pytest.approx(1.0, rel=1e-9)
    for network in fresh(30):
        estimate = predictor.predict(network)
        assert estimate.seconds == pytest.approx(device.seconds(network), rel=1e-9)
        assert estimate.low_s <= estimate.seconds <= estimate.high_s
        assert estimate.measured_share == 1.0


def test_isolated_rows_alone_overestimate(device):
    # what the chains buy: with boundaries counted once for every block, small networks come out too slow
    rows = device.table(PARTS, (), NETWORKS)
    plain = AdditivePredictor.fit(rows)
    context = AdditivePredictor.fit(device.table(PARTS, CHAINS, NETWORKS))

    def worst(predictor):
        return max(abs(predictor.predict(n).seconds / device.seconds(n) - 1) for n in fresh(30))

    assert plain.calibration.gain < 0.95
    assert worst(context) < 1e-6 < 0.01 < worst(plain)


def test_the_ratio_takes_up_what_single_blocks_do_not_show(make_device):
    device = make_device(in_networks=1.1)
    predictor = AdditivePredictor.fit(device.table(PARTS, CHAINS, NETWORKS))
    assert 1.05 < predictor.calibration.gain < 1.1
    errors = [predictor.predict(n).seconds / device.seconds(n) - 1 for n in fresh(30)]
    assert max(map(abs, errors)) < 0.02


def test_row_costs_and_the_constant_add_up_to_the_prediction(device):
    predictor = AdditivePredictor.fit(device.table(PARTS, CHAINS, NETWORKS))
    for network in fresh(5):
        parts = list(network.parts())
        costs = [predictor.row_cost(p, Position.of(i, len(parts))) for i, p in enumerate(parts)]
        assert sum(costs) + predictor.constant_s == pytest.approx(predictor.predict(network).seconds, rel=1e-12)


def test_all_missing_rows_are_named_with_the_command(device, target):
    table = device.table(PARTS, CHAINS, NETWORKS)
    network = SPACE.network(SPACE.random(np.random.default_rng(0)), 9).workload(Precision.INT8)
    lacking = LatencyTable(target, Precision.INT8, [r for r in table if r.workload != PARTS[1]])
    deep = next(n for n in fresh(100) if PARTS[1] in set(n.parts()))
    predictor = AdditivePredictor.fit(lacking, space="x3d-tiny")
    with pytest.raises(NotMeasured, match=r"1 of .* rows are missing") as caught:
        predictor.predict(deep)
    assert PARTS[1].key in str(caught.value)
    assert "hwbench profile --device local --space x3d-tiny --precision int8" in str(caught.value)
    with pytest.raises(NotMeasured, match="head_i"):
        predictor.predict(network)
    with pytest.raises(NotMeasured, match="--space x3d-tiny"):
        predictor.row_cost(PARTS[1], Position.INNER)
    asked = AdditivePredictor.fit(lacking, space="x3d-tiny", classes=20)
    for wrong in (lambda: asked.predict(deep), lambda: asked.row_cost(PARTS[1], Position.INNER)):
        with pytest.raises(NotMeasured, match="--precision int8 --classes 20"):
            wrong()
    with pytest.raises(NotMeasured, match=r"are needed; measure them: .* --classes 20"):
        AdditivePredictor.fit(device.table(PARTS, CHAINS, NETWORKS[:2]), space="x3d-tiny", classes=20)


def test_without_calibration_networks_nothing_is_promised(device):
    with pytest.raises(NotMeasured, match="has 2 calibration networks, at least 3"):
        AdditivePredictor.fit(device.table(PARTS, CHAINS, NETWORKS[:2]))


def test_networks_without_rows_of_their_blocks_are_told(device):
    with pytest.raises(
        NotMeasured, match="has 0 calibration networks and 10 whose blocks have no rows, at least 3 are"
    ):
        AdditivePredictor.fit(device.table([], [], NETWORKS[:10]))


def test_a_space_with_two_members_is_calibrated_by_both(device):
    """Where one of them is left out twice, nothing is left: no warning, and a finite interval."""
    predictor = AdditivePredictor.fit(device.table(PARTS, CHAINS, NETWORKS[:2]), members=2)
    assert math.isfinite(predictor.predict(NETWORKS[0]).high_s)


def test_the_command_for_calibration_networks_has_the_classes_of_the_heads(device):
    parts = list(SPACE.parts(Precision.INT8, num_classes=9))
    with pytest.raises(NotMeasured, match=r"hwbench profile .* --classes 9$"):
        AdditivePredictor.fit(device.table(parts, [], []))


def test_what_a_filled_block_is_off_counts_by_the_copies_that_one_network_has_more_of(device):
    networks = fresh(60)
    first = max(networks, key=lambda network: max(Counter(network.parts()).values()))
    ((part, copies),) = Counter(first.parts()).most_common(1)
    assert copies == 3
    others = [next(one for one in networks if Counter(one.parts())[part] == count) for count in range(3)]
    table = device.table([one for one in PARTS if one != part], CHAINS, NETWORKS)

    def log_squared(deviation, other):
        filled = FilledTable(table, {part: device.seconds(part)}, math.exp(1.6449 * deviation), "by hand")
        predictor = AdditivePredictor.fit(filled)
        here, there = (predictor.predict(one).seconds for one in (first, other))
        ahead, back = predictor.difference(first, other), predictor.difference(other, first)
        assert math.log((back.high_s + here) / there) == pytest.approx(math.log((ahead.high_s + there) / here))
        return math.log((ahead.high_s + there) / here) ** 2

    widened = [log_squared(0.3, other) - log_squared(0.0, other) for other in [*others, first]]
    assert widened[0] > 1e-3
    assert widened == pytest.approx([widened[0] * (more / copies) ** 2 for more in (3, 2, 1, 0)])


def test_emulated_rows_predict_no_real_latency(device, target):
    table = LatencyTable(target, Precision.INT8, device.table(PARTS, CHAINS, NETWORKS), emulated=True)
    with pytest.raises(InvalidValue, match="under emulation"):
        AdditivePredictor.fit(table)
    assert AdditivePredictor.fit(table, emulated=True).calibration.gain > 0


def noisy(rng, count, gain=1.1, constant=0.0, noise=0.02):
    rows = rng.uniform(1e-3, 1e-2, count)
    return [(r, (gain * r + constant) * math.exp(rng.normal(0, noise))) for r in rows]


def test_the_interval_covers_what_it_promises():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        calibration = Calibration.fit(noisy(rng, 12))
        for rows, measured in noisy(rng, 5):
            predicted = calibration.gain * rows + calibration.constant_s
            covered.append(abs(math.log(measured / predicted)) <= math.log(calibration.spread))
    assert 0.87 < sum(covered) / len(covered) < 0.96


def test_a_constant_is_found_by_few_networks_and_told_by_many():
    rng = np.random.default_rng(1)
    assert Calibration.fit(noisy(rng, 3, constant=2e-3)).form == "ratio"
    few, many = (Calibration.fit(noisy(rng, count, constant=2e-3)) for count in (8, 200))
    assert 0 < few.constant_s < 2e-3
    assert many.constant_s == pytest.approx(2e-3, rel=0.1)
    assert many.gain == pytest.approx(1.1, rel=0.05)
    assert abs(Calibration.fit(noisy(rng, 200)).constant_s) < 1e-4
    assert Calibration.fit(noisy(rng, 40, constant=-5e-4)).constant_s == 0.0


def test_few_networks_that_agree_by_luck_do_not_promise_more_than_the_prior_allows():
    agreed = Calibration.fit([(1.0, 1.0), (1.0, 1.001), (1.0, 0.999), (1.0, 1.0)])
    assert agreed.promised == 0.9
    assert 1.03 < agreed.spread < 1.05  # two degrees of freedom of 2.5 %, three of nothing
    many = Calibration.fit([(1.0, 1.0), (1.0, 1.001), (1.0, 0.999), (1.0, 1.0)] * 10)
    assert 1.005 < many.spread < 1.015  # by now the networks say more


@pytest.mark.parametrize("count", [3, *(pytest.param(n, marks=pytest.mark.long) for n in (4, 5, 8))])
def test_with_few_networks_the_interval_covers_nine_in_ten_of_devices_as_they_are(count):
    rng = np.random.default_rng(count)
    covered = []
    for _ in range(600):
        noise = float(rng.choice([0.012, 0.02, 0.03, 0.04]))  # of machines that were measured: 1.7 to 4.6 %
        calibration = Calibration.fit(noisy(rng, count, noise=noise))
        ((rows, measured),) = noisy(rng, 1, noise=noise)
        covered.append(abs(math.log(measured / (calibration.gain * rows))) <= math.log(calibration.spread))
    assert 0.85 < np.mean(covered) < 0.97


def test_chosen_networks_determine_a_fit_better_than_drawn_ones():
    rng = np.random.default_rng(3)
    shares = rng.dirichlet([1.0] * 5, size=600)
    features = np.column_stack([shares, rng.lognormal(0, 0.7, 600)])

    def information(rows):
        return np.linalg.slogdet(features[rows].T @ features[rows])[1]

    chosen = informative(features, np.array_split(np.arange(600), 20))
    assert [row // 30 for row in chosen] == list(range(20))
    assert information(chosen) > max(information(rng.choice(600, 20, replace=False)) for _ in range(200))
    # a random choice needs more than twice as many for as much
    assert information(chosen) > np.median([information(rng.choice(600, 40, replace=False)) for _ in range(50)])
