import errno
import gc
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
from video_files import MakeVideo, frame_numbers, write_cover, write_repeats, write_streams

from hwbench.data.decoding import VideoFile, probe, read_frames
from hwbench.data.media_faults import naming
from hwbench.errors import InvalidValue, VideoError

# name of the file, how it is made
KINDS = {
    "plain.mp4": {},
    "b-frames.mp4": {"options": {"bf": "3", "b-pyramid": "normal"}, "gop": 12},
    "late-start.mp4": {"times": range(45, 75)},
    "variable-rate.mp4": {"times": np.cumsum([1, 1, 4, 2, 1, 7] * 5).tolist(), "gop": 8},
    "fragmented.mp4": {"container": {"movflags": "frag_keyframe+empty_moov"}, "gop": 10},
    "odd.mkv": {"codec": "ffv1", "size": (47, 61), "pix_fmt": "yuv444p"},
    "ten-bit.mp4": {"pix_fmt": "yuv420p10le", "gop": 12},
    "hevc.mp4": {"codec": "libx265", "options": {"x265-params": "log-level=none:pools=none:keyint=10"}},
    "av1.mkv": {"codec": "libsvtav1", "options": {"svtav1-params": "lp=1", "preset": "10"}, "size": (64, 64)},
    "mpeg4.avi": {"codec": "mpeg4"},
    "b-frames.avi": {"codec": "mpeg4", "options": {"bf": "2"}},
    "raw.h264": {"options": {"bf": "2"}},
    "stream.ts": {"gop": 10},
    "one-frame.mp4": {"count": 1},
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_gives_the_frames_asked_for(name: str, make_video: MakeVideo) -> None:
    path = make_video(name, **KINDS[name])
    count = KINDS[name].get("count", 30)
    size = KINDS[name].get("size", (48, 64))
    info = probe(path)
    assert (info.num_frames, info.height, info.width) == (count, *size)
    everything = read_frames(path, range(count))
    assert everything.shape == (count, *size, 3)
    assert everything.dtype == np.uint8
    assert frame_numbers(everything) == list(range(count))
    for indices in ([count - 1], [count // 2, 0, count // 2], [0, count // 3, count // 2, count - 1]):
        assert np.array_equal(read_frames(path, indices), everything[indices])


@pytest.mark.parametrize("name", ["b-frames.ts", "b-frames.m2ts"])
def test_what_a_seek_finds_before_a_keyframe_is_no_frame(name: str, make_video: MakeVideo) -> None:
    """A seek may land between keyframes; MPEG-4 part 2 decodes what it finds there against a grey picture."""
    path = make_video(name, codec="mpeg4", count=50, fps=25, gop=12, options={"bf": "2"})
    everything = read_frames(path, range(50))
    assert frame_numbers(everything[:30]) == list(range(30))
    for index in range(50):
        assert np.array_equal(read_frames(path, [index]), everything[[index]])
    with VideoFile(path) as video:
        assert np.array_equal(video.read(range(40, 3, -9)), everything[40:3:-9])


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="no such call here")
def test_making_these_files_leaves_no_real_time_process_behind(make_video: MakeVideo) -> None:
    make_video("av1.mkv", **KINDS["av1.mkv"])
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_what_is_read_is_what_a_plain_decode_gives(make_video: MakeVideo) -> None:
    path = make_video("plain.mp4", gop=6, options={"bf": "2"})
    with av.open(str(path)) as file:
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])
    assert np.array_equal(read_frames(path, [1, 13, 29]), frames[[1, 13, 29]])


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("pyramid.mp4", {"options": {"bf": "3", "b-pyramid": "normal"}, "gop": 250}),
        ("flat.mkv", {"options": {"bf": "3", "b-pyramid": "none", "b-adapt": "0"}, "gop": 30}),
        ("interlaced.mp4", {"options": {"bf": "2", "x264-params": "interlaced=1"}, "gop": 30}),
        ("mpeg4.mp4", {"codec": "mpeg4", "options": {"bf": "2"}, "gop": 30}),
    ],
)
def test_frames_that_no_other_refers_to_are_not_decoded(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch, name: str, how: dict
) -> None:
    path = make_video(name, count=60, **how)
    with av.open(str(path)) as file:
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])
    decoded = []
    plain = VideoFile._frames
    monkeypatch.setattr(VideoFile, "_frames", lambda *args: (decoded.append(f.pts) or f for f in plain(*args)))
    for index in range(60):
        assert np.array_equal(read_frames(path, [index]), frames[[index]])
    assert np.array_equal(read_frames(path, range(3, 60, 12)), frames[3:60:12])
    decoded.clear()
    read_frames(path, [59])
    assert 0 < len(decoded) < 45
    decoded.clear()
    assert np.array_equal(read_frames(path, range(60)), frames)
    assert len(decoded) == 60


def test_a_forked_process_drops_what_was_opened_before(make_video: MakeVideo) -> None:
    """Readers of a DataLoader are forked, and their garbage collector meets videos of before. Threads are not there."""
    before = len(os.listdir("/proc/self/task"))
    video = VideoFile(make_video("a.mp4", count=6, size=(128, 96)))
    video.read((0, 3))
    assert len(os.listdir("/proc/self/task")) == before
    kept = [video]
    del video

    def drop() -> None:
        kept.clear()
        gc.collect()

    child = multiprocessing.get_context("fork").Process(target=drop)
    child.start()
    child.join()
    assert child.exitcode == 0


def test_a_late_start_does_not_shorten_a_video(make_video: MakeVideo) -> None:
    info = probe(make_video("late.mp4", times=range(30, 90), count=60))
    assert info.num_frames == 60
    assert info.duration_s == pytest.approx(2.0)
    assert info.fps == pytest.approx(30)
    assert info.pts[0] * info.time_base == 1


def test_variable_rate_keeps_its_times(make_video: MakeVideo) -> None:
    times = np.cumsum([1, 1, 4, 2, 1, 7] * 5)
    info = probe(make_video("variable.mp4", times=times.tolist()))
    assert [round(30 * float(p * info.time_base)) for p in info.pts] == times.tolist()


def test_no_duration_in_the_header(make_video: MakeVideo) -> None:
    path = make_video("live.mkv", container={"live": "1"})
    with av.open(str(path)) as file:
        assert file.duration is None
    assert probe(path).duration_s == pytest.approx(1.0, abs=0.01)


def test_only_wanted_frames_are_converted_and_far_ones_are_reached_by_a_seek(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_video("long.mp4", count=30, gop=5, options={"bf": "0"})
    converted, starts = [], []
    convert, decode_from = VideoFile._convert, VideoFile._decode_from
    monkeypatch.setattr(VideoFile, "_convert", lambda self, f: converted.append(f.pts) or convert(self, f))
    monkeypatch.setattr(
        VideoFile, "_decode_from", lambda self, key, wanted: starts.append(key) or decode_from(self, key, wanted)
    )
    with VideoFile(path) as video:
        video.read([1, 3, 27])
    assert len(converted) == 3
    assert starts == [0, max(key for key in probe(path).keyframes if key <= 27)]
    assert starts[1] > 3


def test_phone_videos_are_turned_upright(make_video: MakeVideo, tmp_path: Path) -> None:
    plain = make_video("wide.mp4")
    data = bytearray(plain.read_bytes())
    matrix = data.index(b"tkhd") + 44  # version 0: 40 bytes of fields after the type
    quarter = [0, 0x10000, 0, -0x10000, 0, 0, 0, 0, 0x40000000]
    data[matrix : matrix + 36] = b"".join(v.to_bytes(4, "big", signed=True) for v in quarter)
    turned = tmp_path / "tall.mp4"
    turned.write_bytes(data)
    frames = read_frames(plain, [7])
    assert np.array_equal(read_frames(turned, [7])[0], np.rot90(frames[0], -1))  # clockwise, as players show it


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("truncated", ("damaged",)),
        ("truncated behind the index", ("truncated", "30")),
        ("truncated mkv", ("truncated",)),
        ("truncated avi", ("truncated", "30")),
        ("empty", ("empty",)),
        ("text", ("not a video",)),
        ("missing", ("no such file",)),
        ("folder", ("directory",)),
        ("no picture", ("no video stream", "audio")),
        ("no frames", ()),
    ],
)
def test_failures_are_one_line_with_the_file_and_the_cause(
    kind: str, words: tuple[str, ...], broken: dict[str, Path]
) -> None:
    for call in (probe, lambda path: read_frames(path, [0])):
        with pytest.raises(VideoError) as caught:
            call(broken[kind])
        message = str(caught.value)
        assert message.startswith(f"{broken[kind]}: ")
        assert "\n" not in message
        assert all(word in message for word in words), message


@pytest.mark.parametrize("bf", ["0", "2"])
def test_empty_chunks_of_avi_are_time_and_no_loss(bf: str, make_video: MakeVideo, tmp_path: Path) -> None:
    options = {"codec": "mpeg4", "gop": 12, "options": {"bf": bf}}
    dense = make_video("dense.avi", **options)
    sparse = remuxed(dense, tmp_path / "sparse.avi", time=lambda ticks: 2 * ticks)
    info = probe(sparse)
    assert (info.num_frames, info.counted, info.fps) == (30, bf == "2", pytest.approx(15, rel=0.04))
    assert frame_numbers(read_frames(sparse, range(30))) == list(range(30))
    for source in (sparse, dense):
        whole = source.read_bytes()
        last = whole.rindex(b"00dc", 0, whole.rindex(b"idx1"))
        for end in (last, (last + whole.rindex(b"movi")) // 2):
            (tmp_path / "cut.avi").write_bytes(whole[:end])
            with pytest.raises(VideoError, match="truncated"):
                probe(tmp_path / "cut.avi")


def test_damage_in_the_middle_never_passes_for_the_end(make_video: MakeVideo, tmp_path: Path) -> None:
    path = make_video("hole.mp4", container={"movflags": "faststart"}, options={"bf": "0"})
    data = bytearray(path.read_bytes())
    middle = data.index(b"mdat") + (len(data) - data.index(b"mdat")) // 2
    data[middle:] = bytes(len(data) - middle)
    path.write_bytes(data)
    with pytest.raises(VideoError, match=r"hole\.mp4: "):
        read_frames(path, range(30))


@pytest.mark.parametrize("indices", [[], [-1], [30], [0, 99]])
def test_indices_outside_the_video_are_refused(indices: list[int], make_video: MakeVideo) -> None:
    with pytest.raises(InvalidValue, match="from 0 to 29"):
        read_frames(make_video("plain.mp4"), indices)


def test_nothing_is_printed_and_files_are_closed(broken: dict[str, Path]) -> None:
    code = (
        "import os, sys\n"
        "from hwbench.data import read_frames\n"
        "for path in sys.argv[1:]:\n"
        "    before = len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0\n"
        "    try: read_frames(path, [0])\n"
        "    except Exception: pass\n"
        "    after = len(os.listdir('/proc/self/fd')) if before else 0\n"
        "    assert after == before, path\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, broken.values())], capture_output=True, text=True, check=True
    )
    assert result.stdout == result.stderr == ""


@pytest.mark.parametrize("name", ["two.mp4", "two.mkv"])
@pytest.mark.parametrize("best", [0, 1])
def test_of_several_streams_the_best_is_read_or_the_one_that_is_named(best: int, name: str, tmp_path: Path) -> None:
    sizes = ((48, 64), (96, 128))
    path = write_streams(tmp_path / name, sizes, default=best)
    info = probe(path)
    assert (info.stream, info.height, info.width) == (best, *sizes[best])
    assert read_frames(path, [3, 20]).shape == (2, *sizes[best], 3)
    assert frame_numbers(read_frames(path, [3, 20])) == [3, 20]
    other = 1 - best
    assert read_frames(path, [5], stream=other).shape == (1, *sizes[other], 3)
    with VideoFile(path, probe(path, stream=other)) as video:  # whoever knows what a stream holds reads that stream
        assert video.read([7]).shape == (1, *sizes[other], 3)
    with pytest.raises(VideoError, match=r"stream 2 is no video stream; its video streams: 0 \(64x48\), 1 \(128x96\)"):
        probe(path, stream=2)


def test_the_stream_stays_when_the_file_has_to_be_opened_again(tmp_path: Path) -> None:
    path = write_streams(tmp_path / "two.ts", ((48, 64), (96, 128)))
    first, second = (read_frames(path, [25, 2], stream=number) for number in (0, 1))
    assert (first.shape[1:3], second.shape[1:3]) == ((48, 64), (96, 128))
    assert frame_numbers(second) == [25, 2]


@pytest.mark.parametrize("name", ["cover.mp4", "cover.mkv"])
def test_a_cover_picture_is_never_the_video(name: str, tmp_path: Path) -> None:
    path = write_cover(tmp_path / name, (48, 64), (96, 128))
    assert (probe(path).height, probe(path).num_frames) == (48, 30)
    assert frame_numbers(read_frames(path, [4, 17])) == [4, 17]


def test_a_cover_picture_cannot_be_named_either(tmp_path: Path) -> None:
    path = write_cover(tmp_path / "cover.mp4", (48, 64), (96, 128))
    with pytest.raises(VideoError, match=r"stream 1 is no video stream; its video streams: 0 \(64x48\)"):
        probe(path, stream=1)


def remuxed(
    source: Path,
    target: Path,
    *,
    first: int = 0,
    hidden: frozenset[int] = frozenset(),
    time: Callable[[int], int] = lambda ticks: ticks,
    container: dict[str, str] | None = None,
) -> Path:
    """The packets of a file from ``first`` on at other times, which may be negative; those of VP8 with these numbers
    are decoded and not shown."""
    options = {"avoid_negative_ts": "disabled", **(container or {})}
    with av.open(str(source)) as before, av.open(str(target), "w", container_options=options) as after:
        stream = before.streams.video[0]
        copy = after.add_stream_from_template(stream)
        for number, packet in enumerate(p for p in before.demux(stream) if p.size):
            if number < first:
                continue
            if number in hidden:
                data = bytearray(bytes(packet))
                data[0] &= ~0x10
                changed = av.Packet(bytes(data))
                changed.pts, changed.dts, changed.time_base = packet.pts, packet.dts, packet.time_base
                packet = changed
            packet.stream = copy
            packet.pts, packet.dts = time(packet.pts), time(packet.dts)
            after.mux(packet)
    return target


@pytest.mark.parametrize("name", ["cut.mp4", "cut.mkv", "cut.ts"])
def test_frames_before_the_first_keyframe_do_not_count(make_video: MakeVideo, tmp_path: Path, name: str) -> None:
    """A recording that was cut between keyframes: what can be decoded is read, by its own numbers."""
    whole = make_video("whole.mp4", gop=10, options={"sc_threshold": "0"})
    first = probe(whole).keyframes[1]
    path = remuxed(whole, tmp_path / name, first=3)
    info = probe(path)
    assert info.num_frames == 30 - first
    assert info.keyframes[0] == 0
    assert frame_numbers(read_frames(path, range(info.num_frames))) == list(range(first, 30))
    assert frame_numbers(read_frames(path, [12, 0])) == [first + 12, first]


def test_alternate_reference_frames_of_vp8_are_no_frames(make_video: MakeVideo, tmp_path: Path) -> None:
    whole = make_video("whole.webm", codec="libvpx", options={"deadline": "realtime", "auto-alt-ref": "0"})
    assert probe(whole).num_frames == 30
    path = remuxed(whole, tmp_path / "hidden.webm", hidden=frozenset({5, 17}))
    kept = [number for number in range(30) if number not in (5, 17)]
    info = probe(path)
    assert (info.num_frames, info.counted) == (28, False)
    assert frame_numbers(read_frames(path, range(28))) == kept


def assert_read_again_and_again(path: Path, counted: bool) -> None:
    with VideoFile(path) as video:
        assert (video.info.num_frames, video.info.counted) == (30, counted)
        for info in (None, video.info):
            with VideoFile(path, info) as opened:
                for indices in ((29, 0, 12), (3, 29), (1,)):
                    assert frame_numbers(opened.read(indices)) == list(indices)


@pytest.mark.parametrize(("codec", "counted"), [("libvpx", True), ("mpeg4", False)])
def test_frames_of_matroska_before_time_0_are_read(
    make_video: MakeVideo, tmp_path: Path, codec: str, counted: bool
) -> None:
    whole = make_video("whole.mkv", codec=codec, fps=25)
    assert_read_again_and_again(remuxed(whole, tmp_path / "early.mkv", time=lambda ms: ms - 500), counted)


def test_frames_of_matroska_at_one_time_are_read(make_video: MakeVideo, tmp_path: Path) -> None:
    whole = make_video("whole.mkv", codec="mjpeg", pix_fmt="yuvj420p")
    clusters = {"cluster_size_limit": "600"}
    path = remuxed(whole, tmp_path / "early.mkv", time=lambda ms: max(0, ms - 300), container=clusters)
    assert_read_again_and_again(path, True)


def test_empty_packets_are_no_frames(tmp_path: Path) -> None:
    path = write_repeats(tmp_path / "repeats.nut")
    with av.open(str(path)) as file:
        assert [packet.size for packet in file.demux(video=0)].count(0) == 4  # the last one is PyAV's
    assert probe(path).num_frames == 30
    assert frame_numbers(read_frames(path, range(30))) == list(range(30))
    assert frame_numbers(read_frames(path, [29, 5, 14])) == [29, 5, 14]


@pytest.mark.parametrize(
    ("matrix", "shown"),
    [
        ((1, 0, 0, 1), lambda x: x),
        ((0, 1, -1, 0), lambda x: np.rot90(x, -1)),
        ((-1, 0, 0, -1), lambda x: np.rot90(x, 2)),
        ((0, -1, 1, 0), lambda x: np.rot90(x, 1)),
        ((-1, 0, 0, 1), lambda x: x[:, ::-1]),
        ((1, 0, 0, -1), lambda x: x[::-1]),
        ((0, 1, 1, 0), lambda x: x.transpose(1, 0, 2)),
        ((0, -1, -1, 0), lambda x: x.transpose(1, 0, 2)[::-1, ::-1]),
    ],
)
def test_the_eight_ways_to_hold_and_mirror_a_camera(
    make_video: MakeVideo, matrix: tuple[int, int, int, int], shown: Callable[[np.ndarray], np.ndarray]
) -> None:
    path = make_video("video.mp4")
    (plain,) = read_frames(path, [7])
    a, b, c, d = (value * 0x10000 for value in matrix)
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 44
    values = (a, b, 0, c, d, 0, 0, 0, 0x40000000)
    data[place : place + 36] = b"".join(value.to_bytes(4, "big", signed=True) for value in values)
    path.write_bytes(data)
    assert np.array_equal(read_frames(path, [7])[0], shown(plain))


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        ("libx264", {}),
        ("libx265", {"x265-params": "log-level=none"}),
        # BT.2020 with the transfer curves of HDR10 (16) and HLG (18)
        ("libx265", {"x265-params": "log-level=none:colorprim=9:transfer=16:colormatrix=9"}),
        ("libx265", {"x265-params": "log-level=none:colorprim=9:transfer=18:colormatrix=9"}),
    ],
    ids=["h264", "h265", "hdr10", "hlg"],
)
def test_deep_colour_and_hdr(make_video: MakeVideo, codec: str, options: dict[str, str]) -> None:
    """Ten bits come as eight; frames of HDR keep their order and their brightness in code values."""
    path = make_video("deep.mp4", codec=codec, pix_fmt="yuv420p10le", options=options, size=(64, 96), count=20)
    frames = read_frames(path, range(20))
    assert frames.dtype == np.uint8
    assert frame_numbers(frames) == list(range(20))
    with av.open(str(path)) as file:
        assert next(file.decode(video=0)).format.name == "yuv420p10le"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "a.mp4: Permission denied"),
        (OSError(errno.EIO, "Input/output error"), "a.mp4: Input/output error (damaged, or its disk fails)"),
        (av.error.MemoryError(errno.ENOMEM, "Cannot allocate memory"), "a.mp4: Cannot allocate memory"),
        (MemoryError(), "a.mp4: MemoryError"),
        (av.error.DecoderNotFoundError(1, "Decoder not found"), "a.mp4: Decoder not found"),
        (OSError(errno.ENOTSUP, "Not supported"), "a.mp4: Not supported"),
        (av.error.OSError(errno.ENOTSUP, "No support"), "a.mp4: No support (nothing converts its colours to RGB)"),
        (av.error.InvalidDataError(1, "Invalid data"), "a.mp4: Invalid data (damaged, or not a video)"),
        (av.error.EOFError(1, "End of file"), "a.mp4: End of file (damaged, or not a video)"),
    ],
)
def test_only_errors_of_the_content_are_called_damage(error: Exception, says: str) -> None:
    with pytest.raises(VideoError) as caught, naming("a.mp4"):
        raise error
    assert str(caught.value) == says
