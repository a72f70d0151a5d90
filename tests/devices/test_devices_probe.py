import os
from dataclasses import replace

import phones
import pytest

from hwbench.devices import CommandResult, Device, conditions, probe_device
from hwbench.devices.local import LocalTransport
from hwbench.devices.probe import parse, parse_cpu_list, sections
from hwbench.errors import DeviceError, InvalidValue

X86 = """== uname
Linux 6.1.0-18-amd64 x86_64

== /proc/cpuinfo
processor\t: 0
model name\t: Intel(R) Xeon(R)
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu avx2 fma hypervisor avx512_vnni

processor\t: 1
model name\t: Intel(R) Xeon(R)
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu avx2 fma hypervisor avx512_vnni

processor\t: 2
model name\t: Intel(R) Xeon(R)
physical id\t: 0
core id\t\t: 1
flags\t\t: fpu avx2 fma hypervisor avx512_vnni

== /proc/meminfo
MemTotal:       16384000 kB
MemFree:         1000000 kB

== /proc/self/status
Name:\tcat
Cpus_allowed:\t7
Cpus_allowed_list:\t0-2

== /sys/class/dmi/id/product_name
KVM
"""

# Two little cores, one big, one prime, as a phone of 2019 shows them.
PHONE = """== uname
Linux 4.14.117-perf aarch64

== /proc/cpuinfo
Processor\t: AArch64 Processor rev 14 (aarch64)
processor\t: 0
BogoMIPS\t: 38.40
Features\t: fp asimd evtstrm aes crc32 atomics fphp asimdhp asimddp
CPU implementer\t: 0x41
CPU part\t: 0xd05

processor\t: 1
Features\t: fp asimd fphp asimdhp asimddp
CPU implementer\t: 0x41
CPU part\t: 0xd05

processor\t: 2
Features\t: fp asimd fphp asimdhp asimddp
CPU implementer\t: 0x41
CPU part\t: 0xd0b

processor\t: 3
Features\t: fp asimd fphp asimdhp asimddp
CPU implementer\t: 0x99
CPU part\t: 0x0ff

Hardware\t: A Phone

== /proc/self/status
Cpus_allowed_list:\t0-3

== /sys/devices/system/cpu/cpu0/cpu_capacity
261

== /sys/devices/system/cpu/cpu1/cpu_capacity
261

== /sys/devices/system/cpu/cpu2/cpu_capacity
871

== /sys/devices/system/cpu/cpu3/cpu_capacity
1024

== /sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq
1785600

== /sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq
1785600

== /sys/devices/system/cpu/cpu3/cpufreq/cpuinfo_max_freq
2841600

== /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
schedutil

== /sys/devices/system/cpu/cpu3/cpufreq/scaling_governor
schedutil

== ro.product.manufacturer
maker

== ro.product.model
Phone 7

== ro.build.fingerprint
maker/phone/7:10/1
"""


def test_a_virtual_server():
    probe = parse(X86)
    assert (probe.model, probe.arch, probe.kernel) == ("KVM, Intel(R) Xeon(R)", "x86_64", "Linux 6.1.0-18-amd64")
    assert probe.features == ("avx2", "avx512_vnni", "fma")
    assert probe.virtualised
    assert probe.memory_bytes == 16384000 * 1024
    assert probe.governor == "unknown"


def test_threads_of_one_core_are_not_pinned_together():
    probe = parse(X86)
    assert probe.fastest(1) == (2,)
    assert probe.fastest(2) == (2, 1)
    with pytest.raises(InvalidValue, match="2 usable cores"):
        probe.fastest(3)


def test_a_phone():
    probe = parse(PHONE)
    assert probe.model == "maker Phone 7"
    assert [cpu.part for cpu in probe.cpus] == ["Cortex-A55", "Cortex-A55", "Cortex-A76", "0x99/0x0ff"]
    assert [cpu.capacity for cpu in probe.cpus] == [261, 261, 871, 1024]
    assert probe.cpus[3].max_khz == 2841600
    assert probe.features == ("asimd", "asimddp", "asimdhp", "fphp")
    assert probe.governor == "schedutil"
    assert probe.build == "maker/phone/7:10/1"
    assert not probe.virtualised
    assert probe.fastest(3) == (3, 2, 1)


def test_processors_that_are_not_ours_are_not_taken_and_do_not_change_the_device():
    bound = parse(PHONE.replace("Cpus_allowed_list:\t0-3", "Cpus_allowed_list:\t0,2"))
    assert bound.fastest(2) == (2, 0)
    assert bound.fingerprint == parse(PHONE).fingerprint


def with_cpus(text, online, present=None):
    files = {"online": online, "present": present or online}
    return text + "".join(f"\n== /sys/devices/system/cpu/{name}\n{cpus}\n" for name, cpus in files.items())


def test_processors_that_could_be_plugged_in_are_not_there():
    virtual = with_cpus(X86.replace("Cpus_allowed_list:\t0-2", "Cpus_allowed_list:\t0-127"), "0-2")
    assert parse(virtual) == parse(X86)
    assert parse(virtual).fastest(1) == (2,)


def test_processors_that_are_offline_are_not_taken():
    text = PHONE.replace(PHONE[PHONE.index("processor\t: 3") : PHONE.index("== /proc/self/status")], "")
    probe = parse(with_cpus(text, "0-2", "0-3"))
    assert probe.offline == (3,)
    assert probe.allowed == (0, 1, 2)
    assert probe.fastest(1) == (2,)
    device = Device("phone", "adb", cpus=(3, 2), fingerprint=parse(PHONE).fingerprint)
    with pytest.raises(
        InvalidValue, match=r"cpus = \[3, 2\]: processor 3 is offline now; usable: 0, 1, 2. .*cpu3/online"
    ):
        device.pinned(1, probe)
    with pytest.raises(DeviceError, match="processor 3 is offline now, it was updated, or it is another one"):
        device.recognise(probe)


@pytest.mark.parametrize(("switch", "on", "off"), [("intel_pstate/no_turbo", "0", "1"), ("cpufreq/boost", "1", "0")])
def test_turbo_that_something_else_has_switched_off_is_told_with_the_way_back(switch, on, off):
    path = f"/sys/devices/system/cpu/{switch}"
    clock = "\n== /sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq\n{}\n"
    added = parse(f"{X86}{clock.format(4800000)}\n== {path}\n{on}\n")
    now = parse(f"{X86}{clock.format(2400000)}\n== {path}\n{off}\n")
    assert added.fingerprint == parse(X86 + clock.format(4800000)).fingerprint, "those of before stay valid"
    device = Device("nuc", "ssh", fingerprint=added.fingerprint, unit="1" * 16)
    device.recognise(added)
    said = (
        "turbo is off now, it was updated, or it is another one. If turbo was on when the device was added, switch it "
        rf"on, there as root: echo {on} > {path}. "
    )
    with pytest.raises(DeviceError, match=said):
        device.recognise(now)
    with pytest.raises(DeviceError, match=r"one of the same kind, but it is another one\. To go on"):
        device.recognise(replace(added, unit="2" * 16, turbo_on=now.turbo_on))
    # Turbo was off then, as its file says: it is no reason.
    with pytest.raises(DeviceError, match=r"-amd64\): it was updated, or it is another one\. To go on"):
        replace(device, turbo="off").recognise(now)


@pytest.mark.parametrize(("switch", "on", "off"), [("intel_pstate/no_turbo", "0", "1"), ("cpufreq/boost", "1", "0")])
@pytest.mark.parametrize(("noted", "since"), [("off", "Turbo was off when"), ("", "If turbo was off when")])
def test_turbo_that_was_switched_on_since_the_device_was_added_is_told_with_the_way_back(switch, on, off, noted, since):
    path = f"/sys/devices/system/cpu/{switch}"
    clock = "\n== /sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq\n{}\n"
    added = parse(f"{X86}{clock.format(2400000)}\n== {path}\n{off}\n")
    now = parse(f"{X86}{clock.format(4800000)}\n== {path}\n{on}\n")
    device = Device("nuc", "ssh", fingerprint=added.fingerprint, turbo=noted)
    device.recognise(added)
    with pytest.raises(DeviceError) as refused:
        device.recognise(now)
    said = str(refused.value)
    assert "turbo is on now, it was updated, or it is another one. " + since in said
    assert f"switch it off, there as root: echo {off} > {path}. To go on" in said


def test_the_script_asks_about_turbo(tmp_path):
    phones.make(tmp_path / "device", "pi5")
    device = phones.Intel(tmp_path / "device")
    assert probe_device(device).turbo_on == ""
    assert probe_device(device).turbo_off == "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo"
    device.file("sys/devices/system/cpu/intel_pstate/no_turbo").write_text("1\n")
    assert probe_device(device).turbo_off == ""
    assert probe_device(device).turbo_on == "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo"


@pytest.mark.parametrize("online", ["0-3", "8-11", "", "x"])
def test_which_are_online_changes_nothing_where_all_are_or_where_it_does_not_say(online):
    assert parse(with_cpus(PHONE, online)) == parse(PHONE)


@pytest.mark.parametrize(
    ("old", "new"),
    [("4.14.117", "4.14.118"), ("Phone 7", "Phone 8"), ("asimddp", "x"), ("1024", "1023"), ("7:10/1", "7:10/2")],
)
def test_another_device_has_another_fingerprint(old, new):
    assert parse(PHONE.replace(old, new)).fingerprint != parse(PHONE).fingerprint


def test_what_changes_from_minute_to_minute_is_not_in_the_fingerprint():
    assert parse(X86.replace("1000000", "2000000")).fingerprint == parse(X86).fingerprint
    assert len(parse(X86).fingerprint) == 16


@pytest.mark.parametrize(
    "text", ["", "== uname\n", "== uname\nLinux\n== /proc/cpuinfo\nprocessor: x\n", PHONE[:300], X86[:77]]
)
def test_what_a_device_does_not_say_is_unknown(text):
    probe = parse(text)
    assert probe.governor in ("unknown", "schedutil")
    assert len(probe.fingerprint) == 16


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("", ()), ("x", ()), ("1-", ()), ("3,1", (1, 3))]
)
def test_lists_of_processors(text, cpus):
    assert parse_cpu_list(text) == cpus


def test_sections():
    assert sections("noise\n== a\n1\n\n2\n== b\n") == {"a": "1\n\n2", "b": ""}


def test_this_machine():
    with LocalTransport() as transport:
        probe = probe_device(transport)
        again = probe_device(transport)
    assert probe == again
    assert probe.arch == os.uname().machine
    assert probe.kernel == f"Linux {os.uname().release}"
    assert set(probe.allowed) == os.sched_getaffinity(0)
    assert probe.fastest(1)[0] in probe.allowed
    assert probe.memory_bytes > 2**28


def test_a_device_that_was_too_slow_is_not_taken_for_another_one():
    class Slow:
        def run(self, argv, *, timeout_s):
            return CommandResult(-9, PHONE[:300], "", timed_out=True)

    with pytest.raises(DeviceError, match="did not describe itself within 60 s"):
        probe_device(Slow())


def test_conditions_tell_rows_apart():
    probe = parse(PHONE)
    row = conditions(probe, (3,), "native/4")
    assert row["device"] == probe.fingerprint
    assert row["cpus"] == "3"
    assert row["runner"] == "native/4"
    others = [
        conditions(probe, (2,), "native/4"),
        conditions(probe, (3,), "python/1"),
        conditions(replace(probe, governor="performance"), (3,), "native/4"),
        conditions(replace(probe, kernel="Linux 5"), (3,), "native/4"),
    ]
    assert all(other != row for other in others)
    assert all(isinstance(value, str) for value in row.values())


def test_a_device_without_a_shell():
    class Silent:
        def run(self, argv, *, timeout_s):
            return CommandResult(1, "", "permission denied")

    with pytest.raises(DeviceError, match="permission denied"):
        probe_device(Silent())


def test_a_system_that_is_no_linux_is_named(tmp_path, monkeypatch):
    program = tmp_path / "uname"
    program.write_text("#!/bin/sh\necho Darwin 23.1.0 arm64\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with LocalTransport() as transport, pytest.raises(DeviceError) as raised:
        probe_device(transport)
    assert str(raised.value).startswith("the device runs Darwin 23.1.0: hwbench measures on Linux and Android alone")
    assert "\n" not in str(raised.value)
