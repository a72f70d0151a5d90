"""The contract of a reader: which videos lie in a folder or file of some layout, and what they show.

To add one: a file here whose class is decorated with ``@readers.register(NAME)``, and its line in ``__init__.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from hwbench.registry import Registry


class ListedVideo(NamedTuple):
    """A video as its data set lists it.

    Attributes:
        path: The file.
        label: The name of its class.
        stream: The number of the video stream, as ``ffprobe`` prints it; None: the best one of the file.
    """

    path: Path
    label: str
    stream: int | None = None


@dataclass(frozen=True)
class Listing:
    """What a reader found.

    Attributes:
        train: Videos to train on.
        val: Videos to validate on; None where the data set has no such part: then a fifth of each class is taken.
        classes: Names in the order of the labels; empty: those of the training videos in alphabetical order.
    """

    train: tuple[ListedVideo, ...]
    val: tuple[ListedVideo, ...] | None = None
    classes: tuple[str, ...] = ()


class Reader(Protocol):
    """One layout of labelled videos, in ``--data NAME:PATH`` under the name it is registered with.

    A reader decodes nothing. ``hwbench.data.videos`` checks classes and splits, and numbers the labels.
    """

    def recognises(self, path: Path) -> bool:
        """Whether an existing path given without a name is of this layout; asked of hwbench's own readers alone."""
        ...

    def read(self, path: Path) -> Listing:
        """Lists the videos of an existing path.

        Raises:
            InvalidFile: The path is not of this layout; a fault of a line is told as ``FILE:LINE``.
        """
        ...


readers: Registry[type[Reader]] = Registry("reader of data", entry_points="hwbench.readers")
