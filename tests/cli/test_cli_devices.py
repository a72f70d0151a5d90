import json

import pytest

from hwbench.cli.main import main
from hwbench.workspace import Workspace


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main(["devices", *arguments])
    out, err = capsys.readouterr()
    return end.value.code or 0, out, err


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    made = Workspace.create(tmp_path / "bench")
    monkeypatch.chdir(made.root)
    return made


def test_the_shipped_devices_are_listed(workspace, capsys):
    status, out, _ = run(capsys, "--json")
    assert status == 0
    found = {device["name"]: device for device in json.loads(out)["devices"]}
    assert found["local"]["transport"] == "local"
    assert found["s9"]["transport"] == "adb"


def test_tables_stand_beside_their_device(workspace, capsys):
    (workspace.root / "profiles" / "local" / "executorch-1.5.1.int8.t1.csv").touch()
    status, out, _ = run(capsys)
    assert status == 0
    assert "executorch-1.5.1.int8.t1" in out


def test_a_device_file_that_does_not_validate_is_listed_with_what_is_wrong(workspace, capsys):
    (workspace.root / "profiles" / "local" / "device.toml").write_text("transport = [")
    status, out, _ = run(capsys, "--json")
    assert status == 0
    found = {device["name"]: device for device in json.loads(out)["devices"]}
    assert "device.toml" in found["local"]["description"]
    assert found["s9"]["transport"] == "adb"


def test_outside_of_a_workspace(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys)
    assert (status, "hwbench init" in err) == (2, True)
