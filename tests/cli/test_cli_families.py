"""Families beside X3D through the whole loop as it is typed: profile, search, train, export, bench; only small."""

import json
import re
import shutil

import pytest

from hwbench.cli.main import main
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.measure import judge, quality
from hwbench.measure.bench import Bench
from hwbench.workspace import Workspace, shipped

INPUT = """
schema = 1
description = "a handful of blocks"
[input]
frames = 4
resolution = 32
[stem]
width = 8
stride = 2
act = "relu"
"""
# Family -> lines of the above that its stem has no say in.
UNASKED = {"mvit": ('act = "relu"\n',), "e3d": ("stride = 2\n", 'act = "relu"\n')}
# Family -> its tiny space.
SPACES = {
    "e3d": """
[[stages]]
depth = [1, 2]
width = 8
expansion = 1.5
kernel = ["1x5x5", "3x3x3"]
stride = 2
[[stages]]
depth = 1
width = 16
expansion = 1.5
kernel = "3x3x3"
stride = 1
[head]
width = 24
hidden = 32
""",
    "r2plus1d": """
kernel = "1x3x3"
[[stages]]
depth = [1, 2]
width = 16
expansion = 0.5
temporal_stride = [1, 2]
""",
    "i3d": """
kernel = "5x7x7"
pool = 2
[[stages]]
depth = [1, 2]
width = 16
expansion = 0.5
kernel = "3x1x1+1x3x3+1x1x1+1x3x3"
frame_pool = 2
stride = 1
[[stages]]
depth = 1
width = 32
kernel = "1x1x1+1x3x3"
""",
    "slow": """
kernel = "1x7x7"
pool = 2
[[stages]]
depth = 1
width = 16
expansion = 0.5
kernel = "1x1x1+1x3x3"
stride = 1
[[stages]]
depth = 1
width = [16, 32]
kernel = "3x1x1+1x3x3"
""",
    "csn": """
kernel = "3x7x7"
pool = 2
[[stages]]
depth = 1
width = 16
expansion = 0.5
kernel = ["1x1x1+3x3x3", "1x1x1+1x3x3"]
group_width = 1
temporal_stride = [1, 2]
""",
    "slowfast": """
kernel = "1x7x7"
fast_kernel = "5x7x7"
pool = 2
alpha = 4
beta = 0.25
[[stages]]
depth = 1
width = 16
beta = [0.25, 0.5]
expansion = 0.5
stride = 1
lateral = 0
""",
    "squeezetime": """
kernel = "1x5x5"
pool = 2
[[stages]]
depth = [1, 2]
width = 16
expansion = 0.5
stride = 1
position = 8
[[stages]]
depth = 1
width = 32
kernel = ["1x3x3+1x3x3", "1x3x3+1x7x7"]
position = 4
""",
    "mvit": """
kernel = "3x3x3"
temporal_stride = 2
position_frames = 2
position_side = 16
[[stages]]
depth = 1
width = [8, 16]
head_width = 8
mlp_ratio = 2
kv_stride = 4
stride = 2
residual_pool = 1
[[stages]]
depth = 1
width = 16
head_width = 8
mlp_ratio = 2
kv_stride = 2
""",
}
# Of the spaces that are shipped: x3d-fine has a test of its own (``test_cli_by_block``).
SHIPPED = sorted(path.stem for path in (shipped() / "search_spaces").glob("*.toml") if path.stem != "x3d-fine")
# What a printed architecture of the family tells.
TOLD = {
    "e3d": "s1.kernel=",
    "r2plus1d": "s1.temporal_stride=",
    "i3d": "s1.frame_pool=2",
    "slow": "s2.width=",
    "csn": "s1.group_width=1",
    "slowfast": "s1.beta=",
    "squeezetime": "s2.kernel=1x3x3+1x",
    "mvit": "s1.kv_stride=4",
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, runner_cache):
    made = Workspace.create(tmp_path_factory.mktemp("families"))
    made.cache.symlink_to(runner_cache)
    for family, text in SPACES.items():
        shared = INPUT
        for line in UNASKED.get(family, ()):
            shared = shared.replace(line, "")
        whole = (
            shared.replace("schema = 1", f'schema = 1\nname = "micro-{family}"\nfamily = "{family}"') + text.lstrip()
        )
        (made.root / "search_spaces" / f"micro-{family}.toml").write_text(whole)
    videos = prepare(made, SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=16))
    shutil.move(videos, made.root / "videos")
    return made


@pytest.fixture
def run(workspace, monkeypatch, capfd):
    """A command that ends well, as the object that it prints."""
    monkeypatch.chdir(workspace.root)
    # other tests use the processors meanwhile: what is looked at is the loop, and not how quiet the machine is
    monkeypatch.setattr(quality, "NOISY_RATIO", 1e9)
    monkeypatch.setattr(judge, "doubt", lambda *_: "")
    options = Bench.options
    monkeypatch.setattr(Bench, "options", lambda *args, **rest: options(*args, **rest, probe=False))

    def _run(*arguments: str) -> dict[str, object]:
        status = 0
        try:
            main([*arguments, "--json"])
        except SystemExit as end:
            status = end.code or 0
        out, err = capfd.readouterr()
        assert status == 0, err
        return json.loads(out)

    return _run


@pytest.mark.long
@pytest.mark.parametrize("family", SPACES)
def test_a_family_goes_through_the_whole_loop(run, family):
    through_micro_space(run, family)


@pytest.mark.long
@pytest.mark.parametrize("name", SHIPPED)
def test_the_smallest_of_a_shipped_space_goes_through_the_whole_loop(run, workspace, name):
    """The file as it is shipped with the first value of every list, and one choice left."""
    text = (shipped() / "search_spaces" / f"{name}.toml").read_text().replace(f'"{name}"', f'"smallest-{name}"')
    text = re.sub(r"= \[([^,\]]+),[^\]]*\]", r"= \1", text)
    text = re.sub(r"^depth = .*", "depth = [1, 2]", text, count=1, flags=re.MULTILINE)
    (workspace.root / "search_spaces" / f"smallest-{name}.toml").write_text(text)
    best = goes_through_the_whole_loop(run, f"smallest-{name}")
    assert best.startswith(f"smallest-{name}:frames=")


def through_micro_space(run, family):
    best = goes_through_the_whole_loop(run, f"micro-{family}")
    assert best.startswith(f"micro-{family}:frames=4,resolution=32,s1.depth=")
    assert TOLD[family] in best


def goes_through_the_whole_loop(run, space):
    """The best architecture of a search, after all five commands."""
    study, runs = f"of-{space}", f"runs/{space}"
    profiled = run("profile", "--space", space, "--precision", "int8", "--calibrate", "3", "--no-aa")
    assert profiled["failed"] == 0
    found = run(
        *("search", "--space", space, "--precision", "int8", "--budget", "1s"),
        *("--trials", "4", "--study", study),
    )
    trained = run("train", f"{study}:best", "--data", "videos", "--epochs", "2", "--out", runs)
    assert trained["epochs"] == 2
    exported = run("export", f"{runs}/checkpoint.pt", "--precision", "int8", "--out", f"{runs}/int8")
    assert (exported["delegates"], exported["undelegated"]) == (1, {})
    timed = run("bench", f"{runs}/int8/model.pte", "--threads", "1")
    assert timed["median_ms"] > 0
    assert timed["precision"] == "int8"
    return found["best"]["architecture"]
