"""The sound of a part of a media file, exact to the sample.

Time is that of the file's time stamps: a video frame and a sample with the same presentation time belong together.
Sample ``k`` of a rate is the sound at ``k / rate`` seconds, whatever part it is read with. What an encoder puts in
front of the sound (priming of AAC, MP3 and Opus) is left out as FFmpeg does it; before the sound begins, in gaps and
behind its end there are zeros that are marked as no sound.

Decoding starts a while before the part in MP4, MOV and WAV, whose time stamps are exact anywhere in the file; in other
containers it starts with the file. Those which count time in steps longer than a sample (Matroska: 1 ms) are placed by
the time stamp of their first sample, and counted from there. At few bits a second AAC and AC-3 leave it to the decoder
to make up noise, which depends on where decoding started: a window is always the same, overlapping windows may differ.

Where sound changes within its stream, as in joined files, it is brought to the rate and the number of channels of the
header: FFmpeg resamples it, and each channel gets the mean of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from hwbench.data.media import FileSource, MediaSource
from hwbench.data.media_faults import MediaFault, check_media, naming
from hwbench.errors import InvalidValue

Samples = npt.NDArray[np.float32]

# The first frames behind a seek lack what they overlap with: 80 ms of Opus (RFC 7845, 4.6), two frames of AAC, ten of
# MP3 at most.
_WARM_UP_S = Fraction(1, 2)
# FFmpeg's filter has 32 taps at the lower of the two rates (16 on each side), a little more as it cuts off below half
# of it.
_TAPS = 32
_SOUGHT = ("mov", "wav")


@dataclass(frozen=True)
class AudioWindow:
    """``count`` samples from number ``first`` on, at ``rate`` samples a second; number 0 is at time stamp 0.

    Raises:
        InvalidValue: No rate, or fewer than no samples.
    """

    first: int
    count: int
    rate: int

    def __post_init__(self) -> None:
        if self.rate < 1 or self.count < 0:
            raise InvalidValue(f"audio: expected a rate of at least 1 and no negative number of samples, got {self}")

    @classmethod
    def between(cls, start_s: Fraction, end_s: Fraction, rate: int) -> AudioWindow:
        """The samples with ``start_s <= k / rate < end_s``."""
        first = math.ceil(start_s * rate)
        return cls(first, max(0, math.ceil(end_s * rate) - first), rate)

    @classmethod
    def lasting(cls, start_s: Fraction, span_s: Fraction, rate: int) -> AudioWindow:
        """The samples from ``start_s`` on; the same number for the same span, wherever it starts."""
        return cls(math.ceil(start_s * rate), round(span_s * rate), rate)


@dataclass(frozen=True)
class Sound:
    """``samples`` float32 (C, S), full scale is 1; ``valid`` bool (S,): where there is sound and no padding.

    A file without sound has one channel of zeros, of which nothing is valid.
    """

    samples: Samples
    valid: npt.NDArray[np.bool_]
    rate: int

    @property
    def present(self) -> bool:
        """Whether there is any sound in the window."""
        return bool(self.valid.any())

    def mono(self) -> Samples:
        """The mean of the channels: float32 (S,)."""
        mean: Samples = self.samples.mean(axis=0, dtype=np.float32)
        return mean

    def until(self, count: int) -> Sound:
        """The same with zeros that are no sound behind the first ``count`` samples."""
        kept = np.arange(len(self.valid)) < count
        return Sound(self.samples * kept, self.valid & kept, self.rate)


def read_sound(source: MediaSource | Path, window: AudioWindow) -> Sound:
    """The sound of a window, with the channels of the file, resampled by FFmpeg where its rate is another.

    Args:
        source: The file; of several streams the one that FFmpeg takes for the best is read.
        window: Which samples.

    Raises:
        VideoError: The file is missing, empty or no media file, or its sound cannot be decoded.
    """
    media = FileSource(source) if isinstance(source, Path) else source
    opened = media.media()
    try:
        with naming(media.name):
            check_media(opened)
            with av.open(str(opened) if isinstance(opened, Path) else opened) as container:
                stream: Any = container.streams.best("audio")
                if stream is None:
                    return _silence(window)
                if stream.codec_context is None or not stream.rate:
                    raise MediaFault("no decoder for its sound in this PyAV, or a rate of 0")
                return _read(container, stream, window)
    finally:
        if not isinstance(opened, Path):
            opened.close()


def _silence(window: AudioWindow) -> Sound:
    return Sound(np.zeros((1, window.count), np.float32), np.zeros(window.count, bool), window.rate)


def _read(container: Any, stream: Any, window: AudioWindow) -> Sound:
    """Both rates share the moments ``n / shared`` s: what is resampled begins and ends at such moments."""
    rate = int(stream.rate)
    if rate == window.rate:
        samples, valid = _decoded(container, stream, window.first, window.count)
        return Sound(samples, valid, rate)
    shared = math.gcd(rate, window.rate)
    step_in, step_out = rate // shared, window.rate // shared
    margin = math.ceil(_TAPS * shared / min(rate, window.rate))
    low = window.first // step_out - margin
    high = -(-(window.first + window.count) // step_out) + margin
    samples, valid = _decoded(container, stream, low * step_in, (high - low) * step_in)
    skipped = window.first - low * step_out
    resampled = np.stack([_resampled(channel, rate, window.rate) for channel in samples])
    places = (skipped + np.arange(window.count)) * step_in // step_out
    return Sound(resampled[:, skipped : skipped + window.count], valid[places], window.rate)


def _decoded(container: Any, stream: Any, first: int, count: int) -> tuple[Samples, npt.NDArray[np.bool_]]:
    """Samples from number ``first`` on at the rate of the stream: float32 (C, count), and where there are any."""
    samples, valid = np.zeros((max(1, stream.channels), count), np.float32), np.zeros(count, bool)
    for place, block in _blocks(container, stream, first):
        if place >= first + count:
            break
        low, high = max(place, first), min(place + block.shape[1], first + count)
        if low < high:
            samples[:, low - first : high - first] = block[:, low - place : high - place]
            valid[low - first : high - first] = True
    return samples, valid


def _blocks(container: Any, stream: Any, first: int) -> Iterator[tuple[int, Samples]]:
    """Decoded blocks (C, S) with the number of their first sample, from somewhere before ``first`` on."""
    stream.codec_context.thread_count = 1
    rate = int(stream.rate)
    start = Fraction(first, rate) - _WARM_UP_S
    if start > 0 and container.format.name.startswith(_SOUGHT):
        container.seek(math.floor(start / stream.time_base), stream=stream, backward=True)
    converter: _Converter | None = None
    channels = max(1, stream.channels)  # of the header: where sound changes, those of the stream do, too
    slack = math.ceil(stream.time_base * rate)
    # Numbers of the sample that comes next, and of the one that the next frame begins with.
    place, expected = 0, Fraction(0)
    for frame in container.decode(stream):
        stamped = expected if frame.pts is None else Fraction(round(frame.pts * frame.time_base * rate))
        if converter is None or abs(stamped - expected) > slack:
            begins, follows = stamped, False
        else:
            begins, follows = expected, True
        if converter is None or not converter.takes(frame, follows):
            if converter is not None:
                yield place, converter.last_block()
            converter, place = _Converter(frame, rate, channels), round(begins)
        elif not follows:
            place = round(begins)
        block = converter.block(frame)
        yield place, block
        place, expected = place + block.shape[1], begins + Fraction(frame.samples * rate, frame.sample_rate)
    if converter is not None:
        yield place, converter.last_block()


class _Converter:
    """From frames of one form to float32 (C, S) at a rate, which may come later than their frame."""

    def __init__(self, frame: Any, rate: int, channels: int) -> None:
        self._form, self._resamples, self._channels = _form(frame), frame.sample_rate != rate, channels
        self._resampler = av.AudioResampler(format="fltp", rate=rate)

    def takes(self, frame: Any, follows: bool) -> bool:
        """Whether a frame has the form; behind a gap, the filter between two rates begins anew."""
        return _form(frame) == self._form and (follows or not self._resamples)

    def block(self, frame: Any) -> Samples:
        """What comes out when a frame goes in."""
        return self._joined(self._resampler.resample(frame))

    def last_block(self) -> Samples:
        """What is left in the filter."""
        return self._joined(self._resampler.resample(None) if self._resamples else [])

    def _joined(self, parts: list[Any]) -> Samples:
        nothing = np.zeros((self._channels, 0), np.float32)
        block: Samples = np.concatenate([nothing, *(self._mixed(part.to_ndarray()) for part in parts)], axis=1)
        return block

    def _mixed(self, samples: Samples) -> Samples:
        if len(samples) == self._channels:
            return samples
        return np.repeat(samples.mean(axis=0, keepdims=True, dtype=np.float32), self._channels, axis=0)


def _form(frame: Any) -> tuple[str, str, int]:
    return frame.format.name, frame.layout.name, frame.sample_rate


def _resampled(channel: Samples, rate: int, wanted: int) -> Samples:
    """One channel (S,) at another rate; its first sample stays where it is."""
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=wanted)
    frame = av.AudioFrame.from_ndarray(channel[None], format="fltp", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
    parts = [*resampler.resample(frame), *resampler.resample(None)]
    return np.concatenate([part.to_ndarray()[0] for part in parts])
