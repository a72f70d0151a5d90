"""What a device takes from its supply."""

import subprocess

import pytest

from hwbench.measure.energy import _SCRIPT, FUEL_GAUGE, RAPL, RAPL_UNIT_J, EnergyReading, parse, power

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


LAPTOP = """
== rapl intel-rapl-mmio:0
name: package-0
energy_uj: 7000000
max_energy_range_uj: 262143328850
== rapl intel-rapl:0
name: package-0
energy_uj: 5000000
max_energy_range_uj: 262143328850
== rapl intel-rapl:1
name: psys
energy_uj: 90000000
max_energy_range_uj: 262143328850
"""


def test_a_package_counts_once_and_the_platform_that_has_it_in_it_not_at_all():
    assert parse(LAPTOP).packages == ((5000000, 262143328850),)
    assert parse(LAPTOP.replace("rapl:1", "rapl:2").replace("psys", "package-1")).packages[1][0] == 90000000
    assert [count for count, _ in parse(LAPTOP.replace("package-0", "").replace("psys", "")).packages] == [
        5000000,
        90000000,
        7000000,
    ]


def test_the_script_tells_the_name_of_a_zone(tmp_path):
    zone = tmp_path / "class" / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    for name, value in (("name", "package-0"), ("energy_uj", "1500000"), ("max_energy_range_uj", "262143328850")):
        (zone / name).write_text(value + "\n")
    script = _SCRIPT.replace("/sys/", f"{tmp_path}/")
    out = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert "name: package-0\n" in out
    assert parse(out).packages == ((1500000, 262143328850),)


def test_a_gauge_that_tells_milliampere_gives_the_same_watts():
    readings = [(float(at), EnergyReading((), current, 4e6)) for at, current in enumerate((-500.0, -510.0, -9.0))]
    found = power(readings)
    assert found.watts == pytest.approx(4e-3 * (500 + 510 + 9) / 3)
    assert found.resolution_watts == pytest.approx(0.04)


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


@pytest.mark.parametrize(("currents_ua", "step_ua"), [((5.9e5, 6e5, 6.2e5, 6e5), 1e4), ((6e5,) * 4, 6e5)])
def test_the_resolution_of_a_gauge_is_a_step_of_its_current_whatever_the_voltage_does(currents_ua, step_ua):
    """The product of 600 mA and 3.851 V lies 0.6 mW above that with 3.850 V: no step of what the gauge can tell."""
    voltages_uv = (3.849e6, 3.850e6, 3.851e6, 3.851e6)
    readings = [EnergyReading((), -current, voltage) for current, voltage in zip(currents_ua, voltages_uv, strict=True)]
    found = power([(float(at), reading) for at, reading in enumerate(readings)])
    assert found.resolution_watts == pytest.approx(step_ua * 3.85025e6 * 1e-12)


@pytest.mark.parametrize(
    ("reading", "said"),
    [(EnergyReading(), "no energy counter"), (EnergyReading((), 1.0, 4e6, charging=True), "not discharging")],
)
def test_what_cannot_be_read_says_why(reading, said):
    found = power([(0.0, reading), (1.0, reading)])
    assert (found.source, found.watts) == ("", 0.0)
    assert said in found.reason
    assert power([(0.0, reading)]).reason == "fewer than two readings"


def test_the_battery_of_a_mouse_is_passed_over(tmp_path):
    mouse = {"type": "Battery", "scope": "Device", "status": "Discharging", "current_now": "1000"}
    own = {"type": "Battery", "scope": "System", "status": "Charging", "voltage_now": "4000000"}
    for name, files in (("BAT0", own), ("A_mouse", mouse)):
        folder = tmp_path / "class" / "power_supply" / name
        folder.mkdir(parents=True)
        for file, value in files.items():
            (folder / file).write_text(f"{value}\n")
    script = _SCRIPT.replace("/sys/class", str(tmp_path / "class"))
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert parse(said) == EnergyReading(voltage_uv=4e6, charging=True)
