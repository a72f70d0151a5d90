"""Registries: names of hwbench's own, names of other packages, and packages that do not load."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_packages import MODULE, offer

import hwbench
from hwbench.data.readers import readers
from hwbench.devices import transports
from hwbench.errors import MissingDependency, UnknownName
from hwbench.registry import Registry, package_of
from hwbench.spaces.families import MEMBERS, families
from hwbench.workspace import Workspace

GROUP = "hwbench.tested"
# Every registry with names of its own that is open to other packages: how it is asked, and such a name.
OWN = {
    "hwbench.decoders": ("from hwbench.data.decoders import decoders; get = decoders.get", "torchcodec"),
    "hwbench.evaluators": ("from hwbench.studies.evaluators import get", "zero-cost"),
    "hwbench.families": ("from hwbench.spaces.families import families; get = families.get", "x3d"),
    "hwbench.graph_rules": ("from hwbench.blocks.graph.rules import rules; get = rules.get", "aten.conv3d.default"),
    "hwbench.kinds": ("from hwbench.specs.kind import block_kinds; get = block_kinds.get", "x3d"),
    "hwbench.readers": ("from hwbench.data.readers import get", "lists"),
    "hwbench.runtimes": ("from hwbench.runtimes import get", "onnx"),
    "hwbench.samplers": ("from hwbench.studies.sampler import samplers; get = samplers.get", "tpe"),
    "hwbench.transports": ("from hwbench.devices.device import transports; get = transports.get", "ssh"),
}


def install(folder: Path, group: str, points: dict[str, str]) -> None:
    """A package ``thief`` with these entry points, as pip leaves one."""
    about = folder / "thief-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: thief\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {where}" for name, where in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / "thief.py").write_text("class Thief:\n    pass\n")


@pytest.fixture
def registry(tmp_path, monkeypatch) -> Registry[object]:
    """One with a name of its own, ``own``, and a package that offers a good, a broken and a stolen name."""
    points = {"good": "thief:Thief", "broken": "no_such_module_of_thief:Thief", "own": "thief:Thief"}
    install(tmp_path, GROUP, points)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "thief", raising=False)
    made: Registry[object] = Registry("thing", entry_points=GROUP)
    made.register("own")("ours")
    return made


def test_a_broken_package_is_told_by_name_when_it_is_asked_for(registry):
    with pytest.raises(MissingDependency, match=r"thing 'broken' of the package thief .*no_such_module_of_thief"):
        registry.get("broken")
    with pytest.raises(MissingDependency, match="python -m pip uninstall thief"):
        registry.find("broken")


def test_a_broken_package_leaves_every_other_name_alone(registry):
    assert registry.names() == ("broken", "good", "own")
    assert [name for name in (*registry.names(), "nosuch") if registry.is_own(name)] == ["own"]
    assert registry.get("good").__name__ == "Thief"
    assert registry.get("own") == "ours"
    with pytest.raises(UnknownName, match="unknown thing 'nosuch'; known: broken, good, own"):
        registry.get("nosuch")


def test_a_package_is_loaded_when_its_name_is_asked_for(registry):
    assert ("good" in registry, "nosuch" in registry) == (True, False)
    assert registry.names()
    assert "thief" not in sys.modules
    registry.get("good")
    assert "thief" in sys.modules


@pytest.mark.parametrize(("group", "asked"), OWN.items(), ids=list(OWN))
def test_a_name_of_our_own_cannot_be_taken(group, asked, tmp_path):
    """Also where our own thing is loaded after the other package has been looked at."""
    how, name = asked
    install(tmp_path, group, {name: "thief:Thief"})
    code = (
        f"import sys; sys.path.append({str(tmp_path)!r}); {how}\n"
        "from hwbench.errors import UnknownName\n"
        "try:\n    get('nosuch')\nexcept UnknownName:\n    pass\n"
        f"assert getattr(get({name!r}), '__name__', '') != 'Thief' and type(get({name!r})).__name__ != 'Thief'"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", MEMBERS)
def test_the_name_of_a_member_of_a_family_cannot_be_taken(name, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, families, RENAMED, {name: "plain", "plain": "plain"})
    assert (families.is_own(name), families.point(name), name in families) == (True, None, False)
    assert set(families.names()) & {name, "plain"} == {"plain"}
    with pytest.raises(UnknownName):
        families.get(name)


def test_what_does_not_load_is_left_out_and_our_own_comes_first(registry):
    registry.register("zoo")("ours as well")
    assert list(registry.loading()) == ["own", "zoo", "good"]
    assert list(registry.loading()) == ["own", "zoo", "good"]
    with pytest.raises(MissingDependency):
        registry.get("broken")


def test_a_thing_is_told_from_one_of_another_package_before_and_after_loading(registry):
    for _ in range(2):
        assert registry.point("own") is None
        assert registry.point("nosuch") is None
        assert package_of(registry.point("good")) == "thief"
        registry.get("good")


CODE = """
class NoUnit:
    name = "no-unit"

    def score(self, network):
        return 0.0


class Nothing:
    pass


class Scores(NoUnit):
    unit = "points"


def function(argument):
    return None


text = "text"
scores = Scores()
"""
# Registry, the thing that is offered, and what is said of it.
WRONG = [
    ("hwbench.devices.base:transports", "function", "expected a TransportKind, got a function"),
    ("hwbench.spaces.family:families", "Nothing", "expected a Family, got the class Nothing"),
    ("hwbench.specs.kind:block_kinds", "Nothing", "expected a BlockKind, got the class Nothing"),
    ("hwbench.runtimes.base:runtimes", "Nothing", "got the class Nothing without name, capabilities and build"),
    ("hwbench.studies.evaluators:evaluators", "NoUnit", "got the class NoUnit without unit"),
    ("hwbench.studies.evaluators:evaluators", "scores", "expected a class with name, unit and score, got a Scores"),
    ("hwbench.data.readers:readers", "function", "expected a class with read, got a function"),
    ("hwbench.data.decoders:decoders", "function", "expected a class with open, got a function"),
    ("hwbench.studies.sampler:samplers", "text", "expected a function, got a str"),
    ("hwbench.blocks.graph.rules:rules", "text", "expected a function, got a str"),
]


@pytest.mark.parametrize(("place", "thing", "said"), WRONG)
def test_an_entry_point_of_the_wrong_kind_is_told_by_name(place, thing, said, tmp_path, monkeypatch):
    module, _, name = place.partition(":")
    asked = getattr(importlib.import_module(module), name)
    offer(monkeypatch, tmp_path, asked, CODE, {"wrong": thing})
    with pytest.raises(MissingDependency) as caught:
        asked.get("wrong")
    told = f"{asked.kind} 'wrong' of the package plugins ({MODULE}:{thing}): "
    assert str(caught.value).startswith(told)
    assert said in str(caught.value)
    assert str(caught.value).endswith("mend it, or remove it: python -m pip uninstall plugins")


RENAMED = """
from hwbench.runtimes import Capabilities, FileFormat, Runtime
from hwbench.spaces.families import X3d
from hwbench.specs.kinds.conv import ConvKind


class Exported(Runtime):
    name = "exported"
    capabilities = Capabilities(("torch",), FileFormat(".pt2"), "m:M")


class Fused(ConvKind):
    name = "fused"


class Plain(X3d):
    name = "plain"


class Unnamed(ConvKind):
    name = None


fused, plain, unnamed = Fused(), Plain(), Unnamed()
"""


@pytest.mark.parametrize(
    ("place", "thing", "own"),
    [
        ("hwbench.runtimes.base:runtimes", "Exported", "exported"),
        ("hwbench.spaces.families:families", "plain", "plain"),
        ("hwbench.specs.kind:block_kinds", "fused", "fused"),
        ("hwbench.specs.kind:block_kinds", "unnamed", None),
    ],
)
def test_an_entry_point_is_called_as_the_thing_that_it_offers(place, thing, own, tmp_path, monkeypatch):
    module, _, name = place.partition(":")
    asked = getattr(importlib.import_module(module), name)
    offer(monkeypatch, tmp_path, asked, RENAMED, {"other": thing, **({own: thing} if own else {})})
    with pytest.raises(MissingDependency) as caught:
        asked.get("other")
    said = f"expected the name of the entry point, 'other', as its name, got {own!r}; mend it, or remove it: "
    assert str(caught.value).startswith(f"{asked.kind} 'other' of the package plugins ({MODULE}:{thing}): {said}")
    assert own is None or asked.get(own).name == own


def test_a_device_over_a_transport_of_the_wrong_kind_leaves_the_others_listed(tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, transports, CODE, {"wrong": "function"})
    workspace = Workspace.create(tmp_path / "bench")
    profile = workspace.root / "profiles" / "odd" / "device.toml"
    profile.parent.mkdir()
    profile.write_text('schema = 1\nname = "odd"\ntransport = "wrong"\n')
    listed = {one.name: one.description for one in hwbench.list_devices(workspace=workspace).devices}
    assert "expected a TransportKind, got a function" in listed["odd"]
    assert {"local", "s9"} <= set(listed)


def test_readers_of_a_package_that_does_not_load_leave_the_others_listed(tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, readers, "from hwbench.data.readers import Gone\n", {"broken": "Reader"})
    listed = {one.name: one for one in hwbench.list_data(workspace=Workspace.create(tmp_path / "bench")).data}
    assert "'broken' of the package plugins does not load" in listed["broken:PATH"].description
    assert "cannot import name 'Gone'" in listed["broken:PATH"].description
    assert {"kinetics:PATH", "synthetic"} <= set(listed)
