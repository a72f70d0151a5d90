"""Layouts of labelled videos by name. The first of these that recognises a path reads it, unless a name is given."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hwbench.data.readers.activitynet import ActivityNet
from hwbench.data.readers.ava import Ava
from hwbench.data.readers.base import Box, ListedVideo, Listing, Part, Reader, readers
from hwbench.data.readers.charades import Charades
from hwbench.data.readers.directions import is_prepared_directional
from hwbench.data.readers.diving48 import Diving48
from hwbench.data.readers.domsev import Domsev
from hwbench.data.readers.epic_kitchens import EpicKitchens
from hwbench.data.readers.folders import ClassFolders
from hwbench.data.readers.frame_lists import FrameLists
from hwbench.data.readers.frame_rates import check_ended
from hwbench.data.readers.frames import ImageFolders
from hwbench.data.readers.hmdb51 import Hmdb51
from hwbench.data.readers.huggingface import HuggingFace
from hwbench.data.readers.kinetics import Kinetics
from hwbench.data.readers.lists import VideoLists
from hwbench.data.readers.mmaction2 import Mmaction2
from hwbench.data.readers.something_something import SomethingSomething
from hwbench.data.readers.table import Table, listing_of
from hwbench.data.readers.ucf101 import Ucf101
from hwbench.data.readers.webdataset import WebDataset
from hwbench.errors import HwbenchError, InvalidFile, UnknownName
from hwbench.printable import shown
from hwbench.registry import suggest

# In the order in which they are asked: a folder of Kinetics has a train.csv too, and any folder may be class folders.
_PUBLISHED: tuple[type[Reader], ...] = (
    *(Kinetics, Ucf101, Hmdb51, SomethingSomething, Charades, ActivityNet, EpicKitchens, Domsev, Ava, Diving48),
    FrameLists,
)
OWN: tuple[type[Reader], ...] = (
    *_PUBLISHED,
    *(WebDataset, HuggingFace, Table, Mmaction2, ImageFolders, VideoLists, ClassFolders),
)


def get(name: str, options: Mapping[str, str] | None = None) -> Reader:
    """The reader of that name, with its options.

    Raises:
        UnknownName: There is no such reader, or it has no such option.
        InvalidValue: An option of another value than the reader takes.
        HwbenchError: It is of another package, and its constructor raises.
    """
    reader = readers.get(name)
    known = options_of(reader)
    for option in options or ():
        if option not in known:
            hint = suggest(option, known) if known else "it takes none"
            raise UnknownName(f"reader {name!r} has no option {option!r}; {hint}")
    with readers.blaming(reader):
        return reader(**(options or {}))


def read(reader: Reader, path: Path) -> Listing:
    """The videos of an existing path, as a reader lists them; a prepared set keeps that its labels tell directions.

    Raises:
        InvalidFile: The path is not of the reader's layout, or ``hwbench data prepare`` has not ended there.
        HwbenchError: The reader is of another package, and raises something else or gives no listing of videos with
            labels.
    """
    check_ended(path)
    made = type(reader)
    with readers.blaming(made, on=str(path)):
        try:
            listing = reader.read(path)
        except InvalidFile as error:
            hint = _published(path) if made is VideoLists and path.is_file() else ""
            if not hint:
                raise
            raise InvalidFile(f"{error}; {hint}") from None
    if not isinstance(listing, Listing):
        raise _not_expected(made, f"a Listing of {path}", listing)
    for video in itertools.chain(listing.train, listing.val or ()):
        if not _is_labelled(video):
            raise _not_expected(made, f"a Listing of {path} with each video a ListedVideo whose label is text", video)
    return replace(listing, directional=True) if is_prepared_directional(path) else listing


def _published(file: Path) -> str:
    """What reads the published data set among whose files one lies; empty: no reader of ours does."""
    for folder in (file.absolute().parent.parent, file.absolute().parent):
        with contextlib.suppress(InvalidFile, OSError):  # one that cannot be read: the file is what was asked for
            for name in filter(readers.is_own, readers.names()):
                if readers.get(name) in _PUBLISHED and readers.get(name)().recognises(folder):
                    return f"{name} reads the folder of the data set: --data {shlex.quote(f'{name}:{folder}')}"
    return ""


def _is_labelled(video: object) -> bool:
    """Whether it is a video with the name of its class, or with several in a tuple."""
    if not isinstance(video, ListedVideo):
        return False
    label: object = video.label
    return isinstance(label, str) or (isinstance(label, tuple) and all(isinstance(name, str) for name in label))


def _not_expected(reader: type[Reader], expected: str, given: object) -> HwbenchError:
    """What is said of a reader that gives something else."""
    who = readers.origin(reader) or f"reader {reader.__name__}"
    return HwbenchError(f"{who}: expected {expected}, got {shown(given)}")


def options_of(reader: type[Reader]) -> tuple[str, ...]:
    """The options of a reader: the parameters of its class."""
    if reader.__init__ is object.__init__:
        return ()
    return tuple(inspect.signature(reader).parameters)


def reader_of(path: Path) -> Reader:
    """The reader of an existing path whose layout was not named. What nobody recognises is taken for class folders.

    Raises:
        InvalidFile: A folder of the path that would tell the layout cannot be read.
    """
    return next((reader for reader in (own() for own in OWN) if reader.recognises(path)), ClassFolders())


__all__ = [
    "Box",
    "ListedVideo",
    "Listing",
    "Part",
    "Reader",
    "get",
    "listing_of",
    "options_of",
    "read",
    "reader_of",
    "readers",
]
