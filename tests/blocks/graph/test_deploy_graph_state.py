"""Modules that keep something from one call to the next: refused by attribute where it makes a difference."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hwbench.blocks.kept import changed, kept_values
from hwbench.deploy import deploy_graph
from hwbench.errors import UnsupportedModule
from hwbench.models import frames_to_batch

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


def with_all_before(module: Keeps, x: torch.Tensor) -> torch.Tensor:
    module.kept.append(x.mean((3, 4), keepdim=True))
    return x - sum(module.kept)


def counted(module: Keeps, x: torch.Tensor) -> torch.Tensor:
    module.kept += 1
    return x * module.kept


CASES: dict[str, Callable[[], nn.Module]] = {
    "last": lambda: Keeps(with_the_last, None),
    "list": lambda: Keeps(with_all_before, []),
    "queue": lambda: Keeps(with_all_before, deque(maxlen=2)),
    "count": lambda: Keeps(counted, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_forward_that_reads_an_attribute_it_changes_is_refused(name: str) -> None:
    model = nn.Sequential(nn.ReLU(), CASES[name]())
    with pytest.raises(UnsupportedModule, match=r"Sequential: its forward changes 1\.kept, so that two calls differ"):
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
