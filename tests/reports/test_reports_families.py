"""The report of a study of each family."""

import re
from itertools import pairwise

import pytest

from hwbench.latency import table_path
from hwbench.reports import gather, page
from hwbench.spaces.families import families
from hwbench.spaces.loader import load_space
from hwbench.specs import Architecture, Precision
from hwbench.testing.searches import search_by_law
from hwbench.testing.tables import space_table
from hwbench.workspace import Workspace

# Shipped spaces, one of each family that a file can describe, with the number of blocks before the first stage.
SPACES = {
    "e3d-mobile": 1,
    "mvit-mobile": 1,
    "r2plus1d-mobile": 1,
    "slow-mobile": 1,
    "slowfast-mobile": 4,
    "squeeze-mobile": 1,
    "x3d-tiny": 1,
}


@pytest.mark.parametrize("name", SPACES)
def test_a_report_names_every_block_of_the_winner(name, tmp_path, parse):
    workspace = Workspace.create(tmp_path / "work")
    space = with_first_values(workspace, name)
    table = space_table(space, Precision.INT8)
    table.write(table_path(workspace.root, table.target, Precision.INT8))
    search_by_law(workspace, name, 10.0, study="mine", trials=1)
    report = gather(workspace, "mine")
    member = next(space.architectures())
    depths = space.stage_depths(member)
    names = [block.name for block in report.winner.blocks]
    settings, best = report.result.settings, Architecture.parse(report.result.best.architecture)
    winner = space.network(best, settings.num_classes).workload(Precision.INT8)
    stems = ["stem"] if SPACES[name] == 1 else [f"stem.{number}" for number in range(1, SPACES[name] + 1)]
    assert names[: len(stems)] == stems
    assert names[len(stems) : -1] == [f"s{at}.{n}" for at, depth in enumerate(depths, 1) for n in range(1, depth + 1)]
    assert names[-1] == "head"
    shown = parse(page(report))
    assert shown.figure("blocks")["layout"]["yaxis"]["categoryarray"] == names
    stem = report.winner.blocks[len(stems) - 1].output.key
    assert f"stem {stem} s1 " in shown.text
    x, reached = winner.input, {}
    for block, place in zip(winner.blocks, names):
        x = block.output(x)
        reached[place.partition(".")[0]] = x.key
    for place, following in pairwise(reached):
        assert f" {reached[place]} {following} " in shown.text


def test_the_spaces_are_of_all_families_that_a_file_can_describe(tmp_path):
    workspace = Workspace.create(tmp_path / "work")
    assert {load_space(workspace, name).family.name for name in SPACES} == {*families.names()} - {"by-hand"}


def with_first_values(workspace, name):
    """Leaves the space of a workspace the first of each list of values, and three sizes of pictures."""
    path = workspace.root / "search_spaces" / f"{name}.toml"
    text = re.sub(r"(?m)^(\w+) = \[([^],]+),.*\]", r"\1 = [\2]", path.read_text())
    path.write_text(re.sub(r"(?m)^resolution = .*", "resolution = [32, 64, 96]", text))
    space = load_space(workspace, name)
    assert space.size() == 3
    return space
