"""Optical flow in the place of pictures: clips of a network that sees motion alone, as one of two streams does.

The flow of a frame has two channels of 8 bits (``hwbench.data.flow``), and is read, cut, scaled, cached and normalised
as a picture is. A video still decides which frames a clip has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np
import torch

from hwbench import lookup
from hwbench.data.augmentations import Augmentation, Flip
from hwbench.data.decoders import Decoder
from hwbench.data.decoding import Frames, VideoInfo, check_indices
from hwbench.data.flow_cache import FlowCache
from hwbench.data.flow_methods import METHODS, flow_method
from hwbench.data.flow_views import training_view
from hwbench.data.media import OpenVideo, VideoSource
from hwbench.data.modalities import FlowFiles
from hwbench.data.transforms import Normalisation, RandomResizedCrop, ScaleJitter, Size
from hwbench.errors import InvalidValue, VideoError
from hwbench.user_folders import with_home

FLOW_CHANNELS = 2
# From codes to shares of their range, -1 to 1; no motion is 0.
FLOW_NORMALISATION = Normalisation((0.5, 0.5), (0.5, 0.5))
_FORMS = "rgb, flow (images or .flo files beside the videos), flow:FOLDER, flow:tvl1, flow:dis or flow:raft=FILE"


@dataclass(frozen=True)
class FlowStream:
    """Where the flow of videos comes from; ``str`` gives what ``parse`` takes.

    Attributes:
        source: A method of ``hwbench.data.flow_methods``, which computes it once for each video; a folder of folders
            with the names of videos; empty: folders beside the videos.
    """

    source: str = ""

    @classmethod
    def parse(cls, text: str) -> FlowStream | None:
        """What ``--modality`` says: None for ``rgb``. ``~`` before a folder is the home of the user.

        Raises:
            InvalidValue: Another text, or a folder that is none.
        """
        kind, colon, source = text.partition(":")
        if text == "rgb":
            return None
        if kind == "audio":
            raise InvalidValue(
                "--modality: a clip of hwbench's networks has frames, sound has none; train a network for sound in "
                "Python, see docs/guides/modalities.md"
            )
        if kind != "flow" or bool(colon) != bool(source):
            raise InvalidValue(f"--modality: expected {_FORMS}; got {text!r}")
        if not source or source.partition("=")[0] in METHODS or lookup.is_folder(Path(source)):
            return cls(source)
        folder = with_home(source)
        if not lookup.is_folder(folder):
            raise InvalidValue(f"--modality: {source!r} is neither a folder nor a method; expected {_FORMS}")
        return cls(str(folder))

    def __str__(self) -> str:
        return f"flow:{self.source}" if self.source else "flow"

    @property
    def computes(self) -> bool:
        """Whether flow is computed where it is not kept yet."""
        return self.source.partition("=")[0] in METHODS

    def decoder(self, pictures: Decoder, cache: Path) -> FlowDecoder:
        """What reads flow in the place of pictures.

        Args:
            pictures: Opens the videos, which say what frames there are.
            cache: Folder for what is computed.

        Raises:
            MissingDependency: What the method needs is not installed.
            InvalidFile: The weights of the method cannot be read.
        """
        if self.computes:
            computed = FlowCache(cache, flow_method(self.source))
            computed.sweep()
            return FlowDecoder(pictures, computed)
        return FlowDecoder(pictures, self._files())

    def require(self) -> None:
        """Raises MissingDependency, or InvalidFile of weights, where flow cannot be computed here."""
        if self.computes:
            flow_method(self.source)

    def files(self) -> FlowFiles | None:
        """The files that must be there; None where flow is computed."""
        return None if self.computes else self._files()

    def _files(self) -> FlowFiles:
        return FlowFiles(Path(self.source) if self.source else None)


@dataclass(frozen=True)
class FlowDecoder:
    """A decoder whose frames are codes of flow, uint8 (T, H, W, 2)."""

    pictures: Decoder
    files: FlowFiles | FlowCache

    @property
    def identity(self) -> str:
        return f"flow of {self.files!r} for {self.pictures.identity}"

    def open(self, source: VideoSource, info: VideoInfo | None = None) -> OpenVideo:
        if info is None:
            with self.pictures.open(source) as video:
                info = video.info
        return _FlowVideo(self.files, source, info)


@dataclass(frozen=True)
class FlowTransform:
    """The view that a transform takes of pictures, of flow: cut and scaled alike, and mirrored as motion is.

    Raises:
        InvalidValue: The transform changes more of a clip than its place.
    """

    followed: ScaleJitter | RandomResizedCrop | Augmentation

    def __post_init__(self) -> None:
        if isinstance(self.followed, Augmentation):
            others = [type(step).__name__ for step in self.followed.steps if not isinstance(step, Flip)]
            others += ["TemporalJitter"] if self.followed.temporal is not None else []
            if others:
                raise InvalidValue(
                    f"transforms: flow is cut, scaled and mirrored, {', '.join(others)} are for pictures; "
                    "leave them out with --modality flow"
                )

    @property
    def size(self) -> Size:
        return self.followed.size

    @property
    def normalisation(self) -> Normalisation:
        return FLOW_NORMALISATION

    def with_size(self, size: Size) -> FlowTransform:
        """The same for another size of the result."""
        return replace(self, followed=self.followed.with_size(size))

    def pictures(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """Codes of a clip: uint8 (T, H, W, 2) -> uint8 (T, 2, h, w)."""
        return training_view(self.followed, rng)(frames)[0]


class _FlowVideo:
    """The flow of one video, found or computed when it is read."""

    def __init__(self, files: FlowFiles | FlowCache, source: VideoSource, info: VideoInfo) -> None:
        self.info = info
        self._files, self._source = files, source

    def read(self, indices: tuple[int, ...] | range) -> Frames:
        """Codes of frames in the order asked for, repeats allowed: uint8 (T, H, W, 2)."""
        check_indices(self._source.name, indices, self.info.num_frames)
        folder = self._files.folder(self._source)
        if folder is None:
            raise VideoError(
                f"{self._source.name}: no flow of it; expected a folder with its name and images flow_x_00001.jpg, "
                "flow_y_00001.jpg, ... or .flo files, or compute it: --modality flow:tvl1"
            )
        return folder.read(tuple(indices), self.info.num_frames)

    def __enter__(self) -> _FlowVideo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing stays open between reads."""
