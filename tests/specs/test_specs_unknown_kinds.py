"""Keys of blocks whose kind is not installed: they are read, and printed as they were."""

import pytest

from hwbench.errors import InvalidValue
from hwbench.specs import BlockSpec, TensorSpec, Workload

FOLD = "gone_i8_o8_k1x3x3_s2_fold8_shift1x2_relu"


@pytest.mark.parametrize(
    "key",
    [
        FOLD,
        "gone_i8_o8_k1x3x3_relu",
        "2:gone_i8_o8_k1x3x3_fold8_relu",
        "gone_i8_o8_kglobal_tk3x1x1+1x1x1_poolglobal_n7.a-b_relu",
        "gone_i8_m16_o24_k1x3x3_se8_ts2_ca1_swish",
    ],
)
def test_the_key_of_a_kind_that_is_not_installed_is_printed_as_it_was(key):
    block = BlockSpec.parse(key)
    assert block.key == key
    assert block == BlockSpec.parse(key)
    assert len({block, BlockSpec.parse(key), BlockSpec.parse(FOLD)}) == 1 + (key != FOLD)


def test_fields_of_its_own_tell_blocks_apart_and_its_shapes_follow_the_common_rules():
    block = BlockSpec.parse(FOLD)
    assert block != BlockSpec.parse(FOLD.replace("fold8", "fold4"))
    assert block.output(TensorSpec(1, 8, 4, 16, 16)).key == "1x8x4x8x8"
    workload = Workload.parse(f"{FOLD}>{FOLD}@1x8x4x16x16/int8/auto")
    assert [part.blocks[0] for part in workload.parts()] == [block, block]
    assert block.get("fold") is None


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("x3d_i8_m16_o8_k1x3x3_fold8_relu", "cannot read 'fold8'"),
        ("gone_i8_o8_k1x3x3_fold_relu", "cannot read 'fold'"),
        ("gone_i8_o8_k1x3x3_fold8_fold8_relu", "cannot read 'fold8'"),
        ("gone_i8_o8_fold8_k1x3x3_relu", "not in canonical form; write 'gone_i8_o8_k1x3x3_fold8_relu'"),
        ("gone_i8_k1x3x3_fold8_relu", "lacks out_channels"),
    ],
)
def test_what_is_no_key_is_still_refused(key, message):
    with pytest.raises(InvalidValue, match=message):
        BlockSpec.parse(key)


def test_a_kind_that_is_not_installed_takes_no_further_values():
    with pytest.raises(InvalidValue, match="kind 'gone' has no field 'fold'"):
        BlockSpec.of("gone", in_channels=8, out_channels=8, fold=8)
