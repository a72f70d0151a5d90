"""Kinetics-400, -600, -700 and -700-2020: official tables beside folders of clips.

* ``train.csv`` and ``val.csv`` (or ``validate.csv``, ``validation.csv``), in the folder or in ``annotations/``, with
  the columns ``label,youtube_id,time_start,time_end,split`` and, in Kinetics-400, ``is_cc``; names such as
  ``kinetics-400_train.csv`` do as well;
* anywhere below the folder, files ``<youtube_id>_<start, 6 digits>_<end, 6 digits>`` with the ending of a video,
  or folders of images with these names.
"""

from __future__ import annotations

from pathlib import Path

from hwbench.data.readers.annotations import find_file, first_row, frame_rate, read_table
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile

_COLUMNS = ("label", "youtube_id", "time_start", "time_end")
_TRAIN = ("train.csv", "*[_-]train.csv")
_VAL = ("val.csv", "validate.csv", "validation.csv", "*[_-]val.csv", "*[_-]validate.csv", "*[_-]validation.csv")


@readers.register("kinetics")
class Kinetics:
    """Tables of YouTube videos with the seconds that were cut out of them.

    Args:
        fps: Frames a second of folders of images.
    """

    def __init__(self, fps: str = "30") -> None:
        self.fps = frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder whose table for training has the columns of Kinetics."""
        train = find_file(path, *_TRAIN) if path.is_dir() else None
        if train is None:
            return False
        return {"label", "youtube_id"} <= set(first_row(train))

    def read(self, path: Path) -> Listing:
        """Clips in the order of the tables; those that are not on the disk are left out and counted.

        Raises:
            InvalidFile: No table, a row that does not parse, or no clip of any row.
        """
        train, val = find_file(path, *_TRAIN), find_file(path, *_VAL)
        if train is None or val is None:
            raise InvalidFile(f"{path}: expected the tables train.csv and val.csv of Kinetics")
        media = MediaIndex(path, self.fps)
        videos = _clips(train, media)
        return Listing(videos, _clips(val, media), notes=media.notes())


def _clips(file: Path, media: MediaIndex) -> tuple[ListedVideo, ...]:
    listed: list[ListedVideo] = []
    for row in read_table(file, _COLUMNS):
        name = f"{row.text('youtube_id')}_{row.whole('time_start'):06d}_{row.whole('time_end'):06d}"
        listed += media.listed(name, row.text("label"), group=row.text("youtube_id"), row=row.place)
    return tuple(listed)
