import pytest

from hwbench.spaces import read_space
from hwbench.spaces.family import families
from hwbench.testing.families import FamilyConformance

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


def test_every_shipped_family_is_among_them():
    """A model by hand is a family with one member, and no file names one."""
    assert {*FILES, "by-hand"} == set(families.names())
