"""Quantities as they are printed."""

import pytest

from hwbench.units import format_bytes, format_duration, rounded_up


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (9.994e-4, "999 µs"),
        (9.995e-4, "999 µs"),  # just below in binary
        (9.996e-4, "1 ms"),
        (0.9994, "999 ms"),
        (0.9995, "1 s"),
        (0.9999, "1 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (119.9, "1 min 59 s"),
        (3599.9, "59 min 59 s"),
        (9000.0, "2 h 30 min"),
    ],
)
def test_a_duration_is_rounded_before_its_unit_is_chosen(seconds, text):
    assert format_duration(seconds) == text


def test_a_duration_has_no_power_of_ten():
    texts = [format_duration(10 ** (power / 997)) for power in range(-6 * 997, 5 * 997)]
    assert not [text for text in texts if "e" in text]


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (1023, "1023 B"),
        (1023.6, "1.0 KiB"),
        (1024 * 1023.9, "1023.9 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (1 - 1024**3, "-1.0 GiB"),
        (1024**4, "1024.0 GiB"),
    ],
)
def test_a_size_is_rounded_before_its_unit_is_chosen(num_bytes, text):
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("value", "rounded"), [(1.2345678, 1.234568), (5e-300, 5e-300), (1.23e-307, 1.3e-307), (5e-324, 1e-308)]
)
def test_the_smallest_numbers_are_rounded_up_to_fewer_digits(value, rounded):
    assert rounded_up(value, 7) == pytest.approx(rounded, rel=1e-12)
