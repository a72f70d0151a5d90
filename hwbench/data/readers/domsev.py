"""DoMSEV: long egocentric videos whose parts are labelled by environment, activity and attention.

* A table of labels with the columns ``video_id,start_time,stop_time,label_name``; times in seconds or ``HH:MM:SS``.
  ``labels.csv``, or a table for each kind of label: ``activity.csv``, ``environment.csv``, ``attention.csv``;
* the videos ``<video_id>.mp4``, or folders ``<video_id>`` of images, anywhere below the folder; a table ``videos.csv``
  with the columns ``video_id,file_path`` names those that are called otherwise.

Whole videos are held back to validate on.
"""

from __future__ import annotations

from pathlib import Path

from hwbench.data.readers.annotations import Row, choice, find_file, frame_rate, read_table
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile

_KINDS = ("activity", "environment", "attention")
_COLUMNS = ("video_id", "start_time", "stop_time", "label_name")


@readers.register("domsev")
class Domsev:
    """Parts of long videos of one kind of label.

    Args:
        label: activity, environment or attention; ``all``: everything in ``labels.csv``.
        fps: Frames a second of folders of images.
    """

    def __init__(self, label: str = "all", fps: str = "30") -> None:
        self.label, self.fps = choice("label", label, ("all", *_KINDS)), frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Never: names such as ``labels.csv`` are anybody's."""
        return False

    def read(self, path: Path) -> Listing:
        """Parts in the order of the table.

        Raises:
            InvalidFile: No table, a row that does not parse, or no video of any row is there.
        """
        name = "labels.csv" if self.label == "all" else f"{self.label}.csv"
        file = find_file(path, name)
        if file is None:
            raise InvalidFile(f"{path}: expected the table {name} of DoMSEV")
        media, names = MediaIndex(path, self.fps), _names(path)
        listed: list[ListedVideo] = []
        for row in read_table(file, _COLUMNS):
            video = row.text("video_id")
            part = media.part(row.seconds("start_time"), row.seconds("stop_time"), row.place)
            if part is not None:
                label = row.text("label_name")
                listed += media.listed(names.get(video, video), label, part=part, group=video, row=row.place)
        return Listing(tuple(listed), notes=media.notes())


def _names(path: Path) -> dict[str, str]:
    """Video -> the name of its file without the ending."""
    file = find_file(path, "videos.csv")
    rows: list[Row] = read_table(file, ("video_id", "file_path")) if file else []
    return {row.text("video_id"): Path(row.text("file_path")).stem for row in rows}
