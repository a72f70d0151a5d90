"""Layouts of labelled videos by name. The first of these that recognises a path reads it, unless a name is given."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

from hwbench.data.readers.base import Box, ListedVideo, Listing, Part, Reader, readers
from hwbench.data.readers.folders import ClassFolders
from hwbench.data.readers.lists import VideoLists
from hwbench.errors import UnknownName
from hwbench.registry import suggest

OWN: tuple[type[Reader], ...] = (VideoLists, ClassFolders)


def get(name: str, options: Mapping[str, str] | None = None) -> Reader:
    """The reader of that name, with its options.

    Raises:
        UnknownName: There is no such reader, or it has no such option.
        InvalidValue: An option of another value than the reader takes.
    """
    reader = readers.get(name)
    known = options_of(reader)
    for option in options or ():
        if option not in known:
            hint = suggest(option, known) if known else "it takes none"
            raise UnknownName(f"reader {name!r} has no option {option!r}; {hint}")
    return reader(**(options or {}))


def options_of(reader: type[Reader]) -> tuple[str, ...]:
    """The options of a reader: the parameters of its class."""
    if reader.__init__ is object.__init__:
        return ()
    return tuple(inspect.signature(reader).parameters)


def reader_of(path: Path) -> Reader:
    """The reader of an existing path whose layout was not named. What nobody recognises is taken for class folders."""
    return next((reader for reader in (own() for own in OWN) if reader.recognises(path)), ClassFolders())


__all__ = ["Box", "ListedVideo", "Listing", "Part", "Reader", "get", "options_of", "reader_of", "readers"]
