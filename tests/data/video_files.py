"""Real video files of every awkward kind, made with PyAV."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

MakeVideo = Callable[..., Path]


def gradient_frames(count: int, height: int, width: int) -> np.ndarray:
    """Frames whose brightness tells their number: frame i is about 8·i + 4 bright, with a soft slope across."""
    slope = np.linspace(-3, 3, width)[None, None, :, None]
    base = (8 * np.arange(count) + 4).reshape(-1, 1, 1, 1)
    return np.broadcast_to(np.clip(base + slope, 0, 255), (count, height, width, 3)).round().astype(np.uint8)


def frame_numbers(frames: np.ndarray) -> list[int]:
    """The numbers which ``gradient_frames`` wrote into frames."""
    return [round((float(frame.mean()) - 4) / 8) for frame in frames]


@contextlib.contextmanager
def no_more_open_files() -> Iterator[None]:
    """No file can be opened here: the process is at its limit."""
    resource = pytest.importorskip("resource", reason="limits of a process are those of POSIX")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def usual_priority() -> Iterator[None]:
    """Undoes what SVT-AV1 does for root: it gives the thread that opens it, and so all that this thread starts later,
    the highest real-time priority."""
    if not hasattr(os, "sched_setscheduler"):
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def write(
    path: Path,
    *,
    count: int = 30,
    size: tuple[int, int] = (48, 64),
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    container: dict[str, str] | None = None,
    pix_fmt: str = "yuv420p",
    fps: int = 30,
    times: Sequence[int] | None = None,
    gop: int | None = None,
) -> Path:
    """A video of ``gradient_frames``; ``times`` are the time stamps in units of 1/fps, by default 0, 1, 2, ..."""
    if codec not in av.codecs_available:
        raise RuntimeError(f"this PyAV has no {codec}; install the wheel from PyPI")
    times = range(count) if times is None else times
    with usual_priority(), av.open(str(path), "w", options=container or {}) as file:
        stream = file.add_stream(codec, rate=fps, options={"threads": "1", **(options or {})})
        stream.height, stream.width = size
        stream.pix_fmt = pix_fmt
        stream.time_base = Fraction(1, fps)
        stream.bit_rate = 2_000_000
        if gop:
            stream.gop_size = gop
        for array, time in zip(gradient_frames(count, *size), times):
            frame = av.VideoFrame.from_ndarray(array, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, fps)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path


def write_repeats(path: Path, repeated: Sequence[int] = (3, 7, 20)) -> Path:
    """A NUT file of ``gradient_frames`` with an empty packet behind some: Ogg repeats a frame of Theora with one."""
    whole = write(path.with_name(f"whole-{path.name}"), codec="mpeg4", gop=12)
    with av.open(str(whole)) as before, av.open(str(path), "w") as after:
        copy = after.add_stream_from_template(before.streams.video[0])
        for number, packet in enumerate(p for p in before.demux(video=0) if p.size):
            packet.stream, packet.pts, packet.dts = copy, 2 * packet.pts, 2 * packet.dts
            after.mux(packet)
            if number in repeated:
                empty = av.Packet(b"")
                empty.stream, empty.time_base = copy, packet.time_base
                empty.pts = empty.dts = packet.pts + 1
                after.mux(empty)
    return path


def write_disordered(path: Path) -> Path:
    """A Matroska file of ``gradient_frames`` with B-frames whose times are those of decoding, as libxvid writes them.

    The decoder gives frames up to three places too early.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = write(path.with_suffix(".mp4"), codec="mpeg4", options={"bf": "2"}, gop=12)
    with av.open(str(whole)) as before, av.open(str(path), "w") as after:
        copy = after.add_stream_from_template(before.streams.video[0])
        for packet in (p for p in before.demux(video=0) if p.size):
            packet.stream, packet.pts = copy, packet.dts
            after.mux(packet)
    whole.unlink()
    return path


def write_audio(path: Path) -> Path:
    """A file with sound and no picture."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path


def cut(source: Path, target: Path, share: float) -> Path:
    """The first part of a file."""
    data = source.read_bytes()
    target.write_bytes(data[: int(share * len(data))])
    return target


def write_streams(
    path: Path, sizes: Sequence[tuple[int, int]], *, default: int | None = None, codec: str = "libx264", count: int = 30
) -> Path:
    """A file with a stream of ``gradient_frames`` for each size (height, width); ``default`` is marked as such."""
    with av.open(str(path), "w") as file:
        streams = []
        for number, size in enumerate(sizes):
            stream = file.add_stream(codec, rate=30, options={"threads": "1"})
            stream.height, stream.width = size
            stream.pix_fmt, stream.time_base, stream.bit_rate = "yuv420p", Fraction(1, 30), 40 * size[0] * size[1]
            if default is not None:
                stream.disposition = av.stream.Disposition.default if number == default else 0
            streams.append(stream)
        films = [gradient_frames(count, *size) for size in sizes]
        for time in range(count):
            for stream, film in zip(streams, films):
                frame = av.VideoFrame.from_ndarray(film[time], format="rgb24")
                frame.pts, frame.time_base = time, Fraction(1, 30)
                file.mux(stream.encode(frame))
        for stream in streams:
            file.mux(stream.encode())
    return path


def write_cover(path: Path, size: tuple[int, int], cover: tuple[int, int]) -> Path:
    """A film behind a cover picture, as shops of music and films put one into their files."""
    with av.open(str(path), "w") as file:
        picture = file.add_stream("mjpeg", rate=1)
        picture.height, picture.width = cover
        picture.pix_fmt = "yuvj420p"
        picture.disposition = av.stream.Disposition.attached_pic
        stream = file.add_stream("libx264", rate=30, options={"threads": "1"})
        stream.height, stream.width = size
        stream.pix_fmt, stream.time_base = "yuv420p", Fraction(1, 30)
        grey = av.VideoFrame.from_ndarray(np.full((*cover, 3), 200, dtype=np.uint8), format="rgb24")
        file.mux(picture.encode(grey))
        file.mux(picture.encode())
        for time, array in enumerate(gradient_frames(30, *size)):
            frame = av.VideoFrame.from_ndarray(array, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 30)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path
