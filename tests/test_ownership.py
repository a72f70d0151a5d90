"""A workspace that somebody else can change is refused, as git and ssh refuse: it names programs that are run."""

import os
import re
import shlex
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hwbench import ownership
from hwbench.cli.main import main
from hwbench.devices import Device
from hwbench.devices.device_file import write_device
from hwbench.devices.known_hosts import HostKey, record
from hwbench.errors import WorkspaceError
from hwbench.interpreter import python_command, python_environment
from hwbench.ownership import SAFE_DIRECTORY, check_own, make_closed_folder, who_else
from hwbench.room import use
from hwbench.specs import LOCAL
from hwbench.workspace import Workspace, shipped, temporary_beside, write_bytes

# Of nobody here; chown needs root.
STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="run as root: a file is given to another user")


@pytest.fixture(autouse=True)
def nothing_is_said(monkeypatch):
    monkeypatch.delenv(SAFE_DIRECTORY, raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)


@pytest.fixture
def workspace(tmp_path):
    made = Workspace.create(tmp_path / "bench")
    (made.root / ".hwbench" / "cache").mkdir(parents=True)
    folder = made.root / "profiles" / "box"
    folder.mkdir()
    (folder / "device.toml").write_text('schema = 1\nname = "box"\ntransport = "local"\nrunner = "./executor_runner"\n')
    (folder / "known_hosts").write_text("")
    (folder / "executorch-1.5.1.fp32.t1.csv").write_text("")
    return made


def refused(workspace, *words):
    with pytest.raises(WorkspaceError) as error:
        Workspace.find(workspace.root / "experiments")
    assert error.value.exit_status == 2
    for word in (*words, f"export {SAFE_DIRECTORY}={workspace.root}"):
        assert word in str(error.value)


def test_19_02_a_workspace_of_ours_is_found(workspace):
    assert Workspace.find(workspace.root / "experiments") == workspace
    assert workspace.device("box") == workspace.root / "profiles" / "box" / "device.toml"


@pytest.mark.parametrize("part", [".", "profiles", "search_spaces", "zoo", ".hwbench", ".hwbench/cache"])
def test_19_02_what_everybody_can_write_is_refused(workspace, part):
    """Also where it is sticky: whoever can write into it can put a device there."""
    for mode in (0o777, 0o1777):
        (workspace.root / part).chmod(mode)
        refused(workspace, "can be written by everybody", f"chmod go-w {workspace.root / part}")
    (workspace.root / part).chmod(0o755)
    assert Workspace.find(workspace.root) == workspace


@as_root
@pytest.mark.parametrize("part", [".", "profiles", "search_spaces", "zoo", ".hwbench", ".hwbench/cache"])
def test_19_02_what_belongs_to_somebody_else_is_refused(workspace, part):
    os.chown(workspace.root / part, STRANGER, -1)
    refused(workspace, f"belongs to user {STRANGER}", str(workspace.root / part))


def test_19_02_it_is_not_passed_over_for_one_further_up(workspace):
    inner = Workspace.create(workspace.root / "experiments" / "inner")
    inner.root.chmod(0o777)
    with pytest.raises(WorkspaceError, match="can be written by everybody"):
        Workspace.find(inner.root)


@as_root
def test_19_02_a_group_with_other_members(workspace):
    """A group of one's own is fine: with umask 002 all that a user makes can be written by it."""
    workspace.root.chmod(0o775)
    assert Workspace.find(workspace.root) == workspace  # root's own
    os.chown(workspace.root, -1, STRANGER)
    refused(workspace, f"can be written by the group {STRANGER}")
    workspace.root.chmod(0o755)
    assert Workspace.find(workspace.root) == workspace


def test_19_02_parents_decide_who_can_exchange_it(workspace, tmp_path):
    above = tmp_path / "above"
    above.mkdir()
    made = Workspace.create(above / "bench")
    above.chmod(0o1777)  # as /tmp
    assert Workspace.find(made.root) == made
    above.chmod(0o777)
    refused(made, f"{above} can be written by everybody")


@as_root
def test_19_02_parents_of_somebody_else(tmp_path):
    above = tmp_path / "above"
    above.mkdir()
    made = Workspace.create(above / "bench")
    os.chown(above, STRANGER, -1)
    refused(made, f"{above} belongs to user {STRANGER}")


@pytest.mark.parametrize("name", ["device.toml", "known_hosts"])
def test_19_02_files_of_a_device(workspace, name):
    path = workspace.root / "profiles" / "box" / name
    path.chmod(0o666)
    with pytest.raises(WorkspaceError, match=f"{name} can be written by everybody.*chmod go-w"):
        workspace.device("box")
    assert workspace.device("local")
    path.chmod(0o644)
    assert workspace.device("box")
    path.parent.chmod(0o777)
    with pytest.raises(WorkspaceError, match="box can be written by everybody"):
        workspace.device("box")


def test_19_02_a_table_says_nothing_that_is_run(workspace):
    (workspace.root / "profiles" / "box" / "executorch-1.5.1.fp32.t1.csv").chmod(0o666)
    assert workspace.device("box")


@as_root
def test_19_02_who_trusts_it_says_so(workspace, monkeypatch):
    os.chown(workspace.root, STRANGER, -1)
    device = workspace.root / "profiles" / "box" / "device.toml"
    os.chown(device, STRANGER, -1)
    monkeypatch.setenv(SAFE_DIRECTORY, os.pathsep.join(["/nowhere", str(workspace.root)]))
    assert Workspace.find(workspace.root) == workspace
    assert workspace.device("box") == device
    monkeypatch.setenv(SAFE_DIRECTORY, str(workspace.root / "profiles"))
    with pytest.raises(WorkspaceError, match="belongs to"):
        Workspace.find(workspace.root)


@as_root
def test_19_02_sudo_over_the_checkout_of_who_called_it(workspace, monkeypatch):
    for path in (workspace.root, *workspace.root.rglob("*")):
        os.chown(path, STRANGER, -1)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert Workspace.find(workspace.root) == workspace
    monkeypatch.setenv("SUDO_UID", str(STRANGER + 1))
    refused(workspace, "belongs to")


def test_19_02_the_command_says_it_in_one_line(workspace, monkeypatch, capsys):
    workspace.root.chmod(0o777)
    monkeypatch.chdir(workspace.root)
    with pytest.raises(SystemExit) as end:
        main(["devices", "list"])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert f"export {SAFE_DIRECTORY}={workspace.root}" in said
    monkeypatch.setenv(SAFE_DIRECTORY, str(workspace.root))
    with pytest.raises(SystemExit) as end:
        main(["devices", "list"])
    assert not end.value.code


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_19_02_a_workspace_is_ours_whatever_the_umask_is(tmp_path, no_umask):
    """All that ``init``, ``devices add`` and the first build make, and the folders above it."""
    made = Workspace.create(tmp_path / "a" / "b" / "bench")
    write_device(made, Device("box", LOCAL, workspace=made))
    key = HostKey("pi5", "ssh-ed25519", b"key")
    record(made.root / "profiles" / "pi5" / "known_hosts", key)
    use(made.cache)
    assert all(made.device(name).is_file() for name in made.names("profiles"))
    assert Workspace.find(made.root / "experiments") == made
    open_to_others = [path for path in (made.root, *made.root.rglob("*")) if path.is_dir() and who_else(path)]
    assert open_to_others == []
    assert who_else(made.root / "profiles" / "pi5" / "known_hosts") == ""


def test_19_02_a_folder_that_is_there_keeps_its_rights(tmp_path, no_umask):
    """Also one that others may write: nobody asked to take that from them."""
    (tmp_path / "shared").mkdir()
    make_closed_folder(tmp_path / "shared" / "new" / "newer")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("shared", "shared/new", "shared/new/newer")]
    assert modes == [0o777, 0o755, 0o755]


def test_19_02_what_to_type_is_one_word_of_a_shell(tmp_path):
    made = Workspace.create(tmp_path / "u m" / "it's")
    made.root.chmod(0o777)
    with pytest.raises(WorkspaceError) as error:
        Workspace.find(made.root)
    command = re.search(r"chmod go-w .*(?=; or)", str(error.value))[0]
    subprocess.run(["sh", "-c", command], check=True)
    assert Workspace.find(made.root) == made
    assert f"export {SAFE_DIRECTORY}={shlex.quote(str(made.root))}" in str(error.value)


def test_19_02_the_checkout_that_runs_is_as_good_as_its_code(tmp_path):
    """Whoever can change the code needs no workspace; so CI may run a checkout of another user, open to all."""
    code = tmp_path / "checkout"
    package = code / "hwbench"
    package.mkdir(parents=True)
    needed = ("__init__", "durable", "errors", "locks", "lookup", "ownership", "printable", "registry", "workspace")
    for module in needed:
        name = f"{module}.py"
        (package / name).write_bytes(Path(ownership.__file__).with_name(name).read_bytes())
    (package / "api").mkdir()
    (package / "api" / "__init__.py").write_bytes(
        Path(ownership.__file__).parent.joinpath("api/__init__.py").read_bytes()
    )
    for part in ("search_spaces", "profiles"):
        (code / part).mkdir()
    find = "import os; from hwbench.workspace import Workspace; print(Workspace.find())"

    def status():
        done = subprocess.run(
            [sys.executable, "-P", "-c", find],
            cwd=code,
            env={**os.environ, "PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )
        return "checkout" in done.stdout

    assert status()
    code.chmod(0o777)
    assert not status()  # the code itself is not open
    package.chmod(0o777)
    assert status()
    if os.geteuid() == 0:
        for path in (code, *code.rglob("*")):
            os.chown(path, STRANGER, -1)
        package.chmod(0o755)
        code.chmod(0o755)
        assert status()


def test_19_02_this_checkout_simply_works():
    if (shipped() / "search_spaces").is_dir():
        assert Workspace.find(shipped()).root == shipped()


def test_19_02_a_link_stands_for_what_it_leads_to(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(WorkspaceError, match="holds programs"):
        check_own(tmp_path / "link", "it holds programs")
    check_own(tmp_path / "missing", "it holds programs")


@pytest.mark.parametrize("name", ["profiles", "profiles/box/known_hosts"])
def test_19_02_the_way_out_of_a_linked_part_is_one(workspace, tmp_path, monkeypatch, name):
    """The folder to trust is the one that it leads to, beside those that are trusted already."""
    monkeypatch.setenv(SAFE_DIRECTORY, str(workspace.root))
    (workspace.root / "zoo").chmod(0o777)
    link, shared = workspace.root / name, tmp_path / "shared" / "part"
    shared.parent.mkdir()
    link.rename(shared)
    link.symlink_to(shared)
    shared.chmod(0o777)
    with pytest.raises(WorkspaceError, match="can be written by everybody") as error:
        Workspace.find(workspace.root).device("box")
    command = re.search(rf"export {SAFE_DIRECTORY}=(.*)", str(error.value))
    monkeypatch.setenv(SAFE_DIRECTORY, shlex.split(command[1])[0])
    assert Workspace.find(workspace.root).device("box").is_file()


# What two containers on one volume have in common: the number of the process.
WRITE = """
import os, sys
os.getpid = lambda: 1
from pathlib import Path
from hwbench.workspace import write_bytes
path, letter = Path(sys.argv[1]), sys.argv[2].encode()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(50):
    write_bytes(path, letter * 200_000)
    data = path.read_bytes()
    assert len(data) == 200_000 and len(set(data)) == 1, "two files in one"
"""


def test_19_22_two_processes_of_one_number_write_one_file(tmp_path):
    target = tmp_path / "file"
    command = [sys.executable, "-P", "-c", WRITE, str(target)]
    writers = [
        subprocess.Popen([*command, letter], stdin=-1, stdout=-1, stderr=-1, text=True, env=python_environment())
        for letter in "ab"
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    with ThreadPoolExecutor(len(writers)) as pool:
        ends = list(pool.map(lambda writer: (writer.communicate("go\n")[1], writer.returncode), writers))
    assert ends == [("", 0), ("", 0)]
    assert os.listdir(tmp_path) == ["file"]


def test_19_22_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError, match="no space"):
        write_bytes(tmp_path / "file", b"x")
    assert os.listdir(tmp_path) == []


def test_19_22_names_of_files_on_the_way_do_not_repeat(tmp_path):
    names = {temporary_beside(tmp_path / "file") for _ in range(1000)}
    assert len(names) == 1000
    assert {name.parent for name in names} == {tmp_path}


def test_19_22_no_name_is_made_of_the_number_of_a_process():
    package = Path(ownership.__file__).parent
    wrong = [
        f"{path.relative_to(package)}:{number}"
        for path in package.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "getpid" in line and ("tmp" in line or "with_name" in line)
    ]
    assert wrong == []


def test_19_02_the_command_of_another_workspace_is_not_taken(workspace):
    """A process as the command line starts it, in a folder below one that is open to all."""
    workspace.root.chmod(0o1777)
    command = python_command("hwbench", "devices", "list")
    done = subprocess.run(
        command, cwd=workspace.root / "experiments", env=python_environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
