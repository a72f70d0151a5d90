"""The videos that passed a check, written as list files that ``--data`` reads.

Where labels are about parts of videos the files are tables, read as ``table:PATH``.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from hwbench import lookup
from hwbench.data.listings import DataListing, SplitVideo
from hwbench.data.media import FileSource
from hwbench.data.readers.directions import COMMENT, DIRECTIONAL
from hwbench.data.readers.lists import class_names, is_number, listed_video
from hwbench.data.readers.sides import side_of_word
from hwbench.data.readers.table import AS_CELLS, listing_of
from hwbench.errors import InvalidFile, UsageError
from hwbench.printable import as_cell, is_formula, is_utf8, shown
from hwbench.workspace import write_text

_TABLE_END = ".csv"
_LIST_ENDS = (_TABLE_END, ".txt")
_COLUMNS = ("path", "label", "start_s", "end_s", "group")


def check_target(listing: DataListing, out: Path) -> None:
    """Raises UsageError where the lists would not hold what the data set says; ask before hours of work.

    Args:
        listing: The videos.
        out: A list file, or a folder for ``train.txt`` and ``val.txt``.
    """
    if is_list_file(out) and listing.own_split:
        raise UsageError(
            f"{listing.data} says what is for validation, which one list cannot; name a folder: "
            f"--out {_place(listing, out)}"
        )
    for video in listing.videos:
        listed = video.listed
        several, inside = not isinstance(listed.label, str), not isinstance(video.source, FileSource)
        if several or inside:
            what = "has several labels" if several else "is no file of its own"
            raise UsageError(
                f"a list holds a file and one label a line; {video.name} {what}: leave out --out; "
                "--on-error skip of a training leaves out what cannot be read"
            )
    folder = out.parent if is_list_file(out) else out
    if not has_parts(listing):
        groups = [video.listed.group for video in listing.videos if video.listed.group]
        if is_list_file(out) and len({*groups}) < len(groups):
            raise UsageError(
                f"{listing.data} says which videos stay on one side of a split, which a list cannot; name a folder for "
                f"the split that training would draw: --out {_place(listing, out)}"
            )
        labels = _check_lines(listing, folder)
        if not is_list_file(out):
            _check_trained(labels, folder)
        if out.suffix.lower() == _TABLE_END:
            _check_cells(listing, out)
        return
    if is_list_file(out) and out.suffix.lower() != _TABLE_END:
        raise UsageError(
            f"labels of {listing.data} are about parts of videos, which stand in a table: "
            f"--out {_place(listing, out, _TABLE_END)}"
        )
    _check_rows(listing, folder)


def check_own_lists(source: Path, out: Path, *, parts: bool) -> None:
    """Raises UsageError where lists would replace those that the data set itself is read from, or would be read for it.

    Args:
        source: What the data set is read from: a file, or a folder.
        out: A list file, or a folder.
        parts: Whether tables are written.
    """
    for file in _targets(out, parts):
        if file.exists() and (file.samefile(source) or (source.is_dir() and file.parent.samefile(source))):
            raise UsageError(
                f"--out: {file} is where the data set itself says what its videos are, and what it says of those that "
                "are not fit would be lost; name another place"
            )
    if source.is_dir() and not is_list_file(out) and out.is_dir() and out.samefile(source):
        raise UsageError(
            f"--out: {out} is the folder of the data set, which would be read from these lists from then on; name "
            f"another one: --out {shlex.quote(_beside(out))}"
        )


def check_no_class(source: Path, roots: Sequence[Path], out: Path) -> None:
    """Raises UsageError where a folder that is made for the lists would be a class of the data set, or a side of it.

    Args:
        source: The folder of the data set.
        roots: The folders whose folders are its classes: ``source``, or its sides.
        out: A list file, or a folder.
    """
    folder = (out.parent if is_list_file(out) else out).resolve()
    for root in (*roots, source):
        whole = root.resolve()
        if folder == whole or not folder.is_relative_to(whole):
            continue
        new = whole / folder.relative_to(whole).parts[0]
        # Beside sides whose whole names say so, other folders are left out.
        is_beside = root not in roots and all(side_of_word(one.name) for one in roots) and not side_of_word(new.name)
        if not (new.exists() or new.name.startswith(".") or is_beside):
            place = f"{_beside(source)}/{out.name}" if is_list_file(out) else _beside(source)
            raise UsageError(
                f"--out: {out} is inside {root}, whose folders are {'classes' if root in roots else 'sides'}; name a "
                f"folder outside: --out {shlex.quote(place)}"
            )
        return


def _beside(folder: Path) -> str:
    """The folder for lists that is advised: beside that of a data set."""
    return f"{folder.resolve() if folder.name in ('', '..') else folder}-clean"


def _place(listing: DataListing, out: Path, ending: str = "") -> str:
    """Where lists of another form go, as a word of a command line: beside ``out``, and not where the data set is.

    Args:
        listing: The data set.
        out: The list file that does not do.
        ending: Of a list file that does; empty: a folder does.
    """
    place = out.with_suffix(ending)
    while lookup.exists(place) if ending else lookup.is_file(place) or _holds(place, listing):
        place = place.with_name(f"{place.name.removesuffix(ending)}-clean{ending}")
    return shlex.quote(str(place))


def _holds(folder: Path, listing: DataListing) -> bool:
    """Whether a folder is where a data set, or a video of it, lies."""
    whole = folder.resolve()
    return whole == listing.root.resolve() or any(
        video.listed.path.absolute().is_relative_to(whole) for video in listing.videos
    )


def _targets(out: Path, parts: bool) -> dict[Path, str | None]:
    """The files of ``--out``, each with the side that it has; None: all."""
    if is_list_file(out):
        return {out: None}
    return {out / f"{split}{_TABLE_END if parts else '.txt'}": split for split in ("train", "val")}


def has_parts(listing: DataListing) -> bool:
    """Whether labels are about parts of videos, which a line of a list does not hold."""
    return any(video.listed.part is not None for video in listing.videos)


def _check_rows(listing: DataListing, folder: Path) -> None:
    """Refuses what a row of a table does not hold: a box, a keyframe, a stream, times without an end as decimals."""
    labels = {label for video in listing.videos for label in video.listed.labels}
    for video in listing.videos:
        listed, row = video.listed, _row(video, folder)
        try:
            (read,) = listing_of([row], folder).train
        except InvalidFile:
            read = None
        held = read and (os.path.abspath(read.path), read.label, read.stream, read.part, read.group)
        if held != (os.path.abspath(listed.path), listed.label, listed.stream, listed.part, listed.group) or any(
            text.splitlines() not in ([], [text]) or not is_utf8(text) for text in row.values()
        ):
            raise UsageError(
                "a table holds a file, a label, the beginning and the end of a part, and a group; "
                f"{shown(video.name, 200)} has a box, a moment, a stream or a name that stands in none: leave out --out"
            )
    _check_classes(listing, labels, folder)


def _check_lines(listing: DataListing, folder: Path) -> dict[str, set[str]]:
    """Refuses what a line of a list does not hold: classes that are others when they are read, paths that are cut.

    Returns:
        The labels of each side as they are read.
    """
    labels: dict[str, str] = {}
    sides: dict[str, set[str]] = {"train": set(), "val": set()}
    for video in listing.videos:
        listed, line = video.listed, _line(video, folder)
        read = listed_video(folder, line) if line.splitlines() == [line] and is_utf8(line) else None
        if read is None or (os.path.abspath(read.path), read.stream) != (os.path.abspath(listed.path), listed.stream):
            raise UsageError(f"a line of a list does not hold the name of {shown(video.name, 200)}: leave out --out")
        one, other = listed.labels[0], labels.setdefault(read.labels[0], listed.labels[0])
        sides[video.split].add(read.labels[0])
        if one != other:
            raise UsageError(f"classes {other!r} and {one!r} are the same in a list, without blanks: leave out --out")
    _check_classes(listing, set(labels), folder)
    return sides


def _check_trained(labels: Mapping[str, set[str]], folder: Path) -> None:
    """Refuses two lists of which that for training does not have a class of the other, as training does."""
    untrained = sorted(labels["val"] - {*class_names(labels["train"], folder)})
    if untrained:
        raise UsageError(
            f"class {untrained[0]!r} has videos for validation and none for training, and two lists have no classes "
            "but those to train on: leave out --out"
        )


def _check_cells(listing: DataListing, out: Path) -> None:
    """Refuses lines that hold a formula to spreadsheets, which open what is called a table."""
    for video in listing.videos:
        if any(map(is_formula, re.split("[,;\t]", _line(video, out.parent)))):
            raise UsageError(
                f"{shown(video.name, 200)} or its label is a formula to spreadsheets behind a comma or a semicolon, "
                f"and they open {_TABLE_END} files: --out {_place(listing, out, '.txt')}"
            )


def _check_classes(listing: DataListing, labels: set[str], folder: Path) -> None:
    """Refuses labels whose classes are others when they are read."""
    numbers = sorted(filter(is_number, labels))
    if numbers and (names := sorted(labels - {*numbers})):
        raise UsageError(
            f"in a list, labels are either all whole numbers or all names; {listing.data} has {numbers[0]!r} and "
            f"{shown(names[0], 80)}: leave out --out, and train on {listing.data} with --on-error skip, or rename the "
            f"classes that are numbers, such as c{numbers[0]} for {numbers[0]}"
        )
    try:
        classes = class_names(labels, folder)
    except InvalidFile as error:
        raise UsageError(f"{error}: leave out --out") from None
    if all(name.isdecimal() for name in labels) and not {*classes} <= {*listing.classes}:
        raise UsageError(
            f"in a list, classes that are numbers begin with 0; those of {listing.data} are "
            f"{', '.join(listing.classes[:5])}: leave out --out"
        )


def numbers_note(listing: DataListing, out: Path) -> str:
    """One line where the lists give classes other numbers than the data set has; empty where numbers stay.

    Args:
        listing: The videos; ``check_target`` has found them fit for lists.
        out: A list file, or a folder.
    """
    as_read = str if has_parts(listing) else _without_blanks
    labels = {as_read(label) for video in listing.videos for label in video.listed.labels}
    if not labels or class_names(labels, out) == tuple(map(as_read, listing.classes)):
        return ""
    return (
        f"{out}: lists number the classes that have videos, names alphabetically, and {listing.data} numbers them in "
        f"another way: checkpoints trained on one do not fit the other. To keep the numbers, train on {listing.data} "
        "with --on-error skip"
    )


def untrained_classes(videos: Sequence[SplitVideo], out: Path, *, parts: bool) -> frozenset[str]:
    """Classes of which two lists cannot hold the videos to validate on, since they have none to train on.

    Args:
        videos: What to list; ``check_target`` has found their labels fit for lists.
        out: A list file, or a folder.
        parts: Whether tables are written, which have the classes of both sides.
    """
    if parts or is_list_file(out):
        return frozenset()
    sides = {side: {video.listed.labels[0] for video in videos if video.split == side} for side in ("train", "val")}
    trained = {*class_names(set(map(_without_blanks, sides["train"])), out)}
    return frozenset(label for label in sides["val"] if _without_blanks(label) not in trained)


def is_list_file(out: Path) -> bool:
    """Whether a path is meant as a list file, not as a folder for two of them."""
    return out.suffix.lower() in _LIST_ENDS


def write_lists(
    videos: Sequence[SplitVideo], out: Path, *, parts: bool = False, directional: bool = False
) -> tuple[Path, ...]:
    """Writes lines ``path label``; blanks in labels become underscores, which is where a list ends a path.

    Args:
        videos: What to list.
        out: A list file for all, or a folder for ``train.txt`` and ``val.txt``.
        parts: Tables are written instead, ``train.csv`` and ``val.csv`` in a folder (``has_parts``).
        directional: Labels tell directions, which a comment, or a column of a table, says then.

    Returns:
        The files.

    Raises:
        WorkspaceError: They cannot be written.
    """
    targets = _targets(out, parts)
    for file, side in targets.items():
        listed = [video for video in videos if side in (None, video.split)]
        if parts:
            write_text(file, _table(listed, file.parent, {DIRECTIONAL: "yes"} if directional else {}))
        else:
            lines = [*([COMMENT] if directional else []), *(_line(video, file.parent) for video in listed)]
            write_text(file, "".join(f"{line}\n" for line in lines))
    return tuple(targets)


def _table(videos: Sequence[SplitVideo], folder: Path, same: Mapping[str, str]) -> str:
    """A table of videos; ``same`` are columns with one value in all rows."""
    text = io.StringIO()
    rows = csv.DictWriter(text, (*_COLUMNS, *same), lineterminator="\n")
    rows.writeheader()
    for video in videos:
        row = _row(video, folder)
        rows.writerow({**row, **{column: as_cell(row[column]) for column in AS_CELLS}, **same})
    return text.getvalue()


def _row(video: SplitVideo, folder: Path) -> Mapping[str, str]:
    """A row of a table, column -> text."""
    listed = video.listed
    start_s, end_s = (None, None) if listed.part is None else (listed.part.start_s, listed.part.end_s)
    path = _relative(listed.path.absolute(), folder.absolute())
    return dict(zip(_COLUMNS, (path, listed.labels[0], _decimal(start_s), _decimal(end_s), listed.group)))


def _decimal(seconds: Fraction | None) -> str:
    """Seconds as a decimal number, exact where they are one; empty for None."""
    return "" if seconds is None else format(Decimal(seconds.numerator) / Decimal(seconds.denominator), "f")


def _line(video: SplitVideo, folder: Path) -> str:
    listed = video.listed
    stream = "" if listed.stream is None else f" stream={listed.stream}"
    label = _without_blanks(listed.labels[0])
    return f"{_relative(listed.path.absolute(), folder.absolute())} {label}{stream}"


def _without_blanks(label: str) -> str:
    return re.sub(r"\s+", "_", label)


def _relative(path: Path, folder: Path) -> str:
    """The path from the folder of the list where it lies below, else the whole path.

    ``#`` begins a comment, and ``=`` a formula of a spreadsheet: they stand behind ``./``.
    """
    text = os.path.relpath(path, folder) if path.is_relative_to(folder) else str(path)
    return f"./{text}" if text.startswith("#") or is_formula(text) else text
