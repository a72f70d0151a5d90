from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import Tiny, data

from hwbench.data import FailurePolicy, TestClips, TestTransform, TrainingClips
from hwbench.errors import CheckFailed, InvalidValue, VideoError
from hwbench.training import evaluate
from hwbench.training.metrics import accuracy

Clips = tuple[TrainingClips, TestClips]


def test_accuracy_counts_by_hand() -> None:
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.0, 0.9, 0.8], [0.6, 0.5, 0.4, 0.3, 0.2, 0.1]])
    assert accuracy(scores, torch.tensor([4, 5])) == (0.5, 0.5)
    assert accuracy(scores, torch.tensor([3, 1])) == (0.0, 0.5)
    assert accuracy(scores[:, :3], torch.tensor([0, 0])) == (0.5, 1.0)


def test_views_of_a_video_are_averaged(clips: Clips) -> None:
    videos = clips[1].videos
    dataset = TestClips(videos, clips[1].clip, TestTransform((16, 16), crops=3), clips=2)
    label = dict(enumerate(videos.labels))
    shown = [0]

    def predict(batch: torch.Tensor) -> torch.Tensor:
        # two of the six views of each video are sure of the right class, four a little for another
        logits = torch.zeros(len(batch), 8)
        for row in range(len(batch)):
            video, view = divmod(shown[0], 6)
            right = label[video]
            logits[row, right if view < 2 else (right + 1) % 8] = 9.0 if view < 2 else 1.0
            shown[0] += 1
        return logits

    scores = evaluate(predict, dataset, batch_size=4)
    assert shown[0] == 6 * len(videos)
    assert (scores.top1, scores.top5, scores.videos) == (1.0, 1.0, 8)


def test_a_module_a_function_and_any_batch_size_score_alike(clips: Clips) -> None:
    module = Tiny().eval()
    first = evaluate(module, clips[1])
    assert evaluate(lambda x: module(x), clips[1], batch_size=1) == first
    assert evaluate(module, clips[1], batch_size=3, workers=2) == first
    seen = []
    evaluate(module, clips[1], batch_size=3, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_wrong_models_are_refused(clips: Clips) -> None:
    with pytest.raises(InvalidValue, match=r"\(8, 5\)"):
        evaluate(lambda x: torch.zeros(len(x), 5), clips[1])
    with pytest.raises(CheckFailed, match="finite"):
        evaluate(lambda x: torch.full((len(x), 8), float("nan")), clips[1])


def test_unreadable_videos_are_left_out_and_named(data_root: Path, tmp_path: Path) -> None:
    dataset = data(data_root, FailurePolicy.SKIP)[1]
    bad = tmp_path / "bad.mp4"
    bad.write_bytes(b"nothing")
    dataset.videos = replace(dataset.videos, paths=(bad, *dataset.videos.paths[1:]))
    scores = evaluate(Tiny().eval(), dataset)
    assert scores.videos == 7
    assert list(scores.failures.causes) == [str(bad)]
    dataset = data(data_root, FailurePolicy.SKIP)[1]
    dataset.videos = replace(dataset.videos, paths=(bad,) * 8)
    with pytest.raises(VideoError, match=r"bad\.mp4"):
        evaluate(Tiny().eval(), dataset)


def test_videos_of_several_classes_are_scored_one_class_at_a_time(clips: Clips) -> None:
    dataset = clips[1]
    several = tuple(tuple({0, label}) for label in dataset.videos.single_labels())
    dataset.videos = replace(dataset.videos, labels=several)
    wanted = dataset.videos.targets()
    scores = evaluate(Tiny().eval(), dataset)
    assert scores.by_video is not None
    assert torch.equal(scores.by_video.targets, wanted)
    assert scores.by_video.scores.sum(1).min() > 1.5  # sigmoids do not share one unit
    assert scores.by_video.measures()["mean_ap"] > 1 / 8
