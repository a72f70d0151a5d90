"""Calibration on made-up networks whose law is known."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from hwbench.errors import InvalidValue
from hwbench.latency import AdditivePredictor, Calibration, context_chains, macs
from hwbench.latency.calibration import Observation, Piece, family, operators, weights, working_set
from hwbench.spaces import read_space
from hwbench.specs import BlockSpec, Precision, TensorSpec, Workload
from hwbench.workspace import shipped

MOBILE = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
GAINS = {"stem": 1.0, "a": 0.9, "b": 1.1, "c": 1.25, "head": 1.0}


def total(pieces):
    return sum(p.seconds for p in pieces)


LAWS = {
    "ratio": lambda pieces: 1.1 * total(pieces),
    "affine": lambda pieces: 1.05 * total(pieces) + 1e-3,
    "blocks": lambda pieces: 1.05 * total(pieces) + 1e-4 - 4e-5 * len(pieces),
    "weights": lambda pieces: 1.05 * total(pieces) + 3e-10 * sum(p.weights for p in pieces) - 3e-4,
    "caches": lambda pieces: (
        1.05 * total(pieces) + sum(3e-10 * p.weights + 4e-11 * p.working_set for p in pieces) - 3e-4
    ),
    "operators": lambda pieces: 1.05 * total(pieces) + 3e-5 * sum(p.operators for p in pieces),
    "families": lambda pieces: sum(GAINS[p.family] * p.seconds for p in pieces),
}


def networks(rng, count, law, noise=0.01):
    """Networks of 6 to 27 blocks, some of one family and some of several."""
    found = []
    for _ in range(count):
        size = math.exp(rng.uniform(math.log(1e-4), math.log(1e-3)))
        inner = rng.choice(3, p=rng.dirichlet([0.7] * 3), size=int(rng.integers(4, 26)))
        weights = np.random.default_rng([count, len(found)]).integers(10_000, 400_000, len(inner)).tolist()
        touched = np.random.default_rng([count, len(found), 1]).integers(100_000, 4_000_000, len(inner)).tolist()
        middle = [
            Piece("abc"[f], size * math.exp(rng.normal(0, 0.4)), int(rng.choice([3, 5])), w, b)
            for f, w, b in zip(inner.tolist(), weights, touched)
        ]
        pieces = (Piece("stem", 2 * size, 2), *middle, Piece("head", 5e-4, 3, 1_000_000))
        found.append(Observation(law(pieces) * math.exp(rng.normal(0, noise)), pieces))
    return found


def predicted(calibration, network):
    seconds = calibration.constant_s
    for piece in network.pieces:
        gain = calibration.gains.get(piece.family, calibration.gain)
        counts = dict(zip(("blocks", "operators", "weights", "bytes"), piece.counts))
        seconds += gain * piece.seconds + sum(cost * counts[name] for name, cost in calibration.terms.items())
    return seconds


def errors(calibration, fresh):
    return [math.log(network.measured_s / predicted(calibration, network)) for network in fresh]


@pytest.mark.parametrize("law", LAWS)
def test_every_law_is_followed_when_there_are_enough_networks(law):
    rng = np.random.default_rng(2)
    calibration = Calibration.of(networks(rng, 40, LAWS[law]))
    assert (calibration.form == "families") == (law == "families")
    assert calibration.describe().startswith(f"{calibration.form}: ")
    assert "from 40 networks; mean error left out: ratio" in calibration.describe()
    assert np.median(np.abs(errors(calibration, networks(rng, 50, LAWS[law])))) < 0.013


@pytest.mark.parametrize(
    "law",
    ["affine", "operators", *(pytest.param(law, marks=pytest.mark.long) for law in ("blocks", "weights", "caches"))],
)
def test_more_networks_are_never_worse_than_few(law):
    rng = np.random.default_rng(8)
    fresh = networks(rng, 60, LAWS[law], noise=0)

    def off(count):
        few = [Calibration.of(networks(np.random.default_rng([8, deal]), count, LAWS[law])) for deal in range(6)]
        return np.mean([np.median(np.abs(errors(calibration, fresh))) for calibration in few])

    assert off(40) < off(16) < off(5)


def test_parameters_are_those_of_the_law():
    rng = np.random.default_rng(3)
    weights = Calibration.of(networks(rng, 150, LAWS["weights"]))
    assert weights.terms["weights"] == pytest.approx(3e-10, rel=0.15)
    assert weights.constant_s < 0  # a million weights stay in the caches
    assert re.search(
        r" rows .*(2[5-9]|3[0-3])\d µs a million weights.* - \d+ µs, from 150 networks", weights.describe()
    )
    operators = Calibration.of(networks(rng, 150, LAWS["operators"]))
    assert operators.terms["operators"] == pytest.approx(3e-5, rel=0.2)
    families = Calibration.of(networks(rng, 60, LAWS["families"]))
    assert {name: families.gains[name] for name in "abc"} == pytest.approx({"a": 0.9, "b": 1.1, "c": 1.25}, abs=0.05)
    assert 0.9 < families.gain < 1.25  # what a family that no network had is taken for


@pytest.mark.parametrize("form", LAWS)
def test_the_order_of_the_networks_makes_no_difference(form):
    rng = np.random.default_rng(4)
    found = networks(rng, 36, LAWS[form], noise=0.02)
    order = rng.permutation(36)
    one, other = Calibration.of(found), Calibration.of([found[i] for i in order])
    assert replace(one, errors=()) == replace(other, errors=())
    assert [one.errors[i] for i in order] == list(other.errors)


@pytest.mark.parametrize("form", LAWS)
def test_one_bad_network_moves_little(form):
    rng = np.random.default_rng(5)
    found = networks(rng, 40, LAWS[form])
    found[7] = replace(found[7], measured_s=2 * found[7].measured_s)
    calibration = Calibration.of(found)
    assert np.median(np.abs(errors(calibration, networks(rng, 50, LAWS[form])))) < 0.015
    assert calibration.spread < 1.06


def test_no_gain_is_below_zero_and_no_block_is_free():
    rng = np.random.default_rng(6)

    def law(pieces):  # family a costs nothing inside a network, and every block less than its row
        return total(p for p in pieces if p.family != "a") + 5e-4 - 6e-5 * len(pieces)

    calibration = Calibration.of([n for n in networks(rng, 60, law) if n.measured_s > 0])
    assert min([*calibration.gains.values(), calibration.gain]) >= 0
    assert calibration.constant_s >= 0
    part = next(iter(MOBILE.parts(Precision.INT8, num_classes=8)))
    assert calibration.cost(part, 1e-9) > 0


def test_the_interval_holds_nine_of_ten_whatever_the_form():
    rng = np.random.default_rng(7)
    shares = []
    counts = {"ratio": 12, "affine": 22, "blocks": 24, "operators": 20, "weights": 25, "caches": 30, "families": 36}
    for form, count in list(counts.items()) * 4:
        calibration = Calibration.of(networks(rng, count, LAWS[form], noise=0.02))
        off = errors(calibration, networks(rng, 100, LAWS[form], noise=0.02))
        shares.append(np.mean(np.abs(off) <= math.log(calibration.spread)))
    assert 0.87 < np.mean(shares) < 0.95


def test_one_network_checks_nothing():
    with pytest.raises(InvalidValue, match="at least 2 networks, got 1"):
        Calibration.fit([(1.0, 1.0)])


def test_families_and_operators_of_blocks():
    parts = list(MOBILE.network(MOBILE.random(np.random.default_rng(1)), 8).workload(Precision.INT8).parts())
    assert [family(parts[0]), family(parts[-1])] == ["stem 1x3x3+5x1x1", "head global"]
    assert {family(p) for p in parts[1:-1]} <= {"x3d 3x3x3", "x3d 1x3x3", "x3d 1x3x3+3x1x1"}
    assert operators(parts[-1]) == 3
    strange = Workload((replace(parts[0].blocks[0], kind="other"),), parts[0].input)
    assert operators(strange) == 1
    assert weights(strange) == 0
    assert working_set(strange) == 0
    assert weights(parts[0]) == sum(c.num_weights for c in parts[0].blocks[0].operations(parts[0].input)) > 0


@pytest.mark.parametrize(("precision", "value_bytes"), [(Precision.FP32, 4), (Precision.INT8, 1)])
def test_a_working_set_is_all_weights_and_the_largest_convolution_up_to_what_a_cache_holds(precision, value_bytes):
    block = BlockSpec("x3d", 8, 16, mid_channels=32, kernel=((3, 3, 3),), stride=2, activation="relu")
    part = Workload((block,), TensorSpec(1, 8, 4, 20, 20), precision)
    expanded, halved = 4 * 20 * 20 * 32, 4 * 10 * 10 * 32
    assert working_set(part) == value_bytes * (expanded + max(4 * 20 * 20 * 8, halved) + weights(part))
    large = Workload((block,), TensorSpec(1, 8, 16, 160, 160), precision)
    assert working_set(large) == 4 << 20


def test_a_space_whose_kernels_gain_differently_inside_networks_is_predicted(make_device):
    class Device(make_device):
        def seconds(self, workload):
            alone = super().seconds(workload)
            if len(workload.blocks) <= 5:
                return alone
            extra = {((1, 3, 3),): 0.3, ((3, 3, 3),): -0.15}
            return alone + sum(extra.get(p.blocks[0].kernel, 0.0) * macs(p) / 20e9 for p in workload.parts())

    rng = np.random.default_rng(8)
    networks = [MOBILE.network(MOBILE.random(rng), 8).workload(Precision.INT8) for _ in range(45)]
    drawn, fresh = networks[:36], networks[36:]
    parts = list(dict.fromkeys(part for network in [*drawn, *fresh] for part in network.parts()))
    device = Device()
    predictor = AdditivePredictor.fit(device.table(parts, context_chains(parts), drawn))
    off = [predictor.predict(n).seconds / device.seconds(n) - 1 for n in fresh]
    assert predictor.calibration.form == "families"
    assert max(map(abs, off)) < 0.05


def test_a_network_that_is_left_out_is_left_out_of_everything():
    kept = networks(np.random.default_rng(9), 24, LAWS["weights"])
    *others, last = kept
    # Fewest weights, most blocks of all for its seconds, and a family that no other network has.
    strange = replace(
        last,
        pieces=tuple(replace(piece, family="z", weights=1, working_set=1) for piece in last.pieces),
        measured_s=3 * last.measured_s,
    )
    by_others = Calibration.of(others)
    assert by_others.form != "ratio"
    for network in (last, strange):
        assert Calibration.of([*others, network]).errors[-1] == pytest.approx(errors(by_others, [network])[0], abs=1e-9)
