import itertools

import pytest

from hwbench.errors import InvalidValue
from hwbench.latency import macs
from hwbench.spaces import load_card
from hwbench.specs import BlockSpec, Precision, TensorSpec, Workload
from hwbench.workspace import Workspace, shipped


@pytest.mark.parametrize(("card", "gmacs"), [("x3d-xs", 0.604), ("x3d-s", 1.962)])
def test_multiply_adds_of_x3d_are_those_that_fvcore_counts_for_its_convolutions(card, gmacs):
    workload = load_card(Workspace(shipped()), card).network().workload(Precision.FP32)
    assert macs(workload) / 1e9 == pytest.approx(gmacs, abs=0.002)


def test_weights_of_x3d_add_up_to_its_parameters():
    network = load_card(Workspace(shipped()), "x3d-xs").network()
    parts = list(network.workload(Precision.FP32).parts())
    found = [c for part in parts for c in part.blocks[0].operations(part.input)]
    gates = sum(c.out_channels for c in found if c.path == "gate")
    # normalisation has two parameters for a channel: after every convolution but the stem's first and the gates, and in
    # the shortcuts where the number of channels changes; the classifier has a bias
    norms = sum(c.out_channels for c in found if c.path == "main") - 24 - 2048 - 400
    norms += sum(c.out_channels for c in found if c.path == "side" and c.out_channels != c.input.c)
    assert sum(c.num_weights for c in found) + gates + 2 * norms + 400 == 3_794_274


def test_shapes_of_a_block_end_where_the_block_ends():
    for key in (
        "x3d_i24_m54_o48_k1x3x3+3x1x1_s2_se8_swish",
        "stem_i24_o24_k1x3x3+5x1x1_s2_relu",
        "conv_i24_o6_k3x3x3_s2_g3_relu",
    ):
        spec = BlockSpec.parse(key)
        x = TensorSpec(2, 24, 3, 7, 9)
        path = [c for c in spec.operations(x) if c.path == "main"]
        assert path[-1].output == spec.output(x)
        assert all(a.output == b.input for a, b in itertools.pairwise(path))
        assert macs(Workload((spec,), x)) == sum(c.macs for c in spec.operations(x))


def test_grouped_convolutions_count_their_groups():
    spec = BlockSpec.parse("conv_i24_o6_k3x3x3_g3_relu")
    (convolution,) = spec.operations(TensorSpec(1, 24, 2, 5, 5))
    assert convolution.num_weights == 6 * 8 * 27
    assert convolution.macs == 2 * 5 * 5 * 6 * 8 * 27


def test_an_unknown_kind_is_said():
    with pytest.raises(InvalidValue, match="did you mean 'stem'"):
        BlockSpec("stemm", 3, 3).operations(TensorSpec(1, 3, 1, 4, 4))
