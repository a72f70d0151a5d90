"""Whole networks as files: one delegate, nothing outside, loaded and run. S and M have the blocks of XS.

``make test`` lowers each block of XS once, in their order; ``make test-long`` the networks with all repetitions.

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
NETWORKS = [
    pytest.param(tuple(dict.fromkeys(x3d_blocks("XS"))), id="XS-each-block-once"),
    *(pytest.param(x3d_blocks(size), id=size, marks=pytest.mark.long) for size in ("XS", "L")),
]


@pytest.mark.slow
@pytest.mark.parametrize("blocks", NETWORKS)
def test_x3d_is_one_delegate(tmp_path, native, blocks):
    network = Network("x3d", blocks, INPUT)
    original = randomly_weighted(network, default_clip("synthetic", INPUT.t)).module
    clip = torch.randn(*INPUT.shape, generator=torch.Generator().manual_seed(0))
    folded, example = deployed(original, INPUT), frames_to_batch(clip).contiguous()
    file = ExecuTorch().build(folded, example, network.workload(Precision.FP32), tmp_path / "m.pte", [])
    assert file.delegation == DelegationReport(1)
    got = torch.from_numpy(check_file(file.path, example.numpy(), runner=native).output)
    with torch.no_grad():
        expected = original(clip)
    assert float((got - expected).abs().max()) < 1e-4 * float(expected.abs().max())
