"""The clips an export looks at: some of the training videos to calibrate with, the validation videos to judge by."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from hwbench.data import FailurePolicy, Reading, TestClips, VideoList, open_splits
from hwbench.data.loading import Loader, in_order
from hwbench.data.reading import READING
from hwbench.data.sources import CACHE_BYTES, info_index, open_decoder
from hwbench.deploy.source import ExportSource
from hwbench.errors import InvalidValue, VideoError
from hwbench.printable import beginning
from hwbench.workspace import Workspace

# Each gives a histogram some ten thousand values per channel and frame; the ranges of the tiny space stop moving
# before 16 clips, and a clip costs a slow, instrumented forward pass.
CALIBRATION_CLIPS = 32


@dataclass(frozen=True)
class Clips:
    """Test views of videos, cut and normalised as a network wants them.

    Attributes:
        source: The data as the user named it.
        split: ``train`` or ``val``.
        seed: By which videos were chosen.
        dataset: The views.
    """

    source: str
    split: str
    seed: int
    dataset: TestClips

    def __len__(self) -> int:
        return len(self.dataset) * self.dataset.transform.crops

    def views(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Every view in order as (index of its video, float32 (1, 3, T, h, w)).

        Raises:
            VideoError: A video cannot be read and the policy is ``raise``, or none at all can be read.
        """
        yield from self._views(in_order(len(self.dataset), 1))

    def some(self, count: int) -> Iterator[torch.Tensor]:
        """The views of at most ``count`` clips, spread evenly over all; none, where one of these cannot be read.

        What cannot be read is told by ``views``, which every clip goes through in the end.
        """
        total = len(self.dataset)
        chosen = sorted({i * total // count for i in range(count)} if total else set())
        with contextlib.suppress(VideoError):
            yield from (view for _, view in self._views([[index] for index in chosen]))

    def _views(self, order: list[list[int]]) -> Iterator[tuple[int, torch.Tensor]]:
        count = 0
        causes: set[str] = set()
        for batch in Loader(self.dataset).batches(order):
            causes.update(failure.cause for failure in batch.failures)
            for index in range(len(batch)):
                yield int(batch.videos[index]), batch.clips[index : index + 1]
                count += 1
        if not count:
            raise VideoError(f"no video of {self.source} could be read:\n" + "\n".join(sorted(causes)))


def open_calibration(
    workspace: Workspace,
    source: str,
    original: ExportSource,
    *,
    count: int = CALIBRATION_CLIPS,
    seed: int = 0,
    policy: FailurePolicy = FailurePolicy.RAISE,
    reading: Reading = READING,
) -> Clips:
    """The middle clips of ``count`` training videos (all, where there are fewer), drawn without order by the seed.

    They are cut as for a test: what the model will see, not what augmentation makes of it.

    ``reading`` says who decodes; an original that sees flow is given its own.

    Raises:
        UnknownName: Neither ``synthetic`` nor an existing path, or no such decoder.
        InvalidFile: A path whose folders or lists are not as they should be.
    """
    videos = open_splits(workspace, source, seed=original.data_seed, trained_on=original.trained_on).train
    chosen = np.random.default_rng(seed).permutation(len(videos))[:count]
    dataset = _dataset(workspace, videos.subset(sorted(chosen.tolist())), original, (1, 1), policy, reading)
    return Clips(source, "train", seed, dataset)


def open_validation(
    workspace: Workspace,
    source: str,
    original: ExportSource,
    *,
    count: int | None = None,
    policy: FailurePolicy = FailurePolicy.RAISE,
    reading: Reading = READING,
) -> Clips:
    """The test views of all validation videos, or of ``count`` of them spread evenly over the list.

    Raises:
        InvalidValue: The data has other classes than an original whose classes are known.
        And what ``open_calibration`` raises.
    """
    videos = open_splits(workspace, source, seed=original.data_seed, trained_on=original.trained_on).val
    if original.classes and videos.classes != original.classes:
        raise InvalidValue(
            f"{source}: its classes ({beginning(videos.classes)}) are not those of {original.network.name} "
            f"({beginning(original.classes)}); give the data it was trained on: --data DATA"
        )
    kept = range(len(videos)) if count is None else {i * len(videos) // count for i in range(count)}
    chosen = videos.subset(sorted(kept))
    return Clips(source, "val", 0, _dataset(workspace, chosen, original, original.views, policy, reading))


def calibration_inputs(clips: Clips, progress: Callable[[int, int], None]) -> list[torch.Tensor]:
    """The clips with frames as batch, (T, C, H, W) each."""
    from hwbench.models import frames_to_batch

    inputs = []
    for _, view in clips.views():
        inputs.append(frames_to_batch(view).contiguous())
        progress(len(inputs), len(clips))
    return inputs


def _dataset(
    workspace: Workspace,
    videos: VideoList,
    original: ExportSource,
    views: tuple[int, int],
    policy: FailurePolicy,
    reading: Reading,
) -> TestClips:
    _, _, frames, height, width = original.network.input.shape
    if original.clip.frames != frames:
        raise InvalidValue(f"clip: the network takes {frames} frames, the clip has {original.clip.frames}")
    transform = original.picture.fixed_transform((height, width), views[1], original.normalisation)
    return TestClips(
        videos,
        original.clip,
        transform,
        clips=views[0],
        policy=policy,
        cache_bytes=CACHE_BYTES,
        index=info_index(workspace),
        decoder=open_decoder(workspace, replace(reading, flow=original.flow), len(videos)),
    )
