"""Probe and state of whole devices. The phones and the board are written after the formats their systems document."""

from dataclasses import replace
from pathlib import Path

import phones
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwbench.devices import probe, state
from hwbench.devices.device_text import MAX_CHARS, MAX_NAME, clean, decimal, number, parse_cpu_list
from hwbench.devices.local import LocalTransport
from hwbench.devices.state import Battery, Temperature, read_state

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = sorted({path.name.split(".")[0] for path in RECORDINGS.iterdir()})


def text(name):
    return (RECORDINGS / name).read_text()


def probed(name):
    return probe.parse(text(f"{name}.probe.txt"))


def state_of(name):
    return state.parse(text(f"{name}.state.txt"))


def test_every_recording_is_a_device():
    assert NAMES == ["pi5", "pixel", "s9", "server"]
    for name in NAMES:
        found, now = probed(name), state_of(name)
        assert found.boot == now.boot != ""
        assert found.unit
        assert found.abi
        assert found.page_bytes in (4096, 16384)
        assert now.free_bytes > 10**9
        assert now.memory_available_bytes > 10**9
        assert now.load > 0


def test_the_samsung():
    found = probed("s9")
    assert (found.soc, found.abi, found.api_level, found.libc) == (
        "exynos5, samsungexynos9810",
        "arm64-v8a",
        29,
        "bionic",
    )
    assert found.android
    assert [(c.cpus, c.part, c.min_khz, c.max_khz) for c in found.clusters] == [
        ((4, 5, 6, 7), "Exynos-M3", 650000, 2704000),
        ((0, 1, 2, 3), "Cortex-A55", 455000, 1794000),
    ]
    now = state_of("s9")
    assert now.battery == Battery(67, "charging", 33.7)
    assert now.hottest == Temperature("BIG", 41.0)
    assert now.clocks_khz[7] == 650000
    assert now.clock_limits_khz[7] == (650000, 2704000)
    assert (now.screen_on, now.battery_saver, now.thermal_status) == (False, False, 0)


def test_the_pixel_hides_its_sensors_and_android_tells_them():
    found = probed("pixel")
    assert (found.soc, found.api_level) == ("Google Tensor", 33)
    assert [c.cpus for c in found.clusters] == [(6, 7), (4, 5), (0, 1, 2, 3)]
    assert [c.capacity for c in found.clusters] == [1024, 498, 160]
    now = state_of("pixel")
    assert now.thermal_status == 1
    assert now.hottest == Temperature("cpu BIG", 52.600002)
    assert all(t.celsius < 90 for t in now.temperatures), "what is cached is old"
    assert {t.name for t in now.temperatures} >= {"skin VIRTUAL-SKIN", "battery battery"}
    assert now.battery == Battery(100, "full", 34.8)
    assert (now.screen_on, now.battery_saver) == (True, True)


def test_the_board_and_the_server():
    board = probed("pi5")
    assert (board.model, board.soc) == ("Raspberry Pi 5 Model B Rev 1.0", "brcm,bcm2712")
    assert (board.abi, board.libc, board.page_bytes, board.android) == ("aarch64", "glibc 2.36", 16384, False)
    assert state_of("pi5").hottest == Temperature("cpu-thermal", 49.4)
    assert state_of("pi5").governors == dict.fromkeys(range(4), "ondemand")
    server = probed("server")
    assert (server.abi, server.libc, server.soc) == ("x86_64", "glibc 2.36", "")
    assert state_of("server").temperatures == ()
    assert state_of("server").battery is None


def test_programs_of_32_bits_on_a_kernel_of_64_are_noticed():
    assert not probed("pi5").narrow
    old = text("pi5.probe.txt").replace("7f 45 4c 46 02", "7f 45 4c 46 01").replace("03 00 b7", "03 00 28")
    assert probe.parse(old).abi == "armv7l"
    assert probe.parse(old).narrow
    assert probe.parse(text("s9.probe.txt").replace("arm64-v8a", "armeabi-v7a")).narrow
    assert probe.parse(old.replace("aarch64", "armv7l")).narrow is False


def test_two_phones_of_one_kind_are_two_units_with_one_fingerprint():
    other = probe.parse(text("pixel.probe.txt").replace("1A051FDF6000XY", "1A051FDF6000XZ"))
    assert other.unit != probed("pixel").unit
    assert "1A051FDF" not in repr(probed("pixel"))
    assert other.fingerprint == probed("pixel").fingerprint
    assert replace(probed("pixel"), boot="x").fingerprint == probed("pixel").fingerprint


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_that_is_cut_off_anywhere_is_read(name):
    for kind, parse in (("probe", probe.parse), ("state", state.parse)):
        whole = text(f"{name}.{kind}.txt")
        for end in range(0, len(whole), 61):
            parse(whole[:end])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SM-G960F", "x\x1b]0;title\x07\x1b[2J\u202eevil"),
        ("SM-G960F", "A" * 10_000),
        ("0-7", "0-99999999999999999999"),
        ("0-7", "0-" + "9" * 5000),
        ("processor\t: 7", "processor\t: " + "7" * 5000),
        ("processor\t: 7", "processor\t: ٧"),
        ("2704000", "-1"),
        ("2704000", "9" * 5000),
        ("3696196 kB", ""),
        ("3696196 kB", "x kB"),
        ("\n29\n", "\n" + "9" * 400 + "\n"),
    ],
)
def test_a_device_that_lies_is_read_within_bounds(old, new):
    assert old in text("s9.probe.txt")
    found = probe.parse(text("s9.probe.txt").replace(old, new))
    assert len(found.model) <= MAX_NAME
    assert found.model.isprintable()
    assert len(found.cpus) <= 1024
    assert found.memory_bytes < 1 << 64
    assert found.api_level <= 1000
    assert len(found.fingerprint) == 16


def test_values_that_no_sensor_has_are_left_out():
    zones = "0:-40000:dead\n1:0:dead\n2:1000000000:x\n3:nan:x\n4:45:degrees\n5:inf:x\n6:25000:\x1b[31mred\n::\n7\n"
    now = state.parse(f"== zones\n{zones}")
    assert now.temperatures == (Temperature("degrees", 45.0), Temperature("[31mred", 25.0))
    charge = state.parse("== zones\n0:97:soc\n1:41000:soc\n2:97:soc_thermal\n3:64:socd\n")
    assert charge.temperatures == (Temperature("soc", 41.0), Temperature("soc_thermal", 97.0))
    tenths = state.parse("== zones\n0:820:cpu\n1:150:skin\n2:1499:x\n3:1500:y\n")
    assert [t.celsius for t in tenths.temperatures] == [82.0, 15.0, 149.9, 1.5]
    many = "".join(f"{i}:30000:z\n" for i in range(5000))
    assert len(state.parse(f"== zones\n{many}").temperatures) == state.MAX_ZONES


@pytest.mark.parametrize(
    ("battery", "expected"),
    [
        ("level: 1\nscale: 2\nstatus: 3\n", Battery(50, "discharging")),
        ("level: 101\nscale: 100\n", Battery(None, "unknown")),
        ("level: \nscale: 0\nstatus: 99\ntemperature: 99999\n", Battery(None, "unknown")),
        ("level: 50\npresent: false\n", None),
        ("", None),
    ],
)
def test_batteries(battery, expected):
    assert state.parse(f"== battery\n{battery}").battery == expected


def test_a_battery_in_sysfs():
    now = state.parse("== supply\ncapacity: 88\nstatus: Not charging\ntemp: 285\n")
    assert now.battery == Battery(88, "not charging", 28.5)


def test_the_battery_of_a_mouse_is_not_that_of_the_device(tmp_path):
    device = phones.make(tmp_path / "device", "pi5")
    mouse = device.file("sys/class/power_supply/A_mouse")
    mouse.mkdir(parents=True)
    for file, value in {"type": "Battery", "scope": "Device", "capacity": "5", "status": "Discharging"}.items():
        (mouse / file).write_text(f"{value}\n")
    assert read_state(device).battery is None
    own = device.file("sys/class/power_supply/BAT0")
    own.mkdir()
    for file, value in {"type": "Battery", "capacity": "88", "status": "Charging"}.items():
        (own / file).write_text(f"{value}\n")
    assert read_state(device).battery == Battery(88, "charging")


@pytest.mark.parametrize(
    ("table", "free"),
    [
        ("Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a b/c 100 40 60 40% /x\n", 60 * 1024),
        ("Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/long\n   100 40 0 100% /\n", 0),
        ("Filesystem 1K-blocks Used Available Use% Mounted on\n", None),
        ("df: x: No such file\n", None),
    ],
)
def test_free_space(table, free):
    assert state.parse(f"== df\n{table}").free_bytes == free


def test_free_space_of_a_root_that_is_no_disk():
    table = "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
    assert state.parse(f"== df\n{table}\n== blocks\n1000 4096\n").free_bytes == 4096000
    assert state.parse(f"== df\n{table}\n== blocks\n%a %S\n").free_bytes is None


def test_what_is_not_known_is_not_recorded():
    assert state.parse("").as_json() == {}
    assert set(state_of("server").as_json()) == {"boot", "uptime_s", "load", "memory_available_bytes", "free_bytes"}


def test_this_machine_and_a_folder_that_is_not_there_yet(tmp_path):
    with LocalTransport() as transport:
        now = read_state(transport, str(tmp_path / "not" / "yet 'there' $HOME"))
        found = probe.probe_device(transport)
    assert now.free_bytes > 0
    assert now.load >= 0
    assert now.boot == found.boot
    assert now.uptime_s > 0
    assert found.page_bytes > 0
    assert found.libc


def test_numbers():
    assert [number(x) for x in ("7", " 7\n", "-7", "7.0", "", "٧", "9" * 19)] == [7, 7, 0, 0, 0, 0, 0]
    assert number("300", 255) == 0
    assert [decimal(x, -1, 9) for x in ("7", "-1.5", "8.25", "nan", "1e3", "")] == [7.0, None, 8.25, None, None, None]
    assert parse_cpu_list("0-" + "9" * 5) == tuple(range(1024))
    assert parse_cpu_list("5000") == ()


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400), st.sampled_from(NAMES), st.integers(0, 5000))
def test_nothing_makes_the_parsers_raise(noise, name, at):
    for kind, parse in (("probe", probe.parse), ("state", state.parse)):
        whole = text(f"{name}.{kind}.txt")
        parse(whole[:at] + noise + whole[at:])
    assert clean(noise).isprintable()


def test_what_is_long_is_cut():
    assert probe.parse("== ro.product.model\n" + "x" * (2 * MAX_CHARS)).model == "x" * MAX_NAME
