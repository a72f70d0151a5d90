"""Predictions of many networks at once against the predictor asked about one after another."""

import hashlib
import math
from statistics import NormalDist

import numpy as np
import pytest

from hwbench.errors import NotMeasured
from hwbench.latency import AdditivePredictor, LatencyTable, Role
from hwbench.latency.filled import FilledTable
from hwbench.spaces import read_space
from hwbench.specs import Precision
from hwbench.studies.latencies import compile_predictor, feasible_set, space_latencies
from hwbench.studies.settings import Settings
from hwbench.testing.tables import CLASSES, space_table, work
from hwbench.workspace import shipped

SPACE = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
TABLE = space_table(SPACE, Precision.INT8)


def workload(architecture):
    return SPACE.network(architecture, CLASSES).workload(Precision.INT8)


@pytest.mark.parametrize("name", ["slow-mobile", "slowfast-mobile"])
def test_what_stands_where_in_a_network_is_told_alike(name):
    """Several blocks stand before the first stage of SlowFast; one of them is the first of the network."""
    space = read_space(shipped() / "search_spaces" / f"{name}.toml")

    def with_conversions(workload) -> float:
        return work(workload) + 1e-9 * (workload.input.numel + workload.output.numel)

    predictor = AdditivePredictor.fit(space_table(space, Precision.INT8, with_conversions), space=name)
    compiled = compile_predictor(space, predictor, Precision.INT8, CLASSES)
    networks = [space.random(np.random.default_rng(seed)) for seed in range(8)]
    alone = [predictor.predict(space.network(one, CLASSES).workload(Precision.INT8)).seconds for one in networks]
    assert compiled.predict_many(space.encode(networks)).seconds == pytest.approx(alone, rel=1e-12)


def test_a_thousand_at_once_are_those_one_at_a_time():
    predictor = AdditivePredictor.fit(TABLE)
    compiled = compile_predictor(SPACE, predictor, Precision.INT8, CLASSES)
    codes = SPACE.random_codes(np.random.default_rng(0), 1000)
    found = compiled.predict_many(codes)
    for at, architecture in enumerate(SPACE.decode(codes)):
        one = predictor.predict(workload(architecture))
        given = (found.seconds[at], found.low_s[at], found.high_s[at])
        assert given == pytest.approx((one.seconds, one.low_s, one.high_s), rel=1e-12, abs=0)


def test_what_lacks_a_row_is_infinite_at_once_and_an_error_alone():
    block = [row.workload for row in TABLE.rows(Role.BLOCK) if row.workload.blocks[0].kind == "x3d"][3]
    rows = [row for row in TABLE if row.workload != block]
    predictor = AdditivePredictor.fit(LatencyTable(TABLE.target, TABLE.precision, rows))
    codes = SPACE.random_codes(np.random.default_rng(1), 3000)
    found = compile_predictor(SPACE, predictor, Precision.INT8, CLASSES).predict_many(codes)
    lacking = np.flatnonzero(np.isinf(found.seconds))
    assert 0 < len(lacking) < 3000
    assert all(block in set(workload(a).parts()) for a in SPACE.decode(codes[lacking]))
    with pytest.raises(NotMeasured):
        predictor.predict(workload(SPACE.decode(codes[lacking[:1]])[0]))


def settings(budget_s: float, confidence: float) -> Settings:
    return Settings("x3d-tiny", "", TABLE.target.key, "int8", 1e3 * budget_s, CLASSES, confidence=confidence)


def uneven(seed: int):
    """A law of latency with an error for each whole network, which no table of blocks can know."""

    def law(workload) -> float:
        if len(workload.blocks) < 5:
            return work(workload)
        digest = hashlib.sha256(f"{seed} {workload.key}".encode()).digest()
        uniform = (int.from_bytes(digest[:6]) + 0.5) / 2**48
        return work(workload) * math.exp(0.05 * NormalDist().inv_cdf(uniform))

    return law


def test_networks_are_within_the_budget_as_often_as_the_confidence_says():
    """At the edge of the set, where optima lie: by prediction alone, about half are above the budget."""
    shares = {0.5: [], 0.9: []}
    for seed in range(6):
        law = uneven(seed)
        predictor = AdditivePredictor.fit(space_table(SPACE, Precision.INT8, law, calibration=19))
        for confidence, found in shares.items():
            feasible = feasible_set(SPACE, predictor, settings(4.5e-3, confidence))
            rng = np.random.default_rng(seed)
            drawn = [feasible.draw(rng, (0.98, 1.0)) for _ in range(60)]
            found.append(np.mean([law(workload(a)) <= 4.5e-3 for a in drawn]))
    assert 0.35 < np.mean(shares[0.5]) < 0.75
    assert np.mean(shares[0.9]) >= 0.88


def test_a_confidence_takes_a_margin_on_everything():
    predictor = AdditivePredictor.fit(space_table(SPACE, Precision.INT8, uneven(1), calibration=19))
    plain = space_latencies(SPACE, predictor, Precision.INT8, CLASSES)
    sure = space_latencies(SPACE, predictor, Precision.INT8, CLASSES, 0.9)
    margin = predictor.calibration.margin(0.9)
    assert 1.01 < margin < predictor.calibration.spread
    codes = SPACE.random_codes(np.random.default_rng(0), 50)
    assert sure.totals(codes) == pytest.approx(margin * plain.totals(codes))
    assert predictor.calibration.margin(0.5) == pytest.approx(1.0)
    assert predictor.calibration.margin(0.999) > max(map(math.exp, predictor.calibration.errors))


def test_rows_that_were_filled_count_with_the_end_of_their_interval():
    rows = list(TABLE.rows(Role.BLOCK))
    kept = [row for at, row in enumerate(rows) if at % 5 or row.workload.blocks[0].kind != "x3d"]
    others = [row for row in TABLE if row.role is not Role.BLOCK]
    part = LatencyTable(TABLE.target, TABLE.precision, [*kept, *others])
    lost = [row.workload for row in rows if row not in kept]
    filled = FilledTable(part, {w: work(w) for w in lost}, 1.25, "by hand")
    predictor = AdditivePredictor.fit(filled)
    plain = space_latencies(SPACE, predictor, Precision.INT8, CLASSES)
    sure = space_latencies(SPACE, predictor, Precision.INT8, CLASSES, 0.9)
    codes = SPACE.random_codes(np.random.default_rng(0), 200)
    ratio = sure.totals(codes) / plain.totals(codes) / predictor.calibration.margin(0.9)
    has = np.array([not set(lost).isdisjoint(workload(a).parts()) for a in SPACE.decode(codes)])
    assert ratio[~has] == pytest.approx(1.0)
    assert ((ratio[has] > 1.0) & (ratio[has] < 1.25)).all()
    assert has.any()
    assert not has.all()
