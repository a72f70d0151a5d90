"""A space of two pathways is profiled as it is typed: every block on the pathway it works on, and those on both."""

import json
from dataclasses import replace

import pytest

from hwbench.cli.main import main
from hwbench.latency import LatencyTable
from hwbench.measure import judge, quality
from hwbench.measure.bench import Bench
from hwbench.spaces.axes import Axis, counts
from hwbench.spaces.family import Ends, Family, families
from hwbench.specs import BlockSpec, Workload

SPACE = """
schema = 1
name = "micro-pair"
family = "micro-pair"
description = "slow and fast"
[input]
frames = 4
resolution = 16
[[stages]]
width = [8, 12]
"""
CONV = BlockSpec("resnet-stem", 3, 4, kernel=((1, 3, 3),), stride=2)


class PairEnds(Ends):
    def stem(self):
        return BlockSpec.of("pathway-split", in_channels=3, out_channels=3, alpha=2, activation="identity")

    def before(self):
        return (self.stem(), replace(CONV, pathway=1), replace(CONV, pathway=2, out_channels=2))

    def head(self, last, x, num_classes):
        slow, fast = x.pathways
        widths = {"in_channels": slow.c, "out_channels": num_classes, "fast_channels": fast.c}
        return BlockSpec.of("pathway-head", kernel=(), activation="identity", **widths)

    def parts(self):
        return {"stem": "pair"}


class MicroPair(Family):
    name = "micro-pair"
    axes = (Axis("width", counts),)

    def ends(self, fields):
        return PairEnds()

    def card(self, fields):
        raise NotImplementedError

    def stage(self, choice, x):
        slow, fast = x.pathways
        width = choice["width"]
        layer = BlockSpec("r2plus1d", slow.c, width, 4, kernel=((3, 1, 1), (1, 3, 3)), pathway=1)
        values = {"in_channels": width, "out_channels": width + 4, "fast_channels": fast.c}
        return (layer, BlockSpec.of("pathway-fuse", kernel=((5, 1, 1),), alpha=2, **values))


@pytest.mark.long
def test_a_space_of_two_pathways_is_profiled(workspace, runner_cache, monkeypatch, capfd):
    workspace.cache.symlink_to(runner_cache)
    (workspace.root / "search_spaces" / "micro-pair.toml").write_text(SPACE)
    monkeypatch.setitem(families._items, "micro-pair", MicroPair())
    monkeypatch.setattr(quality, "NOISY_RATIO", 1e9)
    monkeypatch.setattr(judge, "doubt", lambda *_: "")
    options = Bench.options
    monkeypatch.setattr(Bench, "options", lambda *args, **rest: options(*args, **rest, probe=False))
    arguments = ("profile", "--space", "micro-pair", "--precision", "fp32", "--calibrate", "2", "--no-aa", "--json")
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert not end.value.code
    out, err = capfd.readouterr()
    profiled = json.loads(out)
    assert profiled["failed"] == 0, err
    table = LatencyTable.read(workspace.root / profiled["table"])
    for key in (
        "pathway-split_i3_o3_k1x1x1_al2_identity@1x3x4x16x16",
        "resnet-stem_i3_o2_k1x3x3_s2_relu@1x3x4x16x16",
        "r2plus1d_i4_m4_o8_k3x1x1+1x3x3_relu@1x4x2x8x8",
        "pathway-fuse_i8_o12_k5x1x1_al2_fc2_relu@1x8x2x8x8+1x2x4x8x8",
        "pathway-head_i16_o8_kglobal_fc2_identity@1x16x2x8x8+1x2x4x8x8",
    ):
        assert table.latency(Workload.parse(f"{key}/fp32/auto")).median_s > 0
