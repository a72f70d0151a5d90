"""The classes of a folder that ``hwbench data prepare`` made, in the order that they have in the original.

``prepared.json`` beside the class folders has their names in ``"class_folders"``: a class without videos to train on
has its number, too, and one whose folder was renamed or removed keeps its. In folders that an older version prepared,
classes are numbered in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hwbench.data.readers.base import ListedVideo
from hwbench.data.readers.frame_rates import PREPARED, SIDES, prepared_values, roots_of
from hwbench.data.readers.sides import listed

CLASS_FOLDERS = "class_folders"


def prepared_classes(path: Path, train: Iterable[ListedVideo]) -> tuple[str, ...]:
    """The classes of ``path``, a prepared folder or one side of it; empty where nothing tells their order.

    Classes of ``train`` whose folders were added by hand come last.
    """
    _, names = _ordered(path)
    return (*names, *sorted({label for video in train for label in video.labels} - {*names})) if names else ()


def without_folder(path: Path) -> tuple[str, ...]:
    """A note about classes of ``path`` that have a folder on neither side: nothing teaches or tests their outputs."""
    root, names = _ordered(path)
    gone = [repr(name) for name in names if not any((root / side / name).is_dir() for side in SIDES)]
    if not gone:
        return ()
    return (
        f"{root}: classes without a folder keep their numbers: {listed(gone)}; to drop them, which gives later classes "
        f"other numbers, remove them from {CLASS_FOLDERS} in {PREPARED}",
    )


def _ordered(path: Path) -> tuple[Path, tuple[str, ...]]:
    """The prepared folder that ``path`` is, or is a side of, with its class folders; none where it tells none."""
    for root in roots_of(path):
        names = prepared_values(root).get(CLASS_FOLDERS)
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            return root, tuple(names)
    return path, ()
