"""What ONNX Runtime has beyond the suite of all runtimes."""

import importlib.metadata
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from traced_files import expect_traced_time

from hwbench.errors import InvalidFile, MissingDependency, UnsupportedModule
from hwbench.models import workload_module
from hwbench.runtimes import ModuleForm, get
from hwbench.runtimes.onnx import OnnxRuntime
from hwbench.runtimes.onnx.export import OPSET
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, load_model
from hwbench.runtimes.runners import check_file
from hwbench.specs import Workload

BLOCK = Workload.parse("x3d_i4_m12_o4_k3x3x3_se8_swish@1x4x3x6x5/fp32/auto")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The block in fp32, with its module and an input."""
    torch.manual_seed(0)
    module, example = workload_module(BLOCK)
    path = tmp_path_factory.mktemp("onnx") / "block.onnx"
    return get("onnx").build(module, example, BLOCK, path, []), module, example


def test_the_file_is_valid_onnx_with_weights_inside_and_no_traces(built):
    artifact, _, example = built
    model = onnx.load(artifact.path, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == list(example.shape)
    assert not [node for node in model.graph.node if node.metadata_props]
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    assert OnnxRuntime.capabilities.form(BLOCK) is ModuleForm.DEPLOY


def test_the_same_module_gives_the_same_bytes(built, tmp_path):
    artifact, module, example = built
    again = OnnxRuntime().build(module, example, BLOCK, tmp_path / "again.onnx", [])
    assert again.sha256 == artifact.sha256


def test_int8_is_in_the_graph(built, tmp_path):
    _, module, example = built
    workload = Workload.parse(BLOCK.key.replace("fp32", "int8"))
    made = OnnxRuntime().build(module, example, workload, tmp_path / "int8.onnx", [torch.randn_like(example)])
    model = onnx.load(made.path)
    kinds = [node.op_type for node in model.graph.node]
    weights = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 4]
    assert kinds.count("QuantizeLinear") > kinds.count("Conv") > 0
    assert len(weights) == kinds.count("Conv")
    assert max(int(np.abs(onnx.numpy_helper.to_array(t)).max()) for t in weights) <= 64


def test_operations_are_named_and_timed(built):
    artifact, _, example = built
    model = load_model(str(artifact.path), Options(threads=1))
    rows = model.operations(3)
    assert any(name.startswith("Conv ") or "Conv" in name for name, _, _ in rows)
    assert all(ns > 0 and count == 3 for _, ns, count in rows)
    model.feed(np.zeros(model.input_shape, np.float32))
    model.run()
    assert model.output().shape == (3, 4, 6, 5)
    assert model.input_shape == tuple(example.shape)


def test_neither_the_first_runs_nor_a_preemption_make_the_time_of_an_operation(monkeypatch, built):
    class Session:
        def __init__(self, path):
            self.path, self.durations = path, []

        def get_inputs(self):
            return [SimpleNamespace(name="x")]

        def run(self, outputs, values):
            cold = 9000 if len(self.durations) < 2 else 0
            self.durations.append(cold + (5000 if len(self.durations) == 6 else 10 + len(self.durations) % 2))

        def end_profiling(self):
            kernels = [("Conv", "stem_kernel_time", took) for took in self.durations]
            nodes = [{"cat": "Node", "name": n, "dur": took, "args": {"op_name": kind}} for kind, n, took in kernels]
            Path(self.path).write_text(json.dumps([{"cat": "Session", "name": "model_run", "dur": 1}, *nodes]))
            return self.path

    model = load_model(str(built[0].path), Options(threads=1))
    monkeypatch.setattr(model, "_open", lambda engine, trace: Session(trace))
    ((name, ns, count),) = model.operations(8)
    assert (name, count) == ("Conv stem", 8)
    assert 10e3 <= ns <= 11e3


def test_the_traced_time_of_a_file_is_that_of_the_executions_that_were_traced(built, tmp_path):
    expect_traced_time(built[0].path, tmp_path, samples=5)


def test_an_input_of_no_fixed_shape_is_refused(built, tmp_path):
    model = onnx.load(built[0].path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "free.onnx")
    with pytest.raises(InvalidFile, match="not float32 of a fixed shape"):
        check_file(tmp_path / "free.onnx")


@pytest.mark.parametrize(
    ("shape", "told"), [(None, "without sizes"), ([], "without sizes"), ([0, 3], r"\[0, 3\]")], ids=str
)
def test_an_input_without_sizes_or_with_a_size_of_0_is_refused(tmp_path, shape, told):
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = onnx.helper.make_opsetid("", OPSET)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), tmp_path / "x.onnx")
    with pytest.raises(InvalidFile, match=rf"input x is not float32 of a fixed shape: tensor\(float\) {told}"):
        check_file(tmp_path / "x.onnx")


def test_what_onnx_does_not_have_is_told_in_one_line(tmp_path):
    class Odd(nn.Module):
        def forward(self, x):
            return torch.linalg.eigvals(x[0, 0]).real

    with pytest.raises(UnsupportedModule, match=r"Odd cannot be written as ONNX: .+") as caught:
        OnnxRuntime().build(Odd(), torch.eye(4)[None, None], BLOCK, tmp_path / "x.onnx", [])
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_told_with_the_command(monkeypatch, name):
    real = importlib.metadata.version

    def version(distribution):
        if distribution == name:
            raise importlib.metadata.PackageNotFoundError(distribution)
        return real(distribution)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(MissingDependency, match=rf"{name} is not installed.*pip install 'hwbench\[onnx\]'$"):
        OnnxRuntime().version()


def test_a_file_without_its_engine_says_what_to_install(built, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelFailure, match=r"onnxruntime is not installed.*pip install onnxruntime") as caught:
        load_model(str(built[0].path), Options())
    assert caught.value.stage == "load"
