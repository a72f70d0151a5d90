"""When adb is asked at all; what it says is in test_cli_devices_remote.py, over the real program."""

import socket

import pytest

from hwbench.devices import Device, attached
from hwbench.devices.attached import _plugged_in, serial_of, server_runs, strangers


def interface(root, name, *values):
    folder = root / name
    folder.mkdir(parents=True)
    for key, value in zip(("Class", "SubClass"), values, strict=False):
        (folder / f"bInterface{key}").write_text(f"{value}\n")


def test_a_phone_with_usb_debugging_is_seen_in_sys(tmp_path):
    assert _plugged_in(tmp_path / "none")  # where there is no /sys, only adb knows
    interface(tmp_path, "1-1:1.0", "09", "00")
    interface(tmp_path, "1-2:1.0", "ff")
    assert not _plugged_in(tmp_path)
    interface(tmp_path, "1-3:1.1", "ff", "42")
    assert _plugged_in(tmp_path)


def test_a_server_that_runs_is_found(monkeypatch):
    monkeypatch.delenv("ADB_SERVER_SOCKET", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        assert server_runs()
    assert not server_runs()
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "not a port")
    assert not server_runs()
    monkeypatch.setenv("ADB_SERVER_SOCKET", "tcp:elsewhere:5037")
    assert server_runs()


def test_without_a_phone_and_a_server_adb_is_not_started(monkeypatch):
    def started(*_):
        raise AssertionError("adb was started")

    monkeypatch.setattr("hwbench.devices.adb_program.attached", started)
    monkeypatch.setattr(attached, "server_runs", lambda: False)
    monkeypatch.setattr(attached, "_plugged_in", lambda: False)
    assert strangers([]) == ()


@pytest.mark.parametrize(
    ("transport", "options", "serial"),
    [
        ("local", {}, None),
        ("adb", {}, None),
        ("adb", {"serial": "R58"}, "R58"),
        ("adb", {"host": "192.168.1.7"}, "192.168.1.7:5555"),
        ("adb", {"host": "::1", "port": 5556}, "[::1]:5556"),
        ("adb", {"host": "-x"}, None),
    ],
)
def test_what_adb_calls_a_device(transport, options, serial):
    assert serial_of(Device("x", transport, options=options)) == serial
