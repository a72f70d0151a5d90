"""Facts of a video file: probed, decoded or digested; and their cache, by path, size and time of change."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from hwbench.data.decoding import VideoInfo
from hwbench.data.kept_facts import KeptFacts
from hwbench.data.media import VideoSource
from hwbench.data.streaming import stream_frames
from hwbench.errors import VideoError

FactKind = Literal["probe", "decode", "bytes", "frames"]
Facts = Mapping[str, Any]

# Raised whenever a fact is found out in another way.
_VERSION = 4
_BLOCK_BYTES = 2**20
# Steps between frames that differ by less than this share are those of one rate.
_SAME_RATE = 0.1


@dataclass(frozen=True)
class FactTask:
    """What to find out of a video: ``path`` is the file, folder or archive that it lies in."""

    kind: FactKind
    source: VideoSource
    path: Path


def find_facts(task: FactTask) -> Facts:
    """One kind of facts of a video, as JSON has them.

    * ``probe``: what its packets say; no frame is decoded.
    * ``decode``: the same, after every frame was decoded; ``damaged`` counts those the decoder marks as such.
    * ``bytes``: the SHA-256 of the file.
    * ``frames``: a SHA-256 of the frames at the quarters and of three keyframes, the same in every container.

    A video that cannot be read has an ``error``, which does not name it.
    """
    try:
        return _FINDERS[task.kind](task)
    except VideoError as error:
        return {"error": str(error).removeprefix(f"{task.source.name}: ").removeprefix(f"{task.path}: ")}
    except OSError as error:
        return {"error": error.strerror or str(error)}


def _probe(task: FactTask) -> Facts:
    with task.source.open() as video:
        return _described(video.info)


def _decode(task: FactTask) -> Facts:
    with task.source.open() as video:
        info = video.info
    damaged = sum(
        bool(getattr(frame, "is_corrupt", False))
        for _, frame in stream_frames(task.source, info, range(info.num_frames))
    )
    return {**_described(info), "damaged": damaged}


def _digest_bytes(task: FactTask) -> Facts:
    digest = hashlib.sha256()
    with task.path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return {"digest": digest.hexdigest()}


def _digest_frames(task: FactTask) -> Facts:
    with task.source.open() as video:
        last, keys = video.info.num_frames - 1, video.info.keyframes or (0,)
        # A clip shorter than the distance of keyframes has one, which is black in all that fade in.
        quarters = {last * quarter // 4 for quarter in range(5)}
        frames = video.read(tuple(sorted({*quarters, keys[len(keys) // 2], keys[-1]})))
    return {"digest": hashlib.sha256(str(frames.shape).encode() + np.ascontiguousarray(frames).tobytes()).hexdigest()}


_FINDERS: Mapping[FactKind, Callable[[FactTask], Facts]] = {
    "probe": _probe,
    "decode": _decode,
    "bytes": _digest_bytes,
    "frames": _digest_frames,
}


def _described(info: VideoInfo) -> Facts:
    low_s, high_s = _steps_s(info)
    return {
        "width": info.width,
        "height": info.height,
        "codec": info.codec,
        "frames": info.num_frames,
        "duration_s": round(info.duration_s, 6),
        "exact_duration_s": str(info.exact_duration_s),
        "fps": round(info.fps, 4),
        "keyframes": len(info.keyframes),
        "shortest_step_s": low_s,
        "longest_step_s": high_s,
        "variable": is_variable(info),
    }


def _steps_s(info: VideoInfo) -> tuple[float, float]:
    if info.num_frames < 2:
        return 0.0, 0.0
    steps = np.diff(info.pts)
    return round(float(steps.min() * info.time_base), 6), round(float(steps.max() * info.time_base), 6)


def is_variable(info: VideoInfo) -> bool:
    """Whether frames are unevenly apart; by one tick they are where a file counts time in coarse ticks."""
    if info.counted or info.num_frames < 3:
        return False
    steps = np.diff(info.pts)
    typical = float(np.median(steps))
    return bool(np.abs(steps - typical).max() > _SAME_RATE * typical) and not _is_rounded_grid(info)


def _is_rounded_grid(info: VideoInfo) -> bool:
    """Whether times are those of one rate, each rounded to a tick: 8 and 9 ms apart at 120 frames/s.

    Steps of one tick tell nothing: two of them are as well a frame that is missing.
    """
    passed, last = info.pts - info.pts[0], info.num_frames - 1
    steps = np.diff(passed)
    if steps.min() < 2 or steps.max() - steps.min() > 1:
        return False
    grid = np.arange(info.num_frames) * (int(passed[-1]) / last)
    return bool(np.abs(passed - grid).max() < 1.01)  # the ends of the grid are rounded, too


class FactsCache:
    """Facts of files, kept; those of a file that changed are not.

    No error is kept: the share may be back, or the codec installed, while the file stays as it was. FFmpeg's errors do
    not tell which of them come from the content.
    """

    def __init__(self, file: Path) -> None:
        self._kept = KeptFacts(file)

    def get(self, task: FactTask) -> Facts | None:
        """Facts that were kept of a file as it is now; versions before this one kept errors, too: not those."""
        text = self._kept.get(*_names(task), task.path)
        if text is None:
            return None
        with contextlib.suppress(ValueError):
            facts = json.loads(text)
            return facts if isinstance(facts, dict) and "error" not in facts else None
        return None

    def put(self, task: FactTask, facts: Facts) -> None:
        """Keeps facts; no errors, and nothing of a folder, whose time of change says little."""
        if "error" in facts:
            return
        self._kept.put(*_names(task), task.path, json.dumps(facts))

    def __enter__(self) -> FactsCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kept.close()


def _names(task: FactTask) -> tuple[str, str]:
    return f"{task.kind} {_VERSION}", str(task.path.absolute()) + task.source.identity(task.path)
