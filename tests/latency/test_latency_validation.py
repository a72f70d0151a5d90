import pytest

from hwbench.errors import InvalidValue
from hwbench.latency import Comparison, Validation, spearman
from hwbench.specs import Estimate


def comparison(predicted: float, measured: float, spread: float = 1.05) -> Comparison:
    return Comparison("n", Estimate(predicted, predicted / spread, predicted * spread), measured)


def test_the_summary_says_what_the_numbers_say():
    found = Validation.of(
        [comparison(1.0, 1.0), comparison(2.1, 2.0), comparison(2.76, 3.0), comparison(4.8, 4.0)], nominal=0.9
    )
    assert found.networks == 4
    assert found.median_error == pytest.approx((0.05 + 0.08) / 2)
    assert found.mape == pytest.approx((0 + 0.05 + 0.08 + 0.2) / 4)
    assert found.within_5 == pytest.approx(0.25)
    assert found.within_10 == pytest.approx(0.75)
    assert found.spearman == pytest.approx(1.0)
    assert found.coverage == pytest.approx(0.5)
    assert found.nominal == 0.9


def test_rank_correlation_with_ties():
    a, b = [1, 2, 2, 3, 5, 5, 5], [2, 1, 3, 3, 8, 7, 9]
    assert spearman(a, b) == pytest.approx(0.8779838353)  # scipy.stats.spearmanr
    assert spearman([1, 1, 1], [1, 2, 3]) == 0.0


def test_one_network_cannot_be_ranked():
    with pytest.raises(InvalidValue, match="at least 2"):
        Validation.of([comparison(1, 1)], 0.9)
