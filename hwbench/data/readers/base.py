"""The contract of a reader: which videos lie in a folder or file of some layout, and what they show.

To add one: a file here whose class is decorated with ``@readers.register(NAME)``, and its line in ``__init__.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from hwbench.data.media import FileSource, VideoSource
from hwbench.registry import Registry, class_with

# x1, y1, x2, y2 as shares of the frame's width and height.
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Part:
    """What of a video a label is about.

    Attributes:
        start_s: Its beginning in seconds from the first frame; None: that of the video.
        end_s: Its end; None: that of the video.
        keyframe_s: The moment that is labelled; clips are centred there.
        box: The person or thing that is labelled: x1, y1, x2, y2 as shares of the frame's width and height.
        cut_s: The video is a cut of no more seconds, from whose beginning times count; a longer one is the whole film,
            to which they do not belong. None: a video of any length.
    """

    start_s: Fraction | None = None
    end_s: Fraction | None = None
    keyframe_s: Fraction | None = None
    box: Box | None = None
    # Runs and prepared videos are told apart by the text of their parts, which stays as it was.
    cut_s: Fraction | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ListedVideo:
    """A video as its data set lists it.

    Attributes:
        path: The file, or the folder or archive that holds the video.
        label: The name of its class; several names in a tuple where a video may show several classes.
        stream: The number of the video stream, as ``ffprobe`` prints it; None: the best one of the file.
        source: How to open what is no file of its own (frames in a folder, a member of an archive); None: the file.
        part: What of the video the label is about; None: all of it.
        group: Videos of one group (one recording, one person) stay on one side of a split; empty: a group of its own.
        row: Where it is listed, as ``FILE:LINE``.
    """

    path: Path
    label: str | tuple[str, ...]
    stream: int | None = None
    source: VideoSource | None = None
    part: Part | None = None
    group: str = ""
    row: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its classes."""
        return (self.label,) if isinstance(self.label, str) else self.label

    def opened_by(self) -> VideoSource:
        """The source of its frames."""
        return self.source or FileSource(self.path, self.stream)


@dataclass(frozen=True)
class Listing:
    """What a reader found.

    Attributes:
        train: Videos to train on.
        val: Videos to validate on; None where the data set has no such part: then a fifth of each class is taken.
        classes: Names in the order of the labels; empty: those of the training videos in alphabetical order.
        directional: Left and right, or up and down, are told by labels, so that no picture may be flipped.
        notes: What a person should know of the list, a line each: how many of its videos are not on the disk.
        fault: Why the data set is not to be trained on, although its videos are listed; empty: nothing is wrong.
    """

    train: tuple[ListedVideo, ...]
    val: tuple[ListedVideo, ...] | None = None
    classes: tuple[str, ...] = ()
    directional: bool = False
    notes: tuple[str, ...] = ()
    fault: str = ""


class Reader(Protocol):
    """One layout of labelled videos, in ``--data NAME:PATH`` under the name it is registered with.

    A reader decodes nothing. ``hwbench.data.videos`` checks classes and splits, and numbers the labels. The parameters
    of the class are its options, texts in ``--data NAME:PATH?OPTION=VALUE``; each has a default.
    """

    def recognises(self, path: Path) -> bool:
        """Whether an existing path given without a name is of this layout; asked of hwbench's own readers alone.

        Raises:
            InvalidFile: A folder that would tell cannot be read.
        """
        ...

    def read(self, path: Path) -> Listing:
        """Lists the videos of an existing path.

        Raises:
            InvalidFile: The path is not of this layout; a fault of a line is told as ``FILE:LINE``.
        """
        ...


readers: Registry[type[Reader]] = Registry("reader of data", entry_points="hwbench.readers", expects=class_with("read"))
