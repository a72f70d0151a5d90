"""Whose work folder it is, whose processes are ended, and what is removed: real shells, folders, links, processes."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import alive, wait_for

from hwbench.devices import depot
from hwbench.devices.base import Address
from hwbench.devices.remote import RemoteTransport
from hwbench.devices.work_folder import FREE, HOLD_S, LEFT_S, MARK, PLACE, PREPARE, STILL_S
from hwbench.errors import DeviceError, DeviceLost
from hwbench.testing.links import ShellLink

SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"], "mksh": ["mksh"]}
NOBODY = 65534
OWNER = "0123456789abcdef"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root, to act as another user")
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
NODE = Path("/proc/sys/kernel/hostname").read_text().strip()


@pytest.fixture(params=SHELLS)
def shell(request):
    argv = SHELLS[request.param]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed: apt-get install {argv[0]}")
    return argv


@pytest.fixture
def open_folder(shell, tmp_path):
    """Opens transports with a work folder, to a device whose sh is the shell under test."""
    names = tmp_path / "names"
    names.mkdir()
    (names / "sh").symlink_to(shutil.which(shell[0]))
    home = tmp_path / "home"
    home.mkdir()
    with contextlib.ExitStack() as stack:

        def opened(work):
            link = ShellLink(shell, {"PATH": f"{names}:/usr/bin:/bin", "HOME": str(home)})
            return stack.enter_context(RemoteTransport(link, Address("board", work_dir=str(work)), pauses_s=(0.0,)))

        yield opened


@pytest.fixture
def work(tmp_path):
    return tmp_path / "device"


@pytest.fixture
def stranger():
    """A process that nobody asked to end; of another user where that can be."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    with subprocess.Popen(["sleep", "300"], start_new_session=True, **user) as process:
        wait_for(lambda: b"sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
        yield process
        process.kill()


def record_of(process, more=f"{BOOT} {NODE}\n"):
    """What a supervisor that is gone would have written of it."""
    start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"999999 1\n{process.pid} {start}\n{more}"


def made(path, mode=0o700):
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    return path


def planted(work, process, name=f"{OWNER}.1", more=f"{BOOT} {NODE}\n"):
    made(work)
    record = made(work / "run") / name
    record.write_text(record_of(process, more))
    return record


def model(folder, content=b"weights" * 1000, name="model.pte"):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    return path


# Whose processes.


def folder_of_others(work, record):
    for path in (work, record.parent, record):
        os.chown(path, NOBODY, NOBODY)


def records_of_others(work, record):
    os.chown(record.parent, NOBODY, NOBODY)


def one_record_of_others(work, record):
    os.chown(record, NOBODY, NOBODY)


def open_to_all(work, record):
    work.chmod(0o777)


def records_open_to_all(work, record):
    work.chmod(0o755)
    record.parent.chmod(0o1777)


def linked_folder(work, record):
    work.rename(work.with_name("elsewhere"))
    work.symlink_to("elsewhere")


def linked_records(work, record):
    record.parent.rename(work.with_name("records"))
    record.parent.symlink_to("../records")


def linked_record(work, record):
    record.rename(work.with_name("record"))
    record.symlink_to("../../record")


TRAPS = [
    *(pytest.param(trap, marks=AS_ROOT) for trap in (folder_of_others, records_of_others, one_record_of_others)),
    *(open_to_all, records_open_to_all, linked_folder, linked_records, linked_record),
]


@pytest.mark.parametrize("trap", TRAPS)
def test_19_05_what_others_may_have_written_ends_no_process(open_folder, work, stranger, trap):
    record = planted(work, stranger)
    trap(work, record)
    assert open_folder(work).run(["true"], timeout_s=20).ok
    assert alive(stranger.pid)
    assert record.exists()


def test_19_05_a_record_of_ours_ends_what_it_names(open_folder, work, stranger):
    records = [planted(work, stranger), planted(work, stranger, f"{OWNER}.2", "")]  # the second of an older version
    assert open_folder(work).run(["true"], timeout_s=20).ok
    wait_for(lambda: not alive(stranger.pid))
    assert not any(record.exists() for record in records)


def test_19_05_a_name_that_is_not_of_our_form_is_no_record(open_folder, work, stranger):
    record = planted(work, stranger, "notes.1")
    assert open_folder(work).run(["true"], timeout_s=20).ok
    assert alive(stranger.pid)
    assert record.exists()


@pytest.mark.parametrize(("node", "stays"), [(NODE, False), ("another-board", True)])
def test_19_05_a_record_of_another_start_of_the_machine_ends_nothing(open_folder, work, stranger, node, stays):
    record = planted(work, stranger, more=f"00000000-1111-2222-3333-444444444444 {node}\n")
    assert open_folder(work).run(["true"], timeout_s=20).ok
    assert alive(stranger.pid)
    assert record.exists() == stays


def test_19_05_a_record_says_which_start_of_which_machine(open_folder, work):
    process = open_folder(work).spawn(["sh", "-c", "echo $$; exec sleep 60"])
    number = process.read_line(20)
    record = work / "run" / f"{process._transport._owner}.1"
    wait_for(lambda: record.exists() and record.read_text().count("\n") == 3)
    _, of_process, of_machine = record.read_text().splitlines()
    assert (of_process.split()[0], of_machine) == (number, f"{BOOT} {NODE}")


@AS_ROOT
def test_19_05_no_record_is_written_where_others_wait_for_it(open_folder, work):
    run = made(made(work, 0o777) / "run", 0o777)
    for folder in (work, run):
        os.chown(folder, NOBODY, NOBODY)
    transport = open_folder(work)
    assert transport.run(["echo", "ran"], timeout_s=100).stdout == "ran\n"
    process = transport.spawn(["sh", "-c", "echo up; sleep 60"])
    assert process.read_line(20) == "up"
    assert list(run.iterdir()) == []


# Which folder.


def contents(folder):
    return {str(path.relative_to(folder)): path.lstat().st_mode for path in [folder, *sorted(folder.rglob("*"))]}


def refused(open_folder, work, said, watched):
    before = contents(watched)
    with pytest.raises(DeviceError, match=said) as caught:
        open_folder(work).temporary("x")
    assert contents(watched) == before
    return str(caught.value)


@pytest.mark.parametrize("spelled", ["~/", "~", "~//"])
def test_19_06_the_home_folder_is_left_alone(open_folder, tmp_path, spelled):
    home = tmp_path / "home"
    old = made(home / "tmp", 0o755) / "thesis"
    old.write_text("years")
    os.utime(old, (0, 0))
    said = refused(open_folder, spelled, r"it holds tmp/thesis, which is not of hwbench", home)
    assert 'work_dir = "~/hwbench" in profiles/board/device.toml' in said
    assert open_folder("~/hwbench").temporary("x").startswith(f"{home}/hwbench/tmp/")
    assert old.read_text() == "years"


def test_19_06_paths_are_read_without_a_slash_at_the_end(shell):
    spelled = {"/": "/", "//": "/", "/tmp/x//": "/tmp/x", "~/": "/h", "~": "/h", "~/a/": "/h/a", "a b/": "./a b"}
    for path, folder in spelled.items():
        script = f'{PLACE}place "$1"; echo "$folder"'
        argv = [*shell, "-c", script, "sh", path]
        result = subprocess.run(argv, env={"HOME": "/h"}, capture_output=True, text=True, timeout=20)
        assert result.stdout == f"{folder}\n", path


@pytest.mark.parametrize("name", ["a", ".profile", "files/x", "tmp/a b", "run/..x", "files/.x"])
def test_19_06_a_folder_with_other_things_in_it_is_refused(open_folder, work, name):
    (work / name).parent.mkdir(parents=True)
    (work / name).write_text("x")
    work.chmod(0o755)
    said = refused(open_folder, work, f"it holds {name}, which is not of hwbench", work)
    assert f'work_dir = "{work}/hwbench"' in said


def test_19_06_a_symbolic_link_is_refused(open_folder, work, tmp_path):
    elsewhere = made(tmp_path / "else where", 0o755)
    work.symlink_to(elsewhere)
    for spelled in (work, f"{work}/"):
        said = refused(open_folder, spelled, "symbolic link", elsewhere)
        assert f'work_dir = "{elsewhere}"' in said
    elsewhere.rmdir()
    with pytest.raises(DeviceError, match="symbolic link"):
        open_folder(work).temporary("x")


@pytest.mark.parametrize("part", ["files", "run", "tmp", MARK])
def test_19_06_a_symbolic_link_in_the_folder_is_refused(open_folder, work, tmp_path, part):
    elsewhere = made(tmp_path / "elsewhere", 0o755)
    (elsewhere / OWNER).write_text("x")
    made(work)
    (work / part).symlink_to(elsewhere)
    refused(open_folder, work, f"it holds {part},", elsewhere)
    if part != MARK:
        (work / MARK).touch()
        refused(open_folder, work, f"it holds {part},", elsewhere)


def test_19_06_an_empty_folder_that_others_share_is_not_taken_from_them(open_folder, work, tmp_path):
    refused(open_folder, made(work, 0o1777), "others use, too", work)
    refused(open_folder, "~/", "others use, too", tmp_path / "home")
    work.chmod(0o775)
    assert open_folder(work).run(["true"], timeout_s=20).ok
    assert open_folder(work).temporary("x")
    assert (work.stat().st_mode & 0o777, (work / "tmp").stat().st_mode & 0o777) == (0o755, 0o700)


@AS_ROOT
def test_19_06_a_mark_of_another_user_is_none(open_folder, work):
    made(work)
    for name in (MARK, "novel"):
        (work / name).write_text("x")
    os.chown(work / MARK, NOBODY, NOBODY)
    refused(open_folder, work, "it holds novel,", work)


def test_19_06_a_folder_of_an_older_version_goes_on_working(open_folder, work, tmp_path):
    kept = "0" * 64
    for folder in ("run", f"tmp/{OWNER}", f"files/{kept}.d"):
        (work / folder).mkdir(parents=True)
    (work / "files" / f"{kept}.pte").write_text("model")
    (work / "run" / f"{OWNER}.7").write_text("x\n")
    work.chmod(0o700)
    there = Path(open_folder(work).push(model(tmp_path / "a")))
    assert there.parent == work / "files"
    assert (work / MARK).is_file()
    assert (work / "files" / f"{kept}.pte").read_text() == "model"
    # With the mark, what a person puts there is let be.
    (work / "notes").write_text("mine")
    (work / "tmp" / "mine").mkdir()
    os.utime(work / "tmp" / "mine", (0, 0))
    assert open_folder(work).push(model(tmp_path / "a")) == str(there)
    assert (work / "notes").exists()
    assert (work / "tmp" / "mine").exists()


# Who is alive, without a clock.


def uptime():
    return int(float(Path("/proc/uptime").read_text().split()[0]))


def client(work, owner, stamp):
    """What a client left there; its folder looks as old as a board without a clock makes it."""
    folder = made(work / "tmp" / owner)
    (folder / "output.raw").write_text("x")
    if stamp:
        made(work / "live")
        (work / "live" / owner).write_text(stamp)
    os.utime(folder, (0, 0))
    return folder


def test_19_06_only_what_a_gone_client_left_is_removed(open_folder, work, tmp_path, monkeypatch):
    monkeypatch.setattr(depot, "PREPARE", PREPARE.replace(f"left={LEFT_S}\n", "left=100\n"))
    made(work)
    (work / MARK).touch()
    now, old = uptime(), "00000000-1111-2222-3333-444444444444"
    stays = {
        "a": "",  # of an older version, or just being made: its time begins now
        "b": f"{now} {BOOT} {NODE}\n",
        "c": f"{now} {old} another-board\n",
        "d": "9" * 30 + f" {BOOT} {NODE}\n",
        "e": f"08 {BOOT} {NODE}\n",
        "f": "a[$(touch here)] x\n",
    }
    goes = {"1": f"{now} {old} {NODE}\n", "2": f"{now - 1000} {BOOT} {NODE}\n"}
    if now < 1100:
        del goes["2"]
    folders = {letter: client(work, letter * 16, stamp) for letter, stamp in (stays | goes).items()}
    busy = client(work, "3" * 16, goes["1"])
    # Its record stays while somebody watches.
    watched = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = Path(f"/proc/{watched.pid}/stat").read_text().rpartition(")")[2].split()[19]
    (made(work / "run") / f"{'3' * 16}.1").write_text(f"{watched.pid} {start}\n999999 1\n{BOOT} {NODE}\n")
    elsewhere = made(tmp_path / "elsewhere")
    (elsewhere / "x").touch()
    (work / "tmp" / ("4" * 16)).symlink_to(elsewhere)
    (work / "live" / ("4" * 16)).write_text(goes["1"])
    open_folder(work).temporary("x")
    watched.communicate(b"\n", 20)
    assert {letter for letter, folder in folders.items() if folder.exists()} == set(stays)
    assert busy.exists()
    assert list(elsewhere.iterdir()) == [elsewhere / "x"]
    assert BOOT in (work / "live" / ("a" * 16)).read_text()
    assert not Path("here").exists()


def test_19_06_what_another_client_uses_is_not_pruned(open_folder, work, tmp_path):
    first, second = open_folder(work), open_folder(work)
    size = 300 << 10
    second._depot._most_bytes = round(1.5 * size)
    used = Path(first.push(model(tmp_path / "a", b"1" * size)))
    os.utime(used, (0, 0))  # a board that had no clock then, and has one now
    there = [Path(second.push(model(tmp_path / "a", digit * size))) for digit in (b"2", b"3")]
    assert used.exists()
    stamp = work / "live" / first._owner
    assert stamp.read_text().split()[1:] == [BOOT, NODE]
    # It was ended, and the board started anew.
    stamp.write_text(f"{uptime()} 00000000-1111-2222-3333-444444444444 {NODE}\n")
    there.append(Path(second.push(model(tmp_path / "a", b"4" * size))))
    assert not used.exists()
    assert all(path.exists() for path in there)


def test_19_06_a_client_that_was_silent_for_long_looks_again(open_folder, work, tmp_path):
    transport = open_folder(work)
    source = model(tmp_path / "a")
    there = Path(transport.push(source))
    stamp = work / "live" / transport._owner
    stamp.write_text("0 - -\n")
    transport.push(source)
    assert stamp.read_text() == "0 - -\n"
    transport._depot._signed -= depot.HOLD_S
    there.unlink()
    assert transport.push(source) == str(there)
    assert there.exists()
    assert stamp.read_text().split()[1:] == [BOOT, NODE]
    shutil.rmtree(work)
    transport._depot._signed -= depot.HOLD_S
    assert transport.push(source) == str(there)
    assert there.exists()


def test_19_06_closing_leaves_no_stamp(open_folder, work, tmp_path):
    transport = open_folder(work)
    transport.push(model(tmp_path / "a"))
    assert len(list((work / "live").iterdir())) == 2
    transport.close()
    assert list((work / "live").iterdir()) == []
    assert list((work / "tmp").iterdir()) == []


# Uploads that broke off.


class CutLink(ShellLink):
    """A link that ends while it carries a file."""

    def put(self, source, target):
        Path(target).write_bytes(source.read_bytes()[:-1])
        self.cut()
        raise DeviceLost("the shell link was cut")


def broken_off(work, source):
    """What an upload leaves there whose connection was cut; its folder."""
    before = set(work.glob("tmp/*/part.*"))
    link = CutLink()
    with RemoteTransport(link, Address("board", work_dir=str(work))) as transport, pytest.raises(DeviceLost):
        transport.push(source)
    link.close()
    (part,) = {*work.glob("tmp/*/part.*")} - before
    assert len(list(part.iterdir())) == 1
    return part


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 2 MiB."""
    disk = made(tmp_path / "disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", disk], check=False)
    if mounted.returncode:
        pytest.skip("needs to be root, to mount a small disk")
    yield disk / "work"
    subprocess.run(["umount", "-l", disk], check=True)


def test_uploads_that_broke_off_make_room_for_the_next(open_folder, small_disk, tmp_path, monkeypatch):
    monkeypatch.setattr(depot, "FREE", FREE.replace(f"still={STILL_S}\n", "still=1\n"))
    source = model(tmp_path / "a", os.urandom(400 << 10))
    gone = [broken_off(small_disk, source) for _ in range(2)]
    watched, elsewhere, grows = (broken_off(small_disk, model(tmp_path / "b", bytes(200 << 10))) for _ in range(3))
    # Whose record is beside it, and of a machine that has the folder over a network.
    (small_disk / "run" / f"{watched.parent.name}.1").write_text("x\n")
    stamp = f"{uptime()} 00000000-1111-2222-3333-444444444444 another-board\n"
    (small_disk / "live" / elsewhere.parent.name).write_text(stamp)
    (gone[0].parent / "output.raw").write_text("x")
    code = "import sys, time\nwhile True: open(sys.argv[1], 'ab').write(b'x'); time.sleep(0.1)"
    with subprocess.Popen([sys.executable, "-c", code, str(next(grows.iterdir()))]) as upload:
        transport = open_folder(small_disk)
        try:
            there = Path(transport.push(model(tmp_path / "c", os.urandom(900 << 10))))
        finally:
            upload.kill()
    assert there.stat().st_size == 900 << 10
    assert [list(part.iterdir()) for part in gone] == [[], []]
    assert all(list(part.iterdir()) for part in (watched, elsewhere, grows))
    assert (gone[0].parent / "output.raw").exists()


def test_where_no_room_can_be_made_what_is_told_to_be_removed_makes_it(open_folder, small_disk, tmp_path):
    source = model(tmp_path / "a", os.urandom(900 << 10))
    for _ in range(2):
        part = broken_off(small_disk, source)
        (small_disk / "run" / f"{part.parent.name}.1").write_text("x\n")
    with pytest.raises(DeviceError, match="no space is left; free some there") as caught:
        open_folder(small_disk).push(source)
    advice = re.search("for example: (.*); or ", str(caught.value))
    subprocess.run(["sh", "-c", advice[1]], check=True)
    assert Path(open_folder(small_disk).push(source)).stat().st_size == 900 << 10


def test_an_upload_that_broke_off_long_ago_is_removed(open_folder, work, tmp_path, monkeypatch):
    monkeypatch.setattr(depot, "PREPARE", PREPARE.replace(f"hold={HOLD_S}\n", "hold=100\n"))
    if uptime() < 1100:
        pytest.skip("needs a machine that was started twenty minutes ago")
    old, new = (broken_off(work, model(tmp_path / "a")) for _ in range(2))
    (old.parent / "output.raw").write_text("x")
    (work / "live" / old.parent.name).write_text(f"{uptime() - 1000} {BOOT} {NODE}\n")
    open_folder(work).temporary("x")
    assert sorted(path.name for path in old.parent.iterdir()) == ["output.raw", "part.1"]
    assert list(old.iterdir()) == []
    assert list(new.iterdir())


@pytest.mark.parametrize("several", [False, True])
def test_a_file_that_was_taken_for_broken_off_is_sent_again(open_folder, work, tmp_path, several):
    other = open_folder(work)
    other.temporary("x")

    class Stalled(ShellLink):
        def put(self, source, target):
            super().put(source, target)
            if len(self.puts) == 1:
                removed = other._script(FREE.replace(f"still={STILL_S}\n", "still=0\n"), str(work), other._owner)
                assert removed.stdout == "1\n"

    link, source = Stalled(), model(tmp_path / "a")
    with RemoteTransport(link, Address("board", work_dir=str(work))) as transport:
        there = Path(transport.push_all([source]) if several else transport.push(source))
    assert (there / source.name if several else there).read_bytes() == source.read_bytes()
    assert len(link.puts) == 2


def test_19_06_two_clients_at_once_make_one_folder(work):
    """Neither takes what the other has begun for something foreign."""
    code = """
import sys
from hwbench.devices.base import Address
from hwbench.devices.remote import RemoteTransport
from hwbench.testing.links import ShellLink
transport = RemoteTransport(ShellLink(), Address("board", work_dir=sys.argv[1]))
sys.stdin.readline()
for _ in range(5):
    print(transport.temporary("x"), flush=True)
    transport._depot.forget()
"""
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for one in clients:
        one.stdin.write("\n")
        one.stdin.flush()
    for one in clients:
        out, _ = one.communicate(timeout=60)
        assert (one.returncode, len(out.splitlines())) == (0, 5)
