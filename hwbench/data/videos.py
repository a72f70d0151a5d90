"""Lists of labelled videos with training and validation apart. Readers find the videos; nothing is decoded here."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

from hwbench import lookup
from hwbench.data.media import FileSource, VideoSource, relative_name
from hwbench.data.named_groups import path_of, with_named_groups
from hwbench.data.readers import ListedVideo, Listing, Part, Reader, read, reader_of
from hwbench.errors import InvalidFile, InvalidValue, UnknownName

_VAL_SHARE = 0.2
# Names of files need not be UTF-8; digests of those that are do not change.
_ANY_NAME = "surrogateescape"
# Stands for the class of videos that show none.
_NO_CLASS = ""
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class VideoList:
    """Labelled videos: ``paths[i]`` shows class ``classes[labels[i]]``; ``root`` is the folder they came from.

    Attributes:
        root: The folder they came from.
        paths: The file of each video, or the folder or archive that holds it.
        labels: The class of each video as an index into ``classes``; a tuple of them where videos may show several
            (``multi_label``).
        classes: Names of the classes.
        streams: Numbers of streams that were named, by the index of the video; of others the best is read.
        sources: How to open those that are no files of their own, by the index of the video.
        parts: What the label is about where that is not the whole video, by the index of the video.
        directional: Directions are labels: no picture may be flipped.
    """

    root: Path
    paths: tuple[Path, ...]
    labels: tuple[int | tuple[int, ...], ...]
    classes: tuple[str, ...]
    streams: Mapping[int, int] = field(default_factory=dict, hash=False)
    sources: Mapping[int, VideoSource] = field(default_factory=dict, hash=False)
    parts: Mapping[int, Part] = field(default_factory=dict, hash=False)
    directional: bool = False

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def multi_label(self) -> bool:
        """Whether a video may show several classes at once."""
        return bool(self.labels) and isinstance(self.labels[0], tuple)

    @property
    def identity(self) -> str:
        """Digest of what is read and its labels: tells whether a run goes on with the data it began with."""
        rows = [_row(path, self.root, label) for path, label in zip(self.paths, self.labels)]
        for index, stream in self.streams.items():
            rows[index] += f"\tstream={stream}"
        for index, source in self.sources.items():
            rows[index] += f"\tsource={source.identity(self.root)}"
        for index, part in self.parts.items():
            rows[index] += f"\tpart={part}"
        return hashlib.sha256("\n".join((*self.classes, *rows)).encode(errors=_ANY_NAME)).hexdigest()

    def source(self, index: int) -> VideoSource:
        """How to open a video."""
        return self.sources.get(index) or FileSource(self.paths[index], self.streams.get(index))

    def target(self, index: int) -> int | torch.Tensor:
        """What a network learns of a video: its class, or float32 (classes) of 0 and 1 where there may be several."""
        label = self.labels[index]
        if isinstance(label, int):
            return label
        target = torch.zeros(len(self.classes))
        target[list(label)] = 1
        return target

    def single_labels(self) -> tuple[int, ...]:
        """The one class of each video.

        Raises:
            InvalidValue: Videos may show several classes, for which top-1 says nothing.
        """
        single = tuple(label for label in self.labels if isinstance(label, int))
        if len(single) < len(self):
            raise InvalidValue(f"{self.root}: expected videos of one class each, these may show several at once")
        return single

    def targets(self) -> torch.Tensor:
        """The targets of all videos: long (N), or float32 (N, classes) where a video may show several classes."""
        if not self.multi_label:
            return torch.tensor(self.labels, dtype=torch.long)
        targets = torch.zeros(len(self), len(self.classes))
        for row, label in zip(targets, self.labels):
            row[list(label) if isinstance(label, tuple) else label] = 1
        return targets

    def subset(self, indices: Sequence[int]) -> VideoList:
        """The videos with these indices, in this order."""
        return replace(
            self,
            paths=tuple(self.paths[index] for index in indices),
            labels=tuple(self.labels[index] for index in indices),
            streams=_subset(self.streams, indices),
            sources=_subset(self.sources, indices),
            parts=_subset(self.parts, indices),
        )


@dataclass(frozen=True)
class Splits:
    """Videos to train on and videos to validate on, with the same classes; ``notes`` are those of the listing, that
    there is one class only, that a drawn split keeps groups together which names tell, and which classes it leaves no
    video to train on.
    """

    train: VideoList
    val: VideoList
    notes: tuple[str, ...] = ()


Listed = Sequence[ListedVideo]


def read_splits(path: str | Path, *, reader: Reader | None = None, seed: int = 0) -> Splits:
    """The videos of a data path, as a reader lists them.

    Args:
        path: A folder or a file.
        reader: Knows the layout; None: the first of hwbench's own that recognises the path.
        seed: Chooses the fifth of each class, and of the videos without one, that is for validation, where the data
            set does not say.

    Raises:
        UnknownName: There is no such path.
        InvalidFile: The path is not of the reader's layout, no videos, or a class which only the validation part has.
    """
    path = Path(path)
    if not lookup.exists(path):
        raise UnknownName(f"no data at {path}; expected 'synthetic', a folder of class folders or a list file")
    return splits_of(read(reader or reader_of(path), path), path, seed=seed)


def splits_of(listing: Listing, path: Path, *, seed: int = 0, trained_on: str = "") -> Splits:
    """Training and validation lists of what a reader found at ``path``; the other arguments are those of
    ``read_splits``.

    Args:
        trained_on: ``VideoList.identity`` of the videos that a checkpoint was trained on. Versions before took no
            groups from names; where they drew these videos, they are drawn again, so that none is validated on.

    Raises:
        InvalidFile: No videos, a fault of the data set, videos of one class and of several, or a class which only the
            validation part has.
    """
    grouped = with_named_groups(listing.train) if listing.val is None else ()
    if not grouped:
        return _splits(listing, path, seed)
    if trained_on:
        with contextlib.suppress(InvalidFile):
            before = _splits(listing, path, seed)
            if before.train.identity == trained_on:
                return before
    splits = _splits(replace(listing, train=grouped), path, seed)
    note = (
        f"{path}: names such as {path_of(grouped[0]).name} tell groups of UCF: clips of a group are on one side of the "
        "drawn split; reader ucf101 takes the official lists, where they are there"
    )
    return replace(splits, notes=(note, *splits.notes))


def _splits(listing: Listing, path: Path, seed: int) -> Splits:
    if not listing.train:
        raise InvalidFile(f"{path}: expected videos to train on, found none")
    if listing.fault:
        raise InvalidFile(listing.fault)
    labels = _labels(listing.train)
    classes = listing.classes or tuple(sorted(labels))
    unnamed = sorted(labels - set(classes))
    if unnamed:
        raise InvalidFile(f"{path}: class {unnamed[0]!r} has videos and is not in the data set's list of classes")
    train, val = (listing.train, listing.val) if listing.val is not None else _split(listing.train, path, seed)
    unknown = sorted(_labels(val) - set(classes))
    if unknown:
        raise InvalidFile(f"{path}: class {unknown[0]!r} has videos for validation and none for training")
    if len({isinstance(video.label, str) for video in (*train, *val)}) > 1:
        raise InvalidFile(f"{path}: some videos have one class and others a list of classes; expected one form")
    root = path if path.is_dir() else path.parent
    drawn = listing.val is None
    notes = (one_class(classes, listing.train), _untrained(labels - _labels(train)) if drawn else "")
    return Splits(
        _listed(root, train, classes, directional=listing.directional),
        _listed(root, val, classes, directional=listing.directional),
        (*listing.notes, *filter(None, notes)),
    )


def one_class(classes: Sequence[str], videos: Listed) -> str:
    """What is wrong with videos that all have one class, in one line; empty where there are several classes."""
    if len(classes) != 1 or not all(isinstance(video.label, str) for video in videos):
        return ""
    return (
        f"one class only, {classes[0]!r}: any network is right about it; give the folder that holds the folders of the "
        "classes, or a list with all of them"
    )


def _untrained(classes: set[str]) -> str:
    """That a drawn split leaves classes without a video to train on, in one line; empty for no classes."""
    names = ", ".join([*map(repr, sorted(classes)[:5]), *(["..."] if len(classes) > 5 else [])])
    return names and (
        f"no video is left to train on of {names}: whatever is validated on takes a class away; say in the data set "
        "what to validate on"
    )


def _labels(videos: Listed) -> set[str]:
    return {label for video in videos for label in video.labels}


def _listed(root: Path, videos: Listed, classes: tuple[str, ...], *, directional: bool) -> VideoList:
    index = {name: i for i, name in enumerate(classes)}
    return VideoList(
        root,
        tuple(video.path for video in videos),
        tuple(
            index[video.label] if isinstance(video.label, str) else tuple(sorted(index[one] for one in video.label))
            for video in videos
        ),
        classes,
        streams={i: video.stream for i, video in enumerate(videos) if video.stream is not None},
        sources={i: video.source for i, video in enumerate(videos) if video.source is not None},
        parts={i: video.part for i, video in enumerate(videos) if video.part is not None},
        directional=directional,
    )


def _split(videos: Listed, path: Path, seed: int) -> tuple[Listed, Listed]:
    """Of each class the fifth whose digests come first, at least one video where the class has two.

    Videos that show no class are drawn as a class of their own, after the others. Groups stay together: of a class with
    groups, whole groups are taken, and with several classes to a group the group is on the side that its first class
    chose. What would leave a class without a video to train on is passed over, unless none was left to validate on.
    """
    root = path if path.is_dir() else path.parent
    names = [video.group or _source_name(video, root) for video in videos]
    members: dict[str, set[str]] = {}
    labels: dict[str, set[str]] = {}
    for name, video in zip(names, videos):
        for label in video.labels or (_NO_CLASS,):
            members.setdefault(label, set()).add(name)
            labels.setdefault(name, set()).add(label)
    val = _validated(members, seed, labels) or _validated(members, seed, {})
    if not val:
        several = "videos of two groups" if any(video.group for video in videos) else "two videos"
        raise InvalidFile(
            f"{path}: no class has {several}, so none is left to validate on; make train/ and val/ folders"
        )
    return (
        [video for name, video in zip(names, videos) if name not in val],
        [video for name, video in zip(names, videos) if name in val],
    )


def _validated(members: Mapping[str, set[str]], seed: int, keeping: Mapping[str, set[str]]) -> set[str]:
    """The names to validate on.

    Args:
        members: The names of each class.
        seed: Orders the names.
        keeping: Of a name, the classes which it may not take the last name to train on from.
    """
    val: set[str] = set()
    train: set[str] = set()
    left = {label: len(names) for label, names in members.items()}
    for label in sorted(members, key=lambda one: (one == _NO_CLASS, one)):
        names = members[label]
        count = max(1, round(_VAL_SHARE * len(names))) if len(names) > 1 else 0
        wanted = count - sum(name in val for name in names)
        for name in sorted(names - val - train, key=lambda name: (_digest(name, seed), name)):
            labels = keeping.get(name, set())
            if wanted > 0 and all(left[one] > 1 for one in labels):
                val.add(name)
                wanted -= 1
                for one in labels:
                    left[one] -= 1
        train |= names - val
    return val


def _source_name(video: ListedVideo, root: Path) -> str:
    """What a video is drawn by: its file, or what its source is told by where it is none."""
    return relative_name(video.path, root) if video.source is None else video.source.identity(root)


def _digest(name: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{name}".encode(errors=_ANY_NAME)).hexdigest()


def _row(path: Path, root: Path, label: int | tuple[int, ...]) -> str:
    text = str(label) if isinstance(label, int) else ",".join(map(str, label))
    return f"{relative_name(path, root)}\t{text}"


def _subset(values: Mapping[int, _Value], indices: Sequence[int]) -> dict[int, _Value]:
    return {new: values[old] for new, old in enumerate(indices) if old in values}
