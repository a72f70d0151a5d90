"""Each fault once on both ways in, seen through the real client programs."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab.clients import adb, adb_on, attach_anew, pull, push, run

from hwbench.errors import DeviceError
from hwbench.testing import lab

SIZE = 4 << 20


@pytest.fixture(params=["board", "phone"])
def device(request: pytest.FixtureRequest) -> Iterator[lab.LabDevice]:
    """Up and reachable before and after."""
    device: lab.LabDevice = request.getfixturevalue(request.param)
    yield device
    device.network.resume()
    device.plug_in()
    attach_anew(device)
    device.machine.run(f"rm -rf {device.work_dir}")
    assert run(device, "echo alive").stdout == "alive\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    return path


@pytest.fixture
def target(device: lab.LabDevice) -> str:
    device.machine.run(f"mkdir -p {device.work_dir}")
    return f"{device.work_dir}/target"


def size_there(device: lab.LabDevice, path: str) -> int:
    found = device.machine.path(path)
    return found.stat().st_size if found.exists() else -1


def when_it_runs(device: lab.LabDevice, command: str, fault: Callable[[], object]) -> threading.Thread:
    """Waits until a command runs on the device, then brings the fault about."""

    def wait() -> None:
        deadline = time.monotonic() + 30
        while not any(line.startswith(command) for line in device.processes().values()) and time.monotonic() < deadline:
            time.sleep(0.02)
        fault()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_connection_that_drops_during_a_push(device: lab.LabDevice, source: Path, target: str) -> None:
    device.network.drop_after(SIZE // 2, lab.Direction.TO_DEVICE)
    assert push(device, source, target).returncode != 0
    assert 0 < size_there(device, target) < SIZE
    attach_anew(device)
    assert push(device, source, target).returncode == 0
    assert size_there(device, target) == SIZE


def test_a_connection_that_drops_during_a_pull(
    device: lab.LabDevice, source: Path, target: str, tmp_path: Path
) -> None:
    assert push(device, source, target).returncode == 0
    device.network.drop_after(SIZE // 2, lab.Direction.FROM_DEVICE)
    assert pull(device, target, tmp_path / "back").returncode != 0
    attach_anew(device)
    assert pull(device, target, tmp_path / "back").returncode == 0
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_cable_that_is_pulled_leaves_the_command_running(device: lab.LabDevice) -> None:
    fault = when_it_runs(device, "sleep 78", device.pull_cable)
    done = run(device, "sleep 78; echo ended")
    fault.join()
    assert "ended" not in done.stdout
    assert any("sleep 78" in line for line in device.processes().values())
    assert run(device, "true").returncode != 0
    device.plug_in()
    attach_anew(device)
    assert run(device, "true").returncode == 0
    assert device.kill_for_memory("sleep 78") >= 1


def test_a_stall_holds_everything_and_loses_nothing(device: lab.LabDevice) -> None:
    device.network.stall()
    timer = threading.Timer(1.5, device.network.resume)
    timer.start()
    start = time.monotonic()
    assert run(device, "echo late").stdout == "late\n"
    assert time.monotonic() - start > 1.4
    timer.join()


def test_a_delay_slows_each_piece(device: lab.LabDevice) -> None:
    device.network.delay(0.05)
    start = time.monotonic()
    assert run(device, "true").returncode == 0
    device.network.delay(0)
    assert time.monotonic() - start > 0.1


def test_a_push_that_is_cut_and_confirmed(device: lab.LabDevice, source: Path, target: str) -> None:
    device.machine.truncate_pushes(100_000)
    assert push(device, source, target).returncode == 0
    device.machine.truncate_pushes(None)
    assert size_there(device, target) == 100_000
    assert push(device, source, target).returncode == 0
    assert size_there(device, target) == SIZE


def test_a_server_that_is_killed(device: lab.LabDevice) -> None:
    fault = when_it_runs(device, "sleep 79", device.kill_server)
    assert "ended" not in run(device, "sleep 79; echo ended").stdout
    fault.join()
    assert any("sleep 79" in line for line in device.processes().values())
    assert run(device, "true").returncode != 0
    device.start_server()
    attach_anew(device)
    device.kill_for_memory("sleep 79")
    assert run(device, "true").returncode == 0


def test_a_reboot(device: lab.LabDevice, source: Path, target: str) -> None:
    boot = run(device, "cat /proc/sys/kernel/random/boot_id").stdout
    assert push(device, source, target).returncode == 0
    run(device, "sleep 80 < /dev/null > /dev/null 2>&1 &")
    assert device.processes()
    rebooting = threading.Thread(target=device.reboot, args=(1.0,))
    rebooting.start()
    time.sleep(0.5)
    assert run(device, "true").returncode != 0
    rebooting.join()
    attach_anew(device)
    assert device.processes() == {}
    assert size_there(device, target) == SIZE
    after = run(device, "cat /proc/sys/kernel/random/boot_id").stdout
    assert len(boot) == len(after) == 37
    assert after != boot


def test_a_full_disk(device: lab.LabDevice, source: Path, target: str) -> None:
    if device.machine.disk is None:
        pytest.skip("a disk that commands find full needs the right to mount one: run as root")
    device.fill_disk(left_bytes=1 << 20)
    done = push(device, source, target)
    wrote = run(device, f"dd if=/dev/zero of={target}.2 bs=1M count=4")
    device.free_disk()
    check_no_room(device, done)
    assert "No space left on device" in wrote.stderr
    assert push(device, source, target).returncode == 0


def test_a_full_disk_where_none_can_be_mounted(
    device: lab.LabDevice, source: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab.VirtualMachine, "disk", None)
    device.fill_disk()
    done = push(device, source, target)
    device.free_disk()
    check_no_room(device, done)
    assert push(device, source, target).returncode == 0


def check_no_room(device: lab.LabDevice, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode != 0
    # OpenSSH has no word of its own for it.
    reason = "remote write failed: No space left on device" if isinstance(device, lab.VirtualPhone) else ": Failure"
    assert reason in done.stdout + done.stderr


def test_a_folder_that_takes_no_files(device: lab.LabDevice, source: Path, target: str) -> None:
    device.deny_writes()
    done = push(device, source, target)
    wrote = run(device, f"echo > {target}")
    device.allow_writes()
    assert done.returncode != 0
    assert "Permission denied" in done.stdout + done.stderr
    assert "ermission denied" in wrote.stderr
    assert push(device, source, target).returncode == 0


def test_a_kill_for_memory(device: lab.LabDevice) -> None:
    killed: list[int] = []
    fault = when_it_runs(device, "sleep 81", lambda: killed.append(device.kill_for_memory("sleep 81")))
    done = run(device, "sleep 81; echo $?")
    fault.join()
    assert killed[0] >= 1
    assert done.stdout in ("137\n", "")


def test_heat_and_battery(device: lab.LabDevice) -> None:
    device.machine.set_temperature(43.5)
    device.machine.set_battery(percent=12, charging=False)
    zones = run(device, "cat /sys/class/thermal/thermal_zone*/temp").stdout.split()
    battery = run(device, "cd /sys/class/power_supply; cat battery/capacity battery/status usb/online").stdout.split()
    if isinstance(device, lab.VirtualPhone):
        said = adb_on(device, "shell", "dumpsys battery; dumpsys thermalservice; dumpsys power").stdout
        for line in ("USB powered: false", "level: 12", "temperature: 435", "Thermal Status: 2", "mBatteryLevel=12"):
            assert line in said
    device.machine.set_temperature(28)
    device.machine.set_battery(percent=80, charging=True)
    assert zones == ["45500", "47500", "43500"]
    assert battery == ["12", "Discharging", "0"]


def test_a_device_that_is_off_says_so(laboratory: None) -> None:
    with lab.ssh_board() as board:
        board.machine.shut_down()
        assert run(board, "true").returncode == 255
        with pytest.raises(DeviceError, match="does not answer"):
            board.machine.run("true")


def test_an_adb_server_that_is_killed(phone: lab.VirtualPhone) -> None:
    with lab.adb_server() as server:
        server.kill()
        assert "daemon started successfully" in adb("devices").stderr
        server.stop()
        server.start()
    phone.connect()
    assert adb_on(phone, "shell", "echo back").stdout == "back\n"
