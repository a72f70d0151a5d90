"""Predictions of many networks at once against the predictor asked about one after another."""

import numpy as np
import pytest

from hwbench.errors import NotMeasured
from hwbench.latency import AdditivePredictor, LatencyTable, Role
from hwbench.spaces import read_space
from hwbench.specs import Precision
from hwbench.studies.latencies import compile_predictor
from hwbench.testing.tables import CLASSES, space_table
from hwbench.workspace import shipped

SPACE = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
TABLE = space_table(SPACE, Precision.INT8)


def workload(architecture):
    return SPACE.network(architecture, CLASSES).workload(Precision.INT8)


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
