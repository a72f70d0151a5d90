"""Decoders of hwbench's own and of other packages: the same frames, and a line of help where one is not installed."""

import importlib.util
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from video_files import MakeVideo

from hwbench.data.decoders import DEFAULT, decoders, get
from hwbench.data.decoders.torchcodec import TorchCodec
from hwbench.data.decoding import probe, read_frames
from hwbench.data.media import FileSource, OpenVideo
from hwbench.errors import MissingDependency, UnknownName
from hwbench.testing.decoders import DecoderConformance


class TestPyAV(DecoderConformance):
    @pytest.fixture
    def decoder(self) -> str:
        return DEFAULT


class FrameByFrame:
    """What another package may offer: every frame by a call of its own."""

    identity = "frame-by-frame 1"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrameByFrame)

    def open(self, source: object, info: object = None) -> OpenVideo:
        video = source.open(info)
        if isinstance(source, FileSource):
            whole = video.read
            video.read = lambda indices: np.concatenate([whole((i,)) for i in indices] or [whole(())])
        return video


class TestOfAnotherPackage(DecoderConformance):
    @pytest.fixture
    def decoder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        about = tmp_path / "site" / "frame_by_frame-1.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: frame-by-frame\nVersion: 1\n")
        (about / "entry_points.txt").write_text(f"[hwbench.decoders]\nframe-by-frame = {__name__}:FrameByFrame\n")
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        monkeypatch.setattr(decoders, "_items", dict(decoders._items))
        decoders.__dict__.pop("_points", None)
        yield "frame-by-frame"
        decoders.__dict__.pop("_points", None)


class VideoDecoder:
    """Of the form of ``torchcodec.decoders.VideoDecoder``; that needs shared libraries of FFmpeg, not everywhere there.
    ``experiments/016-input-pipeline/equal_frames.py`` holds the real one against PyAV."""

    count = 30
    metadata = types.SimpleNamespace(rotation=None, pixel_format="yuv420p")
    opened: list[dict[str, object]] = []

    def __init__(self, path: str, **how: object) -> None:
        self.path = path
        self.opened.append(how)

    def __len__(self) -> int:
        return self.count

    def get_frames_at(self, indices: list[int]) -> object:
        whole = read_frames(self.path, range(self.count))
        frames = whole[list(indices)]  # as the real one, which refuses neither no index nor -1
        return types.SimpleNamespace(data=types.SimpleNamespace(numpy=lambda: frames))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[VideoDecoder]:
    monkeypatch.setattr("hwbench.data.decoders.torchcodec.is_installed", lambda: True)
    monkeypatch.setattr("hwbench.data.decoders.torchcodec.version", lambda name: "0")
    monkeypatch.setitem(sys.modules, "torchcodec", types.ModuleType("torchcodec"))
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", types.SimpleNamespace(VideoDecoder=VideoDecoder))
    monkeypatch.setattr(VideoDecoder, "opened", [])
    return VideoDecoder


class TestTorchCodec(DecoderConformance):
    @pytest.fixture
    def video(self, make_video: MakeVideo) -> Path:
        return make_video("moving.mp4", gop=6)

    @pytest.fixture
    def decoder(self, fake: type[VideoDecoder]) -> str:
        return "torchcodec"


def test_torchcodec_reads_the_stream_of_the_info_on_one_thread(fake: type[VideoDecoder], make_video: MakeVideo) -> None:
    video = make_video("moving.mp4")
    with TorchCodec().open(FileSource(video), probe(video)) as opened:
        opened.read((3, 4))
    assert fake.opened == [{"stream_index": 0, "dimension_order": "NHWC", "num_ffmpeg_threads": 1}]


@pytest.mark.parametrize(
    "other",
    [
        {"count": 29},
        {"metadata": types.SimpleNamespace(rotation=-0.0, pixel_format="yuv420p")},
        {"metadata": types.SimpleNamespace(rotation=None, pixel_format="yuv420p10le")},
    ],
)
def test_pyav_reads_what_torchcodec_numbers_or_converts_otherwise(
    fake: type[VideoDecoder], make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch, other: dict[str, object]
) -> None:
    video = make_video("moving.mp4")
    for name, value in other.items():
        monkeypatch.setattr(fake, name, value)
    monkeypatch.setattr(fake, "get_frames_at", lambda *_: pytest.fail("its frames are others"))
    with TorchCodec().open(FileSource(video)) as opened:
        assert np.array_equal(opened.read((3, 29)), read_frames(video, (3, 29)))


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("stream.ts", {}),
        ("stream.m2ts", {"options": {"bf": "3"}}),
        ("stream.mpg", {"codec": "mpeg2video"}),
        ("stream.nut", {}),  # a container that nobody held against PyAV
        ("rounded.mp4", {"codec": "mpeg4"}),
        ("fields.mp4", {"options": {"x264-params": "interlaced=1"}}),
        ("fields.mkv", {"codec": "mpeg2video", "options": {"flags": "+ildct+ilme"}}),
        ("fields.hevc.mp4", {"codec": "libx265", "options": {"x265-params": "interlace=tff:log-level=none"}}),
    ],
)
def test_pyav_reads_inexact_seeks_two_fields_and_codecs_with_roundings_of_their_own(
    fake: type[VideoDecoder], make_video: MakeVideo, name: str, how: dict[str, object]
) -> None:
    video = make_video(name, gop=6, **how)
    for info in (None, probe(video)):
        with TorchCodec().open(FileSource(video), info) as opened:
            assert np.array_equal(opened.read((3, 29)), read_frames(video, (3, 29)))
    assert fake.opened == []


def test_pyav_reads_what_was_cut_between_keyframes(fake: type[VideoDecoder], make_video: MakeVideo) -> None:
    video = make_video("cut.mp4", gop=6)
    info = replace(probe(video), keyframes=(6, 12, 18, 24))  # as where an edit list hides the first
    with TorchCodec().open(FileSource(video), info) as opened:
        assert np.array_equal(opened.read((5, 7)), read_frames(video, (5, 7)))
    assert fake.opened == []


def test_without_torchcodec_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"^decoder 'torchcodec' .* install 'hwbench\[torchcodec\]'$"):
        get("torchcodec")


def test_torchcodec_that_does_not_load_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwbench.data.decoders.torchcodec.is_installed", lambda: True)
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
    with pytest.raises(MissingDependency, match=r"^decoder 'torchcodec' does not load \(.*apt-get install ffmpeg$"):
        get("torchcodec")


def test_an_unknown_decoder_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'pyav'.*known: pyav, torchcodec"):
        get("pyaw")
