"""List files.

* A folder with ``train.txt`` and ``val.txt`` (or ``.csv``, and other words of ``sides.py``);
* a list file; if it is called ``train.*`` and a ``val.*`` lies beside it, that one is for validation, and so is
  ``NAME_val_MORE.txt`` beside ``NAME_train_MORE.txt``.

A line of a list is ``path label``: the path relative to the list's folder, the label a whole number from 0 or a name,
of one kind in all lines. Behind a tab a label may have blanks. Blank lines and lines starting with ``#`` are skipped.
Names are numbered alphabetically.
``path label stream=2`` reads the stream with that number, as ``ffprobe`` prints it, and not the best one of the file.
``# directional`` before the first line says that labels tell directions: clips are not flipped.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.directions import is_list_directional
from hwbench.data.readers.sides import TRAIN, list_beside, side_files, side_of, side_of_word
from hwbench.errors import InvalidFile
from hwbench.printable import shown

_ENDS = (".txt", ".csv")
# Where lists of mmaction2 have their folders of images, relative to the list.
_FRAME_ROOTS = ("", "rawframes", "rawframes_train", "rawframes_val")
_OPTION, _STREAM = re.compile(r"([a-z_]+)=.*"), re.compile(r"stream=([0-9]{1,4})")
_TABBED = re.compile(r"([^\t]+)\t+([^\t]+?)(?:\s+([a-z_]+=\S*))?")
_JSON = re.compile(r'\s*[\[{]\s*[\[{"]')
_JESTER = re.compile(r"[0-9]+;[^;]+")
_FRAMES = re.compile(r"(.*\S)\s+[0-9]{1,9}\s+[0-9]{1,9}")
# Above this a number is no label but a mistake, such as a length in frames.
_MOST_CLASSES = 100_000


@readers.register("lists")
class VideoLists:
    """Text files with a line ``path label`` for each video."""

    def recognises(self, path: Path) -> bool:
        """Whether the path is a file, or a folder with a list for training and one for validation."""
        return bool(_lists(path))

    def read(self, path: Path) -> Listing:
        """Videos in the order of the lines.

        Raises:
            InvalidFile: A line that does not parse, labels of two kinds, no list, or no video of any list is there. A
                list that was found by the rest of its name and does not parse is left out with a note.
        """
        files = _lists(path)
        if not files:
            raise InvalidFile(f"{path}: expected a list file, or a folder with train.txt and val.txt (or .csv)")
        listed, notes = {files[0]: read_list(files[0])}, list[str]()
        for file in files[1:]:
            try:
                listed[file] = read_list(file)
                notes += _beside_note(*files)
            except InvalidFile as error:
                if side_of_word(files[0].stem):
                    raise
                notes.append(f"{error}; {file.name} is left out, and videos to validate on are drawn")
        train, val = listed[files[0]], next((listed[file] for file in files[1:] if file in listed), None)
        classes = class_names({label for video in train for label in video.labels}, path)
        notes += _missing_notes(listed)
        return Listing(train, val, classes, directional=any(map(is_list_directional, listed)), notes=tuple(notes))


def read_list(file: Path) -> tuple[ListedVideo, ...]:
    """Lines ``path label`` of a list file, with ``stream=N`` behind or not; paths are relative to the list's folder.

    Raises:
        InvalidFile: A line that does not parse (named with its number), no line at all, or JSON.
    """
    listed: list[ListedVideo] = []
    for number, line in _lines(file):
        video = listed_video(file.parent, line)
        if video is None:
            columns = {"path", "label"} <= set(re.split("[,;]", line.strip()))
            table = f"; a table: --data {shlex.quote(f'table:{file}')}" if columns else ""
            raise InvalidFile(
                f"{file}:{number}: expected 'path label' with a space between, or 'path label stream=NUMBER', "
                f"got {line.strip()[:80]!r}{table}"
            )
        if name := _folder_of_frames(line, file.parent, video.path):
            raise InvalidFile(
                f"{file}:{number}: {name} is a folder; for lines 'FOLDER FRAMES LABEL': "
                f"--data {shlex.quote(f'mmaction2:{file}')}"
            )
        listed.append(video)
    if not listed:
        raise InvalidFile(f"{file}: expected lines 'path label', found none")
    return tuple(listed)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Lines that are neither blank nor comments, with their numbers."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise InvalidFile(f"{file}: expected a text file with lines 'path label' ({error})") from None
    if _JSON.match(text):
        raise InvalidFile(f"{file}: expected lines 'path label', got JSON")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _missing_notes(lists: Mapping[Path, Sequence[ListedVideo]]) -> list[str]:
    """A note for each list of which no video is there.

    Raises:
        InvalidFile: No video of any list is there: lines are of another form, or the videos elsewhere.
    """
    missing = [file for file, videos in lists.items() if not any(_may_be_there(video.path) for video in videos)]
    notes = [_missing_note(file, lists[file]) for file in missing]
    if len(missing) == len(lists):
        raise InvalidFile(notes[0])
    return notes


def _missing_note(file: Path, videos: Sequence[ListedVideo]) -> str:
    number, line = next(_lines(file))
    jester = "; 'ID;CLASS' is of 20BN-Jester: docs/guides/data.md says how mmaction2 reads it"
    return (
        f"{file}:{number}: none of the {len(videos)} listed videos is there; the first is "
        f"{shown(str(videos[0].path))}{jester if _JESTER.fullmatch(line.strip()) else ''}"
    )


def _may_be_there(path: Path) -> bool:
    """Whether something lies there, or in a folder that cannot be entered, of which training tells."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except (OSError, ValueError):  # a name that no file can have, too
        return False
    return True


def _lists(path: Path) -> list[Path]:
    """The list files of a data path: train and val, one for both, or none."""
    files = side_files(path, _ENDS)
    if files or not path.is_file():
        return list(files or ())
    beside = list_beside(path) if side_of(path.stem) == TRAIN else None
    return [path, beside] if beside else [path]


def _beside_note(train: Path, val: Path) -> tuple[str, ...]:
    """A note about a list to validate on that was found by more than the name of a side."""
    if side_of_word(train.stem):
        return ()
    return (f"{train}: {val.name} beside it is the list to validate on",)


def _folder_of_frames(line: str, list_folder: Path, path: Path) -> str:
    """The folder of a line ``FOLDER FRAMES LABEL``, taken for a label of ``path``; empty: it is no such line."""
    frames = _FRAMES.fullmatch(line.strip())
    if frames is None or os.path.exists(path):
        return ""
    return frames[1] if any(os.path.isdir(list_folder / root / frames[1]) for root in _FRAME_ROOTS) else ""


def listed_video(folder: Path, line: str) -> ListedVideo | None:
    """A line of a list; None where it has one word, or ``KEY=VALUE`` behind the label that is no ``stream=N``.

    What stands behind a tab is the label, which may have blanks. Else the last word is: where the words before it are a
    file, ``KEY=VALUE`` is the label. So it is with another key than ``stream`` where the words before the label are
    none.
    """
    tabbed = _TABBED.fullmatch(line.strip())
    if tabbed and not _OPTION.fullmatch(tabbed[2].strip()):
        stream = _STREAM.fullmatch(tabbed[3] or "")
        if tabbed[3] and not stream:
            return None
        return ListedVideo(folder / tabbed[1].strip(), label_of(tabbed[2].strip()), int(stream[1]) if stream else None)
    name, _, last = line.strip().replace("\t", " ").rpartition(" ")
    option = _OPTION.fullmatch(last)
    if option and " " in name.strip() and not os.path.isfile(folder / name.strip()):
        path, _, label = name.strip().rpartition(" ")
        if stream := _STREAM.fullmatch(last):
            return ListedVideo(folder / path.strip(), label_of(label), int(stream[1]))
        if option[1] == "stream" or os.path.isfile(folder / path.strip()):
            return None
    return ListedVideo(folder / name.strip(), label_of(last)) if name.strip() else None


def label_of(text: str) -> str:
    """A whole number without zeros in front, or the name as it is; numbers of 64 bits and more are no labels."""
    return str(int(text)) if is_number(text) else text


def is_number(label: str) -> bool:
    """Whether a label is the number of a class and no name."""
    return re.fullmatch("-?[0-9]{1,18}", label) is not None


def fault_of_classes(names: Sequence[object]) -> str:
    """What is wrong with the classes of one video, in words: a 0 or 1 for each class there is; empty: nothing."""
    values = [str(name) for name in names]
    repeated = next((value for value in sorted({*values}) if values.count(value) > 1), None)
    if repeated is None or not {*values} <= {"0", "1"}:
        return ""
    return f"names class {repeated} twice; expected a list of classes, not a 0 or 1 for each"


def class_names(labels: set[str], path: Path) -> tuple[str, ...]:
    """Class names of a list in order. Whole numbers keep their value: labels 0 and 2 make three classes.

    Raises:
        InvalidFile: Numbers and names, or numbers that are no labels; ``path`` is what the message calls the list.
    """
    numbers = set(filter(is_number, labels))
    if not numbers:
        return tuple(sorted(labels))
    if numbers != labels:
        one, other = min(numbers), min(labels - numbers)
        raise InvalidFile(
            f"{path}: labels are either all whole numbers or all names, got {one} and {shown(other, 80)}; write each "
            f"number as a name, such as c{one} for {one}"
        )
    if not all(0 <= int(label) < _MOST_CLASSES for label in numbers):
        wrong = max(numbers, key=lambda label: abs(int(label)))
        raise InvalidFile(f"{path}: expected whole numbers from 0 as labels, got {wrong}")
    return tuple(str(i) for i in range(max(map(int, numbers)) + 1))
