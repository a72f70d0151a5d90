"""Digests of the sources of other packages: of their kinds of blocks, their graph rules and their runtimes.

The name of a module is enough to find its package, which is read and not imported. A process reads a package once.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from hwbench.specs.kind import block_kinds
from hwbench.specs.kinds.by_hand import HandKind
from hwbench.specs.workload import Workload

_GRAPH_RULES = "hwbench.graph_rules"


def workload_digest(workload: Workload, *, rewritten: bool) -> str:
    """Digest of the packages that make the graph of a workload, beside hwbench; empty where hwbench alone makes it.

    Graph rules of packages count for blocks of packages and of users. Rules of hwbench's own cover all blocks of
    hwbench's own, and no package can replace them.

    Args:
        workload: What is built.
        rewritten: Whether graph rules are applied: the deploy form is built.
    """
    parts, kinds = set[str](), {block.kind: block.descriptor for block in workload.blocks}
    for name, kind in kinds.items():
        parts |= _parts((type(kind).__module__, kind.module.partition(":")[0]), block_kinds.point(name))
    if rewritten and (parts or any(isinstance(kind, HandKind) for kind in kinds.values())):
        parts |= _graph_rules()
    return _joined(parts)


def package_digest(module: str, point: EntryPoint | None) -> str:
    """Digest of the package of a module and of what an entry point names; empty for a module of hwbench."""
    return _joined(_parts((module,), point))


def _joined(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest() if parts else ""


def _parts(modules: Iterable[str], point: EntryPoint | None) -> set[str]:
    """A line for each module that is not hwbench's; where there is one, also for the entry point that offers it."""
    parts = {_of_module(module) for module in modules if module.partition(".")[0] not in ("", "hwbench")}
    return parts | {_of_point(point)} if parts and point is not None else parts


@functools.cache
def _graph_rules() -> frozenset[str]:
    return frozenset(_of_point(point) for point in entry_points(group=_GRAPH_RULES))


@functools.cache
def _of_point(point: EntryPoint) -> str:
    """The entry point, with all that its distribution installs as far as setuptools noted it (``top_level.txt``)."""
    installed = (point.dist.read_text("top_level.txt") if point.dist is not None else None) or ""
    return " ".join([f"{point.name}={point.value}", *map(_of_module, sorted({point.module, *installed.split()}))])


@functools.cache
def _of_module(module: str) -> str:
    """The module, with the digest of all Python files of its package."""
    digest = hashlib.sha256()
    for name, path in sorted(_files(module).items()):
        digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return f"{module}:{digest.hexdigest()}"


def _files(module: str) -> dict[str, Path]:
    """The files of the outermost package of a module, by their names in it; of a module without one its own file.

    A folder without ``__init__.py`` may hold packages of several distributions: what counts is the package inside, or
    the folder of the module.
    """
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        spec = _spec(".".join(names[:depth]))
        if spec is not None and spec.origin is not None:
            file = Path(spec.origin)
            alone = depth == 1 and spec.submodule_search_locations is None
            paths = [file] if alone else file.parent.rglob("*.py")
            return {path.relative_to(file.parent).as_posix(): path for path in paths if path.is_file()}
    return {}


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):  # not there, or made without a file
        return None
