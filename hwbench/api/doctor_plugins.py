"""What ``hwbench doctor`` says of the entry points of installed packages. No code of theirs is loaded."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from hwbench.registry import Registry, package_of, suggest

# Group of entry points -> the module that holds its registry, with all names of hwbench's own, and the registry there.
GROUPS = {
    "hwbench.decoders": ("hwbench.data.decoders", "decoders"),
    "hwbench.evaluators": ("hwbench.studies.evaluators", "evaluators"),
    "hwbench.families": ("hwbench.spaces.families", "families"),
    "hwbench.graph_rules": ("hwbench.blocks.graph.rules", "rules"),
    "hwbench.kinds": ("hwbench.specs.kind", "block_kinds"),
    "hwbench.readers": ("hwbench.data.readers", "readers"),
    "hwbench.runtimes": ("hwbench.runtimes", "runtimes"),
    "hwbench.samplers": ("hwbench.studies.sampler", "samplers"),
    "hwbench.transports": ("hwbench.devices.device", "transports"),
}


@dataclass(frozen=True)
class InstalledPlugin:
    """An entry point in a group ``hwbench.*``. ``problem``: why nothing gets what it names; empty: nothing is known."""

    point: EntryPoint
    package: str
    problem: str
    advice: str


def installed_plugins() -> Iterator[InstalledPlugin]:
    """The entry points of installed packages by group, of each group the first on the path first."""
    points = entry_points()
    for group in sorted(name for name in points.groups if name.partition(".")[0].lower() == "hwbench"):
        registry, first = _registry(group), dict[str, str]()
        for point in points.select(group=group):
            package = package_of(point)
            yield InstalledPlugin(
                point, package, *_problem(point, package, registry, first.setdefault(point.name, package))
            )


def _problem(point: EntryPoint, package: str, registry: Registry[object] | None, first: str) -> tuple[str, str]:
    """Why nothing gets what an entry point names, and what to do; empty where nothing speaks against it."""
    remove = f"or remove it: python -m pip uninstall {package}"
    if point.group not in GROUPS:
        return f"hwbench has no group {point.group}", f"{suggest(point.group, GROUPS)}; rename it, {remove}"
    if registry is not None and registry.is_own(point.name):
        return f"hwbench's own {registry.kind} of that name is taken", f"give it another name, {remove}"
    if first != package:
        return f"that of the package {first} is taken", f"give it another name, {remove}"
    module = point.value.partition(":")[0].partition(".")[0].strip()
    if not module.isidentifier() or importlib.util.find_spec(module) is None:
        return f"there is no module {module!r}", f"mend it, {remove}"
    return "", ""


def _registry(group: str) -> Registry[object] | None:
    """The registry of a group; None where there is none, or what it needs is not installed."""
    if group not in GROUPS:
        return None
    module, name = GROUPS[group]
    try:
        registry: Registry[object] = getattr(importlib.import_module(module), name)
    except (ImportError, OSError):  # told by the findings about packages
        return None
    return registry
