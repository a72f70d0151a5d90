import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import alive, wait_for

from hwbench.devices import remote, supervisor
from hwbench.devices.base import Address
from hwbench.devices.remote import RemoteTransport
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, InvalidValue
from hwbench.testing.links import ShellLink
from hwbench.testing.transports import TransportConformance

# Shells of devices: Debian's, of small boards, of Android, and of most servers. The last two where they are installed.
SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"], "mksh": ["mksh"]}


@pytest.fixture(params=SHELLS)
def shell(request):
    argv = SHELLS[request.param]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed: apt-get install {argv[0]}")
    return argv


class TestRemoteTransport(TransportConformance):
    @pytest.fixture
    def transport(self, tmp_path_factory, shell):
        # BOOT asks for "sh": the shell under test must be found by this name.
        names = tmp_path_factory.mktemp("bin")
        Path(names, "sh").symlink_to(shutil.which(shell[0]))
        link = ShellLink(shell, {"PATH": f"{names}:/usr/bin:/bin"})
        address = Address("board", work_dir=str(tmp_path_factory.mktemp("device") / "work dir"))
        with RemoteTransport(link, address) as transport:
            yield transport


@pytest.fixture
def work(tmp_path):
    return tmp_path / "device"


@pytest.fixture
def link():
    return ShellLink()


@pytest.fixture
def transport(link, work):
    with opened(link, work) as transport:
        yield transport


def opened(link, work):
    return RemoteTransport(link, Address("board", work_dir=str(work)), pauses_s=(0.0, 0.05, 0.05))


def supervisors(pid):
    """The shells that watch a command: its parent and what else that started."""
    parent = Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[1]
    return [int(parent), *map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]


CLIENT = """
import sys
from hwbench.devices.base import Address
from hwbench.devices.remote import RemoteTransport
from hwbench.testing.links import ShellLink
transport = RemoteTransport(ShellLink(), Address("board", work_dir=sys.argv[1]))
process = transport.spawn(["sh", "-c", "echo $$; sleep 300"])
print(process.read_line(20), flush=True)
process.wait(300)
"""


@pytest.fixture
def client(work):
    """Another process that uses the device, and the number of what it runs there."""
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(work)], stdout=subprocess.PIPE, text=True)
    yield client, int(client.stdout.readline())
    client.kill()
    client.wait()
    client.stdout.close()


def test_a_killed_client_leaves_nothing_running(client):
    process, pid = client
    assert alive(pid)
    process.kill()
    wait_for(lambda: not alive(pid))


def test_a_silent_client_is_given_up_and_one_that_beats_is_not(transport, monkeypatch):
    monkeypatch.setattr(supervisor, "LEASE_S", 1)
    silent = transport.spawn(["sleep", "60"])
    assert silent.wait(20).status == -9
    transport.close()
    monkeypatch.setattr(remote, "BEAT_S", 0.2)
    beating = transport.spawn(["sleep", "60"])
    with pytest.raises(TimeoutError):
        beating.wait(2.5)
    assert transport.run(["sh", "-c", "sleep 2.5; echo end"], timeout_s=30).stdout == "end\n"


def test_what_a_dead_client_left_over_is_ended_and_what_a_live_one_runs_is_not(client, work, link):
    process, pid = client
    with opened(link, work) as transport:
        assert transport.run(["true"], timeout_s=20).ok
        assert alive(pid)
    # Killed for memory, say: nobody watches any more, and the command runs on.
    watchers = [watcher for watcher in supervisors(pid) if watcher != pid]
    for watcher in watchers:
        os.kill(watcher, signal.SIGKILL)
    wait_for(lambda: not any(map(alive, watchers)))
    process.kill()
    process.wait()
    assert alive(pid)
    with opened(ShellLink(), work) as transport:
        assert transport.run(["true"], timeout_s=20).ok
        wait_for(lambda: not alive(pid))
        assert list((work / "run").iterdir()) == []


def test_a_number_that_was_given_to_another_process_is_not_killed(work, link):
    (work / "run").mkdir(parents=True)
    for folder in (work, work / "run"):
        folder.chmod(0o700)
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    owner = "0123456789abcdef"
    (work / "run" / f"{owner}.1").write_text(f"999999 1\n{stranger.pid} 12345\n")
    (work / "run" / f"{owner}.2").write_text(f"999999 1\n{stranger.pid}\n")
    (work / "run" / f"{owner}.3").write_text("$(touch here) x\n-1 5\n")
    try:
        with opened(link, work) as transport:
            assert transport.run(["true"], timeout_s=20).ok
        assert stranger.poll() is None
        assert not (work / "run" / f"{owner}.1").exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_without_setsid_children_are_found_as_descendants(tmp_path, work):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "sleep", "rm", "mkdir", "chmod", "ls", "test", "cat"):
        (tools / name).symlink_to(shutil.which(name))
    with opened(ShellLink(env={"PATH": str(tools)}), work) as transport:
        mark = transport.temporary("mark")
        start = time.monotonic()
        late = transport.run(["sh", "-c", '(sleep 1; echo late > "$1") & sleep 60', "sh", mark], timeout_s=0.3)
        assert (late.status, late.timed_out) == (-9, True)
        assert time.monotonic() - start < 20
        time.sleep(1.2)
        assert not transport.run(["test", "-e", mark], timeout_s=20).ok


def test_both_streams_are_drained(transport):
    script = "i=0; while [ $i -lt 3200 ]; do echo $line; echo $line >&2; i=$((i+1)); done"
    result = transport.run(["sh", "-c", script], timeout_s=60, env={"line": "x" * 1023})
    assert len(result.stdout) == len(result.stderr) == 3200 * 1024 > 3 << 20
    process = transport.spawn(["sh", "-c", script + "; echo end"], env={"line": "x" * 1023})
    assert sum(1 for _ in iter(lambda: process.read_line(20), None)) == 3201
    assert len(process.wait(20).stderr) == remote.TAIL_BYTES


def test_output_without_end_is_an_error_and_not_all_our_memory(transport, monkeypatch):
    monkeypatch.setattr(remote, "MOST_OUTPUT_BYTES", 1 << 20)
    with pytest.raises(DeviceError, match="'board': a command wrote more than 1 MiB to stdout"):
        transport.run(["cat", "/dev/zero"], timeout_s=60)
    process = transport.spawn(["sh", "-c", "echo $$; exec cat /dev/zero"])
    number = process.read_line(20)
    with pytest.raises(DeviceError, match="more than 1 MiB"):
        process.read_line(20)
    wait_for(lambda: not alive(number))
    assert transport.run(["true"], timeout_s=20).ok


def test_a_command_cannot_forge_its_end(transport, link):
    # All that it can see of who watches it: the words in there, each printed as the frame would be.
    script = r"""
    for word in $(cat /proc/$PPID/cmdline /proc/$PPID/environ 2>/dev/null | tr -c 'A-Za-z0-9' '\n') 0123456789abcdef; do
      for end in "$word-0 ended" "$word-" "$word+"; do echo "$end"; echo "$end" >&2; done
    done
    exit 7
    """
    result = transport.run(["sh", "-c", script], timeout_s=30)
    assert result.status == 7
    assert result.stdout.endswith("0123456789abcdef-0 ended\n0123456789abcdef-\n0123456789abcdef+\n")
    assert result.stdout == result.stderr
    assert not any(re.search("[0-9a-f]{32}", line) for line in link.lines)


def test_a_status_above_128_is_a_signal(transport):
    assert transport.run(["sh", "-c", "kill -TERM $$"], timeout_s=20).status == -15
    assert transport.run(["sh", "-c", "exit 255"], timeout_s=20).status == 255


def test_a_login_shell_that_talks(work, tmp_path):
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nprintf "\\033[2JWelcome\\nno newline"; echo warning >&2\nexec sh "$@"\n')
    shell.chmod(0o755)
    with opened(ShellLink([str(shell)]), work) as transport:
        result = transport.run(["sh", "-c", "echo out; echo err >&2"], timeout_s=20)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("printf 'This account is not available.\\033[2J'", "does not answer as a POSIX shell does: .*not available"),
        ("exec cat /dev/zero", "prints without end"),
        ("exit 1", "does not answer as a POSIX shell does"),
    ],
)
def test_what_is_no_shell(work, tmp_path, script, said):
    shell = tmp_path / "shell"
    shell.write_text(f"#!/bin/sh\n{script}\n")
    shell.chmod(0o755)
    with opened(ShellLink([str(shell)]), work) as transport, pytest.raises(DeviceError, match=said) as caught:
        transport.run(["true"], timeout_s=20)
    assert "\033" not in str(caught.value)


def test_long_command_lines_go_by_stdin(transport, link):
    arguments = ["x" * 100_000, *(f"{i} 'quoted'" for i in range(2000)), "two\n.\nlines\n"]
    result = transport.run(["sh", "-c", r'printf "%s|" "$@"', "sh", *arguments], timeout_s=60)
    assert result.stdout == "".join(f"{argument}|" for argument in arguments)
    assert max(map(len, link.lines)) < 300
    text = "in\n" * 100_000
    assert transport.run(["wc", "-c"], timeout_s=20, stdin=text).stdout.split() == [str(len(text))]


@pytest.mark.parametrize(
    ("argv", "env"), [([], {}), (["-n"], {}), (["echo", "a\0b"], {}), (["echo"], {"A B": "x"}), (["echo"], {"A": "\0"})]
)
def test_what_cannot_be_run(transport, argv, env):
    with pytest.raises(InvalidValue):
        transport.run(argv, timeout_s=20, env=env)


def test_no_room_for_a_record_keeps_no_command_from_running(work, link):
    with opened(link, "/dev/null/work") as transport:
        assert transport.run(["echo", "ran"], timeout_s=20).stdout == "ran\n"
        process = transport.spawn(["echo", "ran"])
        assert process.read_line(20) == "ran"


# Files.


def model(folder, content=b"weights" * 1000, name="model.pte"):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    return path


def test_a_content_is_sent_once_and_checked_once_per_connection(tmp_path, work, link):
    first, second = model(tmp_path / "a"), model(tmp_path / "b", name="other.pte")
    with opened(link, work) as transport:
        there = transport.push(first)
        assert transport.push(second) == there
        lines = len(link.lines)
        assert transport.push(first) == there
        assert len(link.lines) == lines
    assert len(link.puts) == 1
    again = ShellLink()
    with opened(again, work) as transport:
        assert transport.push(first) == there
    assert again.puts == []
    assert (work.stat().st_mode & 0o777, Path(there).stat().st_mode & 0o777) == (0o700, 0o600)
    assert list((work / "tmp").iterdir()) == []


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"X" + data[1:]], ids=["cut", "changed"])
def test_a_damaged_file_there_is_sent_again(tmp_path, work, link, damage):
    source = model(tmp_path / "a")
    with opened(link, work) as transport:
        there = Path(transport.push(source))
        folder = Path(transport.push_all([source]))
    for path in (there, folder / source.name):
        path.write_bytes(damage(path.read_bytes()))
    with opened(ShellLink(), work) as transport:
        assert transport.push(source) == str(there)
        assert transport.push_all([source]) == str(folder)
    assert there.read_bytes() == (folder / source.name).read_bytes() == source.read_bytes()


class DamagingLink(ShellLink):
    """Cuts the files that it carries, so many times."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    def put(self, source, target):
        super().put(source, target)
        if self.times:
            self.times -= 1
            os.truncate(target, 10)

    def get(self, source, target, most_bytes):
        super().get(source, target, most_bytes)
        if self.times:
            self.times -= 1
            os.truncate(target, 10)


def test_what_arrives_damaged_is_sent_again_once(tmp_path, work):
    source = model(tmp_path / "a")
    with opened(DamagingLink(1), work) as transport:
        assert Path(transport.push(source)).read_bytes() == source.read_bytes()
    with opened(DamagingLink(2), work) as transport, pytest.raises(DeviceError, match=r"'board'.*arrived damaged"):
        transport.push(model(tmp_path / "a", b"others"))
    assert len(list((work / "files").iterdir())) == 1


def test_what_comes_back_damaged_is_not_taken(tmp_path, work):
    work.mkdir()
    source, target = model(tmp_path / "a"), tmp_path / "back" / "target"
    with opened(DamagingLink(1), work) as transport:
        transport.pull(str(source), target)
    assert target.read_bytes() == source.read_bytes()
    target.unlink()
    with opened(DamagingLink(2), work) as transport, pytest.raises(DeviceError, match="arrives damaged"):
        transport.pull(str(source), target)
    assert list(target.parent.iterdir()) == []


class FullDisk(ShellLink):
    """A device without room while a file says so; its dd finds that out."""

    def __init__(self, tools, full):
        tools.mkdir()
        dd = tools / "dd"
        dd.write_text(
            f"#!/bin/sh\n[ -e {full} ] || exit 0\necho 'dd: error writing: No space left on device' >&2; exit 1\n"
        )
        dd.chmod(0o755)
        super().__init__(env={"PATH": f"{tools}:{os.environ['PATH']}"})
        self.full = full

    def put(self, source, target):
        if self.full.exists():
            Path(target).write_bytes(b"part")
            raise DeviceError("Failure")
        super().put(source, target)


def test_a_full_disk_is_one_error_with_the_path_and_what_mends_it(tmp_path, work):
    link = FullDisk(tmp_path / "tools", tmp_path / "full")
    (tmp_path / "full").touch()
    with opened(link, work) as transport:
        with pytest.raises(
            DeviceError, match=r"'board': /.*no space is left; .*rm -r /.*/device/files /.*/device/tmp; .*work_dir"
        ) as caught:
            transport.push(model(tmp_path / "a"))
        assert not isinstance(caught.value, DeviceLost)
        assert transport.run(["echo", "on"], timeout_s=20).stdout == "on\n"
        (tmp_path / "full").unlink()
        transport.push(model(tmp_path / "a"))
    assert [path.name for path in work.glob("tmp/*/*")] == []


def test_a_device_that_speaks_another_language_is_asked_in_ours(work):
    dd = work.parent / "tools" / "dd"
    dd.parent.mkdir()
    dd.write_text("#!/bin/sh\n[ \"$LC_ALL\" = C ] && echo 'No space left' >&2 || echo 'kein Platz mehr' >&2\nexit 1\n")
    dd.chmod(0o755)
    env = {"PATH": f"{dd.parent}:{os.environ['PATH']}", "LC_ALL": "de_DE.UTF-8"}

    class Full(ShellLink):
        def put(self, source, target):
            raise DeviceError("Failure")

    with opened(Full(env=env), work) as transport, pytest.raises(DeviceError, match="no space is left"):
        transport.push(model(work.parent / "a"))


@pytest.mark.parametrize(
    ("folder", "said"),
    [("/dev/null/x", "a part of the path is a file"), ("/proc/hwbench", "/proc/hwbench cannot be written")],
)
def test_a_work_folder_that_cannot_be_made(tmp_path, link, folder, said):
    with opened(link, folder) as transport, pytest.raises(DeviceError, match=said):
        transport.push(model(tmp_path / "a"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root, to give a folder to another user")
def test_a_folder_of_another_user_is_not_used(tmp_path, work, link):
    work.mkdir()
    os.chown(work, 65534, 65534)
    with opened(link, work) as transport, pytest.raises(DeviceError, match=r"belongs to another user; .*work_dir"):
        transport.push(model(tmp_path / "a"))


def test_what_was_built_there_of_a_file_stays_as_long_as_the_file(tmp_path, work, link):
    with opened(link, work) as transport:
        transport._depot._most_bytes = 200 << 10
        sources = Path(transport.push(model(tmp_path / "a", b"sources" * 1000, "runner.tar.gz")))
        built = sources.with_suffix(".built")
        built.mkdir()
        (built / "runner").write_bytes(bytes(200 << 10))
        transport.push(model(tmp_path / "a", bytes(300 << 10), "large.pte"))
        assert (built / "runner").is_file()
    with opened(ShellLink(), work) as transport:
        transport._depot._most_bytes = 200 << 10
        transport.push(model(tmp_path / "a", b"x" * (300 << 10), "other.pte"))
        assert not built.exists()


def test_the_least_recently_used_files_go_first(tmp_path, work, link):
    size = 300 << 10

    def push(transport, number):
        transport._depot._most_bytes = round(4.5 * size)
        return Path(transport.push(model(tmp_path / "a", bytes([number]) * size, f"{number}.pte")))

    with opened(link, work) as transport:
        old = [push(transport, number) for number in range(4)]
    for age, path in zip((40, 10, 20, 30), old, strict=True):
        os.utime(path, (time.time() - age, time.time() - age))
    (work / "files" / "of someone else").write_text("x")
    with opened(ShellLink(), work) as transport:
        assert push(transport, 0) == old[0]
        new = [push(transport, 4)]
        assert [path.exists() for path in old] == [True, True, False, False]
        # What this session uses stays, whatever the limit says.
        new += [push(transport, number) for number in range(5, 9)]
    assert [path.exists() for path in [*old, *new]] == [True, *[False] * 3, *[True] * 5]
    assert (work / "files" / "of someone else").exists()


HOSTILE = ["$(touch here).pte", "a\nb.p;te", "-rf.pte", "`id`.p'te", "x" * 200 + ".pte", ".hidden", "..", "\u202e.pte"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(tmp_path, work, transport, name):
    path = transport.temporary(f"../../{name}")
    assert Path(path).parent.parent == work / "tmp"
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", os.path.basename(path))
    if name != "..":
        source = model(tmp_path / "a", name=name)
        there = Path(transport.push(source))
        assert there.parent == work / "files"
        assert there.read_bytes() == source.read_bytes()
        folder = Path(transport.push_all([source]))
        assert (folder / name).read_bytes() == source.read_bytes()
        transport.pull(str(folder / name), tmp_path / "back")
    assert not Path("here").exists()


def test_only_regular_files_are_fetched(tmp_path, transport):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/proc", tmp_path / "no $(file)"):
        with pytest.raises(DeviceError, match="has no file"):
            transport.pull(str(path), tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_files_in_the_home_folder_there(tmp_path):
    (tmp_path / "home dir").mkdir()
    link = ShellLink(env={"HOME": str(tmp_path / "home dir")})
    with opened(link, "~/hwbench") as transport:
        there = transport.push(model(tmp_path / "a"))
        assert there.startswith(f"{tmp_path}/home dir/hwbench/files/")
        assert transport.spawn(["cat", there]).read_line(20) is None


# Lost connections.


def test_a_lost_connection_costs_the_command_and_the_next_call_connects(tmp_path, work, link):
    source = model(tmp_path / "a")
    with opened(link, work) as transport:
        there = transport.push(source)
        process = transport.spawn(["sh", "-c", "echo $$; sleep 60"])
        number = process.read_line(20)
        link.cut()
        with pytest.raises(DeviceLost, match="'board'"):
            process.read_line(20)
        with pytest.raises(DeviceLost):
            process.wait(20)
        process.kill()
        link.refusals = 2
        Path(there).unlink()
        assert transport.push(source) == there
        assert Path(there).exists()
        assert not alive(number)
        link.cut()
        with pytest.raises(DeviceLost):
            transport.run(["true"], timeout_s=20)
        assert transport.run(["true"], timeout_s=20).ok


def test_what_was_used_before_a_lost_connection_is_cleared_after_it(tmp_path, work, link):
    with opened(link, work) as transport:
        there = Path(transport.push(model(tmp_path / "a")))
        Path(transport.temporary("output")).write_text("x")
        link.cut()
        with pytest.raises(DeviceLost):
            transport.run(["true"], timeout_s=20)
        assert transport.run(["true"], timeout_s=20).ok
    assert [list((work / folder).iterdir()) for folder in ("tmp", "live")] == [[], []]
    assert there.exists()


class CutInAFile(ShellLink):
    """Its connection ends while a file is on its way, or where a process is to start."""

    cuts = False

    def put(self, source, target):
        self.cut()
        super().put(source, target)

    def get(self, source, target, most_bytes):
        self.cut()
        super().get(source, target, most_bytes)

    def open(self, command):
        if self.cuts:
            self.cut()
        return super().open(command)


@pytest.mark.parametrize("what", ["push", "push_all", "pull", "stdin", "spawn", "run"])
def test_a_connection_that_ends_anywhere_names_the_device(tmp_path, work, what):
    source = model(tmp_path / "a")
    link = CutInAFile()
    with opened(link, work) as transport:
        assert transport.run(["true"], timeout_s=20).ok
        transport.temporary("makes the work folder")
        link.cuts = what in ("spawn", "run")
        call = {
            "push": lambda: transport.push(source),
            "push_all": lambda: transport.push_all([source]),
            "pull": lambda: transport.pull(str(source), tmp_path / "back"),
            "stdin": lambda: transport.run(["cat"], timeout_s=20, stdin="text"),
            "spawn": lambda: transport.spawn(["true"]),
            "run": lambda: transport.run(["true"], timeout_s=20),
        }
        with pytest.raises(DeviceLost) as caught:
            call[what]()
        assert str(caught.value) == "device 'board': the shell link was cut"
        link.cuts = False
        assert transport.run(["true"], timeout_s=20).ok


def test_connecting_again_is_given_up(work, link):
    with opened(link, work) as transport:
        assert transport.run(["true"], timeout_s=20).ok
        link.cut()
        link.refusals = 3
        with pytest.raises(DeviceLost):
            transport.run(["true"], timeout_s=20)
        with pytest.raises(DeviceUnreachable, match=r"^device 'board': the shell link was cut"):
            transport.run(["true"], timeout_s=20)
        assert transport.run(["true"], timeout_s=20).ok


def test_own_commands_are_ended_when_connecting_again(work, link):
    """Their supervisors may not know yet that the connection ended."""
    with opened(link, work) as transport:
        process = transport.spawn(["sh", "-c", "echo $$; sleep 60"])
        number = process.read_line(20)
        for watcher in supervisors(number)[1:]:
            if watcher != int(number):
                os.kill(watcher, signal.SIGKILL)
        transport._lost()
        assert alive(number)
        assert transport.run(["true"], timeout_s=20).ok
        wait_for(lambda: not alive(number))
