"""Data by name: what ``--data`` takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, overload

from hwbench import lookup
from hwbench.data.augmentations import augmentation
from hwbench.data.builtin import PREFIX, SYNTHETIC, find_builtin
from hwbench.data.clips import ClipSpec
from hwbench.data.datasets import TestClips, TrainingClips
from hwbench.data.decoded_cache import DecodedCache
from hwbench.data.decoders import Decoder
from hwbench.data.decoders import get as get_decoder
from hwbench.data.failures import FailurePolicy
from hwbench.data.flow_stream import FLOW_NORMALISATION, FlowTransform
from hwbench.data.flow_views import check_followed
from hwbench.data.generation import SPLITS, generate
from hwbench.data.info_index import InfoIndex
from hwbench.data.modalities import Modalities, OpticalFlow
from hwbench.data.readers import Listing, Reader, read, reader_of, readers
from hwbench.data.readers import get as get_reader
from hwbench.data.reading import READING, Reading
from hwbench.data.transforms import (
    NORMALISATION,
    PICTURE,
    Normalisation,
    PictureSpec,
    ScaleJitter,
    Size,
    TrainTransform,
)
from hwbench.data.videos import Splits, splits_of
from hwbench.errors import InvalidValue, UnknownName
from hwbench.room import DECODED, FLOW, use
from hwbench.user_folders import with_home
from hwbench.workspace import STATE, Workspace

Split = Literal["train", "val"]

# What is taken for the name of a reader that there is not. Two letters at least: C:\\clips is a path.
_READER = re.compile(r"[a-z][a-z0-9-]+")
readers.reserve((SYNTHETIC,))

# The X3D recipes look at 1.6 s (XS) to 2.7 s (M) of a video.
_SPAN_S = 2.0
# The synthetic set and motion48:small whole. A set that does not fit is decoded again in each pass.
CACHE_BYTES = 512 * 2**20
# In the workspace's folder of caches.
_INDEX = "videos/index.sqlite"


def open_splits(workspace: Workspace, data: str, *, seed: int = 0, trained_on: str = "") -> Splits:
    """The training and validation lists of ``synthetic`` or ``synthetic:NAME`` (encoded on first use), of a path, or of
    ``READER:PATH``; ``seed`` and ``trained_on`` are those of ``splits_of``.

    Raises:
        UnknownName: None of these.
        InvalidFile: A path that is not laid out as its reader expects.
    """
    path, listing = read_named(workspace, data)
    return splits_of(listing, path, seed=seed, trained_on=trained_on)


def read_named(workspace: Workspace, data: str) -> tuple[Path, Listing]:
    """The path of data by name, and what its reader lists there; the errors are those of ``open_splits``."""
    reader, path = locate(workspace, data)
    listing = read(reader, path)
    # Directions are labels of all synthetic sets.
    return path, listing if find_builtin(data) is None else replace(listing, directional=True)


def locate(workspace: Workspace, data: str) -> tuple[Reader, Path]:
    """The reader and the existing path of data by name; a synthetic set is encoded on first use.

    Raises:
        UnknownName: Neither a synthetic set, nor an existing path, nor one behind the name of a reader.
        InvalidValue: An option of another value than the reader takes.
    """
    builtin = find_builtin(data)
    if builtin is not None:
        path = generate(workspace, builtin.spec)
        return reader_of(path), path
    try:
        reader, path = _named(data)
        if not lookup.exists(path):
            raise UnknownName(f"no data at {path}")
    except UnknownName as error:
        raise UnknownName(f"{error}; data are {SYNTHETIC}, {PREFIX}NAME, PATH or READER:PATH") from None
    return reader or reader_of(path), path


def _named(data: str) -> tuple[Reader | None, Path]:
    """The reader and the path of ``READER:PATH?OPTION=VALUE&...``; what exists is a path, whatever it looks like."""
    name, colon, rest = data.partition(":")
    if not data.strip():
        raise UnknownName("the name of the data is empty")
    whole = with_home(data)
    if lookup.exists(whole) or not colon or not (name in readers or _READER.fullmatch(name)):
        return None, whole
    place, options = with_home(rest), ""
    if not lookup.exists(place):
        text, _, options = rest.partition("?")
        place = with_home(text)
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


def info_index(workspace: Workspace) -> InfoIndex:
    """What is known of the files of all data that were read in a workspace."""
    # Not ``workspace.state``: what only reads also works where nothing can be written.
    return InfoIndex(workspace.root / STATE / "cache" / _INDEX)


def _cached(workspace: Workspace, decoder: Decoder, limit_bytes: int, videos: int) -> DecodedCache:
    """A decoder that keeps decoded videos in the workspace."""
    return DecodedCache(decoder, _kept_in(workspace) / DECODED, limit_bytes, videos)


def _kept_in(workspace: Workspace) -> Path:
    """The cache of a workspace; ``hwbench doctor --clean`` spares what lies there until this process ends."""
    use(workspace.cache)
    return workspace.cache


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
    picture: PictureSpec = PICTURE,
    normalisation: Normalisation = NORMALISATION,
    transforms: Sequence[str] = (),
    reading: Reading = READING,
    splits: Splits | None = None,
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
    reading: Reading = READING,
    splits: Splits | None = None,
    fixed: bool = False,
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
    reading: Reading = READING,
    splits: Splits | None = None,
    fixed: bool = False,
) -> TrainingClips | TestClips:
    """Clips of ``synthetic``, ``synthetic:NAME``, a path or ``READER:PATH``: (3, T, h, w), T from ``clip`` and (h, w) =
    ``size``.

    With ``views = (clips, crops)`` the fixed views of a test, of either split; without it random training clips.
    ``picture`` says how frames are scaled and cut; with it three crops may be larger than ``size``,
    except where ``fixed`` says that the network takes no other size.
    ``transforms`` are training transforms by name (``hwbench.data.augmentations``); a flip is left out where the data
    says that directions are labels. Flow has a normalisation of its own, and clips of two channels. ``splits`` are what
    ``open_splits`` says of these data and this seed, where that was read already.

    Raises:
        UnknownName: Neither a synthetic set nor an existing path, or no such decoder.
        InvalidFile: A path whose folders or lists are not as they should be, or flow that belongs to two videos.
        MissingDependency: The decoder does not load.
        WorkspaceError: Decoded videos are to be kept, and the workspace cannot be written.
    """
    splits = splits or open_splits(workspace, data, seed=seed)
    if reading.flow is not None and (files := reading.flow.files()) is not None:
        both = (splits.train, splits.val)
        Modalities(flow=OpticalFlow(files)).check(side.source(at) for side in both for at in range(len(side)))
    videos = splits.train if split == "train" else splits.val
    decoder = open_decoder(workspace, reading, len(splits.train) + len(splits.val))
    index, how = info_index(workspace), normalisation if reading.flow is None else FLOW_NORMALISATION
    if views is None:
        jitter = ScaleJitter(size, picture.train_scale, normalisation=how, resize=picture.resize)
        transform: TrainTransform = jitter
        if transforms:
            transform = augmentation(transforms, jitter, directional=videos.directional)
        if reading.flow is not None:
            transform = FlowTransform(check_followed(transform))
        return TrainingClips(
            videos, clip, transform, seed=seed, policy=policy, cache_bytes=cache_bytes, index=index, decoder=decoder
        )
    test_transform = picture.fixed_transform if fixed else picture.test_transform
    return TestClips(
        videos,
        clip,
        test_transform(size, views[1], how),
        clips=views[0],
        policy=policy,
        cache_bytes=cache_bytes,
        index=index,
        decoder=decoder,
    )


def open_decoder(workspace: Workspace, reading: Reading, videos: int) -> Decoder:
    """What reads the frames, or the flow, of the videos of a data set.

    Args:
        workspace: Keeps decoded videos, and flow that was computed.
        reading: How.
        videos: How many share the room for decoded ones.

    Raises:
        UnknownName: No such decoder.
        MissingDependency: The decoder does not load, or what computes flow is not installed.
        InvalidValue: Decoded videos are to be kept, and flow is read.
        WorkspaceError: Something is to be kept, and the workspace cannot be written.
    """
    decoder = get_decoder(reading.decoder)
    if reading.flow is not None:
        if reading.decoded_cache_bytes:
            raise InvalidValue(
                "--decoded-cache keeps pictures; leave it out with --modality flow, whose files are kept"
            )
        folder = _kept_in(workspace) / FLOW if reading.flow.computes else Path()
        return reading.flow.decoder(decoder, folder)
    if reading.decoded_cache_bytes:
        return _cached(workspace, decoder, reading.decoded_cache_bytes, videos)
    return decoder
