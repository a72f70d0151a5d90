"""What goes into a wheel and a source archive: the files that git tracks, and nothing else that lies about.

A checkout that was used holds tables of its machine, spaces that somebody tries out, and scratch files. A source
archive holds tracked files alone, so all of its files count where there is no git.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Data that the package finds below hwbench/shipped once it is installed.
SHIPPED = ("search_spaces", "profiles", "zoo")
# Top-level names of a source archive.
SOURCES = ("hwbench", *SHIPPED, "tests", "experiments", "docs", ".ci")
SOURCE_FILES = ("constraints.txt", "Makefile", "CHANGELOG.md")


class TrackedFiles(BuildHookInterface[Any]):
    """Names every file of a wheel or source archive; an editable install needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        self.build_config.set_exclude_all()  # whatever hatchling would choose
        wanted = wheel_files if self.target_name == "wheel" else sdist_files
        build_data["force_include"] |= {str(root / name): place for name, place in wanted(files_of(root))}


def wheel_files(names: list[str]) -> Iterator[tuple[str, str]]:
    """(file, place in the wheel) of the package and of the data that it ships."""
    for name in names:
        top = name.partition("/")[0]
        if top == "hwbench" or top in SHIPPED:
            yield name, name if top == "hwbench" else f"hwbench/shipped/{name}"


def sdist_files(names: list[str]) -> Iterator[tuple[str, str]]:
    """(file, place in the archive) of everything that builds and tests the package."""
    return ((name, name) for name in names if name.partition("/")[0] in SOURCES or name in SOURCE_FILES)


def files_of(root: Path) -> list[str]:
    """Files of the tree, relative to its top: those that git tracks where it is a checkout, else all."""
    if not (root / ".git").exists():
        found = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return sorted(path.relative_to(root).as_posix() for path in found)
    try:
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"").decode(errors="replace").strip() or str(error)
        raise RuntimeError(
            f"{root} is a git checkout, of which only tracked files are packaged, and git does not list them: {said}. "
            "Install git, or build from a source archive"
        ) from error
    return sorted(name for name in listed.decode().split("\0") if name and (root / name).is_file())
