"""Two small spaces of two families with latencies that overlap: whatever is done with both can be done by hand, too."""

from __future__ import annotations

from collections.abc import Mapping

from hwbench.workspace import Workspace

# 48 and 32 networks.
SMALL_SPACES: Mapping[str, str] = {
    "small-x3d": """schema = 1
name = "small-x3d"
description = "a handful of X3D"
[input]
frames = [4, 8]
resolution = [32, 48]
[stem]
width = 8
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
depth = [1, 2, 3]
width = [8, 16]
expansion = 2.0
kernel = ["1x3x3", "3x3x3"]
se = 0
act = "relu"
stride = 2
[head]
hidden = 16
act = "relu"
""",
    "small-r2plus1d": """schema = 1
name = "small-r2plus1d"
family = "r2plus1d"
description = "a handful of R(2+1)D"
[input]
frames = [8, 16]
resolution = 32
[stem]
width = 8
kernel = "1x7x7"
stride = 2
act = "relu"
[[stages]]
depth = [1, 2]
width = [16, 24]
expansion = [0.25, 0.5]
temporal_stride = [1, 2]
""",
}


def add_small_spaces(workspace: Workspace) -> None:
    """Writes their files into a workspace."""
    for name, text in SMALL_SPACES.items():
        (workspace.root / "search_spaces" / f"{name}.toml").write_text(text, encoding="utf-8")
