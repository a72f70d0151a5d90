from dataclasses import replace

import phones
import pytest

from hwbench import control_group
from hwbench.control_group import ControlGroup
from hwbench.devices import Conditions, Device, probe, probe_device, state
from hwbench.devices.local import LocalTransport
from hwbench.devices.preflight import (
    Busy,
    Level,
    examine,
    heat,
    lasting,
    on_device,
    parse_busy,
    passing,
    read_busy,
    wait_until_cool,
)
from hwbench.devices.state import Battery, DeviceState, Temperature
from hwbench.errors import DeviceError
from hwbench.measure.bench import open_bench

PHONE = Device("s9", "adb")
GOOD = DeviceState(
    load=0.1,
    memory_available_bytes=2 << 30,
    free_bytes=4 << 30,
    temperatures=(Temperature("cpu-thermal", 45.0),),
    thermal_status=0,
    battery=Battery(80, "discharging", 30.0),
    screen_on=True,
    battery_saver=False,
)


def recorded(name):
    texts = [(phones.RECORDINGS / f"{name}.{kind}.txt").read_text() for kind in ("probe", "state")]
    return probe.parse(texts[0]), state.parse(texts[1])


def levels(found):
    return {finding.name: finding.level for finding in found}


def test_a_device_that_is_fit():
    board, _ = recorded("pi5")
    found = [*lasting(PHONE, board), *passing(PHONE, board, GOOD, Busy({0: 0.0, 3: 0.02}))]
    assert set(levels(found).values()) == {Level.OK}
    assert set(levels(found)) >= {"battery", "heat", "cores", "load", "space", "memory", "screen", "governor"}


@pytest.mark.parametrize(
    ("change", "name", "level", "words"),
    [
        ({"battery": Battery(8, "discharging")}, "battery", Level.REFUSE, "plug it in"),
        ({"battery": Battery(25, "not charging")}, "battery", Level.WARNING, "may end before"),
        ({"battery": Battery(25, "charging")}, "battery", Level.WARNING, "wait until it has 30 %"),
        ({"battery": Battery(80, "charging", 41.0)}, "heat", Level.WARNING, "battery 41 °C"),
        ({"battery": Battery(80, "full", 46.0)}, "heat", Level.REFUSE, "out of its case"),
        ({"thermal_status": 1}, "heat", Level.WARNING, "thermal status 1"),
        ({"thermal_status": 3}, "heat", Level.REFUSE, "thermal status 3"),
        ({"temperatures": (Temperature("BIG", 80.0),)}, "heat", Level.WARNING, "BIG 80 °C"),
        ({"free_bytes": 10 << 20}, "space", Level.REFUSE, "10.0 MiB"),
        ({"free_bytes": 100 << 20}, "space", Level.WARNING, "free some"),
        ({"memory_available_bytes": 200 << 20}, "memory", Level.WARNING, "of memory"),
        ({"load": 3.0}, "load", Level.WARNING, "3.0 over the last minute on 4 cores"),
        ({"screen_on": False}, "screen", Level.WARNING, "adb shell input keyevent KEYCODE_WAKEUP"),
        ({"battery_saver": True}, "battery saver", Level.WARNING, "settings put global low_power 0"),
    ],
)
def test_what_speaks_against_it(change, name, level, words):
    board, _ = recorded("pi5")
    found = [one for one in passing(PHONE, board, replace(GOOD, **change)) if one.level is not Level.OK]
    assert levels(found) == {name: level}
    assert words in str(found[0])


def test_what_a_device_does_not_tell_is_no_finding():
    board, _ = recorded("pi5")
    assert list(passing(PHONE, board, DeviceState())) == []
    assert heat(DeviceState()) is None


def test_the_load_of_a_phone_says_nothing():
    phone, now = recorded("s9")
    assert now.load > 9
    assert "load" not in levels(passing(PHONE, phone, now))


def test_a_load_of_the_last_minute_is_no_fault_where_nobody_uses_the_cores_now():
    """What was built for this very measurement is in it as well."""
    board, _ = recorded("pi5")
    loaded = replace(GOOD, load=3.0)
    rests = levels(passing(PHONE, board, loaded, Busy({0: 0.0, 3: 0.02})))
    assert (rests["cores"], rests["load"]) == (Level.OK, Level.OK)
    works = levels(passing(PHONE, board, loaded, Busy({0: 0.0, 3: 0.9}, "make", 0.9)))
    assert (works["cores"], works["load"]) == (Level.WARNING, Level.WARNING)
    assert levels(passing(PHONE, board, loaded, Busy({})))["load"] is Level.WARNING  # nothing is known of now


def test_the_kind_of_a_machine():
    server, _ = recorded("server")
    assert levels(lasting(PHONE, server))["hardware"] is Level.WARNING
    board, _ = recorded("pi5")
    assert levels(lasting(PHONE, replace(board, abi="armv7l")))["ABI"] is Level.REFUSE
    assert levels(lasting(PHONE, replace(board, governor="powersave")))["governor"] is Level.WARNING


@pytest.mark.parametrize(("then", "now", "no_turbo"), [("off", "on", "10"), ("on", "off", "01")])
def test_turbo_that_was_switched_since_is_told_before_anything_is_measured(tmp_path, monkeypatch, then, now, no_turbo):
    """Of a kernel that tells one highest clock with turbo and without, so that the fingerprint stays."""
    phones.make(tmp_path / "device", "pi5")
    board = phones.Intel(tmp_path / "device", follows=False)
    switch = "/sys/devices/system/cpu/intel_pstate/no_turbo"
    board.file(switch).write_text(no_turbo[0])
    added = probe_device(board)
    assert added.turbo == then
    device = Device("nuc", "local", runner="/nowhere/runner", fingerprint=added.fingerprint, turbo=added.turbo)
    board.file(switch).write_text(no_turbo[1])
    monkeypatch.setattr(Device, "transport", lambda *_: board)
    assert [one.name for one in examine(device, board) if "when the device was added" in one.sentence] == ["turbo"]
    assert measured(device, tmp_path) == [
        f"turbo: {now} now, {then} when the device was added: times differ from those of before; switch it {then}, "
        f"there as root: echo {no_turbo[0]} > {switch}; to measure with it as it is now: "
        "hwbench devices add nuc --force"
    ]
    # A file of before does not say it, and what is controlled has turbo off in any case.
    assert measured(replace(device, turbo=""), tmp_path) == []
    controlled = replace(device, conditions=Conditions.CONTROLLED)
    assert measured(controlled, tmp_path) == []
    assert "turbo" not in levels(examine(controlled, board))


def measured(device, folder):
    """What is told before a runner is looked for that is nowhere."""
    told = []
    with (
        pytest.raises(DeviceError, match="there is no such file"),
        open_bench(device, "executorch", cache_dir=folder / "cache", report=told.append),
    ):
        pass
    return told


def test_the_recorded_pixel_is_warm_and_saves_its_battery():
    phone, now = recorded("pixel")
    wrong = {name for name, level in levels(passing(PHONE, phone, now)).items() if level is not Level.OK}
    assert wrong == {"heat", "battery saver"}


STAT = """== cores {turn}
cpu  900 0 100 9000 0 0 0 0 0 0
cpu0 {busy} 0 0 {idle} 0 0 0 0 0 0
cpu1 0 0 0 {total} 0 0 0 0 0 0
intr 1 2 3
== tasks {turn}
1 (init) S 0 1 1 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0
77 (a) b (c) R 1 1 1 0 -1 0 0 0 0 0 {task} 0 0 0 20 0 1 0
"""


def test_who_uses_the_cores():
    text = STAT.format(turn=1, busy=100, idle=100, total=200, task=50)
    text += STAT.format(turn=2, busy=150, idle=150, total=300, task=90)
    busy = parse_busy(text)
    assert busy.cores == {0: 0.5, 1: 0.0}
    assert (busy.name, busy.share) == ("a) b (c", 0.4)
    board, _ = recorded("pi5")
    found = {one.name: one for one in passing(PHONE, board, GOOD, busy)}
    assert "0 for 50% of the time; most of it by 'a) b (c' (40% of a core)" in found["cores"].sentence


@pytest.mark.parametrize("text", ["", "== cores 1\ncpu0 x\n", "== tasks 1\n1 (x\n== tasks 2\n) (\n"])
def test_what_is_no_answer_is_no_use(text):
    assert parse_busy(text) == Busy({})


def test_this_machine_and_its_users():
    with LocalTransport() as transport:
        busy = read_busy(transport)
        assert busy.cores
        assert all(0 <= share <= 1 for share in busy.cores.values())
        found = levels(examine(Device("local", "local"), transport))
    assert {"hardware", "governor", "cores", "load", "space", "memory"} <= set(found)


def test_a_warm_phone_is_waited_for_and_that_is_said(tmp_path):
    device, told, waits = phones.make(tmp_path / "p", "pixel"), [], []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            path = device.root / "data" / "thermal"
            path.write_text(path.read_text().replace("Thermal Status: 1", "Thermal Status: 0"))

    now = state.read_state(device)
    after = wait_until_cool(PHONE, device, now, told.append, pause_s=5, sleep=sleep)
    assert waits == [5, 5, 5]
    assert after.thermal_status == 0
    assert "waiting up to 180 s" in told[0]
    assert told[1] == "cool enough after 15 s"


def test_the_wait_has_an_end(tmp_path):
    device, told, waits = phones.make(tmp_path / "p", "pixel"), [], []
    now = state.read_state(device)
    wait_until_cool(PHONE, device, now, told.append, limit_s=20, pause_s=10, sleep=waits.append)
    assert waits == [10, 10]
    assert "still warm after 20 s" in told[-1]


def test_a_cool_device_is_not_waited_for(tmp_path):
    told = []
    assert wait_until_cool(PHONE, phones.make(tmp_path / "p", "s9"), GOOD, told.append, sleep=None) is GOOD
    assert told == []


@pytest.mark.parametrize(
    ("device", "line"),
    [
        (Device("a", "adb"), "adb shell id"),
        (Device("a", "adb", options={"serial": "X1; rm"}), "adb -s 'X1; rm' shell id"),
        (Device("a", "ssh", options={"host": "pi5.local"}), "ssh pi5.local id"),
        (Device("a", "local"), "id"),
    ],
)
def test_commands_are_for_the_device(device, line):
    assert on_device(device, "id") == line


@pytest.mark.parametrize(
    ("transport", "threads", "quota", "expected"),
    [
        ("local", 1, "50000", (Level.WARNING, "the container leaves 0.5 of 4 processors: times include throttling")),
        ("local", 2, "150000", (Level.WARNING, "the container leaves 1.5 of 4 processors: times include throttling")),
        ("local", 1, "150000", (Level.OK, "the container leaves 1.5 of 4 processors")),
        ("local", 4, "400000", None),
        ("local", 4, "max", None),
        ("adb", 1, "50000", None),
    ],
)
def test_what_a_container_leaves_of_the_processors(tmp_path, monkeypatch, transport, threads, quota, expected):
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    (tmp_path / "self").write_text("0::/\n")
    monkeypatch.setattr(control_group, "OWN", ControlGroup(tmp_path, tmp_path / "self"))
    board, _ = recorded("pi5")
    found = [one for one in lasting(Device("here", transport, threads=threads), board) if one.name == "quota"]
    assert [(one.level, one.sentence) for one in found] == ([expected] if expected else [])
