"""Packages of others as pip leaves them: a module and its entry points, seen by a registry of hwbench."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hwbench.registry import Registry

MODULE = "plugin_of_a_test"


def offer(
    monkeypatch: pytest.MonkeyPatch, folder: Path, registry: Registry[Any], code: str, points: Mapping[str, str]
) -> None:
    """A package ``plugins`` with one module of that code offers things to a registry, until the end of the test.

    Args:
        monkeypatch: Takes it away again.
        folder: Gets the package.
        registry: Who looks for it.
        code: Of the module.
        points: Names, with what of the module each one is.
    """
    site = folder / "site"
    about = site / "plugins-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1\n")
    lines = [f"[{registry.entry_points}]", *(f"{name} = {MODULE}:{thing}" for name, thing in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (site / f"{MODULE}.py").write_text(code)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    of_now = dict(vars(registry))
    of_now.pop("_points", None)
    fresh = {"_items": dict(registry._items), "_offered": {}, "_broken": set()}
    monkeypatch.setattr(registry, "__dict__", of_now | fresh)
