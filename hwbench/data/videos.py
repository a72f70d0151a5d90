"""Lists of labelled videos with training and validation apart. Readers find the videos; nothing is decoded here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hwbench.data.readers import ListedVideo, Reader, reader_of
from hwbench.errors import InvalidFile, UnknownName

_VAL_SHARE = 0.2


@dataclass(frozen=True)
class VideoList:
    """Labelled videos: ``paths[i]`` shows class ``classes[labels[i]]``; ``root`` is the folder they came from.

    ``streams`` has the numbers of streams that were named, by the index of the video; of others the best is read.
    """

    root: Path
    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    streams: Mapping[int, int] = field(default_factory=dict, hash=False)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def identity(self) -> str:
        """Digest of the relative paths, labels and named streams: tells whether a run goes on with the data it began
        with.
        """
        rows = [f"{_relative(p, self.root)}\t{label}" for p, label in zip(self.paths, self.labels)]
        for index, stream in self.streams.items():
            rows[index] += f"\tstream={stream}"
        return hashlib.sha256("\n".join((*self.classes, *rows)).encode()).hexdigest()

    def subset(self, indices: Sequence[int]) -> VideoList:
        """The videos with these indices, in this order."""
        streams = {new: self.streams[old] for new, old in enumerate(indices) if old in self.streams}
        paths = tuple(self.paths[index] for index in indices)
        labels = tuple(self.labels[index] for index in indices)
        return replace(self, paths=paths, labels=labels, streams=streams)


@dataclass(frozen=True)
class Splits:
    """Videos to train on and videos to validate on, with the same classes."""

    train: VideoList
    val: VideoList


Listed = Sequence[ListedVideo]


def read_splits(path: Path, *, reader: Reader | None = None, seed: int = 0) -> Splits:
    """The videos of a data path, as a reader lists them.

    Args:
        path: A folder or a file.
        reader: Knows the layout; None: the first of hwbench's own that recognises the path.
        seed: Chooses the fifth of each class that is for validation, where the data set does not say.

    Raises:
        UnknownName: There is no such path.
        InvalidFile: The path is not of the reader's layout, no videos, or a class which only the validation part has.
    """
    if not path.exists():
        raise UnknownName(f"no data at {path}; expected 'synthetic', a folder of class folders or a list file")
    listing = (reader or reader_of(path)).read(path)
    if not listing.train:
        raise InvalidFile(f"{path}: expected videos to train on, found none")
    labels = {video.label for video in listing.train}
    classes = listing.classes or tuple(sorted(labels))
    unnamed = sorted(labels - set(classes))
    if unnamed:
        raise InvalidFile(f"{path}: class {unnamed[0]!r} has videos and is not in the data set's list of classes")
    train, val = (listing.train, listing.val) if listing.val is not None else _split(listing.train, path, seed)
    unknown = sorted({video.label for video in val} - set(classes))
    if unknown:
        raise InvalidFile(f"{path}: class {unknown[0]!r} has videos for validation and none for training")
    root = path if path.is_dir() else path.parent
    return Splits(_listed(root, train, classes), _listed(root, val, classes))


def _listed(root: Path, videos: Listed, classes: tuple[str, ...]) -> VideoList:
    index = {name: i for i, name in enumerate(classes)}
    streams = {i: video.stream for i, video in enumerate(videos) if video.stream is not None}
    labels = tuple(index[video.label] for video in videos)
    return VideoList(root, tuple(video.path for video in videos), labels, classes, streams)


def _split(videos: Listed, path: Path, seed: int) -> tuple[Listed, Listed]:
    """Of each class the fifth whose digests come first, at least one video where the class has two."""
    root = path if path.is_dir() else path.parent
    val: set[Path] = set()
    for name in sorted({video.label for video in videos}):
        members = [video.path for video in videos if video.label == name]
        count = max(1, round(_VAL_SHARE * len(members))) if len(members) > 1 else 0
        val |= set(sorted(members, key=lambda p: _digest(p, root, seed))[:count])
    if not val:
        raise InvalidFile(
            f"{path}: no class has two videos, so none is left to validate on; make train/ and val/ folders"
        )
    return [video for video in videos if video.path not in val], [video for video in videos if video.path in val]


def _digest(path: Path, root: Path, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{_relative(path, root)}".encode()).hexdigest()


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
