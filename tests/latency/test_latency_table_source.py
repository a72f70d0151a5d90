"""How ``--transfer-from`` is read, and what it refuses."""

import pytest

from hwbench.api.prediction import check_filling
from hwbench.errors import InvalidValue
from hwbench.latency.table_source import TableSource
from hwbench.specs import Precision, Target

PHONE = Target("s9", "executorch", "1.5.1", 1)


@pytest.mark.parametrize(
    ("text", "device", "precision", "threads"),
    [
        ("pi", "pi", Precision.INT8, 1),
        ("fp32", "s9", Precision.FP32, 1),
        ("t4", "s9", Precision.INT8, 4),
        ("pi/fp32", "pi", Precision.FP32, 1),
        ("t2/fp32/pi", "pi", Precision.FP32, 2),
        ("s9/fp32", "s9", Precision.FP32, 1),
    ],
)
def test_what_is_not_named_is_the_same(text, device, precision, threads):
    target, other = TableSource.parse(text).of(PHONE, Precision.INT8)
    assert target == Target(device, "executorch", "1.5.1", threads)
    assert other is precision


@pytest.mark.parametrize("text", ["", "/", "fp32/int8", "t2/t4", "pi/s9", "pi//t4"])
def test_what_names_nothing_or_two_is_refused(text):
    with pytest.raises(InvalidValue, match="expected a device, a precision, a number of threads such as t4"):
        TableSource.parse(text)


@pytest.mark.parametrize("text", ["s9", "int8", "t1", "s9/int8/t1"])
def test_the_table_that_lacks_the_rows_does_not_stand_in_for_itself(text):
    with pytest.raises(InvalidValue, match="rows of s9/int8/t1 itself are missing; name another"):
        check_filling(False, text, "s9", "int8", 1)
