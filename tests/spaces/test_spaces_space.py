import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest

from hwbench.errors import InvalidFile, InvalidValue
from hwbench.spaces import StagedSpace, load_card, read_space
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, BlockSpec, Precision
from hwbench.specs.widths import round_width
from hwbench.workspace import Workspace, shipped

SPACES = sorted((shipped() / "search_spaces").glob("*.toml"))

SMALL = """
schema = 1
name = "small"
description = "for tests"
[input]
frames = [2, 4]
resolution = 33
[stem]
width = 8
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
depth = [1, 4]
width = [8, 12]
expansion = 1.5
kernel = ["3x3x3", "1x3x3"]
se = [0, 0.25]
act = "swish"
stride = 2
[[stages]]
depth = [2]
width = [16]
expansion = [1.0, 2.25]
kernel = "1x3x3+3x1x1"
se = 0
act = ["relu", "hswish"]
stride = 1
[head]
hidden = 32
act = "relu"
"""


@pytest.fixture
def small(tmp_path: Path) -> StagedSpace:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return read_space(path)


@pytest.fixture(params=SPACES, ids=lambda p: p.stem)
def space(request) -> StagedSpace:
    return read_space(request.param)


def x3d(frames: int, resolution: int) -> dict[str, str]:
    fixed = {"expansion": "2.25", "kernel": "3x3x3", "se": "0.0625", "act": "swish"}
    choices = {"frames": str(frames), "resolution": str(resolution)}
    for number, (depth, width) in enumerate(zip((3, 5, 11, 7), (24, 48, 96, 192)), start=1):
        choices |= {f"s{number}.{k}": str(v) for k, v in ({"depth": depth, "width": width} | fixed).items()}
    return choices


@pytest.mark.parametrize(("card", "frames", "resolution"), [("x3d-xs", 4, 160), ("x3d-s", 13, 160), ("x3d-m", 16, 224)])
def test_x3d_is_a_member_of_the_mobile_space_block_by_block(card, frames, resolution):
    space = read_space(shipped() / "search_spaces" / "x3d-mobile.toml")
    network = space.network(space.of_params(x3d(frames, resolution)), 400)
    stem, *body, head = network.blocks
    assert network.input.shape == (1, 3, frames, resolution, resolution)
    assert stem.key == "stem_i3_o24_k1x3x3+5x1x1_s2_relu"
    assert head.key == "head_i192_m432_d2048_o400_kglobal_relu"
    table = [  # X3D, table 3: depth, width, inner width, reduced channels of squeeze-excite
        (3, 24, 54, 8),
        (5, 48, 108, 8),
        (11, 96, 216, 16),
        (7, 192, 432, 32),
    ]
    expected, width = [], 24
    for depth, out, mid, se in table:
        for index in range(depth):
            expected.append(
                BlockSpec("x3d", width, out, mid, kernel=((3, 3, 3),), stride=1 if index else 2,
                          se_channels=0 if index % 2 else se, activation="swish")
            )  # fmt: skip
            width = out
    assert body == expected
    assert load_card(Workspace(shipped()), card).network(400).blocks == network.blocks
    assert load_card(Workspace(shipped()), card).network(400).input == network.input


def test_round_width_is_that_of_the_field():
    assert [round_width(m, 0.0625) for m in (54, 108, 216, 432)] == [8, 8, 16, 32]
    assert [round_width(12, 2.0), round_width(3, 1.0), round_width(100, 1.0)] == [24, 8, 104]


def test_every_shipped_space_is_consistent(space):
    rng = np.random.default_rng(0)
    for _ in range(20):
        architecture = space.random(rng)
        space.validate(architecture)
        assert Architecture.parse(architecture.key) == architecture
        assert space.sample(optuna.trial.FixedTrial(dict(architecture.choices))) == architecture
        assert space.of_params(dict(reversed(architecture.choices))) == architecture
        assert space.member(space.cell(architecture), space.step_choices(architecture)) == architecture
        network = space.network(architecture, 8)
        assert network.name == architecture.key
        assert network.num_classes == 8
        assert network.workload(Precision.INT8).output.shape == (1, 8, 1, 1, 1)


def test_parts_are_exactly_the_blocks_of_all_members(small):
    parts = list(small.parts(Precision.FP32, num_classes=5))
    members = {p for a in small.architectures() for p in small.network(a, 5).workload(Precision.FP32).parts()}
    assert len(parts) == len(set(parts))
    assert set(parts) == members
    assert parts == list(small.parts(Precision.FP32, num_classes=5))


def test_size_counts_different_members_with_different_networks(small):
    everything = list(small.architectures())
    assert small.size() == len(everything) == len(set(everything)) == 2 * 2 * 2 * 2 * 2 * 2 * 2
    assert len({small.network(a, 5).workload(Precision.FP32).key for a in everything}) == len(everything)


def test_what_reaches_a_stage_is_what_the_networks_hand_on(small):
    sums = SpaceSums.of(small, lambda block, x: 1.0, num_classes=5)
    reached = [set() for _ in small.stages]
    for architecture in small.architectures():
        network, depths = small.network(architecture, 5), small.stage_depths(architecture)
        assert depths == tuple(choice["depth"] for choice in small.step_choices(architecture))
        inputs = [part.input for part in network.workload(Precision.FP32).parts()]
        for number, start in enumerate(itertools.accumulate((1, *depths[:-1]))):
            reached[number].add(inputs[start])
    for number, inputs in enumerate(reached):
        assert inputs == {x for cell in sums.cells for x in cell.stages[number].inputs}


def test_the_tiny_space_is_small_enough_to_profile_in_minutes():
    space = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
    assert 24 <= len(list(space.parts(Precision.INT8, num_classes=8))) <= 34
    assert all(part.blocks[0].mid_channels % 8 == 0 for part in space.parts(Precision.INT8))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("other:frames=2", "expected a member of space 'small'"),
        ("small:frames=3", "frames cannot be '3'; nearest: 2"),
        ("small:frames=2,resolution=33,s1.dept=1", "did you mean 's1.depth'"),
        ("small:frames=2,resolution=33", "no choice for s1.depth"),
    ],
)
def test_a_stranger_is_told_the_nearest(small, key, said):
    with pytest.raises(InvalidValue, match=said):
        small.network(Architecture.parse(key), 5)


def test_choices_out_of_order_are_refused(small):
    first = next(small.architectures())
    swapped = Architecture(first.space, (first.choices[1], first.choices[0], *first.choices[2:]))
    with pytest.raises(InvalidValue, match="in the order"):
        small.validate(swapped)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("depth = [2]", "dept = [2]", "stages 2.depth' is missing"),
        ("stride = 1", "stride = 1\nstirde = 2", "did you mean 'stride'"),
        ('act = ["relu", "hswish"]', 'act = ["relu", "tanh"]', "expected one of relu, swish"),
        ('kernel = "1x3x3+3x1x1"', 'kernel = "1x2x2"', "expected a kernel"),
        ('kernel = "1x3x3+5x1x1"', 'kernel = "3x3x3"', "stem.kernel: expected 1x3x3.5x1x1"),
        ("width = [16]", "width = [0]", "at least 1"),
        ("width = [16]", "width = []", "one or more different"),
        ("expansion = 1.5", "expansion = [1.5, 1.5000001]", r"expansion: expected values that differ .*'1\.5'\]"),
        ("se = [0, 0.25]", "se = [0.25, 0.2500001]", r"stages 1\.se: expected values that differ as keys write them"),
        ('kernel = ["3x3x3", "1x3x3"]', 'kernel = ["3x3x3", "03x3x3"]', "differ as keys .*'3x3x3', '3x3x3'"),
        ("frames = [2, 4]", "frames = 2\nspan_s = [0.5, 0.5000001]", r"input\.span_s: expected values that differ"),
        ("expansion = 1.5", "expansion = 0.01", "at least one channel inside"),
        ("se = [0, 0.25]", "se = [0, 4]", "ratios from 0"),
        ("hidden = 32", 'hidden = "32"', "head.hidden: expected a whole number"),
        ('name = "small"', 'name = "large"', "the name of the file, 'small'"),
        ("[head]", "[haed]", "'head' is missing"),
        ("frames = [2, 4]", "frames = [2, 1000000000]", r"input.frames: expected at most 10000 frames, got \[2, 1000"),
        ("resolution = 33", "resolution = 1000000", "input.resolution: expected at most 10000 pixels"),
        ("width = [16]", "width = [16, 1000000000]", r"stages 2\.width: expected a whole number, at most 1000000"),
        ("hidden = 32", "hidden = 10000000", r"head\.hidden: expected a whole number, at most 1000000, got 10000000"),
        ("expansion = 1.5", "expansion = [1.5, 1e6]", r"\.expansion: expected blocks of at most 1000000 ch"),
        ('kernel = ["3x3x3", "1x3x3"]', 'kernel = ["3x3x3", "3x999x999"]', r"stages 1\.kernel: .*at most 255 along"),
        ('kernel = ["3x3x3", "1x3x3"]', 'kernel = ["3x3x3", "5x5x5"]', r"stages 1\.kernel: expected values of"),
        ('kernel = "1x3x3+3x1x1"', 'kernel = "global"', r"stages 2\.kernel: expected values of which there is a block"),
        ("frames = [2, 4]", "frames = [2, 4]\nfps = 30", "unknown key 'fps' in \\[input\\]"),
    ],
)
def test_a_space_file_that_does_not_validate(tmp_path, old, new, said):
    path = tmp_path / "small.toml"
    assert old in SMALL
    path.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(InvalidFile, match=said) as caught:
        read_space(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["small (copy)", "my space", "größe", "-small", "a+b", "a:b", "a,b", ".small"])
def test_a_space_is_not_called_what_no_key_can_hold(tmp_path, name):
    path = tmp_path / f"{name}.toml"
    path.write_text(SMALL.replace('name = "small"', f'name = "{name}"'), encoding="utf-8")
    with pytest.raises(
        InvalidFile, match=r"name: expected letters, digits, .* the keys of its networks.*, got '"
    ) as caught:
        read_space(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["Small", "2small", "small_2.5-x"])
def test_keys_of_a_space_read_back_whatever_it_is_called(tmp_path, name):
    path = tmp_path / f"{name}.toml"
    path.write_text(SMALL.replace('name = "small"', f'name = "{name}"'))
    member = next(read_space(path).architectures())
    assert Architecture.parse(member.key) == member


def test_neither_spaces_nor_the_feasible_set_load_torch():
    code = "import sys, hwbench.spaces, hwbench.spaces.feasible; sys.exit(bool({'torch', 'optuna'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_same_keys_in_every_process(space):
    code = (
        "import sys; from pathlib import Path; import numpy as np; from hwbench.spaces import read_space\n"
        "s = read_space(Path(sys.argv[1])); print(s.random(np.random.default_rng(3)).key)"
    )
    path = shipped() / "search_spaces" / f"{space.name}.toml"
    runs = [
        subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1] == space.random(np.random.default_rng(3)).key + "\n"


def test_random_reaches_all_members_alike(small):
    rng = np.random.default_rng(0)
    counts = dict.fromkeys(small.architectures(), 0)
    for _ in range(128 * 30):
        counts[small.random(rng)] += 1
    chi_square = sum((n - 30) ** 2 / 30 for n in counts.values())
    assert chi_square < 181  # 99.9 % quantile of chi-square with 127 degrees of freedom


def test_choices_multiply(small):
    assert small.size() == len(list(itertools.product(*small.choices.values())))
