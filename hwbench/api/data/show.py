"""``hwbench.show_data``: a page with what a network sees of the videos of each class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.data.check import DATA_HELP
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.reading import (
    DECODER,
    DECODER_HELP,
    MODALITY_HELP,
    SPAN_HELP,
    STRIDE_HELP,
    check_clip,
    clip_of,
    reading_of,
)
from hwbench.api.requests import option, request
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.data.clips import ClipSpec
    from hwbench.specs import Network
    from hwbench.workspace import Workspace


@request
class ShowDataRequest:
    """Write a page with what a network sees: clips of each class after the transforms of training and of a test.

    Each clip has its label and the times of its frames. Transforms of a recipe are not shown, nor how --weights
    published cuts clips and scales frames. The page is one file that opens without a network. Of 400 classes with two
    videos each it has some 50 MB: --most-classes.
    """

    data: str = option(argument=True, help=DATA_HELP)
    out: Path = option(default=Path("sheet.html"), help="The HTML file.")
    split: str = option(default="train", choices=("train", "val"), help="Videos of which side: train or val.")
    per_class: int = option(default=2, min=1, max=100, help="Videos of each class.")
    most_classes: int = option(default=20, min=1, help="Classes to show, in the order of their numbers.")
    architecture: str | None = option(
        default=None, help="Network whose input decides frames, size and span: a key, STUDY:best or zoo:NAME."
    )
    frames: int | None = option(default=None, min=1, max=256, help="Frames of a clip; default: 4.")
    size: int | None = option(default=None, min=8, max=1024, help="Height and width of a clip; default: 160.")
    span: str | None = option(default=None, help=SPAN_HELP)
    stride: int | None = option(default=None, min=1, help=STRIDE_HELP)
    modality: str = option(default="rgb", help=MODALITY_HELP)
    decoder: str = option(default=DECODER, help=DECODER_HELP)
    seed: int = option(default=0, min=0, help="Of the random clips, as of a training.")

    def validate(self) -> None:
        """Raises InvalidValue where the fields do not go together."""
        if self.architecture is not None and (self.frames is not None or self.size is not None):
            raise InvalidValue("--architecture says the frames and the size; leave out --frames and --size, or it")
        check_clip(self.span, self.stride)

    def clip(self, frames: int, network: Network | None = None) -> ClipSpec:
        """How clips of so many frames are cut: for a network as a training from random weights cuts them."""
        from hwbench.data.sources import default_clip

        if network is not None:
            from hwbench.api.train import asked_clip

            return asked_clip(network, self.span, self.stride) or default_clip(self.data, frames)
        return clip_of(frames, self.span, self.stride) or default_clip(self.data, frames)


@dataclass(frozen=True)
class ShowDataResult:
    """A page with clips.

    Attributes:
        page: The HTML file.
        data: The data set.
        split: The side that the videos are on.
        clip: Frames, height and width of a clip.
        videos: Names of the videos that are shown.
        classes: How many classes are shown.
        unreadable: Those of the videos that cannot be read; the page says why.
    """

    page: Path
    data: str
    split: str
    clip: tuple[int, int, int]
    videos: tuple[str, ...]
    classes: int
    unreadable: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench data show --json`` prints."""
        return {
            "page": str(self.page),
            "data": self.data,
            "split": self.split,
            "clip": list(self.clip),
            "classes": self.classes,
            "videos": list(self.videos),
            "unreadable": list(self.unreadable),
        }


def show_data(
    request: ShowDataRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> ShowDataResult:
    """Writes a page with clips of each class.

    Args:
        request: Which data set, which clips, and the file.
        listener: Hears when the videos are read, and which cannot be.
        workspace: Holds the synthetic set; default: the one around the current folder.

    Raises:
        UnknownName: No such data or network.
        InvalidFile: A data set that is not laid out as its reader expects.
        WorkspaceError: The file cannot be written.
    """
    from hwbench.data.sheets import show_videos
    from hwbench.data.sources import open_dataset
    from hwbench.reports.contact_sheet import write_sheet
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    clip, (height, width) = _seen(request, workspace)
    split: Any = request.split
    how: dict[str, Any] = {"split": split, "size": (height, width), "clip": clip, "seed": request.seed}
    how["reading"] = reading_of(request.decoder, modality=request.modality)
    listener.progress(StageProgress("read", 0, None))
    train = open_dataset(workspace, request.data, **how, cache_bytes=0)
    test = open_dataset(workspace, request.data, **how, views=(1, 1), cache_bytes=0)
    shown = show_videos(train, test, per_class=request.per_class, most_classes=request.most_classes)
    listener.progress(StageProgress("read", len(shown), len(shown)))
    unreadable = tuple(video.name for video in shown if video.fault)
    for video in shown:
        if video.fault:
            listener.say(f"{video.name}: {video.fault}")
    classes = {label for video in shown for label in video.labels}
    about = [
        ("data", f"{request.data}, {request.split}"),
        ("clip", f"{clip}, {height} x {width} pixels"),
        ("transform of training", type(train.transform).__name__),
        ("classes", f"{len(classes)} of {len(train.classes)}"),
        ("seed", str(request.seed)),
        *([("modality", request.modality)] if request.modality != "rgb" else []),
    ]
    write_sheet(request.out, request.data, about, shown)
    return ShowDataResult(
        page=request.out,
        data=request.data,
        split=request.split,
        clip=(clip.frames, height, width),
        videos=tuple(video.name for video in shown),
        classes=len(classes),
        unreadable=unreadable,
    )


def _seen(request: ShowDataRequest, workspace: Workspace) -> tuple[ClipSpec, tuple[int, int]]:
    """How clips are cut, and their height and width."""
    if request.architecture is None:
        size = request.size or 160
        return request.clip(request.frames or 4), (size, size)
    from hwbench.api.models import is_own_function, resolve_model
    from hwbench.data import open_splits

    classes = 2  # they do not change what a network sees
    if is_own_function(request.architecture):
        classes = len(open_splits(workspace, request.data, seed=request.seed).train.classes)
    network = resolve_model(workspace, request.architecture, classes)
    return request.clip(network.input.t, network), (network.input.h, network.input.w)
