"""``hwbench.prepare_data``: the videos of a data set made small and quick to read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.data.check import DATA_HELP
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.requests import changed, option, request
from hwbench.errors import UsageError
from hwbench.interpreter import cores
from hwbench.units import format_bytes, format_duration, format_rate, parse_duration

if TYPE_CHECKING:
    from hwbench.data.listings import DataListing
    from hwbench.workspace import Workspace

# As many videos, of different lengths, say about what all of them will take.
_ENOUGH = 8


@request
class PrepareDataRequest:
    """Encode the videos of a data set again: small, with many keyframes, in folders that --data reads.

    A network sees 160 to 256 pixels, and a clip begins anywhere: large frames and rare keyframes cost time in every
    epoch. OUT has train/CLASS and val/CLASS; a split that training would draw is fixed. What a label is about is cut
    out, and no video is made larger. Interrupted at any moment, the same command goes on; finished files with the same
    settings are left as they are. Exit status 5 if videos could not be read.
    """

    data: str = option(argument=True, help=DATA_HELP)
    out: Path = option(argument=True, help="Folder to make.")
    short_side: int = option(default=256, min=16, max=4096, help="Pixels of the shorter side.")
    gop: int = option(default=30, min=1, max=1000, help="Frames from one keyframe to the next.")
    fps: float | None = option(default=None, min=0.1, max=240, help="Frames a second; default: as they are.")
    quality: int = option(default=3, min=2, max=31, help="2 is close to lossless, 31 small and poor.")
    encoder: str = option(
        default="auto",
        choices=("auto", "libx264", "mpeg4"),
        help="mpeg4 (auto), or libx264: files of two thirds the size that take longer to make; under the GPL.",
    )
    frames: bool = option(default=False, help="Write folders of JPEG files instead of videos.")
    shards: bool = option(default=False, help="Write tar files as WebDataset reads them.")
    shard_videos: int = option(default=1000, min=1, help="With --shards: videos in a tar file.")
    jobs: int | None = option(default=None, min=0, help="Processes; default: all cores. 0: this one, without a limit.")
    time_limit: str = option(default="10 min", help="Time for one video; what takes longer counts as unreadable.")

    def validate(self) -> None:
        """Raises UsageError where the fields do not go together, InvalidValue where the time is none."""
        if self.frames and self.shards:
            raise UsageError("--frames writes folders and --shards tar files of videos; leave out one of them")
        if self.frames and (unread := changed(self, "gop", "encoder")):
            raise UsageError(f"{unread[0]} is about videos, and --frames writes JPEG files; leave out one of them")
        if not self.shards and (unread := changed(self, "shard_videos")):
            raise UsageError(f"{unread[0]} goes with --shards; nothing else writes tar files")
        parse_duration(self.time_limit, name="--time-limit")


@dataclass(frozen=True)
class PrepareDataResult:
    """A prepared data set.

    Attributes:
        data: What it was made from.
        out: The folder.
        form: ``videos``, ``frames`` or ``shards``.
        encoder: What wrote the pictures: ``mpeg4``, ``libx264`` or ``mjpeg``.
        videos: Prepared videos by the side of the split.
        skipped: Those that were finished before.
        bytes: Of all files.
        original_bytes: Of the files that it was made from, each once.
        failed: Names of videos that could not be read, with the cause.
        notes: What to know about its classes.
        seconds: Wall time of this run.
    """

    data: str
    out: Path
    form: str
    encoder: str
    videos: dict[str, int]
    skipped: int
    bytes: int
    original_bytes: int
    failed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every video could be read."""
        return not self.failed

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench data prepare --json`` prints."""
        return {
            "data": self.data,
            "out": str(self.out),
            "form": self.form,
            "encoder": self.encoder,
            "videos": self.videos,
            "skipped": self.skipped,
            "bytes": self.bytes,
            "original_bytes": self.original_bytes,
            "failed": [{"video": video, "cause": cause} for video, cause in self.failed],
            "notes": list(self.notes),
            "seconds": self.seconds,
        }


def prepare_data(
    request: PrepareDataRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> PrepareDataResult:
    """Encodes the videos of a data set again.

    Args:
        request: Which data set, and how.
        listener: Hears how many videos are done, what all of them will take, and which could not be read.
        workspace: Remembers the folder, for ``list_data``; default: the one around the current folder.

    Raises:
        UnknownName: No such data.
        InvalidFile: A data set that is not laid out as its reader expects.
        InvalidValue: Labels or classes that a prepared folder cannot say.
        UsageError: The folder holds something else, or is one of the data set's own, or the encoder is not there.
        WorkspaceError: The folder cannot be written, or another process prepares it.
    """
    from hwbench.data.listings import open_listing
    from hwbench.data.preparing import prepare_data as prepare
    from hwbench.data.readers.folders import ClassFolders
    from hwbench.data.readers.frames import ImageFolders
    from hwbench.data.reencoding import PrepareSettings, choose_encoder
    from hwbench.data.shards import prepare_shards
    from hwbench.data.sources import locate
    from hwbench.workspace import Workspace

    started = time.monotonic()
    workspace = Workspace.at(workspace)
    encoder = choose_encoder(request.encoder)
    form = "frames" if request.frames else "shards" if request.shards else "videos"
    settings = PrepareSettings(
        short_side=request.short_side,
        gop=request.gop,
        fps=request.fps,
        quality=request.quality,
        encoder=encoder,
        form="frames" if request.frames else "videos",
    )
    listing = open_listing(workspace, request.data)
    reader, path = locate(workspace, request.data)
    if isinstance(reader, ClassFolders | ImageFolders):
        _check_outside(reader.roots(path), request.out)
    how: dict[str, Any] = {
        "jobs": cores() if request.jobs is None else request.jobs,
        "time_limit_s": parse_duration(request.time_limit),
        "progress": _reporter(listener),
    }
    if request.shards:
        prepared = prepare_shards(workspace, listing, request.out, settings, shard_videos=request.shard_videos, **how)
    else:
        prepared = prepare(workspace, listing, request.out, settings, **how)
    for note in prepared.notes:
        listener.say(note)
    for video, cause in prepared.failed:
        listener.say(f"left out: {video}: {cause}")
    return PrepareDataResult(
        data=request.data,
        out=request.out,
        form=form,
        encoder="mjpeg" if request.frames else encoder,
        videos=dict(prepared.videos),
        skipped=prepared.skipped,
        bytes=prepared.bytes,
        original_bytes=_original_bytes(listing),
        failed=tuple(prepared.failed),
        notes=prepared.notes,
        seconds=round(time.monotonic() - started, 1),
    )


def _original_bytes(listing: DataListing) -> int:
    """The bytes of the files that the videos of a data set are read from; of those that cannot be read, none."""
    from hwbench.data.images import FrameFolder, images_of
    from hwbench.errors import VideoError

    files = {video.listed.path for video in listing.videos}
    for folder in {video.source for video in listing.videos if isinstance(video.source, FrameFolder)}:
        with contextlib.suppress(VideoError):
            files.update(images_of(folder))
    return sum(file.stat().st_size for file in files if file.is_file())


def _check_outside(roots: Sequence[Path], out: Path) -> None:
    """Raises UsageError where what is prepared would come to a class of the data set; ``roots`` have the classes."""
    for folder in roots:
        if folder.resolve() in out.resolve().parents:
            raise UsageError(f"{out} is inside {folder}, whose folders are classes; name a folder outside")


def _reporter(listener: Listener) -> Callable[[int, int, int], None]:
    """Tells a listener how many videos are done and, after some of them, what all will take."""
    began: list[tuple[float, int]] = []
    told: list[str] = []

    def report(done: int, total: int, num_bytes: int) -> None:
        now = time.monotonic()
        if len(began) < 2 and (not began or done > began[0][1]):
            began.append((now, done))  # the second: processes have started, the first video is done
        (started, before), rate, note = began[-1], "", ""
        if done > before:
            rate = format_rate(done - before, now - started)
        if done >= min(_ENOUGH, total) > 0:
            note = f"about {format_bytes(num_bytes * total / done)} in all"
        if note and not told and before + _ENOUGH <= done < total:
            left_s = (now - started) / (done - before) * (total - done)
            told.append(f"{total} videos: {note}, {format_duration(left_s)} to go")
            listener.say(told[0])
        listener.progress(StageProgress("prepare", done, total, rate, note))

    return report
