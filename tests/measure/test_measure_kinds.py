"""The kind of an operation by the name that an engine reports."""

from pathlib import Path

import pytest

from hwbench.measure.artifact_check import OperationProfile, OperationTime
from hwbench.measure.file_profile import attributed


def kind_in(file, name):
    (operation,) = attributed(OperationProfile(1.0, (OperationTime(name, 1.0, 1),)), Path(file)).operations
    assert operation.name == name
    return operation.kind


@pytest.mark.parametrize(
    ("file", "name", "kind"),
    [
        ("model.ovz", "Reorder Transpose_9_abcde_acdeb_Convolution_14", "copy"),
        ("model.ovz", "Reorder Relu_3_abcd_acdb_GroupConvolution_8", "copy"),
        ("model.ovz", "GroupConvolution GroupConvolution_8", "depthwise"),
        ("model.ovz", "FullyConnected MatMul_70", "pointwise"),
        ("model.ovz", "FullyConnectedQuantizedLegacy MatMul_70", "pointwise"),
        ("model.onnx", "DequantizeLinear node_conv2d_1_output_DequantizeLinear", "conversion"),
        ("model.onnx", "QuantizeLinear node_conv2d_1", "conversion"),
        ("model.onnx", "QGemm node_linear", "pointwise"),
        ("model.onnx", "QLinearMatMul node_matmul", "pointwise"),
        ("model.onnx", "MatMulInteger node_matmul", "pointwise"),
        ("model.onnx", "QLinearMul node_conv2d_2", "arithmetic"),
        ("model.onnx", "QLinearConv node_conv2d", "convolution"),
        ("model.onnx", "FusedConv relu_1", "convolution"),
        ("model.onnx", "FusedGemm relu_2", "pointwise"),
        ("model.ts", "aten::conv3d", "convolution"),
        ("model.ts", "quantized::conv3d_relu", "convolution"),
        ("model.ts", "quantized::linear", "pointwise"),
        ("model.ts", "quantized::add_relu", "arithmetic"),
        ("model.ts", "quantized::mul", "arithmetic"),
        ("model.ts", "quantized::hardswish", "activation"),
        ("model.ts", "quantized::cat", "copy"),
        ("model.ts", "quantized::batch_norm", "other"),
    ],
)
def test_behind_the_type_of_an_operation_stands_its_place_and_says_nothing(file, name, kind):
    assert kind_in(file, name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Convolution (NHWC, F32) DWConv #1", "depthwise"),
        ("Convolution (NHWC, F32) IGEMM #2", "convolution"),
        ("Fully Connected (NC, F32) GEMM #1", "pointwise"),
        ("Static Reshape (NC)", "copy"),
    ],
)
def test_names_of_xnnpack_have_several_words(tmp_path, name, kind):
    (tmp_path / "model.pte").write_bytes(b"")
    assert kind_in(tmp_path / "model.pte", name) == kind
