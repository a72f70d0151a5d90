"""What a data set reads of each clip: pictures, optical flow, sound, and readings of inertial sensors.

``TrainingClips`` and ``TestClips`` choose a clip by its frames, as they always do; its start and its length in seconds
decide what is read of everything else. A modality that is asked for is in every sample: where a video has none of it,
there are zeros, and ``Track.valid`` says so. Sound and readings end with the part that a label is about. Files that are
there and damaged are failures, as unreadable videos are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from hwbench.data.audio import AudioWindow, read_sound
from hwbench.data.clip_places import ClipPlace, places_beside, shared_places
from hwbench.data.flow import FlowFolder
from hwbench.data.flow_cache import FlowCache
from hwbench.data.flow_views import FlowView
from hwbench.data.imu import ImuSpec, read_imu
from hwbench.data.media import MediaSource, VideoSource
from hwbench.data.mel import MelSpec
from hwbench.data.spec_augment import SpecAugment
from hwbench.data.tracks import Track
from hwbench.errors import InvalidFile, VideoError


class Modality(Protocol):
    """Something that is read beside the pictures; a frozen dataclass."""

    def read(self, place: ClipPlace, view: FlowView, rng: np.random.Generator | None) -> Track:
        """Of one clip, in all its views or in one that holds for all.

        Args:
            place: The clip.
            view: What is looked at of flow.
            rng: What a random change is drawn from; None in a test, where nothing is changed.

        Raises:
            VideoError: What should be there cannot be read.
        """
        ...


@dataclass(frozen=True)
class Audio:
    """The sound in the file of a video, mixed to one channel, as a log-mel spectrogram: values (N, mels, frames).

    Attributes:
        mel: The spectrogram; frame 0 is centred at the start of the clip.
        mean: Is taken away from the logarithms.
        deviation: What they are divided by then.
        augment: Changes spectrograms in training.
    """

    mel: MelSpec = field(default_factory=MelSpec)
    mean: float = 0.0
    deviation: float = 1.0
    augment: SpecAugment | None = None

    def read(self, place: ClipPlace, view: FlowView, rng: np.random.Generator | None) -> Track:
        window = AudioWindow.lasting(place.origin_s + place.start_s, place.span_s, self.mel.rate)
        frames = self.mel.frames(window.count)
        values, valid = torch.zeros(self.mel.mels, frames), torch.zeros(frames, dtype=torch.bool)
        sound = read_sound(place.source, window) if isinstance(place.source, MediaSource) else None
        if sound is not None:
            first_s = Fraction(window.first, window.rate) - place.origin_s
            sound = sound.until(place.before_end(window.count, first_s, Fraction(1, window.rate)))
        if sound is not None and sound.present:
            values = (self.mel(torch.from_numpy(sound.mono())) - self.mean) / self.deviation
            if self.augment is not None and rng is not None:
                values = self.augment(values, rng)
            centres = np.minimum(np.arange(frames) * self.mel.hop, window.count - 1)
            valid = torch.from_numpy(sound.valid[centres])
        return Track((values * valid).unsqueeze(0), valid.unsqueeze(0))


@dataclass(frozen=True)
class Imu:
    """Readings of inertial sensors out of ``NAME.csv`` of each video: values (N, axes, readings).

    Attributes:
        spec: What is in the files.
        folder: Where they lie, as ``SIDE/CLASS/NAME.csv``, ``CLASS/NAME.csv`` or ``NAME.csv``, CLASS being the folder
            that the video lies in and SIDE that of CLASS; None: beside the videos.
    """

    spec: ImuSpec = field(default_factory=ImuSpec)
    folder: Path | None = None

    def file(self, source: VideoSource) -> Path | None:
        """The readings of a video; None where there are none."""
        files = (one.with_name(f"{one.name}.csv") for one in places_beside(source, self.folder))
        return next((one for one in files if one.exists()), None)

    def shared(self, sources: Iterable[VideoSource]) -> dict[Path, str]:
        """Files that two videos of one name would share, each with the fault."""
        return {} if self.folder is None else shared_places(sources, self.file)

    def read(self, place: ClipPlace, view: FlowView, rng: np.random.Generator | None) -> Track:
        file, count = self.file(place.source), self.spec.readings
        if file is None:
            return Track(torch.zeros(1, len(self.spec.columns), count), torch.zeros(1, count, dtype=torch.bool))
        try:
            part = read_imu(file, self.spec).part(place.start_s, place.start_s + place.span_s, count)
        except InvalidFile as error:
            raise VideoError(str(error)) from None
        inside = np.arange(count) < place.before_end(count, place.start_s, place.span_s / count)
        return Track(torch.from_numpy(part.readings * inside)[None], torch.from_numpy(part.valid & inside)[None])


@dataclass(frozen=True)
class FlowFiles:
    """Images of flow in a folder ``NAME`` for each video.

    Attributes:
        root: Where the folders lie, as ``SIDE/CLASS/NAME``, ``CLASS/NAME`` or ``NAME``, CLASS being the folder that
            the video lies in and SIDE that of CLASS; None: beside the videos, or among the images of a video that is a
            folder of them.
        across: What the names of images of flow to the right begin with.
        down: What those of flow down begin with.
    """

    root: Path | None = None
    across: str = "flow_x_"
    down: str = "flow_y_"

    def folder(self, source: VideoSource) -> FlowFolder | None:
        """The flow of a video; None where it has no folder, or one without any flow, as one of its images may be."""
        folders = (FlowFolder(one, self.across, self.down) for one in places_beside(source, self.root))
        return next((one for one in folders if one.has_any()), None)

    def shared(self, sources: Iterable[VideoSource]) -> dict[Path, str]:
        """Folders that two videos of one name would share, each with the fault."""

        def place_of(source: VideoSource) -> Path | None:
            flow = self.folder(source)
            return None if flow is None else flow.folder

        return {} if self.root is None else shared_places(sources, place_of)


@dataclass(frozen=True)
class OpticalFlow:
    """How far pixels move to the next frame, at the frames of the clip and in its view: values (N, 2, T, h, w).

    Values are shares of the range of the files (``hwbench.data.flow``); positive is right and down.

    Attributes:
        files: Where flow comes from: files that are there, or a cache of what is computed.
    """

    files: FlowFiles | FlowCache = FlowFiles()

    def read(self, place: ClipPlace, view: FlowView, rng: np.random.Generator | None) -> Track:
        folder, count = self.files.folder(place.source), len(place.indices)
        if folder is None:
            views = view(np.full((count, 16, 16, 2), 128, np.uint8))
        else:
            views = view(place.part.cut(folder.read(place.indices, place.num_frames)))
        return Track(views, torch.full((len(views), count), folder is not None))


@dataclass(frozen=True)
class Modalities:
    """What is read of each clip; the names of the fields are the keys of ``Sample.tracks`` and ``Batch.tracks``.

    Attributes:
        rgb: Whether pictures are decoded; without them ``Sample.pictures`` has no frame (T = 0).
        flow: Optical flow.
        audio: Sound.
        imu: Inertial sensors.
    """

    rgb: bool = True
    flow: OpticalFlow | None = None
    audio: Audio | None = None
    imu: Imu | None = None

    def check(self, sources: Iterable[VideoSource]) -> None:
        """Raises InvalidFile where two of the videos would share readings, or files of flow."""
        files = None if self.flow is None else self.flow.files
        modalities = [one for one in (self.imu, files) if isinstance(one, Imu | FlowFiles)]
        videos = list(sources) if modalities else []
        for modality in modalities:
            for fault in modality.shared(videos).values():
                raise InvalidFile(fault)

    def tracks(
        self, place: ClipPlace, view: FlowView, views: int, rng: np.random.Generator | None = None
    ) -> dict[str, Track]:
        """Everything but the pictures; ``views`` is the number of views of the clip, the others are as in ``Modality``.

        Raises:
            VideoError: What should be there cannot be read.
        """
        wanted: dict[str, Modality | None] = {"flow": self.flow, "audio": self.audio, "imu": self.imu}
        read = {key: modality.read(place, view, rng) for key, modality in wanted.items() if modality is not None}
        return {key: track.repeated(views) if len(track.valid) < views else track for key, track in read.items()}


PICTURES = Modalities()
