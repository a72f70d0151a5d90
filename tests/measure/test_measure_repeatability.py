"""The arithmetic of the A/A test; test_measure_on_device.py runs it on this machine."""

import pytest

from hwbench.errors import CheckFailed
from hwbench.specs import Repeatability, Session


def sessions(*medians_ms):
    return [Session(samples_s=(median * 1e-3,)) for median in medians_ms]


def test_what_is_equal_does_not_differ():
    found = Repeatability.of(sessions(1, 1, 1), sessions(1, 1, 1))
    assert (found.difference, found.low, found.high, found.pairs) == (0, 0, 0, 3)
    assert found.ok
    assert found.median_s == pytest.approx(1e-3)


def test_noise_that_both_see_cancels():
    found = Repeatability.of(sessions(1, 2, 3, 4), sessions(1.02, 2.04, 3.06, 4.08))
    assert found.difference == pytest.approx(0.02)
    assert found.high - found.low < 1e-9
    assert not found.ok
    assert "+2.00 %" in str(found)


def test_an_interval_that_reaches_too_far_is_not_repeatable():
    found = Repeatability.of(sessions(1, 1, 1, 1), sessions(1.05, 0.95, 1.05, 0.95))
    assert abs(found.difference) < 0.01
    assert found.low < 0 < found.high
    assert not found.ok


def test_the_interval_is_that_of_student():
    # Mean 0.01, standard deviation 0.01 of three: half-width 4.303 * 0.01 / sqrt(3).
    found = Repeatability.of(sessions(1, 1, 1), sessions(*(pow(2.718281828459045, x) for x in (0.0, 0.01, 0.02))))
    assert found.difference == pytest.approx(0.01005, rel=1e-3)
    assert found.high - found.low == pytest.approx(2 * 0.024844, rel=2e-2)


def test_one_pair_says_nothing():
    with pytest.raises(CheckFailed, match="at least 2 pairs"):
        Repeatability.of(sessions(1), sessions(1))
