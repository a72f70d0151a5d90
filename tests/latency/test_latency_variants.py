from dataclasses import replace

import pytest

from hwbench.latency import LatencyTable, Role, fastest_variant, has_variants, variant_rows
from hwbench.models import x3d_blocks
from hwbench.specs import AUTO, Precision, TensorSpec, Workload

NETWORK = Workload(x3d_blocks("XS"), TensorSpec(1, 3, 4, 64, 64), Precision.INT8)
PARTS = [*NETWORK.parts()]


def table(device, target, factors, left_out=()):
    """Rows of all blocks, where a variant costs a factor."""
    rows = [device.row(part, Role.BLOCK) for part in dict.fromkeys(PARTS)]
    for row in [row for row in rows if has_variants(row.workload)]:
        for variant, factor in factors.items():
            workload = replace(row.workload, variant=variant)
            if workload not in left_out:
                stats = row.stats
                scaled = replace(stats, **{n: factor * getattr(stats, n) for n in ("median_s", "p10_s", "p90_s")})
                rows.append(replace(row, workload=workload, stats=scaled))
    return LatencyTable(target, Precision.INT8, rows)


def test_only_kernels_over_time_and_space_have_variants():
    assert [part.blocks[0].kind for part in PARTS if has_variants(part)] == ["x3d"] * (len(PARTS) - 2)
    assert not has_variants(Workload.parse("x3d_i8_m16_o8_k1x3x3+3x1x1_relu@1x8x4x9x7/fp32/auto"))
    assert not has_variants(Workload.parse("x3d_i8_m16_o8_k3x3x3_relu@1x8x1x9x7/fp32/auto"))
    wanted = variant_rows(PARTS, ["one-hot", "segments"])
    assert {row.variant for row in wanted} == {"one-hot", "segments"}
    assert len(wanted) == 2 * (len(PARTS) - 2)


def test_the_fastest_is_taken(device, target):
    choice = fastest_variant(table(device, target, {"one-hot": 1.1, "segments": 0.9}), NETWORK)
    assert (choice.variant, choice.measured) == ("segments", True)
    assert sorted(choice.seconds, key=choice.seconds.get) == ["segments", AUTO, "one-hot"]
    assert choice.seconds["segments"] == pytest.approx(0.9 * choice.seconds[AUTO])


def test_the_built_in_choice_stays_where_nothing_is_faster_or_rows_are_missing(device, target):
    assert fastest_variant(table(device, target, {"shift-add": 1.0}), NETWORK).variant == AUTO
    missing = [replace(part, variant="segments") for part in PARTS[1:2]]
    choice = fastest_variant(table(device, target, {"segments": 0.5}, missing), NETWORK)
    assert (choice.variant, choice.measured) == (AUTO, False)
    assert fastest_variant(LatencyTable(target, Precision.INT8, []), NETWORK).seconds == {}
