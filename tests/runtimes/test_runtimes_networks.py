"""Whole networks as files: one delegate, nothing outside, loaded and run. S and M have the blocks of XS.

X3D-XS in int8 is exported in ``tests/lab/test_lab_loop.py``, for the devices of the laboratory. X3D-L in int8 takes
minutes to lower: ``experiments/002-deploy-latency/run.py --models x3d-l``.
"""

import pytest
import torch

from hwbench.data import default_clip
from hwbench.deploy import randomly_weighted
from hwbench.models import deployed, frames_to_batch, x3d_blocks
from hwbench.runtimes.executorch import ExecuTorch
from hwbench.runtimes.runners import check_file
from hwbench.specs import DelegationReport, Network, Precision, TensorSpec

# The number of operations, which lowering takes its time over, depends on neither frames nor size.
INPUT = TensorSpec(1, 3, 4, 64, 64)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["XS", pytest.param("L", marks=pytest.mark.long)])
def test_x3d_is_one_delegate(tmp_path, native, size):
    network = Network(f"x3d-{size}", x3d_blocks(size), INPUT)
    original = randomly_weighted(network, default_clip("synthetic", INPUT.t)).module
    clip = torch.randn(*INPUT.shape, generator=torch.Generator().manual_seed(0))
    folded, example = deployed(original, INPUT), frames_to_batch(clip).contiguous()
    file = ExecuTorch().build(folded, example, network.workload(Precision.FP32), tmp_path / "m.pte", [])
    assert file.delegation == DelegationReport(1)
    got = torch.from_numpy(check_file(file.path, example.numpy(), runner=native).output)
    with torch.no_grad():
        expected = original(clip)
    assert float((got - expected).abs().max()) < 1e-4 * float(expected.abs().max())
