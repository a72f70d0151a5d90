"""What TorchScript has beyond the suite of all runtimes."""

import sys
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from hwbench.blocks import frames_to_batch
from hwbench.blocks.graph import deploy_graph
from hwbench.errors import UnsupportedModule
from hwbench.models import workload_module
from hwbench.runtimes import ModuleForm, get, torchscript
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, load_model
from hwbench.runtimes.script_model import ScriptModel, read_note
from hwbench.runtimes.torchscript import TorchScript, engine_of, fuse
from hwbench.specs import Workload

BLOCK = "x3d_i4_m12_o4_k3x3x3_relu@1x4x3x6x5"


def test_auto_in_fp32_is_the_plain_network_and_all_else_the_deploy_form():
    forms = {
        key: TorchScript.capabilities.form(Workload.parse(f"{BLOCK}/{key}"))
        for key in ("fp32/auto", "fp32/shift-add", "int8/auto")
    }
    assert forms == {
        "fp32/auto": ModuleForm.ORIGINAL,
        "fp32/shift-add": ModuleForm.DEPLOY,
        "int8/auto": ModuleForm.DEPLOY,
    }


@pytest.mark.parametrize("variant", ["shift-add", "per-frame"])
def test_layouts_are_run_as_they_are(tmp_path, variant):
    workload = Workload.parse(f"{BLOCK}/fp32/{variant}")
    torch.manual_seed(0)
    module, example = workload_module(workload)
    made = get("torchscript").build(module, example, workload, tmp_path / "model.ts", [])
    model = load_model(str(made.path), Options())
    model.feed(example.numpy())
    model.run()
    with torch.no_grad():
        np.testing.assert_allclose(model.output(), module(example).numpy(), rtol=1e-5, atol=1e-6)
    with zipfile.ZipFile(made.path) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".debug_pkl")]
    assert read_note(str(made.path)) == {"input": list(example.shape), "engine": ""}


def test_int8_says_which_kernels_it_needs_and_leaves_those_that_are_set(tmp_path, monkeypatch):
    before = torch.backends.quantized.engine
    workload = Workload.parse(f"{BLOCK}/int8/auto")
    module, example = workload_module(workload)
    made = TorchScript().build(module, example, workload, tmp_path / "model.ts", [torch.randn_like(example)])
    assert torch.backends.quantized.engine == before
    engine = read_note(str(made.path))["engine"]
    assert engine == engine_of(torch.backends.quantized.supported_engines)
    monkeypatch.setattr(torchscript, "_ENGINES", {"x86_64": ("none",), "aarch64": ("none",)})
    with pytest.raises(UnsupportedModule, match=r"no int8 kernels.*--runtime executorch"):
        TorchScript().build(module, example, workload, tmp_path / "other.ts", [example])


class Shortcut(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv3d(3, 4, 3, padding=1), nn.Conv3d(4, 4, (3, 1, 1), padding=(1, 0, 0))
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.first(x)
        x = x + self.second(torch.relu(x))
        return self.head((x * torch.sigmoid(x)).mean((2, 3, 4)))


class Weighed(Shortcut):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(4, 1, 1, 1))

    def forward(self, x):
        return self.head((self.first(x) * self.scale).mean((2, 3, 4)))


def _in_int8(module, folder):
    clip = torch.randn(1, 3, 4, 8, 8)
    form = deploy_graph(module.eval(), clip)
    frames = frames_to_batch(clip)
    made = TorchScript().build(form, frames, Workload.parse(f"{BLOCK}/int8/auto"), folder / "model.ts", [frames])
    model = load_model(str(made.path), Options())
    model.feed(frames.numpy())
    model.run()
    with torch.no_grad():
        return model.output(), module(clip).numpy()


def test_sums_and_products_of_any_network_are_observed(tmp_path):
    torch.manual_seed(0)
    made, expected = _in_int8(Shortcut(), tmp_path)
    assert np.abs(made - expected).max() < 0.1 * np.abs(expected).max()


def test_an_operation_without_a_kernel_is_refused_by_name(tmp_path):
    with pytest.raises(UnsupportedModule, match=r"no kernel for .*choose another engine: --runtime executorch") as told:
        _in_int8(Weighed(), tmp_path)
    assert len(str(told.value)) < 320


class PlainMean(nn.Module):
    """Normalises by a tensor that is no buffer, which stays in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.mean = torch.full((1, 3, 1, 1), 0.45)

    def forward(self, x):
        return self.conv(x - self.mean).mean((2, 3))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_tensor_that_stays_in_fp32_is_refused_with_what_to_write(precision, tmp_path):
    workload = Workload.parse(f"conv_i3_o4_k1x3x3_relu@1x3x2x6x6/{precision}/auto")
    module, example = PlainMean().eval(), torch.randn(2, 3, 6, 6)
    with pytest.raises(UnsupportedModule, match=rf"stay in fp32 .* cannot be in {precision}; .*register_buffer"):
        get("torchscript").build(module, example, workload, tmp_path / "model.ts", [])
    fp32 = Workload.parse(workload.key.replace(precision, "fp32"))
    assert get("torchscript").build(module, example, fp32, tmp_path / "model.ts", []).path.is_file()
    del module.mean
    module.register_buffer("mean", torch.full((1, 3, 1, 1), 0.45))
    assert get("torchscript").build(module, example, workload, tmp_path / "model.ts", []).path.is_file()


def test_a_torch_without_the_flow_of_2021_is_told(tmp_path, monkeypatch):
    workload = Workload.parse(f"{BLOCK}/int8/auto")
    module, example = workload_module(workload)
    monkeypatch.setitem(sys.modules, "torch.ao.quantization", None)
    with pytest.raises(UnsupportedModule, match=r"no eager-mode quantisation.*--runtime executorch"):
        TorchScript().build(module, example, workload, tmp_path / "x.ts", [example])


@pytest.mark.filterwarnings("ignore")  # torch announces the end of TorchScript
def test_a_foreign_archive_is_refused(tmp_path):
    torch.jit.save(torch.jit.trace(nn.ReLU(), torch.ones(1)), tmp_path / "foreign.ts")
    with pytest.raises(ModelFailure, match="does not say the shape of its input"):
        ScriptModel(str(tmp_path / "foreign.ts"), Options())


@pytest.mark.filterwarnings("ignore")  # torch announces the end of eager-mode quantisation
def test_only_what_stands_together_alone_is_fused():
    shared = nn.ReLU()
    module = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(1, 1, 1), shared),
        nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sigmoid()),
        shared,
    ).eval()
    fuse(module)
    assert [type(part[0]).__name__ for part in module[:3]] == ["ConvReLU2d", "Conv2d", "Conv2d"]
    assert isinstance(module[0][1], nn.Identity)
