"""fp16 and bf16: 16-bit floating numbers inside, fp32 outside."""

import numpy as np
import pytest
import torch
from torch import nn

from hwbench.blocks.graph.attention import LayerNorm
from hwbench.errors import MissingDependency, UnsupportedModule
from hwbench.models import Continued, workload_module
from hwbench.runtimes import get, runtimes
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.half import Halved, in_precision
from hwbench.runtimes.pte_model import pte_layout
from hwbench.runtimes.runners import check_file
from hwbench.specs import Precision, Workload

BLOCK = Workload.parse("x3d_i4_m12_o4_k3x3x3_se8_swish@1x4x3x7x5/fp16/auto")


def sqnr_db(expected, got):
    return 10 * np.log10((expected**2).sum() / ((expected - got) ** 2).sum())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The block in fp16 and in fp32, with its module and an input."""
    torch.manual_seed(0)
    module, example = workload_module(BLOCK)
    folder, runtime = tmp_path_factory.mktemp("half"), get("executorch")
    fp32 = Workload.parse(BLOCK.key.replace("fp16", "fp32"))
    files = [runtime.build(module, example, one, folder / f"{one.precision}.pte", []) for one in (BLOCK, fp32)]
    return files, module, example


def test_fp16_is_one_delegate_with_fp32_in_and_out_and_computes_what_the_module_computes(built):
    (half, _), module, example = built
    assert (half.delegation.complete, half.delegation.delegates) == (True, 1)
    output = check_file(half.path, example.contiguous().numpy()).output  # refuses all but float32
    expected = module(example).detach().numpy()
    assert 55 < sqnr_db(expected, output) < 100  # 11 bits of mantissa; fp32 would be above 120
    assert [one.shape for one in pte_layout(half.path).inputs] == [tuple(example.shape)]


@pytest.mark.parametrize("key", ["conv_i3_o4_k1x3x3_relu@1x3x2x6x6/fp16/auto", BLOCK.key])
def test_everything_between_the_ends_is_in_fp16(key, tmp_path, monkeypatch):
    """The engine takes a conversion and the change of layout behind it for nothing, and would compute in fp32."""
    with quiet():
        from hwbench.runtimes.passes.inject import xnnpack_preprocess

    graphs, write = [], xnnpack_preprocess.serialize_xnnpack_binary
    keep = lambda graph, header: (graphs.append(graph), write(graph, header))[1]  # noqa: E731
    monkeypatch.setattr(xnnpack_preprocess, "serialize_xnnpack_binary", keep)
    one = Workload.parse(key)
    module, example = workload_module(one)
    get("executorch").build(module, example, one, tmp_path / "half.pte", [])
    (graph,) = graphs
    values = [getattr(value.xvalue_union, "tensor", value.xvalue_union) for value in graph.xvalues]
    assert sorted(value.flags for value in values if value.datatype.name != "xnn_datatype_fp16") == [1, 2]
    assert {value.datatype.name for value in values if value.flags} == {"xnn_datatype_fp32"}
    assert [type(node.xnode_union).__name__ for node in graph.xnodes].count("XNNConvert") == 2


def test_fp16_weights_are_stored_in_fp16(tmp_path):
    workload = Workload.parse("conv_i64_o96_k1x3x3_relu@1x64x1x4x4/fp16/auto")
    torch.manual_seed(0)
    module, example = workload_module(workload)
    made = get("executorch").build(module, example, workload, tmp_path / "half.pte", [])
    count = sum(value.numel() for value in module.parameters())
    assert 2 * count < made.path.stat().st_size < 3 * count


def test_a_block_in_the_middle_of_a_network_gives_two_outputs_in_fp32(tmp_path):
    module, example = workload_module(BLOCK)
    made = get("executorch").build(Continued(module), example, BLOCK, tmp_path / "part.pte", [])
    assert made.delegation.complete
    assert [len(one.shape) for one in pte_layout(made.path).outputs] == [4, 4]


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_a_halved_module_rounds_its_weights_once_and_leaves_the_original(precision):
    module = nn.Linear(3, 2)
    before = module.weight.clone()
    halved = in_precision(module, precision)
    assert isinstance(halved, Halved)
    x = torch.randn(4, 3)
    assert halved(x).dtype == torch.float32
    assert not torch.equal(halved(x), module(x))
    torch.testing.assert_close(halved(x), module(x), rtol=2e-2, atol=2e-2)
    assert torch.equal(module.weight, before)
    assert in_precision(module, Precision.FP32) is module


def test_what_needs_fp32_has_it():
    norm = LayerNorm(-1, 4, 1e-5, torch.full((4,), 1.0001), None).float()
    module = nn.Sequential(norm, nn.Linear(4, 4), nn.GELU())
    halved, x = Halved(module, Precision.FP16), 1000 * torch.randn(2, 4)
    assert {name: value.dtype for name, value in halved.inner.named_parameters() if "1." in name} == {
        "1.weight": torch.float16,
        "1.bias": torch.float16,
    }
    assert torch.equal(halved.inner[0].inner.scale, norm.scale)  # 1.0001 is no number of fp16
    assert torch.allclose(halved(x), module(x), atol=1e-2)  # squares beyond 65504
    assert halved.inner.get_submodule("2.inner") is not module[2]


@pytest.mark.parametrize(
    ("runtime", "precision", "said"),
    [
        (
            "onnx",
            "fp16",
            r"onnx runtime builds fp32 and int8, got fp16; .*--runtime executorch or (litert or )?(openvino or )?torch",
        ),
        ("executorch", "bf16", r"fp32, fp16 and int8, got bf16; .*--runtime (openvino or )?torch or torchscript"),
        ("torch", "int8", r"got int8; choose another engine: --runtime executorch"),
    ],
)
def test_an_engine_without_the_precision_names_those_that_have_it(runtime, precision, said):
    with pytest.raises(UnsupportedModule, match=said):
        get(runtime).require_precision(Precision(precision))


@pytest.mark.parametrize(
    ("there", "named"), [({"torchscript"}, "torchscript"), ((), "openvino or torch or torchscript")]
)
def test_only_engines_that_are_installed_are_named_unless_none_is(monkeypatch, there, named):
    for name in runtimes.names():
        version = (lambda runtime: "1") if name in there else version_missing
        monkeypatch.setattr(runtimes.get(name), "version", version)
    with pytest.raises(UnsupportedModule, match=f"got bf16; choose another engine: --runtime {named}$"):
        get("executorch").require_precision(Precision.BF16)


def version_missing(runtime):
    raise MissingDependency("not installed")


@pytest.mark.parametrize("runtime", ["torch", "torchscript"])
@pytest.mark.parametrize(("precision", "low", "high"), [("fp16", 45, 100), ("bf16", 30, 70)])
def test_torch_runs_the_original_form_in_16_bits(runtime, precision, low, high, tmp_path):
    from hwbench.models import eager_workload

    key = f"conv_i3_o4_k3x1x1_relu@1x3x2x5x4/{precision}/auto"
    module, example = eager_workload(key)
    engine = get(runtime)
    path = tmp_path / ("x" + engine.capabilities.suffix)
    engine.build(module, example, Workload.parse(key), path, [])
    output = check_file(path, example.contiguous().numpy()).output
    assert output.dtype == np.float32
    if engine.capabilities.holds_weights:  # else its weights are others
        assert low < sqnr_db(module(example).detach().numpy(), output) < high
