import importlib.metadata
import json
import platform
import shutil

import pytest

from hwbench.cli import doctor
from hwbench.cli.main import main
from hwbench.measure.store import MeasurementStore


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main(["doctor", *arguments])
    out, err = capsys.readouterr()
    return end.value.code or 0, out, err


def findings(out):
    return {finding["name"]: finding for finding in json.loads(out)["findings"]}


def test_everything_needed_is_here(workspace, capsys):
    status, out, _ = run(capsys, "--json")
    assert status == 0
    assert json.loads(out)["ok"]
    assert json.loads(out)["cpus"] >= 1
    assert findings(out)["torch"]["found"].startswith(importlib.metadata.version("torch"))


def test_a_missing_package_comes_with_its_command_and_status_5(workspace, capsys, monkeypatch):
    monkeypatch.setitem(doctor.PACKAGES, "hwbench-no-such-package", "nothing")
    status, out, err = run(capsys)
    assert status == 5
    assert "missing" in out
    assert "python -m pip install hwbench-no-such-package" in err


def test_without_a_compiler_the_advice_installs_one_and_the_status_stays_0(workspace, capsys, monkeypatch):
    for name in ("sh", "cat", "uname"):
        (workspace.root / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(workspace.root))
    monkeypatch.delenv("CXX", raising=False)
    status, out, err = run(capsys, "--json")
    assert status == 0
    found = findings(out)
    assert not found["C++ compiler"]["ok"]
    assert "apt-get install g++" in err
    assert found["adb"]["advice"] == "apt-get install adb"
    if platform.machine() == "x86_64":
        assert found["ARM compiler"]["advice"] == "apt-get install g++-aarch64-linux-gnu"
    assert "qemu-user-static proot" in found["ARM emulation"]["advice"]
    assert not any(found[name]["needed"] for name in ("adb", "ARM compiler", "ARM emulation"))


def test_without_a_shell_the_local_device_cannot_be_measured(workspace, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(workspace.root))
    status, out, _ = run(capsys, "--json")
    assert status == 0
    assert not findings(out)["local device"]["ok"]


def test_outside_of_a_workspace_it_says_how_to_make_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys)
    assert status == 5
    assert "hwbench init" in err


def test_the_rows_of_the_store_are_counted(workspace, capsys):
    MeasurementStore(workspace.store).close()
    status, out, _ = run(capsys, "--json")
    assert (status, findings(out)["measurements"]["found"]) == (0, "none")


def test_a_damaged_store_is_named(workspace, capsys):
    workspace.store.write_text("not a database" * 100)
    status, _, err = run(capsys)
    assert status == 5
    assert "measurements.sqlite" in err
    assert "Move it away" in err


def test_how_this_machine_is_doing_is_told_as_of_any_device(workspace, capsys):
    status, out, _ = run(capsys, "--json")
    found = findings(out)
    assert status == 0
    assert {"hardware", "memory", "cores"} <= set(found)
    assert all(found[name]["ok"] or found[name]["advice"] for name in ("hardware", "memory", "cores"))
