"""Data by name: what ``--data`` takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, overload

from hwbench.data.builtin import PREFIX, SYNTHETIC, find_builtin
from hwbench.data.clips import ClipSpec
from hwbench.data.datasets import TestClips, TrainingClips
from hwbench.data.failures import FailurePolicy
from hwbench.data.generation import SPLITS, generate
from hwbench.data.readers import Reader
from hwbench.data.readers import get as get_reader
from hwbench.data.transforms import ScaleJitter, Size, TestTransform
from hwbench.data.videos import Splits, read_splits
from hwbench.errors import InvalidValue, UnknownName
from hwbench.workspace import Workspace

Split = Literal["train", "val"]

# Two letters at least: C:\\clips is a path.
_READER = re.compile(r"[a-z][a-z0-9-]+")

# The X3D recipes look at 1.6 s (XS) to 2.7 s (M) of a video.
_SPAN_S = 2.0
# The synthetic set and motion48:small whole. A set that does not fit is decoded again in each pass.
CACHE_BYTES = 512 * 2**20


def open_splits(workspace: Workspace, data: str, *, seed: int = 0) -> Splits:
    """The training and validation lists of ``synthetic`` or ``synthetic:NAME`` (encoded on first use), of a path, or of
    ``READER:PATH``.

    Raises:
        UnknownName: None of these.
        InvalidFile: A path that is not laid out as its reader expects.
    """
    builtin = find_builtin(data)
    if builtin is not None:
        return read_splits(generate(workspace, builtin.spec))
    try:
        reader, path = _named(data)
        return read_splits(path, reader=reader, seed=seed)
    except UnknownName as error:
        raise UnknownName(
            f"{error}; write --data {SYNTHETIC}, --data {PREFIX}NAME, --data PATH or --data READER:PATH"
        ) from None


def _named(data: str) -> tuple[Reader | None, Path]:
    """The reader and the path of ``READER:PATH?OPTION=VALUE&...``; what exists is a path, whatever it looks like."""
    name, colon, rest = data.partition(":")
    whole = Path(data).expanduser()
    if whole.exists() or not colon or not _READER.fullmatch(name):
        return None, whole
    place, options = Path(rest).expanduser(), ""
    if not place.exists():
        text, _, options = rest.partition("?")
        place = Path(text).expanduser()
    reader = get_reader(name, _options(data, options))
    if not rest:
        raise UnknownName(f"no path behind {data!r}")
    return reader, place


def _options(data: str, text: str) -> dict[str, str]:
    """The options of a data name: ``a=1&b=2``."""
    options: dict[str, str] = {}
    for word in filter(None, text.split("&")):
        name, equals, value = word.partition("=")
        if not equals or name in options:
            raise InvalidValue(f"{data}: expected options as READER:PATH?OPTION=VALUE&OPTION=VALUE, got {word!r}")
        options[name] = value
    return options


def default_clip(data: str, frames: int) -> ClipSpec:
    """How clips of ``frames`` frames are cut unless the user says otherwise."""
    builtin = find_builtin(data)
    if builtin is not None:
        return builtin.clip(frames)
    return ClipSpec(frames, span_s=_SPAN_S)


def stays_in_memory(data: str) -> bool:
    """Whether data by name is a synthetic set whose decoded videos fit into the memory that a data set may take."""
    builtin = find_builtin(data)
    return builtin is not None and all(builtin.spec.decoded_bytes(split) <= CACHE_BYTES for split in SPLITS)


@overload
def open_dataset(
    workspace: Workspace,
    data: str,
    *,
    split: Split,
    size: Size,
    clip: ClipSpec,
    views: None = None,
    seed: int = 0,
    policy: FailurePolicy = FailurePolicy.RAISE,
    cache_bytes: int = CACHE_BYTES,
) -> TrainingClips: ...


@overload
def open_dataset(
    workspace: Workspace,
    data: str,
    *,
    split: Split,
    size: Size,
    clip: ClipSpec,
    views: tuple[int, int],
    seed: int = 0,
    policy: FailurePolicy = FailurePolicy.RAISE,
    cache_bytes: int = CACHE_BYTES,
) -> TestClips: ...


def open_dataset(
    workspace: Workspace,
    data: str,
    *,
    split: Split,
    size: Size,
    clip: ClipSpec,
    views: tuple[int, int] | None = None,
    seed: int = 0,
    policy: FailurePolicy = FailurePolicy.RAISE,
    cache_bytes: int = CACHE_BYTES,
) -> TrainingClips | TestClips:
    """Clips of ``synthetic``, ``synthetic:NAME``, a path or ``READER:PATH``: (3, T, h, w), T from ``clip`` and (h, w) =
    ``size``.

    With ``views = (clips, crops)`` the fixed views of a test, of either split; without it random training clips.

    Raises:
        UnknownName: Neither a synthetic set nor an existing path.
        InvalidFile: A path whose folders or lists are not as they should be.
    """
    splits = open_splits(workspace, data, seed=seed)
    videos = splits.train if split == "train" else splits.val
    if views is None:
        return TrainingClips(videos, clip, ScaleJitter(size), seed=seed, policy=policy, cache_bytes=cache_bytes)
    transform = TestTransform(size, crops=views[1])
    return TestClips(videos, clip, transform, clips=views[0], policy=policy, cache_bytes=cache_bytes)
