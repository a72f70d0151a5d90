"""What one script of ``experiments/`` uses of another."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def neighbour(folder: Path) -> ModuleType:
    """The ``run.py`` of an experiment, imported by the name of its folder.

    Args:
        folder: Of the experiment, such as ``experiments/018-ground-truth``.

    Raises:
        FileNotFoundError: It has none.
    """
    spec = importlib.util.spec_from_file_location(folder.name.replace("-", "_"), folder / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
