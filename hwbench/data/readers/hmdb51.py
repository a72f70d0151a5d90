"""HMDB51 with its official splits.

* ``<class>_test_split<N>.txt`` in the folder or in ``testTrainMulti_7030_splits/``; a line is ``<file>.avi 1`` (for
  training), ``2`` (test) or ``0`` (in neither);
* the videos, or folders of images, in folders of their classes anywhere below the folder.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from hwbench.data.readers.annotations import choice, find_file, frame_rate, read_lines
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile
from hwbench.printable import shown

_LISTS = ("testTrainMulti_7030_splits", "test_train_splits", "annotations", "splits")


@readers.register("hmdb51")
class Hmdb51:
    """51 actions out of films and from the web.

    Args:
        split: 1, 2 or 3.
        fps: Frames a second of folders of images; the videos have 30.
    """

    def __init__(self, split: str = "1", fps: str = "30") -> None:
        self.split, self.fps = choice("split", split, ("1", "2", "3")), frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder with lists of the first split."""
        return path.is_dir() and find_file(path, "*_test_split1.txt", below=_LISTS) is not None

    def read(self, path: Path) -> Listing:
        """Videos sorted by class, in the order of the lines.

        Raises:
            InvalidFile: No list of the split, a line that does not parse, or no video of any line is there.
        """
        end = f"_test_split{self.split}.txt"
        first = find_file(path, f"*{end}", below=_LISTS)
        if first is None:
            raise InvalidFile(f"{path}: expected lists *{end} of HMDB51, in it or in {_LISTS[0]}")
        media = MediaIndex(path, self.fps)
        sides: dict[str, list[ListedVideo]] = {"0": [], "1": [], "2": []}
        classes = []
        for file in sorted(first.parent.glob(f"*{end}")):
            label = file.name.removesuffix(end)
            classes.append(label)
            for row in read_lines(file, "lines 'VIDEO.avi 0|1|2'"):
                name, _, side = row.text("line").rpartition(" ")
                if side not in sides or not name.strip():
                    raise row.fault(f"expected 'VIDEO.avi 0|1|2', got {shown(row.text('line'), 80)}")
                if side != "0":
                    stem = PurePosixPath(name.strip()).stem
                    group = stem.partition(f"_{label}_")[0]
                    sides[side] += media.listed(stem, label, folder=label, group=f"{label}/{group}", row=row.place)
        return Listing(tuple(sides["1"]), tuple(sides["2"]), tuple(classes), notes=media.notes())
