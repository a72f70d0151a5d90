"""Readings of inertial sensors: aligned by time, interpolated, and faults with their line."""

import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hwbench.data.imu import ImuSpec, read_imu
from hwbench.errors import InvalidFile, InvalidValue

PLAIN = ImuSpec(columns=("x", "y"), time="ms", readings=10, normalised=False)


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def ramp(tmp_path: Path) -> Path:
    """Two seconds from 1 s on, 100 readings a second unevenly apart: x is the time in s, y minus ten times that."""
    times = 1000 + np.arange(0, 2000, 10) + np.random.default_rng(0).uniform(-4, 4, 200)
    rows = (f"{ms:.6f},{-ms / 100:.9f},unused,{ms / 1000:.9f}" for ms in times)
    return written(tmp_path / "ramp.csv", "ms,y,name,x", *rows)


def test_a_part_is_interpolated_at_even_times(ramp: Path) -> None:
    motion = read_imu(ramp, PLAIN).part(Fraction(3, 2), Fraction(5, 2), 10)
    assert motion.readings.shape == (2, 10)
    assert motion.valid.all()
    np.testing.assert_allclose(motion.readings[0], 1.5 + 0.1 * np.arange(10), rtol=1e-6)
    np.testing.assert_allclose(motion.readings[1], -10 * (1.5 + 0.1 * np.arange(10)), rtol=1e-6)


def test_outside_of_the_recording_there_are_zeros_that_say_so(ramp: Path) -> None:
    recording = read_imu(ramp, PLAIN)
    early = recording.part(Fraction(1, 2), Fraction(3, 2), 10)
    np.testing.assert_array_equal(early.valid, [False] * 6 + [True] * 4)
    assert not early.readings[:, :6].any()
    assert not recording.part(Fraction(10), Fraction(11), 10).valid.any()


def test_offset_and_unit_move_the_time(ramp: Path) -> None:
    spec = ImuSpec(("x",), "ms", Fraction(1, 500), Fraction(-2), 10, normalised=False)
    motion = read_imu(ramp, spec).part(Fraction(1), Fraction(2), 10)
    np.testing.assert_allclose(motion.readings[0], 1.5 + 0.05 * np.arange(10), rtol=1e-6)


def test_normalised_axes_have_mean_0_and_deviation_1_over_the_recording(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(5, 3, 500)
    rows = [f"{number},{value},7" for number, value in enumerate(values)]
    recording = read_imu(written(tmp_path / "a.csv", "ms,x,y", *rows), ImuSpec(("x", "y"), "ms"))
    assert recording.readings.mean(axis=0) == pytest.approx([0, 0], abs=1e-9)
    assert recording.readings.std(axis=0) == pytest.approx([1, 0], abs=1e-9)  # an axis that rests stays at 0


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["ms,x", "0,1"], ":1: expected a column 'y', the table has 'ms, x'"),
        (["ms,x,y", "0,1,2", "", "1,wrong,2"], ":4: expected a number as 'x', got 'wrong'"),
        (["ms,x,y", "0,1,2", "1,1,"], ":3: expected a number as 'y', got ''"),
        (["ms,x,y", "0,1,2", "1,1,nan"], ":3: expected a number as 'y', got 'nan'"),
        (["ms,x,y", "0,1,2", "1,inf,2"], ":3: expected a number as 'x', got 'inf'"),
        (["ms,x,y", "0,1,2", "1,1e31,2"], ":3: expected a number as 'x', got '1e31'"),
        (["ms,x,y", f"1{'0' * 400},1,2", "1_0,1,2"], f":2: expected a number as 'ms', got '1{'0' * 77}…"),
        (["ms,x,y", "0,1,2", "soon,1,2"], ":3: expected a number as 'ms', got 'soon'"),
        (["ms,x,y", "0,1,2", "5,1,2", "5,1,2"], ":4: expected a 'ms' later than 5 in the row before, got 5"),
        (["ms,x,y", "5,1,2", "4,1,2"], ":3: expected a 'ms' later than 5 in the row before, got 4"),
        (["ms,x,y", "0,1,2", "1,2"], ":3: expected 3 columns (ms, x, y), got 2"),
        (["ms,x,y"], ": expected a table with the columns ms, x, y, found no row"),
    ],
)
def test_faults_are_one_line_with_their_place(lines: list[str], fault: str, tmp_path: Path) -> None:
    path = written(tmp_path / "bad.csv", *lines)
    with pytest.raises(InvalidFile) as caught:
        read_imu(path, PLAIN)
    assert str(caught.value) == f"{path}{fault}"


def test_no_file_and_no_text_are_faults_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="No such file"):
        read_imu(tmp_path / "none.csv", PLAIN)
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    with pytest.raises(InvalidFile, match="expected text in UTF-8"):
        read_imu(tmp_path / "binary.csv", PLAIN)


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "ms,x,y", "0,1,2")
    assert read_imu(path, PLAIN) is read_imu(path, PLAIN)
    written(path, "ms,x,y", "0,3,4")
    os.utime(path, ns=(1, 1))
    assert read_imu(path, PLAIN).readings.tolist() == [[3, 4]]


def test_a_table_that_only_the_slow_way_reads_is_read(tmp_path: Path) -> None:
    """Blanks around names, as some loggers write them."""
    path = written(tmp_path / "a.csv", "ms, x, y", "0,1,2", "1,2,3")
    assert read_imu(path, PLAIN).readings.tolist() == [[1, 2], [2, 3]]


@pytest.mark.parametrize("blank", [(), ("",)])
def test_rows_that_end_with_a_comma_keep_their_columns(blank: tuple[str, ...], tmp_path: Path) -> None:
    rows = [f"{number},{10 * number},{number % 3},{number % 5}," for number in range(20)]
    path = written(tmp_path / "a.csv", "ms,us,x,y", *blank, *rows)
    for columns, axes in ((("x",), slice(1)), (("x", "y"), slice(2))):
        recording = read_imu(path, ImuSpec(columns, "ms", normalised=False))
        np.testing.assert_allclose(recording.times_s, 0.001 * np.arange(20))
        assert recording.readings.tolist() == [[number % 3, number % 5][axes] for number in range(20)]


def test_columns_may_be_a_list(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "ms,x,y", "0,1,2")
    spec = ImuSpec(columns=["x", "y"], time="ms", normalised=False)  # type: ignore[arg-type]
    assert read_imu(path, spec).readings.tolist() == [[1, 2]]


@pytest.mark.parametrize("wrong", [{"columns": ()}, {"columns": ("x", "x")}, {"readings": 0}, {"time": "accl_x"}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="imu: expected"):
        ImuSpec(**wrong)  # type: ignore[arg-type]
