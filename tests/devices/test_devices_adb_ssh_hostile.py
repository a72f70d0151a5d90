"""A device that is broken or hostile fills neither our time nor our memory: over a shell, a real sshd, a real adb."""

import contextlib
import os
import re
import threading
import time
import tracemalloc
from pathlib import Path

import paramiko
import pytest
import sshd as server

from hwbench.devices import adb, adb_channel, adb_program, depot, remote, ssh, ssh_connection, supervisor
from hwbench.devices.adb import AdbLink
from hwbench.devices.adb_channel import AdbChannel, Marks
from hwbench.devices.adb_program import AdbProgram
from hwbench.devices.base import Address, transports
from hwbench.devices.link import Chunk, Stream
from hwbench.devices.remote import RemoteTransport
from hwbench.devices.ssh import SshLink
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable
from hwbench.testing import lab
from hwbench.testing.links import ShellLink

# On a busy machine; what is held for ever takes longer than this.
SOON_S = 60.0
BYTE = "while :; do printf x{to}; sleep 0.1; done"
# What a device may run in place of the supervisor: each says that the command has begun, and never that it ended.
HOSTILE = {
    "a byte now and then": 'echo "$token+"; echo "$token+" >&4; ' + BYTE.format(to=""),
    "a byte of stderr": 'echo "$token+"; echo "$token+" >&4; ' + BYTE.format(to=" >&4"),
    "stderr without end after its end": 'echo "$token+"; echo "$token+" >&4; echo "$token-" >&4; cat /dev/zero >&4',
    "a byte before it begins": BYTE.format(to=""),
    "nothing": "exec cat >/dev/null",
}


@pytest.fixture
def soon():
    start = time.monotonic()
    yield
    assert time.monotonic() - start < SOON_S


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    if not server.available() and "HWBENCH_LAB_REQUIRED" not in os.environ:
        pytest.skip("needs sshd: apt-get install openssh-server")
    sshd = server.Sshd(tmp_path_factory.mktemp("sshd") / "server")
    sshd.known()
    yield sshd
    sshd.stop()


@pytest.fixture(scope="module")
def shell_only(tmp_path_factory, sshd):
    sshd = server.Sshd(tmp_path_factory.mktemp("dropbear") / "server", "")
    sshd.known()
    yield sshd
    sshd.stop()


@pytest.fixture(scope="module")
def phone():
    lab.skip_if_missing()
    with lab.android_phone() as phone:
        yield phone


@pytest.fixture(autouse=True)
def home(request, tmp_path, monkeypatch):
    """No test reads the keys, the configuration or the agent of who runs it; the laboratory lies in the home folder."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    if "adb" not in request.node.name:
        monkeypatch.setenv("HOME", str(tmp_path))


def ways(cases, quick):
    """Each case over each way; over adb, where a command takes seconds of emulation, few of them when time is short."""
    for way in ("shell", "ssh", "adb"):
        for case in cases:
            marks = [pytest.mark.long] if way == "adb" and case not in quick else []
            yield pytest.param(way, case, marks=marks, id=f"{way}-{case.strip()}")


@pytest.fixture
def transport(request, tmp_path):
    address = Address("board", work_dir=str(tmp_path / "work"))
    if request.param == "shell":
        opened = RemoteTransport(ShellLink(), address, pauses_s=(0.0,))
    elif request.param == "ssh":
        sshd = request.getfixturevalue("sshd")
        opened = transports.get("ssh").connect(Address("board", sshd.options, str(tmp_path / "work")))
    else:
        phone = request.getfixturevalue("phone")
        opened = transports.get("adb").connect(Address("board", phone.options, phone.work_dir))
    with opened:
        yield opened


# Time.


@pytest.mark.parametrize(("transport", "kind"), list(ways(HOSTILE, ["a byte now and then"])), indirect=["transport"])
def test_19_12_the_host_has_a_clock_too(transport, monkeypatch, kind, soon):
    assert transport.run(["true"], timeout_s=60).ok
    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "SCRIPT", f"exec 4>&2\n{HOSTILE[kind]}\n")
        patch.setattr(remote, "ANSWER_S", 1.0)
        start = time.monotonic()
        with pytest.raises(DeviceLost, match=r"'board': the command did not end within 1 s after its time limit of"):
            transport.run(["true"], timeout_s=0.5)
        # Twenty bytes are no reason to wait longer.
        assert 1.5 <= time.monotonic() - start < SOON_S / 2
    assert transport.run(["echo", "again"], timeout_s=60).stdout == "again\n"


def test_19_12_what_is_still_on_the_way_is_waited_for(tmp_path, monkeypatch):
    """A command that printed much ends in time; the network needs longer."""

    class Slow(ShellLink):
        def open(self, command):
            channel = super().open(command)
            read = channel.read
            channel.read = lambda timeout_s: (time.sleep(0.05), read(timeout_s))[1]
            return channel

    monkeypatch.setattr(remote, "ANSWER_S", 0.1)
    monkeypatch.setattr(remote, "OUTPUT_BYTES_PER_S", 1000)
    with RemoteTransport(Slow(), Address("board", work_dir=str(tmp_path / "work"))) as transport:
        result = transport.run(["head", "-c", "1000000", "/dev/zero"], timeout_s=20)
        assert (len(result.stdout), result.ok) == (1_000_000, True)


LINES = {"a byte now and then": BYTE.format(to=""), "stderr without end": "exec cat /dev/zero >&2"}


@pytest.mark.parametrize(("transport", "kind"), list(ways(LINES, ["stderr without end"])), indirect=["transport"])
def test_19_12_a_line_is_waited_for_as_long_as_it_was_said(transport, monkeypatch, kind, soon):
    monkeypatch.setattr(remote, "LINE_S", 0.2)
    process = transport.spawn(["sh", "-c", f"echo up; {LINES[kind]}"])
    assert process.read_line(60) == "up"
    with pytest.raises(TimeoutError, match=r"no line in 0\.5 s"):
        process.read_line(0.5)
    with pytest.raises(TimeoutError, match=r"has not ended after 0\.5 s"):
        process.wait(0.5)
    process.kill()


def test_19_12_bytes_that_are_always_there_hold_nobody(tmp_path, soon):
    class Busy(ShellLink):
        """Has some stderr at every look, once a line came and stderr has begun: what comes before that is a banner."""

        def open(self, command):
            channel = super().open(command)
            read, begun = channel.read, set()

            def busy(timeout_s):
                if begun == set(Stream):
                    return Chunk(Stream.STDERR, b"x")
                chunk = read(timeout_s)
                if chunk.stream is Stream.STDERR or b"up\n" in chunk.data:
                    begun.add(chunk.stream)
                return chunk

            channel.read = busy
            return channel

    with RemoteTransport(Busy(), Address("board", work_dir=str(tmp_path / "work"))) as transport:
        process = transport.spawn(["sh", "-c", "echo up; exec sleep 60"])
        assert process.read_line(60) == "up"
        for waiting in (process.read_line, process.wait):
            with pytest.raises(TimeoutError):
                waiting(0.2)


def test_19_12_lines_that_are_there_are_read_without_waiting(tmp_path):
    with RemoteTransport(ShellLink(), Address("board", work_dir=str(tmp_path / "work"))) as transport:
        process = transport.spawn(["sh", "-c", "i=0; while [ $i -lt 100 ]; do echo $i; i=$((i+1)); done; sleep 60"])
        assert process.read_line(60) == "0"
        lines = ["0"]
        with contextlib.suppress(TimeoutError):
            while lines[-1] != "99":
                lines.append(process.read_line(5))
        assert lines == [str(number) for number in range(100)]


@pytest.fixture
def quick(monkeypatch):
    """Limits of seconds in place of minutes."""
    for module, name in ((ssh, "CALL_S"), (ssh, "STALL_S"), (adb, "PUSH_S"), (adb, "ANSWER_S")):
        monkeypatch.setattr(module, name, 1.0)
    monkeypatch.setattr(ssh, "SLOWEST_BYTES_PER_S", 1_000_000)
    monkeypatch.setattr(ssh_connection, "LOOK_S", 0.1)


def test_19_12_a_file_that_comes_byte_by_byte_is_given_up(shell_only, tmp_path, quick, soon):
    os.mkfifo(tmp_path / "pipe")
    stop = threading.Event()

    def trickle():
        with contextlib.suppress(BrokenPipeError), (tmp_path / "pipe").open("wb", 0) as pipe:
            while not stop.wait(0.1):
                pipe.write(b"x")

    link = SshLink(Address("board", shell_only.options))
    writer = threading.Thread(target=trickle)
    writer.start()
    try:
        with pytest.raises(DeviceLost, match=r"did not give .*pipe within 1 s"):
            link.get(str(tmp_path / "pipe"), tmp_path / "back", 100_000)
    finally:
        stop.set()
        link.close()
        writer.join(20)


def fake_adb(tmp_path, script):
    """An adb program of ours; the line of shell that it is given is ``$line``."""
    program = tmp_path / "adb"
    program.write_text(f"#!/bin/sh\nfor line; do :; done\n{script}\n")
    program.chmod(0o755)
    return AdbProgram(str(program))


@pytest.mark.parametrize("talk", ["while :; do printf x >&2; sleep 0.05; done", "exec cat /dev/zero >&2"])
def test_19_12_talk_of_adb_without_end_is_no_answer(tmp_path, quick, talk, soon):
    channel = AdbChannel(fake_adb(tmp_path, talk), "X", "true")
    with pytest.raises(TimeoutError):
        channel.read(0.5)
    assert len(channel._marks._held) <= adb_channel.TALK_BYTES
    channel.close()
    with pytest.raises(DeviceUnreachable, match="runs no command within"):
        AdbLink(fake_adb(tmp_path, f'[ "$line" = features ] || {{ {talk}; }}'), Address("phone"), "X", "").check()


def test_19_12_a_file_of_adb_that_comes_byte_by_byte_is_given_up(tmp_path, quick, soon):
    (tmp_path / "cat").write_text(f"#!/bin/sh\n{BYTE.format(to='')}\n")
    (tmp_path / "cat").chmod(0o755)
    (tmp_path / "file").write_text("x")
    link = AdbLink(fake_adb(tmp_path, f'PATH={tmp_path}:$PATH; eval "$line"'), Address("phone"), "X", "")
    with pytest.raises(DeviceLost, match=r"bytes of .*file came, and no end"):
        link.get(str(tmp_path / "file"), tmp_path / "back", 1000)
    link.close()


# A server of SSH that does not do as it should.


class Hostile(paramiko.ServerInterface):
    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username):
        return "publickey"

    def check_channel_request(self, kind, number):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        channel.get_transport().asked.set()
        return True


class Endless(paramiko.SFTPServerInterface):
    """Has files without end: so many bytes at each time that it is asked, however many were asked for."""

    def open(self, path, flags, attributes):
        handle = paramiko.SFTPHandle(flags)
        count = int(path.rpartition("/")[2])
        handle.read = lambda offset, length: (time.sleep(0.05), bytes(count))[1]
        return handle


class Mute(paramiko.Transport):
    """Answers signs of life; does not say that a command was started."""

    mute = False

    def _send_user_message(self, data):
        if not (self.mute and data.asbytes()[:1] == paramiko.common.cMSG_CHANNEL_SUCCESS):
            super()._send_user_message(data)


@pytest.fixture
def hostile(tmp_path):
    """The server's side of the next connection, and a link to it."""
    import socket

    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server.make_key(tmp_path / "host_key")
    key = server.make_key(tmp_path / "key")
    public = " ".join((tmp_path / "host_key.pub").read_text().split()[:2])
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {public}\n")
    options = {
        "host": "127.0.0.1",
        "port": port,
        "user": "pi",
        "identity": str(key),
        "known_hosts": f"{tmp_path}/known",
    }
    sides = []

    def serve():
        side = Mute(listening.accept()[0])
        side.asked = threading.Event()
        side.add_server_key(paramiko.Ed25519Key.from_private_key_file(str(tmp_path / "host_key")))
        sides.append(side)
        side.set_subsystem_handler("sftp", paramiko.SFTPServer, Endless)
        side.start_server(server=Hostile())

    thread = threading.Thread(target=serve)
    thread.start()
    link = SshLink(Address("board", options))
    thread.join(20)
    yield sides[0], link
    link.close()
    sides[0].close()
    listening.close()


@pytest.fixture
def look_often(monkeypatch):
    monkeypatch.setattr(ssh_connection, "LOOK_S", 0.1)


def test_19_12_a_server_that_starts_no_command_is_given_up(look_often, hostile, monkeypatch, soon):
    side, link = hostile
    side.mute = True
    monkeypatch.setattr(ssh, "CALL_S", 1.0)
    with pytest.raises(DeviceLost, match="did not open a shell within 1 s"):
        link.open("true")
    assert side.asked.is_set()


def test_19_12_a_server_that_takes_nothing_is_given_up(look_often, hostile, monkeypatch, soon):
    _, link = hostile
    channel = link.open("cat")
    monkeypatch.setattr(ssh, "STALL_S", 1.0)
    monkeypatch.setattr(ssh, "SLOWEST_BYTES_PER_S", 1e9)
    with pytest.raises(DeviceLost, match="did not take what was sent within"):
        channel.write(bytes(3 << 20))


def test_19_12_a_file_of_sftp_that_comes_byte_by_byte_is_given_up(hostile, tmp_path, quick, soon):
    _, link = hostile
    with pytest.raises(DeviceLost, match="did not read /1 within 1 s"):
        link.get("/1", tmp_path / "back", 100_000)


def test_19_11_a_file_of_sftp_without_end_is_not_taken(hostile, tmp_path, soon):
    _, link = hostile
    tracemalloc.start()
    with pytest.raises(DeviceError, match="/10000000 is longer than the 100 bytes it was said to have"):
        link.get("/10000000", tmp_path / "back", 100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 << 20
    assert (tmp_path / "back").stat().st_size == 0


def test_19_11_a_server_that_sends_more_than_it_may_is_given_up(look_often, hostile, soon):
    side, link = hostile
    channel = link.open("cat")
    (number,) = side._channels._map
    message = paramiko.Message()
    message.add_byte(paramiko.common.cMSG_CHANNEL_DATA)
    message.add_int(side._channels.get(number).remote_chanid)
    message.add_string(bytes(32_000))
    sent = 0
    # 1 GiB, where nobody looks.
    while side.is_active() and sent < 1 << 30:
        with contextlib.suppress(Exception):
            side._send_message(message)
        sent += 32_000
    assert sent < 1 << 30
    with pytest.raises(DeviceLost, match="sends more than was asked for"):
        link.open("true")
    channel.close()


# Sizes.


def device(tmp_path, **programs):
    """A device whose programs are ours."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, script in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    link = ShellLink(env={"PATH": f"{tools}:{os.environ['PATH']}"})
    return RemoteTransport(link, Address("board", work_dir=str(tmp_path / "work")), pauses_s=(0.0,))


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("999999999999999", r"file has 999999999999999 bytes there; expected at most 536870912, so it is not fetched"),
        ("9" * 5000, "cannot be read"),
        ("\u00b2", "cannot be read"),
        ("\u0663", "cannot be read"),
        ("-1", "cannot be read"),
    ],
)
def test_19_11_a_size_that_the_device_names_is_not_believed(tmp_path, size, said):
    (tmp_path / "file").write_text("x")
    with device(tmp_path, wc=f"echo {size}") as transport, pytest.raises(DeviceError, match=f"'board': .*{said}"):
        transport.pull(str(tmp_path / "file"), tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not list(tmp_path.glob(".back*"))


@pytest.mark.parametrize("kind", ["shell", "local"])
def test_19_11_a_file_that_is_longer_than_expected_is_not_fetched(tmp_path, kind):
    (tmp_path / "file").write_bytes(bytes(1001))
    address = Address("board", work_dir=str(tmp_path / "work"))
    opened = device(tmp_path) if kind == "shell" else transports.get("local").connect(address)
    with opened as transport:
        with pytest.raises(DeviceError, match=r"1001 bytes.*expected at most 1000"):
            transport.pull(str(tmp_path / "file"), tmp_path / "back", most_bytes=1000)
        assert not (tmp_path / "back").exists()
        transport.pull(str(tmp_path / "file"), tmp_path / "back", most_bytes=1001)
    assert (tmp_path / "back").stat().st_size == 1001


def test_19_11_a_list_of_files_that_is_none_prunes_nothing(tmp_path):
    rows = "\\n".join(f"{size}\\t{'0' * 64}.pte" for size in ("9" * 5000, "\u00b2", "-1", "", "1 2"))
    with device(tmp_path, du=f"printf '{rows}\\n'") as transport:
        (tmp_path / "file").write_text("x")
        transport._depot._most_bytes = 0
        assert Path(transport.push(tmp_path / "file")).read_text() == "x"


@pytest.mark.parametrize("path", ["", "work", "/a\\nb", "/\\033[2J", "/" + "x" * 5000])
def test_19_11_a_path_that_the_device_names_is_one(tmp_path, path):
    link = ShellLink()
    with RemoteTransport(link, Address("board", work_dir=str(tmp_path / "work"))) as transport:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(depot, "PREPARE", f"printf '{path}\\n'")
            with pytest.raises(DeviceError, match="expected the path of its work folder, got") as caught:
                transport.temporary("x")
        assert "\033" not in str(caught.value)
        transport._depot.forget()


@pytest.mark.parametrize("kind", ["sshd", "shell_only"])
def test_19_11_nothing_is_laid_out_for_a_size_before_it_comes(request, tmp_path, kind, soon):
    """Of 16 TiB that a device names and does not have, no part is asked for in advance."""
    (tmp_path / "file").write_bytes(os.urandom(3 << 20))
    link = SshLink(Address("board", request.getfixturevalue(kind).options))
    tracemalloc.start()
    try:
        link.get(str(tmp_path / "file"), tmp_path / "back", 1 << 44)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
        link.close()
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()


def test_19_11_what_a_shell_says_to_a_file_is_not_kept(shell_only, tmp_path):
    (tmp_path / "cat").write_text("#!/bin/sh\nhead -c 20000000 /dev/zero >&2\nexit 1\n")
    (tmp_path / "file").write_text("x")
    link = SshLink(Address("board", shell_only.options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssh, "_in_sh", lambda line: f"exec sh {tmp_path}/cat")
        tracemalloc.start()
        with pytest.raises(DeviceError, match="cannot write"):
            link.put(tmp_path / "file", "/nowhere")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 12 << 20
    link.close()


def test_19_11_of_a_call_of_adb_not_more_than_an_answer_is_kept(tmp_path, soon):
    program = fake_adb(tmp_path, "exec cat /dev/zero")
    result = program.call("devices", timeout_s=600)
    assert result.timed_out
    assert len(result.stdout) <= adb_program.MAX_ANSWER_BYTES


def test_19_11_a_mark_without_its_end_holds_back_nothing():
    marks = Marks()
    word = re.search("[0-9a-f]{32}", marks.frame("true"))[0].encode()
    assert marks.feed(word + b"<\n") == b""
    # no letter of a mark, whose beginning would be waited for
    given = marks.feed(word + b">" + b"z" * 1000)
    assert given.endswith(b"z" * 1000)
    assert marks.status is None


def test_19_11_a_status_that_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(
        supervisor, "SCRIPT", 'echo "$token+"; echo "$token+" >&2; echo "$token-999 x"; echo "$token-" >&2'
    )
    with device(tmp_path) as transport, pytest.raises(DeviceError, match="expected an exit status"):
        transport.run(["true"], timeout_s=20)
