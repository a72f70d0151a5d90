"""Knobs on devices that change meanwhile: they get hot, put cores to sleep, are started anew, are slow to answer."""

import os
import signal

import phones
import pytest

from hwbench.devices import CommandResult, control, journal, probe_device
from hwbench.devices.control import Conditions, controlled, put_back_left_over
from hwbench.errors import DeviceError

CPUS = "sys/devices/system/cpu"
BIG = f"{CPUS}/cpufreq/policy4"
BOOT_ID = "proc/sys/kernel/random/boot_id"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def device(tmp_path):
    """A phone without fixed performance, which gives root."""
    return phones.make(tmp_path / "device", "s9").rooted()


@pytest.fixture
def board(tmp_path):
    return phones.make(tmp_path / "device", "pi5").rooted()


def held(device, told=None):
    return controlled(Conditions.CONTROLLED, probe_device(device), device, None if told is None else told.append)


class Hot:
    """Shows the limits of a cluster as Linux does: what was asked for, below what heat allows."""

    def __init__(self, device):
        self.device = device
        self.asked = self.shown = {end: self._read(end) for end in ("min", "max")}
        self.most, self.run = 10**9, device.run
        device.run = self

    def __call__(self, argv, **options):
        result = self.run(argv, **options)
        self.allow(self.most)
        return result

    def allow(self, khz):
        now = {end: self._read(end) for end in ("min", "max")}
        self.asked = {end: now[end] if now[end] != self.shown[end] else self.asked[end] for end in now}
        self.most, self.shown = khz, {end: min(value, khz) for end, value in self.asked.items()}
        for end, value in self.shown.items():
            self._file(end).write_text(f"{value}\n")

    def _read(self, end):
        return int(self._file(end).read_text())

    def _file(self, end):
        return self.device.file(f"{BIG}/scaling_{end}_freq")


def test_clocks_that_heat_limits_at_the_end_are_put_back(device):
    hot, told = Hot(device), []
    before = dict(hot.asked)
    with held(device, told) as holds:
        assert "frequency" in holds.held
        assert hot.asked != before
        hot.allow(1_469_000)
    hot.allow(10**9)
    assert hot.shown == before
    assert journal.waiting() == []
    assert not any("somebody" in line for line in told)


def test_clocks_that_heat_limits_at_the_beginning_are_not_held_and_put_back(device):
    hot = Hot(device)
    before = dict(hot.asked)
    low = before["min"]
    hot.allow(1_469_000)
    with held(device) as holds:
        assert "frequency" in holds.free
    assert hot.asked["min"] == low
    assert journal.waiting() == []


@pytest.mark.parametrize("kind", ["thermal-cpufreq-1", "cpufreq-cpu4", "Processor"])
def test_clocks_that_the_kernel_says_it_limits_are_left_alone(device, kind):
    part = device.file("/sys/class/thermal/cooling_device0")
    part.mkdir()
    (part / "type").write_text(f"{kind}\n")
    (part / "cur_state").write_text("3\n")
    with held(device) as holds:
        assert holds.free["frequency"] == f"the device is too warm: {kind} limits the clocks"
    (part / "cur_state").write_text("0\n")
    with held(device) as holds:
        assert "frequency" in holds.held


def test_a_cluster_that_sleeps_at_the_end_is_put_back_when_it_is_awake(device, tmp_path):
    before, told = device.snapshot(), []
    with held(device, told):
        device.file(BIG).rename(tmp_path / "asleep")
    assert any("governor could not be put back" in line and "does not show" in line for line in told)
    told.clear()
    put_back_left_over(device, told.append)
    assert any("the next command tries again" in line for line in told)
    (tmp_path / "asleep").rename(device.file(BIG))
    put_back_left_over(device)
    assert device.snapshot() == before
    assert journal.waiting() == []


def test_what_a_start_has_undone_is_not_waited_for(device, tmp_path):
    with held(device):
        device.file(BIG).rename(tmp_path / "gone")
    started(device)
    put_back_left_over(device)
    assert journal.waiting() == []


def test_values_that_come_too_late_are_no_values(device):
    before, run, told = device.snapshot(), device.run, []

    def slow(argv, **options):
        late = argv[-1].startswith("set -- /sys") and "scaling_governor" in argv[-1]
        return CommandResult(-9, "", "", timed_out=True) if late else run(argv, **options)

    with held(device, told):
        device.run = slow
    assert any("governor could not be put back" in line for line in told)
    device.run = run
    put_back_left_over(device)
    assert device.snapshot() == before


def test_what_sudo_says_of_the_name_of_a_board_is_no_failure(board):
    before, sudo = board.snapshot(), board.root / "bin" / "sudo"
    said = 'echo "sudo: unable to resolve host pi5: Name or service not known" >&2'
    sudo.write_text(sudo.read_text().replace("PHONE_UID=0;", f"{said}\nPHONE_UID=0;"))
    with held(board) as holds:
        assert holds.held.keys() >= {"governor", "frequency", "boost"}
        assert board.read(f"{CPUS}/cpufreq/policy0/scaling_governor") == "performance"
    assert board.snapshot() == before


def test_an_interrupt_while_it_is_put_back_leaves_nothing_of_the_control(board, monkeypatch):
    end = control._end

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        end(*arguments)

    monkeypatch.setattr(control, "_end", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored, as in the background
    try:
        with pytest.raises(KeyboardInterrupt), held(board):
            pass
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.setattr(control, "_end", end)
    with held(board):
        assert board.read(f"{CPUS}/cpufreq/policy0/scaling_governor") == "performance"


def started(device):
    """The device was started anew: another boot id, and the clocks as the kernel has them."""
    device.file(BOOT_ID).parent.mkdir(parents=True, exist_ok=True)
    device.file(BOOT_ID).write_text("11111111-2222-3333-4444-555555555555\n")
    for path in device.root.glob(f"{CPUS}/cpufreq/policy*/scaling_governor"):
        path.write_text("schedutil\n")


def test_a_device_that_was_started_anew_is_held_again(board):
    board.file(BOOT_ID).parent.mkdir(parents=True, exist_ok=True)
    board.file(BOOT_ID).write_text("00000000-2222-3333-4444-555555555555\n")
    governor, told = f"{CPUS}/cpufreq/policy0/scaling_governor", []
    with held(board, told) as holds:
        started(board)
        holds.again()
        assert board.read(governor) == "performance"
        commands = len(board.commands)
        holds.again()
        assert len(board.commands) == commands + 1, "one question where nothing has changed"
    assert board.read(governor) == "schedutil"
    assert journal.waiting() == []
    assert not any("somebody" in line for line in told)


def test_what_cannot_be_held_after_a_start_ends_the_measurement(board):
    board.file(BOOT_ID).parent.mkdir(parents=True, exist_ok=True)
    board.file(BOOT_ID).write_text("00000000-2222-3333-4444-555555555555\n")
    with held(board) as holds:
        started(board)
        (board.root / "data" / "sudoer").unlink(missing_ok=True)
        (board.root / "data" / "root").unlink(missing_ok=True)
        with pytest.raises(DeviceError, match="was started anew, and boost=off cannot be held any more"):
            holds.again()
