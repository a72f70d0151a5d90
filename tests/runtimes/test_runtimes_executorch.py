"""ExecuTorch from modules to files that run; one lowering costs seconds, so files are made once."""

import hashlib
import importlib.metadata
import logging
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

from hwbench.deploy import deploy_graph
from hwbench.errors import (
    DelegationFailed,
    InvalidValue,
    MissingDependency,
    NotCalibrated,
    UnknownName,
    WorkspaceError,
)
from hwbench.interpreter import python_environment
from hwbench.models import frames_to_batch
from hwbench.runtimes import get, names
from hwbench.runtimes.executorch import ExecuTorch
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.runners import check_file
from hwbench.specs import DelegationReport, Precision, Workload

FP32 = Workload.parse("x3d_i8_m16_o8_k1x3x3_se8_swish@1x8x4x9x7/fp32/auto")
INT8 = Workload(FP32.blocks, FP32.input, Precision.INT8)
SHAPE = FP32.input.folded


class Gated(nn.Module):
    """Convolution, norm, activation, depthwise, squeeze-excite over one frame, swish, pointwise, residual."""

    def __init__(self):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.reduce, self.grow = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 16, 1)
        self.project = nn.Conv2d(16, 8, 1)

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        gate = self.grow(self.reduce(y.mean((-2, -1), keepdim=True)).relu()).sigmoid()
        y = y * gate
        y = y * y.sigmoid()
        return self.project(y) + x


class MeanOverAll(nn.Module):
    """A mean that XNNPACK does not take."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 1)

    def forward(self, x):
        return self.conv(x).mean((0, 2, 3))


def seeded(kind, *args):
    torch.manual_seed(0)
    module = kind(*args)
    for norm in (m for m in module.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.running_mean, -0.5, 0.5)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    return module.eval()


def noise(seed, shape=SHAPE):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sqnr_db(expected, got):
    """Signal to quantisation noise."""
    return 10 * torch.log10(expected.square().sum() / (expected - got).square().sum()).item()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pte")


@pytest.fixture(scope="module")
def fp32(folder):
    return ExecuTorch().build(seeded(Gated), noise(0), FP32, folder / "fp32.pte", [])


@pytest.fixture(scope="module")
def int8(folder):
    return ExecuTorch().build(seeded(Gated), noise(0), INT8, folder / "int8.pte", [noise(s) for s in range(1, 5)])


def test_the_runtime_is_found_by_name_and_says_its_version():
    assert names() == ("executorch", "torch") or set(names()) >= {"executorch", "torch"}
    runtime = get("executorch")
    assert isinstance(runtime, ExecuTorch)
    assert (runtime.name, runtime.capabilities.suffix) == ("executorch", ".pte")
    assert runtime.version() == importlib.metadata.version("executorch")
    with pytest.raises(UnknownName, match="did you mean 'executorch'"):
        get("executorh")


def test_neither_torch_nor_an_engine_is_loaded_before_a_runtime_is_asked_for():
    code = (
        "import sys, hwbench.runtimes as r; r.names(); import hwbench.runtimes.runners;"
        "assert not {'torch', 'executorch', 'torchao'} & set(sys.modules);"
        "r.get('executorch').version(); assert not {'executorch', 'torchao'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fp32_is_one_delegate_and_computes_the_module(fp32, native):
    assert fp32.delegation == DelegationReport(1)
    assert (fp32.workload, fp32.runtime, fp32.version) == (FP32, "executorch", ExecuTorch().version())
    assert fp32.sha256 == hashlib.sha256(fp32.path.read_bytes()).hexdigest()
    x = noise(9)
    got = torch.from_numpy(check_file(fp32.path, x.numpy(), runner=native).output)
    torch.testing.assert_close(got, seeded(Gated)(x).detach(), rtol=1e-4, atol=1e-4)


def test_int8_is_one_delegate_with_fp32_values_in_and_out(int8, fp32, native):
    assert int8.delegation == DelegationReport(1)
    x = noise(9)
    got = torch.from_numpy(check_file(int8.path, x.numpy(), runner=native).output)
    expected = seeded(Gated)(x).detach()
    assert 20 < sqnr_db(expected, got) < 70  # above that nothing was quantised
    assert int8.path.read_bytes() != fp32.path.read_bytes()


class OneHead(nn.Module):
    """Attention of one head over tokens: its heads, an axis of one, are moved from int8 into fp32."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 4, 1)
        self.attention = nn.MultiheadAttention(4, 1, batch_first=True)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        tokens = self.conv(x).flatten(2).transpose(1, 2)
        return self.head(self.attention(tokens, tokens, tokens, need_weights=False)[0].mean(1))


def test_attention_of_one_head_in_int8_is_a_file_that_loads(folder, native):
    model, clips = seeded(OneHead), [noise(seed, (1, 3, 2, 4, 4)) for seed in range(3)]
    frames = [frames_to_batch(clip).contiguous() for clip in clips]
    artifact = ExecuTorch().build(deploy_graph(model, clips[0]), frames[0], INT8, folder / "one_head.pte", frames)
    got = torch.from_numpy(check_file(artifact.path, frames[0].numpy(), runner=native).output)
    assert artifact.delegation == DelegationReport(1)
    assert 30 < sqnr_db(model(clips[0]).detach(), got) < 70


def test_the_same_gives_the_same_bytes_and_leaves_the_module_and_the_input_alone(fp32, folder):
    module, x = seeded(Gated).train(), noise(0)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    # The same values in another order in memory, as a folded clip has them.
    strided = x.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3)
    again = ExecuTorch().build(module, strided, FP32, folder / "again.pte", [])
    assert again.sha256 == fp32.sha256
    assert all(m.training for m in module.modules())
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_an_operation_outside_the_delegate_is_named_and_no_file_written(folder):
    with pytest.raises(DelegationFailed, match=r"1 x aten\.mean\.dim .*1 delegate"):
        ExecuTorch().build(seeded(MeanOverAll), noise(0), FP32, folder / "mean.pte", [])
    assert not (folder / "mean.pte").exists()


def test_a_module_without_an_operation_is_refused(folder):
    with pytest.raises(DelegationFailed, match="0 delegates"):
        ExecuTorch().build(nn.Identity(), noise(0), FP32, folder / "nothing.pte", [])


def test_int8_needs_calibration_data_of_the_right_shape(folder):
    out = folder / "uncalibrated.pte"
    with pytest.raises(NotCalibrated, match="got none"):
        ExecuTorch().build(seeded(Gated), noise(0), INT8, out, [])
    with pytest.raises(InvalidValue, match=r"\(4, 8, 9, 7\), got \(2, 8, 9, 7\)"):
        ExecuTorch().build(seeded(Gated), noise(0), INT8, out, [noise(1), noise(1, (2, 8, 9, 7))])
    with pytest.raises(NotCalibrated, match="NaN"):
        ExecuTorch().build(seeded(Gated), noise(0), INT8, out, [torch.full(SHAPE, torch.nan)])
    assert not out.exists()


def test_an_observer_that_saw_nothing_is_not_calibrated():
    from torchao.quantization.pt2e.observer import HistogramObserver, MinMaxObserver

    from hwbench.runtimes.calibration import require_observed

    seen = MinMaxObserver()
    seen(torch.linspace(-1, 1, 5))
    require_observed(nn.ModuleDict({"seen": seen}))
    for unseen in (MinMaxObserver(), HistogramObserver()):
        with pytest.raises(NotCalibrated, match="the range of never is not known"):
            require_observed(nn.ModuleDict({"seen": seen, "never": unseen}))


def test_a_file_that_cannot_be_written_is_a_workspace_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="a part of the path is a file"):
        ExecuTorch().build(nn.Conv2d(8, 8, 1).eval(), noise(0), FP32, tmp_path / "file" / "x.pte", [])


def test_a_missing_engine_is_told_with_the_command_that_installs_it(monkeypatch, tmp_path):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(MissingDependency, match="pip install executorch"):
        ExecuTorch().build(nn.Identity(), noise(0), FP32, tmp_path / "x.pte", [])


def test_quiet_is_local():
    logger = logging.getLogger("executorch")
    before, filters = logger.level, list(warnings.filters)
    with quiet():
        warnings.warn("not heard", UserWarning, stacklevel=1)
        assert not logger.isEnabledFor(logging.WARNING)
    assert logger.level == before
    assert warnings.filters == filters


# A program that sets up its log after the first build.
LOGGING = """
import logging, sys
from pathlib import Path

import torch

from hwbench.runtimes.executorch import ExecuTorch
from hwbench.specs import Workload

logging.getLogger().setLevel(logging.INFO)
workload = Workload.parse("x3d_i8_m16_o8_k1x3x3_se8_swish@1x8x4x9x7/fp32/auto")
ExecuTorch().build(torch.nn.Conv2d(8, 8, 1), torch.zeros(workload.input.folded), workload, Path("model.pte"), [])
assert "executorch.backends.xnnpack.partition.xnnpack_partitioner" in sys.modules
assert (logging.root.handlers, logging.root.level) == ([], logging.INFO)
logging.basicConfig(filename="app.log", level=logging.DEBUG)
logging.getLogger("app").debug("service started")
"""


def test_a_program_can_set_up_its_log_after_a_build(tmp_path):
    subprocess.run([sys.executable, "-c", LOGGING], check=True, cwd=tmp_path, env=python_environment({}))
    assert (tmp_path / "app.log").read_text() == "DEBUG:app:service started\n"
