"""What ``import hwbench`` offers: a request, a result and a function for each command, and what requests promise."""

import ast
import importlib
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import typer

import hwbench
from hwbench.api import API
from hwbench.api.requests import fields_of
from hwbench.cli.app import app
from hwbench.errors import InvalidValue, WorkspaceError
from hwbench.testing.permissions import obeying_permissions
from hwbench.workspace import Workspace

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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hwbench.TrainRequest(architecture="a", epoch=3), "TrainRequest: unknown field 'epoch'; did you mean"),
        (lambda: replace(made("TrainRequest"), epoch=3), "TrainRequest: unknown field 'epoch'; did you mean 'epochs'"),
        (lambda: hwbench.TrainRequest(), "TrainRequest: architecture must be given: TrainRequest(architecture=...)"),
        (lambda: hwbench.DiffRequest(), "before and after must be given: DiffRequest(before=..., after=...)"),
        (lambda: hwbench.TrainRequest("a"), "TrainRequest: expected fields by name (architecture=...), got 'a'"),
        (lambda: hwbench.DoctorRequest(True), "DoctorRequest: expected fields by name (clean=...), got True without"),
    ],
    ids=["unknown", "replaced", "missing", "two missing", "by position", "by position, with a default"],
)
def test_a_field_that_is_unknown_or_missing_is_named(make, message):
    with pytest.raises(InvalidValue, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    ("values", "name", "number"),
    [
        ({"epochs": np.int64(3)}, "epochs", 3),
        ({"epochs": np.uint8(3)}, "epochs", 3),
        ({"lr": np.float32(0.5)}, "lr", 0.5),
        ({"lr": np.float64(0.5)}, "lr", 0.5),
        ({"lr": np.int64(1)}, "lr", 1.0),
        ({"lr": Fraction(1, 2)}, "lr", 0.5),
    ],
)
def test_numbers_of_other_packages_become_those_of_python(values, name, number):
    taken = getattr(replace(made("TrainRequest"), **values), name)
    assert (taken, type(taken)) == (number, type(number))


@pytest.mark.parametrize("value", [True, np.True_, 3.0, np.float64(3), "3"])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(InvalidValue, match=r"--epochs: expected int, got "):
        hwbench.TrainRequest(architecture="a", epochs=value)


def test_making_requests_loads_nothing_heavy():
    makes = "; ".join(f"hwbench.{name}(**{GIVEN.get(name, {})!r})" for name in REQUESTS)
    code = f"from pathlib import *\nimport sys, hwbench\n{makes}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "hwbench.api.search_request" in loaded
    assert not loaded & {"torch", "numpy", "pandas", "optuna", "plotly", "av", "typer", "rich"}


FUNCTIONS = [name for name in API if inspect.isfunction(getattr(hwbench, name))]


def answers(name: str, *values: object, **named: object) -> str:
    """What a function of the API says to arguments of the wrong kind."""
    with pytest.raises(InvalidValue) as error:
        getattr(hwbench, name)(*values, **named)
    return str(error.value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_refuses_what_is_no_request_of_its_own(name):
    stem = "".join(part.capitalize() for part in name.split("_")) if name != "bench_engines" else "Bench"
    wanted = rf"{name}: expected an? {stem}Request, got"
    kind = getattr(hwbench, f"{stem}Request")
    assert re.fullmatch(rf"{wanted} a dict; make one: hwbench.{stem}Request\(...\)", answers(name, {}))
    assert re.match(rf"{wanted} the class {stem}Request; ", answers(name, request=kind))
    other = "DiffRequest" if name != "diff" else "TrainRequest"
    assert re.match(rf"{wanted} a {other}; ", answers(name, made(other)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_refuses_what_is_no_listener_and_no_workspace(name):
    request = made(inspect.signature(getattr(hwbench, name)).parameters["request"].annotation.split(" | ")[0])
    assert answers(name, request, print).startswith(f"{name}: listener: expected a Listener, got a builtin")
    assert "expected a Listener, got the class Listener" in answers(name, request, listener=hwbench.Listener)
    if name != "init":
        # what type checkers of users see; a path is taken, too
        declared = inspect.signature(getattr(hwbench, name)).parameters["workspace"].annotation
        assert declared == "Workspace | str | Path | None"
        assert (
            answers(name, request, workspace=3)
            == f"{name}: workspace: expected a Workspace, got an int; give one, or its path"
        )


def test_other_mistakes_of_a_call_are_those_of_python():
    with pytest.raises(TypeError, match=r"search\(\) missing 1 required positional argument: 'request'"):
        hwbench.search()
    with pytest.raises(TypeError, match="unexpected keyword argument 'lisener'"):
        hwbench.list_zoo(lisener=None)


def test_a_workspace_may_be_a_path(tmp_path, monkeypatch):
    workspace = Workspace.create(str(tmp_path / "bench"))
    asked = [hwbench.list_devices(None, workspace=place) for place in (workspace, workspace.root, str(workspace.root))]
    assert asked[0].to_json() == asked[1].to_json() == asked[2].to_json()
    monkeypatch.chdir(workspace.root)
    assert Workspace.find(".") == Workspace.find("search_spaces") == Workspace.find() == workspace
    with pytest.raises(WorkspaceError, match="no workspace at / or above"):
        hwbench.list_devices(workspace="/")
    with pytest.raises(
        WorkspaceError, match=r"no folder .*/nosuch; name one of a workspace, or make one: hwbench init"
    ):
        hwbench.list_devices(workspace="nosuch")


@pytest.mark.parametrize(
    ("folder", "name", "kind", "values"),
    [
        ("profiles", "list_devices", "ListDevicesRequest", {}),
        (".hwbench/studies", "report", "ReportRequest", {"study": "mine"}),
    ],
)
def test_what_the_operating_system_refuses_is_an_error_of_hwbench(folder, name, kind, values, tmp_path):
    workspace = Workspace.create(tmp_path / "bench")
    closed = workspace.root / folder
    closed.mkdir(parents=True, exist_ok=True)
    function, request = getattr(hwbench, name), getattr(hwbench, kind)(**values)
    closed.chmod(0)
    try:
        with obeying_permissions(), pytest.raises(WorkspaceError) as error:
            function(request, workspace=workspace)
    finally:
        closed.chmod(0o755)
    assert str(error.value).startswith(f"cannot use {closed}")
    assert str(error.value).endswith(": Permission denied; mend its rights, or those of a folder above it")
    assert isinstance(error.value.__cause__, PermissionError)


def test_a_current_folder_that_was_removed_is_told(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(WorkspaceError, match=r"^the current folder was removed; go to another one$"):
        hwbench.list_devices()


def test_a_function_can_be_sent_to_another_process():
    assert all(pickle.loads(pickle.dumps(getattr(hwbench, name))) is getattr(hwbench, name) for name in FUNCTIONS)
