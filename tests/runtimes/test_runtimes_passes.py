"""The passes inside the delegate: each does its part, and none changes what is computed."""

import contextlib
import functools

import pytest
import torch
from torch import nn
from torch.export import exported_program
from torch.fx.traceback import NodeSource

from hwbench.deploy import deploy_graph
from hwbench.deploy.parity import sqnr_db
from hwbench.models import frames_to_batch, workload_module
from hwbench.runtimes.executorch import ExecuTorch
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.executorch.scheme import Scheme
from hwbench.runtimes.runners import check_file
from hwbench.specs import Workload

with quiet():  # importing the engine warns
    from executorch.backends.xnnpack import xnnpack_preprocess
    from executorch.exir import to_edge

    from hwbench.runtimes.executorch.quantize import quantized
    from hwbench.runtimes.passes import inject
    from hwbench.runtimes.passes.needed import _STARTS, needed

OURS = ("free_reshapes", "implicit_moves", "shared_copies")
# Temporal taps over free reshapes, a shortcut that reads the input twice, and slices.
BLOCK = "x3d_i8_m16_o8_k1x3x3+3x1x1_relu@1x8x4x6x5"


def build(precision, out, key=BLOCK):
    workload = Workload.parse(f"{key}/{precision}/auto")
    torch.manual_seed(0)
    module, example = workload_module(workload)
    calibration = [torch.randn_like(example) for _ in range(2 * (precision == "int8"))]
    return module, ExecuTorch().build(module, example, workload, out, calibration)


@pytest.fixture
def counted(monkeypatch):
    """How often each of our passes changed something during the builds of a test."""
    found = dict.fromkeys(OURS, 0)

    def counting(function):
        def call(graph_module):
            changed = function(graph_module)
            found[function.__name__] += changed
            return changed

        call.__name__ = function.__name__
        return call

    for name in OURS:
        monkeypatch.setattr(inject, name, counting(getattr(inject, name)))
    return found


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.long), "fp16", "int8"])
def test_the_rules_of_all_composite_operations_give_the_same_bytes(tmp_path, monkeypatch, precision):
    registered = []
    override = exported_program._override_composite_implicit_decomp

    def counting(rules):
        registered.append(len(rules))
        return override(rules)

    monkeypatch.setattr(exported_program, "_override_composite_implicit_decomp", counting)
    _, fewer = build(precision, tmp_path / "fewer.pte")
    assert max(registered) < 10
    registered.clear()
    monkeypatch.setattr(inject, "rules_of_the_graph", contextlib.nullcontext)
    _, whole = build(precision, tmp_path / "whole.pte")
    assert min(registered) > 100
    assert fewer.path.read_bytes() == whole.path.read_bytes()


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.long), "int8"])
def test_the_engine_with_all_its_passes_gives_the_same_bytes(tmp_path, monkeypatch, precision):
    ran = []
    monkeypatch.setattr(inject, "needed", lambda made, graph: ran.append(needed(made, graph)) or True)
    _, whole = build(precision, tmp_path / "whole.pte")
    assert ran.count(False) >= len(_STARTS)
    monkeypatch.setattr(inject, "needed", needed)
    _, fewer = build(precision, tmp_path / "fewer.pte")
    assert fewer.sha256 == whole.sha256


def test_moves_that_keep_the_order_are_found_and_change_nothing(tmp_path, counted, native):
    module, artifact = build("fp32", tmp_path / "free.pte")
    assert counted["free_reshapes"] == 2  # to the planes of time, and back
    clip = torch.randn(Workload.parse(f"{BLOCK}/fp32/auto").input.folded)
    got = torch.from_numpy(check_file(artifact.path, clip.numpy(), runner=native).output)
    with torch.no_grad():
        expected = module(clip)
    assert torch.allclose(got.reshape(expected.shape), expected, atol=1e-5)


def test_int8_values_are_moved_as_they_are(tmp_path, counted):
    build("int8", tmp_path / "int8.pte")
    assert counted["free_reshapes"] == 2
    assert counted["shared_copies"] >= 1  # the block and its shortcut read the same input


class Stack(nn.Module):
    """Convolutions over time one behind the other, between which deploy forms only move values."""

    def __init__(self):
        super().__init__()
        self.space = nn.Conv3d(3, 8, (1, 3, 3), padding=(0, 1, 1))
        self.time = nn.Sequential(*(nn.Conv3d(8, 8, (3, 1, 1), padding=(1, 0, 0)) for _ in range(2)))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.time(self.space(x)).mean((2, 3, 4)))


# The last link of a chain of moves lies in fp32; a reshape in fp32 stands between values of unequal scales.
@pytest.mark.parametrize("block", ["conv3d_2", "mean_1"])
def test_moves_beside_a_block_in_fp32_give_a_file_that_loads(tmp_path, native, block):
    torch.manual_seed(0)
    model, clip = Stack().eval(), torch.randn(1, 3, 4, 8, 8)
    module, frames = deploy_graph(model, clip), frames_to_batch(clip).contiguous()
    runtime = ExecuTorch().quantising(functools.partial(quantized, scheme=Scheme("minmax", fp32_blocks=(block,))))
    artifact = runtime.build(module, frames, Workload.parse(f"{BLOCK}/int8/auto"), tmp_path / "model.pte", [frames])
    got = torch.from_numpy(check_file(artifact.path, frames.numpy(), runner=native).output)
    assert artifact.delegation.complete
    with torch.no_grad():
        assert 35 < sqnr_db(model(clip), got) < 70


def test_a_pass_with_something_to_do_is_needed():
    class Joins(nn.Module):
        def forward(self, x):
            return torch.cat([x, x])

    with quiet():
        program = to_edge(torch.export.export(Joins(), (torch.ones(1, 2, 3, 3),)))
    graph = program.exported_program().graph_module
    by_name = {made.__name__: made for made in _STARTS}
    assert needed(by_name["DecomposeConcatenate"], graph)
    assert not needed(by_name["InsertPadQDQPass"], graph)
    assert not needed(by_name["ConvertToLinearPass"], graph)
    assert needed(object, graph)  # what is not known is run


def test_the_engine_is_left_as_it_was():
    before = xnnpack_preprocess.XNNPACKPassManager
    with inject.delegate_passes():
        assert xnnpack_preprocess.XNNPACKPassManager is not before
    assert xnnpack_preprocess.XNNPACKPassManager is before
    assert "__deepcopy__" not in vars(NodeSource)
