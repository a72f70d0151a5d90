"""Which clips the steps of a run see: repeats of a video in one batch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_train_loop import Clips, Stop, lines, run, same, stop_at
from tiny import RECIPE

from hwbench.data import FailurePolicy
from hwbench.data.loading import Loader, repeated, shuffled
from hwbench.data.samples import Draw
from hwbench.errors import InvalidValue
from hwbench.training import Recipe
from hwbench.training.processes import World

VIDEOS = 24


def test_the_first_draw_of_a_video_is_the_sample_of_before(clips: Clips) -> None:
    training, _ = clips
    training.set_epoch(2)
    for index in (0, 7, 23):
        before = training._draw(index, np.random.default_rng([RECIPE.seed, 2, index]), ())
        assert torch.equal(before.pictures, training[index].pictures)
        assert torch.equal(before.pictures, training[Draw(index)].pictures)
    order = shuffled(VIDEOS, 4, seed=11, epoch=2)
    assert [[draw.video for draw in batch] for batch in repeated(order, 1)] == order


def test_every_draw_of_a_video_is_another_clip_of_it(clips: Clips) -> None:
    training, _ = clips
    drawn = {}
    for epoch in (0, 1):
        training.set_epoch(epoch)
        for index in range(4):
            samples = [training[Draw(index, repeat)] for repeat in range(4)]
            assert {(sample.video, sample.label) for sample in samples} == {(index, training.videos.target(index))}
            drawn |= {
                (epoch, index, repeat): sample.pictures.numpy().tobytes() for repeat, sample in enumerate(samples)
            }
    assert len(set(drawn.values())) == len(drawn) == 32


def test_a_batch_has_each_video_once_in_each_of_its_rounds() -> None:
    order = shuffled(VIDEOS, 3, seed=1, epoch=0)
    batches = repeated(order, 4)
    assert [len(batch) for batch in batches] == [12] * 8
    for batch, videos in zip(batches, order, strict=True):
        assert [draw.video for draw in batch] == videos * 4
        assert [draw.repeat for draw in batch] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
        parts = [World(rank, 5).part(batch) for rank in range(5)]
        assert sorted(draw for part in parts for draw in part) == sorted(batch)


def test_samples_do_not_depend_on_workers_or_on_what_else_is_in_a_batch(clips: Clips) -> None:
    training, _ = clips
    order = repeated(shuffled(VIDEOS, 3, seed=11, epoch=0), 2)
    expected = [torch.cat([training[draw].views for draw in batch]) for batch in order]
    for workers in (0, 2):
        read = [batch.clips for batch in Loader(training, workers=workers).batches(order)]
        assert all(torch.equal(one, two) for one, two in zip(read, expected, strict=True))
    part = [World(1, 2).part(batch) for batch in order]
    read = [batch.clips for batch in Loader(training).batches(part)]
    assert all(torch.equal(one, two[1::2]) for one, two in zip(read, expected, strict=True))


@pytest.mark.parametrize(("batch", "repeats", "steps"), [(4, 1, 6), (4, 2, 12), (4, 4, 24), (10, 2, 4), (96, 2, 1)])
def test_an_epoch_is_one_pass_over_the_videos(
    clips: Clips, monkeypatch: pytest.MonkeyPatch, batch: int, repeats: int, steps: int
) -> None:
    seen: list[list[Draw]] = []
    read = Loader.batches

    def noted(self: Loader, order: list[list[Draw]]) -> object:
        seen.extend(order)
        return read(self, order)

    monkeypatch.setattr(Loader, "batches", noted)
    recipe = replace(RECIPE, epochs=1, batch_size=batch, repeats=repeats)
    _, result = run((clips[0], None), recipe=recipe)  # type: ignore[arg-type]
    assert result.steps == steps == max(1, VIDEOS * repeats // batch)
    draws = [draw for one in seen for draw in one]
    assert len(draws) == len(set(draws)) == min(VIDEOS, steps * batch // repeats) * repeats


def test_one_repeat_trains_as_before_and_two_do_not(clips: Clips) -> None:
    one, _ = run(clips, recipe=replace(RECIPE, epochs=1))
    again, _ = run(clips, recipe=replace(RECIPE, epochs=1, repeats=1))
    two, _ = run(clips, recipe=replace(RECIPE, epochs=1, repeats=2))
    assert same(one, again)
    assert not same(one, two)


def test_each_repeat_of_an_unreadable_video_is_lost(clips: Clips, tmp_path: Path) -> None:
    training, _ = clips
    training.policy = FailurePolicy.SKIP
    training.videos = replace(training.videos, paths=(tmp_path / "missing.mp4", *training.videos.paths[1:]))
    _, result = run((training, None), recipe=replace(RECIPE, epochs=2, repeats=2))  # type: ignore[arg-type]
    assert set(result.failures.causes) == {str(tmp_path / "missing.mp4")}
    assert result.failures.samples == 4


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"repeats": 2, "batch_size": 15}, r"batch_size must be a multiple of repeats \(2\), got 15"),
    ],
)
def test_repeats_that_no_batch_has_are_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(InvalidValue, match=f"^recipe: {words}$"):
        Recipe(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [1, 11, 12, 13])
def test_a_run_with_repeats_goes_on_bit_for_bit(clips: Clips, tmp_path: Path, step: int) -> None:
    recipe = replace(RECIPE, epochs=2, repeats=2)
    whole, _ = run(clips, tmp_path / "whole", recipe)
    with pytest.raises(Stop):
        run(clips, tmp_path / "parts", recipe, progress=stop_at(step))
    parts, _ = run(clips, tmp_path / "parts", recipe)
    assert same(whole, parts)
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")
    with pytest.raises(InvalidValue, match="repeats: 2 there, 1 now"):
        run(clips, tmp_path / "parts", replace(recipe, repeats=1))
