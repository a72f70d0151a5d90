"""Sound of a window: which samples come, where they lie, and what stands where there are none."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from sound_files import sine, write_sound
from video_files import MakeVideo

from hwbench.data.archives import ArchiveMember, MemorySource
from hwbench.data.audio import AudioWindow, read_sound
from hwbench.errors import InvalidValue, VideoError

RATE = 44100


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A WAV file of 3 s, and what is in it to the bit: float32 (2, S)."""
    whole = np.random.default_rng(0).integers(-(2**15), 2**15, size=(2, 3 * RATE))
    samples = (whole / 2**15).astype(np.float32)
    path = tmp_path_factory.mktemp("noise") / "noise.wav"
    return write_sound(path, [(0, samples)], rate=RATE, codec="pcm_s16le"), samples


def test_windows_are_half_open_and_as_long_as_their_span() -> None:
    assert AudioWindow.between(Fraction(1, 3), Fraction(2, 3), 10) == AudioWindow(4, 3, 10)
    assert AudioWindow.between(Fraction(1, 10), Fraction(2, 10), 10) == AudioWindow(1, 1, 10)
    assert AudioWindow.between(Fraction(1), Fraction(0), 10).count == 0
    spans = {AudioWindow.lasting(Fraction(start, 7), Fraction(8, 15), 16000).count for start in range(20)}
    assert spans == {8533}
    with pytest.raises(InvalidValue, match="rate"):
        AudioWindow(0, 1, 0)


@pytest.mark.parametrize(("first", "count"), [(0, 1000), (1, 1), (100_001, 5000), (60_000, 0)])
def test_a_window_has_the_samples_with_its_numbers(noise: tuple[Path, np.ndarray], first: int, count: int) -> None:
    path, samples = noise
    sound = read_sound(path, AudioWindow(first, count, RATE))
    np.testing.assert_array_equal(sound.samples, samples[:, first : first + count])
    assert sound.valid.all()
    assert sound.present == bool(count)
    np.testing.assert_allclose(sound.mono(), samples[:, first : first + count].mean(axis=0), atol=1e-6)


def test_before_the_beginning_and_behind_the_end_there_are_zeros_that_say_so(noise: tuple[Path, np.ndarray]) -> None:
    path, samples = noise
    early, late = (read_sound(path, AudioWindow(first, 200, RATE)) for first in (-50, 3 * RATE - 150))
    np.testing.assert_array_equal(early.valid, np.arange(200) >= 50)
    np.testing.assert_array_equal(early.samples[:, 50:], samples[:, :150])
    np.testing.assert_array_equal(late.valid, np.arange(200) < 150)
    np.testing.assert_array_equal(late.samples[:, :150], samples[:, -150:])
    assert not early.samples[:, :50].any()
    assert not late.samples[:, 150:].any()
    assert not read_sound(path, AudioWindow(5 * RATE, 200, RATE)).present


@pytest.mark.parametrize("rate", [16000, 48000, 11025])
def test_resampled_sound_does_not_depend_on_the_window(noise: tuple[Path, np.ndarray], rate: int) -> None:
    path, _ = noise
    whole = read_sound(path, AudioWindow(0, 3 * rate, rate))
    assert whole.valid.all()
    for first, count in ((1, 7), (rate // 3, rate), (2 * rate + 1, rate - 1)):
        part = read_sound(path, AudioWindow(first, count, rate))
        np.testing.assert_array_equal(part.samples, whole.samples[:, first : first + count])


@pytest.mark.parametrize(
    ("name", "codec", "stored"),
    [
        ("tone.wav", "pcm_s16le", RATE),
        ("tone.mp4", "aac", RATE),
        ("tone.mka", "aac", RATE),
        ("tone.flac", "flac", RATE),
        ("tone.webm", "libopus", 48000),
    ],
)
@pytest.mark.parametrize("rate", [RATE, 16000])
def test_sample_k_is_the_sound_at_k_over_the_rate(
    name: str, codec: str, stored: int, rate: int, tmp_path: Path
) -> None:
    """Priming is left out, and a filter does not shift: one sample of 44100 off is an error of 0.03."""
    path = write_sound(tmp_path / name, [(0, sine(stored, 3))], rate=stored, codec=codec)
    for first in (rate // 2, rate // 2 + 1, 2 * rate + 17):
        sound = read_sound(path, AudioWindow(first, rate // 2, rate))
        assert sound.valid.all()
        expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(first, first + rate // 2) / rate)
        assert np.abs(sound.samples[0] - expected).max() < 0.01


@pytest.mark.parametrize(("codec", "name"), [("aac", "noise.mp4"), ("aac", "noise.mkv"), ("flac", "noise.mp4")])
def test_what_is_read_behind_a_seek_is_what_is_read_from_the_start(codec: str, name: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(0, 0.2, size=(2, 4 * RATE)).clip(-1, 1).astype(np.float32)
    path = write_sound(tmp_path / name, [(0, noise)], rate=RATE, codec=codec)
    whole = read_sound(path, AudioWindow(0, 4 * RATE, RATE))
    for first in (RATE, 2 * RATE + 1, 3 * RATE + 1023):
        part = read_sound(path, AudioWindow(first, 5000, RATE))
        np.testing.assert_array_equal(part.samples, whole.samples[:, first : first + 5000])


def test_a_stream_that_starts_late_keeps_its_time(tmp_path: Path) -> None:
    begins, tone = 22050, sine(RATE, 2)
    timescale = {"movie_timescale": str(RATE)}
    path = write_sound(tmp_path / "late.mp4", [(begins, tone)], rate=RATE, container=timescale)
    sound = read_sound(path, AudioWindow(0, 2 * RATE, RATE))
    # The encoder's 1024 samples of priming come before the sound, and are no longer cut off then.
    np.testing.assert_array_equal(sound.valid, np.arange(2 * RATE) >= begins - 1024)
    middle = slice(begins + 5000, 2 * RATE - 5000)
    assert np.abs(sound.samples[0, middle] - tone[0, 5000 : 2 * RATE - 5000 - begins]).max() < 0.01


def test_a_gap_is_no_sound(tmp_path: Path) -> None:
    tone = sine(8000, 1)
    path = write_sound(tmp_path / "gap.mkv", [(0, tone), (16000, tone)], rate=8000, codec="pcm_s16le")
    sound = read_sound(path, AudioWindow(0, 24000, 8000))
    np.testing.assert_array_equal(sound.valid, (np.arange(24000) < 8000) | (np.arange(24000) >= 16000))
    np.testing.assert_allclose(sound.samples[0, 16000:], tone[0], atol=1e-4)


@pytest.mark.parametrize("channels", [(1, 2), (2, 1), (1, 1), (2, 2)])
@pytest.mark.parametrize("rates", [(RATE, RATE), (RATE, 32000), (32000, 48000), (48000, 16000)])
def test_sound_that_changes_within_its_stream_is_that_of_its_parts(
    channels: tuple[int, int], rates: tuple[int, int], tmp_path: Path
) -> None:
    """A recorder of broadcasts changes from mono to stereo, or from one rate to another: files joined byte by byte."""
    parts = []
    for number in (0, 1):
        tone = sine(rates[number], 1, hertz=500.0, channels=channels[number])
        begins = number * rates[number]
        parts.append(write_sound(tmp_path / f"{number}.ts", [(begins, tone)], rate=rates[number]))
    joined = tmp_path / "joined.ts"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    starts_s = []
    for part in parts:
        with av.open(str(part)) as file:
            starts_s.append(Fraction(file.streams.audio[0].start_time * file.streams.audio[0].time_base))
    rate = 16000
    sound = read_sound(joined, AudioWindow(0, 4 * rate, rate))
    assert len(sound.samples) == channels[0]
    for part, start_s in zip(parts, starts_s):
        window = AudioWindow.lasting(start_s + Fraction(1, 10), Fraction(8, 10), rate)
        alone = read_sound(part, window).mono()
        assert np.abs(alone).max() > 0.4
        assert sound.valid[window.first : window.first + window.count].all()
        # A part begins at a whole sample of the header: half of one of 32000 a second off is 0.025.
        assert np.abs(sound.mono()[window.first : window.first + window.count] - alone).max() < 0.035


def test_a_file_without_sound_has_zeros_that_say_so(make_video: MakeVideo) -> None:
    sound = read_sound(make_video("silent.mp4"), AudioWindow(0, 160, 16000))
    assert sound.samples.shape == (1, 160)
    assert not sound.samples.any()
    assert not sound.present


def test_sound_of_archives_is_that_of_files(noise: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, samples = noise
    content = path.read_bytes()
    (tmp_path / "all.tar").write_bytes(b"x" * 100 + content + b"x" * 100)
    member = ArchiveMember(tmp_path / "all.tar", "noise.wav", 100, len(content))
    for source in (member, MemorySource("noise", content)):
        sound = read_sound(source, AudioWindow(90_000, 1000, RATE))
        np.testing.assert_array_equal(sound.samples, samples[:, 90_000:91_000])


@pytest.mark.parametrize("what", ["missing", "empty", "text", "folder"])
def test_what_is_no_media_file_is_named_in_one_line(what: str, broken: dict[str, Path]) -> None:
    with pytest.raises(VideoError) as caught:
        read_sound(broken[what], AudioWindow(0, 10, 16000))
    assert str(caught.value).startswith(f"{broken[what]}: ")
    assert "\n" not in str(caught.value)
