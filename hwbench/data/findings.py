"""What is wrong with the videos of a data set, from their facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from hwbench.data.file_facts import Facts
from hwbench.data.labelled import label_outside
from hwbench.data.listings import DataListing, SplitVideo
from hwbench.data.media import VideoSource
from hwbench.data.readers import Part
from hwbench.data.videos import one_class

# Kind of a finding -> what it means. Those of FAILING make a data set unfit for training.
KINDS: Mapping[str, str] = {
    "layout": "training refuses the data set",
    "missing": "a label whose video is not there",
    "unreadable": "a video that cannot be read",
    "no-frames": "a file without a picture",
    "outside": "a label that begins behind the end of its video, or is of a cut of it",
    "damaged": "frames that the decoder marks as damaged",
    "leak": "a video to validate on that is trained on, too",
    "group-leak": "a group with videos on both sides",
    "conflict": "the same video under several labels",
    "duplicate": "a video that is there more than once",
    "variable-rate": "frames that are unevenly apart",
    "odd-size": "an odd number of pixels on a side",
    "empty-class": "a class without a video that is fit",
    "one-class": "nothing to tell apart: any network is right",
    "no-flow": "a video without its optical flow",
}
FAILING = frozenset({"layout", "missing", "unreadable", "no-frames", "outside", "leak", "group-leak", "no-flow"})
_LOST = frozenset({"missing", "unreadable", "no-frames", "outside"})


@dataclass(frozen=True)
class DataFinding:
    """One thing that is wrong.

    Attributes:
        kind: One of ``KINDS``.
        video: The video, class or data set.
        cause: What is wrong with it, in one line.
        split: The side that the video is on; empty where there is none.
        row: Where it is listed, as ``FILE:LINE``; empty where the reader does not say.
        dropped: A clean list leaves the video out.
    """

    kind: str
    video: str
    cause: str
    split: str = ""
    row: str = ""
    dropped: bool = False

    @property
    def meaning(self) -> str:
        """What the kind means, in words."""
        return KINDS[self.kind]

    @property
    def failing(self) -> bool:
        """Whether training would stop at it, or its validation would be worth nothing."""
        return self.kind in FAILING


@dataclass(frozen=True)
class Content:
    """Which sources show the same: ``key`` is equal for them; ``why`` says how that is known."""

    key: str
    why: str


@dataclass(frozen=True)
class FindingsOf:
    """The findings about a listing, and the videos that a clean list holds."""

    findings: tuple[DataFinding, ...]
    clean: tuple[SplitVideo, ...]


def findings_of(
    listing: DataListing, facts: Mapping[VideoSource, Facts], contents: Mapping[VideoSource, Content]
) -> FindingsOf:
    """Looks at every listed video.

    Args:
        listing: The videos.
        facts: Of ``probe`` or ``decode``, for every source.
        contents: Of the sources that share what they show with another one.
    """
    findings = [DataFinding("layout", listing.data, listing.fault)] if listing.fault else []
    dropped: set[int] = set()
    for index, finding in _everything(listing.videos, facts, contents):
        findings.append(finding)
        if finding.dropped:
            dropped.add(index)
    clean = tuple(video for index, video in enumerate(listing.videos) if index not in dropped)
    findings += _empty_classes(listing, clean)
    if note := one_class(listing.classes, [video.listed for video in listing.videos]):
        findings.append(DataFinding("one-class", listing.data, note))
    order = list(KINDS)
    findings.sort(key=lambda one: (order.index(one.kind), one.split, one.video))
    return FindingsOf(tuple(findings), clean)


def _everything(
    videos: Sequence[SplitVideo], facts: Mapping[VideoSource, Facts], contents: Mapping[VideoSource, Content]
) -> Iterator[tuple[int, DataFinding]]:
    readable = []
    for index, video in enumerate(videos):
        own = dict(_of_video(video, facts[video.source]))
        for kind, cause in own.items():
            yield index, _finding(kind, video, cause, dropped=kind in _LOST)
        if not _LOST & own.keys():
            readable.append(index)
    yield from _repeats(videos, readable, contents)
    yield from _shared_groups(videos, readable)


def _of_video(video: SplitVideo, facts: Facts) -> Iterator[tuple[str, str]]:
    """Kinds and causes of one video: those of its file, and of the part of the file that its label is about."""
    yield from _of_file(facts)
    part = video.listed.part
    if part is not None and not facts.get("error"):
        cause = label_outside(part, Fraction(facts["exact_duration_s"]))
        if cause:
            yield "outside", cause


def _of_file(facts: Facts) -> Iterator[tuple[str, str]]:
    """Kinds and causes of one file."""
    error = facts.get("error")
    if error:
        yield _kind_of_error(str(error)), str(error)
        return
    if facts.get("damaged"):
        yield "damaged", f"{facts['damaged']} of {facts['frames']} frames"
    if facts["variable"]:
        low_ms, high_ms = 1e3 * facts["shortest_step_s"], 1e3 * facts["longest_step_s"]
        yield (
            "variable-rate",
            f"frames are {low_ms:.4g} to {high_ms:.4g} ms apart; --span counts seconds, --stride does not",
        )
    if facts["width"] % 2 or facts["height"] % 2:
        yield "odd-size", f"{facts['width']}x{facts['height']} pixels; hwbench data prepare makes sides even"


def _kind_of_error(error: str) -> str:
    if error.startswith("no such file"):
        return "missing"
    return "no-frames" if error.startswith(("no frame", "no video stream")) else "unreadable"


def _repeats(
    videos: Sequence[SplitVideo], readable: Sequence[int], contents: Mapping[VideoSource, Content]
) -> Iterator[tuple[int, DataFinding]]:
    """Leaks, duplicates and conflicts among the videos that show the same."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index in readable:
        source = videos[index].source
        groups[contents[source].key if source in contents else cast(Hashable, source)].append(index)
    for members in groups.values():
        if len(members) > 1:
            leaks, conflicts = dict(_leaks(videos, members, contents)), dict(_conflicts(videos, members, contents))
            yield from (*leaks.items(), *conflicts.items())
            rest = [index for index in members if index not in leaks and index not in conflicts]
            for split in ("train", "val"):
                side = [index for index in rest if videos[index].split == split]
                yield from _duplicates(videos, side, contents)


def _leaks(
    videos: Sequence[SplitVideo], members: Sequence[int], contents: Mapping[VideoSource, Content]
) -> Iterator[tuple[int, DataFinding]]:
    """Of each video to train on that overlaps with one to validate on; the clean list leaves the former out."""
    val = [index for index in members if videos[index].split == "val"]
    for index in members:
        if videos[index].split == "val":
            continue
        other = next((one for one in val if _overlap(videos[index].listed.part, videos[one].listed.part)), None)
        if other is not None:
            cause = f"{_why(videos[index], videos[other], contents)} {videos[other].name}, which is validated on"
            yield index, _finding("leak", videos[index], cause, dropped=True)


def _conflicts(
    videos: Sequence[SplitVideo], members: Sequence[int], contents: Mapping[VideoSource, Content]
) -> Iterator[tuple[int, DataFinding]]:
    """Copies under several labels, on whatever sides; none of them stays: nobody knows which label is right."""
    for copies in _copies(videos, members):
        by_labels: dict[frozenset[str], int] = {}
        for index in copies:
            by_labels.setdefault(frozenset(videos[index].listed.labels), index)
        for index in copies if len(by_labels) > 1 else ():
            own = videos[index].listed.labels
            other = next(one for labels, one in by_labels.items() if labels != {*own})
            cause = f"{_why(videos[index], videos[other], contents)} {videos[other].name} under another label: "
            cause += f"{', '.join(own)} and {', '.join(videos[other].listed.labels)}"
            yield index, _finding("conflict", videos[index], cause, dropped=True)


def _duplicates(
    videos: Sequence[SplitVideo], side: Sequence[int], contents: Mapping[VideoSource, Content]
) -> Iterator[tuple[int, DataFinding]]:
    """Copies on one side, of which the first stays."""
    for first, *others in _copies(videos, side):
        for index in others:
            cause = f"{_why(videos[index], videos[first], contents)} {videos[first].name}"
            yield index, _finding("duplicate", videos[index], cause, dropped=True)


def _copies(videos: Sequence[SplitVideo], members: Iterable[int]) -> Iterable[list[int]]:
    """Those of the same part of what they show, together."""
    parts: dict[Part | None, list[int]] = defaultdict(list)
    for index in members:
        parts[videos[index].listed.part].append(index)
    return parts.values()


def _why(video: SplitVideo, other: SplitVideo, contents: Mapping[VideoSource, Content]) -> str:
    if video.source == other.source:
        return "the same file as"
    return contents[video.source].why


def _overlap(one: Part | None, other: Part | None) -> bool:
    """Whether two parts of a video have a moment in common; a labelled moment is a part by itself."""
    (low, high), (other_low, other_high) = _range(one), _range(other)
    return low == other_low or (low < other_high and other_low < high)


def _range(part: Part | None) -> tuple[float | Fraction, float | Fraction]:
    if part is None:
        return 0.0, float("inf")
    if part.start_s is None and part.end_s is None and part.keyframe_s is not None:
        return part.keyframe_s, part.keyframe_s
    return part.start_s or 0.0, float("inf") if part.end_s is None else part.end_s


def _shared_groups(videos: Sequence[SplitVideo], readable: Iterable[int]) -> Iterator[tuple[int, DataFinding]]:
    """Of each group with videos on both sides those to train on, which the clean list leaves out."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index in readable:
        if videos[index].listed.group:
            groups[videos[index].listed.group].append(index)
    for group, members in groups.items():
        other = next((videos[index] for index in members if videos[index].split == "val"), None)
        for index in members if other else ():
            if other and videos[index].split == "train":
                cause = f"group {group!r}, as {other.name}, which is validated on"
                yield index, _finding("group-leak", videos[index], cause, dropped=True)


def _empty_classes(listing: DataListing, clean: Sequence[SplitVideo]) -> Iterator[DataFinding]:
    for split, words in (("train", "train on"), ("val", "validate on")):
        there = {label for video in clean if video.split == split for label in video.listed.labels}
        if there or split == "train":
            for name in listing.classes:
                if name not in there:
                    yield DataFinding("empty-class", name, f"no fit video to {words}", split)


def _finding(kind: str, video: SplitVideo, cause: str, *, dropped: bool) -> DataFinding:
    return DataFinding(kind, video.name, cause, video.split, video.listed.row, dropped)
