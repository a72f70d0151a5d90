"""``hwbench devices`` where the device is this machine; over ssh and adb: test_cli_devices_remote.py."""

import json
import os
import shlex
import subprocess
import sys

import pytest
import typer

import hwbench.cli.commands  # noqa: F401  # registers the commands
from hwbench.api.devices.add import AddDeviceRequest
from hwbench.cli.main import app, main
from hwbench.devices import leased, load_device, virtual
from hwbench.devices.device import SHIPPED
from hwbench.errors import MissingDependency
from hwbench.measure import prepare as preparing
from hwbench.runtimes import runners
from hwbench.workspace import shipped


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main(["devices", *arguments])
    out, err = capsys.readouterr()
    return end.value.code or 0, out, err


@pytest.fixture
def box(workspace, capsys):
    assert run(capsys, "add", "box", "--local")[0] == 0
    return workspace


def listed(capsys, *arguments):
    status, out, _ = run(capsys, *arguments, "--json")
    assert status == 0
    return {device["name"]: device for device in json.loads(out)["devices"]}


@pytest.mark.parametrize("arguments", [(), ("list",)])
def test_the_shipped_devices_are_listed(workspace, capsys, arguments):
    found = listed(capsys, *arguments)
    assert found["local"]["transport"] == "local"
    assert found["s9"]["transport"] == "adb"
    assert not found["s9"]["emulated"]


def test_tables_stand_beside_their_device(workspace, capsys):
    (workspace.root / "profiles" / "local" / "executorch-1.5.1.int8.t1.csv").touch()
    status, out, _ = run(capsys)
    assert status == 0
    assert "executorch-1.5.1.int8.t1" in out


def test_a_device_file_that_does_not_validate_is_listed_with_what_is_wrong(workspace, capsys):
    (workspace.root / "profiles" / "local" / "device.toml").write_text("transport = [")
    found = listed(capsys)
    assert "device.toml" in found["local"]["description"]
    assert found["s9"]["transport"] == "adb"


def test_a_description_is_shown_as_it_is_and_moves_no_cursor(workspace, capsys):
    path = workspace.root / "profiles" / "local" / "device.toml"
    path.write_text(path.read_text().replace('"this machine"', '"[/red] \\u001b[2J [bold]"'))
    status, out, _ = run(capsys)
    assert status == 0
    assert "[/red] [2J [bold]" in out
    assert "\x1b" not in out


def test_outside_of_a_workspace(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in ((), ("list",), ("add", "x", "--local"), ("show", "x"), ("remove", "x"), ("check", "x")):
        status, _, err = run(capsys, *arguments)
        assert (status, "hwbench init" in err) == (2, True)


def test_json_after_the_subcommand_only(workspace, capsys):
    status, out, err = run(capsys, "--json", "list")
    assert (status, out) == (2, "")
    assert "hwbench devices list ... --json" in err


# ---------------------------------------------------------------- add


def test_an_added_device_can_be_used(workspace, capsys):
    status, out, err = run(capsys, "add", "box", "--local", "--json")
    assert (status, "next: hwbench devices check box" in err) == (0, True)
    values = json.loads(out)
    device = load_device(workspace, "box")
    assert values["file"] == str(workspace.device("box"))
    assert (values["device"], values["transport"], values["emulated"]) == ("box", "local", False)
    assert device.fingerprint == values["fingerprint"]
    assert list(device.cpus) == values["cpus"]
    assert device.description
    assert values["model"] in workspace.device("box").read_text()
    assert listed(capsys)["box"]["description"] == device.description


def test_an_existing_device_is_not_overwritten(box, capsys):
    path = box.device("box")
    path.write_text(path.read_text() + 'work_dir = "/x"\n')
    before = path.read_text()
    status, out, err = run(capsys, "add", "box", "--local")
    assert (status, out, path.read_text()) == (2, "", before)
    assert "hwbench devices add box --local --force" in err


def test_force_accepts_the_device_as_it_is_now_and_keeps_what_was_written_by_hand(box, capsys):
    path = box.device("box")
    real = load_device(box, "box").fingerprint
    text = path.read_text().replace(real, "0" * 16).replace("threads = 1", "threads = 2")
    path.write_text(text.replace("description = ", 'description = "mine"\n#'))
    assert run(capsys, "add", "box", "--force")[0] == 0
    device = load_device(box, "box")
    assert (device.fingerprint, device.threads, device.description) == (real, 2, "mine")
    assert run(capsys, "add", "box", "--force", "--description", "new")[0] == 0
    assert load_device(box, "box").description == "new"


def test_force_keeps_processors_that_can_be_used_and_says_which_it_replaces(box, capsys):
    path = box.device("box")
    found = load_device(box, "box").cpus
    line, mine = f"cpus = {list(found)}", found[-1:]
    path.write_text(path.read_text().replace(line, f"cpus = {list(mine)}"))
    status, _, err = run(capsys, "add", "box", "--force")
    assert (status, load_device(box, "box").cpus) == (0, mine)
    assert len(found) == 1 or f"stays; its big cores are {list(found)}" in err
    path.write_text(path.read_text().replace(f"cpus = {list(mine)}", "cpus = [999]"))
    status, _, err = run(capsys, "add", "box", "--force")
    assert (status, load_device(box, "box").cpus) == (0, found)
    assert f"cpus = [999] of its file cannot be used there; it is now {list(found)}" in err


def test_another_machine_under_the_name_is_not_measured(box, capsys):
    path = box.device("box")
    real = load_device(box, "box").fingerprint
    path.write_text(path.read_text().replace(real, "0" * 16))
    with pytest.raises(SystemExit) as end:
        main(["bench", "zoo:x3d-xs", "--runtime", "torch", "--device", "box"])
    _, err = capsys.readouterr()
    assert end.value.code == 3
    assert f"expected fingerprint {'0' * 16}, got {real}" in err
    assert "hwbench devices add box --force" in err


@pytest.mark.parametrize("name", ["..", "../x", "a/b", ".", "", "a\nb", "x" * 65])
def test_a_hostile_name_is_refused_and_writes_nothing(workspace, capsys, name):
    before = sorted(workspace.root.parent.rglob("*"))
    status, out, err = run(capsys, "add", "--local", "--", name)
    assert (status, out) == (2, "")
    assert "device name: expected letters" in err
    assert sorted(workspace.root.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        ((), ("expected a way", "--ssh", "--adb")),
        (("--local", "--adb"), ("got --adb and --local",)),
        (("--force",), ("expected a way",)),
    ],
)
def test_how_it_is_reached_must_be_said(workspace, capsys, arguments, fragments):
    status, out, err = run(capsys, "add", "box", *arguments)
    assert (status, out) == (2, "")
    assert all(fragment in err for fragment in fragments)


def test_a_workspace_that_cannot_be_written(workspace, capsys):
    (workspace.root / "profiles" / "box").touch()
    status, out, err = run(capsys, "add", "box", "--local")
    assert (status, out) == (2, "")
    assert "cannot write" in err


# ---------------------------------------------------------------- show


def test_a_device_is_shown(box, capsys):
    status, out, err = run(capsys, "show", "box", "--json")
    values = json.loads(out)
    assert (status, err) == (0, "")
    assert values["online"]
    assert values["probe"]["fingerprint"] == values["fingerprint"]
    status, out, err = run(capsys, "show", "box")
    assert (status, err) == (0, "")
    assert values["probe"]["model"] in out
    assert str(box.device("box")) in out


def test_another_machine_under_the_name_is_shown_as_that(box, capsys):
    path = box.device("box")
    path.write_text(path.read_text().replace(load_device(box, "box").fingerprint, "0" * 16))
    status, _, err = run(capsys, "show", "box")
    assert status == 0
    assert f"expected fingerprint {'0' * 16}" in err


def test_who_measures_on_it_is_shown(box, capsys):
    with load_device(box, "box").transport() as transport, leased(transport.identity):
        assert f"process {os.getpid()} on" in json.loads(run(capsys, "show", "box", "--json")[1])["holder"]


# ---------------------------------------------------------------- remove


@pytest.mark.parametrize(
    ("others", "said"), [((), "1 table stays in {}; delete the folder to be rid of it"), (("onnx",), "2 tables stay")]
)
def test_a_device_is_removed_and_its_tables_stay(box, capsys, others, said):
    table = box.device("box").with_name("executorch-1.5.1.int8.t1.csv")
    kept = [table, *(table.with_name(f"{name}-1.int8.t1.csv") for name in others)]
    for one in kept:
        one.touch()
    status, out, err = run(capsys, "remove", "box", "--yes", "--json")
    assert status == 0
    assert json.loads(out) == {
        "device": "box",
        "removed": ["profiles/box/device.toml"],
        "kept": [f"profiles/box/{one.name}" for one in kept],
    }
    assert said.format(table.parent) in err.replace("\n", "")
    assert "--tables" not in err  # the device is not known any more
    assert table.exists()
    assert "box" not in box.names("profiles")


def test_tables_go_when_they_are_named(box, capsys):
    folder = box.device("box").parent
    (folder / "executorch-1.5.1.int8.t1.csv").touch()
    assert run(capsys, "remove", "box", "--tables", "--yes")[0] == 0
    assert not folder.exists()


def test_without_a_terminal_it_must_be_said(box, capsys):
    status, out, err = run(capsys, "remove", "box")
    assert (status, out) == (2, "")
    assert "--yes" in err
    assert box.device("box").exists()


def test_a_file_that_does_not_validate_can_be_removed(box, capsys):
    path = box.device("box")
    path.write_text("transport = [")
    assert run(capsys, "remove", "box", "--yes")[0] == 0
    assert not path.exists()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_devices_stay(workspace, capsys, name):
    status, out, err = run(capsys, "remove", name, "--yes")
    assert (status, out) == (2, "")
    assert f"device '{name}' comes with hwbench and stays" in err
    assert workspace.device(name).exists()


def test_shipped_devices_are_those_of_the_repository():
    root = shipped()
    listing = subprocess.run(
        ["git", "ls-files", "profiles/*/device.toml"], cwd=root, capture_output=True, text=True, timeout=60
    )
    if listing.returncode:
        pytest.skip("no git checkout: tested in one")
    assert {line.split("/")[1] for line in listing.stdout.split()} == set(SHIPPED)


@pytest.mark.parametrize("command", ["show", "remove", "check", "prepare"])
def test_an_unknown_device(workspace, capsys, command):
    status, out, err = run(capsys, command, "lokal")
    assert (status, out) == (2, "")
    assert "unknown device 'lokal'; did you mean 'local'?" in err


def test_no_torch_is_loaded(box):
    code = (
        "import sys, contextlib\nfrom hwbench.cli.main import main\n"
        "for line in sys.argv[1:]:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main(['devices', *line.split()])\n"
        "print(*{'torch', 'numpy', 'executorch', 'optuna'} & set(sys.modules), sep=' ', file=sys.stderr)\n"
    )
    lines = ["list", "add other --local", "show other", "trust other", "remove other --yes"]
    done = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.splitlines()[-1] == ""
    assert "removed" in done.stdout


def test_a_process_that_is_no_laboratory_is_let_be(box, capsys):
    record = box.root / ".hwbench" / "labs" / "box.json"
    record.parent.mkdir(parents=True)
    for text in (json.dumps({"pid": os.getpid(), "adb": None}), "{}", "[", '{"pid": "x"}'):
        record.write_text(text)
        assert not virtual.stop(box, "box")
        assert not record.exists()


# ---------------------------------------------------------------- check and prepare


@pytest.fixture
def without_compiler(monkeypatch):
    """So the Python runner serves, and nothing is built."""

    def none(*_, **__):
        raise MissingDependency("no C++ compiler")

    monkeypatch.setattr(runners, "build_runner", none)


def steps(out):
    return {step["name"]: step for step in json.loads(out)["steps"]}


def test_what_was_added_passes_its_check(box, capsys, without_compiler):
    status, out, err = run(capsys, "check", "box", "--no-aa", "--json")
    found = steps(out)
    assert (status, json.loads(out)["ok"], json.loads(out)["aa"]) == (0, True, None), err
    assert "failed" not in {step["state"] for step in found.values()}
    assert found["fingerprint"]["found"] == load_device(box, "box").fingerprint
    assert found["runner"]["found"].startswith("python in ")
    status, out, err = run(capsys, "check", "box", "--no-aa")
    assert [line.split()[1] for line in out.splitlines()] == [name.split()[0] for name in found]
    assert "next: hwbench profile --device box" in err


def test_another_machine_and_processors_that_are_not_there(box, capsys, without_compiler):
    path = box.device("box")
    cpus = f"cpus = {list(load_device(box, 'box').cpus)}"
    path.write_text(
        path.read_text().replace(load_device(box, "box").fingerprint, "0" * 16).replace(cpus, "cpus = [999]")
    )
    status, out, err = run(capsys, "check", "box", "--no-aa", "--json")
    found = steps(out)
    assert (status, json.loads(out)["ok"]) == (3, False)
    assert {name for name, step in found.items() if step["state"] == "failed"} == {"fingerprint", "processors"}
    assert found["fingerprint"]["advice"] == "hwbench devices add box --force"
    assert "no 999" in found["processors"]["found"]
    assert "processors: hwbench devices add box --force" in err


def test_a_device_in_use_is_not_disturbed(box, capsys):
    code = (
        "import sys\nfrom hwbench.devices import leased, transports, Address\n"
        "with transports.get('local').connect(Address('x')) as t, leased(t.identity):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "held\n"
        status, out, _ = run(capsys, "check", "box", "--no-aa", "--json")
        assert status == 3
        assert f"process {other.pid}" in steps(out)["free"]["found"]
        assert f"process {other.pid}" in listed(capsys)["box"]["holder"]
        assert f"process {other.pid}" in run(capsys)[1]
        status, _, err = run(capsys, "prepare", "box")
        assert (status, f"process {other.pid}" in err) == (3, True)
        other.stdin.close()
    assert listed(capsys)["box"]["holder"] is None


def test_a_runner_is_prepared(box, capsys, without_compiler, monkeypatch):
    monkeypatch.setattr(preparing, "PROBES", ())  # the laboratory's tests run them
    status, out, err = run(capsys, "prepare", "box", "--json")
    assert status == 0
    values = json.loads(out)
    assert (values["device"], values["runner"], values["note"]) == ("box", "python", "")
    assert "next: hwbench devices check box" in err


def test_the_command_that_adds_a_device_once_more_has_all_that_was_typed():
    typed = {"name": "pi", "ssh": "pi@pi", "identity": "my key", "description": "On the shelf", "force": True}
    words = shlex.split(AddDeviceRequest(**typed, agent=True).command())
    command = typer.main.get_command(app).commands["devices"].commands["add"]
    again = command.make_context("add", words[3:]).params
    assert words[:3] == ["hwbench", "devices", "add"]
    assert {name: again[name] for name in typed} | {"agent": again["agent"]} == typed | {"agent": True}
    assert "--description" not in AddDeviceRequest(name="pi", ssh="pi").command()
