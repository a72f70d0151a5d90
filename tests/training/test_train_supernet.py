"""Weights that all networks of a space share, and their training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_train_loop import CPU, Clips, Stop
from tiny import RECIPE

from hwbench import models
from hwbench.data import TestTransform
from hwbench.errors import CheckFailed, InvalidValue
from hwbench.models.assembly import ChainNetwork
from hwbench.spaces import StagedSpace, read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, BlockSpec, TensorSpec
from hwbench.training import Recipe
from hwbench.training.shared_weights import SharedWeights, shared_names
from hwbench.training.supernet import SupernetProgress, calibrated, score_inherited, train_supernet

CLASSES = 8
X3D = """
schema = 1
name = "small"
description = "For tests."
[input]
frames = [2, 4]
resolution = [16, 32]
[stem]
width = 8
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
depth = [1, 2]
width = [8, 16]
expansion = [1.0, 2.0]
kernel = ["1x3x3", "3x3x3", "1x3x3+3x1x1"]
se = [0, 0.25]
act = ["relu", "swish"]
stride = 2
[head]
hidden = 16
act = "relu"
"""
FINE = X3D.replace("stride = 2\n[head]", "temporal_stride = [1, 2]\nhidden = [8, 16]\nstride = 2\n[head]").replace(
    "[head]", 'by_block = ["expansion", "kernel", "se"]\n[head]'
)
E3D = """
schema = 1
name = "small"
description = "For tests."
family = "e3d"
[input]
frames = [2, 4]
resolution = 32
[stem]
width = 8
[[stages]]
depth = [1, 2]
width = [8, 16]
expansion = [1.5, 2.5]
kernel = ["1x3x3", "1x5x5", "3x3x3"]
stride = 2
[head]
width = 16
hidden = 16
"""
R2PLUS1D = """
schema = 1
name = "small"
description = "For tests."
family = "r2plus1d"
[input]
frames = 4
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
stride = 2
[[stages]]
depth = [1, 2]
width = 32
expansion = 0.5
temporal_stride = [1, 2]
stride = 2
"""
SQUEEZETIME = """
schema = 1
name = "small"
description = "For tests."
family = "squeezetime"
[input]
frames = [2, 4]
resolution = [32, 48]
[stem]
width = 8
kernel = "1x5x5"
stride = 2
act = "relu"
[[stages]]
depth = [1, 2]
width = [16, 24]
expansion = [0.25, 0.5]
kernel = ["1x3x3+1x3x3", "1x3x3+1x7x7"]
interaction = [4, 8]
position = 8
"""
I3D = """
schema = 1
name = "small"
description = "For tests."
family = "i3d"
[input]
frames = 4
resolution = 32
[stem]
width = 8
kernel = "1x5x5"
stride = 2
act = "relu"
[[stages]]
depth = [1, 2]
width = [16, 24]
expansion = 0.5
kernel = "3x1x1+1x3x3"
frame_pool = [1, 2]
stride = 1
[[stages]]
depth = [1, 3]
width = [16, 32]
expansion = 0.5
kernel = ["1x1x1+1x3x3", "3x1x1+1x3x3"]
stride = 1
"""
# The last block of a stage is the wide one, whichever that is.
MVIT = """
schema = 1
name = "small"
description = "For tests."
family = "mvit"
[input]
frames = 4
resolution = 32
[stem]
width = 16
kernel = "3x7x7"
stride = 4
temporal_stride = 2
[[stages]]
depth = [1, 2, 3]
width = [32, 48]
head_width = 16
stride = 1
widen = "mlp"
[[stages]]
depth = [2, 1]
width = 64
head_width = 16
widen = "mlp"
"""
# The second stage of the narrower networks changes no shape.
FLAT = X3D.replace("[head]", X3D[X3D.index("[[stages]]") : X3D.index("[head]")].replace("e = 2", "e = 1") + "[head]")


@pytest.fixture
def space(tmp_path: Path) -> StagedSpace:
    return _read(tmp_path, X3D)


class Within:
    """The networks of a space that take at most half of the range of multiplications."""

    def __init__(self, space: StagedSpace) -> None:
        sums = SpaceSums.of(space, _macs, num_classes=CLASSES)
        costs = sums.totals(space.encode(space.architectures()))
        self.feasible = FeasibleSet(sums, float(np.median(costs)))
        self.smallest, self.largest = self.feasible.smallest()[1], self.feasible.best(sums).architecture
        self.drawn: list[Architecture] = []

    def draw(self, rng: np.random.Generator) -> Architecture:
        self.drawn.append(self.feasible.draw(rng))
        return self.drawn[-1]


@pytest.mark.parametrize(
    "text",
    [X3D, FINE, FLAT, E3D, R2PLUS1D, SQUEEZETIME, SQUEEZETIME.replace("[2, 4]", "[4, 2]"), I3D, MVIT],
    ids=["x3d", "by-block", "stride-1", "e3d", "r2plus1d", "squeezetime", "squeezetime-descending", "i3d", "mvit"],
)
def test_any_network_of_a_space_finds_its_slices(text: str, tmp_path: Path) -> None:
    space = _read(tmp_path, text)
    shared, rng = SharedWeights(space, CLASSES), np.random.default_rng(0)
    largest: dict[str, tuple[int, ...]] = {}
    for _ in range(40):
        architecture = space.random(rng)
        module = shared.inherited(architecture)
        assert all(torch.isfinite(parameter).all() for parameter in module.parameters())
        sizes, names = dict(module.named_parameters()), shared_names(module, space, architecture)
        for name, place in names.items():
            so_far = largest.get(place, (0,) * sizes[name].dim())
            largest[place] = tuple(map(max, so_far, sizes[name].shape))
    whole = {name.replace("/", "."): tuple(parameter.shape) for name, parameter in shared.named_parameters()}
    assert largest == whole, "no tensor is larger than any network needs"


@pytest.mark.parametrize(
    ("text", "changed"),
    [(I3D, {"s1.frame_pool": "2"}), (FLAT, {"s2.width": "16"})],
    ids=["a pool", "a stage that changes no shape"],
)
def test_the_blocks_of_a_stage_are_shared_whatever_is_before(
    text: str, changed: dict[str, str], tmp_path: Path
) -> None:
    """Checkpoints number them otherwise there."""
    space = _read(tmp_path, text)
    first = {name: values[0] for name, values in space.choices.items()}
    own, places = list[set[str]](), list[set[str]]()
    for choices in (first, first | changed):
        architecture = space.of_params(choices)
        names = shared_names(models.network(space.network(architecture, CLASSES)), space, architecture)
        own.append(set(names))
        places.append({place for place in names.values() if place.startswith("stage1.0.")})
    assert own[0] != own[1]
    assert places[0]
    assert places[0] <= places[1]


def test_every_network_of_a_small_space_computes_what_it_inherits(space: StagedSpace) -> None:
    shared = SharedWeights(space, CLASSES)
    for architecture in list(space.architectures())[::23]:
        clips = torch.randn(2, *space.network(architecture, CLASSES).input.shape[1:])
        module = shared.inherited(architecture).train()
        assert torch.equal(shared(clips, architecture), module(clips))


def test_blocks_that_choose_for_themselves_compute_what_they_inherit(tmp_path: Path) -> None:
    space = _read(tmp_path, FINE)
    shared, rng = SharedWeights(space, CLASSES), np.random.default_rng(3)
    for architecture in [space.random(rng) for _ in range(6)]:
        network = space.network(architecture, CLASSES)
        clips = torch.randn(2, *network.input.shape[1:])
        module = shared.inherited(architecture).train()
        assert torch.equal(shared(clips, architecture), module(clips))
        own = [(block.mid_channels, block.kernel, block.se_channels) for block in network.blocks[1:-1]]
        built = [dict(module.named_modules())[f"s2.pathway0_res{number}.layers"] for number in range(len(own))]
        assert [layers.conv_0.kernel.conv.out_channels for layers in built] == [mid for mid, _, _ in own]


def test_networks_share_and_kernels_share_their_middle(space: StagedSpace) -> None:
    shared = SharedWeights(space, CLASSES)
    wide = _member(space, kernel="3x3x3", width="16", expansion="2")
    flat = _member(space, kernel="1x3x3", width="8", expansion="1")
    name = "s2.pathway0_res0.layers.conv_1.kernel.conv.weight"
    large, small = (dict(shared.inherited(one).named_parameters())[name] for one in (wide, flat))
    assert large.shape == (32, 1, 3, 3, 3)
    assert small.shape == (8, 1, 1, 3, 3)
    assert torch.equal(large[:8, :, 1:2], small)


def test_a_step_of_one_network_reaches_the_others(space: StagedSpace) -> None:
    shared = SharedWeights(space, CLASSES)
    small, large = _member(space), _member(space, width="16", expansion="2", depth="2")
    before = dict(shared.inherited(small).named_parameters())
    shared(torch.randn(2, 3, 2, 16, 16), large).square().sum().backward()
    with torch.no_grad():
        for parameter in shared.parameters():
            if parameter.grad is not None:
                parameter -= parameter.grad
    after = dict(shared.inherited(small).named_parameters())
    assert all(not torch.equal(before[name], after[name]) for name in before if "conv.weight" in name)


def test_a_chain_is_counted_by_stage(space: StagedSpace) -> None:
    shallow, deep = _member(space, depth="1"), _member(space, depth="2")
    names = []
    for architecture in (shallow, deep):
        chain = ChainNetwork(space.network(architecture, CLASSES).blocks)
        names.append(set(shared_names(chain, space, architecture).values()))
    assert names[0] < names[1]
    assert all(name.startswith(("stem.0", "stage0.0", "head.0")) for name in names[0])
    assert {name.split(".")[1] for name in names[1] if name.startswith("stage0")} == {"0", "1"}


def test_only_networks_within_the_budget_are_trained(space: StagedSpace, clips: Clips) -> None:
    shared, within = SharedWeights(space, CLASSES), Within(space)
    seen: list[SupernetProgress] = []
    average = train_supernet(shared, within, clips[0], _recipe(), resources=CPU, progress=seen.append)
    assert [at.step for at in seen] == list(range(1, seen[-1].steps + 1))
    assert within.drawn
    assert all(one in within.feasible for one in within.drawn)
    assert {name for name, _ in shared.named_parameters()} == set(average)


def test_a_training_goes_on_where_it_was_stopped(space: StagedSpace, clips: Clips, tmp_path: Path) -> None:
    whole = train_supernet(SharedWeights(space, CLASSES), Within(space), clips[0], _recipe(), resources=CPU)

    def stop(at: SupernetProgress) -> None:
        if at.step == at.steps // 2 + 1:
            raise Stop

    folder = tmp_path / "supernet"
    folder.mkdir()
    with pytest.raises(Stop):
        train_supernet(
            SharedWeights(space, CLASSES), Within(space), clips[0], _recipe(), run_dir=folder, resources=CPU,
            progress=stop,
        )  # fmt: skip
    again = SharedWeights(space, CLASSES, seed=5)  # what is stored counts, not the first weights
    resumed = train_supernet(again, Within(space), clips[0], _recipe(), run_dir=folder, resources=CPU)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    with pytest.raises(InvalidValue, match="another"):
        train_supernet(
            SharedWeights(space, CLASSES), Within(space), clips[0], _recipe(), run_dir=folder, resources=CPU,
            identity={"space": "other"},
        )  # fmt: skip


def sized(clips: Clips, space: StagedSpace, architecture: Architecture) -> Clips:
    """The clips in the size that a network takes."""
    size, (training, validation) = space.cell(architecture), clips
    validation.transform = TestTransform((size.resolution, size.resolution))
    validation.clip = validation.clip.with_frames(size.frames)
    return training._reshaped((size.frames, size.resolution, size.resolution)), validation


def test_it_learns_and_scores_by_the_statistics_of_the_network(space: StagedSpace, clips: Clips) -> None:
    shared, within = SharedWeights(space, CLASSES), Within(space)
    losses: list[float] = []
    recipe = replace(_recipe(), epochs=8)
    average = train_supernet(
        shared, within, clips[0], recipe, resources=CPU, progress=lambda at: losses.append(at.loss)
    )
    assert np.mean(losses[-6:]) < np.mean(losses[:6])
    architecture = within.largest
    training, validation = sized(clips, space, architecture)
    scores = score_inherited(shared, architecture, training, validation, recipe, values=average, resources=CPU)
    assert scores.videos == len(validation.videos)
    module = calibrated(shared.inherited(architecture), training, recipe, torch.device("cpu"))
    statistics = {n: b for n, b in module.named_buffers() if n.endswith("running_mean")}
    assert statistics
    assert all(buffer.abs().sum() > 0 for buffer in statistics.values())


def test_a_training_that_diverges_says_so(space: StagedSpace, clips: Clips) -> None:
    with pytest.raises(CheckFailed, match="supernet diverged"):
        train_supernet(
            SharedWeights(space, CLASSES), Within(space), clips[0], replace(_recipe(), learning_rate=1e30, epochs=6),
            resources=CPU,
        )  # fmt: skip


def test_the_largest_seed_is_one(space: StagedSpace, clips: Clips) -> None:
    recipe = replace(_recipe(), epochs=1, seed=2**63 - 1)
    assert train_supernet(SharedWeights(space, CLASSES), Within(space), clips[0], recipe, resources=CPU)


def test_a_supernet_of_another_space_is_refused(space: StagedSpace) -> None:
    values = dict(SharedWeights(space, CLASSES).named_parameters())
    with pytest.raises((InvalidValue, KeyError)):
        SharedWeights(space, 2 * CLASSES).inherited(_member(space), values)


def test_building_is_that_of_a_network_alone(space: StagedSpace) -> None:
    architecture = _member(space)
    names = {name for name, _ in models.network(space.network(architecture, CLASSES)).named_parameters()}
    assert names == {name for name, _ in SharedWeights(space, CLASSES).inherited(architecture).named_parameters()}


def _read(folder: Path, text: str) -> StagedSpace:
    path = folder / "small.toml"
    path.write_text(text)
    return read_space(path)


def _macs(block: BlockSpec, x: TensorSpec) -> float:
    return float(sum(operation.macs for operation in block.operations(x)))


def _recipe() -> Recipe:
    return replace(RECIPE, batch_size=8, epochs=2)


def _member(space: StagedSpace, **choices: str) -> Architecture:
    first = dict(next(iter(space.architectures())).choices)
    return Architecture(space.name, tuple({**first, **{f"s1.{k}": v for k, v in choices.items()}}.items()))
