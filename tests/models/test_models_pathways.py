"""Blocks on a pair of pathways: shapes, arithmetic, equality of both forms, and files with two inputs that run."""

import pytest
import torch
from torch import nn

from hwbench.blocks import frames_to_batch
from hwbench.errors import InvalidValue, UnsupportedModule
from hwbench.latency.arithmetic import Work, macs
from hwbench.models import Continued, eager_workload, network, workload_module
from hwbench.runtimes import get
from hwbench.runtimes.onnx_model import OnnxModel
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.runners import check_file, choose_runner
from hwbench.specs import BlockSpec, Network, Pathways, TensorSpec, Workload

SPLIT = "pathway-split_i3_o3_k1x1x1_al2_identity"
FUSE = "pathway-fuse_i8_o12_k5x1x1_al2_fc4_relu"
HEAD = "pathway-head_i12_o5_kglobal_fc4_identity"
STEMS = "1:resnet-stem_i3_o8_k1x7x7_s2_relu>2:resnet-stem_i3_o4_k1x7x7_s2_relu"
CHAIN = f"{SPLIT}>{STEMS}>{FUSE}>2:r2plus1d_i4_m4_o4_k3x1x1+1x3x3_relu>{HEAD}"
NETWORK = Workload.parse(f"{CHAIN}@1x3x4x16x16/fp32/auto")
PAIR = "1x8x2x8x8+1x4x4x8x8"
ALONE = [f"{SPLIT}@1x3x5x8x8", f"{FUSE}@{PAIR}", f"{FUSE}@1x8x3x7x9+1x4x5x7x9", f"{FUSE}>{HEAD}@{PAIR}"]


def tensors(value):
    return value if isinstance(value, tuple) else (value,)


def workload(key: str, precision: str = "fp32") -> Workload:
    return Workload.parse(f"{key}/{precision}/auto")


def test_keys_of_pairs():
    pair = TensorSpec.parse(PAIR)
    slow, fast = pair.pathways
    assert isinstance(pair, Pathways)
    assert (pair.key, pair.numel) == (PAIR, slow.numel + fast.numel)
    assert (slow, fast) == (TensorSpec(1, 8, 2, 8, 8), TensorSpec(1, 4, 4, 8, 8))
    assert TensorSpec.parse("1x8x2x8x8") == slow != pair
    assert Workload.parse(NETWORK.key) == NETWORK
    block = BlockSpec.parse("2:r2plus1d_i4_m4_o4_k3x1x1+1x3x3_relu")
    assert (block.pathway, block.alone.key) == (2, "r2plus1d_i4_m4_o4_k3x1x1+1x3x3_relu")
    assert block.output(pair) == pair
    for wrong in ("0:pool_i4_o4_kglobal_relu", "12:pool_i4_o4_kglobal_relu", ":pool_i4_o4_kglobal_relu", f"1:{FUSE}"):
        with pytest.raises(InvalidValue):
            BlockSpec.parse(wrong)


def test_a_table_with_a_kind_that_is_not_installed_is_read():
    key = f"somebody-fuse_i8_o12_k5x1x1_relu@{PAIR}/fp32/auto"
    assert Workload.parse(key).key == key
    assert Workload.parse(key).output == TensorSpec.parse("1x12x2x8x8+1x4x4x8x8")


def test_a_block_of_one_pathway_has_the_row_that_it_has_alone():
    keys = [part.key for part in NETWORK.parts()]
    assert keys[1:3] == [
        "resnet-stem_i3_o8_k1x7x7_s2_relu@1x3x2x16x16/fp32/auto",
        "resnet-stem_i3_o4_k1x7x7_s2_relu@1x3x4x16x16/fp32/auto",
    ]
    assert keys[3] == f"{FUSE}@{PAIR}/fp32/auto"
    assert keys[4] == "r2plus1d_i4_m4_o4_k3x1x1+1x3x3_relu@1x4x4x8x8/fp32/auto"
    fuse, head = Work.of(workload(f"{FUSE}@{PAIR}")), Work.of(workload(f"{HEAD}@1x12x2x8x8+1x4x4x8x8"))
    assert (fuse.dense_macs, fuse.num_weights) == (2 * 64 * 4 * 4 * 5, 4 * 4 * 5)
    assert head.dense_macs == 16 * 5
    assert macs(NETWORK) == sum(macs(part) for part in NETWORK.parts())


@pytest.mark.parametrize(
    ("key", "x", "message"),
    [
        (FUSE, "1x8x2x8x8", "takes 2 pathways, got 1"),
        (FUSE, "1x6x2x8x8+1x4x4x8x8", "takes 8 channels in its first pathway"),
        (FUSE, "1x8x2x8x8+1x5x4x8x8", "takes 4 fast channels, with 2 frames for each slow one"),
        (FUSE, "1x8x3x8x8+1x4x4x8x8", "2 frames for each slow one"),
        ("2:pool_i4_o4_kglobal_relu", "1x4x4x8x8", "there are 1 pathways"),
        ("pool_i8_o8_kglobal_relu", PAIR, "takes 1 pathways, got 2"),
    ],
)
def test_a_block_says_what_does_not_fit(key, x, message):
    with pytest.raises(InvalidValue, match=message):
        BlockSpec.parse(key).output(TensorSpec.parse(x))


@pytest.mark.parametrize("key", [*ALONE, NETWORK.key.partition("/")[0]])
def test_both_forms_compute_the_same_and_have_the_shapes_that_are_said(key):
    one = workload(key)
    torch.manual_seed(0)
    original, clips = eager_workload(one.key)
    for layer in original.modules():
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.uniform_(layer.running_var, 0.3, 2)
            nn.init.normal_(layer.running_mean)
    deployed = original.to_deploy(one.input)
    clips = tensors(clips)
    with torch.no_grad():
        expected = tensors(original(*clips))
        got = tensors(deployed(*(frames_to_batch(clip) for clip in clips)))
    for made, other, spec in zip(expected, got, one.output.pathways, strict=True):
        assert tuple(made.shape) == (spec.shape if made.dim() == 5 else (1, spec.c))
        assert torch.allclose(frames_to_batch(made) if made.dim() == 5 else made, other, atol=1e-5)


def test_a_network_of_two_pathways_is_trained_as_any():
    module = network(Network("pair", NETWORK.blocks, NETWORK.input), dropout=0.0)
    logits = module(torch.randn(2, 3, 4, 16, 16))
    logits.sum().backward()
    assert logits.shape == (2, 5)
    assert all(parameter.grad is not None for parameter in module.parameters())
    with pytest.raises(UnsupportedModule, match="expected a stem, blocks and a head"):
        network(Network("pair", (NETWORK.blocks[0], *NETWORK.blocks[:-1]), NETWORK.input))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_file_with_two_inputs_is_one_delegate_and_runs(precision, tmp_path, runner_cache):
    one = workload(f"{FUSE}@{PAIR}", precision)
    torch.manual_seed(0)
    module, example = workload_module(one)
    assert [tuple(part.shape) for part in example] == [(2, 8, 8, 8), (4, 4, 8, 8)]
    out = tmp_path / "fuse.pte"
    report = get("executorch").build(Continued(module), example, one, out, [example] * (precision == "int8")).delegation
    assert (report.delegates, dict(report.undelegated)) == (1, {})
    checked = check_file(out, runner=choose_runner("executorch", runner_cache, None))
    assert checked.output.shape == (2, 12, 8, 8)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_file_with_two_inputs_for_onnx_computes_the_same(precision, tmp_path):
    one = workload(f"{FUSE}>{HEAD}@{PAIR}", precision)
    torch.manual_seed(0)
    module, example = workload_module(one)
    out = tmp_path / "fuse.onnx"
    get("onnx").build(module, example, one, out, [example] * (precision == "int8"))
    model = OnnxModel(str(out), Options(threads=1))
    model.make_inputs()
    assert model.run() > 0
    with torch.no_grad():
        expected = module(*(torch.from_numpy(values) for values in model._inputs))
    assert torch.allclose(torch.from_numpy(model.output()), expected, atol=1e-5 if precision == "fp32" else 0.1)
