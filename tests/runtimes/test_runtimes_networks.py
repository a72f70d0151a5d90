"""Whole networks as files: one delegate, nothing outside, loaded and run. S and M have the blocks of XS.

X3D-L in int8 takes minutes to lower: ``experiments/002-deploy-latency/run.py --models x3d-l``.
"""

import pytest
import torch

from hwbench.data import default_clip
from hwbench.deploy import randomly_weighted
from hwbench.models import deployed, fold, x3d_blocks
from hwbench.runtimes.executorch import ExecuTorch
from hwbench.runtimes.runners import check_file
from hwbench.specs import DelegationReport, Network, Precision, TensorSpec

# The number of operations, which lowering takes its time over, depends on neither frames nor size.
INPUT = TensorSpec(1, 3, 4, 64, 64)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "precision"), [("XS", Precision.FP32), ("XS", Precision.INT8), ("L", Precision.FP32)])
def test_x3d_is_one_delegate(tmp_path, native, size, precision):
    network = Network(f"x3d-{size}", x3d_blocks(size), INPUT)
    original = randomly_weighted(network, default_clip("synthetic", INPUT.t)).module
    clips = torch.randn(5, *INPUT.shape[1:], generator=torch.Generator().manual_seed(0))
    calibration = [fold(clip[None]).contiguous() for clip in clips[1:]] if precision is Precision.INT8 else []
    folded = deployed(original, INPUT)
    file = ExecuTorch().build(
        folded, fold(clips[:1]).contiguous(), network.workload(precision), tmp_path / "m.pte", calibration
    )
    assert file.delegation == DelegationReport(1)
    got = torch.from_numpy(check_file(file.path, fold(clips[:1]).contiguous().numpy(), runner=native).output)
    with torch.no_grad():
        expected = original(clips[:1])
    limit = 1e-4 if precision is Precision.FP32 else 0.5
    assert float((got - expected).abs().max()) < limit * float(expected.abs().max())
