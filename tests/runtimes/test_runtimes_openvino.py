"""What OpenVINO has beyond the suite of all runtimes."""

import importlib.metadata
import itertools
import os
import re
import statistics
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from traced_files import expect_traced_time

from hwbench.errors import MissingDependency
from hwbench.models import eager_workload
from hwbench.runtimes import ModuleForm, get, of_file
from hwbench.runtimes.openvino import GRAPH, PRECISION, WEIGHTS, converted
from hwbench.runtimes.openvino_model import durations_us
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, load_model, middle_mean
from hwbench.specs import Precision, Workload

BLOCK = Workload.parse("x3d_i4_m12_o4_k3x3x3_se8_swish@1x4x3x7x5/fp32/auto")
WHY = "python -m pip install 'hwbench[openvino]'"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The block in fp32, with its module and an input."""
    pytest.importorskip("openvino", reason=WHY)
    pytest.importorskip("nncf", reason=WHY)
    torch.manual_seed(0)
    module, example = eager_workload(BLOCK.key)
    path = tmp_path_factory.mktemp("openvino") / "block.ovz"
    return get("openvino").build(module, example, BLOCK, path, []), module, example


def test_every_precision_is_the_network_as_it_was_trained_and_the_name_needs_no_engine():
    runtime = get("openvino")
    assert {runtime.capabilities.form(Workload.parse(f"{BLOCK.key[:-10]}/{p}/auto")) for p in Precision} == {
        ModuleForm.ORIGINAL
    }
    assert runtime.capabilities.form(Workload.parse(BLOCK.key.replace("auto", "one-hot"))) is ModuleForm.DEPLOY
    assert of_file(Path("x/model.ovz")) == "openvino"


@pytest.mark.parametrize("name", ["openvino", "nncf"])
def test_a_missing_package_is_told_with_the_command(monkeypatch, name):
    def version(distribution):
        if distribution == name:
            raise importlib.metadata.PackageNotFoundError(distribution)
        return "2026.4.1"

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(MissingDependency, match=f"{name} is not installed; .*{re.escape(WHY)}$"):
        get("openvino").version()


def test_a_file_without_its_engine_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    path = tmp_path / "x.ovz"
    path.write_bytes(b"PK")
    with pytest.raises(ModelFailure, match=f"openvino is not installed.*{re.escape(WHY)}$") as caught:
        load_model(str(path), Options())
    assert caught.value.stage == "load"


def test_the_same_module_gives_the_same_bytes_and_shapes_are_fixed(built, tmp_path):
    artifact, module, example = built
    again = get("openvino").build(module, example, BLOCK, tmp_path / "again.ovz", [])
    assert again.sha256 == artifact.sha256
    model = load_model(str(artifact.path), Options(threads=1))
    assert model.input_shape == tuple(example.shape)


def test_operations_are_named_and_timed(built):
    artifact, _, _ = built
    model = load_model(str(artifact.path), Options(threads=1, profile=True))
    rows = model.operations(3)
    assert any(name.startswith("Convolution") for name, _, _ in rows)
    assert all(ns >= 0 and count == 3 for _, ns, count in rows)


def test_executions_before_do_not_change_which_operations_are_told(built):
    model = load_model(str(built[0].path), Options(threads=1, profile=True))
    fresh, run_ns = model.operations(20), statistics.median(model.run() for _ in range(1000))
    names = [[name for name, _, _ in rows if "Convolution" in name] for rows in (fresh, model.operations(20))]
    assert len(names[0]) >= 5
    assert names[0] == names[1]
    assert sum(ns for _, ns, _ in fresh) <= run_ns  # the first execution of a model takes 10 times as long


def test_the_traced_time_of_a_file_is_that_of_the_executions_that_were_traced(built, tmp_path):
    expect_traced_time(built[0].path, tmp_path, samples=7)


def counted(durations_us, read=None):
    """What the engine tells of an operation after each execution, or after those executions."""
    sums = enumerate(itertools.accumulate(durations_us), start=1)
    return {number: us // number for number, us in sums if read is None or number in read}


@pytest.mark.parametrize("us", [150, 997, 80_000])
def test_neither_the_first_executions_nor_a_preemption_make_the_time_of_an_operation(us):
    averages = counted([40 * us, 3 * us, us + 2, *[us, us + 1] * 5, us + 7_000, *[us] * 5])
    took = durations_us(averages, cold=3)
    assert len(took) == 16
    assert middle_mean(took) == pytest.approx(us, abs=8)


@pytest.mark.parametrize("us", [0, 1, 2, 7, 30])
def test_a_short_operation_has_its_time_to_a_microsecond(us):
    (took,) = durations_us(counted([900 + us, us + 5, us, *[us] * 20], read=(1, 2, 3, 23)), cold=3)
    assert took == pytest.approx(us, abs=1)


@pytest.mark.parametrize(
    ("pool", "shape"),
    [
        (torch.nn.AvgPool3d(3, 2, 1, ceil_mode=True), (1, 2, 4, 8, 8)),
        (torch.nn.AvgPool3d((1, 3, 2), (1, 2, 2), (0, 1, 0), ceil_mode=True), (2, 3, 5, 8, 9)),
        (torch.nn.AvgPool3d((2, 5, 4), 3, (1, 2, 1), ceil_mode=True), (1, 1, 3, 6, 11)),
        (torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True), (3, 2, 8, 7)),
        (torch.nn.AvgPool3d(3, 2, 1, ceil_mode=True, count_include_pad=False), (1, 2, 4, 8, 8)),
        (torch.nn.AvgPool3d(2, 2, ceil_mode=True), (1, 2, 5, 7, 7)),
    ],
    ids=str,
)
def test_average_pooling_divides_by_what_torch_divides_by(pool, shape):
    openvino = pytest.importorskip("openvino", reason=WHY)
    clip = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 1
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    compiled = openvino.Core().compile_model(converted(pool, clip), "CPU", settings)
    np.testing.assert_allclose(compiled([clip.numpy()])[0], pool(clip).numpy(), rtol=1e-5, atol=1e-6)


def test_bf16_computes_in_bf16_or_is_refused_with_what_to_choose(built, tmp_path):
    _, module, example = built
    workload = Workload.parse(BLOCK.key.replace("fp32", "bf16"))
    made = get("openvino").build(module, example, workload, tmp_path / "half.ovz", [])
    import openvino

    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        with pytest.raises(ModelFailure, match="does not compute in bf16"):
            load_model(str(made.path), Options())
        return
    model = load_model(str(made.path), Options(threads=1))
    model.feed(example.numpy())
    model.run()
    expected = module(example).detach().numpy()
    error = np.linalg.norm(model.output() - expected) / np.linalg.norm(expected)
    assert 1e-4 < error < 3e-2


def test_a_model_with_an_open_axis_is_refused(built, tmp_path):
    import openvino

    artifact, _, _ = built
    with zipfile.ZipFile(artifact.path) as entries:
        graph, weights = entries.read(GRAPH), entries.read(WEIGHTS)
    model = openvino.Core().read_model(graph, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    model.reshape(openvino.PartialShape([-1, 4, 3, 7, 5]))
    openvino.save_model(model, tmp_path / "open.xml", compress_to_fp16=False)
    path = tmp_path / "open.ovz"
    with zipfile.ZipFile(path, "w") as entries:
        entries.writestr(GRAPH, (tmp_path / "open.xml").read_bytes())
        entries.writestr(WEIGHTS, (tmp_path / "open.bin").read_bytes())
        entries.writestr(PRECISION, "fp32")
    with pytest.raises(ModelFailure, match=r"not float32 of a fixed shape: f32 .*export it again"):
        load_model(str(path), Options())


def test_the_quantiser_does_not_speak_of_cuda(built, tmp_path):
    key = BLOCK.key.replace("fp32", "int8")
    program = (
        "import sys; from pathlib import Path; from hwbench.models import eager_workload;"
        "from hwbench.runtimes import get; from hwbench.specs import Workload;"
        "module, clip = eager_workload(sys.argv[1]);"
        "get('openvino').build(module, clip, Workload.parse(sys.argv[1]), Path(sys.argv[2]), [clip])"
    )
    environment = {**os.environ, "CUDA_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", program, key, str(tmp_path / "int8.ovz")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_nothing_that_tells_its_maker_of_its_use_is_loaded(built):
    program = (
        "import sys; from hwbench.runtimes.openvino import engine; engine('openvino'); engine('nncf');"
        "from openvino.tools.ovc import telemetry_utils; print(telemetry_utils.tm.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "openvino.tools.ovc.telemetry_stub"
