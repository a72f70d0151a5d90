import pytest

from hwbench.errors import InvalidFile
from hwbench.spaces import read_space
from hwbench.spaces.family import families
from hwbench.testing.families import FamilyConformance
from hwbench.workspace import shipped

FILES = {
    "x3d": """
schema = 1
name = "small"
description = "Every member is counted."
family = "x3d"
[input]
frames = [2, 4]
resolution = [32]
[stem]
width = 8
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
width = [8, 16]
depth = [1, 2]
expansion = [1.0, 2.25]
kernel = ["3x3x3"]
se = 0
act = "relu"
stride = 2
[[stages]]
width = [16, 24]
depth = [1, 3]
expansion = [2.25]
kernel = ["1x3x3", "1x3x3+3x1x1"]
se = [0.0, 0.25]
act = "swish"
stride = 2
[head]
hidden = 32
act = "relu"
""",
    "e3d": """
schema = 1
name = "small"
description = "Every member is counted."
family = "e3d"
[input]
frames = [2, 4]
resolution = [32]
[stem]
width = 8
[[stages]]
depth = [1, 2]
width = [8, 16]
expansion = [1.5, 2]
kernel = "1x5x5"
stride = 2
[[stages]]
depth = [1, 3]
width = [16, 24]
expansion = [1.5, 2.5]
kernel = ["1x3x3", "3x3x3"]
stride = 1
[head]
width = 32
hidden = 64
""",
    "r2plus1d": """
schema = 1
name = "small"
description = "Every member is counted."
family = "r2plus1d"
[input]
frames = [4, 5]
resolution = [32]
[stem]
width = 8
kernel = "1x7x7"
stride = 2
act = "relu"
[[stages]]
depth = [1, 2]
width = [16, 24]
expansion = [0.25, 0.5]
stride = 2
[[stages]]
depth = [1, 3]
width = 32
expansion = 0.5
temporal_stride = [1, 2]
stride = 2
""",
    "resnet": """
schema = 1
name = "small"
description = "Every member is counted."
family = "resnet"
[input]
frames = [4, 5]
resolution = [32]
[stem]
width = 8
kernel = "3x7x7"
stride = 2
pool = 2
act = "relu"
[[stages]]
depth = [1, 3]
width = [16, 24]
kernel = ["1x1x1+1x3x3", "3x1x1+1x3x3+1x1x1+1x3x3"]
expansion = 0.5
frame_pool = [1, 2]
stride = 1
[[stages]]
depth = [1, 2]
width = 32
expansion = 0.5
kernel = "1x1x1+3x3x3"
group_width = [0, 1]
temporal_stride = [1, 2]
stride = 2
""",
    "slowfast": """
schema = 1
name = "small"
description = "Every member is counted."
family = "slowfast"
[input]
frames = [4, 7]
resolution = [32]
[stem]
width = 8
kernel = "1x7x7"
fast_kernel = "5x7x7"
stride = 2
pool = 2
act = "relu"
alpha = 4
beta = 0.25
[[stages]]
depth = [1, 2]
width = [16, 24]
beta = 0.25
expansion = [0.25, 0.5]
stride = 1
[[stages]]
depth = 1
width = 32
beta = [0.25, 0.5]
kernel = ["1x1x1+1x3x3", "3x1x1+1x3x3"]
fast_kernel = ["3x1x1+1x3x3", "3x1x1+1x3x3+1x1x1+1x3x3"]
lateral = 0
""",
    "squeezetime": """
schema = 1
name = "small"
description = "Every member is counted."
family = "squeezetime"
[input]
frames = [2, 4]
resolution = [32]
[stem]
width = 8
kernel = "1x5x5"
stride = 2
pool = 2
act = "relu"
[[stages]]
depth = [1, 2]
width = [16, 24]
expansion = [0.25, 0.5]
kernel = ["1x3x3+1x3x3", "1x3x3+1x7x7"]
stride = 1
position = 8
[[stages]]
depth = [1, 2]
width = 32
expansion = 0.5
interaction = [8, 16]
act = ["relu", "hswish"]
stride = 2
position = 4
""",
    "mvit": """
schema = 1
name = "small"
description = "Every member is counted."
family = "mvit"
[input]
frames = [2, 4]
resolution = [32]
[stem]
width = 8
kernel = "3x9x9"
stride = 8
temporal_stride = 2
position_frames = 2
position_side = 3
class_token = 1
[[stages]]
depth = [1, 2]
width = [8, 16]
head_width = [4, 8]
mlp_ratio = 2
stride = 1
[[stages]]
depth = [1, 2]
width = [16, 24]
head_width = 8
kv_stride = [1, 2]
mlp_ratio = [1, 1.5]
act = ["gelu", "relu"]
stride = 2
residual_pool = 1
""",
}


class TestShippedFamilies(FamilyConformance):
    @pytest.fixture(params=sorted(FILES))
    def space(self, request, tmp_path):
        path = tmp_path / "small.toml"
        path.write_text(FILES[request.param])
        return read_space(path)


MLP_WIDENED = ("stride = 1\n", 'stride = 1\nwiden = "mlp"\n')
BOTH_MLP_WIDENED = (MLP_WIDENED, ("residual_pool = 1\n", 'residual_pool = 1\nwiden = "mlp"\n'))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            (*BOTH_MLP_WIDENED, ("head_width = [4, 8]", "head_width = 4"), ("width = [8, 16]", "width = [16, 12]")),
            "stages 2.head_width: expected numbers that divide the 12 or 16 channels that reach the stage, got [8]",
        ),
        (
            (MLP_WIDENED, ("[4, 8]", "[4, 16]")),
            "stages 1.head_width: expected numbers that divide the 8 channels that reach the stage, got [4, 16]",
        ),
        (
            (("stride = 1\n", "stride = 1\nrelative_frames = 4\n"),),
            "stages 1.relative_side: expected relative_frames and relative_side, or neither, got 0",
        ),
        (
            (("residual_pool = 1\n", "residual_pool = 1\nrelative_side = 4\n"),),
            "stages 2.relative_frames: expected relative_frames and relative_side, or neither, got 0",
        ),
    ],
)
def test_a_file_of_mvit_that_does_not_validate_names_the_key(tmp_path, changes, said):
    path, text = tmp_path / "small.toml", FILES["mvit"]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)
    with pytest.raises(InvalidFile) as caught:
        read_space(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_of_mvit_whose_linear_layers_widen_is_read_where_all_heads_fit(tmp_path):
    path, text = tmp_path / "small.toml", FILES["mvit"]
    for old, new in BOTH_MLP_WIDENED:
        text = text.replace(old, new, 1)
    path.write_text(text)
    assert all(read_space(path).network(one, 3) for one in read_space(path).architectures())


def test_an_error_calls_the_family_as_the_file_does(tmp_path):
    path, text = tmp_path / "csn-mobile.toml", (shipped() / "search_spaces" / "csn-mobile.toml").read_text()
    path.write_text(text.replace("[[stages]]\n", '[[stages]]\nby_block = ["kernel"]\n', 1))
    with pytest.raises(InvalidFile, match=r"stages 1\.by_block: .*blocks of family 'csn' may choose \(none\)"):
        read_space(path)


def test_every_shipped_family_is_among_them():
    """A model by hand is a family with one member, and no file names one."""
    assert {*FILES, "by-hand"} == set(families.names())
