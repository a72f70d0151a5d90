import pytest

from hwbench.specs import BlockSpec, block_kinds
from hwbench.testing.kinds import BlockKindConformance

KEYS = (
    "stem_i3_o8_k1x3x3+5x1x1_s2_relu",
    "x3d_i4_m10_o6_k3x3x3_s2_se8_swish",
    "x3d_i4_m10_o4_k1x3x3+3x1x1_relu",
    "x3d_i4_m1_o4_k1x3x3_identity",
    "x3d_i4_m10_o6_k1x5x5_s2_swish",
    "x3d_i4_m10_o4_k3x3x3_se8_ts2_swish",
    "x3d_i4_m10_o6_k1x3x3_s2_ts3_relu",
    "stem_i3_o8_k1x3x3_s2_relu",
    "x3d_i4_m10_o4_k3x3x3_fs1_relu",
    "x3d_i4_m10_o4_k1x5x5_s2_fs1_relu",
    "x3d_i4_m10_o6_k3x3x3_s2_fs1_relu",
    "head_i4_m8_d16_o5_kglobal_relu",
    "head_i4_m8_d16_o5_kglobal_hb1_swish",
    "conv_i4_o6_k1x1x1_swish",
    "conv_i4_o6_k1x5x5_s2_g2_hswish",
    "conv_i4_o6_k5x1x1_g2_relu",
    "conv_i4_o4_k3x3x3_s2_g4_identity",
    "se_i4_o4_k1x1x1_se1_relu",
    "pool_i4_o4_kglobal_relu",
    "resnet-stem_i3_o8_k1x7x7_s2_relu",
    "r2plus1d_i8_m4_o16_k3x1x1+1x3x3_s2_relu",
    "r2plus1d_i16_m8_o32_k3x1x1+1x3x3_s2_ts2_swish",
    "resnet-stem_i3_o8_k5x7x7_s2_p2_relu",
    "bottleneck_i8_m4_o16_k3x1x1+1x3x3_s2_ts2_relu",
    "bottleneck_i16_m8_o16_k1x1x1+3x3x3_g8_hswish",
    "bottleneck_i8_m4_o8_k1x1x1+3x3x3_g2_ts2_relu",
    "frame-pool_i4_o4_k1x1x1_ts2_identity",
    "pool-head_i32_o5_kglobal_identity",
    "squeeze-stem_i3_o8_k1x5x5_s2_p2_relu",
    "squeeze-stem_i3_o8_k1x3x3_hswish",
    "channel-time_i8_m4_o16_k1x3x3+1x7x7_s2_ic3_ps5_relu",
    "channel-time_i8_m8_o8_k1x1x1+1x3x3_swish",
    "token-stem_i3_o8_k3x7x7_s4_ts2_pf2_ps3_identity",
    "token-stem_i3_o8_k1x3x3_s2_identity",
    "multiscale_i8_m8_d16_o12_k3x3x3_s2_nh2_kv2_gelu",
    "multiscale_i8_m12_d24_o12_k3x3x3_nh3_rq1_rf2_rs5_relu",
    "multiscale_i8_m8_d8_o8_k1x1x1_hswish",
    "token-head_i16_o5_kglobal_identity",
)


class TestShippedKinds(BlockKindConformance):
    @pytest.fixture(params=KEYS)
    def block(self, request):
        return BlockSpec.parse(request.param)


# Parts of a model by hand, whose module is the user's, and kinds of two pathways: the suite is for one clip and one
# module. ``tests/models/test_models_by_hand.py``, ``test_models_pathways.py`` and ``test_models_mvit.py`` have theirs.
OTHERS = {
    *("hand", "hand-stem", "hand-head", "hand-network", "pathway-split", "pathway-fuse", "pathway-head"),
    *("class-token-stem", "class-multiscale", "class-token-head"),
}


def test_every_shipped_kind_is_among_them():
    assert {BlockSpec.parse(key).kind for key in KEYS} | OTHERS == set(block_kinds.names())
