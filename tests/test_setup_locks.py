"""What ``make setup LOCKED=1`` installs: the versions in constraints.txt, each file by its SHA-256."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hwbench.runtimes.native.wheels import published_digests

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("build.lock", "requirements.lock")
# A pin, perhaps of some platforms only, and the digests of its files.
PIN = r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;]+)(?: ; [^\\\n]+)?"
ENTRY = re.compile(PIN + r"(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)")


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(name):
    """Version and digests by package; every line of the file belongs to one."""
    text = (ROOT / ".ci" / "locks" / name).read_text()
    assert ENTRY.sub("", text).strip() == ""
    return {
        plain(m["name"]): (m["version"], set(re.findall("[0-9a-f]{64}", m["hashes"]))) for m in ENTRY.finditer(text)
    }


def constraints():
    lines = (ROOT / "constraints.txt").read_text().split()
    return {plain(name): version for name, _, version in (line.partition("==") for line in lines)}


@pytest.mark.parametrize("name", LOCKS)
def test_19_04_a_lock_has_digests_and_the_versions_that_are_tested(name):
    pins = constraints()
    for package, (version, digests) in entries(name).items():
        assert digests
        assert pins.get(package, version) == version, package


def test_19_04_the_locks_hold_all_that_is_pinned():
    assert set(constraints()) <= {package for name in LOCKS for package in entries(name)}


def test_19_04_the_build_backend_is_pinned_as_the_lock_has_it():
    (backend,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    name, _, version = backend.partition("==")
    assert entries("build.lock")[name][0] == version == constraints()[name]


def test_19_04_wheels_for_other_devices_are_those_of_the_lock():
    version, digests = entries("requirements.lock")["executorch"]
    published = {digest for name, digest in published_digests().items() if name.startswith(f"executorch-{version}-")}
    assert published
    assert published <= digests


def test_19_04_every_part_of_the_project_is_locked():
    values = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *values["dependencies"],
        *values["optional-dependencies"]["dev"],
        *values["optional-dependencies"]["onnx"],
    ]
    names = {plain(re.match(r"[A-Za-z0-9._-]+", line)[0]) for line in wanted} - {"hwbench"}
    assert names <= set(entries("requirements.lock"))


def bounds():
    """Declared versions by package, those of extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    return {plain(one.name): one.specifier for one in map(Requirement, lines)}


def test_locked_versions_are_those_that_are_declared():
    declared = bounds()
    locked = {package: version for name in LOCKS for package, (version, _) in entries(name).items()}
    assert [(name, v) for name, v in locked.items() if name in declared and not declared[name].contains(v)] == []


def test_a_typer_with_backslashes_in_its_help_is_not_taken():
    assert not bounds()["typer"].contains("0.23.9")
    assert bounds()["typer"].contains("0.24.0")
