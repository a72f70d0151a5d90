"""Processes of Python that hwbench starts: none takes a module from the folder where the command is given."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hwbench.cli.main import main
from hwbench.control_group import ControlGroup
from hwbench.interpreter import (
    added_folders,
    cores,
    inherited_path,
    python_command,
    python_environment,
    python_path,
    safe_children,
    sharing_cores,
)

PACKAGE = Path(__file__).resolve().parents[1] / "hwbench"
# Where this interpreter is named beside ``interpreter.py``, and why that is right.
ELSEWHERE = {
    "testing/lab/adb_server.py": "a laboratory of tests, which says -P itself",
    "testing/power.py": "a simulation of tests, which says -P itself",
    "testing/lab/sshd.py": "started with -I, which leaves more out",
}


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """The current folder, with modules in it that leave a mark when they are run."""
    for name in ("hwbench", "pip", "json", "multiprocessing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
        (tmp_path / name / "__main__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "ran"


def test_19_03_the_trap_works(trap):
    subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True)
    assert trap.exists()


@pytest.mark.parametrize("module", ["hwbench", "pip"])
@pytest.mark.parametrize("path", [None, "", ":", "::/nowhere", "/nowhere:"])
def test_19_03_a_process_of_python_leaves_the_current_folder_alone(trap, monkeypatch, module, path):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    done = subprocess.run(
        python_command(module, "--version"), env=python_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("0." if module == "hwbench" else "pip ")
    assert not trap.exists()
    assert "" not in (inherited_path() or "/").split(os.pathsep)
    assert python_path().split(os.pathsep)[0] == str(PACKAGE.parent)


def test_19_03_pip_of_the_current_folder_fetches_no_wheel(trap, tmp_path, monkeypatch):
    from hwbench.errors import MissingDependency
    from hwbench.runtimes.native.wheels import fetch_wheel

    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(MissingDependency, match="it said: ERROR"):
        fetch_wheel("aarch64", tmp_path / "cache", version="1.5.1")
    assert not trap.exists()


def test_19_03_the_laboratory_of_the_current_folder_is_not_started(trap, tmp_path, monkeypatch):
    """The server of a virtual device finds no program that it needs: it says so, and is ours."""
    from hwbench.devices import virtual
    from hwbench.errors import MissingDependency
    from hwbench.workspace import Workspace

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency):
        virtual.start(Workspace(tmp_path / "workspace"), "box", "ssh")
    for process in virtual._started.values():
        process.wait(60)  # it has said its last word
    virtual._started.clear()
    assert not trap.exists()


def test_19_03_what_libraries_start_leaves_the_current_folder_alone(trap, monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with safe_children():
        subprocess.run([sys.executable, "-c", "import json, multiprocessing"], check=True)
    assert not trap.exists()
    assert "PYTHONSAFEPATH" not in os.environ
    subprocess.run([sys.executable, "-c", "import json, multiprocessing"], check=True)
    assert trap.exists()


def test_folders_that_a_program_added_are_told_from_those_of_every_process(tmp_path, monkeypatch):
    (tmp_path / "added").mkdir()
    monkeypatch.chdir(tmp_path)
    usual = [folder for folder in sys.path if folder.startswith((sys.prefix, sys.base_prefix))]
    vendored = str(Path(pytest.__file__).parent)  # inside of the installed packages
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "added", *usual, vendored, str(tmp_path / "missing")])
    assert added_folders() == [str(tmp_path / "added")]


def test_19_03_a_command_runs_with_safe_children_and_leaves_the_environment_as_it_was(monkeypatch):
    import hwbench.cli.commands  # noqa: F401  # registers the commands, before the program is exchanged

    seen = []
    monkeypatch.setattr("hwbench.cli.main.app", lambda *_, **__: seen.append(os.environ.get("PYTHONSAFEPATH")))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with pytest.raises(SystemExit):
        main([])
    assert seen == ["1"]
    assert "PYTHONSAFEPATH" not in os.environ


def test_19_03_a_python_of_a_device_is_asked_about_itself(tmp_path, monkeypatch):
    """Not about the distributions that lie in the folder where the question is asked."""
    from hwbench.devices.local import LocalTransport
    from hwbench.measure.remote_toolchain import ask_python

    folder = tmp_path / "executorch-9.9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: executorch\nVersion: 9.9.9\n")
    monkeypatch.chdir(tmp_path)
    with LocalTransport() as transport:
        found = ask_python(transport, sys.executable, ["executorch"])
    assert found is not None
    assert found.packages["executorch"] != "9.9.9"


def test_19_03_the_interpreter_is_named_in_one_place():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
                found.add(str(path.relative_to(PACKAGE)))
    assert "interpreter.py" in found
    assert found <= {"interpreter.py", *ELSEWHERE}


@pytest.mark.parametrize(("name", "value"), [("OMP_WAIT_POLICY", "ACTIVE"), ("GOMP_SPINCOUNT", "7")])
def test_threads_that_wait_share_their_core_unless_the_user_says_how(monkeypatch, name, value):
    for one in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(one, raising=False)
    with sharing_cores():
        assert os.environ["GOMP_SPINCOUNT"] == "10000"
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with sharing_cores():
        assert dict(os.environ) == before
    assert dict(os.environ) == before


@pytest.mark.parametrize(("given", "kept"), [("10000", "usual"), ("7", "7")])
def test_a_command_shares_cores_and_a_measured_process_waits_as_its_engine_does(tmp_path, monkeypatch, given, kept):
    for one in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(one, raising=False)
    said = "import os, sys\nsys.stderr.write('spins ' + os.environ.get('GOMP_SPINCOUNT', 'usual') + '\\n')\n"
    (tmp_path / "noted.py").write_text(said + "def network(): sys.exit('enough')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = python_command("hwbench", "bench", "noted:network")
    done = subprocess.run(command, env=python_environment(), capture_output=True, text=True, cwd=PACKAGE.parent)
    assert "spins 10000" in done.stderr
    monkeypatch.setenv("GOMP_SPINCOUNT", given)
    (tmp_path / "runner.py").write_text(
        "import sys\nfrom hwbench.runtimes.python_runner import main\n"
        "try:\n    sys.argv[1:] = ['--nothing']\n    main()\nexcept SystemExit:\n    import noted\n"
    )
    done = subprocess.run(python_command("runner"), env=python_environment(), capture_output=True, text=True)
    assert f"spins {kept}" in done.stderr


GIB = 1 << 30


@pytest.fixture
def group(tmp_path):
    """Control groups as files: what a process is in, and what they say."""

    def made(membership, files):
        for name, text in files.items():
            (tmp_path / "mount" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "mount" / name).write_text(text)
        (tmp_path / "cgroup").write_text(membership)
        return ControlGroup(tmp_path / "mount", tmp_path / "cgroup")

    return made


@pytest.mark.parametrize(
    ("membership", "files", "found"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "100000"}, None),
        ("0::/\n", {}, None),
        ("", {"cpu.max": "200000 100000\n"}, None),
        ("nonsense\n", {"cpu.max": "a b"}, None),
        # the limits of all groups above hold
        ("0::/pods/one\n", {"pods/one/cpu.max": "400000 100000\n", "pods/cpu.max": "300000 100000\n"}, 3),
        # a container whose path is that of the host, and whose own group is mounted as the top
        ("0::/system.slice/docker-1.scope\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/../other\n", {"cpu.max": "200000 100000\n", "../other/cpu.max": "100000 100000\n"}, 2),
        # version 1
        (
            "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            3,
        ),
        ("4:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, None),
        ("3:cpuset:/a\n", {"cpuset/a/cpu.cfs_quota_us": "1000\n", "cpuset/a/cpu.cfs_period_us": "1000\n"}, None),
    ],
)
def test_processors_of_a_container(group, membership, files, found):
    limits = group(membership, files)
    assert limits.cores() == found
    assert cores(limits) == min(len(os.sched_getaffinity(0)), found or sys.maxsize)


@pytest.mark.parametrize(
    ("membership", "files", "found"),
    [
        ("0::/\n", {"memory.max": f"{8 * GIB}\n", "memory.current": f"{3 * GIB}\n"}, 5 * GIB),
        ("0::/\n", {"memory.max": f"{GIB}\n", "memory.current": f"{2 * GIB}\n"}, 0),
        ("0::/\n", {"memory.max": "max\n", "memory.current": f"{3 * GIB}\n"}, None),
        # read files fill the group up, and give way
        (
            "0::/\n",
            {
                "memory.max": f"{8 * GIB}\n",
                "memory.current": f"{8 * GIB}\n",
                "memory.stat": f"anon 1\ninactive_file {2 * GIB}\nactive_file {4 * GIB}\n",
            },
            6 * GIB,
        ),
        (
            "7:memory:/a\n",
            {
                "memory/a/memory.limit_in_bytes": f"{4 * GIB}\n",
                "memory/a/memory.usage_in_bytes": f"{GIB}\n",
                "memory/a/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB - 5}\ntotal_active_file 5\n",
            },
            4 * GIB,
        ),
    ],
)
def test_memory_of_a_container(group, membership, files, found):
    assert group(membership, files).free_bytes() == found
