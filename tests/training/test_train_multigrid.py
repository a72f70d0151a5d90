"""Runs whose clips are smaller and whose batches are larger in some phases."""

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from test_train_loop import CPU, Clips, Stop, lines, run, same, stop_at
from tiny import RECIPE, Tiny
from torch import nn

from hwbench.data import ClipSpec, RandomResizedCrop, ScaleJitter, TrainingClips
from hwbench.data.augmentations import augmentation
from hwbench.data.decoders import PYAV
from hwbench.data.flow_cache import FlowCache
from hwbench.data.flow_stream import FlowDecoder, FlowTransform
from hwbench.data.loading import Loader
from hwbench.errors import InvalidValue
from hwbench.training import Recipe, fit
from hwbench.training.processes import World
from hwbench.training.sampling import Sampling, channels_of, phases, require_shapes

# 24 videos, batches of 2: one cycle of 8, 4, 2 and 1 times the batch, then the full shape.
LONG = replace(RECIPE, multigrid="long", batch_size=2, epochs=8, decay_at=(0.8,))


@pytest.fixture
def wide(clips: Clips) -> Clips:
    """Clips of 4x48x48."""
    training, validation = clips
    training.transform = ScaleJitter((48, 48))
    validation.transform = replace(validation.transform, size=(48, 48))
    return training, validation


def test_the_long_cycle_is_that_of_the_paper() -> None:
    assert phases(Recipe()) == (phases(Recipe())[-1],)
    found = phases(Recipe(multigrid="long", decay_at=(0.75, 0.5)))
    assert [round(phase.share, 6) for phase in found] == [0.125] * 4 + [0.0625] * 4 + [0.25]
    assert [phase.batch for phase in found] == [8, 4, 2, 1] * 2 + [1]
    # PySlowFast's shapes of SlowFast 8x8; the side of 158 is 160 here
    full = (32, 224, 224)
    assert [p.shape(full) for p in found[:4]] == [(8, 160, 160), (16, 160, 160), (16, 224, 224), full]
    for phase in found:  # a step costs as much in every phase
        assert phase.batch * phase.frames * phase.side**2 == pytest.approx(1)


@pytest.mark.parametrize(
    ("full", "smallest"),
    [
        ((1, 24, 24), (1, 24, 24)),
        ((4, 160, 90), (1, 112, 64)),
        ((13, 48, 33), (3, 32, 32)),
        ((16, 182, 182), (4, 128, 128)),
    ],
)
def test_shapes_are_what_networks_take(full: tuple[int, int, int], smallest: tuple[int, int, int]) -> None:
    assert phases(LONG)[0].shape(full) == smallest
    assert phases(LONG)[-1].shape(full) == full


def test_phases_have_their_share_of_the_steps(wide: Clips) -> None:
    recipe = replace(LONG, batch_size=1, epochs=400, decay_at=(0.4, 0.8))
    sampling = Sampling(recipe, wide[0])
    steps: Counter[int] = Counter()
    for epoch in range(recipe.epochs):
        steps[sampling.phase(epoch).batch] += sampling.length(epoch)
    assert sum(steps.values()) == sampling.steps
    # a quarter each of the 0.8 in cycles, and the rest at the full shape
    shares = {batch: count / sampling.steps for batch, count in steps.items()}
    assert shares == pytest.approx({8: 0.2, 4: 0.2, 2: 0.2, 1: 0.4}, abs=0.01)
    # a cycle ends where the rate falls
    ends = [epoch for epoch in range(1, recipe.epochs) if sampling.phase(epoch).batch > sampling.phase(epoch - 1).batch]
    behind = sum(sampling.length(epoch) for epoch in range(ends[0]))
    assert len(ends) == 1
    assert behind / sampling.steps == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize("epochs", [1, 2, 3, 8, 16])
def test_the_last_epoch_has_the_full_shape(wide: Clips, epochs: int) -> None:
    for decay_at in ((0.5, 0.75), (0.99,)):
        sampling = Sampling(replace(LONG, epochs=epochs, decay_at=decay_at), wide[0])
        assert all(draw.shape is None for batch in sampling.batches(epochs - 1) for draw in batch)
        assert sampling.phase(epochs - 1).batch == 1
        assert sampling.shapes()[-1] == (4, 48, 48)


def test_an_epoch_is_one_pass_in_larger_batches_at_a_larger_rate(wide: Clips) -> None:
    recipe = replace(LONG, schedule="constant", warmup_share=0.0, repeats=2, batch_size=4)
    sampling, seen = Sampling(recipe, wide[0]), []
    step = 0
    for epoch in range(recipe.epochs):
        batches, factor = sampling.batches(epoch), sampling.phase(epoch).batch
        assert len(batches) == sampling.length(epoch)
        assert {len(batch) for batch in batches} == {4 * factor}
        videos = [draw.video for batch in batches for draw in batch if draw.repeat == 0]
        assert len(set(videos)) == len(videos) > 24 - 2 * factor
        assert sampling.rate(epoch, step + 1 if epoch == 0 else step) == pytest.approx(recipe.learning_rate * factor)
        step += len(batches)
        seen.append((batches[0][0].shape, factor))
    assert step == sampling.steps
    assert list(dict.fromkeys(seen)) == [((1, 32, 32), 8), ((2, 32, 32), 4), ((2, 48, 48), 2), (None, 1)]
    assert {len(batch) for batch in sampling.full_batches(0)} == {4}
    assert {draw.shape for batch in sampling.full_batches(0) for draw in batch} == {None}


def test_a_batch_is_no_larger_than_the_set(wide: Clips) -> None:
    sampling = Sampling(replace(LONG, batch_size=10), wide[0])
    assert {sampling.phase(epoch).batch for epoch in range(LONG.epochs)} == {1, 2}
    assert len(sampling.batches(0)[0]) == 20
    assert Sampling(replace(LONG, batch_size=100), wide[0]).phase(0).batch == 1


@pytest.mark.parametrize(
    "clip",
    [ClipSpec(16, stride=5), ClipSpec(13, stride=6), ClipSpec(4, span_s=1.6),
     ClipSpec(8, stride=8, convention="pytorchvideo", target_fps=30), ClipSpec(8, convention="segments")],
    ids=str,
)  # fmt: skip
def test_clips_of_fewer_frames_cover_the_same_time(clip: ClipSpec) -> None:
    for phase in phases(LONG):
        frames = phase.shape((clip.frames, 224, 224))[0]
        other = clip.with_frames(frames)
        assert (other.frames, other.convention, other.span_s) == (frames, clip.convention, clip.span_s)
        assert other.span == clip.span
        if clip.stride is not None:
            assert Fraction(other.frames * other.stride) == clip.frames * clip.stride
    assert clip.with_frames(clip.frames) == clip
    assert ClipSpec(4, stride=1).with_frames(8).stride == 1


def test_samples_of_a_phase_do_not_depend_on_workers_or_processes(wide: Clips) -> None:
    training, _ = wide
    sampling = Sampling(replace(LONG, repeats=2, batch_size=4), training)
    order = [sampling.batches(epoch)[0] for epoch in (0, 4, 6, 7)]
    expected = [torch.cat([training[draw].views for draw in batch]) for batch in order]
    assert [tuple(clips.shape) for clips in expected] == [
        (32, 3, 1, 32, 32), (16, 3, 2, 32, 32), (8, 3, 2, 48, 48), (4, 3, 4, 48, 48),
    ]  # fmt: skip
    for workers in (0, 2):
        read = [batch.clips for batch in Loader(training, workers=workers).batches(order)]
        assert all(torch.equal(one, two) for one, two in zip(read, expected, strict=True))
    read = [batch.clips for batch in Loader(training).batches([World(1, 2).part(batch) for batch in order])]
    assert all(torch.equal(one, two[1::2]) for one, two in zip(read, expected, strict=True))
    assert (training.clip.frames, training.transform.size) == (4, (48, 48))


CROP = ScaleJitter((48, 48))


@pytest.mark.parametrize(
    "transform",
    [
        CROP,
        RandomResizedCrop((48, 48)),
        augmentation(["flip:1.0", "random-erasing"], CROP),
        augmentation(["random-resized-crop"], CROP),
    ],
)
def test_every_transform_has_other_sizes(clips: Clips, transform: ScaleJitter) -> None:
    other = transform.with_size((32, 16))
    assert other.size == (32, 16)
    assert other.with_size((48, 48)) == transform
    training = TrainingClips(clips[0].videos, ClipSpec(4, stride=2), transform)
    assert training._reshaped((2, 32, 16))[3].views.shape == (1, 3, 2, 32, 16)


def test_a_run_goes_on_bit_for_bit_in_every_phase(wide: Clips, tmp_path: Path) -> None:
    recipe = replace(LONG, precise_bn=1)
    sampling = Sampling(recipe, wide[0])
    lengths = [sampling.length(epoch) for epoch in range(recipe.epochs)]
    assert lengths == [1, 1, 1, 1, 3, 3, 6, 12]
    whole, result = run(wide, tmp_path / "whole", recipe)
    assert result.steps == sum(lengths) == sampling.steps
    # behind a whole epoch of each phase, and within one where it has several steps
    for step in (1, 4, 5, 7, 10, 13, 16, 22):
        folder = tmp_path / str(step)
        with pytest.raises(Stop):
            run(wide, folder, recipe, progress=stop_at(step))
        parts, again = run(wide, folder, recipe)
        assert same(whole, parts)
        assert again.scores == result.scores
        assert lines(folder) == lines(tmp_path / "whole")


class Sizes(Tiny):
    """Notes the shapes that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bool, tuple[int, ...]]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append((self.training, tuple(x.shape)))
        return super().forward(x)


def test_validation_and_precise_statistics_have_the_full_shape(wide: Clips) -> None:
    net = Sizes()
    fit(net, *wide, replace(LONG, precise_bn=1), resources=CPU)
    trials = net.seen[:4]
    assert [shape for _, shape in trials] == [(1, 3, *s) for s in Sampling(LONG, wide[0]).shapes()]
    trained = [shape for training, shape in net.seen if training]
    assert list(dict.fromkeys(trained)) == [
        (16, 3, 1, 32, 32), (8, 3, 2, 32, 32), (4, 3, 2, 48, 48), (2, 3, 4, 48, 48),
    ]  # fmt: skip
    assert {shape[2:] for training, shape in net.seen[4:] if not training} == {(4, 48, 48)}


class Fixed(nn.Module):
    """Takes one size, as a network with position embeddings does."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3 * 4 * 48 * 48, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x.flatten(1))


def test_a_network_of_one_size_is_refused_in_one_line(wide: Clips, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidValue, match=r"^multigrid: the network does not take clips of 1x32x32 \(.*\); leave"
    ) as no:
        fit(Fixed(), *wide, LONG, resources=CPU, run_dir=tmp_path)
    assert "\n" not in str(no.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidValue, match=r"^multigrid: .* 1x32x32"):
        fit(Tiny(), *wide, LONG, resources=CPU, teacher=Fixed())
    fit(Fixed(), *wide, replace(LONG, multigrid="", epochs=1), resources=CPU)
    net = Fixed().train()
    require_shapes(net, 3, [(4, 48, 48)])
    assert net.training


class Still:
    """A method that sees no motion."""

    name = "still"

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.zeros((*first.shape[:2], 2), np.float32)


def test_clips_of_flow_have_two_channels_in_every_phase(wide: Clips, tmp_path: Path) -> None:
    videos, decoder = wide[0].videos, FlowDecoder(PYAV, FlowCache(tmp_path, Still()))
    training = TrainingClips(videos, wide[0].clip, FlowTransform(ScaleJitter((48, 48))), decoder=decoder)
    require_shapes(nn.Conv3d(2, 1, 1), channels_of(training), [(1, 32, 32)])
    seen = []

    class Seeing(Tiny):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(tuple(x.shape[1:]))
            return self.layers(x)

    net = Seeing()
    net.layers[0] = nn.Conv3d(2, 8, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False)
    fit(net, training, None, LONG, resources=CPU)
    assert set(seen) == {(2, 1, 32, 32), (2, 2, 32, 32), (2, 2, 48, 48), (2, 4, 48, 48)}


def test_a_run_of_before_has_the_rates_of_before(clips: Clips) -> None:
    sampling = Sampling(RECIPE, clips[0])
    assert sampling.steps == 18
    assert [sampling.rate(step // 6, step) for step in range(18)] == [RECIPE.rate(step, 18) for step in range(18)]
    assert not math.isclose(sampling.rate(0, 0), sampling.rate(1, 6))
