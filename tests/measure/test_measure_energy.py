"""What a device takes from its supply."""

import pytest

from hwbench.measure.energy import FUEL_GAUGE, RAPL, RAPL_UNIT_J, EnergyReading, parse, power

TEXT = """
== rapl intel-rapl:0
energy_uj: 1500000
max_energy_range_uj: 262143328850
== battery
current_now: -450000
voltage_now: 4000000
status: Discharging
"""


def test_counters_and_gauges_are_read_and_nonsense_is_empty():
    read = parse(TEXT)
    assert read.packages == ((1500000, 262143328850),)
    assert read.watts == pytest.approx(1.8)
    assert not read.charging
    assert parse(TEXT.replace("Discharging", "Charging")).charging
    assert parse(TEXT.replace("Discharging", "Full")).charging
    assert parse("== battery\ncurrent_now: much\nvoltage_now:\nstatus:\n").watts is None
    assert parse("\0== rapl x\nenergy_uj: -1\n") == EnergyReading()


def test_a_counter_gives_watts_and_may_start_again():
    readings = [(0.0, (90_000_000,)), (1.0, (99_000_000,)), (2.0, (6_000_000,))]
    found = power([(at, EnergyReading(tuple((count, 100_000_000) for count in counts))) for at, counts in readings])
    assert (found.source, found.watts) == (RAPL, pytest.approx((9 + 7) / 2))
    assert found.resolution_watts == pytest.approx(RAPL_UNIT_J / 2)


def test_a_gauge_gives_its_mean_and_its_smallest_step():
    readings = [(float(at), EnergyReading((), current, 4e6)) for at, current in enumerate((-5e5, -5.1e5, -5e5, -5.3e5))]
    found = power(readings)
    assert (found.source, found.readings) == (FUEL_GAUGE, 4)
    assert found.watts == pytest.approx(2.04)
    assert found.resolution_watts == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("reading", "said"),
    [(EnergyReading(), "no energy counter"), (EnergyReading((), 1.0, 4e6, charging=True), "not discharging")],
)
def test_what_cannot_be_read_says_why(reading, said):
    found = power([(0.0, reading), (1.0, reading)])
    assert (found.source, found.watts) == ("", 0.0)
    assert said in found.reason
    assert power([(0.0, reading)]).reason == "fewer than two readings"
