"""The real adb program against a server of ours: what it lists, what goes wrong with it, and the sentence for each."""

import contextlib
import logging
import shutil
import socket
import subprocess
import threading

import pytest

from hwbench.devices import adb, adb_program
from hwbench.devices.adb import open_link
from hwbench.devices.adb_program import AdbProgram, Attached, attached, checked_word, is_address, is_loopback, place_of
from hwbench.devices.base import Address
from hwbench.errors import DeviceUnreachable, InvalidValue
from hwbench.testing.lab.adb_server import PORT_VARIABLE, AdbServer

needs_adb = pytest.mark.skipif(shutil.which("adb") is None, reason="needs adb: apt-get install adb")

READY = "R58K12ABCDE            device usb:1-1 product:starltexx model:SM_G960F device:starlte transport_id:1\n"
OTHER = "R58K99ZYXWV            device usb:1-2 product:star2ltexx model:SM_G965F device:star2lte transport_id:2\n"
UNAUTHORIZED = "R58K12ABCDE            unauthorized usb:1-1 transport_id:1\n"
OFFLINE = "R58K12ABCDE            offline usb:1-1 transport_id:1\n"
FORBIDDEN = (
    "(no serial number)     no permissions (user in plugdev group; are your udev rules wrong?); "
    "see [http://developer.android.com/tools/device.html] usb:1-1 transport_id:1\n"
)
GONE = "10.0.0.7:5555          offline transport_id:2\n"


class Server:
    """Speaks as much of adb's server as listing takes; everything about a device is answered ``device offline``."""

    def __init__(self, listing, version=41):
        self.listing, self.version, self.asked = listing.encode(), version, []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                with client, contextlib.suppress(OSError):
                    if self._answer(client):
                        self._socket.close()

    def _answer(self, client):
        """Returns true if it was asked to end."""
        file = client.makefile("rb")
        length = file.read(4)
        question = file.read(int(length, 16)).decode() if length else ""
        self.asked.append(question)
        if question == "host:version":
            client.sendall(b"OKAY0004%04x" % self.version)
        elif question == "host:devices-l":
            client.sendall(b"OKAY%04x" % len(self.listing) + self.listing)
        elif question == "host:kill":
            client.sendall(b"OKAY")
        elif question:
            client.sendall(b"FAIL000edevice offline")
        return question == "host:kill"

    def close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.delenv("ADB_SERVER_SOCKET", raising=False)
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    monkeypatch.setattr(adb_program, "SETTLE_S", 0.2)
    servers = []

    def start(listing, version=41):
        servers.append(Server(listing, version))
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(servers[-1].port))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def refusal(options=None, environment=None):
    with pytest.raises(DeviceUnreachable) as caught:
        open_link(Address("s9", options or {}), environment or {})
    assert caught.value.exit_status == 3
    assert str(caught.value).isprintable()
    assert "'s9'" in str(caught.value)
    return str(caught.value)


@needs_adb
def test_what_is_attached_is_listed_in_all_states(serve):
    tcp = "192.168.1.5:5555       device product:a model:Pixel_7 device:p transport_id:7\n"
    wireless = "adb-2A1-x._adb-tls-connect._tcp device product:a model:Pixel_7 device:p transport_id:9\n"
    emulator = "emulator-5554          device product:sdk model:sdk_gphone device:g transport_id:4\n"
    serve(READY + UNAUTHORIZED + OFFLINE + FORBIDDEN + tcp + wireless + emulator)
    assert [(one.serial, one.state, one.model, one.way) for one in attached()] == [
        ("R58K12ABCDE", "device", "SM_G960F", "usb"),
        ("R58K12ABCDE", "unauthorized", "", "usb"),
        ("R58K12ABCDE", "offline", "", "usb"),
        ("(no serial number)", "no permissions", "", "usb"),
        ("192.168.1.5:5555", "device", "Pixel_7", "tcp"),
        ("adb-2A1-x._adb-tls-connect._tcp", "device", "Pixel_7", "tcp"),
        ("emulator-5554", "device", "sdk_gphone", "emulator"),
    ]
    assert [one.ready for one in attached()] == [True, False, False, False, True, True, True]


@needs_adb
@pytest.mark.parametrize(
    ("listing", "says"),
    [
        ("", "no Android device is attached: connect it with a cable that carries data and switch on USB debugging"),
        (READY + OTHER, r"2 devices are attached: R58K12ABCDE (device, SM_G960F), R58K99ZYXWV (device, SM_G965F); say"),
        (UNAUTHORIZED, "R58K12ABCDE): it has not allowed this computer: unlock it and accept the dialog"),
        (UNAUTHORIZED.replace("unauthorized", "authorizing"), "accept the dialog"),
        (
            READY + OTHER + GONE,
            r"2 devices are attached: R58K12ABCDE (device, SM_G960F), R58K99ZYXWV (device, SM_G965F)",
        ),
        (GONE, "no Android device is attached: connect it with a cable that carries data and switch on USB debugging"),
        (
            GONE,
            "adb lists 10.0.0.7:5555: nobody answers there: unlock the device and bring it into this network, or take",
        ),
        (OFFLINE, "it does not answer: unlock it, plug it in again, or: adb reconnect offline"),
        (FORBIDDEN, "sudo usermod -aG plugdev $USER, log in again"),
        (OFFLINE.replace("offline", "recovery"), "start Android: adb reboot"),
        (OFFLINE.replace("offline", "bootloader"), "start Android: fastboot reboot"),
        (OFFLINE.replace("offline", "detached"), "its state is 'detached': plug it in again"),
    ],
)
def test_each_state_has_the_sentence_that_mends_it(serve, listing, says):
    serve(listing)
    assert says in refusal()


@needs_adb
def test_a_serial_that_is_not_attached(serve):
    serve(OTHER)
    assert "expected the one with serial R58K12ABCDE, attached: R58K99ZYXWV (device, SM_G965F)" in refusal(
        {"serial": "R58K12ABCDE"}
    )
    said = refusal({"serial": "X"})
    assert said.endswith("connect it, or write another serial under [adb] in profiles/s9/device.toml")
    serve("")
    assert "serial R58K12ABCDE, nothing is attached" in refusal({"serial": "R58K12ABCDE"})


@needs_adb
@pytest.mark.parametrize(
    ("listing", "options", "mend"),
    [
        (READY + OTHER, {}, "say which it is: add it with --adb SERIAL, or for once"),
        ("", {}, "Over the network: add it with --adb HOST:PORT"),
        (OTHER, {"serial": "X"}, "connect it, or add it with another --adb SERIAL"),
        (READY, {"host": "127.0.0.1", "port": 1}, "Or add it with another --adb HOST:PORT"),
    ],
)
def test_a_device_whose_options_were_typed_is_added_with_another(serve, listing, options, mend):
    serve(listing)
    new = Address("new", options, typed=True)
    with pytest.raises(DeviceUnreachable) as caught:
        open_link(new, {})
    assert mend in str(caught.value)
    assert "device.toml" not in str(caught.value)


@needs_adb
def test_a_serial_of_the_environment_is_not_looked_for_in_the_device_file(serve):
    serve(OTHER)
    said = refusal(environment={"ANDROID_SERIAL": "X"})
    assert "expected the one with serial X, attached" in said
    assert said.endswith("connect it, or clear the variable of the environment that asks for it: unset ANDROID_SERIAL")
    with pytest.raises(InvalidValue, match=r"^ANDROID_SERIAL: expected one word"):
        open_link(Address("s9"), {"ANDROID_SERIAL": "a b"})


@needs_adb
@pytest.mark.parametrize(
    ("options", "environment", "mend"),
    [
        ({"host": "127.0.0.1", "port": 1}, {}, "Or write another host under [adb] in profiles/s9/device.toml"),
        ({}, {"ANDROID_SERIAL": "127.0.0.1:1"}, "asks for it: unset ANDROID_SERIAL"),
    ],
)
def test_an_address_where_nobody_answers_is_told_with_where_it_stands(serve, options, environment, mend):
    serve(READY)
    said = refusal(options, environment)
    assert "cannot connect to 127.0.0.1:1" in said
    assert "adb tcpip 5555; Android 11 and newer: adb pair HOST:PAIRING_PORT first, then the other port of its" in said
    assert said.endswith(mend)


@needs_adb
def test_of_several_the_one_that_is_named_is_taken(serve):
    server = serve(READY + OTHER)
    assert "R58K99ZYXWV went away: device offline" in refusal({"serial": "R58K99ZYXWV"})
    assert "host-serial:R58K99ZYXWV:features" in server.asked
    assert "R58K12ABCDE went away" in refusal(environment={"ANDROID_SERIAL": "R58K12ABCDE"})


@needs_adb
@pytest.mark.parametrize("listing", [READY + GONE, GONE + READY])
def test_a_place_where_nobody_answers_is_not_taken_for_a_second_device(serve, listing):
    serve(listing)
    assert "R58K12ABCDE went away: device offline" in refusal()
    assert "attached: " in refusal({"serial": "X"})


@pytest.mark.long
@needs_adb
def test_a_place_where_nobody_answers_leaves_nothing_in_adbs_list(tmp_path, monkeypatch):
    monkeypatch.setattr(adb_program, "CALL_S", 1.0)
    monkeypatch.delenv("ADB_SERVER_SOCKET", raising=False)
    server = AdbServer(tmp_path / "server")
    monkeypatch.setenv(PORT_VARIABLE, str(server.port))
    server.start()
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            assert f"cannot connect to 127.0.0.1:{port}: no answer" in refusal({"host": "127.0.0.1", "port": port})
            assert attached() == ()
            AdbProgram().call("connect", f"127.0.0.1:{port}")  # by somebody else, who may be waiting for it
            assert f"cannot connect to 127.0.0.1:{port}: no answer" in refusal({"host": "127.0.0.1", "port": port})
            assert [(one.serial, one.state) for one in attached()] == [(f"127.0.0.1:{port}", "offline")]
    finally:
        server.stop()


@needs_adb
def test_the_environment_cannot_turn_the_choice(serve, monkeypatch):
    serve(READY)
    monkeypatch.setenv("ANDROID_SERIAL", "elsewhere")
    assert "R58K12ABCDE went away" in refusal()


@needs_adb
@pytest.mark.parametrize("serial", ["-H", "--help", "\x1b[2Jx y", "a\u202eb c"])
def test_a_hostile_serial_is_shown_plainly_and_never_used(serve, serial):
    server = serve(f"{serial}    device usb:1-1 product:x model:\x1b[31mSM device:y transport_id:1\n")
    (one,) = attached()
    assert str(one).isprintable()
    assert not one.usable_serial
    assert "is no single word" in refusal()
    assert {"host:version", "host:devices-l"} >= set(server.asked)


@pytest.mark.parametrize("text", ["-H", "-s", "a b", "a\nb", "", "a\0b", "\x1b[2J", "\u0416"])
def test_a_serial_or_host_that_adb_cannot_be_given(text):
    with pytest.raises(InvalidValue, match="expected one word"):
        checked_word("serial", text)
    with pytest.raises(InvalidValue, match="expected one word"):
        place_of(text)
    if text:
        with pytest.raises(InvalidValue, match="expected one word"):
            open_link(Address("s9", {"serial": text}), {})
        with pytest.raises(InvalidValue, match="expected one word"):
            AdbProgram().call("features", serial=text)


def test_addresses():
    assert place_of("192.168.1.5") == "192.168.1.5:5555"
    assert place_of("fe80::1", 4000) == "[fe80::1]:4000"
    assert place_of("[::1]", 4000) == "[::1]:4000"
    assert is_address("pi.local:5555")
    assert not is_address("R58K12ABCDE")
    assert [is_loopback(text) for text in ("127.0.0.1:5", "[::1]:5", "localhost:5", "192.168.1.5:5", "R58")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(InvalidValue, match="expected 1 to 65535, got 70000"):
        place_of("a", 70000)


def test_options_that_contradict_each_other():
    with pytest.raises(InvalidValue, match="expected serial, or host and port, got both"):
        open_link(Address("s9", {"serial": "a", "host": "b"}), {})
    with pytest.raises(InvalidValue, match="expected host beside it"):
        open_link(Address("s9", {"port": 5555}), {})


def test_adb_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceUnreachable, match=r"sudo apt-get install adb .*brew install.*winget install"):
        attached()
    (tmp_path / "adb").write_text("no program")
    (tmp_path / "adb").chmod(0o755)
    with pytest.raises(DeviceUnreachable, match="cannot be started: Exec format error"):
        attached()


@needs_adb
def test_a_server_of_another_version_is_replaced_and_said(serve, caplog, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    server = serve(READY, version=39)
    program = AdbProgram()
    try:
        with caplog.at_level(logging.WARNING):
            assert program.start()
        assert "host:kill" in server.asked
        assert "another adb was running (protocol 39, this one has 41)" in caplog.text
        assert not program.start()
        assert program.attached() == ()
    finally:
        subprocess.run(["adb", "kill-server"], check=True, capture_output=True, timeout=20)


@needs_adb
def test_a_server_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(adb_program, "START_S", 0.5)
    monkeypatch.delenv("ADB_SERVER_SOCKET", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        with pytest.raises(DeviceUnreachable, match=rf"0\.5 s on tcp:localhost:{port}: another program may hold"):
            attached()


@needs_adb
def test_a_server_elsewhere_that_is_not_there(monkeypatch):
    monkeypatch.setenv("ADB_SERVER_SOCKET", "tcp:127.0.0.1:1")
    with pytest.raises(DeviceUnreachable, match=r"does not start on tcp:127\.0\.0\.1:1"):
        attached()


@needs_adb
def test_a_server_that_answers_something_else(serve):
    server = serve(READY)
    server._answer = lambda client: client.sendall(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(
        DeviceUnreachable, match=r"adb cannot list what is attached: failed to check server version: .*adb kill-server"
    ):
        AdbProgram().attached()


@needs_adb
def test_adb_over_the_network_is_warned_of_once(serve, caplog, monkeypatch):
    monkeypatch.setattr(adb, "_warned", set())
    serve("")
    with caplog.at_level(logging.WARNING):
        for host in ("192.0.2.1", "192.0.2.1", "127.0.0.1"):
            assert "adb cannot connect to" in refusal({"host": host})
    assert [record.message.count("a shell on the device") for record in caplog.records] == [1]


def test_a_device_describes_itself_in_a_line():
    assert str(Attached("a", "device", "SM_G960F", "usb")) == "a (device, SM_G960F)"
    assert str(Attached("a", "offline", "", "usb")) == "a (offline)"
    assert Attached("a", "device", "", "usb").mend == ""
