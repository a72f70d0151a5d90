"""Data by name: what ``--data`` takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, overload

from hwbench.data.augmentations import augmentation
from hwbench.data.clips import ClipSpec
from hwbench.data.datasets import TestClips, TrainingClips
from hwbench.data.failures import FailurePolicy
from hwbench.data.readers import Reader
from hwbench.data.readers import get as get_reader
from hwbench.data.synthetic import SyntheticSpec, prepare
from hwbench.data.transforms import NORMALISATION, PICTURE, Normalisation, PictureSpec, ScaleJitter, Size
from hwbench.data.videos import Splits, read_splits
from hwbench.errors import InvalidValue, UnknownName
from hwbench.workspace import Workspace

SYNTHETIC = "synthetic"

Split = Literal["train", "val"]

# Two letters at least: C:\\clips is a path.
_READER = re.compile(r"[a-z][a-z0-9-]+")

# The X3D recipes look at 1.6 s (XS) to 2.7 s (M) of a video.
_SPAN_S = 2.0
# A synthetic clip covers 16 of the 24 frames, so that a random clip has room to start.
_SYNTHETIC_FRAMES = 16
# The synthetic set whole, and of a set of one's own as much as is there.
CACHE_BYTES = 512 * 2**20


def open_splits(workspace: Workspace, data: str, *, seed: int = 0) -> Splits:
    """The training and validation lists of ``synthetic`` (encoded on first use), of a path, or of ``READER:PATH``.

    Raises:
        UnknownName: None of these.
        InvalidFile: A path that is not laid out as its reader expects.
    """
    if data == SYNTHETIC:
        return read_splits(prepare(workspace, SyntheticSpec()))
    try:
        reader, path = _named(data)
        return read_splits(path, reader=reader, seed=seed)
    except UnknownName as error:
        raise UnknownName(f"{error}; write --data {SYNTHETIC}, --data PATH or --data READER:PATH") from None


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
    if data == SYNTHETIC:
        return ClipSpec(frames, stride=max(1, _SYNTHETIC_FRAMES // frames))
    return ClipSpec(frames, span_s=_SPAN_S)


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
    picture: PictureSpec = PICTURE,
    normalisation: Normalisation = NORMALISATION,
    transforms: Sequence[str] = (),
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
    picture: PictureSpec = PICTURE,
    normalisation: Normalisation = NORMALISATION,
    transforms: Sequence[str] = (),
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
    picture: PictureSpec = PICTURE,
    normalisation: Normalisation = NORMALISATION,
    transforms: Sequence[str] = (),
) -> TrainingClips | TestClips:
    """Clips of ``synthetic``, a path or ``READER:PATH``, (3, T, h, w) with T from ``clip`` and (h, w) = ``size``.

    With ``views = (clips, crops)`` the fixed views of a test, of either split; without it random training clips.
    ``picture`` says how frames are scaled and cut; with it three crops may be larger than ``size``.
    ``transforms`` are training transforms by name (``hwbench.data.augmentations``); a flip is refused where the data
    says that directions are labels.

    Raises:
        UnknownName: Neither ``synthetic`` nor an existing path.
        InvalidFile: A path whose folders or lists are not as they should be.
    """
    splits = open_splits(workspace, data, seed=seed)
    videos = splits.train if split == "train" else splits.val
    if views is None:
        jitter = ScaleJitter(size, picture.train_scale, normalisation=normalisation, resize=picture.resize)
        transform = augmentation(transforms, jitter, directional=videos.directional) if transforms else jitter
        return TrainingClips(videos, clip, transform, seed=seed, policy=policy, cache_bytes=cache_bytes)
    views_of = picture.test_transform(size, views[1], normalisation)
    return TestClips(videos, clip, views_of, clips=views[0], policy=policy, cache_bytes=cache_bytes)
