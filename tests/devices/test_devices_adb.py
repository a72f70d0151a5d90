"""The adb transport over the real adb program, into a lab phone: adbd of ours, aarch64 programs."""

import importlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from hwbench.devices import adb, adb_channel, adb_program, load_device
from hwbench.devices.adb import AdbLink, open_link
from hwbench.devices.adb_channel import MAX_COMMAND_BYTES
from hwbench.devices.adb_program import AdbProgram
from hwbench.devices.base import Address, transports
from hwbench.devices.link import Stream
from hwbench.devices.workplace import work_dir_fault
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, InvalidValue, WorkspaceError
from hwbench.testing import lab
from hwbench.testing.transports import ARGUMENTS, TransportConformance
from hwbench.workspace import Workspace, shipped

MEGA = 1 << 20


@pytest.fixture(scope="module")
def phone():
    lab.skip_if_missing()
    with lab.android_phone() as phone:
        yield phone


@pytest.fixture
def link(phone):
    link = open_link(Address("phone", phone.options), {})
    yield link
    link.close()


def connect(phone):
    return transports.get("adb").connect(Address("phone", phone.options, phone.work_dir))


def collect(channel, stdin=b"", timeout_s=30):
    """Stdout, stderr and status of a channel."""
    if stdin:
        channel.write(stdin)
    channel.end_input()
    parts = {stream: [] for stream in Stream}
    try:
        while (chunk := channel.read(timeout_s)) is not None:
            parts[chunk.stream].append(chunk.data)
        return b"".join(parts[Stream.STDOUT]), b"".join(parts[Stream.STDERR]), channel.status(timeout_s)
    finally:
        channel.close()


@pytest.fixture(scope="module")  # opening and closing one takes seconds of emulation
def transport(phone):
    with connect(phone) as transport:
        yield transport


class TestAdbTransport(TransportConformance):
    pass


# ---------------------------------------------------------------- commands


def test_streams_status_and_stdin(link):
    assert collect(link.open("cat; echo err >&2; uname -m; exit 7"), b"in\n") == (b"in\naarch64\n", b"err\n", 7)
    assert collect(link.open("kill -9 $$")) == (b"", b"", 137)
    assert collect(link.open("no-such-program"))[2] == 127


def test_more_than_any_buffer_holds_goes_both_ways(link):
    data = os.urandom(3 * MEGA)
    assert collect(link.open("cat"), data) == (data, b"", 0)
    both = collect(link.open(f"head -c {3 * MEGA} /dev/zero; head -c {3 * MEGA} /dev/zero >&2"))
    assert both == (bytes(3 * MEGA), bytes(3 * MEGA), 0)


def test_adb_joins_its_arguments_and_we_give_one(link):
    words = " ".join("'" + argument.replace("'", "'\\''") + "'" for argument in ARGUMENTS)
    out, _, _ = collect(link.open(f"for a in {words}; do printf '<%s>' \"$a\"; done"))
    assert out.decode() == "".join(f"<{argument}>" for argument in ARGUMENTS)


def test_a_command_that_adb_would_drop_without_a_word_is_refused(link):
    fits = "x" * (MAX_COMMAND_BYTES - 200)
    assert collect(link.open(f": {fits}; exit 3"))[2] == 3
    with pytest.raises(InvalidValue, match="expected at most 65000 bytes without a zero"):
        link.open(f": {'x' * MAX_COMMAND_BYTES}")
    with pytest.raises(InvalidValue, match="without a zero"):
        link.open("echo a\0b")


def test_a_silent_command_of_a_device_that_answers_goes_on(link, monkeypatch):
    monkeypatch.setattr(adb_channel, "SILENCE_S", 0.2)
    assert collect(link.open("sleep 1; echo done")) == (b"done\n", b"", 0)


def test_a_child_that_holds_the_streams_is_heard(link):
    assert collect(link.open("(sleep 0.3; echo late >&2) & echo first")) == (b"first\n", b"late\n", 0)


def test_nothing_of_the_host_runs(link, tmp_path):
    mark = tmp_path / "mark"
    assert collect(link.open(f"echo $(touch {mark} 2>&1); echo `touch {mark}`"))[2] == 0
    assert not mark.exists()
    with pytest.raises(DeviceError):
        link.get(f"/data/$(touch {mark})`touch {mark}`';touch {mark};'", tmp_path / "got", MEGA)
    assert not mark.exists()


def test_what_a_killed_client_ran_ends_on_the_device(phone):
    code = """
    import sys
    from hwbench.devices import Address, transports
    address = Address("phone", {"host": "127.0.0.1", "port": int(sys.argv[1])}, sys.argv[2])
    transport = transports.get("adb").connect(address)
    process = transport.spawn(["sh", "-c", "echo up; sleep 4321"])
    print(process.read_line(60), flush=True)
    process.read_line(60)
    """
    argv = [sys.executable, "-c", textwrap.dedent(code), str(phone.network.port), phone.work_dir]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout.readline() == "up\n"
            deadline = time.monotonic() + 20  # one look may come at a bad moment
            while not any("4321" in line for line in phone.processes().values()):
                assert time.monotonic() < deadline, phone.processes()
                time.sleep(0.01)
        finally:
            client.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any("4321" in line for line in phone.processes().values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any("4321" in line for line in phone.processes().values())


# ---------------------------------------------------------------- files


def test_a_file_is_sent_once(phone, tmp_path):
    source = tmp_path / "model.pte"
    source.write_bytes(os.urandom(MEGA))
    with connect(phone) as transport:
        there = transport.push(source)
        before = phone.network.passed[lab.Direction.TO_DEVICE]
        assert transport.push(source) == there
    with connect(phone) as transport:
        assert transport.push(source) == there
    assert phone.network.passed[lab.Direction.TO_DEVICE] - before < MEGA // 2


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_files_keep_content_and_can_be_run_as_here(link, phone, tmp_path, mode):
    source = tmp_path / "a 'file', \u0416.bin"
    source.write_bytes(bytes(range(256)) * 300)
    source.chmod(mode)
    os.utime(source, (0, 0))
    target = "/data/local/tmp/it, 'self' $x"
    link.put(source, target)
    assert phone.machine.path(target).stat().st_mode & 0o100 == mode & 0o100
    link.get(target, tmp_path / "back", 10 * MEGA)
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/system/it", r"refuses /system/it: couldn't create file: Permission denied; choose another work_dir"),
        ("/proc/it", r"refuses /proc/it: "),
        (f"/data/local/tmp/{'x' * 300}", r"File name too long"),
        (f"/data/local/tmp/{'x/' * 600}x", r"path too long"),
    ],
)
def test_a_refused_push_says_why(link, tmp_path, target, says):
    (tmp_path / "source").write_bytes(b"x" * MEGA)
    with pytest.raises(DeviceError, match=says) as caught:
        link.put(tmp_path / "source", target)
    assert not isinstance(caught.value, DeviceLost)
    assert str(caught.value).isprintable()


def test_a_full_disk(link, phone, tmp_path):
    if phone.machine.disk is None:
        pytest.skip("filling a lab device's disk needs the right to mount: run as root")
    (tmp_path / "source").write_bytes(b"x" * MEGA)
    phone.fill_disk(MEGA // 2)
    try:
        with pytest.raises(DeviceError, match=r"No space left on device; make room there \(df -h") as caught:
            link.put(tmp_path / "source", "/data/local/tmp/it")
        assert not isinstance(caught.value, DeviceLost)
    finally:
        phone.free_disk()
    link.put(tmp_path / "source", "/data/local/tmp/it")


def test_an_upload_that_broke_off_makes_room_for_the_next(transport, phone, tmp_path):
    if phone.machine.disk is None:
        pytest.skip("filling a lab device's disk needs the right to mount: run as root")
    (tmp_path / "source").write_bytes(os.urandom(2 * MEGA))
    part = f"{Path(transport.temporary('x')).parents[1]}/0123456789abcdef/part.1"
    planted = f"mkdir -p {part} && dd if=/dev/zero of={part}/it bs=4096 count=1024"
    assert transport.run(["sh", "-c", planted], timeout_s=60).ok
    phone.fill_disk(MEGA // 2)
    try:
        there = transport.push(tmp_path / "source")
        size = transport.run(["sh", "-c", f"wc -c < {there}; ls {part}"], timeout_s=20)
        assert size.stdout.split() == [str(2 * MEGA)]
    finally:
        phone.free_disk()


def test_files_that_are_not_there(link, tmp_path):
    with pytest.raises(WorkspaceError, match="cannot read"):
        link.put(tmp_path / "nothing", "/data/local/tmp/x")
    with pytest.raises(WorkspaceError, match="cannot read"):
        link.put(tmp_path, "/data/local/tmp/x")
    with pytest.raises(DeviceError, match="does not give /nothing: no such file"):
        link.get("/nothing", tmp_path / "got", MEGA)
    with pytest.raises(WorkspaceError):
        link.get("/system/bin/getprop", tmp_path / "no" / "such" / "folder", MEGA)


def test_a_folder_or_a_file_without_end_is_not_taken(link, tmp_path):
    for source in ("/system", "/dev/zero"):
        with pytest.raises(DeviceError, match="no such file"):
            link.get(source, tmp_path / "got", MEGA)
    collect(link.open(f"head -c {2 * MEGA} /dev/zero > /data/local/tmp/big"))
    with pytest.raises(DeviceError, match=f"gives more than {MEGA} bytes for /data/local/tmp/big"):
        link.get("/data/local/tmp/big", tmp_path / "got", MEGA)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["got"]


# ---------------------------------------------------------------- losing the device


def lose(phone, kind):
    {"cable": phone.pull_cable, "adbd": phone.kill_server, "wifi": phone.network.drop}[kind]()


def find_again(phone, kind):
    {"cable": phone.plug_in, "adbd": phone.start_server, "wifi": lambda: None}[kind]()


@pytest.mark.parametrize("kind", ["cable", "adbd", "wifi"])
@pytest.mark.parametrize("action", ["run", "put", "get"])
def test_a_device_that_goes_away_is_lost_and_found_again(link, phone, tmp_path, monkeypatch, kind, action):
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.truncate(64 * MEGA)
    big = phone.machine.path("/data/local/tmp/huge")
    with big.open("wb") as file:
        file.truncate(64 * MEGA)
    actions = {
        "run": lambda: collect(link.open("echo up; sleep 60")),
        "put": lambda: link.put(source, "/data/local/tmp/there"),
        "get": lambda: link.get("/data/local/tmp/huge", tmp_path / "got", 100 * MEGA),
    }
    phone.network.delay(0 if action == "run" else 0.002)  # some seconds for 64 MiB
    timer = threading.Timer(0.5, lose, (phone, kind))
    timer.start()
    start = time.monotonic()
    try:
        with pytest.raises(DeviceLost, match=r"went away: .*; connect it again"):
            actions[action]()
        assert time.monotonic() - start < 15
    finally:
        timer.join()
        phone.network.delay(0)
        find_again(phone, kind)
        big.unlink()
    link.reconnect()
    assert collect(link.open("echo ok")) == (b"ok\n", b"", 0)


def test_a_device_that_stays_away(link, phone, monkeypatch):
    monkeypatch.setattr(adb_program, "CALL_S", 1.0)
    monkeypatch.setattr(adb_program, "SETTLE_S", 0.5)
    phone.pull_cable()
    try:
        with pytest.raises(DeviceLost):
            collect(link.open("true"))
        with pytest.raises(DeviceUnreachable, match=r"'phone': adb cannot connect to .*: Connection refused") as caught:
            link.reconnect()
        assert caught.value.exit_status == 3
    finally:
        phone.plug_in()
    link.reconnect()


def test_a_network_that_swallows_everything_is_given_up(link, phone, tmp_path, monkeypatch):
    limits = {adb: ("PUSH_S", "STALL_S", "ANSWER_S"), adb_channel: ("ANSWER_S", "ALIVE_S")}
    for module, names in limits.items():
        for name in names:
            monkeypatch.setattr(module, name, 1.0)
    monkeypatch.setattr(adb_program, "CALL_S", 1.0)
    monkeypatch.setattr(adb_program, "SETTLE_S", 0.5)
    (tmp_path / "source").write_bytes(b"x")
    collect(link.open("echo x > /data/local/tmp/small"))
    channel = link.open("echo up; sleep 60")
    assert channel.read(20).data == b"up\n"
    phone.network.stall()
    try:
        with pytest.raises(DeviceLost, match="a push of 1 bytes did not end"):
            link.put(tmp_path / "source", "/data/local/tmp/there")
        with pytest.raises(DeviceLost, match="no byte of /data/local/tmp/small came for 1 s"):
            link.get("/data/local/tmp/small", tmp_path / "got", MEGA)
        monkeypatch.setattr(adb_channel, "SILENCE_S", 0.5)
        with pytest.raises(DeviceLost, match=r"not a word for 0\.5 s, and it does not answer"):
            channel.read(60)
        with pytest.raises(DeviceUnreachable, match="'phone'"):
            link.reconnect()
    finally:
        phone.network.resume()
    monkeypatch.undo()
    link.reconnect()
    assert collect(link.open("echo ok"))[0] == b"ok\n"


def test_the_end_of_adbs_server_costs_the_command_under_way(link, phone):
    channel = link.open("echo up; sleep 60")
    assert channel.read(20).data == b"up\n"
    subprocess.run(["adb", "kill-server"], check=True, capture_output=True, timeout=20)
    with pytest.raises(DeviceLost, match="adb's connection ended before the command did"):
        collect(channel)
    link.reconnect()
    assert collect(link.open("echo ok"))[0] == b"ok\n"


def test_a_reboot(phone):
    with connect(phone) as transport:
        process = transport.spawn(["sh", "-c", "echo up; sleep 60"])
        assert process.read_line(60) == "up"
        rebooted = threading.Thread(target=phone.reboot)
        rebooted.start()
        with pytest.raises(DeviceLost):
            process.read_line(60)
        assert transport.run(["echo", "again"], timeout_s=60).stdout == "again\n"
        rebooted.join()


# ---------------------------------------------------------------- which device


def test_the_number_of_the_unit_names_it(link):
    assert link.identity == "adb:HWLAB0001"


def test_another_device_at_the_same_place_is_noticed(link, phone):
    phone.machine.set_property("ro.serialno", "OTHER\x1b[2J")
    try:
        with pytest.raises(DeviceUnreachable, match="another device answers there now, 'OTHER") as caught:
            link.reconnect()
        assert str(caught.value).isprintable()
    finally:
        phone.machine.set_property("ro.serialno", "HWLAB0001")
    link.reconnect()


def test_the_s9_is_taken_without_a_serial_and_another_model_is_not(phone):
    device = load_device(Workspace(shipped()), "s9")
    phone.machine.set_property("ro.product.model", "SM-G965F")
    try:
        with pytest.raises(DeviceError, match=r"'s9': expected model SM-G960F or .*, got 'hwbench SM-G965F'") as caught:
            device.transport()
        assert caught.value.exit_status == 3
        phone.machine.set_property("ro.product.model", "SM-G960F")
        with device.transport() as transport:
            assert transport.identity == "adb:HWLAB0001"
            assert work_dir_fault(transport) == ""
    finally:
        phone.machine.set_property("ro.product.model", "lab phone")


def test_several_one_of_which_is_locked(phone):
    assert open_link(Address("any"), {}).identity == "adb:HWLAB0001"
    with lab.android_phone(serial="SECOND", authorised=False) as second:
        # A phone that has just been attached is "offline" or "authorizing" for a moment, on a busy machine for longer.
        assert {(one.serial, one.state) for one in AdbProgram().settled(None, wait=True)} == {
            (phone.serial, "device"),
            (second.serial, "unauthorized"),
        }
        with pytest.raises(DeviceUnreachable, match="2 devices are attached"):
            open_link(Address("any"), {})
        with pytest.raises(DeviceUnreachable, match="accept the dialog"):
            open_link(Address("second", second.options), {})
        second.adbd.authorise()
        assert open_link(Address("second", second.options), {}).identity == "adb:SECOND"
        assert open_link(Address("second", {"serial": second.serial}), {}).identity == "adb:SECOND"


def test_an_adbd_that_does_not_say_how_a_command_ended(phone, monkeypatch):
    with monkeypatch.context() as patch:
        module = importlib.import_module("hwbench.testing.lab.adb_server")
        patch.setattr(module, "_banner", lambda properties: "device::ro.product.model=old;features=cmd")
        phone.kill_server()
        phone.start_server()
        try:
            with pytest.raises(DeviceUnreachable, match=r"Android 6 or older.*expected Android 7 or newer"):
                open_link(Address("old", phone.options), {})
        finally:
            patch.undo()
            phone.kill_server()
            phone.start_server()
    AdbLink(AdbProgram(), Address("phone"), phone.serial, "").reconnect()
