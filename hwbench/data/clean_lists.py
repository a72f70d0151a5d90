"""The videos that passed a check, written as list files that ``--data`` reads."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from hwbench.data.listings import DataListing, SplitVideo
from hwbench.data.media import FileSource
from hwbench.data.readers.lists import class_names, listed_video
from hwbench.errors import InvalidFile, UsageError
from hwbench.printable import shown
from hwbench.workspace import write_text

_LIST_ENDS = (".csv", ".txt")


def check_target(listing: DataListing, out: Path) -> None:
    """Raises UsageError where the lists would not hold what the data set says; ask before hours of work.

    Args:
        listing: The videos.
        out: A list file, or a folder for ``train.txt`` and ``val.txt``.
    """
    if is_list_file(out) and listing.own_split:
        raise UsageError(
            f"{listing.data} says what is for validation, which one list cannot; name a folder: --out {out.stem}"
        )
    for video in listing.videos:
        listed = video.listed
        if not isinstance(listed.label, str) or listed.part is not None or not isinstance(video.source, FileSource):
            raise UsageError(
                f"a list holds a file and one label a line; {video.name} has several labels, a part, or is no file: "
                "leave out --out"
            )
    _check_lines(listing, out.parent if is_list_file(out) else out)


def _check_lines(listing: DataListing, folder: Path) -> None:
    """Refuses what a line of a list does not hold: classes that are others when they are read, paths that are cut."""
    labels: dict[str, str] = {}
    for video in listing.videos:
        listed, line = video.listed, _line(video, folder)
        read = listed_video(folder, line) if line.splitlines() == [line] else None
        if read is None or (os.path.abspath(read.path), read.stream) != (os.path.abspath(listed.path), listed.stream):
            raise UsageError(f"a line of a list does not hold the name of {shown(video.name, 200)}: leave out --out")
        one, other = listed.labels[0], labels.setdefault(read.labels[0], listed.labels[0])
        if one != other:
            raise UsageError(f"classes {other!r} and {one!r} are the same in a list, without blanks: leave out --out")
    try:
        classes = class_names(set(labels), folder)
    except InvalidFile as error:
        raise UsageError(f"{error}: leave out --out") from None
    if all(name.isdecimal() for name in labels) and not {*classes} <= {*listing.classes}:
        raise UsageError(
            f"in a list, classes that are numbers begin with 0; those of {listing.data} are "
            f"{', '.join(listing.classes[:5])}: leave out --out"
        )


def is_list_file(out: Path) -> bool:
    """Whether a path is meant as a list file, not as a folder for two of them."""
    return out.suffix.lower() in _LIST_ENDS


def write_lists(videos: Sequence[SplitVideo], out: Path) -> tuple[Path, ...]:
    """Writes lines ``path label``; blanks in labels become underscores, which is where a list ends a path.

    Args:
        videos: What to list.
        out: A list file for all, or a folder for ``train.txt`` and ``val.txt``.

    Returns:
        The files.

    Raises:
        WorkspaceError: They cannot be written.
    """
    if is_list_file(out):
        targets = {out: list(videos)}
    else:
        targets = {out / f"{split}.txt": [v for v in videos if v.split == split] for split in ("train", "val")}
    for file, listed in targets.items():
        write_text(file, "".join(f"{_line(video, file.parent)}\n" for video in listed))
    return tuple(targets)


def _line(video: SplitVideo, folder: Path) -> str:
    listed = video.listed
    stream = "" if listed.stream is None else f" stream={listed.stream}"
    label = re.sub(r"\s+", "_", listed.labels[0])
    return f"{_relative(listed.path.absolute(), folder.absolute())} {label}{stream}"


def _relative(path: Path, folder: Path) -> str:
    """The path from the folder of the list where it lies below, else the whole path; ``#`` begins a comment."""
    text = os.path.relpath(path, folder) if path.is_relative_to(folder) else str(path)
    return f"./{text}" if text.startswith("#") else text
