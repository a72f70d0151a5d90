"""What ``devices add`` writes: a file that reads back as it was meant, whatever a device says about itself."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.devices import Device
from hwbench.devices.description import big_cores, describe, describe_state
from hwbench.devices.device import check_name, read_device
from hwbench.devices.device_file import device_toml, write_device
from hwbench.devices.probe import Cpu, Probe, parse
from hwbench.devices.state import parse as parse_state
from hwbench.errors import DeviceError, InvalidFile, InvalidValue
from hwbench.printable import printable, printable_lines
from hwbench.workspace import Workspace

HOSTILE = 'x"\nemulated = false\n[ssh]\nhost = "evil"\n#\x1b[2J\u202e\u2028\x7f\\u0041'


def phone(**changes):
    little = [Cpu(index, "Cortex-A55", str(index), 250, 1_800_000) for index in range(4)]
    big = [Cpu(index, "Cortex-A76", str(index), 1024, 2_400_000) for index in range(4, 8)]
    values = {
        "model": "Maker Phone",
        "arch": "aarch64",
        "kernel": "Linux 4.14",
        "cpus": (*little, *big),
        "allowed": tuple(range(8)),
        "features": ("asimddp",),
        "memory_bytes": 4 << 30,
        "governor": "schedutil",
        "virtualised": False,
        "build": "maker/phone:10",
    }
    return Probe(**(values | changes))


def back(tmp_path, device, notes=()):
    workspace = Workspace(tmp_path)
    return read_device(write_device(workspace, device, notes))


def test_it_reads_back(tmp_path):
    device = Device(
        "pi",
        "ssh",
        description='a "board", 8 GB, größer',
        threads=2,
        cpus=(3, 2),
        emulated=True,
        work_dir="/data/local/tmp/hwbench",
        fingerprint="0123456789abcdef",
        turbo="off",
        options={"host": "pi.local", "port": 2222},
    )
    assert back(tmp_path, device, ["found: a", "found: b"]) == device


def test_spaces_of_a_path_stay(tmp_path):
    device = Device("pi", "ssh", work_dir="/a  b ", options={"host": "pi", "identity": "/keys/my  key"})
    assert back(tmp_path, device) == device


@pytest.mark.parametrize("place", ["description", "work_dir", "option", "note"])
def test_what_a_device_says_cannot_add_a_key(tmp_path, place):
    device = Device("pi", "ssh", emulated=True, options={"host": HOSTILE if place == "option" else "pi"})
    if place in ("description", "work_dir"):
        device = replace(device, **{place: HOSTILE})
    found = back(tmp_path, device, [HOSTILE] if place == "note" else [])
    assert found.emulated
    assert set(found.options) == {"host"}
    text = (tmp_path / "profiles" / "pi" / "device.toml").read_text()
    assert text.isascii()
    assert "\x1b" not in text


@given(st.text(), st.text())
def test_any_text_makes_a_file_that_reads_back(description, note):
    device = Device("pi", "local", description=description)
    values = tomllib.loads(device_toml(device, [note]))
    assert values.get("description", "") == printable(description)
    assert set(values) <= {"schema", "name", "description", "transport", "threads"}


@given(st.text())
def test_printable_text_is_one_line_and_stays_what_it_is(text):
    line = printable(text)
    assert printable(line) == line
    assert len(line.splitlines()) <= 1
    assert json.loads(json.dumps(printable_lines(text))) == printable_lines(printable_lines(text))


def test_long_text_is_cut():
    assert printable("a b\tc\nd") == "a b c d"
    assert printable("abcdef", 4) == "abc…"
    assert printable_lines("a\tb\n\x1b[31mc\x00\r") == "a\tb\n[31mc"


def test_the_big_cores_come_best_first():
    assert big_cores(phone()) == (7, 6, 5, 4)
    prime = phone(cpus=(*phone().cpus[:7], Cpu(7, "Cortex-X1", "7", 1024, 2_900_000)))
    assert big_cores(prime) == (7, 6, 5, 4)
    assert big_cores(phone(allowed=(0, 1, 4))) == (4,)
    assert big_cores(phone(allowed=(0, 1))) == (1, 0)


def test_one_thread_per_core_is_pinned():
    cpus = tuple(Cpu(index, "Xeon", str(index // 2)) for index in range(4))
    assert big_cores(phone(cpus=cpus, allowed=(0, 1, 2, 3))) == (3, 1)


def test_a_probe_in_words():
    facts = describe(phone(model="a\nb", build=""))
    assert ("model", "a b") in facts
    assert "build" not in dict(facts)
    assert [value for name, value in facts if name == "processors"] == [
        "4-7: 4 x Cortex-A76, up to 2.40 GHz, capacity 1024",
        "0-3: 4 x Cortex-A55, up to 1.80 GHz, capacity 250",
    ]
    mixed = describe(phone(cpus=(Cpu(0, "x", "0"), Cpu(2, "x", "2"))))
    assert ("processors", "0,2: 2 x x, clock unknown") in mixed


@pytest.mark.parametrize("name", ["s9", "pixel", "pi5", "server"])
def test_recordings_of_devices_in_words(name):
    folder = Path(__file__).parent / "recordings"
    facts = dict(describe(parse((folder / f"{name}.probe.txt").read_text())))
    now = dict(describe_state(parse_state((folder / f"{name}.state.txt").read_text())))
    assert {"model", "kernel", "ABI", "features", "processors", "memory", "fingerprint"} <= set(facts)
    assert {"load", "free space"} <= set(now)
    assert ("battery" in now) == (name in ("s9", "pixel"))
    assert ("API level" in facts) == (name in ("s9", "pixel"))
    if name != "server":
        assert re.match(r"[0-9]+\.[0-9] °C \(.+\), [0-9]+ sensors", now["temperature"])


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/a", "-a", ".a", "a\n", "a b", "a\x1b", "ä", "a" * 65, "a;b", "$(a)", "a\\b"],
)
def test_a_name_that_is_none(name):
    with pytest.raises(InvalidValue, match="device name: expected letters"):
        check_name(name)


@pytest.mark.parametrize("name", ["s9", "pi-5.local", "A_b", "a" * 64])
def test_a_name(name):
    assert check_name(name) == name


def test_another_device_under_the_name_is_refused():
    probe = phone(model="Other\x1b[2J", kernel="Linux 5")
    Device("s9", "adb").recognise(probe)
    Device("s9", "adb", fingerprint=probe.fingerprint).recognise(probe)
    with pytest.raises(DeviceError) as error:
        Device("s9", "adb", fingerprint=phone().fingerprint).recognise(probe)
    text = str(error.value)
    assert phone().fingerprint in text
    assert probe.fingerprint in text
    assert "Other[2J, Linux 5" in text
    assert "hwbench devices add s9 --force" in text


def test_another_one_of_the_same_kind_is_refused():
    mine = Device("s9", "adb", fingerprint=phone().fingerprint, unit="a" * 16)
    mine.recognise(phone(unit="a" * 16))
    mine.recognise(phone())  # it does not say
    with pytest.raises(DeviceError, match=r"expected unit aaaaaaaaaaaaaaaa, got bbbbbbbbbbbbbbbb .*of the same kind"):
        mine.recognise(phone(unit="b" * 16))


def test_a_fingerprint_that_is_none(tmp_path):
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "device.toml"
    path.write_text('schema = 1\nname = "a"\ntransport = "local"\nfingerprint = "abc"\n')
    with pytest.raises(InvalidFile, match=r"16 hexadecimal digits, got 'abc'; hwbench devices add a --force"):
        read_device(path)
