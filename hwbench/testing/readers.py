"""The suite that every reader of data passes: a test class with fixtures ``reader`` and ``data`` inherits
``ReaderConformance``.

``reader`` is the name under which the reader is registered. ``data`` is the path of a small copy of the layout, with
real files at the places where the layout has its videos and at least two classes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hwbench.data import open_splits
from hwbench.data.readers import ListedVideo, Listing, get
from hwbench.errors import InvalidFile
from hwbench.workspace import Workspace


def _part(video: ListedVideo) -> tuple[str, str]:
    """What of which video is listed."""
    return video.opened_by().identity(Path("elsewhere")), str(video.part)


class ReaderConformance:
    """Inherit, and give the fixtures ``reader`` and ``data``."""

    @pytest.fixture
    def listing(self, reader: str, data: Path) -> Listing:
        return get(reader).read(data)

    def test_it_lists_the_files_that_lie_there(self, listing: Listing) -> None:
        videos = (*listing.train, *(listing.val or ()))
        assert listing.train
        assert len({label for video in videos for label in video.labels}) > 1
        missing = [video.path for video in videos if not video.path.exists()]
        assert not missing

    def test_training_and_validation_share_no_video(self, listing: Listing) -> None:
        train, val = ({_part(video) for video in videos} for videos in (listing.train, listing.val or ()))
        assert not train & val

    def test_every_label_is_a_class(self, listing: Listing) -> None:
        labels = {label for video in (*listing.train, *(listing.val or ())) for label in video.labels}
        if listing.classes:
            assert labels <= set(listing.classes)
            assert len(set(listing.classes)) == len(listing.classes)

    def test_it_lists_the_same_again_and_from_another_folder(
        self, reader: str, data: Path, listing: Listing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The order decides what a seed draws."""
        assert get(reader).read(data) == listing
        relative = os.path.relpath(data, tmp_path)
        monkeypatch.chdir(tmp_path)
        again = get(reader).read(Path(relative))
        assert [(video.path.resolve(), video.label) for video in again.train] == [
            (video.path.resolve(), video.label) for video in listing.train
        ]

    def test_data_takes_its_name(self, reader: str, data: Path, tmp_path: Path) -> None:
        splits = open_splits(Workspace.create(tmp_path), f"{reader}:{data}")
        assert len(splits.train)
        assert len(splits.val)
        assert splits.train.classes == splits.val.classes

    def test_another_layout_is_refused_with_its_path(self, reader: str, tmp_path: Path) -> None:
        for other in (tmp_path / "empty", tmp_path / "bytes.bin"):
            if other.suffix:
                other.write_bytes(bytes(range(256)))
            else:
                other.mkdir()
            with pytest.raises(InvalidFile, match=other.name):
                get(reader).read(other)
