"""What a lab device says of itself, and that nothing of it stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab.clients import adb_on

from hwbench.devices import probe
from hwbench.errors import MissingDependency
from hwbench.testing import lab
from hwbench.testing.lab import hardware


def test_the_probe_finds_two_clusters_and_pins_to_a_big_core(board: lab.VirtualBoard) -> None:
    found = probe.parse(board.machine.run(probe.SCRIPT)[1])
    assert found.arch == "aarch64"
    assert "asimddp" in found.features
    assert [cpu.part for cpu in found.cpus].count("Cortex-A76") == 4
    assert found.allowed == hardware.usable()
    (fastest,) = found.fastest(1)
    if len(found.allowed) > 1:
        assert {cpu.index: cpu.capacity for cpu in found.cpus}[fastest] == 1024
    status, said = board.machine.run(f"taskset {1 << fastest:x} grep Cpus_allowed_list /proc/self/status")
    assert (status, said.split()[-1]) == (0, str(fastest))
    absent = (
        next(cpu.index for cpu in reversed(found.cpus) if cpu.index not in found.allowed)
        if len(found.allowed) < 8
        else None
    )
    if absent is not None:
        assert board.machine.run(f"taskset {1 << absent:x} true")[0] != 0


def test_the_knobs_of_a_phone_keep_their_state(phone: lab.VirtualPhone) -> None:
    def said(command: str) -> str:
        return adb_on(phone, "shell", command).stdout.strip()

    assert said(
        "svc power stayon usb; settings get global stay_on_while_plugged_in; dumpsys power | grep mStayOn="
    ) == ("2\n  mStayOn=true")
    said("svc power stayon false; cmd connectivity airplane-mode enable; input keyevent 223")
    assert said("cmd connectivity airplane-mode; settings get global airplane_mode_on") == "enabled\n1"
    assert said("dumpsys power | grep mWakefulness=") == "mWakefulness=Asleep"
    said(
        "cmd connectivity airplane-mode disable; input keyevent 224; cmd power set-fixed-performance-mode-enabled true"
    )
    assert phone.machine.path("/data/lab/fixed_performance").read_text() == "true\n"
    said("cmd power set-fixed-performance-mode-enabled false")
    phone.machine.set_property("ro.build.version.sdk", "29")
    assert adb_on(phone, "shell", "cmd power set-fixed-performance-mode-enabled true").returncode == 255
    phone.machine.set_property("ro.build.version.sdk", "30")
    assert (
        said("getprop ro.none default; getprop | grep 'ro.product.model'") == "default\n[ro.product.model]: [lab phone]"
    )
    assert adb_on(phone, "shell", "settings put global ../../x 1").returncode == 255


def test_only_a_rooted_device_lets_its_governor_be_set(board: lab.VirtualBoard) -> None:
    path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    assert board.machine.run(f"echo performance > {path}")[0] != 0
    with lab.ssh_board(rooted=True) as rooted:
        assert rooted.machine.run(f"echo performance > {path}; cat {path}") == (0, "performance\n")


def test_a_cpp_program_runs(board: lab.VirtualBoard, tmp_path: Path) -> None:
    (tmp_path / "program.cpp").write_text(
        "#include <iostream>\nint main() { std::cout << sizeof(void*) << std::endl; }\n"
    )
    argv = ["aarch64-linux-gnu-g++", "-o", str(tmp_path / "program"), str(tmp_path / "program.cpp")]
    subprocess.run(argv, check=True, timeout=120)
    board.machine.path("/tmp/program").write_bytes((tmp_path / "program").read_bytes())
    board.machine.path("/tmp/program").chmod(0o755)
    assert board.machine.run("/tmp/program; rm /tmp/program") == (0, "8\n")


def path_without(folder: Path, *programs: str) -> str:
    """A search path with everything that is on the one of now but some programs."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            if program.name not in programs and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def test_a_device_needs_the_programs_of_its_own_way_alone(
    laboratory: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Real ones, with a search path that lacks those of the other way."""
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", path_without(tmp_path / "board", "adb"))
    with lab.ssh_board() as board:
        assert board.machine.run("uname -m") == (0, "aarch64\n")
    fetched = subprocess.run([sys.executable, "-m", "hwbench.testing.lab"], capture_output=True, text=True)
    assert (fetched.returncode, fetched.stdout) == (0, "")
    assert fetched.stderr == "over adb the laboratory needs adb: apt-get install adb\n"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PATH", path_without(tmp_path / "phone", "ssh", "sftp", "ssh-keygen"))
    with lab.android_phone(connected=False) as phone:
        assert phone.machine.run("uname -m") == (0, "aarch64\n")


KILLED = """
import os, signal
from hwbench.testing import lab
with lab.android_phone() as phone, lab.ssh_board() as board:
    phone.machine.run("sleep 82 > /dev/null 2>&1 &")
    print(phone.machine.folder, board.machine.folder, phone.adbd._process.pid, board.sshd._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_laboratory_leaves_is_swept(laboratory: None) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=120)
    words = done.stdout.split()
    folders, pids = [Path(word) for word in words[:2]], [int(word) for word in words[2:]]
    assert all(folder.exists() for folder in folders), done.stderr
    with lab.ssh_board():
        assert not any(folder.exists() for folder in folders)
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))
    assert "sleep 82" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(folders[0]) not in Path("/proc/mounts").read_text()


def alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_what_is_missing_is_said_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        "hwbench.devices.laboratory.program_path", lambda name: None if name in ("adb", "proot") else "/bin/true"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert lab.requirements() == [
        "the laboratory needs adb, proot: apt-get install adb proot",
        "the laboratory needs an aarch64 busybox: python3 -m hwbench.testing.lab",
    ]
    with pytest.raises(MissingDependency, match="needs proot: apt-get install proot;"), lab.ssh_board():
        pass
    with pytest.raises(MissingDependency, match="apt-get install adb proot"), lab.android_phone(connected=False):
        pass
    monkeypatch.delenv(lab.REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install adb proot"):
        lab.skip_if_missing()
    monkeypatch.setenv(lab.REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install adb proot"):
        lab.skip_if_missing()


def test_the_environment_is_put_back(laboratory: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with lab.adb_server() as outer, lab.adb_server() as inner:
        assert inner is outer
        assert os.environ["ANDROID_ADB_SERVER_PORT"] == str(outer.port)
