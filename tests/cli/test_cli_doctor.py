import importlib
import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hwbench.api import doctor
from hwbench.api.doctor_plugins import GROUPS
from hwbench.cli.main import main
from hwbench.measure.store import MeasurementStore

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


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


def declare(monkeypatch, folder, *requirements):
    """An installed hwbench that declares other dependencies."""
    about = folder / "hwbench-0.dist-info"
    about.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: hwbench", "Version: 0", *(f"Requires-Dist: {one}" for one in requirements)]
    (about / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_missing_package_comes_with_its_command_and_status_5(workspace, tmp_path, capsys, monkeypatch):
    declare(monkeypatch, tmp_path, "hwbench-no-such-package>=2", "rich")
    status, out, err = run(capsys)
    assert status == 5
    assert "missing" in out
    assert "python -m pip install 'hwbench-no-such-package>=2'" in err


def test_a_package_outside_of_its_declared_versions_is_told(workspace, tmp_path, capsys, monkeypatch):
    kept = ("rich>=1", "typer>=999; extra == 'next'", 'plotly>=999; python_version < "3"')
    declare(monkeypatch, tmp_path, "numpy<1", "optuna<6,>=999", *kept)
    status, out, err = run(capsys, "--json")
    assert status == 5
    told = findings(out)
    numpy, optuna = (importlib.metadata.version(name) for name in ("numpy", "optuna"))
    assert (told["numpy"]["ok"], told["numpy"]["found"]) == (False, f"{numpy}; hwbench needs <1")
    assert (told["optuna"]["ok"], told["optuna"]["found"]) == (False, f"{optuna} (search); hwbench needs <6,>=999")
    assert "numpy: python -m pip install 'numpy<1'" in err
    assert "optuna: python -m pip install 'optuna<6,>=999'" in err
    assert told["rich"]["ok"]
    assert not {"typer", "plotly"} & set(told)


def test_all_that_is_declared_is_looked_at(workspace, capsys):
    names = {re.match(r"[\w.-]+", one)[0].replace(".", "-") for one in PROJECT["dependencies"]}
    _, out, _ = run(capsys, "--json")
    told = findings(out)
    assert names | set(doctor.PACKAGES) <= {name for name in told if told[name]["needed"]}


def test_without_a_reader_of_versions_packages_may_have_any(workspace, tmp_path, capsys, monkeypatch):
    declare(monkeypatch, tmp_path, "numpy<1")
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    status, out, _ = run(capsys, "--json")
    assert status == 0
    assert {*doctor.PACKAGES, "packaging"} <= set(findings(out))


def test_an_extra_is_installed_by_its_name():
    extras = PROJECT["optional-dependencies"]
    for distribution, (_, advice) in doctor.EXTRAS.items():
        extra = re.fullmatch(r"python -m pip install 'hwbench\[(\w+)\]'", advice)[1]
        assert distribution in {re.match(r"[\w.-]+", one)[0] for one in extras[extra]}


def test_without_a_compiler_the_advice_installs_one_and_the_status_stays_0(workspace, capsys, monkeypatch):
    for name in ("sh", "cat", "uname"):
        (workspace.root / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(workspace.root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace.root))
    monkeypatch.delenv("CXX", raising=False)
    status, out, err = run(capsys, "--json")
    assert status == 0
    found = findings(out)
    assert not found["C++ compiler"]["ok"]
    assert "apt-get install g++" in err
    assert found["adb"]["advice"] == "apt-get install adb"
    if platform.machine() == "x86_64":
        assert found["ARM compiler"]["advice"] == "apt-get install g++-aarch64-linux-gnu"
    for program in ("qemu-aarch64-static", "proot", "ssh-keygen", "c++"):
        assert program in found["ARM emulation"]["found"]
    assert "openssh-client proot qemu-user-static" in found["ARM emulation"]["advice"]
    assert found["ARM emulation"]["advice"].endswith("; python3 -m hwbench.testing.lab")  # a busybox
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


def test_a_workspace_on_a_disk_mounted_noexec(workspace, capsys):
    assert findings(run(capsys, "--json")[1])["built programs"]["ok"]
    workspace.cache.mkdir()
    inside = [
        "unshare",
        "-Urm",
        "sh",
        "-c",
        f'mount -t tmpfs -o noexec,mode=755 none {workspace.cache} && exec "$@"',
        "sh",
    ]
    if subprocess.run([*inside, "sleep", "0"], capture_output=True, timeout=30, check=False).returncode:
        pytest.skip("no name spaces here: sysctl kernel.unprivileged_userns_clone=1")
    command = [*inside, sys.executable, "-m", "hwbench", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=workspace.root)
    told = findings(done.stdout)["built programs"]
    assert not told["ok"]
    assert told["found"].startswith(
        f"{workspace.cache}: a program there does not start, as where a disk is mounted noexec"
    )
    assert "hwbench init DIR" in told["advice"]
    assert list(workspace.cache.iterdir()) == []


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


def test_19_24_clean_removes_what_can_be_made_again_and_says_how_much(workspace, capsys):
    MeasurementStore(workspace.store).close()
    MeasurementStore(workspace.verified / "table-20260101T000000Z.sqlite").close()
    workspace.cache.mkdir()
    (workspace.cache / f"{'ab' * 32}.pte").write_bytes(bytes(5000))
    (workspace.cache / f"{'ab' * 32}.json").write_text("{}")
    (workspace.cache / "runner-0123456789abcdef").write_bytes(bytes(3000))
    (workspace.cache / "executorch-1.5.1-aarch64-0123" / "lib").mkdir(parents=True)
    (workspace.cache / "executorch-1.5.1-aarch64-0123" / "lib" / "libexecutorch.so").write_bytes(bytes(1000))
    table = workspace.root / "profiles" / "local" / "executorch-1.5.1.int8.t1.csv"
    table.write_text("kept")
    status, out, _ = run(capsys, "--json")
    assert status == 0
    assert "cleaned" not in json.loads(out)
    assert findings(out)["build cache"]["found"] == "4.9 KiB of at most 10.0 GiB"
    assert findings(out)["rest of the cache"]["found"].startswith("3.9 KiB, runners")
    status, out, err = run(capsys, "--clean", "--json")
    assert status == 0
    cleaned = json.loads(out)["cleaned"]
    assert cleaned["cache"] == {"removed_bytes": 9002, "removed_files": 4, "kept_bytes": 0}
    assert cleaned["verified"]["removed_files"] == 2
    assert "cache: 8.8 KiB removed" in err.replace("\n", "")
    assert [path.name for path in workspace.cache.iterdir()] == [".users"]
    assert list(workspace.verified.iterdir()) == []
    assert workspace.store.is_file()
    assert table.read_text() == "kept"
    status, out, _ = run(capsys, "--clean")
    assert status == 0
    assert "0 B of at most 10.0 GiB" in out


def test_decoded_videos_are_counted_apart_and_cleaned(workspace, capsys):
    folder = workspace.cache / "decoded"
    folder.mkdir(parents=True)
    (folder / f"{'ab' * 32}.frames").write_bytes(bytes(4096))
    _, out, _ = run(capsys, "--json")
    assert findings(out)["decoded videos"]["found"].startswith("4.0 KiB")
    assert findings(out)["build cache"]["found"].startswith("0 B")
    _, out, _ = run(capsys, "--clean", "--json")
    assert json.loads(out)["cleaned"]["cache"]["removed_bytes"] == 4096
    assert "decoded videos" not in findings(out)


def test_what_the_limit_of_built_files_does_not_hold_for_is_counted_apart(workspace, capsys, monkeypatch):
    monkeypatch.setenv("HWBENCH_CACHE_LIMIT", "4KiB")
    files = {f"{'ab' * 32}.pte": 2, "flow/0123/flow.json": 3, "supernets/4567/supernet.pt": 5, "videos/facts.sqlite": 6}
    for name, kib in files.items():
        (workspace.cache / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.cache / name).write_bytes(bytes(kib * 1024))
    status, out, err = run(capsys, "--json")
    assert status == 0, err
    told = {name: one["found"].partition(",")[0] for name, one in findings(out).items()}
    assert told["build cache"] == "2.0 KiB of at most 4.0 KiB"
    assert (told["optical flow"], told["supernets"], told["rest of the cache"]) == ("3.0 KiB", "5.0 KiB", "6.0 KiB")
    assert "decoded videos" not in told


def test_clean_leaves_trained_supernets_and_says_what_it_removes(workspace, capsys):
    weights = workspace.cache / "supernets" / "0123456789abcdef" / "supernet.pt"
    flow = workspace.cache / "flow" / "0123456789abcdef" / "flow.json"
    for file in (weights, flow):
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(100))
    status, _, err = run(capsys, "--clean")
    assert status == 0, err
    assert (weights.is_file(), flow.exists()) == (True, False)
    words = " ".join(run(capsys, "--help")[1].replace("│", " ").split())
    assert "computed optical flow" in words
    assert "studies and trained supernets stay" in words


def test_19_24_a_limit_that_is_no_size_is_told(workspace, capsys, monkeypatch):
    monkeypatch.setenv("HWBENCH_CACHE_LIMIT", "much")
    status, out, err = run(capsys, "--json")
    assert status == 5
    assert not findings(out)["build cache"]["ok"]
    assert "HWBENCH_CACHE_LIMIT" in err


def install(monkeypatch, folder, package, points):
    """A package whose module ends the program that loads it, and its entry points: ``GROUP:NAME`` with a module."""
    about = folder / f"{package}-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    lines = [f"[{group}]\n{name} = {module}:thing\n" for (group, name), module in points.items()]
    (about / "entry_points.txt").write_text("".join(lines))
    (folder / f"{package}.py").write_text("raise SystemExit('loaded')\n")
    monkeypatch.syspath_prepend(str(folder))


def test_plugins_are_listed_with_what_keeps_one_from_being_used(workspace, tmp_path, capsys, monkeypatch):
    install(monkeypatch, tmp_path / "b", "later", {("hwbench.readers", "mine"): "later"})
    points = {
        ("hwbench.readers", "mine"): "first",
        ("hwbench.readers", "synthetic"): "first",
        ("hwbench.samplers", "tpe"): "first",
        ("hwbench.runtimes", "gone"): "no_such_module_of_first.part",
        ("hwbench.evaluators", "odd"): "'",
        ("hwbench.families", "i3d"): "first",
        ("hwbench.sampler", "axis"): "first",
        ("nothwbench.sampler", "axis"): "first",
    }
    install(monkeypatch, tmp_path / "a", "first", points)
    status, out, err = run(capsys, "--json")
    assert status == 0
    plugins = [one for one in json.loads(out)["findings"] if one["name"].startswith("plugin ")]
    remove = "remove it: python -m pip uninstall first"
    expected = {
        ("hwbench.evaluators:odd", False): ('there is no module "\'"', f"mend it, or {remove}"),
        ("hwbench.families:i3d", False): ("hwbench's own family of that name is taken", remove),
        ("hwbench.readers:mine", True): ("of the package first (first:thing)", ""),
        ("hwbench.readers:synthetic", False): ("hwbench's own reader of data of that name is taken", remove),
        ("hwbench.readers:mine", False): (
            "of the package later (later:thing); that of the package first is taken",
            "give it another name, or remove it: python -m pip uninstall later",
        ),
        ("hwbench.runtimes:gone", False): ("there is no module 'no_such_module_of_first'", f"mend it, or {remove}"),
        ("hwbench.sampler:axis", False): (
            "hwbench has no group hwbench.sampler",
            f"did you mean 'hwbench.samplers' or 'hwbench.families' or 'hwbench.readers'? known: {', '.join(GROUPS)}; "
            f"rename it, or {remove}",
        ),
        ("hwbench.samplers:tpe", False): ("hwbench's own sampler of that name is taken", remove),
    }
    assert [(one["name"].removeprefix("plugin "), one["ok"]) for one in plugins] == list(expected)
    for one, (found, advice) in zip(plugins, expected.values(), strict=True):
        assert one["found"].endswith(found)
        assert one["advice"].endswith(advice)
        assert not one["needed"]
    assert "first" not in sys.modules
    assert "plugin hwbench.samplers:tpe: give it another name" in err


def test_every_group_of_entry_points_is_known_to_the_doctor():
    asked = "\n".join(path.read_text() for path in Path(doctor.__file__).parents[1].rglob("*.py"))
    assert set(GROUPS) == set(re.findall(r'entry_points="(hwbench\.\w+)"', asked))
    for group, (module, name) in GROUPS.items():
        assert getattr(importlib.import_module(module), name).entry_points == group


def test_plugins_are_listed_where_torch_does_not_load(tmp_path, monkeypatch):
    install(monkeypatch, tmp_path, "first", {("hwbench.readers", "lists"): "first"})
    monkeypatch.setitem(sys.modules, "hwbench.data.readers", None)
    assert [one.ok for one in doctor.doctor().findings if one.name == "plugin hwbench.readers:lists"] == [True]
