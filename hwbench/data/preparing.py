"""A data set made small and quick to read: what becomes of each video, what is finished, and how work goes on.

``OUT/train/CLASS/NAME.mp4`` and ``OUT/val/CLASS/NAME.mp4``, or folders of JPEG files of these names, or tar shards
(``hwbench.data.shards``). What is finished stands in ``OUT/.prepared.jsonl``, a line for each file, so that the same
command goes on after any interruption. ``OUT/prepared.json`` is there while the folder is what a run left at its end:
from the first change of a run to its end it is ``.prepared.before.json``, and readers refuse the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

import av

from hwbench.data.file_pool import FileFailure, FilePool
from hwbench.data.inventory import PREPARED, note_prepared
from hwbench.data.listings import DataListing, SplitVideo
from hwbench.data.readers.class_order import CLASS_FOLDERS
from hwbench.data.readers.directions import DIRECTIONAL
from hwbench.data.readers.frame_rates import JOURNAL as JOURNAL
from hwbench.data.readers.frame_rates import prepared_values, write_frame_rates
from hwbench.data.reencoding import (
    REVISION,
    PreparedVideo,
    PrepareSettings,
    PrepareTask,
    is_sound,
    may_be_wrong,
    prepare_video,
)
from hwbench.errors import InvalidFile, InvalidValue, UsageError, WorkspaceError
from hwbench.locks import try_flock
from hwbench.units import format_bytes
from hwbench.workspace import NAME_BYTES, Workspace, cut_name, write_text, writing

_LOCK = ".prepare.lock"
_BEFORE = ".prepared.before.json"
# Names of the classes of shards.
CLASSES = "classes.txt"
_VERSION = 1
_VIDEO_ENDING = ".mp4"
# What no line of a list holds: tabs, line ends as ``str.splitlines`` has them, and what is not UTF-8.
_NOT_IN_LISTS = re.compile(r"[\t-\r\x1c-\x1e\x85\u2028\u2029\ud800-\udfff]")

_MADE = tuple(PreparedVideo.__dataclass_fields__)

Failed = tuple[str, str]
Progress = Callable[[int, int, int], None]


@dataclass(frozen=True)
class PlannedVideo:
    """A video with the place of what becomes of it, below the folder of the set; ``key`` tells what it is made from."""

    video: SplitVideo
    target: PurePosixPath
    key: str


@dataclass
class PreparedData:
    """What was made.

    Attributes:
        out: The folder.
        videos: Prepared videos by the side of the split.
        bytes: Of all of them.
        skipped: Those that were finished before.
        failed: Names of videos that could not be read, with the cause.
        lost: How many of them another run may be able to read (``FileFailure.lost``).
        notes: What a person should know, in words.
        rates: Frames a second of folders of images, by their names below ``out``; no file of images tells them.
    """

    out: Path
    videos: Mapping[str, int]
    bytes: int = 0
    skipped: int = 0
    failed: list[Failed] = field(default_factory=list)
    lost: int = 0
    notes: tuple[str, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)


def plan_videos(listing: DataListing, settings: PrepareSettings) -> list[PlannedVideo]:
    """What becomes of each video: a file or folder below that of its class, on its side of the split.

    Where lists are to name the files, their names have ``_`` for what no line of a list holds.

    Raises:
        InvalidFile: The data set has no split that training would take.
        InvalidValue: A class cannot be the name of a folder, or labels are about moments, boxes or several classes.
    """
    check_preparable(listing)
    _check_single(listing)
    folders, numbered = _class_folders(listing), _is_numbered(listing, settings)
    if numbered:
        _check_numbers(listing)
    names: Counter[str] = Counter()
    taken: set[str] = set()
    planned = []
    for video in listing.videos:
        name = _NOT_IN_LISTS.sub("_", _stem(video)) if numbered else _stem(video)
        stem = f"{video.split}/{folders[video.listed.labels[0]]}/{name}"
        ending = "" if settings.form == "frames" else _VIDEO_ENDING
        planned.append(
            PlannedVideo(video, PurePosixPath(f"{_free(stem, names, taken)}{ending}"), key_of(video, settings))
        )
    return planned


def _free(stem: str, names: Counter[str], taken: set[str]) -> str:
    """A name that no other video has, from now on taken: the stem, or the stem with a number from 2.

    Of a long stem the end is left out.
    """
    folder, _, last = stem.rpartition("/")
    while True:
        names[stem] += 1
        number = f"-{names[stem]}" if names[stem] > 1 else ""
        name = f"{folder}/{cut_name(last, NAME_BYTES - len(_VIDEO_ENDING) - len(number))}{number}"
        if name not in taken:
            taken.add(name)
            return name


def prepare_data(
    workspace: Workspace,
    listing: DataListing,
    out: Path,
    settings: PrepareSettings,
    *,
    jobs: int,
    time_limit_s: float,
    progress: Progress = lambda done, total, num_bytes: None,
) -> PreparedData:
    """Makes a folder that ``--data`` reads; what is finished with the same settings is left as it is.

    Args:
        workspace: Remembers the folder.
        listing: The videos.
        out: The folder: new, empty, or made by this function before.
        settings: How videos are made small.
        jobs: Processes; 0: this one.
        time_limit_s: Seconds for one video.
        progress: Gets how many videos are done, how many there are, and the bytes of those done.

    Raises:
        InvalidFile, InvalidValue: See ``plan_videos``.
        UsageError: The folder holds something else, or videos of the data set.
        WorkspaceError: The folder cannot be written, or another process prepares it.
    """
    planned = plan_videos(listing, settings)
    with PreparedFolder(out) as folder:
        check_outside(listing, out)
        folder.leave_shards()
        alphabetical = _is_alphabetical(out, listing)
        folder.keep_only({str(one.target) for one in planned})
        prepared = folder.prepare(planned, settings, jobs=jobs, time_limit_s=time_limit_s, progress=progress)
        prepared.notes = _write_classes(out, listing, planned, settings, alphabetical=alphabetical)
        classes = () if alphabetical else tuple(_class_folders(listing).values())
        finish(workspace, listing, settings, prepared, classes)
    return prepared


def check_preparable(listing: DataListing) -> None:
    """Raises InvalidFile where training refuses the data set, InvalidValue where labels are about moments or boxes."""
    if listing.fault:
        raise InvalidFile(f"{listing.fault}; see what else is wrong: hwbench data check {shlex.quote(listing.data)}")
    for video in listing.videos:
        part = video.listed.part
        if part is not None and (part.box or part.keyframe_s is not None):
            raise InvalidValue(f"{video.name}: its label is about a moment or a box, which a prepared video cannot say")


def _check_single(listing: DataListing) -> None:
    """Raises InvalidValue where videos may have several classes, or none."""
    for video in listing.videos:
        if not isinstance(video.listed.label, str):
            raise InvalidValue(f"{video.name}: has several classes, which no folder can say; leave such a set as it is")


def check_outside(listing: DataListing, out: Path) -> None:
    """Raises UsageError where a video of the data set lies in the folder that is to hold the copies."""
    root = out.resolve()
    inside: dict[Path, bool] = {}
    for video in listing.videos:
        folder = video.listed.path.parent
        if folder not in inside:
            inside[folder] = folder.resolve().is_relative_to(root)
        if inside[folder]:
            raise UsageError(f"{out} holds videos of the data set, such as {video.name}; name another folder")


class PreparedFolder:
    """A folder in which videos are prepared, by one process at a time where the file system has locks.

    Raises:
        UsageError: It holds something else.
        WorkspaceError: It cannot be written, or another process prepares it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._close = contextlib.ExitStack()
        with writing(root):
            others = root.is_dir() and any(path.name != _LOCK for path in root.iterdir())
            if others and not (root / JOURNAL).is_file():
                raise UsageError(f"{root} is not empty, and was not made by hwbench data prepare; name another folder")
            root.mkdir(parents=True, exist_ok=True)
            lock = self._close.enter_context((root / _LOCK).open("a"))
            alone = try_flock(lock)
            if alone is False:
                self._close.close()
                raise WorkspaceError(f"{root}: another process prepares it; wait for it to end")
            self._finished = dict(_read_journal(root / JOURNAL))
            self._journal: IO[str] = self._close.enter_context((root / JOURNAL).open("a", encoding="utf-8"))
            self._journal.write("\n")  # behind half a line of a process that was killed
        # Without locks, they may be those of a process that is at work.
        for leftover in root.rglob(".*.tmp") if alone else ():
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()

    def finished(self, name: PurePosixPath, key: str) -> PreparedVideo | None:
        """What was made before, if it is still there and was made from the same with the same settings."""
        values = self._finished.get(str(name))
        if not values or values["key"] != key:
            return None
        made = PreparedVideo(**{one: values[one] for one in _MADE})
        return made if _is_whole(self.root / name, made) else None

    def is_current(self, name: PurePosixPath) -> bool:
        """Whether what is finished was made, or found sound, by this revision, or is right in any case."""
        return not may_be_wrong(self.revision(name), self._finished[str(name)]["fps"])

    def revision(self, name: PurePosixPath) -> int:
        """The one that made what is finished, or found it sound."""
        return int(self._finished[str(name)]["revision"])

    def leave_shards(self) -> None:
        """Before shards make room for class folders, forgets what was written of them: they have no class folders."""
        if any("/" not in name and name.endswith(".tar") and (self.root / name).exists() for name in self._finished):
            with writing(self.root):
                for name in (PREPARED, _BEFORE, CLASSES):
                    (self.root / name).unlink(missing_ok=True)

    def keep_only(self, targets: set[str]) -> None:
        """Removes what was made of videos that are no longer listed."""
        for name in [name for name in self._finished if name not in targets]:
            self.remove(PurePosixPath(name))

    def remove(self, name: PurePosixPath) -> None:
        """Removes what was made."""
        if (self.root / name).exists():
            _begin_change(self.root)
        _remove(self.root, name)
        self._finished.pop(str(name), None)

    def prepare(
        self,
        planned: Sequence[PlannedVideo],
        settings: PrepareSettings,
        *,
        jobs: int,
        time_limit_s: float,
        progress: Progress,
    ) -> PreparedData:
        """Makes what is not finished; a video that cannot be read is told in the result."""
        done = self._kept(planned, settings, jobs, time_limit_s)
        result = PreparedData(self.root, {}, skipped=len(done))
        waiting = {self.root / one.target: one for one in planned if one.target not in done}
        tasks = [self.task(one, settings) for one in waiting.values()]
        result.bytes = sum(video.bytes for video in done.values())
        progress(len(done), len(planned), result.bytes)
        for task, answer in FilePool(prepare_video, jobs, time_limit_s=time_limit_s).map(tasks):
            one = waiting[task.target]
            if isinstance(answer, FileFailure):
                result.failed.append((one.video.name, answer.cause.removeprefix(f"{one.video.source.name}: ")))
                result.lost += answer.lost
            else:
                done[one.target] = answer
                result.bytes += answer.bytes
                self.note(one.target, one.key, answer)
            progress(len(done) + len(result.failed), len(planned), result.bytes)
        result.videos = dict(Counter(one.video.split for one in planned if one.target in done))
        if settings.form == "frames":
            result.rates = {str(one.target): done[one.target].fps for one in planned if one.target in done}
        return result

    def _kept(
        self, planned: Sequence[PlannedVideo], settings: PrepareSettings, jobs: int, time_limit_s: float
    ) -> dict[PurePosixPath, PreparedVideo]:
        """What is finished, but for what an earlier revision made wrong.

        Where the original cannot be read now, what is there stays, and the next run asks again.
        """
        kept = {one.target: video for one in planned if (video := self.finished(one.target, one.key))}
        earlier = {
            self.root / one.target: one for one in planned if one.target in kept and not self.is_current(one.target)
        }
        tasks = [self.task(one, settings, self.revision(one.target)) for one in earlier.values()]
        for task, sound in FilePool(is_sound, jobs, time_limit_s=time_limit_s).map(tasks):
            one = earlier[task.target]
            if sound is True:
                self.note(one.target, one.key, kept[one.target])
            elif sound is False:
                del kept[one.target]
        return kept

    def task(self, one: PlannedVideo, settings: PrepareSettings, revision: int = REVISION) -> PrepareTask:
        """The work that one video asks for; ``revision`` made what is there."""
        begins = partial(_begin_change, self.root)
        return PrepareTask(one.video.source, one.video.listed.part, self.root / one.target, settings, begins, revision)

    def note(self, target: PurePosixPath, key: str, video: PreparedVideo) -> None:
        """Remembers that something is finished."""
        values = {"target": str(target), "key": key, "revision": REVISION, **asdict(video)}
        with writing(self.root):
            self._journal.write(json.dumps(values) + "\n")
            self._journal.flush()
        self._finished[str(target)] = values

    def __enter__(self) -> PreparedFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._close.close()


def _begin_change(root: Path) -> None:
    """From now to the end of the run, the folder is not what ``prepared.json`` says; the next run reads it."""
    with writing(root), contextlib.suppress(FileNotFoundError):
        (root / PREPARED).replace(root / _BEFORE)


def _read_journal(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The last line of each target; lines that are half there are left out."""
    if not file.is_file():
        return
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            values = json.loads(line)
            name = PurePosixPath(values["target"])
            if not name.is_absolute() and ".." not in name.parts:
                kept = {one: values[one] for one in ("key", *_MADE)}
                yield str(name), {**kept, "revision": values.get("revision", 1)}


def _is_whole(target: Path, made: PreparedVideo) -> bool:
    """Whether a file has the bytes that were written, or a folder of images as many images and bytes."""
    if not target.is_dir():
        return target.is_file() and target.stat().st_size == made.bytes
    with os.scandir(target) as images:
        sizes = [image.stat().st_size for image in images]
    return (len(sizes), sum(sizes)) == (made.frames, made.bytes)


def _remove(root: Path, name: PurePosixPath) -> None:
    """Removes a target, and the folders above it that are empty then."""
    target = root / name
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target, ignore_errors=True)
    else:
        target.unlink(missing_ok=True)
    for folder in list(target.parents)[: len(name.parts) - 1]:
        with contextlib.suppress(OSError):
            folder.rmdir()


def key_of(video: SplitVideo, settings: PrepareSettings) -> str:
    """Tells whether a file was made from the same video, as it is now, with the same settings."""
    with contextlib.suppress(OSError):
        status = video.listed.path.stat()
        state = [status.st_size, status.st_mtime_ns]
        source = video.source.identity(video.listed.path.parent)
        return digest_of(source, str(video.listed.path.absolute()), state, str(video.listed.part), settings.digest)
    return digest_of(video.name, settings.digest)


def digest_of(*values: object) -> str:
    """A short digest of values that JSON can hold."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:24]


def _stem(video: SplitVideo) -> str:
    """The name of a video without its ending, with the part that is cut out of it."""
    part = video.listed.part
    stem = video.listed.path.stem.lstrip(".") or "video"
    if part is None or (part.start_s is None and part.end_s is None):
        return stem
    ends = ("" if time is None else f"{float(time):g}" for time in (part.start_s, part.end_s))
    return f"{stem}_{'-'.join(ends)}"


def _class_folders(listing: DataListing) -> dict[str, str]:
    """The folder of each class: its name, without what a name of a folder cannot have."""
    folders = {name: name.replace("/", "_").replace("\0", "_").lstrip(".").strip() for name in listing.classes}
    twice = [name for name, count in Counter(folders.values()).items() if count > 1 or not name]
    if twice:
        names = [name for name, folder in folders.items() if folder in twice]
        raise InvalidValue(
            f"{listing.data}: classes {', '.join(map(repr, names[:2]))} cannot be folders beside each other"
        )
    return folders


def _is_numbered(listing: DataListing, settings: PrepareSettings) -> bool:
    """Whether lists keep the numbers of classes: as folders, 10 comes before 2, one without videos has no number."""
    return settings.form == "videos" and listing.classes == tuple(map(str, range(len(listing.classes))))


def _check_numbers(listing: DataListing) -> None:
    """Raises InvalidFile where a list for training would not know the number of a class."""
    last = {side: max((int(one.listed.labels[0]) for one in listing.videos if one.split == side), default=-1)
            for side in ("train", "val")}  # fmt: skip
    if last["val"] > last["train"]:
        raise InvalidFile(
            f"{listing.data}: class {last['val']} has videos for validation and none for training, and lists "
            "of numbers end with those to train on; prepare it with --frames or --shards"
        )


def _is_alphabetical(out: Path, listing: DataListing) -> bool:
    """Whether a folder of an earlier version stays without the order of its classes: trainings know them by its own."""
    before = prepared_values(out) or prepared_values(out, _BEFORE)
    labels = {side: {one.listed.label for one in listing.videos if one.split == side} for side in ("train", "val")}
    return bool(before) and CLASS_FOLDERS not in before and labels["val"] <= labels["train"]


def _write_classes(
    out: Path,
    listing: DataListing,
    planned: Sequence[PlannedVideo],
    settings: PrepareSettings,
    *,
    alphabetical: bool,
) -> tuple[str, ...]:
    """Lists for classes that are called by their numbers; tells which class has another name, or another number."""
    folders = _class_folders(listing)
    notes = [f"class {name!r} is in folder {folder!r}" for name, folder in folders.items() if name != folder]
    numbered = _is_numbered(listing, settings)
    for split in ("train", "val"):
        file = out / f"{split}.txt"
        if numbered:
            lines = [
                f"{one.target} {one.video.listed.labels[0]}\n"
                for one in planned
                if one.video.split == split and (out / one.target).is_file()
            ]
            write_text(file, "".join(lines))
        else:  # of a version that wrote them for other numbers
            file.unlink(missing_ok=True)
    if alphabetical and not numbered and list(folders.values()) != sorted(folders.values()):
        notes.append("classes are numbered in alphabetical order, others than in the original")
    return tuple(notes)


def finish(
    workspace: Workspace,
    listing: DataListing,
    settings: PrepareSettings,
    prepared: PreparedData,
    class_folders: Sequence[str] = (),
) -> None:
    """Writes what the folder holds, with its folders in the order of the classes, and the rates of those of images."""
    write_frame_rates(prepared.out, prepared.rates)
    counts = ", ".join(f"{count} {split}" for split, count in prepared.videos.items())
    summary = (
        f"{settings.form} of {listing.data}: {counts}; short side {settings.short_side}, "
        f"{settings.encoder if settings.form == 'videos' else 'JPEG'}, {format_bytes(prepared.bytes)}"
    )
    values = {
        "version": _VERSION,
        "summary": summary,
        "data": listing.data,
        "classes": list(listing.classes),
        DIRECTIONAL: listing.directional,
        "videos": dict(prepared.videos),
        "bytes": prepared.bytes,
        "failed": len(prepared.failed),
        "settings": asdict(settings),
        "av": av.__version__,
        **({CLASS_FOLDERS: list(class_folders)} if class_folders else {}),
    }
    write_text(prepared.out / PREPARED, json.dumps(values, indent=2) + "\n")
    (prepared.out / _BEFORE).unlink(missing_ok=True)
    note_prepared(workspace, prepared.out)
