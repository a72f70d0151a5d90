"""Prepared videos in tar files, as WebDataset names their members: ``KEY.mp4``, ``KEY.cls`` and ``KEY.json``.

``OUT/train-000000.tar``, ... hold the videos in an order that a digest of their names gives, so that classes are mixed.
``classes.txt`` has the name of each class, in the order of the numbers in ``KEY.cls``.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hwbench.data.file_pool import FileFailure, FilePool
from hwbench.data.listings import DataListing
from hwbench.data.preparing import (
    CLASSES,
    PlannedVideo,
    PreparedData,
    PreparedFolder,
    Progress,
    check_outside,
    check_preparable,
    digest_of,
    finish,
    key_of,
)
from hwbench.data.reencoding import PreparedVideo, PrepareSettings, is_sound
from hwbench.errors import InvalidValue
from hwbench.printable import is_utf8, shown
from hwbench.workspace import Workspace, temporary_beside, write_text, writing

_VIDEOS = ".videos"


@dataclass(frozen=True)
class PlannedShard:
    """A tar file and the videos that go into it."""

    target: PurePosixPath
    videos: tuple[PlannedVideo, ...]

    @property
    def key(self) -> str:
        """Tells whether it holds the same videos, made with the same settings."""
        return digest_of([(str(one.target), one.key) for one in self.videos])


def prepare_shards(
    workspace: Workspace,
    listing: DataListing,
    out: Path,
    settings: PrepareSettings,
    *,
    shard_videos: int,
    jobs: int,
    time_limit_s: float,
    progress: Progress = lambda done, total, num_bytes: None,
) -> PreparedData:
    """Makes shards of ``shard_videos`` videos; the other arguments and the errors are those of ``prepare_data``.

    The videos of one shard lie beside it until it is packed, and until another run had those that were lost. What a
    packed shard lacks is tried again by every run.

    Raises:
        InvalidValue: Also where ``classes.txt`` cannot hold the name of a class.
    """
    check_preparable(listing)
    _check_classes(listing)
    shards = _plan_shards(listing, settings, shard_videos)
    total, result = len(listing.videos), PreparedData(out, {})
    videos: Counter[str] = Counter()
    with PreparedFolder(out) as folder:
        check_outside(listing, out)
        folder.keep_only({str(name) for shard in shards for name in (shard.target, *_targets(shard.videos))})
        beside = {PurePosixPath(file.relative_to(out)) for file in (out / _VIDEOS).rglob("*.mp4")}
        done = 0
        for shard in shards:
            tar = _packed(folder, shard, settings, jobs, time_limit_s)
            missing = shard.videos if tar is None else _missing(folder, shard, tar)
            for target in beside & ({*_targets(shard.videos)} - {*_targets(missing)}):  # of a run that was killed
                folder.remove(target)
            before, packed = done + len(shard.videos) - len(missing), result.bytes + (tar.bytes if tar else 0)
            part = folder.prepare(
                missing,
                settings,
                jobs=jobs,
                time_limit_s=time_limit_s,
                progress=lambda now, _, size: progress(before + now, total, packed + size),  # noqa: B023
            )
            result.failed += part.failed
            result.lost += part.lost
            result.skipped += part.skipped + (tar.frames if tar else 0)
            if tar is None or part.videos:
                if tar is not None:
                    _unpack(folder, shard)
                tar = _pack(folder, shard, listing.classes, part)
            videos[shard.videos[0].video.split] += tar.frames
            result.bytes += tar.bytes
            done += len(shard.videos)
        write_text(out / CLASSES, "".join(f"{name}\n" for name in listing.classes))
        result.videos = dict(videos)
        finish(workspace, listing, settings, result)
    return result


def _check_classes(listing: DataListing) -> None:
    """Raises InvalidValue where the name of a class is no line of UTF-8 that is read as it was written."""
    for name in listing.classes:
        if not is_utf8(name) or re.search(r"[\n\r]", name) or not name.strip():
            raise InvalidValue(
                f"{listing.data}: class {shown(name)} cannot be a line of classes.txt: expected UTF-8 without line "
                "ends; rename the class, or leave out --shards"
            )


def _packed(
    folder: PreparedFolder, shard: PlannedShard, settings: PrepareSettings, jobs: int, time_limit_s: float
) -> PreparedVideo | None:
    """A shard that is finished; one of an earlier revision where it has all of its videos, and they are sound.

    Where originals cannot be read now, what is there stays, and the next run asks again.
    """
    tar = folder.finished(shard.target, shard.key)
    if tar is None or folder.is_current(shard.target):
        return tar
    if tar.frames < len(shard.videos):
        return None
    tasks = [folder.task(one, settings, folder.revision(shard.target)) for one in shard.videos]
    answers = [answer for _, answer in FilePool(is_sound, jobs, time_limit_s=time_limit_s).map(tasks)]
    if any(isinstance(answer, FileFailure) for answer in answers):
        return tar
    if not all(answers):
        return None
    folder.note(shard.target, shard.key, tar)
    return tar


def _plan_shards(listing: DataListing, settings: PrepareSettings, size: int) -> list[PlannedShard]:
    shards = []
    for split in ("train", "val"):
        videos = [video for video in listing.videos if video.split == split]
        videos.sort(key=lambda video: digest_of(video.source.identity(listing.root), str(video.listed.part)))
        planned = [
            PlannedVideo(video, PurePosixPath(f"{_VIDEOS}/{split}/{number:08d}.mp4"), key_of(video, settings))
            for number, video in enumerate(videos)
        ]
        for number, start in enumerate(range(0, len(planned), size)):
            name = PurePosixPath(f"{split}-{number:06d}.tar")
            shards.append(PlannedShard(name, tuple(planned[start : start + size])))
    return shards


def _targets(videos: Sequence[PlannedVideo]) -> Iterator[PurePosixPath]:
    yield from (one.target for one in videos)


def _missing(folder: PreparedFolder, shard: PlannedShard, tar: PreparedVideo) -> tuple[PlannedVideo, ...]:
    """The videos that a finished shard lacks."""
    if tar.frames == len(shard.videos):
        return ()
    with tarfile.open(folder.root / shard.target) as file:
        names = set(file.getnames())
    return tuple(one for one in shard.videos if one.target.name not in names)


def _unpack(folder: PreparedFolder, shard: PlannedShard) -> None:
    """Lays the videos of a finished shard beside it, as they were before they were packed."""
    with writing(folder.root), tarfile.open(folder.root / shard.target) as tar:
        packed = set(tar.getnames())
        for one in shard.videos:
            if one.target.name not in packed:
                continue
            target = folder.root / one.target
            target.parent.mkdir(parents=True, exist_ok=True)
            data = _member(tar, target.name)
            target.write_bytes(data)
            values = json.loads(_member(tar, f"{target.stem}.json"))
            video = PreparedVideo(len(data), values["frames"], values["fps"], values["duration_s"])
            folder.note(one.target, one.key, video)


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    content = tar.extractfile(name)
    assert content is not None
    return content.read()


def _pack(folder: PreparedFolder, shard: PlannedShard, classes: Sequence[str], part: PreparedData) -> PreparedVideo:
    """Writes the tar file of prepared videos, which go then; where some of ``part`` were lost, it is not finished."""
    numbers = {name: number for number, name in enumerate(classes)}
    target = folder.root / shard.target
    temporary = temporary_beside(target)
    count, duration_s = 0, 0.0
    with writing(target):
        try:
            with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
                for one in shard.videos:
                    video = folder.finished(one.target, one.key)
                    if video is not None:
                        _add(tar, folder.root, one, video, numbers)
                        count, duration_s = count + 1, duration_s + video.duration_s
            size = temporary.stat().st_size
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    packed = PreparedVideo(size, count, 0.0, round(duration_s, 6))
    if part.lost:
        return packed
    folder.note(shard.target, shard.key, packed)
    for one in shard.videos:
        folder.remove(one.target)
    return packed


def _add(
    tar: tarfile.TarFile, root: Path, planned: PlannedVideo, video: PreparedVideo, numbers: Mapping[str, int]
) -> None:
    key, labels = planned.target.stem, planned.video.listed.labels
    values = {
        "label": planned.video.listed.label,
        "labels": list(labels),
        "source": planned.video.listed.path.name,
        "fps": video.fps,
        "frames": video.frames,
        "duration_s": video.duration_s,
    }
    members = {f"{key}.json": json.dumps(values).encode(), f"{key}.mp4": (root / planned.target).read_bytes()}
    if isinstance(planned.video.listed.label, str):
        members[f"{key}.cls"] = str(numbers[labels[0]]).encode()
    for name in sorted(members):
        entry = tarfile.TarInfo(name)
        entry.size = len(members[name])
        tar.addfile(entry, io.BytesIO(members[name]))
