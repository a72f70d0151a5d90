"""Devices as functions: this machine under a name of its own, and a host key that somebody must confirm."""

import json
import shlex
import subprocess
import sys

import pytest
from plugin_packages import offer

import hwbench
from hwbench.api.devices.trust import HostKeyAnswer, ShownHostKey, approve
from hwbench.cli.main import main
from hwbench.devices import leased, load_device, transports
from hwbench.devices.known_hosts import HostKey
from hwbench.errors import DeviceError, DeviceUnreachable, InvalidValue, MissingDependency, UnknownName
from hwbench.runtimes import runners
from hwbench.workspace import Workspace

BEHIND = """
from hwbench.devices.base import TransportKind
from hwbench.devices.local import LocalTransport

behind = TransportKind(lambda address: LocalTransport())
"""


class Person(hwbench.Listener):
    """Answers every question in one way, and keeps what was asked and said."""

    def __init__(self, answer=None):
        self.answer = answer
        self.questions, self.lines, self.steps = [], [], []

    def say(self, message):
        self.lines.append(message)

    def confirm(self, question):
        self.questions.append(question)
        return self.answer

    def checked(self, step):
        self.steps.append(step)


@pytest.fixture
def workspace(tmp_path):
    """Not the current folder: functions take the workspace that they are given."""
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def box(workspace):
    """This machine, added."""
    return hwbench.add_device(hwbench.AddDeviceRequest(name="box", local=True), workspace=workspace)


def test_a_device_is_added_and_listed(workspace, box, capfd):
    assert box.device == load_device(workspace, "box")
    assert box.probe.fingerprint == box.to_json()["fingerprint"] == box.device.fingerprint
    assert box.probe.turbo == box.device.turbo
    result = hwbench.list_devices(workspace=workspace)
    assert {"box", "local", "s9"} <= {one.name for one in result.devices}
    frame = result.to_frame().set_index("name")
    assert (frame.transport["box"], frame.transport["s9"]) == ("local", "adb")
    assert json.loads(json.dumps(result.to_json()))["attached"] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "box"}, "expected a way to the device"),
        ({"name": "local", "local": True}, "is there already"),
        ({"name": "box", "local": True, "adb": ""}, "--adb and --local"),
        ({"name": "box", "local": True, "agent": True}, "belong to --ssh"),
        ({"name": "box", "virtual": True, "over": "usb"}, "--over: expected ssh or adb, got 'usb'"),
        ({"name": "box", "local": True, "over": "adb"}, "--over goes with --virtual"),
        ({"name": "box", "local": True, "fingerprint": "SHA256:x"}, "--fingerprint is about the host key of --ssh"),
        ({"name": "box", "adb": "", "replace": True}, "--replace is about the host key of --ssh"),
        ({"name": "../box", "local": True}, "box"),
        ({"name": "box", "ssh": "no host"}, "--ssh: expected"),
    ],
)
def test_what_cannot_be_added_writes_nothing(workspace, fields, said):
    with pytest.raises(InvalidValue, match=said):
        hwbench.add_device(hwbench.AddDeviceRequest(**fields), workspace=workspace)
    assert "box" not in workspace.names("profiles")


@pytest.mark.parametrize("said", [{"fingerprint": "SHA256:x"}, {"replace": True}])
def test_a_host_key_is_refused_where_the_file_of_the_device_names_a_way_without_one(workspace, box, said):
    before = box.file.read_text()
    words = (
        rf'^--{next(iter(said))} is about the host key of --ssh, and .* of box says transport = "local"; leave it out'
    )
    with pytest.raises(InvalidValue, match=words):
        hwbench.add_device(hwbench.AddDeviceRequest(name="box", force=True, **said), workspace=workspace)
    assert box.file.read_text() == before


@pytest.mark.parametrize(
    ("fields", "typed"),
    [
        ({}, ""),
        ({"local": True, "description": "it's mine"}, """ --local --description 'it'"'"'s mine'"""),
        ({"adb": ""}, " --adb"),
        ({"adb": "phone.local:5555"}, " --adb phone.local:5555"),
        ({"virtual": True}, " --virtual"),
        ({"virtual": True, "over": "adb"}, " --virtual --over adb"),
        ({"ssh": "pi@pi5.local"}, " --ssh pi@pi5.local"),
        (
            {"ssh": "pi5", "identity": "my key", "agent": True, "fingerprint": "SHA256:x", "replace": True},
            " --ssh pi5 --identity 'my key' --agent --replace --fingerprint SHA256:x",
        ),
    ],
)
def test_a_taken_name_is_written_anew_by_all_that_was_typed(workspace, box, monkeypatch, capsys, fields, typed):
    with pytest.raises(InvalidValue, match="is there already") as error:
        hwbench.add_device(hwbench.AddDeviceRequest(name="box", **fields), workspace=workspace)
    words = shlex.split(str(error.value).rpartition(" as the device is now: ")[2])
    words.remove("--force")
    assert words == ["hwbench", "devices", "add", "box", *shlex.split(typed)]
    monkeypatch.chdir(workspace.root)
    with pytest.raises(SystemExit):  # the words are read as they were meant
        main(words[1:])
    assert str(error.value) in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("ssh", "mend"),
    [("board", "add it with --ssh USER@HOST"), (None, r"write .* in profiles/box/device\.toml")],
)
def test_advice_is_about_the_option_that_was_typed_or_else_about_the_file(workspace, tmp_path, monkeypatch, ssh, mend):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host board\n  User root\n")
    file = workspace.root / "profiles" / "box" / "device.toml"
    file.parent.mkdir()
    file.write_text('schema = 1\nname = "box"\ntransport = "ssh"\n[ssh]\nhost = "board"\n')
    request = hwbench.AddDeviceRequest(name="box", ssh=ssh, force=True)
    with pytest.raises(InvalidValue, match=f"less than root; {mend}"):
        hwbench.add_device(request, workspace=workspace)


def test_a_device_that_answers_and_one_that_does_not(workspace, box):
    shown = hwbench.show_device(hwbench.ShowDeviceRequest(name="box"), workspace=workspace)
    assert shown.answer.probe.fingerprint == box.probe.fingerprint
    assert shown.to_json()["online"]
    assert dict(shown.rows())["added as"] == box.device.fingerprint
    person = Person()
    phone = hwbench.show_device(hwbench.ShowDeviceRequest(name="s9"), person, workspace=workspace)
    assert (phone.answer, phone.to_json()["probe"], phone.to_json()["online"]) == (None, None, False)
    assert phone.reason
    assert person.lines == [f"offline: {phone.reason}"]
    assert ("online", "no") in phone.rows()
    with pytest.raises(UnknownName):
        hwbench.show_device(hwbench.ShowDeviceRequest(name="none"), workspace=workspace)


def test_steps_of_a_check_are_heard_when_they_are_done(workspace, box, monkeypatch):
    def none(*_, **__):
        raise MissingDependency("no C++ compiler")

    monkeypatch.setattr(runners, "build_runner", none)  # so the Python runner serves
    person = Person()
    request = hwbench.CheckDeviceRequest(name="box", repeat=False)
    result = hwbench.check_device(request, person, workspace=workspace)
    assert result.ok
    assert result.aa is None
    assert tuple(person.steps) == result.steps
    assert {"reachable", "fingerprint", "runner"} <= set(result.to_frame().name)
    broken = hwbench.check_device(hwbench.CheckDeviceRequest(name="s9"), workspace=workspace)
    assert (broken.ok, broken.steps[-1].state) == (False, "failed")


def test_pairs_of_an_aa_test_that_is_not_run_are_refused():
    with pytest.raises(InvalidValue, match=r"^--no-aa runs no A/A test; leave --pairs out"):
        hwbench.CheckDeviceRequest(name="box", repeat=False, pairs=4)
    assert hwbench.CheckDeviceRequest(name="box", pairs=4).pairs == 4


@pytest.mark.parametrize("answer", [None, False])
def test_a_device_stays_where_nobody_says_yes(workspace, box, answer):
    person = Person(answer)
    with pytest.raises(InvalidValue, match="add --yes" if answer is None else "nothing was done"):
        hwbench.remove_device(hwbench.RemoveDeviceRequest(name="box"), person, workspace=workspace)
    assert person.questions == ["delete profiles/box/device.toml?"]
    assert workspace.device("box").is_file()


@pytest.mark.parametrize("yes", [True, False])
def test_a_device_is_removed(workspace, box, yes):
    table = workspace.device("box").with_name("executorch-1.5.1.int8.t1.csv")
    table.touch()
    person = Person(True)
    removed = hwbench.remove_device(hwbench.RemoveDeviceRequest(name="box", yes=yes), person, workspace=workspace)
    assert (removed.removed, len(removed.kept)) == (("profiles/box/device.toml",), 1)
    assert len(person.questions) == (0 if yes else 1)
    assert table.is_file()


def test_a_removal_that_stopped_half_way_is_ended_by_the_same_request(workspace, box):
    request = hwbench.RemoveDeviceRequest(name="box", tables=True, yes=True)
    file = workspace.device("box")
    for name in ("b.csv", "known_hosts"):
        file.with_name(name).touch()
    file.with_name("a.csv").mkdir()  # is not deleted as a file
    laboratory = workspace.root / ".hwbench" / "labs" / "box.json"
    laboratory.parent.mkdir(parents=True)
    laboratory.write_text("{}")
    with pytest.raises(OSError, match=r"a\.csv"):
        hwbench.remove_device(request, workspace=workspace)
    assert file.is_file()
    assert not laboratory.exists()
    file.with_name("a.csv").rmdir()
    hwbench.remove_device(request, workspace=workspace)
    assert not file.parent.exists()


def test_a_device_without_a_host_key_has_none_to_trust(workspace, box):
    person = Person()
    trusted = hwbench.trust_device(hwbench.TrustDeviceRequest(name="box"), person, workspace=workspace)
    assert (trusted.known, trusted.host, trusted.to_json()["file"]) == (True, None, None)
    assert "this machine" in person.lines[0]


def test_a_device_over_a_transport_of_another_package_is_listed_while_it_is_in_use(workspace, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, transports, BEHIND, {"behind": "behind"})
    file = workspace.root / "profiles" / "nice" / "device.toml"
    file.parent.mkdir()
    file.write_text('schema = 1\nname = "nice"\ntransport = "behind"\n')
    with leased("behind:nice:local:here"):
        listed = {one.name: one for one in hwbench.list_devices(workspace=workspace).devices}
    assert (listed["nice"].transport, listed["nice"].holder) == ("behind", None)
    person = Person()
    hwbench.trust_device(hwbench.TrustDeviceRequest(name="nice"), person, workspace=workspace)
    said = "device 'nice' has no host key to trust: it is reached by the transport 'behind', not by SSH"
    assert person.lines == [said]


KEY = HostKey("board", "ssh-ed25519", b"\0\0\0\x0bssh-ed25519" + bytes(36))
NEW, REVOKED = ShownHostKey(KEY, (), False, False), ShownHostKey(KEY, (), False, True)
CHANGED = ShownHostKey(KEY, ("other",), False, False)


@pytest.mark.parametrize(
    ("shown", "answer", "person", "error", "said"),
    [
        (NEW, HostKeyAnswer(), Person(True), None, ""),
        (NEW, HostKeyAnswer(yes=True), Person(), None, ""),
        (NEW, HostKeyAnswer(fingerprint=KEY.sha256), Person(), None, ""),
        (NEW, HostKeyAnswer(), Person(False), InvalidValue, "nothing was done"),
        (
            NEW,
            HostKeyAnswer(),
            Person(),
            DeviceUnreachable,
            "again --fingerprint SHA256",
        ),
        (NEW, HostKeyAnswer(True, "SHA256:x"), Person(True), DeviceError, "SHA256:x"),
        (
            CHANGED,
            HostKeyAnswer(True),
            Person(True),
            DeviceError,
            "again --replace",
        ),
        (CHANGED, HostKeyAnswer(True, None, True), Person(), None, ""),
        (
            REVOKED,
            HostKeyAnswer(True, KEY.sha256, True),
            Person(True),
            DeviceError,
            "revoked",
        ),
    ],
)
def test_who_may_say_that_a_host_key_is_the_right_one(shown, answer, person, error, said):
    if error is None:
        approve(shown, answer, "again", person)
    else:
        with pytest.raises(error, match=said):
            approve(shown, answer, "again", person)
    assert person.lines[0] == str(shown)


def test_asking_a_device_loads_no_torch(workspace, box):
    code = (
        "import sys, hwbench\nfrom pathlib import Path\nfrom hwbench.workspace import Workspace\n"
        "w = Workspace(Path(sys.argv[1]))\n"
        "hwbench.list_devices(workspace=w)\n"
        "hwbench.show_device(hwbench.ShowDeviceRequest(name='box'), workspace=w)\n"
        "print({'torch', 'numpy', 'pandas', 'typer', 'rich'} & set(sys.modules))\n"
    )
    argv = [sys.executable, "-c", code, str(workspace.root)]
    assert subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout == "set()\n"
