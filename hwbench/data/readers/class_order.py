"""The classes of a folder that ``hwbench data prepare`` made, in the order that they have in the original.

``prepared.json`` beside the class folders has their names in ``"class_folders"``: a class without videos to train on
has its number, too. In folders that an older version prepared, classes are numbered in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hwbench.data.readers.base import ListedVideo
from hwbench.data.readers.frame_rates import prepared_values, roots_of

CLASS_FOLDERS = "class_folders"


def prepared_classes(path: Path, train: Iterable[ListedVideo]) -> tuple[str, ...]:
    """The classes of ``path``, a prepared folder or one side of it; empty where nothing tells their order.

    Classes of ``train`` whose folders were added by hand come last.
    """
    for root in roots_of(path):
        names = prepared_values(root).get(CLASS_FOLDERS)
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            return (*names, *sorted({label for video in train for label in video.labels} - {*names}))
    return ()
