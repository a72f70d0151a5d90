"""The videos of a data name as they are listed, each with the side of the split that training gives it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hwbench.data.media import VideoSource
from hwbench.data.readers import ListedVideo, Listing
from hwbench.data.sources import read_named
from hwbench.data.videos import Splits, splits_of
from hwbench.errors import InvalidFile
from hwbench.workspace import Workspace

SplitName = Literal["train", "val"]


@dataclass(frozen=True)
class SplitVideo:
    """A listed video and the side it is on."""

    listed: ListedVideo
    split: SplitName

    @property
    def source(self) -> VideoSource:
        """How to open it."""
        return self.listed.opened_by()

    @property
    def name(self) -> str:
        """What messages call it: its source, with the part that its label is about."""
        part = self.listed.part
        if part is None or part.start_s is None or part.end_s is None:
            return self.source.name
        return f"{self.source.name} ({float(part.start_s):g} to {float(part.end_s):g} s)"


@dataclass(frozen=True)
class DataListing:
    """The videos of a data set.

    Attributes:
        data: The name that was given.
        root: The folder that they came from.
        videos: Those to train on, then those to validate on.
        classes: Names in the order of the labels.
        own_split: The data set says itself what is for validation.
        fault: Why training refuses this data set; empty: it does not. All videos are for training then.
        directional: Directions are labels: no picture may be flipped.
    """

    data: str
    root: Path
    videos: tuple[SplitVideo, ...]
    classes: tuple[str, ...]
    own_split: bool
    fault: str = ""
    directional: bool = False


def open_listing(workspace: Workspace, data: str) -> DataListing:
    """The videos of ``synthetic`` (encoded on first use), of a path, or of ``READER:PATH``.

    Raises:
        UnknownName: None of these.
        InvalidFile: A path that is not laid out as its reader expects, or no videos.
    """
    path, listing = read_named(workspace, data)
    root = path if path.is_dir() else path.parent
    try:
        splits = splits_of(listing, path)
    except InvalidFile as error:
        if not listing.train:
            raise
        classes = listing.classes or tuple(sorted({label for video in listing.train for label in video.labels}))
        videos = (*_on_side(listing.train, "train"), *_on_side(listing.val or (), "val"))
        return DataListing(
            data, root, videos, classes, listing.val is not None, str(error), directional=listing.directional
        )
    if listing.val is not None:
        videos = (*_on_side(listing.train, "train"), *_on_side(listing.val, "val"))
    else:
        videos = _drawn(listing, splits)
    return DataListing(
        data, root, videos, splits.train.classes, listing.val is not None, directional=listing.directional
    )


def _on_side(videos: tuple[ListedVideo, ...], split: SplitName) -> tuple[SplitVideo, ...]:
    return tuple(SplitVideo(video, split) for video in videos)


def _drawn(listing: Listing, splits: Splits) -> tuple[SplitVideo, ...]:
    """The sides that were drawn: a listed video is on that where its source with its part is."""
    val = {(splits.val.source(index), splits.val.parts.get(index)) for index in range(len(splits.val))}
    train, chosen = [], []
    for video in listing.train:
        if (video.opened_by(), video.part) in val:
            chosen.append(SplitVideo(video, "val"))
        else:
            train.append(SplitVideo(video, "train"))
    return (*train, *chosen)
