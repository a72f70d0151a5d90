"""Runners for other machines: the wheel is fetched, the C++ runner is cross-compiled and run in an emulator."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from hwbench.errors import InvalidFile, MissingDependency
from hwbench.runtimes.capabilities import NATIVE, NATIVE_BOARD, NATIVE_LOADER, PYTHON
from hwbench.runtimes.native.build import LIBRARIES, Wheel
from hwbench.runtimes.native.cross import build_for, find_compiler_for, install_command, libc_files
from hwbench.runtimes.native.wheels import fetch_wheel
from hwbench.runtimes.protocol import Options, Start, Visit, parse_line
from hwbench.runtimes.runner_bundle import digest, python_kit, sources_kit
from hwbench.runtimes.runners import Runner, check_file
from hwbench.testing import arm

VERSION = "1.5.1"


@pytest.fixture(scope="module")
def kits(runner_cache):
    return arm.kits(runner_cache)


@pytest.fixture(scope="module")
def runners(kits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arm")
    return {kind: arm.unpacked(kit, folder / kind) for kind, kit in kits.items()}


def step(values):
    """The distance between two neighbours of what an int8 file gives."""
    levels = np.unique(values)
    return np.diff(levels[np.concatenate([[True], np.diff(levels) > 1e-7])]).min()


@pytest.mark.parametrize("kind", [NATIVE, NATIVE_LOADER])
@pytest.mark.parametrize("file", ["small", "int8", "last"])
def test_outputs_equal_those_of_this_machine(runners, native, files, kind, file):
    here = check_file(files[file], runner=native).output
    there = check_file(files[file], runner=runners[kind]).output
    assert there.shape == here.shape
    assert np.abs(there - here).max() <= (step(here) if file == "int8" else 1e-4)


def test_a_whole_list_is_visited(runners, files, tmp_path):
    listing = tmp_path / "list.tsv"
    listing.write_text("".join(f"{name}\t{path}\n" for name, path in files.items()))
    cpu = max(os.sched_getaffinity(0))
    options = Options(list=str(listing), rounds=2, warm_ms=1, min_ms=1, max_ms=5, cpus=(cpu,))
    runner = runners[NATIVE_LOADER]
    done = subprocess.run([*runner.command, *options.argv()], capture_output=True, text=True, timeout=120)
    messages = [parse_line(line) for line in done.stdout.splitlines()]
    start = next(message for message in messages if isinstance(message, Start))
    assert (start.versions["executorch"], start.cpus, start.threads) == (VERSION, (cpu,), 1)
    assert sum(isinstance(message, Visit) for message in messages) == 2 * len(files)


def test_what_a_kit_holds(kits):
    native, loader = kits[NATIVE], kits[NATIVE_LOADER]
    assert {f"lib{name}.so" for name in LIBRARIES} < {path.name for path in native.files}
    assert {"ld-linux-aarch64.so.1", "libc.so.6", "libstdc++.so.6"} < {path.name for path in loader.files}
    assert {arm.machine_of_file(path) for path in (*native.files, *loader.files)} == {"AArch64"}
    libraries = {kit.runner("/f").libraries for kit in kits.values()}
    assert len(libraries) == 2
    assert "" not in libraries
    assert native.runner("/there").command[0].startswith("/there/runner-")


def test_the_binary_is_made_once(kits, runner_cache):
    said = []
    binary, wheel, _ = build_for("aarch64", runner_cache, said.append)
    assert said == []
    assert binary == kits[NATIVE].files[0]
    assert wheel == fetch_wheel("aarch64", runner_cache, version=VERSION, report=said.append)


def test_no_cross_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    with pytest.raises(MissingDependency, match=f"install one: apt-get install g.*{other.replace('_', '-')}"):
        find_compiler_for(other)


def test_a_compiler_without_a_libc():
    with pytest.raises(MissingDependency, match="has no ld-linux-aarch64"):
        libc_files("aarch64", ["true"])


def test_the_command_that_installs_a_compiler():
    assert install_command(platform.machine()) == "apt-get install g++"
    assert install_command("riscv64") == "apt-get install g++-riscv64-linux-gnu"


def test_pip_without_a_network(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    said = []
    with pytest.raises(MissingDependency, match=r"it said: ERROR: .*put executorch-1\.5\.1-cp\d+-.*_aarch64\.whl into"):
        fetch_wheel("aarch64", tmp_path, report=said.append)
    assert "fetching executorch 1.5.1" in said[0]
    assert sorted(path.name for path in (tmp_path / "wheels").iterdir()) == ["wheels.lock"]


def write_wheel(cache, *, version=VERSION, libraries=LIBRARIES, machine="aarch64"):
    folder = cache / "wheels"
    folder.mkdir(exist_ok=True)
    path = folder / f"executorch-{VERSION}-cp311-cp311-manylinux_2_28_{machine}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"executorch-{version}.dist-info/METADATA", f"Name: executorch\nVersion: {version}\n")
        archive.writestr("executorch/include/executorch/x.h", "")
        archive.writestr("executorch/lib/../../../escaped.so", "x")
        archive.writestr("executorch/include/../../escaped.h", "x")
        archive.writestr("executorch/big.py", "x")
        for name in libraries:
            archive.writestr(f"executorch/lib/lib{name}.so", "library")
    return vouched_for(path)


def vouched_for(path):
    """The wheel, with its digest beside it: it is a build of one's own."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")
    return path


def test_a_wheel_that_lies_there_is_taken(tmp_path):
    path = write_wheel(tmp_path)
    wheel = fetch_wheel("aarch64", tmp_path, version=f"{VERSION}+cpu")
    assert (wheel.complete, wheel.version) == (True, VERSION)
    path.unlink()
    assert fetch_wheel("aarch64", tmp_path, version=VERSION) == wheel
    files = sorted(str(file.relative_to(wheel.root)) for file in wheel.root.rglob("*") if file.is_file())
    assert files == sorted(["include/executorch/x.h", *(f"lib/lib{name}.so" for name in LIBRARIES)])
    assert not list(tmp_path.rglob("escaped*"))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"version": "1.4.0"}, r"expected executorch 1\.5\.1 for aarch64.*, this is 1\.4\.0; remove it from"),
        ({"libraries": LIBRARIES[:2]}, "with C.. libraries, it has none; remove it from"),
        (None, "not a zip file; remove it from"),
    ],
)
def test_a_wrong_wheel(made, message, tmp_path):
    path = write_wheel(tmp_path, **made or {})
    if made is None:
        path.write_bytes(b"not a wheel")
        vouched_for(path)
    with pytest.raises(InvalidFile, match=message):
        fetch_wheel("aarch64", tmp_path, version=VERSION)
    assert not list((tmp_path / "wheels").glob("executorch-*-aarch64-*"))


@pytest.mark.long
def test_the_python_runner_needs_nothing_of_ours_there(files, native, tmp_path):
    """In a folder without the package, and with no way to find it."""
    kit = python_kit(sys.executable, tmp_path)
    copied = shutil.copytree(tmp_path, tmp_path / "there")
    runner = kit.runner(str(copied))
    assert runner.kind == PYTHON
    # Without -I the tests' own path would lead to the package; an editable install is looked for by name.
    command = (sys.executable, "-I", "-c", HIDE, *runner.command[2:])
    found = check_file(files["int8"], runner=Runner(PYTHON, command))
    assert np.array_equal(found.output, check_file(files["int8"], runner=native).output)
    assert python_kit(sys.executable, tmp_path).files == kit.files


HIDE = """
import runpy, sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
sys.path = [path for path in sys.path if "hwbench" not in path or "site-packages" in path]
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0])
import hwbench
assert hwbench.__file__.startswith(sys.argv[0]), hwbench.__file__
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_sources_are_the_same_archive_each_time(tmp_path):
    first = sources_kit(platform.machine(), tmp_path)
    assert first.kind == NATIVE_BOARD
    before = first.files[0].read_bytes()
    first.files[0].unlink()
    assert sources_kit(platform.machine(), tmp_path).files[0].read_bytes() == before
    assert first.runner("/f").libraries == digest(Wheel.installed().libraries)
