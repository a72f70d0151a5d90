"""The suite that every decoder passes: a test class with a fixture ``decoder`` inherits ``DecoderConformance``.

``decoder`` is the name under which the decoder is registered.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from hwbench.data import ClipSpec, Reading, open_dataset
from hwbench.data.archives import MemorySource
from hwbench.data.decoders import get
from hwbench.data.decoding import VideoFile, probe, read_frames
from hwbench.data.encoding import write_video
from hwbench.data.media import FileSource
from hwbench.errors import InvalidValue, VideoError
from hwbench.workspace import Workspace

_ONE = 0x10000
# a, b, c, d of a display matrix: as it is, a quarter to the right, mirrored.
_MATRICES = ((_ONE, 0, 0, _ONE), (0, _ONE, -_ONE, 0), (-_ONE, 0, 0, _ONE), (_ONE, 0, 0, -_ONE))


def write_moving(path: Path, count: int = 30) -> Path:
    """A video of ``count`` frames of 48 x 64 pixels, no two of them alike."""
    rows, columns = np.mgrid[:48, :64]
    waves = [120 + 60 * np.sin((rows + 3 * t) / 9) + 50 * np.cos((columns - 5 * t) / 7) for t in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_video(path, np.repeat(np.stack(waves)[..., None], 3, axis=3).astype(np.uint8), fps=30)
    return path


def turned(path: Path, matrix: tuple[int, int, int, int], target: Path) -> Path:
    """A copy of an MP4 file with another display matrix (16.16 fixed point)."""
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 44
    a, b, c, d = matrix
    values = (a, b, 0, c, d, 0, 0, 0, 0x40000000)
    data[place : place + 36] = b"".join(value.to_bytes(4, "big", signed=True) for value in values)
    target.write_bytes(data)
    return target


class DecoderConformance:
    """Inherit, and give the fixture ``decoder``."""

    @pytest.fixture
    def video(self, tmp_path: Path) -> Path:
        return write_moving(tmp_path / "moving.mp4")

    @pytest.mark.parametrize("indices", [(0,), (3, 9, 15), (29, 0, 7, 7), range(30)])
    def test_the_frames_are_those_of_pyav(self, decoder: str, video: Path, indices: tuple[int, ...] | range) -> None:
        expected = read_frames(video, indices)
        for info in (None, probe(video)):
            with get(decoder).open(FileSource(video), info) as opened:
                assert np.array_equal(opened.info.pts, probe(video).pts)
                frames = opened.read(indices)
                assert frames.dtype == np.uint8
                assert np.array_equal(frames, expected)

    @pytest.mark.parametrize("matrix", _MATRICES)
    def test_pictures_are_turned_and_mirrored(
        self, decoder: str, video: Path, tmp_path: Path, matrix: tuple[int, int, int, int]
    ) -> None:
        path = turned(video, matrix, tmp_path / "turned.mp4")
        with get(decoder).open(FileSource(path)) as opened:
            assert np.array_equal(opened.read((7, 20)), read_frames(path, (7, 20)))

    def test_a_frame_that_is_not_there_is_refused(self, decoder: str, video: Path) -> None:
        with get(decoder).open(FileSource(video)) as opened:
            for indices in ((), (30,), (-1,)):
                with pytest.raises(InvalidValue, match=r"moving\.mp4: expected frame indices from 0 to 29"):
                    opened.read(indices)

    def test_a_damaged_file_is_told_by_name(self, decoder: str, video: Path, tmp_path: Path) -> None:
        info = probe(video)
        video.write_bytes(video.read_bytes()[:1000])
        for known in (None, info):
            with (
                pytest.raises(VideoError, match=r"moving\.mp4: "),
                get(decoder).open(FileSource(video), known) as opened,
            ):
                opened.read((3, 20))

    def test_what_is_no_file_opens_itself(self, decoder: str, video: Path) -> None:
        with get(decoder).open(MemorySource("in memory", video.read_bytes())) as opened:
            assert isinstance(opened, VideoFile)
            assert np.array_equal(opened.read((4,)), read_frames(video, (4,)))

    def test_it_is_a_small_value(self, decoder: str) -> None:
        made = get(decoder)
        assert copy.deepcopy(made) == made == get(decoder)  # by the same methods as for another process
        assert made.identity.strip().isprintable()
        assert made.identity

    def test_a_data_set_gives_the_same_clips(self, decoder: str, tmp_path: Path) -> None:
        for number in range(8):
            write_moving(tmp_path / "clips" / "ab"[number % 2] / f"{number}.mp4", count=12 + number)
        workspace, clip = Workspace.create(tmp_path / "workspace"), ClipSpec(4, stride=2)
        plain, read = (
            open_dataset(
                workspace,
                str(tmp_path / "clips"),
                split="train",
                size=(32, 32),
                clip=clip,
                cache_bytes=0,
                reading=reading,
            )
            for reading in (Reading(), Reading(decoder))
        )
        for index in range(len(plain)):
            one, other = plain[index].pictures, read[index].pictures
            assert one is not None
            assert other is not None
            assert (one == other).all()
