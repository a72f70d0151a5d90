"""What a wheel and a source archive hold: what git tracks, wherever they are built."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="builds the package: python -m pip install hatchling==1.33.0")

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("search_spaces", "profiles", "zoo")
# What lies about in a checkout that was used: ignored and untracked files.
STRAY = (
    "profiles/local/executorch-1.5.1.int8.t1.csv",
    "search_spaces/mine.toml",
    "hwbench/notes.py",
    "hwbench/__pycache__/old.pyc",
    "tests/notes.txt",
)
# One of each kind of file that the package needs beside its Python.
DATA = (
    "hwbench/py.typed",
    "hwbench/reports/page.css",
    "hwbench/reports/page.js",
    "hwbench/deploy/run.md.in",
    "hwbench/runtimes/native/runner.cpp",
    "hwbench/runtimes/native/wheels.sha256",
)


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def build(target: str, root: Path) -> Path:
    """Builds with the backend itself, which fetches nothing."""
    code = f"from hatchling.build import build_{target}; print(build_{target}('dist'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return root / "dist" / done.stdout.split()[-1]


def in_wheel(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as wheel:
        return {name for name in wheel.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of what is tracked here, as it is now, that was worked in."""
    root = tmp_path_factory.mktemp("used")
    for name in tracked():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((ROOT / name).read_bytes())
    for command in (["init", "-q"], ["add", "--all", "--force"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    for name in STRAY:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


def wanted() -> set[str]:
    tops = {name: name.partition("/")[0] for name in tracked()}
    package = {name for name, top in tops.items() if top == "hwbench"}
    return package | {f"hwbench/shipped/{name}" for name, top in tops.items() if top in SHIPPED}


def test_a_wheel_holds_what_is_tracked_and_nothing_else(used):
    held = in_wheel(build("wheel", used))
    assert held == wanted()
    assert held >= set(DATA)
    assert "hwbench/shipped/profiles/local/device.toml" in held


def test_a_wheel_of_a_source_archive_is_the_same(used, tmp_path):
    with tarfile.open(build("sdist", used)) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    assert not [name for name in STRAY if (root / name).exists()]
    assert (root / "tests" / "test_packaging.py").is_file()
    assert in_wheel(build("wheel", root)) == wanted()


def test_an_editable_install_is_the_checkout(used):
    with zipfile.ZipFile(build("editable", used)) as wheel:
        (name,) = (name for name in wheel.namelist() if ".dist-info/" not in name)
        assert name.endswith(".pth")
        assert wheel.read(name).decode().split() == [str(used)]
