"""Layouts of labelled videos by name. The first of these that recognises a path reads it, unless a name is given."""

from __future__ import annotations

from pathlib import Path

from hwbench.data.readers.base import ListedVideo, Listing, Reader, readers
from hwbench.data.readers.folders import ClassFolders
from hwbench.data.readers.lists import VideoLists

OWN: tuple[type[Reader], ...] = (VideoLists, ClassFolders)


def get(name: str) -> Reader:
    """The reader of that name; UnknownName where there is none."""
    return readers.get(name)()


def reader_of(path: Path) -> Reader:
    """The reader of an existing path whose layout was not named. What nobody recognises is taken for class folders."""
    return next((reader for reader in (own() for own in OWN) if reader.recognises(path)), ClassFolders())


__all__ = ["ListedVideo", "Listing", "Reader", "get", "reader_of", "readers"]
