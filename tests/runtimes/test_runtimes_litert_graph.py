"""XNNPACK takes all of a ``.tflite`` at every precision, and what is rewritten for that changes no value."""

import collections

import numpy as np
import pytest
import torch
from torch import nn

from hwbench.errors import MissingDependency
from hwbench.models import workload_module
from hwbench.runtimes import get, litert
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.litert_graph import _name, _read, delegable, simplified
from hwbench.runtimes.litert_model import LiteRtModel
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import load_model
from hwbench.specs import Workload

BLOCKS = {
    "shift-add, relu": "x3d_i4_m8_o4_k3x3x3_relu@1x4x4x6x5",
    "temporal": "x3d_i4_m8_o4_k1x3x3+3x1x1_relu@1x4x4x6x5",
    "hard swish": "x3d_i4_m8_o4_k3x3x3_se8_hswish@1x4x3x6x5",
    "gelu": "x3d_i4_m8_o4_k3x3x3_gelu@1x4x3x6x5",
    "maximum": "resnet-stem_i3_o8_k5x7x7_s2_p2_relu@1x3x3x16x14",
}


@pytest.fixture(autouse=True, scope="module")
def engine():
    try:
        get("litert").version()
    except MissingDependency as error:
        pytest.skip(str(error))


def module_of(key):
    torch.manual_seed(0)
    module, example = workload_module(Workload.parse(key))
    return module.eval(), torch.randn_like(example, memory_format=torch.contiguous_format)


def as_converted(module, example):
    with quiet(), litert.silent():
        return litert.converted(module, example)


def operators(content):
    model = _read(content)
    return collections.Counter(_name(model, one) for one in model.subgraphs[0].operators)


def answer(content, example, path):
    path.write_bytes(content)
    model = load_model(str(path), Options(threads=1))
    model.feed(example.numpy())
    model.run()
    return model.output().copy()


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", BLOCKS)
def test_xnnpack_takes_all_of_a_file(name, precision, tmp_path):
    workload = Workload.parse(f"{BLOCKS[name]}/{precision}/auto")
    module, example = module_of(workload.key)
    made = get("litert").build(module, example, workload, tmp_path / "x.tflite", [example])
    assert LiteRtModel(str(made.path), Options(threads=1))._model.is_fully_accelerated()


@pytest.mark.parametrize("name", ["temporal", "maximum"])
def test_a_simpler_graph_computes_the_same(name, tmp_path):
    module, example = module_of(f"{BLOCKS[name]}/fp32/auto")
    before = as_converted(module, example)
    after = simplified(before)
    assert operators(after)["TRANSPOSE"] == 2 <= operators(before)["TRANSPOSE"]  # of what goes in and comes out
    assert "PADV2" not in operators(after)
    pair = [answer(content, example, tmp_path / "x.tflite") for content in (before, after)]
    np.testing.assert_array_equal(*pair)


def test_a_relu_that_is_a_conversion_gives_the_same_values(tmp_path):
    module, example = module_of(f"{BLOCKS['shift-add, relu']}/int8/auto")
    with quiet(), litert.silent():
        before = litert.quantized(simplified(litert.converted(module, example)), [example])
    after = delegable(before)
    assert (operators(before)["RELU"], operators(after)["RELU"]) == (1, 0)
    pair = [answer(content, example, tmp_path / "x.tflite") for content in (before, after)]
    quantum = np.ptp(pair[0]) / 255
    np.testing.assert_allclose(*pair, atol=1.01 * quantum)  # two engines may round halves apart


class Moves(nn.Module):
    """Two transpositions around a reshape, as of a convolution over time, but of other axes."""

    def forward(self, x):
        return x + x.permute(0, 2, 3, 1).reshape(2, 4, 15).permute(0, 2, 1).reshape(2, 3, 4, 5)


def test_a_transposition_that_moves_values_stays(tmp_path):
    example = torch.arange(120.0).reshape(2, 3, 4, 5)
    content = simplified(as_converted(Moves().eval(), example))
    assert operators(content)["TRANSPOSE"] == 2
    np.testing.assert_array_equal(answer(content, example, tmp_path / "x.tflite"), Moves()(example).numpy())


class Signed(nn.Module):
    """A maximum of values of which some are negative."""

    def forward(self, x):
        return nn.functional.max_pool2d(x - 1000, 3, 2, 1)


def test_zeros_are_no_padding_of_negative_values(tmp_path):
    example = torch.randn(2, 3, 8, 7)
    content = simplified(as_converted(Signed().eval(), example))
    np.testing.assert_allclose(answer(content, example, tmp_path / "x.tflite"), Signed()(example).numpy(), rtol=1e-6)
