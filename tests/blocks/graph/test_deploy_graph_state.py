"""Modules that keep something from one call to the next: refused by attribute where it makes a difference."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hwbench.blocks.kept import changed, kept_values
from hwbench.data import SYNTHETIC, default_clip
from hwbench.deploy import deploy_graph
from hwbench.deploy.external import external_model, foreign_original
from hwbench.errors import UnsupportedModule
from hwbench.models import by_hand, frames_to_batch
from hwbench.specs import ModelName, TensorSpec

pytestmark = pytest.mark.filterwarnings("ignore:The tensor attribute:UserWarning")


class Keeps(nn.Module):
    """A function of itself and a clip, with ``kept``."""

    def __init__(self, function: Callable[[Any, torch.Tensor], torch.Tensor], kept: object) -> None:
        super().__init__()
        self.function, self.kept = function, kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def with_the_last(module: Keeps, x: torch.Tensor) -> torch.Tensor:
    result = x if module.kept is None else x + module.kept
    module.kept = x
    return result


def with_the_first(module: Keeps, x: torch.Tensor) -> torch.Tensor:
    if module.kept is None:
        module.kept = x.mean((3, 4), keepdim=True)
    return x - module.kept


def with_the_first_in_a_list(module: Keeps, x: torch.Tensor) -> torch.Tensor:
    if not module.kept:
        module.kept.append(x.mean((3, 4), keepdim=True))
    return x - module.kept[0]


def with_the_first_in_place(module: Keeps, x: torch.Tensor) -> torch.Tensor:
    if not module.kept.any():
        module.kept.copy_(x.mean((3, 4), keepdim=True))
    return x - module.kept


def with_all_before(module: Keeps, x: torch.Tensor) -> torch.Tensor:
    module.kept.append(x.mean((3, 4), keepdim=True))
    return x - sum(module.kept)


def counted(module: Keeps, x: torch.Tensor) -> torch.Tensor:
    module.kept += 1
    return x * module.kept


CASES: dict[str, Callable[[], nn.Module]] = {
    "last": lambda: Keeps(with_the_last, None),
    "first": lambda: Keeps(with_the_first, None),
    "first in a list": lambda: Keeps(with_the_first_in_a_list, []),
    "first in place": lambda: Keeps(with_the_first_in_place, torch.zeros(1, 4, 5, 1, 1, dtype=torch.float64)),
    "list": lambda: Keeps(with_all_before, []),
    "queue": lambda: Keeps(with_all_before, deque(maxlen=2)),
    "count": lambda: Keeps(counted, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_forward_that_reads_an_attribute_it_changes_is_refused(name: str) -> None:
    model = nn.Sequential(nn.ReLU(), CASES[name]())
    said = r"^Sequential: its forward changes 1\.kept, on which its answers to later clips depend; compute that anew"
    with pytest.raises(UnsupportedModule, match=said):
        deploy_graph(model, torch.zeros(1, 4, 5, 9, 10))


def test_what_makes_no_difference_may_be_kept() -> None:
    def ramp(module: Keeps, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] not in module.kept:
            module.kept[x.shape[-1]] = torch.arange(x.shape[-1]).to(x)
        return x + module.kept[x.shape[-1]]

    def looked_at(module: Keeps, x: torch.Tensor) -> torch.Tensor:
        module.kept = x.relu()
        return module.kept * 2

    for function, kept in ((ramp, {}), (looked_at, None)):
        clip = torch.randn(1, 4, 5, 9, 10)
        deployed = deploy_graph(Keeps(function, kept), clip)
        torch.testing.assert_close(deployed(frames_to_batch(clip)), Keeps(function, kept)(clip))


def test_noise_of_a_generator_is_refused_with_what_to_write() -> None:
    def noisy(module: Keeps, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(10, generator=torch.Generator().manual_seed(0), dtype=x.dtype)

    said = r"randn.generator in 1 \(Keeps\) on .*: it reads a Generator, .* once in __init__ and keep with register_buf"
    with pytest.raises(UnsupportedModule, match=said):
        deploy_graph(nn.Sequential(nn.ReLU(), Keeps(noisy, None)), torch.zeros(1, 4, 5, 9, 10))


def test_a_model_without_values_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv3d(4, 5, 1), nn.BatchNorm3d(5))
    said = r"^Sequential: 0\.weight lies on the meta device and has no values; make the model on the CPU or give it"
    with pytest.raises(UnsupportedModule, match=said):
        deploy_graph(model, torch.zeros(1, 4, 5, 9, 10))
    model.load_state_dict(nn.Sequential(nn.Conv3d(4, 5, 1), nn.BatchNorm3d(5)).state_dict(), assign=True)
    deploy_graph(model, torch.zeros(1, 4, 5, 9, 10))


def test_attributes_that_a_call_changes() -> None:
    model = nn.Sequential(CASES["last"](), CASES["count"](), CASES["list"](), nn.BatchNorm3d(4))
    model[3].scale = 2.0
    model.double().eval()
    before = kept_values(model)
    with torch.inference_mode():
        model(torch.zeros(1, 4, 5, 9, 10, dtype=torch.float64))
    assert changed(before, kept_values(model)) == ["0.kept", "1.kept", "2.kept"]
    model[3].scale = 3.0
    model[3].made = "now"
    assert changed(before, kept_values(model))[3:] == ["3.scale", "3.made"]


# Models by hand that keep something of the first clip, and one that keeps what follows from shapes.
FIRST_CLIPS = """
import torch
from torch import nn
FIRST, ALL, RAMPS = None, [], {}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.first, self.all = nn.Conv3d(3, 4, 1), None, []
        self.register_buffer("shift", torch.zeros(1, 4))
        self.register_buffer("is_set", torch.tensor(False))
    def forward(self, x):
        y = self.conv(x).mean((2, 3, 4))
        return y - 0.5 * self.kept(y)
class Attribute(Net):
    def kept(self, y):
        if self.first is None:
            self.first = y
        return self.first
class Listed(Net):
    def kept(self, y):
        if not self.all:
            self.all.append(y)
        return self.all[0]
class Buffer(Net):
    def kept(self, y):
        if not self.is_set:
            self.shift.copy_(y)
            self.is_set.fill_(True)
        return self.shift
class Variable(Net):
    def kept(self, y):
        global FIRST
        if FIRST is None:
            FIRST = y
        return FIRST
class Variables(Net):
    def kept(self, y):
        if not ALL:
            ALL.append(y)
        return ALL[0]
class OfClass(Net):
    memo = []
    def kept(self, y):
        if not self.memo:
            self.memo.append(y)
        return self.memo[0]
class OfBaseClass(OfClass):
    pass
class Ramp(Net):
    sizes = {}
    def kept(self, y):
        self.all.append(len(self.all))
        return RAMPS.setdefault(y.shape, torch.arange(4.0)) + self.sizes.setdefault(y.shape, torch.ones(4))
def lazily(made):
    def make():
        net = made()
        net.conv = nn.LazyConv3d(4, 1)
        return net
    return make
LazyAttribute, LazyListed, LazyBuffer = lazily(Attribute), lazily(Listed), lazily(Buffer)
LazyVariable, LazyVariables, LazyOfClass, LazyRamp = map(lazily, (Variable, Variables, OfClass, Ramp))
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "first_clips.py").write_text(FIRST_CLIPS)
    monkeypatch.chdir(tmp_path)
    for names in ("_loaded", "_makers"):
        monkeypatch.setattr(by_hand, names, {})
    yield "first_clips"
    sys.modules.pop("first_clips", None)


KEPT = {
    "Attribute": "first",
    "Listed": "all",
    "Buffer": "shift, is_set",
    "Variable": "first_clips.FIRST",
    "Variables": "first_clips.ALL",
    "OfClass": "first_clips.OfClass.memo",
    "OfBaseClass": "first_clips.OfClass.memo",
}
KEPT |= {f"Lazy{name}": kept for name, kept in KEPT.items() if name != "OfBaseClass"}


def exported(name: str) -> nn.Module:
    """The module of a model by hand as something to export."""
    return foreign_original(external_model(name), default_clip(SYNTHETIC, 4), SPEC, None, None).module


SPEC = TensorSpec(1, 3, 4, 8, 8)
READERS: tuple[Callable[[str], object], ...] = (lambda name: by_hand.load(ModelName.parse(name)), exported)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", KEPT)
def test_a_model_by_hand_that_keeps_something_of_its_first_clip_is_refused(
    nets: str, name: str, read: Callable[[str], object]
) -> None:
    with pytest.raises(UnsupportedModule, match=rf"first_clips:{name}@\S+: its forward changes {KEPT[name]}, on which"):
        read(f"{nets}:{name}@{SPEC.key}")


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", ["Ramp", "LazyRamp"])
def test_a_model_by_hand_may_keep_what_follows_from_shapes(nets: str, name: str, read: Callable[[str], object]) -> None:
    assert read(f"{nets}:{name}@{SPEC.key}") is not None
