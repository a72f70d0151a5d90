"""What ``import hwbench`` offers: a request, a result and a function for each command, and what requests promise."""

import ast
import importlib
import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import typer

import hwbench
from hwbench.api import API
from hwbench.api.requests import fields_of
from hwbench.cli.app import app

importlib.import_module("hwbench.cli.commands")
ROOT = Path(hwbench.__file__).parents[1]

# What must be given, and what alone is no request. Every other request is made of its defaults.
GIVEN = {
    "AddDeviceRequest": {"name": "pi", "ssh": "pi@box"},
    "BenchRequest": {"model": "zoo:x3d-xs"},
    "BenchDataRequest": {"data": "synthetic"},
    "CheckDataRequest": {"data": "synthetic"},
    "CheckDeviceRequest": {"name": "local"},
    "DashboardRequest": {"study": "mine"},
    "DiffRequest": {"before": "a", "after": "b"},
    "ExportRequest": {"model": "zoo:x3d-xs", "out": Path("out")},
    "GetWeightsRequest": {"name": "x3d-xs"},
    "InitRequest": {"directory": Path("bench")},
    "PrepareDeviceRequest": {"name": "pi"},
    "PrepareDataRequest": {"data": "clips", "out": Path("prepared")},
    "RemoveDeviceRequest": {"name": "pi"},
    "ReportRequest": {"study": "mine"},
    "ScoreboardRequest": {"source": "mine"},
    "SearchRequest": {"budget": "12 ms"},
    "ShowDataRequest": {"data": "synthetic"},
    "ShowDeviceRequest": {"name": "local"},
    "TestRequest": {"checkpoint": Path("checkpoint.pt")},
    "TrainRequest": {"architecture": "zoo:x3d-xs"},
    "TrustDeviceRequest": {"name": "pi"},
    "VerifyRequest": {"model": Path("model")},
}


def command_names() -> Iterator[tuple[str, ...]]:
    """The words of every command and of every group: ``("search",)``, ``("devices",)``, ``("devices", "add")``."""
    for name, command in typer.main.get_command(app).commands.items():
        yield (name,)
        yield from ((name, other) for other in getattr(command, "commands", ()))


def function_name(words: tuple[str, ...]) -> str:
    """``search``; ``diff`` of ``profile diff``; ``add_device`` of ``devices add``, ``list_devices`` of ``devices``."""
    group, *_, last = (*words, words[-1])
    if group == "data":
        return "list_data" if last == "data" else f"{last}_data"
    if group == "zoo":
        return "get_weights" if last == "get" else "list_zoo"
    if group != "devices":
        return last
    return "list_devices" if last in ("devices", "list") else f"{last}_device"


REQUESTS = [name for name in API if name.endswith("Request")]


def made(name: str):
    return getattr(hwbench, name)(**GIVEN.get(name, {}))


@pytest.mark.parametrize("words", list(command_names()), ids=" ".join)
def test_every_command_is_a_function_with_a_request_and_a_result(words):
    name = function_name(words)
    stem = "".join(part.capitalize() for part in name.split("_"))
    assert {name, f"{stem}Request", f"{stem}Result"} <= set(hwbench.__all__)
    function, request = getattr(hwbench, name), getattr(hwbench, f"{stem}Request")
    first, listener, *_ = inspect.signature(function).parameters.values()
    assert f"{stem}Request" in first.annotation.split(" | ")
    assert (listener.name, listener.annotation) == ("listener", "Listener")
    assert f"{stem}Result" in inspect.signature(function).return_annotation.split(" | ")
    assert callable(getattr(hwbench, f"{stem}Result").to_json)
    assert request.__doc__
    assert {one.name for one in fields_of(request)} == set(inspect.signature(request).parameters)


def test_what_is_offered_is_what_type_checkers_see():
    tree = ast.parse(Path(hwbench.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == API
    assert set(hwbench.__all__) == {*API, "HwbenchError", "__version__"}
    assert set(hwbench.__all__) <= set(dir(hwbench))
    with pytest.raises(AttributeError, match="no attribute 'serach'"):
        hwbench.serach  # noqa: B018


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_a_value(name):
    request = made(name)
    assert request == made(name) == pickle.loads(pickle.dumps(request))
    assert hash(request) == hash(made(name))
    with pytest.raises(FrozenInstanceError):
        request.other = None


def test_making_requests_loads_nothing_heavy():
    makes = "; ".join(f"hwbench.{name}(**{GIVEN.get(name, {})!r})" for name in REQUESTS)
    code = f"from pathlib import *\nimport sys, hwbench\n{makes}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "hwbench.api.search_request" in loaded
    assert not loaded & {"torch", "numpy", "pandas", "optuna", "plotly", "av", "typer", "rich"}
