"""Real media files with sound, made with PyAV."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np


def sine(rate: int, seconds: float, *, hertz: float = 440.0, channels: int = 1) -> np.ndarray:
    """A tone of half of full scale: float32 (channels, samples)."""
    tone = 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)
    return np.repeat(tone[None].astype(np.float32), channels, axis=0)


def audio_frames(samples: np.ndarray, rate: int, *, begins: int = 0, block: int = 1024) -> list[av.AudioFrame]:
    """Samples (channels, S) as frames of ``block`` samples, the first one at sample number ``begins``."""
    frames = []
    for start in range(0, samples.shape[1], block):
        part = np.ascontiguousarray(samples[:, start : start + block])
        frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="mono" if len(samples) == 1 else "stereo")
        frame.sample_rate, frame.pts, frame.time_base = rate, begins + start, Fraction(1, rate)
        frames.append(frame)
    return frames


def write_sound(
    path: Path,
    pieces: Sequence[tuple[int, np.ndarray]],
    *,
    rate: int,
    codec: str = "aac",
    container: dict[str, str] | None = None,
) -> Path:
    """A file of pieces of sound, each with the number of its first sample."""
    with av.open(str(path), "w", options=container or {}) as file:
        layout = "mono" if len(pieces[0][1]) == 1 else "stereo"
        stream = file.add_stream(codec, rate=rate, layout=layout, bit_rate=256_000)
        for begins, samples in pieces:
            for frame in audio_frames(samples, rate, begins=begins):
                file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path


def write_film(
    path: Path,
    pictures: np.ndarray,
    sound: np.ndarray | None,
    *,
    fps: int,
    rate: int = 16000,
    late: int = 0,
    times: Sequence[int] | None = None,
    codec: str = "mpeg4",
) -> Path:
    """A film of pictures (T, H, W, 3) and sound (1, S), without encoders under the GPL.

    The pictures begin ``late`` frames after the sound; ``times`` are theirs in units of 1/fps, by default 0, 1, 2, ...
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        video = file.add_stream(codec, rate=fps, options={"threads": "1"})
        video.height, video.width = pictures.shape[1:3]
        video.pix_fmt, video.time_base, video.bit_rate = "yuv420p", Fraction(1, fps), 4_000_000
        audio = None if sound is None else file.add_stream("aac", rate=rate, layout="mono", bit_rate=96_000)
        for number, array in zip(range(len(pictures)) if times is None else times, pictures, strict=True):
            frame = av.VideoFrame.from_ndarray(array, format="rgb24")
            frame.pts, frame.time_base = late + number, Fraction(1, fps)
            file.mux(video.encode(frame))
        file.mux(video.encode())
        if audio is not None and sound is not None:
            for part in audio_frames(sound, rate):
                file.mux(audio.encode(part))
            file.mux(audio.encode())
    return path
