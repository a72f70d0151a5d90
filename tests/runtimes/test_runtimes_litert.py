"""What LiteRT has beyond the suite of all runtimes."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hwbench.devices import Device
from hwbench.errors import DeviceError, MissingDependency, UnsupportedModule
from hwbench.measure import device_runner
from hwbench.measure.artifact_check import check_artifact
from hwbench.measure.bench import open_bench
from hwbench.measure.remote_toolchain import BoardPython
from hwbench.models import workload_module
from hwbench.runtimes import ModuleForm, get, of_file
from hwbench.runtimes.capabilities import PYTHON
from hwbench.runtimes.litert_model import LiteRtModel, is_half
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, load_model
from hwbench.specs import Precision, Workload

BLOCK = Workload.parse("x3d_i4_m12_o4_k3x3x3_se8_swish@1x4x3x7x5/fp32/auto")
WHY = "python -m pip install 'hwbench[litert]'"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Files of the block by precision, its module, and an input."""
    try:
        get("litert").version()
    except MissingDependency as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module, example = workload_module(BLOCK)
    example = torch.randn_like(example, memory_format=torch.contiguous_format)
    folder = tmp_path_factory.mktemp("litert")
    return {p: build(module, example, p, folder / f"{p}.tflite") for p in ("fp32", "fp16", "int8")}, module, example


def build(module, example, precision, out):
    workload = Workload.parse(BLOCK.key.replace("fp32", precision))
    clips = [example] if precision == "int8" else []
    return get("litert").build(module, example, workload, out, clips)


def test_every_precision_is_the_deploy_form_and_the_name_needs_no_engine():
    runtime = get("litert")
    known = runtime.capabilities.precisions
    assert known == (Precision.FP32, Precision.FP16, Precision.INT8)
    forms = {runtime.capabilities.form(Workload.parse(BLOCK.key.replace("fp32", str(one)))) for one in known}
    assert forms == {ModuleForm.DEPLOY}
    assert of_file(Path("x/model.tflite")) == "litert"
    with pytest.raises(UnsupportedModule, match=r"litert runtime builds fp32, fp16 and int8, got bf16; .*--runtime"):
        runtime.require_precision(Precision.BF16)


@pytest.mark.parametrize("name", ["ai-edge-litert", "litert-torch", "ai-edge-quantizer"])
def test_a_missing_package_is_told_with_the_command(monkeypatch, name):
    def version(distribution):
        if distribution == name:
            raise importlib.metadata.PackageNotFoundError(distribution)
        return "2.3.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(MissingDependency, match=f"{name} is not installed; .*{re.escape(WHY)}$"):
        get("litert").version()


def test_a_file_without_its_engine_says_what_to_install(tmp_path, monkeypatch):
    for name in {"ai_edge_litert", *(name for name in sys.modules if name.startswith("ai_edge_litert."))}:
        monkeypatch.setitem(sys.modules, name, None)  # what another test has imported is found by its full name
    path = tmp_path / "x.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3")
    with pytest.raises(ModelFailure, match=r"ai-edge-litert is not installed.*pip install ai-edge-litert") as caught:
        load_model(str(path), Options())
    assert caught.value.stage == "load"


def test_the_engine_is_all_of_the_package_that_loading_a_file_needs():
    pytest.importorskip("ai_edge_litert", reason=WHY)
    code = (
        "import sys; from hwbench.runtimes.litert_model import LiteRtModel; LiteRtModel.load_engine(1);"
        "print(*(name.removeprefix('ai_edge_litert.') for name in sys.modules if name.startswith('ai_edge_litert.')))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert {"compiled_model", "options", "environment", "schema_py_generated"} <= set(done.stdout.split())


@pytest.mark.parametrize(("precision", "low", "high"), [("fp32", 0, 1e-5), ("fp16", 1e-5, 5e-3), ("int8", 1e-4, 0.1)])
def test_a_precision_is_computed_in_that_precision(built, precision, low, high):
    files, module, example = built
    model = load_model(str(files[precision].path), Options(threads=1))
    assert model.input_shape == tuple(example.shape)
    with torch.no_grad():
        expected = module(example).numpy()
    model.feed(example.numpy())
    assert model.run() > 0
    error = np.linalg.norm(model.output() - expected) / np.linalg.norm(expected)
    assert low <= error < high
    assert is_half(str(files[precision].path)) == (precision == "fp16")


def test_ranges_hold_all_clips_in_any_order(built, tmp_path):
    _, module, example = built
    clips, workload = [example, 4 * example], Workload.parse(BLOCK.key.replace("fp32", "int8"))
    made = [get("litert").build(module, example, workload, tmp_path / f"{n}.tflite", clips[::n]) for n in (1, -1)]
    assert made[0].sha256 == made[1].sha256
    model = load_model(str(made[0].path), Options(threads=1))
    model.feed(clips[1].numpy())
    model.run()
    with torch.no_grad():
        expected = module(clips[1]).numpy()
    assert np.linalg.norm(model.output() - expected) < 0.1 * np.linalg.norm(expected)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_the_same_module_gives_the_same_bytes(built, precision, tmp_path, capfd):
    files, module, example = built
    assert build(module, example, precision, tmp_path / "again.tflite").sha256 == files[precision].sha256
    assert capfd.readouterr() == ("", "")  # the converter talks from Python and from C++


def test_another_process_gives_the_same_bytes(built, tmp_path):
    files, _, _ = built
    program = (
        "import sys; from pathlib import Path; import torch; from hwbench.models import workload_module;"
        "from hwbench.runtimes import get; from hwbench.specs import Workload; torch.manual_seed(0);"
        f"work = Workload.parse({BLOCK.key!r}); module, example = workload_module(work);"
        "print(get('litert').build(module, example, work, Path(sys.argv[1]), []).sha256)"
    )
    again = [sys.executable, "-c", program, str(tmp_path / "again.tflite")]
    done = subprocess.run(again, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [files["fp32"].sha256]


def test_two_inputs_stand_in_the_order_of_the_arguments(built, tmp_path):
    class Difference(nn.Module):
        def forward(self, one, other):
            return one - 2 * other.mean(dim=(2, 3), keepdim=True)

    example = (torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 5))
    made = get("litert").build(Difference(), example, BLOCK, tmp_path / "two.tflite", [])
    model = load_model(str(made.path), Options(threads=1))
    assert model.input_shape == (1, 2, 3, 4)
    second = torch.from_numpy(model._inputs[1])
    model.feed(example[0].numpy())
    model.run()
    np.testing.assert_allclose(model.output(), Difference()(example[0], second).numpy(), atol=1e-6)


@pytest.mark.parametrize("keep", [12, 300, -1, -8])
def test_a_file_that_was_cut_is_refused_before_the_engine_reads_it(built, tmp_path, keep):
    files, _, _ = built
    path = tmp_path / "cut.tflite"
    path.write_bytes(files["fp32"].path.read_bytes()[:keep])
    with pytest.raises(ModelFailure, match=r"the file ends after [0-9]+ bytes"):
        load_model(str(path), Options())


def test_a_profile_by_operation_is_refused_with_what_has_one(built):
    files, _, _ = built
    with pytest.raises(ModelFailure, match="no times of operations; --runtime executorch") as caught:
        LiteRtModel(str(files["fp32"].path), Options(threads=1)).operations(1)
    assert caught.value.stage == "run"


def test_a_python_of_a_device_runs_it_without_hwbench(built, tmp_path):
    files, module, example = built
    device = Device("board", "local", runner=sys.executable)
    with open_bench(device, "litert", cache_dir=tmp_path / "cache") as bench:
        assert bench.runner.kind == PYTHON
        assert bench.runner.command[-1].endswith(".pyz")
        output = check_artifact(files["fp32"].path, example.numpy(), bench=bench).output
    with torch.no_grad():
        np.testing.assert_allclose(output, module(example).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "there is no /opt/python3"),
        ({"ai-edge-litert": "2.2.0", "numpy": "2.0"}, r"needs .* ai-edge-litert 2\.3\.0 and numpy, .*-litert 2\.2\.0"),
        ({"ai-edge-litert": "-", "numpy": "2.0"}, r"/opt/python3 -m pip install ai-edge-litert==2\.3\.0 numpy"),
    ],
)
def test_a_python_of_a_device_that_does_not_do(tmp_path, monkeypatch, found, message):
    python = found and BoardPython("/opt/python3", (3, 11), found)
    monkeypatch.setattr(device_runner, "ask_python", lambda *_: python)
    monkeypatch.setattr(device_runner, "engine_version", lambda _: "2.3.0")
    device = Device("board", "local", runner="/opt/python3")
    with pytest.raises(DeviceError, match=message), open_bench(device, "litert", cache_dir=tmp_path / "cache"):
        pass


def test_a_program_of_another_engine_is_refused(tmp_path):
    device = Device("board", "local", runner="/opt/executor_runner")
    with (
        pytest.raises(DeviceError, match="executor_runner' runs no files of litert; name a Python there"),
        open_bench(device, "litert", cache_dir=tmp_path / "cache"),
    ):
        pass


def test_a_module_that_cannot_be_written_is_refused(built, tmp_path):
    class Sorts(nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x)

    with pytest.raises(UnsupportedModule, match="Sorts cannot be written for LiteRT: "):
        get("litert").build(Sorts(), torch.randn(3, 3), BLOCK, tmp_path / "none.tflite", [])
    assert not [*tmp_path.iterdir()]
