"""Knobs on devices made of real files and scripts: what is turned, what cannot be, and that it is put back whatever
happens."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from dataclasses import replace
from pathlib import Path

import phones
import pytest
from waiting import heeding, in_the_background

from hwbench.devices import CommandResult, Device, Probe, conditions, journal, lease, probe_device
from hwbench.devices.control import Conditions, controlled, put_back_left_over
from hwbench.devices.journal import Change, Journal
from hwbench.devices.knobs import Knob, knobs
from hwbench.errors import DeviceError, DeviceLost, InvalidFile, UnknownName

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def phone(tmp_path, name="pixel", **options):
    return phones.make(tmp_path / "device", name, **options)


def control(device, told=None, wanted=Conditions.CONTROLLED):
    return controlled(wanted, probe_device(device), device, None if told is None else told.append)


def test_stock_changes_nothing_and_asks_nothing(tmp_path):
    device = phone(tmp_path)
    probe = probe_device(device)
    asked = len(device.commands)
    with controlled(Conditions.STOCK, probe, device) as held:
        assert held.row(probe, (7,), "native/1") == conditions(probe, (7,), "native/1")
    assert len(device.commands) == asked
    assert not journal.folder().exists()


def test_a_phone_with_fixed_performance(tmp_path):
    device, told = phone(tmp_path), []
    before = device.snapshot()
    with control(device, told) as held:
        assert held.held == {
            "airplane": "on",
            "battery-saver": "off",
            "brightness": "lowest",
            "cores": "6,7",
            "fixed-performance": "on",
            "screen": "awake",
            "stay-awake": "on",
            "threads": "2",
        }
        assert held.free == {}, "what fixed performance does better is not wanted"
        assert device.read("data/fixed-performance") == "true"
        assert (device.setting("stay_on_while_plugged_in"), device.setting("airplane_mode_on")) == ("7", "1")
        assert (device.setting("screen_brightness", "system"), device.setting("screen_brightness_mode", "system")) == (
            "1",
            "0",
        )
    assert device.snapshot() == before | {"data/fixed-performance": "false"}
    assert told == ["held: " + ", ".join(f"{name}={value}" for name, value in held.held.items())]
    assert journal.waiting() == []


def test_what_a_phone_of_2018_without_root_does_not_let_is_recorded(tmp_path):
    device, told = phone(tmp_path, "s9"), []
    before = device.snapshot()
    with control(device, told) as held:
        assert set(held.free) == {"airplane", "fixed-performance", "frequency", "governor"}
        assert "Android 11" in held.free["fixed-performance"]
        assert "needs root" in held.free["governor"]
        assert device.read("data/wakefulness") == "Awake"
        assert device.setting("airplane_mode_on") == "0"
        probe = probe_device(device)
        row = held.row(probe, (7,), "native/4")
        assert row["conditions"] == "controlled"
        assert row["free"] == "airplane, fixed-performance, frequency, governor"
        assert row["held"] == "battery-saver=off, brightness=lowest, screen=awake, stay-awake=on"
        assert row["governor"] == "schedutil"
        assert set(row) == {*conditions(probe, (7,), ""), "conditions", "held", "free"}
    assert device.snapshot() == before
    assert any(text.startswith("not controlled: governor: needs root") for text in told)


def test_a_rooted_phone_is_held_below_the_point_where_it_throttles(tmp_path):
    device = phone(tmp_path, "s9").rooted()
    before = device.snapshot()
    with control(device) as held:
        assert set(held.free) == {"fixed-performance"}
        assert held.held["frequency"] == "1053000/1924000"
        policy = "sys/devices/system/cpu/cpufreq/policy4"
        assert {device.read(f"{policy}/scaling_{end}_freq") for end in ("min", "max")} == {"1924000"}
        assert device.read(f"{policy}/scaling_governor") == "performance"
        assert held.row(probe_device(device), (7,), "")["governor"] == "performance"
        log = device.read("data/log")
        assert "AIRPLANE_MODE --ez state true" in log, "before Android 11 the radios must be told"
    assert device.snapshot() == before
    assert "AIRPLANE_MODE --ez state false" in device.read("data/log")


def test_a_board_whose_user_may_use_sudo(tmp_path):
    device = phone(tmp_path, "pi5").rooted()
    before = device.snapshot()
    with control(device) as held:
        assert held.free == {}, "what only phones have is not lacking"
        assert held.held == {
            "boost": "off",
            "cores": "0,1,2,3",
            "frequency": "2400000",
            "governor": "performance",
            "threads": "4",
        }
        assert device.read("sys/devices/system/cpu/cpufreq/boost") == "0"
    assert device.snapshot() == before


@pytest.mark.parametrize("asked", [2400000, 2100000, 1600000])
def test_turbo_is_back_after_limits_that_followed_it(tmp_path, asked):
    phone(tmp_path, "pi5")
    device = phones.Intel(tmp_path / "device", asked=asked).rooted()
    before = device.snapshot()
    with control(device) as held:
        assert held.held["boost"] == "off"
        assert held.held["frequency"] == "1700000"
    assert device.snapshot() == before
    assert device.read("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq") == str(asked)


@pytest.mark.parametrize(
    ("hwp", "asked", "clock"),
    [
        (True, 2400000, "1700000"),
        (True, 1600000, "1700000"),
        (False, 2400000, "1700000"),
        (False, 1600000, "1600000"),
    ],
)
def test_a_kernel_that_tells_the_turbo_clock_while_turbo_is_off(tmp_path, hwp, asked, clock):
    phone(tmp_path, "pi5")
    device = phones.Intel(tmp_path / "device", follows=False, hwp=hwp, asked=asked).rooted()
    before = device.snapshot()
    with control(device) as held:
        assert held.free == {}
        assert held.held["frequency"] == clock
    assert device.snapshot() == before


def test_a_kernel_that_shows_no_clusters(tmp_path):
    device = phone(tmp_path, "pi5").rooted()
    folder = device.root / "sys/devices/system/cpu/cpufreq"
    for path in (*folder.glob("policy*/*"), *folder.glob("policy*")):
        path.rmdir() if path.is_dir() else path.unlink()
    before = device.snapshot()
    with control(device) as held:
        assert held.held["governor"] == "performance"
        assert held.held["frequency"] == "2400000"
        assert device.read("sys/devices/system/cpu/cpu3/cpufreq/scaling_min_freq") == "2400000"
    assert device.snapshot() == before


def test_over_a_network_airplane_mode_is_left_alone(tmp_path):
    with control(phone(tmp_path, over_usb=False)) as held:
        assert "cut the line" in held.free["airplane"]
    assert "airplane" not in held.held


def test_without_fixed_performance_the_clocks_are_held(tmp_path):
    device = phone(tmp_path).rooted()
    (device.root / "data" / "no-power-hal").touch()
    before = device.snapshot()
    told = []
    with control(device, told) as held:
        assert held.free["fixed-performance"] == (
            "cmd power set-fixed-performance-mode-enabled true: Failed to set FIXED_PERFORMANCE mode"
        )
        assert held.held["governor"] == "performance"
        assert held.held["frequency"] == "1328000/1491000/2048000"
    assert device.snapshot() == before
    assert not [text for text in told if "put back" in text]
    assert journal.waiting() == []


def test_a_setting_that_was_never_made_is_unmade_again(tmp_path):
    device = phone(tmp_path)
    (device.root / "data/settings/global.stay_on_while_plugged_in").unlink()
    before = device.snapshot()
    with control(device):
        assert device.setting("stay_on_while_plugged_in") == "7"
    assert device.snapshot() == before | {"data/fixed-performance": "false"}
    assert "settings delete global stay_on_while_plugged_in" in device.read("data/log")


def test_a_setting_that_the_device_does_not_take_is_not_held(tmp_path):
    device = phone(tmp_path)
    script = device.root / "bin" / "settings"
    script.write_text(script.read_text().replace("put) ", "put) [ $3 = stay_on_while_plugged_in ] && exit 0; "))
    before = device.snapshot()
    with control(device) as held:
        assert held.free == {"stay-awake": "stay_on_while_plugged_in: set to '7', it is '0'"}
    assert device.snapshot() == before | {"data/fixed-performance": "false"}


@pytest.mark.parametrize("value", ["7; reboot", "$(id)", "1\n2", "x" * 500, "--user 0"])
def test_a_value_that_is_none_is_not_put_back_later(tmp_path, value):
    device = phone(tmp_path)
    device.put("stay_on_while_plugged_in", value)
    with control(device) as held:
        assert "expected a number" in held.free["stay-awake"]
    assert device.setting("stay_on_while_plugged_in") == value


def test_what_somebody_else_changed_meanwhile_is_left_and_said(tmp_path):
    device, told = phone(tmp_path, "s9").rooted(), []
    policy = "sys/devices/system/cpu/cpufreq/policy4/scaling_governor"
    with control(device, told):
        device.put("screen_brightness", "55", "system")
        device.file(policy).write_text("powersave\n")
    assert device.setting("screen_brightness", "system") == "55"
    assert device.setting("screen_brightness_mode", "system") == "1"
    assert device.read(policy) == "powersave"
    assert device.read(policy.replace("policy4", "policy0")) == "schedutil"
    assert "brightness: screen_brightness was '102', we made it '1', somebody made it '55': left as it is" in told
    assert any("somebody made it 'powersave'" in text for text in told)
    assert journal.waiting() == []


def test_what_was_so_before_is_not_touched(tmp_path):
    device = phone(tmp_path)
    device.put("airplane_mode_on", "1")
    with control(device) as held:
        assert held.held["airplane"] == "on"
    assert device.setting("airplane_mode_on") == "1"
    assert "airplane" not in device.read("data/log")


@pytest.mark.parametrize("error", [DeviceError("x"), KeyboardInterrupt()])
def test_an_exception_puts_everything_back(tmp_path, error):
    device = phone(tmp_path, "s9").rooted()
    before = device.snapshot()
    with pytest.raises(type(error)):
        fails(device, error)
    assert "settings put global stay_on_while_plugged_in 7" in device.read("data/log")
    assert device.snapshot() == before


def fails(device, error, told=None):
    with control(device, told):
        device.lost = isinstance(error, DeviceLost)
        raise error


def test_a_block_within_a_block_is_under_the_same_control(tmp_path):
    device = phone(tmp_path)
    with control(device) as outer:
        with control(device) as inner:
            assert inner is outer
        assert device.setting("stay_on_while_plugged_in") == "7"
        put_back_left_over(device)
        assert device.setting("stay_on_while_plugged_in") == "7", "what we hold is not left over"
    assert device.setting("stay_on_while_plugged_in") == "0"


@pytest.mark.parametrize("name", knobs.names())
def test_every_knob_turns_and_is_put_back(tmp_path, name):
    """The contract of a knob, on the device that has it."""
    device = phone(tmp_path, "pi5" if name == "boost" else "pixel").rooted()
    probe, knob = probe_device(device), knobs.get(name)()
    before = device.snapshot()
    assert isinstance(knob, Knob)
    assert knob.purpose
    assert knob.exists(probe, device)
    assert knob.available(probe, device) is None
    shown, wanted = knob.show(device), knob.wanted(probe, device)
    assert wanted
    assert device.snapshot() == before, "asking changes nothing"
    if not knob.changes:
        return
    knob.set(device, wanted)
    if knob.tells:
        assert knob.show(device) == wanted
        assert set(shown) == set(wanted)
    assert knob.restore(device, shown, wanted) == []
    assert {key: value for key, value in device.snapshot().items() if "fixed" not in key} == before
    assert all(len(text) < 60 for text in wanted.values())


def test_a_knob_that_is_not_known():
    with pytest.raises(UnknownName, match="governor"):
        knobs.get("govenor")


def test_cores_that_cannot_be_told_apart_are_said(tmp_path):
    device = phone(tmp_path, "pi5")
    probe = probe_device(device)
    unknown = tuple(replace(cpu, max_khz=0, min_khz=0, part=str(cpu.index // 2)) for cpu in probe.cpus)
    assert "cpus = [...]" in knobs.get("cores")().available(replace(probe, cpus=unknown), device)
    pixel = probe_device(phones.make(tmp_path / "pixel", "pixel"))
    assert "are not for us" in knobs.get("cores")().available(replace(pixel, allowed=(0, 1)), device)
    assert knobs.get("threads")().wanted(replace(pixel, allowed=(0, 1, 6)), device) == {"at most": "1"}
    assert knobs.get("threads")().wanted(Probe("", "", "", (), (), (), 0, "", False), device) == {"at most": "1"}


# A process that holds a device until it is ended, as a campaign would.
HOLD = f"""
import sys, time
sys.path[:0] = [{str(HERE)!r}]
from pathlib import Path
from phones import Phone
from hwbench.devices import leased, probe_device
from hwbench.devices.control import Conditions, controlled
device = Phone(Path(sys.argv[1]))
with leased(device.identity), controlled(Conditions.CONTROLLED, probe_device(device), device):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def start():
    """How the process that holds a device is started; a test may have it another way."""
    return heeding


@pytest.fixture
def holder(tmp_path, start):
    """A device, and a process that has it under control."""
    device = phone(tmp_path, "s9").rooted()
    before = device.snapshot()
    argv = [sys.executable, "-c", HOLD, str(device.root)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, preexec_fn=start)
    assert process.stdout.readline() == "held\n"
    yield device, before, process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_everything_back(holder, number):
    device, before, process = holder
    process.send_signal(number)
    assert process.wait(20) in (128 + number, -signal.SIGINT, 1)
    assert device.snapshot() == before
    assert journal.waiting() == []


@pytest.mark.parametrize("start", [in_the_background])
def test_19_29_in_the_background_sigterm_puts_everything_back_and_the_rest_is_ignored(holder, start):
    device, before, process = holder
    held = device.snapshot()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGINT):
        process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    assert device.snapshot() == held != before
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    assert device.snapshot() == before
    assert journal.waiting() == []


def test_19_29_what_is_ignored_does_not_end_the_putting_back():
    code = """
    import os, signal
    from hwbench.devices.interrupts import uninterrupted
    with uninterrupted():
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGINT):
            os.kill(os.getpid(), number)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, preexec_fn=in_the_background)


def test_a_signal_ends_the_process_although_what_held_it_back_fails():
    code = """
    import os, signal
    from hwbench.devices.interrupts import uninterrupted
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("something else")
    except KeyboardInterrupt as interrupt:
        assert isinstance(interrupt.__context__, ValueError)
    except ValueError:
        raise SystemExit("the signal is lost")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, preexec_fn=heeding)


def test_after_kill_9_the_next_contact_puts_everything_back(holder):
    device, before, process = holder
    held, told = device.snapshot(), []
    put_back_left_over(device, told.append)
    assert device.snapshot() == held, "another process measures on it"
    assert told == []
    process.kill()
    process.wait()
    assert device.snapshot() == held != before
    put_back_left_over(device, told.append)
    assert device.snapshot() == before
    assert "governor was left turned by a process that was ended" in " ".join(told)
    assert journal.waiting() == []
    told.clear()
    put_back_left_over(device, told.append)
    assert told == []


def test_a_terminal_that_is_interrupted_twice_loses_nothing(holder):
    device, before, process = holder
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    process.wait(20)
    put_back_left_over(device)
    assert device.snapshot() == before


def test_a_process_that_dies_at_any_moment_leaves_nothing_behind(tmp_path):
    """Every command and every write of the journal in turn is what a process does not come to any more."""
    device = phone(tmp_path, "pi5").rooted()
    for path in device.root.glob("sys/devices/system/cpu/cpufreq/policy*/scaling_m*_freq"):
        path.unlink()  # without the clocks it is half as long
    before, probe = device.snapshot(), probe_device(device)
    moments = 0
    for moment in range(200):
        status = _dies(device, probe, moment)
        held = device.snapshot()
        put_back_left_over(device)
        assert device.snapshot() == before, f"moment {moment}"
        assert journal.waiting() == []
        if status == 0:
            break
        assert status == 9
        moments += held != before
    assert moment > 15
    assert moments > 5, "many of them came while something was turned"


def _dies(device, probe, moment) -> int:
    """Runs a controlled block in a process that ends without a word at its n-th step; its exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the process has one thread
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        steps = iter(range(10_000))

        def last(function):
            def step(*arguments, **options):
                if next(steps) == moment:
                    os._exit(9)
                return function(*arguments, **options)

            return step

        device.run = last(device.run)
        journal.write_bytes = last(journal.write_bytes)
        with controlled(Conditions.CONTROLLED, probe, device):
            pass
        os._exit(0)
    finally:
        os._exit(77)


class Lost(phones.Phone):
    """A phone whose cable comes off when it is told so."""

    lost = False

    def run(self, argv, **options):
        if self.lost:
            raise DeviceLost("cable")
        return super().run(argv, **options)


def test_a_device_that_was_lost_is_put_back_when_it_is_there_again(tmp_path):
    device, told = Lost(phone(tmp_path).root), []
    before = device.snapshot()
    with pytest.raises(DeviceLost):
        fails(device, DeviceLost("cable"), told)
    assert "the next command that reaches the device does it" in told[-1]
    assert journal.waiting()
    device.lost = False
    put_back_left_over(device)
    assert device.snapshot() == before | {"data/fixed-performance": "false"}


class Slow(phones.Phone):
    """A phone that is busy: it begins its fixed performance mode, answers too late, and does not come to end it."""

    busy = True

    def run(self, argv, **options):
        if not self.busy or "set-fixed-performance-mode-enabled" not in argv:
            return super().run(argv, **options)
        if argv[-1] == "true":
            super().run(argv, **options)
        return CommandResult(-9, timed_out=True)


def test_a_mode_that_a_phone_began_without_an_answer_is_put_back_later(tmp_path):
    device, told = Slow(phone(tmp_path).root), []
    before = device.snapshot()
    command = "cmd power set-fixed-performance-mode-enabled"
    with control(device, told) as held:
        assert held.free["fixed-performance"] == f"{command} true: no answer within 30 s"
    assert f"fixed-performance could not be put back: {command} false: no answer within 30 s; the next" in told[-1]
    assert device.read("data/fixed-performance") == "true"
    device.busy = False
    put_back_left_over(device)
    assert device.snapshot() == before | {"data/fixed-performance": "false"}
    assert journal.waiting() == []


def left_over(device):
    """Turns everything, as a process does that is killed then."""
    with pytest.raises(DeviceLost):
        fails(device, DeviceLost("cable"))
    device.lost = False


def test_another_device_at_the_same_address_is_left_alone(tmp_path):
    left_over(Lost(phone(tmp_path).root))
    other = phones.make(tmp_path / "other", "pixel")
    (other.root / "data/props/ro.serialno").write_text("ANOTHER\n")
    before, told = other.snapshot(), []
    put_back_left_over(other, told.append)
    assert other.snapshot() == before
    assert "of another device" in told[0]
    assert journal.waiting(), "it waits for its own device"


def test_the_same_phone_reached_in_another_way_is_recognised(tmp_path):
    device = Lost(phone(tmp_path).root)
    before = device.snapshot()
    left_over(device)
    same = phones.Phone(device.root, name="192.168.1.7:5555", over_usb=False)
    put_back_left_over(same)
    assert same.snapshot() == before | {"data/fixed-performance": "false"}
    assert journal.waiting() == []


def test_a_board_is_not_asked_about_a_phone(tmp_path):
    left_over(Lost(phone(tmp_path).root))

    class Board(phones.Phone):
        identity = "ssh:board:22"

    board = Board(phones.make(tmp_path / "board", "pi5").root)
    put_back_left_over(board)
    assert board.commands == []


def test_what_cannot_be_put_back_is_said_and_tried_again(tmp_path):
    device, told = Lost(phone(tmp_path, "s9").rooted().root), []
    before = device.snapshot()
    left_over(device)
    for name in ("root", "sudoer"):
        (device.root / "data" / name).unlink()
    put_back_left_over(device, told.append)
    assert any(text.startswith("governor could not be put back: needs root") for text in told)
    assert device.setting("stay_on_while_plugged_in") == "0", "the others are"
    device.rooted()
    put_back_left_over(device)
    assert device.snapshot() == before


@pytest.mark.parametrize(
    ("knob", "before", "ours"),
    [
        ("governor", {"/etc/passwd": "x"}, {"/etc/passwd": "y"}),
        ("governor", {"/sys/devices/system/cpu/../../../etc/x": "x"}, {}),
        ("governor", {"/sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "$(touch /tmp/x)"}, {}),
        ("no-such-knob", {"a": "b"}, {"a": "c"}),
    ],
)
def test_a_journal_that_was_tampered_with_does_no_harm(tmp_path, knob, before, ours):
    device, told = phone(tmp_path, "s9").rooted(), []
    now = device.snapshot()
    Journal.of(device.identity).add(Change(device.identity, probe_device(device).unit, knob, before, ours))
    put_back_left_over(device, told.append)
    assert device.snapshot() == now


def test_a_journal_that_cannot_be_read(tmp_path):
    device = phone(tmp_path)
    path = Journal.of(device.identity).path
    path.parent.mkdir(parents=True)
    change = {"identity": device.identity, "unit": "", "knob": "screen", "before": {"screen": "asleep"}}
    lines = [b"\xff\xfe", b"{}", b"[1]", b'"x"', json.dumps(change | {"ours": {"screen": 7}}).encode(), b"{"]
    path.write_bytes(b"\n".join(lines))
    assert Journal(path).changes() == []
    put_back_left_over(device)
    with control(device) as held:
        assert held.held["screen"] == "awake"


def test_journals_lie_beside_the_leases_for_all_workspaces(state):
    assert journal.folder() == state / "hwbench" / "knobs"
    assert lease.folder().parent == journal.folder().parent


def test_opening_a_device_puts_back_what_was_left(tmp_path, monkeypatch):
    from hwbench.devices import TransportKind, transports

    device = Lost(phone(tmp_path).root)
    before = device.snapshot()
    left_over(device)
    monkeypatch.setitem(transports._items, "phone", TransportKind(lambda address: phones.Phone(device.root)))
    told = []
    Device("p", "phone").transport(told.append).close()
    assert device.snapshot() == before | {"data/fixed-performance": "false"}
    assert sum("it was put back" in text for text in told) == 4


def test_conditions_in_a_device_file(tmp_path):
    from hwbench.devices.device import read_device

    path = tmp_path / "board" / "device.toml"
    path.parent.mkdir()
    text = 'schema = 1\nname = "board"\ntransport = "local"\n'
    path.write_text(text)
    assert read_device(path).conditions is Conditions.STOCK
    path.write_text(text + 'conditions = "controlled"\n')
    assert read_device(path).conditions is Conditions.CONTROLLED
    path.write_text(text + 'conditions = "control"\n')
    with pytest.raises(InvalidFile, match="did you mean 'controlled'"):
        read_device(path)
