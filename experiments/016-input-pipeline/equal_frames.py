"""Whether torchcodec gives the frames of PyAV, byte for byte, and what reading them costs. See README.md.

python experiments/016-input-pipeline/equal_frames.py [VIDEO ...]
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import av
import numpy as np

from hwbench.data.decoders import get
from hwbench.data.decoding import VideoFile
from hwbench.data.media import FileSource
from hwbench.testing.decoders import turned

# name of the file, codec, format of pixels, options of the encoder
KINDS = (
    ("plain.mp4", "libx264", "yuv420p", {}),
    ("b-frames.mkv", "libx264", "yuv420p", {"bf": "3", "b-pyramid": "normal"}),
    ("ten-bit.mp4", "libx264", "yuv420p10le", {}),
    ("full-colour.mp4", "libx264", "yuv444p", {}),
    ("hevc.mp4", "libx265", "yuv420p", {"x265-params": "log-level=none"}),
    ("mpeg4.mp4", "mpeg4", "yuv420p", {}),
    ("vp9.webm", "libvpx-vp9", "yuv420p", {"cpu-used": "8", "deadline": "realtime"}),
    ("stream.ts", "libx264", "yuv420p", {}),
    ("keyframes.ts", "libx264", "yuv420p", {"g": "12", "bf": "3"}),
    ("keyframes.mpg", "mpeg2video", "yuv420p", {"g": "12", "bf": "2"}),
    ("interlaced.mp4", "libx264", "yuv420p", {"x264-params": "interlaced=1"}),
    ("interlaced.hevc.mp4", "libx265", "yuv420p", {"x265-params": "interlace=tff:log-level=none"}),
    ("raw.h264", "libx264", "yuv420p", {}),
)
_ONE = 0x10000
MATRICES = {"right": (0, _ONE, -_ONE, 0), "mirrored": (-_ONE, 0, 0, _ONE), "upside-down": (_ONE, 0, 0, -_ONE)}


def write(path: Path, codec: str, pixels: str, options: dict[str, str], count: int = 60) -> Path:
    """Noise that moves, odd in nothing but its content."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (240 + count, 320 + count, 3), np.uint8)
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt, stream.time_base = 320, 240, pixels, Fraction(1, 30)
        for number in range(count):
            picture = np.ascontiguousarray(noise[number : number + 240, number : number + 320])
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 30)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return path


def files(folder: Path) -> Iterator[Path]:
    made = [write(folder / name, *how) for name, *how in KINDS]
    yield from made
    for name, matrix in MATRICES.items():
        yield turned(made[0], matrix, folder / f"{name}.mp4")


def compare(path: Path) -> str:
    """One line about a file."""
    source, spent, frames = FileSource(path), {}, {}
    for name in ("pyav", "torchcodec"):
        decoder = get(name)
        with decoder.open(source) as video:
            info = video.info
            # The whole length, and a clip between keyframes, which is sought.
            indices = tuple(range(0, info.num_frames, 7))
            clip = tuple(range(info.num_frames // 3, info.num_frames * 3 // 5, 2)) or (0,)
        start = time.perf_counter()
        with patch.object(VideoFile, "read", autospec=True, side_effect=VideoFile.read) as read:
            with decoder.open(source, info) as video:
                frames[name] = video.read(indices)
                spent[name] = 1e3 * (time.perf_counter() - start)
                frames[name] = np.concatenate([frames[name], video.read(clip)])
            by_pyav = read.called
    difference = int(np.abs(frames["pyav"].astype(int) - frames["torchcodec"]).max())
    who = "by PyAV" if by_pyav else f"{spent['torchcodec']:.1f} ms"
    return f"| {path.name} | {difference} | {spent['pyav']:.1f} ms | {who} |"


def main() -> None:
    print("| file | largest difference | pyav | torchcodec |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for path in [Path(name) for name in sys.argv[1:]] or files(Path(folder)):
            print(compare(path), flush=True)


if __name__ == "__main__":
    main()
