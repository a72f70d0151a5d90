"""One board under two names, and two boards under one: leases and journals go by the unit that answers."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import phones
import pytest
import sshd as server

from hwbench.devices import Device, Probe, control, holder, lease, leased, occupant, occupied, probe_device
from hwbench.devices.base import Address
from hwbench.devices.control import Conditions, controlled, put_back_left_over
from hwbench.devices.device_file import write_device
from hwbench.devices.journal import Change, Journal, belongs, waiting
from hwbench.devices.local import LocalTransport
from hwbench.devices.remote import RemoteTransport
from hwbench.devices.unit import BOOT_ID, unit_leased, unit_names
from hwbench.errors import DeviceBusy, DeviceLost
from hwbench.testing.links import ShellLink
from hwbench.workspace import Workspace

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(control, "_told", set())


class Board(phones.Phone):
    """A board at an address; its cable may come off."""

    identity = "ssh:board:22"
    lost = False

    def run(self, argv, **options):
        if self.lost:
            raise DeviceLost("cable")
        moved = {"/etc/machine-id": f"{self.root}/etc/machine-id", BOOT_ID: f"{self.root}/boot_id"}
        for path, place in moved.items():
            argv = [word.replace(path, place) for word in argv]
        result = super().run(argv, **options)
        return replace(result, stdout=result.stdout.replace("== /boot_id", f"== {BOOT_ID}"))


def board(tmp_path, name, serial="", boot=""):
    """A Raspberry Pi in a folder; with a serial number and a boot id, or without."""
    device = Board(phones.make(tmp_path / name, "pi5").rooted().root)
    for path, value in (("/etc/machine-id", ""), ("/proc/device-tree/serial-number", serial), ("/boot_id", boot)):
        device.file(path).unlink(missing_ok=True)
        if value:
            device.file(path).parent.mkdir(parents=True, exist_ok=True)
            device.file(path).write_text(value)
    return device


def leave_turned(device):
    """Turns every knob, as a process does whose device is lost then."""
    with controlled(Conditions.CONTROLLED, probe_device(device), device):
        device.lost = True
    device.lost = False


def use(device, told):
    """What a command does: opens the device, measures, and lets go."""
    put_back_left_over(device, told.append)
    with controlled(Conditions.CONTROLLED, probe_device(device), device, told.append):
        assert device.read("/sys/devices/system/cpu/cpufreq/boost") == "0"


# Point 10: what was left turned on one unit is put back on that unit.


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"serial": "A"}, {"serial": "B"}),
        ({"serial": "A", "boot": "1"}, {"serial": "B", "boot": "2"}),
        ({"serial": "A"}, {}),
        ({"boot": "1"}, {"serial": "B", "boot": "2"}),
    ],
)
def test_19_10_another_unit_behind_the_address_is_not_turned_by_what_was_left(tmp_path, one, two):
    first, second, told = board(tmp_path, "first", **one), board(tmp_path, "second", **two), []
    if not one.get("serial"):  # what tells two boards without numbers apart
        second.file("/proc/device-tree/model").write_text("Raspberry Pi 5 Model B Rev 1.1")
    governor = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    first.file(governor).write_text("conservative")
    second.file(governor).write_text("performance")  # as ours of the first: what put it back there before
    before = first.snapshot(), second.snapshot()
    leave_turned(first)
    turned = first.snapshot()
    use(second, told)
    assert second.snapshot() == before[1]
    assert first.snapshot() == turned
    (line,) = [text for text in told if "another device" in text]
    assert all(name in line for name in ("governor", "boost", "frequency", "ssh:board:22", "rm "))
    use(second, told)
    assert sum("another device" in text for text in told) == 1, "once is enough"
    put_back_left_over(first, told.append)
    assert first.snapshot() == before[0]
    assert waiting() == []


def test_19_10_a_unit_that_changes_within_a_block_is_left_alone(tmp_path):
    first, second = board(tmp_path, "first", "A", "1"), board(tmp_path, "second", "B", "2")
    before, told = (first.snapshot(), second.snapshot()), []
    line = Board(first.root)
    with controlled(Conditions.CONTROLLED, probe_device(line), line, told.append):
        line.root = second.root  # someone moved the cable
    assert second.snapshot() == before[1]
    assert first.snapshot() != before[0]
    assert "another device (unit" in told[-1]
    put_back_left_over(first, told.append)
    assert first.snapshot() == before[0]
    assert waiting() == []


def test_19_10_a_start_within_a_block_is_the_same_unit(tmp_path):
    device = board(tmp_path, "first", "A", "1")
    before = device.snapshot()
    with controlled(Conditions.CONTROLLED, probe_device(device), device):
        device.file("/boot_id").write_text("2")
    assert device.snapshot() == before
    assert waiting() == []


def test_19_10_a_board_without_numbers_is_put_back_as_before(tmp_path):
    device = board(tmp_path, "first")
    before = device.snapshot()
    leave_turned(device)
    put_back_left_over(device)
    assert device.snapshot() == before
    assert waiting() == []


def test_19_10_it_is_put_back_by_whatever_address_the_unit_answers(tmp_path):
    device = board(tmp_path, "first", boot="1")  # a boot id alone is enough until the next start
    before = device.snapshot()
    leave_turned(device)

    class Alias(Board):
        identity = "local:board"

    alias = Alias(device.root)
    with leased_elsewhere("ssh:board:22"):
        put_back_left_over(alias)
        assert device.snapshot() != before, "another process has it by the first address"
    put_back_left_over(alias)
    assert device.snapshot() == before
    assert waiting() == []


def test_19_10_one_process_has_one_control_of_a_unit(tmp_path):
    device = board(tmp_path, "first", "A")

    class Alias(Board):
        identity = "ssh:10.0.0.7:22"

    alias, probe = Alias(device.root), probe_device(device)
    with controlled(Conditions.CONTROLLED, probe, device) as held:
        put_back_left_over(alias)
        with controlled(Conditions.CONTROLLED, probe, alias) as again:
            assert again is held
        assert device.read("/sys/devices/system/cpu/cpufreq/boost") == "0"


# Lines as hwbench 0 wrote them.
OLD = Change("ssh:board:22", "", "boost", {"a": "1"}, {"a": "0"}, "2026-01-02T03:04:05+00:00", 7)
PROBE = Probe("Pi", "aarch64", "Linux 6", (), (), (), 0, "", False, unit="A", boot="1")
BARE = replace(PROBE, unit="", boot="")
NEW = replace(OLD, fingerprint=PROBE.fingerprint)


@pytest.mark.parametrize(
    ("change", "probe", "identity", "expected", "same"),
    [
        (replace(OLD, unit="A"), PROBE, "ssh:other:22", "", True),
        (replace(OLD, unit="B"), PROBE, "ssh:board:22", "", False),
        (replace(OLD, unit="B", boot="1"), PROBE, "ssh:board:22", "", False),
        (replace(OLD, unit="A", boot="1"), replace(PROBE, unit=""), "ssh:other:22", "", True),
        (replace(OLD, unit="A", boot="2"), replace(PROBE, unit=""), "ssh:board:22", "", False),
        (replace(OLD, unit="A"), BARE, "ssh:board:22", "", False),
        (replace(OLD, boot="1"), PROBE, "ssh:other:22", "", True),
        (OLD, BARE, "ssh:board:22", "", True),
        (OLD, BARE, "ssh:board:22", BARE.fingerprint, True),
        (OLD, BARE, "ssh:board:22", "0" * 16, False),
        (OLD, BARE, "ssh:board:22", None, False),
        (OLD, BARE, "ssh:other:22", "", False),
        (NEW, BARE, "ssh:board:22", "0" * 16, True),
        (NEW, replace(BARE, kernel="Linux 7"), "ssh:board:22", "", False),
        (NEW, BARE, "ssh:other:22", "", False),
    ],
)
def test_19_10_whose_a_change_is(change, probe, identity, expected, same):
    assert belongs(change, probe, identity, expected) is same


def test_19_10_journals_of_older_versions_are_put_back(tmp_path):
    device = board(tmp_path, "first", "A", "1")
    before = device.snapshot()
    boost = "/sys/devices/system/cpu/cpufreq/boost"
    line = (
        '{"identity": "ssh:board:22", "unit": "UNIT", "knob": "boost", "before": {"FILE": "1"}, "ours": {"FILE": "0"}, '
        '"at": "2026-01-02T03:04:05+00:00", "pid": 3}'
    ).replace("FILE", boost)
    lines = [line.replace("UNIT", unit) for unit in (probe_device(device).unit, "")]
    path = Journal.of("ssh:board:22").path
    path.parent.mkdir(parents=True)
    for line in lines:
        path.write_text(line + "\n")
        device.file(boost).write_text("0")
        put_back_left_over(device, None, "f" * 16 if '"unit": ""' in line else "")
        if '"unit": ""' in line:
            assert device.read(boost) == "0", "the device file says that another one answers"
            put_back_left_over(device, None, probe_device(device).fingerprint)
        assert device.snapshot() == before
        assert not path.exists()


# Point 14: two names of a board are one board.

HOLD = f"""
import sys
sys.path[:0] = [{str(HERE)!r}]
from hwbench.api.devices.check import Check
from hwbench.devices import load_device
from hwbench.workspace import Workspace
from pathlib import Path
workspace = Workspace(Path(sys.argv[1]))
steps = Check(workspace, load_device(workspace, sys.argv[2]), 0).steps()
print(next(step.found for step in steps if step.name in ("shell", "free", "reachable", "device")), flush=True)
print(next(step.name for step in steps), flush=True)
sys.stdin.read()
"""
LEASE = """
import sys
from hwbench.devices import Probe, leased
from hwbench.devices.remote import RemoteTransport
from hwbench.devices.unit import unit_leased
address, unit, boot = sys.argv[1:]
probe = Probe("", "", "", (), (), (), 0, "", False, unit=unit, boot=boot)
with leased(address), unit_leased(probe, address):
    print("held", flush=True)
    sys.stdin.read()
"""


class leased_elsewhere:
    """Another process holds an address, and a unit by its serial number and boot id."""

    def __init__(self, identity, unit="", boot=""):
        argv = [sys.executable, "-c", LEASE, identity, unit, boot]
        self.process = subprocess.Popen(argv, stdin=-1, stdout=-1, text=True)

    def __enter__(self):
        assert self.process.stdout.readline() == "held\n"
        return self.process

    def __exit__(self, *error):
        self.process.communicate()


def this_machine():
    """What it is; a sandbox may hide it."""
    with LocalTransport() as here:
        probe = probe_device(here)
    if not unit_names(probe):
        pytest.skip("this machine tells neither a machine id nor a boot id: systemd-machine-id-setup")
    return probe


@pytest.fixture
def sshd(tmp_path):
    if not server.available() and "HWBENCH_LAB_REQUIRED" not in os.environ:
        pytest.skip("needs sshd: apt-get install openssh-server")
    sshd = server.Sshd(tmp_path / "sshd")
    sshd.known()
    yield sshd
    sshd.stop()


def test_19_14_a_host_name_an_alias_and_this_machine_are_one_board(tmp_path, sshd, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    key = " ".join((sshd.folder / "host_key.pub").read_text().split()[:2])
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("".join(f"[{name}]:{sshd.port} {key}\n" for name in ("127.0.0.1", "localhost")))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(f"Host alias\n  HostName LOCALHOST\n  Port {sshd.port}\n")
    options = {**sshd.options, "known_hosts": str(known_hosts)}
    of_alias = {name: value for name, value in options.items() if name != "port"} | {"host": "alias"}
    workspace = Workspace(tmp_path / "ws")
    unit = this_machine().unit
    for name, way, its in (("number", "ssh", options), ("alias", "ssh", of_alias), ("box", "local", {})):
        work_dir = str(tmp_path / f"work-{name}")
        write_device(workspace, Device(name, way, work_dir=work_dir, options=its, unit=unit))
    argv = [sys.executable, "-c", HOLD, str(workspace.root)]
    first = subprocess.Popen([*argv, "number"], stdin=-1, stdout=-1, text=True)
    assert first.stdout.readline() == f"ssh:127.0.0.1:{sshd.port}\n"
    assert first.stdout.readline() == "shell\n"
    for name in ("alias", "box"):
        second = subprocess.run([*argv, name], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert second.stdout.splitlines()[1] == "free", second
    from hwbench.devices import load_device

    for name in ("number", "alias", "box"):
        with load_device(workspace, name).transport() as transport:
            assert occupant(transport, probe_device(transport)).pid == first.pid
            address = "" if name == "number" else rf", as ssh:127.0.0.1:{sshd.port},"
            expected = rf"the device {transport.identity} is in use by process {first.pid} .*\){address} since "
            with pytest.raises(DeviceBusy, match=expected), occupied(transport):
                pass
    first.communicate()
    for name in ("alias", "box"):
        with load_device(workspace, name).transport() as transport, occupied(transport) as probe:
            assert {holder(one).pid for one in (transport.identity, *unit_names(probe))} == {os.getpid()}
            assert occupant(transport, probe).pid == os.getpid()


def test_19_14_the_list_says_who_has_a_unit_by_another_name(tmp_path):
    from hwbench.api.devices.listing import _describe
    from hwbench.devices import holders

    workspace = Workspace(tmp_path)
    mine = Device("mine", "ssh", options={"host": "10.0.0.7"}, unit="a" * 16)
    other = replace(mine, name="other", options={"host": "10.0.0.8"}, unit="b" * 16)
    with leased_elsewhere("ssh:board.local:22", "a" * 16, "boot") as process:
        described = [_describe(workspace, device.name, device, holders()) for device in (mine, other)]
    assert f"process {process.pid} on" in described[0].holder
    assert "as ssh:board.local:22" in described[0].holder
    assert described[1].holder is None


@pytest.mark.parametrize(
    ("unit", "boot", "busy"),
    [("A", "1", True), ("A", "2", True), ("", "1", True), ("A", "", True), ("B", "2", False), ("", "", False)],
)
def test_19_14_one_name_in_common_is_enough(unit, boot, busy):
    probe = Probe("", "", "", (), (), (), 0, "", False, unit=unit, boot=boot)
    with leased_elsewhere("ssh:board.local:22", "A", "1") as process:
        if not busy:
            with unit_leased(probe, "ssh:10.0.0.7:22"):
                return
        expected = rf"ssh:10.0.0.7:22 is in use by process {process.pid} .*as ssh:board.local:22, .*rm /etc/machine-id"
        with pytest.raises(DeviceBusy, match=expected), unit_leased(probe, "ssh:10.0.0.7:22"):
            pass
    with unit_leased(probe, "ssh:10.0.0.7:22"), unit_leased(probe, "ssh:board.local:22"):
        pass


def test_19_14_a_board_that_tells_nothing_is_held_by_its_address_and_it_is_said(tmp_path):
    device, told = board(tmp_path, "first"), []
    with occupied(device, told.append) as probe:
        assert unit_names(probe) == ()
        assert holder(device.identity).pid == os.getpid()
    assert len(told) == 1
    assert "held by this address alone" in told[0]
    told.clear()
    with occupied(board(tmp_path, "second", "A"), told.append):
        assert told == []
    with leased_elsewhere("ssh:board:22"), pytest.raises(DeviceBusy, match="ssh:board:22"), occupied(device):
        pass


def test_what_another_machine_runs_there_is_told_and_what_it_ran_is_not(tmp_path):
    address = Address("board", work_dir=str(tmp_path / "work"))
    said = []
    with RemoteTransport(ShellLink(), address) as elsewhere:  # whose leases lie elsewhere, too: it takes none here
        process = elsewhere.spawn(["sh", "-c", "echo $$; exec sleep 60"])
        number = process.read_line(20)
        with RemoteTransport(ShellLink(), address) as transport, occupied(transport, said.append):
            assert transport.others == (int(number),)
        (line,) = said
        assert "another hwbench runs something there, from another machine" in line
        assert line.endswith(f"ps -fp {number}")
        process.kill()
        with RemoteTransport(ShellLink(), address) as transport, occupied(transport, said.append):
            transport.spawn(["true"]).wait(20)
            transport._lost()
            assert transport.run(["true"], timeout_s=20).ok
            assert transport.others == ()
        assert said == [line]


# Whoever has the board makes a folder there that must not be there; the address is another one for each process.
RACE = """
import os, sys, time
from hwbench.devices.local import LocalTransport
from hwbench.devices import occupied
from hwbench.errors import DeviceBusy
class Place(LocalTransport):
    identity = f"ssh:{sys.argv[2]}:22"
print("ready", flush=True)
sys.stdin.readline()
had, until = 0, time.monotonic() + 300
while had < 4 and time.monotonic() < until:
    try:
        with occupied(Place()):
            os.mkdir(sys.argv[1])
            time.sleep(0.01)
            os.rmdir(sys.argv[1])
            had += 1
    except DeviceBusy:
        pass
print(had)
"""


def test_19_14_processes_with_names_of_their_own_never_have_a_board_together(tmp_path):
    this_machine()
    argv = [sys.executable, "-c", RACE, str(tmp_path / "there")]
    processes = [subprocess.Popen([*argv, f"name{n}"], stdin=-1, stdout=-1, text=True) for n in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate()[0] == "4\n", "each comes to it"
        assert process.returncode == 0


@pytest.mark.parametrize("number", ["unknown", "0000000000000000", "0123456789ABCDEF", "EMULATOR35X1X11X0"])
def test_19_14_a_number_that_many_devices_have_names_none(number):
    from hwbench.devices.probe import parse

    assert parse(f"== uname\nLinux 6 aarch64\n== ro.serialno\n{number}\n").unit == ""
    assert parse("== uname\nLinux 6 aarch64\n== ro.serialno\nR58M1\n").unit


def test_19_14_the_lease_of_an_address_is_as_older_versions_read_it():
    with leased("ssh:board:22"), leased("unit:a", "ssh:board:22"):
        keys = {frozenset(json.loads(path.read_text())) for path in lease.folder().glob("*.json")}
        assert frozenset({"identity", "pid", "machine", "command", "since"}) in keys
        assert str(holder("ssh:board:22")).count("as ssh") == 0
        assert "as ssh:board:22" in str(holder("unit:a"))
